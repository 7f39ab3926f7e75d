//! Any format, and any bytes as a log.

use std::io::Cursor;
use std::time::Duration;

use slowlane_core::policy::Policy;
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use slowlane_lab::access_log::{Choice, Format, Mapping};
use slowlane_lab::replay::{Input, ReplaySettings, Subject, json, replay, report};

use super::input::texts;

/// The bytes: number of a known format, then a format, a mapping and the log.
pub fn run(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let [format, mapping, log] = texts(rest);
    let (Ok(format), Ok(mapping)) = (str::from_utf8(format), str::from_utf8(mapping)) else { return };
    let known = Format::known();
    let format = match known.get(usize::from(choice)) {
        Some(known) => Choice::This(known.clone()),
        None if choice == u8::MAX => Choice::Any,
        None => match Format::parse(format) {
            Ok(format) => Choice::This(format),
            Err(error) => return assert!(!error.to_string().is_empty()),
        },
    };
    let mappings: Vec<Mapping> = format!("cost={mapping}").parse().into_iter().collect();
    let measures = vec![];
    let settings =
        ReplaySettings { format, mappings, measures, reorder: Duration::from_secs(1), seed: 1, top: 5 };
    let sizing = Sizing { entries_max: 16, expire: Duration::from_secs(30) };
    let subject = Subject { name: "built in".into(), throttle: Throttle::new(Policy::builtin(), sizing, 0) };
    let inputs = vec![Input { name: "log".into(), bytes: Box::new(Cursor::new(log.to_vec())) }];
    let Ok(outcome) = replay(inputs, &[subject], &settings, |_| ()) else { return };
    let log = &outcome.logs[0];
    let faulty: u64 = log.errors.iter().map(|faulty| faulty.count).sum();
    assert!(log.requests + faulty <= log.lines);
    assert!(outcome.requests() <= log.requests);
    for text in [report(&outcome), json(&outcome)] {
        assert!(text.bytes().all(|byte| byte == b'\n' || !byte.is_ascii_control()));
    }
}
