//! What the files of a policy may be at most, and must hold at least.

/// The largest file that is read: some thirty million lines, and offsets that fit 32 bits.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// The longest line that HAProxy reads whole, its LF included: `tune.bufsize` is 16384 and takes a NUL too.
pub const LINE_BYTES_MAX: usize = 16_383;

/// The most lines that are tried one after the other, as `end`, `dom` and `reg` are: each request may be held
/// against all of them.
pub const LIST_LINES_MAX: usize = 1_000;

/// The longest value that `dom` and `reg` search; a longer one has no place in their maps. Its client chooses how
/// long it is, and a search takes that much longer. A host name has 253 bytes.
pub const SEARCHED_BYTES_MAX: usize = 1_024;

/// The longest time that a burst may take to come back: well within the time that a law can look back.
pub const BURST_YEARS_MAX: u64 = 10;

/// The one line that a policy needs: the article's global SLO, and the whole of the built-in policy.
pub const DEFAULT_LINE: &str = "0 burst=10000 rate=5000/s";

/// The most requests that one counts for.
pub const COST_MAX: u32 = 1_000_000;
