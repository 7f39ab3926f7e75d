//! The application: a real nginx that logs what it served, as it understood it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;
use tempfile::TempDir;

use crate::support::process::Process;
use crate::support::{eventually, own_address};

/// A request that the application served.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Served {
    /// The address of the client, as the proxy has told it.
    pub source: String,
    pub host: String,
    pub uri: String,
    pub request_uri: String,
    pub args: String,
    pub method: String,
    pub status: String,
    pub x_api_key: String,
    pub user_agent: String,
}

pub struct App {
    process: Process,
    pub address: SocketAddr,
    folder: TempDir,
}

impl App {
    pub fn start() -> App {
        let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let own = folder.path().display();
        let pairs = [
            ("source", "http_x_forwarded_for"),
            ("host", "host"),
            ("uri", "uri"),
            ("request_uri", "request_uri"),
            ("args", "args"),
            ("method", "request_method"),
            ("status", "status"),
            ("x_api_key", "http_x_api_key"),
            ("user_agent", "http_user_agent"),
        ];
        let log = pairs.map(|(name, variable)| format!("\"{name}\":\"${variable}\"")).join(",");
        let text = format!(
            "worker_processes 1;\npid {own}/nginx.pid;\nerror_log /dev/null;\n\
             events {{ worker_connections 4096; }}\nhttp {{\n\
             log_format rig escape=json '{{{log}}}';\naccess_log {own}/access.log rig;\n\
             client_body_temp_path {own}/body;\nproxy_temp_path {own}/proxy;\nfastcgi_temp_path {own}/f;\n\
             uwsgi_temp_path {own}/u;\nscgi_temp_path {own}/s;\nlarge_client_header_buffers 8 128k;\n\
             server {{ listen {address} default_server backlog=4096; server_name _; location / {{ return 200 ok; }} }}\n}}\n"
        );
        let config = folder.path().join("app.conf");
        fs::write(&config, text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path()).arg("-c").arg(config).args([
            "-e",
            "stderr",
            "-g",
            "daemon off;",
        ]);
        let mut app = App { process: Process::start(&mut command), address, folder };
        eventually("the application listens", || {
            assert!(app.process.is_running(), "it ended:\n{}", app.process.log().join("\n"));
            TcpStream::connect(app.address).ok()
        });
        app
    }

    pub fn log(&self) -> PathBuf {
        self.folder.path().join("access.log")
    }
}

/// Asks the master to end, which ends its workers.
impl Drop for App {
    fn drop(&mut self) {
        self.process.signal("TERM");
        self.process.wait();
    }
}
