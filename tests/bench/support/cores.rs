//! CPU affinity: the measured program runs on the first core, its helpers on the second, the clients on the last.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins this thread, and the threads and programs that it starts, to the last core.
pub fn stay_on_last() {
    stay_on(usable().last());
}

/// Pins the programs that `start` starts to the first core.
pub fn on_first<T>(start: impl FnOnce() -> T) -> T {
    on(usable().next(), start)
}

/// Pins the programs that `start` starts to the second core.
pub fn on_second<T>(start: impl FnOnce() -> T) -> T {
    on(usable().nth(1).or(usable().next()), start)
}

fn on<T>(core: Option<usize>, start: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None).expect("a thread may ask where it runs");
    stay_on(core);
    let started = start();
    sched_setaffinity(None, &before).expect("a thread may run where it ran");
    started
}

/// The cores that this process was started with, before it pinned threads.
fn usable() -> impl Iterator<Item = usize> {
    static USABLE: std::sync::OnceLock<CpuSet> = std::sync::OnceLock::new();
    let usable = USABLE.get_or_init(|| sched_getaffinity(None).expect("a thread may ask where it runs"));
    (0..CpuSet::MAX_CPU).filter(|&core| usable.is_set(core))
}

fn stay_on(core: Option<usize>) {
    let mut only = CpuSet::new();
    only.set(core.expect("every process has a core"));
    sched_setaffinity(None, &only).expect("a thread may confine itself");
}
