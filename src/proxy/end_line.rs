//! Reads log lines in which a proxy reports the end of a request.

use memchr::{memchr, memmem};
use serde::Deserialize;

use slowlane_core::base::{Amount, AmountError, Ending};

/// The ticket and the measures in a line. `None` if there is no ticket, or if a client may have written it.
///
/// A line of text begins with its ticket, perhaps after a syslog prefix. The measures follow the ticket, each after a
/// space, and end before the first word that is not a measure. `seconds` may be a list in quotes, as nginx writes it.
/// `ms` is a number of milliseconds, followed by the numbers to subtract from it.
///
/// ```
/// use slowlane::proxy::end_line::read;
/// let line = b"<134>1 - lb1 haproxy 7 - ticket=5-2001.7 ms=402-301-0-1-0 bytes=1052 \"GET /?ticket=1 bytes=0\"";
/// let (ticket, ending) = read(line).unwrap();
/// assert_eq!(ticket, "5-2001.7");
/// assert_eq!(ending.unwrap().seconds.unwrap().to_string(), "0.1");
/// assert_eq!(ending.unwrap().bytes.unwrap().to_string(), "1052");
/// assert!(read(b"ticket=- ms=0-0--1--1-0 bytes=120").is_none());
/// assert!(read(b"192.0.2.7 - ticket=5-2001.7 [29/Nov/2026:12:00:00 +0000] \"GET / HTTP/1.1\" 200 3").is_none());
/// ```
///
/// A line that begins with a brace is JSON: the ticket and the measures are fields at its top level, under the names of
/// Caddy, Traefik, Envoy or nginx. These programs can escape what clients send, but JSON written by a text format may
/// not be escaped. So the ticket must come first, unless the first key is one that Caddy, Traefik or Envoy writes.
///
/// ```
/// # use slowlane::proxy::end_line::read;
/// let line = br#"{"level":"info","request":{"uri":"/?ticket=1"},"size":676,"upstream_ms":3.679,"ticket":"5-2001.7"}"#;
/// let (ticket, ending) = read(line).unwrap();
/// assert_eq!((ticket, ending.unwrap().seconds.unwrap().to_string().as_str()), ("5-2001.7", "0.003679"));
/// ```
pub fn read(line: &[u8]) -> Option<(&str, Result<Ending, AmountError>)> {
    if !is_sure(line) {
        return None;
    }
    if line.starts_with(b"{") {
        let Ok(JsonEnd { ticket, bytes, seconds, upstream_ms, upstream_ns }) = serde_json::from_slice(line)
        else {
            // Text from a client has broken the line after the ticket, so only the ticket is used.
            let (ticket, _) = value(line.strip_prefix(b"{\"ticket\":")?);
            return Some((given(str::from_utf8(ticket).ok()?)?, Ok(Ending::default())));
        };
        let ticket = given(ticket?)?;
        let seconds = match seconds.map(|list| Amount::sum(list.as_bytes())).transpose() {
            Ok(seconds) => seconds,
            Err(error) => return Some((ticket, Err(error))),
        };
        let micros = upstream_ms.map(|ms| ms * 1e3).or(upstream_ns.map(|ns| ns / 1e3));
        let amount = |micros| Amount::from_micros(micros as u64);
        let bytes = bytes.map(|bytes| amount(bytes * Amount::UNIT as f64));
        return Some((ticket, Ok(Ending { cost: None, seconds: seconds.or(micros.map(amount)), bytes })));
    }
    let begin = memmem::find(line, TICKET)? + TICKET.len();
    let (ticket, measures) = value(&line[begin..]);
    Some((given(str::from_utf8(ticket).ok()?)?, ending(measures)))
}

/// Whether a line has a ticket where a client may have written it, so that [`read`] ignores the line.
pub fn is_refused(line: &[u8]) -> bool {
    !is_sure(line)
        && [TICKET, b"ticket\":", b"Ticket\":"].iter().any(|name| memmem::find(line, name).is_some())
}

/// First keys of JSON lines in which a ticket is trusted: the ticket itself, or a key with which Caddy, or Envoy by
/// default, begins a line. Traefik's keys, except that of the ticket, begin with a capital letter.
const FIRST_KEYS: [&[u8]; 6] =
    [b"ticket\"", b"request_X-Slowlane-Ticket\"", b"level\"", b"ts\"", b"authority\"", b"bytes_received\""];

/// Whether no client can have written the text before the ticket or, in JSON, any key.
fn is_sure(line: &[u8]) -> bool {
    match line.strip_prefix(b"{\"") {
        Some(key) => {
            key.first().is_some_and(u8::is_ascii_uppercase)
                || FIRST_KEYS.iter().any(|first| key.starts_with(first))
        }
        None => memmem::find(line, TICKET).is_some_and(|begin| is_prefix(&line[..begin])),
    }
}

/// The maximum length of a syslog prefix.
const PREFIX_BYTES_MAX: usize = 256;

/// Whether a text is empty or a syslog prefix: a date, a host, a tag (RFC 3164 and 5424). The prefix of a container
/// runtime is not accepted: such a runtime splits long lines, so a client could choose where a line begins.
fn is_prefix(text: &[u8]) -> bool {
    let Some(text) = str::from_utf8(text).ok().filter(|text| text.len() <= PREFIX_BYTES_MAX) else {
        return false;
    };
    let priority = text.strip_prefix('<').and_then(|text| text.split_once('>'));
    let rest = priority.map_or(text, |(_, rest)| rest);
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    let is_date = |word: &str| word.as_bytes().get(4) == Some(&b'-') && is_number(&word[..4]);
    let is_whole = match words[..] {
        [] => true,
        [date] => is_date(date),
        [date, _, tag] => is_date(date) && tag.ends_with(':'),
        [month, day, time, tag] | [month, day, time, _, tag] => {
            let is_name = month.len() == 3 && month.bytes().all(|byte| byte.is_ascii_alphabetic());
            is_name && is_number(day) && is_number(time) && tag.ends_with(':')
        }
        ["1", _, _, _, _, _] | ["1", _, _, _, _, _, "-"] => priority.is_some(),
        _ => false,
    };
    is_whole && (rest.is_empty() || rest.ends_with(' '))
}

/// Proxies write a dash for a request without a ticket.
fn given(ticket: &str) -> Option<&str> {
    (!matches!(ticket, "" | "-")).then_some(ticket)
}

/// The end of a request in a line of JSON. A number may be negative or a fraction.
#[derive(Deserialize)]
struct JsonEnd<'l> {
    #[serde(alias = "request_X-Slowlane-Ticket")]
    ticket: Option<&'l str>,
    #[serde(alias = "size", alias = "DownstreamContentSize", alias = "bytes_sent")]
    bytes: Option<f64>,
    /// A list of times, as nginx writes it.
    #[serde(alias = "upstream_response_time")]
    seconds: Option<&'l str>,
    upstream_ms: Option<f64>,
    #[serde(rename = "OriginDuration")]
    upstream_ns: Option<f64>,
}

const TICKET: &[u8] = b"ticket=";

fn ending(mut rest: &[u8]) -> Result<Ending, AmountError> {
    let mut ending = Ending::default();
    while let Some((name, after)) = rest.strip_prefix(b" ").and_then(named) {
        let (text, after) = value(after);
        match name {
            b"cost" if matches!(text, b"" | b"-") => {}
            b"cost" => ending.cost = Some(Amount::read(text)?),
            b"seconds" => ending.seconds = Some(Amount::sum(text)?),
            b"ms" => ending.seconds = Some(elapsed(text)?),
            b"bytes" => ending.bytes = Some(Amount::read(text)?),
            _ => break,
        }
        rest = after;
    }
    Ok(ending)
}

/// The name before the equals sign, and the text after it.
fn named(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = memchr(b'=', text)?;
    Some((&text[..equals], &text[equals + 1..]))
}

/// The value at the beginning, in quotes or up to a space or a line break, and the text after it.
fn value(text: &[u8]) -> (&[u8], &[u8]) {
    match text.strip_prefix(b"\"") {
        Some(text) => {
            let end = memchr(b'"', text).unwrap_or(text.len());
            (&text[..end], text.get(end + 1..).unwrap_or_default())
        }
        None => text.split_at(text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len())),
    }
}

/// The application's time, from the timers that HAProxy writes: the active time minus the times for the request, the
/// queue and the connection.
///
/// A timer of -1 means that the request has not reached this step, so the application has not worked on the request.
fn elapsed(text: &[u8]) -> Result<Amount, AmountError> {
    let mut timers = text.split(|&byte| byte == b'-');
    let active = Amount::read(timers.next().unwrap_or_default())?.micros();
    let (mut before, mut has_begun) = (0, true);
    for timer in timers {
        match timer {
            b"" => has_begun = false,
            timer => before = active.min(before + Amount::read(timer)?.micros()),
        }
    }
    let ms = if has_begun { active.saturating_sub(before) } else { 0 };
    Ok(Amount::from_micros(ms / 1_000))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn measured(measures: &str) -> Result<[Option<String>; 3], AmountError> {
        let line = format!("<190>Nov 26 12:46:43 nginx: ticket=T{measures}");
        let (ticket, ending) = read(line.as_bytes()).unwrap();
        assert_eq!(ticket, "T");
        ending.map(|Ending { cost, seconds, bytes }| {
            [cost, seconds, bytes].map(|given| Some(given?.to_string()))
        })
    }

    fn seconds(measures: &str) -> Option<String> {
        measured(measures).unwrap()[1].clone()
    }

    /// The timers are those of real lines.
    #[test]
    fn the_hold_and_the_queue_are_not_the_applications_time() {
        assert_eq!(seconds(" ms=502-0-0-0-0").as_deref(), Some("0.502"));
        assert_eq!(seconds(" ms=402-301-0-1-0").as_deref(), Some("0.1"), "held for 300 ms");
        assert_eq!(seconds(" ms=401-0-0-0-300").as_deref(), Some("0.101"), "an upload, held at its response");
        assert_eq!(seconds(" ms=0-0--1--1-0").as_deref(), Some("0"), "a response of HAProxy");
        assert_eq!(seconds(" ms=1505-0-0--1-0").as_deref(), Some("0"), "no server answers");
        assert_eq!(seconds(" ms=3-2-2-0-0").as_deref(), Some("0"), "each timer is rounded");
    }

    #[test]
    fn timers_without_end_overflow_nothing() {
        let timers = "-1099511627776".repeat(100);
        assert_eq!(seconds(&format!(" ms=1099511627776{timers}")).as_deref(), Some("0"));
    }

    #[test]
    fn the_upstreams_of_a_request_add_up() {
        assert_eq!(seconds(" seconds=0.101\n").as_deref(), Some("0.101"));
        assert_eq!(seconds(" seconds=\"0.000, 0.101 : 0.001\" bytes=1").as_deref(), Some("0.102"));
        assert_eq!(seconds(" seconds=-").as_deref(), Some("0"), "a response of nginx");
    }

    #[test]
    fn a_measure_that_is_no_amount_spoils_the_report() {
        for measures in [
            "ms=+0-0-0-0 bytes=+101",
            "ms=-1",
            "ms=",
            "ms=1-x",
            "bytes=-1",
            "bytes=",
            "bytes=1e3",
            "bytes=inf",
            "cost=1099511627777",
            "seconds=\"0.1, x\"",
        ] {
            assert!(measured(&format!(" {measures}")).is_err(), "{measures}");
        }
    }

    #[test]
    fn the_text_of_a_client_is_no_measure() {
        for text in [" \"GET /?a ms=1 bytes=0\"", " GET bytes=0", " bytes", "\tbytes=0", "  bytes=0"] {
            assert_eq!(measured(text), Ok([None, None, None]), "{text:?}");
        }
        assert_eq!(measured(" cost=- bytes=7 agent=x bytes=0"), Ok([None, None, Some("7".into())]));
    }

    #[test]
    fn the_lines_of_caddy_and_traefik_are_reports() {
        let read = |line: &str| {
            let (ticket, ending) = read(line.as_bytes())?;
            let Ending { seconds, bytes, .. } = ending.unwrap();
            Some((ticket.to_owned(), seconds.map(Amount::micros), bytes.map(|bytes| bytes.to_string())))
        };
        let caddy = r#"{"level":"info","ts":1795.0,"request":{"headers":{"Ticket":["F"]}},"duration":0.004,"size":676,"upstream_ms":3.679862,"ticket":"T"}"#;
        assert_eq!(read(caddy), Some(("T".into(), Some(3_679), Some("676".into()))));
        let traefik = r#"{"DownstreamContentSize":656,"Duration":5776697,"OriginDuration":4912779,"RequestPath":"/","request_X-Slowlane-Ticket":"T"}"#;
        assert_eq!(read(traefik), Some(("T".into(), Some(4_912), Some("656".into()))));
        assert_eq!(
            read(r#"{"ticket":"T","size":-1,"upstream_ms":null}"#),
            Some(("T".into(), None, Some("0".into())))
        );
        for none in [r#"{"ticket":null}"#, r#"{"size":1}"#, r#"{"request":{"ticket":"T"}}"#] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn a_ticket_of_a_client_is_refused_and_one_of_the_format_is_read() {
        let ticket = |line: &str| read(line.as_bytes()).map(|(ticket, _)| ticket.to_owned());
        for prefix in [
            "",
            "<134>",
            "<190>Nov 26 12:46:43 nginx: ",
            "Nov  6 12:46:43 host haproxy[7]: ",
            "2026-11-26T12:46:43.1+00:00 ",
            "2026-11-26T12:46:43+00:00 host haproxy[7]: ",
            "<134>1 2026-11-26T12:46:43+00:00 host haproxy 7 - ",
            "<134>1 - - haproxy 7 - - ",
        ] {
            let line = format!("{prefix}ticket=T seconds=1 192.0.2.7 - x [..] \"GET /?ticket=F HTTP/1.1\"");
            assert_eq!(ticket(&line).as_deref(), Some("T"), "{prefix}");
        }
        let forged = r#"{"time":"x","agent":"a","ticket":"F","x":{"b":"","ticket":"T","path":"c"},"y":"d"}"#;
        for line in [
            "192.0.2.7 - ticket=F [29/Nov/2026:12:00:00 +0000] \"GET / HTTP/1.1\" 200 3 \"-\" \"x\"",
            "<190>Nov 26 12:46:43 nginx: 192.0.2.7 - ticket=F [x] \"GET / HTTP/1.1\"",
            "192.0.2.7 200 89 x: ticket=F seconds=0",
            "192.0.2.7 - Nov 2 x: ticket=F [x] \"GET / HTTP/1.1\" 200 3 \"-\" \"x\" ticket=T",
            "192.0.2.7:1 [06/Feb/2009:12:14:14.655] in b/s 0/0/1/7/8 200 89 - - ---- 1/1/0/0/0 0/0 {ticket=F} \"GET /\"",
            "[2026-11-29T12:00:00Z] \"GET /? ticket=F seconds=0 HTTP/1.1\" 200",
            "2026-11-26T12:46:43.1Z stdout F ticket=F",
            "{\"log\":\"ticket=F\\n\",\"stream\":\"stdout\"}",
            forged,
        ] {
            assert_eq!(ticket(line), None, "{line}");
            assert!(is_refused(line.as_bytes()), "{line}");
        }
        for none in
            ["", "ticket=- seconds=-", "192.0.2.7 - - [x] \"GET /\"", r#"{"level":"info","ticket":null}"#]
        {
            assert!(ticket(none).is_none() && !is_refused(none.as_bytes()), "{none}");
        }
    }

    #[test]
    fn json_of_nginx_has_its_ticket_first() {
        let line = r#"{"ticket":"T","remote_addr":"::1","uri":"/","bytes_sent":7,"upstream_response_time":"0.1, 0.2"}"#;
        let (ticket, ending) = read(line.as_bytes()).unwrap();
        let Ending { seconds, bytes, .. } = ending.unwrap();
        assert_eq!(
            (ticket, seconds.unwrap().micros(), bytes.unwrap().to_string()),
            ("T", 300_000, "7".into())
        );
        let wrong = line.replace("0.1,", "x,");
        assert!(read(wrong.as_bytes()).unwrap().1.is_err());
    }

    proptest! {
        /// Where a format does not escape it.
        #[test]
        fn no_text_behind_a_ticket_moves_it(text in "[ -~]{0,60}|\",\"ticket\":\"F.{0,20}") {
            let json = format!("{{\"ticket\":\"T\",\"agent\":\"{text}\"}}");
            prop_assert_eq!(read(json.as_bytes()).map(|(ticket, _)| ticket), Some("T"));
            let line = format!("ticket=T {text}");
            prop_assert_eq!(read(line.as_bytes()).map(|(ticket, _)| ticket), Some("T"));
        }

        #[test]
        fn no_text_in_a_line_without_a_ticket_is_one(user in "[ -~]{0,30}( ticket=F )?", text in "[ -~]{0,30}( ticket=F )?[ -~]{0,9}") {
            for line in [
                format!("192.0.2.7 - {user} [29/Nov/2026:12:00:00 +0000] \"GET {text} HTTP/1.1\" 200 3 \"-\" \"{text}\""),
                format!("[2026-11-29T12:00:00Z] \"GET {text} HTTP/1.1\" 200 - 0 3 4 - \"{text}\" \"{user}\""),
            ] {
                prop_assert_eq!(read(line.as_bytes()), None);
            }
        }

        #[test]
        fn text_of_clients_is_no_ticket_in_json(text in any::<String>(), name in any::<String>()) {
            let request = serde_json::json!({ "uri": &text, "headers": { name: [&text] } });
            let line = serde_json::json!({ "RequestPath": text, "request": request, "ticket": "T" }).to_string();
            prop_assert_eq!(read(line.as_bytes()).map(|(ticket, _)| ticket.to_owned()), Some("T".into()));
        }

        #[test]
        fn a_report_reads_back_whatever_surrounds_it(
            before in prop_oneof![Just(""), Just("<13>1 - - x 7 - "), Just("Nov  1 01:02:03 x: ")],
            after in "( [^=]{0,40})?",
            [cost, seconds, bytes] in [0..=Amount::MAX.micros(), 0..=1_099_511_627_776, 0..=Amount::MAX.micros()],
        ) {
            let [cost, seconds, bytes] = [cost, seconds, bytes].map(Amount::from_micros);
            let line = format!("{before}ticket=5-A cost={cost} seconds={seconds} bytes={bytes}{after}");
            let all = Ending { cost: Some(cost), seconds: Some(seconds), bytes: Some(bytes) };
            prop_assert_eq!(read(line.as_bytes()), Some(("5-A", Ok(all))));
        }

        #[test]
        fn any_bytes_are_a_report_or_none(line in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..200) {
            let mut line = line;
            let _ = read(&line);
            line.splice(at.min(line.len())..at.min(line.len()), *b"ticket=1 ms=");
            let _ = read(&line);
        }
    }
}
