//! An agent under load: a process of its own, on a core of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;

use tempfile::TempDir;

use crate::floor;

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

    /// With five lookup maps, of which the third answers, and an SLO of the type "source" under this law.
    /// The rate is that of a busy client: most verdicts pass, the entry is written each time.
    pub fn slowlane(law: &str) -> Agent {
        let folder = tempfile::tempdir().unwrap();
        let slo = format!("0 burst=10000 rate=5000/s\n3001 burst=1000 rate=1000/s law={law}\n");
        let line = |number: u32, rest: &str, id: u32| format!("{}{rest} {id}\n", source(number));
        let elsewhere = |rest: &str| (0..KEYS).map(|number| line(number, rest, 0)).collect::<String>();
        let names = |kind: &str| (0..KEYS).map(|number| format!("{kind}-{number}.example 0\n")).collect();
        let files = [
            ("slo.map", slo),
            ("source+website.map", elsewhere("+elsewhere.example")),
            ("source+owner.map", elsewhere("+nobody")),
            ("source.map", (0..KEYS).map(|number| line(number, "", 3001)).collect()),
            ("website.map", names("site")),
            ("owner.map", names("owner")),
        ];
        for (name, text) in files {
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

/// The address of a source: 10.0.0.0 and up.
fn source(number: u32) -> String {
    std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).to_string()
}

fn on_one_core(program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", "0", program]);
    command
}
