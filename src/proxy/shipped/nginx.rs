//! The files shipped for nginx: a complete configuration, and the two parts to add to an existing one.

use std::time::Duration;

use crate::proxy::shipped::tls::Tls;
use crate::proxy::shipped::words::{File, WordError, agent, fill, is_usual, word};
use slowlane_core::base::{Address, shown};

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
    /// The TLS settings for slowlane. None: no TLS.
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
    let seconds = places.delay_max.max(DELAY_SHIPPED).as_millis().div_ceil(1_000) + 1;
    let query = if places.ratelimit { "&ratelimit=on" } else { "" };
    let (asks, waits) =
        (format!("/check?max_delay={seconds}s{query};"), format!("proxy_read_timeout    {}s;", seconds + 1));
    let name = places.tls.map_or(Ok(""), |tls| word(tls.name))?;
    let name = format!("proxy_ssl_name                {name};");
    let own: Vec<Own<'_>> = places
        .fields
        .iter()
        .filter(|name| !is_usual(name))
        .map(|name| (name.as_str(), variable(name)))
        .collect();
    let has_method = places.fields.iter().any(|field| field.eq_ignore_ascii_case("method"));
    let (headers, unfit, maps) = (headers(&own), unfit(&own, has_method), maps(&own, has_method));
    let (attach, passed) = (attach(&own), passed(&own));
    let mut filled = vec![
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
    if places.ratelimit {
        filled.extend(RATELIMIT);
    }
    if let Some(tls) = places.tls {
        filled.push((SSL_NAME, &name));
        filled.extend(SSL);
        filled.extend(tls.has_certificate.then_some(SSL_OWN));
    }
    Ok(FILES.iter().map(|&(name, text)| File { name, text: fill(text, &filled) }).collect())
}

/// Replacements that enable quotas for clients: commented lines, and the parameter that requests the quota.
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

/// A replacement that makes nginx present its own certificate.
const SSL_OWN: (&str, &str) = ("# proxy_ssl_certificate", "proxy_ssl_certificate");

const ASKS: &str = "/check?max_delay=11s;";
const WAITS: &str = "proxy_read_timeout    12s;";
const METHOD: &str = "    proxy_set_header X-Slowlane-Method  $slowlane_method;\n";

const UNFIT: &str = "map \"$slowlane_odd|$slowlane_owner\" $slowlane_unfit {";

/// A field that only this policy uses, and its variable. None: no header can have its name.
type Own<'f> = (&'f str, Option<String>);

/// The fields that have a variable, each with its variable.
fn variables<'o>(own: &'o [Own<'_>]) -> impl Iterator<Item = (&'o str, &'o str)> {
    own.iter().filter_map(|(name, variable)| Some((*name, variable.as_deref()?)))
}

fn uses(own: &[Own<'_>], part: &str) -> bool {
    variables(own).any(|(_, variable)| variable.contains(part))
}

/// The line with the values to check: a client may choose those of the policy's fields.
fn unfit(own: &[Own<'_>], has_method: bool) -> String {
    let values: String = variables(own).map(|(_, variable)| format!("|{variable}")).collect();
    let odd = if has_method { "$slowlane_odd_method" } else { "" };
    format!("map \"$slowlane_odd{odd}|$slowlane_owner{values}\" $slowlane_unfit {{")
}

const METHOD_MAP: &str = "    default $request_method;\n}\n";

/// The end of the map of the method, and the maps of the other fields of the policy.
fn maps(own: &[Own<'_>], has_method: bool) -> String {
    let mut maps = METHOD_MAP.to_owned();
    if has_method {
        maps += METHODS;
    }
    if uses(own, PATH) {
        maps += PATH_MAP;
    }
    for (name, pattern) in [("query", "^[^?#]*\\?([^#]*)"), ("search", "^[^?#]*(\\?[^#]+)")] {
        let used = format!("$slowlane_{name}");
        if uses(own, &used) {
            maps += "\n# What follows the path, as the client sent it.\n";
            maps +=
                &format!("map $request_uri {used} {{\n    default      \"\";\n    \"~{pattern}\" $1;\n}}\n");
        }
    }
    for (name, variable) in variables(own).filter(|(_, variable)| variable.starts_with("$slowlane_of_")) {
        maps += &format!(
            "\n# The field {name}. Take it from a value that the client cannot choose, or check it.\n\
             map $host {variable} {{\n    default \"\";\n}}\n"
        );
    }
    maps
}

/// The variable of the path, which only the request itself has: in the check, `$uri` is the address of the check.
const PATH: &str = "$slowlane_path";

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

const PATH_MAP: &str = "
# The path as nginx reads it: decoded, without dots and doubled slashes. slowlane.conf fixes it before the check has its own.
map $uri $slowlane_path {
    default $uri;
}
";

const ATTACH: &str = "auth_request     /slowlane-check;\n";

/// The line that attaches slowlane, preceded by the one that sets the path.
fn attach(own: &[Own<'_>]) -> String {
    let fixed = if uses(own, PATH) { "set $slowlane_fixed $slowlane_path;\n" } else { "" };
    format!("{fixed}{ATTACH}")
}

const HOST: &str = "            proxy_set_header Host              $slowlane_host;\n";

/// The headers for the application: if a client sends one twice, it gets only the value that slowlane counts.
fn passed(own: &[Own<'_>]) -> String {
    let headers =
        variables(own).filter_map(|(_, variable)| Some((variable.strip_prefix("$http_")?, variable)));
    let lines = headers.map(|(header, variable)| {
        format!("            proxy_set_header {} {variable};\n", header.replace('_', "-"))
    });
    HOST.to_owned() + &lines.collect::<String>()
}

/// The line of the method, and one for each field that only this policy uses.
fn headers(own: &[Own<'_>]) -> String {
    let lines = own.iter().map(|(name, variable)| match variable {
        Some(variable) => format!("    proxy_set_header X-Slowlane-{} {variable};\n", name.replace('_', "-")),
        None => format!("    # The policy uses the field {}: no header can have its name.\n", shown(name)),
    });
    METHOD.to_owned() + &lines.collect::<String>()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_in_a_shipped_file() {
        let all = FILES.map(|(_, text)| text).concat();
        for place in [&RATELIMIT[..], &SSL, &[SSL_OWN]]
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
