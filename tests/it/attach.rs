//! `slowlane attach` changes the operator's own configuration, the real proxies accept it, and it comes out again.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::backend::Backend;
use crate::support::client::get;
use crate::support::process::{Process, install};
use crate::support::redis::Redis;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{eventually, own_address, skipped};

/// One request passes, and the next one within an hour is refused.
const ONE: &str = "0 burst=1 rate=1/h max_delay=1s\n";

/// A folder with configurations of one's own, and slowlane's config file with the addresses of a daemon.
pub(super) struct Own {
    folder: TempDir,
}

impl Own {
    pub(super) fn new(slowlane: Option<&Slowlane>) -> Own {
        let own = Own { folder: tempfile::tempdir().unwrap() };
        // nginx as root has workers of another user.
        fs::set_permissions(own.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let listen = |address: SocketAddr| format!("listen = [\"{address}\"]\n");
        let text = slowlane.map_or(String::new(), |slowlane| {
            format!("[spop]\n{}[http]\n{}", listen(slowlane.spop), listen(slowlane.http))
        });
        own.write("slowlane.toml", &text);
        own
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    pub(super) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The copy of a file as it was before slowlane.
    fn kept(&self, name: &str) -> String {
        let real = fs::canonicalize(self.path(name)).unwrap();
        self.text(&format!("slowlane/before{}", real.display()))
    }

    fn attach(&self, proxy: &str, config: &str, args: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(["attach", proxy, "--config"]).arg(self.path(config));
        command.arg("--slowlane").arg(self.path("slowlane.toml")).args(args).output().unwrap()
    }

    /// The standard error of a run.
    pub(super) fn said(&self, proxy: &str, config: &str, args: &[&str]) -> String {
        String::from_utf8(self.attach(proxy, config, args).stderr).unwrap()
    }

    /// The standard output of a run that succeeds.
    pub(super) fn attached(&self, proxy: &str, config: &str, args: &[&str]) -> String {
        let output = self.attach(proxy, config, args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error of a run that fails and leaves the file as it was.
    pub(super) fn refused(&self, proxy: &str, config: &str, args: &[&str]) -> String {
        let before = self.text(config);
        let output = self.attach(proxy, config, &[args, &["--write"]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(self.text(config), before);
        String::from_utf8(output.stderr).unwrap()
    }
}

/// The lines that a diff adds, and whether it removes none.
fn added(diff: &str) -> (Vec<&str>, bool) {
    let lines = || diff.lines().skip(2);
    (lines().filter_map(|line| line.strip_prefix('+')).collect(), !lines().any(|line| line.starts_with('-')))
}

pub(super) fn haproxy_config(shop: SocketAddr, page: SocketAddr, app: SocketAddr) -> String {
    format!(
        "# our shop\nglobal\n    maxconn 2000 # enough\n\ndefaults\n    mode http\n    timeout connect 1s\n    timeout client 5s\n    \
         timeout server 5s\n\nfrontend numbers\n    bind {page}\n    stats enable\n    stats uri /\n\nfrontend shop\n    bind {shop}\n    \
         acl is_static path_beg /static\n    http-request set-header X-Shop yes\n    # pictures\n    use_backend static if is_static\n    \
         default_backend app\n\n# the application\nbackend app\n    server app1 {app}\nbackend static\n    server app1 {app}\n"
    )
}

#[test]
fn another_program_at_the_address_of_slowlane_is_told() {
    let (redis, app, own) = (Redis::start(), Backend::start(), Own::new(None));
    own.write("haproxy.cfg", &haproxy_config(own_address(), own_address(), app.address));
    let said = |section: &str| {
        own.write("slowlane.toml", &format!("[{section}]\nlisten = [\"{}\"]\n", redis.address));
        own.said("haproxy", "haproxy.cfg", &["--frontend", "shop"])
    };
    let spop = format!(
        "note: SPOP at {}: something else listens there: a program that does not speak SPOP",
        redis.address
    );
    assert!(said("spop").contains(&spop), "{}", said("spop"));
    assert!(said("spop").contains(
        "use a free address for slowlane and in the proxy: write `listen = \
                                   [\"127.0.0.1:90"
    ));
    assert!(!said("http").contains("something else"), "HAProxy does not ask the HTTP check");

    let slowlane = Slowlane::with_policy(&[("slo.map", ONE)]);
    let (own, config) = (Own::new(Some(&slowlane)), own.text("haproxy.cfg"));
    own.write("haproxy.cfg", &config);
    assert!(!own.said("haproxy", "haproxy.cfg", &["--frontend", "shop"]).contains("something else"));
}

#[test]
fn haproxy_asks_slowlane_after_attach_and_no_more_after_undo() {
    let slowlane = Slowlane::with_policy(&[("slo.map", ONE)]);
    let (own, app) = (Own::new(Some(&slowlane)), Backend::start());
    let shop = own_address();
    let before = haproxy_config(shop, own_address(), app.address);
    own.write("haproxy.cfg", &before);
    fs::set_permissions(own.path("haproxy.cfg"), fs::Permissions::from_mode(0o640)).unwrap();

    let diff = own.attached("haproxy", "haproxy.cfg", &[]);
    assert_eq!(own.text("haproxy.cfg"), before, "nothing is written without --write");
    assert!(!own.path("slowlane").exists());
    let (lines, removes_none) = added(&diff);
    assert!(
        removes_none && lines.iter().any(|line| line.contains("send-spoe-group slowlane decide")),
        "{diff}"
    );

    assert_eq!(own.attached("haproxy", "haproxy.cfg", &["--write"]), diff);
    assert_eq!(own.kept("haproxy.cfg"), before);
    let kept = format!("slowlane/before{}", fs::canonicalize(own.path("haproxy.cfg")).unwrap().display());
    let mode = |name: &str| fs::metadata(own.path(name)).unwrap().permissions().mode() & 0o777;
    let modes = [mode("haproxy.cfg"), mode(&kept), mode("slowlane/spoe-slowlane.conf")];
    assert_eq!(modes, [0o640, 0o640, 0o644]);
    let refused = own.refused("haproxy", "haproxy.cfg", &[]);
    assert!(refused.contains("slowlane is already attached"), "{refused}");
    {
        let mut command = Command::new("haproxy");
        let _haproxy = Process::start(command.arg("-db").arg("-f").arg(own.path("haproxy.cfg")));
        for path in ["/", "/static"] {
            eventually("a request over the limit is refused", || {
                let stream = std::net::TcpStream::connect(shop).ok()?;
                drop(stream);
                (get(shop, path, &[("Host", "shop.example")]).status == 429).then_some(())
            });
        }
    }
    own.attached("haproxy", "haproxy.cfg", &["--undo"]);
    assert_eq!(own.text("haproxy.cfg"), before);
    assert!(!own.path("slowlane/before").exists(), "a file that is as it was needs no copy");
}

#[test]
fn a_frontend_is_named_where_there_are_several() {
    let own = Own::new(None);
    let base =
        "defaults\n    mode http\n    timeout connect 1s\n    timeout client 5s\n    timeout server 5s\n";
    let frontend = |name: &str, mode: &str| {
        format!("frontend {name}\n    mode {mode}\n    bind {}\n    default_backend app\n", own_address())
    };
    let app = "backend app\n    server app1 127.0.0.1:8000\n";
    let several = [base, &frontend("shop", "http"), &frontend("api", "http"), app].concat();
    own.write("several.cfg", &several);
    let refused = own.refused("haproxy", "several.cfg", &[]);
    assert!(refused.contains("choose with --frontend, which may be repeated: shop and api"), "{refused}");
    let refused = own.refused("haproxy", "several.cfg", &["--frontend", "shopp"]);
    assert!(refused.contains("there is no frontend \"shopp\", only shop and api"), "{refused}");
    let said = own.said("haproxy", "several.cfg", &["--frontend", "api"]);
    assert!(said.contains("note: not attached to slowlane: shop\n"), "{said}");
    own.attached("haproxy", "several.cfg", &["--frontend", "api", "--frontend", "shop", "--write"]);
    let text = own.text("several.cfg");
    assert_eq!(text.matches("filter spoe engine slowlane ").count(), 2, "{text}");
    own.attached("haproxy", "several.cfg", &["--undo"]);
    assert_eq!(own.text("several.cfg"), several);
    own.attached("haproxy", "several.cfg", &["--frontend", "api", "--write"]);
    let text = own.text("several.cfg");
    let of =
        |name: &str| text.split("frontend ").find(|section| section.starts_with(name)).unwrap().to_owned();
    assert!(of("api").contains("engine slowlane") && !of("shop").contains("engine slowlane"), "{text}");

    let tcp = base.replace("http", "tcp") + &frontend("shop", "tcp") + app;
    own.write("tcp.cfg", &tcp);
    assert!(
        own.refused("haproxy", "tcp.cfg", &[])
            .contains("there is no frontend that serves an application over HTTP")
    );
    own.write("odd.cfg", &(base.to_owned() + &frontend("shop", "http") + "    no-such-word\n"));
    let refused = own.refused("haproxy", "odd.cfg", &[]);
    assert!(
        refused.contains("HAProxy refuses your configuration as it is") && refused.contains("no-such-word"),
        "{refused}"
    );
    let said = own.said("haproxy", "several.cfg.copy", &["--frontend", "api"]);
    assert!(said.contains("several.cfg.copy: No such file"), "{said}");
    let output = own.attach("haproxy", "tcp.cfg", &["--undo"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("slowlane is not attached"));
}

const BASE: &str =
    "defaults\n    mode http\n    timeout connect 1s\n    timeout client 5s\n    timeout server 5s\n";

/// What an operator's defaults say about servers: the agent would never be up, and every request would pass.
#[test]
fn defaults_for_servers_do_not_reach_the_agent() {
    for hostile in
        ["check port 1", "ssl verify none", "send-proxy", "weight 0", "disabled", "check-send-proxy"]
    {
        let slowlane = Slowlane::with_policy(&[("slo.map", ONE)]);
        let (own, app, shop) = (Own::new(Some(&slowlane)), Backend::start(), own_address());
        let frontend = format!("frontend shop\n    bind {shop}\n    default_backend app\n");
        // The application's server does without them: only the agent's inherits.
        let defaults = "defaults plain\n    mode http\n    timeout connect 1s\n    timeout server 5s\n";
        let app = format!("{defaults}backend app from plain\n    server app1 {}\n", app.address);
        own.write("haproxy.cfg", &format!("{app}{BASE}    default-server {hostile}\n{frontend}"));
        own.attached("haproxy", "haproxy.cfg", &["--write"]);
        let mut command = Command::new("haproxy");
        let _haproxy = Process::start(command.arg("-db").arg("-f").arg(own.path("haproxy.cfg")));
        eventually("a request over the limit is refused", || {
            std::net::TcpStream::connect(shop).ok()?;
            (get(shop, "/", &[("Host", "shop.example")]).status == 429).then_some(())
        });
    }
}

/// A part of the configuration may not be in force. The lines to paste are printed.
#[test]
fn a_configuration_with_an_if_is_refused_with_the_lines_to_paste() {
    let own = Own::new(None);
    let frontend = format!("frontend shop\n    bind {}\n    default_backend app\n", own_address());
    let text =
        format!("{BASE}.if defined(SHOP)\n{frontend}.endif\nbackend app\n    server app1 127.0.0.1:8000\n");
    own.write("haproxy.cfg", &text);
    let output = own.attach("haproxy", "haproxy.cfg", &["--write"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("line 6: HAProxy may leave out slowlane's lines inside this `.if`"), "{said}");
    assert!(said.contains("slowlane config haproxy --attach --dir "), "{said}");
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(lines.contains("send-spoe-group") && lines.contains("# For your frontend:"), "{lines}");
    assert_eq!((output.status.code(), own.text("haproxy.cfg")), (Some(1), text));
}

/// Slowlane's lines stand outside of it, whether it is in force or not.
#[test]
fn an_if_elsewhere_in_the_configuration_does_not_matter() {
    let own = Own::new(None);
    let text = format!(
        "{BASE}.if defined(SHOP)\nfrontend other\n    bind {}\n    default_backend app\n.endif\nfrontend shop\n    bind {}\n    \
         .if defined(X)\n    http-request set-header X-A b\n    .endif\n    .if !defined(X)\n    use_backend app if TRUE\n    .endif\nbackend \
         app\n    server app1 127.0.0.1:8000\n",
        own_address(),
        own_address()
    );
    own.write("haproxy.cfg", &text);
    own.attached("haproxy", "haproxy.cfg", &["--frontend", "shop", "--write"]);
    let written = own.text("haproxy.cfg");
    let (mut depth, mut inside) = (0, 0);
    for line in written.lines().map(str::trim) {
        depth += i32::from(line.starts_with(".if")) - i32::from(line == ".endif");
        inside += i32::from(depth > 0 && line.contains("slowlane"));
    }
    assert_eq!((depth, inside), (0, 0), "{written}");
    own.said("haproxy", "haproxy.cfg", &["--undo"]);
    assert_eq!(own.text("haproxy.cfg"), text);
}

/// As `haproxy -f base.cfg -f sites` loads them: the defaults of one file hold in the next.
#[test]
fn several_files_of_haproxy_are_one_configuration() {
    let own = Own::new(None);
    let site = format!(
        "frontend shop\n    bind {}\n    default_backend app\nbackend app\n    server app1 127.0.0.1:8000",
        own_address()
    );
    std::fs::create_dir(own.path("sites")).unwrap();
    own.write("base.cfg", BASE);
    own.write("sites/a.cfg", "# nothing\n");
    own.write("sites/b.cfg", &(site.clone() + "\n"));
    own.write("sites/c.conf", "not of HAProxy");
    let sites = own.path("sites").display().to_string();
    let more = ["--config", &sites];
    own.attached("haproxy", "base.cfg", &[&more[..], &["--write"]].concat());
    assert!(own.text("sites/b.cfg").contains("filter spoe engine slowlane"), "{}", own.text("sites/b.cfg"));
    assert!(own.text("base.cfg").contains("backend slowlane-agents"), "{}", own.text("base.cfg"));
    let refused = own.refused("haproxy", "base.cfg", &more);
    assert!(refused.contains("base.cfg:") && refused.contains("already attached"), "{refused}");
    own.said("haproxy", "base.cfg", &[&more[..], &["--undo"]].concat());
    assert_eq!((own.text("base.cfg"), own.text("sites/b.cfg")), (BASE.to_owned(), site + "\n"));
}

/// Lines that were pasted earlier have no marks: nothing is attached twice, and --undo does not touch them.
#[test]
fn what_was_attached_by_hand_is_not_attached_again() {
    let own = Own::new(None);
    let before = haproxy_config(own_address(), own_address(), own_address());
    let by_hand = "slowlane is already attached by hand";
    for line in ["filter spoe engine slowlane config x", "backend slowlane-agents"] {
        own.write("haproxy.cfg", &format!("{before}\n    {line}\n"));
        let refused = own.refused("haproxy", "haproxy.cfg", &["--frontend", "shop"]);
        assert!(refused.contains(by_hand), "{line}: {refused}");
        let said = own.said("haproxy", "haproxy.cfg", &["--undo"]);
        assert!(said.contains("slowlane is not attached"), "{said}");
    }

    let (main, _) = write_nginx(&own, own_address(), own_address());
    let mut command = Command::new(BINARY);
    command.args(["config", "nginx", "--dir"]).arg(own.path("printed")).output().unwrap();
    let [upstream, server] = ["slowlane-upstream.conf", "slowlane.conf"]
        .map(|name| format!("include {};", own.path("printed").join(name).display()));
    let asks = format!("{upstream}\n    include sites/*.conf;");
    own.write("nginx.conf", &main.replace("include sites/*.conf;", &asks));
    let refused = own.refused("nginx", "nginx.conf", &[]);
    assert!(refused.contains(by_hand), "only the half for http: {refused}");
    own.write("nginx.conf", &main);
    own.write("sites/shop.conf", &site("shop.example", &format!("    {server}\n")));
    let refused = own.refused("nginx", "nginx.conf", &[]);
    assert!(refused.contains(by_hand), "only the half for a server: {refused}");
}

/// Sections of further files inherit from the last defaults, which stay the operator's.
#[test]
fn the_last_defaults_stay_the_last() {
    let (own, bind) = (Own::new(None), own_address());
    own.write(
        "haproxy.cfg",
        &format!("{BASE}frontend shop\n    bind {bind}\n    default_backend app\nbackend app\n    server app1 127.0.0.1:8000\n"),
    );
    own.attached("haproxy", "haproxy.cfg", &["--write"]);
    let text = own.text("haproxy.cfg");
    let last = text.lines().rfind(|line| line.starts_with("defaults"));
    assert_eq!(last, Some("defaults"), "{text}");
}

#[test]
fn what_haproxy_refuses_is_shown_with_its_reason() {
    let own = Own::new(None);
    let shop = |lines: &str| {
        format!("{BASE}{lines}listen shop\n    bind {}\n    server app1 127.0.0.1:8000\n", own_address())
    };
    own.write("gzip.cfg", &shop("    compression algo gzip\n"));
    let refused = own.refused("haproxy", "gzip.cfg", &[]);
    assert!(
        refused.contains("HAProxy refuses the result")
            && refused.contains("require an explicit filter declaration"),
        "{refused}"
    );
}

#[test]
fn rules_that_answer_before_slowlane_are_named() {
    let own = Own::new(None);
    let text = format!(
        "global\n    chroot /\ndefaults plain\n    http-request allow if {{ src 10.0.0.0/8 }}\n    monitor-uri /up\n    mode http\n    \
         timeout connect 1s\n    timeout client 5s\n    timeout server 5s\n    option abortonclose\nfrontend shop from plain\n    bind {}\n    \
         http-request redirect scheme https unless {{ ssl_fc }}\n    http-request allow if {{ path /health }}\n    \
         default_backend app\ndefaults\n    timeout connect 1s\n    timeout server 5s\nbackend app\n    mode http\n    \
         server app1 127.0.0.1:8000\n",
        own_address()
    );
    own.write("haproxy.cfg", &text);
    own.write("slowlane.toml", "[spop]\nlisten = [\"unix:/run/slowlane/spop.sock\"]\n");
    let output = own.attach("haproxy", "haproxy.cfg", &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    for note in [
        "line 4: requests that `http-request allow` lets pass are not counted",
        "line 5: HAProxy answers requests for `monitor-uri` itself, so they are not counted",
        "line 10: up to HAProxy 3.2, a request whose client disconnects early may pass uncounted",
        "line 13: a request that `http-request redirect` answers is not counted",
        "line 14: requests that `http-request allow` lets pass are not counted",
        "line 2: HAProxy looks for the socket /run/slowlane/spop.sock inside this folder",
    ] {
        assert!(said.contains(note), "{note}: {said}");
    }
}

#[test]
fn marks_that_were_edited_are_not_guessed() {
    let own = Own::new(None);
    let before = haproxy_config(own_address(), own_address(), "127.0.0.1:8000".parse().unwrap());
    own.write("haproxy.cfg", &before);
    own.attached("haproxy", "haproxy.cfg", &["--write"]);
    let attached = own.text("haproxy.cfg");
    own.write("haproxy.cfg", &attached.replacen("# slowlane: end\n", "", 1));
    let said = own.said("haproxy", "haproxy.cfg", &["--undo"]);
    assert!(said.contains("the comments around slowlane's lines do not match"), "{said}");
    // What was added meanwhile stays, and so does the copy.
    own.write("haproxy.cfg", &(attached + "\nbackend more\n"));
    own.attached("haproxy", "haproxy.cfg", &["--undo"]);
    assert_eq!(own.text("haproxy.cfg"), before.clone() + "\nbackend more\n");
    assert_eq!(own.kept("haproxy.cfg"), before);
}

pub(super) fn nginx(own: &Own) -> Process {
    let mut command = Command::new("nginx");
    command.arg("-p").arg(own.folder.path()).arg("-c").arg(own.path("nginx.conf"));
    Process::start(command.args(["-e", "stderr", "-g", "daemon off; master_process off;"]))
}

pub(super) fn write_nginx(own: &Own, shop: SocketAddr, app: SocketAddr) -> (String, String) {
    let folder = own.folder.path().display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {folder}/{name};\n"))
        .concat();
    let main = format!(
        "pid {folder}/nginx.pid;\nerror_log stderr;\nevents {{ worker_connections 64; }}\nhttp {{\n{temporary}    access_log off;\n    \
         map $uri $kind {{ default \"a;b{{\"; }} # not a block\n    include sites/*.conf;\n}}\n"
    );
    let site = format!(
        "server {{\n    listen {shop};\n    server_name shop.example www.shop.example;\n\n    location / {{\n        \
         proxy_pass http://{app};\n    }}\n}}\nserver {{ listen {shop}; server_name old.example; return 301 http://shop.example/; }}"
    );
    own.write("nginx.conf", &main);
    own.write("sites/shop.conf", &site);
    (main, site)
}

#[test]
fn nginx_asks_slowlane_after_attach_and_no_more_after_undo() {
    let slowlane = Slowlane::with_policy(&[("slo.map", ONE)]);
    let (own, app, shop) = (Own::new(Some(&slowlane)), Backend::start(), own_address());
    let (main, site) = write_nginx(&own, shop, app.address);

    let diff = own.attached("nginx", "nginx.conf", &[]);
    assert_eq!((own.text("nginx.conf"), own.text("sites/shop.conf")), (main.clone(), site.clone()));
    assert!(diff.contains("+    include ") && diff.contains("sites/shop.conf"), "{diff}");
    own.attached("nginx", "nginx.conf", &["--write"]);
    assert_eq!((own.kept("nginx.conf"), own.kept("sites/shop.conf")), (main.clone(), site.clone()));
    let refused = own.refused("nginx", "nginx.conf", &[]);
    assert!(refused.contains("slowlane is already attached"), "{refused}");
    {
        let _nginx = nginx(&own);
        eventually("nginx listens", || std::net::TcpStream::connect(shop).ok());
        eventually("a request over the limit is refused", || {
            (get(shop, "/", &[("Host", "shop.example")]).status == 429).then_some(())
        });
        assert_eq!(get(shop, "/", &[("Host", "old.example")]).status, 301);
    }
    own.attached("nginx", "nginx.conf", &["--undo"]);
    assert_eq!((own.text("nginx.conf"), own.text("sites/shop.conf")), (main, site));
}

/// As on Debian: every file of a folder is a site, by a link, and the server has rewrites of its own.
#[test]
fn sites_by_any_name_are_attached_in_front_of_their_rewrites() {
    let slowlane = Slowlane::with_policy(&[("slo.map", ONE)]);
    let (own, app, shop) = (Own::new(Some(&slowlane)), Backend::start(), own_address());
    let (main, _) = write_nginx(&own, shop, app.address);
    own.write("nginx.conf", &main.replace("sites/*.conf", "enabled/*"));
    let site = format!(
        "server {{ listen {shop}; rewrite ^([^.]*[^/])$ $1/ permanent; location / {{ proxy_pass http://{}; }} }}",
        app.address
    );
    own.write("available/shop", &site);
    own.write("enabled/.shop.swp", "not read by nginx");
    std::os::unix::fs::symlink("../available/shop", own.path("enabled/shop")).unwrap();
    own.attached("nginx", "nginx.conf", &["--write"]);
    assert_eq!(fs::read_dir(own.path("enabled")).unwrap().count(), 2, "no copy is taken for a site");
    assert!(own.path("enabled/shop").is_symlink());
    {
        let _nginx = nginx(&own);
        eventually("nginx listens", || std::net::TcpStream::connect(shop).ok());
        let ask = || get(shop, "/a/", &[("Host", "shop.example")]).status;
        eventually("a request over the limit is refused", || (ask() == 429).then_some(()));
        assert_eq!(get(shop, "/a", &[("Host", "shop.example")]).status, 301);
    }
    // A site that is disabled meanwhile is cleaned, too.
    fs::remove_file(own.path("enabled/shop")).unwrap();
    own.attached("nginx", "nginx.conf", &["--undo"]);
    assert_eq!(own.text("available/shop"), site);
    assert!(!own.path("slowlane/before").exists());
}

/// A configuration with one more site, and the lines of it.
fn with_site(own: &Own, lines: &str) -> String {
    let (main, _) = write_nginx(own, own_address(), "127.0.0.1:8000".parse().unwrap());
    own.write("sites/api.conf", &site("api.example", lines));
    main
}

fn site(name: &str, lines: &str) -> String {
    format!(
        "server {{\n    listen {};\n    server_name {name};\n{lines}    location / {{ proxy_pass http://127.0.0.1:8000; }}\n}}\n",
        own_address()
    )
}

#[test]
fn servers_of_nginx_are_named_by_name_or_place() {
    let own = Own::new(None);
    with_site(&own, "");
    let refused = own.refused("nginx", "nginx.conf", &[]);
    assert!(
        refused.contains("choose with --server, which may be repeated: api.example and shop.example"),
        "{refused}"
    );
    let refused = own.refused("nginx", "nginx.conf", &["--server", "shop"]);
    assert!(refused.contains("there is no server \"shop\", only api.example and shop.example"), "{refused}");

    // Without a name, with a regular expression, with a name from another file, and twice the same.
    own.write("names", "server_name included.example;");
    let more = [site("", ""), site(r"~^(.+)\.wild$", ""), site("", "    include names;\n")].concat();
    own.write("sites/more.conf", &more.replace("    server_name ;\n", ""));
    own.write("sites/twice.conf", &site("api.example", ""));
    let place =
        |file: &str, line: usize| format!("{}:{line}", fs::canonicalize(own.path(file)).unwrap().display());
    let refused = own.refused("nginx", "nginx.conf", &[]);
    let [unnamed, regular, twice] =
        [place("sites/more.conf", 1), place("sites/more.conf", 5), place("sites/twice.conf", 1)];
    for found in [&unnamed, &regular, "included.example", &twice, "shop.example"] {
        assert!(refused.contains(found), "{found}: {refused}");
    }
    let refused = own.refused("nginx", "nginx.conf", &["--server", "api.example"]);
    assert!(refused.contains(&twice), "{refused}");
    for name in [unnamed.as_str(), r"~^(.+)\.wild$", "included.example", &twice] {
        let said = own.said("nginx", "nginx.conf", &["--server", name]);
        assert!(
            said.contains("to make these changes, add --write") && said.contains(" shop.example"),
            "{said}"
        );
    }
    let both =
        own.attached("nginx", "nginx.conf", &["--server", &twice, "--server", "shop.example", "--write"]);
    assert_eq!(both.matches("/slowlane.conf;").count(), 2, "{both}");
}

#[test]
fn what_would_defeat_slowlane_is_refused() {
    let own = Own::new(None);
    for (lines, at, reason) in [
        ("    auth_request /who;\n", "api.conf:4", "this server has an auth_request of its own"),
        ("    satisfy any;\n", "api.conf:4", "with `satisfy any`, a pass from slowlane would let clients in"),
        ("    location /in { satisfy any; }\n", "api.conf:4", "with `satisfy any`"),
    ] {
        with_site(&own, lines);
        let refused = own.refused("nginx", "nginx.conf", &["--server", "api.example"]);
        assert!(refused.contains(&format!("{at}: {reason}")), "{refused}");
        assert!(refused.contains("slowlane config nginx --dir "), "{refused}");
    }
    for (line, reason) in [
        ("auth_request /who;", "slowlane's auth_request would replace this directive"),
        ("satisfy any;", "with `satisfy any`"),
        ("include nowhere.conf;", "nowhere.conf: No such file"),
        ("include nginx.conf;", "more than 10000 files are included, or a file includes itself"),
    ] {
        let main = with_site(&own, "").replace("access_log off;", &format!("access_log off;\n    {line}"));
        own.write("nginx.conf", &main);
        let refused = own.refused("nginx", "nginx.conf", &["--server", "api.example"]);
        assert!(refused.contains(reason), "{refused}");
    }
    with_site(&own, "    location /in { satisfy any; auth_request off; }\n");
    let said = own.said("nginx", "nginx.conf", &["--server", "api.example"]);
    assert!(
        said.contains("api.conf:4: with `auth_request off`, this location does not query slowlane"),
        "{said}"
    );

    with_site(&own, "");
    own.write("sites/api.conf", "server {\n    listen 1;\n    location / { ;\n");
    let refused = own.refused("nginx", "nginx.conf", &["--server", "api.example"]);
    assert!(refused.contains("api.conf:4: slowlane does not understand this line"), "{refused}");
    own.write("sites/api.conf", &site("api.example", "    no_such_word;\n"));
    let refused = own.refused("nginx", "nginx.conf", &["--server", "api.example"]);
    assert!(
        refused.contains("nginx refuses your configuration as it is") && refused.contains("sites/api.conf:4"),
        "{refused}"
    );
    assert!(!own.path("slowlane").exists());
}

#[test]
fn the_gaps_of_a_server_are_told() {
    let own = Own::new(None);
    let gaps = "    location /old { return 410; }\n    location /own { error_page 404 /404.html; }\n    error_page 403 /403.html;\n    \
                error_page 410 = @gone;\n    proxy_intercept_errors on;\n    rewrite ^/a$ /b permanent;\n    \
                location /else { auth_request /who; }\n";
    let main =
        with_site(&own, gaps).replace("access_log off;", "access_log off;\n    error_page 500 /500.html;");
    own.write("nginx.conf", &main);
    let said = own.said("nginx", "nginx.conf", &["--server", "api.example"]);
    for gap in [
        "api.conf:4: nginx answers `return`",
        "api.conf:5: add `error_page 403 = @slowlane_denied;` here",
        "api.conf:6: slowlane's error_page 403 comes first",
        "api.conf:7: a request that `return` sends here is refused with 403",
        "api.conf:8: nginx's own page replaces the application's page for 403",
        "api.conf:9: nginx redirects before it queries slowlane",
        "api.conf:10: this location queries another service",
    ] {
        assert!(said.contains(gap), "{gap}: {said}");
    }
    assert!(!said.contains("no longer inherits"), "this server has error pages of its own: {said}");
    own.write("sites/api.conf", &site("api.example", ""));
    let said = own.said("nginx", "nginx.conf", &["--server", "api.example"]);
    assert!(said.contains("a server that queries slowlane no longer inherits this"), "{said}");
    assert_eq!(own.text("nginx.conf"), main);
}

/// The result is checked with all that will be there, and written whole or not at all.
#[test]
fn what_an_include_would_take_in_is_checked() {
    let own = Own::new(None);
    let (main, site) = write_nginx(&own, own_address(), "127.0.0.1:8000".parse().unwrap());
    let main = main.replace("sites/*.conf;", "sites/*.conf; include */*.conf;");
    own.write("nginx.conf", &main);
    let refused = own.refused("nginx", "nginx.conf", &[]);
    assert!(refused.contains("nginx refuses the result"), "slowlane.conf is for a server: {refused}");
    assert_eq!((own.text("nginx.conf"), own.text("sites/shop.conf")), (main, site));
}

#[test]
fn a_path_with_a_space_is_one_word_of_nginx() {
    let own = Own::new(None);
    let (main, site) = write_nginx(&own, own_address(), "127.0.0.1:8000".parse().unwrap());
    own.write("our site/nginx.conf", &main);
    own.write("our site/sites/shop.conf", &site);
    own.attached("nginx", "our site/nginx.conf", &["--write"]);
    let text = own.text("our site/nginx.conf");
    assert!(text.contains("our site/slowlane/slowlane-upstream.conf\";"), "{text}");
    let checked =
        Command::new("nginx").arg("-t").arg("-c").arg(own.path("our site/nginx.conf")).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// Each file includes the next one twice, so nginx reads the last one a million times.
#[test]
fn includes_that_multiply_are_refused_at_once() {
    let own = Own::new(None);
    let (main, _) = write_nginx(&own, own_address(), own_address());
    own.write("nginx.conf", &main.replace("sites/*.conf", "twice0"));
    (0..20).for_each(|number| {
        own.write(&format!("twice{number}"), &format!("include twice{};", number + 1).repeat(2))
    });
    own.write("twice20", "");
    let refused = own.refused("nginx", "nginx.conf", &[]);
    assert!(refused.contains("more than 10000 files are included"), "{refused}");
}

/// A power cut must not leave half a file: slowlane's own are replaced as well, and what was edited in them is kept.
#[test]
fn a_file_of_slowlanes_own_is_replaced_whole() {
    let own = Own::new(None);
    write_nginx(&own, own_address(), own_address());
    own.attached("nginx", "nginx.conf", &["--write"]);
    own.attached("nginx", "nginx.conf", &["--undo"]);
    let written = own.text("slowlane/slowlane.conf");
    own.write("slowlane/slowlane.conf", "# mine\n");
    fs::hard_link(own.path("slowlane/slowlane.conf"), own.path("linked")).unwrap();
    own.attached("nginx", "nginx.conf", &["--write"]);
    assert_eq!((own.text("linked"), own.text("slowlane/slowlane.conf")), ("# mine\n".to_owned(), written));
    assert_eq!(own.kept("slowlane/slowlane.conf"), "# mine\n");
}

/// The check has copies in a folder of links to the operator's files.
#[test]
fn a_dry_run_writes_through_no_link() {
    let own = Own::new(None);
    write_nginx(&own, own_address(), own_address());
    own.write("slowlane-check-0.conf", "mine");
    own.attached("nginx", "nginx.conf", &[]);
    assert_eq!(own.text("slowlane-check-0.conf"), "mine");
}

#[test]
fn a_file_of_the_operator_in_slowlanes_folder_is_found() {
    let own = Own::new(None);
    let list = own.path("slowlane/deny.lst");
    own.write("slowlane/deny.lst", "192.0.2.1\n");
    let text = haproxy_config(own_address(), own_address(), own_address());
    let rule = format!("    http-request deny if {{ src -f {} }}\n    # pictures", list.display());
    own.write("haproxy.cfg", &text.replace("    # pictures", &rule));
    own.attached("haproxy", "haproxy.cfg", &[]);
}

#[test]
fn without_the_right_to_write_there_it_asks_for_root() {
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    if !other.arg("true").output().unwrap().status.success() {
        return skipped("only root becomes another user");
    }
    let (own, address) = (Own::new(None), own_address());
    own.write("haproxy.cfg", &haproxy_config(address, address, address));
    install(BINARY, own.path("program"));
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(own.path("program"));
    other
        .args(["attach", "haproxy", "--frontend", "shop", "--write", "--config"])
        .arg(own.path("haproxy.cfg"));
    let output = other.arg("--slowlane").arg(own.path("slowlane.toml")).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("slowlane: run this as root: ") && errors.contains("Permission denied"),
        "{errors}"
    );
}
