//! An import beside the original: a real nginx and a real HAProxy, and slowlane with the imported policy.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use slowlane::import::{Written, import};

use crate::support::client;
use crate::support::process::Process;
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address};

/// Asks one after the other, and tells which requests passed.
fn passed(count: usize, ask: impl Fn() -> u16) -> Vec<bool> {
    (0..count).map(|_| matches!(ask(), 200..=299)).collect()
}

fn served(written: &Written) -> Slowlane {
    let files: Vec<(&str, &str)> =
        written.files.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
    Slowlane::with_policy(&files)
}

fn asked(slowlane: &Slowlane, count: usize) -> Vec<bool> {
    passed(count, || slowlane.check("", &[("X-Slowlane-Source", "127.0.0.1")]).status)
}

fn listens(process: &mut Process, address: SocketAddr) {
    eventually("the proxy listens", || {
        assert!(process.is_running(), "it ended:\n{}", process.log().join("\n"));
        TcpStream::connect(address).ok()
    });
}

/// At one request per minute, none of them comes back during the test.
#[test]
fn nginx_and_the_imported_policy_let_the_same_requests_pass() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (own, address) = (folder.path().display(), own_address());
    let limits = format!(
        "limit_req_zone $binary_remote_addr zone=one:10m rate=1r/m;\nserver {{ listen {address}; limit_req zone=one burst=5 nodelay; \
         location / {{ empty_gif; }} }}\n"
    );
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {own}/{name};\n"))
        .concat();
    let config = format!(
        "pid {own}/nginx.pid;\nevents {{ }}\nhttp {{\naccess_log off;\nerror_log {own}/error.log;\n{temporary}{limits}}}\n"
    );
    fs::write(folder.path().join("nginx.conf"), &config).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
    command.arg("-e").arg("stderr").arg("-g").arg("daemon off;");
    let mut nginx = Process::start(&mut command);
    listens(&mut nginx, address);
    let theirs = passed(10, || client::get(address, "/", &[]).status);
    nginx.signal("TERM");
    nginx.wait();
    let slowlane = served(&import(&config, None).unwrap());
    assert_eq!(theirs.iter().filter(|&&passed| passed).count(), 6);
    assert_eq!(asked(&slowlane, 10), theirs);
}

#[test]
fn haproxy_and_the_imported_policy_let_the_same_requests_pass() {
    let folder = tempfile::tempdir().unwrap();
    let address = own_address();
    let config = format!(
        "defaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\nfrontend web\n bind {address}\n \
         stick-table type ip size 100k expire 2h store http_req_rate(1h)\n http-request track-sc0 src\n http-request deny \
         deny_status 429 if {{ sc_http_req_rate(0) gt 20 }}\n http-request return status 200\n"
    );
    let path = folder.path().join("haproxy.cfg");
    fs::write(&path, &config).unwrap();
    let mut haproxy = Process::start(Command::new("haproxy").arg("-db").arg("-f").arg(&path));
    listens(&mut haproxy, address);
    let theirs = passed(30, || client::get(address, "/", &[]).status);
    let slowlane = served(&import(&config, None).unwrap());
    assert_eq!(theirs.iter().filter(|&&passed| passed).count(), 20);
    assert_eq!(asked(&slowlane, 30), theirs);
}
