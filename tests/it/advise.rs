//! `slowlane advise`: its lines can be pasted, a replay of them agrees, and logs that cannot be read twice are refused.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Ran, ran_in};
use crate::support::pages::Page;
use crate::support::project;

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
        (&["-"][..], "a log is not a file: logs are read several times, so standard input cannot be used"),
        (&["empty.log"], "no advice: no log has a request that could be read"),
        (
            &["--by", "api_key", "access.log"],
            "by api_key: no clients; use --field to name the item of a missing field, and try without --except-bots",
        ),
        (
            &["--field", "api_key=$http_user_agent", "access.log"],
            "--field api_key: not used; --by api_key proposes a limit for it",
        ),
        (
            &["--by", "website", "--by", "source+website", "access.log"],
            "--by website and --by source+website: their map is the same, and has one SLO for a value: ask for one type at a time",
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
    let note = "by source: 99.9 % of 21 clients spares all of them; a lower --spare lets the busiest wait";
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
