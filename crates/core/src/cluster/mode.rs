//! The modes in which nodes share an SLO, and what each of them has in a form of its own.

use serde::{Deserialize, Serialize};

use crate::cluster::count::{CountMessage, CountRecord, CountReply, CountView};
use crate::cluster::lease::{LeaseMessage, LeaseRecord, LeaseReply, LeaseView};
use crate::cluster::record::{Message, Record, Reply};
use crate::cluster::view::View;
use crate::law::{Gcra, Windowed};

/// What each mode has in a form of its own: the [`Share`] of an SLO, what a node holds of a key, its [`Arguments`], the
/// store's record, and its [`Answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ByMode<R, C, L> {
    /// One theoretical arrival time.
    Rate(R),
    /// The counts of a window.
    Count(C),
    /// Parts of a window's quota.
    Lease(L),
}

/// What nodes share of an SLO: its mode, and the numbers of its law.
pub type Share = ByMode<Gcra, Windowed, Windowed>;

/// What a node holds of a shared key, with the numbers of the law that it is for.
pub(super) type LocalView = ByMode<(Gcra, View), (Windowed, CountView), (Windowed, LeaseView)>;

/// What a node reports about a key.
pub type Arguments = ByMode<Message, CountMessage, LeaseMessage>;

/// What the store keeps of a key.
pub(super) type Kept = ByMode<Record, CountRecord, LeaseRecord>;

/// What the store answers about a key.
pub type Answer = ByMode<Reply, CountReply, LeaseReply>;
