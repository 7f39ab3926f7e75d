//! The files shipped for nginx: a complete configuration, and the two parts to add to an existing one.

use crate::base::address::Address;
use crate::proxy::shipped::words::{File, WordError, agent, fill, word};

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
    /// Whether to send quotas to clients.
    pub ratelimit: bool,
}

pub const LISTEN: &str = "8080";
pub const APP: &str = "127.0.0.1:8000";

/// The files; the complete one comes first.
///
/// ```
/// use slowlane::proxy::shipped::nginx::{APP, LISTEN, Places, files};
/// let agent = "unix:/run/slowlane/http.sock".parse().unwrap();
/// let files = files(&Places { agent: &agent, listen: LISTEN, app: APP, ratelimit: false }).unwrap();
/// assert!(files[1].text.contains("    server unix:/run/slowlane/http.sock;"));
/// ```
pub fn files(places: &Places<'_>) -> Result<Vec<File>, WordError> {
    let agent = agent(places.agent, "unix:")?;
    let listen = format!("listen {};", word(places.listen)?);
    let tells = if places.ratelimit { &TELLING[..] } else { &[] };
    let places = [("127.0.0.1:9001", agent.as_str()), ("listen 8080;", &listen), (APP, word(places.app)?)];
    let places = [&places[..], tells].concat();
    Ok(FILES.iter().map(|&(name, text)| File { name, text: fill(text, &places) }).collect())
}

/// Replacements that enable quotas for clients: commented lines, and the query that asks for the quota.
const TELLING: [(&str, &str); 4] = [
    ("# auth_request_set $slowlane_ratelimit", "auth_request_set $slowlane_ratelimit"),
    ("# auth_request_set $slowlane_policy", "auth_request_set $slowlane_policy"),
    ("# add_header RateLimit", "add_header RateLimit"),
    ("/check?max_delay=6s;", "/check?max_delay=6s&ratelimit=on;"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_in_a_shipped_file() {
        let all = FILES.map(|(_, text)| text).concat();
        for (place, _) in TELLING {
            assert!(all.contains(place), "{place:?}");
        }
        for place in ["server 127.0.0.1:9001 max_fails", "listen 8080;", "server 127.0.0.1:8000;"] {
            assert!(all.contains(place), "{place:?}");
        }
    }
}
