//! Any query and headers of a check: its fields are those of the headers, and no answer becomes a field.

use std::time::Duration;

use slowlane::http::{Date, HeaderSlots, HttpAnswer, HttpHead, StatusCode, Version};
use slowlane::proxy::check_fields;
use slowlane::proxy::nginx::{self, CheckOptions};
use slowlane_core::base::{
    Assurance, Decision, Ends, FIELDS_MAX, Field, Judged, Key, KeySecret, Reply, SloId, Ticket, Timestamp,
    Value, Verdict, is_same_name,
};

use super::input::texts;

const PREFIX: &[u8] = b"x-slowlane-";

/// The bytes: a query, then lines with a header each.
pub fn run(bytes: &[u8]) {
    let [query, lines] = texts(bytes);
    let query = String::from_utf8_lossy(query);
    let given = CheckOptions::of(Some(&query));
    let options = given.clone().unwrap_or_else(|_| CheckOptions::of(None).expect("no query makes sense"));
    let mut bytes = question(lines);
    // Lines that are no headers, or tell of a body in two ways, make no question.
    let mut room = HeaderSlots::default();
    let Ok(Some((head, _))) = HttpHead::cut(&mut bytes, &mut room) else { return };
    let fields: Vec<Field<'_>> = check_fields::fields(&head, options).collect();
    expect_fields(&fields, &head, options);
    expect_answers(options);

    expect_repeatable(&head, options);
    if let Err(error) = given {
        let part = error.to_string();
        assert!(query.split('&').any(|given| part.starts_with(&format!("{given:?}: expected "))), "{part}");
    }
    if let Some(ticket) = nginx::ticket(&head) {
        assert!(Ticket::open(ticket, KeySecret::KNOWN).is_err(), "{ticket} has no seal");
    }
}

/// A question with the lines that look like headers. A header may come several times.
fn question(lines: &[u8]) -> Vec<u8> {
    let mut bytes = b"GET /check HTTP/1.1\r\n".to_vec();
    for line in lines.split(|&byte| byte == b'\n').filter(|line| line.contains(&b':')) {
        bytes.extend_from_slice(line.trim_ascii());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Only nginx asks again, and each of its own headers counts.
fn expect_repeatable(head: &HttpHead<'_>, options: CheckOptions) {
    let parts = nginx::repeatable(head, options).map(Iterator::count);
    let id = head.header("x-request-id").filter(|id| !id.is_empty() && options.deny == StatusCode::FORBIDDEN);
    let asks = |name: &[u8]| name.starts_with(PREFIX) || name == b"x-request-id";
    let asking = head.headers().filter(|(name, _)| asks(name)).count();
    assert_eq!(parts, id.map(|_| 2 + 2 * asking));
}

fn expect_fields(fields: &[Field<'_>], head: &HttpHead<'_>, options: CheckOptions) {
    assert!(fields.len() <= FIELDS_MAX);
    for field in fields {
        let Value::Text(value) = field.value else { panic!("{field:?} is no text") };
        let is_own =
            |name: &[u8]| name.strip_prefix(PREFIX).is_some_and(|name| is_same_name(name, field.name));
        let mut own = head.headers().filter(|(name, _)| is_own(name)).map(|(_, value)| value);
        assert!(!value.is_empty(), "{field:?} has no value");
        if own.any(|own| own == value) {
            continue;
        }
        if field.name == b"page" && head.path.windows(value.len()).any(|part| part == value) {
            continue;
        }
        assert_eq!(options.deny, StatusCode::TOO_MANY_REQUESTS, "{field:?} is in no header of ours");
        match field.name {
            b"source" => {
                let last = head.all("x-forwarded-for").next_back().unwrap();
                assert!(last.ends_with(value) && !value.contains(&b','), "{field:?} is not the last address");
            }
            b"website" => assert_eq!(Some(value), head.header("x-forwarded-host")),
            b"method" => assert_eq!(Some(value), head.header("x-forwarded-method")),
            b"page" => assert!(head.header("x-forwarded-uri").unwrap().starts_with(value)),
            _ => panic!("{field:?} is in no header"),
        }
    }
}

/// Whatever the answer, a proxy may copy its headers into the next check.
fn expect_answers(options: CheckOptions) {
    let verdicts =
        [Verdict::Pass, Verdict::Delay(Duration::from_secs(7)), Verdict::Deny { retry_after_s: 3 }];
    for verdict in verdicts {
        let refusal = options.refusal(verdict);
        assert_eq!(refusal.is_some(), verdict.wait() > options.max_delay);
        let verdict = refusal.unwrap_or(verdict);
        assert_ne!(verdict, Verdict::Deny { retry_after_s: 0 });
        let (slo, key) = (SloId::DEFAULT, Key::from_bits(7));
        let judged = Judged {
            slo,
            key,
            verdict,
            remaining: 1,
            cost: 1,
            is_dry_run: false,
            ends: Ends::InFlight,
            assurance: Assurance::NONE,
        };
        let decision = Decision::of(&[judged], 1, Timestamp::from_millis(90_000));
        let (mut out, date, mut reported) = (Vec::new(), Date::at(Timestamp::default()), None);
        nginx::answer(&Reply::to(&decision), options, KeySecret::KNOWN, None, |status| {
            reported = Some(status);
            HttpAnswer::begin(&mut out, Version::HTTP_11, status, &date, true)
        });
        let expected = if verdict.is_let_through() { StatusCode::NO_CONTENT } else { options.deny };
        assert_eq!(reported, Some(expected));
        let end = out.iter().position(|&byte| byte == b'\n').expect("a status line");
        let mut copied = [b"GET /check HTTP/1.1\r\n", &out[end + 1..]].concat();
        let mut room = HeaderSlots::default();
        let (head, _) =
            HttpHead::cut(&mut copied, &mut room).expect("an answer has headers").expect("it is whole");
        let ticket = nginx::ticket(&head).map(|text| Ticket::open(text, KeySecret::KNOWN).unwrap());
        assert_eq!(ticket, decision.ticket());
        assert_eq!(check_fields::fields(&head, options).count(), 0);
    }
}
