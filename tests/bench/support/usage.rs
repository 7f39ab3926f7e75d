//! The CPU time and memory of a running process.

use std::fs;

/// The CPU time of all threads of a process, in nanoseconds.
pub fn cpu_ns(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let ran = |task: fs::DirEntry| {
        let schedstat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        schedstat.split(' ').next()?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(ran).sum()
}

/// The resident memory of a process (VmRSS), in bytes.
pub fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
    kib * 1_024
}
