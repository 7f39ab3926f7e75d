//! The loads, of one minute each: customers, an office and a neighbour of the crawlers. Most loads also have crawlers,
//! and some have a fault of the application.

use crate::protect::Runs;
use crate::protect::world::{AppKind, Asks, Caller, Group, Source, World, mix};
use slowlane_core::law::protect::ProtectSettings;

/// The time in which clients send requests, in seconds.
pub(crate) const SECONDS: f64 = 60.0;

/// How long, in seconds, a run continues after `SECONDS`: the last clients may wait for 20 s.
const PATIENCE: f64 = 20.5;

/// The number of workers of the application.
pub(crate) const WORKERS: usize = 8;

/// The start and the end of the trouble, in seconds.
const TROUBLE: (f64, f64) = (30.0, 45.0);

/// The start and the end, in seconds, of the measured part if there is no trouble: the steady part of a run.
const STEADY: (f64, f64) = (15.0, SECONDS);

/// The load on an application.
#[derive(Clone, Copy, Debug)]
pub struct ProtectLoad {
    pub name: &'static str,
    pub(crate) crawl: Option<Crawl>,
    /// The number of customers' page views per second, for 8 workers. One view is 87 ms of work.
    views: f64,
    app: AppKind,
    trouble: Option<Trouble>,
}

/// A temporary fault of the application, which lasts for a quarter of a minute.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    /// The fraction of the workers that are left.
    part: f64,
    /// The factor by which all work takes longer.
    factor: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Crawl {
    count: u64,
    /// The number of connections of each crawler.
    connections: u32,
    asks: Asks,
    from: f64,
    source: fn(u64) -> Source,
    /// The neighbour is a customer with an address in a crawler's network.
    neighbour: Source,
}

const CRAWLERS: Crawl = Crawl {
    count: 10,
    connections: 20,
    asks: Asks::Crawls,
    from: 6.0,
    source: |crawler| Source::Fixed((1 << 8) | crawler, 1),
    neighbour: Source::Fixed(1 << 8, 77),
};

const NETWORKS: Crawl = Crawl {
    count: 200,
    connections: 2,
    source: |crawler| Source::Fixed((2 << 8) | (crawler % 5), 10 + crawler / 5),
    neighbour: Source::Within(2 << 8, 5),
    ..CRAWLERS
};

const SCATTERED: Crawl = Crawl {
    count: 300,
    connections: 1,
    source: |crawler| Source::Fixed((40 << 8) + crawler, mix(crawler)),
    neighbour: Source::Within(40 << 8, 200),
    ..CRAWLERS
};

const BOTNET: Crawl = Crawl {
    count: 2_000,
    connections: 1,
    asks: Asks::Rarely,
    from: 0.0,
    source: |crawler| Source::Fixed((3 << 8) + crawler, mix(crawler)),
    neighbour: Source::Within(3 << 8, 200),
};

/// The customers need a fifth of the capacity.
const CALM: ProtectLoad =
    ProtectLoad { name: "alone", crawl: None, views: 18.4, app: AppKind::Workers, trouble: None };

const CRAWLED: ProtectLoad = ProtectLoad { name: "crawlers", crawl: Some(CRAWLERS), ..CALM };

const LOADS: [ProtectLoad; 10] = [
    CALM,
    CRAWLED,
    ProtectLoad { name: "networks", crawl: Some(NETWORKS), ..CALM },
    ProtectLoad { name: "crawler", crawl: Some(Crawl { count: 1, ..CRAWLERS }), ..CALM },
    ProtectLoad { name: "half", trouble: Some(Trouble { part: 0.5, factor: 1.0 }), ..CRAWLED },
    ProtectLoad { name: "slow", trouble: Some(Trouble { part: 1.0, factor: 3.0 }), ..CRAWLED },
    ProtectLoad { name: "database", app: AppKind::Database, ..CRAWLED },
    ProtectLoad { name: "scattered", crawl: Some(SCATTERED), ..CALM },
    ProtectLoad { name: "botnet", crawl: Some(BOTNET), ..CALM },
    // Together with the office and the neighbour, the customers need 1.9 times the capacity.
    ProtectLoad { name: "crowd", views: 1.9 * WORKERS as f64 / 0.087 - 2.5, ..CALM },
];

impl ProtectLoad {
    pub fn names() -> impl Iterator<Item = &'static str> {
        LOADS.iter().map(|load| load.name)
    }

    pub fn named(name: &str) -> Option<ProtectLoad> {
        LOADS.into_iter().find(|load| load.name == name)
    }

    /// Runs the load to its end, once for each seed.
    pub(crate) fn runs(&self, before: Option<ProtectSettings>, seeds: impl Iterator<Item = u64>) -> Runs {
        Runs(seeds.map(|seed| self.prepared(before, seed).run(SECONDS + PATIENCE)).collect())
    }

    /// A world with this load, before its first request.
    pub(crate) fn prepared(&self, before: Option<ProtectSettings>, seed: u64) -> World {
        let mut world = World::new(self.app, before, seed);
        let mut add = |group, asks, source, from| world.client(Caller { group, asks, source, from });
        add(Group::Customer, Asks::Views(self.views), Source::Shoppers, 0.0);
        add(Group::Office, Asks::Views(2.0), Source::Fixed((120 << 8) | 9, 9), 0.0);
        let crawl = self.crawl.unwrap_or(Crawl { count: 0, ..CRAWLERS });
        add(Group::Neighbour, Asks::Views(0.5), crawl.neighbour, 0.0);
        for crawler in 0..crawl.count {
            for _ in 0..crawl.connections {
                add(Group::Crawler, crawl.asks, (crawl.source)(crawler), crawl.from);
            }
        }
        if let Some(trouble) = self.trouble {
            world.change(TROUBLE.0, self.workers(), trouble.factor);
            world.change(TROUBLE.1, WORKERS, 1.0);
        }
        world
    }

    /// The start and the end of the measured part, in seconds.
    pub(crate) fn measured_s(&self) -> (f64, f64) {
        if self.trouble.is_some() { TROUBLE } else { STEADY }
    }

    /// The number of workers that remain in the measured part.
    pub(crate) fn workers(&self) -> usize {
        self.trouble.map_or(WORKERS, |trouble| (WORKERS as f64 * trouble.part) as usize)
    }
}
