//! A policy as an operator sees it: its doubts about sharing, its maps and their lines.

use std::time::Duration;

use slowlane_core::base::{Request, Sharing, SloId, Value};
use slowlane_core::policy::WarningKind;

use crate::laws::lines::policy;
use crate::laws::oracle::Subject;

fn id(number: u32) -> SloId {
    SloId::new(number).unwrap()
}

#[test]
fn a_mode_that_a_law_cannot_have_is_refused_with_those_that_it_can() {
    assert_eq!(
        Subject::parse("burst=1 rate=1/s law=pace cluster=lease").unwrap_err(),
        "cluster=lease: the pace law allows only rate, split, local"
    );
    assert_eq!(
        Subject::parse("burst=1 rate=1/s law=fair cluster=rate").unwrap_err(),
        "cluster=rate: the fair law allows only local"
    );
}

#[test]
fn slos_are_listed_by_their_modes_and_modes_without_any_are_not() {
    let policy = policy(
        "0 burst=1 rate=1/s\n1 burst=0 rate=9/h law=fixed-window cluster=lease\n2 burst=1 rate=2/s\n",
        &[],
    );
    assert_eq!(policy.sharings(), [(Sharing::Rate, vec![id(0), id(2)]), (Sharing::Lease, vec![id(1)])]);
}

/// The first warning about the SLO of this line, in a cluster with a period of a tenth of a second.
fn doubt(line: &str) -> Option<WarningKind> {
    let mut policy = policy(&format!("0 rate=unlimited\n1 {line}\n"), &[]);
    let before = policy.warnings().listed().len();
    policy.warn_of_sharing(Duration::from_millis(100), true);
    policy.warnings().listed().get(before).map(|warning| warning.kind.clone())
}

#[test]
fn a_count_of_an_hour_or_more_is_a_quota_that_may_be_exceeded() {
    let window = |window: &str| doubt(&format!("burst=0 rate=1/s law=fixed-window window={window}"));
    assert_eq!(window("3599s"), None);
    let (sharing, hour) = ("count", Duration::from_secs(3_600));
    assert_eq!(window("3600s"), Some(WarningKind::Quota { sharing, window: hour }));
    assert_eq!(doubt("burst=0 rate=9/h law=fixed-window cluster=lease"), None);
}

#[test]
fn what_haproxy_cannot_do_as_a_peer_is_a_warning() {
    let mut policy =
        policy("0 law=protect\n1001 burst=1s rate=1s/s unit=seconds\n1002 burst=1 rate=1/s\n", &[]);
    let before = policy.warnings().listed().len();
    policy.warn_of_peers();
    let added: Vec<_> =
        policy.warnings().listed()[before..].iter().map(|warning| (warning.line, &warning.kind)).collect();
    let asked = WarningKind::Asked("seconds".to_owned());
    assert_eq!(added, [(Some(1), &WarningKind::Unprotected), (Some(2), &asked)]);
}

/// Two nodes have less than a request each in a tenth of a second. A law that refuses has no turns.
#[test]
fn a_low_rate_is_uneven_if_haproxy_enforces_it_for_several_nodes() {
    for (rate, is_uneven) in [("10/s", true), ("19/s", true), ("20/s", false), ("2000/s", false)] {
        let kind = doubt(&format!("burst=50 rate={rate}"));
        assert_eq!(matches!(kind, Some(WarningKind::Uneven { .. })), is_uneven, "{rate}");
    }
    assert_eq!(doubt("burst=50 rate=10/s law=token-bucket"), None);
    assert_eq!(doubt("burst=50 rate=10/s cluster=local"), None);
}

/// 1.5 periods at 2000/s are 300 requests, and at 25/s four.
#[test]
fn a_burst_of_less_than_one_and_a_half_periods_is_hasty_if_a_slot_is_less_than_half_of_one() {
    let least = |line: &str| match doubt(&format!("{line} law=token-bucket"))? {
        WarningKind::Hasty { least, .. } => Some(least),
        other => panic!("{other}"),
    };
    assert_eq!([least("burst=299 rate=2000/s"), least("burst=300 rate=2000/s")], [Some(300), None]);
    assert_eq!([least("burst=3 rate=25/s"), least("burst=4 rate=25/s")], [Some(4), None]);
    // Two slots are a whole period.
    assert_eq!(least("burst=1 rate=20/s"), None);
}

#[test]
fn a_policy_of_unlimited_rates_has_no_limits() {
    assert!(!policy("0 rate=unlimited\n3001 rate=unlimited\n", &[]).has_limits());
    assert!(policy("0 rate=unlimited\n2001 law=protect\n", &[]).has_limits());
    assert!(policy("0 rate=unlimited\n3001 burst=1 rate=1/s\n", &[]).has_limits());
}

#[test]
fn a_host_behind_a_network_is_found_in_any_spelling() {
    let policy = policy(
        "0 burst=1 rate=1/s\n5001 burst=1 rate=1/s\n",
        &[("source+website.map", "192.0.2.0/24+Shop.Example.:80 5001\n")],
    );
    let mut request = Request::new();
    request.push(b"source", Value::address("192.0.2.9".parse().unwrap()));
    request.push(b"website", Value::Text(b"shop.example"));
    assert_eq!(policy.cases(&request).list[0].slo.id, id(5_001));
}
