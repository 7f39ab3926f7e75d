//! `slowlane attach --protect` with real proxies: the policy, the reports of ends, and the way back.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use crate::attach::{Own, haproxy_config, nginx, write_nginx};
use crate::support::backend::Backend;
use crate::support::client::get;
use crate::support::process::Process;
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address};

/// As the package installs it, with a comment at the end that has no line break.
const POLICY: &[(&str, &str)] = &[
    ("slo.map", "# limits\n0 rate=unlimited\n# 2001 burst=1 rate=1/s\n2001 burst=9 rate=9/s\n"),
    ("website.map", "blog.example 2001\n# the end"),
];

/// The config file of a daemon as an operator has it, in a folder for `attach`.
fn own(slowlane: &Slowlane, more: &str) -> Own {
    let own = Own::new(Some(slowlane));
    let policy = format!("[policy]\ndir = {:?}\n", slowlane.policy());
    own.write("slowlane.toml", &(own.text("slowlane.toml") + &policy + more));
    own
}

fn policy(slowlane: &Slowlane) -> [String; 2] {
    ["slo.map", "website.map"].map(|name| fs::read_to_string(slowlane.policy().join(name)).unwrap())
}

/// Whether this SLO protects an application whose ends are reported.
fn sees_ends(slowlane: &Slowlane, slo: u64) -> bool {
    let list = get(slowlane.admin, "/api/protect", &[("Accept", "application/json")]).body;
    let list: Vec<Value> = serde_json::from_str(&list).unwrap();
    list.iter().any(|application| application["slo"] == slo && application["sees_ends"] == true)
}

fn asked(shop: SocketAddr, path: &str) -> Option<()> {
    std::net::TcpStream::connect(shop).ok()?;
    (get(shop, path, &[("Host", "shop.example")]).status == 200).then_some(())
}

#[test]
fn haproxy_protects_a_website_after_attach() {
    let (slowlane, app, shop) = (Slowlane::with_policy(POLICY), Backend::start(), own_address());
    let (own, before) = (own(&slowlane, ""), policy(&slowlane));
    let config = haproxy_config(shop, own_address(), app.address);
    own.write("haproxy.cfg", &config);
    let args = ["--frontend", "shop", "--protect", "shop.example"];
    let diff = own.attached("haproxy", "haproxy.cfg", &args);
    assert!(diff.contains("\n+2002 law=protect\n") && diff.contains("\n+shop.example 2002\n"), "{diff}");
    assert_eq!(policy(&slowlane), before, "nothing is written without --write");
    own.attached("haproxy", "haproxy.cfg", &[&args[..], &["--write"]].concat());
    {
        let mut command = Command::new("haproxy");
        let _haproxy = Process::start(command.arg("-db").arg("-f").arg(own.path("haproxy.cfg")));
        eventually("the shop is protected", || {
            asked(shop, "/shoes")?;
            sees_ends(&slowlane, 2002).then_some(())
        });
    }
    own.attached("haproxy", "haproxy.cfg", &["--undo"]);
    assert_eq!((own.text("haproxy.cfg"), policy(&slowlane)), (config, before));
}

#[test]
fn nginx_protects_everything_after_attach_and_keeps_its_logs() {
    let (ends, app, shop) = (own_address(), Backend::start(), own_address());
    let listen = format!("[ends]\nlisten = [\"{ends}\"]\n");
    let slowlane = Slowlane::with_config(POLICY, &listen);
    let (own, before) = (own(&slowlane, &listen), policy(&slowlane));
    let (main, site) = write_nginx(&own, shop, app.address);
    let log = |name: &str| format!("access_log {}", own.path(name).display());
    let main = main.replace("access_log off", &log("http.log"));
    let more = format!(
        "location /quiet {{ access_log off; proxy_pass http://{0}; }}\nlocation /own {{\n    {1};\n    proxy_pass http://{0};\n}}\n",
        app.address,
        log("own.log")
    );
    let site = site.replacen("    location / {", &format!("{more}    location / {{"), 1);
    own.write("nginx.conf", &main);
    own.write("sites/shop.conf", &site);
    let args = ["--server", "shop.example", "--protect"];
    let diff = own.attached("nginx", "nginx.conf", &args);
    assert!(diff.contains("\n-0 rate=unlimited\n") && diff.contains("\n+0 law=protect\n"), "{diff}");
    let said = own.said("nginx", "nginx.conf", &args);
    assert!(said.contains("note: requests that match a line of website.map are not protected\n"), "{said}");
    assert!(!said.contains("restart slowlane"), "{said}");
    own.attached("nginx", "nginx.conf", &[&args[..], &["--write"]].concat());
    let logged = |name: &str, path: &str| own.text(name).contains(&format!("GET {path} "));
    {
        let _nginx = nginx(&own);
        let mut counted = slowlane.metric("slowlane_ends_total", "result=\"counted\"");
        for path in ["/", "/quiet", "/own"] {
            eventually(&format!("the end of a request for {path} is reported"), || {
                asked(shop, path)?;
                let now = slowlane.metric("slowlane_ends_total", "result=\"counted\"");
                (now > std::mem::replace(&mut counted, now)).then_some(())
            });
        }
        assert!(sees_ends(&slowlane, 0));
        eventually("both logs have their lines", || {
            (logged("http.log", "/") && logged("own.log", "/own")).then_some(())
        });
    }
    assert!(!logged("http.log", "/own") && !logged("http.log", "/quiet") && !logged("own.log", "/"));
    own.attached("nginx", "nginx.conf", &["--undo"]);
    assert_eq!(
        (own.text("nginx.conf"), own.text("sites/shop.conf"), policy(&slowlane)),
        (main, site, before)
    );
}

/// slowlane must listen for the lines of nginx: attach writes that into its config file, however that looks.
#[test]
fn slowlane_listens_for_the_ends_that_nginx_reports() {
    let (slowlane, app) = (Slowlane::with_policy(POLICY), Backend::start());
    for more in [
        "",
        "[ends]\n",
        "[ends] # none yet\nallow = []\nlisten = [] # UDP\n[state]\nevery = \"9s\"",
        "[state]\n",
    ] {
        let own = own(&slowlane, more);
        let (main, site) = write_nginx(&own, own_address(), app.address);
        let args = ["--server", "shop.example", "--protect", "SHOP.example", "--write"];
        let said = own.said("nginx", "nginx.conf", &args);
        assert!(said.contains("slowlane.toml: restart slowlane"), "{more:?}: {said}");
        assert!(own.text("sites/shop.conf").contains("syslog:server=127.0.0.1:9004,"));
        let shown = Command::new(env!("CARGO_BIN_EXE_slowlane"))
            .args(["config", "show", "--config"])
            .arg(own.path("slowlane.toml"))
            .output()
            .unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("listen = [\"127.0.0.1:9004\"]"), "{more:?}: {shown}");
        assert!(policy(&slowlane)[1].contains("\nshop.example 2002\n"));
        own.attached("nginx", "nginx.conf", &["--undo"]);
        assert!(own.text("slowlane.toml").ends_with(more), "{}", own.text("slowlane.toml"));
        assert_eq!((own.text("nginx.conf"), own.text("sites/shop.conf")), (main, site));
    }
}

/// A snippet that several servers include is changed once.
#[test]
fn a_file_that_two_servers_include_is_changed_once() {
    let (slowlane, app) = (Slowlane::with_policy(POLICY), Backend::start());
    let own = own(&slowlane, "");
    let (main, _) = write_nginx(&own, own_address(), app.address);
    let quiet = "location /pictures { access_log off; }\nlocation /own {\n    access_log off;\n}\n";
    own.write("quiet.inc", quiet);
    let server = |name: &str| {
        format!(
            "server {{\n    listen {};\n    server_name {name};\n    include quiet.inc;\n    location / {{ proxy_pass http://{}; }}\n}}\n",
            own_address(),
            app.address
        )
    };
    own.write("sites/shop.conf", &(server("shop.example") + &server("blog.example")));
    let args = ["--server", "shop.example", "--server", "blog.example", "--protect", "--write"];
    own.attached("nginx", "nginx.conf", &args);
    assert_eq!(own.text("quiet.inc").matches("slowlane_end").count(), 2, "{}", own.text("quiet.inc"));
    own.attached("nginx", "nginx.conf", &["--undo"]);
    assert_eq!((own.text("quiet.inc").as_str(), own.text("nginx.conf")), (quiet, main));
}

/// HAProxy reports ends by itself, so `[ends]` may be as it is.
#[test]
fn haproxy_needs_no_listener_for_ends() {
    let (slowlane, app) = (Slowlane::with_policy(POLICY), Backend::start());
    let own = own(&slowlane, "[ends]\nlisten = [\n]\n");
    own.write("haproxy.cfg", &haproxy_config(own_address(), own_address(), app.address));
    let diff = own.attached("haproxy", "haproxy.cfg", &["--frontend", "shop", "--protect"]);
    assert!(diff.contains("\n+0 law=protect\n") && !diff.contains("9004"), "{diff}");
}

#[test]
fn limits_of_the_operator_are_not_replaced() {
    let policy = &[
        ("slo.map", "0 burst=9 rate=9/s\n2001 burst=9 rate=9/s\n2007 law=protect\n"),
        ("website.map", "shop.example 2001\n"),
    ];
    let (slowlane, app) = (Slowlane::with_policy(policy), Backend::start());
    let own = own(&slowlane, "");
    own.write("haproxy.cfg", &haproxy_config(own_address(), own_address(), app.address));
    let refused =
        |args: &[&str]| own.refused("haproxy", "haproxy.cfg", &[&["--frontend", "shop"], args].concat());
    let said = refused(&["--protect"]);
    assert!(said.contains("slo.map:1: SLO 0 has options of its own"), "{said}");
    let said = refused(&["--protect", "shop.example"]);
    assert!(said.contains("website.map:1: shop.example already has an SLO"), "{said}");
    let said = refused(&["--protect", "shop example"]);
    assert!(said.contains("expected a website"), "{said}");
    let diff = own.attached("haproxy", "haproxy.cfg", &["--frontend", "shop", "--protect", "blog.example"]);
    assert!(
        diff.contains("\n+blog.example 2007\n") && !diff.contains("slo.map"),
        "an SLO that protects is shared: {diff}"
    );
    fs::remove_file(slowlane.policy().join("website.map")).unwrap();
    let said = refused(&["--protect", "blog.example"]);
    assert!(said.contains("website.map: No such file") && said.contains("create the file"), "{said}");
}
