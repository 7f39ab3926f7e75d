//! The loads: customers, an office and a neighbour of crawlers for a minute, crawlers, and troubles of the application.

use crate::protect::Runs;
use crate::protect::world::{AppKind, Asks, Caller, Group, Source, World, mix};
use slowlane_core::law::protect::ProtectSettings;

/// Seconds in which clients ask.
pub(crate) const SECONDS: f64 = 60.0;

/// Those who asked last may wait for 20 s.
const PATIENCE: f64 = 20.5;

/// The workers of the application.
pub(crate) const WORKERS: usize = 8;

/// The seconds of a trouble.
const TROUBLE: (f64, f64) = (30.0, 45.0);

/// The seconds that are measured if there is no trouble: the steady part of a run.
const STEADY: (f64, f64) = (15.0, SECONDS);

/// The load on an application.
#[derive(Clone, Copy, Debug)]
pub struct ProtectLoad {
    pub name: &'static str,
    pub(crate) crawl: Option<Crawl>,
    /// Of the customers, each second, with 8 workers. A view is 87 ms of work.
    views: f64,
    app: AppKind,
    trouble: Option<Trouble>,
}

/// The trouble of an application, for a quarter of a minute.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    /// Of the workers, so many are left.
    part: f64,
    /// Everything takes so much longer.
    factor: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Crawl {
    count: u64,
    /// Of each crawler.
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

/// A fifth of the capacity is what the customers need.
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
    // With the office and the neighbour, 1.9 times the capacity.
    ProtectLoad { name: "crowd", views: 1.9 * WORKERS as f64 / 0.087 - 2.5, ..CALM },
];

impl ProtectLoad {
    pub fn names() -> impl Iterator<Item = &'static str> {
        LOADS.iter().map(|load| load.name)
    }

    pub fn named(name: &str) -> Option<ProtectLoad> {
        LOADS.into_iter().find(|load| load.name == name)
    }

    /// Runs it to its end for each seed.
    pub(crate) fn runs(&self, before: Option<ProtectSettings>, seeds: impl Iterator<Item = u64>) -> Runs {
        Runs(seeds.map(|seed| self.prepared(before, seed).run(SECONDS + PATIENCE)).collect())
    }

    /// The load, before it begins.
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

    /// The seconds that count.
    pub(crate) fn measured_s(&self) -> (f64, f64) {
        if self.trouble.is_some() { TROUBLE } else { STEADY }
    }

    /// The workers that are left in these seconds.
    pub(crate) fn workers(&self) -> usize {
        self.trouble.map_or(WORKERS, |trouble| (WORKERS as f64 * trouble.part) as usize)
    }
}
