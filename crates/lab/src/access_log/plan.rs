//! The plan for a log: which values of its lines become the fields of a request.

use std::net::IpAddr;
use std::num::{NonZeroU16, NonZeroUsize};

use memchr::memchr;
use thiserror::Error;

use crate::access_log::field::{LogPart, Mapping, Origin, field};
use crate::access_log::format::LogShape;
use crate::access_log::line::{ParseError, Values, Wanted};
use crate::access_log::measures::{Measure, Measures};
use crate::access_log::record::{FIELDS_MAX, LogRecord, VALUE_BYTES_MAX};
use crate::access_log::times::Times;
use crate::access_log::wraps::Wraps;
use crate::access_log::{Dialect, Format, Item, LINE_BYTES_MAX};
use slowlane_core::base::peer;

/// The reason why a format yields no requests.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error("the format has no time: expected {0}")]
    NoTime(&'static str),
    #[error("{option} {field}: {noun} is not in the format, which has {has}")]
    NotInFormat { option: &'static str, field: String, noun: String, has: String },
    #[error("more than {FIELDS_MAX} fields: use fewer --field options")]
    TooManyFields,
    #[error("--field {0}: the policy does not use this field: no map, key or share names it")]
    UselessField(String),
    #[error("--measure: the policy does not use measures: no SLO has a unit, like unit=seconds")]
    UselessMeasure,
}

impl PlanError {
    pub(super) fn not_in_format(option: &'static str, mapping: &Mapping, format: &Format) -> PlanError {
        let has: Vec<&str> = format.items.iter().map(|item| item.noun.as_str()).collect();
        let Mapping { field, from, .. } = mapping.clone();
        PlanError::NotInFormat { option, field, noun: from, has: has.join(" ") }
    }
}

/// The plan by which lines of one format are converted to requests.
#[derive(Clone, Debug)]
pub(crate) struct LogPlan {
    pub(super) format: Format,
    pub(crate) times: Times,
    source: Option<usize>,
    /// The item that the operator has named for the source and, if the item is a list, the number, from the right, of
    /// the address to use.
    mapped_source: Option<(Origin, Option<NonZeroUsize>)>,
    /// Whether the policy uses the source.
    needs_source: bool,
    method: Option<Origin>,
    /// The names of the fields, except the source, and the origins of each field in order of preference.
    pub(crate) names: Vec<String>,
    origins: Vec<Vec<Origin>>,
    measures: Measures,
    /// The number of items that a line must have to be a request. Any items for measures after these are optional.
    needed: usize,
    /// The wraps of the log's lines.
    pub(super) wraps: Wraps,
}

impl LogPlan {
    /// `wanted` returns whether a policy uses a field.
    pub(super) fn new(
        format: Format,
        mappings: &[Mapping],
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<LogPlan, PlanError> {
        let mut items = Wanted::new(&format);
        let mapped = |name: &str| mappings.iter().find(|mapping| mapping.field == name);
        let is_mapped = |name: &str| mapped(name).is_some();
        let time = mapped("time").map(|mapping| &*mapping.from);
        let times = Times::new(time, &mut items).ok_or(PlanError::NoTime(match format.dialect {
            Dialect::Haproxy => "%tr, %t, %Ts or a similar item",
            Dialect::Nginx => "$msec, $time_iso8601 or $time_local",
            Dialect::Json => "--field time=.KEY",
        }))?;
        let methods = ["%HM", "%[method]", "$request_method"];
        let method = mapped("method")
            .and_then(|mapping| Origin::mapped(mapping, &mut items))
            .or_else(|| methods.iter().find_map(|noun| Origin::new(noun, LogPart::Whole, &mut items)))
            .or_else(|| Origin::of_request_line(LogPart::Method, &mut items));
        let source = ["%ci", "%[src]", "$remote_addr"].iter().find_map(|noun| items.want(noun));
        let source = source.filter(|_| !is_mapped("source")).map(|(item, _)| item);
        let (mut fields, mut mapped_source) = (Vec::<(String, Vec<Origin>)>::new(), None);
        let mut add = |name: &str, origin| match fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, origins)) => origins.push(origin),
            None => fields.push((name.to_owned(), vec![origin])),
        };
        for mapping in mappings {
            let missing = || PlanError::not_in_format("--field", mapping, &format);
            let origin = Origin::mapped(mapping, &mut items).ok_or_else(missing)?;
            match mapping.field.as_str() {
                "source" => mapped_source = Some((origin, mapping.forwarded)),
                "time" => {}
                field => add(field, origin),
            }
        }
        // Envoy writes the address of the connection's other end only at the end of the list.
        if source.is_none() && !is_mapped("source") {
            let peer = Origin::new("$forwarded_for_peer", LogPart::Whole, &mut items);
            mapped_source = peer.map(|origin| (origin, NonZeroUsize::new(1)));
        }
        // Adds items named after fields.
        let is_found = |name: &str| wanted(name) && !is_mapped(name);
        for item in &format.items {
            let name = field(item).filter(|&name| is_found(name) && name != "source");
            if let Some(name) = name
                && let Some(origin) = Origin::new(&item.noun, LogPart::Whole, &mut items)
            {
                add(name, origin);
            }
        }
        let of_request_line = [
            ("method", LogPart::Method),
            ("path", LogPart::Path),
            ("page", LogPart::Path),
            ("website", LogPart::Host),
        ];
        for (name, part) in of_request_line {
            if is_found(name)
                && let Some(origin) = Origin::of_request_line(part, &mut items)
            {
                add(name, origin);
            }
        }
        let (names, origins): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        if names.len() > FIELDS_MAX {
            return Err(PlanError::TooManyFields);
        }
        Ok(LogPlan {
            needed: items.reach,
            times,
            source,
            mapped_source,
            needs_source: wanted("source"),
            method,
            names,
            origins,
            measures: Measures::default(),
            wraps: Wraps::default(),
            format,
        })
    }

    /// Adds the measures of work that the format has to the plan.
    pub(super) fn with_measures(mut self, given: &[Measure]) -> Result<LogPlan, PlanError> {
        self.measures = Measures::new(given, &mut Wanted::new(&self.format))?;
        Ok(self)
    }

    /// Whether the log's lines carry a field.
    pub(crate) fn has(&self, field: &str) -> bool {
        field == "source" && (self.source.is_some() || self.mapped_source.is_some())
            || self.names.iter().any(|name| name == field)
    }

    /// Whether the log's lines contain the website only if the request line has an absolute URI.
    pub(crate) fn has_website_by_chance(&self) -> bool {
        let place = self.names.iter().position(|name| name == "website");
        let is_host = |from: &Origin| matches!(from, Origin::Item { part: LogPart::Host, .. });
        place.is_some_and(|place| self.origins[place].iter().all(is_host))
    }

    /// Reads a line into a record. If `is_whole`, the line must fit the format to its end.
    pub(super) fn read(
        &mut self,
        line: &[u8],
        is_whole: bool,
        record: &mut LogRecord,
    ) -> Result<(), ParseError> {
        let needed = (!is_whole).then_some(self.needed);
        let line = self.wraps.strip(line)?;
        let values = self
            .format
            .take_apart(&line, needed)
            .map_err(|error| if memchr(0, &line).is_some() { ParseError::Binary } else { error })?;
        if self.method.as_ref().is_some_and(|method| !method.text(&values).is_some_and(is_token)) {
            return Err(ParseError::NoRequest);
        }
        record.clear();
        (record.at_ns, record.took_ns) = self.times.read(&values).ok_or(ParseError::NoTime)?;
        record.ending = self.measures.read(&values);
        record.source = self.source(&values, &mut record.bytes)?;
        record.bytes.clear();
        for (end, origins) in record.ends.iter_mut().zip(&self.origins) {
            let begins = record.bytes.len();
            if origins.iter().any(|from| from.append(&values, &mut record.bytes)) {
                record.bytes.truncate(begins + VALUE_BYTES_MAX);
                *end = NonZeroU16::new(record.bytes.len() as u16);
            }
        }
        Ok(())
    }

    /// The source of a request. `buffer` must be empty; the decoded value is written to it.
    fn source(&self, values: &Values<'_>, buffer: &mut Vec<u8>) -> Result<Option<IpAddr>, ParseError> {
        let source = match (self.source, &self.mapped_source) {
            (Some(item), _) => values.of(item).map_or(Ok(None), address)?,
            (_, Some((origin, forwarded))) if origin.append(values, buffer) => {
                Some(client(buffer, *forwarded)?)
            }
            (_, Some(_)) => None,
            (None, None) => return Ok(None),
        };
        if self.needs_source && source.is_none() { Err(ParseError::NoClient) } else { Ok(source) }
    }

    /// The message for a fault.
    pub(super) fn explain(&self, error: ParseError) -> String {
        let Format { before, items, .. } = &self.format;
        let mismatch = |why: String| format!("does not fit the format: {why}");
        match error {
            ParseError::Before(item) => {
                let literal = item.checked_sub(1).map_or(before, |item| &items[item].after);
                mismatch(format!("no {literal:?} before {}", items[item].noun))
            }
            ParseError::After(item) => match &items[item] {
                Item { noun, shape: LogShape::BeforeTime, .. } => {
                    mismatch(format!("expected a single time after {noun}"))
                }
                Item { noun, after, .. } => mismatch(format!("no {after:?} after {noun}")),
            },
            ParseError::Address(item) => mismatch(format!("{} is not an address", items[item].noun)),
            ParseError::Continues => mismatch("the line continues after the last item".to_owned()),
            ParseError::Quotes => {
                mismatch("a client has put quotes in the line, so no value is reliable".to_owned())
            }
            ParseError::NoJson => mismatch("not a complete JSON object".to_owned()),
            ParseError::Twice(item) => mismatch(format!("{} occurs twice", items[item].noun)),
            ParseError::NoTime => format!("{} is not a time", self.times.noun),
            ParseError::NoAddress => "the source is not an address".to_owned(),
            ParseError::List => {
                "the client's item is a list of addresses: --forwarded 1 takes the last address, and --forwarded 2 \
                 the second to last"
                    .to_owned()
            }
            ParseError::ShortList => "the list has too few addresses for --forwarded".to_owned(),
            ParseError::NoClient => "the line has no client address".to_owned(),
            ParseError::NoRequest => "not a request, so a proxy would not query slowlane for it".to_owned(),
            ParseError::TooLong => format!("longer than {LINE_BYTES_MAX} bytes"),
            ParseError::Binary => "binary data".to_owned(),
            ParseError::NoWrap(name) => format!("not in the form of {name}"),
            ParseError::NoProxyLine => "not a line from a proxy".to_owned(),
        }
    }
}

/// Whether this is a method (RFC 9110, section 5.6.2). `<BADREQ>` is not a method, nor are the TLS handshakes that
/// nginx logs on a port without TLS.
fn is_token(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

/// The address of the client. None if the request came over a Unix socket.
fn address(text: &[u8]) -> Result<Option<IpAddr>, ParseError> {
    if text == b"-" || text.starts_with(b"unix") {
        return Ok(None);
    }
    peer(text).map(Some).ok_or(ParseError::NoAddress)
}

/// The client in an item that the operator has named: an address, or the address to use in a list, numbered from the
/// right.
fn client(text: &[u8], forwarded: Option<NonZeroUsize>) -> Result<IpAddr, ParseError> {
    let Some(number) = forwarded else {
        let fault = if text.contains(&b',') { ParseError::List } else { ParseError::NoAddress };
        return peer(text).ok_or(fault);
    };
    let counted = text.rsplit(|&byte| byte == b',').nth(number.get() - 1).ok_or(ParseError::ShortList)?;
    peer(counted).ok_or(ParseError::NoAddress)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    const FIELDS: &[&str] = &["source", "website", "owner", "method", "cost", "api_key"];

    fn plan(format: &str, mappings: &[&str]) -> Result<LogPlan, PlanError> {
        let known = Format::known().into_iter().find(|known| known.name == format);
        let format = known.unwrap_or_else(|| Format::parse(format).unwrap());
        let mappings: Vec<Mapping> = mappings.iter().map(|text| text.parse().unwrap()).collect();
        LogPlan::new(format, &mappings, &|name| FIELDS.contains(&name))
    }

    fn read(plan: &mut LogPlan, line: &str) -> Result<LogRecord, ParseError> {
        let mut record = LogRecord::default();
        plan.read(line.as_bytes(), false, &mut record).map(|()| record)
    }

    /// The moment in ms, and `field=value` of each field.
    fn reported(format: &str, mappings: &[&str], line: &str) -> (u64, String) {
        let mut plan = plan(format, mappings).unwrap();
        let record =
            read(&mut plan, line).unwrap_or_else(|error| panic!("{line:?}: {}", plan.explain(error)));
        let request = record.request(&plan.names);
        let mut reported: Vec<String> = request
            .fields()
            .map(|field| {
                let name = String::from_utf8_lossy(field.name);
                match field.value {
                    slowlane_core::base::Value::Text(text) => {
                        format!("{name}={}", String::from_utf8_lossy(text))
                    }
                    slowlane_core::base::Value::Address(address) => format!("{name}={address}"),
                    slowlane_core::base::Value::Number(number) => format!("{name}={number}"),
                    other => format!("{name}={other:?}"),
                }
            })
            .collect();
        reported.sort();
        (record.at_ns / 1_000_000, reported.join(" "))
    }

    const AT_MS: u64 = 1_233_922_454_655;

    #[test]
    fn httplog_has_source_and_method_and_sometimes_the_website() {
        let line = |captures: &str, request: &str| {
            format!(
                "192.0.2.7:4711 [06/Feb/2009:12:14:14.655] in~ b/s1 0/0/1/7/8 200 89 - - ---- 1/1/0/0/0 0/0 {captures}\"{request}\""
            )
        };
        let reported_by = |mappings: &[&str], captures: &str, request: &str| {
            let (at_ms, reported) = reported("haproxy httplog", mappings, &line(captures, request));
            assert_eq!(at_ms, AT_MS);
            reported
        };
        assert_eq!(reported_by(&[], "", "GET /a HTTP/1.1"), "method=GET source=192.0.2.7");
        assert_eq!(
            reported_by(&[], "", "GET https://Shop.Example:8443/a HTTP/2.0"),
            "method=GET source=192.0.2.7 website=Shop.Example:8443"
        );
        let host = ["website=%[capture.req.hdr(0)]", "owner=%[capture.req.hdr(1)]", "api_key=%HP"];
        assert_eq!(
            reported_by(&host, "{Shop.Example:80|a#7Cb} {x} ", "PUT /a?b HTTP/1.1"),
            "api_key=/a method=PUT owner=a|b source=192.0.2.7 website=Shop.Example:80"
        );
        assert_eq!(reported_by(&host, "{|} ", "PUT /a HTTP/1.1"), "api_key=/a method=PUT source=192.0.2.7");
        assert_eq!(
            reported_by(&["website=shop.example"], "", "GET / HTTP/1.1"),
            "method=GET source=192.0.2.7 website=shop.example"
        );
    }

    #[test]
    fn items_named_after_fields_are_found() {
        let haproxy = "%[src] %Ts.%ms %HM %[req.hdr(Host),field(1,:),lower] %[var(txn.owner)] %(api_key)[req.hdr(x-key)] %[var(txn.slowlane.slo)]";
        let (at_ms, reported_fields) =
            reported(haproxy, &[], "2001:db8::1 1233922454.655 GET Shop.example:80 acme k 17");
        assert_eq!(
            (at_ms, reported_fields.as_str()),
            (AT_MS, "api_key=k method=GET owner=acme source=2001:db8::1 website=Shop.example:80")
        );
        let nginx = "$remote_addr $msec $request_time $http_host $slowlane_owner $api_key \"$request\"";
        let (at_ms, reported_fields) = reported(
            nginx,
            &[],
            "::ffff:192.0.2.1 1233922455.655 1.000 Shop.Example.:80 a\\x22b - \"GET / HTTP/1.1\"",
        );
        assert_eq!(
            (at_ms, reported_fields.as_str()),
            (AT_MS, "method=GET owner=a\"b source=192.0.2.1 website=Shop.Example.:80")
        );
    }

    #[test]
    fn nginx_combined_has_no_website() {
        let line = "192.0.2.7 - - [06/Feb/2009:13:14:14 +0100] \"GET /\\x22 HTTP/1.1\" 200 3 \"-\" \"x\"";
        assert_eq!(
            reported("nginx or apache combined", &[], line),
            (1_233_922_454_000, "method=GET source=192.0.2.7".into())
        );
        assert!(!plan("nginx or apache combined", &[]).unwrap().has("owner"));
        assert!(plan("nginx or apache combined", &[]).unwrap().has_website_by_chance());
    }

    #[test]
    fn a_line_that_is_no_request_has_a_reason() {
        let mut plan = plan("nginx or apache combined", &[]).unwrap();
        for (line, why) in [
            (
                "192.0.2.7 - - [06/Feb/2009:13:14:14 +0100] \"\\x16\\x03\\x01\" 400 3 \"-\" \"x\"",
                "not a request, so a proxy would not query slowlane for it",
            ),
            (
                "192.0.2.7 - - [06/Feb/2009:13:14:14 +0100] \"\" 400 3 \"-\" \"x\"",
                "not a request, so a proxy would not query slowlane for it",
            ),
            (
                "192.0.2.7 - - [06/Fab/2009:13:14:14 +0100] \"GET / HTTP/1.1\" 200",
                "$time_local is not a time",
            ),
            (
                "host.example - - [06/Feb/2009:13:14:14 +0100] \"GET / HTTP/1.1\" 200",
                "does not fit the format: $remote_addr is not an address",
            ),
            (
                "192.0.2.7 - - [06/Feb/2009:13:14",
                "does not fit the format: expected a single time after $remote_user",
            ),
            ("192.0.2.7 x", "does not fit the format: no \" - \" before $remote_user"),
            ("\0\0\0", "binary data"),
        ] {
            let error = read(&mut plan, line).unwrap_err();
            assert_eq!(plan.explain(error), why, "{line:?}");
        }
        let mut httplog = super::tests::plan("haproxy httplog", &[]).unwrap();
        let bad = "192.0.2.7:1 [06/Feb/2009:12:14:14.655] in in/<NOSRV> -1/-1/-1/-1/0 400 0 - - PR-- 1/1/0/0/0 0/0 \"<BADREQ>\"";
        assert_eq!(read(&mut httplog, bad).unwrap_err(), ParseError::NoRequest);
    }

    #[test]
    fn missing_items_and_times_are_named() {
        assert_eq!(
            plan("$remote_addr [$msec]", &["owner=$http_x_owner"]).unwrap_err().to_string(),
            "--field owner: $http_x_owner is not in the format, which has $remote_addr $msec"
        );
        assert_eq!(
            plan("%ci %r", &[]).unwrap_err().to_string(),
            "the format has no time: expected %tr, %t, %Ts or a similar item"
        );
    }

    #[test]
    fn a_list_of_addresses_needs_the_word_of_the_operator() {
        let format = "$remote_addr [$msec] \"$http_x_forwarded_for\"";
        let line = |list: &str| format!("10.0.0.1 [1233922454.655] \"{list}\"");
        let source = |forwarded, list: &str| {
            let mut mapping: Mapping = "source=$http_x_forwarded_for".parse().unwrap();
            mapping.forwarded = NonZeroUsize::new(forwarded);
            let mut plan = LogPlan::new(Format::parse(format).unwrap(), &[mapping], &|_| true).unwrap();
            assert!(plan.has("source"));
            read(&mut plan, &line(list)).map(|record| record.source.map(|address| address.to_string()))
        };
        let is = |address: &str| Ok(Some(address.to_owned()));
        assert_eq!(source(0, "192.0.2.7"), is("192.0.2.7"));
        assert_eq!(source(0, "[2001:db8::1]:443"), is("2001:db8::1"));
        assert_eq!(source(0, "192.0.2.7, 203.0.113.9"), Err(ParseError::List));
        assert_eq!(source(1, "198.51.100.1, 192.0.2.7"), is("192.0.2.7"));
        assert_eq!(source(2, "198.51.100.1, 192.0.2.7, 203.0.113.9"), is("192.0.2.7"));
        assert_eq!(source(2, "192.0.2.7"), Err(ParseError::ShortList));
        assert_eq!(source(1, "192.0.2.7, unknown"), Err(ParseError::NoAddress));
        assert_eq!(source(0, "-"), Err(ParseError::NoClient));
    }

    proptest! {
        /// Whatever a client writes to the left of it, the address that counts stays.
        #[test]
        fn the_left_of_a_list_changes_nothing(left in "[ -~&&[^\"\\\\]]{0,40}", last in any::<[u8; 4]>()) {
            let last = IpAddr::from(last);
            let list = format!("{left}, {last}, 203.0.113.9");
            prop_assert_eq!(client(list.as_bytes(), NonZeroUsize::new(2)), Ok(last));
        }

        #[test]
        fn any_bytes_are_a_request_or_a_fault(line in prop::collection::vec(any::<u8>(), 0..200)) {
            for format in Format::known() {
                let mut plan = LogPlan::new(format, &[], &|_| true).unwrap();
                let _ = plan.read(&line, false, &mut LogRecord::default());
            }
        }

        #[test]
        fn a_line_of_nginx_is_read_back(source in any::<[u8; 4]>(), second in 0u32..86_400, host in "[a-z0-9.-]{1,30}") {
            let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
            let line = format!("{} [06/Feb/2009:{h:02}:{m:02}:{s:02} +0000] \"GET / HTTP/1.1\" 200 3 0.000s host={host} slowlane=- id=x",
                Ipv4Addr::from(source));
            let (at_ms, fields) = reported("nginx, slowlane's", &[], &line);
            prop_assert_eq!(at_ms, 1_233_878_400_000 + u64::from(second) * 1_000);
            let website = if host == "-" { String::new() } else { format!(" website={host}") };
            prop_assert_eq!(fields, format!("method=GET source={}{website}", Ipv4Addr::from(source)));
        }
    }
}
