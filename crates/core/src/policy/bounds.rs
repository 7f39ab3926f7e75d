//! The bounds of a policy's files: the most that they may hold, and the least.

/// The largest file that is read. It holds some thirty million lines, and offsets into it fit 32 bits.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// The longest line that HAProxy reads whole, its LF included. `tune.bufsize` is 16384, and a NUL takes one
/// byte.
pub const LINE_BYTES_MAX: usize = 16_383;

/// The most lines of a map that is matched with `end` or `reg`.
pub const LIST_LINES_MAX: usize = 1_000;

/// The most work of one lookup: bytes of the value times the automata of a `reg` map, or times the different numbers of
/// words that the keys of a `dom` map have. Clients choose the value, and each step takes some nanoseconds. A value
/// that would take more is refused: if it just matched nothing, a client could leave its SLO by a longer value. One
/// automaton searches all that a question of HAProxy can hold.
pub const SEARCH_STEPS_MAX: usize = 1 << 14;

/// The most automata of one map. Most maps have one. With so many, a value of 1024 bytes is still searched.
pub const AUTOMATA_MAX: usize = 16;

/// The most memory of all sketches of a policy, as much as that of all auxiliary states by default.
pub(super) const SKETCHES_BYTES_MAX: usize = 64 << 20;

/// The longest time for a burst to come back. Laws can look back much further.
pub const BURST_YEARS_MAX: u64 = 10;

/// The one line that a policy needs. It is also the whole built-in policy: every request is counted, and none is
/// throttled.
pub const DEFAULT_LINE: &str = "0 rate=unlimited";

/// The largest cost of a request. A larger one is cut to it.
pub const COST_MAX: u32 = 1_000_000;
