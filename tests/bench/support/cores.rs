//! The cores: what is measured runs on the first one, what it needs on the second, and who measures on the last.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// From here on this thread runs on the last core, and with it all that it starts.
pub fn stay_on_last() {
    stay_on(usable().last());
}

/// What `start` starts runs on the first core, and this thread where it ran before.
pub fn on_first<T>(start: impl FnOnce() -> T) -> T {
    on(usable().next(), start)
}

/// The same with the second core, which of two is the last.
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

/// The cores that this process was started with: its threads may have confined themselves since.
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
