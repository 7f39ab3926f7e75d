//! TLS on the listeners: served, attacked, and with files that change.

mod admin;
mod cluster;
mod files;
mod hostile;
mod proxies;
mod served;

use crate::support::slowlane::Slowlane;
use crate::support::tls::{Authority, Pair};

/// `slow.example` has 10/s and a burst of 1, so a second request waits 100 ms. `once.example` passes once an hour.
/// Others pass.
const POLICY: &[(&str, &str)] = &[
    ("slo.map", "0 rate=unlimited\n2001 burst=1 rate=10/s\n2002 burst=1 rate=1/h law=token-bucket\n"),
    ("website.map", "slow.example 2001\nonce.example 2002\n"),
];

/// A slowlane with TLS for proxies, the authority of its certificate, and the certificate.
struct Secured {
    slowlane: Slowlane,
    authority: Authority,
    pair: Pair,
}

impl Secured {
    /// Its TCP addresses for HAProxy and nginx have TLS. `more` follows in the config, as whole sections.
    fn start(spop: &str, more: &str) -> Secured {
        let authority = Authority::new("servers");
        let pair = authority.pair("server");
        let lines = pair.lines();
        let config = format!("[spop]\n{spop}\n[spop.tls]\n{lines}[http.tls]\n{lines}{more}");
        Secured { slowlane: Slowlane::with_config(POLICY, &config), authority, pair }
    }

    /// The same, where clients must show a certificate of this authority.
    fn for_clients_of(clients: &Authority, spop: &str) -> Secured {
        let authority = Authority::new("servers");
        let pair = authority.pair("server");
        let lines = format!("{}client_ca = \"{}\"\n", pair.lines(), clients.cert().display());
        let config = format!("[spop]\n{spop}\n[spop.tls]\n{lines}[http.tls]\n{lines}");
        Secured { slowlane: Slowlane::with_config(POLICY, &config), authority, pair }
    }

    /// The number of failed handshakes for a reason.
    fn failures(&self, reason: &str) -> f64 {
        self.slowlane.metric("slowlane_tls_handshake_failures_total", &format!("reason=\"{reason}\""))
    }
}
