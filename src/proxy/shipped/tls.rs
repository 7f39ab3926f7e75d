//! TLS between a proxy and slowlane, as the shipped files write it.

/// How a proxy verifies slowlane, and shows itself. The files in `/etc/slowlane/tls` are the operator's to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tls<'a> {
    /// The name in slowlane's certificate.
    pub name: &'a str,
    /// Whether the proxy shows a certificate of its own.
    pub has_certificate: bool,
}

/// The name that stands in the shipped files.
pub const NAME: &str = "slowlane.example";
