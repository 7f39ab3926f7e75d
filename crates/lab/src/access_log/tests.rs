//! Tests over all formats: lines, their cuts, and their changes.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::access_log::choice::Choice;
use crate::access_log::field::Mapping;
use crate::access_log::format::Format;
use crate::access_log::log::Log;
use crate::access_log::plan::LogPlan;
use crate::access_log::record::{LogRecord, VALUE_BYTES_MAX};

/// The names of formats, each with a line of that format.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    ("haproxy httplog", HTTPLOG),
    (
        "haproxy httpslog",
        "192.0.2.7:4711 [06/Feb/2009:12:14:14.655] in~ b/s1 0/0/1/7/8 200 89 - - ---- 1/1/0/0/0 0/0 {a|b} \"GET /a HTTP/1.1\" 0/0000000000000000/0/0/0 shop.example/TLSv1.3/TLS_AES_256_GCM_SHA384",
    ),
    (
        "haproxy httplog clf",
        "::1 - - [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 89 \"\" \"\" 4711 655 \"in~\" \"b\" \"s1\" 0 0 1 7 8 ---- 1 1 0 0 0 0 0 \"\" \"\"",
    ),
    (
        "haproxy, slowlane's",
        "::1:80 [06/Feb/2009:12:14:14.655] in b/s 0/0/0/0/0 200 89 ---- website=a%20b \"GET / HTTP/1.1\" slowlane=pass/0/0/- owner=-",
    ),
    (
        "haproxy, slowlane's without the website",
        "::1:80 [06/Feb/2009:12:14:14.655] in b/s 0/0/0/0/0 200 89 ---- \"GET / HTTP/1.1\" slowlane=pass/0/0/-",
    ),
    (
        "nginx or apache combined",
        "::1 - bob [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 89 \"-\" \"curl \\x22\"",
    ),
    (
        "nginx, slowlane's",
        "::1 [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 89 0.001s host=a slowlane=pass id=00",
    ),
    (
        "ingress-nginx",
        "192.0.2.7 - - [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/2.0\" 200 89 \"-\" \"curl\" 34 0.005 [shop-web-80] [] 10.0.0.4:8080 89 0.005 200 c7e2",
    ),
    ("apache common", "192.0.2.7 - bob [06/Feb/2009:13:14:14 +0100] \"GET /\\\"a\\\" HTTP/1.1\" 200 -"),
    (
        "apache combined",
        "192.0.2.7 ann bob [06/Feb/2009:13:14:14 +0100] \"GET / HTTP/1.1\" 200 89 \"-\" \"a\\\" \\\"b\"",
    ),
    (
        "apache vhost_combined",
        "shop.example:443 192.0.2.7 - - [06/Feb/2009:13:14:14 +0100] \"GET / HTTP/1.1\" 200 89 \"-\" \"curl\"",
    ),
    (
        "traefik common",
        "192.0.2.7 - - [06/Feb/2009:12:14:14 +0000] \"GET /?a=\"b HTTP/1.1\" 200 89 \"-\" \"-\" 17 \"web@file\" \"http://10.0.0.4:80\" 5ms",
    ),
    (
        "envoy text (its last X-Forwarded-For is the client)",
        "[2009-02-06T12:14:14.655Z] \"GET /a HTTP/1.1\" 200 - 0 89 7 5 \"10.0.0.1,192.0.2.7\" \"curl\" \"6cc2\" \"shop.example\" \"10.0.0.4:80\"",
    ),
];

pub(super) const HTTPLOG: &str = "192.0.2.7:4711 [06/Feb/2009:12:14:14.655] in~ b/s1 0/0/1/7/8 200 89 - - ---- 1/1/0/0/0 0/0 {a|b} \"GET /a HTTP/1.1\"";

/// More lines with rarer values: quoted captures, absolute URIs, long and escaped values, and prefixes of syslog.
const RARE: &[(&str, &str)] = &[
    (
        "haproxy httplog",
        "192.0.2.7:4711 [06/Feb/2009:12:14:14.655] in~ b/s1 0/0/1/7/8 200 89 - - ---- 1/1/0/0/0 0/0 \"{a#7Cb|}\" \"{c}\" \"GET https://me@Shop.example:8443/a?b#23 HTTP/2.0\"",
    ),
    (
        "haproxy httplog",
        "<134>1 2009-02-06T12:14:14Z h haproxy 1 - [a@1 b=\"c ]\\\" d\"][e@1] unix:1 [06/Feb/2009:12:14:14.655] in b/<NOSRV> -1/-1/-1/-1/+0 503 0 - - SC-- 1/1/0/0/0 0/0 {} {|} \"<BADREQ>\"",
    ),
    (
        "haproxy, slowlane's",
        "Feb  6 12:14:14 host haproxy[1]: ::ffff:192.0.2.1:80 [06/Feb/2009:12:14:14.655] in b/s 0/0/0/0/0 200 89 ---- website=%5B::1%5D:8080 \"PUT / HTTP/1.1\" slowlane=deny/0/17/- owner=a%2",
    ),
    (
        "nginx or apache combined",
        "unix: - - [06/Feb/2009:13:14:14 +0100] \"GET http://[::1]:80 HTTP/1.1\" 200 3 \"\\x2\" \"\\\\\"",
    ),
];

/// A change of a line at a place.
#[derive(Clone, Copy, Debug)]
enum Change {
    Drop(usize),
    Repeat(usize),
    Replace(u8),
    Insert(u8),
}

impl Change {
    fn apply(self, line: &mut Vec<u8>, at: usize) {
        let end = |count: usize| (at + count).min(line.len());
        match self {
            Change::Drop(count) => drop(line.drain(at..end(count))),
            Change::Repeat(count) => {
                let repeated = line[at..end(count)].to_vec();
                line.splice(at..at, repeated);
            }
            Change::Replace(byte) => drop(line.splice(at..end(1), [byte])),
            Change::Insert(byte) => line.insert(at, byte),
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let byte = || prop_oneof![select(&b"\"{}|[]<>:;-_/\\%#+ .0a\0\xff"[..]), any::<u8>()];
    prop_oneof![
        (1usize..40).prop_map(Change::Drop),
        (1usize..40).prop_map(Change::Repeat),
        byte().prop_map(Change::Replace),
        byte().prop_map(Change::Insert),
    ]
}

/// The place after a sign of the line, where values begin and end.
fn behind_sign(line: &[u8], sign: Index) -> usize {
    let is_sign = |place: &usize| *place == 0 || !line[place - 1].is_ascii_alphanumeric();
    let places: Vec<usize> = (0..=line.len()).filter(is_sign).collect();
    places[sign.index(places.len())]
}

/// A line and the ways to read it.
struct Reader {
    line: &'static [u8],
    format: Format,
    plans: Vec<LogPlan>,
}

impl Reader {
    fn new(&(name, line): &(&str, &'static str)) -> Reader {
        let format = Format::known().into_iter().find(|known| known.name == name).unwrap();
        let plan = |mappings: &[&str]| {
            let mappings: Vec<Mapping> = mappings.iter().map(|text| text.parse().unwrap()).collect();
            LogPlan::new(format.clone(), &mappings, &|_| true)?.with_measures(&[])
        };
        let mappings = [
            &[][..],
            &["website=%[capture.req.hdr(1)]", "owner=%[capture.res.hdr(0)]", "path=%HP"],
            &["path=%HU", "version=%HV", "owner=acme"],
            &["path=$uri", "version=$server_protocol"],
        ];
        let plans = mappings.iter().filter_map(|mappings| plan(mappings).ok()).collect();
        Reader { line: line.as_bytes(), format, plans }
    }

    /// Reads a line, mostly its own with some changes, in every way.
    fn read(&self, line: &[u8]) {
        for needed in [Some(0), Some(self.format.items.len() / 2), None] {
            self.take_apart(line, needed);
        }
        for mut plan in self.plans.iter().cloned() {
            let mut record = LogRecord::default();
            match plan.read(line, false, &mut record) {
                Ok(()) => assert_is_well_formed(&plan, &record),
                Err(error) => assert!(!plan.explain(error).is_empty()),
            }
        }
    }

    /// The values of a line are parts of it, one after another.
    fn take_apart(&self, line: &[u8], needed: Option<usize>) {
        let Ok(values) = self.format.take_apart(line, needed) else { return };
        let mut at = line.as_ptr().addr();
        for value in (0..self.format.items.len()).filter_map(|item| values.of(item)) {
            let begins = value.as_ptr().addr();
            assert!(at <= begins, "values overlap");
            at = begins + value.len();
        }
        assert!(at <= line.as_ptr().addr() + line.len());
    }
}

/// Every value is there, in order, and not too long.
fn assert_is_well_formed(plan: &LogPlan, record: &LogRecord) {
    let mut begins = 0;
    for end in record.ends.into_iter().flatten().map(|end| usize::from(end.get())) {
        assert!(begins < end && end <= begins + VALUE_BYTES_MAX, "{record:?}");
        begins = end;
    }
    assert_eq!(begins, record.bytes.len());
    let request = record.request(&plan.names);
    for field in request.fields() {
        let name = str::from_utf8(field.name).unwrap();
        assert!(plan.has(name), "{name}");
    }
}

static READERS: LazyLock<Vec<Reader>> =
    LazyLock::new(|| EXAMPLES.iter().chain(RARE).map(Reader::new).collect());

#[test]
fn each_known_format_has_an_example() {
    let known: Vec<Format> = Format::known();
    assert_eq!(EXAMPLES.len(), known.len());
    for (Reader { line, format, plans }, known) in READERS.iter().zip(&known) {
        assert_eq!(format, known);
        let read = plans[0].clone().read(line, false, &mut LogRecord::default());
        assert_eq!(read, Ok(()), "{}", format.name);
    }
}

#[test]
fn every_cut_of_a_line_is_read_or_is_a_fault() {
    for reader in READERS.iter() {
        (0..=reader.line.len()).for_each(|end| reader.read(&reader.line[..end]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn a_changed_line_is_read_or_is_a_fault(
        changes in prop::collection::vec((change(), any::<Index>(), any::<bool>()), 0..4),
        cut in prop::option::of(any::<Index>())
    ) {
        for reader in READERS.iter() {
            let mut line = reader.line.to_vec();
            for (change, place, is_at_sign) in &changes {
                let at = if *is_at_sign { behind_sign(&line, *place) } else { place.index(line.len() + 1) };
                change.apply(&mut line, at);
            }
            if let Some(cut) = cut {
                line.truncate(behind_sign(&line, cut));
            }
            reader.read(&line);
        }
    }
}

/// How a proxy writes a value that a client has sent.
fn written(escape: &str, value: &str) -> String {
    let is_plain = |letter: char| (' '..='~').contains(&letter) && !['"', '\\'].contains(&letter);
    let letter = |letter: char| match (escape, letter) {
        ("raw", _) => letter.to_string(),
        ("haproxy", '"' | '{' | '}' | '|' | '#') => format!("#{:02X}", letter as u32),
        ("haproxy", _) => letter.to_string(),
        _ if is_plain(letter) => letter.to_string(),
        ("nginx", _) => letter.to_string().bytes().map(|byte| format!("\\x{byte:02X}")).collect(),
        ("json", '<' | '\t' | '\u{e9}') => format!("\\u{:04x}", letter as u32),
        (_, '\t') => "\\t".to_owned(),
        (_, '"' | '\\') => format!("\\{letter}"),
        _ => letter.to_string(),
    };
    value.chars().map(letter).collect()
}

/// The kinds that are found by themselves: the escape, and a line with places for what a client sends: `@user`, which is
/// raw in Traefik, `@path`, `@referer` and `@agent`.
const KINDS: &[(&str, &str, &str)] = &[
    (
        "haproxy httplog",
        "haproxy",
        "192.0.2.7:4711 [06/Feb/2009:12:14:14.000] in~ b/s1 0/0/1/7/8 200 89 - - ---- 1/1/0/0/0 0/0 {@referer|@agent} \"GET @path HTTP/1.1\"",
    ),
    (
        "haproxy httpslog",
        "haproxy",
        "192.0.2.7:4711 [06/Feb/2009:12:14:14.000] in~ b/s1 0/0/1/7/8 200 89 - - ---- 1/1/0/0/0 0/0 {@referer|@agent} \"GET @path HTTP/1.1\" 0/0000000000000000/0/0/0 -/TLSv1.3/TLS_AES_256_GCM_SHA384",
    ),
    (
        "haproxy httplog clf",
        "haproxy",
        "192.0.2.7 - - [06/Feb/2009:12:14:14 +0000] \"GET @path HTTP/1.1\" 200 89 \"\" \"\" 4711 000 \"in\" \"b\" \"s1\" 0 0 1 7 8 ---- 1 1 0 0 0 0 0 \"\" \"\" \"@referer\" \"\"",
    ),
    (
        "json",
        "raw",
        "{\"time\":\"06/Feb/2009:12:14:14.000\",\"ua\":\"@agent\",\"client_ip\":\"192.0.2.7\",\"method\":\"GET\",\"uri\":\"@path\",\"bytes\":-}",
    ),
    (
        "nginx or apache combined",
        "nginx",
        "192.0.2.7 - @user [06/Feb/2009:12:14:14 +0000] \"GET @path HTTP/1.1\" 200 89 \"@referer\" \"@agent\"",
    ),
    (
        "nginx or apache combined",
        "apache",
        "192.0.2.7 - @user [06/Feb/2009:12:14:14 +0000] \"GET @path HTTP/1.1\" 200 89 \"@referer\" \"@agent\"",
    ),
    (
        "apache combined",
        "apache",
        "192.0.2.7 x @user [06/Feb/2009:12:14:14 +0000] \"GET @path HTTP/1.1\" 200 89 \"@referer\" \"@agent\"",
    ),
    (
        "apache vhost_combined",
        "apache",
        "shop.example:443 192.0.2.7 - @user [06/Feb/2009:12:14:14 +0000] \"GET @path HTTP/1.1\" 200 89 \"@referer\" \"@agent\"",
    ),
    (
        "apache common",
        "apache",
        "192.0.2.7 - @user [06/Feb/2009:12:14:14 +0000] \"GET @path HTTP/1.1\" 200 -",
    ),
    (
        "ingress-nginx",
        "nginx",
        "192.0.2.7 - @user [06/Feb/2009:12:14:14 +0000] \"GET @path HTTP/2.0\" 200 89 \"@referer\" \"@agent\" 34 0.000 [shop-web-80] [] 10.0.0.4:8080, 10.0.0.5:8080 0, 89 0.000, 0.005 502, 200 c7e2",
    ),
    (
        "json",
        "json",
        "{\"time_iso8601\":\"2009-02-06T13:14:14+01:00\",\"http_user_agent\":\"@agent\",\"remote_user\":\"@user\",\"remote_addr\":\"192.0.2.7\",\"request\":\"GET @path HTTP/1.1\"}",
    ),
    (
        "caddy json",
        "json",
        "{\"level\":\"info\",\"ts\":1233922454.5,\"logger\":\"http.log.access\",\"msg\":\"handled request\",\"request\":{\"remote_ip\":\"192.0.2.7\",\"client_ip\":\"192.0.2.7\",\"method\":\"GET\",\"host\":\"shop.example\",\"uri\":\"@path\",\"headers\":{\"User-Agent\":[\"@agent\"],\"@referer\":[\"x\"]}},\"user_id\":\"@user\",\"duration\":0.5,\"size\":3,\"status\":200}",
    ),
    (
        "traefik common",
        "apache",
        "192.0.2.7 - @raw [06/Feb/2009:12:14:14 +0000] \"GET @path HTTP/1.1\" 200 89 \"@referer\" \"@agent\" 17 \"web@file\" \"http://10.0.0.4:80\" 5ms",
    ),
    (
        "traefik json",
        "json",
        "{\"ClientHost\":\"192.0.2.7\",\"ClientUsername\":\"@user\",\"Duration\":5000000,\"RequestMethod\":\"GET\",\"RequestPath\":\"@path\",\"StartUTC\":\"2009-02-06T12:14:14.0Z\",\"request_User-Agent\":\"@agent\",\"time\":\"2009-02-06T12:14:14Z\"}",
    ),
    (
        "envoy text (its last X-Forwarded-For is the client)",
        "raw",
        "[2009-02-06T12:14:14.000Z] \"GET @path HTTP/1.1\" 200 - 0 89 7 5 \"@referer,192.0.2.7\" \"@agent\" \"6cc2\" \"shop.example\" \"10.0.0.4:80\"",
    ),
    (
        "envoy json",
        "json",
        "{\"authority\":\"@user\",\"downstream_remote_address\":\"192.0.2.7:4711\",\"duration\":7,\"method\":\"GET\",\"path\":\"@path\",\"start_time\":\"2009-02-06T12:14:14.000Z\",\"user_agent\":\"@agent\",\"x_forwarded_for\":\"@referer\"}",
    ),
];

/// What is around a line, and how it is told.
const WRAPS: &[(&str, &str)] = &[
    ("@line", ""),
    ("<134>@line", ", below syslog"),
    ("<6>2009-02-06T12:14:14.000000+00:00 @line", ", below syslog, below a date"),
    ("2009-02-06T12:14:14.000000+00:00 @line", ", below a date"),
    ("Feb  6 12:14:14 host haproxy[1]: @line", ", below syslog"),
    ("<134>Feb  6 12:14:14 haproxy[1]: @line", ", below syslog"),
    ("<134>1 2009-02-06T12:14:14Z host haproxy 1 - - @line", ", below syslog"),
    ("<134>1 - h haproxy 1 - [a@1 b=\"c ]\\\" d: \"][e@1] \u{feff}@line", ", below syslog"),
    ("2009-02-06T12:14:14.000000000Z stdout F @line", ", below a date, below CRI"),
    ("{\"log\":\"@json\\n\",\"stream\":\"stdout\",\"time\":\"2009-02-06T12:14:14.0Z\"}", ", below docker"),
    ("[pod/web-0/nginx] @line", ", below kubectl"),
    ("[pod/web-0/nginx] 2009-02-06T12:14:14.000000000Z @line", ", below kubectl, below a date"),
    ("ticket=5-2001.7 bytes=3 seconds=\"0.1, 0.2\" @line", ", below a ticket"),
    ("<190>Feb  6 12:14:14 nginx: ticket=- seconds=- @line", ", below syslog, below a ticket"),
    ("{\"PRIORITY\":\"6\",\"MESSAGE\":\"@json\",\"_PID\":\"1\"}", ", below the journal"),
    ("__CURSOR=s=1;i=2\nMESSAGE=@line\nMESSAGE_ID=1\n_PID=1\n", ", below the journal"),
];

/// A forged address would be 192.0.2.66, and a forged time in 2000.
const FORGED: &[&str] = &[
    "\"",
    "\\",
    "\\\"",
    "x\" \"y",
    "\t192.0.2.66\t",
    "\u{e9}<|{}#22",
    "192.0.2.66",
    "192.0.2.66\" \"x",
    "x\" 200 3 \"-\" \"y\" 1 \"r\" \"u\" 9ms",
    "x [01/Jan/2000:00:00:00 +0000]",
    "x [01/Jan/2000:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"",
    ": 192.0.2.66 - - [01/Jan/2000:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"",
    ": 192.0.2.66:1 [01/Jan/2000:00:00:00.000] in b/s 0/0/0/0/0 200 1 - - ---- 1/1/0/0/0 0/0 \"GET / HTTP/1.1\"",
    "x\",\"client_ip\":\"192.0.2.66\",\"remote_addr\":\"192.0.2.66\",\"time\":\"2000-01-01T00:00:00Z\",\"y\":\"",
    "x\",\"client_ip\":\"192.0.2.66\",\"time\":\"2000-01-01T00:00:00Z\",\"y\":\"\\",
    "x\",\"request\":{\"remote_ip\":\"192.0.2.66\"},\"ts\":946684800,\"y\":\"",
    "\\n\",\"stream\":\"stderr\",\"log\":\"192.0.2.66 - - [01/Jan/2000:00:00:00 +0000] \\\"GET / HTTP/1.1\\\" 200 1\\n",
    "192.0.2.66\" \"a\" \"b\" \"c\" \"d\"",
];

fn filled(kind: &(&str, &str, &str), wrap: &str, value: &str) -> String {
    let &(_, escape, line) = kind;
    let line = line.replace("@raw", value);
    let line = ["@user", "@path", "@referer", "@agent"].iter().fold(line, |line, place| {
        line.replace(
            place,
            &if *place == "@path" { format!("/{}", written(escape, value)) } else { written(escape, value) },
        )
    });
    wrap.replace("@line", &line).replace("@json", &written("json", &line)) + "\n"
}

/// A line that a client has forged is read right, or is a fault.
#[test]
fn nothing_that_a_client_writes_moves_the_address_or_the_time() {
    for kind in KINDS {
        for (wrap, below) in WRAPS {
            let honest = filled(kind, wrap, "x").repeat(20);
            let forged: Vec<String> = FORGED.iter().map(|value| filled(kind, wrap, value)).collect();
            let input: Box<dyn std::io::Read> = Box::new(std::io::Cursor::new(honest + &forged.concat()));
            let mut log =
                Log::open("log".into(), input, &Choice::Any, &[], &|field| field == "source", None, 0)
                    .unwrap();
            let (mut record, mut count) = (LogRecord::default(), 0);
            while log.next(&mut record) {
                count += 1;
                assert_eq!(
                    record.source,
                    Some("192.0.2.7".parse().unwrap()),
                    "{kind:?} {wrap} {:?}",
                    log.outcome()
                );
                assert_eq!(
                    record.at_ns / 1_000_000_000,
                    1_233_922_454,
                    "{kind:?} {wrap}: {:?}",
                    log.outcome()
                );
            }
            let outcome = log.outcome();
            assert_eq!(outcome.format, Some(format!("{}{below}", kind.0)), "{wrap}");
            let faulty: u64 = outcome.errors.iter().map(|faulty| faulty.count).sum();
            assert_eq!(count + faulty, 20 + FORGED.len() as u64, "{kind:?} {wrap} {outcome:?}");
            // Where a proxy escapes what clients write, they cannot even hide a line.
            let is_raw = kind.1 == "raw" || kind.2.contains("@raw");
            assert_eq!(is_raw, faulty > 0, "{kind:?} {wrap} {outcome:?}");
        }
    }
}
