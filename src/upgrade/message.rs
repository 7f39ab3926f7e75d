//! The messages of an upgrade.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::server::TransferState;
use crate::server::dedup::{DueReply, Fingerprint};
use slowlane_core::base::{Address, Decision, Timestamp};

/// The version of these messages. A process hands over only to one of the same version, so each change of [`UpgradeMessage`]
/// or of a type in it needs a new number: [`TransferState`], [`DueReply`] and [`Decision`] too. Snapshots have a version of
/// their own.
pub(super) const VERSION: u32 = 5;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum UpgradeMessage {
    /// New: this process is a slowlane that takes over.
    Hello(u32),
    /// Old, with the socket: a socket of this listener, with its address in the config.
    Listener(String, Option<Address>),
    /// Old: all listeners are sent. A moment of its clock, the same moment of the system's monotonic clock, and its
    /// secret.
    Offer { moment: Timestamp, monotonic: Duration, key_secret: String },
    /// New: config and policy are read, and all addresses are bound.
    Built,
    /// Old, with a stream: a snapshot of all keys; then, in rounds, of those that have changed since.
    State,
    /// New: it has read the snapshot.
    Restored,
    /// Old, with a stream: the keys that have changed since, the blocks, and the history.
    Changes,
    /// Old, with the socket: a connection.
    Connection(TransferState),
    /// Old: answers that nginx may request again.
    Answers(Vec<(Fingerprint, DueReply)>),
    /// Old: everything is sent, and this process has stopped deciding.
    Yours,
    /// New: it has everything, and serves from now on.
    Taken,
    /// Old: systemd knows the new main process.
    Main,
    /// Old: a client disconnected, or its delay cannot be held.
    TakenBack(Box<Decision>),
}
