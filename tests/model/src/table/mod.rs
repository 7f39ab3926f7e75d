//! The table: the files of src/table, but for `locks` and `spread`.

#[path = "../../../../src/table/entry.rs"]
mod entry;
#[path = "../../../../src/table/freq_ctr.rs"]
mod freq_ctr;
#[path = "../../../../src/table/index.rs"]
mod index;
mod locks;
#[path = "../../../../src/table/page.rs"]
mod page;
#[path = "../../../../src/table/shard.rs"]
mod shard;
#[path = "../../../../src/table/side.rs"]
mod side;
#[path = "../../../../src/table/sizing.rs"]
mod sizing;
#[path = "../../../../src/table/sketch.rs"]
mod sketch;
mod spread;
#[path = "../../../../src/table/store.rs"]
mod store;

pub use entry::{Entry, State};
pub use freq_ctr::{FreqCtr, PERIOD_MS};
pub use page::{Cursor, Found, PAGE_ROWS, Page};
pub use side::{Keep, Side, deque_bytes_after};
pub use sizing::{Sizing, Usage};
pub use sketch::{COLUMN_BITS_MAX, COUNT_MAX, ROWS_MAX, Seen, Shape, Sketch};
pub use spread::Spread;
pub use store::{EACH_MAX, Table};
