//! The CPU time, memory and files of this process, from the system.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The resources that the process uses at a moment. None: the system does not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUse {
    /// CPU time of all threads, in user and system mode.
    pub(super) cpu: Duration,
    pub(super) resident_bytes: Option<u64>,
    /// Open files and sockets.
    pub(super) open_fds: Option<u64>,
    /// The maximum number of them. None: no limit.
    pub(super) max_fds: Option<u64>,
}

impl ProcessUse {
    pub(super) fn now() -> ProcessUse {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let status = fs::read_to_string("/proc/self/status").ok();
        ProcessUse {
            cpu: Duration::new(cpu.tv_sec.unsigned_abs(), cpu.tv_nsec.unsigned_abs() as u32),
            resident_bytes: status.and_then(|status| resident_bytes(&status)),
            open_fds: open_fds(),
            max_fds: getrlimit(Resource::Nofile).current,
        }
    }
}

/// The resident memory in the text of `/proc/self/status` (proc_pid_status(5)).
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1_024)
}

/// From Linux 6.2 on the size of the folder is the number of its files. Before, they are counted.
fn open_fds() -> Option<u64> {
    let folder = "/proc/self/fd";
    match fs::metadata(folder).ok()?.len() {
        // One of them is the folder itself.
        0 => Some(fs::read_dir(folder).ok()?.count().saturating_sub(1) as u64),
        count => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_memory_is_in_kib() {
        let status = "Name:\tslowlane\nVmPeak:\t  9000 kB\nVmRSS:\t     4 kB\nThreads:\t5\n";
        assert_eq!(resident_bytes(status), Some(4_096));
        assert_eq!(resident_bytes("Name:\tslowlane\n"), None);
    }

    #[test]
    fn this_process_is_told_of() {
        let used = ProcessUse::now();
        assert!(used.resident_bytes.unwrap() > 100_000);
        assert!(used.open_fds.unwrap() >= 3 && used.open_fds <= used.max_fds.or(used.open_fds), "{used:?}");
        assert!(ProcessUse::now().cpu >= used.cpu);
    }
}
