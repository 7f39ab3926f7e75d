//! The probe: a moment with fewer requests inside, which measures the bases of the pages.

use std::time::Duration;

use crate::base::Timestamp;

/// The part of the limit that goes inside meanwhile.
pub(super) const PART: f64 = 0.6;

/// A probe is over after this many ends of requests that were released meanwhile, or after this time.
const ENDS: u32 = 24;
const LONGEST: Duration = Duration::from_secs(5);

/// The time of saturation between two probes.
const EVERY: Duration = Duration::from_secs(20);

/// The least time between two probes.
const PAUSE: Duration = Duration::from_secs(2);

/// A limit below this part of its highest value since the last probe needs bases that can be trusted.
const FALLEN: f64 = 0.65;

/// When to measure. Bases are measured, not guessed. A measurement refuses no request, but some wait
/// half a second longer.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    run: Option<ProbeRun>,
    /// The time of saturation since the last probe, and that at which the next one is due.
    saturated: Duration,
    due: Duration,
    last: Option<Timestamp>,
    /// The highest limit since the last probe.
    highest: f64,
}

#[derive(Clone, Copy, Debug)]
struct ProbeRun {
    begun: Timestamp,
    /// When the requests of before had gone.
    quiet: Option<Timestamp>,
    ends: u32,
}

/// What a limit knows at the end of a window in which requests waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saturation {
    pub(super) limit: f64,
    /// The time for which the limit was nearly used up.
    pub(super) full: Duration,
    pub(super) is_slow: bool,
    /// Most ends were of pages without a base.
    pub(super) is_unknown: bool,
}

impl Probe {
    pub(super) fn new(limit: f64) -> Probe {
        Probe { run: None, saturated: Duration::ZERO, due: Duration::ZERO, last: None, highest: limit }
    }

    pub(super) fn is_running(&self) -> bool {
        self.run.is_some()
    }

    pub(super) fn grown(&mut self, limit: f64) {
        self.highest = self.highest.max(limit);
    }

    /// Begins a probe if one is due: at the first saturation, after 20 s of it, and when the limit has fallen far, but
    /// pages still seem slow.
    pub(super) fn begin(&mut self, now: Timestamp, saturation: Saturation) {
        self.saturated += saturation.full;
        let has_fallen = saturation.is_slow && saturation.limit < FALLEN * self.highest;
        let is_paused = self.last.is_some_and(|last| now.since(last) <= PAUSE);
        if self.saturated >= self.due || !is_paused && (has_fallen || saturation.is_unknown) {
            self.run = Some(ProbeRun { begun: now, quiet: None, ends: 0 });
        }
    }

    /// Whether an end belongs to the probe: its request was released after all earlier ones had left.
    pub(super) fn counts(&mut self, released: Timestamp, now: Timestamp, has_room: bool) -> bool {
        let Some(run) = &mut self.run else { return false };
        match run.quiet {
            None if has_room => run.quiet = Some(now),
            Some(quiet) if quiet <= released => {
                run.ends += 1;
                return true;
            }
            _ => {}
        }
        false
    }

    /// Ends a probe that has seen enough. Returns whether it has.
    pub(super) fn end(&mut self, now: Timestamp, limit: f64) -> bool {
        let is_over = self.run.is_some_and(|run| run.ends >= ENDS || now.since(run.begun) > LONGEST);
        if is_over {
            *self = Probe { due: EVERY, last: Some(now), ..Probe::new(limit) };
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Duration = Duration::from_millis(200);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn saturation(limit: f64, is_slow: bool) -> Saturation {
        Saturation { limit, full: FULL, is_slow, is_unknown: false }
    }

    /// Begins a probe, and ends it with enough ends.
    fn ended(probe: &mut Probe, now: Timestamp) {
        assert!(probe.is_running() && !probe.end(now, 10.0));
        assert!(!probe.counts(now, now, true), "one of before");
        assert!((0..ENDS).all(|_| probe.counts(now, now, true)));
        assert!(probe.end(now, 10.0) && !probe.is_running());
    }

    #[test]
    fn the_first_saturation_is_probed_and_each_after_20_s_of_it() {
        let mut probe = Probe::new(16.0);
        probe.begin(at(1_000), saturation(16.0, false));
        ended(&mut probe, at(1_500));
        for window in 0..99 {
            probe.begin(at(1_700 + 200 * window), saturation(16.0, false));
            assert!(!probe.is_running());
        }
        probe.begin(at(21_500), saturation(16.0, false));
        assert!(probe.is_running());
    }

    #[test]
    fn a_limit_that_has_fallen_in_vain_is_probed_after_a_pause() {
        let mut probe = Probe::new(16.0);
        probe.begin(at(1_000), saturation(16.0, false));
        ended(&mut probe, at(1_500));
        probe.begin(at(3_400), saturation(6.0, true));
        assert!(!probe.is_running(), "too soon");
        probe.begin(at(3_600), saturation(6.0, false));
        assert!(!probe.is_running(), "not slow");
        probe.begin(at(3_600), saturation(6.0, true));
        assert!(probe.is_running());
    }

    #[test]
    fn a_probe_without_ends_is_over_after_five_seconds() {
        let mut probe = Probe::new(16.0);
        probe.begin(at(1_000), saturation(16.0, false));
        assert!(!probe.end(at(6_000), 10.0));
        assert!(probe.end(at(6_001), 10.0));
    }
}
