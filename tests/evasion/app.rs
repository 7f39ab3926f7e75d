//! The application: a real nginx that logs what it served, as it understood it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::support::process::Process;
use crate::support::{eventually, own_address};

/// The module that sees each header, also the second of one name.
const MODULE: &str = "/usr/lib/nginx/modules/ngx_http_js_module.so";

/// The names of all headers.
const TITLES: &str = "function titles(r) {\n\
    \x20   return r.rawHeadersIn.map(header => header[0].toLowerCase().replace(/_/g, '-')).join(',');\n\
    }\nexport default { titles };\n";

/// The variables of nginx in each line of the log.
const LOGGED: [(&str, &str); 10] = [
    ("forwarded", "http_x_forwarded_for"),
    ("host", "host"),
    ("uri", "uri"),
    ("args", "args"),
    ("method", "request_method"),
    ("status", "status"),
    ("x_api_key", "http_x_api_key"),
    ("user_agent", "http_user_agent"),
    ("count", "http_x_count"),
    ("titles", "titles"),
];

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
        let log = LOGGED.map(|(name, variable)| format!("\"{name}\":\"${variable}\"")).join(",");
        // Underscores in names are what CGI makes of dashes.
        let text = format!(
            "load_module {MODULE};\nworker_processes 1;\npid {own}/nginx.pid;\nerror_log /dev/null;\n\
             events {{ worker_connections 4096; }}\nhttp {{\njs_import {own}/titles.js;\njs_set $titles titles.titles;\n\
             log_format rig escape=json '{{{log}}}';\naccess_log {own}/access.log rig;\n\
             client_body_temp_path {own}/body;\nproxy_temp_path {own}/proxy;\nfastcgi_temp_path {own}/f;\n\
             uwsgi_temp_path {own}/u;\nscgi_temp_path {own}/s;\nlarge_client_header_buffers 8 128k;\n\
             underscores_in_headers on;\n\
             server {{ listen {address} default_server backlog=4096; server_name _; location / {{ return 200 ok; }} }}\n}}\n"
        );
        let config = folder.path().join("app.conf");
        fs::write(&config, text).unwrap();
        fs::write(folder.path().join("titles.js"), TITLES).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path()).arg("-c").arg(config);
        command.args(["-e", "stderr", "-g", "daemon off;"]);
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
