//! The dashboard and the alerts: they use exported metrics, and promtool accepts them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::slowlane::Slowlane;
use crate::support::spop::Line;
use crate::support::tls::Authority;
use crate::support::{client, eventually, project, skipped};

/// How the names of metrics begin.
const OURS: [&str; 2] = ["slowlane_", "process_"];

/// Labels that Prometheus adds to every sample.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];

/// The metrics of a daemon after events of every kind, as it serves them.
fn scraped() -> String {
    scraped_after(["", "", ""], |_| ())
}

/// The same with more lines of `slo.map`, `website.map` and the config, and after more events.
pub fn scraped_after([slos, of_websites, of_config]: [&str; 3], more: impl FnOnce(&Slowlane)) -> String {
    let slo_map = "0 burst=10000 rate=5000/s\n2001 burst=1 rate=1/s max_delay=2s\n\
                   2002 burst=0 rate=0/s dry_run=yes\n2003 law=protect\n";
    let websites = "slow.example 2001\ntried.example 2002\nshop.example 2003\n";
    let (slo_map, websites) = (slo_map.to_owned() + slos, websites.to_owned() + of_websites);
    // Nobody listens at this port. The metrics of a cluster are there without a store.
    let authority = Authority::new("servers");
    let config = format!(
        "[cluster]\nstore = \"redis://127.0.0.1:1\"\nlisten = [\"127.0.0.1:0\"]\n[cluster.tls]\n{}\
         [peers]\nlisten = [\"127.0.0.1:0\"]\n[ends]\nlisten = [\"127.0.0.1:0\"]\n[state]\nfile = \"state\"\n\
         {of_config}",
        authority.pair("server").lines()
    );
    let slowlane = Slowlane::with_config(&[("slo.map", &slo_map), ("website.map", &websites)], &config);
    let token_server =
        slowlane.process.log().iter().find_map(|line| Some(line.split_once("cluster on ")?.1.to_owned()));
    let mut stranger = TcpStream::connect(token_server.unwrap()).unwrap();
    stranger.write_all(b"no TLS at all").unwrap();
    eventually("a handshake has failed", || {
        (slowlane.metric("slowlane_tls_handshake_failures_total", "garbage") > 0.0).then_some(())
    });
    eventually("the store is silent", || {
        (slowlane.metric("slowlane_cluster_errors_total", "kind") > 0.0).then_some(())
    });
    let ask = |website: &str| slowlane.check("?hold=off", &[("X-Slowlane-Website", website)]).status;
    assert_eq!([ask("other.example"), ask("tried.example"), ask("shop.example")], [204, 204, 204]);
    assert_eq!([ask("slow.example"), ask("slow.example"), ask("slow.example")], [204, 204, 403]);
    let mut line = Line::greeted(slowlane.spop);
    line.say(&[0, 0, 0, 1, 255]);
    line.hear_goodbye();
    more(&slowlane);
    client::get(slowlane.admin, "/metrics", &[]).body
}

/// The metrics of a text, each with its labels and their values.
pub fn exported(metrics: &str) -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let mut found = BTreeMap::new();
    for sample in metrics.lines() {
        if let Some(family) = sample.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            let suffix = match kind {
                "counter" => "_total",
                "histogram" => "_bucket",
                "info" => "_info",
                _ => "",
            };
            found.entry(format!("{name}{suffix}")).or_default();
        } else if !sample.starts_with('#') {
            let (series, _) = sample.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let metric: &mut BTreeMap<String, BTreeSet<String>> = found.entry(name.to_owned()).or_default();
            for (label, value) in matchers(labels.trim_end_matches('}')) {
                metric.entry(label).or_default().insert(value);
            }
        }
    }
    found
}

/// `a="b",c=~"d"` as pairs.
fn matchers(text: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('"') {
        let (value, after) = after.split_once('"').expect("a closing quote");
        let name = name.trim_matches([',', ' ']).trim_end_matches(['=', '~', '!']);
        pairs.push((name.to_owned(), value.to_owned()));
        rest = after;
    }
    pairs
}

/// Every `expr` and `query` of the dashboard.
fn of_dashboard(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| of_dashboard(value, found)),
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if name == "expr" || name == "query" => found.push(text.clone()),
                    _ => of_dashboard(value, found),
                }
            }
        }
        _ => {}
    }
}

fn dashboard() -> Value {
    let text = fs::read_to_string(project("monitoring/grafana-dashboard.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The expressions of the alerts: the lines below `expr:` up to the next key.
fn of_alerts() -> Vec<String> {
    let text = fs::read_to_string(project("monitoring/prometheus-alerts.yml")).unwrap();
    let mut found: Vec<String> = Vec::new();
    let mut is_expression = false;
    for line in text.lines().map(str::trim) {
        if let Some(expression) = line.strip_prefix("expr: ") {
            found.push(expression.trim_matches('|').to_owned());
            is_expression = true;
        } else if line.starts_with("for: ") || line.starts_with("labels: ") {
            is_expression = false;
        } else if is_expression {
            let last = found.last_mut().unwrap();
            last.push_str(line);
            last.push(' ');
        }
    }
    found
}

/// The metrics in an expression, each with the text in its braces.
fn named(expression: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = OURS.iter().filter_map(|prefix| rest.find(prefix)).min() {
        let end = rest[at..]
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map_or(rest.len(), |end| at + end);
        let labels = rest[end..].strip_prefix('{').and_then(|labels| labels.split_once('}'));
        found.push((rest[at..end].to_owned(), labels.map_or("", |(labels, _)| labels).to_owned()));
        rest = &rest[end..];
    }
    found
}

/// The labels after each `by`.
fn grouped_by(expression: &str) -> BTreeSet<String> {
    let lists = expression.split("by (").skip(1).map(|rest| rest.split(')').next().unwrap());
    lists.flat_map(|list| list.split(',')).map(|label| label.trim().to_owned()).collect()
}

#[test]
fn the_dashboard_and_the_alerts_name_only_what_a_daemon_exports() {
    let exported = exported(&scraped());
    let mut expressions = of_alerts();
    assert!(expressions.len() >= 10, "{expressions:?}");
    of_dashboard(&dashboard(), &mut expressions);
    let mut named_by_any = BTreeSet::new();
    for expression in &expressions {
        let mut labels: BTreeSet<String> = OF_PROMETHEUS.map(str::to_owned).into();
        for (metric, braces) in named(expression) {
            let known = exported.get(&metric).unwrap_or_else(|| panic!("no metric {metric}: {expression}"));
            labels.extend(known.keys().cloned());
            for (label, value) in matchers(&braces) {
                let is_ours = known.contains_key(&label);
                assert!(
                    is_ours || OF_PROMETHEUS.contains(&label.as_str()),
                    "no label {label} of {metric}: {expression}"
                );
                // Check alternatives that are words, but not status codes.
                let words = value.split('|').filter(|word| word.chars().all(|c| c.is_ascii_lowercase()));
                for word in words.filter(|_| is_ours) {
                    assert!(known[&label].contains(word), "{metric} has no {label}={word}: {expression}");
                }
            }
            named_by_any.insert(metric);
        }
        for label in grouped_by(expression) {
            assert!(labels.contains(&label), "no label {label} to group by: {expression}");
        }
    }
    let is_part = |metric: &str| metric.ends_with("_sum") || metric.ends_with("_count");
    let unseen = exported.keys().filter(|metric| !is_part(metric) && !named_by_any.contains(*metric));
    let unseen: Vec<_> = unseen.collect();
    assert!(unseen.is_empty(), "neither the dashboard nor an alert shows {unseen:?}");
}

#[test]
fn every_panel_has_a_title_a_description_and_a_place_of_its_own() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()));
        assert!(panel["type"] == "row" || panel["description"].as_str().is_some_and(|text| text.len() > 10));
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + w <= 24, "{}", panel["title"]);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{} lies over another panel", panel["title"]);
        }
    }
    // Every alert must say what to do.
    let alerts = fs::read_to_string(project("monitoring/prometheus-alerts.yml")).unwrap();
    let count = |word: &str| alerts.lines().filter(|line| line.trim_start().starts_with(word)).count();
    assert_eq!((count("runbook: "), count("summary: ")), (count("- alert: "), count("- alert: ")));
    // Every alert must have a test.
    let tried = fs::read_to_string(project("tests/monitoring/alerts_test.yml")).unwrap();
    for name in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tried.contains(&format!("alertname=\"{name}\"")), "{name} is not tried");
    }
}

/// promtool, from the PATH or unpacked by tests/support/unpack-promtool.
fn promtool() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let places = [PathBuf::from("promtool"), target.join("prometheus/promtool")];
    places.into_iter().find(|place| Command::new(place).arg("--version").output().is_ok())
}

#[test]
fn promtool_takes_the_alerts_and_each_fires_for_its_cause() {
    let Some(promtool) = promtool() else {
        return skipped("promtool cannot be had on this machine: the alerts are not tried");
    };
    for (arguments, file) in [
        (["check", "rules"], "monitoring/prometheus-alerts.yml"),
        (["test", "rules"], "tests/monitoring/alerts_test.yml"),
    ] {
        let output = Command::new(&promtool).args(arguments).arg(project(file)).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    }
    // promtool also checks the queries of the dashboard, each as a rule.
    let mut expressions = Vec::new();
    of_dashboard(&dashboard(), &mut expressions);
    let questions =
        expressions.iter().filter(|text| !named(text).is_empty() && !text.starts_with("label_values"));
    let rules: String = questions
        .map(|question| {
            question.replace("$__rate_interval", "1m").replace("$job", "j").replace("$instance", "i")
        })
        .map(|question| format!("  - {{ record: a, expr: '{question}' }}\n"))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dashboard.yml");
    fs::write(&file, format!("groups:\n- name: dashboard\n  rules:\n{rules}")).unwrap();
    let output = Command::new(&promtool).args(["check", "rules", "--lint=none"]).arg(&file).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}
