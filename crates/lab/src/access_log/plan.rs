//! The plan for a log: which values of its lines are which fields of a request.

use std::net::{IpAddr, Ipv4Addr};

use memchr::memchr;
use thiserror::Error;

use crate::access_log::date::Calendar;
use crate::access_log::escape::Escape;
use crate::access_log::format::{Dialect, Format};
use crate::access_log::format_error::FormatError;
use crate::access_log::line::{Misfit, Steps};
use crate::access_log::lines::LINE_BYTES_MAX;
use crate::access_log::mapping::{Given, Mapping};
use crate::access_log::origin::{Cut, Origin, Part};
use crate::access_log::piece::Item;
use crate::access_log::record::{FIELDS_MAX, Record, VALUE_BYTES_MAX};
use crate::access_log::slots::{SLOTS_MAX, SlotList, Slots};
use crate::access_log::time_plan::TimePlan;

/// Why a format yields no requests.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error("--field {field}: {noun} is not in the format; it has {has}")]
    NotInFormat { field: String, noun: String, has: String },
    #[error("more than {FIELDS_MAX} fields: expected fewer --field options")]
    TooManyFields,
    #[error("--field {0}: not used by the policy: no map, key or share names it")]
    UselessField(String),
}

/// Why a line is not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Misfit(Misfit),
    NoTime,
    NoAddress,
    /// The client sent no valid request, so a proxy would not ask about it.
    NoRequest,
    TooLong,
    Binary,
}

/// The way from lines of a format to requests.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) format: Format,
    steps: Steps,
    pub(super) time: TimePlan,
    source: Option<usize>,
    method: Option<(usize, OfRequest)>,
    /// The names of the fields, without the source, and the origins of each in order of preference.
    pub(super) names: Vec<String>,
    origins: Vec<Vec<Origin>>,
}

/// What a slot holds: the whole request line, or only the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfRequest {
    Line,
    Method,
}

/// Items that hold the source.
const SOURCES: &[&str] = &["%ci", "%[src]", "$remote_addr"];

impl Plan {
    /// `wanted` tells whether a policy uses a field.
    pub(super) fn new(
        format: Format,
        mappings: &[Mapping],
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Plan, PlanError> {
        let mut slots = SlotList::default();
        let find =
            |nouns: &[&str]| nouns.iter().find_map(|noun| format.items().find(|item| item.noun == *noun));
        let time = TimePlan::of(&format, &mut slots).ok_or(FormatError::NoTime(match format.dialect() {
            Dialect::Haproxy => "%tr, %t, %Ts or a similar item",
            Dialect::Nginx => "$msec, $time_iso8601 or $time_local",
        }))?;
        let method = [
            ("%r", OfRequest::Line),
            ("$request", OfRequest::Line),
            ("%HM", OfRequest::Method),
            ("%[method]", OfRequest::Method),
            ("$request_method", OfRequest::Method),
        ]
        .into_iter()
        .find_map(|(noun, of)| Some((slots.of(find(&[noun])?), of)));
        let mut plan = Plan {
            steps: Steps::new(&format, |_| None),
            time,
            source: find(SOURCES).map(|item| slots.of(item)),
            method,
            names: Vec::new(),
            origins: Vec::new(),
            format,
        };
        for Mapping { field, from } in mappings {
            let from = plan.given(field, from, &mut slots)?;
            if field == "source" {
                plan.source = None;
            }
            plan.add(field, from);
        }
        plan.find_fields(&mut slots, wanted);
        if plan.names.len() > FIELDS_MAX || slots.len() > SLOTS_MAX {
            return Err(PlanError::TooManyFields);
        }
        plan.steps = Steps::new(&plan.format, |item| slots.given(item)).only_wanted();
        Ok(plan)
    }

    /// Adds items named after fields, except for fields that were mapped explicitly.
    fn find_fields(&mut self, slots: &mut SlotList, wanted: &dyn Fn(&str) -> bool) {
        let given = self.names.clone();
        let items: Vec<Item> = self.format.items().cloned().collect();
        for item in &items {
            let Some((name, cut)) = field(item) else { continue };
            if wanted(&name) && !given.contains(&name) && name != "source" {
                let from = Origin::Text { slot: slots.of(item), escape: item.escape, cut };
                self.add(&name, from);
            }
        }
        if let Some((slot, OfRequest::Line)) = self.method {
            let escape = match self.format.dialect() {
                Dialect::Haproxy => Escape::Hash,
                Dialect::Nginx => self.escape_of("$request"),
            };
            let cut = self.cut_of_host();
            for (name, part, cut) in [("method", Part::Method, Cut::No), ("website", Part::Host, cut)] {
                let is_new = !given.iter().any(|given| given == name);
                if wanted(name)
                    && is_new
                    && (name == "website" || !self.names.iter().any(|known| known == name))
                {
                    self.add(name, Origin::Part { slot, part, escape, cut });
                }
            }
        }
    }

    fn escape_of(&self, noun: &str) -> Escape {
        self.format.items().find(|item| item.noun == noun).map_or(Escape::None, |item| item.escape)
    }

    fn cut_of_host(&self) -> Cut {
        match self.format.dialect() {
            Dialect::Haproxy => Cut::Haproxy,
            Dialect::Nginx => Cut::Nginx,
        }
    }

    fn add(&mut self, name: &str, from: Origin) {
        match self.names.iter().position(|given| given == name) {
            Some(place) => self.origins[place].push(from),
            None => {
                self.names.push(name.to_owned());
                self.origins.push(vec![from]);
            }
        }
    }

    /// The origin of a mapped item: an item of the format, or a part of one.
    fn given(&self, field: &str, from: &Given, slots: &mut SlotList) -> Result<Origin, PlanError> {
        let item = match from {
            Given::Constant(text) => return Ok(Origin::Constant(text.clone())),
            Given::Item(item) => item,
        };
        let cut = if field == "website" { self.cut_of_host() } else { Cut::No };
        let find = |noun: &str| self.format.items().find(|item| item.noun == noun);
        if let Some(found) = find(&item.noun) {
            return Ok(Origin::Text { slot: slots.of(found), escape: found.escape, cut });
        }
        for (prefix, list) in [("%[capture.req.hdr(", "%hr"), ("%[capture.res.hdr(", "%hs")] {
            let number = item.noun.strip_prefix(prefix).and_then(|rest| rest.split(')').next()?.parse().ok());
            if let (Some(number), Some(list)) = (number, find(list)) {
                return Ok(Origin::Capture { slot: slots.of(list), number, cut });
            }
        }
        let parts = [
            ("%HM", Part::Method),
            ("%HU", Part::Uri),
            ("%HP", Part::Path),
            ("%HV", Part::Version),
            ("$request_method", Part::Method),
            ("$request_uri", Part::Uri),
            ("$uri", Part::Path),
            ("$server_protocol", Part::Version),
        ];
        let line = find("%r").or_else(|| find("$request"));
        if let (Some(line), Some(&(_, part))) = (line, parts.iter().find(|(noun, _)| *noun == item.noun)) {
            return Ok(Origin::Part { slot: slots.of(line), part, escape: line.escape, cut });
        }
        let has: Vec<&str> = self.format.items().map(|item| item.noun.as_str()).collect();
        Err(PlanError::NotInFormat { field: field.to_owned(), noun: item.noun.clone(), has: has.join(" ") })
    }

    /// Whether its lines carry a field.
    pub(super) fn has(&self, field: &str) -> bool {
        match field {
            "source" if self.source.is_some() => true,
            _ => self.names.iter().any(|name| name == field),
        }
    }

    /// Whether it has the website only in request lines with an absolute URI.
    pub(super) fn has_website_by_chance(&self) -> bool {
        let place = self.names.iter().position(|name| name == "website");
        place.is_some_and(|place| self.origins[place].iter().all(|from| matches!(from, Origin::Part { .. })))
    }

    /// Reads a line into a record.
    pub(super) fn read(
        &self,
        line: &[u8],
        calendar: &mut Calendar,
        is_prefixed: &mut bool,
        record: &mut Record,
    ) -> Result<(), Fault> {
        let mut slots: Slots<'_> = [None; SLOTS_MAX];
        self.steps.take_apart_of_syslog(line, false, is_prefixed, &mut slots).map_err(|misfit| {
            if memchr(0, line).is_some() { Fault::Binary } else { Fault::Misfit(misfit) }
        })?;
        if let Some((slot, of)) = self.method {
            check_request(slots[slot].unwrap_or_default(), of)?;
        }
        record.clear();
        (record.at_ns, record.took_ns) = self.time.read(&slots, calendar).ok_or(Fault::NoTime)?;
        if let Some(text) = self.source.and_then(|slot| slots[slot]) {
            record.source = source(text)?;
        }
        for (place, origins) in self.origins.iter().enumerate() {
            let begins = record.bytes.len();
            if origins.iter().any(|from| from.append(&slots, &mut record.bytes)) {
                record.bytes.truncate(begins + VALUE_BYTES_MAX);
                record.ends[place] = record.bytes.len() as u16;
            }
        }
        Ok(())
    }

    /// The message for a fault.
    pub(super) fn tell(&self, fault: Fault) -> String {
        match fault {
            Fault::Misfit(misfit) => self.steps.tell(misfit),
            Fault::NoTime => format!("{} is not a time", self.time.noun),
            Fault::NoAddress => "the source is not an address".to_owned(),
            Fault::NoRequest => "not a request, so no proxy would ask about it".to_owned(),
            Fault::TooLong => format!("longer than {LINE_BYTES_MAX} bytes"),
            Fault::Binary => "binary data".to_owned(),
        }
    }
}

/// The field that an item's own name stands for.
fn field(item: &Item) -> Option<(String, Cut)> {
    let noun = item.noun.as_str();
    let lower = noun.to_ascii_lowercase();
    let is_host =
        ["%[req.hdr(host)", "%[req.fhdr(host)", "%[hdr(host)"].iter().any(|start| lower.starts_with(start));
    if is_host {
        return Some(("website".into(), Cut::Haproxy));
    }
    let named = match noun {
        _ if item.label.is_some() => item.label.as_deref()?,
        "%HM" | "%[method]" | "$request_method" => "method",
        "$host" => "website",
        "$http_host" => return Some(("website".into(), Cut::Nginx)),
        _ => match noun.strip_prefix("%[var(") {
            // `txn.owner`; slowlane's own variables have one more dot.
            Some(variable) => variable.split([')', ',']).next()?.split_once('.')?.1,
            None => {
                let name = noun.strip_prefix('$')?;
                name.strip_prefix("slowlane_").unwrap_or(name)
            }
        },
    };
    let cut = if named == "website" && noun.starts_with('%') { Cut::Haproxy } else { Cut::No };
    Some((named.to_owned(), cut))
}

/// Refuses `<BADREQ>`, and TLS handshakes on a port without TLS as nginx logs them.
fn check_request(text: &[u8], of: OfRequest) -> Result<(), Fault> {
    let length = match of {
        OfRequest::Line => memchr(b' ', text).ok_or(Fault::NoRequest)?,
        OfRequest::Method => text.len(),
    };
    // RFC 9110, section 5.6.2. A lone hyphen stands for nothing.
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let method = &text[..length];
    if method.is_empty() || method == b"-" || !method.iter().all(is_token) {
        Err(Fault::NoRequest)
    } else {
        Ok(())
    }
}

/// None: the request came over a Unix socket.
fn source(text: &[u8]) -> Result<Option<IpAddr>, Fault> {
    if let Some(v4) = ipv4(text) {
        return Ok(Some(IpAddr::V4(v4)));
    }
    if text == b"-" || text.starts_with(b"unix") {
        return Ok(None);
    }
    let address = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    address.map(Some).ok_or(Fault::NoAddress)
}

/// Reads an IPv4 address, faster than the library: most sources are one.
fn ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut at = 0;
    for (number, octet) in octets.iter_mut().enumerate() {
        if number > 0 {
            if text.get(at) != Some(&b'.') {
                return None;
            }
            at += 1;
        }
        let digits = text[at..].iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 || digits > 3 || (digits > 1 && text[at] == b'0') {
            return None;
        }
        let value =
            text[at..at + digits].iter().fold(0u32, |value, &byte| value * 10 + u32::from(byte - b'0'));
        *octet = u8::try_from(value).ok()?;
        at += digits;
    }
    (at == text.len()).then(|| octets.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIELDS: &[&str] = &["source", "website", "owner", "method", "cost", "api_key"];

    fn plan(format: &str, mappings: &[&str]) -> Result<Plan, PlanError> {
        let format = Format::known()
            .into_iter()
            .find(|known| known.name() == format)
            .map_or_else(|| Format::parse(format), Ok)?;
        let mappings: Vec<Mapping> = mappings.iter().map(|text| text.parse().unwrap()).collect();
        Plan::new(format, &mappings, &|name| FIELDS.contains(&name))
    }

    fn read(plan: &Plan, line: &str) -> Result<Record, Fault> {
        let mut record = Record::default();
        plan.read(line.as_bytes(), &mut Calendar::default(), &mut false, &mut record).map(|()| record)
    }

    /// The moment in ms, and `field=value` of each field.
    fn told(format: &str, mappings: &[&str], line: &str) -> (u64, String) {
        let plan = plan(format, mappings).unwrap();
        let record = read(&plan, line).unwrap_or_else(|fault| panic!("{line:?}: {}", plan.tell(fault)));
        let request = record.request(&plan.names);
        let mut told: Vec<String> = request
            .fields()
            .map(|field| {
                let name = String::from_utf8_lossy(field.name);
                match field.value {
                    slowlane_core::base::request::Value::Text(text) => {
                        format!("{name}={}", String::from_utf8_lossy(text))
                    }
                    slowlane_core::base::request::Value::Address(address) => format!("{name}={address}"),
                    slowlane_core::base::request::Value::Number(number) => format!("{name}={number}"),
                    other => format!("{name}={other:?}"),
                }
            })
            .collect();
        told.sort();
        (record.at_ns / 1_000_000, told.join(" "))
    }

    const AT_MS: u64 = 1_233_922_454_655;

    #[test]
    fn httplog_has_source_and_method_and_sometimes_the_website() {
        let line = |captures: &str, request: &str| {
            format!(
                "192.0.2.7:4711 [06/Feb/2009:12:14:14.655] in~ b/s1 0/0/1/7/8 200 89 - - ---- 1/1/0/0/0 0/0 {captures}\"{request}\""
            )
        };
        let told_by = |mappings: &[&str], captures: &str, request: &str| {
            let (at_ms, told) = told("haproxy httplog", mappings, &line(captures, request));
            assert_eq!(at_ms, AT_MS);
            told
        };
        assert_eq!(told_by(&[], "", "GET /a HTTP/1.1"), "method=GET source=192.0.2.7");
        assert_eq!(
            told_by(&[], "", "GET https://Shop.Example:8443/a HTTP/2.0"),
            "method=GET source=192.0.2.7 website=shop.example"
        );
        let host = ["website=%[capture.req.hdr(0)]", "owner=%[capture.req.hdr(1)]", "api_key=%HP"];
        assert_eq!(
            told_by(&host, "{Shop.Example:80|a#7Cb} {x} ", "PUT /a?b HTTP/1.1"),
            "api_key=/a method=PUT owner=a|b source=192.0.2.7 website=shop.example"
        );
        assert_eq!(told_by(&host, "{|} ", "PUT /a HTTP/1.1"), "api_key=/a method=PUT source=192.0.2.7");
        assert_eq!(
            told_by(&["website=shop.example"], "", "GET / HTTP/1.1"),
            "method=GET source=192.0.2.7 website=shop.example"
        );
    }

    #[test]
    fn items_named_after_fields_are_found() {
        let haproxy = "%[src] %Ts.%ms %HM %[req.hdr(Host),field(1,:),lower] %[var(txn.owner)] %(api_key)[req.hdr(x-key)] %[var(txn.slowlane.slo)]";
        let (at_ms, told_fields) =
            told(haproxy, &[], "2001:db8::1 1233922454.655 GET Shop.example:80 acme k 17");
        assert_eq!(
            (at_ms, told_fields.as_str()),
            (AT_MS, "api_key=k method=GET owner=acme source=2001:db8::1 website=shop.example")
        );
        let nginx = "$remote_addr $msec $request_time $http_host $slowlane_owner $api_key \"$request\"";
        let (at_ms, told_fields) = told(
            nginx,
            &[],
            "::ffff:192.0.2.1 1233922455.655 1.000 Shop.Example.:80 a\\x22b - \"GET / HTTP/1.1\"",
        );
        assert_eq!(
            (at_ms, told_fields.as_str()),
            (AT_MS, "method=GET owner=a\"b source=192.0.2.1 website=shop.example")
        );
    }

    #[test]
    fn nginx_combined_has_no_website() {
        let line = "192.0.2.7 - - [06/Feb/2009:13:14:14 +0100] \"GET /\\x22 HTTP/1.1\" 200 3 \"-\" \"x\"";
        assert_eq!(
            told("nginx combined", &[], line),
            (1_233_922_454_000, "method=GET source=192.0.2.7".into())
        );
        assert!(!plan("nginx combined", &[]).unwrap().has("owner"));
        assert!(plan("nginx combined", &[]).unwrap().has_website_by_chance());
    }

    #[test]
    fn a_line_that_is_no_request_has_a_reason() {
        let plan = plan("nginx combined", &[]).unwrap();
        for (line, why) in [
            (
                "192.0.2.7 - - [06/Feb/2009:13:14:14 +0100] \"\\x16\\x03\\x01\" 400 3 \"-\" \"x\"",
                "not a request, so no proxy would ask about it",
            ),
            (
                "192.0.2.7 - - [06/Feb/2009:13:14:14 +0100] \"\" 400 3 \"-\" \"x\"",
                "not a request, so no proxy would ask about it",
            ),
            (
                "192.0.2.7 - - [06/Fab/2009:13:14:14 +0100] \"GET / HTTP/1.1\" 200",
                "$time_local is not a time",
            ),
            (
                "host.example - - [06/Feb/2009:13:14:14 +0100] \"GET / HTTP/1.1\" 200",
                "does not fit the format: $remote_addr is not an address",
            ),
            ("192.0.2.7 - - [06/Feb/2009:13:14", "does not fit the format: no \"] \\\"\" after $time_local"),
            ("192.0.2.7 x", "does not fit the format: no \" - \" before $remote_user"),
            ("\0\0\0", "binary data"),
        ] {
            assert_eq!(plan.tell(read(&plan, line).unwrap_err()), why, "{line:?}");
        }
        let httplog = super::tests::plan("haproxy httplog", &[]).unwrap();
        let bad = "192.0.2.7:1 [06/Feb/2009:12:14:14.655] in in/<NOSRV> -1/-1/-1/-1/0 400 0 - - PR-- 1/1/0/0/0 0/0 \"<BADREQ>\"";
        assert_eq!(read(&httplog, bad).unwrap_err(), Fault::NoRequest);
    }

    #[test]
    fn missing_items_and_times_are_named() {
        assert_eq!(
            plan("$remote_addr [$msec]", &["owner=$http_x_owner"]).unwrap_err().to_string(),
            "--field owner: $http_x_owner is not in the format; it has $remote_addr $msec"
        );
        assert_eq!(
            plan("%ci %r", &[]).unwrap_err().to_string(),
            "no time: expected %tr, %t, %Ts or a similar item"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_a_fault(line in prop::collection::vec(any::<u8>(), 0..200)) {
            for format in Format::known() {
                let plan = Plan::new(format, &[], &|_| true).unwrap();
                let _ = plan.read(&line, &mut Calendar::default(), &mut false, &mut Record::default());
            }
        }

        #[test]
        fn addresses_match_the_library(text in "[0-9]{1,3}(\\.[0-9]{1,4}){2,4}|[0-9.]{0,16}") {
            prop_assert_eq!(ipv4(text.as_bytes()), text.parse().ok());
        }

        #[test]
        fn a_line_of_nginx_is_read_back(source in any::<[u8; 4]>(), second in 0u32..86_400, host in "[a-z0-9.-]{1,30}") {
            let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
            let line = format!("{} [06/Feb/2009:{h:02}:{m:02}:{s:02} +0000] \"GET / HTTP/1.1\" 200 3 0.000s host={host} slowlane=- id=x",
                Ipv4Addr::from(source));
            let (at_ms, fields) = told("nginx, slowlane's", &[], &line);
            prop_assert_eq!(at_ms, 1_233_878_400_000 + u64::from(second) * 1_000);
            let website = if host == "-" { String::new() } else { format!(" website={host}") };
            prop_assert_eq!(fields, format!("method=GET source={}{website}", Ipv4Addr::from(source)));
        }
    }
}
