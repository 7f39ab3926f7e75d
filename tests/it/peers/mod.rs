//! HAProxys that keep the pace by themselves: in virtual time, and real ones.

mod captures;
mod cluster;
mod hostile;
mod paced;
mod real;
mod rules;
mod tls;
