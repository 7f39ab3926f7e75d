//! The JSON of commands and of the admin API: the reference names each key of real answers.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::cli::ran_in;
use crate::support::pages::Page;
use crate::support::slowlane::Slowlane;
use crate::support::{client, eventually, own_address};

/// The names of all members, at any depth.
fn members(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| members(item, found)),
        Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                members(value, found);
            }
        }
        _ => {}
    }
}

/// Asserts that a text has each member of an answer between backticks.
fn names_all(text: &str, asked: &str, answer: &str) {
    let value = serde_json::from_str(answer).unwrap_or_else(|error| panic!("{asked}: {error}: {answer}"));
    let mut found = BTreeSet::new();
    members(&value, &mut found);
    assert!(!found.is_empty(), "{asked}: {answer}");
    found.retain(|name| !text.contains(&format!("`{name}`")));
    assert!(found.is_empty(), "the reference lacks, of {asked}: {found:?}");
}

#[test]
fn the_page_of_commands_names_every_key_of_their_json() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    for (policy, slo_map) in [("maps", "0 burst=1 rate=1/s max_delay=1s\n"), ("bad", "0 rate=fast\n")] {
        fs::create_dir(folder.path().join(policy)).unwrap();
        write(&format!("{policy}/slo.map"), slo_map);
    }
    write(
        "limits.conf",
        "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\nlimit_conn_zone $x zone=b:1m;\n",
    );
    write("policy.test", "source=192.0.2.1 -> 0\n    2 at once -> 2 deny\n");
    let line = |number: u32| {
        let (minute, second, host) = (number / 120, number / 2 % 60, number % 40);
        let time = format!("24/Nov/2026:16:{minute:02}:{second:02} +0000");
        format!("192.0.2.{host} - - [{time}] \"GET /{} HTTP/1.1\" 200 5 \"-\" \"bot\"\n", number % 7)
    };
    write("log", &(0..3_000).map(line).collect::<String>());
    let page = Page::read("doc/reference/commands.txt").text;
    let (_, page) = page.split_once("\n## JSON\n").unwrap();
    for command in [
        "check --policy maps --json",
        "check --policy bad --json",
        "import limits.conf --json",
        "doctor --config /dev/null --json",
        "replay --policy maps --against maps log --json",
        "advise log --json",
        "test --policy maps policy.test --json",
    ] {
        let answer = ran_in(folder.path(), &command.split(' ').collect::<Vec<_>>()).out;
        names_all(page, command, &answer);
    }
}

#[test]
fn the_page_of_protocols_names_every_key_of_the_admin_api() {
    let store = own_address();
    let slo_map = "0 burst=1 rate=1/s max_delay=1s block=1m\n2001 law=protect\n3001 burst=9 rate=9/h law=fixed-window\n";
    let config = format!("[cluster]\nlisten = [\"{store}\"]\n[peers]\nlisten = [\"127.0.0.1:0\"]\n");
    let maps =
        [("slo.map", slo_map), ("website.map", "shop.example 2001\n"), ("source.map", "192.0.2.1 3001\n")];
    let slowlane = Slowlane::with_config(&maps, &config);
    for (source, website) in
        [("192.0.2.1", "a.example"), ("192.0.2.2", "shop.example"), ("192.0.2.3", "b.example")]
    {
        for _ in 0..4 {
            slowlane.check("?hold=off", &[("X-Slowlane-Source", source), ("X-Slowlane-Website", website)]);
        }
    }
    let get = |path: &str| client::get(slowlane.admin, path, &[("Accept", "application/json")]).body;
    eventually("the store answers", || get("/api/cluster").contains("clock_ms").then_some(()));
    let page = Page::read("doc/reference/protocols.txt").text;
    let (_, page) = page.split_once("\n### JSON of the admin API\n").unwrap();
    for path in [
        "/api/status",
        "/api/history?since=1h",
        "/api/why?source=192.0.2.1&website=shop.example&unknown=1",
        "/api/quota?source=192.0.2.1",
        "/api/peers",
        "/api/cluster",
        "/api/groups",
        "/api/protect",
        "/api/blocks",
    ] {
        names_all(page, path, &get(path));
    }
    let mut admin = client::Client::connect(slowlane.admin);
    let block =
        admin.request("POST", "/api/block?source=192.0.2.9", &[("Accept", "application/json")], "for=1m");
    names_all(page, "/api/block", &block.body);
}
