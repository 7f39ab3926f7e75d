//! HAProxy's own log with peers: the verdict and the delay of each request, and the SLO id of those that ask.

use super::started::{EACH, FIVE, ask, haproxy, pushed, slowlane};
use crate::support::backend::Backend;
use crate::support::haproxy::{Haproxy, each};
use crate::support::{eventually, own_address};

/// Another law of the same id, which HAProxy's rules do not know: its requests ask.
const FAIR: &str = "0 rate=unlimited\n3001 burst=1000 rate=500/s law=fair\n";

/// What the last line of HAProxy's log that contains a text says of slowlane: verdict, delay, SLO id, error.
fn logged(haproxy: &Haproxy, text: &str) -> Option<Vec<String>> {
    let log = haproxy.process.log();
    let line = log.iter().rfind(|line| line.contains(text))?;
    let words = line.split(" slowlane=").nth(1)?.split(' ').next()?;
    Some(words.split('/').map(str::to_owned).collect())
}

#[test]
fn the_log_has_the_verdict_of_each_request_and_the_slo_of_those_that_ask() {
    each(EACH, |version, delivery| {
        let app = Backend::start();
        let (slowlane, peers) = slowlane(FIVE, "");
        let proxy = haproxy((version, delivery), "lb1", own_address(), &slowlane, peers, &app).unwrap();

        assert_eq!(ask(&proxy, "192.0.2.1"), 200);
        pushed(&proxy, "192.0.2.1");
        eventually("it is refused", || (ask(&proxy, "192.0.2.1") == 429).then_some(()));
        let refused = eventually("the refusal is logged", || logged(&proxy, " 429 "));
        assert_eq!((refused[0].as_str(), refused[2].as_str()), ("deny", "-"), "a limit has no SLO id");

        slowlane.replace("slo.map", FAIR);
        eventually("it asks, and the answer is logged", || {
            ask(&proxy, "192.0.2.2");
            let asked = logged(&proxy, "192.0.2.2:")?;
            (asked[0] == "pass" && asked[2] == "3001").then_some(())
        });
    });
}
