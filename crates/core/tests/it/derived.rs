//! Derived fields: what slowlane makes of another field decides as a field that the proxy sends.

use std::io;
use std::path::Path;
use std::time::Duration;

use slowlane_core::base::{Request, Sample, SloId, Timestamp, Value};
use slowlane_core::policy::{Derivation, Layout, Lookup, Method, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

/// A lookup of one field, in the map of its name.
fn lookup(field: &str, method: Method) -> Lookup {
    Lookup { fields: vec![field.into()], file: format!("{field}.map").into(), method, is_added: false }
}

fn layout() -> Layout {
    let mut lookups = Layout::default().lookups().to_vec();
    lookups.push(lookup("network", Method::Str));
    Layout::default().with_type(6, vec!["network".into()]).unwrap().with_lookups(lookups).unwrap()
}

fn policy(layout: &Layout, files: &[(&str, &str)]) -> Policy {
    let read = |path: &Path| {
        let file = files.iter().find(|(name, _)| path == Path::new(name));
        file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    Policy::parse(Path::new(""), layout, read).unwrap()
}

fn throttle(policy: Policy) -> Throttle {
    Throttle::new(policy, Sizing { entries_max: 10_000, expire: Duration::from_secs(30) }, 1 << 20)
}

/// The SLO that decides about a request, and whether it passes.
fn ask(throttle: &Throttle, fields: &[(&str, Value<'_>)]) -> (u32, bool) {
    let mut request = Request::new();
    fields.iter().for_each(|(name, value)| request.push(name.as_bytes(), *value));
    let decision = throttle.decide_one(&request, NOW, Sample::MIDDLE);
    (decision.slo.number(), decision.is_let_through())
}

fn source(address: &str) -> (&str, Value<'_>) {
    ("source", Value::address(address.parse().unwrap()))
}

#[test]
fn a_network_is_looked_up_and_counted_like_a_field() {
    let throttle = throttle(policy(
        &layout(),
        &[
            ("slo.map", "0 rate=unlimited\n6001 burst=2 rate=1/h law=token-bucket\n"),
            ("network.map", "198.51.100.0/24 6001\n2001:db8:7::/48 6001\n"),
        ],
    ));
    assert_eq!(ask(&throttle, &[source("198.51.100.7")]), (6001, true));
    assert_eq!(ask(&throttle, &[source("198.51.100.8")]), (6001, true));
    assert_eq!(ask(&throttle, &[source("198.51.100.9")]), (6001, false), "one bucket for the network");
    assert_eq!(ask(&throttle, &[source("198.51.101.9")]), (0, true));
    // Text, as nginx sends it, and the other family have buckets of their own.
    assert_eq!(ask(&throttle, &[("source", Value::Text(b"2001:db8:7:1::1"))]), (6001, true));
    assert_eq!(ask(&throttle, &[("source", Value::Text(b"no address"))]), (0, true));
}

/// The client chooses the bytes of a header of this name.
#[test]
fn a_client_does_not_choose_its_network() {
    let throttle = throttle(policy(
        &layout(),
        &[
            ("slo.map", "0 rate=unlimited\n6001 burst=1 rate=1/h law=token-bucket\n"),
            ("network.map", "198.51.100.0/24 6001\n"),
        ],
    ));
    let lie = ("network", Value::Text(b"192.0.2.0/24"));
    assert_eq!(ask(&throttle, &[lie, source("198.51.100.7")]), (6001, true));
    assert_eq!(ask(&throttle, &[source("198.51.100.7"), lie]), (6001, false));
    let truth = ("network", Value::Text(b"198.51.100.0/24"));
    assert_eq!(ask(&throttle, &[truth]), (0, true), "without a source there is no network");
}

#[test]
fn a_block_by_a_network_needs_no_policy_that_uses_it() {
    let throttle = throttle(policy(&Layout::default(), &[("slo.map", "0 rate=unlimited\n")]));
    let fields = throttle.policy().block_fields([("network", "198.51.100.0/24")]).unwrap();
    throttle.block(fields, NOW + Duration::from_secs(60), NOW).unwrap();
    assert!(!ask(&throttle, &[source("198.51.100.7")]).1);
    assert!(!ask(&throttle, &[("network", Value::Text(b"x")), source("198.51.100.200")]).1);
    assert!(ask(&throttle, &[source("198.51.101.7")]).1);
}

#[test]
fn a_policy_needs_the_field_that_a_derived_one_is_made_of() {
    let policy = policy(
        &layout(),
        &[
            (
                "slo.map",
                "0 rate=unlimited\n2001 burst=9 rate=9/s law=fair share=network\n6001 burst=1 rate=1/s\n",
            ),
            ("network.map", "198.51.100.0/24 6001\n"),
            ("website.map", "shop.example 2001\n"),
        ],
    );
    let needed: Vec<_> =
        policy.needed_fields().map(|needed| (needed.field, policy.needed_by(&needed))).collect();
    let of_source = ["network.map", "type 6", "share=network"].map(String::from).to_vec();
    let of_website = ["website.map", "type 2"].map(String::from).to_vec();
    assert_eq!(needed, [("source", of_source), ("website", of_website)]);
    assert!(!layout().sent_fields().contains("network"));
}

#[test]
fn fair_shares_between_networks() {
    let sharers = |share: &str| {
        let slo_map = format!("0 rate=unlimited\n2001 burst=0 rate=10/s law=fair share={share}\n");
        let files = [("slo.map", &*slo_map), ("website.map", "shop.example 2001\n")];
        let policy = policy(&Layout::default(), &files);
        ["198.51.100.1", "198.51.100.2", "192.0.2.1"].map(|address| {
            let mut request = Request::new();
            request.push(b"website", Value::Text(b"shop.example"));
            request.push(b"source", source(address).1);
            policy.cases(&request).list[0].sharer
        })
    };
    let [one, neighbour, other] = sharers("network");
    assert!(one == neighbour && one != other);
    let [one, neighbour, other] = sharers("source");
    assert!(one != neighbour && one != other);
    let [one, neighbour, other] = sharers("network+source");
    assert!(one >> 32 == neighbour >> 32 && one != neighbour && one >> 32 != other >> 32);
}

#[test]
fn other_networks_are_other_fields() {
    let region = Derivation::Network { from: "peer".into(), ipv4_prefix: 16, ipv6_prefix: 32 };
    let layout = Layout::default().with_derived("region", region).unwrap();
    let layout = layout.with_type(7, vec!["region".into()]).unwrap();
    let layout = layout.with_lookups(vec![lookup("region", Method::Str)]).unwrap();
    let files =
        [("slo.map", "0 rate=unlimited\n7001 burst=1 rate=1/h\n"), ("region.map", "198.51.0.0/16 7001\n")];
    let throttle = throttle(policy(&layout, &files));
    let peer = ("peer", Value::address("198.51.3.4".parse().unwrap()));
    assert_eq!(ask(&throttle, &[peer]).0, 7001);
    assert_eq!(ask(&throttle, &[("peer", Value::Text(b"198.51.3.4"))]).0, 7001, "as nginx sends it");
    assert_eq!(SloId::new(7001).unwrap().kind(), 7);
}
