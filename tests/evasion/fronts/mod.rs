//! The proxies in front: each real, with the files that `slowlane config` prints for a policy.

use std::fmt;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::app::App;
use crate::support::haproxy::{Version, replace};
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{eventually, own_address};

/// A kind of proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With this delivery and its main file.
    Haproxy(Version, &'static str, &'static str),
    Nginx,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Haproxy(version, delivery, _) => write!(f, "HAProxy {} {delivery}", number(*version)),
            Kind::Nginx => write!(f, "nginx"),
        }
    }
}

fn number(version: Version) -> &'static str {
    match version {
        Version::V2_6 => "2.6",
        Version::V3_0 => "3.0",
        Version::V3_2 => "3.2",
    }
}

/// A running proxy.
pub struct Front {
    process: Process,
    pub address: SocketAddr,
    _folder: TempDir,
}

impl Front {
    /// None if it is not installed.
    pub fn start(kind: Kind, slowlane: &Slowlane, app: &App) -> Option<Front> {
        match kind {
            Kind::Haproxy(version, delivery, main) => {
                Front::haproxy(version, (delivery, main), slowlane, app)
            }
            Kind::Nginx => Some(Front::nginx(slowlane, app)),
        }
    }

    fn haproxy(
        version: Version,
        (delivery, main): (&str, &str),
        slowlane: &Slowlane,
        app: &App,
    ) -> Option<Front> {
        let binary = version.binary()?;
        let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
        let dir = folder.path().display().to_string();
        let agent = format!("unix:{}", slowlane.socket("spop").display());
        let args = ["haproxy", "--version", number(version), "--delivery", delivery, "--spop", &agent];
        let places = ["--dir", &dir, "--bind", &address.to_string(), "--app", &app.address.to_string()];
        print(slowlane, &[&args[..], &places].concat());
        // A busy machine may stall for the shipped 100 ms, and the request would pass.
        edit(&folder.path().join("spoe-slowlane.conf"), "processing 100ms", "processing 5s");
        // The application of an operator that tells it the address of the client.
        edit(
            &folder.path().join(main),
            "backend app\n",
            "backend app\n    http-request set-header X-Forwarded-For %[src]\n",
        );
        let process = Process::start(Command::new(binary).args(["-db", "-f", &format!("{dir}/{main}")]));
        Some(Front { process, address, _folder: folder }.once_it_listens())
    }

    fn nginx(slowlane: &Slowlane, app: &App) -> Front {
        let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
        let dir = folder.path().display().to_string();
        let agent = slowlane.http.to_string();
        let places = ["--dir", &dir, "--listen", &address.to_string(), "--app", &app.address.to_string()];
        print(slowlane, &[&["nginx", "--http", &agent], &places[..]].concat());
        let main = folder.path().join("nginx.conf");
        for at in ["/var/log/nginx", "/var/lib/nginx", "/run"] {
            let text = fs::read_to_string(&main).unwrap();
            fs::write(&main, text.replace(at, &dir)).unwrap();
        }
        let spare = own_address().to_string();
        edit(
            &folder.path().join("slowlane-upstream.conf"),
            "127.0.0.1:9009 backup",
            &format!("{spare} backup"),
        );
        edit(
            &folder.path().join("slowlane-upstream.conf"),
            "listen     127.0.0.1:9009",
            &format!("listen {spare}"),
        );
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new("nginx");
        command.args(["-p", &dir, "-c"]).arg(main).args(["-e", "stderr", "-g", "daemon off;"]);
        Front { process: Process::start(&mut command), address, _folder: folder }.once_it_listens()
    }

    fn once_it_listens(mut self) -> Front {
        eventually("the proxy listens", || {
            assert!(self.process.is_running(), "it ended:\n{}", self.process.log().join("\n"));
            TcpStream::connect(self.address).ok()
        });
        self
    }
}

/// Asks nginx to end, which ends its workers.
impl Drop for Front {
    fn drop(&mut self) {
        if self.process.is_running() {
            self.process.signal("TERM");
        }
    }
}

fn print(slowlane: &Slowlane, args: &[&str]) {
    let mut command = Command::new(BINARY);
    command.arg("config").args(args).arg("--config").arg(slowlane.folder().join("slowlane.toml"));
    let output = command.arg("--policy").arg(slowlane.policy()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn edit(path: &Path, what: &str, with: &str) {
    let text = fs::read_to_string(path).unwrap();
    fs::write(path, replace(&text, what, with)).unwrap();
}
