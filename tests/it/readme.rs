//! What the README tells to type works, and its reference names everything that there is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::cli::ran;
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{PATIENCE, client, own_address, project};

/// Commands that are run elsewhere, by their first words: where.
const ELSEWHERE: [(&str, &str); 12] = [
    ("tests/run", "it is what runs this test"),
    ("cargo install", "tests/run"),
    ("sudo apt install", "tests/it/package.rs, on a throwaway copy of the machine"),
    ("sudo systemctl", "tests/it/package.rs, there"),
    ("systemctl", "tests/it/package.rs, there"),
    ("sudo adduser", "nowhere: it is Debian's own, and www-data comes with nginx"),
    ("slowlane check --config /etc", "tests/it/package.rs, there"),
    ("docker", "nowhere: it takes a registry of images"),
    ("slowlane top --admin unix:/run", "tests/it/why.rs, on a socket of its own"),
    ("slowlane top --once | grep", "tests/it/top.rs, where somebody is throttled"),
    ("slowlane table", "tests/it/table_cli.rs, on rows that are there"),
    ("echo", "tests/it/runtime_api.rs, on a socket of its own"),
];

/// Commands that go on until they are ended.
const SERVES: [&str; 2] = ["slowlane run", "slowlane demo"];

/// The lines of the README's blocks of shell, without prompts, comments and what commands print.
fn commands() -> Vec<String> {
    let readme = fs::read_to_string(project("README.md")).unwrap();
    let mut commands = Vec::new();
    for block in readme.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n")) {
        let has_prompts = block.lines().any(|line| line.starts_with("$ "));
        for line in block.replace("\\\n", "").lines().filter(|line| !line.is_empty()) {
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

/// A folder that looks like the project, with `slowlane` on its PATH, beside a daemon with the shipped policy.
struct Desk {
    folder: TempDir,
    daemon: Slowlane,
}

impl Desk {
    fn new() -> Desk {
        let folder = tempfile::tempdir().unwrap();
        for name in ["haproxy", "nginx", "systemd", "slowlane.toml"] {
            symlink(project(name), folder.path().join(name)).unwrap();
        }
        fs::create_dir_all(folder.path().join("bin")).unwrap();
        for name in ["doc", ".local/share/man/man1", ".local/share/bash-completion/completions"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        symlink(project("doc/replay"), folder.path().join("doc/replay")).unwrap();
        symlink(BINARY, folder.path().join("bin/slowlane")).unwrap();
        let maps = fs::read_dir(project("haproxy/maps")).unwrap().map(|file| file.unwrap().path());
        let maps: Vec<(String, String)> = maps
            .map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, fs::read_to_string(path).unwrap())
            })
            .collect();
        let maps: Vec<(&str, &str)> = maps.iter().map(|(name, text)| (&**name, &**text)).collect();
        Desk { folder, daemon: Slowlane::with_policy(&maps) }
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

    /// Starts what serves, on addresses of its own, sees that it does, and ends it as Ctrl-C does.
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
    let desk = Desk::new();
    let commands = commands();
    assert!(commands.len() > 5, "{commands:?}");
    for (words, _) in ELSEWHERE {
        assert!(commands.iter().any(|command| command.starts_with(words)), "nobody types {words}");
    }
    for command in commands {
        let own = desk.translated(&command);
        if ELSEWHERE.iter().any(|(words, _)| command.starts_with(words)) {
            continue;
        }
        match SERVES.iter().any(|serves| own.starts_with(serves)) {
            true => desk.serve(&own),
            false => desk.run(&own),
        }
    }
}

/// The README behind the heading of this name, up to the next one of its rank.
fn section(name: &str) -> String {
    let readme = fs::read_to_string(project("README.md")).unwrap();
    let heading = format!("\n## {name}\n");
    let start = readme.find(&heading).unwrap_or_else(|| panic!("no section {name}")) + heading.len();
    let length = readme[start..].find("\n## ").unwrap_or(readme.len() - start);
    readme[start..start + length].to_owned()
}

#[test]
fn the_reference_names_every_key_flag_and_metric() {
    let reference = section("Reference");
    let mut missing = Vec::new();
    let mut want = |kind: &str, name: &str| {
        if !reference.contains(&format!("`{name}`")) {
            missing.push(format!("{kind} {name}"));
        }
    };
    for (section, key) in keys() {
        want("key", &format!("{section}.{key}"));
    }
    for (command, flag) in flags() {
        want(&format!("flag of {command}"), &flag);
    }
    let daemon = Slowlane::with_policy(&[("slo.map", "0 burst=1 rate=1/s\n")]);
    let metrics = client::get(daemon.admin, "/metrics", &[]).body;
    for name in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = name.split_once(' ').unwrap();
        want("metric", &format!("{name}{}", if kind == "counter" { "_total" } else { "" }));
    }
    assert!(missing.is_empty(), "the reference lacks:\n{}", missing.join("\n"));
}

/// Every key of the shipped config file with its section, also those that are commented out.
fn keys() -> Vec<(String, String)> {
    let file = fs::read_to_string(project("slowlane.toml")).unwrap();
    let (mut section, mut keys) = (String::new(), Vec::new());
    for line in file.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_start_matches('[').split(']').next().unwrap().to_owned();
        }
        let line = line.strip_prefix("# ").unwrap_or(line);
        let key = line.split_once(" = ").map(|(key, _)| key);
        // A number is a type, an operator's own.
        let key = key.filter(|key| key.starts_with(char::is_alphabetic) && !key.contains(' '));
        keys.extend(key.map(|key| (section.clone(), key.to_owned())));
    }
    assert!(keys.len() > 15, "{keys:?}");
    keys
}

/// Every flag of every command, as the help lists them.
fn flags() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(command) = open.pop() {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        words.push("--help");
        let help = ran(&words).out;
        let mut in_commands = false;
        for line in help.lines() {
            if !line.starts_with(' ') {
                in_commands = line == "Commands:";
            }
            let mut words = line.split_whitespace();
            match words.next() {
                Some("help") if in_commands => {}
                Some(word) if in_commands && line.starts_with("  ") && !line.starts_with("   ") => {
                    open.push(format!("{command} {word}"));
                }
                Some(first) if line.starts_with("  ") && first.starts_with('-') => {
                    let long = std::iter::once(first).chain(words).find(|word| word.starts_with("--"));
                    let long = long.map(|flag| flag.trim_end_matches(',').to_owned());
                    let long = long.filter(|flag| flag != "--help" && flag != "--version");
                    found.extend(long.map(|flag| (command.trim().to_owned(), flag)));
                }
                _ => {}
            }
        }
    }
    assert!(found.len() > 10, "{found:?}");
    found
}

#[test]
fn what_it_shows_of_the_project_is_there() {
    let readme = fs::read_to_string(project("README.md")).unwrap();
    let mut links = 0;
    for target in readme.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        if target.starts_with("http") {
            continue;
        }
        links += 1;
        match target.strip_prefix('#') {
            Some(anchor) => assert!(anchors(&readme).contains(&anchor.to_owned()), "no heading #{anchor}"),
            None => assert!(Path::new(&project(target)).exists(), "{target} is not there"),
        }
    }
    assert!(links > 10);
}

/// Headings as they are linked to.
fn anchors(readme: &str) -> Vec<String> {
    let headings = readme.lines().filter_map(|line| line.strip_prefix('#'));
    let anchor = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        text.chars()
            .filter(|&c| c.is_alphanumeric() || " -".contains(c))
            .collect::<String>()
            .replace(' ', "-")
    };
    headings.map(anchor).collect()
}
