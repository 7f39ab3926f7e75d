//! Messages to systemd about the service (sd_notify). Without systemd, nothing is sent.

use std::time::Duration;
use std::{env, process};

use sd_notify::NotifyState;

/// The maximum number of characters of a status. They fit in a datagram; `systemctl status` shows no more on a line.
const STATUS_CHARS_MAX: usize = 200;

/// Reports that all listeners are bound, or that a reload has ended, with or without success.
pub(crate) fn ready() {
    report(&[NotifyState::Ready]);
}

/// Reports that a requested reload has begun; [`ready`] reports its end.
///
/// The message contains the time, which `Type=notify-reload` needs to match the reload with its signal.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => report(&[NotifyState::Reloading, now]),
        Err(_) => report(&[NotifyState::Reloading]),
    }
}

/// Sets the status line of `systemctl status`.
pub(crate) fn status(text: &str) {
    report(&[NotifyState::Status(&one_line(text))]);
}

/// Reports that another process is the service's main process from now on.
pub(crate) fn main_process(pid: u32) {
    report(&[NotifyState::MainPid(pid)]);
}

pub(crate) fn stopping() {
    report(&[NotifyState::Stopping]);
}

/// The interval for [`alive`]: half of the watchdog timeout. `None` without a watchdog.
///
/// A missing `WATCHDOG_PID` means any process (sd_watchdog_enabled(3)). An upgrade removes the variable, because the
/// new process has another id.
pub(crate) fn watchdog() -> Option<Duration> {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>());
    let timeout = Duration::from_micros(number("WATCHDOG_USEC")?.ok()?);
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == Ok(process::id().into()));
    (is_ours && !timeout.is_zero()).then(|| timeout / 2)
}

pub(crate) fn alive() {
    report(&[NotifyState::Watchdog]);
}

fn report(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::warn!("cannot notify systemd: {error}");
    }
}

/// The first line of a text, cut short and without control characters: other lines would be separate messages.
fn one_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(STATUS_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_line_whatever_a_map_holds() {
        assert_eq!(one_line("slo.map:1: \"a\u{1b}[2J\"\rb\nREADY=1"), "slo.map:1: \"a[2J\"b");
        assert_eq!(one_line(""), "");
        assert_eq!(one_line(&"ü".repeat(1_000)).chars().count(), STATUS_CHARS_MAX);
    }
}
