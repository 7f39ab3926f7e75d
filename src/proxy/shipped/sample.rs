//! HAProxy's expressions for the fields of a policy, and the rules that they need.

use serde_json::{Value, json};

use crate::proxy::shipped::is_usual;
use slowlane_core::base::shown;

/// The maximum sizes, in one query, of all copies of the URL, and of all headers and the operator's variables together.
/// These limits keep the query within HAProxy's frame of 16,380 bytes. A request has at most 15,360 bytes of headers,
/// which fit if each is sent once; but a variable may repeat any header.
const URL_BYTES: usize = 8_192;
const HEADER_BYTES: usize = 7_168;

/// The fields that contain the URL or a part of it. `path` and `query` together count as one copy of the URL, `url` and
/// `base` count as one copy each.
const PATH: &str = "path";
const QUERY: &str = "query";
const URL: &str = "url";
const BASE: &str = "base";

/// The field by which `law=protect` distinguishes pages. No map is searched for it, so it needs none of the rules for a
/// path. It is truncated, to save room in the query.
pub(super) const PAGE: &str = "page";
const FIRST_SEGMENT: &str = "path,field(2,/),bytes(0,64)";

/// Headers that are fields under their own names. All other headers that are fields begin with `x-`.
const HEADERS: [&str; 3] = ["user-agent", "referer", "origin"];

/// The HAProxy expression that fetches a field. `None` for the usual fields, which the shipped files send, and for a
/// name that no argument can have.
pub(super) fn sample(name: &str) -> Option<String> {
    if is_usual(name) || !is_plain(name) {
        return None;
    }
    Some(match header(name) {
        // The whole header: `req.hdr` would take only the part after the last comma, but applications read all of it.
        Some(header) => format!("req.fhdr({header})"),
        None => match name.to_ascii_lowercase().as_str() {
            QUERY => QUERY.to_owned(),
            PAGE => FIRST_SEGMENT.to_owned(),
            part @ (PATH | URL | BASE) => format!("var(txn.{part})"),
            _ => format!("var(txn.{})", variable(name)),
        },
    })
}

/// The header of the client's request that holds a field. `None` for fields that are not headers.
fn header(name: &str) -> Option<String> {
    let header = name.to_ascii_lowercase().replace('_', "-");
    (HEADERS.contains(&header.as_str()) || header.starts_with("x-")).then_some(header)
}

fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// The name of the variable that the operator sets.
pub(super) fn variable(name: &str) -> String {
    name.replace('-', "_")
}

/// The template's values for these fields: their arguments, and the rules that they need.
pub(super) fn values(fields: &[String]) -> Value {
    let has = |name: &str| fields.iter().any(|field| field.eq_ignore_ascii_case(name));
    let copies = usize::from(has(PATH) || has(QUERY)) + usize::from(has(URL)) + usize::from(has(BASE));
    let named = |name: &String| json!({ "name": name, "variable": variable(name), "sample": sample(name) });
    let unusual = || fields.iter().filter(|name| !is_usual(name));
    let headers = unusual().filter(|name| is_plain(name)).filter_map(|name| header(name));
    let headers: Vec<Value> =
        headers.map(|header| json!({ "header": header, "spellings": spellings(&header) })).collect();
    let own: Vec<Value> = own(fields).map(named).collect();
    let is_crowded = copies > 1 || !own.is_empty();
    json!({
        "has_method": has("method"),
        "url_bytes": (is_crowded && copies > 0).then(|| URL_BYTES / copies),
        "has_path": has(PATH) || has(URL) || has(BASE),
        "has_base": has(BASE),
        "has_url": has(URL),
        "has_headers": !headers.is_empty(),
        "is_crowded": is_crowded,
        "most": HEADER_BYTES / (headers.len() + own.len()).max(1),
        "headers": headers,
        "own": own,
        "samples": unusual().filter(|name| is_plain(name)).map(named).collect::<Vec<_>>(),
        "unnamed": unusual().filter(|name| !is_plain(name)).map(shown).collect::<Vec<_>>(),
    })
}

/// Other spellings of a header, as a regular expression: for each dash, the spellings whose first underscore replaces
/// this dash.
fn spellings(header: &str) -> String {
    let spelling =
        |(at, _): (usize, &str)| format!("{}_{}", &header[..at], header[at + 1..].replace('-', "[-_]"));
    header.match_indices('-').map(spelling).collect::<Vec<_>>().join("|")
}

/// The fields whose variables the operator must set.
fn own(fields: &[String]) -> impl Iterator<Item = &String> {
    let is_url =
        |name: &str| [PATH, QUERY, URL, BASE, PAGE].iter().any(|part| part.eq_ignore_ascii_case(name));
    let is_own =
        move |name: &&String| !is_usual(name) && is_plain(name) && header(name).is_none() && !is_url(name);
    fields.iter().filter(is_own)
}
