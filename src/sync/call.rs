//! The calls of a store: scripts of Redis.

use slowlane_core::cluster::Arguments;

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

    /// Words of one mode have one call.
    pub(super) const fn of(arguments: &Arguments) -> Call {
        match arguments {
            Arguments::Rate(_) => Call::Rate,
            Arguments::Count(_) => Call::Count,
            Arguments::Lease(_) => Call::Lease,
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
}
