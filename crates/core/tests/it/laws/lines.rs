//! Policies for tests: their lines, and throttles that have them.

use std::io;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::Union;
use slowlane_core::law::Law;
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

use super::oracle::Subject;

pub fn policy(slo_map: &str, maps: &[(&str, &str)]) -> Policy {
    let read = |path: &Path| {
        let name = path.to_str().unwrap();
        if name == "slo.map" {
            return Ok(slo_map.into());
        }
        let map = maps.iter().find(|(map, _)| *map == name);
        map.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    Policy::parse(Path::new(""), &Layout::default(), read).unwrap_or_else(|errors| panic!("{errors}"))
}

pub fn throttle_of(slo_map: &str, maps: &[(&str, &str)]) -> Throttle {
    let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(3_600) };
    Throttle::new(policy(slo_map, maps), sizing, 1 << 20)
}

/// A line of `slo.map` under a law, with numbers and options of all sizes.
fn line_of(name: &'static str) -> BoxedStrategy<String> {
    let rate = prop_oneof![
        2 => (1..300u32).prop_map(|count| format!("{count}/s")),
        1 => (1..600u32).prop_map(|count| format!("{count}/m")),
    ];
    let window = prop::sample::select(vec!["", " window=50ms", " window=700ms", " window=1s", " window=3s"]);
    let max_delay =
        prop::sample::select(vec!["", " max_delay=0s", " max_delay=30ms", " max_delay=1s", " max_delay=7s"]);
    let options: BoxedStrategy<String> = match name {
        "adaptive" => (prop::sample::select(vec!["", " max_delay=50ms", " over=1"]), Just(" jitter=0"))
            .prop_map(|(one, other)| format!("{one}{other}"))
            .boxed(),
        "pace" => max_delay.prop_map(str::to_owned).boxed(),
        "fair" => (max_delay, prop::sample::select(vec!["", " sources_max=3", " sources_max=1"]))
            .prop_map(|(one, other)| format!("{one}{other}"))
            .boxed(),
        "fixed-window" | "sliding-window" | "sliding-log" | "sketch" => {
            window.prop_map(str::to_owned).boxed()
        }
        "sliding-buckets" => {
            (window, prop::sample::select(vec!["", " buckets=1", " buckets=2", " buckets=3", " buckets=5"]))
                .prop_map(|(one, other)| format!("{one}{other}"))
                .boxed()
        }
        "concurrency" => {
            (prop::sample::select(vec!["", " max=1", " max=7"]), prop::sample::select(vec!["", " lease=1s"]))
                .prop_map(|(one, other)| format!("{one}{other}"))
                .boxed()
        }
        "token-bucket" | "leaky-bucket" => Just(String::new()).boxed(),
        _ => panic!("no options are known of {name}"),
    };
    let line = (0..20u32, rate, options)
        .prop_map(move |(burst, rate, options)| format!("burst={burst} rate={rate} law={name}{options}"));
    line.prop_filter("such a window has no whole request", |line| Subject::parse(line).is_ok()).boxed()
}

pub fn line() -> impl Strategy<Value = String> {
    line_but(&[])
}

/// A line of any law but these.
pub fn line_but(others: &[&str]) -> impl Strategy<Value = String> {
    Union::new(Law::NAMES.iter().filter(|name| !others.contains(name)).map(|name| line_of(name)))
}
