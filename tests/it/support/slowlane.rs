//! The slowlane daemon, started like an operator does.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::process::{Process, install};
use super::{client, eventually, own_address, set_clock};

/// The path of the binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_slowlane");

/// A daemon with its own addresses, TCP and Unix, and its own policy.
pub struct Slowlane {
    pub process: Process,
    pub spop: SocketAddr,
    pub http: SocketAddr,
    pub admin: SocketAddr,
    folder: TempDir,
    /// The processes that have taken over in upgrades, the last one serves.
    successors: Vec<u32>,
    /// The offset of its wall clock, if it has one of its own.
    clock: Option<String>,
}

impl Slowlane {
    /// Starts it with these policy files: names and texts. `slo.map` must be among them. Its keys have the secret
    /// [`KeySecret::KNOWN`](slowlane_core::base::KeySecret::KNOWN).
    pub fn with_policy(files: &[(&str, &str)]) -> Slowlane {
        Slowlane::with_config(files, "[policy]\nkey_secret_file = \"secret\"\n")
    }

    /// The same, with a config file of this text.
    pub fn with_config(files: &[(&str, &str)], config: &str) -> Slowlane {
        Slowlane::start(Slowlane::folder_with(files, config), None)
    }

    /// The same, with a wall clock of its own: the time of the machine and this offset, like `-1h`.
    pub fn with_clock(files: &[(&str, &str)], config: &str, offset: &str) -> Slowlane {
        Slowlane::start(Slowlane::folder_with(files, config), Some(offset.to_owned()))
    }

    fn folder_with(files: &[(&str, &str)], config: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("policy")).unwrap();
        for (name, text) in files {
            fs::write(folder.path().join("policy").join(name), text).unwrap();
        }
        fs::write(folder.path().join("slowlane.toml"), config).unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, [0; 16]).unwrap();
        fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
        folder
    }

    /// The same, with a copy of the program in its own folder, which the test may replace.
    pub fn with_own_program(files: &[(&str, &str)], config: &str) -> Slowlane {
        let folder = Slowlane::folder_with(files, config);
        install(BINARY, folder.path().join("slowlane"));
        Slowlane::start(folder, None)
    }

    /// The path of its program, if it has one of its own.
    pub fn own_program(&self) -> PathBuf {
        self.folder.path().join("slowlane")
    }

    /// Puts another program in the place of its own.
    pub fn replace_program(&self, with: impl AsRef<Path>) {
        let new = self.folder.path().join("new");
        install(with, &new);
        fs::rename(new, self.own_program()).unwrap();
    }

    /// Puts a script of the shell in the place of its own program.
    pub fn replace_program_by(&self, script: &str) {
        let path = self.folder.path().join("script");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        self.replace_program(path);
    }

    fn start(folder: TempDir, clock: Option<String>) -> Slowlane {
        let [spop, http, admin] = std::array::from_fn(|_| own_address());
        let process = Slowlane::serving(folder.path(), [spop, http, admin], clock.as_deref());
        Slowlane { process, spop, http, admin, folder, successors: Vec::new(), clock }
    }

    /// A process that serves.
    fn serving(folder: &Path, [spop, http, admin]: [SocketAddr; 3], clock: Option<&str>) -> Process {
        let own = folder.join("slowlane");
        let mut command = if own.exists() { Command::new(own) } else { Command::new(BINARY) };
        if let Some(offset) = clock {
            set_clock(&mut command, offset);
        }
        command.arg("run").arg("--config").arg(folder.join("slowlane.toml"));
        command.arg("--policy").arg(folder.join("policy"));
        for (flag, address) in [("--spop", spop), ("--http", http), ("--admin", admin)] {
            command.arg(flag).arg(address.to_string());
        }
        for name in ["spop", "http"] {
            let path = folder.join(name);
            command.arg(format!("--{name}")).arg(format!("unix:{}", path.display()));
        }
        let mut process = Process::start(&mut command);
        // The last log line: all listeners are bound before any of them serves.
        process.logged("admin on ");
        process
    }

    /// The path of its Unix socket for `spop` or `http`.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces a policy file by a rename, as editors do.
    pub fn replace(&self, name: &str, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.policy().join(name)).unwrap();
    }

    /// Overwrites a policy file in place. The new text has the same length, so there is no intermediate state.
    pub fn overwrite(&self, name: &str, text: &str) {
        let mut file = fs::OpenOptions::new().write(true).open(self.policy().join(name)).unwrap();
        assert_eq!(file.metadata().unwrap().len(), text.len() as u64);
        file.write_all(text.as_bytes()).unwrap();
    }

    /// The answer of `/check` to these headers.
    pub fn check(&self, query: &str, headers: &[(&str, &str)]) -> client::Response {
        client::get(self.http, &format!("/check{query}"), headers)
    }

    /// The process that serves now: after upgrades it is not the one that the test has started.
    pub fn serving_process(&self) -> u32 {
        self.successors.last().copied().unwrap_or(self.process.id())
    }

    /// Replaces its program as SIGUSR2 does, and returns the number of the new process.
    pub fn upgrade(&mut self) -> u32 {
        let before = self.serving_process();
        signal(before, "USR2");
        let takes_over = |line: &String| {
            let rest = line.split_once("upgrade: process ")?.1;
            rest.split_once(" has taken over")?.0.parse().ok()
        };
        let number = self.successors.len();
        let after = eventually("a new process takes over", || {
            self.process.log().iter().filter_map(takes_over).nth(number)
        });
        self.successors.push(after);
        after
    }

    /// Notes a process that has taken over in an upgrade by other means.
    pub fn adopt(&mut self, process: u32) {
        self.successors.push(process);
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
    pub fn restarted(mut self) -> Slowlane {
        self.restart();
        self
    }

    /// The same in place.
    pub fn restart(&mut self) {
        self.process =
            Slowlane::serving(self.folder.path(), [self.spop, self.http, self.admin], self.clock.as_deref());
    }

    /// Gives it a wall clock of its own from its next start on: the time of the machine and this offset, like `-1h`.
    pub fn set_clock(&mut self, offset: &str) {
        self.clock = Some(offset.to_owned());
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

impl Drop for Slowlane {
    fn drop(&mut self) {
        for &process in &self.successors {
            // The earlier ones may be over.
            let _ = Command::new("kill").args(["-KILL", &process.to_string()]).stderr(Stdio::null()).status();
        }
    }
}

/// Sends a signal to a process that slowlane has started.
pub fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status().unwrap();
    assert!(sent.success(), "{process} takes no {name}");
}
