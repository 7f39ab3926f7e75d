//! Proxies with the configuration that `slowlane config` prints, on their own addresses.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::backend::Backend;
use super::client::Client;
use super::haproxy::{Version, replace};
use super::process::Process;
use super::slowlane::{BINARY, Slowlane};
use super::{eventually, own_address, skipped, wheels};

/// The versions with their deliveries, as typed on the command line, and the main file of each.
pub const EACH: [(Version, &str, &str, &str); 10] = [
    (Version::V2_6, "2.6", "hold", "haproxy-2.6-hold.cfg"),
    (Version::V2_6, "2.6", "lua", "haproxy-2.6-lua.cfg"),
    (Version::V3_0, "3.0", "hold", "haproxy-2.6-hold.cfg"),
    (Version::V3_0, "3.0", "lua", "haproxy-2.6-lua.cfg"),
    (Version::V3_2, "3.2", "hold", "haproxy-2.6-hold.cfg"),
    (Version::V3_2, "3.2", "lua", "haproxy-2.6-lua.cfg"),
    (Version::V3_2, "3.2.26", "pause", "haproxy-3.2-pause.cfg"),
    (Version::V3_4, "3.4", "hold", "haproxy-2.6-hold.cfg"),
    (Version::V3_4, "3.4", "lua", "haproxy-2.6-lua.cfg"),
    (Version::V3_4, "3.4.7", "pause", "haproxy-3.2-pause.cfg"),
];

/// The same for peers: these need a slowlane that teaches limits.
pub const PEERS: [(Version, &str, &str, &str); 4] = [
    (Version::V2_6, "2.6", "peers", "haproxy-2.6-peers.cfg"),
    (Version::V3_0, "3.0", "peers", "haproxy-2.6-peers.cfg"),
    (Version::V3_2, "3.2", "peers", "haproxy-3.2-peers.cfg"),
    (Version::V3_4, "3.4", "peers", "haproxy-3.2-peers.cfg"),
];

/// A running proxy.
pub struct Printed {
    process: Process,
    pub address: SocketAddr,
    _folder: TempDir,
}

impl Printed {
    /// Starts one of [`EACH`], over the Unix socket of the agent; `None` if the version is not installed.
    pub fn haproxy(
        (version, number, delivery, main): (Version, &str, &str, &str),
        slowlane: &Slowlane,
        app: &Backend,
        more: &[&str],
    ) -> Option<Printed> {
        let binary = version.binary()?;
        let agent = format!("unix:{}", slowlane.socket("spop").display());
        Printed::haproxy_at(&agent, (number, delivery, main), &binary, app, more, None)
    }

    /// The same with the agent at any address. The files of TLS are in a folder of the test.
    pub fn haproxy_at(
        agent: &str,
        (number, delivery, main): (&str, &str, &str),
        binary: &Path,
        app: &Backend,
        more: &[&str],
        tls: Option<&Path>,
    ) -> Option<Printed> {
        let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
        let (bind, app, dir) =
            (address.to_string(), app.address.to_string(), folder.path().display().to_string());
        let args =
            ["--version", number, "--delivery", delivery, "--spop", agent, "--bind", &bind, "--app", &app];
        config(&[&["haproxy", "--dir", &dir], &args[..], more].concat());
        // A slow machine may stall for the shipped 100 ms, and the request would pass.
        let spoe = folder.path().join("spoe-slowlane.conf");
        let patient = replace(&fs::read_to_string(&spoe).unwrap(), "processing 100ms", "processing 5s");
        fs::write(spoe, patient).unwrap();
        in_folder(folder.path(), tls);
        let process = Process::start(Command::new(binary).args(["-db", "-f", &format!("{dir}/{main}")]));
        Some(Printed { process, address, _folder: folder }.once_it_listens())
    }

    /// Starts nginx with the agent at this address.
    pub fn nginx(agent: &str, slowlane: &Slowlane, app: &Backend, more: &[&str]) -> Printed {
        Printed::nginx_with(agent, slowlane, app, more, None)
    }

    /// The same. The files of TLS are in a folder of the test.
    pub fn nginx_with(
        agent: &str,
        slowlane: &Slowlane,
        app: &Backend,
        more: &[&str],
        tls: Option<&Path>,
    ) -> Printed {
        let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
        let (listen, app, dir) =
            (address.to_string(), app.address.to_string(), folder.path().display().to_string());
        let args = ["nginx", "--dir", &dir, "--http", agent, "--listen", &listen, "--app", &app];
        config(&[&args[..], more].concat());
        in_folder(folder.path(), tls);
        // The test may not use the folders of the distribution.
        let main = format!("{dir}/nginx.conf");
        let folders = ["/var/log/nginx", "/var/lib/nginx", "/run"];
        let text = fs::read_to_string(&main).unwrap();
        fs::write(&main, folders.iter().fold(text, |text, folder| text.replace(folder, &dir))).unwrap();
        // If the tests run as root, workers run as another user and need access to the socket.
        for path in [folder.path(), slowlane.folder()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(slowlane.socket("http"), fs::Permissions::from_mode(0o666)).unwrap();
        let args = ["-p", &dir, "-c", &main, "-e", "stderr"];
        let tested = Command::new("nginx").args(args).arg("-t").output().unwrap();
        let outcome = String::from_utf8_lossy(&tested.stderr);
        assert!(tested.status.success() && !outcome.contains("[warn]"), "{outcome}");
        let process = Process::start(Command::new("nginx").args(args).args(["-g", "daemon off;"]));
        Printed { process, address, _folder: folder }.once_it_listens()
    }

    /// Starts Envoy, which asks over HTTP (`hold`) or gRPC (`header`), and reports ends to this gRPC listener. Its file is
    /// edited before. None: it is not installed.
    pub fn envoy(
        delivery: &str,
        slowlane: &Slowlane,
        grpc: SocketAddr,
        app: &Backend,
        edit: impl Fn(String) -> String,
    ) -> Option<Printed> {
        let binary = wheels().join("envoy");
        if !binary.exists() {
            skipped("Envoy cannot be had on this machine");
            return None;
        }
        let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
        let [http, grpc, listen, app] = [slowlane.http, grpc, address, app.address].map(|at| at.to_string());
        let policy = slowlane.policy().display().to_string();
        let args =
            ["--http", &http, "--grpc", &grpc, "--listen", &listen, "--app", &app, "--policy", &policy];
        let text = config(&[&["envoy", "--delivery", delivery][..], &args].concat());
        let path = folder.path().join("envoy.yaml");
        // A slow machine may stall for the shipped 100 ms, and the request would pass.
        fs::write(&path, edit(text.replace("timeout: 0.1s", "timeout: 5s"))).unwrap();
        let mut envoy = Command::new(binary);
        envoy.args(["--disable-hot-restart", "--concurrency", "2", "--config-path"]).arg(path);
        let process = Process::start(&mut envoy);
        Some(Printed { process, address, _folder: folder }.once_it_listens())
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    fn once_it_listens(mut self) -> Printed {
        eventually("the proxy listens", || {
            assert!(self.process.is_running(), "it ended:\n{}", self.process.log().join("\n"));
            TcpStream::connect(self.address).ok()
        });
        self
    }
}

/// Asks nginx to end, which ends its workers. A killed master would leave them behind.
impl Drop for Printed {
    fn drop(&mut self) {
        if self.process.is_running() {
            self.process.signal("TERM");
            self.process.wait();
        }
    }
}

/// Puts the folder of the test in the place of the one that the files name.
fn in_folder(files: &Path, tls: Option<&Path>) {
    let Some(tls) = tls else { return };
    for file in fs::read_dir(files).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text.replace("/etc/slowlane/tls", &tls.display().to_string())).unwrap();
    }
}

/// Without a config or a policy, those of a service that is installed here would be read.
fn config(args: &[&str]) -> String {
    let is_given = args.iter().any(|arg| ["--config", "--policy"].contains(arg));
    let defaults: &[&str] = if is_given { &[] } else { &["--config", "/dev/null"] };
    let output = Command::new(BINARY).arg("config").args(args).args(defaults).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
