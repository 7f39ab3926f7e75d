//! Background work that restarts after a panic instead of ending silently.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;

/// The pause before work restarts, so that a repeated panic does not fill the log.
const PAUSE: Duration = Duration::from_secs(1);

/// Does the work of a thread until it returns. After a panic, the work restarts.
pub(crate) fn revived(name: &str, mut work: impl FnMut()) {
    while catch_unwind(AssertUnwindSafe(&mut work)).is_err() {
        report(name);
        thread::sleep(PAUSE);
    }
}

/// Does the work of a task until it returns. After a panic, `make` creates the work again.
pub(crate) async fn revived_task<F: Future<Output = ()>>(name: &str, mut make: impl FnMut() -> F) {
    while AssertUnwindSafe(make()).catch_unwind().await.is_err() {
        report(name);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Logs that work has stopped. The panic itself has already been reported.
fn report(name: &str) {
    tracing::error!("a bug has stopped {name}; it restarts in {} s", PAUSE.as_secs());
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_thread_goes_on_after_a_panic() {
        let mut runs = 0;
        revived("a test", || {
            runs += 1;
            assert!(runs > 1, "the first run fails");
        });
        assert_eq!(runs, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_goes_on_after_panics_before_and_after_its_first_pause() {
        let runs = Cell::new(0);
        revived_task("a test", || {
            runs.set(runs.get() + 1);
            let run = runs.get();
            async move {
                assert!(run > 1, "the first run fails at once");
                tokio::time::sleep(Duration::from_secs(9)).await;
                assert!(run > 3, "the second and the third fail later");
            }
        })
        .await;
        assert_eq!(runs.get(), 4);
    }
}
