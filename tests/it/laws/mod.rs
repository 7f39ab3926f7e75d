//! The laws in virtual time: against their formulas written a second time, and against what is promised of all.

mod adaptive;
mod fair;
mod oracle;
mod pace;
mod rates;
mod warm_up;
