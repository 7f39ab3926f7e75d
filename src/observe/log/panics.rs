//! Panics as log lines, because the standard library's own hook writes directly to standard error, and may block.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, PanicHookInfo};
use std::thread;

/// Logs each panic from now on.
pub(super) fn log() {
    panic::set_hook(Box::new(|panicked| {
        tracing::error!("{}", describe(panicked));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            for line in backtrace.to_string().lines() {
                tracing::error!("{line}");
            }
        }
    }));
}

fn describe(panicked: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let place = panicked.location().map(ToString::to_string).unwrap_or_default();
    format!(
        "panic in thread {:?} at {place}: {}",
        thread.name().unwrap_or("unnamed"),
        text(panicked.payload())
    )
}

/// The message on one line.
fn text(payload: &dyn Any) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").lines().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(text(&"a\nb"), "a b");
        assert_eq!(text(&"a".to_owned()), "a");
        assert_eq!(text(&1), "no message");
    }
}
