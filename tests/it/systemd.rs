//! The systemd units, and the messages of the service. The test takes the part of systemd.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::backend::Backend;
use crate::support::client;
use crate::support::haproxy::Version::V2_6;
use crate::support::haproxy::{Delivery, Haproxy, VerdictHeaders, replace, showing_verdicts_patiently};
use crate::support::process::Process;
use crate::support::slowlane::BINARY;
use crate::support::spop::{Heard, Line};
use crate::support::{PATIENCE, own_address, project, skipped};

fn succeeds(output: &Output) {
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{text}");
}

/// The lines of a unit file that begin with `key=`.
fn unit_values(unit: &str, key: &str) -> Vec<String> {
    let text = fs::read_to_string(project("systemd").join(unit)).unwrap();
    let values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

#[test]
fn systemd_takes_the_units_and_finds_them_shut_in() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skipped("systemd-analyze is not installed: the units are not verified");
    }
    let folder = tempfile::tempdir().unwrap();
    let service = fs::read_to_string(project("systemd/slowlane.service")).unwrap();
    // The program must be where the unit says.
    let service = service.replace("/usr/bin/slowlane", BINARY);
    let [service_path, socket_path] =
        ["slowlane.service", "slowlane.socket"].map(|name| folder.path().join(name));
    fs::write(&service_path, service).unwrap();
    fs::copy(project("systemd/slowlane.socket"), &socket_path).unwrap();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments).arg(&service_path);
        command
    };
    let verified = analyze(&["verify", "--man=no"]).arg(&socket_path).output().unwrap();
    succeeds(&verified);
    assert_eq!(String::from_utf8_lossy(&verified.stderr), "", "not even a warning");
    // The threshold is ten times the exposure: 1.5 of 10.
    succeeds(&analyze(&["security", "--offline=true", "--threshold=15"]).output().unwrap());
}

/// The command of a line in the service unit, with the program and config of the test.
fn unit_command(line: &str, folder: &Path) -> String {
    let command = replace(line, "/usr/bin/slowlane", BINARY);
    replace(&command, "/etc/slowlane/", &format!("{}/", folder.display()))
}

/// The service as its unit starts it, through a shell that runs `before` it.
fn service_command(folder: &Path, before: &str) -> Command {
    let [spop, http, admin] = [own_address(), own_address(), own_address()];
    let config = format!(
        "spop.listen = [\"{spop}\"]\nhttp.listen = [\"{http}\"]\nadmin.listen = [\"{admin}\"]\n\
         policy.dir = \"policy\"\n"
    );
    fs::write(folder.join("slowlane.toml"), config).unwrap();
    fs::create_dir_all(folder.join("policy")).unwrap();
    fs::write(folder.join("policy/slo.map"), SLO_MAP).unwrap();
    let command = unit_command(&unit_values("slowlane.service", "ExecStart")[0], folder);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{before} exec {command}"));
    shell
}

const SLO_MAP: &str = "0 burst=10000 rate=5000/s\n";

/// The service, and its messages to systemd.
struct Service {
    process: Process,
    socket: UnixDatagram,
    folder: TempDir,
}

impl Service {
    fn start(before: &str) -> Service {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = service_command(folder.path(), before);
        let process = Process::start(command.env("NOTIFY_SOCKET", path));
        Service { process, socket, folder }
    }

    /// The next message, without watchdog messages unless the test asks for them.
    fn says(&self) -> String {
        loop {
            let message = self.says_anything();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    }

    fn says_anything(&self) -> String {
        let mut bytes = [0; 1_024];
        let length = loop {
            match self.socket.recv(&mut bytes) {
                // A child of the test has ended.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break received.expect("the service says something"),
            }
        };
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    }

    /// Sends SIGHUP, checks the messages of the reload, and returns the final status.
    fn reload(&self) -> String {
        self.process.signal("HUP");
        let begun = self.says();
        let (word, time) = begun.split_once('\n').expect("two lines");
        assert_eq!(word, "RELOADING=1");
        let micros: u64 = time.strip_prefix("MONOTONIC_USEC=").unwrap().parse().unwrap();
        assert!(micros > 0);
        let status = self.says();
        assert_eq!(self.says(), "READY=1");
        status.strip_prefix("STATUS=").expect("a status").to_owned()
    }

    fn listens(&mut self, name: &str) -> SocketAddr {
        self.process.logged(&format!("{name} on ")).trim().parse().unwrap()
    }
}

#[test]
fn the_service_is_ready_once_all_its_sockets_are_bound() {
    assert_eq!(unit_values("slowlane.service", "Type"), ["notify"]);
    let mut service = Service::start("");
    assert_eq!([service.says(), service.says()], ["STATUS=serving 1 SLO; no maps", "READY=1"]);
    let [spop, http, admin] = ["SPOP", "HTTP check", "admin"].map(|name| service.listens(name));
    assert_eq!(Line::greeted(spop).ask(1, "192.0.2.1", "shop.example").variable("verdict"), Some("pass"));
    assert_eq!(client::get(http, "/check", &[]).status, 204);
    assert_eq!(client::get(admin, "/readyz", &[]).status, 200);
    service.process.signal("TERM");
    assert_eq!(service.says(), "STOPPING=1");
    assert!(service.process.wait().success());
}

#[test]
fn a_start_that_fails_is_never_ready() {
    let mut service = Service::start("echo '0 burst=1' > $(dirname $NOTIFY_SOCKET)/policy/slo.map;");
    assert_eq!(service.process.wait().code(), Some(1));
    service.socket.set_nonblocking(true).unwrap();
    assert!(service.socket.recv(&mut [0; 64]).is_err(), "it has said nothing");
}

#[test]
fn the_service_shows_that_it_lives_twice_as_often_as_it_must() {
    let watchdog = &unit_values("slowlane.service", "WatchdogSec")[0];
    assert!(watchdog.trim_end_matches('s').parse::<u32>().is_ok_and(|seconds| seconds >= 2), "{watchdog}");
    // As systemd does for WatchdogSec=, but shorter.
    let service = Service::start("export WATCHDOG_PID=$$ WATCHDOG_USEC=200000;");
    while service.says_anything() != "READY=1" {}
    assert_eq!([service.says_anything(), service.says_anything()], ["WATCHDOG=1", "WATCHDOG=1"]);
    // A hanging service sends no more messages, and systemd would end it.
    service.process.stop();
    service.socket.set_nonblocking(true).unwrap();
    let mut bytes = [0; 64];
    while service.socket.recv(&mut bytes).is_ok() {}
    service.socket.set_nonblocking(false).unwrap();
    service.socket.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
    assert!(service.socket.recv(&mut bytes).is_err());
    service.process.signal("CONT");
    service.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(service.says_anything(), "WATCHDOG=1");
}

/// Ends a process that the service has started.
struct Successor(u32);

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0.to_string()]).status();
    }
}

#[test]
fn an_upgrade_names_the_main_process_and_its_watchdog_goes_on() {
    let mut service = Service::start("export WATCHDOG_PID=$$ WATCHDOG_USEC=200000;");
    while service.says() != "READY=1" {}
    service.process.signal("USR2");
    let named = service.says();
    let successor = Successor(named.strip_prefix("MAINPID=").expect(&named).parse().unwrap());
    assert_ne!(successor.0, service.process.id());
    assert_eq!([service.says(), service.says()], ["STATUS=serving 1 SLO; no maps", "READY=1"]);
    assert!(service.process.wait().success(), "the old one says nothing more");
    // These are of the new one: the old one has ended.
    for _ in 0..5 {
        assert_eq!(service.says_anything(), "WATCHDOG=1");
    }
    crate::support::slowlane::signal(successor.0, "TERM");
    assert_eq!(service.says(), "STOPPING=1");
}

#[test]
fn nobody_is_told_of_life_who_has_not_asked() {
    let service = Service::start("export WATCHDOG_PID=1 WATCHDOG_USEC=1000;");
    assert_eq!(
        [service.says_anything(), service.says_anything()],
        ["STATUS=serving 1 SLO; no maps", "READY=1"]
    );
    service.process.signal("TERM");
    assert_eq!(service.says_anything(), "STOPPING=1");
}

#[test]
fn a_reload_ends_when_the_policy_is_in_force_or_refused() {
    let mut service = Service::start("");
    while service.says() != "READY=1" {}
    assert_eq!(service.reload(), "serving 1 SLO; no maps", "nothing was edited");
    let http = service.listens("HTTP check");
    let slo = || {
        let answer = client::get(http, "/check", &[("X-Slowlane-Website", "shop.example")]);
        answer.header("x-slowlane-slo").unwrap().to_owned()
    };
    assert_eq!(slo(), "0");

    // The watcher may reload before the signal does, and also sends a status. In any case, the new policy is in force after
    // the answer to the signal.
    let policy = service.folder.path().join("policy");
    let write = |name: &str, text: &str| {
        let new = service.folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, policy.join(name)).unwrap();
    };
    let edited = |status: &str| while service.says() != format!("STATUS={status}") {};
    write("slo.map", "0 burst=10000 rate=5000/s\n2001 burst=10 rate=5/s\n");
    edited("serving 2 SLOs; no maps");
    write("website.map", "shop.example 2001\n");
    edited("serving 2 SLOs; website.map 1 line");
    assert_eq!(service.reload(), "serving 2 SLOs; website.map 1 line");
    assert_eq!(slo(), "2001");

    write("website.map", "shop.example 2001\nblog.example 2002\nREADY=1 2003\n");
    let refused = format!(
        "serving the previous policy: {}:2: SLO 2002 is not in slo.map: add it there, or name a different \
         SLO",
        policy.join("website.map").display()
    );
    edited(&refused);
    assert_eq!(service.reload(), refused);
    assert_eq!(slo(), "2001");
}

/// `systemctl reload` runs these in turn, and ends with the first that fails.
#[test]
fn a_reload_of_a_broken_policy_fails_and_says_where() {
    let mut service = Service::start("");
    while service.says() != "READY=1" {}
    let commands = unit_values("slowlane.service", "ExecReload");
    let pid = service.process.id().to_string();
    let folder = service.folder.path();
    let check = || {
        let command = unit_command(&commands[0], folder);
        Command::new("sh").arg("-c").arg(command).output().unwrap()
    };
    succeeds(&check());
    let hup = replace(&commands[1], "$MAINPID", &pid);
    succeeds(&Command::new("sh").arg("-c").arg(hup).output().unwrap());
    service.process.logged("policy reloaded");
    fs::write(folder.join("policy/slo.map"), "0 burst=1 rate=5x/s\n").unwrap();
    let refused = check();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("slo.map:1: rate \"5x/s\""));
}

#[test]
fn without_a_policy_directory_a_reload_is_answered_as_well() {
    let mut service = Service::start("");
    while service.says() != "READY=1" {}
    service.process.signal("TERM");
    service.process.wait();
    while service.says() != "STOPPING=1" {}
    let folder = tempfile::tempdir().unwrap();
    let config = "spop.listen = []\nhttp.listen = []\nadmin.listen = [\"127.0.0.1:0\"]\n";
    fs::write(folder.path().join("slowlane.toml"), config).unwrap();
    let mut command = Command::new(BINARY);
    command.arg("run").arg("--config").arg(folder.path().join("slowlane.toml"));
    service.process = Process::start(command.env("NOTIFY_SOCKET", service.folder.path().join("notify")));
    assert_eq!(
        [service.says(), service.says()],
        ["STATUS=serving the built-in policy: 1 SLO; no maps", "READY=1"]
    );
    service.process.signal("HUP");
    assert!(service.says().starts_with("RELOADING=1\n"));
    assert_eq!(service.says(), "READY=1");
}

#[test]
fn the_sockets_of_systemd_wait_for_the_agent() {
    let names = unit_values("slowlane.socket", "FileDescriptorName");
    assert_eq!(
        (names.as_slice(), unit_values("slowlane.socket", "ListenStream").len()),
        (&["spop".into()][..], 2)
    );
    let folder = tempfile::tempdir().unwrap();
    let (address, path) = (own_address(), folder.path().join("spop.sock"));
    let tcp = TcpListener::bind(address).unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    // A client that connects before the start of the agent waits for its answer.
    let early = std::thread::spawn(move || Line::greeted(address).ask(1, "192.0.2.1", "shop.example"));

    // Descriptors 3 and 4, as systemd passes them: they come in as standard input and output.
    let before = "exec 3<&0 4<&1 </dev/null >&2; LISTEN_FDS=2 LISTEN_FDNAMES=spop:spop LISTEN_PID=$$";
    let start = || {
        let mut command = service_command(folder.path(), before);
        let handed = [OwnedFd::from(tcp.try_clone().unwrap()), OwnedFd::from(unix.try_clone().unwrap())];
        let [input, output] = handed.map(Stdio::from);
        Process::start_with(&mut command, input, output)
    };
    let mut service = start();
    assert_eq!(early.join().unwrap().variable("verdict"), Some("pass"));
    service.logged(&format!("SPOP on unix:{}", path.display()));
    let log = service.log();
    assert_eq!(log.iter().filter(|line| line.contains("SPOP on ")).count(), 2, "only these: {log:?}");

    // HAProxy asks over either socket, and a restart of the agent refuses no connection.
    let app = Backend::start();
    let agent = format!("unix@{}", path.display());
    let mut haproxy =
        Haproxy::with(V2_6, Delivery::Hold, &agent, app.address, showing_verdicts_patiently).unwrap();
    haproxy.wait_for_agent("UP");
    let verdict = || VerdictHeaders::by(&haproxy.client().request("GET", "/", &[], "")).verdict;
    assert_eq!(verdict().as_deref(), Some("pass"));
    service.signal("TERM");
    assert!(service.wait().success());
    assert!(path.exists(), "the socket file is systemd's");
    let mut waiting = Line::silent(address);
    waiting.say(&crate::support::spop::hello());
    waiting.has_heard_nothing();
    let _service = start();
    assert_eq!(waiting.hear(), Heard::Hello);
    crate::support::eventually("HAProxy has verdicts again", || {
        verdict().filter(|verdict| verdict == "pass")
    });
}
