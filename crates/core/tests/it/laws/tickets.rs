//! Open tickets beside the table: which requests under `concurrency` have not ended.

use std::net::Ipv4Addr;
use std::time::Duration;

use slowlane_core::base::{Decision, Request, Sample, Value, Verdict};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

use super::lines::policy;
use super::oracle::{at_ms, ends};

/// A throttle with this much beside its table, and a rule for each source.
fn of_sources(bytes_max: usize) -> Throttle {
    let slo_map = "0 rate=unlimited\n3001 burst=5 rate=1/s law=concurrency max=9 lease=8h\n";
    let policy = policy(slo_map, &[("source.map", "::/0 3001\n")]);
    Throttle::new(policy, Sizing { entries_max: 100_000, expire: Duration::from_secs(60) }, bytes_max)
}

fn begun_by(throttle: &Throttle, source: u32) -> Decision {
    let mut request = Request::new();
    request.push(b"source", Value::address(Ipv4Addr::from_bits(source).into()));
    throttle.decide_one(&request, at_ms(0), Sample::MIDDLE)
}

/// The requests of 248,000 sources that had ended filled the room of the default until their leases were over.
#[test]
fn requests_that_have_ended_take_no_room() {
    let throttle = of_sources(64 << 10);
    let ends = |decision: &Decision| ends(&throttle, &decision.ticket().unwrap(), at_ms(1));
    let known: Vec<Decision> = (0..4).map(|_| begun_by(&throttle, 1)).collect();
    for source in 2..50_000 {
        let decision = begun_by(&throttle, source);
        assert_eq!((ends(&decision), ends(&decision)), (true, false));
    }
    let bytes = throttle.aux_usage().bytes;
    assert!(bytes < (64 << 10) / 3, "three quarters stay free: {bytes}");
    let more: Vec<Decision> = (0..5).map(|_| begun_by(&throttle, 1)).collect();
    assert_eq!(begun_by(&throttle, 1).verdict.name(), "deny");
    for decision in known.iter().chain(&more) {
        assert_eq!((ends(decision), ends(decision)), (true, false), "each ends once");
    }
    assert_eq!(throttle.aux_usage().fallbacks, 0);
}

#[test]
fn without_room_only_the_new_ticket_goes_unremembered() {
    let throttle = of_sources(64 << 10);
    let ends = |decision: &Decision| ends(&throttle, &decision.ticket().unwrap(), at_ms(1));
    let known: Vec<Decision> = (0..4).map(|_| begun_by(&throttle, 1)).collect();
    // Requests that do not end take the rest of the room.
    let others = (2..).take_while(|&source| {
        begun_by(&throttle, source);
        throttle.aux_usage().fallbacks == 0
    });
    assert!(others.count() > 100);
    let fifth = begun_by(&throttle, 1);
    assert_eq!((fifth.verdict, throttle.aux_usage().fallbacks), (Verdict::Pass, 2));
    for decision in &known {
        assert_eq!((ends(decision), ends(decision)), (true, false), "it is still remembered");
    }
    assert!(ends(&fifth));
}

/// A key without open tickets leaves, and comes back in the same millisecond.
#[test]
fn a_ticket_from_before_closes_none_of_a_key_that_has_come_back() {
    let throttle = of_sources(64 << 10);
    let ends = |decision: &Decision| ends(&throttle, &decision.ticket().unwrap(), at_ms(0));
    let first = begun_by(&throttle, 1);
    assert!(ends(&first));
    let again = begun_by(&throttle, 1);
    assert_eq!((ends(&first), ends(&again)), (false, true));
}
