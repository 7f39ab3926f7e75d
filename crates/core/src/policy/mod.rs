//! The policy: it determines the SLOs of a request, and the keys under which these SLOs count the request.
//!
//! ```text
//! dir/slo.map             2001 burst=100 rate=50/s
//! dir/website.map         shop.example 2001
//!
//! read       files to lines
//! index      lines to answers
//! classify   Request ─▶ lookups in order: source+website, source+owner, source, website, owner
//!                       the first map that answers names the SLO; if no map does, SLO 0
//!                    ─▶ the thousands of the SLO: its type, which names the fields of the key
//!                    ─▶ (&Slo, Key)
//! ```
//! A policy never changes. It is read as a whole or not at all: an error in any file rejects the whole policy, and the
//! result lists all errors.

mod also;
mod assured;
mod blocks;
mod bounds;
mod cases;
mod checks;
mod classify;
mod error;
mod explanation;
mod field;
mod fields;
mod finding;
mod generation;
mod index;
mod layout;
mod needed;
mod plan;
mod read;
mod sharing;
mod summary;
#[cfg(test)]
mod tests;
mod traps;
mod warning;
mod watch;

use bounds::{SKETCHES_BYTES_MAX, SLO_LINES_MAX, SUBSTRINGS_BYTES_MAX};
use field::Field;
use fields::{Fields, Masks, PLACES_MAX};

use error::quoted;
use fields::{Place, Values};
use index::lookup::LookupMap;
use index::pattern::{Answer, Pattern, Refused};
use layout::is_host;
use read::file::MapFile;
use read::map::Line;

pub use blocks::{BlockIndex, BlockTargetError, SHAPES_MAX};
pub use bounds::{
    AUTOMATA_MAX, BURST_YEARS_MAX, COST_MAX, DEFAULT_LINE, FILE_BYTES_MAX, LINE_BYTES_MAX, LIST_LINES_MAX,
    SEARCH_STEPS_MAX,
};
pub use cases::{Case, Cases};
pub use classify::{Asker, Batch, LookedUp, first_segment};
pub use error::{ERRORS_MAX, PolicyErrorKind, PolicyErrors};
pub use explanation::{Asked, Explained, Explanation, Fact, Origin, Part};
pub use fields::{Draft, EXTRA_MAX, FieldPlace, Text};
pub use finding::{Finding, Findings};
pub use generation::Policy;
pub use index::expression_of;
pub use layout::{Derivation, Layout, LayoutError, Lookup, Method};
pub use needed::Needed;
pub use plan::SloPlan;
pub use read::file::Strays;
pub use read::map;
pub use read::slo::Slo;
pub use read::work::Work;
pub use warning::{WARNINGS_MAX, WarningKind, Warnings};
pub use watch::ValueKind;
