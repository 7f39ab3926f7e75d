//! The files shipped for nginx: a complete configuration, and the two parts to add to an existing one.

use std::time::Duration;

use crate::proxy::shipped::tls::Tls;
use crate::proxy::shipped::words::{File, WordError, agent, fill, is_usual, word};
use slowlane_core::base::address::Address;
use slowlane_core::base::shown::shown;

const FILES: [(&str, &str); 3] = [
    ("nginx.conf", include_str!("../../../nginx/nginx.conf")),
    ("slowlane-upstream.conf", include_str!("../../../nginx/slowlane-upstream.conf")),
    ("slowlane.conf", include_str!("../../../nginx/slowlane.conf")),
];

/// The operator's own values in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places<'a> {
    /// The address of slowlane's HTTP check.
    pub agent: &'a Address,
    /// The address that nginx listens on.
    pub listen: &'a str,
    /// The address of the application.
    pub app: &'a str,
    /// How to speak TLS with slowlane. None: not at all.
    pub tls: Option<Tls<'a>>,
    /// Whether to send quotas to clients.
    pub ratelimit: bool,
    /// The longest delay of the policy.
    pub delay_max: Duration,
    /// The fields that the policy uses. The usual ones are always sent.
    pub fields: &'a [String],
}

/// The longest delay that the shipped files allow, with a second to spare.
pub const DELAY_SHIPPED: Duration = Duration::from_secs(10);

pub const LISTEN: &str = "8080";
pub const APP: &str = "127.0.0.1:8000";

/// The files; the complete one comes first.
///
/// ```
/// use slowlane::proxy::shipped::nginx::{APP, DELAY_SHIPPED, LISTEN, Places, files};
/// let agent = "unix:/run/slowlane/http.sock".parse().unwrap();
/// let places = Places {
///     agent: &agent, listen: LISTEN, app: APP, tls: None, ratelimit: false, delay_max: DELAY_SHIPPED, fields: &[],
/// };
/// let files = files(&places).unwrap();
/// assert!(files[1].text.contains("    server unix:/run/slowlane/http.sock max_fails"));
/// ```
///
/// # Errors
/// A word cannot be written into nginx's files.
pub fn files(places: &Places<'_>) -> Result<Vec<File>, WordError> {
    let agent = agent(places.agent, "unix:")?;
    let listen = format!("listen {};", word(places.listen)?);
    let reports = if places.ratelimit { &RATELIMIT[..] } else { &[] };
    let seconds = places.delay_max.max(DELAY_SHIPPED).as_millis().div_ceil(1_000) + 1;
    let query = if places.ratelimit { "&ratelimit=on" } else { "" };
    let (asks, waits) =
        (format!("/check?max_delay={seconds}s{query};"), format!("proxy_read_timeout    {}s;", seconds + 1));
    let name = places.tls.map_or(Ok(""), |tls| word(tls.name))?;
    let name = format!("proxy_ssl_name                {name};");
    let ssl = match places.tls {
        None => Vec::new(),
        Some(tls) if tls.has_certificate => [&[(SSL_NAME, name.as_str())], &SSL[..], &SSL_OWN].concat(),
        Some(_) => [&[(SSL_NAME, name.as_str())], &SSL[..]].concat(),
    };
    let (headers, unfit, maps) = (headers(places.fields), unfit(places.fields), maps(places.fields));
    let (attach, passed) = (attach(places.fields), passed(places.fields));
    let places = [
        ("127.0.0.1:9001", agent.as_str()),
        ("listen 8080;", &listen),
        (APP, word(places.app)?),
        (ASKS, &asks),
        (WAITS, &waits),
        (METHOD, &headers),
        (UNFIT, &unfit),
        (METHOD_MAP, &maps),
        (ATTACH, &attach),
        (HOST, &passed),
    ];
    let places = [&places[..], reports, &ssl].concat();
    Ok(FILES.iter().map(|&(name, text)| File { name, text: fill(text, &places) }).collect())
}

/// Replacements that enable quotas for clients: commented lines, and the query that asks for the quota.
const RATELIMIT: [(&str, &str); 3] = [
    ("# auth_request_set $slowlane_ratelimit", "auth_request_set $slowlane_ratelimit"),
    ("# auth_request_set $slowlane_policy", "auth_request_set $slowlane_policy"),
    ("# add_header RateLimit", "add_header RateLimit"),
];

const SSL_NAME: &str = "# proxy_ssl_name                slowlane.example;";

/// Replacements that turn TLS on and verify slowlane.
const SSL: [(&str, &str); 3] = [
    ("proxy_pass http://slowlane/", "proxy_pass https://slowlane/"),
    ("# proxy_ssl_verify ", "proxy_ssl_verify "),
    ("# proxy_ssl_trusted", "proxy_ssl_trusted"),
];

/// A replacement that lets nginx show its own certificate.
const SSL_OWN: [(&str, &str); 1] = [("# proxy_ssl_certificate", "proxy_ssl_certificate")];

const ASKS: &str = "/check?max_delay=11s;";
const WAITS: &str = "proxy_read_timeout    12s;";
const METHOD: &str = "    proxy_set_header X-Slowlane-Method  $slowlane_method;\n";

const UNFIT: &str = "map \"$slowlane_odd|$slowlane_owner\" $slowlane_unfit {";

/// The line with the values to check: a client may choose those of the policy's fields.
fn unfit(fields: &[String]) -> String {
    let own: Vec<String> = fields
        .iter()
        .filter(|name| !is_usual(name))
        .filter_map(|name| Some(format!("|{}", variable(name)?)))
        .collect();
    let odd = if has(fields, "method") { "$slowlane_odd_method" } else { "" };
    format!("map \"$slowlane_odd{odd}|$slowlane_owner{}\" $slowlane_unfit {{", own.concat())
}

fn has(fields: &[String], name: &str) -> bool {
    fields.iter().any(|field| field.eq_ignore_ascii_case(name))
}

const METHOD_MAP: &str = "    default $request_method;\n}\n";

/// The end of the map of the method, and the maps of what the policy uses beside it.
fn maps(fields: &[String]) -> String {
    let mut maps = METHOD_MAP.to_owned();
    if has(fields, "method") {
        maps += METHODS;
    }
    if has_path(fields) {
        maps += PATH;
    }
    for (name, pattern) in [("query", "^[^?#]*\\?([^#]*)"), ("search", "^[^?#]*(\\?[^#]+)")] {
        let used = format!("$slowlane_{name}");
        if fields.iter().filter_map(|field| variable(field)).any(|variable| variable.contains(&used)) {
            maps += "\n# What follows the path, as the client sent it.\n";
            maps +=
                &format!("map $request_uri {used} {{\n    default      \"\";\n    \"~{pattern}\" $1;\n}}\n");
        }
    }
    for name in fields.iter().filter(|name| !is_usual(name) && is_own(name)) {
        let variable = variable(name).expect("an operator's field has one");
        maps += &format!(
            "\n# The field {name}. Take it from a value that the client cannot choose, or check it.\n\
             map $host {variable} {{\n    default \"\";\n}}\n"
        );
    }
    maps
}

/// Whether a field is of the path, which only the request itself has: in the check, `$uri` is the address of the check.
fn has_path(fields: &[String]) -> bool {
    let path = |field: &String| variable(field).is_some_and(|variable| variable.contains("$slowlane_path"));
    fields.iter().any(path)
}

const METHODS: &str = "
# The policy uses the method, and a client can make up as many as it likes: others are refused.
map $slowlane_method $slowlane_odd_method {
    default 1;
    GET     \"\";
    HEAD    \"\";
    POST    \"\";
    PUT     \"\";
    PATCH   \"\";
    DELETE  \"\";
    OPTIONS \"\";
}
";

const PATH: &str = "
# The path as nginx reads it: decoded, without dots and doubled slashes. slowlane.conf fixes it before the check has its own.
map $uri $slowlane_path {
    default $uri;
}
";

const ATTACH: &str = "auth_request     /slowlane-check;\n";

/// The line that attaches slowlane, with the one that fixes the path above it.
fn attach(fields: &[String]) -> String {
    let fixed = if has_path(fields) { "set $slowlane_fixed $slowlane_path;\n" } else { "" };
    format!("{fixed}{ATTACH}")
}

const HOST: &str = "            proxy_set_header Host              $http_host;\n";

/// The headers that the application gets: of one that is sent twice, only the value that slowlane counts.
fn passed(fields: &[String]) -> String {
    let mut lines = HOST.to_owned();
    for name in fields.iter().filter(|name| !is_usual(name)) {
        if let Some(variable) = variable(name).filter(|variable| variable.starts_with("$http_")) {
            let header = variable["$http_".len()..].replace('_', "-");
            lines += &format!("            proxy_set_header {header} {variable};\n");
        }
    }
    lines
}

/// The line of the method, and one for each field that only this policy uses.
fn headers(fields: &[String]) -> String {
    let mut lines = METHOD.to_owned();
    for name in fields.iter().filter(|name| !is_usual(name)) {
        lines += &match variable(name) {
            Some(variable) => {
                format!("    proxy_set_header X-Slowlane-{} {variable};\n", name.replace('_', "-"))
            }
            None => {
                format!("    # The policy uses the field {}: no header can have its name.\n", shown(name))
            }
        };
    }
    lines
}

/// The variables of nginx that have a field.
fn variable(name: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let word = name.to_ascii_lowercase().replace('-', "_");
    Some(match word.as_str() {
        word if !word.chars().all(is_plain) => return None,
        "path" | "query" => format!("$slowlane_{word}"),
        "url" => "$slowlane_path$slowlane_search".to_owned(),
        "base" => "$host$slowlane_path".to_owned(),
        "user_agent" | "referer" | "origin" => format!("$http_{word}"),
        word if word.starts_with("x_") => format!("$http_{word}"),
        word => format!("$slowlane_of_{word}"),
    })
}

/// Whether the operator sets the variable of a field.
fn is_own(name: &str) -> bool {
    variable(name).is_some_and(|variable| variable.starts_with("$slowlane_of_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_in_a_shipped_file() {
        let all = FILES.map(|(_, text)| text).concat();
        for place in [&RATELIMIT[..], &SSL, &SSL_OWN]
            .concat()
            .iter()
            .map(|(place, _)| *place)
            .chain([SSL_NAME, ASKS, WAITS, METHOD, UNFIT, METHOD_MAP, ATTACH, HOST])
        {
            assert!(all.contains(place), "{place:?}");
        }
        for place in ["server 127.0.0.1:9001 max_fails", "listen 8080;", "server 127.0.0.1:8000;"] {
            assert!(all.contains(place), "{place:?}");
        }
    }
}
