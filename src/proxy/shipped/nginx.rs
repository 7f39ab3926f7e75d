//! The files shipped for nginx: a complete configuration, and the two parts to add to an existing one.

use std::time::Duration;

use serde_json::{Value, json};

use crate::proxy::shipped::template::fill;
use crate::proxy::shipped::{File, NAME, Places, Unprintable, agent, is_usual, word};
use slowlane_core::base::shown;

const FILES: [(&str, &str); 3] = [
    ("nginx.conf", include_str!("../../../nginx/nginx.conf")),
    ("slowlane-upstream.conf", include_str!("../../../nginx/slowlane-upstream.conf")),
    ("slowlane.conf", include_str!("../../../nginx/slowlane.conf")),
];

const TEMPLATE: &str = include_str!("nginx.mustache");

/// The longest delay that the shipped files allow, with a second to spare.
const DELAY_SHIPPED: Duration = Duration::from_secs(10);

pub const LISTEN: &str = "8080";

/// The files, with the complete configuration first.
///
/// ```
/// use slowlane::proxy::shipped::Places;
/// use slowlane::proxy::shipped::nginx::{LISTEN, files};
/// let agent = "unix:/run/slowlane/http.sock".parse().unwrap();
/// let files = files(&Places::shipped(&agent, LISTEN)).unwrap();
/// assert!(files[1].text.contains("    server unix:/run/slowlane/http.sock max_fails"));
/// ```
///
/// # Errors
/// A word cannot be written to nginx's files.
pub fn files(places: &Places<'_>) -> Result<Vec<File>, Unprintable> {
    let (from, to) = (shipped(), values(places)?);
    Ok(FILES.map(|(name, text)| File { name, text: fill(text, TEMPLATE, &from, &to) }).into())
}

/// The values of the shipped files.
fn shipped() -> [Value; 1] {
    let agent = "127.0.0.1:9001".parse().expect("it is an address");
    values(&Places::shipped(&agent, LISTEN)).expect("they are words")
}

/// The values for the template.
fn values(places: &Places<'_>) -> Result<[Value; 1], Unprintable> {
    let longest_s = places.delay_max.max(DELAY_SHIPPED).as_millis().div_ceil(1_000) + 1;
    let own = || places.fields.iter().filter(|name| !is_usual(name)).map(|name| (name, variable(name)));
    let uses =
        |part: &str| own().any(|(_, variable)| variable.is_some_and(|variable| variable.contains(part)));
    let values = own().map(|(name, variable)| {
        let variable = variable.as_deref();
        let passed = variable.and_then(|variable| variable.strip_prefix("$http_"));
        json!({
            "name": shown(name),
            "header": name.replace('_', "-"),
            "variable": variable,
            "passed": passed.map(|header| header.replace('_', "-")),
            "is_of_operator": variable.is_some_and(|variable| variable.starts_with("$slowlane_of_")),
        })
    });
    Ok([json!({
        "agent": agent(places.agent, "unix:")?,
        "listen": word(places.listen)?,
        "app": word(places.app)?,
        "longest_s": longest_s.to_string(),
        "timeout_s": (longest_s + 1).to_string(),
        "ratelimit": places.ratelimit,
        "tls": places.tls.is_some(),
        "tls_name": places.tls.map_or(Ok(NAME), |tls| word(tls.name))?,
        "has_certificate": places.tls.is_some_and(|tls| tls.has_certificate),
        "has_method": places.fields.iter().any(|field| field.eq_ignore_ascii_case("method")),
        "has_path": uses("$slowlane_path"),
        "has_page": uses("$slowlane_page"),
        "has_query": uses("$slowlane_query"),
        "has_search": uses("$slowlane_search"),
        "own": values.collect::<Vec<_>>(),
    })])
}

/// nginx's variables that hold a field, as one string. `None` if the name does not fit in a variable's name.
fn variable(name: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let word = name.to_ascii_lowercase().replace('-', "_");
    Some(match word.as_str() {
        word if !word.chars().all(is_plain) => return None,
        "path" | "query" | "page" => format!("$slowlane_{word}"),
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
    use crate::proxy::shipped::{ProxyTls, template::parts};

    #[test]
    fn every_place_is_in_a_shipped_file() {
        let all = FILES.map(|(_, text)| text).concat();
        for part in parts(TEMPLATE, &shipped()) {
            assert!(all.contains(&part), "{part:?}");
        }
        for place in ["server 127.0.0.1:9001 max_fails", "listen 8080;", "server 127.0.0.1:8000;"] {
            assert!(all.contains(place), "{place:?}");
        }
    }

    #[test]
    fn over_tls_the_longest_delay_and_the_quota_are_asked_for_too() {
        let (agent, delay_max) = ("127.0.0.1:9001".parse().unwrap(), Duration::from_secs(40));
        let tls = Some(ProxyTls { name: NAME, has_certificate: true });
        let places = Places { tls, delay_max, ratelimit: true, ..Places::shipped(&agent, LISTEN) };
        let [.., attached] = &files(&places).unwrap()[..] else { panic!("no file") };
        assert!(attached.text.contains("proxy_pass https://slowlane/check?max_delay=41s&ratelimit=on;"));
    }
}
