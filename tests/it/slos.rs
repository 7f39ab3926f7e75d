//! SLO lines through a real HAProxy: every law, costs, several SLOs for one request, dry runs.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use slowlane_core::law::Law;

use crate::support::backend::Backend;
use crate::support::client::{self, Response};
use crate::support::eventually;
use crate::support::haproxy::Version::{V2_6, V3_2, V3_4};
use crate::support::haproxy::{
    Delivery, Haproxy, VerdictHeaders, Version, each, replace, showing_verdicts_patiently,
};
use crate::support::slowlane::Slowlane;

struct Scene {
    _app: Backend,
    slowlane: Slowlane,
    haproxy: Haproxy,
}

impl Scene {
    fn start(version: Version, delivery: Delivery, policy: &[(&str, &str)]) -> Scene {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(policy));
        let agent = slowlane.spop.to_string();
        let mut haproxy = Haproxy::with(version, delivery, &agent, app.address, counting_costs).unwrap();
        haproxy.wait_for_agent("UP");
        Scene { _app: app, slowlane, haproxy }
    }

    fn get(&self, headers: &[(&str, &str)]) -> Response {
        self.haproxy.client().request("GET", "/", headers, "")
    }

    fn statuses<const N: usize>(&self, headers: &[(&str, &str)]) -> [u16; N] {
        [(); N].map(|()| self.get(headers).status)
    }
}

/// The shipped HAProxy configuration, but it reports its variables, and takes the cost from a header of the client: a
/// number, or the text of one.
fn counting_costs(name: &str, text: String) -> String {
    let text = showing_verdicts_patiently(name, text);
    match name {
        "spoe-slowlane.conf" => {
            // Of two arguments with one name, the first with a value counts.
            let costs = "method=method cost=req.hdr(x-cost-number),add(0) cost=req.hdr(x-cost)";
            replace(&text, "method=method\n", &format!("{costs}\n"))
        }
        _ => text,
    }
}

/// Under each, five pass at once, and the sixth is denied for at least a minute. Two other laws follow below.
const FIVE_AT_ONCE: [(&str, &str); 9] = [
    ("pace", "burst=5 rate=1/m max_delay=1s"),
    ("fair", "burst=5 rate=1/m max_delay=1s"),
    ("token-bucket", "burst=5 rate=1/m"),
    ("leaky-bucket", "burst=5 rate=1/m"),
    ("fixed-window", "burst=0 rate=5/h"),
    ("sliding-window", "burst=0 rate=5/h"),
    ("sliding-buckets", "burst=0 rate=5/h"),
    ("sliding-log", "burst=0 rate=5/h"),
    ("sketch", "burst=0 rate=5/h"),
];

#[test]
fn every_law_decides_for_haproxy() {
    let others = [("adaptive", "burst=5 rate=1/m max_delay=1s"), ("concurrency", "burst=5 rate=1/m")];
    let laws: Vec<_> = FIVE_AT_ONCE.into_iter().chain(others).collect();
    let mut names: Vec<_> = laws.iter().map(|&(name, _)| name).collect();
    let mut known = Law::NAMES.to_vec();
    names.sort_unstable();
    known.sort_unstable();
    assert_eq!(names, known);

    let mut slo_map = "0 burst=10000 rate=5000/s\n".to_owned();
    let mut website_map = String::new();
    for (number, (name, numbers)) in laws.iter().enumerate() {
        slo_map += &format!("{} {numbers} law={name}\n", 2_001 + number);
        slo_map += &format!("{} burst=5 rate=0/s law={name}\n", 2_101 + number);
        website_map +=
            &format!("{name}.example {}\nclosed.{name}.example {}\n", 2_001 + number, 2_101 + number);
    }
    let scene = Scene::start(V2_6, Delivery::Hold, &[("slo.map", &slo_map), ("website.map", &website_map)]);
    for (name, _) in FIVE_AT_ONCE {
        let website = format!("{name}.example");
        let answers = [(); 7].map(|()| scene.get(&[("Host", &website)]));
        assert_eq!(
            answers.each_ref().map(|answer| answer.status),
            [200, 200, 200, 200, 200, 429, 429],
            "{name}"
        );
        let remaining = answers.each_ref().map(|answer| VerdictHeaders::by(answer).remaining);
        assert_eq!(remaining, [4, 3, 2, 1, 0, 0, 0].map(Some), "{name}");
        assert!(VerdictHeaders::by(&answers[5]).retry_after_s.unwrap() >= 30, "{name}: {:?}", answers[5]);
    }
    // It denies by the rate of the last second, so more requests may pass on a slow machine.
    assert_eq!(scene.statuses(&[("Host", "adaptive.example")]), [200; 5]);
    let mut attempts = (0..100).map(|_| scene.get(&[("Host", "adaptive.example")]).status);
    assert!(attempts.any(|status| status == 429), "adaptive passes a hundred requests in a row");
    // In sequence, only one request is in flight at a time.
    assert_eq!(scene.statuses(&[("Host", "concurrency.example")]), [200; 12]);

    for name in Law::NAMES {
        let answer = scene.get(&[("Host", &format!("closed.{name}.example"))]);
        assert_eq!((answer.status, VerdictHeaders::by(&answer).retry_after_s), (429, Some(86_400)), "{name}");
    }
}

#[test]
fn a_request_counts_for_what_it_costs() {
    let policy = [
        ("slo.map", "0 burst=10000 rate=5000/s\n2001 burst=10 rate=1/m law=token-bucket\n"),
        ("website.map", "shop.example 2001\n"),
    ];
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
        let scene = Scene::start(version, delivery, &policy);
        let get = |header: &str, cost: &str| {
            let response = scene.get(&[("Host", "shop.example"), (header, cost)]);
            (response.status, VerdictHeaders::by(&response).remaining)
        };
        assert_eq!(get("X-Cost-Number", "5"), (200, Some(5)), "a number");
        assert_eq!(get("X-Cost", "2"), (200, Some(3)), "a text");
        assert_eq!(get("X-Cost", "4"), (429, Some(3)), "there are not so many left");
        assert_eq!(get("X-Cost", "0"), (200, None), "it counts for nothing");
        assert_eq!(get("X-Cost", "much"), (200, Some(2)), "what is no number is one");
        assert_eq!(get("X-None", "1"), (200, Some(1)));
        let over_http = [("X-Slowlane-Website", "shop.example"), ("X-Slowlane-Cost", "2")];
        assert_eq!(scene.slowlane.check("", &over_http).status, 403);
        let over_http = [("X-Slowlane-Website", "shop.example"), ("X-Slowlane-Cost", "1")];
        assert_eq!(scene.slowlane.check("", &over_http).status, 204);
        assert_eq!(get("X-Cost", "1"), (429, Some(0)));
    });
}

#[test]
fn an_slo_that_names_another_lookup_is_held_together_with_it() {
    let policy = [
        (
            "slo.map",
            "0 burst=10000 rate=5000/s\n2001 burst=10 rate=1/m law=token-bucket also=owner\n\
             1001 burst=3 rate=1/m law=token-bucket\n",
        ),
        ("website.map", "shop.example 2001\n"),
        ("owner.map", "acme 1001\n"),
    ];
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
        let scene = Scene::start(version, delivery, &policy);
        let outcome = |owner: &str| {
            let response = scene.get(&[("Host", "shop.example"), ("X-Api-Key", owner)]);
            let outcome = VerdictHeaders::by(&response);
            (response.status, outcome.slo.unwrap(), outcome.remaining.unwrap())
        };
        let acme = [(); 5].map(|()| outcome("acme"));
        let refused = (429, 1001, 0);
        assert_eq!(acme, [(200, 2001, 2), (200, 2001, 1), (200, 2001, 0), refused, refused]);
        // Requests denied by the owner's SLO do not count under the website's.
        assert_eq!(outcome("globex"), (200, 2001, 6));
    });
}

/// The customer has five requests, and each of its sites three that are its own.
#[test]
fn a_noisy_site_leaves_another_its_assured_rate() {
    let policy = [
        (
            "slo.map",
            "0 burst=10000 rate=5000/s\n2001 burst=3 rate=100000/s law=token-bucket also=owner assured=1/m\n\
             1001 burst=5 rate=1/m law=token-bucket\n",
        ),
        ("website.map", "noisy.example 2001\nquiet.example 2001\n"),
        ("owner.map", "acme 1001\n"),
    ];
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
        let scene = Scene::start(version, delivery, &policy);
        let outcome = |site: &str| {
            let response = scene.get(&[("Host", site), ("X-Api-Key", "acme")]);
            (response.status, VerdictHeaders::by(&response).slo.unwrap())
        };
        let (passed, refused) = ((200, 2001), (429, 1001));
        assert_eq!([(); 5 + 3].map(|()| outcome("noisy.example")), [passed; 8]);
        assert_eq!([(); 30].map(|()| outcome("noisy.example")), [refused; 30], "ten times what is assured");
        assert_eq!([(); 3].map(|()| outcome("quiet.example")), [passed; 3]);
        assert_eq!(outcome("quiet.example"), refused);
    });
}

#[test]
fn a_dry_run_counts_what_it_would_have_said_and_does_nothing() {
    let policy = [
        (
            "slo.map",
            "0 burst=10000 rate=5000/s\n2001 burst=1 rate=1/m law=token-bucket dry_run=yes\n\
             2002 burst=1 rate=1/m max_delay=150s dry_run=yes\n",
        ),
        ("website.map", "deny.example 2001\ndelay.example 2002\n"),
    ];
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
        let scene = Scene::start(version, delivery, &policy);
        for website in ["deny.example", "delay.example"] {
            for _ in 0..5 {
                let response = scene.get(&[("Host", website)]);
                let outcome = VerdictHeaders::by(&response);
                assert_eq!((response.status, outcome.delay), (200, Duration::ZERO), "{website}");
                assert!(outcome.is("pass"));
            }
        }
        let count = |family: &str, slo: u16, verdict: &str| {
            let labels = format!("slo=\"{slo}\",verdict=\"{verdict}\"");
            scene.slowlane.metric(&format!("slowlane_{family}_total"), &labels)
        };
        let verdicts = |family, slo| ["pass", "delay", "deny"].map(|verdict| count(family, slo, verdict));
        assert_eq!(verdicts("verdicts", 2001), [5.0, 0.0, 0.0]);
        assert_eq!(verdicts("shadow_verdicts", 2001), [1.0, 0.0, 4.0]);
        assert_eq!(verdicts("verdicts", 2002), [5.0, 0.0, 0.0]);
        // One passes, two would wait for one and two minutes, and the others for too long.
        assert_eq!(verdicts("shadow_verdicts", 2002), [1.0, 2.0, 2.0]);
        let metrics = client::get(scene.slowlane.admin, "/metrics", &[]).body;
        for (name, kind) in [
            ("slowlane_verdicts", "counter"),
            ("slowlane_shadow_verdicts", "counter"),
            ("slowlane_law_fallbacks", "counter"),
            ("slowlane_annex_bytes", "gauge"),
        ] {
            assert!(metrics.contains(&format!("# TYPE {name} {kind}\n")), "{name}:\n{metrics}");
        }
    });
}

/// Requests that are let through until it is over: six seconds' worth.
const SHARED: usize = 300;

/// One key at 50/s, nine sources with one connection each, and one source with 45 busy connections. First come, first
/// served would give the nine 1/6 of the rate. `fair` gives them 9/10.
#[test]
fn light_sources_get_their_share_beside_a_greedy_one() {
    let policy = [
        ("slo.map", "0 burst=10000 rate=5000/s\n2001 burst=1 rate=50/s law=fair\n"),
        ("website.map", "shop.example 2001\n"),
    ];
    let scene = Scene::start(V2_6, Delivery::Hold, &policy);
    let passed = AtomicUsize::new(0);
    let address = scene.haproxy.address;
    let ask = |source: String| {
        let (mut client, mut mine, mut refused) = (client::Client::connect(address), 0, 0);
        while passed.load(Relaxed) < SHARED {
            let headers = [("Host", "shop.example"), ("X-From", source.as_str())];
            match client.request("GET", "/", &headers, "").status {
                200 if passed.fetch_add(1, Relaxed) < SHARED => mine += 1,
                200 => {}
                429 => {
                    refused += 1;
                    // The client comes back much too early.
                    thread::sleep(Duration::from_millis(50));
                }
                status => panic!("{source}: status {status}"),
            }
        }
        (mine, refused)
    };
    let (light, greedy) = thread::scope(|scope| {
        let start = |source: String| scope.spawn(|| ask(source));
        let light: Vec<_> = (1..=9).map(|number| start(format!("192.0.2.{number}"))).collect();
        eventually("they are there", || (passed.load(Relaxed) >= 9).then_some(()));
        let greedy: Vec<_> = (0..45).map(|_| start("203.0.113.1".to_owned())).collect();
        let join = |clients: Vec<thread::ScopedJoinHandle<'_, (usize, usize)>>| {
            clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>()
        };
        (join(light), join(greedy))
    });
    let sum = |clients: &[(usize, usize)]| clients.iter().map(|&(mine, _)| mine).sum::<usize>();
    assert_eq!(sum(&light) + sum(&greedy), SHARED);
    assert!(light.iter().all(|&(_, refused)| refused == 0), "{light:?}");
    assert!(sum(&light) >= 4 * SHARED / 6, "of {SHARED} they got {}: {light:?}", sum(&light));
    assert_eq!(scene.slowlane.metric("slowlane_law_fallbacks_total", ""), 0.0);
}

/// A hundred websites that clients make up: under a sketch they take no rows, and its memory is told.
#[test]
fn made_up_websites_take_no_rows_under_a_sketch() {
    let policy = [
        ("slo.map", "0 rate=unlimited\n5001 burst=0 rate=2/d law=sketch\n"),
        ("source.map", "0.0.0.0/0 5001\n"),
    ];
    let slowlane = Slowlane::with_policy(&policy);
    let ask = |website: &str| {
        let fields = [("X-Slowlane-Source", "192.0.2.1"), ("X-Slowlane-Website", website)];
        slowlane.check("", &fields).status
    };
    assert!((0..100).all(|number| ask(&format!("w{number}.example")) == 204));
    assert_eq!([ask("w7.example"), ask("w7.example")], [204, 403]);
    assert_eq!(slowlane.metric("slowlane_table_entries", ""), 0.0);
    assert_eq!(slowlane.metric("slowlane_sketch_bytes", ""), 262_144.0);
}
