//! A line of the decision log: JSON in ASCII, whatever text clients send.

use std::fmt::{self, Write};

use slowlane_core::base::{BlockedBy, Decision, Ruling, Utc, Value, Verdict, counted, is_same_name};

/// The maximum number of characters of a field's name or value to log, so that clients cannot fill the disk.
const VALUE_CHARS_MAX: usize = 200;

/// Appends a line. Fails only if writing to a `String` fails, which never happens.
pub(super) fn write_line<'a>(
    line: &mut String,
    decision: &Decision,
    rate: u32,
    fields: impl Iterator<Item = (&'a [u8], Value<'a>)>,
) -> fmt::Result {
    let Ruling { verdict, slo, key, remaining, cost, at } = **decision;
    write!(line, "{{\"time\":\"{}\",\"verdict\":\"{}\"", Utc(at), verdict.name())?;
    match verdict {
        Verdict::Pass => {}
        Verdict::Delay(_) => write!(line, ",\"delay_ms\":{}", verdict.delay_ms())?,
        Verdict::Deny { retry_after_s } => write!(line, ",\"retry_after_s\":{retry_after_s}")?,
    }
    match decision.blocked().map(|blocked| blocked.by) {
        None => {}
        Some(BlockedBy::Operator(_)) => line.push_str(",\"blocked_by\":\"operator\""),
        Some(BlockedBy::Slo(_)) => line.push_str(",\"blocked_by\":\"slo\""),
    }
    write!(line, ",\"slo\":{},\"key\":\"{key}\",\"rate\":{rate}", slo.number())?;
    if let Some(remaining) = counted(remaining) {
        write!(line, ",\"remaining\":{remaining}")?;
    }
    write!(line, ",\"cost\":{cost}")?;
    for (number, judged) in decision.dry_runs().enumerate() {
        let start = if number == 0 { ",\"dry_run\":{" } else { "," };
        write!(line, "{start}\"{}\":\"{}\"", judged.slo.number(), judged.verdict.name())?;
    }
    if decision.dry_runs().next().is_some() {
        line.push('}');
    }
    line.push_str(",\"fields\":{");
    let mut names: Vec<&[u8]> = Vec::new();
    for (name, value) in fields {
        // If several fields have the same name, only the first is logged.
        if names.iter().any(|known| is_same_name(known, name)) {
            continue;
        }
        line.push_str(if names.is_empty() { "" } else { "," });
        names.push(name);
        // Names are logged with `_`, as in the policy, even if they come from headers, which have `-` instead.
        let reported: Vec<u8> = name.iter().map(|&byte| if byte == b'-' { b'_' } else { byte }).collect();
        write_text(line, &reported)?;
        line.push(':');
        match value {
            Value::Address(address) => write!(line, "\"{address}\"")?,
            Value::Network(network) => write!(line, "\"{network}\"")?,
            Value::Number(number) => write!(line, "{number}")?,
            Value::Text(text) | Value::Name(text) | Value::NoHost(text) | Value::Base { text, .. } => {
                write_text(line, text)?
            }
        }
    }
    line.push_str("}}\n");
    Ok(())
}

/// Appends text from a client as a JSON string in ASCII.
///
/// Quotes, control characters and non-ASCII characters are escaped. Invalid UTF-8 is replaced, and long text is cut.
fn write_text(line: &mut String, bytes: &[u8]) -> fmt::Result {
    // A character has at most four bytes, so these bytes suffice.
    let is_cut = bytes.len() > VALUE_CHARS_MAX * 4;
    let text = String::from_utf8_lossy(if is_cut { &bytes[..VALUE_CHARS_MAX * 4] } else { bytes });
    line.push('"');
    let mut chars = text.chars();
    for c in chars.by_ref().take(VALUE_CHARS_MAX) {
        match c {
            '"' | '\\' => write!(line, "\\{c}")?,
            ' '..='~' => line.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(line, "\\u{unit:04x}")?;
                }
            }
        }
    }
    if is_cut || chars.next().is_some() {
        line.push_str("...");
    }
    line.push('"');
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use slowlane_core::base::{Assurance, Blocked, Ends, Judged, Key, SloId, Timestamp};

    pub(in crate::observe::decision_log) const DELAY: Verdict = Verdict::Delay(Duration::from_micros(1_500));

    pub(in crate::observe::decision_log) fn decision(verdict: Verdict, is_dry_run: bool) -> Decision {
        let (slo, key) = (SloId::new(3001).unwrap(), Key::from_bits(255));
        let judged = Judged {
            slo,
            key,
            verdict,
            remaining: 4,
            cost: 1,
            is_dry_run,
            ends: Ends::Never,
            assurance: Assurance::NONE,
        };
        Decision::of(&[judged], 2, Timestamp::from_millis(1_793_267_709_123))
    }

    fn line<'a>(
        decision: &Decision,
        rate: u32,
        fields: impl Iterator<Item = (&'a [u8], Value<'a>)>,
    ) -> String {
        let mut line = String::new();
        write_line(&mut line, decision, rate, fields).unwrap();
        line
    }

    #[test]
    fn a_line_has_all_facts_of_a_decision() {
        let address = Value::address("2001:db8::1".parse().unwrap());
        let fields: [(&[u8], Value<'_>); 6] = [
            (b"source", address),
            (b"cost", Value::Number(-2)),
            (b"a\"b", Value::Text(b"\x1b]0;\xff\n\\")),
            (b"cost", Value::Number(3)),
            (b"api-key", Value::Text(b"k")),
            (b"api_key", Value::Text(b"another spelling")),
        ];
        let line = line(&decision(DELAY, false), 52, fields.into_iter());
        let want = concat!(
            r#"{"time":"2026-10-29T09:55:09.123Z","verdict":"delay","delay_ms":2,"slo":3001,"#,
            r#""key":"00000000000000FF","rate":52,"remaining":4,"cost":2,"#,
            r#""fields":{"source":"2001:db8::1","cost":-2,"a\"b":"\u001b]0;\ufffd\u000a\\","api_key":"k"}}"#,
            "\n"
        );
        assert_eq!(line, want);
        let of = |decision| self::line(&decision, 0, std::iter::empty());
        assert!(
            of(decision(Verdict::Deny { retry_after_s: 3 }, false))
                .contains(r#""verdict":"deny","retry_after_s":3,"slo""#)
        );
        let mut blocked = decision(Verdict::Deny { retry_after_s: 3 }, false);
        blocked.set_blocked(Some(Blocked { by: BlockedBy::Operator(1), until: Timestamp::default() }));
        assert!(of(blocked).contains(r#""retry_after_s":3,"blocked_by":"operator","slo""#));
        assert!(of(decision(DELAY, true)).contains(r#""verdict":"pass","slo":3001"#));
        assert!(of(decision(DELAY, true)).contains(r#","dry_run":{"3001":"delay"},"fields":{}}"#));
    }

    proptest! {
        /// JSON readers get the original text back, and terminals get no control characters.
        #[test]
        fn any_text_is_one_plain_line_of_json(bytes in prop::collection::vec(any::<u8>(), 0..1200), text in "\\PC{0,300}") {
            for bytes in [&bytes[..], text.as_bytes()] {
                let mut line = String::new();
                write_text(&mut line, bytes).unwrap();
                prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
                let read: String = serde_json::from_str(&line).unwrap();
                let whole = String::from_utf8_lossy(bytes);
                match read.strip_suffix("...").filter(|_| read != whole) {
                    Some(cut) => prop_assert_eq!(cut.chars().count(), VALUE_CHARS_MAX),
                    None => prop_assert_eq!(read, whole),
                }
            }
        }

        #[test]
        fn a_whole_line_is_json_whatever_its_fields_are(
            fields in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..9), prop::collection::vec(any::<u8>(), 0..9)), 0..9),
        ) {
            let fields = fields.iter().map(|(name, value)| (&name[..], Value::Text(value)));
            let line = line(&decision(DELAY, true), 1, fields);
            let read: serde_json::Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(&read["slo"], 3001);
            prop_assert_eq!(line.matches('\n').count(), 1);
        }
    }
}
