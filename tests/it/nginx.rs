//! Tests with a real nginx and the shipped configuration files, and of the HTTP check for other proxies.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::backend::Backend;
use crate::support::client::{Client, Response};
use crate::support::eventually;
use crate::support::haproxy::replace;
use crate::support::load::Load;
use crate::support::nginx::Nginx;
use crate::support::slowlane::Slowlane;
use crate::support::spop::Line;

/// One SLO per website. `slow`: two at once, then 2/s. `queue`: one at once, then 100/s. `rare`: one per ten seconds. `rarer`: one
/// per fifteen seconds.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 burst=10000 rate=5000/s\n2001 burst=2 rate=2/s\n2002 burst=1 rate=1/m max_delay=1s\n\
         2003 burst=1 rate=100/s max_delay=30s\n2004 burst=1 rate=6/m max_delay=60s\n2005 burst=1 rate=40/s\n\
         2006 burst=1 rate=4/m max_delay=60s\n",
    ),
    (
        "website.map",
        "slow.example 2001\ndenied.example 2002\nqueue.example 2003\nrare.example 2004\nbusy.example 2005\n\
         rarer.example 2006\n",
    ),
];

/// An application, slowlane and nginx between them.
struct Scene {
    app: Backend,
    slowlane: Slowlane,
    nginx: Nginx,
}

impl Scene {
    fn shipped() -> Scene {
        Scene::with(|config| config)
    }

    fn with(edit: impl Fn(String) -> String) -> Scene {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let nginx = Nginx::with(&slowlane.http.to_string(), app.address, edit);
        Scene { app, slowlane, nginx }
    }

    /// A scene in which nginx accepts delays of any length.
    fn patient() -> Scene {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, |name, text| match name {
            "slowlane.conf" => replace(&text, "/check?max_delay=11s;", "/check;"),
            _ => text,
        });
        Scene { app, slowlane, nginx }
    }

    fn get(&self, host: &str, path: &str) -> Response {
        self.nginx.client().request("GET", path, &[("Host", host)], "")
    }

    fn verdicts(&self, labels: &str) -> f64 {
        self.slowlane.metric("slowlane_verdicts_total", labels)
    }

    fn wait_for(&self, metric: &str, number: f64) {
        eventually(metric, || (self.slowlane.metric(metric, "") >= number).then_some(()));
    }

    /// The delay that the next request for a website gets. Asking takes a slot.
    fn next_delay(&self, website: &str) -> Duration {
        let answer = self.slowlane.check("?hold=off", &[("X-Slowlane-Website", website)]);
        assert_eq!(answer.status, 204);
        let delay = answer.header("x-slowlane-delay").map_or(0, |delay| delay.parse().unwrap());
        Duration::from_millis(delay)
    }

    /// Starts clients that ask for a website at once.
    fn crowd(&self, clients: usize, website: &str) -> Vec<(Client, Instant)> {
        let ask = |_| {
            let mut client = self.nginx.client();
            let at = Instant::now();
            client.send("GET", "/", &[("Host", website)], "").unwrap();
            (client, at)
        };
        (0..clients).map(ask).collect()
    }

    /// Takes the slots of `requests` requests without a proxy, so the next request waits for all of them.
    fn queue(&self, website: &str, requests: u64) {
        let mut line = Line::greeted(self.slowlane.spop);
        for number in 1..=requests {
            line.ask(number, "192.0.2.1", website);
        }
    }
}

#[test]
fn requests_pass_wait_and_are_denied() {
    let scene = Scene::shipped();
    let mut client = scene.nginx.client();
    let mut get = |host: &str| client.request("GET", "/", &[("Host", host)], "");

    assert_eq!(get("free.example").body, "ok\n");
    assert_eq!(scene.verdicts("slo=\"0\",verdict=\"pass\""), 1.0);

    // Two at once and then 2/s: the fourth leaves a second after the first arrived, on any machine.
    let started = Instant::now();
    for host in ["slow.example", "SLOW.example:8080", "slow.example", "slow.example"] {
        assert_eq!(get(host).status, 200);
    }
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    assert!(scene.verdicts("slo=\"2001\",verdict=\"delay\"") >= 1.0);

    assert_eq!(get("denied.example").status, 200);
    let denied = get("denied.example");
    assert_eq!(denied.status, 429);
    let retry_after_s: u32 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((30..=59).contains(&retry_after_s), "{retry_after_s}");
    assert_eq!(scene.app.count(), 6, "the application did not see it");
}

#[test]
fn what_the_application_answers_comes_through_unchanged() {
    let scene = Scene::shipped();
    for status in [403, 401, 404, 429, 500, 503] {
        let response = scene.get("free.example", &format!("/status/{status}"));
        assert_eq!((response.status, response.body.as_str()), (status, "ok\n"));
        assert_eq!(response.header("retry-after"), None);
    }
    let body = "x".repeat(100_000);
    for method in ["POST", "PUT", "PATCH"] {
        let path = format!("/{method}");
        let response = scene.nginx.client().request(method, &path, &[("Host", "free.example")], &body);
        assert_eq!(response.status, 200);
        let seen = scene.app.saw(&path);
        assert_eq!((seen.method.as_str(), seen.body_bytes), (method, 100_000));
    }
    assert_eq!(scene.nginx.client().request("HEAD", "/", &[], "").body, "");
}

#[test]
fn an_upload_waits_before_its_body_is_sent_on() {
    let scene = Scene::shipped();
    let body = "x".repeat(100_000);
    let started = Instant::now();
    scene.queue("queue.example", 50);
    let response = scene.nginx.client().request("POST", "/upload", &[("Host", "queue.example")], &body);
    assert_eq!(response.status, 200);
    // A hundred a second after the first: the fifty-first goes on after half a second.
    let seen = scene.app.saw("/upload");
    assert!(seen.at - started >= Duration::from_millis(490), "{:?}", seen.at - started);
    assert_eq!(seen.body_bytes, 100_000);
}

#[test]
fn a_dead_agent_lets_everything_pass_and_a_restarted_one_decides_again() {
    let mut scene = Scene::shipped();
    let load = Load::start(4, scene.nginx.address, &["free.example", "busy.example"]);
    load.wait_for(20);
    scene.slowlane.kill();
    load.wait_for(40);
    assert_eq!(scene.get("denied.example", "/").status, 200);
    assert_eq!(scene.get("denied.example", "/").status, 200, "nobody is there to deny it");
    scene.slowlane = scene.slowlane.restarted();
    load.wait_for(20);
    eventually("verdicts come back", || (scene.get("denied.example", "/").status == 429).then_some(()));
    load.end_well();
}

#[test]
fn a_terminated_agent_answers_everything_first() {
    let mut scene = Scene::patient();
    let load = Load::start(4, scene.nginx.address, &["free.example"]);
    scene.queue("queue.example", 600);
    let crowd = scene.crowd(50, "queue.example");
    scene.wait_for("slowlane_holds", 50.0);
    let ending = Instant::now();
    scene.slowlane.process.signal("TERM");
    for (mut client, at) in crowd {
        assert_eq!(client.receive("GET", at).unwrap().status, 200);
    }
    // The delays are six seconds, and the agent ends after five at the latest.
    assert!(ending.elapsed() < Duration::from_millis(4_900), "{:?}", ending.elapsed());
    assert!(scene.slowlane.process.wait().success());
    load.wait_for(20);
    load.end_well();
}

#[test]
fn a_client_that_leaves_while_held_gives_its_slot_back() {
    let scene = Scene::patient();
    assert_eq!(scene.get("rare.example", "/").status, 200);
    let mut leaving = scene.crowd(1, "rare.example");
    scene.wait_for("slowlane_holds", 1.0);
    leaving.clear();
    scene.wait_for("slowlane_holds_abandoned_total", 1.0);
    assert_eq!(scene.slowlane.metric("slowlane_holds", ""), 0.0);
    // The second slot is ten seconds after the first, the third would be twenty.
    let delay = scene.next_delay("rare.example");
    assert!(delay <= Duration::from_secs(10), "{delay:?}");
    assert!(scene.next_delay("rare.example") > Duration::from_secs(10));
    assert_eq!(scene.app.count(), 1, "who has left is not served");
}

/// After twelve seconds, nginx gives up and lets the request pass. It is not counted then.
#[test]
fn what_nginx_would_not_wait_for_is_refused_and_takes_no_slot() {
    let scene = Scene::shipped();
    assert_eq!(scene.get("rarer.example", "/").status, 200);
    for _ in 0..3 {
        let refused = scene.get("rarer.example", "/");
        let retry_after: u32 = refused.header("retry-after").unwrap().parse().unwrap();
        // The slot is fifteen seconds after the first request, so after four more seconds it is near enough.
        assert!(refused.status == 429 && (1..=4).contains(&retry_after), "{retry_after}");
    }
    assert!(scene.next_delay("rarer.example") <= Duration::from_secs(15), "the slot is still free");
    assert_eq!((scene.app.count(), scene.verdicts("verdict=\"deny\"")), (1, 3.0));
}

/// Locations with internal redirects, after which nginx asks again.
const REDIRECTS: &str = "
        location /files/ { root /nonexistent; try_files $uri /elsewhere; }
        location /errors/ { root /nonexistent; error_page 404 = /elsewhere; }
        location = /index/ { alias /usr/; index missing /elsewhere; }
        location / {";

#[test]
fn a_request_that_nginx_redirects_within_counts_once() {
    let verdicts_for_each = |edit: &dyn Fn(String) -> String| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let edit = |name: &str, text: String| match name {
            "nginx.conf" => replace(&text, "\n        location / {", REDIRECTS),
            "slowlane.conf" => edit(text),
            _ => text,
        };
        let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, edit);
        ["/files/a", "/errors/a", "/index/"].map(|path| {
            let before = slowlane.metric("slowlane_verdicts_total", "");
            let response = nginx.client().request("GET", path, &[("Host", "free.example")], "");
            assert_eq!((response.status, response.body.as_str()), (200, "ok\n"), "{path}");
            slowlane.metric("slowlane_verdicts_total", "") - before
        })
    };
    assert_eq!(verdicts_for_each(&|text| text), [1.0, 1.0, 1.0]);
    // nginx did ask twice: without an id, the request counts twice.
    let id = "proxy_set_header X-Request-Id       $request_id;";
    assert_eq!(verdicts_for_each(&|text| replace(&text, id, "")), [2.0, 2.0, 2.0]);
}

/// After `error_page`, nginx goes on with GET.
#[test]
fn an_upload_that_nginx_redirects_within_counts_once() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let edit = |config: String| replace(&config, "\n        location / {", REDIRECTS);
    let nginx = Nginx::with(&slowlane.http.to_string(), app.address, edit);
    let answer = nginx.client().request("POST", "/errors/a", &[("Host", "free.example")], "");
    assert_eq!((answer.status, app.saw("/elsewhere").method), (200, "GET".to_owned()));
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 1.0);
}

/// The owner is what the client says, as Basic authentication without a list of users.
fn with_owner(variable: &str, slowlane: &Slowlane, app: &Backend) -> Nginx {
    Nginx::with_files(&slowlane.http.to_string(), app.address, |name, text| match name {
        "slowlane-upstream.conf" => {
            replace(&text, "default \"\";    #", &format!("default {variable};    #"))
        }
        "nginx.conf" => replace(&text, "http {", "http {\n    large_client_header_buffers 4 300k;"),
        _ => text,
    })
}

/// The header of Basic authentication for a user without a password.
fn basic(user: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = [user, b":"].concat();
    text.resize(text.len().next_multiple_of(3), b'x');
    let letters = text.chunks(3).flat_map(|three| {
        let bits = three.iter().fold(0, |bits, &byte| bits << 8 | usize::from(byte));
        [18, 12, 6, 0].map(|shift| char::from(LETTERS[bits >> shift & 63]))
    });
    format!("Basic {}", letters.collect::<String>())
}

#[test]
fn an_owner_that_no_header_can_carry_is_refused() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let nginx = with_owner("$remote_user", &slowlane, &app);
    let get = |user: &[u8]| {
        let headers = [("Host", "denied.example"), ("Authorization", &basic(user))];
        nginx.client().request("GET", "/", &headers, "").status
    };
    assert_eq!([get(b"bob"), get(b"bob")], [200, 429]);
    let smuggled = b"a\r\n\r\nGET /check HTTP/1.1\r\nHost: a\r\n\r\n";
    for user in [&b"a\x01b"[..], b"\x00", b"a\x7fb", b"a\rb", b"a\nb", b"a\r\nX-Slowlane-Cost: 0", smuggled] {
        for _ in 0..3 {
            assert_eq!(get(user), 403, "{}", user.escape_ascii());
        }
    }
    for user in [&b"caf\xC3\xA9"[..], b"a\xFFb", b"a\tb", b"a b", &[b'a'; 5_000]] {
        assert_eq!(get(user), 429, "{}", user.escape_ascii());
    }
    assert_eq!(app.count(), 1, "the application saw only the first");
    // Without an agent, too.
    drop(slowlane);
    assert_eq!([get(b"bob"), get(b"a\x01b")], [200, 403]);
}

/// A field of the operator's own, which the map in `slowlane-upstream.conf` does not check.
#[test]
fn what_slowlane_cannot_read_is_refused() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, |name, text| match name {
        "slowlane.conf" => {
            replace(&text, "X-Slowlane-Owner   $slowlane_owner;", "X-Slowlane-Owner $http_x_owner;")
        }
        "nginx.conf" => replace(&text, "http {", "http {\n    large_client_header_buffers 4 300k;"),
        _ => text,
    });
    let get = |owner: &str| {
        let headers = [("Host", "denied.example"), ("X-Owner", owner)];
        nginx.client().request("GET", "/", &headers, "").status
    };
    assert_eq!([get("bob"), get("bob")], [200, 429]);
    for owner in ["a\u{1}b", &"a".repeat(150_000), &"a".repeat(290_000)] {
        for _ in 0..3 {
            assert_eq!(get(owner), 403, "{} bytes", owner.len());
        }
    }
    assert_eq!(app.count(), 1);
}

/// nginx starts a subrequest at the rewrites of its server.
#[test]
fn rewrites_and_caches_of_a_server_do_not_reach_the_query() {
    let server = |lines: &'static str| ("include slowlane.conf;", format!("include slowlane.conf;\n{lines}"));
    let cache = "http {\nproxy_cache_path cache keys_zone=z:1m;\nproxy_cache z;\nproxy_cache_valid any 5m;";
    let edits = [
        server("if (!-e $request_filename) { rewrite ^/(.*)$ /index.php?q=$1 last; }"),
        server("rewrite ^/(.*)$ /app/$1 break;"),
        server("rewrite ^([^.]*[^/])$ $1/ permanent;"),
        server("if ($uri !~ ^/app) { return 404; }"),
        server("proxy_store on; root cache;"),
        ("http {", cache.to_owned()),
    ];
    for (what, with) in edits {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let nginx = Nginx::with(&slowlane.http.to_string(), app.address, |text| replace(&text, what, &with));
        let get = |path: &str| nginx.client().request("GET", path, &[("Host", "denied.example")], "").status;
        assert_eq!([get("/app/1/"), get("/app/2/")], [200, 429], "{with}");
        assert_eq!(app.count(), 1, "{with}");
        get("/slowlane-check");
        assert_eq!(app.count(), 1, "nobody asks from outside: {with}");
    }
}

/// The mistake of an operator: nginx does not take a 429 as an answer.
#[test]
fn a_wrong_query_lets_nothing_pass() {
    for query in ["deny=429&max_delay=6s", "deny=503", "max_delay=6"] {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, |name, text| match name {
            "slowlane.conf" => replace(&text, "/check?max_delay=11s;", &format!("/check?{query};")),
            _ => text,
        });
        let get = || nginx.client().request("GET", "/", &[("Host", "denied.example")], "").status;
        get();
        assert!((0..3).all(|_| [403, 429].contains(&get())), "{query}");
    }
}

#[test]
fn a_dead_agent_costs_few_lines_in_the_error_log() {
    let mut scene = Scene::shipped();
    let mut client = scene.nginx.client();
    let mut get = |times| {
        for _ in 0..times {
            assert_eq!(client.request("GET", "/", &[("Host", "free.example")], "").status, 200);
        }
    };
    get(1);
    scene.slowlane.kill();
    let started = Instant::now();
    get(900);
    // Five failures, then one try in each second.
    let lines = scene.nginx.error_log();
    assert!(
        lines.len() as u64 <= 5 + 2 * (started.elapsed().as_secs() + 1),
        "{} lines: {}",
        lines.len(),
        lines[0]
    );
    scene.slowlane = scene.slowlane.restarted();
    eventually("verdicts come back", || (scene.get("denied.example", "/").status == 429).then_some(()));
}

#[test]
fn the_connection_to_the_agent_is_kept() {
    let scene = Scene::shipped();
    let mut client = scene.nginx.client();
    for _ in 0..100 {
        assert_eq!(client.request("GET", "/", &[("Host", "free.example")], "").status, 200);
    }
    for _ in 0..20 {
        client.request("GET", "/", &[("Host", "denied.example")], "");
    }
    assert_eq!(scene.verdicts(""), 120.0);
    // A client stays with one worker, which asks one question at a time for that client.
    let connections = scene.slowlane.metric("slowlane_connections_accepted_total", "http");
    assert!(connections <= 3.0, "{connections} connections for 120 questions");
}

#[test]
fn two_hundred_wait_at_once_and_each_gets_its_turn() {
    let scene = Scene::shipped();
    let started = Instant::now();
    scene.queue("queue.example", 200);
    let crowd = scene.crowd(200, "queue.example");
    scene.wait_for("slowlane_holds", 150.0);
    for (mut client, at) in crowd {
        assert_eq!(client.receive("GET", at).unwrap().status, 200);
    }
    // At 100/s without gaps, all 400 requests are through after 4 s.
    let last = scene.app.seen().iter().map(|seen| seen.at).max().unwrap();
    assert!(last - started >= Duration::from_millis(3_990), "{:?}", last - started);
}

#[test]
fn nginx_asks_over_a_unix_socket_as_well() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let agent = format!("unix:{}", slowlane.socket("http").display());
    // Only the owner and group may use the socket, and workers started by root would be another user.
    let edit = |config: String| replace(&config, "# user www-data;", "user root root;");
    let nginx = Nginx::with(&agent, app.address, edit);
    let get = |host| nginx.client().request("GET", "/", &[("Host", host)], "").status;
    assert_eq!((get("denied.example"), get("denied.example")), (200, 429));
    assert_eq!(slowlane.metric("slowlane_verdicts_total", "slo=\"2002\""), 2.0);
}

#[test]
fn any_proxy_may_ask_over_http() {
    let mut slowlane = Slowlane::with_policy(POLICY);
    let check = |query: &str, website: &str| slowlane.check(query, &[("X-Slowlane-Website", website)]);

    let pass = check("", "denied.example");
    assert_eq!((pass.status, pass.header("x-slowlane-verdict")), (204, Some("pass")));
    assert_eq!((pass.header("x-slowlane-slo"), pass.header("retry-after")), (Some("2002"), None));
    for (query, status) in [("", 403), ("?deny=429", 429), ("?hold=off&deny=429", 429), ("?hold=off", 403)] {
        let deny = check(query, "denied.example");
        assert_eq!((deny.status, deny.header("x-slowlane-verdict")), (status, Some("deny")), "{query}");
        assert!(deny.header("retry-after").unwrap().parse::<u32>().unwrap() > 30);
        assert_eq!((deny.body.as_str(), deny.header("content-length")), ("", Some("0")));
    }

    assert_eq!(check("?hold=off", "rare.example").header("x-slowlane-delay"), None);
    let delay = check("?hold=off", "rare.example");
    assert_eq!((delay.status, delay.header("x-slowlane-verdict")), (204, Some("delay")));
    let delay_ms: u32 = delay.header("x-slowlane-delay").unwrap().parse().unwrap();
    assert!((1..=10_000).contains(&delay_ms), "{delay_ms}");

    for query in ["?deny=503", "?hold=off&max_delay=abc", "?maxdelay=6s", "?hold=off&hold=off"] {
        let refused = check(query, "denied.example");
        assert!(refused.status == 400 && refused.body.contains(": expected "), "{query}: {}", refused.body);
    }

    let unknown = crate::support::client::get(slowlane.http, "/elsewhere", &[]);
    assert_eq!(unknown.status, 404);
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 7.0, "which is no question");
    slowlane.process.logged(
        "a proxy queried /check with an invalid query string, and got 400: \"deny=503\": expected deny=",
    );
}

#[test]
fn an_id_repeats_the_answer_to_the_same_question_only() {
    let slowlane = Slowlane::with_policy(POLICY);
    let check = |query: &str, id: &str, website: &str, source: &str| {
        let headers = [("X-Request-Id", id), ("X-Slowlane-Website", website), ("X-Slowlane-Source", source)];
        slowlane.check(query, &headers).status
    };
    assert_eq!(check("", "1", "free.example", "192.0.2.1"), 204);
    assert_eq!(check("", "1", "denied.example", "192.0.2.1"), 204);
    for (query, source) in [("", "192.0.2.2"), ("?hold=on", "192.0.2.1"), ("", "192.0.2.3")] {
        assert_eq!(check(query, "1", "denied.example", source), 403, "{query} {source}");
    }
    assert_eq!(check("", "1", "denied.example", "192.0.2.1"), 204, "the same question");
}

/// nginx redirects a request ten times at most.
#[test]
fn an_id_repeats_an_answer_ten_times() {
    let slowlane = Slowlane::with_policy(POLICY);
    let ask =
        || slowlane.check("", &[("X-Request-Id", "1"), ("X-Slowlane-Website", "denied.example")]).status;
    assert_eq!((0..200).filter(|_| ask() == 204).count(), 11);
}

#[test]
fn a_refused_hold_is_refused_again_and_taken_back_once() {
    let slowlane = Slowlane::with_config(POLICY, "[hold]\nmax = 0\nwhen_full = \"deny\"\n");
    let ask = |id| slowlane.check("", &[("X-Request-Id", id), ("X-Slowlane-Website", "rare.example")]);
    assert_eq!(ask("1").status, 204);
    for _ in 0..3 {
        let refused = ask("2");
        assert_eq!((refused.status, refused.header("x-slowlane-verdict")), (403, Some("deny")));
    }
    assert_eq!(slowlane.metric("slowlane_holds_refused_total", ""), 1.0);
}

#[test]
fn a_hold_whose_client_left_is_no_answer() {
    let slowlane = Slowlane::with_policy(POLICY);
    let headers = [("X-Request-Id", "1"), ("X-Slowlane-Website", "rare.example")];
    let counted = || slowlane.metric("slowlane_verdicts_total", "slo=\"2004\"");
    assert_eq!(slowlane.check("", &headers[1..]).status, 204);
    let mut leaving = Client::connect(slowlane.http);
    leaving.send("GET", "/check", &headers, "").unwrap();
    eventually("the hold", || (slowlane.metric("slowlane_holds", "") == 1.0).then_some(()));
    drop(leaving);
    eventually("the client left", || {
        (slowlane.metric("slowlane_holds_abandoned_total", "") == 1.0).then_some(())
    });
    let mut again = Client::connect(slowlane.http);
    again.send("GET", "/check", &headers, "").unwrap();
    eventually("the hold", || (slowlane.metric("slowlane_holds", "") == 1.0).then_some(()));
    assert_eq!(counted(), 3.0);
}

#[test]
fn an_address_may_have_its_port() {
    let policy = [
        ("slo.map", "0 burst=9 rate=9/s\n3001 burst=9 rate=9/s\n"),
        ("source.map", "192.0.2.0/24 3001\n2001:db8::/32 3001\n"),
    ];
    let slowlane = Slowlane::with_policy(&policy);
    for source in ["192.0.2.1", "192.0.2.1:1234", "[2001:db8::1]:443", "[::ffff:192.0.2.1]:1"] {
        let answers = [
            slowlane.check("", &[("X-Slowlane-Source", source)]),
            slowlane.check("?deny=429", &[("X-Forwarded-For", &format!("198.51.100.1, {source}"))]),
        ];
        for answer in answers {
            assert_eq!(answer.header("x-slowlane-slo"), Some("3001"), "{source}");
        }
    }
    // One customer, whatever the port: the burst of nine is used up.
    let left = |port: u16| {
        let source = format!("192.0.2.7:{port}");
        let answer = slowlane.check("?hold=off", &[("X-Slowlane-Source", &source)]);
        answer.header("x-slowlane-remaining").unwrap().parse::<u32>().unwrap()
    };
    assert!(left(1) > left(2));
}

/// A client that uses up nginx's connections would otherwise take every limit out of force.
#[test]
fn no_request_passes_because_nginx_has_no_connection_left_to_ask() {
    let mut refused = 0;
    for connections in 40..52 {
        let scene = Scene::with(|config| {
            let one = replace(&config, "worker_processes auto", "worker_processes 1");
            let few = format!("worker_connections {connections}");
            let few = replace(&one, "worker_connections 4096", &few);
            // What nginx serves itself needs no connection but the client's.
            let gifs =
                "location = /gif { empty_gif; }\n        location = /open { auth_request off; empty_gif; }";
            replace(&few, "location / {", &format!("{gifs}\n        location / {{"))
        });
        // Connections with half a request cannot be closed to make room. The answer to the one before it says that nginx
        // has read it.
        let half = b"GET /open HTTP/1.1\r\nHost: a\r\n\r\nGET /gif HTTP/1.1\r\nHost: denied.example\r\n";
        let sent = Instant::now();
        let begun = |_| {
            let mut stream = TcpStream::connect(scene.nginx.address).ok()?;
            stream.write_all(half).ok()?;
            let mut client = Client::over(stream).ok()?;
            client.receive("GET", sent).ok().map(|_| client)
        };
        let mut clients: Vec<Client> = (0..40).filter_map(begun).collect();
        // No answer yet: each check needs a connection of its own.
        scene.slowlane.process.stop();
        clients.retain_mut(|client| client.send_rest("\r\n").is_ok());
        let has_none = |line: &String| line.contains("worker_connections are not enough");
        eventually("nginx has no connection left", || {
            scene.nginx.error_log().iter().any(has_none).then_some(())
        });
        scene.slowlane.process.signal("CONT");
        let answers = clients.iter_mut().filter_map(|client| client.receive("GET", sent).ok());
        let statuses: Vec<u16> = answers.map(|answer| answer.status).collect();
        let passed = statuses.iter().filter(|&&status| status == 200).count();
        assert!(passed <= 1, "one per minute, with {connections} connections: {statuses:?}");
        refused += statuses.iter().filter(|&&status| status == 403).count();
    }
    assert!(refused > 0, "nginx had connections to spare");
}

#[test]
fn the_length_of_a_body_is_for_the_location_to_judge() {
    let scene = Scene::with(|config| {
        replace(&config, "location / {", "location / {\n            client_max_body_size 8m;")
    });
    let body = "x".repeat(3 << 20);
    assert_eq!(
        scene.nginx.client().request("POST", "/upload", &[("Host", "free.example")], &body).status,
        200
    );
    assert_eq!(scene.app.saw("/upload").body_bytes, 3 << 20);
}
