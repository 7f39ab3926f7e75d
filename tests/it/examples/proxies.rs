//! Examples of several proxies, and of other ones: HAProxy beside nginx, Caddy, Traefik, Envoy.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use slowlane::import::import;

use super::lists::clients_behind_a_cdn;
use super::stage::{Stage, in_each_haproxy, is_there, versions_of};
use crate::cli::ran;
use crate::support::client::{self, Client, Response};
use crate::support::pages::Page;
use crate::support::tls::Authority;
use crate::support::{PATIENCE, eventually, project, skipped, unpacked, wheels};

const SHOP: (&str, &str) = ("Host", "shop.example");

#[test]
fn two_proxies_share_one_slo() {
    in_each_haproxy("two-proxies", |mut stage| {
        stage.start();
        stage.start_proxy("nginx");
        let mut listeners = [8080, 8081].map(|port| Client::connect(stage.at(port)));
        let mut ask = |number: usize| {
            let host = format!("w{number}.example");
            listeners[number % 2].request("GET", "/", &[("Host", &*host)], "").status
        };
        for number in 0..10 {
            assert_eq!(ask(number), 200, "request {number}");
        }
        assert_eq!([ask(10), ask(11)], [429, 429], "whatever the host");
        assert_eq!([stage.verdicts(3001, "pass"), stage.verdicts(3001, "deny")], [10.0, 2.0]);
    });
}

/// Envoy with slowlane as its rate limit service, and with ext_authz over gRPC as the manual shows it.
fn each_way_over_grpc(story: impl Fn(Stage)) {
    let blocks = Page::read("doc/book/envoy.md").section("ext_authz over gRPC").blocks("yaml");
    let [filter] = blocks.as_slice() else { panic!("{} blocks", blocks.len()) };
    let filter: String = filter.text.lines().map(|line| format!("{:18}{line}\n", "")).collect();
    for ext_authz in [false, true] {
        let stage = counting_both("envoy-ratelimit");
        if ext_authz {
            let text = fs::read_to_string(stage.own_folder().join("envoy.yaml")).unwrap();
            let begin = text.find("                  - name: envoy.filters.http.ratelimit\n").unwrap();
            let end = text.find("                  # Holds a request").unwrap();
            stage.edit("envoy.yaml", &text[begin..end], &filter);
            let ticket = "filter: envoy.filters.http.ratelimit, path";
            stage.edit("envoy.yaml", ticket, &ticket.replace("ratelimit", "ext_authz"));
        }
        story(stage);
    }
}

/// How long a request took, in milliseconds.
fn took_ms(response: &Response) -> u128 {
    response.took.as_millis()
}

#[test]
fn envoy_asks_over_grpc_and_no_client_can_set_a_field() {
    if !is_there("envoy", "--version") {
        return skipped("Envoy cannot be had on this machine");
    }
    another_host_gains_nothing(&Stage::play("envoy-ratelimit", "envoy"));
    each_way_over_grpc(|mut stage| {
        stage.start_slowlane();
        stage.start_proxy("envoy");
        no_client_can_set_a_field(&stage);
        assert_eq!(stage.metric("slowlane_grpc_failures_total", ""), 0.0);
        fails_open(&mut stage);
    });
}

/// What a client sends to the fault filter has no effect, whether slowlane delays its request or not.
#[test]
fn no_client_of_envoy_chooses_its_delay() {
    if !is_there("envoy", "--version") {
        return skipped("Envoy cannot be had on this machine");
    }
    each_way_over_grpc(|mut stage| {
        stage.edit(
            "maps/slo.map",
            "5001 burst=5 rate=6/m law=token-bucket",
            "5001 burst=1 rate=1/s max_delay=20s",
        );
        stage.start_slowlane();
        stage.start_proxy("envoy");
        let mut client = stage.client();
        let mut ask = |host: &str, forged: &[(&str, &str)]| {
            let response = client.request("GET", "/", &[&[("Host", host)], forged].concat(), "");
            assert_eq!(response.status, 200, "{host} {forged:?}");
            took_ms(&response)
        };
        let hour = "3600000";
        for forged in [
            [("X-Envoy-Fault-Delay-Request", hour), ("X-Envoy-Fault-Delay-Request-Percentage", "100")],
            [("x-envoy-fault-abort-request", "503"), ("x-envoy-fault-abort-request-percentage", "100")],
            [("x-envoy-fault-abort-grpc-request", "14"), ("x-envoy-fault-throughput-response", "1")],
        ] {
            ask("free.example", &forged);
        }
        ask("shop.example", &[]);
        for forged in [
            [("x-envoy-fault-delay-request", "1"), ("x-envoy-fault-delay-request-percentage", "0")],
            [
                ("x-envoy-fault-delay-request-percentage", "0"),
                ("x-envoy-fault-delay-request-percentage", "0"),
            ],
        ] {
            // It waits for most of a second: less only by what the requests before it took.
            let waited_ms = ask("shop.example", &forged);
            assert!(waited_ms >= 300, "{forged:?}: {waited_ms} ms");
        }
        for seen in stage.app.seen() {
            assert!(!seen.headers.iter().any(|header| header.contains("fault")), "{seen:?}");
        }
    });
}

/// If a request were refused for its bytes, Envoy would let it pass unchecked.
#[test]
fn no_bytes_of_a_client_make_envoy_pass_it_unchecked() {
    if !is_there("envoy", "--version") {
        return skipped("Envoy cannot be had on this machine");
    }
    let mut stage = Stage::set("envoy-ratelimit");
    let method =
        "                            - request_headers: { header_name: \":method\", descriptor_key: method }";
    let agent = method.replace(":method", "user-agent").replace("key: method", "key: agent");
    stage.edit("envoy.yaml", method, &format!("{method}\n{agent}"));
    stage.start_slowlane();
    stage.start_proxy("envoy");
    let long = "x".repeat(50_000);
    let agents: [&[u8]; 8] = [
        b"a",
        b"\xff\xfe",
        b"\xc3\x28",
        long.as_bytes(),
        b"\xed\xa0\x80",
        b"\xf0\x80\x80\x80",
        b"%00",
        b"\x80",
    ];
    for (number, agent) in agents.iter().enumerate() {
        let mut connection = stage.connection_from("127.0.0.1", 8080);
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = [
            b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\nUser-Agent: ".as_slice(),
            agent,
            b"\r\n\r\n",
        ];
        connection.write_all(&head.concat()).unwrap();
        let mut line = String::new();
        BufReader::new(connection).read_line(&mut line).unwrap();
        // The application of the test takes no header that is not UTF-8.
        assert_eq!(line.contains(" 429 "), number >= 5, "request {number}: {line}");
    }
    assert_eq!(stage.metric("slowlane_grpc_failures_total", ""), 0.0);
}

/// Envoy's own headers, and those of the draft.
#[test]
fn envoy_tells_clients_their_limit() {
    if !is_there("envoy", "--version") {
        return skipped("Envoy cannot be had on this machine");
    }
    let mut stage = Stage::set("envoy-ratelimit");
    stage.edit(
        "envoy.yaml",
        "                      domain: www\n",
        "                      domain: www\n                      enable_x_ratelimit_headers: DRAFT_VERSION_03\n",
    );
    let remote = "- remote_address: {}";
    let asks = "- generic_key: { descriptor_key: ratelimit, descriptor_value: \"on\" }";
    stage.edit("envoy.yaml", remote, &format!("{remote}\n                            {asks}"));
    stage.start_slowlane();
    stage.start_proxy("envoy");
    let mut client = stage.client();
    let responses = [(); 6].map(|()| client.request("GET", "/", &[SHOP], ""));
    let [first, .., last] = &responses;
    let of = |response: &Response, name: &str| response.header(name).map(str::to_owned);
    assert_eq!(of(first, "x-ratelimit-limit").as_deref(), Some("6, 6;w=60"));
    assert_eq!(of(first, "x-ratelimit-remaining").as_deref(), Some("4"));
    assert_eq!(of(first, "ratelimit").as_deref(), Some("\"3001\";r=4"));
    assert_eq!((last.status, of(last, "x-ratelimit-remaining").as_deref()), (429, Some("0")));
    assert_eq!(of(last, "x-ratelimit-reset"), of(last, "retry-after"));
}

/// The rules of Envoy's own service: three limits of a route, and tokens that are told after the answer.
const RULES: &str = "domain: www\ndescriptors:\n\
    - key: remote_address\n  rate_limit: {unit: year, requests_per_unit: 100}\n\
    - key: path\n  value: /login\n  rate_limit: {unit: year, requests_per_unit: 3}\n\
    - key: user\n  rate_limit: {unit: year, requests_per_unit: 5}\n\
    - key: tokens\n  rate_limit: {unit: year, requests_per_unit: 50}\n";

const THREE_AND_TOKENS: &str = r#"- actions: [{ remote_address: {} }]
                        - actions: [{ request_headers: { header_name: ":path", descriptor_key: path } }]
                        - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
                        - actions: [{ request_headers: { header_name: x-tenant, descriptor_key: tokens } }]
                          hits_addend: { number: 0 }
                        - actions: [{ request_headers: { header_name: x-tenant, descriptor_key: tokens } }]
                          hits_addend: { format: "%REQ(x-cost)%" }
                          apply_on_stream_done: true
"#;

/// An operator of Envoy's own service moves over with `slowlane import`.
#[test]
fn each_descriptor_of_envoy_is_a_limit_and_tokens_are_told_after_the_answer() {
    if !is_there("envoy", "--version") {
        return skipped("Envoy cannot be had on this machine");
    }
    let mut stage = Stage::set("envoy-ratelimit");
    let shipped = fs::read_to_string(stage.own_folder().join("envoy.yaml")).unwrap();
    let (begin, end) =
        (shipped.find("- actions:\n").unwrap(), shipped.find("                      routes:").unwrap());
    stage.edit("envoy.yaml", &shipped[begin..end], THREE_AND_TOKENS);
    let domain = "                      domain: www\n";
    let told = format!("{domain}                      enable_x_ratelimit_headers: DRAFT_VERSION_03\n");
    stage.edit("envoy.yaml", domain, &told);
    let mut config = fs::read_to_string(stage.own_folder().join("slowlane.toml")).unwrap();
    let imported = import(RULES, None).unwrap();
    assert_eq!(imported.omissions, []);
    for file in &imported.files {
        match file.name.as_str() {
            "slowlane.toml" => config += &file.text,
            name => fs::write(stage.own_folder().join("maps").join(name), &file.text).unwrap(),
        }
    }
    fs::write(stage.own_folder().join("slowlane.toml"), config).unwrap();
    stage.start_slowlane();
    stage.start_proxy("envoy");
    let mut client = stage.client();
    let mut ask =
        |path: &str, headers: &[(&str, &str)]| client.request("GET", path, &[&[SHOP], headers].concat(), "");
    let ann = [("x-user", "ann")];
    let logins = [(); 4].map(|()| ask("/login", &ann));
    assert_eq!(logins.each_ref().map(|response| response.status), [200, 200, 200, 429]);
    let left = logins.each_ref().map(|response| response.header("x-ratelimit-remaining").map(str::to_owned));
    assert_eq!(left, ["2", "1", "0", "0"].map(|left| Some(left.to_owned())));
    // The refused login counts for her, too, as in Envoy's service.
    assert_eq!([ask("/", &ann).status, ask("/", &ann).status], [200, 429]);
    let acme = |cost| [("x-tenant", "acme"), ("x-cost", cost)];
    assert_eq!([ask("/", &acme("30")).status, ask("/", &acme("30")).status], [200, 200]);
    eventually("the tokens are used up", || (ask("/", &acme("0")).status == 429).then_some(()));
    assert_eq!(ask("/", &[("x-tenant", "other"), ("x-cost", "1")]).status, 200);
}

#[test]
fn envoy_takes_what_is_printed_for_it() {
    let printed = |arguments: &[&str]| {
        let ran = ran(&[&["config", "envoy", "--config", "/dev/null"], arguments].concat());
        assert_eq!(ran.code, 0, "{arguments:?}");
        // It has no gRPC listener, unless a flag names one.
        let is_told = !arguments.contains(&"--grpc") && !arguments.contains(&"hold");
        assert_eq!(ran.problems.len(), usize::from(is_told), "{arguments:?}: {:?}", ran.problems);
        ran.out
    };
    let shipped = |name: &str| fs::read_to_string(project("examples").join(name).join("envoy.yaml")).unwrap();
    assert_eq!(printed(&[]), shipped("envoy-ratelimit"));
    assert_eq!(printed(&["--delivery", "hold"]), shipped("envoy"));
    // What the policy uses and nothing sends is named.
    let policy = tempfile::tempdir().unwrap();
    fs::write(policy.path().join("slo.map"), "0 rate=unlimited\n1001 burst=1 rate=1/s\n").unwrap();
    fs::write(policy.path().join("owner.map"), "ann 1001\n").unwrap();
    for delivery in ["header", "hold"] {
        let text = printed(&["--policy", policy.path().to_str().unwrap(), "--delivery", delivery]);
        assert_eq!(text.matches("# The policy uses the field owner: ").count(), 1, "{text}");
    }
    let refused = ran(&["config", "envoy", "--config", "/dev/null", "--delivery", "hold", "--ratelimit"]);
    assert_eq!(refused.code, 1);
    assert!(refused.problems[0].contains("use --delivery header"), "{:?}", refused.problems);
    if !is_there("envoy", "--version") {
        return skipped("Envoy cannot be had on this machine");
    }
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("servers"));
    for arguments in [
        &["--grpc", "unix:/run/slowlane/grpc.sock", "--listen", "[::]:8081"][..],
        &["--grpc", "slowlane.example:9005", "--tls", "--app", "app.example:80"],
        &["--grpc", "[::1]:9005", "--tls=other.example", "--ratelimit", "--listen", "8081"],
        &["--delivery", "hold", "--http", "slowlane.example:9001", "--tls"],
        &["--delivery", "hold", "--http", "unix:/run/slowlane/http.sock"],
    ] {
        let text = printed(arguments);
        // The files of the operator.
        let text = text.replace("/etc/slowlane/tls/ca.pem", &authority.cert().display().to_string());
        let pair = authority.pair("envoy");
        let text = text.replace("/etc/slowlane/tls/envoy.pem", &pair.cert.display().to_string());
        let text = text.replace("/etc/slowlane/tls/envoy.key", &pair.key.display().to_string());
        let path = folder.path().join("envoy.yaml");
        fs::write(&path, &text).unwrap();
        let mut envoy = Command::new(wheels().join("envoy"));
        let output = envoy.args(["--mode", "validate", "--config-path"]).arg(&path).output().unwrap();
        let outcome = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}:\n{outcome}\n{text}");
    }
}

/// A failing service refuses everything, if the operator wants it so.
#[test]
fn envoy_fails_closed_if_it_is_told_to() {
    if !is_there("envoy", "--version") {
        return skipped("Envoy cannot be had on this machine");
    }
    let mut stage = Stage::set("envoy-ratelimit");
    stage.edit("envoy.yaml", "failure_mode_deny: false", "failure_mode_deny: true");
    stage.start_slowlane();
    stage.start_proxy("envoy");
    assert_eq!(stage.client().request("GET", "/", &[SHOP], "").status, 200);
    stage.kill_slowlane();
    eventually("requests are refused without slowlane", || {
        (stage.client().request("GET", "/", &[SHOP], "").status == 500).then_some(())
    });
}

/// An example whose policy counts each source and website, so that a forged field of either would show.
fn counting_both(name: &str) -> Stage {
    let stage = Stage::set(name);
    stage.edit("maps/slo.map", "3001", "5001");
    let maps = stage.own_folder().join("maps");
    fs::remove_file(maps.join("source.map")).unwrap();
    fs::write(maps.join("website.map"), "shop.example 5001\n").unwrap();
    stage
}

/// An example that counts the requests of each source and page.
fn counting_pages(name: &str) -> Stage {
    let stage = counting_both(name);
    let maps = stage.own_folder().join("maps");
    stage.edit("maps/slo.map", "5001", "9001");
    fs::write(maps.join("website.map"), "shop.example 9001\n").unwrap();
    stage
}

const PAGES: &str = "[policy.types]\n9 = [\"source\", \"page\"]\n";

/// A page is the client's own path, whatever path it claims in a header.
fn pages_are_told_apart(stage: &Stage) {
    let mut client = stage.client();
    let mut passed = |path: &str| {
        let ask = |number: &usize| {
            let claimed = format!("/claimed/{number}");
            let forged = [SHOP, ("X-Forwarded-Uri", &*claimed), ("X-Slowlane-Page", &*claimed)];
            client.request("GET", path, &forged, "").status == 200
        };
        (0..8).filter(ask).count()
    };
    assert_eq!([passed("/shoes"), passed("/hats"), passed("/shoes")], [5, 5, 0]);
}

/// As shipped, five requests of a source pass, whatever host it asks for.
fn another_host_gains_nothing(stage: &Stage) {
    let mut client = stage.client();
    for number in 0..8 {
        let host = format!("w{number}.example");
        let status = client.request("GET", "/", &[("Host", &host)], "").status;
        assert_eq!(status, if number < 5 { 200 } else { 429 }, "request {number}");
    }
    assert_eq!(stage.client_from("127.9.0.1").request("GET", "/", &[SHOP], "").status, 200);
}

/// A client that sets every header that could be a field gets five requests through, and no header of slowlane's.
fn no_client_can_set_a_field(stage: &Stage) {
    let mut client = stage.client();
    for number in 0..8 {
        let (address, website) = (format!("10.0.0.{number}"), format!("w{number}.example"));
        let forged = [
            SHOP,
            ("X-Slowlane-Source", &address),
            ("X-Slowlane-Website", &website),
            ("X-Slowlane-Cost", "0"),
            ("X-Forwarded-For", &address),
            ("X-Forwarded-Host", &website),
            ("X-Forwarded-Method", "BREW"),
        ];
        let response = client.request("GET", "/page?hold=off&deny=403", &forged, "");
        assert_eq!(response.status, if number < 5 { 200 } else { 429 }, "request {number}");
        assert_eq!(response.header("retry-after").is_some(), number >= 5);
        let leaked = response.headers.iter().find(|(name, _)| name.contains("slowlane"));
        assert_eq!(leaked, None, "request {number}");
    }
    assert_eq!([stage.verdicts(5001, "pass"), stage.verdicts(5001, "deny")], [5.0, 3.0]);
    assert_eq!(client.request("GET", "/", &[("Host", "other.example")], "").status, 200);
    for seen in stage.app.seen() {
        assert!(seen.path == "/" || seen.path == "/page?hold=off&deny=403", "{seen:?}");
    }
    // Only the application's own refusals have its status.
    let forbidden = client.request("GET", "/status/403", &[("Host", "other.example")], "");
    assert_eq!(forbidden.status, 403);
}

/// A field is a header of slowlane's own, which no application needs.
fn no_field_reaches_the_application(stage: &Stage) {
    for seen in stage.app.seen() {
        assert!(!seen.headers.iter().any(|header| header.starts_with("x-slowlane")), "{seen:?}");
    }
}

/// Without slowlane, an upload reaches the application.
fn fails_open(stage: &mut Stage) {
    stage.kill_slowlane();
    let body = "x".repeat(100_000);
    eventually("requests pass without slowlane", || {
        (stage.client().request("POST", "/upload", &[SHOP], &body).status == 200).then_some(())
    });
    assert!(stage.app.seen().iter().any(|seen| seen.path == "/upload" && seen.body_bytes == 100_000));
}

#[test]
fn caddy_asks_and_no_client_can_set_a_field() {
    for folder in versions_of("caddy", "version") {
        let started = |mut stage: Stage| {
            stage.proxies = folder.clone();
            stage.start_slowlane();
            stage.start_proxy("caddy");
            stage
        };
        another_host_gains_nothing(&started(Stage::set("caddy")));
        let mut stage = started(counting_both("caddy"));
        no_client_can_set_a_field(&stage);
        no_field_reaches_the_application(&stage);
        fails_open(&mut stage);
        let mut stage = counting_pages("caddy");
        stage.proxies = folder;
        stage.start_slowlane_with(PAGES);
        stage.start_proxy("caddy");
        pages_are_told_apart(&stage);
    }
}

/// Enables the commented lines of a file that contain one of these texts, for the networks of the test's CDN.
fn enable(stage: &Stage, file: &str, marks: &[&str]) {
    let text = fs::read_to_string(stage.own_folder().join(file)).unwrap();
    let lines =
        text.lines().filter(|line| line.contains("# ") && marks.iter().any(|mark| line.contains(mark)));
    // Equal lines are edited together.
    for line in lines.collect::<BTreeSet<_>>() {
        let enabled = line.replacen("# ", "", 1).replace("192.0.2.0", "127.9.1.0");
        stage.edit(file, &format!("{line}\n"), &format!("{enabled}\n"));
    }
}

/// Places come back when the log of the proxy says so, also after it has rotated. No client ends another's request.
fn ends_are_in_the_log(stage: &mut Stage, proxy: &str, file: &str, path: &str) {
    let log = stage.own_folder().join("slowlane.log");
    stage.edit(file, path, log.to_str().unwrap());
    stage.edit(
        "maps/slo.map",
        "burst=5 rate=6/m law=token-bucket",
        "burst=1 rate=1/s law=concurrency max=5 lease=1h",
    );
    stage.start_slowlane_with(&format!("[ends]\nfollow = [{log:?}]\n"));
    stage.start_proxy(proxy);
    let counted = |number: f64| {
        let counted = || stage.metric("slowlane_ends_total", "result=\"counted\"");
        eventually(&format!("{number} ends"), || (counted() == number).then_some(()));
    };
    let check = || client::get(stage.at(9001), "/check", &[("X-Slowlane-Source", "127.0.0.1")]);
    let open = check();
    let ticket = open.header("x-slowlane-ticket").unwrap();
    let quoted = format!("\",\"ticket\":\"{ticket}\",\"request_X-Slowlane-Ticket\":\"{ticket}\"");
    let forged = [SHOP, ("X-Slowlane-Ticket", ticket), ("Ticket", ticket), ("User-Agent", &quoted)];
    eventually("the proxy serves", || {
        (stage.client().request("GET", "/", &[SHOP], "").status == 200).then_some(())
    });
    counted(1.0);
    for number in 2..=15 {
        let status = stage.client().request("GET", &format!("/?ticket={ticket}"), &forged, "").status;
        assert_eq!(status, 200, "request {number}");
        counted(f64::from(number));
    }
    let others = ["late", "refused"]
        .map(|result| stage.metric("slowlane_ends_total", &format!("result=\"{result}\"")));
    assert_eq!(others, [0.0; 2]);
    // Four places are left beside the open one.
    let left = check();
    assert_eq!(left.header("x-slowlane-remaining"), Some("3"));
}

#[test]
fn the_log_of_caddy_has_the_ends() {
    let Some(caddy) = unpacked("caddy", "2.11") else {
        return skipped("Caddy 2.11 cannot be had on this machine");
    };
    let mut stage = Stage::set("caddy");
    stage.proxies = caddy.parent().unwrap().to_owned();
    let block = [
        "# log {",
        "output file",
        "mode 0644",
        "# \t}",
        "format filter",
        "_headers",
        "request delete",
        "# }",
    ];
    enable(&stage, "Caddyfile", &[&block[..], &["# log_append"]].concat());
    ends_are_in_the_log(&mut stage, "caddy", "Caddyfile", "/var/log/caddy/slowlane.log");
    no_field_reaches_the_application(&stage);
}

#[test]
fn the_log_of_traefik_has_the_ends() {
    if !is_there("traefik", "version") {
        return skipped("Traefik cannot be had on this machine");
    }
    let mut stage = Stage::set("traefik");
    enable(&stage, "traefik.yml", &["accessLog:", "filePath", "format: json", "fields:"]);
    enable(&stage, "dynamic.yml", &["authResponseHeaders:"]);
    ends_are_in_the_log(&mut stage, "traefik", "traefik.yml", "/var/log/traefik/slowlane.log");
}

/// Waits until Traefik has read its files.
fn has_read(stage: &Stage) {
    let ask = || stage.client_from("127.9.0.9").request("GET", "/", &[("Host", "other.example")], "");
    eventually("it has read its files", || (ask().status == 200).then_some(()));
}

const CDN: &str = "[http]\ntrusted = ['127.9.1.0/24']\n";

#[test]
fn a_cdn_is_believed_and_a_stranger_is_not_in_caddy() {
    for folder in versions_of("caddy", "version") {
        let started = |mut stage: Stage| {
            stage.proxies = folder.clone();
            enable(&stage, "Caddyfile", &["# trusted_proxies "]);
            stage.start_slowlane_with(CDN);
            stage.start_proxy("caddy");
            stage
        };
        clients_behind_a_cdn(&started(Stage::set("caddy")));
        no_client_behind_a_cdn_chooses(&started(counting_both("caddy")));
    }
}

/// If the CDN passes on what a client says of its website and method, neither is believed.
fn no_client_behind_a_cdn_chooses(stage: &Stage) {
    let mut client = stage.client_from("127.9.1.1");
    let mut ask = |number: usize| {
        let other = format!("w{number}.example");
        let forged = [("X-Forwarded-Host", &*other), ("X-Forwarded-Method", "PUT")];
        let from = ("X-Forwarded-For", "10.0.0.1");
        client.request("GET", "/", &[&[SHOP, from], &forged[..]].concat(), "").status
    };
    let passed = (0..8).filter(|&number| ask(number) == 200).count();
    assert_eq!(passed, 5, "whatever it says of its host");
}

#[test]
fn a_cdn_is_believed_and_a_stranger_is_not_in_traefik() {
    if !is_there("traefik", "version") {
        return skipped("Traefik cannot be had on this machine");
    }
    let behind = |stage: &mut Stage| {
        enable(stage, "traefik.yml", &["forwardedHeaders:"]);
        enable(
            stage,
            "dynamic.yml",
            &["X-Forwarded-Host: \"\"", "X-Forwarded-Method: \"\"", "X-Forwarded-Uri: \"\""],
        );
        stage.edit("dynamic.yml", "trustForwardHeader: false", "trustForwardHeader: true");
        stage.start_slowlane_with(CDN);
        stage.start_proxy("traefik");
        has_read(stage);
    };
    let mut stage = Stage::set("traefik");
    behind(&mut stage);
    clients_behind_a_cdn(&stage);

    let mut stage = counting_both("traefik");
    behind(&mut stage);
    no_client_behind_a_cdn_chooses(&stage);
}

#[test]
fn a_cdn_is_believed_and_a_stranger_is_not_in_envoy() {
    if !is_there("envoy", "--version") {
        return skipped("Envoy cannot be had on this machine");
    }
    for example in ["envoy", "envoy-ratelimit"] {
        let mut stage = Stage::set(example);
        let lines = ["ip_detection_extensions", "typed_config:", "XffConfig", "xff_trusted_cidrs"];
        enable(&stage, "envoy.yaml", &lines);
        enable(&stage, "envoy.yaml", &["name: envoy.extensions.http.original_ip_detection.xff"]);
        stage.edit("envoy.yaml", "use_remote_address: true", "use_remote_address: false");
        stage.start_slowlane();
        stage.start_proxy("envoy");
        clients_behind_a_cdn(&stage);
    }
}

/// A POST that is sent twice may be done twice.
#[test]
fn caddy_asks_a_failing_application_once() {
    versions_of("caddy", "version").into_iter().for_each(caddy_asks_once);
}

fn caddy_asks_once(folder: PathBuf) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stage = Stage::set("caddy");
    stage.proxies = folder;
    stage.edit("Caddyfile", &stage.app.address.to_string(), &listener.local_addr().unwrap().to_string());
    let (outcome, asked) = mpsc::channel();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let (mut connection, mut request) = (BufReader::new(connection), String::new());
            connection.read_line(&mut request).unwrap();
            // Told before it closes, as Caddy answers after that.
            outcome.send(request).unwrap();
        }
    });
    stage.start_slowlane();
    stage.start_proxy("caddy");
    assert_eq!(stage.client().request("POST", "/order", &[SHOP], "one").status, 502);
    assert_eq!(asked.try_iter().count(), 1);
}

#[test]
fn traefik_asks_and_no_client_can_set_a_field() {
    if !is_there("traefik", "version") {
        return skipped("Traefik cannot be had on this machine");
    }
    let stage = Stage::play("traefik", "traefik");
    has_read(&stage);
    another_host_gains_nothing(&stage);
    let mut stage = counting_both("traefik");
    stage.start_slowlane();
    stage.start_proxy("traefik");
    has_read(&stage);
    no_client_can_set_a_field(&stage);
    no_field_reaches_the_application(&stage);
    stage.kill_slowlane();
    assert_eq!(stage.client().request("GET", "/", &[SHOP], "").status, 500, "it fails closed");
    let mut stage = counting_pages("traefik");
    stage.start_slowlane_with(PAGES);
    stage.start_proxy("traefik");
    has_read(&stage);
    pages_are_told_apart(&stage);
}

#[test]
fn envoy_asks_and_no_client_can_set_a_field() {
    if !is_there("envoy", "--version") {
        return skipped("Envoy cannot be had on this machine");
    }
    another_host_gains_nothing(&Stage::play("envoy", "envoy"));
    let mut stage = counting_both("envoy");
    stage.start_slowlane();
    stage.start_proxy("envoy");
    no_client_can_set_a_field(&stage);
    no_field_reaches_the_application(&stage);
    fails_open(&mut stage);
    let mut stage = counting_pages("envoy");
    stage.start_slowlane_with(PAGES);
    stage.start_proxy("envoy");
    pages_are_told_apart(&stage);
}
