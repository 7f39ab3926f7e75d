//! Every command of the README, of the manual and of the reports works.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::checker::checker;
use crate::support::pages::{BESIDE, Page, pages};
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{PATIENCE, own_address, project};

/// Commands that other tests run: their first words, and the place.
const ELSEWHERE: [(&str, &str); 21] = [
    ("tests/run", "it is what runs this test"),
    ("cargo install", "tests/run"),
    ("cargo bench --bench accuracy", "tests/it/cluster.rs, without its files"),
    ("sudo apt install", "tests/it/package.rs, on a throwaway copy of the machine"),
    ("sudo systemctl", "tests/it/package.rs, there"),
    ("systemctl", "tests/it/package.rs, there"),
    ("sudo adduser", "nowhere: it is Debian's own, and www-data comes with nginx"),
    ("slowlane check --config /etc", "tests/it/package.rs, there"),
    ("docker", "nowhere: it takes a registry of images"),
    ("slowlane top --admin unix:/run", "tests/it/why.rs, on a socket of its own"),
    ("slowlane top --once | grep", "tests/it/top.rs, where somebody is throttled"),
    ("slowlane attach", "tests/it/attach.rs, on configurations of its own"),
    ("sudo slowlane attach", "there"),
    ("slowlane table", "tests/it/table_cli.rs, on rows that are there"),
    ("slowlane block", "tests/it/blocks_served.rs, with a daemon of its own"),
    ("curl -sSfO https://iptoasn.com", "tests/it/examples/bots.rs, with lines of such a table"),
    ("slowlane quota", "tests/it/quota_cli.rs, on what was used there"),
    ("slowlane upgrade", "tests/it/upgrade.rs, with a daemon of its own"),
    ("PATH=", "tests/it/proxies.rs, on an address of its own"),
    ("ask", "tests/it/proxies.rs, there"),
    ("echo", "tests/it/runtime_api.rs, on a socket of its own"),
];

/// Commands that run until a signal ends them.
const SERVES: [&str; 2] = ["slowlane run", "slowlane demo"];

/// The commands in blocks of shell, without prompts, comments and output. Those of an example are typed by its own test.
fn commands() -> Vec<String> {
    let mut commands = Vec::new();
    let reports = BESIDE.into_iter().filter(|path| path.starts_with("doc/reports/")).map(Page::read);
    let manual = pages().into_iter().filter(|page| !page.path.starts_with("examples/"));
    for block in manual.chain(reports).flat_map(|page| page.blocks("sh")) {
        let has_prompts = block.text.lines().any(|line| line.starts_with("$ "));
        for line in block.text.replace("\\\n", "").lines().filter(|line| !line.is_empty()) {
            let line = match has_prompts {
                true => line.strip_prefix("$ "),
                false => Some(line),
            };
            let command = line.map(|line| line.split("  #").next().unwrap().trim_end());
            commands.extend(command.filter(|command| !command.starts_with('#')).map(str::to_owned));
        }
    }
    commands
}

/// A folder that looks like the project, with `slowlane` and `slowlane-check` on its PATH, beside a daemon with the shipped policy.
struct Workdir {
    folder: TempDir,
    daemon: Slowlane,
}

impl Workdir {
    fn new() -> Workdir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["examples", "haproxy", "nginx", "systemd", "slowlane.toml"] {
            symlink(project(name), folder.path().join(name)).unwrap();
        }
        fs::create_dir_all(folder.path().join("bin")).unwrap();
        for name in ["doc", ".local/share/man/man1", ".local/share/bash-completion/completions"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        symlink(project("haproxy/maps"), folder.path().join("policy")).unwrap();
        symlink(project("doc/replay"), folder.path().join("doc/replay")).unwrap();
        symlink(BINARY, folder.path().join("bin/slowlane")).unwrap();
        symlink(checker(), folder.path().join("bin/slowlane-check")).unwrap();
        let maps = fs::read_dir(project("haproxy/maps")).unwrap().map(|file| file.unwrap().path());
        let maps: Vec<(String, String)> = maps
            .map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, fs::read_to_string(path).unwrap())
            })
            .collect();
        let maps: Vec<(&str, &str)> = maps.iter().map(|(name, text)| (&**name, &**text)).collect();
        Workdir { folder, daemon: Slowlane::with_policy(&maps) }
    }

    /// The same command for this binary, and for this daemon's addresses.
    fn translated(&self, command: &str) -> String {
        let addresses = [
            ("127.0.0.1:9000", self.daemon.spop),
            ("127.0.0.1:9001", self.daemon.http),
            ("127.0.0.1:9002", self.daemon.admin),
        ];
        let command = command.replace("cargo run --release --", "slowlane");
        let command = command.replace("target/release/slowlane", "slowlane");
        let command = command.replace("slowlane top", "slowlane top --admin 127.0.0.1:9002");
        let command = command.replace("slowlane status", "slowlane status --admin 127.0.0.1:9002");
        let command = command.replace("slowlane groups", "slowlane groups --admin 127.0.0.1:9002");
        let command = command.replace("slowlane why source", "slowlane why --admin 127.0.0.1:9002 source");
        addresses.iter().fold(command, |command, (shown, own)| command.replace(shown, &own.to_string()))
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("timeout");
        let path = format!("{}/bin:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        shell.arg(PATIENCE.as_secs().to_string()).args(["bash", "-ec", command]);
        shell
            .env("PATH", path)
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        shell
    }

    /// Starts a server on addresses of its own, waits until it serves, and ends it as Ctrl-C does.
    fn serve(&self, command: &str) {
        let admin = own_address();
        let (flags, sign) = match command.starts_with("slowlane demo") {
            true => (String::new(), "the page "),
            false => {
                (format!("--spop {} --http {} --admin {admin}", own_address(), own_address()), "admin on ")
            }
        };
        let mut process = Process::start(&mut self.shell(&format!("exec {command} {flags}")));
        process.logged(sign);
        process.signal("INT");
        assert!(process.wait().success(), "{command}");
    }

    fn run(&self, command: &str) {
        let output = self.shell(command).output().unwrap();
        assert!(
            output.status.success(),
            "{command}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn every_command_works() {
    let workdir = Workdir::new();
    let commands = commands();
    assert!(commands.len() > 40, "{commands:?}");
    for (words, _) in ELSEWHERE {
        assert!(commands.iter().any(|command| command.starts_with(words)), "nobody types {words}");
    }
    for command in commands {
        let own = workdir.translated(&command);
        if ELSEWHERE.iter().any(|(words, _)| command.starts_with(words)) {
            continue;
        }
        match SERVES.iter().any(|serves| own.starts_with(serves)) {
            true => workdir.serve(&own),
            false => workdir.run(&own),
        }
    }
}
