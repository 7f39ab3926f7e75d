//! A query that describes a request: `source=192.0.2.1&website=shop.example`.

use percent_encoding::percent_decode;

use crate::base::request::{FIELDS_MAX, Request, Value};

/// The fields of a query, decoded. More than a request carries are left out.
pub(super) struct Asked(Vec<(Vec<u8>, Vec<u8>)>);

impl Asked {
    pub(super) fn of(query: &str) -> Asked {
        // An empty value is a field that the proxy knew nothing of, as an empty header is.
        let pairs =
            query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(_, value)| !value.is_empty());
        let decoded = |text: &str| percent_decode(text.replace('+', " ").as_bytes()).collect::<Vec<u8>>();
        Asked(pairs.take(FIELDS_MAX).map(|(name, value)| (decoded(name), decoded(value))).collect())
    }

    pub(super) fn request(&self) -> Request<'_> {
        let mut request = Request::new();
        for (name, value) in &self.0 {
            request.push(name, Value::Text(value));
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_query_is_fields() {
        let asked =
            Asked::of("source=192.0.2.1&website=caf%C3%A9+%2B%26%3D.example&owner=&x&a=b=c&%00=%1b%zz");
        let request = asked.request();
        assert_eq!(request.get(b"source"), Some(Value::Text(b"192.0.2.1")));
        assert_eq!(request.get(b"website"), Some(Value::Text("café +&=.example".as_bytes())));
        assert_eq!(request.get(b"a"), Some(Value::Text(b"b=c")));
        assert_eq!(request.get(b"\0"), Some(Value::Text(b"\x1b%zz")));
        assert_eq!(request.fields().count(), 4);
        // What has no value takes the place of nothing that has one.
        let after = "empty=&".repeat(FIELDS_MAX) + "website=x";
        assert_eq!(Asked::of(&after).request().get(b"website"), Some(Value::Text(b"x")));
    }

    proptest! {
        #[test]
        fn any_query_is_taken(query in "[ -~]{0,300}") {
            prop_assert!(Asked::of(&query).request().fields().count() <= FIELDS_MAX);
        }
    }
}
