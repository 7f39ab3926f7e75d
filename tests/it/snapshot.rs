//! The snapshot in virtual time: what is put back judges as if nothing had happened, and nothing broken is put back.

use std::io;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Decision, KeySecret, Request, Sample, Timestamp, Value, Verdict};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::snapshot::{Parts, Restored, SnapshotError, SnapshotHead, restore, save};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

use crate::corpora::targets;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const SECRET: [u8; 16] = [7; 16];

/// One SLO under each law, and some that block.
const SLOS: &str = include_str!("snapshot/slo.map");

const WEBSITES: u8 = 12;

fn policy(slos: &str) -> Policy {
    let websites: String = (0..WEBSITES).map(|number| format!("w{number} 20{number:02}\n")).collect();
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(slos.into()),
        Some("website.map") => Ok(websites.clone().into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    policy.with_key_secret(KeySecret::from_bytes(SECRET))
}

fn throttle() -> Throttle {
    Throttle::new(policy(SLOS), Sizing { entries_max: 1_000, expire: Duration::from_secs(30) }, 1 << 20)
}

/// A request to a website, from a source, after a pause.
#[derive(Clone, Copy, Debug)]
struct Asked {
    website: u8,
    source: u8,
    cost: u32,
    pause_ms: u64,
}

fn asked() -> impl Strategy<Value = Asked> {
    let pause = prop_oneof![8 => 0u64..300, 1 => 0u64..30_000];
    (0..WEBSITES, 0u8..3, prop_oneof![6 => Just(1u32), 1 => 1u32..4], pause)
        .prop_map(|(website, source, cost, pause_ms)| Asked { website, source, cost, pause_ms })
}

fn ask(throttle: &Throttle, asked: Asked, now: Timestamp) -> Decision {
    let (website, source) = (format!("w{}", asked.website), format!("192.0.2.{}", asked.source));
    let mut request = Request::new();
    request.push(b"website", Value::Text(website.as_bytes()));
    request.push(b"source", Value::Text(source.as_bytes()));
    request.push(b"cost", Value::Number(asked.cost.into()));
    throttle.decide_one(&request, now, Sample::MIDDLE)
}

fn saved(throttle: &Throttle, now: Timestamp) -> Vec<u8> {
    let (mut bytes, secret) = (Vec::new(), throttle.policy().key_secret());
    let head = SnapshotHead::new(now, Duration::from_secs(1), secret, Vec::new());
    let saved = save(throttle, head, None, Some(&[]), &mut bytes).unwrap();
    assert_eq!(saved.bytes, bytes.len() as u64);
    bytes
}

fn restored(bytes: &[u8], throttle: &Throttle, now: Timestamp) -> Result<Restored, SnapshotError> {
    let parts = Parts::new(bytes)?;
    let keys = parts.head.key_secret() == Some(throttle.policy().key_secret());
    restore(parts, keys, throttle, now)
}

proptest! {
    /// Every later decision is that of a slowlane that was never restarted, with its tickets.
    #[test]
    fn a_restart_changes_no_decision(
        before in prop::collection::vec(asked(), 1..150),
        after in prop::collection::vec(asked(), 1..60),
        away_ms in prop_oneof![Just(0u64), 0u64..5_000, Just(100_000)],
    ) {
        let (first, second, mut now) = (throttle(), throttle(), START);
        for asked in before {
            now = now + Duration::from_millis(asked.pause_ms);
            ask(&first, asked, now);
        }
        let bytes = saved(&first, now);
        prop_assert!(Parts::new(&bytes[..]).unwrap().check().is_ok());
        now = now + Duration::from_millis(away_ms);
        restored(&bytes, &second, now).unwrap();
        for asked in after {
            now = now + Duration::from_millis(asked.pause_ms);
            prop_assert_eq!(ask(&first, asked, now), ask(&second, asked, now));
        }
    }

    /// An upgrade: the keys are copied while the old process decides on, then what it has changed.
    #[test]
    fn a_copy_in_two_steps_changes_no_decision(
        before in prop::collection::vec(asked(), 1..80),
        meanwhile in prop::collection::vec((asked(), any::<bool>()), 1..80),
        after in prop::collection::vec(asked(), 1..60),
    ) {
        let (first, second, mut now) = (throttle(), throttle(), START);
        let (mut keys, mut changes) = (Vec::new(), Vec::new());
        let head = |now| SnapshotHead::new(now, Duration::from_secs(1), KeySecret::from_bytes(SECRET), Vec::new());
        for asked in before {
            now = now + Duration::from_millis(asked.pause_ms);
            ask(&first, asked, now);
        }
        first.table().track();
        save(&first, head(now), None, None, &mut keys).unwrap();
        for (asked, is_cleared) in meanwhile {
            now = now + Duration::from_millis(asked.pause_ms);
            let decision = ask(&first, asked, now);
            if is_cleared {
                first.forget(decision.key, |_| true);
            }
        }
        save(&first, head(now), Some(&first.table().tracked()), Some(&[]), &mut changes).unwrap();
        restored(&keys, &second, now).unwrap();
        restored(&changes, &second, now).unwrap();
        for asked in after {
            now = now + Duration::from_millis(asked.pause_ms);
            prop_assert_eq!(ask(&first, asked, now), ask(&second, asked, now));
        }
    }

    /// Nothing that was cut off or changed, in however little, passes the check.
    #[test]
    fn what_is_not_whole_is_found_out(
        before in prop::collection::vec(asked(), 1..40),
        place in any::<prop::sample::Index>(),
        bit in 0..8u32,
    ) {
        let throttle = throttle();
        for asked in before {
            ask(&throttle, asked, START);
        }
        let bytes = saved(&throttle, START);
        let place = place.index(bytes.len());
        let is_whole = |bytes: &[u8]| Parts::new(bytes).and_then(Parts::check).is_ok();
        prop_assert!(is_whole(&bytes) && !is_whole(&bytes[..place]));
        let mut longer = bytes.clone();
        longer.push(0);
        prop_assert!(!is_whole(&longer));
        let mut changed = bytes;
        changed[place] ^= 1u8 << bit;
        prop_assert!(!is_whole(&changed));
    }
}

proptest! {
    /// A file that somebody has changed, and given the right checksums.
    #[test]
    fn a_forged_snapshot_breaks_no_decision(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)
    ) {
        let mut bytes = include_bytes!("snapshot/version-3").to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        targets::snapshot::run(&bytes);
    }
}

#[test]
fn blocks_of_operators_are_back_and_end_when_they_would_have() {
    let (first, second) = (throttle(), throttle());
    let later = |seconds| START + Duration::from_secs(seconds);
    for (source, seconds) in [("192.0.2.1", 60), ("192.0.2.2", 10)] {
        let fields = first.policy().block_fields([("source", source)]).unwrap();
        first.block(fields, later(seconds), START).unwrap();
    }
    let restored = restored(&saved(&first, START), &second, later(20)).unwrap();
    assert_eq!((restored.blocks, restored.left_out), (1, 1));
    let verdict = |source, seconds| {
        let asked = Asked { website: 99, source, cost: 1, pause_ms: 0 };
        ask(&second, asked, later(seconds)).verdict
    };
    assert_eq!(verdict(1, 20), Verdict::Deny { retry_after_s: 40 });
    assert_eq!((verdict(1, 60), verdict(2, 20)), (Verdict::Pass, Verdict::Pass));
}

/// 500 of them were more than one frame holds, and the file was never written again.
#[test]
fn blocks_with_the_longest_values_are_back() {
    let (first, second) = (throttle(), throttle());
    let until = START + Duration::from_secs(60);
    let value = |number: usize| format!("{number:0>6}{}", "\u{1}".repeat(250));
    let names: Vec<String> = (0..8).map(|number| format!("{}{number}", "f".repeat(63))).collect();
    for number in 0..600 {
        let typed = names.iter().map(|name| (name.as_str(), value(number)));
        let fields = first.policy().block_fields(typed).unwrap();
        first.block(fields, until, START).unwrap();
    }
    let all = |throttle: &Throttle| throttle.blocks(usize::MAX, START);
    let back = restored(&saved(&first, START), &second, START).unwrap();
    assert_eq!((back.blocks, all(&second)), (600, all(&first)));
    let third = throttle();
    let mut rest = Vec::new();
    let head = SnapshotHead::new(START, Duration::from_secs(1), first.policy().key_secret(), Vec::new());
    save(&first, head, Some(&[]), Some(&[]), &mut rest).unwrap();
    assert_eq!(restored(&rest, &third, START).unwrap().blocks, 600, "in an upgrade, too");
}

/// Under another secret the same keys belong to others.
#[test]
fn keys_of_another_secret_stay_away() {
    let first = throttle();
    let asked = Asked { website: 4, source: 1, cost: 1, pause_ms: 0 };
    for _ in 0..9 {
        ask(&first, asked, START);
    }
    let fields = first.policy().block_fields([("source", "192.0.2.2")]).unwrap();
    first.block(fields, START + Duration::from_secs(60), START).unwrap();
    let other = policy(SLOS).with_key_secret(KeySecret::from_bytes([8; 16]));
    let second =
        Throttle::new(other, Sizing { entries_max: 1_000, expire: Duration::from_secs(30) }, 1 << 20);
    let restored = restored(&saved(&first, START), &second, START).unwrap();
    assert_eq!(restored, Restored { rows: 0, blocks: 1, left_out: 1, ..Restored::default() });
    assert_eq!(second.usage().entries, 0);
}

#[test]
fn entries_that_have_expired_stay_away() {
    let (first, second) = (throttle(), throttle());
    for website in [3, 6] {
        ask(&first, Asked { website, source: 1, cost: 1, pause_ms: 0 }, START);
    }
    let restored = restored(&saved(&first, START), &second, START + Duration::from_secs(1_800)).unwrap();
    assert_eq!((restored.rows, restored.over), (1, 1), "an hour is not over");
}

/// A change of what is saved has to raise the version: these bytes are of version 3.
#[test]
fn the_layout_of_this_version_is_the_one_that_was_written_down() {
    let throttle = throttle();
    for website in 0..WEBSITES {
        let asked = Asked { website, source: 1, cost: 2, pause_ms: 0 };
        for _ in 0..4 {
            ask(&throttle, asked, START);
        }
    }
    let fields = throttle.policy().block_fields([("source", "192.0.2.2")]).unwrap();
    throttle.block(fields, START + Duration::from_secs(60), START).unwrap();
    let second = self::throttle();
    let written = include_bytes!("snapshot/version-3");
    if std::env::var_os("SLOWLANE_WRITE_SNAPSHOT").is_some() {
        let path = crate::support::project("tests/it/snapshot/version-3");
        std::fs::write(path, saved(&throttle, START)).unwrap();
    }
    let restored = restored(written, &second, START).unwrap();
    assert_eq!((restored.rows, restored.blocks), (12, 3), "{restored:?}");
    // Website 2 had a law that has been removed. Its row is read, but no key of a policy is that of the row.
    for website in (0..WEBSITES).filter(|&website| website != 2) {
        let asked = Asked { website, source: 1, cost: 1, pause_ms: 0 };
        assert_eq!(ask(&throttle, asked, START), ask(&second, asked, START), "website {website}");
    }
}
