//! nginx with the printed files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::{Front, edit, print};
use crate::app::App;
use crate::support::own_address;
use crate::support::process::Process;
use crate::support::slowlane::Slowlane;

pub fn start(slowlane: &Slowlane, app: &App) -> Front {
    let (folder, address, http2) = (tempfile::tempdir().unwrap(), own_address(), own_address());
    let dir = folder.path().display().to_string();
    let agent = slowlane.http.to_string();
    let places = ["--dir", &dir, "--listen", &address.to_string(), "--app", &app.address.to_string()];
    print(slowlane, &[&["nginx", "--http", &agent], &places[..]].concat());
    let main = folder.path().join("nginx.conf");
    for at in ["/var/log/nginx", "/var/lib/nginx", "/run"] {
        let text = fs::read_to_string(&main).unwrap();
        fs::write(&main, text.replace(at, &dir)).unwrap();
    }
    // Without TLS, an address has one version of HTTP.
    edit(&main, &format!("listen {address};"), &format!("listen {address}; listen {http2} http2;"));
    // A busy machine may stall for so long, and the request would pass.
    edit(&folder.path().join("slowlane.conf"), "proxy_connect_timeout 100ms", "proxy_connect_timeout 5s");
    let upstream = folder.path().join("slowlane-upstream.conf");
    let spare = own_address().to_string();
    edit(&upstream, "127.0.0.1:9009 backup", &format!("{spare} backup"));
    edit(&upstream, "listen     127.0.0.1:9009", &format!("listen {spare}"));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("nginx");
    command.args(["-p", &dir, "-c"]).arg(main).args(["-e", "stderr", "-g", "daemon off;"]);
    let mut front = Front::once_it_listens(Process::start(&mut command), address, folder);
    front.http2 = http2;
    front
}
