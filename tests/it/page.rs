//! The status page, in a real browser.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use spop::{Data, HaproxyHello};

use crate::cli::ran;
use crate::support::chromium::{Chromium, bytes_of};
use crate::support::client::{self, Client};
use crate::support::redis::Redis;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::spop::{Heard, Line, message};
use crate::support::{eventually, project};

/// Names that would be harmful without escaping, in a page or in a terminal.
const SCRIPT: &str = "<script>document.title='hacked'</script>";
const IMAGE: &str = "<img/src=x/onerror=document.title='hacked'>";
const ESCAPE: &str = "\x1b[2J\x1b]0;hacked\x07";

const SLO_MAP: &str = "0 burst=10000 rate=5000/s\n2001 burst=2 rate=1/h max_delay=1d\n\
                       1002 burst=3 rate=1/d\n3001 burst=1 rate=1/h\n";

/// `shop.example` is delayed from its third request on, by an hour and more; the others are denied.
fn policy() -> [(&'static str, String); 4] {
    let owner = format!("{SCRIPT} 1002\n{IMAGE} 1002\n{ESCAPE} 1002\n");
    let website = format!("shop.example 2001\n{SCRIPT} 2001\n");
    let source = "2001:db8::/32 3001\n".to_owned();
    [("slo.map", SLO_MAP.into()), ("website.map", website), ("source.map", source), ("owner.map", owner)]
}

fn slowlane() -> Slowlane {
    let policy = policy();
    Slowlane::with_policy(&policy.each_ref().map(|(name, text)| (*name, text.as_str())))
}

/// A connection of HAProxy.
fn engine(slowlane: &Slowlane, id: &str) -> Line {
    let mut hello = Vec::new();
    let offered = HaproxyHello { engine_id: Some(id.as_bytes()), ..HaproxyHello::new(16_380) };
    offered.encode(&mut hello);
    let mut line = Line::silent(slowlane.spop);
    line.say(&hello);
    assert_eq!(line.hear(), Heard::Hello);
    line
}

/// Sends a few requests of each source.
fn ask(line: &mut Line) {
    for (times, source, website) in [
        (7, "192.0.2.1", "shop.example"),
        (9, "2001:db8:1:2::3", "other.example"),
        (20, "192.0.2.9", "free.example"),
    ] {
        for stream in 0..times {
            line.ask(stream, source, website);
        }
    }
    for (times, owner) in [(4, SCRIPT), (5, IMAGE), (6, ESCAPE)] {
        for stream in 0..times {
            let (source, owner) = (Data::Ipv4(Ipv4Addr::new(192, 0, 2, 1)), Data::Str(owner.as_bytes()));
            line.say(&message(stream, b"request", &[(b"owner", owner), (b"source", source)]));
            line.hear();
        }
    }
}

fn status(slowlane: &Slowlane) -> Value {
    serde_json::from_str(&client::get(slowlane.admin, "/api/status", &[]).body).unwrap()
}

/// Whether the explanation of a key is open.
const IS_OPEN: &str = "document.querySelector('#why').checkVisibility()";

fn page(slowlane: &Slowlane) -> Chromium {
    Chromium::open(&format!("http://{}/", slowlane.admin), 1200, 900)
}

#[test]
fn a_node_of_a_cluster_shows_the_others_and_the_store() {
    let mut redis = Redis::start();
    let node = |rate: &str| {
        let slo_map = format!("0 burst=9 rate={rate}\n");
        let config = format!("[cluster]\nstore = \"{}\"\n", redis.url());
        Slowlane::with_config(&[("slo.map", &slo_map)], &config)
    };
    let (one, _other) = (node("9/s"), node("8/s"));
    eventually("both know each other", || (status(&one)["cluster"]["nodes"] == 2).then_some(()));
    let top =
        || Command::new(BINARY).args(["top", "--once", "--admin", &one.admin.to_string()]).output().unwrap();
    let top = || String::from_utf8(top().stdout).unwrap();
    let mut page = page(&one);
    page.shows("#nodes", "2 nodes");
    page.shows("#store", " ms, keys shared 0; 1 with different SLOs");
    assert!(top().contains("; cluster of 2, 1 with OTHER SLOs\n"), "{}", top());
    redis.kill();
    page.shows("#store", "store silent for ");
    assert!(top().contains("; STORE SILENT for "), "{}", top());
}

#[test]
fn an_operator_sees_who_is_throttled_and_nothing_that_a_client_says_does_anything() {
    let slowlane = slowlane();
    let (mut line, _other) = (engine(&slowlane, "engine-one"), engine(&slowlane, "<b>engine-two"));
    ask(&mut line);
    let mut page = page(&slowlane);

    page.shows("#state", "live");
    page.shows("#keys", "website=shop.example");
    let keys = page.text("#keys");
    for text in [SCRIPT, IMAGE, r"owner=\u{1b}[2J\u{1b}]0;hacked\u{7}", "source=2001:db8:1:2::/64"] {
        assert!(keys.contains(text), "{text} in\n{keys}");
    }
    assert!(!keys.contains("free.example"), "who passes is not there:\n{keys}");
    page.shows("#connected", "SPOP (HAProxy)");
    page.shows("#slos", "5000/s, burst 10000");
    page.shows("#table", "of 1M");
    page.shows("#uptime", "up ");
    assert_eq!(page.text("#version"), env!("CARGO_PKG_VERSION"));
    page.shows("#reloads", "max_delay 1d is longer than [hold] longest");
    assert_eq!(page.value("document.querySelector('#cluster').hidden"), true, "it is alone");

    // Sorted by throttling first, then by another column in both directions.
    let first = "#keys tbody tr:first-child";
    let denied = "#keys th:nth-child(8) button";
    page.shows(first, "source=2001:db8:1:2::/64");
    page.click(denied);
    page.click(denied);
    page.shows(first, "website=shop.example");
    page.click("#keys-filter");
    page.type_text("ONERROR");
    page.shows(first, IMAGE);
    assert_eq!(page.value("document.querySelectorAll('#keys tbody tr').length"), 1);
    page.type_text(" nobody");
    page.shows(first, "nothing matches");

    // The explanation of a key shows its lines, numbers and verdict.
    page.value(
        "const filter = document.querySelector('#keys-filter'); filter.value = 'shop'; \
                filter.dispatchEvent(new Event('input'))",
    );
    page.shows(first, "website=shop.example");
    page.click("#keys tbody button");
    page.shows("#why", "Why: website=shop.example");
    page.shows("#why-text", "nothing was counted");
    let why = page.text("#why-text");
    for part in [
        "request   website=shop.example source=192.0.2.1\n",
        "\nSLO 2001  burst=2 rate=1/h max_delay=1d\n",
        "/website.map:1 (lookup website",
        "\n  pace    used ",
        "\n  says    delay ",
    ] {
        assert!(why.contains(part), "{part} in\n{why}");
    }
    page.click("#why-close");
    assert_eq!(page.value(IS_OPEN), false);
    // The explanation of a harmful name has no effect on the page.
    page.value(
        "const hostile = document.querySelector('#keys-filter'); hostile.value = '<script>'; \
                hostile.dispatchEvent(new Event('input'))",
    );
    page.shows(first, SCRIPT);
    // By keyboard only: after closing, the focus is back on the button.
    page.value("document.querySelector('#keys tbody button').focus()");
    page.press("Enter");
    page.shows("#why-text", "\nSLO 1002  burst=3 rate=1/d\n");
    assert!(page.text("#why-text").contains(&format!("request   owner={SCRIPT} source=")));
    page.press("Tab");
    page.press("Escape");
    assert_eq!(page.value(IS_OPEN), false);
    assert_eq!(page.value("document.activeElement === document.querySelector('#keys tbody button')"), true);
    page.value("hostile.value = 'shop'; hostile.dispatchEvent(new Event('input'))");
    page.shows(first, "website=shop.example");

    // An update keeps existing rows in the document, and so the focus on their buttons.
    page.value("window.row = document.querySelector('#keys tbody tr'); row.querySelector('button').focus()");
    line.ask(1, "192.0.2.1", "shop.example");
    page.shows(first, "\t6\t0\t");
    assert_eq!(page.value("row.isConnected && row.contains(document.activeElement)"), true);

    // So are the warnings of the start.
    page.shows("#banner", "Policy warning");
    slowlane.replace("slo.map", "0 burst=10000 rate=5x/s\n");
    page.shows("#reloads", "slo.map:1: rate \"5x/s\": expected a whole number");
    // The problem is shown at the top until it is solved.
    page.shows("#banner", "Policy refused; the previous one stays in force (and ");
    page.shows("#banner", "slo.map:1: rate \"5x/s\": expected a whole number");
    page.value("scrollTo(0, 0)");
    assert_eq!(page.value("document.querySelector('#banner').getBoundingClientRect().bottom < 150"), true);
    slowlane.replace("slo.map", SLO_MAP);
    page.shows("#reloads", "4 SLOs; source.map 1 line, website.map ");
    // This policy is valid, but has warnings.
    page.shows("#banner", "Policy warning (and ");
    page.shows("#banner", "website.map:2: \"<script>");

    // Names were inserted only as text.
    assert_eq!(page.value("document.title"), "slowlane");
    let strange = "document.querySelectorAll('img, b, iframe, script:not([nonce])').length";
    assert_eq!(page.value(strange), 0);
    assert_eq!(page.problems(), [""; 0]);
}

#[test]
fn it_is_light_or_dark_wide_or_narrow_and_says_when_nobody_answers() {
    let mut slowlane = slowlane();
    let mut line = engine(&slowlane, "engine-one");
    ask(&mut line);
    let mut page = page(&slowlane);
    page.shows("#keys", "website=shop.example");
    // Wait for two seconds with values, so that there is an area.
    let areas = "document.querySelector('polygon.pass')?.getBBox().width > 1";
    eventually("the chart has an area", || (page.value(areas) == true).then_some(()));

    page.click("#keys tbody button");
    page.shows("#why-text", "nothing was counted");
    let background = "getComputedStyle(document.body).backgroundColor";
    for (scheme, colour) in [("light", "rgb(246, 247, 249)"), ("dark", "rgb(18, 22, 27)")] {
        page.prefer(scheme);
        assert_eq!(page.value(background), colour);
        assert_eq!(page.value(HARD_TO_READ), serde_json::json!([]), "{scheme}");
        assert_eq!(page.value(OTHER_COLOURS), serde_json::json!([]), "{scheme}");
    }

    // On a common screen, numbers stay beside their names. On a phone, the main columns are visible.
    page.value("show = (show => now => show({ ...now, rates: [1234.5, 234.5, 36.8] }))(show)");
    page.shows("#verdicts", "deny 36.8");
    for (width, height) in [(1280, 800), (390, 844)] {
        page.resize(width, height);
        let parted = "[...document.querySelectorAll('#verdicts span')].filter(e => e.getClientRects().length > 1).length";
        assert_eq!(page.value(parted), 0, "{width}");
        let sticks_out = "[...document.querySelectorAll('.scroll')]
            .filter(e => e.scrollWidth > e.clientWidth).map(e => e.firstChild.id)";
        assert_eq!(page.value(sticks_out), serde_json::json!([]), "{width}");
    }
    for (table, columns) in [
        ("keys", &["who", "limit", "throttled/s", "delay"][..]),
        ("slos", &["SLO", "objective", "busiest key", "delay/s", "deny/s"]),
    ] {
        let seen = format!(
            "[...document.querySelectorAll('#{table} th')].filter(e => e.checkVisibility()).map(e => e.textContent)"
        );
        assert_eq!(page.value(&seen), serde_json::json!(columns));
    }

    // On a phone, nothing exceeds the width: the phone would shrink the whole page.
    page.resize(360, 740);
    let widths = "[document.documentElement.scrollWidth, innerWidth, visualViewport.width]";
    assert_eq!(page.value(widths), serde_json::json!([360, 360, 360]));
    for id in ["#rate", "#delay", "#table", "#holds", "#connections", "#keys", "#slos", "#reloads"] {
        let rect = format!("document.querySelector('{id}').getBoundingClientRect().width > 0");
        assert_eq!(page.value(&rect), true, "{id}");
    }
    assert!(page.text("#keys").contains("website=shop.example"));

    slowlane.kill();
    page.shows("#state", "no answer");
    let text = page.text("#keys");
    assert!(text.contains("website=shop.example"), "what was known is still shown: {text}");

    let shot = page.screenshot();
    assert!(bytes_of(&shot).starts_with(b"\x89PNG\r\n"));
    let colours = page.colours(&shot);
    assert_eq!(colours.iter().map(|(count, _)| count).sum::<u64>(), 360 * 740);
    assert!(colours.len() > 50, "blank: {colours:?}");
    let dark_cards = colours.iter().find(|(_, colour)| colour == "27,33,40").map_or(0, |(count, _)| *count);
    assert!(dark_cards > 50_000, "{colours:?}");
}

#[test]
fn one_second_that_towers_above_all_others_is_cut_and_no_label_is() {
    let slowlane = slowlane();
    let mut page = page(&slowlane);
    page.shows("#state", "live");
    let drawn = |page: &mut Chromium, chart: usize, data: &str| {
        page.value(&format!(
            "(() => {{
                charts[{chart}].show({data});
                const svg = charts[{chart}].svg, left = svg.getBoundingClientRect().left;
                const texts = [...svg.querySelectorAll('text')];
                return {{
                    cut: svg.querySelectorAll('.cut').length,
                    texts: texts.map(e => e.textContent).filter(text => !/min|now/.test(text)),
                    left: texts.every(e => e.getBoundingClientRect().left >= left),
                    height: Math.round(svg.querySelector('polygon.pass')?.getBBox().height),
                }};
            }})()"
        ))
    };
    let outcome = |drawn: &Value, texts: &[&str]| {
        assert_eq!(drawn["texts"], serde_json::json!(texts));
        assert_eq!(drawn["left"], true, "{drawn}");
    };
    let zeros = "Array(300).fill(0)";
    let of = |one: u32| format!("[{zeros}.map((_, i) => i === 200 ? {one} : 50), {zeros}, {zeros}]");
    let towering = drawn(&mut page, 0, &of(1_200));
    // Below, denials have a scale of their own.
    outcome(&towering, &["0", "50", "100", "cut: 1200", "0", "1"]);
    assert_eq!(towering["cut"], 1);
    // A slightly higher value is not cut off.
    let whole = drawn(&mut page, 0, &of(80));
    outcome(&whole, &["0", "50", "100", "0", "1"]);
    assert_eq!(whole["cut"], 0);
    let denied = drawn(&mut page, 0, &format!("[Array(300).fill(80), {zeros}, Array(300).fill(9000)]"));
    outcome(&denied, &["0", "50", "100", "0", "10k"]);
    let alone = drawn(&mut page, 0, &format!("[Array(300).fill(80), {zeros}, {zeros}]"));
    assert_eq!(denied["height"], alone["height"], "they flatten nothing else");
    for (low, high, texts) in [
        (40, 400, ["0 ms", "200 ms", "400 ms"]),
        (900, 5_000, ["0 s", "2.5 s", "5 s"]),
        (5_000, 10_000, ["0 s", "5 s", "10 s"]),
    ] {
        let delays = format!("[Array(300).fill({low}), Array(300).fill({high})]");
        outcome(&drawn(&mut page, 1, &delays), &texts);
    }
}

/// Texts with less contrast to their background than WCAG 2.2 requires (1.4.3: 4.5 to 1).
const HARD_TO_READ: &str = "(() => {
    const light = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b + .05;
    };
    const behind = e => {
        for (; e; e = e.parentElement) {
            const colour = getComputedStyle(e).backgroundColor;
            if (colour !== 'rgba(0, 0, 0, 0)') return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    const has_text = e => [...e.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
    return [...document.querySelectorAll('body *')]
        .filter(e => has_text(e) && e.checkVisibility() && !e.closest('svg, script'))
        .map(e => [light(getComputedStyle(e).color) / light(behind(e)), `${e.tagName} ${e.className} ${e.textContent}`])
        .filter(([ratio]) => Math.max(ratio, 1 / ratio) < 4.5).map(String);
})()";

/// Marks of a legend that have another colour than their area or curve, or that can hardly be seen on a card (WCAG 2.2,
/// 1.4.11: 3 to 1).
const OTHER_COLOURS: &str = "(() => {
    const light = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b + .05;
    };
    const card = light(getComputedStyle(document.querySelector('.card')).backgroundColor);
    const mark = (legend, name) => getComputedStyle(document.querySelector(`#${legend} .${name}`), '::before').backgroundColor;
    const drawn = selector => getComputedStyle(document.querySelector(selector));
    return [
        ...['pass', 'delay', 'deny'].map(name => [mark('verdict-legend', name), drawn('polygon.' + name).fill]),
        ...['pass', 'delay', 'deny'].map(name => [mark('verdicts', name), drawn('polygon.' + name).fill]),
        [mark('delay-legend', 'delay'), drawn('.curve.p50').stroke],
        [mark('delay-legend', 'deny'), drawn('.curve.p99').stroke],
    ].filter(([mark, area]) => {
        const ratio = light(mark) / card;
        return mark !== area || Math.max(ratio, 1 / ratio) < 3;
    });
})()";

#[test]
fn it_opens_with_a_token_and_finds_a_daemon_that_is_started_again() {
    const TOKEN: &str = "0123456789abcdef";
    let mut slowlane =
        Slowlane::with_config(&[("slo.map", SLO_MAP)], &format!("[admin]\ntoken = '{TOKEN}'\n"));
    let mut page = page(&slowlane);
    let form = "document.querySelector('#token-form').hidden";
    page.shows("#state", "no answer: slowlane requires a token");
    assert_eq!(page.value(form), false);
    assert!(page.text("#rate").is_empty(), "nothing is told without it");
    for (typed, state) in [
        ("no token\u{20ac}", "no answer: "),
        ("0123456789abcdeF", "slowlane requires a token"),
        (TOKEN, "live"),
    ] {
        page.click("#token");
        page.type_text(typed);
        page.press("Enter");
        eventually("the token is taken from the field", || {
            (page.value("document.querySelector('#token').value") == "").then_some(())
        });
        page.shows("#state", state);
    }
    assert_eq!(page.value(form), true);
    page.shows("#slos", "5000/s, burst 10000");
    // No key is throttled: an empty table can be sorted, too.
    page.shows("#keys", "No proxy is connected. Next: slowlane attach haproxy, or slowlane attach nginx");
    page.click("#keys th:first-child button");
    assert_eq!(page.value("document.querySelector('#keys th').getAttribute('aria-sort')"), "ascending");

    slowlane.kill();
    page.shows("#state", "no answer");
    assert_eq!(page.value(form), true, "who does not answer wants no token");
    let _again = slowlane.restarted();
    page.shows("#state", "live");
    let problems = page.problems();
    assert!(problems.iter().all(|problem| problem.contains("/api/")), "{problems:?}");
}

#[test]
fn the_page_asks_nobody_else_for_anything() {
    let slowlane = slowlane();
    let answer = client::get(slowlane.admin, "/", &[]);
    let again = client::get(slowlane.admin, "/", &[]);
    let csp = answer.header("content-security-policy").unwrap();
    assert!(
        csp.starts_with("default-src 'none'; connect-src 'self'; img-src data:; style-src 'nonce-"),
        "{csp}"
    );
    assert_ne!(csp, again.header("content-security-policy").unwrap(), "a nonce is used once");
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    for path in [
        "/",
        "/api/status",
        "/api/history?since=1h",
        "/api/why?website=%3Cb%3E",
        "/api/table/0",
        "/metrics",
        "/nowhere",
        "/readyz",
    ] {
        let answer = client::get(slowlane.admin, path, &[]);
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("cache-control", "no-store"),
            ("referrer-policy", "no-referrer"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        assert!(
            answer.header("content-security-policy").unwrap().starts_with("default-src 'none'"),
            "{path}"
        );
    }
    let addresses: Vec<&str> = answer
        .body
        .match_indices("//")
        .map(|(at, _)| {
            let before = &answer.body[..at];
            &before[before.len().saturating_sub(6)..]
        })
        .filter(|before| before.ends_with(':'))
        .collect();
    assert_eq!(addresses.len(), 1, "only the name of SVG: {addresses:?}");
    for word in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("] {
        assert!(!answer.body.contains(word), "{word}");
    }
}

#[test]
fn however_many_keys_are_throttled_a_hundred_are_told() {
    let slowlane = Slowlane::with_policy(&[
        ("slo.map", "0 burst=1 rate=1/h\n3001 burst=1 rate=1/h max_delay=1s\n"),
        ("source.map", "0.0.0.0/0 3001\n"),
    ]);
    let mut client = Client::connect(slowlane.http);
    for number in 0..1_500 {
        let source = format!("10.0.{}.{}", number / 250, number % 250);
        let times = if number == 7 { 50 } else { 2 };
        for _ in 0..times {
            client.request("GET", "/check", &[("X-Slowlane-Source", &source)], "");
        }
    }
    let status = eventually("the keys are told", || {
        let status = status(&slowlane);
        (status["keys"].as_array().unwrap().len() == 100).then_some(status)
    });
    let first = &status["keys"][0];
    assert_eq!(first["fields"][0]["value"], "10.0.0.7");
    // While the keys are read, a request is not noted.
    assert!((45..=49).contains(&first["denied"].as_u64().unwrap()), "{first}");
    assert_eq!(first["why"], "source=10.0.0.7");
    // Too many to know each.
    let total = &status["keys_total"];
    assert_eq!(total["is_exact"], false, "{total}");
    assert_eq!(total["number"], 512, "{total}");
    let mut page = page(&slowlane);
    page.shows("#keys-count", "first 100 of 512 or more");
    let top = ran(&["top", "--once", "--admin", &slowlane.admin.to_string()]).out;
    assert!(top.contains("\nthrottled (first 100 of 512 or more)"), "{top}");
}

#[test]
fn the_first_hundred_of_some_more_are_told_with_their_number() {
    let slowlane = Slowlane::with_policy(&[
        ("slo.map", "0 rate=unlimited\n3001 burst=0 rate=0/s\n"),
        ("source.map", "0.0.0.0/0 3001\n"),
    ]);
    let mut client = Client::connect(slowlane.http);
    let mut page = page(&slowlane);
    page.shows("#state", "live");
    for (known, outcome) in [(100, "100"), (150, "first 100 of 150")] {
        for number in 0..known {
            client.request("GET", "/check", &[("X-Slowlane-Source", &format!("10.0.0.{number}"))], "");
        }
        eventually("the number is told", || (page.text("#keys-count") == outcome).then_some(()));
    }
    page.shows("#slos tbody tr:nth-child(2)", "\t100+\t");
}

/// A dry run lets all requests through, whatever its law would do.
#[test]
fn a_key_of_a_dry_run_is_let_through_as_often_as_it_asks() {
    let slowlane = Slowlane::with_policy(&[
        ("slo.map", "0 rate=unlimited\n3001 burst=1 rate=1/m law=token-bucket dry_run=yes\n"),
        ("source.map", "0.0.0.0/0 3001\n"),
    ]);
    let (key, slo) = eventually("its rates are known", || {
        let answer = slowlane.check("", &[("X-Slowlane-Source", "192.0.2.1")]);
        assert_eq!(answer.header("x-slowlane-verdict"), Some("pass"));
        let status = status(&slowlane);
        let key = status["keys"].get(0)?.clone();
        (key["asked_per_s"].as_f64() > Some(2.0)).then(|| (key, status["slos"][1].clone()))
    });
    assert_eq!((&key["dry_run"], &key["let_through_per_s"]), (&true.into(), &key["asked_per_s"]), "{key}");
    assert!(key["would_let_through_per_s"].as_f64() < key["asked_per_s"].as_f64(), "{key}");
    assert_eq!(slo["busiest_per_s"], key["asked_per_s"], "the SLO is exceeded: the dry run has no effect");
    let mut page = page(&slowlane);
    page.shows("#keys tbody tr:first-child", " (would be ");
    page.shows("#keys tbody tr:first-child td:nth-child(3)", "(");
}

#[test]
fn the_key_of_refused_requests_is_not_everybody() {
    let slowlane = Slowlane::with_policy(&[("slo.map", SLO_MAP), ("website.map", "shop.example 2001\n")]);
    assert_eq!(slowlane.check("", &[("X-Slowlane-Website", "shop.example,x")]).status, 403);
    let mut page = page(&slowlane);
    page.shows(
        "#keys tbody tr:first-child",
        "refused: the website is not a valid host name, or a value is too long to be looked up",
    );
    assert!(!page.text("#keys").contains("everybody"));
    assert_eq!(status(&slowlane)["keys"][0]["refused"], true);
    let top = ran(&["top", "--once", "--admin", &slowlane.admin.to_string()]).out;
    assert!(
        top.contains("refused: the website is not a valid host name") && !top.contains("everybody"),
        "{top}"
    );
}

#[test]
fn of_very_many_slos_those_with_requests_are_told() {
    let slos: String = (1..900).map(|number| format!("{} burst=1 rate=1/s\n", 2_000 + number)).collect();
    let slo_map = format!("0 burst=1 rate=1/s\n{slos}");
    let slowlane = Slowlane::with_policy(&[("slo.map", &slo_map), ("website.map", "shop.example 2899\n")]);
    let last = eventually("the busy one is told", || {
        slowlane.check("?hold=off", &[("X-Slowlane-Website", "shop.example")]);
        let status = status(&slowlane);
        assert_eq!((status["slos"].as_array().unwrap().len(), &status["slos_total"]), (200, &900.into()));
        (status["slos"][199]["id"] == 2_899).then(|| status["slos"][199].clone())
    });
    assert_eq!((&last["rate"], &last["per"][0]), (&"1/s".into(), &"website".into()));
}

#[test]
fn all_who_ask_within_a_second_get_the_same_numbers() {
    let slowlane = slowlane();
    let mut client = Client::connect(slowlane.admin);
    let bodies: Vec<String> =
        (0..2_000).map(|_| client.request("GET", "/api/status", &[], "").body).collect();
    let mut different = bodies.clone();
    different.dedup();
    assert!(different.len() < bodies.len() / 2, "{} of {}", different.len(), bodies.len());
}

/// The picture is made from seconds of traffic, and thrown away. `SLOWLANE_PICTURE=1` makes the pictures of the
/// manual from five minutes of it: `SLOWLANE_PICTURE=1 cargo test --test it the_picture_of_the_page`.
#[test]
fn the_picture_of_the_page_shows_its_keys() {
    let is_kept = std::env::var_os("SLOWLANE_PICTURE").is_some();
    // A second of the story takes this long.
    let second = Duration::from_millis(if is_kept { 1_000 } else { 20 });
    let slowlane = Slowlane::with_policy(&[
        (
            "slo.map",
            "0 burst=10000 rate=5000/s\n1001 burst=60 rate=40/s law=fair\n2001 burst=50 rate=50/s\n\
             2002 burst=10 rate=20/s law=token-bucket\n3001 burst=5 rate=10/s\n5001 burst=5 rate=5/s\n",
        ),
        ("website.map", "shop.example 2001\napi.example 2002\n"),
        ("source.map", "203.0.113.0/24 3001\n2001:db8::/32 3001\n"),
        ("owner.map", "acme 1001\n"),
        ("source+website.map", "198.51.100.0/24+shop.example 5001\n"),
    ]);
    // Source, number of clients, pause of each, and the seconds in which they ask.
    let groups = [
        ("192.0.2.", "shop.example", "", 25, 300, 0..310),
        ("192.0.2.1", "shop.example", "", 30, 200, 110..210),
        ("198.51.100.", "shop.example", "", 3, 50, 40..310),
        ("172.16.0.", "free.example", "", 14, 90, 0..310),
        ("10.0.0.", "app.example", "acme", 9, 100, 60..310),
        ("192.0.2.", "api.example", "", 8, 150, 80..310),
        ("203.0.113.", "news.example", "", 2, 20, 150..310),
        ("2001:db8::", "news.example", "", 1, 20, 200..310),
    ];
    let (started, ended) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let http = slowlane.http;
    let mut clients = Vec::new();
    for (source, website, owner, count, pause_ms, seconds) in groups {
        for number in 1..=count {
            let (ended, seconds, source) = (ended.clone(), seconds.clone(), format!("{source}{number}"));
            clients.push(thread::spawn(move || {
                let mut client = None;
                while !ended.load(Relaxed) {
                    let mut pause_ms = pause_ms;
                    let elapsed_s = started.elapsed().as_millis() / second.as_millis();
                    if seconds.contains(&(elapsed_s as i32)) {
                        let headers = [
                            ("X-Slowlane-Source", source.as_str()),
                            ("X-Slowlane-Website", website),
                            ("X-Slowlane-Owner", owner),
                        ];
                        let client = client.get_or_insert_with(|| Client::connect(http));
                        let answer = client.request("GET", "/check", &headers, "");
                        let retry_s: u64 =
                            answer.header("retry-after").map_or(0, |seconds| seconds.parse().unwrap());
                        pause_ms += retry_s.min(2) * 250;
                    }
                    let pause_ms = fastrand::u64(pause_ms / 2..=pause_ms * 3 / 2);
                    thread::sleep(Duration::from_millis(pause_ms));
                }
            }));
        }
    }
    let _proxies = [(); 3].map(|()| engine(&slowlane, "b2a7e1f0-5c5e-4a2b-9d3c-0f1e2d3c4b5a"));
    thread::sleep((270 * second).saturating_sub(started.elapsed()));
    let mut page = Chromium::open(&format!("http://{}/", slowlane.admin), 1000, 1090);
    page.shows("#keys", "owner=acme");
    // The start of the browser affects the numbers, so wait until that is past.
    thread::sleep((300 * second).saturating_sub(started.elapsed()));
    let png = bytes_of(&page.screenshot());
    assert!(png.len() <= 200_000, "{} bytes", png.len());
    assert!(png.starts_with(b"\x89PNG"));
    page.prefer("dark");
    page.resize(390, 844);
    page.shows("#say", "Throttled now: ");
    let phone = bytes_of(&page.screenshot());
    ended.store(true, Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    if is_kept {
        fs::write(project("doc/book/page.png"), png).unwrap();
        fs::write(project("doc/book/page-phone.png"), phone).unwrap();
    }
}
