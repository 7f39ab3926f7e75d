//! `slowlane table`, beside a real HAProxy's stick table.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::cli::{Ran, ran};
use crate::support::client::{self, Client};
use crate::support::haproxy::Version::{self, V2_6, V3_0, V3_2, V3_4};
use crate::support::process::Process;
use crate::support::slowlane::Slowlane;
use crate::support::{PATIENCE, eventually, own_address, skipped};
use crate::why::examples;

const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 burst=10000 rate=5000/s\n2001 burst=1 rate=1/m max_delay=1s\n2002 burst=1 rate=1/m law=fair max_delay=1s\n",
    ),
    ("website.map", "shop.example 2001\nfair.example 2002\n"),
];

/// `slowlane table` with a daemon.
fn table(slowlane: &Slowlane, args: &[&str]) -> Ran {
    ran(&[&["table", "--admin", &slowlane.admin.to_string()], args].concat())
}

fn said(slowlane: &Slowlane, args: &[&str]) -> String {
    let Ran { code, out, problems } = table(slowlane, args);
    assert_eq!((code, problems.as_slice()), (0, &[][..]), "{args:?}");
    out
}

fn refused(slowlane: &Slowlane, args: &[&str]) -> String {
    let Ran { code, out, problems } = table(slowlane, args);
    assert_eq!((code, out.as_str()), (1, ""), "{args:?}");
    problems.join("\n")
}

/// The keys of the rows, in order.
fn keys(shown: &str) -> Vec<String> {
    let key = |line: &str| Some(line.split("key=").nth(1)?.split(' ').next()?.to_owned());
    let mut keys: Vec<String> = shown.lines().filter_map(key).collect();
    keys.sort();
    keys
}

#[test]
fn the_keys_of_a_request_are_cleared_by_its_fields() {
    let slowlane = Slowlane::with_config(POLICY, "");
    let ask = |website| slowlane.check("", &[("X-Slowlane-Website", website)]).status;
    for website in ["shop.example", "fair.example"] {
        assert_eq!([ask(website), ask(website)], [204, 403]);
        let field = format!("website={website}");
        let outcome = said(&slowlane, &["clear", &field]);
        assert!(
            outcome.starts_with("key ")
                && outcome.contains(" of SLO 200")
                && outcome.ends_with(": cleared\n"),
            "{outcome}"
        );
        assert!(said(&slowlane, &["clear", &field]).ends_with(": had no entry\n"));
        assert_eq!([ask(website), ask(website)], [204, 403], "it has its whole burst again");
    }
    // A mistyped field would be another key: that of SLO 0.
    assert_eq!(ask("other.example"), 204);
    assert_eq!(
        refused(&slowlane, &["clear", "websit=shop.example"]),
        "the policy uses no field websit: nothing was cleared"
    );
    refused(&slowlane, &["clear", "website=shop.example", "data.gpt0"]);
    assert_eq!(ask("shop.example"), 403);
    let answer = client::get(slowlane.admin, "/api/clear?website=shop.example", &[]);
    assert_eq!(answer.status, 405, "a link clears nothing");
    let from_page = [("Origin", "http://evil.example")];
    let post =
        |path, headers: &[_]| Client::connect(slowlane.admin).request("POST", path, headers, "").status;
    assert_eq!(post("/api/clear?website=shop.example", &from_page), 403);
    assert_eq!(post("/api/clear", &[]), 400);
    assert_eq!(ask("shop.example"), 403);
}

const ONE: &str = "0000000000000001";
const TWO: &str = "00000000000000A2";

#[test]
fn rows_are_set_shown_filtered_and_cleared() {
    let slowlane = Slowlane::with_policy(POLICY);
    assert_eq!(said(&slowlane, &["show"]), "# table: slowlane, type: binary, size:1000000, used:0\n");
    assert_eq!(said(&slowlane, &["set", ONE, "data.gpt0", "1500", "data.http_req_cnt", "7"]), "");
    said(&slowlane, &["set", TWO, "data.gpt0", "2500", "data.http_req_cnt", "4294967295"]);
    let shown = said(&slowlane, &["show"]);
    assert!(shown.starts_with("# table: slowlane, type: binary, size:1000000, used:2\n0x"), "{shown}");
    assert_eq!(keys(&shown), [ONE, TWO]);
    for (filter, found) in [
        (&["data.gpt0", "gt", "1500"][..], &[TWO][..]),
        (&["data.gpt0", "ge", "1500"], &[ONE, TWO]),
        (&["data.gpt0", "lt", "2500"], &[ONE]),
        (&["data.gpt0", "le", "2500"], &[ONE, TWO]),
        (&["data.gpt0", "eq", "2500"], &[TWO]),
        (&["data.gpt0", "ne", "2500"], &[ONE]),
        (&["data.gpt0", "gt", "-1"], &[ONE, TWO]),
        (&["data.gpc0_rate", "gt", "0"], &[]),
        (&["data.gpt0", "gt", "1000", "data.http_req_cnt", "lt", "8"], &[ONE]),
        (&["data.http_req_cnt", "eq", "4294967295"], &[TWO]),
    ] {
        assert_eq!(keys(&said(&slowlane, &[&["show"], filter].concat())), found, "{filter:?}");
    }
    let row = said(&slowlane, &["get", TWO]);
    assert!(
        row.starts_with("# table: slowlane, ")
            && row.contains(" gpt0=2500 gpc0_rate(1000)=0 http_req_cnt=4294967295 "),
        "{row}"
    );
    assert_eq!(
        refused(&slowlane, &["get", "0000000000000003"]),
        "the table has no entry for key 0000000000000003"
    );
    assert_eq!(
        refused(&slowlane, &["show", "data.gpt0", "above", "3"]),
        "Filter entry #1: Require and operator among \"eq\", \"ne\", \"le\", \"ge\", \"lt\", \"gt\""
    );
    assert_eq!(
        refused(&slowlane, &["set", ONE, "gpt0", "3"]),
        "\"data.<type>\" followed by a value expected"
    );
    assert!(
        refused(&slowlane, &["show", "all; clear table slowlane"])
            .starts_with("Optional argument only supports")
    );
    assert_eq!(keys(&said(&slowlane, &["show"])), [ONE, TWO], "a word is no second command");

    said(&slowlane, &["clear", "data.gpt0", "gt", "2000"]);
    assert_eq!(keys(&said(&slowlane, &["show"])), [ONE]);
    said(&slowlane, &["set", TWO, "data.gpt0", "1"]);
    said(&slowlane, &["clear", ONE]);
    assert_eq!(keys(&said(&slowlane, &["show"])), [TWO]);
    said(&slowlane, &["clear"]);
    assert_eq!(said(&slowlane, &["show"]), "# table: slowlane, type: binary, size:1000000, used:0\n");
}

#[test]
fn who_is_cleared_begins_anew_whatever_the_law_remembers() {
    let slowlane = Slowlane::with_policy(POLICY);
    for website in ["shop.example", "fair.example"] {
        let ask = || slowlane.check("", &[("X-Slowlane-Website", website)]).status;
        assert_eq!([ask(), ask()], [204, 403], "{website}");
        let why = client::get(slowlane.admin, &format!("/api/why?website={website}"), &[]).body;
        let key = why.split("key     ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        let row = said(&slowlane, &["get", &key]);
        assert!(row.contains(" http_req_cnt=2 "), "{row}");
        said(&slowlane, &["clear", &key]);
        assert_eq!([ask(), ask()], [204, 403], "{website}");
        // Setting these columns does not clear the debt.
        said(&slowlane, &["set", &key, "data.gpt0", "1000", "data.http_req_cnt", "0", "data.gpc0_rate", "0"]);
        assert_eq!(ask(), 403, "{website}");
    }
}

#[test]
fn the_commands_of_the_manual_do_what_they_say() {
    let slowlane = Slowlane::with_config(POLICY, "[admin]\nsocket = \"admin.sock\"\n");
    let (mut commands, mut lines) = (0, 0);
    let shown =
        ["The table", "The Runtime API"].map(|section| examples("doc/book/throttled.md", section)).concat();
    for line in shown.iter().flat_map(|text| text.lines()) {
        let line = line.split('#').next().unwrap().trim();
        if let Some(args) = line.strip_prefix("slowlane table ") {
            // So that there is something to get.
            said(&slowlane, &["set", "03A1C27E9D5B4F60", "data.gpc0_rate", "11"]);
            said(&slowlane, &args.split(' ').collect::<Vec<_>>());
            commands += 1;
        } else if let Some((said, _)) = line.strip_prefix("echo \"").and_then(|rest| rest.split_once('"')) {
            let heard = talk(&slowlane.folder().join("admin.sock"), format!("{said}\n").as_bytes()).unwrap();
            assert!(heard.starts_with("# ") && !heard.contains("Unknown"), "{said}: {heard}");
            lines += 1;
        }
    }
    assert_eq!((commands, lines), (6, 2));
    let curl = Client::connect(slowlane.admin).request("POST", "/api/runtime", &[], "show table slowlane");
    assert!(curl.status == 200 && curl.body.starts_with("# table: slowlane, "), "{}", curl.body);
}

/// A real HAProxy with a stick table of our columns, named as ours.
pub struct StickTable {
    _process: Process,
    folder: TempDir,
    pub web: std::net::SocketAddr,
}

impl StickTable {
    pub fn start(version: Version) -> Option<StickTable> {
        let Some(binary) = version.binary() else {
            skipped(&format!("HAProxy {version:?} cannot be had on this machine"));
            return None;
        };
        let (folder, web) = (tempfile::tempdir().unwrap(), own_address());
        let path = |name: &str| folder.path().join(name).display().to_string();
        let config = format!(
            "global\n    stats socket {} mode 600 level admin\n\
             defaults\n    mode http\n    timeout client 9s\n    timeout connect 9s\n    timeout server 9s\n\
             frontend f\n    bind {web}\n    http-request track-sc0 path,sha1,bytes(0,8) table slowlane\n    \
             http-request sc-inc-gpc0(0)\n    http-request sc-inc-gpc1(0) if {{ path /passed }}\n    \
             http-request sc-set-gpt0(0) 1500\n    http-request return status 200\n\
             backend slowlane\n    stick-table type binary len 8 size 1000000 expire 30s store \
             gpt0,gpc0_rate(1s),http_req_cnt,gpc1_rate(1s)\n",
            path("stats.sock"),
        );
        fs::write(path("haproxy.cfg"), config).unwrap();
        let process = Process::start(Command::new(binary).arg("-db").arg("-f").arg(path("haproxy.cfg")));
        let table = StickTable { _process: process, folder, web };
        eventually("HAProxy answers its Runtime API", || table.try_ask("show info\n"));
        Some(table)
    }

    /// The answer to some bytes.
    pub fn ask(&self, said: &str) -> String {
        self.try_ask(said).expect("HAProxy answers")
    }

    fn try_ask(&self, said: &str) -> Option<String> {
        talk(&self.folder.path().join("stats.sock"), said.as_bytes())
    }
}

/// All bytes from a Unix socket until it is closed.
pub fn talk(socket: &Path, said: &[u8]) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(said).ok()?;
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Ok(_) => {}
        // HAProxy closes without reading the rest.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("waited in vain after {:?}: {error}", String::from_utf8_lossy(said)),
    }
    Some(String::from_utf8_lossy(&heard).into_owned())
}

/// A row without values that change: an address in memory, and the time left.
fn lasting(row: &str) -> String {
    let words = row.split(' ').map(|word| match (word.strip_prefix("0x"), word.strip_prefix("exp=")) {
        (Some(hex), _) => {
            let digits = hex.strip_suffix(':').expect("a colon follows an address");
            assert!(
                digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)),
                "{row}"
            );
            "0x…:".to_owned()
        }
        (_, Some(ms)) => {
            // The entry's expiry is rounded up to 16 ms.
            assert!((20_000..=30_016).contains(&ms.parse::<u32>().unwrap()), "{row}");
            "exp=…".to_owned()
        }
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_row_is_shown_to_the_byte_as_haproxy_shows_one() {
    for version in [V2_6, V3_0, V3_2, V3_4] {
        let Some(theirs) = StickTable::start(version) else { continue };
        let slowlane = Slowlane::with_config(POLICY, "[admin]\nsocket = \"admin.sock\"\n");
        for path in ["/passed", "/passed", "/passed", "/other"] {
            assert_eq!(client::get(theirs.web, path, &[]).status, 200);
        }
        // HAProxy releases a row shortly after its answer.
        let shown = eventually("nobody uses a row of HAProxy's", || {
            let shown = theirs.ask("show table slowlane\n");
            (!shown.contains(" use=1 ")).then_some(shown)
        });
        let rows: Vec<&str> = shown.lines().filter(|line| line.starts_with("0x")).collect();
        assert_eq!(rows.len(), 2, "{shown}");
        // The same columns for the same keys.
        for row in &rows {
            let value = |name: &str| row.split(name).nth(1).unwrap().split(' ').next().unwrap();
            let columns = [
                ("data.gpt0", value("gpt0=")),
                ("data.gpc0_rate", value("gpc0_rate(1000)=")),
                ("data.http_req_cnt", value("http_req_cnt=")),
                ("data.gpc1_rate", value("gpc1_rate(1000)=")),
            ];
            let columns: String = columns.iter().map(|(name, value)| format!(" {name} {value}")).collect();
            // Rates decay, so each is read right after it is set.
            let key = value("key=");
            let line = format!("set table slowlane key {key}{columns}; show table slowlane key {key}\n");
            let ours = talk(&slowlane.folder().join("admin.sock"), line.as_bytes()).unwrap();
            let ours = ours.strip_prefix('\n').and_then(|ours| ours.strip_suffix("\n\n")).unwrap();
            let (header, ours) = ours.split_once('\n').unwrap();
            let their_header = shown.lines().next().unwrap();
            assert_eq!(header.split(", used:").next(), their_header.split(", used:").next());
            let theirs = match version {
                V2_6 => lasting(row).replace(" gpt0=", " shard=0 gpt0="),
                V3_0 | V3_2 | V3_4 => lasting(row),
            };
            assert_eq!(lasting(ours), theirs, "{version:?}");
        }
    }
}
