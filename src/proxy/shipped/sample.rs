//! HAProxy's expressions for the fields of a policy, and the rules that they need.

use crate::proxy::shipped::words::is_usual;

/// The maximum size of all copies of a URL in one query, besides all headers and variables of the operator, so that
/// the query fits HAProxy's frame of 16,380 bytes. A request has at most 15,360 bytes of headers: sent once each,
/// they fit anyway. A variable may contain any of them once more.
const URL_BYTES: usize = 8_192;
const HEADER_BYTES: usize = 7_168;

/// The fields of a URL, each with the additional copies of the URL that it needs.
const PATH: &str = "path";
const QUERY: &str = "query";
const URL: &str = "url";
const BASE: &str = "base";

/// Headers that are fields by their own name. Others begin with `x-`.
const HEADERS: [&str; 3] = ["user-agent", "referer", "origin"];

/// The text of HAProxy's configuration that gets a field. None for the usual fields, which the shipped files send, and
/// for a name that no argument can have.
pub(super) fn sample(name: &str) -> Option<String> {
    if is_usual(name) || !is_plain(name) {
        return None;
    }
    Some(match header(name) {
        // The whole header: `req.hdr` takes the part after its last comma, but an application reads the whole.
        Some(header) => format!("req.fhdr({header})"),
        None => match name.to_ascii_lowercase().as_str() {
            QUERY => QUERY.to_owned(),
            part @ (PATH | URL | BASE) => format!("var(txn.{part})"),
            _ => format!("var(txn.{})", variable(name)),
        },
    })
}

/// The client header of a field.
fn header(name: &str) -> Option<String> {
    let header = name.to_ascii_lowercase().replace('_', "-");
    (HEADERS.contains(&header.as_str()) || header.starts_with("x-")).then_some(header)
}

fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// The name of the variable that the operator sets.
fn variable(name: &str) -> String {
    name.replace('-', "_")
}

/// The rules below the shipped ones that refuse ambiguous requests, and set the variables of a URL.
pub(super) fn rules(fields: &[String]) -> String {
    let has = |name: &str| fields.iter().any(|field| field.eq_ignore_ascii_case(name));
    let mut rules = String::new();
    if has("method") {
        rules += METHODS;
    }
    let copies = usize::from(has(PATH) || has(QUERY)) + usize::from(has(URL)) + usize::from(has(BASE));
    let own: Vec<String> = own(fields).map(|name| variable(name)).collect();
    let is_crowded = copies > 1 || !own.is_empty();
    if is_crowded && copies > 0 {
        rules += &format!(
            "    # The question must fit one frame of HAProxy.\n    \
             http-request return status 414 if {{ url -m len gt {} }}\n",
            URL_BYTES / copies
        );
    }
    if has(PATH) || has(URL) || has(BASE) {
        rules += NORMAL_PATH;
    }
    if has(BASE) {
        rules += "    http-request set-var(txn.base) var(txn.path)\n    \
                  http-request set-var(txn.base) req.fhdr(host),host_only,lower,rtrim(.),concat(,txn.path) if slowlane_has_host\n";
    }
    if has(URL) {
        rules += "    http-request set-var(txn.url) var(txn.path)\n    \
                  http-request set-var(txn.query) query\n    \
                  http-request set-var(txn.url) var(txn.path),concat(?,txn.query) if { query -m len gt 0 }\n";
    }
    let headers: Vec<String> = fields
        .iter()
        .filter(|name| !is_usual(name) && is_plain(name))
        .filter_map(|name| header(name))
        .collect();
    if !headers.is_empty() {
        rules += "    # An application may read X_Api_Key as X-Api-Key (CGI, WSGI), and of a header that is sent twice the other one.\n";
    }
    let most = HEADER_BYTES / (headers.len() + own.len()).max(1);
    for header in &headers {
        rules += &without_underscores(header);
        rules += &format!("    http-request deny deny_status 400 if {{ req.fhdr_cnt({header}) gt 1 }}\n");
        if is_crowded {
            rules += &format!(
                "    http-request deny deny_status 400 if {{ req.fhdr({header}) -m len gt {most} }}\n"
            );
        }
    }
    for variable in own {
        rules +=
            &format!("    http-request deny deny_status 400 if {{ var(txn.{variable}) -m len gt {most} }}\n");
    }
    rules
}

/// The rule that removes a header's other spellings: for each dash, those whose first underscore is there.
fn without_underscores(header: &str) -> String {
    let spelling =
        |(at, _): (usize, &str)| format!("{}_{}", &header[..at], header[at + 1..].replace('-', "[-_]"));
    let spellings: Vec<String> = header.match_indices('-').map(spelling).collect();
    match spellings.is_empty() {
        true => String::new(),
        false => format!("    http-request del-header ^({})$ -m reg\n", spellings.join("|")),
    }
}

/// Comments that name the variables that the operator must set.
pub(super) fn variables(fields: &[String]) -> String {
    let comment = |name: &String| {
        let variable = variable(name);
        format!(
            "    # The field {name}: set txn.{variable} in your frontend, above the rules of slowlane, from what the client cannot choose.\n    \
             # From a header of the client: http-request set-var(txn.{variable}) req.fhdr(...), and refuse it twice: fhdr_cnt(...) gt 1.\n"
        )
    };
    own(fields).map(comment).collect()
}

/// The fields that the operator must set.
fn own(fields: &[String]) -> impl Iterator<Item = &String> {
    let is_url = |name: &str| [PATH, QUERY, URL, BASE].iter().any(|part| part.eq_ignore_ascii_case(name));
    let is_own =
        move |name: &&String| !is_usual(name) && is_plain(name) && header(name).is_none() && !is_url(name);
    fields.iter().filter(is_own)
}

/// Methods that programs know. Each invented one would otherwise get its own bucket.
const METHODS: &str = "    # The policy uses the method, and a client can make up as many as it likes.\n    \
    http-request return status 405 hdr Allow \"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\" unless { method GET HEAD POST PUT PATCH DELETE OPTIONS }\n";

const NORMAL_PATH: &str = r"    # The path as applications read it: decoded, without parameters and doubled slashes, in lower case. Write your maps
    # like that. What programs read in different ways is refused: dots, backslashes, NUL, a fragment, wrong escapes.
    http-request deny deny_status 400 if { url -m sub '#' } || { path -m sub %00 }
    http-request set-var(txn.path) path,url_dec,regsub(;[^/]*,,g),regsub(/+,/,g),lower
    http-request deny deny_status 400 if !{ var(txn.path) -m found }
    http-request set-var(txn.path) str(/) if { var(txn.path) -m len 0 }
    http-request deny deny_status 400 if { var(txn.path) -m reg '\\|(^|/)\.\.?(/|$)' }
";
