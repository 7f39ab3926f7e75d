//! `law=protect` through the throttle: who waits has a turn, an end lets the next one go, and nobody is lost.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use slowlane_core::base::{
    Decision, Decisions, Ending, Request, Sample, Ticket, Timestamp, Turn, Value, Verdict,
};
use slowlane_core::law::TICK;
use slowlane_core::policy::{Batch, Layout, Policy, PolicyErrors};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::{Ended, Group, Throttle};

const START: Timestamp = Timestamp::from_millis(1_000_000_000);

/// The limit at the beginning.
const PLACES: usize = 16;

fn parse(slo_map: &str) -> Result<Policy, PolicyErrors> {
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(slo_map.as_bytes().to_vec()),
        Some("website.map") => Ok(b"shop.example 2001\n".to_vec()),
        Some("source.map") if slo_map.contains("3001") => Ok(b"203.0.113.9 3001\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    Policy::parse(Path::new(""), &Layout::default(), read)
}

/// A protected shop. Ends are reported: a first request has come and gone.
struct Shop {
    throttle: Throttle,
    now: Timestamp,
}

impl Shop {
    fn under(slo_map: &str) -> Shop {
        let sizing = Sizing { entries_max: 10_000, expire: Duration::from_secs(30) };
        let mut shop = Shop { throttle: Throttle::new(parse(slo_map).unwrap(), sizing, 1 << 20), now: START };
        let first = shop.ask("192.0.2.1");
        shop.pass(60);
        assert_eq!(shop.end(&first), Ended::Counted);
        shop
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    fn ask(&self, source: &str) -> Decision {
        self.ask_for(source, "/shoes", true)
    }

    fn ask_for(&self, source: &str, path: &str, may_hold: bool) -> Decision {
        let policy = self.throttle.policy();
        let mut request = Request::new();
        request.push(b"source", Value::address(source.parse().unwrap()));
        request.push(b"website", Value::Text(b"shop.example"));
        request.push(b"page", Value::Text(path.as_bytes()));
        let mut batch = Batch::of(&policy);
        batch.push(&request);
        if may_hold {
            batch.may_hold_last();
        }
        let mut decisions = Decisions::new();
        self.throttle.decide(&batch, self.now, &mut || Sample::MIDDLE, &mut decisions);
        decisions.only()
    }

    fn turn(&self, decision: &Decision) -> Option<Arc<Turn>> {
        self.throttle.turn(decision.key, decision.turn())
    }

    fn end(&self, decision: &Decision) -> Ended {
        self.end_of(&decision.ticket().expect("it counts until its end"))
    }

    fn end_of(&self, ticket: &Ticket) -> Ended {
        self.throttle.end(&self.throttle.policy(), ticket, &Ending::default(), self.now)
    }

    /// A crawler takes all places.
    fn fill(&self) -> Vec<Decision> {
        let inside: Vec<Decision> = (0..PLACES).map(|_| self.ask("198.51.100.7")).collect();
        assert!(inside.iter().all(|decision| decision.verdict == Verdict::Pass));
        inside
    }

    /// Inside and waiting.
    fn view(&self) -> (usize, usize) {
        let [protected] = &self.throttle.protected()[..] else { panic!("one application") };
        (protected.view.inside, protected.view.waiting)
    }
}

const PROTECTED: &str = "0 rate=unlimited\n2001 law=protect\n";

/// Whether a request that waits may go now.
fn may_go(turn: &Turn, now: Timestamp) -> bool {
    turn.due().is_some_and(|due| due <= now)
}

#[test]
fn an_end_lets_the_next_one_go_and_the_customer_before_the_crawler() {
    let mut shop = Shop::under(PROTECTED);
    let inside = shop.fill();
    let (crawler, customer) = (shop.ask("198.51.100.7"), shop.ask("203.0.113.1"));
    let [of_crawler, of_customer] = [&crawler, &customer].map(|held| shop.turn(held).expect("it waits"));
    assert!(matches!(customer.verdict, Verdict::Delay(_)));
    assert_eq!(shop.view(), (PLACES, 2));
    shop.pass(40);
    assert!(!may_go(&of_customer, shop.now) && !may_go(&of_crawler, shop.now));
    assert_eq!(shop.end(&inside[0]), Ended::Counted);
    assert!(may_go(&of_customer, shop.now) && !may_go(&of_crawler, shop.now));
    assert_eq!(shop.end(&inside[0]), Ended::Late, "twice");
    assert!(!may_go(&of_crawler, shop.now));
    assert_eq!(shop.end(&inside[1]), Ended::Counted);
    assert!(may_go(&of_crawler, shop.now));
    // The tickets of those who have waited are as good.
    assert_eq!([&customer, &crawler].map(|held| shop.end(held)), [Ended::Counted; 2]);
}

#[test]
fn a_client_that_leaves_while_it_waits_frees_its_place_at_once() {
    let mut shop = Shop::under(PROTECTED);
    let inside = shop.fill();
    let (gone, stays) = (shop.ask("203.0.113.1"), shop.ask("203.0.113.2"));
    let turn = shop.turn(&stays).unwrap();
    shop.pass(10);
    shop.throttle.take_back(&shop.throttle.policy(), &gone, shop.now);
    assert_eq!(shop.view(), (PLACES, 1));
    shop.end(&inside[0]);
    assert!(may_go(&turn, shop.now));
    // A proxy that does not hold it after all lets it pass: it is inside, before its turn.
    let hasty = shop.ask("203.0.113.3");
    shop.throttle.pass(hasty.key, hasty.turn(), shop.now);
    assert_eq!(shop.view(), (PLACES + 1, 0));
}

#[test]
fn who_waits_for_max_delay_is_refused_and_lost_ends_give_their_places_back() {
    let mut shop = Shop::under("0 rate=unlimited\n2001 law=protect max_delay=1s\n");
    let inside = shop.fill();
    let waits = shop.ask("203.0.113.1");
    let turn = shop.turn(&waits).unwrap();
    shop.pass(800);
    shop.throttle.wake_gates(shop.now);
    assert!(turn.due().is_some_and(|due| due > shop.now));
    shop.pass(200);
    shop.throttle.wake_gates(shop.now);
    assert_eq!(turn.due(), None, "refused after a second at most");
    // No end comes: after five seconds, the places are free.
    shop.pass(4_000);
    shop.throttle.wake_gates(shop.now + TICK);
    assert_eq!(shop.view(), (0, 0));
    assert_eq!(shop.end(&inside[3]), Ended::Late);
}

/// HAProxy does not hold uploads: a crawler that sends them must not get around its turn.
#[test]
fn who_cannot_wait_passes_with_credit_and_is_refused_without() {
    let mut shop = Shop::under(PROTECTED);
    let crawled: Vec<Decision> = (0..40).map(|_| shop.ask_for("198.51.100.7", "/upload", false)).collect();
    let passed = crawled.iter().filter(|decision| decision.verdict == Verdict::Pass).count();
    assert!(crawled.iter().all(|decision| decision.turn() == 0));
    assert!((PLACES..PLACES + 10).contains(&passed), "{passed}: its credit is 0.3 s of work");
    assert!(matches!(crawled[39].verdict, Verdict::Deny { .. }));
    assert_eq!(shop.view(), (passed, 0));
    let customer = shop.ask_for("203.0.113.1", "/upload", false);
    assert_eq!((customer.verdict, customer.turn()), (Verdict::Pass, 0));
    assert_eq!(shop.view(), (passed + 1, 0));
    shop.pass(10);
    assert_eq!(shop.end(&customer), Ended::Counted);
    assert_eq!(shop.view(), (passed, 0));
}

#[test]
fn a_dry_run_says_who_would_wait_and_holds_nobody() {
    let shop = Shop::under("0 rate=unlimited\n2001 law=protect dry_run=yes\n");
    shop.fill();
    let decision = shop.ask("203.0.113.1");
    assert_eq!((decision.verdict, decision.turn()), (Verdict::Pass, 0));
    let would: Vec<Verdict> = decision.dry_runs().map(|judged| judged.verdict).collect();
    assert!(matches!(would[..], [Verdict::Delay(_)]), "{would:?}");
    assert_eq!(shop.view(), (PLACES + 1, 0));
}

#[test]
fn above_slos_of_customers_it_is_asked_last() {
    let mut shop = Shop::under(
        "0 rate=unlimited\n3001 burst=1 rate=1/s law=token-bucket also=website\n2001 law=protect\n",
    );
    assert!(shop.ask("203.0.113.9").is_let_through());
    let refused = shop.ask("203.0.113.9");
    assert!(!refused.is_let_through());
    assert_eq!(shop.view(), (1, 0), "a refused request does not come near the application");
    shop.pass(1_000);
    (1..PLACES).for_each(|_| _ = shop.ask("198.51.100.7"));
    let waits = shop.ask("203.0.113.9");
    assert_eq!((waits.slo.number(), shop.turn(&waits).is_some()), (2001, true));
    // Its own SLO has its token back once it has left.
    shop.throttle.take_back(&shop.throttle.policy(), &waits, shop.now);
    assert_eq!(shop.view(), (PLACES, 0));
    assert!(shop.ask("203.0.113.9").is_let_through());
}

#[test]
fn an_operator_sees_why_a_request_waits() {
    let mut shop = Shop::under(PROTECTED);
    let why = |shop: &Shop| {
        let policy = shop.throttle.policy();
        let mut request = Request::new();
        request.push(b"source", Value::address("203.0.113.1".parse().unwrap()));
        request.push(b"website", Value::Text(b"shop.example"));
        let explained = policy.explain(&request);
        let asker = explained.asker.as_ref();
        let foreseen = shop.throttle.foresee_for(asker, &explained.cases, shop.now, Sample::MIDDLE);
        (foreseen.decision.verdict.name(), foreseen.views[0].formula.clone())
    };
    assert_eq!(
        why(&shop),
        ("pass", "0 inside, limit 16, 0 waiting, slow-down 1.00; the request passes".into())
    );
    shop.fill();
    (0..8).for_each(|_| _ = shop.ask("198.51.100.7"));
    let (verdict, formula) = why(&shop);
    assert_eq!(verdict, "delay");
    let expected = "16 inside, limit 16, 8 waiting, slow-down 1.00; the request waits behind 24 requests of \
                    network 198.51.100.0/24; the request's turn is in about ";
    assert!(formula.starts_with(expected), "{formula}");
    shop.pass(1);
    assert_eq!(why(&shop), (verdict, formula), "asking changes nothing");
    let [protected] = &shop.throttle.protected()[..] else { panic!("one application") };
    let group = Group { name: "network 198.51.100.0/24".into(), requests: 24 };
    assert_eq!(protected.groups, [group]);
}

#[test]
fn paths_that_are_made_up_are_one_page_and_take_no_memory() {
    let shop = Shop::under(PROTECTED);
    for number in 0..1_000_000 {
        let decision = shop.ask_for("198.51.100.7", &format!("/{number}/x"), true);
        shop.throttle.leave(decision.key, decision.turn(), shop.now);
        if let Some(ticket) = decision.ticket() {
            shop.end_of(&ticket);
        }
    }
    assert_eq!(shop.view(), (0, 0));
}

#[test]
fn its_line_needs_no_number_and_says_what_it_does_not_know() {
    let errors = |line: &str| match parse(&format!("0 rate=unlimited\n2001 {line}\n")) {
        Ok(_) => String::new(),
        Err(errors) => errors.to_string(),
    };
    for line in [
        "law=protect",
        "law=protect share=source slowdown=1.4 max_delay=2s page=endpoint",
        "law=protect share=network+source also=owner",
        "law=protect dry_run=yes",
        "burst=5 rate=1/s law=fair share=network+source",
    ] {
        assert_eq!(errors(line), "", "{line}");
    }
    for (line, reason) in [
        ("law=protect burst=5", "unknown option \"burst\""),
        ("law=protect rate=5/s", "unknown option \"rate\""),
        ("law=protect slowdown=1", "expected a number from 1.1 to 10"),
        ("law=protect max_delay=50ms", "expected at least 200ms"),
        ("law=protect share=a+b+c+d+e", "takes at most 4 fields"),
        ("law=protect share=network+", "expected the name of a field"),
        ("burst=5 rate=1/s law=fair share=a+b+c+d+e", "the fair law takes at most 4 fields"),
        ("burst=5 rate=1/s law=protecd", "pace, "),
    ] {
        assert!(errors(line).contains(reason), "{line}: {}", errors(line));
    }
}

/// The request of an owner that stays within its assured rate.
#[test]
fn an_assured_rate_holds_within_a_protected_application() {
    let slo_map = "0 rate=unlimited\n3001 burst=1 rate=50/s also=website assured=1/s\n2001 law=protect\n";
    let mut shop = Shop::under(slo_map);
    let inside = shop.fill();
    let (assured, waits) = (shop.ask("203.0.113.9"), shop.ask("203.0.113.8"));
    assert_eq!(assured.verdict, Verdict::Pass, "it does not wait for its turn");
    assert!(matches!(waits.verdict, Verdict::Delay(_)));
    assert_eq!(shop.view(), (PLACES + 1, 1), "it is inside all the same");
    let why = |source: &str| {
        let policy = shop.throttle.policy();
        let mut request = Request::new();
        request.push(b"source", Value::address(source.parse().unwrap()));
        request.push(b"website", Value::Text(b"shop.example"));
        let explained = policy.explain(&request);
        let now = shop.now + Duration::from_secs(2);
        let foreseen =
            shop.throttle.foresee_for(explained.asker.as_ref(), &explained.cases, now, Sample::MIDDLE);
        foreseen.decision.verdict.name()
    };
    assert_eq!([why("203.0.113.9"), why("203.0.113.8")], ["pass", "delay"], "an operator is told the same");
    let beyond = shop.ask("203.0.113.9");
    assert!(matches!(beyond.verdict, Verdict::Delay(_)), "a second one within the second waits");
    shop.pass(40);
    assert_eq!(shop.end(&assured), Ended::Counted);
    assert_eq!(shop.view(), (PLACES, 2));
    assert_eq!(shop.end(&inside[0]), Ended::Counted);
    assert_eq!(shop.view(), (PLACES, 1));
}

/// A client that chooses what its group is called.
#[test]
fn the_name_of_a_group_is_short() {
    let shop = Shop::under("0 rate=unlimited\n2001 law=protect share=agent\n");
    let agent = "a".repeat(10_000);
    let ask = || {
        let policy = shop.throttle.policy();
        let mut request = Request::new();
        request.push(b"agent", Value::Text(agent.as_bytes()));
        request.push(b"website", Value::Text(b"shop.example"));
        let mut batch = Batch::of(&policy);
        batch.push(&request);
        batch.may_hold_last();
        let mut decisions = Decisions::new();
        shop.throttle.decide(&batch, shop.now, &mut || Sample::MIDDLE, &mut decisions);
        decisions.only()
    };
    (0..=PLACES).for_each(|_| _ = ask());
    let [protected] = &shop.throttle.protected()[..] else { panic!("one application") };
    assert!(protected.groups[0].name.starts_with("agent aaa") && protected.groups[0].name.len() < 100);
}
