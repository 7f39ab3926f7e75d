//! The commands reach an admin listener over TLS.

use std::fs;
use std::net::SocketAddr;

use tempfile::TempDir;

use crate::cli::{Ran, ran};
use crate::support::free_port;
use crate::support::process::Process;
use crate::support::slowlane::BINARY;
use crate::support::tls::Authority;
use crate::support::{own_address, project};

/// A daemon whose admin listener has TLS, at `localhost`.
struct Daemon {
    _process: Process,
    folder: TempDir,
    port: u16,
}

impl Daemon {
    fn start(lines: &str) -> Daemon {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let config =
            format!("[admin]\nlisten = [\"127.0.0.1:{port}\"]\ntoken_file = \"token\"\n[admin.tls]\n{lines}");
        fs::write(folder.path().join("slowlane.toml"), config).unwrap();
        fs::write(folder.path().join("token"), "0123456789abcdef").unwrap();
        let addresses: [SocketAddr; 2] = [own_address(), own_address()];
        let mut process = Process::start(
            std::process::Command::new(BINARY)
                .args(["run", "--spop", &addresses[0].to_string(), "--http", &addresses[1].to_string()])
                .args(["--policy", project("haproxy/maps").to_str().unwrap()])
                .arg("--config")
                .arg(folder.path().join("slowlane.toml")),
        );
        process.logged("admin on ");
        Daemon { _process: process, folder, port }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs a command with the config of the daemon.
    fn configured(&self, args: &[&str]) -> Ran {
        ran(&[args, &["--config", &self.path("slowlane.toml")]].concat())
    }

    /// Runs `slowlane block list` at an address, with its token and these further arguments.
    fn asked(&self, scheme: &str, more: &[&str]) -> Ran {
        let (at, token) = (format!("{scheme}localhost:{}", self.port), self.path("token"));
        ran(&[&["block", "list", "--admin", &at, "--token-file", &token], more].concat())
    }
}

#[test]
fn commands_with_the_config_trust_its_certificate() {
    let authority = Authority::new("servers");
    let daemon = Daemon::start(&authority.pair("server").lines());
    for args in [
        &["top", "--once"][..],
        &["why", "source=192.0.2.1"],
        &["table", "show"],
        &["block", "add", "source=192.0.2.66", "--for", "10m"],
        &["block", "list"],
        &["block", "rm", "source=192.0.2.66"],
    ] {
        let Ran { code, out, problems } = daemon.configured(args);
        assert!(code == 0 && !out.is_empty(), "{args:?}: {problems:?}");
    }
    // Another certificate of the same authority is not the one of the config.
    let other = authority.pair("other");
    let config = fs::read_to_string(daemon.path("slowlane.toml")).unwrap();
    fs::write(daemon.path("slowlane.toml"), config.replace("server.pem", "other.pem")).unwrap();
    let Ran { code, problems, .. } = daemon.configured(&["block", "list"]);
    assert!(code == 1 && problems[0].starts_with("cannot connect to slowlane at 127.0.0.1:"), "{problems:?}");
    drop(other);
}

#[test]
fn an_address_with_https_needs_the_authority() {
    let (authority, strangers) = (Authority::new("servers"), Authority::new("strangers"));
    let daemon = Daemon::start(&authority.pair("server").lines());
    let [ca, foreign] = [&authority, &strangers].map(|authority| authority.cert().display().to_string());
    assert_eq!(daemon.asked("https://", &["--ca", &ca]).code, 0);
    assert_eq!(daemon.asked("", &["--ca", &ca]).code, 0);
    for more in [&["--ca", &foreign][..], &[]] {
        let Ran { code, problems, .. } = daemon.asked("https://", more);
        let expected = format!(
            "cannot connect to slowlane at localhost:{} over TLS: invalid peer certificate: UnknownIssuer; \
             name the CA of its certificate with --ca",
            daemon.port
        );
        assert_eq!((code, &problems[..]), (1, &[expected][..]), "{more:?}");
    }
    for scheme in ["", "http://"] {
        let Ran { code, problems, .. } = daemon.asked(scheme, &[]);
        let expected = format!("With [admin.tls], use https://localhost:{}", daemon.port);
        assert!(code == 1 && problems[0].ends_with(&expected), "{problems:?}");
    }
    let missing = daemon.asked("https://", &["--ca", "missing.pem"]).problems;
    assert_eq!(
        missing,
        ["missing.pem: No such file or directory (os error 2); slowlane must be able to read the file"]
    );
    let unix = ran(&["block", "list", "--admin", "unix:/run/x", "--ca", &ca]).problems;
    assert_eq!(unix, ["unix:/run/x cannot use TLS: name a TCP address with --admin"]);
}

#[test]
fn a_certificate_opens_a_listener_with_client_ca() {
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let lines = format!("{}client_ca = \"{}\"\n", authority.pair("server").lines(), clients.cert().display());
    let daemon = Daemon::start(&lines);
    let own = clients.pair("operator");
    let [ca, cert, key] = [&authority.cert(), &own.cert, &own.key].map(|path| path.display().to_string());
    assert_eq!(daemon.asked("https://", &["--ca", &ca, "--cert", &cert, "--key", &key]).code, 0);
    let Ran { code, problems, .. } = daemon.asked("https://", &["--ca", &ca]);
    assert!(code == 1 && problems[0].starts_with("cannot query slowlane at localhost:"), "{problems:?}");
    assert_eq!(daemon.configured(&["top", "--once", "--cert", &cert, "--key", &key]).code, 0);
}
