//! The name of a key: the fields and values that it is made of, safe to show.

use slowlane_core::base::host::in_one_form;
use slowlane_core::base::network::Network;
use slowlane_core::base::request::{Request, Value};
use slowlane_core::base::shown::shown;
use slowlane_core::base::slo_id::SloId;
use slowlane_core::policy::{Batch, Policy};

/// Longer values are cut.
const SHOWN_BYTES_MAX: usize = 100;

/// A value as it is shown. Spaces are escaped, so that one value never looks like two.
fn word(value: &[u8]) -> String {
    let (begin, dots) = match value.split_at_checked(SHOWN_BYTES_MAX) {
        Some((begin, [_, ..])) => (begin, "..."),
        _ => (value, ""),
    };
    shown(begin).replace(' ', "\\u{20}") + dots
}

/// The fields of a request that make up its key.
pub(super) fn name(policy: &Policy, slo: SloId, request: &Request<'_>) -> Box<str> {
    let mut name = String::new();
    let mut given = 0;
    let mut batch = Batch::of(policy);
    batch.push(request);
    batch.facts(0, slo, |fact| {
        if !fact.in_key {
            return;
        }
        given += 1;
        if !name.is_empty() {
            name.push(' ');
        }
        name += &word(fact.name.as_bytes());
        name.push('=');
        match fact.value {
            Value::Text(text) | Value::NoHost(text) => name += &word(text),
            Value::Name(host) => name += &word(&host.to_ascii_lowercase()),
            Value::Base { text, path } => {
                name += &word(&in_one_form(&text[..path], &text[path..]).unwrap_or_default());
            }
            Value::Number(number) => name += &number.to_string(),
            Value::Address(address) => {
                name += &Network::of(address, fact.prefix.unwrap_or(u8::MAX)).to_string()
            }
        }
    });
    if given < policy.key_fields(slo).count() {
        name += if given > 0 { " (the rest absent)" } else { "(absent)" };
    } else if given == 0 {
        name += "(all)";
    }
    name.into()
}
