//! The config file: its effects and its errors.

use std::fs;
use std::path::Path;
use std::process::Command;

use spop::Data;

use crate::cli::{Ran, ran, ran_in};
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::spop::{Line, message};
use crate::support::{client, eventually};

/// The error for a config file with this text, without the path.
fn said(text: impl AsRef<[u8]>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slowlane.toml");
    fs::write(&path, text).unwrap();
    let Ran { code, out, problems } = ran(&["check", "--config", path.to_str().unwrap()]);
    let [problem] = &problems[..] else { panic!("not one problem but {problems:?}") };
    assert_eq!((code, out.as_str()), (1, ""), "{problem}");
    problem.strip_prefix(path.to_str().unwrap()).expect("the place comes first").to_owned()
}

#[test]
fn what_is_wrong_is_told_in_one_line_with_its_place_and_what_may_stand_there() {
    for (text, expected) in [
        // Keys.
        (
            "[spop]\nlistn = []",
            ":2: unknown field `listn`, expected one of `listen`, `allow`, `connections_max`, `frame_bytes_max`, `timeout`, `tls`",
        ),
        (
            "[spo]",
            ":1: unknown field `spo`, expected one of `spop`, `http`, `grpc`, `admin`, `hold`, `table`, `policy`, `cluster`, `peers`, `ends`, `state`, `decision_log`, `log`",
        ),
        (
            "[policy]\ndirectory = \"x\"",
            ":2: unknown field `directory`, expected one of `dir`, `key_secret_file`, `ipv4_prefix`, `ipv6_prefix`, `types`, `ipv4_prefixes`, `ipv6_prefixes`, `derived`, `lookups`, `rank`",
        ),
        (
            "[[policy.lookups]]\nfields = [\"a\"]\nmap = \"a.map\"\nmethod = \"str\"",
            ":4: unknown field `method`, expected one of `fields`, `map`, `match`, `also`",
        ),
        ("[[policy.lookups]]\nfields = [\"a\"]\nmatch = \"str\"", ":1: missing field `map`"),
        ("[peers]\nname = \"a b\"", ":2: \"a b\": expected a name of 1 to 64 bytes without spaces, like lb1"),
        (
            "[peers]\ndial = [\"127.0.0.1:1\"]",
            ":2: \"127.0.0.1:1\": expected a peer's name and address, like lb1@127.0.0.1:10000",
        ),
        (
            "[peers]\nlisten = [\"0.0.0.0:9003\"]",
            ":2: [peers] on 0.0.0.0:9003 is open to others: the protocol does not authenticate peers, so set [peers.tls] with client_ca, or listen on 127.0.0.1 or unix:/path",
        ),
        (
            "[peers]\ndial = [\"lb1@192.0.2.1:1\"]",
            ":2: [peers] dial 192.0.2.1:1: connections that slowlane opens are not encrypted; let the proxy \
             connect instead, with [peers.tls]",
        ),
        ("[state]\nevery = \"10ms\"", ":2: expected 1s to 1h"),
        // Types of values.
        (
            "\n\n[spop]\nlisten = \"127.0.0.1:9000\"",
            ":4: invalid type: string \"127.0.0.1:9000\", expected a list in [ ]",
        ),
        (
            "[hold]\nmax = \"many\"",
            ":2: invalid type: string \"many\", expected a number from 0 to 100000000",
        ),
        ("[hold]\nmax = -1", ":2: invalid value: integer `-1`, expected a number from 0 to 100000000"),
        (
            "[table]\nsize = 1.5",
            ":2: invalid type: floating point `1.5`, expected a number from 1 to 100000000",
        ),
        ("[table]\nsize = 0", ":2: invalid value: integer `0`, expected a number from 1 to 100000000"),
        (
            "[table]\nannex_bytes_max = -1",
            ":2: invalid value: integer `-1`, expected a number from 0 to 1099511627776",
        ),
        (
            "[table]\nannex_bytes_max = 1099511627777",
            ":2: invalid value: integer `1099511627777`, expected a number from 0 to 1099511627776",
        ),
        (
            "[table]\nannex_bytes_max = \"64m\"",
            ":2: invalid type: string \"64m\", expected a number from 0 to 1099511627776",
        ),
        (
            "[spop]\nconnections_max = 0",
            ":2: invalid value: integer `0`, expected a number from 1 to 1000000",
        ),
        (
            "[http]\nconnections_max = 1000001",
            ":2: invalid value: integer `1000001`, expected a number from 1 to 1000000",
        ),
        (
            "[spop]\nframe_bytes_max = 255",
            ":2: invalid value: integer `255`, expected a number from 256 to 16777216",
        ),
        ("[policy]\nipv6_prefix = 129", ":2: invalid value: integer `129`, expected a number from 0 to 128"),
        ("[policy]\nipv4_prefix = 300", ":2: invalid value: integer `300`, expected a number from 0 to 32"),
        (
            "[policy.ipv6_prefixes]\n3 = 129",
            ":2: invalid value: integer `129`, expected a number from 0 to 128",
        ),
        (
            "[policy.ipv4_prefixes]\n0 = 16",
            ":2: \"0\": expected a type from 1 to 999; type 0 is one bucket for all requests and has no \
             fields",
        ),
        (
            "[policy.ipv4_prefixes]\n2 = 16",
            ":1: prefix of type 2: the key of this type has no address: add the source field to the type, \
             or remove the prefix",
        ),
        ("[hold]\nwhen_full = \"drop\"", ":2: unknown variant `drop`, expected `pass` or `deny`"),
        (
            "[log]\nlevel = \"loud\"",
            ":2: unknown variant `loud`, expected one of `error`, `warn`, `info`, `debug`",
        ),
        // Durations.
        ("[spop]\ntimeout = 5", ":2: invalid type: integer `5`, expected a duration, like \"60s\""),
        ("spop = 9000", ":1: invalid type: integer `9000`, expected the section [spop]"),
        ("log = \"info\"", ":1: invalid type: string \"info\", expected the section [log]"),
        ("policy = \"maps\"", ":1: invalid type: string \"maps\", expected the section [policy]"),
        ("decision_log = true", ":1: invalid type: boolean `true`, expected the section [decision_log]"),
        ("state = 5", ":1: invalid type: integer `5`, expected the section [state]"),
        (
            "[policy.derived]\nnetwork = 24",
            ":2: invalid type: integer `24`, expected a section [policy.derived.NAME]",
        ),
        (
            "[policy.derived.asn]\nfrom = \"source\"\nmap = \"asn.map\"",
            ":1: derived field asn: expected map and match, or ipv4_prefix and ipv6_prefix",
        ),
        (
            "[policy.derived.asn]\nfrom = \"network\"\nmap = \"asn.map\"\nmatch = \"ip\"",
            ":1: derived field asn: expected a name other than source and, as its origin, a field that the \
             proxy sends",
        ),
        (
            "[spop]\ntimeout = \"5\"",
            ":2: \"5\": expected a whole number and a unit (us, ms, s, m, h or d), like 5s",
        ),
        ("[hold]\nlongest = \"0s\"", ":2: \"0s\": expected a duration longer than 0, like 5s"),
        (
            "[table]\nexpire = \"\"",
            ":2: \"\": expected a whole number and a unit (us, ms, s, m, h or d), like 5s",
        ),
        (
            "[http]\nidle_timeout = \"soon\"",
            ":2: \"soon\": expected a whole number and a unit (us, ms, s, m, h or d), like 5s",
        ),
        // Addresses.
        (
            "[spop]\nlisten = [\"nowhere\"]",
            ":2: \"nowhere\": expected host:port, like 127.0.0.1:9000, or unix:/path",
        ),
        (
            "[http]\nlisten = [\n  \"127.0.0.1:9001\",\n  \"127.0.0.1:99999\",\n]",
            ":2: \"127.0.0.1:99999\": expected host:port, like 127.0.0.1:9000, or unix:/path",
        ),
        (
            "[admin]\nlisten = [\"unix:relative\"]",
            ":2: \"unix:relative\": expected host:port, like 127.0.0.1:9000, or unix:/path",
        ),
        // Types of SLOs and lookups.
        (
            "[policy.types]\n6 = [\"a\"]\n0 = [\"a\"]",
            ":3: \"0\": expected a type from 1 to 999; type 0 is one bucket for all requests and has no \
             fields",
        ),
        (
            "[policy.types]\nsix = [\"a\"]",
            ":2: \"six\": expected a type from 1 to 999; type 0 is one bucket for all requests and has no \
             fields",
        ),
        (
            "[policy.types]\n1000 = [\"a\"]",
            ":2: \"1000\": expected a type from 1 to 999; type 0 is one bucket for all requests and has no \
             fields",
        ),
        ("[policy.types]\n6 = \"a\"", ":2: invalid type: string \"a\", expected a list in [ ]"),
        ("[policy.types]\n6 = [\"a\"]\n7 = []", ":3: no fields: name at least one"),
        ("[policy.types]\n6 = [\"a\", \"\"]", ":2: a field has an empty name: expected a name, like source"),
        (
            "[[policy.lookups]]\nfields = []\nmap = \"a.map\"\nmatch = \"str\"",
            ":2: no fields: name at least one",
        ),
        (
            "[[policy.lookups]]\nfields = [\"a\"]\nmap = \"a.map\"\nmatch = \"len\"",
            ":4: unknown variant `len`, expected one of `str`, `ip`, `beg`, `end`, `dom`, `sub`, `reg`",
        ),
        (
            "[[policy.lookups]]\nfields = [\"a\"]\nmap = \"slo.map\"\nmatch = \"str\"",
            ":1: slo.map: slo.map or another map already uses this file: name a different file",
        ),
        (
            "[grpc.fields]\nowner = \"X-Api-Key\"",
            ":1: \"X-Api-Key\": expected a lower-case key or header that no other field uses, like \
             \"x-api-key\"",
        ),
        (
            "[grpc.fields]\na = \"k\"\nb = \"k\"",
            ":1: \"k\": expected a lower-case key or header that no other field uses, like \
             \"x-api-key\"",
        ),
        // No TOML at all.
        ("\n[spop\n", ":2: unclosed table, expected `]`"),
        ("what is this", ":1: key with no value, expected `=`"),
        ("[spop]\ntimeout = \"1s\"\ntimeout = \"1s\"", ":3: duplicate key"),
    ] {
        assert_eq!(said(text), expected, "{text}");
    }
    assert!(said(b"[spop]\n\xff = 1").starts_with(": stream did not contain valid UTF-8"));
}

#[test]
fn a_config_that_cannot_be_read_is_told_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.toml");
    for (path, reason) in [(missing.as_path(), "No such file"), (folder.path(), "Is a directory")] {
        for command in ["check", "run"] {
            let Ran { code, problems, .. } = ran(&[command, "--config", path.to_str().unwrap()]);
            let [problem] = &problems[..] else { panic!("{problems:?}") };
            assert!(problem.starts_with(&format!("{}: {reason}", path.display())), "{problem}");
            assert!(problem.ends_with(": use --config to name a file that can be read"), "{problem}");
            assert_eq!(code, 1);
        }
    }
}

#[test]
fn a_wrong_config_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slowlane.toml");
    fs::write(&path, "[hold]\nmaximum = 1\n").unwrap();
    let Ran { code, problems, .. } = ran(&["run", "--config", path.to_str().unwrap()]);
    assert_eq!((code, problems.len()), (1, 1));
    assert!(
        problems[0].contains(
            "slowlane.toml:2: unknown field `maximum`, expected one of `max`, `longest`, `when_full`"
        )
    );
}

#[test]
fn an_empty_config_is_the_default() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty.toml"), "").unwrap();
    let Ran { code, out, problems } = ran_in(folder.path(), &["check", "--config", "empty.toml"]);
    assert_eq!(
        (code, out.as_str(), problems.len()),
        (
            0,
            "ok: config empty.toml, the built-in policy: 1 SLO; no maps; no SLO has a limit, so nothing is throttled\n",
            0
        )
    );
}

/// A folder with a config and two policies: `one` has one SLO, and `two` has two.
fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (dir, slo_map) in
        [("etc/one", "0 burst=1 rate=1/s\n"), ("two", "0 burst=1 rate=1/s\n1 burst=1 rate=1/s\n")]
    {
        fs::create_dir_all(folder.path().join(dir)).unwrap();
        fs::write(folder.path().join(dir).join("slo.map"), slo_map).unwrap();
    }
    fs::write(folder.path().join("etc/slowlane.toml"), config).unwrap();
    folder
}

#[test]
fn a_relative_policy_stands_beside_the_config_and_a_typed_one_where_it_is_typed() {
    let folder = folder("[policy]\ndir = \"one\"\n");
    let checked = |args: &[&str]| ran_in(folder.path(), &[&["check"], args].concat());
    let beside = checked(&["--config", "etc/slowlane.toml"]);
    assert_eq!(
        (beside.code, beside.out.as_str()),
        (0, "ok: config etc/slowlane.toml, policy etc/one: 1 SLO; no maps\n")
    );
    let typed = checked(&["--config", "etc/slowlane.toml", "--policy", "two"]);
    assert_eq!(
        (typed.code, typed.out.as_str()),
        (0, "ok: config etc/slowlane.toml, policy two: 2 SLOs; no maps\n"),
        "flags win"
    );
    let here = ran_in(&folder.path().join("etc"), &["check", "--config", "slowlane.toml"]);
    assert_eq!((here.code, here.out.as_str()), (0, "ok: config slowlane.toml, policy one: 1 SLO; no maps\n"));
    let absolute = folder.path().join("two");
    fs::write(folder.path().join("etc/slowlane.toml"), format!("[policy]\ndir = {absolute:?}\n")).unwrap();
    let expected = format!("ok: config etc/slowlane.toml, policy {}: 2 SLOs; no maps\n", absolute.display());
    assert_eq!(checked(&["--config", "etc/slowlane.toml"]).out, expected);
}

/// Runs the daemon with a config of these lines, with all three listeners on Unix sockets in a folder.
fn run_on_sockets(folder: &Path, lines: &str, typed: &[&str]) -> Process {
    let socket = |name: &str| format!("listen = [\"unix:{}/{name}.sock\"]", folder.display());
    let config = ["spop", "http", "admin"].map(|name| format!("[{name}]\n{}\n", socket(name))).concat();
    let path = folder.join("slowlane.toml");
    fs::write(&path, config + lines).unwrap();
    Process::start(Command::new(BINARY).arg("run").arg("--config").arg(path).args(typed))
}

#[test]
fn typed_addresses_win_over_the_file_each_for_itself() {
    for (flag, name, marker) in
        [("--spop", "spop", "SPOP"), ("--http", "http", "HTTP check"), ("--admin", "admin", "admin")]
    {
        let folder = tempfile::tempdir().unwrap();
        let mut process = run_on_sockets(folder.path(), "", &[flag, "127.0.0.1:0", flag, "127.0.0.1:0"]);
        process.logged("admin on ");
        let typed = format!("{marker} on 127.0.0.1:");
        eventually("both that were typed", || {
            let log = process.log();
            (log.iter().filter(|line| line.contains(&typed)).count() == 2).then_some(())
        });
        for other in ["spop", "http", "admin"] {
            let is_there = folder.path().join(format!("{other}.sock")).exists();
            assert_eq!(is_there, other != name, "{flag}: {other}");
        }
    }
}

#[test]
fn a_level_of_warn_leaves_out_what_is_normal() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = run_on_sockets(folder.path(), "[log]\nlevel = \"warn\"\n", &[]);
    eventually("it serves", || folder.path().join("admin.sock").exists().then_some(()));
    // The last socket appears before the daemon waits for signals. An earlier signal is not lost.
    process.signal("TERM");
    assert!(process.wait().success());
    assert_eq!(process.log(), [""; 0]);
}

const API_KEYS: &str = "\
[policy.types]
6 = [\"api_key\", \"method\"]

[[policy.lookups]]
fields = [\"api_key\"]
map = \"api_key.map\"
match = \"str\"
";

#[test]
fn an_operator_throttles_by_api_key_and_method() {
    let files = [
        ("slo.map", "0 burst=1000000 rate=5000/s\n6001 burst=1 rate=1/m max_delay=1s\n"),
        ("api_key.map", "k-123 6001\n"),
        ("website.map", "shop.example 6001\n"),
    ];
    let slowlane = Slowlane::with_config(&files, API_KEYS);
    let http = |key, method| {
        let headers = [("X-Slowlane-Api-Key", key), ("X-Slowlane-Method", method)];
        let answer = client::get(slowlane.http, "/check", &headers);
        (answer.header("x-slowlane-slo").unwrap().to_owned(), answer.status)
    };
    let spop = |name: &[u8], key: &str, method: &str| {
        let mut line = Line::greeted(slowlane.spop);
        let (key, method) = (Data::Str(key.as_bytes()), Data::Str(method.as_bytes()));
        line.say(&message(1, b"request", &[(name, key), (b"method", method)]));
        let heard = line.hear();
        (heard.variable("slo").unwrap().to_owned(), heard.variable("verdict").unwrap().to_owned())
    };
    let slo = |slo: &str, status: u16| (slo.to_owned(), status);
    assert_eq!(http("k-123", "GET"), slo("6001", 204));
    assert_eq!(http("k-123", "GET"), slo("6001", 403));
    assert_eq!(http("k-123", "POST"), slo("6001", 204), "another method is another bucket");
    assert_eq!(http("k-124", "GET"), slo("0", 204), "a key that nobody knows");
    // HAProxy's argument may have either spelling, and shares its key with nginx's header.
    for name in [&b"api_key"[..], b"api-key"] {
        assert_eq!(spop(name, "k-123", "GET"), ("6001".into(), "deny".into()));
    }
    assert_eq!(spop(b"api_key", "k-123", "PUT"), ("6001".into(), "pass".into()));
    // These lookups replace the built-in ones.
    let website = client::get(slowlane.http, "/check", &[("X-Slowlane-Website", "shop.example")]);
    assert_eq!(website.header("x-slowlane-slo"), Some("0"));
}

#[test]
fn a_lookup_matches_as_its_method_says() {
    let lookups = ["dom", "beg", "end", "reg", "str", "ip", "sub"].map(|method| {
        format!("[[policy.lookups]]\nfields = [\"{method}\"]\nmap = \"{method}.map\"\nmatch = \"{method}\"\n")
    });
    let files = [
        (
            "slo.map",
            "0 burst=9 rate=9/s\n1 burst=9 rate=9/s\n2 burst=9 rate=9/s\n3 burst=9 rate=9/s\n4 burst=9 rate=9/s\n5 burst=9 rate=9/s\n6 burst=9 rate=9/s\n7 burst=9 rate=9/s\n",
        ),
        ("dom.map", "shop.example 1\n"),
        ("beg.map", "/api 2\n"),
        ("end.map", ".png 3\n"),
        ("reg.map", "^/v[0-9]+/ 4\n"),
        ("str.map", "GET 5\n"),
        ("ip.map", "192.0.2.0/24 6\n"),
        ("sub.map", "bot 7\n"),
    ];
    let slowlane = Slowlane::with_config(&files, &lookups.concat());
    for (method, value, expected) in [
        ("Dom", "www.shop.example:80", "1"),
        ("Dom", "www.ashop.example", "0"),
        ("Beg", "/api/items", "2"),
        ("Beg", "/v1/api", "0"),
        ("End", "/logo.png", "3"),
        ("End", "/logo.png?", "0"),
        ("Reg", "/v12/items", "4"),
        ("Reg", "/v/items", "0"),
        ("Str", "GET", "5"),
        ("Str", "get", "0"),
        ("Ip", "192.0.2.77", "6"),
        ("Ip", "192.0.3.77", "0"),
        ("Sub", "Googlebot/2.1", "7"),
        ("Sub", "GoogleBot/2.1", "0"),
    ] {
        let answer =
            client::get(slowlane.http, "/check?hold=off", &[(&format!("X-Slowlane-{method}"), value)]);
        assert_eq!(answer.header("x-slowlane-slo"), Some(expected), "{method} {value}");
    }
}

#[test]
fn a_customer_is_as_large_as_the_prefixes_say() {
    let files = [
        ("slo.map", "0 burst=9 rate=9/s\n3001 burst=1 rate=1/m max_delay=1s\n"),
        ("source.map", "0.0.0.0/0 3001\n::/0 3001\n"),
    ];
    let slowlane = Slowlane::with_config(&files, "[policy]\nipv4_prefix = 24\nipv6_prefix = 48\n");
    let ask = |source| client::get(slowlane.http, "/check", &[("X-Slowlane-Source", source)]).status;
    assert_eq!([ask("192.0.2.1"), ask("192.0.2.254"), ask("192.0.3.1")], [204, 403, 204]);
    assert_eq!([ask("2001:db8::1"), ask("2001:db8:0:ffff::1"), ask("2001:db8:1::1")], [204, 403, 204]);
}

/// Six requests of two /64 within one /48, which have four a minute each, and five together.
#[test]
fn a_request_counts_under_its_network_and_under_a_larger_one() {
    let lookup = |map: &str| {
        format!("[[policy.lookups]]\nfields = [\"source\"]\nmap = \"{map}.map\"\nmatch = \"ip\"\n")
    };
    let prefixes =
        "[policy.types]\n7 = [\"source\"]\n[policy.ipv4_prefixes]\n7 = 16\n[policy.ipv6_prefixes]\n7 = 48\n";
    let config = prefixes.to_owned() + &lookup("source") + &lookup("network");
    let files = [
        (
            "slo.map",
            "0 burst=9 rate=9/s\n3001 burst=4 rate=1/m law=token-bucket also=network\n\
             7001 burst=5 rate=1/m law=token-bucket\n",
        ),
        ("source.map", "0.0.0.0/0 3001\n::/0 3001\n"),
        ("network.map", "0.0.0.0/0 7001\n::/0 7001\n"),
    ];
    let slowlane = Slowlane::with_config(&files, &config);
    let ask = |source| {
        let answer = client::get(slowlane.http, "/check", &[("X-Slowlane-Source", source)]);
        (answer.status, answer.header("x-slowlane-slo").unwrap_or_default().to_owned())
    };
    let (passes, of_network) = (|slo: &str| (204, slo.to_owned()), (403, "7001".to_owned()));
    for [one, same, other, far] in [
        ["2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:2::1", "2001:db8:1::1"],
        ["192.0.2.1", "192.0.2.1", "192.0.9.1", "192.1.2.1"],
    ] {
        assert_eq!([one, same, one, same].map(ask), [(); 4].map(|()| passes("3001")), "{one}");
        assert_eq!(ask(same), (403, "3001".to_owned()), "the fifth of the small one");
        assert_eq!(ask(other), passes("3001"), "the fifth of the large one");
        assert_eq!(ask(other), of_network, "the sixth of the large one");
        assert_eq!(ask(far), passes("3001"), "another large one");
    }
    let why = client::get(slowlane.admin, "/api/why?source=2001:db8:0:2::1", &[]).body;
    assert!(why.contains("of source 2001:db8:0:2::/64 (type 3)"), "{why}");
    assert!(why.contains("of source 2001:db8::/48 (type 7)"), "{why}");
    assert!(why.contains("(also=network of SLO 3001)"), "{why}");
}

#[test]
fn a_full_table_forgets_and_tells() {
    let files = [
        ("slo.map", "0 burst=9 rate=9/s\n3001 burst=1 rate=1/m max_delay=1s\n"),
        ("source.map", "0.0.0.0/0 3001\n"),
    ];
    let slowlane = Slowlane::with_config(&files, "[table]\nsize = 10\n");
    let ask = |last: u8| {
        client::get(slowlane.http, "/check", &[("X-Slowlane-Source", &format!("192.0.2.{last}"))]).status
    };
    for last in 1..=10 {
        assert_eq!([ask(last), ask(last)], [204, 403]);
    }
    let table = || {
        [slowlane.metric("slowlane_table_entries", ""), slowlane.metric("slowlane_table_evictions_total", "")]
    };
    assert_eq!(table(), [10.0, 0.0]);
    assert_eq!(ask(11), 204);
    assert_eq!(table(), [10.0, 1.0]);
    assert_eq!([ask(10), ask(2)], [403, 403], "those written later are still known");
    assert_eq!(ask(1), 204, "the one written first is forgotten, and passes");
    assert_eq!(table(), [10.0, 2.0]);
}

#[test]
fn an_entry_is_forgotten_when_its_time_is_over() {
    // `adaptive` sets no expiry of its own, so only `expire` counts.
    let files = [
        ("slo.map", "0 burst=1 rate=1/s law=adaptive\n3001 burst=9 rate=9/s law=adaptive\n"),
        ("source.map", "0.0.0.0/0 3001\n"),
    ];
    let slowlane = Slowlane::with_config(&files, "[table]\nsize = 100\nexpire = \"200ms\"\n");
    let ask = |last: u8| {
        client::get(slowlane.http, "/check?hold=off", &[("X-Slowlane-Source", &format!("192.0.2.{last}"))])
            .status
    };
    for last in 1..=9 {
        ask(last);
    }
    eventually("a write clears away what has expired", || {
        ask(100);
        (slowlane.metric("slowlane_table_entries", "") == 1.0).then_some(())
    });
    assert_eq!(slowlane.metric("slowlane_table_evictions_total", ""), 0.0, "nobody had to go");
}

#[test]
fn laws_that_need_more_memory_than_there_is_fall_back_and_tell() {
    let files = [
        (
            "slo.map",
            "0 burst=1 rate=1/m law=sliding-log\n2001 burst=2 rate=1/m law=fair max_delay=1s\n\
             2002 burst=9 rate=2/h law=sliding-log\n",
        ),
        ("website.map", "fair.example 2001\nlog.example 2002\n"),
    ];
    for (config, is_enough) in [("", true), ("[table]\nannex_bytes_max = 0\n", false)] {
        let slowlane = Slowlane::with_config(&files, config);
        for website in ["fair.example", "log.example"] {
            let ask = |_| slowlane.check("", &[("X-Slowlane-Website", website)]).status;
            assert_eq!(
                [(); 3].map(ask),
                [204, 204, 403],
                "{website}: the law that stands in holds the SLO too"
            );
        }
        let metric = |name| slowlane.metric(name, "");
        assert_eq!(metric("slowlane_law_fallbacks_total"), if is_enough { 0.0 } else { 6.0 });
        assert_eq!(metric("slowlane_annex_bytes") > 0.0, is_enough);
    }
}
