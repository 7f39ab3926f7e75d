//! An agent under load: a process of its own, on a core of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;

use tempfile::TempDir;

use crate::floor;
use crate::support::five_maps;

/// Lines in each lookup map, and sources that are asked about.
pub const KEYS: u32 = 100_000;

pub struct Agent {
    pub name: String,
    pub address: SocketAddr,
    child: Child,
    _folder: Option<TempDir>,
}

impl Agent {
    pub fn floor() -> Agent {
        let mut command = on_one_core(std::env::current_exe().unwrap().to_str().unwrap());
        command.arg(floor::ARGUMENT);
        Agent::start("floor".into(), &mut command, None)
    }

    /// With five full maps, of which the third answers, and an SLO of the type "source" under this law.
    pub fn slowlane(law: &str) -> Agent {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in five_maps::files(law, KEYS, KEYS) {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let mut command = on_one_core(env!("CARGO_BIN_EXE_slowlane"));
        command.args(["run", "--spop", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.arg("--policy").arg(folder.path());
        Agent::start(format!("slowlane {law}"), &mut command, Some(folder))
    }

    fn start(name: String, command: &mut Command, folder: Option<TempDir>) -> Agent {
        let mut child =
            command.stderr(Stdio::piped()).spawn().expect("taskset of util-linux starts the agent");
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "{name} ended at its start");
            if let Some((_, address)) = line.split_once("SPOP on ") {
                break address.trim().parse().unwrap();
            }
        };
        thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Agent { name, address, child, _folder: folder }
    }

    /// The time that all its threads have run, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let ran = |task: fs::DirEntry| {
            let schedstat = fs::read_to_string(task.path().join("schedstat")).ok()?;
            schedstat.split(' ').next()?.parse::<u64>().ok()
        };
        tasks.flatten().filter_map(ran).sum()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn on_one_core(program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", "0", program]);
    command
}
