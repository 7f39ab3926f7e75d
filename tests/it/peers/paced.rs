//! Proxies that share an SLO, in virtual time: what they let through, with the news on their way for some milliseconds.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Request, Sample, Target, Timestamp, Value};
use slowlane_core::peers::{Moment, Proxy};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

use super::rules::{Ruled, Rules};

const START: Timestamp = Timestamp::from_millis(1_000_000_000);

/// The wall clock differs from the clock of the table by this.
const WALL_AHEAD: Duration = Duration::from_secs(700_000_000);

/// The life of limits in HAProxy.
const EXPIRE_US: u64 = 10_000_000;

const KEY: &str = "shop.example";

fn throttle(slo: &str) -> Throttle {
    Throttle::new(policy(slo), Sizing { entries_max: 1_000, expire: Duration::from_secs(30) }, 0)
}

fn policy(slo: &str) -> Policy {
    policy_with(slo, &format!("{KEY} 2001\n"))
}

fn policy_with(slo: &str, websites: &str) -> Policy {
    let maps = format!("0 rate=unlimited\n{slo}\n");
    let read = |path: &std::path::Path| match path.to_str() {
        Some("slo.map") => Ok(maps.clone().into_bytes()),
        Some("website.map") => Ok(websites.as_bytes().to_vec()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    Policy::parse("".as_ref(), &Layout::default(), read).unwrap()
}

/// A proxy with its clients, and its side here.
struct Site {
    rules: Rules,
    proxy: Proxy,
    /// When each client asks next.
    clients: Vec<u64>,
    /// Counts and limits on their way, with the millisecond of their arrival.
    counts: VecDeque<(u64, [u32; 2])>,
    limits: VecDeque<(u64, [u64; 4])>,
}

/// Sites that share one SLO.
struct World {
    throttle: Throttle,
    sites: Vec<Site>,
    trip_ms: u64,
    /// The millisecond in which each request leaves.
    left: Vec<u64>,
    denied: usize,
    now_ms: u64,
}

impl World {
    fn new(slo: &str, sites: usize, clients: usize, trip_ms: u64) -> World {
        let site = || {
            let mut proxy = Proxy::new(vec!["website".into()], 1_000);
            proxy.defined("slowlane_pace", Some(Duration::from_secs(60)));
            proxy.defined("slowlane_limits", Some(Duration::from_micros(EXPIRE_US)));
            proxy.has_reported_all();
            let (counts, limits) = (VecDeque::new(), VecDeque::new());
            Site { rules: Rules::default(), proxy, clients: vec![0; clients], counts, limits }
        };
        let sites = (0..sites).map(|_| site()).collect();
        World { throttle: throttle(slo), sites, trip_ms, left: Vec::new(), denied: 0, now_ms: 0 }
    }

    fn moment(&self) -> Moment {
        let age = Duration::from_millis(self.now_ms);
        Moment { now: START + age, wall: Duration::from_nanos(START.as_nanos()) + WALL_AHEAD + age }
    }

    /// Lets the clients ask until a moment: each again 10 ms after its answer, a refused one after 100 ms.
    fn run(&mut self, until_ms: u64) {
        while self.now_ms < until_ms {
            let (now_ms, moment) = (self.now_ms, self.moment());
            let wall_us = moment.wall.as_micros() as u64;
            for site in &mut self.sites {
                while site.limits.front().is_some_and(|(at, _)| *at <= now_ms) {
                    let (_, numbers) = site.limits.pop_front().unwrap();
                    site.rules.learn(KEY, numbers, wall_us, EXPIRE_US);
                }
                for client in &mut site.clients {
                    if *client > now_ms {
                        continue;
                    }
                    let (ruled, counts) = site.rules.ask(KEY, wall_us);
                    match ruled {
                        Ruled::Passes(delay_ms) => {
                            self.left.push(now_ms + delay_ms);
                            *client = now_ms + delay_ms + 10;
                        }
                        Ruled::Denied => {
                            self.denied += 1;
                            *client = now_ms + 100;
                        }
                        Ruled::Asks => panic!("the law has a bucket"),
                    }
                    site.counts.push_back((now_ms + self.trip_ms, counts));
                }
                let mut pushes = Vec::new();
                while site.counts.front().is_some_and(|(at, _)| *at <= now_ms) {
                    let (_, counts) = site.counts.pop_front().unwrap();
                    let key = KEY.as_bytes();
                    let (proxy, throttle) = (&mut site.proxy, &self.throttle);
                    proxy.counted(throttle, "slowlane_pace", key, counts, moment, &mut pushes);
                }
                if now_ms.is_multiple_of(200) {
                    site.proxy.due(&self.throttle, moment, &mut pushes);
                }
                let arrival = now_ms + self.trip_ms;
                site.limits.extend(pushes.into_iter().map(|push| (arrival, push.numbers)));
            }
            self.now_ms += 1;
        }
    }

    /// Requests that leave between two moments.
    fn left_within(&self, from_ms: u64, to_ms: u64) -> usize {
        self.left.iter().filter(|at| (from_ms..to_ms).contains(*at)).count()
    }

    /// One request that asks slowlane, as nginx does. Returns its delay.
    fn question(&self) -> Duration {
        let mut request = Request::new();
        request.push(b"website", Value::Text(KEY.as_bytes()));
        self.throttle.decide_one(&request, self.moment().now, Sample::MIDDLE).verdict.wait()
    }
}

/// In any time, at most the burst and the rate: the definition of the bucket.
fn most_above(world: &World, burst: f64, per_s: f64) -> f64 {
    let mut left = world.left.clone();
    left.sort_unstable();
    // The largest excess over the line, for any beginning.
    let (mut least, mut most) = (0.0_f64, 0.0_f64);
    for (number, at) in (1..).zip(&left) {
        let above = f64::from(number) - *at as f64 / 1_000.0 * per_s;
        least = least.min(above - 1.0);
        most = most.max(above - least);
    }
    most - burst
}

#[test]
fn one_proxy_holds_the_rate_whatever_its_clients_are() {
    for clients in [1, 10, 50, 200] {
        let mut world = World::new("2001 burst=100 rate=50/s max_delay=5s", 1, clients, 1);
        world.run(60_000);
        let left = world.left_within(10_000, 60_000);
        assert!((2_488..=2_512).contains(&left), "{clients} clients: {left} in 50 s, and not 2500");
        // The first requests pass before the first limit arrives, and are charged.
        let above = most_above(&world, 100.0, 50.0);
        assert!(
            above <= 1.0 + (clients as f64 - 100.0).max(0.0),
            "{clients} clients: {above} above the bucket"
        );
    }
}

#[test]
fn what_has_passed_before_the_limit_was_there_is_part_of_the_burst() {
    // All ask twice before the first limit comes, after 14 ms. The one that knows of the second round comes after 24 ms.
    let mut world = World::new("2001 burst=40 rate=50/s max_delay=5s", 1, 15, 7);
    world.run(10_000);
    let above = most_above(&world, 40.0, 50.0);
    assert!(above <= 1.0, "{above} above the bucket");
}

#[test]
fn four_proxies_share_one_rate() {
    for clients in [3, 20] {
        let mut world = World::new("2001 burst=100 rate=50/s max_delay=5s", 4, clients, 2);
        world.run(65_000);
        let left = world.left_within(5_000, 65_000);
        assert!((2_970..=3_030).contains(&left), "{clients} clients each: {left} in 60 s, and not 3000");
        let above = most_above(&world, 100.0, 50.0);
        assert!(above <= 100.0, "{clients} clients each: {above} above the bucket");
    }
}

#[test]
fn a_law_without_delays_is_shared_too() {
    let mut world = World::new("2001 burst=50 rate=20/s law=token-bucket", 3, 5, 2);
    world.run(65_000);
    let left = world.left_within(5_000, 65_000);
    assert!((1_188..=1_212).contains(&left), "{left} in 60 s, and not 1200");
    assert!(world.denied > 1_000);
}

#[test]
fn a_proxy_shares_with_questions() {
    let mut world = World::new("2001 burst=10 rate=50/s max_delay=5s", 1, 10, 1);
    let (mut asked, mut next_ms) = (0, 0);
    for ms in (0..60_000).step_by(5) {
        world.run(ms);
        // Five clients elsewhere ask slowlane itself, one after the other.
        if ms >= next_ms {
            next_ms = ms + (world.question().as_millis() as u64) / 5 + 1;
            asked += usize::from(ms >= 10_000);
        }
    }
    let both = asked + world.left_within(10_000, 60_000);
    assert!((2_475..=2_525).contains(&both), "{both} in 50 s, and not 2500");
    assert!(asked > 200, "{asked} of them were questions");
}

#[test]
fn an_edit_and_a_block_are_taught_at_once() {
    let mut world = World::new("2001 burst=10 rate=50/s max_delay=5s", 1, 10, 1);
    world.run(10_000);
    world.throttle.replace(policy("2001 burst=10 rate=20/s max_delay=5s"));
    world.run(11_000);
    let before = world.left.len();
    world.run(31_000);
    let left = world.left.len() - before;
    assert!((390..=412).contains(&left), "{left} in 20 s, and not 400");

    let fields = world.throttle.policy().block_fields([("website", KEY)]).unwrap();
    let until = world.moment().now + Duration::from_secs(5);
    world.throttle.block(fields.clone(), until, world.moment().now).unwrap();
    world.run(31_500);
    let (left, denied) = (world.left.len(), world.denied);
    world.run(34_000);
    assert_eq!(world.left.len(), left, "a blocked key gets nothing through");
    assert!(world.denied > denied + 100);
    assert!(world.throttle.unblock(&Target::Fields(fields)));
    world.run(36_000);
    assert!(world.left.len() > left + 20);
}

/// Without its line in the map, a website falls under SLO 0, whose key has no field: the table has no limit for it.
#[test]
fn a_line_that_is_deleted_frees_its_key_at_once() {
    let slo = "2001 burst=1 rate=1/m max_delay=1s";
    let mut world = World::new(slo, 1, 5, 1);
    world.run(5_000);
    let (left, denied) = (world.left.len(), world.denied);
    world.throttle.replace(policy_with(slo, ""));
    world.run(6_000);
    assert!(denied > 100 && world.left.len() > left + 200, "{} then {}", left, world.left.len());
}

#[test]
fn a_refusal_by_a_proxy_begins_the_block_of_its_slo() {
    let mut world = World::new("2001 burst=1 rate=1/m max_delay=1s block=10m", 1, 5, 1);
    world.run(2_000);
    let blocks = world.throttle.blocks(10, world.moment().now);
    assert_eq!(blocks.len(), 1);
    let left_s = blocks[0].until.since(world.moment().now).as_secs();
    assert!((595..=599).contains(&left_s), "{left_s}: further refusals do not make it longer");
    let left = world.left.len();
    world.run(100_000);
    assert_eq!(world.left.len(), left, "not even the one of each minute");
}

#[test]
fn what_the_rules_cannot_do_has_to_be_asked() {
    for slo in [
        "2001 burst=10 rate=50/s law=fair share=source",
        "2001 burst=10 rate=50/s law=sliding-window",
        "2001 burst=10 rate=50/s also=owner\n1001 burst=1 rate=1/s",
        "2001 burst=10 rate=50/s law=adaptive",
        "2001 burst=10 rate=10/d",
    ] {
        let throttle = throttle(slo);
        let mut proxy = Proxy::new(vec!["website".into()], 10);
        proxy.defined("slowlane_pace", None);
        let (mut pushes, moment) = (Vec::new(), Moment { now: START, wall: WALL_AHEAD });
        proxy.counted(&throttle, "slowlane_pace", KEY.as_bytes(), [3, 0], moment, &mut pushes);
        assert_eq!(pushes[0].numbers, [0, 2, 0, 0], "{slo}");
    }
}

#[test]
fn entries_from_before_are_not_charged_and_those_of_a_new_connection_are_not_charged_twice() {
    let throttle = throttle("2001 burst=100 rate=50/s");
    let (mut proxy, mut pushes) = (Proxy::new(vec!["website".into()], 10), Vec::new());
    proxy.defined("slowlane_pace", None);
    let moment = Moment { now: START, wall: WALL_AHEAD };
    let mut admitted = |proxy: &mut Proxy, counts| {
        proxy
            .counted(&throttle, "slowlane_pace", KEY.as_bytes(), counts, moment, &mut pushes)
            .unwrap()
            .admitted
    };
    assert_eq!(admitted(&mut proxy, [5_000, 0]), 0, "slowlane was not there");
    proxy.has_reported_all();
    assert_eq!(admitted(&mut proxy, [5_003, 0]), 3);
    proxy.begin();
    assert_eq!(admitted(&mut proxy, [5_003, 0]), 0, "it tells again what it has told");
    assert_eq!(admitted(&mut proxy, [5_004, 0]), 1);
    assert_eq!(admitted(&mut proxy, [2, 0]), 2, "HAProxy has begun anew");
}

/// HAProxy forgets a key after its table's expiry, and this side keeps it for longer: a count that looks like the one
/// before is a new one.
#[test]
fn a_key_that_haproxy_has_forgotten_counts_from_zero() {
    let throttle = throttle("2001 burst=1000 rate=50/s");
    let (mut proxy, mut pushes) = (Proxy::new(vec!["website".into()], 10), Vec::new());
    proxy.defined("slowlane_pace", Some(Duration::from_secs(60)));
    proxy.has_reported_all();
    let mut admitted = |seconds, counts| {
        let moment = Moment { now: START + Duration::from_secs(seconds), wall: WALL_AHEAD };
        proxy
            .counted(&throttle, "slowlane_pace", KEY.as_bytes(), counts, moment, &mut pushes)
            .unwrap()
            .admitted
    };
    assert_eq!([admitted(0, [100, 0]), admitted(59, [101, 0])], [100, 1]);
    assert_eq!([admitted(120, [101, 0]), admitted(121, [103, 0])], [101, 2]);
}

/// Clients make up as many websites as they like. A source that comes then is taught its limit all the same.
#[test]
fn made_up_websites_keep_no_source_from_its_limit() {
    let slos = "0 rate=unlimited\n2001 burst=10 rate=5/s\n3001 burst=10 rate=5/s\n";
    let read = |path: &std::path::Path| match path.to_str() {
        Some("slo.map") => Ok(slos.into()),
        Some("source.map") => Ok("::/0 3001\n".into()),
        Some("website.map") => Ok("shop.example 2001\nlate.example 2001\n".into()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse("".as_ref(), &Layout::default(), read).unwrap();
    let throttle = Throttle::new(policy, Sizing { entries_max: 10_000, expire: Duration::from_secs(30) }, 0);
    let (mut proxy, mut pushes) = (Proxy::new(vec!["source".into()], 1_000), Vec::new());
    proxy.defined("slowlane_pace", None);
    proxy.defined("slowlane_pace_website", None);
    proxy.has_reported_all();
    let moment = Moment { now: START, wall: WALL_AHEAD };
    let mut counted = |table: &str, key: &str, counts| {
        let before = pushes.len();
        let count = proxy.counted(&throttle, table, key.as_bytes(), counts, moment, &mut pushes);
        (count.map(|count| count.admitted), pushes.len() > before)
    };
    for number in 0..10_000 {
        counted("slowlane_pace_website", &format!("{number}.example"), [1, 0]);
    }
    for host in 1..=250 {
        assert_eq!(counted("slowlane_pace", &format!("192.0.2.{host}"), [1, 0]), (Some(1), true), "{host}");
    }
    assert_eq!(counted("slowlane_pace_website", "shop.example", [1, 0]), (Some(1), true));
    // One that got its limit by an edit, after it was left out, is not charged for all of its past.
    assert_eq!(counted("slowlane_pace_website", "late.example", [70_000, 0]), (Some(1), true));
    assert_eq!(counted("slowlane_pace_website", "late.example", [70_003, 0]).0, Some(3));
}

#[test]
fn a_hostile_peer_changes_nothing_beyond_its_own_counts() {
    let throttle = throttle("2001 burst=100 rate=50/s");
    let (mut proxy, mut pushes) = (Proxy::new(vec!["website".into()], 100), Vec::new());
    proxy.defined("slowlane_pace", None);
    proxy.has_reported_all();
    let moment = Moment { now: START, wall: WALL_AHEAD };
    for number in 0..10_000 {
        let key = format!("{number}.example");
        proxy.counted(&throttle, "slowlane_pace", key.as_bytes(), [u32::MAX, u32::MAX], moment, &mut pushes);
        proxy.counted(&throttle, "unknown", key.as_bytes(), [1, 1], moment, &mut pushes);
    }
    assert_eq!(
        (proxy.keys(), proxy.take_left_out()),
        (50, 9_950),
        "keys without a limit leave room for others"
    );
    // Names of tables are no way to more memory either.
    for number in 0..1_000 {
        proxy.defined(&format!("slowlane_pace_field{number}"), None);
    }
    assert_eq!(proxy.tables().count(), 64);
    // The largest lie is a debt of some seconds, as for any request that an assured rate carries.
    proxy.begin();
    let mut other = Proxy::new(vec!["website".into()], 100);
    other.defined("slowlane_pace", None);
    other.has_reported_all();
    other.counted(&throttle, "slowlane_pace", KEY.as_bytes(), [u32::MAX, 0], moment, &mut pushes);
    let later = Moment { now: START + Duration::from_secs(18), wall: WALL_AHEAD };
    let mut request = Request::new();
    request.push(b"website", Value::Text(KEY.as_bytes()));
    assert!(throttle.decide_one(&request, later.now, Sample::MIDDLE).verdict.is_let_through());
}

proptest! {
    /// Whatever a proxy says, in whatever order and at whatever time: no panic, and bounded keys.
    #[test]
    fn any_counts_are_taken(
        said in prop::collection::vec((0..4_usize, any::<[u32; 2]>(), 0..90_u64, any::<bool>()), 1..60),
        slo in prop::sample::select(vec![
            "2001 burst=10 rate=5/s", "2001 burst=0 rate=1/d max_delay=1d", "2001 rate=0/s burst=1",
            "2001 rate=unlimited", "2001 burst=9 rate=1000000/s law=leaky-bucket", "2001 burst=1 rate=1/s law=fair share=source",
        ]),
    ) {
        let throttle = throttle(slo);
        let (mut proxy, mut now, mut pushes) = (Proxy::new(vec!["website".into()], 2), START, Vec::new());
        proxy.defined("slowlane_pace", Some(Duration::from_secs(20)));
        proxy.has_reported_all();
        for (key, counts, seconds, is_due) in said {
            now = now + Duration::from_secs(seconds);
            let moment = Moment { now, wall: WALL_AHEAD + now.since(START) };
            let key = ["shop.example", "other.example", "", "third.example"][key];
            proxy.counted(&throttle, "slowlane_pace", key.as_bytes(), counts, moment, &mut pushes);
            if is_due {
                proxy.due(&throttle, moment, &mut pushes);
            }
            prop_assert!(proxy.keys() <= 2);
        }
        for push in pushes {
            prop_assert!(push.numbers.iter().all(|number| *number < 1 << 32));
            prop_assert!(push.numbers[0] == 0 || push.numbers[2] < 1 << 31);
        }
    }
}
