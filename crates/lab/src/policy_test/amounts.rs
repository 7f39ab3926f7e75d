//! The number of a verdict, in whole milliseconds of a delay or whole seconds of a `Retry-After`.

use std::time::Duration;

use slowlane_core::base::kind::Kind;
use slowlane_core::base::units;
use slowlane_core::base::verdict::Verdict;

/// The number of a verdict as proxies get it: milliseconds of a delay, seconds of a refusal; 0 for a pass.
pub(super) fn amount(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Pass => 0,
        Verdict::Delay(_) => verdict.delay_ms(),
        Verdict::Deny { retry_after_s } => retry_after_s.into(),
    }
}

/// The number of verdicts of one kind, and the range of their amounts, as in `3 delay 20ms..60ms`.
///
/// A single request needs no number, and the range `None` is that of any amount.
pub(super) fn written(asked: u32, count: u32, kind: Kind, range: Option<(u64, u64)>) -> String {
    let count = if asked == 1 { String::new() } else { format!("{count} ") };
    let name = kind.name();
    let time = |amount: u64| match kind {
        Kind::Deny => units::written(Duration::from_secs(amount)),
        Kind::Pass | Kind::Delay => units::written(Duration::from_millis(amount)),
    };
    match range {
        None => format!("{count}{name}"),
        Some(_) if kind == Kind::Pass => format!("{count}{name}"),
        Some((from, to)) if from == to => format!("{count}{name} {}", time(from)),
        Some((from, to)) => format!("{count}{name} {}..{}", time(from), time(to)),
    }
}
