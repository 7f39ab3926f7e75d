//! Warnings about settings that are valid, but probably unintended.

use crate::config::Listen;
use slowlane_core::base::HoldLimits;

/// Warns of listeners that other machines can reach, and that have neither TLS nor a list of networks.
///
/// If there is a list, the operator trusts the listed networks, and the networks between them and slowlane.
pub(super) fn of_plain(listen: &Listen) -> Option<String> {
    let open = listen.addresses.iter().find(|address| !address.is_local())?;
    if listen.tls.is_some() || !listen.allow.is_empty() {
        return None;
    }
    let section = listen.section;
    let risk = match section {
        "spop" | "http" | "grpc" => "anyone on the network can use up the SLOs of other clients",
        _ => "the token travels in clear text",
    };
    Some(format!(
        "[{section}] listens on {open} without TLS, and {risk}: add [{section}.tls], or name the networks that may \
         connect, like allow = [\"10.0.0.0/8\"]"
    ))
}

/// Warns of TLS settings without effect, because only TCP addresses have TLS.
pub(super) fn of_idle_tls(listen: &Listen) -> Option<String> {
    let is_idle = listen.tls.is_some()
        && listen.addresses.iter().all(|address| address.to_string().starts_with("unix:"));
    let section = listen.section;
    is_idle.then(|| format!("[{section}.tls] has no effect: [{section}] listen has no TCP address"))
}

/// Warns of a limit on holds that is never reached.
///
/// nginx, and HAProxy up to 3.0, use a connection for each held answer. If holds occupy all connections, other requests
/// wait, too, and `when_full` never applies.
pub(super) fn of_holds(listen: &Listen, hold: &HoldLimits) -> Option<String> {
    let is_full = !listen.addresses.is_empty() && hold.holds_max >= listen.connections_max;
    is_full.then(|| {
        format!(
            "[hold] max should be well below [{}] connections_max: nginx, and HAProxy up to 3.0, keep a connection \
             for each hold",
            listen.section
        )
    })
}
