//! Held answers: their places up to the configured limit, and the alarm and the bells that end their waits.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a held answer is due at a time of the system's clock"
)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout_at};

use slowlane_core::base::{HoldLimits, Turn};

/// The held answers of all connections: their limits, their number, and the alarm that ends their waits.
#[derive(Debug)]
pub(crate) struct Holds {
    pub(crate) limits: HoldLimits,
    held: Gauge,
    refused: Counter,
    /// The alarm starts its thread at the first hold.
    alarm: OnceLock<Arc<Alarm>>,
}

impl Holds {
    pub(crate) fn new(limits: HoldLimits, held: Gauge, refused: Counter) -> Arc<Holds> {
        Arc::new(Holds { limits, held, refused, alarm: OnceLock::new() })
    }

    /// Completes when an answer is due, or up to half a millisecond later; never earlier.
    pub(crate) async fn until(&self, due: Instant) {
        self.alarm.get_or_init(Alarm::start).until(due).await;
    }

    /// The delay, limited to the longest hold.
    pub(crate) fn bounded(&self, delay: Duration) -> Duration {
        delay.min(self.limits.hold_max)
    }

    /// A place for one held answer, which becomes free when it is dropped; `None` at the limit.
    pub(crate) fn place(self: &Arc<Holds>) -> Option<HoldPlace> {
        if self.held.inc() as usize >= self.limits.holds_max {
            self.held.dec();
            self.refused.inc();
            return None;
        }
        Some(HoldPlace { holds: self.clone() })
    }
}

/// The place of one held answer.
#[derive(Debug)]
pub(crate) struct HoldPlace {
    holds: Arc<Holds>,
}

impl Drop for HoldPlace {
    fn drop(&mut self) {
        self.holds.held.dec();
    }
}

/// The runtime's timers may fire this late, so the alarm's own thread takes over this long before a due time.
const COARSE: Duration = Duration::from_millis(3);

/// The alarm fires at multiples of this time, so that a great many waits do not wake it too often.
const GRAIN: Duration = Duration::from_micros(500);

/// The number of bells. It exceeds the number of grains in the last milliseconds of a wait.
const BELLS: usize = 16;

/// A thread that wakes tasks more precisely than the runtime's timers, which fire at whole milliseconds. The thread
/// sleeps while no task waits.
#[derive(Debug)]
struct Alarm {
    started: Instant,
    /// Grains use the bells in turn. A bell rings when its grain begins.
    bells: [Notify; BELLS],
    waiting: AtomicUsize,
    thread: OnceLock<Thread>,
}

impl Alarm {
    fn new() -> Alarm {
        let (bells, waiting, thread) = Default::default();
        Alarm { started: Instant::now(), bells, waiting, thread }
    }

    /// Starts the thread. If the system provides none, the runtime's timers end the waits.
    fn start() -> Arc<Alarm> {
        let alarm = Arc::new(Alarm::new());
        let ringing = alarm.clone();
        let _ = thread::Builder::new().name("alarm".into()).spawn(move || ringing.ring());
        alarm
    }

    /// Completes at `due`, or up to half a millisecond later; never earlier.
    async fn until(&self, due: Instant) {
        let grain = self.grain_from(due);
        let due = self.begin(grain);
        if let Some(early) = due.checked_sub(COARSE).filter(|early| *early > Instant::now()) {
            sleep_until(early.into()).await;
        }
        self.last_of(grain, due).await;
    }

    /// Waits for the bell of the grain, in the last milliseconds before `due`.
    async fn last_of(&self, grain: u64, due: Instant) {
        if self.waiting.fetch_add(1, SeqCst) == 0 {
            self.thread.get().into_iter().for_each(Thread::unpark);
        }
        let _waiting = Waiter(self);
        loop {
            // The bell may ring for an earlier grain, so the time is checked after each ring. A ring after this line is
            // not missed.
            let ring = self.bells[grain as usize % BELLS].notified();
            if due <= Instant::now() {
                return;
            }
            let _ = timeout_at((due + COARSE).into(), ring).await;
        }
    }

    /// Runs in the alarm's thread, and rings the bell of each grain when the grain begins.
    fn ring(&self) {
        self.thread.get_or_init(thread::current);
        let mut rung = 0;
        loop {
            while self.waiting.load(SeqCst) == 0 {
                thread::park();
            }
            let now = (self.started.elapsed().as_nanos() / GRAIN.as_nanos()) as u64;
            for grain in (rung + 1..=now).rev().take(BELLS) {
                self.bells[grain as usize % BELLS].notify_waiters();
            }
            rung = now;
            thread::sleep(self.begin(now + 1).saturating_duration_since(Instant::now()));
        }
    }

    /// The first grain that begins at or after a moment.
    fn grain_from(&self, moment: Instant) -> u64 {
        moment.saturating_duration_since(self.started).as_nanos().div_ceil(GRAIN.as_nanos()) as u64
    }

    fn begin(&self, grain: u64) -> Instant {
        self.started + Duration::from_nanos(grain.saturating_mul(GRAIN.as_nanos() as u64))
    }
}

/// A task that waits for a bell.
struct Waiter<'a>(&'a Alarm);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

/// Wakes a connection when one of its turns moves. All turns of a connection ring the same bell.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    is_rung: AtomicBool,
    task: AtomicWaker,
}

impl Bell {
    /// From now on, this turn rings the bell when it moves.
    pub(super) fn listen_to(self: &Arc<Bell>, turn: &Turn) {
        turn.wake(Waker::from(self.clone()));
    }

    /// Ready if the bell has rung since the last call, however often.
    pub(super) fn poll_rung(&self, context: &Context<'_>) -> Poll<()> {
        self.task.register(context.waker());
        if self.is_rung.swap(false, SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        self.is_rung.store(true, SeqCst);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;
    use tokio::time::timeout;

    use super::*;
    use slowlane_core::base::WhenFull;

    #[test]
    fn the_third_of_two_finds_no_place_until_one_is_left() {
        let limits =
            HoldLimits { holds_max: 2, hold_max: Duration::from_secs(60), when_full: WhenFull::Pass };
        let (gauge, refused) = (Gauge::default(), Counter::default());
        let holds = Holds::new(limits, gauge.clone(), refused.clone());
        let (first, _second) = (holds.place().unwrap(), holds.place().unwrap());
        assert!(holds.place().is_none());
        drop(first);
        let _third = holds.place().unwrap();
        assert_eq!((gauge.get(), refused.get()), (2, 1));
    }

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn nobody_is_woken_early_and_each_is_woken() {
        let (alarm, start) = (Alarm::start(), Instant::now());
        // In no order, some at the same time, and some that are over.
        for due in [7, 1, 5, 5, 0, 12, 3].map(|ms| start + MS * ms) {
            alarm.until(due).await;
            assert!(Instant::now() >= due);
        }
        let [a, b, c, d] = [9, 2, 2, 4].map(|ms| alarm.until(start + MS * (20 + ms)));
        timeout(Duration::from_secs(10), async { tokio::join!(a, b, c, d) }).await.unwrap();
        assert_eq!(alarm.waiting.load(SeqCst), 0);
    }

    #[tokio::test]
    async fn without_a_thread_waits_end_with_the_runtimes_timers() {
        let alarm = Alarm::new();
        let due = Instant::now() + 5 * MS;
        timeout(Duration::from_secs(10), alarm.until(due)).await.unwrap();
        assert!(Instant::now() >= due);
    }

    #[tokio::test]
    async fn a_late_bell_of_another_grain_ends_no_wait() {
        let (alarm, due) = (Alarm::new(), Instant::now() + Duration::from_secs(3_600));
        let mut wait = pin!(alarm.last_of(7, due));
        for _ in 0..2 {
            assert!(wait.as_mut().now_or_never().is_none());
            alarm.bells.iter().for_each(Notify::notify_waiters);
        }
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_leaves_nothing() {
        let (alarm, due) = (Alarm::new(), Instant::now() + Duration::from_secs(3_600));
        {
            let mut wait = pin!(alarm.last_of(7, due));
            assert!(wait.as_mut().now_or_never().is_none());
            assert_eq!(alarm.waiting.load(SeqCst), 1);
        }
        assert_eq!(alarm.waiting.load(SeqCst), 0);
    }

    #[test]
    fn waits_end_at_the_grain_after_their_time() {
        let (alarm, micros) = (Alarm::new(), Duration::from_micros);
        for (due, rings) in
            [(0, 0), (1, 500), (499, 500), (500, 500), (501, 1_000), (123_456_789, 123_457_000)]
        {
            let grain = alarm.grain_from(alarm.started + micros(due));
            assert_eq!(alarm.begin(grain), alarm.started + micros(rings));
        }
        assert_eq!(alarm.grain_from(alarm.started - MS), 0, "it is over");
    }
}
