//! Tests with a real HAProxy and the shipped configuration files.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use slowlane_core::base::{HOLD_SHIPPED, Key, KeyHasher};

use crate::support::backend::Backend;
use crate::support::client::{Client, Response};
use crate::support::haproxy::Version::{V2_6, V3_2, V3_4};
use crate::support::haproxy::{
    CONFIG, Delivery, EACH_DELIVERY, Haproxy, VerdictHeaders, Version, each, replace,
};
use crate::support::haproxy::{showing_verdicts, showing_verdicts_patiently};
use crate::support::load::Load;
use crate::support::slowlane::Slowlane;
use crate::support::spop::{Line, hold};
use crate::support::{eventually, free_port, key_hasher, project, skipped};

/// One SLO per website. `slow`: two at once, then 2/s. `queue`: one at once, then 200/s. `busy`: 40/s.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 burst=10000 rate=5000/s\n2001 burst=2 rate=2/s\n2002 burst=1 rate=1/m max_delay=1s\n\
         2003 burst=1 rate=200/s max_delay=30s\n2004 burst=1 rate=40/s\n",
    ),
    ("website.map", "slow.example 2001\ndenied.example 2002\nqueue.example 2003\nbusy.example 2004\n"),
];

/// HAProxy counts time in milliseconds, so a wait may be up to a tick shorter.
const TICK: Duration = Duration::from_millis(2);

/// An application, slowlane and HAProxy between them.
struct Scene {
    app: Backend,
    slowlane: Slowlane,
    haproxy: Haproxy,
}

impl Scene {
    /// The shipped HAProxy configuration, but it reports its variables and has a long timeout for verdicts.
    fn patient(version: Version, delivery: Delivery, policy: &[(&str, &str)]) -> Scene {
        Scene::with(version, delivery, policy, showing_verdicts_patiently)
    }

    /// The shipped HAProxy configuration, but it reports its variables.
    fn showing_verdicts(version: Version, delivery: Delivery) -> Scene {
        Scene::with(version, delivery, POLICY, showing_verdicts)
    }

    fn with(
        version: Version,
        delivery: Delivery,
        policy: &[(&str, &str)],
        edit: impl Fn(&str, String) -> String,
    ) -> Scene {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(policy));
        let agent = slowlane.spop.to_string();
        let mut haproxy = Haproxy::with(version, delivery, &agent, app.address, edit).unwrap();
        haproxy.wait_for_agent("UP");
        Scene { app, slowlane, haproxy }
    }

    fn get(&self, host: &str) -> Response {
        self.haproxy.client().request("GET", "/", &[("Host", host)], "")
    }

    /// The variables after a GET with these headers.
    fn outcome(&self, headers: &[(&str, &str)]) -> VerdictHeaders {
        VerdictHeaders::by(&self.haproxy.client().request("GET", "/", headers, ""))
    }

    /// Takes the slots of `requests` requests without a proxy, so the next request waits for all of them.
    fn queue(&self, website: &str, requests: u64) {
        let mut line = Line::greeted(self.slowlane.spop);
        for number in 1..=requests {
            line.ask(number, "192.0.2.1", website);
        }
    }

    /// Starts clients that ask for a website at once.
    fn crowd(&self, clients: usize, website: &str) -> Crowd {
        let ask = |number| {
            let mut client = self.haproxy.client();
            let at = Instant::now();
            client.send("GET", &format!("/crowd/{number}"), &[("Host", website)], "").unwrap();
            (client, at)
        };
        Crowd((0..clients).map(ask).collect())
    }

    /// Whether the queue has counted this many requests and, if slowlane holds, this many answers are held.
    fn crowd_waits(&self, delivery: Delivery, requests: usize, holds: usize) -> bool {
        let reached = |name, labels, number| self.slowlane.metric(name, labels) as usize >= number;
        reached("slowlane_verdicts_total", "slo=\"2003\"", requests)
            && (delivery != Delivery::Hold || reached("slowlane_holds", "", holds))
    }

    fn wait_for_crowd(&self, delivery: Delivery, requests: usize, holds: usize) {
        eventually("the crowd waits", || self.crowd_waits(delivery, requests, holds).then_some(()));
    }
}

/// Clients that wait for answers, each on its own connection.
struct Crowd(Vec<(Client, Instant)>);

impl Crowd {
    fn answers(self) -> Vec<Response> {
        let answer = |(mut client, at): (Client, Instant)| client.receive("GET", at).unwrap();
        let responses: Vec<_> = self.0.into_iter().map(answer).collect();
        assert!(responses.iter().all(|response| response.status == 200), "{responses:?}");
        responses
    }
}

/// Asks until the delay is long enough to measure. On a slow machine, a slot may pass between two requests.
fn delayed(mut ask: impl FnMut() -> Response) -> (Response, Duration) {
    let mut attempts = (0..100).map(|_| ask());
    let found = attempts.find_map(|response| {
        let outcome = VerdictHeaders::by(&response);
        assert_eq!(response.status, 200);
        (outcome.is("delay") && outcome.delay > Duration::from_millis(50))
            .then_some((response, outcome.delay))
    });
    found.expect("one of a hundred requests in a row is delayed")
}

fn key(kind: u16, parts: impl FnOnce(&mut KeyHasher) -> &mut KeyHasher) -> Option<i64> {
    let key: Key = parts(&mut key_hasher(kind, "burst=1 rate=1/s")).finish();
    Some(key.bits() as i64)
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn requests_pass_wait_and_are_denied() {
    each(EACH_DELIVERY, |version, delivery| {
        let scene = Scene::patient(version, delivery, POLICY);
        let slowlane = &scene.slowlane;
        let mut client = scene.haproxy.client();
        let mut get = |host| client.request("GET", "/", &[("Host", host)], "");

        assert_eq!(get("free.example").status, 200);
        assert_eq!(slowlane.metric("slowlane_verdicts_total", "slo=\"0\",verdict=\"pass\""), 1.0);

        // Two at once and then 2/s: the fourth leaves a second after the first arrived, on any machine.
        let started = Instant::now();
        for host in ["slow.example", "SLOW.example:8080", "slow.example", "slow.example"] {
            assert_eq!(get(host).status, 200);
        }
        assert!(started.elapsed() >= Duration::from_secs(1) - TICK, "{:?}", started.elapsed());
        assert!(slowlane.metric("slowlane_verdicts_total", "slo=\"2001\",verdict=\"delay\"") >= 1.0);

        assert_eq!(get("denied.example").status, 200);
        let denied = get("denied.example");
        assert_eq!(denied.status, 429);
        let retry_after_s: u32 = denied.header("retry-after").unwrap().parse().unwrap();
        assert!((30..=59).contains(&retry_after_s), "{retry_after_s}");
    });
}

/// From 3.3 on, `option abortonclose` is the default. It would end the query of such a client, and now and then, its request
/// would reach the application uncounted.
#[test]
fn a_client_that_leaves_is_counted_and_one_that_closes_its_side_waits() {
    each(EACH_DELIVERY, |version, delivery| {
        let scene = Scene::patient(version, delivery, POLICY);
        let counted = |slo| scene.slowlane.metric("slowlane_verdicts_total", slo);
        let ask = |website: &str| {
            let mut stream = TcpStream::connect(scene.haproxy.address).unwrap();
            write!(stream, "GET / HTTP/1.1\r\nHost: {website}\r\n\r\n").unwrap();
            stream
        };
        // Two at once and then 2/s, as for clients that stay. After that, the backend may still refuse them.
        let started = Instant::now();
        for number in 1..=4 {
            let (mut stream, mut response) = (ask("slow.example"), String::new());
            stream.shutdown(Shutdown::Write).unwrap();
            stream.read_to_string(&mut response).unwrap();
            assert_eq!(counted("slo=\"2001\""), f64::from(number), "{response}");
        }
        assert!(started.elapsed() >= Duration::from_secs(1) - TICK, "{:?}", started.elapsed());
        (0..50).for_each(|_| drop(ask("free.example")));
        eventually("all are counted", || (counted("slo=\"0\"") == 50.0).then_some(()));
    });
}

/// slowlane, and not HAProxy, reads the host in the Host header.
#[test]
fn every_spelling_of_a_host_is_one_website() {
    each(EACH_DELIVERY, |version, delivery| {
        let scene = Scene::patient(version, delivery, POLICY);
        let plain = scene.outcome(&[("Host", "busy.example")]);
        assert_eq!(plain.slo, Some(2004));
        for host in ["BUSY.example", "busy.example:8080", "busy.example.", "Busy.Example.:80"] {
            let outcome = scene.outcome(&[("Host", host)]);
            assert_eq!((outcome.slo, outcome.key), (plain.slo, plain.key), "{host}");
        }
    });
}

#[test]
fn an_upload_reaches_the_application_at_once_and_its_answer_waits() {
    each(EACH_DELIVERY, |version, delivery| {
        let scene = Scene::patient(version, delivery, POLICY);
        let mut client = scene.haproxy.client();
        let body = "x".repeat(100_000);
        let mut number = 0;
        let mut ask = |website: &str, method: &str, body: &str| {
            let (response, delay) = delayed(|| {
                number += 1;
                client.request(method, &format!("/{number}"), &[("Host", website)], body)
            });
            (response, delay, scene.app.saw(&format!("/{number}")))
        };

        for method in ["POST", "PUT", "PATCH"] {
            // A queue of three seconds gives even a slow machine enough time to pass the upload on.
            scene.queue("queue.example", 600);
            let (response, delay, seen) = ask("queue.example", method, &body);
            let took = seen.at - response.asked_at;
            assert!(took < delay, "{method} waited {took:?} of {delay:?} at the request");
            let waited = response.answered_at() - seen.at;
            assert!(waited + TICK >= delay, "{method} waited {waited:?} of {delay:?} at the response");
            assert_eq!((seen.method.as_str(), seen.body_bytes), (method, 100_000));
            assert_eq!(response.body, "ok\n");
        }
        for method in ["GET", "HEAD", "DELETE"] {
            let (response, delay, seen) = ask("slow.example", method, "");
            let waited = seen.at - response.asked_at;
            assert!(waited + TICK >= delay, "{method} waited {waited:?} of {delay:?} at the request");
        }
    });
}

#[test]
fn haproxy_sees_every_variable() {
    each(EACH_DELIVERY, |version, delivery| {
        let scene = Scene::patient(version, delivery, POLICY);
        let pass = scene.outcome(&[("Host", "free.example")]);
        let nothing = key_hasher(0, "burst=1 rate=1/s").finish().bits() as i64;
        let expected = VerdictHeaders {
            verdict: Some("pass".into()),
            delay: Duration::ZERO,
            slo: Some(0),
            key: Some(nothing),
            retry_after_s: None,
            remaining: Some(9_999),
            ticket: None,
            error: None,
            hold_error: None,
        };
        assert_eq!(pass, expected);

        let (response, delay) = delayed(|| scene.get("slow.example"));
        let website = key(2, |key| key.part(b"slow.example"));
        let pass = VerdictHeaders { remaining: Some(0), ..pass };
        let expected = VerdictHeaders {
            verdict: Some("delay".into()),
            delay,
            slo: Some(2001),
            key: website,
            ..pass.clone()
        };
        assert_eq!(VerdictHeaders::by(&response), expected);
        assert!(delay <= Duration::from_millis(500), "half a second is the most that one client waits");
        assert!(response.took + TICK >= delay);

        assert!(scene.outcome(&[("Host", "denied.example")]).is("pass"));
        let denied = scene.get("denied.example");
        let outcome = VerdictHeaders::by(&denied);
        let website = key(2, |key| key.part(b"denied.example"));
        let retry_after_s = outcome.retry_after_s;
        let expected = VerdictHeaders {
            verdict: Some("deny".into()),
            slo: Some(2002),
            key: website,
            retry_after_s,
            ..pass
        };
        assert_eq!(outcome, expected);
        assert_eq!(denied.header("retry-after"), retry_after_s.map(|s| s.to_string()).as_deref());
    });
}

/// One SLO of each type, with a single request per key.
const TYPES: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 burst=1 rate=1/m max_delay=1s\n1001 burst=1 rate=1/m max_delay=1s\n\
         2001 burst=1 rate=1/m max_delay=1s\n3001 burst=1 rate=1/m max_delay=1s\n\
         4001 burst=1 rate=1/m max_delay=1s\n5001 burst=1 rate=1/m max_delay=1s\n",
    ),
    ("source+website.map", "198.51.100.0/24+shop.example 5001\n2001:db8:5::/48+shop.example 5001\n"),
    ("source+owner.map", "198.51.100.7+acme 4001\n"),
    ("source.map", "192.0.2.0/24 3001\n2001:db8:3::/48 3001\n::1 3001\n"),
    ("website.map", "blog.example 2001\n"),
    ("owner.map", "globex 1001\n"),
];

#[test]
fn a_key_is_the_same_whether_haproxy_asks_or_a_proxy_over_http() {
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
        let scene = Scene::patient(version, delivery, TYPES);
        let shop = address("198.51.100.7");
        let cases: &[(u16, [&str; 3], Option<i64>)] = &[
            (
                5001,
                ["198.51.100.7", "shop.example", "acme"],
                key(5, |key| key.address(shop).part(b"shop.example")),
            ),
            (4001, ["198.51.100.7", "blog.example", "acme"], key(4, |key| key.address(shop).part(b"acme"))),
            (3001, ["192.0.2.3", "blog.example", "globex"], key(3, |key| key.address(address("192.0.2.3")))),
            (
                3001,
                ["2001:db8:3:4::5", "a.example", "a"],
                key(3, |key| key.address(address("2001:db8:3:4::"))),
            ),
            (2001, ["203.0.113.1", "blog.example", "globex"], key(2, |key| key.part(b"blog.example"))),
            (1001, ["203.0.113.1", "other.example", "globex"], key(1, |key| key.part(b"globex"))),
            (0, ["203.0.113.1", "other.example", "nobody"], key(0, |key| key)),
        ];
        for &(slo, [source, website, owner], key) in cases {
            let outcome = scene.outcome(&[("X-From", source), ("Host", website), ("X-Api-Key", owner)]);
            assert_eq!(
                (outcome.slo, outcome.key, outcome.is("pass")),
                (Some(slo), key, true),
                "{source} {outcome:?}"
            );
            let fields =
                [("X-Slowlane-Source", source), ("X-Slowlane-Website", website), ("X-Slowlane-Owner", owner)];
            let asked = scene.slowlane.check("", &fields);
            assert_eq!(asked.status, 403, "the bucket of SLO {slo} is used up");
            assert_eq!(asked.header("x-slowlane-slo"), Some(slo.to_string().as_str()));
        }
    });
}

#[test]
fn an_ipv6_customer_is_a_network_and_a_mapped_address_the_one_it_maps() {
    let port = free_port();
    let edit = |name: &str, text: String| match name {
        CONFIG => {
            replace(&showing_verdicts(name, text), "    bind ", &format!("    bind [::1]:{port}\n    bind "))
        }
        _ => showing_verdicts_patiently(name, text),
    };
    let scene = Scene::with(V2_6, Delivery::Hold, TYPES, edit);
    let from = |source| scene.outcome(&[("X-From", source)]);
    let first = from("2001:db8:3:4::5");
    assert_eq!(first.key, key(3, |key| key.address(address("2001:db8:3:4::"))));
    assert!(first.is("pass"));
    let neighbour = from("2001:db8:3:4:ffff::1");
    assert_eq!(neighbour.key, first.key);
    assert!(neighbour.is("deny"), "both are one customer: {neighbour:?}");
    assert!(from("2001:db8:3:5::5").is("pass"), "another network is another customer");

    assert!(from("192.0.2.3").is("pass"));
    let mapped = from("::ffff:192.0.2.3");
    assert!(mapped.is("deny"), "{mapped:?}");
    assert_eq!(mapped.key, key(3, |key| key.address(address("192.0.2.3"))));

    // A request that really arrives over IPv6.
    let local = SocketAddr::from((address("::1"), port));
    let outcome = VerdictHeaders::by(&Client::connect(local).request("GET", "/", &[], ""));
    assert_eq!((outcome.slo, outcome.key), (Some(3001), key(3, |key| key.address(address("::")))));
}

/// The policy of a generation: two websites, and the one SLO that both have.
fn generation(number: u16) -> [(&'static str, String); 2] {
    let slo = 2000 + number;
    [
        (
            "slo.map",
            format!("0 burst=10000000 rate=1000000/s\n{slo} burst=10000000 rate=1000000/s max_delay=1s\n"),
        ),
        ("website.map", format!("a.example {slo}\nb.example {slo}\n")),
    ]
}

#[test]
fn an_edit_under_load_is_in_force_whole_or_not_at_all() {
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
        let first = generation(1);
        let files: Vec<_> = first.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let scene = Scene::patient(version, delivery, &files);
        let slowlane = &scene.slowlane;
        // For each generation, the start of its edit, and the moment at which it was in force.
        let begun = Instant::now();
        let mut times = vec![(begun, begun)];
        let load = Load::start(4, scene.haproxy.address, &["a.example", "b.example"]);
        load.wait_for(20);

        let mut make = |number: u16, write: &dyn Fn(&str, &str)| {
            let begun = Instant::now();
            for (name, text) in generation(number) {
                write(name, &text);
            }
            let what = format!("generation {number} is in force");
            eventually(&what, || {
                (scene.outcome(&[("Host", "a.example")]).slo == Some(2000 + number)).then_some(())
            });
            times.push((begun, Instant::now()));
            load.wait_for(20);
        };
        let reloads = |result: &str| slowlane.metric("slowlane_policy_reloads_total", result);
        let refused = |mistake: &dyn Fn()| {
            let before = reloads("refused");
            mistake();
            eventually("a mistake is refused", || (reloads("refused") > before).then_some(()));
            load.wait_for(20);
        };

        make(2, &|name, text| slowlane.replace(name, text));
        make(3, &|name, text| slowlane.overwrite(name, text));
        refused(&|| slowlane.overwrite("website.map", "a.example 2002\nb.example 200x\n"));
        make(4, &|name, text| slowlane.overwrite(name, text));
        refused(&|| slowlane.replace("slo.map", "0 burst=1\n"));
        refused(&|| slowlane.process.signal("HUP"));
        make(5, &|name, text| slowlane.replace(name, text));
        let done = reloads("done");
        slowlane.process.signal("HUP");
        eventually("SIGHUP reads again", || (reloads("done") > done).then_some(()));
        load.wait_for(20);

        let heard = load.end();
        for client in heard {
            let mut newest = 0;
            for response in client.into_iter().map(Result::unwrap) {
                assert_eq!(response.status, 200);
                let outcome = VerdictHeaders::by(&response);
                assert!(outcome.is("pass"), "{outcome:?}");
                let number = usize::from(outcome.slo.unwrap() - 2000);
                assert!(newest <= number, "generation {number} came back after {newest}");
                newest = number;
                assert!(times[number - 1].0 <= response.answered_at(), "{number} before it was written");
                let replaced = times.get(number).map(|next| next.1);
                assert!(replaced.is_none_or(|at| response.asked_at < at), "{number} after the next was seen");
            }
            assert_eq!(newest, 5);
        }
    });
}

/// The longest delay of a request while no agent answers.
///
/// It is `timeout processing` of the first engine, 100 ms, and twenty times as much for a slow machine. The next longer
/// timeout would exceed it by far.
const DARK_MAX: Duration = Duration::from_millis(20 * 100);

/// Clients that pass, and clients that are delayed. They are separate because HAProxy 2.6 may keep delayed requests until
/// a dead agent is back.
fn loads(haproxy: &Haproxy) -> (Load, Load) {
    let free = Load::start(3, haproxy.address, &["free.example"]);
    let busy = Load::start(3, haproxy.address, &["busy.example"]);
    free.wait_for(20);
    busy.wait_for(20);
    (free, busy)
}

/// The time without an agent: its start, and the moment at which HAProxy has noticed.
struct Dark {
    from: Instant,
    known: Instant,
    until: Instant,
}

impl Dark {
    /// Checks that all requests in this time passed soon, without a verdict. After HAProxy has noticed, it must not ask.
    fn assert_open(&self, responses: &[Response]) {
        let between =
            |response: &&Response| response.asked_at > self.from && response.answered_at() < self.until;
        let dark: Vec<_> = responses.iter().filter(between).collect();
        assert!(dark.len() >= 20, "only {} requests", dark.len());
        let mut unasked = 0;
        for response in dark {
            let outcome = VerdictHeaders::by(response);
            assert_eq!(outcome.verdict, None);
            assert!(response.took < DARK_MAX, "{response:?}");
            if response.asked_at > self.known {
                assert_eq!(outcome.error, None, "{response:?}");
                unasked += 1;
            }
        }
        assert!(unasked >= 20, "only {unasked} requests");
    }
}

#[test]
fn a_killed_agent_costs_no_request_and_a_restarted_one_decides_again() {
    each(EACH_DELIVERY, |version, delivery| {
        let Scene { slowlane, mut haproxy, app: _app } = Scene::showing_verdicts(version, delivery);
        let mut slowlane = slowlane;
        let (free, busy) = loads(&haproxy);
        slowlane.kill();
        let from = Instant::now();
        free.wait_for(60);
        haproxy.wait_for_agent("DOWN");
        let known = Instant::now();
        free.wait_for(60);
        let dark = Dark { from, known, until: Instant::now() };
        let slowlane = slowlane.restarted();
        haproxy.wait_for_agent("UP");
        eventually("verdicts come back", || {
            let response = haproxy.client().request("GET", "/", &[("Host", "free.example")], "");
            VerdictHeaders::by(&response).is("pass").then_some(())
        });
        busy.wait_for(20);
        busy.end_well();
        dark.assert_open(&free.end_well());
        assert!(slowlane.metric("slowlane_verdicts_total", "verdict=\"pass\"") > 0.0);
    });
}

/// If the agent dies, HAProxy 2.6 keeps holds that wait for a connection until the agent is back.
#[test]
fn who_is_caught_between_verdict_and_hold_goes_on_when_the_agent_is_back() {
    each(EACH_DELIVERY, |version, delivery| {
        let mut scene = Scene::patient(version, delivery, POLICY);
        scene.queue("queue.example", 40);
        let crowd = scene.crowd(20, "queue.example");
        scene.wait_for_crowd(delivery, 45, 0);
        scene.slowlane.kill();
        let Scene { slowlane, app: _app, haproxy: _haproxy } = scene;
        let _slowlane = slowlane.restarted();
        crowd.answers();
    });
}

#[test]
fn a_hung_agent_is_found_and_lets_go_what_it_holds() {
    each(EACH_DELIVERY, |version, delivery| {
        let mut scene = Scene::showing_verdicts(version, delivery);
        scene.queue("queue.example", 800);
        // Repeated, because a request may pass on a slow machine.
        let mut held = Vec::new();
        eventually("five are delayed", || {
            held.push(scene.crowd(1, "queue.example"));
            scene.crowd_waits(delivery, 805, 5).then_some(())
        });
        scene.slowlane.process.stop();
        let from = Instant::now();
        let load = Load::start(4, scene.haproxy.address, &["free.example"]);
        scene.haproxy.wait_for_agent("DOWN");
        let known = Instant::now();
        held.into_iter().for_each(|client| drop(client.answers()));
        load.wait_for(40);
        let dark = Dark { from, known, until: Instant::now() };
        scene.slowlane.process.signal("CONT");
        scene.haproxy.wait_for_agent("UP");
        eventually("verdicts come back", || {
            scene.outcome(&[("Host", "free.example")]).is("pass").then_some(())
        });
        load.wait_for(20);
        dark.assert_open(&load.end_well());
    });
}

/// The number of milliseconds behind a word of HAProxy's configuration.
fn milliseconds(text: &str, words: &str) -> u64 {
    let after = text.split(words).nth(1).unwrap_or_else(|| panic!("no {words:?}"));
    let value = after.split_whitespace().next().unwrap();
    u64::try_from(slowlane_core::base::units::duration(value).unwrap().as_millis()).unwrap()
}

fn shipped(name: &str) -> String {
    fs::read_to_string(project("haproxy").join(name)).unwrap()
}

/// The longest time until the shipped checks mark a hung agent down: the wait for a check, then two that fail.
fn found_within(name: &str) -> Duration {
    let text = shipped(name);
    assert!(text.contains(" fall 2 "), "two failed checks mark it down");
    let check = milliseconds(&text, "timeout check ");
    Duration::from_millis(milliseconds(&text, " inter ") + check + milliseconds(&text, " fastinter ") + check)
}

/// A hung agent costs a request about as much as a slow one: ten times `timeout processing` at most.
#[test]
fn a_hung_agent_keeps_nobody_longer_than_the_checks_need() {
    let spoe = shipped("spoe-slowlane.conf");
    let processing = Duration::from_millis(milliseconds(&spoe, "timeout processing "));
    for delivery in [Delivery::Hold, Delivery::Lua, Delivery::Pause] {
        assert!(found_within(delivery.file()) < 10 * processing, "{delivery:?}");
    }
    each(
        &[
            (V2_6, Delivery::Hold),
            (Version::V3_0, Delivery::Hold),
            (V3_2, Delivery::Hold),
            (V3_4, Delivery::Hold),
        ],
        |version, delivery| {
            let scene = Scene::patient(version, delivery, POLICY);
            // A delay of more than fifteen seconds. Whoever is not let go waits for all of it.
            scene.queue("queue.example", 3_000);
            let crowd = scene.crowd(5, "queue.example");
            scene.wait_for_crowd(delivery, 3_005, 5);
            scene.slowlane.process.stop();
            let from = Instant::now();
            let answers = crowd.answers();
            let last = answers.iter().map(Response::answered_at).max().unwrap();
            // Several times the bound of the config, for a slow machine, and still less than the delay.
            assert!(last - from < 10 * found_within(delivery.file()), "{:?}", last - from);
            assert!(answers.iter().all(|answer| VerdictHeaders::by(answer).is("delay")), "{answers:?}");
        },
    );
}

#[test]
fn a_hold_lasts_as_long_as_slowlane_says() {
    let text = shipped("spoe-slowlane.conf");
    let (_, hold) = text.split_once("spoe-agent slowlane-hold").unwrap();
    // A longer max_delay is a warning.
    let longest = HOLD_SHIPPED.as_millis() as u64;
    assert!(milliseconds(hold, "timeout processing ") > longest, "HAProxy waits for such a hold");
    assert!(milliseconds(hold, "timeout idle ") > milliseconds(hold, "timeout processing "));
    each(
        &[(Version::V3_0, Delivery::Hold), (V3_2, Delivery::Hold), (V3_4, Delivery::Hold)],
        |version, delivery| {
            let scene = Scene::patient(version, delivery, POLICY);
            // Seven seconds: more than the default `max_delay`, which was all that HAProxy once waited for.
            scene.queue("queue.example", 1_400);
            let response = scene.get("queue.example");
            let outcome = VerdictHeaders::by(&response);
            assert_eq!((outcome.verdict.as_deref(), outcome.hold_error), (Some("delay"), None));
            assert!(
                outcome.delay > Duration::from_secs(6) && response.took + TICK >= outcome.delay,
                "{response:?}"
            );
            assert_eq!(scene.slowlane.metric("slowlane_holds_abandoned_total", ""), 0.0);
        },
    );
}

#[test]
fn a_hold_that_haproxy_cuts_is_counted_and_logged() {
    let impatient = |name: &str, text: String| {
        let text = showing_verdicts_patiently(name, text);
        if name == "spoe-slowlane.conf" { replace(&text, "processing 21s", "processing 200ms") } else { text }
    };
    // HAProxy 2.6.12 loses this timeout, and cuts nothing.
    each(
        &[(Version::V3_0, Delivery::Hold), (V3_2, Delivery::Hold), (V3_4, Delivery::Hold)],
        |version, delivery| {
            let mut scene = Scene::with(version, delivery, POLICY, impatient);
            scene.queue("queue.example", 4_000);
            let mut client = scene.haproxy.client();
            for (number, method) in [(1.0, "GET"), (2.0, "POST")] {
                let response = client.request(method, "/", &[("Host", "queue.example")], "");
                assert_eq!(VerdictHeaders::by(&response).hold_error, Some(1), "{response:?}");
                assert!(response.took < VerdictHeaders::by(&response).delay);
                let abandoned = || scene.slowlane.metric("slowlane_holds_abandoned_total", "");
                eventually("it is counted", || (abandoned() == number).then_some(()));
            }
            scene.slowlane.process.logged("HAProxy abandoned a hold of ");
            let status = crate::support::client::get(scene.slowlane.admin, "/api/status", &[]).body;
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            assert_eq!(status["holds"]["abandoned"], 2);
        },
    );
}

/// Holds of a connection that ends are nobody's any more.
#[test]
fn holds_of_a_lost_connection_are_counted_as_abandoned() {
    let slowlane = Slowlane::with_policy(POLICY);
    let mut line = Line::greeted(slowlane.spop);
    for stream in 1..=3 {
        line.say(&hold(stream, 60_000));
    }
    eventually("three are held", || (slowlane.metric("slowlane_holds", "") == 3.0).then_some(()));
    drop(line);
    eventually("three are abandoned", || {
        (slowlane.metric("slowlane_holds_abandoned_total", "") == 3.0).then_some(())
    });
    assert_eq!(slowlane.metric("slowlane_holds", ""), 0.0);
}

#[test]
fn a_reload_of_haproxy_costs_no_request() {
    each(EACH_DELIVERY, |version, delivery| {
        let mut scene = Scene::patient(version, delivery, POLICY);
        let load = Load::start(4, scene.haproxy.address, &["free.example", "busy.example"]);
        load.wait_for(20);
        for _ in 0..2 {
            let mut old = scene.haproxy.reload();
            load.wait_for(40);
            assert!(old.wait().success(), "the process before ends when its requests are done");
        }
        let mut decided = 0;
        for response in load.end_well() {
            // The old process of HAProxy up to 3.0 may close a connection with a pending question.
            let outcome = VerdictHeaders::by(&response);
            assert!(
                outcome.verdict.is_some() || outcome.error.is_some_and(|error| error >= 256),
                "{response:?}"
            );
            assert!(response.took + TICK >= outcome.delay || outcome.hold_error.is_some(), "{response:?}");
            decided += usize::from(outcome.verdict.is_some());
        }
        assert!(decided >= 50, "{decided}");
    });
}

#[test]
fn four_hundred_wait_at_once_and_each_gets_its_turn() {
    each(EACH_DELIVERY, |version, delivery| {
        let scene = Scene::patient(version, delivery, POLICY);
        let started = Instant::now();
        scene.queue("queue.example", 700);
        let crowd = scene.crowd(400, "queue.example");
        scene.wait_for_crowd(delivery, 1_100, 300);
        let responses = crowd.answers();
        assert_eq!(responses.len(), 400);
        for (number, response) in responses.iter().enumerate() {
            let outcome = VerdictHeaders::by(response);
            let seen = scene.app.saw(&format!("/crowd/{number}"));
            let waited = seen.at - response.asked_at;
            assert!(outcome.is("delay") && waited + TICK >= outcome.delay, "{waited:?} {outcome:?}");
            assert_eq!(outcome.hold_error, None);
        }
        // At 200/s without gaps, all 1100 requests are through after 5.5 s.
        let last = scene.app.seen().iter().map(|seen| seen.at).max().unwrap();
        assert!(last - started >= Duration::from_millis(5_490), "{:?}", last - started);
    });
}

#[test]
fn a_terminated_agent_first_answers_all_that_it_holds() {
    each(EACH_DELIVERY, |version, delivery| {
        let mut scene = Scene::patient(version, delivery, POLICY);
        scene.queue("queue.example", 900);
        let crowd = scene.crowd(50, "queue.example");
        scene.wait_for_crowd(delivery, 950, 50);
        scene.slowlane.process.signal("TERM");
        for response in crowd.answers() {
            let outcome = VerdictHeaders::by(&response);
            assert_eq!(
                (outcome.verdict.as_deref(), outcome.hold_error),
                (Some("delay"), None),
                "it was answered"
            );
            match delivery {
                Delivery::Hold => assert!(response.took < outcome.delay, "it was let go: {response:?}"),
                _ => {
                    assert!(response.took + TICK >= outcome.delay, "{response:?}")
                }
            }
        }
        assert!(scene.slowlane.process.wait().success());
    });
}

#[test]
fn a_terminated_agent_costs_no_request() {
    each(EACH_DELIVERY, |version, delivery| {
        let Scene { mut slowlane, mut haproxy, app: _app } = Scene::showing_verdicts(version, delivery);
        let (free, busy) = loads(&haproxy);
        slowlane.process.signal("TERM");
        assert!(slowlane.process.wait().success());
        free.wait_for(20);
        let _slowlane = slowlane.restarted();
        haproxy.wait_for_agent("UP");
        busy.wait_for(20);
        free.end_well();
        busy.end_well();
    });
}

#[test]
fn haproxy_asks_over_a_unix_socket_as_well() {
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Hold), (V3_4, Delivery::Hold)], |version, delivery| {
        let (app, mut slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let agent = format!("unix@{}", slowlane.socket("spop").display());
        let mut haproxy =
            Haproxy::with(version, delivery, &agent, app.address, showing_verdicts_patiently).unwrap();
        haproxy.wait_for_agent("UP");
        let get = |host| haproxy.client().request("GET", "/", &[("Host", host)], "");
        assert!(VerdictHeaders::by(&get("free.example")).is("pass"));
        let (response, delay) = delayed(|| get("slow.example"));
        assert!(response.took + TICK >= delay);

        // The agent replaces the socket file of a killed agent.
        slowlane.kill();
        haproxy.wait_for_agent("DOWN");
        let _slowlane = slowlane.restarted();
        haproxy.wait_for_agent("UP");
        assert!(VerdictHeaders::by(&haproxy.client().request("GET", "/", &[], "")).is("pass"));
    });
}

#[test]
fn a_burst_of_connections_finds_room_while_the_agent_is_busy() {
    let slowlane = Slowlane::with_policy(POLICY);
    let most: usize = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
    if most < BURST {
        return skipped(&format!("the system queues only {most} connections (net.core.somaxconn)"));
    }
    slowlane.process.stop();
    for address in [slowlane.spop, slowlane.http] {
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap();
        let waiting: Vec<_> = (0..BURST).map(connect).collect();
        assert_eq!(waiting.len(), BURST);
    }
}

/// Requests at once, each with its own connection from nginx and from HAProxy up to 3.0.
const BURST: usize = 1_000;

#[test]
fn what_finds_no_place_to_wait_is_refused_where_that_is_asked_for() {
    for (when_full, status) in [("pass", 200), ("deny", 429)] {
        let config = format!("[hold]\nmax = 0\nwhen_full = \"{when_full}\"\n");
        let (app, slowlane) = (Backend::start(), Slowlane::with_config(POLICY, &config));
        let agent = slowlane.spop.to_string();
        let mut haproxy =
            Haproxy::with(V2_6, Delivery::Hold, &agent, app.address, showing_verdicts_patiently).unwrap();
        haproxy.wait_for_agent("UP");
        let mut client = haproxy.client();
        let mut get = || client.request("GET", "/", &[("Host", "slow.example")], "");
        assert_eq!((get().status, get().status), (200, 200));
        let third = get();
        assert_eq!(third.status, status, "{when_full}");
        assert_eq!(third.header("retry-after"), (status == 429).then_some("1"));
        assert_eq!(slowlane.metric("slowlane_holds_refused_total", ""), 1.0);
    }
}
