//! Tests of the laws in virtual time, against independent implementations of their formulas and common properties.

mod adaptive;
mod assured;
mod buckets;
mod concurrency;
mod conformance;
mod explained;
mod fair;
mod floors;
pub mod lines;
mod log;
pub mod oracle;
mod pace;
mod rates;
mod reload;
mod several;
mod sketch;
mod skew;
mod tickets;
mod windows;
