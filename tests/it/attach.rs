//! `slowlane attach` changes the operator's own configuration, the real proxies accept it, and it comes out again.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::backend::Backend;
use crate::support::client::get;
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{eventually, own_address};

/// One request passes, and the next one within an hour is refused.
const ONE: &str = "0 burst=1 rate=1/h max_delay=1s\n";

/// A folder with configurations of one's own, and slowlane's config file with the addresses of a daemon.
struct Own {
    folder: TempDir,
}

impl Own {
    fn new(slowlane: Option<&Slowlane>) -> Own {
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

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn attach(&self, proxy: &str, config: &str, args: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(["attach", proxy, "--config"]).arg(self.path(config));
        command.arg("--slowlane").arg(self.path("slowlane.toml")).args(args).output().unwrap()
    }

    /// The standard output of a run that succeeds.
    fn attached(&self, proxy: &str, config: &str, args: &[&str]) -> String {
        let output = self.attach(proxy, config, args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error of a run that fails and leaves the file as it was.
    fn refused(&self, proxy: &str, config: &str, args: &[&str]) -> String {
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

fn haproxy_config(shop: SocketAddr, page: SocketAddr, app: SocketAddr) -> String {
    format!(
        "# our shop\nglobal\n    maxconn 2000 # enough\n\ndefaults\n    mode http\n    timeout connect 1s\n    timeout client 5s\n    \
         timeout server 5s\n\nfrontend numbers\n    bind {page}\n    stats enable\n    stats uri /\n\nfrontend shop\n    bind {shop}\n    \
         acl is_static path_beg /static\n    http-request set-header X-Shop yes\n    # pictures\n    use_backend static if is_static\n    \
         default_backend app\n\n# the application\nbackend app\n    server app1 {app}\nbackend static\n    server app1 {app}\n"
    )
}

#[test]
fn haproxy_asks_slowlane_after_attach_and_no_more_after_undo() {
    let slowlane = Slowlane::with_policy(&[("slo.map", ONE)]);
    let (own, app) = (Own::new(Some(&slowlane)), Backend::start());
    let shop = own_address();
    let before = haproxy_config(shop, own_address(), app.address);
    own.write("haproxy.cfg", &before);

    let diff = own.attached("haproxy", "haproxy.cfg", &[]);
    assert_eq!(own.text("haproxy.cfg"), before, "nothing is written without --write");
    assert!(!own.path("slowlane").exists());
    let (lines, removes_none) = added(&diff);
    assert!(
        removes_none && lines.iter().any(|line| line.contains("send-spoe-group slowlane decide")),
        "{diff}"
    );

    assert_eq!(own.attached("haproxy", "haproxy.cfg", &["--write"]), diff);
    assert_eq!(own.text("haproxy.cfg.before-slowlane"), before);
    let refused = own.refused("haproxy", "haproxy.cfg", &[]);
    assert!(refused.contains("slowlane is attached already"), "{refused}");
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
    assert!(!own.path("haproxy.cfg.before-slowlane").exists());
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
    assert!(
        refused.contains("are shop and api of HTTP, and slowlane asks for one: name it with --frontend"),
        "{refused}"
    );
    let refused = own.refused("haproxy", "several.cfg", &["--frontend", "shopp"]);
    assert!(refused.contains("no frontend \"shopp\" here; there are shop and api"), "{refused}");
    own.attached("haproxy", "several.cfg", &["--frontend", "api", "--write"]);
    let text = own.text("several.cfg");
    let of =
        |name: &str| text.split("frontend ").find(|section| section.starts_with(name)).unwrap().to_owned();
    assert!(of("api").contains("engine slowlane") && !of("shop").contains("engine slowlane"), "{text}");

    let tcp = base.replace("http", "tcp") + &frontend("shop", "tcp") + app;
    own.write("tcp.cfg", &tcp);
    assert!(own.refused("haproxy", "tcp.cfg", &[]).contains("no frontend of HTTP here"));
    own.write("odd.cfg", &(base.to_owned() + &frontend("shop", "http") + "    no-such-word\n"));
    let refused = own.refused("haproxy", "odd.cfg", &[]);
    assert!(
        refused.contains("HAProxy refuses the configuration as it is") && refused.contains("no-such-word"),
        "{refused}"
    );
    assert!(
        own.refused("haproxy", "several.cfg.before-slowlane", &["--frontend", "x"])
            .contains("no frontend \"x\"")
    );
    let output = own.attach("haproxy", "tcp.cfg", &["--undo"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("slowlane is not attached"));
}

#[test]
fn rules_that_answer_before_slowlane_are_named() {
    let own = Own::new(None);
    let text = format!(
        "defaults\n    mode http\n    timeout connect 1s\n    timeout client 5s\n    timeout server 5s\nlisten shop\n    bind {}\n    \
         http-request redirect scheme https unless {{ ssl_fc }}\n    http-request allow if {{ path /health }}\n    server app1 127.0.0.1:8000\n",
        own_address()
    );
    own.write("haproxy.cfg", &text);
    let output = own.attach("haproxy", "haproxy.cfg", &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("line 8: a request that `http-request redirect` answers is not counted"), "{said}");
    assert!(
        said.contains("line 9: the requests that `http-request allow` lets pass are not counted"),
        "{said}"
    );
}

fn nginx(own: &Own) -> Process {
    let mut command = Command::new("nginx");
    command.arg("-p").arg(own.folder.path()).arg("-c").arg(own.path("nginx.conf"));
    Process::start(command.args(["-e", "stderr", "-g", "daemon off; master_process off;"]))
}

fn write_nginx(own: &Own, shop: SocketAddr, app: SocketAddr) -> (String, String) {
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

#[test]
fn a_server_of_nginx_is_named_and_its_gaps_are_told() {
    let own = Own::new(None);
    let (main, _) = write_nginx(&own, own_address(), "127.0.0.1:8000".parse().unwrap());
    let site = |name: &str, rest: &str| {
        format!(
            "server {{\n    listen {};\n    server_name {name};\n{rest}    location / {{ proxy_pass http://127.0.0.1:8000; }}\n}}\n",
            own_address()
        )
    };
    own.write("sites/api.conf", &site("api.example", ""));
    let refused = own.refused("nginx", "nginx.conf", &[]);
    assert!(refused.contains("are api.example and shop.example of HTTP"), "{refused}");
    let refused = own.refused("nginx", "nginx.conf", &["--server", "shop"]);
    assert!(refused.contains("no server \"shop\" here; there are api.example and shop.example"), "{refused}");

    own.write("sites/api.conf", &site("api.example", "    auth_request /who;\n"));
    let refused = own.refused("nginx", "nginx.conf", &["--server", "api.example"]);
    assert!(refused.contains("api.conf:4: this server has an auth_request of its own"), "{refused}");

    let gaps = "    location /old { return 410; }\n    location /own { error_page 403 /403.html; }\n    satisfy any;\n";
    own.write("sites/api.conf", &site("api.example", gaps));
    let output = own.attach("nginx", "nginx.conf", &["--server", "api.example"]);
    let said = String::from_utf8(output.stderr).unwrap();
    for gap in [
        "api.conf:4: nginx answers `return`",
        "api.conf:5: this location has its own error pages",
        "api.conf:6: with `satisfy any`",
    ] {
        assert!(said.contains(gap), "{gap}: {said}");
    }
    assert_eq!(own.text("nginx.conf"), main);

    own.write("sites/api.conf", "server {\n    listen 1;\n    location / { ;\n");
    let refused = own.refused("nginx", "nginx.conf", &["--server", "api.example"]);
    assert!(refused.contains("api.conf:4: this is not understood"), "{refused}");
    assert!(!Path::new(&own.path("slowlane")).exists());
}
