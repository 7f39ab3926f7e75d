//! An alarm for held answers, finer than the runtime's timers, which ring at whole milliseconds.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::time::{sleep_until, timeout_at};

/// The runtime's timers ring up to so much late. The rest of the time is waited for by the thread of the alarm.
const COARSE: Duration = Duration::from_millis(3);

/// It rings at multiples of this time, so that very many waits do not wake very often.
const GRAIN: Duration = Duration::from_micros(500);

/// A thread that wakes tasks. It sleeps while nobody waits.
#[derive(Debug)]
pub(super) struct Alarm {
    bells: Arc<Bells>,
    started: Instant,
}

#[derive(Debug, Default)]
struct Bells {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By their time. A running number makes the keys unique.
    tasks: BTreeMap<(Instant, u64), Waker>,
    number: u64,
    /// The end of the thread's sleep. None: it sleeps until it is woken.
    next: Option<Instant>,
    is_over: bool,
}

impl Alarm {
    /// Starts its thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start() -> io::Result<Alarm> {
        let bells = Arc::new(Bells::default());
        let ringing = bells.clone();
        thread::Builder::new().name("alarm".into()).spawn(move || ringing.ring())?;
        Ok(Alarm { bells, started: Instant::now() })
    }

    /// Returns at `due`, or up to half a millisecond later; never before it.
    pub(super) async fn until(&self, due: Instant) {
        let due = self.rounded_up(due);
        if let Some(early) = due.checked_sub(COARSE).filter(|early| *early > Instant::now()) {
            sleep_until(early.into()).await;
        }
        // Without the thread, the runtime's timer ends the wait.
        let _ = timeout_at((due + COARSE).into(), Bell { bells: &self.bells, due, number: None }).await;
    }

    fn rounded_up(&self, due: Instant) -> Instant {
        let grains = due.saturating_duration_since(self.started).as_nanos().div_ceil(GRAIN.as_nanos());
        let since_start = Duration::from_nanos(u64::try_from(grains * GRAIN.as_nanos()).unwrap_or(u64::MAX));
        self.started.checked_add(since_start).unwrap_or(due)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.bells.waiting.lock().is_over = true;
        self.bells.changed.notify_one();
    }
}

impl Bells {
    /// The thread: wakes each task at its time.
    fn ring(&self) {
        let (mut waiting, mut woken) = (self.waiting.lock(), Vec::new());
        while !waiting.is_over {
            let now = Instant::now();
            while let Some(first) = waiting.tasks.first_entry().filter(|first| first.key().0 <= now) {
                woken.push(first.remove());
            }
            if !woken.is_empty() {
                drop(waiting);
                woken.drain(..).for_each(Waker::wake);
                waiting = self.waiting.lock();
                continue;
            }
            let next = waiting.tasks.first_key_value().map(|(&(due, _), _)| due);
            waiting.next = next;
            match next {
                Some(next) => {
                    self.changed.wait_until(&mut waiting, next);
                }
                None => self.changed.wait(&mut waiting),
            }
        }
    }
}

/// The last milliseconds of a wait.
struct Bell<'b> {
    bells: &'b Bells,
    due: Instant,
    /// The number of its waker.
    number: Option<u64>,
}

impl Future for Bell<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.due <= Instant::now() {
            return Poll::Ready(());
        }
        let mut waiting = self.bells.waiting.lock();
        let number = self.number.unwrap_or_else(|| {
            waiting.number += 1;
            waiting.number
        });
        waiting.tasks.insert((self.due, number), cx.waker().clone());
        // A thread that wakes before is in time.
        let is_first = waiting.next.is_none_or(|next| self.due < next);
        if is_first {
            waiting.next = Some(self.due);
        }
        drop(waiting);
        if is_first {
            self.bells.changed.notify_one();
        }
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Bell<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.bells.waiting.lock().tasks.remove(&(self.due, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use tokio::time::timeout;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn nobody_is_woken_early_and_each_is_woken() {
        let alarm = Alarm::start().unwrap();
        let start = Instant::now();
        // In no order, some at the same time, and some that are over.
        let waits = [7, 1, 5, 5, 0, 12, 3].map(|ms| {
            let due = start + MS * ms;
            let alarm = &alarm;
            async move {
                alarm.until(due).await;
                assert!(Instant::now() >= due);
            }
        });
        for wait in waits {
            wait.await;
        }
        let [a, b, c, d] = [9, 2, 2, 4].map(|ms| alarm.until(start + MS * (20 + ms)));
        timeout(Duration::from_secs(10), async { tokio::join!(a, b, c, d) }).await.unwrap();
        assert!(alarm.bells.waiting.lock().tasks.is_empty());
    }

    #[tokio::test]
    async fn waits_end_at_the_grain_after_their_time() {
        let alarm = Alarm::start().unwrap();
        let micros = |micros| Duration::from_micros(micros);
        for (due, rings) in
            [(0, 0), (1, 500), (499, 500), (500, 500), (501, 1_000), (123_456_789, 123_457_000)]
        {
            assert_eq!(alarm.rounded_up(alarm.started + micros(due)), alarm.started + micros(rings));
        }
        assert_eq!(alarm.rounded_up(alarm.started - MS), alarm.started, "it is over");
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_leaves_nothing() {
        let alarm = Alarm::start().unwrap();
        let due = Instant::now() + Duration::from_secs(3_600);
        {
            let mut bell = pin!(Bell { bells: &alarm.bells, due, number: None });
            for _ in 0..2 {
                assert!(poll_fn(|cx| Poll::Ready(bell.as_mut().poll(cx))).await.is_pending());
                assert_eq!(alarm.bells.waiting.lock().tasks.len(), 1);
            }
        }
        assert!(alarm.bells.waiting.lock().tasks.is_empty());
    }

    #[test]
    fn the_thread_ends_with_its_alarm() {
        let alarm = Alarm::start().unwrap();
        let bells = Arc::downgrade(&alarm.bells);
        drop(alarm);
        while bells.upgrade().is_some() {
            thread::yield_now();
        }
    }
}
