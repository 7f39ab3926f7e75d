//! The probe: short stages with fewer and fewer requests inside, which measure the bases of the pages.

use std::time::Duration;

use crate::base::Timestamp;
use crate::law::protect::limit::LEAST;

/// In the first stage of a probe, this part of the limit may be inside; in each later stage, this part of the previous
/// number. If the limit has fallen far, all of it is used at first: a part would leave the application idle.
const PART: f64 = 0.6;

/// The first stage, and each later stage, is over once this many of the requests released in the stage have ended.
const ENDS: u32 = 24;
const ENDS_OF_NEXT: u32 = 12;

/// The longest time of the first stage. A later stage may take at most as long as the first one did. A stage that takes
/// longer ends the probe.
const LONGEST: Duration = Duration::from_secs(5);

/// Another stage follows while the mean logarithm of the times has fallen by more than this: if so, requests still
/// queued in the stage before. Times that consist only of queueing fall by 0.5, as much as the logarithm of the part.
pub(super) const FALL: f64 = 0.2;

/// The time of saturation between two probes.
const EVERY: Duration = Duration::from_secs(20);

/// The shortest time between two probes.
const PAUSE: Duration = Duration::from_secs(2);

/// If pages still seem slow at a limit below this part of the highest limit since the last probe, a probe checks bases.
const FALLEN: f64 = 0.65;

/// Decides when to measure the bases, which are never guessed. A probe refuses no request, but some requests wait half
/// a second longer.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    run: Option<ProbeRun>,
    /// The time of saturation since the last probe, and how much saturation makes the next probe due.
    saturated: Duration,
    due: Duration,
    last: Option<Timestamp>,
    /// The highest limit since the last probe.
    highest: f64,
}

#[derive(Clone, Copy, Debug)]
struct ProbeRun {
    begun: Timestamp,
    longest: Duration,
    /// The part of the limit that goes inside.
    part: f64,
    is_first: bool,
    /// When the number inside first fell to the limit of this stage. None if the number is still above this limit.
    quiet: Option<Timestamp>,
    ends: u32,
}

/// How the end of a window affects a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probed {
    Nothing,
    /// A stage is over, and the next begins.
    Stage,
    All,
}

/// The state of a limit at the end of a window in which some requests waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saturation {
    pub(super) limit: f64,
    /// The time for which the limit was nearly used up.
    pub(super) full: Duration,
    pub(super) is_slow: bool,
    /// Whether most ends were of pages without a base.
    pub(super) is_unknown: bool,
}

impl Probe {
    pub(super) fn new(limit: f64) -> Probe {
        Probe { run: None, saturated: Duration::ZERO, due: Duration::ZERO, last: None, highest: limit }
    }

    /// The part of the limit that goes inside now.
    pub(super) fn part(&self) -> f64 {
        self.run.map_or(1.0, |run| run.part)
    }

    pub(super) fn is_running(&self) -> bool {
        self.run.is_some()
    }

    pub(super) fn grown(&mut self, limit: f64) {
        self.highest = self.highest.max(limit);
    }

    /// Begins a probe if one is due: at the first saturation, after 20 s of saturation, if the limit has fallen far but
    /// pages still seem slow, or if most ends are of pages without a base.
    pub(super) fn begin(&mut self, now: Timestamp, saturation: Saturation) {
        self.saturated += saturation.full;
        let has_fallen = saturation.is_slow && saturation.limit < FALLEN * self.highest;
        let is_paused = self.last.is_some_and(|last| now.since(last) <= PAUSE);
        if self.saturated >= self.due || !is_paused && (has_fallen || saturation.is_unknown) {
            let part = if has_fallen { 1.0 } else { PART };
            self.run =
                Some(ProbeRun { begun: now, longest: LONGEST, part, is_first: true, quiet: None, ends: 0 });
        }
    }

    /// Whether a request's end belongs to the probe: the request was released after the number inside had fallen to the
    /// limit.
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

    /// Ends a stage that has seen enough ends or takes too long. `fall` returns how far the times fell in the stage, or
    /// `None` in the first stage.
    pub(super) fn end(&mut self, now: Timestamp, limit: f64, fall: impl FnOnce() -> Option<f64>) -> Probed {
        let Some(run) = &mut self.run else { return Probed::Nothing };
        let enough = if run.is_first { ENDS } else { ENDS_OF_NEXT };
        let is_late = now.since(run.begun) > run.longest;
        if run.ends < enough && !is_late {
            return Probed::Nothing;
        }
        if !is_late && limit * run.part > LEAST && fall().is_none_or(|fall| fall > FALL) {
            let longest = if run.is_first { now.since(run.begun) } else { run.longest };
            *run = ProbeRun {
                begun: now,
                longest,
                part: run.part * PART,
                is_first: false,
                quiet: None,
                ends: 0,
            };
            return Probed::Stage;
        }
        *self = Probe { due: EVERY, last: Some(now), ..Probe::new(limit) };
        Probed::All
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

    /// Ends a stage with enough ends. The times have fallen by so much.
    fn staged(probe: &mut Probe, now: Timestamp, ends: u32, fall: Option<f64>) -> Probed {
        assert_eq!(probe.end(now, 10.0, || panic!("too soon")), Probed::Nothing);
        assert!(!probe.counts(now, now, true), "one of before");
        assert!((0..ends).all(|_| probe.counts(now, now, true)));
        probe.end(now, 10.0, || fall)
    }

    fn ended(probe: &mut Probe, now: Timestamp) {
        assert_eq!(staged(probe, now, ENDS, None), Probed::Stage);
        assert_eq!(staged(probe, now, ENDS_OF_NEXT, Some(0.1)), Probed::All);
        assert!(!probe.is_running());
    }

    #[test]
    fn fewer_go_inside_until_times_fall_no_more() {
        let mut probe = Probe::new(10.0);
        probe.begin(at(1_000), saturation(10.0, false));
        let mut parts = vec![probe.part()];
        for fall in [None, Some(0.5), Some(0.4)] {
            let ends = if fall.is_none() { ENDS } else { ENDS_OF_NEXT };
            assert_eq!(staged(&mut probe, at(1_500), ends, fall), Probed::Stage);
            parts.push(probe.part());
        }
        assert_eq!(
            staged(&mut probe, at(1_500), ENDS_OF_NEXT, Some(0.5)),
            Probed::All,
            "1.3 of ten are too few"
        );
        assert!(parts.iter().zip([0.6, 0.36, 0.216, 0.1296]).all(|(part, is)| (part - is).abs() < 1e-9));
        assert_eq!(probe.part(), 1.0);
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
        assert_eq!(probe.part(), 1.0, "as it has fallen");
        assert_eq!(staged(&mut probe, at(4_000), ENDS, None), Probed::Stage);
        assert_eq!(probe.part(), PART);
        assert_eq!(staged(&mut probe, at(4_300), ENDS_OF_NEXT, Some(0.5)), Probed::Stage);
        assert!((probe.part() - PART * PART).abs() < 1e-9);
    }

    #[test]
    fn a_probe_without_ends_is_over_after_five_seconds() {
        let mut probe = Probe::new(16.0);
        probe.begin(at(1_000), saturation(16.0, false));
        assert_eq!(probe.end(at(6_000), 10.0, || None), Probed::Nothing);
        assert_eq!(probe.end(at(6_001), 10.0, || None), Probed::All);
    }
}
