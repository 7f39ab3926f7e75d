//! What systemd is told of the service. Without it there is nobody to tell, which is no error.

use std::time::Duration;

use sd_notify::NotifyState;

/// A line of `systemctl status` holds no more, and a datagram has an end.
const STATUS_CHARS_MAX: usize = 200;

/// All listeners are bound; or a reload has ended, well or not.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// A reload that was asked for has begun. [`ready`] ends it. The time is for `Type=notify-reload`, which takes the two for the
/// answer to its signal.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// What `systemctl status` shows of it.
pub(crate) fn status(text: &str) {
    tell(&[NotifyState::Status(&one_line(text))]);
}

pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// How often systemd wants to be told that the service is [`alive`], if it does: it waits twice as long.
pub(crate) fn watchdog() -> Option<Duration> {
    let mut usec = 0;
    sd_notify::watchdog_enabled(false, &mut usec).then(|| Duration::from_micros(usec) / 2)
}

pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::warn!("cannot tell systemd: {error}");
    }
}

/// A message is lines, so a line that a file brings with it must not become one of ours.
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
