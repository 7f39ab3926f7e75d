//! HAProxy's expressions for the fields of a policy.

use crate::proxy::shipped::words::is_usual;

/// The text of HAProxy's configuration that gets a field. None for the usual fields, which the shipped files send, and
/// for a name that no argument can have.
pub(super) fn sample(name: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if is_usual(name) || !name.chars().all(is_plain) {
        return None;
    }
    let header = name.to_ascii_lowercase().replace('_', "-");
    Some(match header.as_str() {
        "path" | "query" | "url" | "base" => header,
        // All of the header: `req.hdr` takes the part behind its last comma, which is not what an application reads.
        "user-agent" | "referer" | "origin" => format!("req.fhdr({header})"),
        header if header.starts_with("x-") => format!("req.fhdr({header})"),
        header => format!("req.fhdr(x-{header})"),
    })
}
