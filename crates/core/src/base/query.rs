//! A query that describes a request: `source=192.0.2.1&website=shop.example`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

use crate::base::{FIELDS_MAX, Request, Value};

/// Bytes to escape, like `&` as `%26`: all but letters, digits and `-._~:`, because other bytes may have a special
/// meaning to a program that reads the query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// Writes names and values as a query.
///
/// ```
/// use slowlane_core::base::query::written;
/// assert_eq!(written([("source", "2001:db8::1"), ("website", "a&b")]), "source=2001:db8::1&website=a%26b");
/// ```
pub fn written<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: impl IntoIterator<Item = (N, V)>) -> String {
    let mut query = String::new();
    for (name, value) in fields {
        if !query.is_empty() {
            query.push('&');
        }
        query.extend(percent_encode(name.as_ref(), ESCAPED));
        query.push('=');
        query.extend(percent_encode(value.as_ref(), ESCAPED));
    }
    query
}

/// The fields of a query, decoded. Fields without a value are dropped, as are fields beyond [`FIELDS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query(pub Vec<(Vec<u8>, Vec<u8>)>);

impl Query {
    pub fn read(query: &str) -> Query {
        // An empty value, like an empty header, means that the proxy did not know the field.
        let pairs =
            query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(_, value)| !value.is_empty());
        let decoded = |text: &str| percent_decode(text.replace('+', " ").as_bytes()).collect::<Vec<u8>>();
        Query(pairs.take(FIELDS_MAX).map(|(name, value)| (decoded(name), decoded(value))).collect())
    }

    pub fn request(&self) -> Request<'_> {
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
        let query =
            Query::read("source=192.0.2.1&website=caf%C3%A9+%2B%26%3D.example&owner=&x&a=b=c&%00=%1b%zz");
        let request = query.request();
        assert_eq!(request.get(b"source"), Some(Value::Text(b"192.0.2.1")));
        assert_eq!(request.get(b"website"), Some(Value::Text("café +&=.example".as_bytes())));
        assert_eq!(request.get(b"a"), Some(Value::Text(b"b=c")));
        assert_eq!(request.get(b"\0"), Some(Value::Text(b"\x1b%zz")));
        assert_eq!(request.fields().count(), 4);
        // Fields without a value do not count towards the limit.
        let after = "empty=&".repeat(FIELDS_MAX) + "website=x";
        assert_eq!(Query::read(&after).request().get(b"website"), Some(Value::Text(b"x")));
    }

    proptest! {
        #[test]
        fn any_query_is_taken(query in "[ -~]{0,300}") {
            prop_assert!(Query::read(&query).request().fields().count() <= FIELDS_MAX);
        }

        #[test]
        fn a_query_reads_back_as_it_was_written(
            fields in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 1..9), prop::collection::vec(any::<u8>(), 1..9)),
                0..9,
            ),
        ) {
            prop_assert_eq!(Query::read(&written(fields.clone())), Query(fields));
        }
    }
}
