//! What the files of a policy may be at most, and must hold at least.

/// The largest file that is read: some thirty million lines, and offsets that fit 32 bits.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// The longest line that HAProxy reads whole, its LF included: `tune.bufsize` is 16384 and takes a NUL too.
pub const LINE_BYTES_MAX: usize = 16_383;

/// The one line that a policy needs: the article's global SLO, and the whole of the built-in policy.
pub const DEFAULT_LINE: &str = "0 burst=10000 rate=5000/s";
