//! Limits on a policy's files: how much they may contain, and the one line that they must contain.

/// The maximum size of a file, in bytes: about thirty million lines. Offsets into the file fit in 32 bits.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// The longest line that HAProxy reads whole, in bytes, including the LF: `tune.bufsize` is 16384, and a NUL takes one
/// byte.
pub const LINE_BYTES_MAX: usize = 16_383;

/// The maximum number of SLOs, because each line of a map stores its answer in two bytes.
pub(super) const SLO_LINES_MAX: usize = 65_000;

/// The maximum number of lines of a map that is matched with `end` or `reg`.
pub const LIST_LINES_MAX: usize = 1_000;

/// The maximum total length of the keys of a map that is matched with `sub`, in bytes. Each byte of a key
/// takes 32 to 1024 bytes of memory.
pub(super) const SUBSTRINGS_BYTES_MAX: usize = 64 << 10;

/// The maximum work of one lookup: the length of the value times the number of automata of a `reg` map, or times the
/// number of distinct word counts among the keys of a `dom` map. Clients choose the value, and each step takes a few
/// nanoseconds. A value that needs more work is refused: if the value merely matched nothing, a client could escape its
/// SLO with a longer value. One automaton can search any value that fits in a query from HAProxy.
pub const SEARCH_STEPS_MAX: usize = 1 << 14;

/// The maximum number of automata of one map. Most maps have one. With this many, a value of 1024 bytes is still
/// searched.
pub const AUTOMATA_MAX: usize = 16;

/// The maximum total memory for a policy's sketches. It equals the default limit on all auxiliary state.
pub(super) const SKETCHES_BYTES_MAX: usize = 64 << 20;

/// The longest time that a burst may take to refill, in years. Laws could look back much further.
pub const BURST_YEARS_MAX: u64 = 10;

/// The one line that a policy needs. It is also the whole built-in policy: every request is counted, and none is
/// throttled.
pub const DEFAULT_LINE: &str = "0 rate=unlimited";

/// The largest cost of a request. A larger cost is reduced to this cost.
pub const COST_MAX: u32 = 1_000_000;
