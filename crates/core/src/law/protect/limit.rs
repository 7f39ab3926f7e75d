//! The limit: how many requests may be inside, derived from the slow-down.

use std::time::Duration;

use crate::base::Timestamp;
use crate::law::protect::probe::{Probe, Probed, Saturation};

/// The initial limit.
pub const START: f64 = 16.0;

/// The minimum limit.
pub const LEAST: f64 = 2.0;

/// Below this limit, the target is higher and the limit grows faster. If several limits protect one application, the
/// smallest would otherwise see mostly the small requests of customers, which a queue slows down most, and shrink to
/// nothing next to the other limits.
const SMALL: f64 = 8.0;

/// The maximum limit. Requests inside beyond this number are not counted.
pub(super) const MOST: usize = 1 << 16;

/// The limit moves at most once per window of this length, and only if at least `ENDS_MIN` requests have ended.
pub(super) const WINDOW: Duration = Duration::from_millis(200);
const ENDS_MIN: u32 = 8;

/// One window adds at most this much time of saturation, because time without calls is not saturation.
const WINDOW_LONGEST: Duration = Duration::from_secs(1);

/// The limit counts as used up when requests fill this part of it.
const FULL: f64 = 0.8;

/// The slow-down is a mean over about this many of the latest measured requests.
const MEMORY: f64 = 60.0;

/// The limit neither grows nor shrinks while the slow-down is below its target by at most this part of log(slowdown).
const STAYS: f64 = 0.2;

/// Requests that end within a third of their page's time are errors or come from a cache: they do not show that the
/// application has gained capacity.
pub(super) const TOO_FAST: f64 = -1.1;

/// The number of windows in which the limit does not change after it has shrunk, and after a probe: the requests that
/// end in these windows may have been released under the old limit.
const SETTLES: u8 = 2;
const SETTLES_AFTER_PROBE: u8 = 3;

/// The limit of one application. The limit grows while requests wait and the slow-down is well below the target, and
/// shrinks in proportion to the excess, like a gradient limit (Netflix, concurrency-limits, 2018). But each page has
/// its own base, instead of one minimum for all, so that a change in the mix of pages does not look like a queue.
///
/// ```text
/// slow-down s = mean of (log of the time inside - base of its page), over some 60 ends
/// target    t = log(slowdown) + max(0, log(8 / L) / 2)
/// s > t:                                         L = L * max(0.6, 1 - (s - t) / 2)
/// s < t - log(slowdown) / 5 and requests wait:   L = L + max(1/4, 0.06 * max(8, L) * min(1, 1 - s / t))
/// ```
#[derive(Clone, Debug)]
pub(super) struct Limit {
    limit: f64,
    target: f64,
    /// The mean excess, as a logarithm.
    slow_down: f64,
    settles: u8,
    window: Window,
    /// Whether the last window was idle.
    was_idle: bool,
    pub(super) probe: Probe,
}

/// The counts since the limit was last adapted.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    opened: Timestamp,
    ends: u32,
    measured: u32,
    excess: f64,
    peak: usize,
    waited: bool,
}

impl Limit {
    pub(super) fn new(slow_down: f64) -> Limit {
        Limit {
            limit: START,
            target: target(slow_down),
            slow_down: 0.0,
            settles: 0,
            window: Window::default(),
            was_idle: true,
            probe: Probe::new(START),
        }
    }

    pub(super) fn aim_at(&mut self, slow_down: f64) {
        self.target = target(slow_down);
    }

    /// How many requests may be inside now.
    pub(super) fn places(&self) -> usize {
        (self.limit * self.probe.part()).max(LEAST).ceil() as usize
    }

    /// The slow-down as a factor: the time that a page takes, divided by the time that it takes when nothing queues.
    pub(super) fn slow_down(&self) -> f64 {
        self.slow_down.exp()
    }

    /// Records how many requests are inside, and whether other requests wait.
    pub(super) fn note(&mut self, inside: usize, waits: bool) {
        self.window.peak = self.window.peak.max(inside);
        self.window.waited |= waits;
    }

    /// Whether nothing queues, so that a time measured now shows the base of its page.
    pub(super) fn is_idle(&self) -> bool {
        self.was_idle && self.is_window_idle()
    }

    fn is_window_idle(&self) -> bool {
        !self.window.waited && (self.window.peak as f64) < self.limit / 2.0
    }

    /// Counts a request that has ended, and adds its excess over the base of its page, if the page has a base.
    pub(super) fn end(&mut self, excess: Option<f64>) {
        self.window.ends += 1;
        if let Some(excess) = excess {
            self.window.measured += 1;
            self.window.excess += excess;
        }
    }

    /// The time at which the window is over.
    pub(super) fn due(&self) -> Timestamp {
        self.window.opened + WINDOW
    }

    /// Ends a window. A probe may begin, advance or end, and the limit is adapted if enough requests ended in the
    /// window; otherwise, the counts are kept. `fall` returns how far the times fell in the current stage of a probe.
    pub(super) fn close(
        &mut self,
        now: Timestamp,
        inside: usize,
        waits: bool,
        fall: impl FnOnce() -> Option<f64>,
    ) -> Probed {
        let probed = self.probe.end(now, self.limit, fall);
        if probed == Probed::All {
            self.slow_down = self.slow_down.min(self.target());
            self.settles = SETTLES_AFTER_PROBE;
            self.window = Window { opened: now, peak: inside, ..Window::default() };
        } else if !self.probe.is_running() && waits {
            self.probe.begin(now, self.saturation(now, inside));
        }
        self.window.opened = now;
        if self.window.ends >= ENDS_MIN {
            self.was_idle = self.is_window_idle();
            self.adapt();
            self.window = Window { opened: now, peak: inside, ..Window::default() };
        }
        probed
    }

    fn saturation(&self, now: Timestamp, inside: usize) -> Saturation {
        let (window, is_full) = (&self.window, inside as f64 >= FULL * self.limit);
        Saturation {
            limit: self.limit,
            full: if is_full { now.since(window.opened).min(WINDOW_LONGEST) } else { Duration::ZERO },
            is_slow: self.slow_down > self.target() - STAYS * self.target,
            is_unknown: window.ends >= ENDS_MIN && 2 * window.measured < window.ends,
        }
    }

    fn target(&self) -> f64 {
        self.target + (SMALL / self.limit).ln().max(0.0) / 2.0
    }

    fn adapt(&mut self) {
        let measured = f64::from(self.window.measured);
        if self.probe.is_running() || measured == 0.0 {
            return;
        }
        let mean = self.window.excess / measured;
        self.slow_down += (mean - self.slow_down) * (measured / MEMORY).min(1.0);
        let target = self.target();
        let excess = self.slow_down - target;
        if self.settles > 0 {
            self.settles -= 1;
        } else if excess > 0.0 {
            self.limit = (self.limit * (1.0 - excess / 2.0).max(0.6)).max(LEAST);
            self.settles = SETTLES;
        } else if excess < -STAYS * self.target && self.window.waited && mean > TOO_FAST {
            self.limit += (0.06 * self.limit.max(SMALL) * (-excess / target).min(1.0)).max(0.25);
            self.limit = self.limit.min(MOST as f64);
            self.probe.grown(self.limit);
        }
    }
}

/// The target as a logarithm, at least that of 1.1. With a target of 1, every page would count as queued.
fn target(slow_down: f64) -> f64 {
    slow_down.max(1.1).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit whose first probe is over, and the moment.
    fn probed() -> (Limit, Timestamp) {
        let (mut limit, now) = (Limit::new(1.7), Timestamp::from_millis(1_000));
        limit.note(16, true);
        limit.close(now, 16, true, || None);
        assert!(limit.probe.is_running());
        assert_eq!(limit.places(), 10, "0.6 of 16");
        (0..25).for_each(|_| _ = limit.probe.counts(now, now, true));
        assert_eq!(limit.close(now + WINDOW, 10, true, || None), Probed::Stage);
        assert_eq!(limit.places(), 6, "0.36 of 16");
        (0..25).for_each(|_| _ = limit.probe.counts(now, now, true));
        assert_eq!(limit.close(now + WINDOW * 2, 6, true, || Some(0.0)), Probed::All);
        assert_eq!(limit.places(), 16);
        (limit, now + WINDOW * 2)
    }

    /// So many windows with eight ends each, that took so much longer than their bases.
    fn windows(limit: &mut Limit, now: &mut Timestamp, count: u32, slow_down: f64, waits: bool) {
        for _ in 0..count {
            *now = *now + WINDOW;
            limit.note(limit.places(), waits);
            (0..8).for_each(|_| limit.end(Some(slow_down.ln())));
            limit.close(*now, limit.places(), waits, || None);
        }
    }

    #[test]
    fn it_grows_while_requests_wait_and_pages_are_fast() {
        let (mut limit, mut now) = probed();
        windows(&mut limit, &mut now, 3, 1.0, true);
        assert_eq!(limit.places(), 16, "it settles after the probe");
        windows(&mut limit, &mut now, 12, 1.0, true);
        assert!((30..=33).contains(&limit.places()), "6 % each window: {}", limit.places());
        windows(&mut limit, &mut now, 20, 1.0, false);
        assert!((30..=33).contains(&limit.places()), "nobody waits");
    }

    #[test]
    fn it_shrinks_while_pages_are_slow_and_keeps_two_places() {
        let (mut limit, mut now) = probed();
        windows(&mut limit, &mut now, 20, 3.0, true);
        let places = limit.places();
        assert!(places < 16 && limit.slow_down() > 1.7, "{places}");
        for _ in 0..100 {
            windows(&mut limit, &mut now, 1, 9.0, false);
            assert!(limit.places() >= 2);
        }
        assert_eq!(limit.places(), 2);
    }

    #[test]
    fn it_stays_just_below_its_target() {
        let usual = [(1.45, 1), (1.58, 0), (1.68, 0), (1.75, -1)];
        let least = [(1.0, 1), (1.09, 0), (1.2, -1)];
        let of = |target, of: &[(f64, i32)]| of.iter().map(move |at| (target, *at)).collect::<Vec<_>>();
        for (target, (slow_down, changes)) in [of(1.7, &usual), of(1.1, &least)].concat() {
            let (mut limit, mut now) = probed();
            limit.aim_at(target);
            windows(&mut limit, &mut now, 60, slow_down, true);
            limit.limit = 16.0;
            let before = limit.places();
            windows(&mut limit, &mut now, 30, slow_down, true);
            assert_eq!((limit.places() as i32 - before as i32).signum(), changes, "{slow_down} of {target}");
        }
    }

    #[test]
    fn errors_that_answer_at_once_do_not_make_it_grow() {
        let (mut limit, mut now) = probed();
        windows(&mut limit, &mut now, 50, 0.02, true);
        assert_eq!(limit.places(), 16);
    }

    #[test]
    fn few_ends_move_nothing() {
        let (mut limit, mut now) = probed();
        for _ in 0..50 {
            now = now + WINDOW;
            limit.close(now, 16, true, || None);
        }
        assert_eq!(limit.places(), 16);
        assert_eq!(limit.due(), now + WINDOW);
    }
}
