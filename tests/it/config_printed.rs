//! `slowlane config`: what it prints is what is shipped, and the real programs take it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use slowlane::shipped::nginx::LISTEN;

use crate::cli::ran;
use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::{Version, replace};
use crate::support::process::Process;
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address, project, skipped};

/// What a command prints that goes well.
fn printed(args: &[&str]) -> String {
    let ran = ran(args);
    assert_eq!((ran.code, ran.problems.as_slice()), (0, &[] as &[String]), "{args:?}");
    ran.out
}

fn shipped(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap()
}

#[test]
fn what_is_printed_for_the_defaults_is_what_is_shipped() {
    let haproxy = |version: &str, args: &[&str]| {
        printed(&[&["config", "haproxy", "--version", version], args].concat())
    };
    let hold = shipped("haproxy/haproxy-2.6-hold.cfg");
    for version in ["2.6", "2.8.3", "3.0"] {
        assert_eq!(haproxy(version, &[]), hold);
        assert_eq!(haproxy(version, &["--delivery", "lua"]), shipped("haproxy/haproxy-2.6-lua.cfg"));
    }
    for version in ["3.2", "3.5-dev5"] {
        assert_eq!(haproxy(version, &[]), shipped("haproxy/haproxy-3.2-pause.cfg"));
    }
    // Where a later version would warn, it is asked for what it wants.
    assert_eq!(haproxy("3.2", &["--delivery", "hold"]), replace(&hold, "    mode tcp\n", "    mode spop\n"));
    for name in ["spoe-slowlane.conf", "maps/slo.map", "maps/source+website.map"] {
        assert_eq!(haproxy("2.6", &["--file", name]), shipped(&format!("haproxy/{name}")));
    }
    let lua = haproxy("2.6", &["--delivery", "lua", "--file", "slowlane.lua"]);
    assert_eq!(lua, shipped("haproxy/slowlane.lua"));

    assert_eq!(printed(&["config", "nginx"]), shipped("nginx/nginx.conf"));
    for name in ["nginx.conf", "slowlane-upstream.conf", "slowlane.conf"] {
        assert_eq!(printed(&["config", "nginx", "--file", name]), shipped(&format!("nginx/{name}")));
    }
    assert_eq!(printed(&["config", "show"]), shipped("slowlane.toml"));
}

#[test]
fn what_is_shown_is_in_force_again_when_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first.toml", "second.toml"].map(|name| folder.path().join(name));
    let args = ["--spop", "unix:/run/a b/spop.sock", "--http", "[::1]:81", "--policy", "/p/\"q\""];
    let shown = printed(&[&["config", "show"], &args[..]].concat());
    assert!(shown.contains("listen = [\"unix:/run/a b/spop.sock\"]"), "{shown}");
    fs::write(&first, &shown).unwrap();
    let again = printed(&["config", "show", "--config", first.to_str().unwrap()]);
    assert_eq!(again, shown);
    fs::write(&second, "[policy]\ndir = 'maps'\n").unwrap();
    let shown = printed(&["config", "show", "--config", second.to_str().unwrap()]);
    assert!(shown.contains(&format!("\ndir = \"{}/maps\"", folder.path().display())), "{shown}");
}

#[test]
fn what_cannot_be_printed_is_told() {
    let problems = |args: &[&str]| {
        let ran = ran(&[&["config"], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{args:?}");
        ran.problems.join("\n")
    };
    assert_eq!(
        problems(&["haproxy", "--version", "2.6", "--delivery", "pause"]),
        "HAProxy 2.6 has no `pause`: expected --delivery hold or lua, or --version 3.2 or later"
    );
    assert_eq!(
        problems(&["nginx", "--file", "nginx"]),
        "--file \"nginx\": expected one of nginx.conf, slowlane-upstream.conf, slowlane.conf"
    );
    let injected = problems(&["nginx", "--http", "unix:/run/a; include /etc/passwd"]);
    assert!(injected.starts_with("\"unix:/run/a; include /etc/passwd\": expected letters"), "{injected}");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("none.toml"), "spop.listen = []\nhttp.listen = []\n").unwrap();
    let none = folder.path().join("none.toml");
    let none = ["--config", none.to_str().unwrap()];
    let haproxy = problems(&[&["haproxy", "--version", "2.6"], &none[..]].concat());
    assert_eq!(haproxy, "[spop] listen is empty: give an address with --spop");
    assert_eq!(
        problems(&[&["nginx"], &none[..]].concat()),
        "[http] listen is empty: give an address with --http"
    );

    // Nothing is written over, and then nothing else is written either.
    let there = folder.path().join("slowlane.conf");
    fs::write(&there, "mine").unwrap();
    let refused = problems(&["nginx", "--dir", folder.path().to_str().unwrap()]);
    let expected = format!("{}: is there already: remove it, or choose another --dir", there.display());
    assert_eq!(refused, expected);
    assert_eq!(fs::read_to_string(there).unwrap(), "mine");
    assert!(!folder.path().join("nginx.conf").exists());
}

/// Each version with each way that it has.
const EACH: [(Version, &str, &str, &str); 8] = [
    (Version::V2_6, "2.6", "hold", "haproxy-2.6-hold.cfg"),
    (Version::V2_6, "2.6", "lua", "haproxy-2.6-lua.cfg"),
    (Version::V3_0, "3.0", "hold", "haproxy-2.6-hold.cfg"),
    (Version::V3_0, "3.0", "lua", "haproxy-2.6-lua.cfg"),
    (Version::V3_2, "3.2", "hold", "haproxy-2.6-hold.cfg"),
    (Version::V3_2, "3.2", "lua", "haproxy-2.6-lua.cfg"),
    (Version::V3_2, "3.2", "pause", "haproxy-3.2-pause.cfg"),
    (Version::V3_2, "3.2.26", "pause", "haproxy-3.2-pause.cfg"),
];

#[test]
fn every_haproxy_takes_what_is_printed_for_it_without_a_warning() {
    for (version, number, delivery, main) in EACH {
        let Some(binary) = version.binary() else {
            skipped(&format!("HAProxy {number} cannot be had on this machine ({delivery})"));
            continue;
        };
        for agent in
            ["127.0.0.1:9000", "[::1]:9000", "0.0.0.0:9000", "localhost:9000", "unix:/run/slowlane/spop.sock"]
        {
            let folder = tempfile::tempdir().unwrap();
            let dir = folder.path().to_str().unwrap();
            let args = ["config", "haproxy", "--version", number, "--delivery", delivery, "--spop", agent];
            let names = printed(&[&args[..], &["--dir", dir]].concat());
            assert_eq!(names.lines().next(), Some(format!("{dir}/{main}").as_str()));
            for name in names.lines() {
                assert!(Path::new(name).is_file(), "{name}");
            }
            let mut command = Command::new(&binary);
            let output =
                command.arg("-dW").arg("-c").arg("-f").arg(format!("{dir}/{main}")).output().unwrap();
            let text = [output.stdout, output.stderr].concat();
            assert!(
                output.status.success(),
                "{number} {delivery} {agent}: {}",
                String::from_utf8_lossy(&text)
            );
        }
    }
}

/// The second request of a source waits for half a second.
const POLICY: [(&str, &str); 2] =
    [("slo.map", "0 burst=1000 rate=1000/s\n3001 burst=1 rate=2/s\n"), ("source.map", "0.0.0.0/0 3001\n")];

/// Two requests: the first passes at once, the second when its delay is over, and both reach the application.
fn is_throttled(mut client: Client, app: &Backend, what: &str) {
    let [first, second] = ["/first", "/second"].map(|path| client.request("GET", path, &[], ""));
    assert_eq!((first.status, second.status), (200, 200), "{what}");
    let between = app.saw("/second").at - app.saw("/first").at;
    assert!(between >= Duration::from_millis(400), "{what}: {between:?}");
}

#[test]
fn requests_pass_what_is_printed_for_haproxy_in_every_way() {
    for (version, number, delivery, main) in EACH {
        let Some(binary) = version.binary() else { continue };
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(&POLICY));
        let (folder, address) = (tempfile::tempdir().unwrap(), own_address().to_string());
        let dir = folder.path().to_str().unwrap();
        let (agent, app_address) =
            (format!("unix:{}", slowlane.socket("spop").display()), app.address.to_string());
        printed(&[
            "config",
            "haproxy",
            "--version",
            number,
            "--delivery",
            delivery,
            "--spop",
            &agent,
            "--bind",
            &address,
            "--app",
            &app_address,
            "--dir",
            dir,
        ]);
        // A machine that stalls for longer than the shipped 100 ms lets the request pass, rightly.
        let spoe = folder.path().join("spoe-slowlane.conf");
        let patient = replace(&fs::read_to_string(&spoe).unwrap(), "processing 100ms", "processing 5s");
        fs::write(spoe, patient).unwrap();
        let mut haproxy = Process::start(Command::new(binary).args(["-db", "-f", &format!("{dir}/{main}")]));
        let what = format!("HAProxy {number} {delivery}");
        let client = eventually(&what, || {
            assert!(haproxy.is_running(), "{what} ended: {}", haproxy.log().join("\n"));
            std::net::TcpStream::connect(&address).ok().map(|_| Client::connect(address.parse().unwrap()))
        });
        is_throttled(client, &app, &what);
    }
}

#[test]
fn requests_pass_what_is_printed_for_nginx() {
    for over_unix in [false, true] {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(&POLICY));
        let (folder, address) = (tempfile::tempdir().unwrap(), own_address().to_string());
        assert_ne!(address, LISTEN);
        let dir = folder.path().join("nginx");
        let dir = dir.to_str().unwrap();
        let agent = if over_unix {
            format!("unix:{}", slowlane.socket("http").display())
        } else {
            slowlane.http.to_string()
        };
        let names = printed(&[
            "config",
            "nginx",
            "--http",
            &agent,
            "--listen",
            &address,
            "--app",
            &app.address.to_string(),
            "--dir",
            dir,
        ]);
        assert_eq!(names.lines().count(), 3);
        // The folders of a distribution are not this test's.
        let main = format!("{dir}/nginx.conf");
        let folders = ["/var/log/nginx", "/var/lib/nginx", "/run"];
        let text = fs::read_to_string(&main).unwrap();
        fs::write(&main, folders.iter().fold(text, |text, folder| text.replace(folder, dir))).unwrap();
        // Workers run as another user where the tests run as root, and must come to the socket.
        for path in [folder.path(), dir.as_ref(), slowlane.folder()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        if over_unix {
            fs::set_permissions(slowlane.socket("http"), fs::Permissions::from_mode(0o666)).unwrap();
        }
        let args = ["-p", dir, "-c", &main, "-e", "stderr"];
        let tested = Command::new("nginx").args(args).arg("-t").output().unwrap();
        let told = String::from_utf8_lossy(&tested.stderr);
        assert!(tested.status.success() && !told.contains("[warn]"), "{told}");
        let mut nginx = Process::start(Command::new("nginx").args(args).args(["-g", "daemon off;"]));
        let client = eventually("nginx listens", || {
            assert!(nginx.is_running(), "nginx ended: {}", nginx.log().join("\n"));
            std::net::TcpStream::connect(&address).ok().map(|_| Client::connect(address.parse().unwrap()))
        });
        is_throttled(client, &app, "nginx");
        nginx.signal("TERM");
        nginx.wait();
    }
}
