//! The bounds of a policy's files: the most that they may hold, and the least.

/// The largest file that is read. It holds some thirty million lines, and offsets into it fit 32 bits.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// The longest line that HAProxy reads whole, its LF included. `tune.bufsize` is 16384, and a NUL takes one
/// byte.
pub const LINE_BYTES_MAX: usize = 16_383;

/// The most lines of a map that is tried line by line, with `end`, `dom` or `reg`. A request may have to try
/// all of them.
pub const LIST_LINES_MAX: usize = 1_000;

/// The most work of one lookup with `dom` or `reg`: lines of the map times bytes of the value. Clients choose the
/// value, and a byte of it takes a nanosecond or two per line. A value that would take more is refused: if it just
/// matched nothing, a client could leave its SLO by a longer value.
pub const SEARCH_STEPS_MAX: usize = 1 << 20;

/// The most memory of all sketches of a policy, as much as that of all annexes by default.
pub(super) const SKETCHES_BYTES_MAX: usize = 64 << 20;

/// The longest time for a burst to come back. Laws can look back much further.
pub const BURST_YEARS_MAX: u64 = 10;

/// The one line that a policy needs. It is also the whole built-in policy: every request is counted, and none is
/// throttled.
pub const DEFAULT_LINE: &str = "0 rate=unlimited";

/// The largest cost of a request. A larger one is cut to it.
pub const COST_MAX: u32 = 1_000_000;
