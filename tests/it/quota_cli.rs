//! `slowlane quota`: what a client has used of its quotas, asked of a real daemon.

use serde_json::Value;

use crate::cli::ran;
use crate::support::eventually;
use crate::support::slowlane::Slowlane;

const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n2001 burst=1 rate=1000/month law=fixed-window also=owner\n1001 burst=9 rate=3/s\n\
         2002 burst=1 rate=5/d law=sliding-log\n\
         2003 burst=10MB rate=50GB/month law=fixed-window unit=bytes reserve=1MB\n",
    ),
    ("website.map", "shop.example 2001\nblog.example 2002\nfiles.example 2003\n"),
    ("owner.map", "acme 1001\n"),
];

fn asked(slowlane: &Slowlane, arguments: &[&str]) -> String {
    let admin = slowlane.admin.to_string();
    let outcome = ran(&[&["quota", "--admin", &admin], arguments].concat());
    assert_eq!(outcome.code, 0, "{:?}", outcome.problems);
    outcome.out
}

#[test]
fn a_quota_shows_what_is_used_and_left_and_when_it_resets() {
    let slowlane = Slowlane::with_policy(POLICY);
    for _ in 0..20 {
        let fields = [("X-Slowlane-Website", "shop.example"), ("X-Slowlane-Owner", "acme")];
        slowlane.check("?hold=off", &fields);
    }
    let text = asked(&slowlane, &["website=shop.example", "owner=acme"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        ["SLO 2001 of website shop.example: 1000 in each month (UTC)", "  used    20", "  left    980"]
    );
    assert!(lines[3].starts_with("  resets  20") && lines[3].contains("-01 00:00:00 UTC, in "), "{text}");
    assert_eq!(lines[4], "SLO 1001 of owner acme: 3/s, burst 9");
    assert!(lines[5].starts_with("  no quota: "), "{text}");

    let json =
        |field: &str| -> Value { serde_json::from_str(&asked(&slowlane, &[field, "--json"])).unwrap() };
    let unused = json("website=blog.example");
    assert_eq!(unused["quotas"][0]["used"], 0);
    assert_eq!(unused["quotas"][0]["left"], 5);
    assert_eq!(unused["quotas"][0]["resets_at"], Value::Null);
    slowlane.check("", &[("X-Slowlane-Website", "blog.example")]);
    let used = json("website=blog.example");
    assert_eq!(used["quotas"][0]["left"], 4, "asking counts nothing");
    let resets_in = used["quotas"][0]["resets_in"].as_u64().unwrap();
    assert!((86_000..=86_400).contains(&resets_in), "a day after the request: {resets_in}");
}

#[test]
fn a_quota_of_work_is_in_its_unit() {
    let slowlane = Slowlane::with_policy(POLICY);
    slowlane.check("", &[("X-Slowlane-Website", "files.example")]);
    let text = asked(&slowlane, &["website=files.example"]);
    let number = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap();
        line.trim().strip_suffix(" bytes").unwrap().parse().unwrap()
    };
    assert!(text.starts_with("SLO 2003 of website files.example: "), "{text}");
    assert!((1_000_000..=1_001_000).contains(&number("used")), "a reservation of 1 MB: {text}");
    // Both are rounded.
    assert!((number("used") + number("left")).abs_diff(50_000_000_000) <= 1, "{text}");
}

#[test]
fn a_quota_that_is_lowered_below_its_use_shows_all_of_it() {
    let slowlane = Slowlane::with_policy(POLICY);
    (0..4).for_each(|_| _ = slowlane.check("", &[("X-Slowlane-Website", "blog.example")]));
    slowlane.replace("slo.map", "0 rate=unlimited\n1001 burst=9 rate=3/s\n2001 burst=1 rate=9/s\n2002 burst=1 rate=3/d law=sliding-log\n2003 burst=1 rate=9/s\n");
    let text = eventually("the new limit is in force", || {
        Some(asked(&slowlane, &["website=blog.example"])).filter(|text| text.contains(": 3 in "))
    });
    assert!(text.contains("  used    4\n  left    0\n"), "{text}");
}
