//! The CPU time and memory of a running process.

use std::fs;

/// The CPU time of all threads of a process, in nanoseconds.
pub fn cpu_ns(process: u32) -> u64 {
    schedstat(process, 0)
}

/// The time that all threads of a process could have run, but waited for a core, in nanoseconds.
pub fn waited_ns(process: u32) -> u64 {
    schedstat(process, 1)
}

fn schedstat(process: u32, place: usize) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let figure = |task: fs::DirEntry| {
        let schedstat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        schedstat.split(' ').nth(place)?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(figure).sum()
}

/// The resident memory of a process (VmRSS), in bytes.
pub fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
    kib * 1_024
}

/// The CPU time of the whole machine up to a moment.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime {
    total: u64,
    stolen: u64,
}

impl CpuTime {
    pub fn now() -> CpuTime {
        let stat = fs::read_to_string("/proc/stat").expect("Linux has it");
        let first = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
        // user, nice, system, idle, iowait, irq, softirq, steal; proc_stat(5)
        let ticks: Vec<u64> = first.take(8).filter_map(|ticks| ticks.parse().ok()).collect();
        CpuTime { total: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or_default() }
    }

    /// CPU time that other virtual machines took since then, in percent of all. A measurement with much of it says
    /// little.
    pub fn stolen_since(self) -> f64 {
        let now = CpuTime::now();
        100.0 * (now.stolen - self.stolen) as f64 / (now.total - self.total).max(1) as f64
    }
}
