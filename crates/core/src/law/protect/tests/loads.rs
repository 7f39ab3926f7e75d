//! The loads of the rig and of the model in Python, and what is measured of them.

use crate::law::protect::ProtectSettings;
use crate::law::protect::tests::world::{AppKind, Asks, Caller, Done, Fate, Group, RIG, Source, World, mix};

/// A load of the rig: customers, an office and a neighbour; crawlers from the sixth second on; 60 s.
pub(crate) fn rig(load: &str, settings: Option<ProtectSettings>, seed: u64) -> World {
    // Long waits at the end are waited for.
    prepared(load, settings, seed).run(60.0 + 20.5)
}

/// The load, before it begins. `crowd`: customers alone, who ask for 1.9 times the capacity.
pub(crate) fn prepared(load: &str, settings: Option<ProtectSettings>, seed: u64) -> World {
    let (name, kind) = match load.strip_suffix('+') {
        Some(name) => (name, AppKind::Database),
        None => (load, AppKind::Workers),
    };
    let mut world = World::new(kind, RIG, settings, seed);
    let (from, until) = (0.0, 60.0);
    let mut add = |group, asks, source, from| world.client(Caller { group, asks, source, from, until });
    // A view is 87 ms of work.
    let views = if name == "crowd" { 1.9 * 8.0 / 0.087 - 2.5 } else { 18.4 };
    add(Group::Customer, Asks::Views(views), Source::Shoppers, from);
    add(Group::Office, Asks::Views(2.0), Source::Fixed((120 << 8) | 9, 9), from);
    let crawl = match name {
        "e" | "s" => "a",
        name => name,
    };
    let neighbour = match crawl {
        "b" => Source::Within(2 << 8, 5),
        "d" => Source::Within(3 << 8, 200),
        "f" => Source::Within(40 << 8, 200),
        _ => Source::Fixed(1 << 8, 77),
    };
    add(Group::Neighbour, Asks::Views(0.5), neighbour, from);
    let (count, connections) = match crawl {
        "a" => (10, 20),
        "b" => (200, 2),
        "c" => (1, 20),
        "f" => (300, 1),
        "d" => (2_000, 1),
        _ => (0, 0),
    };
    for crawler in 0..count {
        let source = match crawl {
            "a" | "c" => Source::Fixed((1 << 8) | crawler, 1),
            "b" => Source::Fixed((2 << 8) | (crawler % 5), 10 + crawler / 5),
            "f" => Source::Fixed((40 << 8) + crawler, mix(crawler)),
            _ => Source::Fixed((3 << 8) + crawler, mix(crawler)),
        };
        let (asks, from) = if crawl == "d" { (Asks::Rarely, 0.0) } else { (Asks::Crawls, 6.0) };
        for _ in 0..connections {
            add(Group::Crawler, asks, source, from);
        }
    }
    match name {
        "e" => {
            world.change(30.0, 4, 1.0);
            world.change(45.0, 8, 1.0);
        }
        "s" => {
            world.change(30.0, 8, 3.0);
            world.change(45.0, 8, 1.0);
        }
        _ => {}
    }
    world
}

/// What the clients of one group met with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) failed_percent: f64,
}

/// Of pages that began in these seconds; crawlers' by their end.
pub(crate) fn summary(world: &World, group: Group, (from, to): (f64, f64)) -> Summary {
    let when = |done: &Done| {
        if group == Group::Crawler { done.begin + done.took_ms / 1e3 } else { done.begin }
    };
    let of_group = world.done.iter().filter(|done| done.group == group);
    let done: Vec<&Done> = of_group.filter(|done| (from..to).contains(&when(done))).collect();
    let times = |is_small: bool| {
        let of_kind = done.iter().filter(|done| (done.page == 0) == is_small);
        let served = of_kind.filter(|done| done.outcome == Fate::Served);
        let mut times: Vec<f64> = served.map(|done| done.took_ms).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let quantile = |times: &[f64], part: f64| {
        times.get((times.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
    };
    let (pages, small) = (times(false), times(true));
    let served = pages.len() + small.len();
    Summary {
        p50: quantile(&pages, 0.5),
        p90: quantile(&pages, 0.9),
        p99: quantile(&pages, 0.99),
        failed_percent: 100.0 * (done.len() - served) as f64 / done.len().max(1) as f64,
    }
}

/// The part of the capacity of so many workers that was used.
pub(crate) fn used(world: &World, workers: f64, (from, to): (f64, f64)) -> f64 {
    world.work_ms[from as usize..to as usize].iter().sum::<f64>() / 1e3 / (to - from) / workers
}
