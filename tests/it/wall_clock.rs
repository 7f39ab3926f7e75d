//! The wall clock is set while slowlane runs: quotas of the calendar follow it, and rates do not.

use std::fs;

use serde_json::Value;

use crate::support::client;
use crate::support::slowlane::Slowlane;

const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n2001 burst=0 rate=2/month law=fixed-window\n2002 burst=2 rate=1/h max_delay=1s\n",
    ),
    ("website.map", "month.example 2001\nrate.example 2002\n"),
];

/// A machine without a battery starts long ago, and learns the time when the network is there.
#[test]
fn a_late_time_service_begins_a_new_month_and_changes_no_rate() {
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("clock");
    fs::write(&clock, "-400d").unwrap();
    let mut slowlane = Slowlane::with_clock(POLICY, "", clock.to_str().unwrap());
    let (http, admin) = (slowlane.http, slowlane.admin);
    let ask = |website: &str| client::get(http, "/check?hold=off", &[("X-Slowlane-Website", website)]).status;
    let resets_at = || {
        let quota = client::get(admin, "/api/quota?website=month.example", &[("Accept", "application/json")]);
        let quota: Value = serde_json::from_str(&quota.body).unwrap();
        quota["quotas"][0]["resets_at"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        ["month.example", "rate.example"].map(|website| [ask(website), ask(website), ask(website)]),
        [[204, 204, 403]; 2]
    );
    let before = resets_at();

    fs::write(&clock, "+0").unwrap();
    let told = slowlane.process.logged("the system's clock was set forward by ");
    assert!(told.ends_with(" s: calendar quotas follow it, but rates do not"), "{told}");
    assert_eq!(
        [ask("month.example"), ask("month.example"), ask("month.example")],
        [204, 204, 403],
        "a new month"
    );
    assert_eq!(ask("rate.example"), 403, "an hour has not passed");
    let after = resets_at();
    let year = |at: &str| at[..4].parse::<u32>().unwrap();
    assert!(year(&after) > year(&before) && after.ends_with("-01 00:00:00"), "{before} {after}");

    // Set back by a little: what counts in this month still does.
    fs::write(&clock, "-5s").unwrap();
    slowlane.process.logged("the system's clock was set back by ");
    assert_eq!([ask("month.example"), ask("rate.example")], [403, 403]);
}
