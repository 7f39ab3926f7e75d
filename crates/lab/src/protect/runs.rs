//! The results of a group of clients in one run, or the median of several runs.

use crate::protect::world::{Done, Fate, Group, World};

/// The runs of one load. Each run has its own seed.
#[derive(Debug)]
pub(crate) struct Runs(pub(crate) Vec<World>);

/// The results of the clients of one group.
#[derive(Debug)]
pub(crate) struct Summary {
    pages_ms: Vec<f64>,
    /// The percentage of requests that were refused or given up.
    pub(crate) failed_percent: f64,
    pub(crate) served_per_s: f64,
}

impl Runs {
    pub(crate) fn of_group(&self, group: Group, window: (f64, f64), measure: fn(&Summary) -> f64) -> f64 {
        self.median(|world| measure(&summary(world, group, window)))
    }

    /// The fraction of the capacity of this many workers that was used: the median of the runs.
    pub(crate) fn used(&self, workers: usize, window: (f64, f64)) -> f64 {
        self.median(|world| used(world, workers, window))
    }

    fn median(&self, measure: impl Fn(&World) -> f64) -> f64 {
        quantile(&sorted(self.0.iter().map(measure)), 0.5)
    }
}

impl Summary {
    /// The time that this fraction of the pages did not exceed.
    pub(crate) fn page_ms(&self, part: f64) -> f64 {
        quantile(&self.pages_ms, part)
    }
}

/// The results of a group's requests that began in this window or, for crawlers, ended in it.
pub(crate) fn summary(world: &World, group: Group, (from, to): (f64, f64)) -> Summary {
    let when = |done: &Done| {
        if group == Group::Crawler { done.begin + done.took_ms / 1e3 } else { done.begin }
    };
    let is_counted = |done: &&Done| done.group == group && (from..to).contains(&when(done));
    let done: Vec<&Done> = world.done.iter().filter(is_counted).collect();
    let served: Vec<&&Done> = done.iter().filter(|done| done.outcome == Fate::Served).collect();
    let pages = served.iter().filter(|done| done.page != 0);
    Summary {
        pages_ms: sorted(pages.map(|done| done.took_ms)),
        failed_percent: 100.0 * (done.len() - served.len()) as f64 / done.len().max(1) as f64,
        served_per_s: served.len() as f64 / (to - from),
    }
}

/// The fraction of the capacity of this many workers that was used.
pub(crate) fn used(world: &World, workers: usize, (from, to): (f64, f64)) -> f64 {
    world.work_ms[from as usize..to as usize].iter().sum::<f64>() / 1e3 / (to - from) / workers as f64
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    sorted.get((sorted.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}
