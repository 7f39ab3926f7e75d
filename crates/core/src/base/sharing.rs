//! The mode in which nodes share an SLO: the option `cluster=`.

/// The mode in which the nodes of a cluster share an SLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One theoretical arrival time for all nodes, charged in arrears.
    Rate,
    /// The counts of a window, added up; all nodes together may admit slightly too much.
    Count,
    /// Leases: parts of a window's quota, granted in advance; never too much.
    Lease,
    /// An equal part of the rate for each node, without messages.
    Split,
    /// Each node counts for itself.
    Local,
}

impl Sharing {
    pub const ALL: [Sharing; 5] =
        [Sharing::Rate, Sharing::Count, Sharing::Lease, Sharing::Split, Sharing::Local];

    /// In the order of [`ALL`](Sharing::ALL).
    const NAMES: [&'static str; 5] = ["rate", "count", "lease", "split", "local"];

    /// Its name in `slo.map` and in reports.
    ///
    /// ```
    /// use slowlane_core::base::Sharing;
    /// assert_eq!(Sharing::ALL.map(Sharing::name), ["rate", "count", "lease", "split", "local"]);
    /// ```
    pub const fn name(self) -> &'static str {
        Sharing::NAMES[self as usize]
    }

    /// The mode of a name.
    pub fn named(name: &str) -> Option<Sharing> {
        Sharing::ALL.into_iter().find(|sharing| sharing.name() == name)
    }
}
