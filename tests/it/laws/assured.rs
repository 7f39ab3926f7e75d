//! Assured rates: a parent, its quiet children and its noisy one.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use slowlane::observe::status::Why;
use slowlane_core::base::{Decision, KeySecret, Request, Sample, Timestamp, Value, Verdict, counted};
use slowlane_core::cluster::{Cluster, Settings};
use slowlane_core::law::Assured;
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::snapshot::{Parts, SnapshotHead, restore, save};
use slowlane_core::table::{Entry, Sizing};
use slowlane_core::throttle::Throttle;

use super::lines::{policy, throttle_of};
use super::oracle::{at_ms, at_ns, objective};

/// A site of acme asks. Every site has its own key of SLO 2001, and all are under the one of SLO 1001.
fn ask_for(throttle: &Throttle, site: &str, cost: u32, now: Timestamp) -> Decision {
    throttle.decide_one(&request(site, cost), now, Sample::MIDDLE)
}

fn request(site: &str, cost: u32) -> Request<'_> {
    let mut request = Request::new();
    request.push(b"website", Value::Text(site.as_bytes()));
    request.push(b"owner", Value::Text(if site.starts_with("site") { b"acme" } else { b"globex" }));
    request.push(b"source", Value::address("192.0.2.7".parse().unwrap()));
    request.push(b"cost", Value::Number(cost.into()));
    request
}

fn ask(throttle: &Throttle, site: &str, now: Timestamp) -> Decision {
    ask_for(throttle, site, 1, now)
}

/// A customer with ten sites.
fn customer(site: &str, owner: &str) -> Throttle {
    let sites: String = (0..10).map(|site| format!("site{site} 2001\n")).collect();
    let sites = sites + "site-without 2002\n";
    throttle_of(&slos(site, owner), &[("website.map", &sites), ("owner.map", "acme 1001\n")])
}

fn slos(site: &str, owner: &str) -> String {
    format!("0 burst=1 rate=1/s\n2001 {site}\n2002 burst=9000 rate=9000/s also=owner\n1001 {owner}\n")
}

/// What one site got.
#[derive(Clone, Debug, Default)]
struct Got {
    asked: u64,
    let_through: u64,
    longest: Duration,
}

/// Sites that each ask at a steady rate, for this many seconds. The first of each comes a little later than that of the
/// site before.
fn run(throttle: &Throttle, rates: &[(&str, f64)], seconds: u64) -> Vec<Got> {
    let mut arrivals: Vec<(u64, usize)> = Vec::new();
    for (site, (_, rate)) in rates.iter().enumerate() {
        let slot_ns = (1e9 / rate) as u64;
        let first_ns = site as u64 * 1_234_567;
        arrivals.extend(
            (0..).map(|n| (first_ns + n * slot_ns, site)).take_while(|(ns, _)| *ns < seconds * 1_000_000_000),
        );
    }
    arrivals.sort_unstable();
    let mut got = vec![Got::default(); rates.len()];
    for (ns, site) in arrivals {
        let decision = ask(throttle, rates[site].0, at_ns(ns));
        let got = &mut got[site];
        got.asked += 1;
        got.let_through += u64::from(decision.is_let_through());
        got.longest = got.longest.max(decision.verdict.wait());
    }
    got
}

const SITE: &str = "burst=20 rate=100/s also=owner assured=10/s";
const NO_ASSURED: &str = "burst=20 rate=100/s also=owner";
const OWNER: &str = "burst=100 rate=100/s";

/// Nine sites ask for 9.9/s, the tenth for 100/s: ten times its assured rate.
const NOISY: [(&str, f64); 10] = [
    ("site0", 9.9),
    ("site1", 9.9),
    ("site2", 9.9),
    ("site3", 9.9),
    ("site4", 9.9),
    ("site5", 9.9),
    ("site6", 9.9),
    ("site7", 9.9),
    ("site8", 9.9),
    ("site9", 100.0),
];

fn all_at_once(got: &[Got]) -> bool {
    got.iter().all(|got| got.let_through == got.asked && got.longest == Duration::ZERO)
}

fn let_through(got: &[Got]) -> u64 {
    got.iter().map(|got| got.let_through).sum()
}

#[test]
fn quiet_sites_keep_their_assured_rate_beside_a_noisy_one() {
    // In a minute the customer gets its 6000, its burst of 100, and the debt of 5 s that `pace` may leave.
    for (law, most) in [("pace", 6_600), ("token-bucket", 6_100), ("leaky-bucket", 6_100)] {
        let got = run(&customer(SITE, &format!("{OWNER} law={law}")), &NOISY, 60);
        assert!(all_at_once(&got[..9]), "{law}: {got:?}");
        assert_eq!(let_through(&got), most, "{law}: nothing is lost, and nothing is added");
        assert_eq!(let_through(&got[9..]), most - 9 * 594 - 1, "{law}: the noisy site has the rest");
    }
    // Without assured rates the noisy site takes nearly all, and the others wait for as long as it does.
    let got = run(&customer(NO_ASSURED, OWNER), &NOISY, 60);
    assert!(let_through(&got[..9]) * 4 < 9 * 594, "{got:?}");
    assert!(got[..9].iter().all(|got| got.longest > Duration::from_secs(4)), "{got:?}");
}

#[test]
fn an_assured_rate_holds_past_two_levels() {
    // A reseller has 100/s. Of them 60/s are assured to acme, and 10/s to each of its five sites of SLO 2001.
    let slos = "0 burst=1 rate=1/s\n2001 burst=20 rate=100/s also=owner assured=10/s\n\
                2002 burst=20 rate=100/s also=owner\n1001 burst=60 rate=100/s also=source assured=60/s\n\
                1002 burst=60 rate=100/s also=source\n3001 burst=100 rate=100/s\n";
    let sites: String = (0..5).map(|site| format!("site{site} 2001\n")).collect();
    let maps = [
        ("website.map", sites + "site5 2002\nnoise 2002\n"),
        ("owner.map", "acme 1001\nglobex 1002\n".into()),
        ("source.map", "192.0.2.0/24 3001\n".into()),
    ];
    let lookups = ["website", "owner", "source"].map(|name| {
        let is_it = |lookup: &&slowlane_core::policy::Lookup| lookup.name() == name;
        Layout::default().lookups().iter().find(is_it).unwrap().clone()
    });
    let layout = Layout::default().with_lookups(lookups.to_vec()).unwrap();
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(slos.into()),
        Some(name) => {
            let map = maps.iter().find(|(map, _)| *map == name);
            map.map(|(_, text)| text.clone().into()).ok_or_else(|| io::ErrorKind::NotFound.into())
        }
        None => Err(io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse(Path::new(""), &layout, read).unwrap();
    let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(3_600) };
    let throttle = Throttle::new(policy, sizing, 0);
    let rates = [
        ("site0", 9.9),
        ("site1", 9.9),
        ("site2", 9.9),
        ("site3", 9.9),
        ("site4", 9.9),
        // It has no assured rate of its own: it passes by what acme has left.
        ("site5", 9.9),
        ("noise", 1_000.0),
    ];
    let got = run(&throttle, &rates, 60);
    assert!(all_at_once(&got[..6]), "{got:?}");
    // The reseller's own 6000, its burst, and its debt of 5 s.
    assert_eq!(let_through(&got), 6_600);
    let decision = ask(&throttle, "site5", at_ms(60_000));
    let carries: Vec<bool> = decision.judged().iter().map(|judged| judged.assurance.carries).collect();
    assert_eq!(
        (carries.as_slice(), decision.judged()[2].assurance.is_carried),
        (&[false, true, false][..], true)
    );
}

/// A site without an assured rate has put the customer as deep into debt as it can.
fn in_debt(site: &str, owner: &str) -> Throttle {
    let throttle = customer(site, owner);
    while ask(&throttle, "site-without", at_ms(0)).is_let_through() {}
    throttle
}

const TIGHT: &str = "burst=2 rate=100/s max_delay=0s also=owner assured=1/s";

#[test]
fn the_sites_own_slo_still_refuses_and_charges_no_assured_rate() {
    let throttle = in_debt(TIGHT, "burst=1 rate=10/s");
    let verdicts = |ms| [(); 3].map(|()| ask(&throttle, "site1", at_ms(ms)).verdict.name());
    assert_eq!(verdicts(0), ["pass", "pass", "deny"]);
    // Its own SLO has room again, but its assured rate has not.
    let denied = ask(&throttle, "site1", at_ms(30));
    assert_eq!((denied.verdict.name(), denied.slo.number()), ("deny", 1001));
    assert_eq!(ask(&throttle, "site1", at_ms(1_000)).verdict, Verdict::Pass, "a second brings one back");
    // A request of more than its burst is never carried.
    assert_eq!(ask_for(&throttle, "site2", 3, at_ms(1_000)).verdict.name(), "deny");
    assert_eq!(ask_for(&throttle, "site2", 2, at_ms(1_000)).verdict.name(), "pass");
}

#[test]
fn a_client_that_leaves_gives_its_assured_slot_back() {
    let throttle = in_debt("burst=1 rate=1/s also=owner assured=1/s", "burst=1 rate=10/s");
    let decision = ask(&throttle, "site1", at_ms(0));
    assert_eq!((decision.verdict, decision.remaining, decision.slo.number()), (Verdict::Pass, 0, 2001));
    let owed = |ms| ask(&throttle, "site2", at_ms(ms)).judged()[1].verdict;
    assert_eq!(owed(0), Verdict::Deny { retry_after_s: 1 });
    throttle.take_back(&throttle.policy(), &decision, at_ms(0));
    assert_eq!(ask(&throttle, "site1", at_ms(0)).verdict, Verdict::Pass, "it is there for the next");
    let refused = ask(&throttle, "site1", at_ms(0));
    assert_eq!((refused.verdict.name(), refused.slo.number()), ("deny", 1001), "and for no more than one");
}

#[test]
fn the_debt_is_bounded_although_too_much_is_assured() {
    // Ten sites of 100/s each, and 10/s for the customer: 100 times too much.
    let throttle =
        customer("burst=100 rate=100/s also=owner assured=100/s", "burst=1 rate=10/s max_delay=2s");
    let rates: Vec<(&str, f64)> = NOISY.iter().map(|&(site, _)| (site, 99.0)).collect();
    assert!(all_at_once(&run(&throttle, &rates, 30)));
    // Without room of its own, a site waits for the debt to fall from 12 s to 2 s, and not for 5 minutes.
    while ask(&throttle, "site0", at_ms(30_000)).is_let_through() {}
    let denied = ask(&throttle, "site0", at_ms(30_000));
    assert_eq!(denied.verdict, Verdict::Deny { retry_after_s: 11 });
}

#[test]
fn a_block_of_the_parent_spares_what_is_assured() {
    let throttle = in_debt("burst=2 rate=100/s also=owner assured=1/s", "burst=1 rate=10/s block=1m");
    assert_eq!(ask(&throttle, "site1", at_ms(1)).verdict, Verdict::Pass);
    assert_eq!(ask(&throttle, "site1", at_ms(1)).verdict, Verdict::Pass);
    let blocked = ask(&throttle, "site1", at_ms(1));
    assert!(blocked.blocked().is_some());
    assert_eq!(blocked.verdict, Verdict::Deny { retry_after_s: 60 });
    // A request that is carried past a refusal begins no block.
    let throttle = customer(SITE, "burst=1 rate=1/s law=token-bucket block=1m");
    assert_eq!([(); 9].map(|()| ask(&throttle, "site0", at_ms(0)).verdict), [Verdict::Pass; 9]);
    assert_eq!(throttle.blocks(9, at_ms(0)), []);
}

#[test]
fn a_closed_parent_is_closed_and_a_dry_run_carries_nothing() {
    let throttle = customer(SITE, "burst=1 rate=0/s");
    assert_eq!(ask(&throttle, "site0", at_ms(0)).verdict.name(), "deny");
    let throttle = in_debt(&format!("{SITE} dry_run=yes"), "burst=1 rate=10/s");
    assert_eq!(ask(&throttle, "site0", at_ms(0)).slo.number(), 1001);
    let throttle = customer(SITE, "rate=unlimited");
    assert_eq!(ask(&throttle, "site0", at_ms(0)).verdict, Verdict::Pass);
}

#[test]
fn a_restart_and_a_reload_remember_what_was_assured() {
    let throttle = in_debt("burst=1 rate=100/s also=owner assured=1/s", "burst=1 rate=10/s max_delay=1s");
    assert_eq!(ask(&throttle, "site1", at_ms(0)).verdict, Verdict::Pass);
    let mut bytes = Vec::new();
    let head = SnapshotHead::new(at_ms(0), Duration::ZERO, KeySecret::KNOWN, Vec::new());
    save(&throttle, head, None, Some(&[]), &mut bytes).unwrap();
    let again = customer("burst=1 rate=100/s also=owner assured=1/s", "burst=1 rate=10/s max_delay=1s");
    restore(Parts::new(&bytes[..]).unwrap(), true, &again, at_ms(10)).unwrap();
    let site = "burst=1 rate=100/s also=owner assured=2/s";
    let sites = [("website.map", "site1 2001\n"), ("owner.map", "acme 1001\n")];
    throttle.replace(policy(&slos(site, "burst=1 rate=10/s max_delay=1s"), &sites));
    for throttle in [throttle, again] {
        assert_eq!(ask(&throttle, "site1", at_ms(20)).slo.number(), 1001, "it was used");
        assert_eq!(ask(&throttle, "site1", at_ms(1_010)).slo.number(), 2001, "and comes back");
    }
}

/// Two nodes without a store: each assures half of the 10/s, and has no more in sum than without.
#[test]
fn in_a_cluster_assured_rates_add_nothing_to_the_sum() {
    let sites: String = (0..10).map(|site| format!("site{site} 2001\n")).collect();
    let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(3_600) };
    let rates = NOISY.map(|(site, rate)| (site, if rate < 10.0 { 4.9 } else { rate }));
    let got = |site: &str| {
        let cluster = Cluster::new(Settings { nodes: 2, ..Settings::default() });
        let policy = policy(&slos(site, OWNER), &[("website.map", &*sites), ("owner.map", "acme 1001\n")]);
        run(&Throttle::new(policy, sizing, 0).in_cluster(Arc::new(cluster)), &rates, 60)
    };
    let (with, without) = (got(SITE), got(NO_ASSURED));
    assert!(all_at_once(&with[..9]), "{with:?}");
    assert!(!all_at_once(&without[..9]), "{without:?}");
    // More only by the bursts of ten sites.
    let [with, without] = [with, without].map(|got| let_through(&got));
    assert!(with <= without + 10 * 20, "{with} instead of {without}");
}

/// 1/s between two nodes is one request in two seconds on each.
#[test]
fn an_assured_rate_is_split_between_nodes_unless_it_is_local() {
    let carried_after_ms = |site: &str| {
        let cluster = Cluster::new(Settings { nodes: 2, ..Settings::default() });
        let throttle = in_debt(site, "burst=1 rate=10/s cluster=local").in_cluster(Arc::new(cluster));
        assert_eq!(ask(&throttle, "site1", at_ms(0)).verdict, Verdict::Pass);
        (1..)
            .map(|tenth| 100 * tenth)
            .find(|&ms| ask(&throttle, "site1", at_ms(ms)).judged()[0].assurance.carries)
    };
    assert_eq!(carried_after_ms("burst=1 rate=100/s also=owner assured=1/s"), Some(2_000));
    assert_eq!(carried_after_ms("burst=1 rate=100/s also=owner assured=1/s cluster=local"), Some(1_000));
}

#[test]
fn why_tells_whose_assured_rate_carries_the_request() {
    let throttle = in_debt("burst=2 rate=100/s also=owner assured=1/s", "burst=1 rate=10/s");
    let why = Why::of(&throttle, &request("site1", 1), at_ms(0));
    assert_eq!((why.outcome.verdict.name(), why.slo), ("pass", 2001));
    let outcome = why.to_string();
    assert!(
        outcome.contains("\n  assured used 0 + cost 1 <= burst 2 at 1/s: bypasses the SLOs above\n"),
        "{outcome}"
    );
    let overruled = "deny, retry after 1 s (overruled by the assured rate of SLO 2001)";
    assert!(outcome.contains(overruled), "{outcome}");
    assert_eq!([(); 2].map(|()| ask(&throttle, "site9", at_ms(0)).verdict), [Verdict::Pass; 2]);
    let why = Why::of(&throttle, &request("site9", 1), at_ms(0)).to_string();
    assert!(why.contains("\n  assured used 2 + cost 1 > burst 2 at 1/s\n"), "{why}");
    assert!(why.contains("verdict   deny, retry after 1 s (SLO 1001)"), "{why}");
}

/// A site, the cost of its request, and the pause before it.
fn schedule() -> impl Strategy<Value = Vec<(usize, u32, u64)>> {
    let cost = prop_oneof![6 => Just(1u32), 1 => 0u32..6];
    let pause_us = prop_oneof![6 => 0u64..3_000, 3 => 0u64..60_000, 1 => 0u64..3_000_000];
    prop::collection::vec((prop_oneof![2 => Just(0usize), 3 => 0usize..10], cost, pause_us), 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Ten sites with 10/s each under 100/s, in any order: no site that asks for no more than its assured rate is delayed
    /// or refused by its customer, and the customer has no more than its rate in sum. `why` foresees every decision.
    #[test]
    fn an_assured_rate_is_kept_and_the_sum_is_too(
        schedule in schedule(), law in prop::sample::select(&["pace", "token-bucket", "leaky-bucket"][..]),
    ) {
        let throttle = customer("burst=5 rate=1000/s also=owner assured=10/s", &format!("burst=30 rate=100/s law={law}"));
        let assured = Assured::new(objective(5, "10/s"));
        let mut asked = [Entry::default(); 10];
        let (mut at_us, mut sum) = (0, 0);
        for (site, cost, pause_us) in schedule {
            at_us += pause_us;
            let (now, name) = (at_ns(at_us * 1_000), format!("site{site}"));
            let why = Why::of(&throttle, &request(&name, cost), now);
            let decision = ask_for(&throttle, &name, cost, now);
            prop_assert_eq!((why.slo, why.outcome.remaining), (decision.slo.number(), counted(decision.remaining)));
            prop_assert_eq!((why.outcome.verdict, why.outcome.delay_ms), (decision.verdict.kind(), decision.verdict.delay_ms()));
            // What it asks for, whether it gets it or not.
            if assured.has_room(&asked[site], cost, now) {
                prop_assert_eq!(decision.judged()[1].in_force(), Verdict::Pass);
                prop_assert!(decision.is_let_through() || decision.slo.number() == 2001);
            }
            assured.charge(&mut asked[site], cost, now);
            sum += u64::from(if decision.is_let_through() { cost } else { 0 });
            // The bursts of ten sites and of the customer, the rate, and the debt of 5 s that `pace` may leave.
            let debt = if law == "pace" { 500 } else { 0 };
            let most = 10 * 5 + 30 + debt + at_us / 10_000 + 1;
            prop_assert!(sum <= most, "{} > {} after {} us", sum, most, at_us);
        }
    }
}

/// A sketch is the first stage of a chain of three. A source beyond it falls under its site, and its site's assured rate
/// carries it past the customer's SLO.
#[test]
fn an_assured_rate_carries_what_a_first_stage_does_not_let_through() {
    let let_through = |assured: &str| {
        let slos = format!(
            "0 rate=unlimited\n5001 burst=0 rate=2/s law=sketch beyond=also also=website\n\
             2001 burst=5 rate=100/s {assured} also=owner\n1001 burst=1 rate=1/s law=token-bucket\n"
        );
        let maps = [
            ("source+website.map", "0.0.0.0/0+site0 5001\n"),
            ("website.map", "site0 2001\n"),
            ("owner.map", "acme 1001\n"),
        ];
        let throttle = throttle_of(&slos, &maps);
        let passes = |ms| ask(&throttle, "site0", at_ms(60_000 + ms)).is_let_through();
        assert_eq!([passes(0), passes(1)], [true; 2], "the first stage lets them through alone");
        let admitted = |from: u64, to: u64| (from..to).step_by(50).filter(|&ms| passes(ms)).count();
        admitted(1_000, 5_000);
        admitted(5_000, 15_000)
    };
    let with = let_through("assured=5/s");
    assert!(
        (50..=61).contains(&with),
        "{with} in ten seconds: five a second are assured, and one is the customer's"
    );
    let without = let_through("");
    assert!((10..=11).contains(&without), "{without} in ten seconds: one a second is the customer's");
}
