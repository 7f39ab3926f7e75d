//! An example in a folder of the test: its files, slowlane and its proxies, at a loopback address of their own.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::support::backend::Backend;
use crate::support::client::{self, Client};
use crate::support::haproxy::{Delivery, Version, each};
use crate::support::process::Process;
use crate::support::slowlane::BINARY;
use crate::support::{eventually, own_address, project, set_clock, skipped, unpacked, wheels};

/// The folders that examples refer to.
const SHIPPED: [&str; 2] = ["haproxy", "nginx"];

/// The application of every example.
const APP: &str = "127.0.0.1:8000";

/// The same in Envoy's file.
const APP_IN_PARTS: &str = "address: 127.0.0.1, port_value: 8000";

/// An example, not yet started, or serving.
pub struct Stage {
    name: String,
    pub app: Backend,
    ip: IpAddr,
    folder: TempDir,
    /// The folder of the proxy to run. Empty: the one that PATH has.
    pub proxies: PathBuf,
    /// The proxies first: they end before slowlane does.
    running: Vec<Process>,
}

/// Tells a story with each tested version of HAProxy. The example is not yet started.
pub fn in_each_haproxy(name: &str, story: impl Fn(Stage) + Sync) {
    let all = [Version::V2_6, Version::V3_0, Version::V3_2, Version::V3_4];
    each(&all.map(|version| (version, Delivery::Lua)), |version, _| {
        let mut stage = Stage::set(name);
        // The version of the distribution has no folder of its own.
        stage.proxies = version.binary().unwrap().parent().unwrap().to_owned();
        story(stage);
    });
}

impl Stage {
    /// Copies an example. Its addresses become those of the test, and nothing else changes.
    pub fn set(name: &str) -> Stage {
        let (folder, app, ip) = (tempfile::tempdir().unwrap(), Backend::start(), own_address().ip());
        let stage =
            Stage { name: name.to_owned(), app, ip, folder, proxies: PathBuf::new(), running: Vec::new() };
        let example = format!("examples/{name}");
        for from in SHIPPED {
            stage.copy(from);
        }
        let proxies = stage.copy(&example);
        assert!(proxies > 0, "{name}: no proxy asks for an application");
        fs::create_dir(stage.programs()).unwrap();
        symlink(BINARY, stage.programs().join("slowlane")).unwrap();
        // If the tests run as root, the workers of nginx run as another user.
        fs::set_permissions(stage.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        stage
    }

    /// Copies a folder of the project, and returns the number of its files that name the application.
    fn copy(&self, from: &str) -> usize {
        let (project, to) = (project(from), self.folder.path().join(from));
        let mut naming = 0;
        for file in files(&project) {
            let path = to.join(file.strip_prefix(&project).unwrap());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = fs::read_to_string(&file).unwrap();
            naming += usize::from(text.contains(APP) || text.contains(APP_IN_PARTS));
            fs::write(path, patient(self.at_home(&text))).unwrap();
        }
        naming
    }

    /// The same text with the addresses of this test.
    fn at_home(&self, text: &str) -> String {
        let ip = self.ip.to_string();
        // Envoy writes an address in two parts.
        let parts =
            |address: SocketAddr| format!("address: {}, port_value: {}", address.ip(), address.port());
        let text = text.replace(APP_IN_PARTS, "{app in parts}").replace("0.0.0.0", &ip);
        let text = text.replace(APP, "{app}").replace("127.0.0.1", &ip);
        let text = text.replace("{app in parts}", &parts(self.app.address));
        let text = text.replace("{app}", &self.app.address.to_string());
        let text =
            text.replace("bind :", &format!("bind {ip}:")).replace("listen 80", &format!("listen {ip}:80"));
        let text = text.replace("\":8080\"", &format!("\"{ip}:8080\""));
        text.replace("\n:8080 {", &format!("\n:8080 {{\n\tbind {ip}"))
    }

    pub fn own_folder(&self) -> PathBuf {
        self.folder.path().join("examples").join(&self.name)
    }

    /// The programs that the commands of the README find first.
    fn programs(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    /// Replaces a text that the file must contain.
    pub fn edit(&self, file: &str, what: &str, with: &str) {
        let path = self.own_folder().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(what), "{}: no {what:?}", path.display());
        // A rename, as of editors: half a file is never read.
        fs::write(path.with_extension("new"), text.replace(what, with)).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    }

    /// Starts slowlane, and this proxy. Both commands are those of the README.
    pub fn play(name: &str, proxy: &str) -> Stage {
        let mut stage = Stage::set(name);
        stage.start_slowlane();
        stage.start_proxy(proxy);
        stage
    }

    /// Starts the application that the example itself has, in place of ours.
    pub fn start_app(&mut self) {
        for file in ["haproxy.cfg", "nginx.conf"] {
            self.edit(file, &self.app.address.to_string(), &self.at(8000).to_string());
        }
        self.running.push(Process::start(&mut self.command("python3")));
        eventually("the application listens", || TcpStream::connect(self.at(8000)).ok());
    }

    /// Starts slowlane and HAProxy.
    pub fn start(&mut self) {
        self.start_slowlane();
        self.start_proxy("haproxy");
    }

    pub fn start_slowlane(&mut self) {
        let command = self.command("slowlane run");
        self.serve(command);
    }

    /// Starts slowlane with a config, which may log to the folder of the example.
    pub fn start_slowlane_with(&mut self, config: &str) {
        let path = self.own_folder().join("slowlane.toml");
        fs::write(&path, config).unwrap();
        let mut command = self.command("slowlane run");
        command.arg("--config").arg(path);
        self.serve(command);
    }

    /// Starts slowlane with a wall clock that shows noon of this day, in UTC.
    pub fn start_slowlane_at_noon(&mut self) {
        const DAY_S: i64 = 86_400;
        let mut command = self.command("slowlane run");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        set_clock(&mut command, &format!("{:+}", DAY_S / 2 - now % DAY_S));
        self.serve(command);
    }

    fn serve(&mut self, mut command: Command) {
        for (flag, port) in [("--spop", 9000), ("--http", 9001), ("--admin", 9002)] {
            command.arg(flag).arg(self.at(port).to_string());
        }
        if self.name.starts_with("envoy") {
            command.arg("--grpc").arg(self.at(9005).to_string());
        }
        let mut process = Process::start(&mut command);
        process.logged("admin on ");
        self.running.push(process);
    }

    /// Ends slowlane as `kill -9` does.
    pub fn kill_slowlane(&mut self) {
        drop(self.running.pop());
    }

    pub fn start_proxy(&mut self, proxy: &str) {
        let port = self.port_of(proxy);
        let mut process = Process::start(&mut self.command(proxy));
        eventually("the proxy listens", || {
            assert!(process.is_running(), "{proxy} ended:\n{}", process.log().join("\n"));
            TcpStream::connect(self.at(port)).ok()
        });
        self.running.insert(0, process);
    }

    /// The proxies of the examples with two have a port each.
    fn port_of(&self, proxy: &str) -> u16 {
        if self.name == "two-proxies" && proxy == "nginx" { 8081 } else { 8080 }
    }

    /// The command of the README that begins like this.
    fn command(&self, begins: &str) -> Command {
        let readme = fs::read_to_string(project(&format!("examples/{}/README.md", self.name))).unwrap();
        let lines = readme.lines().chain(readme.split('`'));
        let mut typed = lines.filter(|line| line.starts_with(begins) && line.contains(' '));
        let typed = typed.next().unwrap_or_else(|| panic!("{}: its README has no {begins}", self.name));
        let own = self.own_folder();
        let mut command = Command::new("bash");
        let path = std::env::var("PATH").unwrap();
        let [programs, wheels] = [self.programs(), wheels()];
        let path = format!("{}:{}:{}:{path}", programs.display(), self.proxies.display(), wheels.display());
        // Flags of the test come behind those of the README.
        command.env("PATH", path).env("HOME", &own).current_dir(own).args([
            "-c",
            &format!("exec {typed} \"$@\""),
            "example",
        ]);
        command
    }

    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    /// A client of a proxy.
    pub fn client(&self) -> Client {
        Client::connect(self.at(8080))
    }

    /// A client with this address, which is one of the loopback.
    pub fn client_from(&self, source: &str) -> Client {
        Client::over(self.connection_from(source, 8080)).unwrap()
    }

    pub fn connection_from(&self, source: &str, port: u16) -> TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let connection = runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
            socket.connect(self.at(port)).await.unwrap().into_std().unwrap()
        });
        connection.set_nonblocking(false).unwrap();
        connection
    }

    /// The log of the proxy that was started last.
    pub fn proxy_log(&self) -> Vec<String> {
        self.running[0].log()
    }

    /// The sum of a metric over all label sets that contain `labels`.
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        let metrics = client::get(self.at(9002), "/metrics", &[]).body;
        let lines = metrics.lines().filter_map(|line| line.rsplit_once(' '));
        let ours =
            lines.filter(|(series, _)| series.split('{').next() == Some(name) && series.contains(labels));
        ours.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }

    /// The requests with a verdict, under any SLO.
    pub fn judged(&self) -> f64 {
        self.metric("slowlane_verdicts_total", "")
    }

    /// The requests with this verdict under this SLO.
    pub fn verdicts(&self, slo: u16, verdict: &str) -> f64 {
        self.metric("slowlane_verdicts_total", &format!("slo=\"{slo}\",verdict=\"{verdict}\""))
    }
}

/// The folders of a proxy, for [`Stage::proxies`]: of the installed one, and of a newer Caddy.
pub fn versions_of(proxy: &str, flag: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    match is_there(proxy, flag) {
        true => folders.push(PathBuf::new()),
        false => skipped(&format!("{proxy} cannot be had on this machine")),
    }
    if proxy == "caddy" {
        match unpacked("caddy", "2.11") {
            Some(program) => folders.push(program.parent().unwrap().to_owned()),
            None => skipped("Caddy 2.11 cannot be had on this machine"),
        }
    }
    folders
}

/// Whether this machine has a program: installed, or unpacked.
pub fn is_there(program: &str, version: &str) -> bool {
    let runs = |program: &Path| {
        Command::new(program).arg(version).output().is_ok_and(|output| output.status.success())
    };
    runs(Path::new(program)) || runs(&wheels().join(program))
}

/// A slow machine may stall for longer than HAProxy waits as shipped, and requests would pass.
fn patient(text: String) -> String {
    let text = text.replace("timeout processing 100ms", "timeout processing 5s");
    let text = text.replace("timeout check   250ms", "timeout check   5s");
    let text = text.replace("proxy_connect_timeout 100ms", "proxy_connect_timeout 5s");
    text.replace("proxy_read_timeout    500ms", "proxy_read_timeout    5s")
}

/// Asks nginx to end, which ends its workers.
impl Drop for Stage {
    fn drop(&mut self) {
        for process in &mut self.running {
            if process.is_running() {
                process.signal("TERM");
                process.wait();
            }
        }
    }
}

/// The files of a folder and of those in it.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found
}
