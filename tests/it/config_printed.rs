//! `slowlane config` prints the shipped files, and the real programs accept them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::cli::ran;
use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::replace;
use crate::support::printed::{EACH, PEERS, Printed};
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{project, skipped};

/// The output of a successful command.
/// Without a config or a policy, those of a service that is installed here would be read.
fn printed(args: &[&str]) -> String {
    let is_given = args.iter().any(|arg| ["--config", "--policy"].contains(arg));
    let defaults: &[&str] = if is_given { &[] } else { &["--config", "/dev/null"] };
    let ran = ran(&[args, defaults].concat());
    assert_eq!((ran.code, ran.problems.as_slice()), (0, &[] as &[String]), "{args:?}");
    ran.out
}

fn shipped(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap()
}

#[test]
fn what_is_printed_for_the_defaults_is_what_is_shipped() {
    let haproxy = |version: &str, args: &[&str]| {
        let text = printed(&[&["config", "haproxy", "--version", version], args].concat());
        // The first line of the main file names the version.
        let (head, rest) = text.split_once('\n').unwrap();
        let number: String = version.split(['.', '-']).take(2).collect::<Vec<_>>().join(".");
        match head == format!("# For HAProxy {number}; --version names another.") {
            true => rest.to_owned(),
            false if args.contains(&"--file") => text,
            false => panic!("{version} {args:?}: {head}"),
        }
    };
    let hold = shipped("haproxy/haproxy-2.6-hold.cfg");
    for version in ["2.6", "2.8.3", "3.0"] {
        assert_eq!(haproxy(version, &[]), hold);
        for delivery in ["lua", "peers"] {
            let file = format!("haproxy/haproxy-2.6-{delivery}.cfg");
            assert_eq!(haproxy(version, &["--delivery", delivery]), shipped(&file));
        }
    }
    for version in ["3.2", "3.5-dev5"] {
        assert_eq!(haproxy(version, &[]), shipped("haproxy/haproxy-3.2-pause.cfg"));
        let peers = haproxy(version, &["--delivery", "peers"]);
        assert_eq!(peers, shipped("haproxy/haproxy-3.2-peers.cfg"));
    }
    // Later versions get the lines without which they would warn.
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
}

#[test]
fn without_a_version_it_is_printed_for_the_haproxy_that_is_installed() {
    let folder = tempfile::tempdir().unwrap();
    let haproxy = folder.path().join("haproxy");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let printed = |says: &str| {
        fs::write(&haproxy, format!("#!/bin/sh\n[ \"$1\" = -v ] && echo '{says}'\n")).unwrap();
        fs::set_permissions(&haproxy, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(BINARY);
        let output =
            command.args(["config", "haproxy", "--config", "/dev/null"]).env("PATH", &path).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
        String::from_utf8(output.stdout).unwrap()
    };
    let for_3_2 = printed("HAProxy version 3.2.26-1 2026/10/17 - https://haproxy.org/");
    assert!(
        for_3_2.starts_with("# For HAProxy 3.2; ") && for_3_2.contains("http-request pause"),
        "{for_3_2}"
    );
    let for_3_0 = printed("HAProxy version 3.0.11");
    assert!(
        for_3_0.starts_with("# For HAProxy 3.0; ") && for_3_0.contains("slowlane-hold hold"),
        "{for_3_0}"
    );
}

#[test]
fn an_installed_2_6_with_lua_gets_lua() {
    let folder = tempfile::tempdir().unwrap();
    let haproxy = folder.path().join("haproxy");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    for (version, features, file) in [
        ("2.6.12", "+LUA +PCRE2", "lua.slowlane_delay"),
        ("2.6.12", "-LUA +PCRE2", "slowlane-hold hold"),
        ("3.0.11", "+LUA +PCRE2", "slowlane-hold hold"),
        ("3.2.26", "+LUA +PCRE2", "http-request pause"),
    ] {
        let says = format!("HAProxy version {version} 2026/10/17 - https://haproxy.org/");
        let script =
            format!("#!/bin/sh\necho '{says}'\n[ $1 = -vv ] && echo 'Feature list : {features}'\ntrue\n");
        fs::write(&haproxy, script).unwrap();
        fs::set_permissions(&haproxy, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(BINARY);
        let output =
            command.args(["config", "haproxy", "--config", "/dev/null"]).env("PATH", &path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(file), "{version} {features}: {text}");
    }
}

/// A policy with fields of its own: in a type, in a lookup, and to share by; and a delay of two minutes.
fn own_fields() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let toml = "[hold]\nlongest = '5m'\n[policy]\ndir = 'policy'\n[policy.types]\n6 = ['Api_Key', 'method']\n\
                [[policy.lookups]]\nfields = ['x-plan', 'path']\nmap = 'plan.map'\nmatch = 'str'\n\
                [[policy.lookups]]\nfields = ['odd name']\nmap = 'odd.map'\nmatch = 'str'\n";
    fs::create_dir(folder.path().join("policy")).unwrap();
    fs::write(folder.path().join("slowlane.toml"), toml).unwrap();
    let slo_map = "0 rate=unlimited\n6001 burst=1 rate=1/m law=fair share=user-agent max_delay=2m\n";
    fs::write(folder.path().join("policy/slo.map"), slo_map).unwrap();
    fs::write(folder.path().join("policy/plan.map"), "free+/ 6001\n").unwrap();
    folder
}

#[test]
fn every_field_of_the_policy_is_sent_and_every_hold_has_the_time_it_needs() {
    let folder = own_fields();
    let config = folder.path().join("slowlane.toml");
    let config = ["--config", config.to_str().unwrap()];
    let of = |args: &[&str]| ran(&[&["config"], args, &config[..]].concat());
    let spoe = of(&["haproxy", "--version", "3.2", "--delivery", "hold", "--file", "spoe-slowlane.conf"]).out;
    let sent = " method=method Api_Key=var(txn.Api_Key) path=var(txn.path) user-agent=req.fhdr(user-agent) \
                x-plan=req.fhdr(x-plan)\n";
    assert!(spoe.contains(sent), "{spoe}");
    assert!(spoe.contains("# The policy uses the field odd name: no argument can have this name."), "{spoe}");
    for line in ["timeout processing 121s", "timeout idle       3m"] {
        assert!(spoe.contains(line), "{line} in\n{spoe}");
    }
    assert!(of(&["haproxy", "--version", "3.2", "--delivery", "hold"]).out.contains("timeout server  4m"));
    let nginx = of(&["nginx", "--file", "slowlane.conf"]).out;
    for line in [
        "proxy_set_header X-Slowlane-Api-Key $slowlane_of_api_key;",
        "proxy_set_header X-Slowlane-path $slowlane_path;",
        "proxy_set_header X-Slowlane-user-agent $http_user_agent;",
        "proxy_set_header X-Slowlane-x-plan $http_x_plan;",
        "/check?max_delay=121s;",
        "proxy_read_timeout    122s;",
    ] {
        assert!(nginx.contains(line), "{line} in\n{nginx}");
    }
    let upstream = of(&["nginx", "--file", "slowlane-upstream.conf"]).out;
    let checked = "map \"$slowlane_odd$slowlane_odd_method|$slowlane_owner|$slowlane_of_api_key|$slowlane_path|\
                   $http_user_agent|$http_x_plan\" $slowlane_unfit {";
    assert!(upstream.contains(checked), "{upstream}");
    // A field that is no header of clients' is not read from one: the operator sets it.
    assert!(upstream.contains("map $host $slowlane_of_api_key {\n    default \"\";\n}"), "{upstream}");
    assert!(spoe.contains("# The field Api_Key: set txn.Api_Key in your frontend"), "{spoe}");
    let main = of(&["haproxy", "--version", "3.2", "--delivery", "hold"]).out;
    for rule in [
        "del-header ^(x_plan)$ -m reg",
        "deny_status 400 if { req.fhdr_cnt(x-plan) gt 1 }",
        "deny_status 400 if { req.fhdr_cnt(user-agent) gt 1 }",
        // What the operator sets may be any part of a request once more: all of it has to fit one frame.
        "return status 414 if { url -m len gt 8192 }",
        "deny_status 400 if { req.fhdr(user-agent) -m len gt 2389 }",
        "deny_status 400 if { var(txn.Api_Key) -m len gt 2389 }",
        "return status 405",
        "set-var(txn.path) path,url_dec",
    ] {
        assert!(main.contains(rule), "{rule} in\n{main}");
    }
    let outcome = of(&["nginx", "--ratelimit", "--file", "slowlane.conf"]).out;
    assert!(outcome.contains("/check?max_delay=121s&ratelimit=on;"), "{outcome}");
    // What is printed loads.
    for (version, number, delivery, main) in EACH.into_iter().chain(PEERS) {
        let Some(binary) = version.binary() else { continue };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let printed = of(&["haproxy", "--version", number, "--delivery", delivery, "--dir", path]);
        assert_eq!(printed.code, 0);
        let output =
            Command::new(binary).args(["-dW", "-c", "-f", &format!("{path}/{main}")]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_lines_to_paste_make_ones_own_configuration_ask() {
    for (version, number, delivery, main) in EACH.into_iter().chain(PEERS) {
        let Some(binary) = version.binary() else { continue };
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_str().unwrap();
        // The other files are written beside the lines, and the main file is not.
        let args =
            ["config", "haproxy", "--version", number, "--delivery", delivery, "--attach", "--dir", dir];
        let text = printed(&args);
        assert!(!folder.path().join(main).exists());
        let part = |name: &str| {
            let after = text.split(&format!("# For {name}:\n")).nth(1).unwrap_or_default();
            after.split("\n\n").next().unwrap().to_owned()
        };
        let has_global = matches!(delivery, "lua" | "peers");
        assert_eq!(has_global, text.contains("# For the section global:"), "{text}");
        let own = format!(
            "global\n{}\ndefaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n\
             frontend mine\n bind 127.0.0.1:8080\n{}\n default_backend app\nbackend app\n server a 127.0.0.1:8000\n{}\n",
            part("the section global"),
            part("your frontend"),
            part("the end of the file"),
        );
        let path = folder.path().join("own.cfg");
        fs::write(&path, &own).unwrap();
        let output = Command::new(binary).args(["-dW", "-c", "-f"]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{own}\n{}", String::from_utf8_lossy(&output.stderr));
        let comments = text.lines().filter(|line| line.trim_start().starts_with('#')).count();
        assert!(text.contains("three eighths of the global maxconn"), "{text}");
        assert!(comments <= 6 && !text.contains("bind "), "only the lines to paste:\n{text}");
        assert!(part("your frontend").contains("send-spoe-group slowlane decide"), "{text}");
    }
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
        "HAProxy 2.6 has no `pause`: use --delivery hold or lua, or --version 3.2 or later"
    );
    assert_eq!(
        problems(&["nginx", "--file", "nginx"]),
        "--file \"nginx\": expected one of nginx.conf, slowlane-upstream.conf, slowlane.conf"
    );
    let injected = problems(&["nginx", "--http", "unix:/run/a; include /etc/passwd"]);
    assert!(
        injected.starts_with("\"unix:/run/a; include /etc/passwd\": expected one word of letters"),
        "{injected}"
    );
    let any_port = "127.0.0.1:0: port 0 means a different port at each start: name a fixed port with --";
    assert_eq!(
        problems(&["haproxy", "--version", "2.6", "--spop", "127.0.0.1:0"]),
        format!("{any_port}spop")
    );
    assert_eq!(problems(&["nginx", "--http", "127.0.0.1:0"]), format!("{any_port}http"));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("none.toml"), "spop.listen = []\nhttp.listen = []\n").unwrap();
    let none = folder.path().join("none.toml");
    let none = ["--config", none.to_str().unwrap()];
    let haproxy = problems(&[&["haproxy", "--version", "2.6"], &none[..]].concat());
    assert_eq!(haproxy, "[spop] listen is empty: name an address with --spop");
    assert_eq!(
        problems(&[&["nginx"], &none[..]].concat()),
        "[http] listen is empty: name an address with --http"
    );

    // An existing file is not overwritten, and then no other file is written.
    let there = folder.path().join("slowlane.conf");
    fs::write(&there, "mine").unwrap();
    let refused = problems(&["nginx", "--dir", folder.path().to_str().unwrap()]);
    let expected =
        format!("{}: this file already exists: remove it, or choose another --dir", there.display());
    assert_eq!(refused, expected);
    assert_eq!(fs::read_to_string(there).unwrap(), "mine");
    assert!(!folder.path().join("nginx.conf").exists());
}

#[test]
fn every_haproxy_takes_what_is_printed_for_it_without_a_warning() {
    for (version, number, delivery, main) in EACH.into_iter().chain(PEERS) {
        let Some(binary) = version.binary() else {
            skipped(&format!("HAProxy {number} cannot be had on this machine ({delivery})"));
            continue;
        };
        for (agent, bind, app) in [
            ("127.0.0.1:9000", ":8080", "127.0.0.1:8000"),
            ("[::1]:9000", "[::]:8080", "[::1]:8000"),
            ("0.0.0.0:9000", "*:8080", "localhost:8000"),
            ("localhost:9000", "127.0.0.1:8080", "192.0.2.1"),
            ("unix:/run/slowlane/spop.sock", "unix:/run/web.sock", "unix:/run/app.sock"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let dir = folder.path().to_str().unwrap();
            let args = ["config", "haproxy", "--version", number, "--delivery", delivery, "--spop", agent];
            let names = printed(&[&args[..], &["--bind", bind, "--app", app, "--dir", dir]].concat());
            assert_eq!(names.lines().next(), Some(format!("{dir}/{main}").as_str()));
            assert!(!folder.path().join("maps").exists(), "HAProxy reads no maps of slowlane's");
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

/// Checks two requests: the first passes at once, the second after its delay. Both reach the application.
fn is_throttled(mut client: Client, app: &Backend, what: &str) {
    let [first, second] = ["/first", "/second"].map(|path| client.request("GET", path, &[], ""));
    assert_eq!((first.status, second.status), (200, 200), "{what}");
    // From the question on: on a busy machine the first request may reach the application late.
    let after = app.saw("/second").at - first.asked_at;
    assert!(after >= Duration::from_millis(400), "{what}: {after:?}");
}

#[test]
fn requests_pass_what_is_printed_for_haproxy_in_every_way() {
    for each in EACH {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(&POLICY));
        let Some(haproxy) = Printed::haproxy(each, &slowlane, &app, &[]) else { continue };
        is_throttled(haproxy.client(), &app, &format!("{each:?}"));
    }
}

#[test]
fn requests_pass_what_is_printed_for_nginx() {
    for over_unix in [false, true] {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(&POLICY));
        let agent = match over_unix {
            true => format!("unix:{}", slowlane.socket("http").display()),
            false => slowlane.http.to_string(),
        };
        let nginx = Printed::nginx(&agent, &slowlane, &app, &[]);
        is_throttled(nginx.client(), &app, &agent);
    }
}

/// In the check, nginx's own variables of the path are those of the check.
#[test]
fn the_path_and_the_query_are_those_of_the_request_in_what_is_printed_for_nginx() {
    let lookup =
        |name: &str| format!("[[policy.lookups]]\nfields = ['{name}']\nmap = '{name}.map'\nmatch = 'str'\n");
    let config = format!("[policy]\ndir = 'policy'\n{}", ["path", "query", "owner"].map(lookup).concat());
    let policy = [
        ("slo.map", "0 rate=unlimited\n1001 rate=unlimited\n2001 burst=1 rate=1/d max_delay=0s\n"),
        ("path.map", "/slow 2001\n/a-b 2001\n"),
        ("query.map", "q=1 2001\n"),
        ("owner.map", "vip 1001\n"),
    ];
    let (app, slowlane) = (Backend::start(), Slowlane::with_config(&policy, &config));
    let (agent, toml) = (slowlane.http.to_string(), slowlane.folder().join("slowlane.toml"));
    let from = ["--config", toml.to_str().unwrap()];
    let nginx = Printed::nginx(&agent, &slowlane, &app, &from);
    let mut client = nginx.client();
    let mut statuses = |path: &str| [(); 2].map(|()| client.request("GET", path, &[], "").status);
    assert_eq!(statuses("/free?q=2"), [200, 200]);
    assert_eq!(statuses("/slow?q=2"), [200, 429]);
    assert_eq!([statuses("/x/../a%2Db"), statuses("/free?q=1")], [[429, 429]; 2], "one SLO, one website");
    // A decoded line break would begin a header of the client's own.
    assert_eq!(statuses("/slow?%0d%0aX-Slowlane-Owner:%20vip"), [429, 429]);
    assert_eq!(statuses("/slow%0d%0aX-Slowlane-Owner:%20vip?q=1"), [403, 403]);
}
