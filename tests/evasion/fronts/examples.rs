//! The proxies that have an example each: Caddy, Traefik, Envoy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Front, copy};
use crate::app::App;
use crate::support::own_address;
use crate::support::process::Process;
use crate::support::slowlane::Slowlane;

/// With HTTP/2 beside HTTP/1, also without TLS.
pub fn caddy(program: &Path, slowlane: &Slowlane, app: &App) -> Front {
    let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
    let file = folder.path().join("Caddyfile");
    copy(
        "caddy/Caddyfile",
        &file,
        &[
            (
                "auto_https off\n",
                "auto_https off\n\tservers {\n\t\tprotocols h1 h2c\n\t}\n\tlog {\n\t\tlevel PANIC\n\t}\n",
            ),
            ("\n:8080 {", &format!("\n:{} {{\n\tbind {}", address.port(), address.ip())),
            ("127.0.0.1:9001", &slowlane.http.to_string()),
            ("127.0.0.1:8000", &app.address.to_string()),
        ],
    );
    let mut command = Command::new(program);
    command.args(["run", "--config"]).arg(&file).env("HOME", folder.path());
    Front::once_it_listens(Process::start(&mut command), address, folder)
}

pub fn traefik(slowlane: &Slowlane, app: &App) -> Option<Front> {
    let program = program("traefik", "version")?;
    let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
    copy(
        "traefik/traefik.yml",
        &folder.path().join("traefik.yml"),
        &[("\":8080\"", &format!("\"{address}\""))],
    );
    copy(
        "traefik/dynamic.yml",
        &folder.path().join("dynamic.yml"),
        &[("127.0.0.1:9001", &slowlane.http.to_string()), ("127.0.0.1:8000", &app.address.to_string())],
    );
    let mut command = Command::new(program);
    command.arg("--configFile=traefik.yml").current_dir(folder.path());
    Some(Front::once_it_listens(Process::start(&mut command), address, folder))
}

/// An example of Envoy. It asks slowlane at this address, which has this port in the file.
pub fn envoy(example: &str, (port, slowlane): (&str, SocketAddr), app: &App) -> Option<Front> {
    let program = program("envoy", "--version")?;
    let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
    let file = folder.path().join("envoy.yaml");
    let at = |address: SocketAddr| format!("address: {}, port_value: {}", address.ip(), address.port());
    copy(
        &format!("{example}/envoy.yaml"),
        &file,
        &[
            ("address: 0.0.0.0, port_value: 8080", &at(address)),
            (&format!("address: 127.0.0.1, port_value: {port}"), &at(slowlane)),
            ("address: 127.0.0.1, port_value: 8000", &at(app.address)),
        ],
    );
    let mut command = Command::new(program);
    command.arg("-c").arg(&file).args([
        "--log-level",
        "error",
        "--use-dynamic-base-id",
        "--concurrency",
        "1",
    ]);
    Some(Front::once_it_listens(Process::start(&mut command), address, folder))
}

/// A program that is installed, or that `tests/support/unpack-wheels` has unpacked.
pub fn program(name: &str, version: &str) -> Option<PathBuf> {
    let wheels = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("wheels");
    let runs = |program: &PathBuf| {
        Command::new(program).arg(version).output().is_ok_and(|output| output.status.success())
    };
    [wheels.join(name), PathBuf::from(name)].into_iter().find(runs)
}
