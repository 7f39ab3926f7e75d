//! Through a real HAProxy, with the configuration files that slowlane ships.

use std::time::Duration;

use crate::support::backend::Backend;
use crate::support::haproxy::{Delivery, Haproxy, Version};
use crate::support::slowlane::Slowlane;

/// One SLO per website: two requests at once, then one per half a second; and one that denies soon.
const POLICY: &[(&str, &str)] = &[
    ("slo.map", "0 burst=10000 rate=5000/s\n2001 burst=2 rate=2/s\n2002 burst=1 rate=1/m max_delay=1s\n"),
    ("website.map", "slow.example 2001\ndenied.example 2002\n"),
];

/// The combinations that are shipped; those whose HAProxy cannot be had are skipped, and say so.
fn each_delivery(test: impl Fn(Version, Delivery)) {
    for (version, delivery) in [
        (Version::V2_6, Delivery::Hold),
        (Version::V2_6, Delivery::Lua),
        (Version::V3_0, Delivery::Hold),
        (Version::V3_2, Delivery::Hold),
        (Version::V3_2, Delivery::Pause),
    ] {
        match version.binary() {
            Some(_) => test(version, delivery),
            None => eprintln!("SKIPPED: HAProxy {version:?} cannot be had on this machine ({delivery:?})"),
        }
    }
}

#[test]
fn requests_pass_wait_and_are_denied() {
    each_delivery(|version, delivery| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let mut haproxy =
            Haproxy::shipped(version, delivery, &slowlane.spop.to_string(), app.address).unwrap();
        haproxy.wait_for_agent("UP");
        let mut client = haproxy.client();
        let mut get = |host| client.request("GET", "/", &[("Host", host)], "");

        assert_eq!(get("free.example").status, 200);
        assert_eq!(slowlane.metric("slowlane_verdicts_total", "slo=\"0\",verdict=\"pass\""), 1.0);

        assert_eq!((get("slow.example").status, get("SLOW.example:8080").status), (200, 200));
        let third = get("slow.example");
        assert_eq!(third.status, 200);
        assert!(third.took >= Duration::from_millis(400), "{version:?} {delivery:?}: {:?}", third.took);
        assert_eq!(slowlane.metric("slowlane_verdicts_total", "slo=\"2001\",verdict=\"delay\""), 1.0);

        assert_eq!(get("denied.example").status, 200);
        let denied = get("denied.example");
        assert_eq!(denied.status, 429);
        assert_eq!(denied.header("retry-after"), Some("59"));
    });
}
