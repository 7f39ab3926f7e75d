//! The modes in which nodes can share an SLO, with the names that the `cluster=` option uses.

/// The mode in which the nodes of a cluster share an SLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All nodes share one theoretical arrival time, and charge it after they have admitted requests.
    Rate,
    /// The nodes add up their counts for a window. Together they may admit slightly too much.
    Count,
    /// Each node gets leases in advance: parts of a window's quota. Together the nodes never admit too much.
    Lease,
    /// Each node enforces an equal part of the rate, without messages.
    Split,
    /// Each node counts alone and enforces the full rate.
    Local,
}

impl Sharing {
    pub const ALL: [Sharing; 5] =
        [Sharing::Rate, Sharing::Count, Sharing::Lease, Sharing::Split, Sharing::Local];

    /// The names, in the order of [`ALL`](Sharing::ALL).
    const NAMES: [&'static str; 5] = ["rate", "count", "lease", "split", "local"];

    /// The name of the mode in `slo.map` and in reports.
    ///
    /// ```
    /// use slowlane_core::base::Sharing;
    /// assert_eq!(Sharing::ALL.map(Sharing::name), ["rate", "count", "lease", "split", "local"]);
    /// ```
    pub const fn name(self) -> &'static str {
        Sharing::NAMES[self as usize]
    }

    /// The mode with this name.
    pub fn named(name: &str) -> Option<Sharing> {
        Sharing::ALL.into_iter().find(|sharing| sharing.name() == name)
    }
}
