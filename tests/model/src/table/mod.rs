//! The table: the files of crates/core/src/table, but for `locks` and `spread`.

#[path = "../../../../crates/core/src/table/bounded.rs"]
mod bounded;
#[path = "../../../../crates/core/src/table/entry.rs"]
mod entry;
#[path = "../../../../crates/core/src/table/index.rs"]
mod index;
mod locks;
#[path = "../../../../crates/core/src/table/shard.rs"]
mod shard;
#[path = "../../../../crates/core/src/table/sketch.rs"]
mod sketch;
mod spread;
#[path = "../../../../crates/core/src/table/store.rs"]
mod store;

pub use bounded::{BoundedMap, Expiring, KeyPlace, deque_bytes_after};
pub use entry::{Entry, FreqCtr, PERIOD_MS, State};
pub use shard::{Found, Usage};
pub use sketch::{COLUMN_BITS_MAX, COUNT_MAX, ROWS_MAX, Seen, Shape, Sketch};
pub use spread::Spread;
pub use store::{Cursor, EACH_MAX, PAGE_ROWS, Page, Sizing, Table};
