//! The examples of each program's documentation, as policies.

use slowlane::import::{ImportError, Program, Written, import};

fn imported(text: &str) -> Written {
    import(text, None).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// A file of an import.
#[track_caller]
fn file<'w>(written: &'w Written, name: &str) -> &'w str {
    let file = written.files.iter().find(|file| file.name == name);
    &file.unwrap_or_else(|| panic!("no {name}: {written:#?}")).text
}

/// The SLOs without SLO 0 and the comments.
#[track_caller]
fn slos(written: &Written) -> Vec<&str> {
    let lines = file(written, "slo.map").lines();
    lines.filter(|line| !line.starts_with('#') && *line != "0 rate=unlimited").collect()
}

#[track_caller]
fn has_note(written: &Written, words: &str) {
    assert!(written.differences.iter().any(|note| note.contains(words)), "{words}: {written:#?}");
}

const ALL: &str = "0.0.0.0/0 3001\n::/0 3001\n";

/// ngx_http_limit_req_module, "Example Configuration".
#[test]
fn a_location_of_nginx_is_a_beginning_of_a_path() {
    let written = imported(
        "http {\n limit_req_zone $binary_remote_addr zone=one:10m rate=1r/s;\n server {\n  location /search/ {\n   limit_req \
         zone=one burst=5;\n  }\n }\n}\n",
    );
    assert_eq!(slos(&written), ["3001 burst=1 rate=1/s max_delay=5s"]);
    assert!(file(&written, "slo.map").contains("\n# line 5: limit_req zone=one burst=5;\n"));
    assert_eq!(file(&written, "path-prefix.map"), "/search/ 3001\n");
    let toml = file(&written, "slowlane.toml");
    assert!(toml.contains("fields = [\"path\"]\nmap = \"path-prefix.map\"\nmatch = \"beg\"\n"), "{toml}");
    has_note(&written, "burst=5 admits six requests at once");
    has_note(&written, "503");
    assert_eq!(written.omissions, []);
}

/// The same page: `nodelay`, `delay=`, and two limits on one server.
#[test]
fn a_burst_of_nginx_is_a_queue_or_a_bucket() {
    for (parameters, slo) in [
        ("burst=5", "burst=1 rate=1/s max_delay=5s"),
        ("burst=5 nodelay", "burst=6 rate=1/s law=token-bucket"),
        ("burst=12 delay=8", "burst=9 rate=1/s max_delay=4s"),
        ("burst=5 delay=5", "burst=6 rate=1/s law=token-bucket"),
        ("", "burst=1 rate=1/s law=token-bucket"),
    ] {
        let zone = "limit_req_zone $binary_remote_addr zone=one:10m rate=1r/s;";
        let written = imported(&format!("{zone} server {{ limit_req zone=one {parameters}; }}"));
        assert_eq!(slos(&written), [format!("3001 {slo}")], "{parameters}");
        assert_eq!(file(&written, "source.map"), ALL);
        assert_eq!(written.files.len(), 2, "the default lookups serve");
    }
    let two = imported(
        "limit_req_zone $binary_remote_addr zone=perip:10m rate=1r/s;\nlimit_req_zone $server_name zone=perserver:10m \
         rate=10r/s;\nserver {\n limit_req zone=perip burst=5 nodelay;\n limit_req zone=perserver burst=10;\n}\n",
    );
    assert_eq!(
        slos(&two),
        ["3001 burst=6 rate=1/s law=token-bucket also=source-2", "2001 burst=1 rate=10/s max_delay=1s"]
    );
    assert_eq!(file(&two, "source-2.map"), "0.0.0.0/0 2001\n::/0 2001\n");
    has_note(&two, "$server_name");
}

#[test]
fn a_rate_of_nginx_per_minute_and_a_long_queue_have_their_notes() {
    let written = imported(
        "limit_req_zone $remote_addr zone=a:1m rate=10r/m;\nserver { limit_req zone=a burst=5; limit_req_dry_run on; }\n",
    );
    assert_eq!(slos(&written), ["3001 burst=1 rate=10/m max_delay=20s dry_run=yes"]);
    has_note(&written, "at most 20 s");
    has_note(&written, "9.96/m");
}

/// ngx_http_limit_conn_module: the example, and the one with two limits.
#[test]
fn connections_of_nginx_are_requests_in_flight() {
    let one = imported(
        "http {\n limit_conn_zone $binary_remote_addr zone=addr:10m;\n server { location /download/ { limit_conn addr 1; } \
         }\n}\n",
    );
    assert_eq!(slos(&one), ["3001 burst=1 rate=1/s law=concurrency"]);
    assert_eq!(file(&one, "path-prefix.map"), "/download/ 3001\n");
    has_note(&one, "the proxy reports when each request ends");
    let two = imported(
        "limit_conn_zone $binary_remote_addr zone=perip:10m;\nlimit_conn_zone $server_name zone=perserver:10m;\nserver {\n \
         limit_conn perip 10;\n limit_conn perserver 100;\n}\n",
    );
    assert_eq!(
        slos(&two),
        ["3001 burst=10 rate=1/s law=concurrency also=source-2", "2001 burst=100 rate=1/s law=concurrency"]
    );
}

/// Zones on the same key count apart, and so do their SLOs. A location without limits is an exception.
#[test]
fn zones_servers_and_locations_of_nginx_stay_apart() {
    let written = imported(
        "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\nlimit_req_zone $binary_remote_addr zone=b:1m rate=2r/s;\n\
         server {\n server_name shop.example;\n location / { limit_req zone=a; }\n location /api/ { limit_req zone=b; }\n \
         location = /health { }\n}\nserver { server_name blog.example; }\n",
    );
    assert_eq!(
        slos(&written),
        ["3001 burst=1 rate=1/s law=token-bucket", "6001 burst=1 rate=2/s law=token-bucket"]
    );
    assert_eq!(file(&written, "website+path-prefix.map"), "shop.example+/ 3001\nshop.example+/api/ 6001\n");
    assert_eq!(file(&written, "website+path.map"), "shop.example+/health 0\n");
    assert!(file(&written, "slowlane.toml").contains("[policy.types]\n6 = [\"source\"]\n"));
    assert!(!format!("{:?}", written.files).contains("blog.example"), "it has no limits anyway");
}

/// The server for HTTP redirects, and the one for HTTPS has the limits.
#[test]
fn of_two_servers_with_one_name_the_limited_one_counts() {
    let written = imported(
        "limit_req_zone $remote_addr zone=a:1m rate=1r/s;\nserver { listen 80; server_name a.example; return 301 \
         https://a.example$request_uri; }\nserver { listen 443 ssl; server_name a.example; limit_req zone=a; location /free/ { } \
         }\nserver { listen 80 default_server; limit_req zone=a burst=9; }\n",
    );
    assert_eq!(
        slos(&written),
        ["3001 burst=1 rate=1/s law=token-bucket", "3002 burst=1 rate=1/s max_delay=9s"]
    );
    assert_eq!(file(&written, "website.map"), "a.example 3001\n");
    assert_eq!(written.omissions, []);
}

#[test]
fn a_zone_under_two_laws_has_its_note() {
    let of = |second: &str| {
        imported(&format!(
            "limit_req_zone $remote_addr zone=a:1m rate=1r/s;\nserver {{ limit_req zone=a burst=5; location /a/ {{ limit_req \
             zone=a burst={second}; }} }}\n"
        ))
    };
    has_note(&of("9 nodelay"), "counts the requests in the two places separately");
    assert!(
        !of("9")
            .differences
            .iter()
            .any(|note| note.contains("counts the requests in the two places separately"))
    );
}

#[test]
fn what_nginx_alone_can_say_is_listed_with_its_line() {
    let written = imported(
        "limit_req_zone $cookie_user zone=c:1m rate=1r/s;\nlimit_req_zone $remote_addr zone=a:1m rate=1r/s;\nserver {\n \
         limit_req zone=a;\n limit_req zone=c;\n location ~ \\.php$ { limit_req zone=a burst=3; }\n}\nserver { server_name \
         *.example; limit_req zone=a; }\n",
    );
    let omissions: Vec<(usize, &str)> =
        written.omissions.iter().map(|omission| (omission.line, omission.reason.as_str())).collect();
    assert_eq!(
        omissions,
        [
            (1, "slowlane has no field for $cookie_user"),
            (5, "the zone \"c\" is not imported"),
            (6, "only locations that match a path or a prefix can be imported"),
            (8, "the name *.example needs a map of websites with match = \"end\" or \"reg\""),
        ]
    );
    assert_eq!(slos(&written), ["3001 burst=1 rate=1/s law=token-bucket"]);
}

/// The line of each part of a file that was not imported, and its first word.
fn named(written: &Written) -> Vec<(usize, &str)> {
    let first = |text: &str| text.split_whitespace().next().unwrap_or_default().len();
    written.omissions.iter().map(|of| (of.line, &of.text[..first(&of.text)])).collect()
}

/// Whatever else of nginx limits requests, or says who is counted, is named. A block of Lua is skipped whole.
#[test]
fn what_else_limits_in_nginx_is_named_with_its_line() {
    let written = imported(
        "http {\n limit_req_zone $remote_addr zone=a:1m rate=1r/s;\n real_ip_header X-Real-IP;\n upstream u { server \
         127.0.0.1:1 max_conns=9; }\n server {\n  limit_req zone=a zeal=3;\n  limit_rate 9k;\n  access_by_lua_block {\n   \
         local s = \"}\" -- limit_req }\n   --[[ } ]]\n   limit.req(\"a\")\n  }\n  if ($bad) { return 429; }\n  location / { \
         limit_except GET { deny all; } }\n  js_limit x;\n }\n}\nstream { server { limit_conn c 1; } }\n",
    );
    assert_eq!(
        named(&written),
        [
            (3, "real_ip_header"),
            (4, "server"),
            (6, "limit_req"),
            (7, "limit_rate"),
            (8, "access_by_lua_block"),
            (13, "return"),
            (14, "limit_except"),
            (15, "js_limit"),
            (18, "limit_conn"),
        ]
    );
    assert_eq!(slos(&written), ["3001 burst=1 rate=1/s law=token-bucket"]);
}

/// HAProxy's guide to rate limits: the sliding window.
#[test]
fn a_rate_of_haproxy_is_a_sliding_window() {
    let head = "frontend website\n    bind :80\n    stick-table  type ip  size 100k  expire 30s  store http_req_rate(10s)\n    \
                http-request track-sc0 src\n";
    let direct = "    http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }\n";
    let named = "    acl exceeds_limit sc0_http_req_rate ge 21\n    http-request deny deny_status 429 if exceeds_limit\n";
    for rule in [direct, named] {
        let written = imported(&format!("{head}{rule}    default_backend servers\n"));
        assert_eq!(slos(&written), ["3001 burst=0 rate=2/s law=sliding-window window=10s"]);
        assert_eq!(file(&written, "source.map"), ALL);
        has_note(&written, "counts refused requests, too");
        assert_eq!(written.omissions, []);
    }
}

/// The same guide: by URL, with the table of another section, and by connections.
#[test]
fn keys_tables_and_connections_of_haproxy_are_found() {
    let written = imported(
        "frontend web\n  http-request track-sc0 base32+src table urls\n  http-request deny if { sc_http_req_rate(0) gt 25 }\n  \
         tcp-request connection track-sc1 src table conns\n  tcp-request connection reject if { sc_conn_cur(1) gt 10 }\n\
         backend urls\n  stick-table type binary len 20 size 100k expire 10s store http_req_rate(10s)\nbackend conns\n  \
         stick-table type ip size 1m expire 10s store conn_cur\n",
    );
    assert_eq!(
        slos(&written),
        [
            "6001 burst=0 rate=150/m law=sliding-window window=10s also=source-2",
            "3001 burst=10 rate=1/s law=concurrency"
        ]
    );
    assert!(file(&written, "slowlane.toml").contains("6 = [\"base\", \"source\"]"));
    has_note(&written, "403 by default");
    let one_for_all = imported(
        "frontend web\n  stick-table type string len 10 size 1 expire 5m store conn_cur\n  http-request track-sc0 str(global)\n  \
         http-request deny if { sc0_conn_cur ge 500 }\n",
    );
    assert_eq!(slos(&one_for_all), ["1 burst=499 rate=1/s law=concurrency"]);
}

/// A rule for a path is on top of the rule for all; an exception that only one of them has is none.
#[test]
fn conditions_of_haproxy_are_maps() {
    let written = imported(
        "frontend web\n  stick-table type ip size 1m expire 1m store http_req_rate(1m),conn_cur\n  http-request track-sc0 \
         src\n  http-request deny if { path_beg /api /v1 } { sc_http_req_rate(0) gt 10 } !{ src 192.0.2.0/24 }\n  http-request \
         deny if { sc_conn_cur(0) gt 5 } !{ src 10.0.0.0/8 192.0.2.0/24 }\n",
    );
    assert_eq!(
        slos(&written),
        [
            "3001 burst=0 rate=10/m law=sliding-window window=1m also=path-prefix-2",
            "6001 burst=5 rate=1/s law=concurrency"
        ]
    );
    assert_eq!(file(&written, "path-prefix.map"), "/api 3001\n/v1 3001\n");
    assert_eq!(file(&written, "path-prefix-2.map"), "/api 6001\n/v1 6001\n");
    assert_eq!(file(&written, "source.map"), "192.0.2.0/24 0\n");
    assert_eq!(file(&written, "source-all.map"), "0.0.0.0/0 6001\n::/0 6001\n");
    let omissions: Vec<&str> = written.omissions.iter().map(|omission| omission.text.as_str()).collect();
    assert_eq!(omissions, ["10.0.0.0/8"]);
}

/// As found in a public configuration: the lower limit refuses first, so the higher one never does.
#[test]
fn of_two_limits_of_haproxy_on_one_counter_the_lower_counts() {
    let written = imported(
        "frontend web\n  stick-table type ip size 1m expire 30s store http_req_rate(30s)\n  http-request track-sc0 src\n  \
         http-request deny if { src_http_req_rate(web) gt 100 }\n  http-request deny if { path_beg /a } { sc_http_req_rate(0) gt \
         50 }\n  http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }\n",
    );
    assert_eq!(slos(&written), ["3001 burst=0 rate=40/m law=sliding-window window=30s"]);
    assert_eq!(file(&written, "source.map"), ALL);
    assert_eq!(file(&written, "path-prefix.map"), "/a 3001\n");
}

/// HAProxy's configuration manual, "track-sc": a general purpose counter has no counterpart.
#[test]
fn what_haproxy_alone_can_say_is_listed_with_its_line() {
    let written = imported(
        "frontend http\n  stick-table type ip size 1m expire 5m store gpc0\n  tcp-request connection track-sc0 src\n  \
         tcp-request connection reject if { sc0_get_gpc0 gt 0 }\n  use_backend slow if { sc0_http_req_rate gt 5 }\n  \
         http-request deny if { path /admin }\nbackend http_dynamic\n  stick-table type ip size 1m expire 5m store \
         http_req_rate(10s)\n  acl click_too_fast sc1_http_req_rate gt 10\n  acl mark_as_abuser sc0_inc_gpc0(http) gt 0\n  \
         tcp-request content track-sc1 src\n  tcp-request content reject if click_too_fast mark_as_abuser\n  \
         http-request deny if { sc_http_req_rate(1),sub(txn.most) gt 0 }\n",
    );
    assert_eq!(written.files, []);
    let omissions: Vec<(usize, &str)> =
        written.omissions.iter().map(|omission| (omission.line, omission.reason.as_str())).collect();
    assert_eq!(
        omissions,
        [
            (4, "slowlane does not count sc0_get_gpc0"),
            (5, "only rules that refuse requests can be imported as limits"),
            (12, "expected one counter in the condition, without `!`"),
            (13, "slowlane does not count sc_http_req_rate(1),sub"),
        ]
    );
}

/// Whatever else of HAProxy limits requests is named, and so is each `.if`, whose lines hold only at times.
#[test]
fn what_else_limits_in_haproxy_is_named_with_its_line() {
    let written = imported(
        "frontend www\n stick-table type ip size 1m expire 10s store http_req_rate(10s)\n http-request track-sc0 src\n .if \
         defined(STRICT)\n http-request deny if { sc_http_req_rate(0) gt 20 }\n .endif\n rate-limit sessions 9\n filter \
         bwlim-in mine default-limit 1m default-period 1s\n http-request lua.throttle\n http-request set-var(txn.rate) \
         sc_http_req_rate(0)\n http-response deny if { sc_http_req_rate(0) gt 9 }\nbackend b\n server s 127.0.0.1:1 maxconn \
         9 check\n http-request deny if { be_sess_rate gt 90 }\n http-request track-sc1 src,ipmask(24)\n http-request deny \
         if { sc_http_req_rate(1,www) gt 9 }\n",
    );
    assert_eq!(
        named(&written),
        [
            (4, ".if"),
            (7, "rate-limit"),
            (8, "filter"),
            (9, "http-request"),
            (10, "http-request"),
            (11, "http-response"),
            (13, "server"),
            (14, "http-request"),
            (16, "http-request"),
        ]
    );
    assert_eq!(slos(&written), ["3001 burst=0 rate=2/s law=sliding-window window=10s"]);
}

/// The annotations in the manual of ingress-nginx, in their order: connections, rpm, rps.
/// Of an `acl` that is written twice, either may match.
#[test]
fn a_limit_of_haproxy_behind_alternatives_is_listed() {
    for rule in ["acl abuse src 192.0.2.1\n  http-request deny if abuse", "http-request deny if abuse or bad"]
    {
        let written = imported(&format!(
            "frontend www\n  stick-table type ip size 1m expire 10s store http_req_rate(10s)\n  http-request track-sc0 src\n  \
             acl abuse sc_http_req_rate(0) gt 20\n  acl bad path_beg /x\n  {rule}\n"
        ));
        assert_eq!((written.files.len(), written.omissions.len()), (0, 1), "{rule}: {written:#?}");
    }
}

#[test]
fn a_named_server_of_nginx_is_not_its_default_server() {
    let text = "limit_req_zone $remote_addr zone=a:1m rate=1r/s;\nserver { server_name a.example; limit_req zone=a; }\n";
    has_note(&imported(text), "an unknown host");
    let has_no_note = |text: &str| {
        assert!(!imported(text).differences.iter().any(|note| note.contains("an unknown host")), "{text}");
    };
    has_no_note(&text.replace("server_name a.example; ", ""));

    // The default server is the one that says so, or else the first one at an address.
    let unnamed = "server { listen 80; server_name _; limit_req zone=a; }\n";
    let all = "0.0.0.0/0 3001\n::/0 3001\n";
    for (listen, is_default) in [("81", true), ("80", false), ("*:80", false), ("80 default_server", false)] {
        let named = format!("server {{ listen {listen}; server_name a.example; }}\n");
        let text = text.replace("server {", &format!("{named}{unnamed}server {{ listen 82;"));
        let written = imported(&text);
        let map = written.files.iter().find(|file| file.name == "source.map");
        assert_eq!(map.map(|map| &*map.text), is_default.then_some(all), "{listen}: {written:#?}");
        let is_left_out = |text| imported(text).omissions.iter().any(|of| of.reason.contains("no name"));
        assert_eq!(is_left_out(&text), !is_default, "{listen}");
        let of_location = text.replace("_; limit_req zone=a;", "_; location /api/ { limit_req zone=a; }");
        assert_eq!(is_left_out(&of_location), !is_default, "{listen}: limits of a location");
    }
    let text = format!("{}{unnamed}", text.replace("server {", "server { listen 443 ssl; listen 80;"));
    has_note(&imported(&text), "an unknown host");
    let text = text.replace("_;", "_; listen 80 default_server;");
    assert_eq!(file(&imported(&text), "source.map"), all);
}

#[test]
fn annotations_of_ingress_nginx_are_buckets_for_each_host() {
    let written = imported(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: web\n  namespace: shop\n  annotations:\n    \
         nginx.ingress.kubernetes.io/limit-connections: \"7\"\n    nginx.ingress.kubernetes.io/limit-rps: \"10\"\n    \
         nginx.ingress.kubernetes.io/limit-rpm: \"8\"\n    nginx.ingress.kubernetes.io/limit-whitelist: \"10.0.0.0/8, \
         2001:db8::/32\"\n    nginx.ingress.kubernetes.io/limit-rate: \"100\"\nspec:\n  rules:\n  - host: foo.example\n",
    );
    assert_eq!(
        slos(&written),
        [
            "5001 burst=7 rate=1/s law=concurrency also=website-2",
            "6001 burst=41 rate=8/m law=token-bucket also=website-3",
            "7001 burst=51 rate=10/s law=token-bucket",
        ]
    );
    assert_eq!(file(&written, "website.map"), "foo.example 5001\n");
    assert_eq!(
        file(&written, "source+website.map"),
        "10.0.0.0/8+foo.example 0\n2001:db8::/32+foo.example 0\n"
    );
    has_note(&written, "three replicas admit three times the rate");
    let omissions: Vec<&str> = written.omissions.iter().map(|omission| omission.text.as_str()).collect();
    assert_eq!(omissions, ["shop/web: nginx.ingress.kubernetes.io/limit-rate: 100"]);
}

/// Both have their own names for limits, and both refuse at once.
#[test]
fn annotations_of_haproxys_ingress_controllers_are_windows() {
    let object = |annotations: &str| {
        format!(
            "kind: Ingress\nmetadata:\n  name: web\n  namespace: shop\n  annotations:\n{annotations}spec: {{rules: [{{host: \
             a.example}}]}}\n"
        )
    };
    let written = imported(&object(
        "    haproxy.org/rate-limit-requests: \"10\"\n    haproxy.org/rate-limit-period: \"1m\"\n    \
         haproxy.org/rate-limit-status-code: \"429\"\n    haproxy.org/rate-limit-whitelist: 10.0.0.0/8\n",
    ));
    assert_eq!(slos(&written), ["5001 burst=0 rate=10/m law=sliding-window window=1m"]);
    assert_eq!(file(&written, "source+website.map"), "10.0.0.0/8+a.example 0\n");
    has_note(&written, "Each replica of HAProxy's ingress controller counts by itself");
    has_note(&written, "403 by default");
    let own = object(
        "    haproxy-ingress.github.io/limit-rps: \"5\"\n    haproxy-ingress.github.io/limit-connections: \"3\"\n",
    );
    let written = imported(&own);
    assert_eq!(written.from, Program::HaproxyIngress);
    assert_eq!(
        slos(&written),
        [
            "5001 burst=3 rate=1/s law=concurrency also=website-2",
            "6001 burst=0 rate=5/s law=sliding-window window=1s"
        ]
    );
    has_note(&written, "Each replica of haproxy-ingress counts by itself");
    assert!(!written.differences.iter().any(|note| note.contains("nginx")), "{:?}", written.differences);
}

/// The oldest prefix was that of two controllers: the operator says which.
#[test]
fn a_prefix_of_two_controllers_is_read_as_the_operator_says() {
    let object =
        "kind: Ingress\nmetadata: {name: web, annotations: {ingress.kubernetes.io/limit-rps: \"5\"}}\n";
    let of = |program| import(object, Some(program)).unwrap();
    assert_eq!(slos(&of(Program::IngressNginx)), ["3001 burst=26 rate=5/s law=token-bucket"]);
    assert_eq!(slos(&of(Program::HaproxyIngress)), ["3001 burst=0 rate=5/s law=sliding-window window=1s"]);
}

/// What an annotation of another name, object or value says of limits is not passed over.
#[test]
fn annotations_that_are_not_known_are_named_with_their_lines() {
    let written = imported(
        "kind: Ingress\nmetadata:\n  name: web\n  annotations:\n    haproxy.org/rate-limit-requests: \"10\"\n    \
         haproxy.org/rate-limit-requests-by-path: \"3\"\n    nginx.ingress.kubernetes.io/server-snippet: limit_req \
         zone=a\n    example.org/throttle: \"1\"\n---\nkind: ConfigMap\ndata:\n  rate-limit-requests: \"7\"\n---\nkind: \
         Service\nmetadata:\n  name: shop\n  annotations:\n    haproxy-ingress.github.io/limit-rps: \"9\"\n",
    );
    let named: Vec<(usize, &str)> =
        written.omissions.iter().map(|omission| (omission.line, &*omission.text)).collect();
    assert_eq!(
        named,
        [
            (6, "/web: haproxy.org/rate-limit-requests-by-path: 3"),
            (7, "/web: nginx.ingress.kubernetes.io/server-snippet: limit_req zone=a"),
            (8, "/web: example.org/throttle: 1"),
            (12, "rate-limit-requests: 7"),
            (18, "/shop: haproxy-ingress.github.io/limit-rps: 9"),
        ]
    );
}

/// `kubectl get -o yaml` gives a list. Two objects of one host count apart, and a third one is an exception.
#[test]
fn paths_of_ingress_nginx_are_whole_segments() {
    let object = |name: &str, limit: &str, path: &str, kind: &str| {
        format!(
            "- kind: Ingress\n  metadata: {{name: {name}, annotations: {{{limit}}}}}\n  spec: {{rules: [{{host: a.example, \
             http: {{paths: [{{path: {path}, pathType: {kind}}}]}}}}]}}\n"
        )
    };
    let limit = |rps: u32| {
        format!(
            "nginx.ingress.kubernetes.io/limit-rps: \"{rps}\", nginx.ingress.kubernetes.io/limit-burst-multiplier: \"2\""
        )
    };
    let objects = [
        object("one", &limit(5), "/", "Prefix"),
        object("two", &limit(7), "/api", "Prefix"),
        object("three", "", "/static/", "ImplementationSpecific"),
    ];
    let written = imported(&format!("kind: List\nitems:\n{}# ingress.kubernetes.io/\n", objects.concat()));
    assert_eq!(
        slos(&written),
        ["5001 burst=11 rate=5/s law=token-bucket", "6001 burst=15 rate=7/s law=token-bucket"]
    );
    assert_eq!(file(&written, "website+path.map"), "a.example+/api 6001\n");
    assert_eq!(file(&written, "website+path-prefix.map"), "a.example+/api/ 6001\na.example+/static/ 0\n");
    assert_eq!(file(&written, "website.map"), "a.example 5001\n");
}

/// The README of envoyproxy/ratelimit, examples 1, 2, 3, 5, 6 and 9.
#[test]
fn descriptors_of_envoy_are_windows_by_the_clock() {
    let one = imported(
        "domain: mongo_cps\ndescriptors:\n  - key: database\n    value: users\n    rate_limit:\n      unit: second\n      \
         requests_per_unit: 500\n\n  - key: database\n    value: default\n    rate_limit:\n      unit: second\n      \
         requests_per_unit: 500\n",
    );
    assert_eq!(slos(&one), ["6001 burst=0 rate=500/s law=fixed-window reset=calendar"]);
    assert_eq!(
        file(&one, "descriptor.map"),
        "mongo_cps+database=users 6001\nmongo_cps+database=default 6001\n"
    );
    let two = imported(
        "domain: messaging\ndescriptors:\n  # Only allow 5 marketing messages a day\n  - key: message_type\n    value: \
         marketing\n    descriptors:\n      - key: to_number\n        rate_limit:\n          unit: day\n          \
         requests_per_unit: 5\n\n  # Only allow 100 messages a day to any unique phone number\n  - key: to_number\n    \
         rate_limit:\n      unit: day\n      requests_per_unit: 100\n",
    );
    assert_eq!(
        slos(&two),
        [
            "6001 burst=0 rate=5/d law=fixed-window reset=calendar",
            "6002 burst=0 rate=100/d law=fixed-window reset=calendar"
        ]
    );
    assert_eq!(
        file(&two, "descriptor-reg.map"),
        "^messaging\\+message_type=marketing,to_number=[^,]*$ 6001\n^messaging\\+to_number=[^,]*$ 6002\n"
    );
    has_note(&two, "Each slowlane keeps its counts in its own memory");
    let three = imported(
        "domain: edge_proxy_per_ip\ndescriptors:\n  - key: remote_address\n    rate_limit:\n      unit: second\n      \
         requests_per_unit: 10\n\n  # Black list IP\n  - key: remote_address\n    value: 50.0.0.5\n    rate_limit:\n      \
         unit: second\n      requests_per_unit: 0\n",
    );
    assert_eq!(
        slos(&three),
        ["6001 burst=0 rate=0/s", "6002 burst=0 rate=10/s law=fixed-window reset=calendar"]
    );
    assert_eq!(file(&three, "descriptor.map"), "edge_proxy_per_ip+remote_address=50.0.0.5 6001\n");
    assert_eq!(file(&three, "descriptor-reg.map"), "^edge_proxy_per_ip\\+remote_address=[^,]*$ 6002\n");
    let five = imported(
        "domain: internal\ndescriptors:\n  - key: ldap\n    rate_limit:\n      unlimited: true\n\n  - key: azure\n    \
         rate_limit:\n      unit: minute\n      requests_per_unit: 100\n",
    );
    assert_eq!(
        slos(&five),
        ["7001 rate=unlimited", "6001 burst=0 rate=100/m law=fixed-window reset=calendar"]
    );
    let six = imported(
        "domain: example6\ndescriptors:\n  - key: service\n    descriptors:\n      - key: user\n        value: user-a\n        \
         rate_limit:\n          requests_per_unit: 10\n          unit: second\n        shadow_mode: true\n      - key: user\n        \
         value: user-b\n        rate_limit:\n          requests_per_unit: 20\n          unit: second\n",
    );
    assert_eq!(
        slos(&six),
        [
            "6001 burst=0 rate=10/s law=fixed-window reset=calendar dry_run=yes",
            "6002 burst=0 rate=20/s law=fixed-window reset=calendar"
        ]
    );
    assert_eq!(
        file(&six, "descriptor-reg.map"),
        "^example6\\+service=[^,]*,user=user-a$ 6001\n^example6\\+service=[^,]*,user=user-b$ 6002\n"
    );
    let nine = imported(
        "domain: example9\ndescriptors:\n  - key: key1\n    value: value*\n    rate_limit:\n      unit: minute\n      \
         requests_per_unit: 20\n",
    );
    assert_eq!(file(&nine, "descriptor-reg.map"), "^example9\\+key1=value[^,]*$ 6001\n");
}

/// Example 7.
#[test]
fn a_limit_of_envoy_replaces_another_by_its_name() {
    let written = imported(
        "domain: example7\ndescriptors:\n  - key: key_1\n    value: value_1\n    descriptors:\n      - key: user\n        value: \
         bkthomps\n        rate_limit:\n          name: specific_limit\n          requests_per_unit: 5\n          unit: second\n  - \
         key: key_2\n    value: value_2\n    descriptors:\n      - key: user\n        value: bkthomps\n        rate_limit:\n          \
         replaces:\n            - name: specific_limit\n          requests_per_unit: 10\n          unit: second\n",
    );
    assert_eq!(
        slos(&written),
        [
            "6001 burst=0 rate=5/s law=fixed-window reset=calendar name=specific_limit",
            "6002 burst=0 rate=10/s law=fixed-window reset=calendar replaces=specific_limit"
        ]
    );
    assert_eq!(written.omissions, []);
}

/// `nginx -T` prints each file once, by its path. A snippet holds where it is included.
#[test]
fn files_that_nginx_prints_hold_where_they_are_included() {
    let written = imported(
        "# configuration file /etc/nginx/nginx.conf:\nhttp { include zones; include sites/*.conf; }\n# configuration file \
         /etc/nginx/zones:\nlimit_req_zone $remote_addr zone=a:1m rate=1r/s;\n# configuration file \
         /etc/nginx/sites/a.conf:\nserver { server_name a.example; include limits; }\nserver { server_name b.example; location \
         /b/ { include limits; } }\n# configuration file /etc/nginx/limits:\nlimit_req zone=a;\n# configuration file \
         /etc/nginx/sites/.old.conf:\nlimit_req zone=a burst=9;\n",
    );
    assert_eq!(slos(&written), ["3001 burst=1 rate=1/s law=token-bucket"]);
    assert_eq!(file(&written, "website.map"), "a.example 3001\n");
    assert_eq!(file(&written, "website+path-prefix.map"), "b.example+/b/ 3001\n");
    assert!(file(&written, "slo.map").contains("# line 9: limit_req zone=a;\n"), "{written:#?}");
}

/// As `kubectl get configmaps -o yaml` prints it, beside another one. Lines are those of the whole.
#[test]
fn descriptors_of_envoy_are_read_from_a_configmap() {
    let written = imported(
        "kind: List\nitems:\n- kind: ConfigMap\n  data:\n    notes: \"a: [\"\n- kind: ConfigMap\n  data:\n    config.yaml: |\n      \
         domain: edge\n      descriptors:\n      - key: remote_address\n        rate_limit:\n          unit: minute\n          \
         requests_per_unit: 20\n",
    );
    assert_eq!(slos(&written), ["6001 burst=0 rate=20/m law=fixed-window reset=calendar"]);
    assert!(
        file(&written, "slo.map").contains("# line 11: edge: remote_address 20 per minute\n"),
        "{written:#?}"
    );
}

#[test]
fn a_file_without_limits_is_an_error() {
    assert_eq!(import("a text about something else", None), Err(ImportError::Unknown));
    assert_eq!(import("http {\n server { listen 80; }\n}\n", None), Err(ImportError::NoLimits));
    assert_eq!(
        import("frontend f\n http-request deny if { path /admin }\n", None),
        Err(ImportError::NoLimits)
    );
}
