//! Tests over all formats: lines, their cuts, and their changes.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::access_log::field::Mapping;
use crate::access_log::format::Format;
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
        "nginx combined",
        "::1 - bob [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 89 \"-\" \"curl \\x22\"",
    ),
    (
        "nginx, slowlane's",
        "::1 [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 89 0.001s host=a slowlane=pass id=00",
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
        "nginx combined",
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
        let Ok(values) = self.format.take_apart(line, needed, &mut false) else { return };
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
