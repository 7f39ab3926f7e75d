//! The status page as an operator uses it at night: who is throttled, why, and what to do, in a real browser.

use serde_json::json;

use crate::support::chromium::Chromium;
use crate::support::client;
use crate::support::eventually;
use crate::support::slowlane::Slowlane;

const SLO_MAP: &str = "0 rate=unlimited\n2001 burst=2 rate=1/h max_delay=1d\n3001 burst=1 rate=1/h\n";

fn slowlane() -> Slowlane {
    let sources = "# crawlers\n192.0.2.0/24 3001\n::/0 3001\n";
    Slowlane::with_policy(&[
        ("slo.map", SLO_MAP),
        ("website.map", "shop.example 2001\n"),
        ("source.map", sources),
    ])
}

fn check(slowlane: &Slowlane, source: &str) -> u16 {
    slowlane.check("?hold=off", &[("X-Slowlane-Source", source)]).status
}

fn checks(slowlane: &Slowlane, source: &str, count: usize) {
    for _ in 0..count {
        check(slowlane, source);
    }
}

fn open(slowlane: &Slowlane, width: u32, height: u32) -> Chromium {
    let mut page = Chromium::open(&format!("http://{}/", slowlane.admin), width, height);
    page.shows("#state", "live");
    page
}

#[test]
fn it_says_at_once_who_is_throttled_and_by_which_line_of_which_map() {
    let slowlane = slowlane();
    let mut page = open(&slowlane, 390, 844);
    page.shows("#say", "No client is throttled now");
    checks(&slowlane, "192.0.2.7", 5);
    page.shows("#say", "Throttled now: source=192.0.2.7");
    page.shows("#say-more", "1/h, burst 1 by source.map:2, for ");
    page.shows("#say-more", ": refused");
    page.shows("#keys tbody tr:first-child", "source.map:2, SLO 3001");
    // On a phone, the answer is seen without scrolling.
    let bottom = page.value("document.querySelector('#keys tbody tr').getBoundingClientRect().bottom");
    assert!(bottom.as_f64().unwrap() < 600.0, "{bottom}");
    checks(&slowlane, "2001:db8::1", 4);
    page.shows("#say", " and 1 other");
    page.shows("#keys", "source.map:3, SLO 3001");
    // After an edit, the line is that of the new policy.
    slowlane.replace("source.map", "192.0.2.0/24 3001\n::/0 3001\n");
    page.shows("#keys", "source.map:1, SLO 3001");
    assert_eq!(page.problems(), [""; 0]);
}

#[test]
fn a_page_without_throttled_clients_says_what_to_do_next() {
    let slowlane = Slowlane::with_policy(&[("slo.map", "0 rate=unlimited\n")]);
    let mut page = open(&slowlane, 1200, 900);
    page.shows("#keys", "No proxy is connected. Next: slowlane attach haproxy, or slowlane attach nginx");
    let mut proxy = client::Client::connect(slowlane.http);
    page.shows(
        "#keys",
        "A proxy is connected, but no request has arrived in the last five minutes. Next: slowlane doctor",
    );
    proxy.request("GET", "/check", &[("X-Slowlane-Source", "192.0.2.1")], "");
    page.shows("#keys", "No limit is in force: requests are only counted. Next: slowlane advise ACCESS_LOG");
    slowlane.replace("slo.map", "0 rate=unlimited\n3001 burst=9 rate=9/s\n");
    page.shows("#keys", "No client is throttled: all requests are within their limits.");
}

#[test]
fn a_client_is_explained_beside_its_row_and_blocked_from_there() {
    let slowlane = slowlane();
    for source in ["192.0.2.7", "192.0.2.8"] {
        checks(&slowlane, source, 5);
    }
    let mut page = open(&slowlane, 1200, 900);
    page.shows("#keys", "192.0.2.7");
    page.shows("#keys", "192.0.2.8");
    page.value("document.querySelector('#keys tbody tr:nth-child(2) button').click()");
    page.shows("#why-text", "nothing was counted");
    let who = page.text("#keys tbody tr:nth-child(2) button");
    let other = if who.ends_with('7') { "192.0.2.8" } else { "192.0.2.7" };
    let source = who.strip_prefix("source=").unwrap().to_owned();
    assert!(page.text("#why").starts_with(&format!("Why: source={source}")));
    assert!(page.text("#why-text").contains("/source.map:2 (lookup source)"));
    let is_below = "document.querySelector('#keys tbody tr:nth-child(3)').id";
    assert_eq!(page.value(is_below), "why-row");
    // It keeps its place, though another one is throttled more now.
    checks(&slowlane, other, 30);
    page.shows("#keys tbody tr:first-child", "\t34\t");
    assert_eq!(page.text("#keys tbody tr:nth-child(2) button"), who);
    assert_eq!(page.value(is_below), "why-row");

    assert_eq!(check(&slowlane, &source), 403);
    slowlane.replace("slo.map", &SLO_MAP.replace("3001 burst=1 rate=1/h", "3001 burst=9000 rate=9000/s"));
    eventually("it is no longer limited", || (check(&slowlane, &source) == 204).then_some(()));
    page.value("document.querySelector('#block-time').value = '1h'");
    page.click("#block button");
    page.shows("#block-done", &format!("blocked source={source} for 1h"));
    assert_eq!([check(&slowlane, &source), check(&slowlane, other)], [403, 204]);
    page.click("#unblock");
    page.shows("#block-done", &format!("unblocked source={source}"));
    assert_eq!(check(&slowlane, &source), 204);
    assert_eq!(page.problems(), [""; 0]);
}

#[test]
fn the_last_minutes_and_the_day_are_a_click_away() {
    let slowlane = slowlane();
    checks(&slowlane, "192.0.2.7", 5);
    (0..4).for_each(|_| drop(slowlane.check("?hold=off", &[("X-Slowlane-Website", "shop.example")])));
    let mut page = open(&slowlane, 1200, 900);
    page.shows("#keys", "website=shop.example");
    page.click("#ranges button:nth-child(4)");
    page.shows("#keys-count", "2; requests delayed 2, denied 4");
    page.shows("#past-keys tbody tr:first-child", "source=192.0.2.7\t3001\t4\t0\t4\t");
    page.shows("#past-keys tbody tr:nth-child(2)", "website=shop.example\t2001\t2\t2\t0\t");
    assert_eq!(page.value("document.querySelector('#keys').checkVisibility()"), false);
    assert_eq!(page.value("document.querySelectorAll('#history-chart rect').length"), 2);
    page.value("document.querySelector('#past-keys tbody button').click()");
    page.shows("#why-text", "nothing was counted");
    page.click("#ranges button:nth-child(1)");
    page.shows("#keys", "website=shop.example");
    assert_eq!(page.value("document.querySelector('#why').checkVisibility()"), false);
    assert_eq!(page.value("document.querySelector('#ranges [aria-pressed=true]').textContent"), "now");
    assert_eq!(page.problems(), [""; 0]);
}

/// Numbers change each second, and nothing that one reads or points at moves.
#[test]
fn nothing_moves_while_it_refreshes() {
    let slowlane = slowlane();
    checks(&slowlane, "192.0.2.7", 3);
    for (width, height) in [(1200, 900), (390, 844)] {
        let mut page = open(&slowlane, width, height);
        page.shows("#keys", "192.0.2.7");
        page.shows("#keys", "source.map:2");
        page.value(
            "window.moved = []; new PerformanceObserver(list => list.getEntries().forEach(entry => \
             moved.push([entry.value, entry.sources.map(source => source.node?.id || source.node?.outerHTML)]))) \
             .observe({ type: 'layout-shift' })",
        );
        for (number, rates) in
            [[0.0, 0.0, 0.0], [9.5, 0.25, 1_234.0], [12_345.6, 99.99, 7.0]].iter().enumerate()
        {
            // As if the daemon had other numbers.
            page.value(&format!(
                "show({{ ...latest, rates: {rates:?}, uptime_s: {}, delay: {{ p50_ms: {}, p99_ms: 4999 }}, \
                 keys: latest.keys.map(key => ({{ ...key, throttled_per_s: {}, delayed: {} }})) }})",
                number * 5_000,
                number * 99,
                rates[1],
                number * 12_345
            ));
            page.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))");
        }
        // Further clients find room that was kept for them.
        checks(&slowlane, "192.0.2.9", 3);
        page.shows("#keys", "192.0.2.9");
        page.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))");
        assert_eq!(page.value("moved"), json!([]), "{width}");
    }
}
