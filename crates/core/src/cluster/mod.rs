//! The cluster: many nodes share one SLO.
//!
//! ```text
//! request ─▶ Cluster::judge ─▶ Judgement      at once, by what this node knows
//!              Quiet: a key that is hardly used is told to nobody
//!              Held: what this node knows of a shared key, as View, CountView or LeaseView
//! Held ─▶ Words ─▶ the store's record ─▶ Answer ─▶ Held   every period; no request waits for it
//! ```
//! The store keeps one theoretical arrival time (TAT) for a key, and all nodes charge it in arrears. Between two
//! replies, a node's view of it drifts at the speed at which the others are expected to take. Values come in, values go
//! out: no clock, no socket, no dice.

mod board;
mod bounds;
mod count;
mod decayed;
mod desk;
mod explain;
mod held;
mod keys;
mod lease;
mod ledger;
mod members;
mod mode;
mod node;
mod plan;
mod quiet;
mod quota;
mod record;
mod roll;
mod settings;
mod terms;
mod view;

pub use board::{BlockNews, BlockWord, BlockWords, Board, Extent};
pub use count::{CountMessage, CountRecord, CountReply, CountView};
pub use desk::{Desk, Due, Told};
pub use keys::Telling;
pub use lease::{LeaseMessage, LeaseRecord, LeaseReply, LeaseView};
pub use ledger::Ledger;
pub use members::{Beat, Census, Member, PRESENT, Presence, SECRET_KEPT};
pub use mode::{Answer, ByMode, Terms, Words};
pub use node::Cluster;
pub use plan::Plan;
pub use quota::QuotaPlan;
pub use record::{Message, Record, Reply};
pub use roll::Roll;
pub use settings::{OnSilence, Settings};
pub use view::{Glance, View};
