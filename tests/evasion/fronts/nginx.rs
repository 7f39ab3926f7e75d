//! nginx with the printed files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Front, Http, edit, print};
use crate::app::App;
use crate::http3;
use crate::support::own_address;
use crate::support::process::Process;
use crate::support::slowlane::Slowlane;
use crate::support::tls::Authority;

/// The installed one. Without TLS, an address of an older one has one version of HTTP.
pub fn installed(slowlane: &Slowlane, app: &App) -> Front {
    let http2 = own_address();
    let mut front = start(Path::new("nginx"), &format!("listen {http2} http2;"), slowlane, app);
    front.http2 = http2;
    front
}

/// One that takes HTTP/2 beside HTTP/1 at its address, or HTTP/3.
pub fn unpacked(program: &Path, http: Http, slowlane: &Slowlane, app: &App) -> Front {
    if http == Http::Two {
        return start(program, "http2 on;", slowlane, app);
    }
    let authority = Authority::new("strangers");
    let own = authority.pair("server");
    let certificate =
        format!("ssl_certificate {}; ssl_certificate_key {};", own.cert.display(), own.key.display());
    let mut front = start(program, &format!("listen @ quic reuseport; {certificate}"), slowlane, app);
    front.http3 = Some(http3::client(&authority));
    front
}

/// With more lines in its server, in which `@` is its address.
fn start(program: &Path, lines: &str, slowlane: &Slowlane, app: &App) -> Front {
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
    let listen = format!("listen {address};");
    edit(&main, &listen, &format!("{listen} {}", lines.replace('@', &address.to_string())));
    // A busy machine may stall for so long, and the request would pass.
    edit(&folder.path().join("slowlane.conf"), "proxy_connect_timeout 100ms", "proxy_connect_timeout 5s");
    let upstream = folder.path().join("slowlane-upstream.conf");
    let spare = own_address().to_string();
    edit(&upstream, "127.0.0.1:9009 backup", &format!("{spare} backup"));
    edit(&upstream, "listen     127.0.0.1:9009", &format!("listen {spare}"));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    command.args(["-p", &dir, "-c"]).arg(main).args(["-e", "stderr", "-g", "daemon off;"]);
    Front::once_it_listens(Process::start(&mut command), address, folder)
}
