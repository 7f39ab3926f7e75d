//! The bounds of a policy's files: the most that they may hold, and the least.

/// The largest file that is read. It holds some thirty million lines, and offsets into it fit 32 bits.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// The longest line that HAProxy reads whole, its LF included. `tune.bufsize` is 16384, and a NUL takes one
/// byte.
pub const LINE_BYTES_MAX: usize = 16_383;

/// The most lines of a map that is tried line by line, with `end`, `dom` or `reg`. A request may have to try
/// all of them.
pub const LIST_LINES_MAX: usize = 1_000;

/// The longest value that `dom` and `reg` search; longer values match nothing. Clients choose the length, and
/// a search takes time in proportion to it. A host name has at most 253 bytes.
pub const SEARCHED_BYTES_MAX: usize = 1_024;

/// The longest time for a burst to come back. Laws can look back much further.
pub const BURST_YEARS_MAX: u64 = 10;

/// The one line that a policy needs. It is also the whole built-in policy: every request is counted, and none is
/// throttled.
pub const DEFAULT_LINE: &str = "0 rate=unlimited";

/// The largest cost of a request. A larger one is cut to it.
pub const COST_MAX: u32 = 1_000_000;
