//! The replay: logs of real proxies, broken logs, and verdicts equal to the live ones.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use allocation_counter::measure;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use slowlane_core::base::{
    Amount, Decision, Ending, Key, Kind, Request, Sample, SloId, Timestamp, Value, Verdict,
};
use slowlane_core::law::Law;
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use slowlane_lab::access_log::{Choice, Format};
use slowlane_lab::replay::{Input, KeyRow, Outcome, ReplayCounts, ReplaySettings, Subject, replay};
use tempfile::TempDir;

use crate::cli::{Ran, ran_in};
use crate::support::backend::Backend;
use crate::support::haproxy::Version::{V2_6, V3_0, V3_2, V3_4};
use crate::support::haproxy::{
    CONFIG, Delivery, Haproxy, VerdictHeaders, each, logging_every_request, replace,
};
use crate::support::nginx::Nginx;
use crate::support::pages::Page;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{eventually, key_hasher, project};

/// A website for each law, one with two SLOs, and one with a dry run.
const SLO_MAP: &str = "0 burst=50 rate=20/s
2001 burst=5 rate=10/s
2002 burst=5 rate=10/s law=adaptive
2003 burst=5 rate=10/s law=fair max_delay=1s
2004 burst=5 rate=10/s law=sliding-log
2005 burst=5 rate=10/s law=sliding-window also=owner
2006 burst=5 rate=10/s law=concurrency max=3
2007 burst=5 rate=10/s law=pace
2008 burst=5 rate=10/s law=token-bucket
2009 burst=5 rate=10/s law=leaky-bucket
2010 burst=5 rate=10/s law=fixed-window
2011 burst=5 rate=10/s law=sliding-buckets
2012 burst=5 rate=10/s law=token-bucket dry_run=yes also=owner
2013 burst=5 rate=10/s law=sketch
1001 burst=9 rate=2/s
5001 burst=1 rate=1/s
";
const WEBSITE_MAP: &str = "w1 2001\nw2 2002\nw3 2003\nw4 2004\nw5 2005\nw6 2006\nw7 2007\nw8 2008\nw9 2009\nw10 2010\n\
                           w11 2011\nw12 2012\nw13 5001\nw14 2013\n";

/// The websites with an SLO, and one more.
const WEBSITES: u8 = 15;

fn policy() -> Policy {
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(SLO_MAP.into()),
        Some("website.map") => Ok(WEBSITE_MAP.into()),
        Some("owner.map") => Ok("acme 1001\n".into()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    Policy::parse(Path::new(""), &Layout::default(), read).unwrap()
}

fn throttle() -> Throttle {
    let sizing = Sizing { entries_max: 10_000, expire: Duration::from_secs(30) };
    Throttle::new(policy(), sizing, 1 << 20)
}

fn subject() -> Subject {
    Subject { name: "policy".to_owned(), throttle: throttle() }
}

const SEED: u64 = 42;

fn settings() -> ReplaySettings {
    ReplaySettings {
        format: Choice::Any,
        mappings: Vec::new(),
        measures: Vec::new(),
        reorder: Duration::from_secs(60),
        seed: SEED,
        top: 100_000,
    }
}

fn input(bytes: Vec<u8>) -> Input {
    Input { name: "log".to_owned(), bytes: Box::new(std::io::Cursor::new(bytes)) }
}

/// A log line in `FORMAT` of a request that took no time.
fn line(asked: &Asked) -> String {
    let Asked { ms, source, website, cost } = asked;
    format!(
        "{} {}.{:03} 0.000 w{website} acme {cost} \"GET / HTTP/1.1\"\n",
        Ipv4Addr::from(*source),
        ms / 1_000,
        ms % 1_000
    )
}

const FORMAT: &str = "$remote_addr $msec $request_time $host $slowlane_owner $cost \"$request\"";

#[derive(Clone, Debug)]
struct Asked {
    ms: u64,
    source: [u8; 4],
    website: u8,
    cost: i64,
}

fn asked() -> impl Strategy<Value = Vec<Asked>> {
    let one = (0u64..120, 0u8..4, 0..WEBSITES, 1i64..4);
    prop::collection::vec(one, 1..600).prop_map(|all| {
        let mut ms = 1_700_000_000_000;
        let ask = |(gap, source, website, cost)| {
            ms += gap;
            Asked { ms, source: [192, 0, 2, source], website, cost }
        };
        all.into_iter().map(ask).collect()
    })
}

/// Requests, delayed, denied, delays in total, longest delay.
type Row = [u64; 5];

fn count(row: &mut Row, decision: &Decision) {
    row[0] += 1;
    match decision.verdict {
        Verdict::Pass => {}
        Verdict::Deny { .. } => row[2] += 1,
        Verdict::Delay(_) => {
            row[1] += 1;
            row[3] += decision.verdict.delay_ms();
            row[4] = row[4].max(decision.verdict.delay_ms());
        }
    }
}

/// The verdicts of the throttle when a proxy asks it at these moments.
fn live(asked: &[Asked]) -> BTreeMap<(SloId, Key), Row> {
    let (throttle, mut rng) = (throttle(), fastrand::Rng::with_seed(SEED));
    let mut rows: BTreeMap<_, Row> = BTreeMap::new();
    for Asked { ms, source, website, cost } in asked {
        let website = format!("w{website}");
        let mut request = Request::new();
        request.push(b"source", Value::Address(IpAddr::from(*source)));
        request.push(b"website", Value::Text(website.as_bytes()));
        request.push(b"owner", Value::Text(b"acme"));
        request.push(b"cost", Value::Number(*cost));
        let now = Timestamp::from_millis(*ms);
        let decision = throttle.decide_one(&request, now, Sample::from_bits(rng.u64(..)));
        // In the log it took no time, so it ends after its delay, and this law has no delays.
        if let Some(ticket) = decision.ticket() {
            throttle.end(&throttle.policy(), &ticket, &Ending::default(), now);
        }
        count(rows.entry((decision.slo, decision.key)).or_default(), &decision);
    }
    rows
}

fn rows(outcome: &Outcome) -> BTreeMap<(SloId, Key), Row> {
    let of = |row: &KeyRow| {
        let ReplayCounts { requests, delayed, denied, delay_ms, longest_ms } = row.counts;
        ((row.slo, row.key), [requests, delayed, denied, delay_ms, longest_ms])
    };
    outcome.sides[0].keys.iter().map(of).collect()
}

fn replayed(log: String) -> Outcome {
    let format = Choice::This(Format::parse(FORMAT).unwrap());
    replay(vec![input(log.into_bytes())], &[subject()], &ReplaySettings { format, ..settings() }, |_| ())
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Replayed and live verdicts are equal under every law.
    #[test]
    fn replayed_verdicts_are_the_live_ones(asked in asked(), late in prop::collection::vec(any::<bool>(), 600)) {
        let want: BTreeMap<_, _> =
            live(&asked).into_iter().filter(|(_, row)| row[1] + row[2] > 0).collect();
        let mut lines: Vec<String> = asked.iter().map(line).collect();
        prop_assert_eq!(&rows(&replayed(lines.concat())), &want);
        // Requests of the same moment keep their order.
        for (at, _) in late.iter().enumerate().filter(|&(_, &late)| late) {
            if at + 1 < lines.len() && asked[at].ms != asked[at + 1].ms {
                let is_moved = at > 0 && late[at - 1];
                if !is_moved {
                    lines.swap(at, at + 1);
                }
            }
        }
        prop_assert_eq!(&rows(&replayed(lines.concat())), &want, "in the order of their answers");
    }

    #[test]
    fn no_log_is_fatal(bytes in prop::collection::vec(any::<u8>(), 0..2_000), cut in 0usize..400) {
        let good = "192.0.2.7 - - [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 3 \"-\" \"x\"\n".repeat(3);
        let mixed = [good.as_bytes(), &bytes, b"\n", good.as_bytes()].concat();
        let outcome = replay(vec![input(mixed.clone())], &[subject()], &settings(), |_| ()).unwrap();
        prop_assert!(outcome.requests() >= 6);
        let log = &outcome.logs[0];
        let faulty: u64 = log.errors.iter().map(|faulty| faulty.count).sum();
        let empty = mixed.split(|&byte| byte == b'\n').filter(|line| line.is_empty() || line == b"\r").count() as u64;
        prop_assert!(log.requests + faulty <= log.lines && log.requests + faulty + empty >= log.lines);
        let packed = gzip(&mixed);
        let cut = cut.min(packed.len());
        replay(vec![input(packed[..cut].to_vec())], &[subject()], &settings(), |_| ()).unwrap();
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A website whose SLO counts bytes, in the time of the proxy.
fn bytes_subject() -> Subject {
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(b"0 burst=40kB rate=10kB/s unit=bytes max_delay=2s".to_vec()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    let sizing = Sizing { entries_max: 16, expire: Duration::from_secs(30) };
    Subject { name: "policy".to_owned(), throttle: Throttle::new(policy, sizing, 1 << 20) }
}

/// Pause before a request, how long it takes and how many bytes it sends. Each ends before the next one if `took` is
/// short, or long after it.
type Sent = (u64, u64, u64);

/// The verdicts in bytes, if a proxy asks at these times and reports each end.
fn live_bytes(sent: &[Sent]) -> [u64; 3] {
    let Subject { throttle, .. } = bytes_subject();
    let (mut ends, mut now_ms, mut bytes_by_verdict) =
        (BTreeMap::<(u64, usize), _>::new(), 1_700_000_000_000, [0; 3]);
    for (number, &(gap_ms, took_ms, bytes)) in sent.iter().enumerate() {
        now_ms += gap_ms;
        while let Some(first) = ends.first_entry().filter(|first| first.key().0 <= now_ms) {
            let ((end_ms, _), (ticket, ending)) = first.remove_entry();
            throttle.end(&throttle.policy(), &ticket, &ending, Timestamp::from_millis(end_ms));
        }
        let decision = throttle.decide_one(&Request::new(), Timestamp::from_millis(now_ms), Sample::MIDDLE);
        bytes_by_verdict[decision.verdict.kind().index()] += bytes;
        if let Some(ticket) = decision.ticket() {
            let amount = Amount::read(bytes.to_string().as_bytes()).unwrap();
            let ending = Ending { bytes: Some(amount), ..Ending::default() };
            ends.insert((now_ms + decision.verdict.delay_ms() + took_ms, number), (ticket, ending));
        }
    }
    bytes_by_verdict
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn replayed_work_is_settled_as_live(sent in prop::collection::vec((1u64..500, 0u64..3_000, 0u64..20_000), 1..200)) {
        let mut now_ms = 1_700_000_000_000;
        let line = |&(gap_ms, took_ms, bytes): &Sent| {
            now_ms += gap_ms;
            let end_ms = now_ms + took_ms;
            let seconds = |ms| format!("{}.{:03}", ms / 1_000, ms % 1_000);
            (end_ms, format!("::1 {} {} {bytes} \"GET / HTTP/1.1\"\n", seconds(end_ms), seconds(took_ms)))
        };
        let mut lines: Vec<(u64, String)> = sent.iter().map(line).collect();
        lines.sort_by_key(|(end_ms, _)| *end_ms);
        let log: String = lines.into_iter().map(|(_, line)| line).collect();
        let format = Choice::This(Format::parse("$remote_addr $msec $request_time $bytes_sent \"$request\"").unwrap());
        let settings = ReplaySettings { format, ..settings() };
        let outcome = replay(vec![input(log.into_bytes())], &[bytes_subject()], &settings, |_| ()).unwrap();
        let work = outcome.sides[0].slos[0].1.work;
        prop_assert_eq!(Kind::ALL.map(|kind| work.of(&[kind]) as u64), live_bytes(&sent));
        prop_assert_eq!((work.unmeasured, outcome.notes.len()), (0, 0), "{:?}", outcome.notes);
    }
}

#[test]
fn each_law_has_a_website() {
    for law in Law::NAMES {
        assert!(*law == Law::DEFAULT_NAME || SLO_MAP.contains(&format!(" law={law}")), "{law}");
    }
}

#[test]
fn adaptive_is_seeded() {
    let log: String = (0..400)
        .map(|number| {
            line(&Asked { ms: 1_700_000_000_000 + number * 37, source: [1; 4], website: 2, cost: 1 })
        })
        .collect();
    let of = |seed| {
        let format = Choice::This(Format::parse(FORMAT).unwrap());
        let settings = ReplaySettings { format, seed, ..settings() };
        rows(&replay(vec![input(log.clone().into_bytes())], &[subject()], &settings, |_| ()).unwrap())
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn a_line_takes_no_memory() {
    let log = |lines: u64| {
        let asked = |number| Asked {
            ms: 1_700_000_000_000 + number * 3,
            source: [192, 0, 2, number as u8],
            website: number as u8 % WEBSITES,
            cost: 1,
        };
        (0..lines).map(|number| line(&asked(number))).collect::<String>().into_bytes()
    };
    let allocations = |lines| {
        let log = log(lines);
        let format = Choice::This(Format::parse(FORMAT).unwrap());
        let (settings, subjects, inputs) =
            (ReplaySettings { format, ..settings() }, [subject()], vec![input(log)]);
        measure(|| drop(replay(inputs, &subjects, &settings, |_| ()))).count_total
    };
    let (few, many) = (allocations(40_000), allocations(80_000));
    assert!(many < few + 2_000, "40000 lines more took {} allocations", many - few);
}

/// A folder with a policy that limits only `shop.example`: five requests, then one per hour.
struct Workdir(TempDir);

const WORKDIR_SLO_MAP: &str = "0 burst=10000 rate=5000/s\n2001 burst=5 rate=1/h law=token-bucket\n";

impl Workdir {
    fn new() -> Workdir {
        let workdir = Workdir(tempfile::tempdir().unwrap());
        for policy in ["policy", "other"] {
            fs::create_dir(workdir.0.path().join(policy)).unwrap();
            workdir.write(&format!("{policy}/slo.map"), WORKDIR_SLO_MAP.as_bytes());
        }
        workdir.write("policy/website.map", b"shop.example 2001\n");
        workdir
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.path().join(name), bytes).unwrap();
    }

    fn ran(&self, args: &[&str]) -> Ran {
        ran_in(self.0.path(), &[&["replay", "--policy", "policy"], args].concat())
    }

    /// A row for each policy, SLO and key, and the problems.
    fn rows(&self, args: &[&str]) -> (Vec<String>, Vec<String>) {
        let Ran { code, out, problems } = self.ran(&[args, &["--json"]].concat());
        assert_eq!(code, 0, "{args:?}: {problems:?}");
        (printed_rows(&out), problems)
    }
}

/// The figures of a replay, a line each: `total`, `slo` or `key`, the policy, the SLO with its law and rate, the key with
/// its fields; requests, delayed and denied; mean, p50, p99 and maximum of the delays.
///
/// Where two policies are compared, a key has the requests with another verdict under the other policy, and how many
/// that delayed and denied. An SLO has its unit and the work asked, used, delayed and denied.
fn printed_rows(json: &str) -> Vec<String> {
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Number(number) if number.as_f64() == number.as_f64().map(f64::round) => {
            number.as_f64().unwrap().to_string()
        }
        other => other.to_string(),
    };
    let list = |of: &serde_json::Value, names: &[&str]| {
        names.iter().map(|name| text(&of[*name])).collect::<Vec<_>>().join(",")
    };
    let figures = |of: &serde_json::Value| {
        list(of, &["requests", "delayed", "denied"])
            + ","
            + &list(&of["delay_ms"], &["mean", "p50", "p99", "max"])
    };
    let mut rows = Vec::new();
    for side in json["policies"].as_array().unwrap() {
        let policy = text(&side["policy"]);
        rows.push(format!("total,{policy},,,,,,{}", figures(&side["total"])));
        for slo in side["slos"].as_array().unwrap() {
            let work = list(&slo["work"], &["unit", "asked", "used", "delayed", "denied"]);
            let work = if slo["work"].is_null() { String::new() } else { format!(",{work}") };
            rows.push(format!(
                "slo,{policy},{},,,{}{work}",
                list(slo, &["slo", "law", "rate"]),
                figures(slo)
            ));
        }
        for key in side["keys"].as_array().unwrap() {
            let compared = match json["changes"].is_null() {
                true => String::new(),
                false => format!(",{}", list(key, &["otherwise", "delayed_there", "denied_there"])),
            };
            let names = text(&key["slo"]) + ",,," + &list(key, &["key", "who"]);
            rows.push(format!("key,{policy},{names},{}{compared}", figures(key)));
        }
    }
    rows
}

/// Checks the rows of a log with `requests` requests to `shop.example`.
fn assert_five_pass(rows: &[String], requests: u64) {
    let denied = requests - 5;
    assert_eq!(rows[0], format!("total,policy,,,,,,{requests},0,{denied},,,,"));
    assert_eq!(rows[1], format!("slo,policy,2001,token-bucket,1/h,,,{requests},0,{denied},,,,"));
    assert!(rows[2].ends_with(&format!(",website=shop.example,{requests},0,{denied},,,,")), "{rows:?}");
}

const NGINX_LINE: &str = "192.0.2.7 [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 3 0.001s host=shop.example slowlane=pass id=00\n";

#[test]
fn plain_compressed_and_piped_logs_are_read() {
    let workdir = Workdir::new();
    let log = NGINX_LINE.repeat(8);
    workdir.write("access.log", log.as_bytes());
    workdir.write(
        "access.log.1.gz",
        &[gzip(NGINX_LINE.repeat(3).as_bytes()), gzip(NGINX_LINE.as_bytes())].concat(),
    );
    assert_five_pass(&workdir.rows(&["access.log"]).0, 8);
    assert_five_pass(&workdir.rows(&["access.log.1.gz", "access.log"]).0, 12);
    assert_five_pass(&workdir.rows(&["--format", "nginx", "access.log"]).0, 8);
    let format = "$remote_addr [$time_local] \"$request\" $status $body_bytes_sent ${request_time}s host=$host slowlane=$x id=$y";
    assert_five_pass(&workdir.rows(&["--format", format, "access.log"]).0, 8);

    let mut command = Command::new(BINARY);
    command.args(["replay", "--policy", "policy", "--json", "-"]).current_dir(workdir.0.path());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&gzip(log.as_bytes())).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = "slowlane: standard input: read as nginx, slowlane's\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), told, "a pipe gets no progress");
    assert_five_pass(&printed_rows(&String::from_utf8(output.stdout).unwrap()), 8);
}

/// 1 s/s, a burst of 2 s, and 1 s reserved. The report of 4 s owes 3 s when it ends; a second later, 2 s are left of
/// that, which refuses the next request but not the one after.
#[test]
fn work_is_reserved_and_settled_at_the_times_of_the_log() {
    let workdir = Workdir::new();
    workdir.write(
        "policy/slo.map",
        b"0 rate=unlimited\n2001 burst=2s rate=1s/s unit=seconds reserve=1s law=token-bucket\n",
    );
    let line = |at: &str, total: &str, app: &str| format!("192.0.2.7 {at} {total} [{app}] shop.example\n");
    let log = [
        line("101.3", "0.300", "0.100"),
        line("104.0", "4.000", "4.000"),
        line("105.5", "0.500", "0.500"),
        line("106.5", "0.500", "0.300, 0.200"),
    ];
    workdir.write("access.log", log.concat().as_bytes());
    let format = |app: &str| format!("$remote_addr $msec $request_time [{app}] $host");
    let (application, total) = (format("$upstream_response_time"), format("$x"));
    let report = workdir.ran(&["--format", &application, "access.log"]);
    let row = |out: &str| out.lines().find(|line| line.contains("burst 2s")).unwrap().to_owned();
    assert_eq!(
        row(&report.out).split_whitespace().collect::<Vec<_>>().join(" "),
        "2001 1s/s, burst 2s seconds 5.10 4.60 0.77 0.00 0.0 0.50 9.8"
    );
    assert_eq!(report.problems, [""; 0]);

    let (rows, _) = workdir.rows(&["--format", &application, "access.log"]);
    assert_eq!(rows[1], "slo,policy,2001,token-bucket,1s/s,,,4,0,1,,,,,seconds,5.1,4.6,0,0.5");
    let json = workdir.ran(&["--json", "--format", &application, "access.log"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let work = serde_json::json!({
        "unit": "seconds", "asked": 5.1, "used": 4.6, "delayed": 0.0, "denied": 0.5, "unmeasured": 0,
    });
    assert_eq!(json["policies"][0]["slos"][0]["work"], work);

    let by_total = workdir.ran(&["--format", &total, "access.log"]).out;
    assert!(row(&by_total).contains(" 5.30 "), "{by_total}");
    let named = ["--format", &total, "--measure", "seconds=$x", "access.log"];
    assert_eq!(row(&workdir.ran(&named).out), row(&report.out));
}

#[test]
fn work_that_a_log_does_not_have_is_said_once() {
    let workdir = Workdir::new();
    let slos = b"0 rate=unlimited\n2001 burst=50 rate=1/h unit=tokens reserve=20 law=token-bucket\n";
    workdir.write("policy/slo.map", slos);
    let later = NGINX_LINE.replace(":12:14:14", ":12:14:15");
    workdir.write("access.log", (NGINX_LINE.repeat(2) + &later).as_bytes());
    let (rows, problems) = workdir.rows(&["access.log"]);
    assert_eq!(rows[1], "slo,policy,2001,token-bucket,1/h,,,3,0,1,,,,,tokens,60,40,0,20");
    assert_eq!(
        problems,
        [
            "--policy: the log lacks the tokens of 3 requests, so the reservations count instead: name the item \
          that contains the cost, like --measure cost=$http_x_cost"
        ]
    );
    // The first two have cost a token each, so that the third finds room.
    let (rows, problems) = workdir.rows(&["--measure", "cost=1", "access.log"]);
    assert_eq!(
        (rows[1].as_str(), problems.len()),
        ("slo,policy,2001,token-bucket,1/h,,,3,0,0,,,,,tokens,3,3,0,0", 0)
    );
    let Ran { code, problems, .. } = workdir.ran(&["--measure", "cost=$tokens", "access.log"]);
    let missing = "--measure cost: $tokens is not in the format, which has $remote_addr";
    assert!(code == 1 && problems[0].contains(missing), "{problems:?}");
    workdir.write("policy/slo.map", WORKDIR_SLO_MAP.as_bytes());
    let Ran { code, problems, .. } = workdir.ran(&["--measure", "cost=1", "access.log"]);
    assert!(code == 1 && problems[0].contains("--measure: the policy does not use measures"), "{problems:?}");
}

/// The path is a part of the request line, and headers have items of their own.
#[test]
fn a_field_that_a_log_lacks_is_proposed_with_its_item() {
    let workdir = Workdir::new();
    workdir.write("access.log", NGINX_LINE.as_bytes());
    let problems = |field: &str, flag: &[&str]| {
        let lookup = format!("fields = [\"{field}\"]\nmap = \"{field}.map\"\nmatch = \"str\"\n");
        workdir.write("slowlane.toml", format!("[[policy.lookups]]\n{lookup}").as_bytes());
        workdir.write(&format!("policy/{field}.map"), b"/ 2001\n");
        let problems = workdir.rows(&[&["--config", "slowlane.toml"], flag, &["access.log"]].concat()).1;
        problems.join("\n")
    };
    for (field, haproxy, nginx) in [
        ("url", "%HU", "$request_uri"),
        ("user_agent", "%[capture.req.hdr(0)]", "$http_user_agent"),
        ("x_tenant", "%[capture.req.hdr(0)]", "$http_x_tenant"),
        ("api_key", "%[var(txn.api_key)]", "$http_x_api_key"),
    ] {
        let proposed = format!("like --field {field}={haproxy} or --field {field}={nginx}");
        let problems = problems(field, &[]);
        assert!(problems.contains(&proposed), "{field}: {problems}");
    }
    for flag in [&[][..], &["--field", "path=%HP"], &["--field", "path=$uri"]] {
        let problems = problems("path", flag);
        assert!(!problems.contains("do not contain the path field"), "{flag:?}: {problems}");
    }
}

#[test]
fn the_order_of_several_logs_does_not_matter() {
    let (policy, at) = (subject, |hour: u32, source: u32| {
        format!(
            "10.0.0.{source} - - [06/Feb/2009:{:02}:{:02}:00 +0000] \"GET / HTTP/1.1\" 200 3 \"-\" \"x\"\n",
            hour / 60,
            hour % 60
        )
    });
    let log =
        |minutes: std::ops::Range<u32>, source| minutes.map(|minute| at(minute, source)).collect::<String>();
    let logs = [log(0..100, 1), log(100..200, 1), log(0..200, 2)];
    let run = |order: [usize; 3]| {
        let inputs = order.map(|number| input(logs[number].clone().into_bytes())).into();
        let outcome = replay(inputs, &[policy()], &settings(), |_| ()).unwrap();
        assert_eq!((outcome.requests(), outcome.logs.len()), (400, 3));
        assert!(!outcome.notes.iter().any(|note| note.contains("--reorder")), "{:?}", outcome.notes);
        (outcome.begun_ns, outcome.ended_ns, rows(&outcome))
    };
    assert_eq!(run([0, 1, 2]), run([2, 1, 0]));
    assert_eq!(run([0, 1, 2]), run([1, 2, 0]));
}

/// Times without a zone occur twice when summer time ends. The lines around them say which of the two hours is meant, also
/// in the log of the next day. Only the first two or three lines after the change, and of that log, can be misplaced.
#[test]
fn an_hour_that_occurs_twice_is_two_hours() {
    let line = |second: u64| {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        format!("10.0.0.1 w13 [{}/Oct/2009:{:02}:{minute:02}:{second:02}.000] 0\n", 25 + hour / 24, hour % 24)
    };
    let log = |seconds: std::ops::Range<u64>| seconds.step_by(2).map(line).collect::<String>();
    let of = |logs: [String; 2]| {
        let inputs = logs.into_iter().map(|log| input(log.into_bytes())).collect();
        let format = Choice::This(Format::parse("%ci %[var(txn.website)] [%tr] %Ta").unwrap());
        replay(inputs, &[subject()], &ReplaySettings { format, ..settings() }, |_| ()).unwrap()
    };
    let hour = 3_600;
    let sunday = log(hour..3 * hour) + &log(2 * hour..24 * hour);
    let outcome = of([sunday, log(24 * hour..25 * hour)]);
    assert_eq!(outcome.ended_ns - outcome.begun_ns, (25 * hour - 2) * 1_000_000_000);
    let ReplayCounts { requests, delayed, denied, .. } = outcome.sides[0].total.counts;
    assert_eq!((requests, denied), (25 * hour / 2, 0));
    assert!(delayed <= 5, "{delayed}");
    let note = "log: the clock goes back at line 3603, so an hour was added to the times from that line on";
    assert!(outcome.notes.iter().any(|own| own == note), "{:?}", outcome.notes);

    // A few long requests among others are behind, and the clock has not changed.
    let long = |second: u64| line(second) + &line(second - 1_800);
    let outcome =
        of([log(hour..2 * hour) + &(0..3).map(|n| long(2 * hour + n)).collect::<String>(), String::new()]);
    assert!(!outcome.notes.iter().any(|note| note.contains("goes back")), "{:?}", outcome.notes);
}

#[test]
fn a_line_far_ahead_or_behind_is_harmless() {
    let workdir = Workdir::new();
    let ahead = NGINX_LINE.replace("2009", "2099");
    let behind = NGINX_LINE.replace(":12:14:14", ":12:14:00");
    let later = NGINX_LINE.replace(":12:14:14", ":12:17:14");
    workdir
        .write("access.log", [NGINX_LINE, &ahead, NGINX_LINE, &later, &later, &behind].concat().as_bytes());
    let (rows, problems) = workdir.rows(&["access.log"]);
    assert!(rows[0].starts_with("total,policy,,,,,,5,"), "{rows:?}");
    assert_eq!(
        problems,
        [
            "1 request arrived more than 1m before requests on earlier lines, and got the time of the last \
             of these: raise --reorder, or give each proxy's log as a separate file",
            "left out 1 request with times far ahead of the times on the following lines",
        ]
    );
    assert_eq!(workdir.rows(&["--reorder", "10m", "access.log"]).1.len(), 1);
}

/// Ten seconds late is less than --reorder: the limit is memory, and raising --reorder would not help.
#[test]
fn a_line_after_too_many_later_ones_has_its_own_note() {
    let line = |ms: u64| line(&Asked { ms: 1_700_000_000_000 + ms, source: [1; 4], website: 0, cost: 1 });
    let log: String = (0..300_000).map(|number| line(10_000 + number / 100)).chain([line(0)]).collect();
    let Outcome { notes, .. } = replayed(log);
    let want = "1 request followed more than 262144 requests that arrived later, and got the time of the \
                last of these: give each proxy's log as a separate file";
    assert_eq!(notes.last().map(String::as_str), Some(want), "{notes:?}");
}

#[test]
fn faulty_lines_are_named_and_the_rest_is_replayed() {
    let workdir = Workdir::new();
    let long = "x".repeat(100_000);
    let bad = NGINX_LINE.replace("GET / HTTP/1.1", "\\x16\\x03\\x01");
    let lines = [
        NGINX_LINE,
        "hello\n",
        &bad,
        &long,
        "\n\x00\x01\x02\n",
        &NGINX_LINE.repeat(200),
        "over\n",
        "192.0.2.7 [06/Feb",
    ];
    workdir.write("access.log", lines.concat().as_bytes());
    let (rows, problems) = workdir.rows(&["access.log"]);
    assert_five_pass(&rows, 201);
    assert_eq!(
        problems,
        [
            "5 of 207 lines (2.4 %) could not be read, or had no usable client",
            "access.log: 2 of 207 lines left out: does not fit the format: $remote_addr is not an address (lines 2, 206)",
            "access.log: 1 of 207 lines left out: not a request, so a proxy would not query slowlane for it (line 3)",
            "access.log: 1 of 207 lines left out: longer than 65536 bytes (line 4)",
            "access.log: 1 of 207 lines left out: binary data (line 5)",
            "access.log: 1 of 207 lines left out: does not fit the format: no \"] \\\"\" after $time_local (line 207)",
        ]
    );

    let whole = gzip(NGINX_LINE.repeat(20_000).as_bytes());
    workdir.write("cut.gz", &whole[..whole.len() - 20]);
    let (_, problems) = workdir.rows(&["cut.gz"]);
    assert!(problems.last().unwrap().contains("the gzip data ends too early, after line "), "{problems:?}");
}

#[test]
fn a_log_without_a_request_is_an_error() {
    let workdir = Workdir::new();
    for (name, bytes, problem) in [
        ("empty", &b""[..], "empty: is empty"),
        (
            "prose",
            b"hello\nworld\n",
            "prose: no line has a known format: give HAProxy's log-format or nginx's log_format with --format",
        ),
        (
            "binary",
            b"\x7fELF\x00\x01\n\x00",
            "binary: no line has a known format: give HAProxy's log-format or nginx's log_format with --format",
        ),
    ] {
        workdir.write(name, bytes);
        let Ran { code, out, problems } = workdir.ran(&[name]);
        assert_eq!((code, out.as_str()), (1, ""), "{name}");
        let nothing = "nothing was replayed: no request could be read from any log";
        let told: Vec<&str> =
            problems.iter().map(String::as_str).filter(|told| !told.contains("(100.0 %)")).collect();
        assert_eq!(told, [problem, nothing]);
    }
    // With a format of its own, and compressed.
    workdir.write("empty.gz", &gzip(b""));
    for args in [&["--format", "nginx", "empty"][..], &["empty.gz"]] {
        let Ran { code, problems, .. } = workdir.ran(args);
        let name = args.last().unwrap();
        let nothing = "nothing was replayed: no request could be read from any log".to_owned();
        assert_eq!((code, problems), (1, vec![format!("{name}: is empty"), nothing]));
    }
    workdir.write("good", NGINX_LINE.as_bytes());
    let Ran { code, out, problems } = workdir.ran(&["prose", "good"]);
    assert_eq!((code, out.as_str()), (1, ""), "one of them can, with one line of three");
    assert_eq!(problems[0], "2 of 3 lines (66.7 %) could not be read, or had no usable client");
    workdir.write("good", NGINX_LINE.repeat(38).as_bytes());
    assert_eq!(workdir.ran(&["prose", "good"]).code, 0, "two of forty are 5 %");
}

/// A list of addresses is no client until the operator says which of them counts.
#[test]
fn a_list_of_addresses_needs_a_word() {
    let workdir = Workdir::new();
    let line = |number: usize| {
        let forged = format!("198.51.100.{}, 192.0.2.7", number % 250);
        NGINX_LINE.trim_end().to_owned() + &format!(" \"{forged}\"\n")
    };
    workdir.write("policy/slo.map", b"0 rate=unlimited\n3001 burst=5 rate=1/h law=token-bucket\n");
    workdir.write("policy/website.map", b"");
    workdir.write("policy/source.map", b"192.0.2.7 3001\n");
    workdir.write("access.log", (0..50).map(line).collect::<String>().as_bytes());
    let format = "$remote_addr [$time_local] \"$request\" $status $body_bytes_sent ${request_time}s host=$host \
                  slowlane=$slowlane_verdict id=$request_id \"$http_x_forwarded_for\"";
    let words = ["--format", format, "--field", "source=$http_x_forwarded_for"];
    let Ran { code, out, problems } = workdir.ran(&[&words[..], &["access.log"]].concat());
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(problems.iter().any(|problem| problem.contains("--forwarded 1")), "{problems:?}");
    let Ran { code, problems, .. } = workdir.ran(&[&words[..], &["--forwarded", "1", "access.log"]].concat());
    assert_eq!((code, problems), (0, Vec::new()));
    let Ran { problems, .. } = workdir.ran(&["--forwarded", "1", "access.log"]);
    assert!(problems[0].contains("--forwarded needs the log item"), "{problems:?}");
}

#[test]
fn top_limits_the_keys_that_are_shown() {
    let workdir = Workdir::new();
    workdir.write("access.log", NGINX_LINE.repeat(8).as_bytes());
    let out = |top: &str| workdir.ran(&["--top", top, "access.log"]).out;
    assert!(out("1").contains("\n1 key had requests delayed or denied:\n"));
    assert!(!out("0").contains("key"), "{}", out("0"));
    workdir.write("access.log", NGINX_LINE.as_bytes());
    assert!(out("0").ends_with("\nno key had a request delayed or denied\n"));
}

#[test]
fn the_last_representable_moment_is_replayed() {
    let workdir = Workdir::new();
    let last = "::1 18446744073.709 GET\n".repeat(20);
    workdir.write("access.log", (last + "::1 18446744074.709 GET\n").as_bytes());
    let (rows, problems) = workdir.rows(&["--format", "%ci %Ts.%ms %HM", "access.log"]);
    assert!(rows[0].starts_with("total,policy,,,,,,20,"), "{rows:?}");
    assert!(problems[1].ends_with("%Ts is not a time (line 21)"), "{problems:?}");
}

#[test]
fn every_error_has_a_remedy() {
    let workdir = Workdir::new();
    workdir.write("good", NGINX_LINE.as_bytes());
    for (args, problem) in [
        (&["nowhere.log"][..], "nowhere.log: cannot be read: No such file or directory (os error 2)"),
        (&["policy"], "policy: this is a directory: name the logs in it"),
        (
            &["--against", "nowhere", "good"],
            "nowhere/slo.map: no such file: create it with one SLO per line, at least `0 rate=unlimited`",
        ),
        (
            &["--format", "$remote_addr $status", "good"],
            "the format has no time: expected $msec, $time_iso8601 or $time_local",
        ),
        (
            &["--field", "website=$http_x", "good"],
            "--field website: $http_x is not in the format, which has $remote_addr $time_local $request \
             $status $body_bytes_sent $request_time $host $slowlane_verdict $request_id",
        ),
        (
            &["--field", "colour=$host", "good"],
            "--field colour: the policy does not use this field: no map, key or share names it",
        ),
    ] {
        let Ran { code, out, problems } = workdir.ran(args);
        assert_eq!((code, out.as_str()), (1, ""), "{args:?}");
        assert_eq!(problems[0], problem, "{args:?}");
    }
}

#[test]
fn names_chosen_by_clients_are_shown_safely() {
    let workdir = Workdir::new();
    workdir.write(
        "policy/slo.map",
        b"0 burst=1 rate=1/h law=token-bucket\n1001 burst=1 rate=1/h law=token-bucket\n",
    );
    workdir.write("policy/website.map", b"");
    workdir.write("policy/owner.map", b"\x1b]0;owned\x07<script>,\"evil\" 1001\n");
    let line = NGINX_LINE.replace("shop.example", "\x1b]0;owned\x07<script>,\\x22evil\\x22");
    workdir.write("access.log", line.repeat(3).as_bytes());
    let name = r#"owner=\u{1b}]0;owned\u{7}<script>,"evil""#;
    for flags in [&[][..], &["--json"]] {
        let Ran { code, out, .. } = workdir.ran(&[flags, &["--field", "owner=$host", "access.log"]].concat());
        assert_eq!(code, 0);
        assert!(out.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{flags:?}: {out:?}");
        let want = match flags {
            ["--json"] => name.replace('\\', "\\\\").replace('"', "\\\""),
            _ => name.to_owned(),
        };
        assert!(out.contains(&want), "{flags:?}: {out}");
    }
}

#[test]
fn two_policies_are_compared() {
    let workdir = Workdir::new();
    workdir.write("access.log", NGINX_LINE.repeat(8).as_bytes());
    let Ran { code, out, problems } = workdir.ran(&["--against", "other", "access.log"]);
    assert_eq!((code, problems), (0, vec![]));
    let key = out
        .lines()
        .find(|line| line.ends_with("website=shop.example"))
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap();
    let everybody = key_hasher(0, "burst=1 rate=1/s").finish();
    let want = format!(
        "\
8 requests from 2009-02-06 12:14:13 to 2009-02-06 12:14:13 UTC, 8.0/s

policy      requests  delayed    %  denied     %  mean ms  p50 ms  p99 ms  max ms
policy             8        0  0.0       3  37.5        -       -       -       -
other              8        0  0.0       0   0.0        -       -       -       -
difference         -       +0    -      +3     -        -       -       -       -

policy \\ other  pass  delay  deny
pass               5      0     0
delay              0      0     0
deny               3      0     0

slo   law           rate  requests  delayed    %  denied     %  mean ms  p50 ms  p99 ms  max ms
2001  token-bucket  1/h          8        0  0.0       3  37.5        -       -       -       -

slo  law   rate    requests  delayed    %  denied    %  mean ms  p50 ms  p99 ms  max ms
0    pace  5000/s         8        0  0.0       0  0.0        -       -       -       -

the keys of policy with the most requests whose verdicts differ:
slo   key               requests  delayed  denied  mean ms  max ms  otherwise  delayed there  denied there  who
2001  {key}         8        0       3        -       -          3              0             0  website=shop.example

the keys of other with the most requests whose verdicts differ:
slo  key               requests  delayed  denied  mean ms  max ms  otherwise  delayed there  denied there  who
0    {everybody}         8        0       0        -       -          3              0             3  (all)
"
    );
    assert_eq!(out, want);

    let (rows, _) = workdir.rows(&["--against", "other", "access.log"]);
    let want = [
        "total,policy,,,,,,8,0,3,,,,".to_owned(),
        "slo,policy,2001,token-bucket,1/h,,,8,0,3,,,,".to_owned(),
        format!("key,policy,2001,,,{key},website=shop.example,8,0,3,,,,,3,0,0"),
        "total,other,,,,,,8,0,0,,,,".to_owned(),
        "slo,other,0,pace,5000/s,,,8,0,0,,,,".to_owned(),
        format!("key,other,0,,,{everybody},(all),8,0,0,,,,,3,0,3"),
    ];
    assert_eq!(rows, want);
}

/// Eight workers and pages of 100 ms: twenty quiet seconds, and twenty in which 400 requests are inside.
#[test]
fn a_protected_application_passes_and_shows_its_limit() {
    let workdir = Workdir::new();
    workdir.write("policy/slo.map", b"0 rate=unlimited\n2001 law=protect\n");
    let line = |request: u64| {
        let (end, seconds) =
            if request < 40 * 20 { (request / 40, "0.100") } else { (20 + (request - 800) / 80, "5.000") };
        NGINX_LINE.replace("0.001s", &format!("{seconds}s")).replace(":12:14:14", &format!(":12:14:{end:02}"))
    };
    workdir.write("access.log", (0..800 + 1_600).map(line).collect::<String>().as_bytes());
    let Ran { code, out, problems } = workdir.ran(&["access.log"]);
    assert_eq!(code, 0, "{problems:?}");
    let (_, figures) =
        out.split_once("law=protect would have let this many requests inside at a time").unwrap();
    let row: Vec<&str> = figures.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!([row[0], row[2], row[3], row[4]], ["2001", "400", "50.0", "14"]);
    let (rows, _) = workdir.rows(&["access.log"]);
    assert_eq!(rows[0], "total,policy,,,,,,2400,0,0,,,,");
}

#[test]
fn concurrency_uses_the_ends_in_the_log() {
    let workdir = Workdir::new();
    workdir.write(
        "policy/slo.map",
        b"0 burst=9 rate=9/s\n2001 burst=1 rate=1/s law=concurrency max=1 lease=60s\n",
    );
    let took = |seconds: &str| NGINX_LINE.replace("0.001s", &format!("{seconds}s"));
    // Begun at 10, 12 and 13; the first ends at 12.5.
    let line = |end: u32, seconds: &str| took(seconds).replace(":12:14:14", &format!(":12:14:{end}"));
    workdir
        .write("access.log", [line(12, "2.000"), line(13, "1.500"), line(14, "1.000")].concat().as_bytes());
    let (rows, problems) = workdir.rows(&["access.log"]);
    assert_eq!((rows[0].as_str(), problems), ("total,policy,,,,,,3,0,1,,,,", vec![]));
    // A log without the times: the place is free again when the lease is over.
    let lines = (10..13).map(|second| format!("::1 - - [06/Feb/2009:12:14:{second} +0000] \"GET http://shop.example/ HTTP/1.1\" 200 3 \"-\" \"x\"\n"));
    workdir.write("combined.log", lines.collect::<String>().as_bytes());
    let (rows, problems) = workdir.rows(&["combined.log"]);
    assert_eq!(rows[0], "total,policy,,,,,,3,0,2,,,,");
    assert_eq!(
        problems[1],
        "the log has no durations (%Ta, $request_time), so each of 1 request under law=concurrency counts for its whole lease"
    );
}

/// A live slowlane with the policy that is replayed.
fn live_slowlane() -> Slowlane {
    Slowlane::with_policy(&[("slo.map", WORKDIR_SLO_MAP), ("website.map", "shop.example 2001\n")])
}

#[test]
fn logs_of_haproxy_replay_to_the_same_verdicts() {
    each(
        &[(V2_6, Delivery::Hold), (V3_0, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)],
        |version, delivery| {
            for (log_line, website) in [
                (
                    "option httplog\n    capture request header Host len 64",
                    Some("website=%[capture.req.hdr(0)]"),
                ),
                ("option httplog clf\n    capture request header Host len 64", None),
                (
                    "log-format \"%[src] %[var(txn.website)] %Ts.%ms %{+Q}r\"\n    http-request set-var(txn.website) req.hdr(host),lower",
                    None,
                ),
            ] {
                let (app, slowlane) = (Backend::start(), live_slowlane());
                let edit = |name: &str, text: String| match name {
                    CONFIG => {
                        let text = logging_every_request(name, text);
                        let format = text
                            .lines()
                            .find(|line| line.trim().starts_with("log-format"))
                            .unwrap()
                            .to_owned();
                        // Captures belong in the frontend.
                        let (option, capture) = log_line.split_once('\n').unwrap_or((log_line, ""));
                        let text = replace(&text, &format, &format!("    {option}"));
                        replace(&text, "    filter spoe", &format!("    {}\n    filter spoe", capture.trim()))
                    }
                    _ => logging_every_request(name, text),
                };
                let agent = slowlane.spop.to_string();
                let mut haproxy = Haproxy::with(version, delivery, &agent, app.address, edit).unwrap();
                haproxy.wait_for_agent("UP");
                let mut client = haproxy.client();
                let hosts = ["Shop.example:8080", "shop.example", "free.example"];
                let asked = (0..24).map(|number| {
                    let host = hosts[number % 3];
                    client.request(
                        "GET",
                        &format!("/{number}?a=|"),
                        &[("Host", host), ("User-Agent", "a \"b\"")],
                        "",
                    )
                });
                let shown: Vec<VerdictHeaders> =
                    asked.map(|response| VerdictHeaders::by(&response)).collect();
                let denied = shown.iter().filter(|shown| shown.is("deny")).count();
                assert_eq!(denied, 16 - 5, "{shown:?}");
                let key =
                    Key::from_bits(shown.iter().find(|shown| shown.is("deny")).unwrap().key.unwrap() as u64);

                let workdir = Workdir::new();
                eventually("HAProxy has logged all", || {
                    let lines: Vec<String> =
                        haproxy.process.log().into_iter().filter(|line| line.contains("HTTP/1.1")).collect();
                    workdir.write("haproxy.log", (lines.join("\n") + "\n").as_bytes());
                    (lines.len() == 24).then_some(())
                });
                let is_given = log_line.starts_with("log-format");
                let mut args: Vec<&str> = Vec::new();
                if let Some(website) = website {
                    args.extend(["--field", website]);
                } else if !is_given {
                    // This format has the captures as a list of quoted texts, here a single one.
                    args.extend(["--field", "website=%hrl"]);
                } else {
                    args.extend(["--format", log_line.split_once('\n').unwrap().0]);
                }
                args.push("haproxy.log");
                let (rows, problems) = workdir.rows(&args);
                assert_eq!(rows[0], "total,policy,,,,,,24,0,11,,,,", "{log_line}: {problems:?} {rows:?}");
                assert!(
                    rows.contains(&format!("key,policy,2001,,,{key},website=shop.example,16,0,11,,,,")),
                    "{log_line}: {rows:?}"
                );
                assert_eq!(problems, [""; 0], "{log_line}");
            }
        },
    );
}

/// The shipped log-format contains website and owner, for any values of clients.
#[test]
fn logs_of_the_shipped_haproxy_replay_to_the_same_verdicts() {
    let slo_map = "0 burst=10000 rate=5000/s\n1001 burst=3 rate=1/h law=token-bucket\n\
                   2001 burst=5 rate=1/h law=token-bucket\n2002 burst=2 rate=1/h law=token-bucket\n";
    let maps = [
        ("slo.map", slo_map),
        ("website.map", "shop.example 2001\na\"b%22\\c 2002\n"),
        ("owner.map", "k\"1\" 1001\n"),
    ];
    let each_delivery = [
        (V2_6, Delivery::Hold),
        (V2_6, Delivery::Lua),
        (V3_0, Delivery::Hold),
        (V3_2, Delivery::Pause),
        (V3_4, Delivery::Pause),
    ];
    each(&each_delivery, |version, delivery| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(&maps));
        let agent = slowlane.spop.to_string();
        let mut haproxy =
            Haproxy::with(version, delivery, &agent, app.address, logging_every_request).unwrap();
        haproxy.wait_for_agent("UP");
        // The log leaves out a longer one, so replay could not know that slowlane refused it.
        let long = "x".repeat(250);
        let listed = format!("a,{long}");
        let asked = [
            ("Shop.example:8080", "-"),
            ("shop.example", "ann"),
            ("a\"b%22\\C", ""),
            ("free.example\" slowlane=deny/0/1/- owner=x", "k\"1\""),
            ("-", "k\"1\""),
            (&long, "ann"),
            (&listed, "ann"),
            ("", "k\"1\""),
        ];
        let mut client = haproxy.client();
        let mut denied = 0;
        for (host, owner) in asked.iter().cycle().take(6 * asked.len()) {
            // The shipped rules answer an odd Host with 400 and do not ask the agent.
            let headers = [("Host", *host), ("X-Api-Key", *owner)];
            let response = client.request("GET", "/a?b=\"c", &headers, "");
            if response.status == 400 {
                client = haproxy.client();
            }
            denied += u64::from(VerdictHeaders::by(&response).is("deny"));
        }
        assert!(denied >= 12 - 5, "{denied}");
        let workdir = Workdir::new();
        for (name, text) in maps {
            workdir.write(&format!("policy/{name}"), text.as_bytes());
        }
        let of_requests = || {
            haproxy.process.log().into_iter().filter(|line| line.contains(" website=")).collect::<Vec<_>>()
        };
        eventually("HAProxy has logged all", || (of_requests().len() == 48).then_some(()));
        // Requests that HAProxy refused by itself were not asked, and replay would count their lines as faulty.
        let is_refused = |line: &String| line.contains("<BADREQ>") || line.contains(" 400 ");
        let (refused, lines): (Vec<String>, Vec<String>) = of_requests().into_iter().partition(is_refused);
        assert_eq!(refused.len(), 3 * 6, "{refused:?}");
        assert!(lines.iter().all(|line| line.len() < 1_024), "{lines:?}");
        workdir.write("haproxy.log", (lines.join("\n") + "\n").as_bytes());
        let (rows, problems) = workdir.rows(&["haproxy.log"]);
        let total = rows[0].split(',').collect::<Vec<_>>();
        assert_eq!(total[9], denied.to_string(), "{problems:?} {rows:?} {lines:?}");
        assert_eq!(total[7], lines.len().to_string(), "{problems:?} {lines:?}");
        assert!(rows.iter().any(|row| row.contains("website=shop.example,12,0,7,")), "{rows:?}");
        assert_eq!(problems, [""; 0]);
    });
}

#[test]
fn logs_of_nginx_replay_to_the_same_verdicts() {
    for (format, args) in [
        ("slowlane", &[][..]),
        (
            "json escape=json '{\"at\":\"$msec\",\"ip\":\"$remote_addr\",\"agent\":\"$http_user_agent\",\"host\":\"$http_host\",\
             \"request\":\"$request\"}'",
            &[
                "--format",
                "escape=json '{\"at\":\"$msec\",\"ip\":\"$remote_addr\",\"agent\":\"$http_user_agent\",\
               \"host\":\"$http_host\",\"request\":\"$request\"}'",
            ],
        ),
        ("combined", &["--field", "website=shop.example"]),
    ] {
        let (app, slowlane) = (Backend::start(), live_slowlane());
        let nginx = Nginx::with(&slowlane.http.to_string(), app.address, |config| {
            let name = format.split(' ').next().unwrap();
            let config = replace(&config, "access.log slowlane;", &format!("access.log {name};"));
            match format.contains(' ') {
                true => {
                    replace(&config, "    access_log", &format!("    log_format {format};\n    access_log"))
                }
                false => config,
            }
        });
        let mut client = nginx.client();
        let hosts: &[&str] = if format == "combined" {
            &["shop.example"]
        } else {
            &["Shop.example:8080", "shop.example.", "free.example"]
        };
        let ask = |number: usize| {
            let host = hosts[number % hosts.len()];
            client
                .request(
                    "GET",
                    &format!("/{number}?a=\"\\"),
                    &[("Host", host), ("User-Agent", "a \"b\" \\ \u{1}x")],
                    "",
                )
                .status
        };
        let statuses: Vec<u16> = (0..24).map(ask).collect();
        let denied = statuses.iter().filter(|&&status| status == 429).count();
        let requests = if format == "combined" { 24 } else { 16 };
        assert_eq!(denied, requests - 5, "{statuses:?}");
        // A TLS handshake on a plain port is in the log, but nginx did not ask about it.
        let mut stranger = std::net::TcpStream::connect(nginx.address).unwrap();
        stranger.write_all(b"\x16\x03\x01\x00\x01\x01\n").unwrap();

        let workdir = Workdir::new();
        let log = eventually("nginx has logged all", || {
            let log = nginx.access_log();
            (log.len() == 25).then_some(log)
        });
        workdir.write("access.log", (log.join("\n") + "\n").as_bytes());
        let (rows, problems) = workdir.rows(&[args, &["access.log"]].concat());
        assert_eq!(rows[0], format!("total,policy,,,,,,24,0,{denied},,,,"), "{format}: {rows:?}");
        assert!(
            rows.last().unwrap().ends_with(&format!(",website=shop.example,{requests},0,{denied},,,,")),
            "{format}: {rows:?}"
        );
        assert_eq!(
            problems,
            [
                "access.log: 1 of 25 lines left out: not a request, so a proxy would not query slowlane for it (line 25)"
            ]
        );
    }
}

#[test]
fn what_the_manual_shows_is_what_its_commands_print() {
    let page = Page::read("doc/book/testing.md");
    let blocks = page.blocks("sh");
    let blocks = blocks.iter().filter_map(|block| block.text.strip_prefix("$ slowlane replay"));
    let mut shown = 0;
    for block in blocks {
        let (command, printed) = block.split_once('\n').unwrap();
        // Quotes are for the shell.
        let words = command.split_whitespace().map(|word| word.trim_matches('\''));
        let args: Vec<&str> = ["replay"].into_iter().chain(words).collect();
        let Ran { code, out, .. } = ran_in(&project(""), &args);
        assert_eq!((code, out.as_str()), (0, printed), "{command}");
        shown += 1;
    }
    assert_eq!(shown, 2);
}
