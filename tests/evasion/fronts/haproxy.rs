//! HAProxy with the printed files, and its own tables.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Front, edit, print};
use crate::app::App;
use crate::support::haproxy::Version;
use crate::support::own_address;
use crate::support::process::Process;
use crate::support::slowlane::Slowlane;

/// None if this version is not installed.
pub fn start(
    version: Version,
    (delivery, main): (&str, &str),
    slowlane: &Slowlane,
    peers: SocketAddr,
    app: &App,
) -> Option<Front> {
    let binary = version.binary()?;
    let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
    let dir = folder.path().display().to_string();
    let agent = format!("unix:{}", slowlane.socket("spop").display());
    let (bind, app) = (address.to_string(), app.address.to_string());
    let peer = peers.to_string();
    let mut args = vec!["haproxy", "--version", version.number(), "--delivery", delivery, "--spop", &agent];
    args.extend(["--dir", &dir, "--bind", &bind, "--app", &app]);
    if delivery == "peers" {
        args.extend(["--peers", &peer]);
    }
    print(slowlane, &args);
    // A busy machine may stall for the shipped 100 ms, and the request would pass.
    edit(&folder.path().join("spoe-slowlane.conf"), "processing 100ms", "processing 5s");
    let path = folder.path().join(main);
    // The application of an operator that tells it the address of the client.
    edit(&path, "backend app\n", "backend app\n    http-request set-header X-Forwarded-For %[src]\n");
    if delivery == "peers" {
        let key = key(&std::fs::read_to_string(&path).unwrap());
        edit(&path, "peer lb1 127.0.0.1:10000", &format!("peer lb1 {}", own_address()));
        // Longer keys are not counted in a table.
        let cut = if key.starts_with("var") { ",bytes(0,128)" } else { "" };
        let count = format!("%[var(txn.limit.tau,0)] %[sc0_tracked] %[{key}{cut},url_enc]");
        let outcome = format!("backend app\n    http-request set-header X-Count \"{count}\"\n");
        edit(&path, "backend app\n", &outcome);
        let socket = format!("log stdout format raw local0\n    stats socket {dir}/stats level admin\n");
        edit(&path, "log stdout format raw local0\n", &socket);
    }
    let mut command = Command::new(binary);
    command.args(["-db", "-f", &format!("{dir}/{main}")]);
    // Nobody reads its log, which is long.
    let process = Process::start_with(&mut command, Stdio::null(), Stdio::null());
    Some(Front::once_it_listens(process, address, folder))
}

/// The expression of the key that a printed file tracks.
fn key(text: &str) -> String {
    let line =
        text.lines().find_map(|line| line.trim_start().strip_prefix("http-request track-sc0 ")).unwrap();
    line.split(' ').next().unwrap().to_owned()
}

/// What HAProxy has counted.
pub struct Tables(PathBuf);

impl Tables {
    pub fn at(folder: &Path) -> Tables {
        Tables(folder.join("stats"))
    }

    fn ask(&self, command: &str) -> String {
        let mut socket = UnixStream::connect(&self.0).unwrap();
        socket.write_all(command.as_bytes()).unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The admitted requests of each key, as HAProxy writes it.
    pub fn admitted(&self) -> HashMap<String, u64> {
        let tables = self.ask("show table\n");
        let names = tables.lines().filter_map(|line| line.split("table: ").nth(1)?.split(',').next());
        let paces = names.filter(|name| name.starts_with("slowlane_pace"));
        let rows: String = paces.map(|name| self.ask(&format!("show table {name}\n"))).collect();
        let row = |line: &str| {
            let (_, rest) = line.split_once("key=")?;
            let (key, rest) = rest.split_once(" use=")?;
            let count = rest.split_once("gpc(0)=").or_else(|| rest.split_once("gpc0="))?.1;
            Some((key.to_owned(), count.split(' ').next()?.parse().ok()?))
        };
        rows.lines().filter_map(row).collect()
    }
}
