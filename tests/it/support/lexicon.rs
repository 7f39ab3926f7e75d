//! Words that are not in the lexicon: neither the code nor the prose uses them.

/// In lower case. Some were once ours, for batch, decide and read; the others say nothing, or leave people out.
pub const BANNED: &[&str] = &[
    "docket", "dockets", "sitting", "sittings", "filing", "filings", "hear", "hears", "heard", "hearing",
    "he", "him", "his", "limiter", "limiters", "handler", "utils", "whoever",
];
