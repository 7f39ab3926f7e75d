//! slowlane itself, as an operator starts it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::client;
use super::process::Process;

/// The path of the binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_slowlane");

/// The daemon on free ports, with a policy of its own.
pub struct Slowlane {
    pub process: Process,
    pub spop: SocketAddr,
    pub http: SocketAddr,
    pub admin: SocketAddr,
    folder: TempDir,
}

impl Slowlane {
    /// Starts it with these policy files: names and texts. `slo.map` must be among them.
    pub fn with_policy(files: &[(&str, &str)]) -> Slowlane {
        Slowlane::with_config(files, "")
    }

    /// The same, with a config file of this text.
    pub fn with_config(files: &[(&str, &str)], config: &str) -> Slowlane {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("policy")).unwrap();
        for (name, text) in files {
            fs::write(folder.path().join("policy").join(name), text).unwrap();
        }
        fs::write(folder.path().join("slowlane.toml"), config).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        Slowlane::start(folder, [any, any, any])
    }

    fn start(folder: TempDir, [spop, http, admin]: [SocketAddr; 3]) -> Slowlane {
        let mut command = Command::new(BINARY);
        command.arg("run").arg("--config").arg(folder.path().join("slowlane.toml"));
        command.arg("--policy").arg(folder.path().join("policy"));
        for (flag, address) in [("--spop", spop), ("--http", http), ("--admin", admin)] {
            command.arg(flag).arg(address.to_string());
        }
        let mut process = Process::start(&mut command);
        let mut address = |marker| process.logged(marker).trim().parse().unwrap();
        let (spop, http, admin) = (address("SPOP on "), address("HTTP check on "), address("admin on "));
        Slowlane { process, spop, http, admin, folder }
    }

    /// Ends it as `kill -9` does, and starts it again on the same ports.
    pub fn killed_and_restarted(mut self) -> Slowlane {
        self.kill();
        self.restarted()
    }

    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) {
        self.process.signal("KILL");
        self.process.wait();
    }

    /// Starts it again on the same ports, once it has ended.
    pub fn restarted(self) -> Slowlane {
        Slowlane::start(self.folder, [self.spop, self.http, self.admin])
    }

    pub fn policy(&self) -> PathBuf {
        self.folder.path().join("policy")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The sum of a metric over all label sets that contain `labels`, as `/metrics` has it now.
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        let metrics = client::get(self.admin, "/metrics", &[]);
        assert_eq!(metrics.status, 200);
        let lines = metrics.body.lines().filter_map(|line| line.rsplit_once(' '));
        let ours =
            lines.filter(|(series, _)| series.split('{').next() == Some(name) && series.contains(labels));
        ours.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }
}
