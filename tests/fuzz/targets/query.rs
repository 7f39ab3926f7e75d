//! Any text as a query: its fields are bounded, and read back as they were written.

use slowlane_core::base::{FIELDS_MAX, Query, Request, Value, query::written};

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let query = Query::read(&text);
    let fields = fields(&query.request());
    assert!(fields.len() <= FIELDS_MAX);
    assert!(fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= text.len());
    assert!(fields.iter().all(|(_, value)| !value.is_empty()), "a field without a value");

    let again = written(fields);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:%=&".contains(&byte);
    assert!(again.bytes().all(is_plain), "{again}");
    assert_eq!(Query::read(&again), query);

    // The bytes themselves as a value.
    if !bytes.is_empty() {
        let query = Query::read(&written([("website", bytes)]));
        assert_eq!(query.request().get(b"website"), Some(Value::Text(bytes)));
        assert_eq!(query.request().fields().count(), 1);
    }
}

fn fields(request: &Request<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let text = |value| match value {
        Value::Text(text) => text.to_vec(),
        value => panic!("{value:?} is no text"),
    };
    request.fields().map(|field| (field.name.to_vec(), text(field.value))).collect()
}
