//! The table: a bounded store of entries by key, the counterpart of a HAProxy stick table.
//!
//! ```text
//! store ─▶ shard ─▶ index: key ─▶ row number      bounded: other values by key, such as those that do not fit in a row
//!                └▶ rows, threaded by expiry
//! sketch: estimated counts by key, without a row      frequent: the keys with the most requests
//! ```

mod bounded;
mod entry;
mod frequent;
mod index;
mod locks;
mod shard;
mod sketch;
mod spread;
mod store;

pub use bounded::{BoundedMap, Expiring, KeyPlace, deque_bytes_after};
pub use entry::{Entry, FreqCtr, PERIOD_MS, State};
pub use frequent::{Counter, Frequent};
pub use shard::{Found, Usage};
pub use sketch::{COLUMN_BITS_MAX, COUNT_MAX, ROWS_MAX, Seen, Shape, Sketch};
pub use spread::Spread;
pub use store::{Cursor, EACH_MAX, PAGE_ROWS, Page, Sizing, Table};
