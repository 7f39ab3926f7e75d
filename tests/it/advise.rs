//! `slowlane advise`: its lines can be pasted, a replay of them agrees, and logs that cannot be read twice are refused.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Ran, ran_in};
use crate::support::pages::Page;
use crate::support::project;
use crate::support::slowlane::BINARY;

const AGENT: &str = "Mozilla/5.0 (compatible; Examplebot/1.0; +http://bot.example/)";

/// Twenty clients of a page with four images, and a crawler, in nginx's `combined`.
fn combined() -> String {
    let line = |second: usize, client: usize, agent: &str| {
        let (minute, second) = (second / 60, second % 60);
        format!(
            "192.0.2.{client} - - [06/Feb/2009:12:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 3 \"-\" \"{agent}\"\n"
        )
    };
    let visits = (0..600).flat_map(|second| {
        let page = (0..5)
            .map(move |_| line(second, 1 + second / 30 % 20, "Mozilla/5.0"))
            .filter(move |_| second % 30 == 0);
        page.chain((0..4).map(move |_| line(second, 99, AGENT)))
    });
    visits.collect()
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("access.log"), combined()).unwrap();
    folder
}

/// Writes the printed lines into their files, in force. Each begins with a comment that names its file.
fn paste(printed: &str, dir: &Path) {
    fs::create_dir(dir).unwrap();
    for block in printed.split("\n# ").skip(1) {
        let (file, lines) = block.split_once('\n').unwrap();
        let file = file.split([',', ';']).next().unwrap();
        let sole = if file == "slo.map" { "0 rate=unlimited\n" } else { "" };
        fs::write(dir.join(file), format!("{sole}{}", lines.replace(" dry_run=yes", ""))).unwrap();
    }
}

#[test]
fn its_lines_can_be_pasted_and_a_replay_of_them_agrees() {
    let folder = folder();
    let args = ["advise", "--spare", "95", "access.log"];
    let Ran { code, out, problems } = ran_in(folder.path(), &args);
    assert_eq!((code, problems), (0, Vec::new()));
    paste(&out, &folder.path().join("maps"));
    let check = ran_in(folder.path(), &["check", "--policy", "maps", "--strict"]);
    assert_eq!((check.code, check.problems), (0, Vec::new()), "{out}");
    let advice: Value =
        serde_json::from_str(&ran_in(folder.path(), &[&args[..], &["--json"]].concat()).out).unwrap();
    let replay = ran_in(folder.path(), &["replay", "--policy", "maps", "--json", "access.log"]);
    let replay: Value = serde_json::from_str(&replay.out).unwrap();
    let (proposal, total) = (&advice["types"][0], &replay["policies"][0]["total"]);
    assert_eq!((&proposal["delayed"], &proposal["denied"]), (&total["delayed"], &total["denied"]));
    assert_eq!(proposal["waiting"][0]["who"], replay["policies"][0]["keys"][0]["who"]);
    assert_eq!((&proposal["waiting"][0]["bot"], &proposal["bots"]), (&"Examplebot/1.0".into(), &1.into()));
    assert_eq!((&proposal["clients"], &proposal["spared"]), (&21.into(), &20.into()));
    assert!(out.contains("20 of 21 clients never waited (95.24 %)"), "{out}");
}

#[test]
fn a_compressed_log_gives_the_same_advice() {
    let folder = folder();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(combined().as_bytes()).unwrap();
    fs::write(folder.path().join("access.log.gz"), gzip.finish().unwrap()).unwrap();
    let [plain, gzip] = ["access.log", "access.log.gz"].map(|log| ran_in(folder.path(), &["advise", log]));
    assert_eq!((gzip.code, gzip.out), (0, plain.out));
}

#[test]
fn it_says_what_it_cannot_do() {
    let folder = folder();
    fs::write(folder.path().join("empty.log"), "").unwrap();
    for (args, problem) in [
        (
            &["-"][..],
            "each log must be a regular file, not standard input, because logs are read several times",
        ),
        (&["empty.log"], "no advice: no request could be read from any log"),
        (
            &["--by", "api_key", "access.log"],
            "by api_key: no clients found: if the log lacks a field, name its item with --field; otherwise, \
             leave out --except-bots",
        ),
        (
            &["--field", "api_key=$http_user_agent", "access.log"],
            "--field api_key: this field is not used: to propose a limit for it, add --by api_key",
        ),
        (
            &["--by", "website", "--by", "source+website", "access.log"],
            "--by website and --by source+website use the same map, which can have only one SLO for each \
             value: give only one of these options",
        ),
    ] {
        let Ran { code, out, problems } = ran_in(folder.path(), &[&["advise"], args].concat());
        assert_eq!((code, out.as_str(), problems.last().unwrap().as_str()), (1, "", problem), "{args:?}");
    }
}

/// Each type is replayed with the fields that it uses, and the first agent is a header that a proxy has captured.
#[test]
fn several_types_are_proposed_together() {
    let folder = tempfile::tempdir().unwrap();
    let line = "192.0.2.7:4711 [06/Feb/2009:12:14:14.655] in b/s1 0/0/1/7/8 200 89 - - ---- 1/1/0/0/0 0/0 \
                {shop.example|Examplebot/1.0} \"GET /a HTTP/1.1\"\n";
    fs::write(folder.path().join("haproxy.log"), line).unwrap();
    let website = ["--field", "website=%[capture.req.hdr(0)]", "--field", "user_agent=%[capture.req.hdr(1)]"];
    let usual = ran_in(folder.path(), &[&["advise", "haproxy.log"], &website[..]].concat());
    assert_eq!(usual.code, 0, "{:?}", usual.problems);
    for text in [
        "by source: 1 client\n",
        "by website: 1 key\n",
        "shop.example 2001",
        "Examplebot/1.0  source=192.0.2.7",
    ] {
        assert!(usual.out.contains(text), "{text}: {}", usual.out);
    }
    let both = ["advise", "haproxy.log", "--by", "source+website"];
    let both = ran_in(folder.path(), &[&both[..], &website[..]].concat());
    assert!(
        both.out.contains("5001 burst=1 rate=1/m dry_run=yes\n\n# website.map\nshop.example 5001\n"),
        "{}",
        both.out
    );
}

#[test]
fn few_clients_are_all_spared_and_it_says_so() {
    let Ran { code, problems, .. } = ran_in(folder().path(), &["advise", "access.log"]);
    let note = "by source: --spare 99.9 spares all of 21 clients: with a lower --spare, the busiest of them would \
                wait";
    assert_eq!((code, problems), (0, vec![note.to_owned()]));
}

#[test]
fn what_the_manual_shows_is_what_it_prints() {
    let page = Page::read("doc/book/getting-started.md");
    let blocks = page.blocks("sh");
    let shown = blocks.iter().filter_map(|block| block.text.strip_prefix("$ slowlane ")?.split_once('\n'));
    let shown: Vec<(&str, &str)> = shown.filter(|(command, _)| command.starts_with("advise")).collect();
    let [(command, printed)] = shown[..] else { panic!("one example: {shown:?}") };
    let args: Vec<&str> = command.split_whitespace().collect();
    let Ran { code, out, problems } = ran_in(&project(""), &args);
    assert_eq!((code, out.as_str(), problems), (0, printed, Vec::new()), "{command}");
}

/// A line of nginx's `combined`, in this second of an hour.
fn line(second: usize, address: &str, path: &str, agent: &str) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!(
        "{address} - - [06/Feb/2009:12:{minute:02}:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 3 \"-\" \"{agent}\"\n"
    )
}

/// Seventy customers with twelve requests each, for a few pages, with a few browsers: 840 requests in 14 minutes.
fn customers() -> Vec<(usize, String)> {
    let browsers = ["Firefox/130.0", "Chrome/130.0", "Safari/17.6", "Edge/130.0", "Firefox/128.0"];
    let ask = |number: usize| {
        let (customer, second) = (number % 70, number);
        let address = format!("192.0.{customer}.{}", 1 + customer * 3 % 250);
        let path = format!("/shop/{}", number * 7 % 40);
        (second, line(second, &address, &path, &format!("Mozilla/5.0 {}", browsers[customer / 14])))
    };
    (0..840).map(ask).collect()
}

/// These lines and those of the customers, in order of time, in a new folder.
fn crowded(crowd: impl Iterator<Item = (usize, String)>) -> TempDir {
    let mut lines: Vec<(usize, String)> = customers().into_iter().chain(crowd).collect();
    lines.sort_by_key(|(second, _)| *second);
    let folder = tempfile::tempdir().unwrap();
    let log: String = lines.into_iter().map(|(_, line)| line).collect();
    fs::write(folder.path().join("access.log"), log).unwrap();
    folder
}

/// Two requests of each of 1,250 addresses, three each second.
fn twice_each(
    address: impl Fn(usize) -> String,
    path: fn(usize) -> String,
    agent: &str,
) -> Vec<(usize, String)> {
    let ask = |number| (number / 3, line(number / 3, &address(number % 1_250), &path(number), agent));
    (0..2_500).map(ask).collect()
}

fn in_networks(number: usize) -> String {
    format!("203.0.{}.{}", 113 + number % 5, number / 5)
}

fn scattered(number: usize) -> String {
    format!("{}.{}.{}.9", 11 + number % 50, number % 251, number / 7)
}

fn deep(number: usize) -> String {
    format!("/archive/{number}")
}

fn advice(folder: &Path) -> (Value, String) {
    let [json, text] = [&["advise", "access.log", "--json"][..], &["advise", "access.log"]].map(|args| {
        let Ran { code, out, problems } = ran_in(folder, args);
        assert_eq!(code, 0, "{problems:?}");
        out
    });
    (serde_json::from_str(&json).unwrap(), text)
}

/// The keys that wait in a replay of the lines of a crowd, after a strict check of them.
fn waiting(folder: &Path, crowd: &Value) -> Vec<String> {
    let text = |name: &str| crowd[name].as_str().unwrap();
    let maps = folder.join("maps");
    fs::create_dir(&maps).unwrap();
    let in_force = text("slo_line").replace(" dry_run=yes", "");
    fs::write(maps.join("slo.map"), format!("0 rate=unlimited\n{in_force}\n")).unwrap();
    fs::write(maps.join(text("map")), text("map_lines")).unwrap();
    fs::write(folder.join("slowlane.toml"), format!("[policy]\ndir = \"maps\"\n\n{}", text("config")))
        .unwrap();
    let check = ran_in(folder, &["check", "--config", "slowlane.toml", "--strict"]);
    assert_eq!((check.code, check.problems), (0, Vec::new()), "{crowd}");
    let agent: &[&str] =
        if text("by") == "user_agent" { &["--field", "user_agent=$http_user_agent"] } else { &[] };
    let args = ["replay", "--config", "slowlane.toml", "--json", "--top", "9999", "access.log"];
    let replay = ran_in(folder, &[&args[..], agent].concat());
    let replay: Value = serde_json::from_str(&replay.out).unwrap();
    let keys = replay["policies"][0]["keys"].as_array().unwrap();
    keys.iter().map(|key| key["who"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_crowd_of_five_networks_is_named_and_nobody_else_waits() {
    let folder = crowded(twice_each(in_networks, deep, "Mozilla/5.0 Chrome/130.0").into_iter());
    let (advice, text) = advice(folder.path());
    let [crowd] = &advice["crowds"].as_array().unwrap()[..] else { panic!("one crowd: {text}") };
    let mut named: Vec<&str> =
        crowd["groups"].as_array().unwrap().iter().map(|group| group[0].as_str().unwrap()).collect();
    named.sort_unstable();
    let networks = [113, 114, 115, 116, 117].map(|third| format!("203.0.{third}.0/24"));
    assert_eq!(named, networks);
    assert_eq!((&crowd["addresses"], &crowd["requests"]), (&1_250.into(), &2_500.into()));
    assert_eq!((&crowd["others"], &crowd["others_waiting"]), (&70.into(), &0.into()));
    assert!(crowd["waiting_requests"].as_u64().unwrap() > 2_000, "{crowd}");
    for sentence in [
        "1250 addresses of 5 networks send 75 % of the requests, 2 each; 100 % of these are for pages no other client requests\n",
        "Of 70 other clients, none waited.\n",
    ] {
        assert!(text.contains(sentence), "{text}");
    }
    let mut keys = waiting(folder.path(), crowd);
    keys.sort_unstable();
    assert_eq!(keys, networks.map(|network| format!("network={network}")));
}

/// A customer has an address in one of the networks. It asks for the pages of the others, and waits with the crowd.
#[test]
fn a_customer_among_the_crowd_is_one_of_the_others() {
    let visit = |number: usize| {
        (number * 60, line(number * 60, "203.0.113.254", &format!("/shop/{number}"), "Mozilla/5.0"))
    };
    let crowd = twice_each(in_networks, deep, "Mozilla/5.0").into_iter();
    let folder = crowded(crowd.chain((1..12).map(visit)));
    let (advice, text) = advice(folder.path());
    assert!(
        advice["crowds"].as_array().unwrap().is_empty() || text.contains("Of 71 other clients, 1 waited"),
        "{text}"
    );
}

#[test]
fn a_scattered_crowd_is_told_by_its_user_agent() {
    let folder = crowded(twice_each(scattered, deep, "Mozilla/5.0 (X11; Linux) Chrome/41.0").into_iter());
    let (advice, text) = advice(folder.path());
    let [crowd] = &advice["crowds"].as_array().unwrap()[..] else { panic!("one crowd: {text}") };
    assert_eq!((&crowd["by"], &crowd["others_waiting"]), (&"user_agent".into(), &0.into()), "{text}");
    let sentence = "1250 addresses with 1 user agent send 75 % of the requests, 2 each; 100 % of these are for pages no other client requests";
    assert!(text.contains(sentence), "{text}");
    let keys = waiting(folder.path(), crowd);
    assert_eq!(keys, ["user_agent=Mozilla/5.0\\u{20}(X11;\\u{20}Linux)\\u{20}Chrome/41.0"]);
}

#[test]
fn a_crowd_that_nothing_tells_apart_is_said_to_be_one() {
    let shop = |number: usize| format!("/shop/{}", number * 7 % 40);
    let ask = twice_each(scattered, shop, "Mozilla/5.0 Chrome/130.0");
    let folder = crowded(ask.into_iter());
    let (advice, text) = advice(folder.path());
    assert_eq!(advice["crowds"], Value::Array(Vec::new()), "{text}");
    let sentence = "1250 addresses send 74 % of the requests, at most 10 requests each. No network, user \
                    agent or page distinguishes a crowd, so a limit would make everybody wait. If the \
                    application is overloaded, use law=protect.";
    assert!(text.contains(sentence), "{text}");
}

/// A million requests, each with an address and a user agent of its own. With a row for each user agent, the program would
/// need more memory than it may have here.
#[test]
fn user_agents_in_a_million_forms_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = BufWriter::new(File::create(folder.path().join("access.log")).unwrap());
    for number in 0..1_000_000 {
        let address = format!("{}.{}.{}.{}", 11 + number % 50, number % 251, number / 7 % 256, number % 199);
        let agent = format!("Mozilla/5.0 ({number:x}; x64) Gecko/{}", number * 7);
        log.write_all(line(number / 300, &address, "/shop/1", &agent).as_bytes()).unwrap();
    }
    log.into_inner().unwrap().sync_all().unwrap();
    let limited = format!("ulimit -v 700000; exec {BINARY} advise access.log");
    let ran = Command::new("sh").args(["-c", &limited]).current_dir(folder.path()).output().unwrap();
    let (out, problems) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{problems}");
    assert!(out.contains("No network, user agent or page distinguishes a crowd"), "{out}");
}
