//! The laws in virtual time: against their formulas written a second time, and against what is promised of all.

mod adaptive;
mod annexes;
mod buckets;
mod concurrency;
mod conformance;
mod explain;
mod fair;
mod floors;
mod log;
mod oracle;
mod pace;
mod rates;
mod reload;
mod several;
mod warm_up;
mod windows;
