//! HAProxys that keep the pace by themselves: in virtual time, and real ones.

mod captures;
mod paced;
mod rules;
