//! Proxies that enforce limits by their own rules: what they have counted, and what is pushed to them, in virtual time.

use std::io;
use std::path::Path;
use std::time::Duration;

use slowlane_core::base::{Request, Timestamp, Value, Verdict};
use slowlane_core::peers::{Count, LimitPush, Moment, Proxy};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

const START: Timestamp = Timestamp::from_millis(1_000_000_000);

const PACE: &str = "slowlane_pace";

/// Two websites, each a key of its own under one SLO.
fn throttle(slo: &str) -> Throttle {
    let slo_map = format!("0 rate=unlimited\n2001 {slo}\n");
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(slo_map.clone().into()),
        Some("website.map") => Ok(b"shop 2001\nblog 2001\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    Throttle::new(policy, Sizing { entries_max: 1_000, expire: Duration::from_secs(3_600) }, 0)
}

fn moment(ms: u64) -> Moment {
    let age = Duration::from_millis(ms);
    Moment { now: START + age, wall: Duration::from_secs(1_800_000_000) + age }
}

/// Counts live for 60 s in this proxy, and limits for 10 s.
fn proxy_of(keys_max: usize) -> Proxy {
    let mut proxy = Proxy::new(vec!["website".into()], keys_max);
    proxy.defined(PACE, Some(Duration::from_secs(60)));
    proxy.defined("slowlane_limits", Some(Duration::from_secs(10)));
    proxy.has_reported_all();
    proxy
}

/// A proxy and its slowlane.
struct Site<'t> {
    proxy: Proxy,
    throttle: &'t Throttle,
}

impl Site<'_> {
    fn new(throttle: &Throttle) -> Site<'_> {
        Site { proxy: proxy_of(1_000), throttle }
    }

    /// The proxy has counted this many admissions and denials of a key. Returns its news, and the limits pushed at
    /// once.
    fn counts(&mut self, key: &str, counts: [u32; 2], ms: u64) -> (Option<Count>, Vec<LimitPush>) {
        let mut pushes = Vec::new();
        let count = self.proxy.counted(self.throttle, PACE, key.as_bytes(), counts, moment(ms), &mut pushes);
        (count, pushes)
    }

    /// The number of limits pushed for these counts of the shop.
    fn pushes(&mut self, counts: [u32; 2], ms: u64) -> usize {
        self.counts("shop", counts, ms).1.len()
    }

    fn due(&mut self, ms: u64) -> usize {
        let mut pushes = Vec::new();
        self.proxy.due(self.throttle, moment(ms), &mut pushes);
        pushes.len()
    }
}

#[test]
fn keys_without_room_are_left_out_and_reported_once() {
    let throttle = throttle("burst=10 rate=10/s");
    let mut site = Site { proxy: proxy_of(1), throttle: &throttle };
    assert!(site.counts("shop", [1, 0], 0).0.is_some());
    assert!((0..2).all(|_| site.counts("blog", [1, 0], 0).0.is_none()));
    assert_eq!((site.proxy.keys(), site.proxy.take_left_out(), site.proxy.take_left_out()), (1, 2, 0));
}

/// HAProxy forgets a key after 60 s, and 100 ms more are for what is on its way.
#[test]
fn counts_that_haproxy_has_forgotten_begin_anew() {
    let throttle = throttle("burst=10 rate=10/s");
    let mut site = Site::new(&throttle);
    let mut news = |key, counts, ms| site.counts(key, counts, ms).0.unwrap();
    let admitted = |admitted| Count { admitted, ..Count::default() };
    assert_eq!([news("shop", [5, 0], 0), news("blog", [5, 0], 0)], [admitted(5); 2]);
    assert_eq!(news("shop", [8, 0], 60_100), admitted(3));
    assert_eq!(news("blog", [8, 0], 60_101), admitted(8));
}

#[test]
fn a_key_without_limits_is_kept_for_twice_the_life_of_its_counts() {
    let throttle = throttle("burst=10 rate=10/s");
    let mut site = Site::new(&throttle);
    site.counts("unknown.example", [1, 0], 0);
    let mut keys = |ms| {
        site.due(ms);
        site.proxy.keys()
    };
    assert_eq!([keys(119_999), keys(120_000)], [1, 0]);
}

/// Without limits, the requests of a key pass. A second table would be asked next, so there it is told to pass.
#[test]
fn an_unlimited_key_is_told_so_only_beside_a_second_table() {
    for (slo, of_one, of_two) in [
        ("rate=unlimited", None, Some([0, 1, 0])),
        ("burst=10 rate=10/s", Some([100_000, 1_000_000, 6_000_000]), Some([100_000, 1_000_000, 6_000_000])),
    ] {
        let throttle = throttle(slo);
        let first = |mut site: Site<'_>| {
            let (_, pushes) = site.counts("shop", [1, 0], 0);
            pushes.first().map(|push| push.numbers.first_chunk().copied().unwrap())
        };
        let (one, mut two) = (Site::new(&throttle), Site::new(&throttle));
        two.proxy.defined("slowlane_pace_all", None);
        assert_eq!((first(one), first(two)), (of_one, of_two), "{slo}");
    }
}

/// Limits live for 10 s, and are pushed again after 7.5 s if their end would let requests pass.
#[test]
fn limits_are_repeated_after_three_quarters_of_their_life_while_they_matter() {
    let slo = "burst=10 rate=10/s";
    let throttles = [throttle(slo), throttle(slo), throttle(slo)];
    let [mut busy, mut idle, mut in_debt] = throttles.each_ref().map(Site::new);
    assert_eq!([busy.pushes([1, 0], 0), busy.pushes([2, 0], 7_499), busy.due(7_500)], [1, 0, 1]);
    // One slot is free again after 0.1 s.
    assert_eq!([idle.pushes([1, 0], 0), idle.due(7_500), idle.due(9_999)], [1, 0, 0]);
    // 80 slots are free again after 8 s.
    assert_eq!([in_debt.pushes([80, 0], 0), in_debt.due(7_499), in_debt.due(7_500)], [1, 0, 1]);
    assert_eq!(in_debt.due(10_000), 0, "nobody has asked for long");
}

/// 10/s with a burst of 20: two proxies use one bucket. A slot is 100 ms, and a quarter of the burst 500 ms.
#[test]
fn a_proxy_learns_of_the_slots_of_others_near_the_limit() {
    let throttle = throttle("burst=20 rate=10/s");
    let (mut one, mut other) = (Site::new(&throttle), Site::new(&throttle));
    assert_eq!(one.pushes([1, 0], 0), 1);
    let mut due_after = |admitted| {
        other.pushes([admitted, 0], 0);
        one.due(0)
    };
    assert_eq!(due_after(4), 0, "five slots are not near the limit, though four are of another proxy");
    assert_eq!(due_after(5), 1);
    assert_eq!(due_after(6), 0, "it is near, but one slot behind is too little");
    assert_eq!(due_after(7), 1);
}

/// 10/s with a burst of 1: three requests at once end 300 ms ahead, and a burst of 100 ms is free.
#[test]
fn news_are_throttled_only_if_they_did_not_pass_at_once() {
    let throttle = throttle("burst=1 rate=10/s");
    let mut site = Site::new(&throttle);
    let mut throttled = |counts| {
        let (count, _) = site.counts("shop", counts, 0);
        count.unwrap().throttled.map(|decision| (decision.verdict, decision.cost))
    };
    assert_eq!(throttled([1, 0]), None);
    assert_eq!(throttled([3, 0]), Some((Verdict::Delay(Duration::from_millis(200)), 2)));
    assert_eq!(throttled([3, 0]), None, "it was reported before");
    assert_eq!(throttled([3, 1]), Some((Verdict::Deny { retry_after_s: 1 }, 1)));
}

#[test]
fn only_what_a_proxy_denies_begins_a_block_and_it_does_not_begin_anew() {
    let throttle = throttle("burst=10 rate=10/s block=10m");
    let policy = throttle.policy();
    let mut request = Request::new();
    request.push(b"website", Value::Text(b"shop"));
    let cases = policy.cases(&request);
    let block_after = |admitted, denied, ms| {
        throttle.charge(&cases, admitted, denied, moment(ms).now);
        throttle.key_block(cases.list[0].key, moment(ms).now).map(|block| block.until)
    };
    assert_eq!(block_after(1, 0, 0), None);
    let until = Some(moment(601_000).now);
    assert_eq!([block_after(0, 1, 1_000), block_after(0, 1, 5_000)], [until; 2]);
}

/// A rate counts in windows of 1 s, which begin with the first request that was let through: 500 ms after a denial.
#[test]
fn a_denial_of_a_proxy_begins_no_window_of_what_was_let_through() {
    let throttle = throttle("burst=10 rate=10/s");
    let policy = throttle.policy();
    let mut request = Request::new();
    request.push(b"website", Value::Text(b"shop"));
    let cases = policy.cases(&request);
    throttle.charge(&cases, 0, 3, moment(0).now);
    throttle.charge(&cases, 10, 0, moment(500).now);
    let (entry, _) = throttle.table().get(cases.list[0].key, moment(1_400).now).unwrap();
    assert_eq!((entry.http_req_cnt, entry.gpc1_rate.read(moment(1_400).now.ticks_ms())), (13, 10));
}
