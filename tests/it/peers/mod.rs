//! HAProxys that enforce limits locally: in virtual time, and real ones.

mod captures;
mod cluster;
mod faults;
mod hostile;
mod logged;
mod paced;
mod real;
mod relay;
mod rules;
mod started;
mod tls;
