//! Any text as an `slo.map` and a lookup map of any method, and any value looked up in it: the explanation names the
//! lines that decided, as they stand in the files.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use slowlane_core::base::{Network, Request, Value, canonical};
use slowlane_core::policy::map::{Line, lines};
use slowlane_core::policy::{
    AUTOMATA_MAX, DEFAULT_LINE, Explained, Layout, Lookup, Method, Policy, SEARCH_STEPS_MAX,
};

use super::input::texts;

/// The files of a policy, and the request.
struct Case {
    slo_map: Vec<u8>,
    map: Vec<u8>,
    method: Method,
    /// The lookup's fields.
    fields: Vec<String>,
    /// The value of each field.
    value: Vec<u8>,
}

/// The bytes: method, number of fields, then `slo.map`, the map and the value.
pub fn run(bytes: &[u8]) {
    let Some((&[method, fields], rest)) = bytes.split_first_chunk() else { return };
    let [slo_map, map, value] = texts(rest);
    let case = Case {
        slo_map: [DEFAULT_LINE.as_bytes(), b"\n", slo_map].concat(),
        map: map.to_vec(),
        method: Method::ALL[usize::from(method) % Method::ALL.len()],
        fields: if fields % 2 == 1 { vec!["a".into(), "b".into()] } else { vec!["a".into()] },
        value: value.to_vec(),
    };
    let lookup =
        Lookup { fields: case.fields.clone(), file: "m".into(), method: case.method, is_added: false };
    let layout = Layout::default().with_lookups(vec![lookup]).unwrap();
    let read = |path: &Path| match path.ends_with("slo.map") {
        true => Ok(case.slo_map.clone()),
        false => Ok(case.map.clone()),
    };
    match Policy::parse(Path::new("p"), &layout, read) {
        Ok(policy) if case.is_too_long(&policy) => case.expect_refusal(&policy),
        Ok(policy) => case.expect_reasons(&policy),
        Err(problems) => assert!(problems.count() > 0),
    }
}

impl Case {
    fn request(&self) -> Request<'_> {
        let mut request = Request::new();
        request.push(b"a", Value::Text(&self.value));
        request.push(b"b", Value::Text(&self.value));
        request
    }

    /// Whether the value is too long to be searched: some, of many expressions, or of keys with many numbers of words.
    fn is_too_long(&self, policy: &Policy) -> bool {
        let bytes = (self.value.len() + 1) * self.fields.len() - 1;
        let cases = policy.cases(&self.request());
        let is_refused = policy.is_refusal(cases.list[0].key);
        assert!(!is_refused || bytes * AUTOMATA_MAX > SEARCH_STEPS_MAX || self.method == Method::Dom);
        matches!(self.method, Method::Dom | Method::Reg) && is_refused
    }

    fn expect_refusal(&self, policy: &Policy) {
        let request = self.request();
        let cases = policy.cases(&request);
        assert!(cases.list.len() == 1 && cases.list[0].slo.objective.rate.is_zero());
        assert!(policy.explain(&request).of[0].origin.is_none());
    }

    fn expect_reasons(&self, policy: &Policy) {
        let request = self.request();
        let explanation = policy.explain(&request);
        let of = &explanation.of;
        let slos = |number: usize| (of[number].case.slo.id, of[number].case.key);
        let cases = policy.cases(&request);
        assert_eq!(cases.list.len(), of.len());
        for (number, case) in cases.list.iter().enumerate() {
            assert_eq!((case.slo.id, case.key), slos(number));
            self.expect_slo_line(&of[number]);
            self.expect_origin(&of[number]);
            self.expect_asked(&of[number]);
            assert_eq!(of[number].named_by, number.checked_sub(1).map(|before| slos(before).0));
        }
    }

    /// The line of `slo.map` has this SLO.
    fn expect_slo_line(&self, explained: &Explained<'_>) {
        let line = line(&self.slo_map, explained.line);
        assert_eq!(number(line.key), Some(explained.case.slo.id.number().into()));
        assert_eq!(line.value, explained.written);
    }

    /// The line of the map has a key that matches, and names this SLO. SLO 0 needs no line.
    fn expect_origin(&self, explained: &Explained<'_>) {
        let slo = i64::from(explained.case.slo.id.number());
        let Some(origin) = explained.origin else {
            assert_eq!((slo, explained.named_by), (0, None), "an SLO that no line names");
            return;
        };
        assert_eq!((origin.lookup, origin.path), (self.fields.join("+").as_str(), Path::new("p/m")));
        let line = line(&self.map, origin.line);
        assert_eq!(number(line.value), Some(slo), "line {} names another SLO", origin.line);
        assert!(self.matches(&line), "line {} has another key", origin.line);
        if matches!(self.method, Method::Str | Method::End | Method::Dom | Method::Sub) {
            assert_eq!(self.first_match(), Some(line), "an earlier line was passed over");
        }
    }

    /// A map that was asked in vain has a line that says so, or no line for the value.
    fn expect_asked(&self, explained: &Explained<'_>) {
        let has_lines = lines(&self.map).next().is_some();
        let is_in_vain = explained.origin.is_none() && has_lines;
        assert_eq!(explained.asked.len(), usize::from(is_in_vain));
        let Some(asked) = explained.asked.first() else { return };
        assert_eq!(asked.lookup, self.fields.join("+"));
        match asked.line {
            Some(number) => {
                let line = line(&self.map, number);
                assert_eq!((self::number(line.value), self.matches(&line)), (Some(-1), true));
            }
            // A regular expression is not matched again here.
            None if self.method == Method::Reg => {}
            None => assert_eq!(self.first_match(), None, "a line was passed over"),
        }
    }

    fn first_match(&self) -> Option<Line<'_>> {
        lines(&self.map).flatten().find(|line| self.matches(line))
    }

    /// Whether the key of a line matches the request, by the book of the method.
    fn matches(&self, line: &Line<'_>) -> bool {
        let (key, value) = (line.key, vec![&self.value[..]; self.fields.len()].join(&b'+'));
        match self.method {
            Method::Str => key == value,
            Method::Beg => value.starts_with(key),
            Method::End => value.ends_with(key),
            Method::Dom => is_words(key, &value),
            Method::Sub => value.windows(key.len()).any(|part| part == key),
            Method::Ip => self.is_network(key),
            Method::Reg => true,
        }
    }

    /// The first field is an address in the network, and the second is the rest of the key.
    fn is_network(&self, key: &[u8]) -> bool {
        let (Ok(key), Ok(value)) = (str::from_utf8(key), str::from_utf8(&self.value)) else { return false };
        let Ok(address) = value.parse::<IpAddr>() else { return false };
        match key.split_once('+') {
            Some((network, rest)) if self.fields.len() > 1 => rest == value && has(network, address),
            _ => has(key, address),
        }
    }
}

/// Whether a network has this address, in its own family or in the other.
fn has(network: &str, address: IpAddr) -> bool {
    let (network, length) = network.split_once('/').unwrap_or((network, "128"));
    let Ok(network) = network.parse::<IpAddr>() else { return false };
    let prefix = match length.parse::<Ipv4Addr>() {
        Ok(mask) => mask.to_bits().leading_ones() as u8,
        Err(_) => length.parse().unwrap(),
    };
    let is_in = |address| Network::of(network, prefix) == Network::of(address, prefix);
    match canonical(address) {
        IpAddr::V4(v4) => {
            let translated = Ipv6Addr::from_bits(0x0064_ff9b << 96 | u128::from(v4.to_bits()));
            is_in(v4.into()) || is_in(v4.to_ipv6_mapped().into()) || is_in(translated.into())
        }
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            let embedded = match v6.segments() {
                [0, 0, 0, 0, 0, 0, ..] => Some(Ipv4Addr::from_bits(bits as u32)),
                [0x2002, ..] => Some(Ipv4Addr::from_bits((bits >> 80) as u32)),
                _ => None,
            };
            is_in(v6.into()) || embedded.is_some_and(|v4| is_in(v4.into()))
        }
    }
}

/// Whether a key is in a value as whole words. Delimiters around the key mean nothing.
fn is_words(key: &[u8], value: &[u8]) -> bool {
    let is_delimiter = |byte: &u8| b"/?.:".contains(byte);
    let first = key.iter().position(|byte| !is_delimiter(byte)).unwrap();
    let last = key.iter().rposition(|byte| !is_delimiter(byte)).unwrap();
    let key = &key[first..=last];
    let is_whole = |start: usize| {
        let (before, after) = (start.checked_sub(1), start + key.len());
        before.is_none_or(|before| is_delimiter(&value[before])) && value.get(after).is_none_or(is_delimiter)
    };
    let mut starts = 0..(value.len() + 1).saturating_sub(key.len());
    starts.any(|start| value[start..].starts_with(key) && is_whole(start))
}

fn line(text: &[u8], number: usize) -> Line<'_> {
    let line = lines(text).flatten().find(|line| line.number == number);
    line.unwrap_or_else(|| panic!("there is no line {number}"))
}

/// An empty value is 0, as in HAProxy.
fn number(text: &[u8]) -> Option<i64> {
    if text.is_empty() { Some(0) } else { str::from_utf8(text).ok()?.parse().ok() }
}
