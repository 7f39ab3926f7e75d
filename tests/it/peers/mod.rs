//! HAProxys that keep the pace by themselves: in virtual time, and real ones.

mod paced;
mod rules;
