//! The cluster: many nodes share one SLO.
//!
//! ```text
//! request ─▶ Cluster::judge ─▶ Judgement      at once, from what this node knows
//!              LocalBudget: a key that is hardly used is not reported
//!              LocalView: what this node knows of a shared key, of one of three types, by mode (share.rs): View (which
//!              computes this node's share of a rate), CountView or LeaseView
//! LocalView ─▶ Arguments ─▶ the store's record ─▶ Answer ─▶ LocalView   every period; no request waits for it
//! ```
//! In the `rate` mode, the store keeps one theoretical arrival time (TAT) for each key, and all nodes charge it in
//! arrears. Between two replies, a node advances its view of the TAT by the requests that the other nodes are expected
//! to admit. The code takes and returns values: it has no clock, no socket and no random numbers.

mod block_log;
mod bounds;
mod count;
mod exchange;
mod lease;
mod local_budget;
mod members;
mod node;
mod plan;
mod queue;
mod record;
mod records;
mod share;
mod store_server;
mod view;

use plan::SLOW_MEMORY_S;
use record::Decayed;

use exchange::Exchange;
use plan::UNREPORTED;
use share::{LocalView, Situation};

pub use block_log::{BlockChange, BlockLog, BlockNews, BlockUpdate, Extent};
pub use count::{CountMessage, CountRecord, CountReply, CountView};
pub use lease::{LeaseMessage, LeaseRecord, LeaseReply, LeaseView};
pub use members::{Beat, Member, Membership, NodeList, PRESENT, Presence, SECRET_KEPT};
pub use node::Cluster;
pub use plan::{OnSilence, Plan, QuotaPlan, Settings};
pub use record::{Grant, HINTS_MAX, HOLES_MAX, Hint, Message, Record, Reply, Wants};
pub use records::Records;
pub use share::{Answer, Arguments, ByMode, Share};
pub use store_server::{Due, KeyUpdate, Response, StoreServer};
pub use view::{Stats, View};
