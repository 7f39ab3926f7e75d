//! The operator's own values in the shipped files.

use std::time::Duration;

use slowlane_core::base::Address;

/// The values in the files of every proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places<'a> {
    /// The address of slowlane's listener.
    pub agent: &'a Address,
    /// The address that the proxy listens on.
    pub listen: &'a str,
    /// The address of the application.
    pub app: &'a str,
    /// The TLS settings for slowlane. None: no TLS.
    pub tls: Option<ProxyTls<'a>>,
    /// Whether to send quotas to clients.
    pub ratelimit: bool,
    /// The longest delay of the policy.
    pub delay_max: Duration,
    /// The fields that the policy uses. The usual ones are always sent.
    pub fields: &'a [String],
}

impl<'a> Places<'a> {
    /// The values of the shipped files, which listen for the proxy and for slowlane at these addresses.
    pub fn shipped(agent: &'a Address, listen: &'a str) -> Places<'a> {
        Places {
            agent,
            listen,
            app: APP,
            tls: None,
            ratelimit: false,
            delay_max: Duration::ZERO,
            fields: &[],
        }
    }
}

/// How a proxy verifies slowlane, and presents its own certificate. The operator must create the files in
/// `/etc/slowlane/tls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyTls<'a> {
    /// The name in slowlane's certificate.
    pub name: &'a str,
    /// Whether the proxy presents a certificate of its own.
    pub has_certificate: bool,
}

/// The name in the shipped files.
pub const NAME: &str = "slowlane.example";

/// The application in the shipped files.
pub const APP: &str = "127.0.0.1:8000";
