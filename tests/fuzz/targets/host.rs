//! Any text as a website: read once it has one form, and a policy finds every spelling of it, or refuses it.

use std::io;
use std::path::Path;

use slowlane_core::base::{Host, Request, Value, canonical, host::NAME_BYTES_MAX};
use slowlane_core::policy::{Layout, Policy};

use super::input::texts;

/// Two texts: the website of a request, and the key of a map.
pub fn run(bytes: &[u8]) {
    let [website, key] = texts(bytes);
    let form = form(website);
    if let Some(form) = &form {
        assert!(form.len() <= NAME_BYTES_MAX, "{form:?}");
        assert_eq!(self::form(form).as_ref(), Some(form), "the form is a spelling of itself");
        assert!(!form.iter().any(|byte| byte.is_ascii_uppercase() || b" \t\r\n,/[]%@\0".contains(byte)));
    }
    // A star in the middle is an error of the map, and a byte order mark at its beginning is not part of a key.
    let is_key = !key.is_empty()
        && ![&b"#"[..], b"\xEF\xBB\xBF"].iter().any(|start| key.starts_with(start))
        && !key.iter().any(|byte| b" \t\r\n\0*".contains(byte));
    if !is_key || website.is_empty() {
        return;
    }
    let map = [key, b" 2001\n"].concat();
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(b"0 burst=1 rate=1/s\n2001 burst=1 rate=1/s\n".to_vec()),
        Some("website.map") => Ok(map.clone()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    let mut request = Request::new();
    request.push(b"website", Value::Text(website));
    let case = policy.cases(&request).list[0];
    let is_refused = case.slo.objective.rate.is_zero();
    assert_eq!(is_refused, form.is_none(), "what is no host is refused, and nothing else");
    if form.is_some() {
        assert_eq!(case.slo.id.number() == 2001, form == self::form(key));
    }
}

/// The one form of a host.
fn form(text: &[u8]) -> Option<Vec<u8>> {
    Some(match Host::read(text)? {
        Host::Name { name, is_lower } => {
            let lower = name.to_ascii_lowercase();
            assert_eq!(is_lower, lower == name);
            lower
        }
        Host::Ipv6(address) => canonical(address.into()).to_string().into_bytes(),
    })
}
