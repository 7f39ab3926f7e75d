//! Protocols, and the metrics as a daemon with everything serves them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use bytes::Bytes;
use grpc::Method;

use super::{agrees, filled, marked, table};
use crate::monitoring::{exported, scraped_after};
use crate::support::client::Client;
use crate::support::grpc::Client as GrpcClient;
use crate::support::own_address;
use crate::support::project;

/// A metric: its type, its labels and its help.
struct Family {
    kind: String,
    labels: Vec<String>,
    help: String,
}

/// The labels of metrics by their names, with their values.
type Samples = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The metrics by name, in the order of their names.
fn families() -> (BTreeMap<String, Family>, Samples) {
    let grpc_at = own_address();
    let grpc = format!("[grpc]\nlisten = [\"{grpc_at}\"]\n");
    let work = ["2004 burst=1kB rate=1kB/s unit=bytes\n", "files.example 2004\n"];
    let text = scraped_after([work[0], work[1], &grpc], |slowlane| {
        // A call that fails, and the end of work.
        let ended =
            GrpcClient::connect(grpc_at).send(Method::ShouldRateLimit.path(), Bytes::from_static(b"?"));
        assert_ne!(ended.status, Some(0));
        let answer = slowlane.check("", &[("X-Slowlane-Website", "files.example")]);
        let end =
            [("X-Slowlane-Ticket", answer.header("x-slowlane-ticket").unwrap()), ("X-Slowlane-Bytes", "5")];
        assert_eq!(Client::connect(slowlane.http).request("POST", "/done", &end, "").status, 204);
    });
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let samples = exported(&text);
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            let suffix = if kind == "counter" {
                "_total"
            } else if kind == "info" {
                "_info"
            } else {
                ""
            };
            let sampled = if kind == "histogram" { "_bucket" } else { suffix };
            let labels = samples[&format!("{name}{sampled}")].keys().cloned().collect();
            let family = Family { kind: kind.to_owned(), labels, help: String::new() };
            families.insert(format!("{name}{suffix}"), family);
        }
    }
    for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, help) = line.split_once(' ').unwrap();
        let full = ["", "_total", "_info"].map(|suffix| format!("{name}{suffix}"));
        let full = full.iter().find(|full| families.contains_key(*full)).expect("a type");
        families.get_mut(full).unwrap().help = help.trim_end_matches('.').to_owned();
    }
    (families, samples)
}

/// The table of labels names each label, and each value that is one word of a few.
fn labels_are_told(page: &str, samples: &Samples) {
    let (_, rows) = page.split_once("\n| label | of | values |\n").unwrap();
    let rows: Vec<&str> = rows.lines().take_while(|line| line.starts_with('|')).collect();
    for (name, labels) in samples {
        for (label, values) in labels {
            let of = |row: &&&str| {
                let cells: Vec<&str> = row.split('|').collect();
                let is_of = cells[2].trim().is_empty() || cells[2].contains(&format!("`{name}`"));
                cells[1].contains(&format!("`{label}`")) && is_of
            };
            let row = rows.iter().find(of).unwrap_or_else(|| panic!("no row for {label} of {name}"));
            let is_open =
                ["slo", "key", "unit", "field", "status", "le", "version"].contains(&label.as_str());
            for value in values.iter().filter(|_| !is_open) {
                assert!(row.contains(&format!("`{value}`")), "{name}: no {label} {value} in {row}");
            }
        }
    }
}

fn page() -> String {
    let (mut families, samples) = families();
    let page = filled("protocols.txt", |directive, prefixes| {
        assert_eq!(directive, "metrics");
        let mut rows = Vec::new();
        for prefix in prefixes.split(' ') {
            let is_whole = prefix.ends_with('$');
            let prefix = prefix.trim_end_matches('$');
            let names: Vec<String> =
                families.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
            let names = names.into_iter().filter(|name| !is_whole || name == prefix);
            for name in names {
                let Family { kind, labels, help } = families.remove(&name).unwrap();
                let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
                rows.push(vec![format!("`{name}`"), kind, labels.join(", "), marked(&help)]);
            }
        }
        table(&["metric", "type", "labels", "meaning"], rows)
    });
    assert!(families.is_empty(), "no section has {:?}", families.keys());
    labels_are_told(&page, &samples);
    page
}

#[test]
fn the_page_of_protocols_has_the_metrics_of_a_daemon() {
    agrees("doc/book/reference-protocols.md", &page());
}

/// Each path of the admin listener and of the HTTP check has its row, and each status.
#[test]
fn every_path_and_every_status_has_its_row() {
    let page = fs::read_to_string(project("doc/reference/protocols.txt")).unwrap();
    let admin = fs::read_to_string(project("src/server/admin.rs")).unwrap();
    let (_, listed) = admin.split_once("the paths are ").unwrap();
    let (listed, _) = listed.split_once("\\n").unwrap();
    let paths: Vec<&str> = listed.split(", ").collect();
    assert!(paths.len() > 15, "{paths:?}");
    for path in paths.into_iter().chain(["/check", "/done"]) {
        assert!(page.contains(&format!("`{path}`")), "no {path}");
    }
    let http = fs::read_to_string(project("src/server/http.rs")).unwrap();
    let codes = [("BAD_REQUEST", 400), ("UNAUTHORIZED", 401), ("FORBIDDEN", 403), ("NOT_FOUND", 404)];
    let codes = codes.into_iter().chain([("METHOD_NOT_ALLOWED", 405), ("CONFLICT", 409), ("OK", 200)]);
    let codes =
        codes.chain([("MISDIRECTED_REQUEST", 421), ("SERVICE_UNAVAILABLE", 503), ("NO_CONTENT", 204)]);
    let codes: BTreeMap<&str, u16> = codes.chain([("REQUEST_HEADER_FIELDS_TOO_LARGE", 431)]).collect();
    for named in [admin, http].iter().flat_map(|text| text.split("StatusCode::").skip(1)) {
        let name: String = named.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
        if !name.is_empty() {
            let code = codes.get(name.as_str()).unwrap_or_else(|| panic!("no row for {name}"));
            assert!(page.contains(&format!("| {code}")) || page.contains(&format!("{code} |")), "{code}");
        }
    }
}
