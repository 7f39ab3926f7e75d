//! The calls of a store: scripts of Redis, or commands of a token server.

/// A call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    Rate,
    Count,
    Lease,
    Beat,
    Blocks,
}

impl Call {
    pub(super) const ALL: [Call; 5] = [Call::Rate, Call::Count, Call::Lease, Call::Beat, Call::Blocks];

    /// The command of a token server. Its arguments and its answer are those of the script.
    pub(super) const fn command(self) -> &'static str {
        match self {
            Call::Rate => "SLOWLANE.RATE",
            Call::Count => "SLOWLANE.COUNT",
            Call::Lease => "SLOWLANE.LEASE",
            Call::Beat => "SLOWLANE.BEAT",
            Call::Blocks => "SLOWLANE.BLOCKS",
        }
    }

    /// The script for Redis. Its first lines tell its arguments and its answer.
    pub(super) fn script(self) -> String {
        let own = match self {
            Call::Rate => include_str!("rate.lua"),
            Call::Count => include_str!("count.lua"),
            Call::Lease => include_str!("lease.lua"),
            Call::Beat => include_str!("beat.lua"),
            Call::Blocks => include_str!("blocks.lua"),
        };
        format!("{}{own}", include_str!("common.lua"))
    }

    /// The arguments of each key. None: the call is not about throttled keys.
    pub(super) const fn arguments(self) -> Option<usize> {
        match self {
            Call::Rate => Some(10),
            Call::Lease => Some(9),
            Call::Count => Some(8),
            Call::Beat | Call::Blocks => None,
        }
    }
}
