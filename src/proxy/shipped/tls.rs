//! TLS between a proxy and slowlane, as in the shipped files.

/// How a proxy verifies slowlane, and presents its own certificate. The operator must create the files in
/// `/etc/slowlane/tls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tls<'a> {
    /// The name in slowlane's certificate.
    pub name: &'a str,
    /// Whether the proxy presents a certificate of its own.
    pub has_certificate: bool,
}

/// The name in the shipped files.
pub const NAME: &str = "slowlane.example";
