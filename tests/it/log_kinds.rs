//! The access logs that real proxies write by themselves are recognised, read to the last line, and name a crawler.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::backend::Backend;
use crate::support::client::{Client, connection_from};
use crate::support::process::Process;
use crate::support::slowlane::BINARY;
use crate::support::{eventually, own_address, skipped, unpacked, wheels};

const CRAWLER: &str = "127.0.0.66";
const AGENT: &str = "Mozilla/5.0 (compatible; Examplebot/1.0; +http://bot.example/)";

/// A proxy with a configuration of its own, in which `@listen`, `@port`, `@app` and `@dir` are replaced.
struct Proxy {
    process: Process,
    folder: TempDir,
    /// Nothing if the log goes to standard output.
    log: Option<PathBuf>,
}

/// Starts a program in a new folder with a file of configuration. `args` may have the same places.
fn start(program: &Path, args: &[&str], files: &[(&str, &str)], has_log: bool) -> (Proxy, SocketAddr) {
    let (folder, listen, app) = (tempfile::tempdir().unwrap(), own_address(), Backend::start());
    let dir = folder.path().display().to_string();
    let filled = |text: &str| {
        let places = [
            ("@listen", listen.to_string()),
            ("@ip", listen.ip().to_string()),
            ("@port", listen.port().to_string()),
        ];
        let more = [
            ("@app-port", app.address.port().to_string()),
            ("@app", app.address.to_string()),
            ("@dir", dir.clone()),
        ];
        more.into_iter()
            .chain(places)
            .fold(text.to_owned(), |text, (place, value)| text.replace(place, &value))
    };
    for (name, text) in files {
        fs::write(folder.path().join(name), filled(text)).unwrap();
    }
    // If the tests run as root, workers run as another user.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(folder.path(), permissions).unwrap();
    let mut command = Command::new(program);
    command.args(args.iter().map(|arg| filled(arg))).env("HOME", &dir).current_dir(&dir);
    let log = has_log.then(|| folder.path().join("access.log"));
    let mut proxy = Proxy { process: Process::start(&mut command), folder, log };
    eventually("the proxy listens", || {
        assert!(
            proxy.process.is_running(),
            "{} ended:\n{}",
            program.display(),
            proxy.process.log().join("\n")
        );
        TcpStream::connect(listen).ok()
    });
    (proxy, listen)
}

impl Proxy {
    fn lines(&self) -> Vec<String> {
        let lines = match &self.log {
            Some(log) => fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect(),
            None => self.process.log(),
        };
        lines.into_iter().filter(|line| line.contains("Mozilla") || line.contains("GET")).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if self.process.is_running() {
            self.process.signal("TERM");
            self.process.wait();
        }
    }
}

/// Fifty people ask for 30 pages each, and a crawler for 1,500. `bot`: the log has its user agent.
fn is_read(name: &str, kind: &str, bot: bool, (proxy, listen): (Proxy, SocketAddr)) {
    let connect = |source: &str| Client::over(connection_from(source, listen)).unwrap();
    let mut people: Vec<(String, Client)> = (1..=50)
        .map(|number| format!("127.0.1.{number}"))
        .map(|source| (source.clone(), connect(&source)))
        .collect();
    let mut crawler = connect(CRAWLER);
    // Envoy does not escape quotes in its text, so these lines would be counted as faulty.
    let [path, agent] = if kind.starts_with("envoy text") {
        ["/a", "Mozilla/5.0"]
    } else {
        ["/a?b=\"", "Mozilla/5.0 (X11; \"Linux\\)"]
    };
    let ask = |client: &mut Client, source: &str, agent: &str| {
        let headers = [("Host", "shop.example"), ("X-Forwarded-For", source), ("User-Agent", agent)];
        assert_eq!(client.request("GET", path, &headers, "").status, 200, "{name}");
    };
    for _ in 0..30 {
        for (source, client) in &mut people {
            ask(client, source, agent);
            ask(&mut crawler, CRAWLER, AGENT);
        }
    }
    drop((people, crawler));
    let lines = eventually(&format!("{name} has logged all"), || {
        Some(proxy.lines()).filter(|lines| lines.len() == 3_000)
    });
    let log = proxy.folder.path().join("read.log");
    fs::write(&log, lines.join("\n") + "\n").unwrap();
    let ran = Command::new(BINARY).args(["advise", "--spare", "95", "--json"]).arg(&log).output().unwrap();
    let told = String::from_utf8(ran.stderr).unwrap();
    assert!(
        told.lines().next().unwrap().ends_with(&format!("read.log: read as {kind}")),
        "{name}: {told}{}",
        lines[0]
    );
    let advice: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let read = &advice["logs"][0];
    assert_eq!((&read["lines"], &read["requests"]), (&3_000.into(), &3_000.into()), "{name}: {read}");
    let waiting = &advice["types"][0]["waiting"][0];
    assert!(waiting["who"].to_string().contains(CRAWLER), "{name}: {waiting}");
    assert_eq!(waiting["bot"] == "Examplebot/1.0", bot, "{name}: {waiting}");
}

/// Each version that can be had, the installed one first.
fn versions(program: &str, others: &[&str]) -> Vec<PathBuf> {
    let unpacked = others.iter().filter_map(|version| unpacked(program, version));
    [PathBuf::from(program)].into_iter().chain(unpacked).collect()
}

fn haproxy(program: &Path, format: &str, line: &str) -> (Proxy, SocketAddr) {
    let config = format!(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 9s\n  timeout server 9s\n  timeout connect 9s\nfrontend f\n  bind @listen\n  \
         log stdout format {format} local0\n  capture request header User-Agent len 128\n  {line}\n  default_backend b\n\
         backend b\n  server s @app\n"
    );
    // HAProxy drops a line for a pipe that is full, or that another of its threads writes.
    let command = format!("exec {} -db -f haproxy.cfg >access.log", program.display());
    start(Path::new("sh"), &["-c", &command], &[("haproxy.cfg", &config)], true)
}

#[test]
fn logs_of_haproxy_are_read() {
    for (format, below) in [
        ("raw", ""),
        ("short", ", below syslog"),
        ("timed", ", below syslog, below a date"),
        ("iso", ", below a date"),
        ("rfc3164", ", below syslog"),
        ("rfc5424", ", below syslog"),
    ] {
        let kind = format!("haproxy httplog{below}");
        is_read(format, &kind, false, haproxy(Path::new("haproxy"), format, "option httplog"));
    }
    let sd = "option httplog\n  log-format-sd \"[a@1 status=\\\"%ST\\\" agent=\\\"%{+E}[capture.req.hdr(0)]\\\"]\"";
    let json = "log-format '{\"time\":\"%t\",\"client_ip\":\"%ci\",\"method\":\"%HM\",\"uri\":\"%HU\",\"bytes\":%B,\"user_agent\":%{+Q,+E}[capture.req.hdr(0)]}'";
    for program in versions("haproxy", &["3.0", "3.2", "3.4"]) {
        let name = program.display().to_string();
        is_read(&name, "haproxy httplog", false, haproxy(&program, "raw", "option httplog"));
        is_read(&name, "haproxy httpslog", false, haproxy(&program, "raw", "option httpslog"));
        is_read(&name, "haproxy httplog, below syslog", false, haproxy(&program, "rfc5424", sd));
        is_read(&name, "json", true, haproxy(&program, "raw", json));
    }
}

#[test]
fn logs_of_nginx_are_read() {
    let ingress = "log_format l '$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                   \"$http_referer\" \"$http_user_agent\" $request_length $request_time [$proxy_upstream_name] [] \
                   $upstream_addr $upstream_response_length $upstream_response_time $upstream_status $request_id';";
    let json = "log_format l escape=json '{\"time_iso8601\":\"$time_iso8601\",\"remote_addr\":\"$remote_addr\",\
                \"request\":\"$request\",\"status\":$status,\"http_user_agent\":\"$http_user_agent\"}';";
    for program in versions("nginx", &["1.22", "1.26", "1.30"]) {
        for (kind, format, name) in
            [("nginx or apache combined", "", ""), ("ingress-nginx", ingress, "l"), ("json", json, "l")]
        {
            let config = format!(
                "daemon off;\npid @dir/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n  {format}\n  access_log @dir/access.log \
                 {name};\n  proxy_temp_path @dir/a; client_body_temp_path @dir/b; fastcgi_temp_path @dir/c;\n  uwsgi_temp_path \
                 @dir/d; scgi_temp_path @dir/e;\n  server {{\n    listen @listen;\n    keepalive_requests 9999;\n    set \
                 $proxy_upstream_name shop-web-80;\n    location / {{ proxy_pass http://@app; }}\n  }}\n}}\n"
            );
            let args = ["-p", "@dir", "-e", "stderr", "-c", "nginx.conf"];
            is_read(kind, kind, true, start(&program, &args, &[("nginx.conf", &config)], true));
        }
    }
}

#[test]
fn logs_of_apache_are_read() {
    let program = Path::new("/usr/sbin/apache2");
    if !program.exists() {
        return skipped("Apache cannot be had on this machine");
    }
    // The formats of Debian's apache2.conf.
    let common = r#"%h %l %u %t \"%r\" %>s %O"#;
    let combined = format!(r#"{common} \"%{{Referer}}i\" \"%{{User-Agent}}i\""#);
    for (kind, bot, format) in [
        ("apache common", false, common),
        ("nginx or apache combined", true, &combined),
        ("apache vhost_combined", true, &format!("%v:%p {combined}")),
    ] {
        let modules = ["mpm_event", "authz_core", "proxy", "proxy_http"];
        let modules = modules
            .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
            .concat();
        let config = format!(
            "ServerRoot @dir\nPidFile @dir/pid\nListen @listen\nServerName shop.example\nErrorLog /dev/stderr\n{modules}\
             MaxKeepAliveRequests 0\nCustomLog @dir/access.log \"{format}\"\nProxyPass / http://@app/\n"
        );
        is_read(
            kind,
            kind,
            bot,
            start(program, &["-f", "@dir/apache.conf", "-DFOREGROUND"], &[("apache.conf", &config)], true),
        );
    }
}

#[test]
fn logs_of_caddy_are_read() {
    let config = "{\n  admin off\n  auto_https off\n}\nhttp://:@port {\n  bind @ip\n  log {\n    output file @dir/access.log\n  }\n  \
                  reverse_proxy @app\n}\n";
    for program in versions("caddy", &["2.11"]) {
        let args = ["run", "--adapter", "caddyfile", "--config", "Caddyfile"];
        is_read("caddy", "caddy json", true, start(&program, &args, &[("Caddyfile", config)], true));
    }
}

#[test]
fn logs_of_traefik_are_read() {
    let program = wheels().join("traefik");
    if !program.exists() {
        return skipped("Traefik cannot be had on this machine");
    }
    let routes = "http:\n  routers: {r: {rule: \"PathPrefix(`/`)\", service: s}}\n  services: {s: {loadBalancer: {servers: [{url: \
                  \"http://@app\"}]}}}\n";
    for (kind, format) in [("traefik common", "common"), ("traefik json", "json")] {
        let config = format!(
            "entryPoints: {{web: {{address: \"@listen\"}}}}\nproviders: {{file: {{filename: @dir/routes.yml}}}}\naccessLog: \
             {{filePath: @dir/access.log, format: {format}}}\n"
        );
        let files = [("traefik.yml", &*config), ("routes.yml", routes)];
        let (proxy, listen) = start(&program, &["--configFile=traefik.yml"], &files, true);
        eventually("Traefik knows its routes", || {
            (Client::connect(listen).request("GET", "/", &[], "").status == 200).then_some(())
        });
        // These requests are in its log.
        eventually("Traefik has logged", || {
            fs::metadata(proxy.log.as_ref().unwrap()).ok().filter(|log| log.len() > 0)
        });
        fs::File::options().write(true).open(proxy.log.as_ref().unwrap()).unwrap().set_len(0).unwrap();
        is_read(kind, kind, false, (proxy, listen));
    }
}

#[test]
fn logs_of_envoy_are_read() {
    let program = wheels().join("envoy");
    if !program.exists() {
        return skipped("Envoy cannot be had on this machine");
    }
    // The keys of its manual's example, which Istio has, too.
    let keys = "log_format: {json_format: {start_time: '%START_TIME%', method: '%REQ(:METHOD)%', path: '%REQ(:PATH)%', \
                response_code: '%RESPONSE_CODE%', bytes_sent: '%BYTES_SENT%', duration: '%DURATION%', user_agent: \
                '%REQ(USER-AGENT)%', authority: '%REQ(:AUTHORITY)%', downstream_remote_address: \
                '%DOWNSTREAM_REMOTE_ADDRESS%'}}";
    for (kind, format) in [("envoy text (its last X-Forwarded-For is the client)", ""), ("envoy json", keys)]
    {
        let config = format!(
            r#"static_resources:
  listeners:
  - address: {{socket_address: {{address: @ip, port_value: @port}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: s
          access_log:
          - name: envoy.access_loggers.file
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: @dir/access.log
              {format}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
          route_config:
            virtual_hosts: [{{name: a, domains: ["*"], routes: [{{match: {{prefix: "/"}}, route: {{cluster: app}}}}]}}]
  clusters:
  - name: app
    connect_timeout: 9s
    load_assignment: {{cluster_name: app, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: @app-port}}}}}}}}]}}]}}
"#
        );
        let args = [
            "-c",
            "envoy.yaml",
            "--use-dynamic-base-id",
            "--concurrency",
            "1",
            "--file-flush-interval-msec",
            "100",
        ];
        let started = start(&program, &args, &[("envoy.yaml", &config)], true);
        is_read(kind, kind, true, started);
    }
}

/// The options that are proposed make the log readable.
#[test]
fn unknown_json_is_read_as_proposed() {
    let folder = tempfile::tempdir().unwrap();
    let line = |second: usize| {
        format!(
            "{{\"at\":\"2009-02-06 12:14:{second:02}.5\",\"peer\":{{\"addr\":\"192.0.2.7:{}\",\"n\":{second}}},\"verb\":\"GET\",\
             \"to\":\"shop.example\",\"tenant\":[\"acme\"]}}\n",
            4_000 + second
        )
    };
    fs::write(folder.path().join("log"), (0..60).map(line).collect::<String>()).unwrap();
    let ran = |args: &[&str]| {
        let ran = Command::new(BINARY).args(args).current_dir(folder.path()).output().unwrap();
        (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap())
    };
    let options = "--field time=.at --field source=.peer.addr --field method=.verb --field website=.to";
    let told = ran(&["advise", "log"]).1;
    let expected = format!(
        "slowlane: log: the JSON has unknown keys; if the following options are correct, add them to the \
         command: {options}\n"
    );
    assert!(told.contains(&expected), "{told}");
    let args: Vec<&str> = ["advise", "--by", "owner", "--json", "--field", "owner=.tenant", "log"]
        .into_iter()
        .chain(options.split(' ').take(6))
        .collect();
    let (advice, told) = ran(&args);
    assert!(told.starts_with("slowlane: log: read as json\n"), "{told}");
    let advice: Value = serde_json::from_str(&advice).unwrap();
    assert_eq!((&advice["requests"], &advice["types"][0]["clients"]), (&60.into(), &1.into()), "{advice}");
}
