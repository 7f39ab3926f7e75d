//! Limits on a policy's files: how much they may contain, and the one line that they must contain.

/// The maximum size of a file, in bytes. Such a file has about thirty million lines, and offsets fit in 32 bits.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// The longest line that HAProxy reads whole, in bytes, including the LF: its buffer (`tune.bufsize`) has
/// 16384 bytes, one of which holds a NUL.
pub const LINE_BYTES_MAX: usize = 16_383;

/// The maximum number of SLOs. It is limited because each line of a map stores its answer in two bytes.
pub(super) const SLO_LINES_MAX: usize = 65_000;

/// The maximum number of lines in an `end` or `reg` map.
pub const LIST_LINES_MAX: usize = 1_000;

/// The maximum total length of the keys in a `sub` map, in bytes. Each byte of a key takes 32 to 1024 bytes of memory.
pub(super) const SUBSTRINGS_BYTES_MAX: usize = 64 << 10;

/// The maximum work of one lookup: the length of the value times the number of automata of a `reg` map, or times the
/// number of distinct word counts among the keys of a `dom` map. Clients choose the value, and each step takes a few
/// nanoseconds. A request whose value needs more work is refused: if the value merely matched nothing, a client could
/// escape its SLO with a longer one. One automaton can search any value that fits in a query from HAProxy.
pub const SEARCH_STEPS_MAX: usize = 1 << 14;

/// The maximum number of automata of one map. Most maps have one. With the maximum, a value of 1024 bytes can
/// still be searched.
pub const AUTOMATA_MAX: usize = 16;

/// The maximum total memory for a policy's sketches. It equals the default limit on all auxiliary state.
pub(super) const SKETCHES_BYTES_MAX: usize = 64 << 20;

/// The longest time that a burst may take to refill, in years. Laws could handle far longer times.
pub const BURST_YEARS_MAX: u64 = 10;

/// The one line that a policy needs. By itself, it is the built-in policy, which counts every request and
/// throttles none.
pub const DEFAULT_LINE: &str = "0 rate=unlimited";

/// The maximum cost of a request. Any larger cost counts as this cost.
pub const COST_MAX: u32 = 1_000_000;
