//! The pass marks of the law, in virtual time: the median of three runs of a load, or of nine if they differ much.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::protect::runs::{summary, used};
use crate::protect::world::{Done, Fate, Group, World};
use crate::protect::{ProtectLoad, Runs};
use slowlane_core::law::protect::ProtectSettings;

const SEEDS: RangeInclusive<u64> = 1..=3;
const MORE_SEEDS: RangeInclusive<u64> = 1..=9;

/// The steady part of a run.
const STEADY: (f64, f64) = (15.0, 60.0);

const WITHOUT: Option<ProtectSettings> = None;

fn with(settings: ProtectSettings) -> Option<ProtectSettings> {
    Some(settings)
}

/// The load, before it begins.
fn prepared(load: &str, before: Option<ProtectSettings>, seed: u64) -> World {
    ProtectLoad::named(load).unwrap().prepared(before, seed)
}

impl Runs {
    fn of(load: &str) -> Runs {
        ProtectLoad::named(load).unwrap().runs(with(ProtectSettings::default()), SEEDS)
    }

    fn without(load: &str) -> Runs {
        ProtectLoad::named(load).unwrap().runs(WITHOUT, SEEDS)
    }

    fn p50(&self, group: Group, window: (f64, f64)) -> f64 {
        self.of_group(group, window, |of| of.page_ms(0.5))
    }

    fn p90(&self, group: Group, window: (f64, f64)) -> f64 {
        self.of_group(group, window, |of| of.page_ms(0.9))
    }

    fn p99(&self, group: Group, window: (f64, f64)) -> f64 {
        self.of_group(group, window, |of| of.page_ms(0.99))
    }

    fn failed(&self, group: Group) -> f64 {
        self.of_group(group, STEADY, |of| of.failed_percent)
    }
}

/// Asserts that a value is at most so many times another.
#[track_caller]
fn at_most(value: f64, times: f64, base: f64) {
    assert!(value <= times * base, "{value:.1}, at most {times} x {base:.1}");
}

#[track_caller]
fn at_least(value: f64, least: f64) {
    assert!(value >= least, "{value:.3}, at least {least}");
}

#[test]
fn customers_alone_notice_nothing() {
    let (alone, protected) = (Runs::without("alone"), Runs::of("alone"));
    at_most(protected.p50(Group::Customer, STEADY), 1.0, alone.p50(Group::Customer, STEADY) + 3.0);
    assert_eq!(protected.failed(Group::Customer), 0.0);
}

/// Ten crawlers with 20 connections each, 200 in five networks with two each, and one with 20.
#[test]
fn crawlers_cost_customers_little() {
    let alone = Runs::without("alone");
    for load in ["crawlers", "networks", "crawler"] {
        let crawled = Runs::of(load);
        for group in [Group::Customer, Group::Office] {
            at_most(crawled.p50(group, STEADY), 1.5, alone.p50(Group::Customer, STEADY));
            assert_eq!(crawled.failed(group), 0.0);
        }
        at_most(crawled.p99(Group::Customer, STEADY), 1.25, alone.p99(Group::Customer, STEADY));
        at_most(crawled.p50(Group::Neighbour, STEADY), 1.0, 500.0);
        at_least(crawled.used(8, STEADY), 0.98);
    }
}

/// Two slowlanes, and with half of the workers, one alone: each application has another number of places.
#[test]
fn several_slowlanes_and_small_applications_find_their_limit() {
    for load in ["crawlers", "networks"] {
        let one = Runs::of(load);
        let runs = |change: fn(&mut World)| {
            Runs(Vec::from_iter(MORE_SEEDS.map(|seed| {
                let mut world = prepared(load, with(ProtectSettings::default()), seed);
                change(&mut world);
                world.run(80.5)
            })))
        };
        let two = runs(|world| world.slowlanes.push(world.slowlanes[0].clone()));
        at_most(two.p50(Group::Customer, STEADY), 1.5, one.p50(Group::Customer, STEADY));
        at_most(two.p99(Group::Customer, STEADY), 1.5, one.p99(Group::Customer, STEADY));
        assert_eq!(two.failed(Group::Customer), 0.0);
        let small = runs(|world| world.change(0.0, 4, 1.0));
        at_most(small.p50(Group::Customer, STEADY), 1.5, one.p50(Group::Customer, STEADY));
        at_least(small.used(4, STEADY), 0.98);
    }
}

/// The law first sees an application in which each request takes 3 or 6.4 s. The latter is longer than the shortest
/// lease.
#[test]
fn crawlers_that_were_there_first_cost_customers_little_after_twenty_seconds() {
    let alone = Runs::without("alone");
    for (load, settled) in [("crawlers", 30.0), ("networks", 40.0)] {
        let installed = SEEDS.map(|seed| {
            let mut world = prepared(load, with(ProtectSettings::default()), seed);
            world.installed = 20.0;
            world.run(80.5)
        });
        let crawled = Runs(installed.collect());
        at_most(crawled.p50(Group::Customer, (settled, 60.0)), 1.5, alone.p50(Group::Customer, STEADY));
        at_most(crawled.p99(Group::Customer, (settled, 60.0)), 1.25, alone.p99(Group::Customer, STEADY));
        let failed = |window| crawled.of_group(Group::Customer, window, |of| of.failed_percent);
        assert_eq!(failed((settled, 60.0)), 0.0);
        if load == "crawlers" {
            assert_eq!(
                failed((15.0, settled)),
                0.0,
                "nobody is refused because the application was slow before"
            );
        }
    }
}

#[test]
fn half_of_the_workers_go_and_come_back() {
    let (alone, halved) = (Runs::without("alone"), Runs::of("half"));
    let during = (38.0, 45.0);
    at_most(halved.p50(Group::Customer, during), 1.7, alone.p50(Group::Customer, STEADY));
    at_most(halved.p99(Group::Customer, during), 2.0, alone.p99(Group::Customer, STEADY));
    at_most(halved.p50(Group::Office, (30.0, 45.0)), 2.0, alone.p50(Group::Office, STEADY));
    at_most(halved.p99(Group::Office, (30.0, 45.0)), 2.0, alone.p99(Group::Office, STEADY));
    assert_eq!(halved.failed(Group::Customer), 0.0);
    at_least(halved.used(4, (30.0, 45.0)), 0.98);
    at_most(halved.p50(Group::Customer, (53.0, 60.0)), 1.5, alone.p50(Group::Customer, STEADY));
}

#[test]
fn all_is_three_times_slower_for_a_while() {
    let alone = Runs::without("alone");
    let slow = ProtectLoad::named("slow").unwrap().runs(with(ProtectSettings::default()), MORE_SEEDS);
    at_most(slow.p50(Group::Customer, (30.0, 45.0)), 5.0, alone.p50(Group::Customer, STEADY));
    at_most(slow.p99(Group::Customer, (30.0, 45.0)), 1.0, 7_000.0);
    at_most(slow.p50(Group::Customer, (55.0, 60.0)), 1.5, alone.p50(Group::Customer, STEADY));
    at_most(slow.p99(Group::Customer, (55.0, 60.0)), 1.25, alone.p99(Group::Customer, STEADY));
    assert_eq!(slow.failed(Group::Customer), 0.0);
}

#[test]
fn a_shared_database_is_kept_from_thrashing() {
    let mut alone = ProtectLoad::named("database").unwrap();
    alone.crawl = None;
    let (alone, crawled) = (alone.runs(WITHOUT, SEEDS), Runs::of("database"));
    at_most(crawled.p50(Group::Customer, STEADY), 2.5, alone.p50(Group::Customer, STEADY));
    at_most(crawled.p99(Group::Customer, STEADY), 2.5, alone.p99(Group::Customer, STEADY));
    at_least(crawled.used(8, STEADY), 0.95);
    assert_eq!(crawled.failed(Group::Customer), 0.0);
}

/// 300 crawlers in networks of their own, and a bot-net of 2000 addresses that ask rarely.
#[test]
fn more_crawlers_than_shares_are_no_worse_than_without() {
    for load in ["scattered", "botnet"] {
        let (without, protected) = (Runs::without(load), Runs::of(load));
        at_most(protected.p50(Group::Customer, STEADY), 1.0, without.p50(Group::Customer, STEADY));
        at_most(protected.p90(Group::Customer, STEADY), 1.0, without.p90(Group::Customer, STEADY));
        at_most(protected.p99(Group::Customer, STEADY), 1.15, without.p99(Group::Customer, STEADY));
    }
}

#[test]
fn customers_alone_who_ask_for_too_much_are_served_in_time_or_refused_at_once() {
    let settings = ProtectSettings::default();
    for seed in SEEDS {
        let world = prepared("crowd", with(settings), seed).run(60.0);
        let served = world.done.iter().filter(|done| done.outcome == Fate::Served && done.begin >= 5.0);
        let most_ms = served.map(|done| done.took_ms).fold(0.0, f64::max);
        at_most(most_ms, 1.0, settings.delay_max.as_millis() as f64 + 1_000.0);
        at_least(used(&world, 8, STEADY), 0.97);
        let refused = world.done.iter().filter(|done| done.outcome == Fate::Refused);
        let (at_once, late): (Vec<&Done>, Vec<&Done>) = refused.partition(|done| done.took_ms < 50.0);
        assert!(at_once.len() > late.len(), "{} at once, {} late", at_once.len(), late.len());
    }
}

#[test]
fn without_ends_everything_passes_within_a_minute() {
    let mut world = prepared("crawlers", with(ProtectSettings::default()), 1);
    world.lost = (1.0, 15.0);
    let world = world.run(80.0);
    let views = world.views.iter().filter(|(second, _)| (50.0..58.0).contains(second));
    assert!(views.clone().count() > 0);
    assert!(views.clone().all(|(_, view)| !view.sees_ends && view.waiting == 0));
}

#[test]
fn some_ends_may_get_lost() {
    let lossy = Runs(Vec::from_iter(MORE_SEEDS.map(|seed| {
        let mut world = prepared("crawlers", with(ProtectSettings::default()), seed);
        world.lost = (0.01, 0.0);
        world.run(80.5)
    })));
    at_least(lossy.used(8, (40.0, 60.0)), 0.9);
    at_most(lossy.p50(Group::Customer, (40.0, 60.0)), 1.0, 300.0);
    assert_eq!(lossy.failed(Group::Customer), 0.0);
}

/// An application that answers all with an error, at once, must not look like one that serves everybody.
#[test]
fn an_application_that_dies_and_comes_back_is_not_flooded() {
    let mut world = prepared("crawlers", with(ProtectSettings::default()), 1);
    world.change(30.0, 8, 0.01);
    world.change(45.0, 8, 1.0);
    let world = world.run(80.5);
    let limits = world.views.iter().filter(|(second, _)| (30.0..60.0).contains(second));
    let most = limits.map(|(_, view)| view.limit).max().unwrap_or_default();
    assert!(most <= 64, "{most}");
    let customers = summary(&world, Group::Customer, (50.0, 60.0));
    at_most(customers.page_ms(0.99), 1.0, 700.0);
}

#[test]
fn the_longest_wait_is_what_was_promised() {
    let settings = ProtectSettings { delay_max: Duration::from_secs(2), ..ProtectSettings::default() };
    let world = prepared("crowd", with(settings), 1).run(60.0);
    let served = world.done.iter().filter(|done| done.outcome == Fate::Served && done.begin >= 5.0);
    at_most(served.map(|done| done.took_ms).fold(0.0, f64::max), 1.0, 3_000.0);
}
