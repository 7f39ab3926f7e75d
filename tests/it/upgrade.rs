//! Upgrades of a real slowlane: a new process takes over, under load and in the middle of things.

use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::cli::ran;
use crate::support::backend::Backend;
use crate::support::client::{self, Client, Response};
use crate::support::eventually;
use crate::support::haproxy::Version::{V2_6, V3_2, V3_4};
use crate::support::haproxy::{Delivery, Haproxy, each, replace, showing_verdicts_patiently};
use crate::support::load::Load;
use crate::support::nginx::Nginx;
use crate::support::slowlane::{BINARY, Slowlane, signal};
use crate::support::spop::{Heard, Line, hold, request};

const QUOTA: usize = 1_500;

/// `quota.example` has a quota of the day, with an auxiliary state; `paced.example` one request in four seconds.
fn policy() -> [(&'static str, String); 2] {
    let slos = format!(
        "0 rate=unlimited\n2001 burst={QUOTA} rate={QUOTA}/d law=sliding-log\n2002 burst=1 rate=15/m max_delay=60s\n"
    );
    [("slo.map", slos), ("website.map", "quota.example 2001\npaced.example 2002\n".to_owned())]
}

fn slowlane(config: &str) -> Slowlane {
    let policy = policy();
    Slowlane::with_config(&policy.each_ref().map(|(name, text)| (*name, text.as_str())), config)
}

fn own_program(config: &str) -> Slowlane {
    let policy = policy();
    Slowlane::with_own_program(&policy.each_ref().map(|(name, text)| (*name, text.as_str())), config)
}

/// Clients ask through a proxy while one process after the other takes over. The quota is admitted exactly: a request
/// without a verdict would pass beside it, and so would one whose count was lost.
fn admits_exactly(slowlane: &mut Slowlane, proxy: std::net::SocketAddr) {
    const UPGRADES: usize = 20;
    let load = Load::start(8, proxy, &["quota.example"]);
    for _ in 0..UPGRADES {
        load.wait_for(QUOTA / (2 * UPGRADES));
        slowlane.upgrade();
    }
    load.wait_for(2 * QUOTA);
    let answers: Vec<Response> = load.end().into_iter().flatten().map(Result::unwrap).collect();
    let with = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((with(200), with(200) + with(429)), (QUOTA, answers.len()));
    assert!(answers.len() > 2 * QUOTA);
}

#[test]
fn through_haproxy_twenty_upgrades_lose_no_count() {
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Hold), (V3_4, Delivery::Hold)], |version, delivery| {
        let (mut slowlane, app) = (slowlane(""), Backend::start());
        let agent = slowlane.spop.to_string();
        let Some(haproxy) = Haproxy::with(version, delivery, &agent, app.address, showing_verdicts_patiently)
        else {
            return;
        };
        admits_exactly(&mut slowlane, haproxy.address);
    });
}

#[test]
fn through_nginx_twenty_upgrades_lose_no_count() {
    let (mut slowlane, app) = (slowlane(""), Backend::start());
    let nginx = Nginx::shipped(&slowlane.http.to_string(), app.address);
    admits_exactly(&mut slowlane, nginx.address);
}

/// A proxy asks, another process takes over, and the proxy asks again with the same id.
#[test]
fn a_repeated_question_counts_once_across_an_upgrade() {
    let mut slowlane = slowlane("");
    let ask = |slowlane: &Slowlane, id: &str| {
        slowlane.check("?hold=off", &[("X-Request-Id", id), ("X-Slowlane-Website", "paced.example")])
    };
    let delay = |answer: Response| answer.header("x-slowlane-delay").map(|text| text.parse::<u32>().unwrap());
    assert_eq!(delay(ask(&slowlane, "1")), None);
    let first = delay(ask(&slowlane, "2")).expect("it is to wait");
    slowlane.upgrade();
    let again = delay(ask(&slowlane, "2")).expect("it still is");
    assert!(again <= first, "{again} ms after {first} ms");
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 0.0, "nobody has decided again");
    assert!(delay(ask(&slowlane, "3")) > Some(again), "another request is counted");
}

/// The application fails, so nginx asks again for the location that answers instead. The first answer was held by the old
/// process, the second question goes to the new one.
#[test]
fn a_request_that_nginx_redirects_within_counts_once_across_an_upgrade() {
    let (mut slowlane, app) = (slowlane(""), Backend::start());
    let failing = TcpListener::bind("127.0.0.1:0").unwrap();
    let location = format!(
        "\n        location /gone/ {{ proxy_pass http://{}; error_page 502 = /elsewhere; }}\n        location / {{",
        failing.local_addr().unwrap()
    );
    let nginx = Nginx::with(&slowlane.http.to_string(), app.address, |config| {
        replace(&config, "\n        location / {", &location)
    });
    let host = [("Host", "paced.example")];
    assert_eq!(nginx.client().request("GET", "/", &host, "").status, 200);
    let (mut client, asked_at) = (nginx.client(), Instant::now());
    client.send("GET", "/gone/", &host, "").unwrap();
    eventually("it is held", || (slowlane.metric("slowlane_holds", "") == 1.0).then_some(()));
    slowlane.upgrade();
    drop(failing.accept().unwrap());
    assert_eq!(client.receive("GET", asked_at).unwrap().status, 200);
    assert_eq!(app.saw("/elsewhere").method, "GET");
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 0.0, "the new process has decided nothing");
}

#[test]
fn a_connection_goes_on_where_it_was() {
    let mut slowlane = slowlane("");
    let mut line = Line::greeted(slowlane.spop);
    // A hold, and half of a question.
    let asked_at = Instant::now();
    line.say(&hold(7, 1_500));
    let question = request(8, "192.0.2.1", "any.example");
    line.say(&question[..9]);
    let mut silent = Line::silent(slowlane.spop);
    // The answer to a question after the hold says that the hold has been read.
    let mut other = Line::greeted(slowlane.spop);
    other.ask(1, "192.0.2.1", "any.example");
    eventually("the hold is read", || (slowlane.metric("slowlane_holds", "") == 1.0).then_some(()));

    let before = slowlane.process.id();
    assert_ne!(slowlane.upgrade(), before);
    slowlane.process.wait();
    eventually("the hold goes on", || (slowlane.metric("slowlane_holds", "") == 1.0).then_some(()));
    line.say(&question[9..]);
    assert!(matches!(line.hear(), Heard::Ack { stream_id: 8, .. }));
    assert!(matches!(line.hear(), Heard::Ack { stream_id: 7, .. }));
    assert!(asked_at.elapsed() >= Duration::from_millis(1_500));
    silent.say(&crate::support::spop::hello());
    assert_eq!(silent.hear(), Heard::Hello);
    let asked = other.ask(2, "192.0.2.1", "any.example");
    assert_eq!(asked.variable("verdict"), Some("pass"));
}

#[test]
fn a_held_check_is_answered_in_time_and_its_connection_is_closed() {
    let mut slowlane = slowlane("");
    let paced = [("X-Slowlane-Website", "paced.example")];
    let mut idle = Client::connect(slowlane.http);
    assert_eq!(idle.request("GET", "/check", &paced, "").status, 204);
    let mut held = Client::connect(slowlane.http);
    let asked_at = Instant::now();
    held.send("GET", "/check", &paced, "").unwrap();
    let mut gone = Client::connect(slowlane.http);
    eventually("it is held", || (slowlane.metric("slowlane_holds", "") == 1.0).then_some(()));
    gone.send("GET", "/check", &paced, "").unwrap();
    eventually("both are held", || (slowlane.metric("slowlane_holds", "") == 2.0).then_some(()));

    slowlane.upgrade();
    // The slot of a client that leaves is free again, also when the old process still held its answer.
    drop(gone);
    // Asked now, a request waits for the rest of the held one's slot and for one of its own: eight seconds, and not twelve.
    eventually("its slot is free", || (delay_of(&slowlane, "paced.example") <= 8_000).then_some(()));
    let answer = held.receive("GET", asked_at).unwrap();
    assert_eq!((answer.status, answer.header("connection")), (204, Some("close")));
    assert!(asked_at.elapsed() >= Duration::from_millis(3_500));
    slowlane.process.wait();
    // This one waited for nothing, and goes on.
    assert_eq!(idle.request("GET", "/check?hold=off", &[], "").status, 204);
}

/// The delay that a request would get, in milliseconds. Nothing is counted.
fn delay_of(slowlane: &Slowlane, website: &str) -> u64 {
    let why = client::get(
        slowlane.admin,
        &format!("/api/why?website={website}"),
        &[("Accept", "application/json")],
    );
    let why: serde_json::Value = serde_json::from_str(&why.body).unwrap();
    why["delay"].as_u64().unwrap()
}

#[test]
fn a_program_that_does_not_come_up_leaves_the_old_one_serving() {
    let mut slowlane = own_program("");
    let mut line = Line::greeted(slowlane.spop);
    let mut client = Client::connect(slowlane.http);
    let programs: [(&str, &str); 4] = [
        ("exit 3", "did not start"),
        ("echo hello >&0; sleep 9", "did not start"),
        // It says Hello, of another version.
        (r"printf '\002\000\000\000\000\011' >&0; sleep 9", "not a slowlane that can take over"),
        // It says Hello, Built and Restored, and ends once the old one has stopped deciding.
        (
            r"printf '\002\000\000\000\000\005\001\000\000\000\003\001\000\000\000\005' >&0; exec sleep 0.2",
            "did not start",
        ),
    ];
    for (script, failure) in programs {
        slowlane.replace_program_by(script);
        let outcome = ran(&["upgrade", "--admin", &slowlane.admin.to_string()]);
        assert_eq!(outcome.code, 1, "{script}: {}", outcome.out);
        assert!(
            outcome.problems.iter().any(|line| line.contains(failure)),
            "{script}: {:?}",
            outcome.problems
        );
        assert_eq!(line.ask(1, "192.0.2.1", "any.example").variable("verdict"), Some("pass"), "{script}");
        assert_eq!(client.request("GET", "/check", &[], "").status, 204, "{script}");
        assert_eq!(client::get(slowlane.admin, "/readyz", &[]).status, 200, "{script}");
        assert!(slowlane.process.is_running());
    }
    // It says Hello and Built, and reads nothing of a table that no socket buffers.
    for part in 0..40 {
        let keys =
            (0..500).map(|host| (part * 500 + host, format!("192.{}.{}.{}", part, host / 250, host % 250)));
        let questions: Vec<u8> =
            keys.flat_map(|(number, source)| request(number, &source, "any.example")).collect();
        line.say(&questions);
        (0..500).for_each(|_| assert!(matches!(line.hear(), Heard::Ack { .. })));
    }
    slowlane.replace_program_by(
        "printf '\\002\\000\\000\\000\\000\\005\\001\\000\\000\\000\\003' >&0; exec sleep 60",
    );
    let outcome = ran(&["upgrade", "--admin", &slowlane.admin.to_string()]);
    assert!(outcome.problems.iter().any(|line| line.contains("did not start")), "{:?}", outcome.problems);
    assert_eq!(line.ask(1, "192.0.2.1", "any.example").variable("verdict"), Some("pass"));
    // A config with a mistake, found by the new process.
    slowlane.replace_program(BINARY);
    let config = slowlane.folder().join("slowlane.toml");
    fs::write(&config, "[spop]\nlisten = 5\n").unwrap();
    assert_eq!(ran(&["upgrade", "--admin", &slowlane.admin.to_string()]).code, 1);
    assert_eq!(line.ask(1, "192.0.2.1", "any.example").variable("verdict"), Some("pass"));

    fs::write(&config, "").unwrap();
    slowlane.upgrade();
    assert_eq!(line.ask(1, "192.0.2.1", "any.example").variable("verdict"), Some("pass"));
    assert_eq!(client.request("GET", "/check", &[], "").status, 204);
}

#[test]
fn the_command_tells_of_the_new_process() {
    let mut slowlane = slowlane("[state]\nfile = \"state\"\n");
    let ask = |slowlane: &Slowlane| slowlane.check("", &[("X-Slowlane-Website", "quota.example")]).status;
    for _ in 0..QUOTA - 1 {
        assert_eq!(ask(&slowlane), 204);
    }
    let refused =
        Client::connect(slowlane.admin).request("POST", "/api/upgrade", &[("Origin", "http://x")], "");
    assert_eq!(refused.status, 403, "no page may do it");
    assert_eq!(client::get(slowlane.admin, "/api/upgrade", &[]).status, 405);

    let outcome = ran(&["upgrade", "--admin", &slowlane.admin.to_string()]);
    assert_eq!(outcome.code, 0, "{:?}", outcome.problems);
    assert!(outcome.out.contains(" has taken over; decisions were paused for "), "{}", outcome.out);
    let next: u32 = outcome.out.split(' ').nth(1).unwrap().parse().unwrap();
    slowlane.process.wait();
    slowlane.adopt(next);
    assert_eq!([ask(&slowlane), ask(&slowlane)], [204, 403]);
    // The Unix socket is the new process's: the old one has not removed it.
    assert!(slowlane.socket("http").exists());
    // The state at its end is that of the new process.
    signal(next, "TERM");
    eventually("it ends", || (!slowlane.socket("http").exists()).then_some(()));
    eventually("the state is written", || slowlane.folder().join("state").exists().then_some(()));
    slowlane.restart();
    assert_eq!(ask(&slowlane), 403);
}
