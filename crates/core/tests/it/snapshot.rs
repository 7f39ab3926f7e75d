//! What a snapshot puts back into a throttle, with the secret of its keys and without it, in virtual time.

use std::io;
use std::path::Path;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use slowlane_core::base::{Key, KeySecret, Request, Sample, Timestamp};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::snapshot::{NOTE_BYTES_MAX, Parts, Restored, SnapshotHead, VERSION, restore, save};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000_000 + second * 1_000)
}

/// One key, which may be asked for once a second.
fn throttle() -> Throttle {
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(b"0 burst=1 rate=1/s law=token-bucket block=10m\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    Throttle::new(policy, Sizing { entries_max: 100, expire: Duration::from_secs(3_600) }, 0)
}

fn saved(throttle: &Throttle, changed: Option<&[Key]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let head = SnapshotHead::new(at(0), Duration::ZERO, KeySecret::KNOWN, Vec::new());
    save(throttle, head, changed, Some(&[]), &mut bytes).unwrap();
    bytes
}

fn restored(bytes: &[u8], keys: bool, throttle: &Throttle, second: u64) -> Restored {
    restore(Parts::new(bytes).unwrap(), keys, throttle, at(second)).unwrap()
}

#[test]
fn a_key_that_was_forgotten_meanwhile_is_forgotten_by_the_copy() {
    let (old, copy) = (throttle(), throttle());
    let key = old.decide_one(&Request::new(), at(0), Sample::MIDDLE).key;
    assert_eq!(restored(&saved(&old, None), true, &copy, 0), Restored { rows: 1, ..Restored::default() });
    old.forget(key, |_| true);
    let changes = saved(&old, Some(&[key]));
    assert_eq!(restored(&changes, false, &copy, 0), Restored::default());
    assert!(copy.table().get(key, at(0)).is_some(), "a key of another secret is another key");
    assert_eq!(restored(&changes, true, &copy, 0), Restored::default());
    assert!(copy.table().get(key, at(0)).is_none());
}

/// The second request is refused, so its key is blocked for 600 s. An operator has set two blocks, of which one is over
/// when it is restored.
#[test]
fn without_their_secret_keys_are_left_out_and_blocks_of_operators_are_not() {
    let old = throttle();
    let key = old.decide_one(&Request::new(), at(0), Sample::MIDDLE).key;
    assert!(!old.decide_one(&Request::new(), at(0), Sample::MIDDLE).is_let_through());
    for (source, second) in [("192.0.2.1", 50), ("192.0.2.2", 51)] {
        let fields = old.policy().block_fields([("source", source)]).unwrap();
        old.block(fields, at(second), at(0)).unwrap();
    }
    let bytes = saved(&old, None);
    for (keys, expected) in [
        (true, Restored { rows: 1, blocks: 2, left_out: 1, ..Restored::default() }),
        (false, Restored { blocks: 1, left_out: 2, ..Restored::default() }),
    ] {
        let new = throttle();
        assert_eq!(restored(&bytes, keys, &new, 50), expected);
        assert_eq!(new.key_block(key, at(50)).is_some(), keys);
        assert_eq!(new.block_usage(at(50)).operators, 1);
    }
}

#[test]
fn notes_come_back_and_a_file_from_before_there_were_notes_is_read() {
    let (throttle, notes) = (throttle(), vec![vec![1, 2, 3], Vec::new(), vec![7; NOTE_BYTES_MAX]]);
    let (mut bytes, head) =
        (Vec::new(), || SnapshotHead::new(at(0), Duration::ZERO, KeySecret::KNOWN, Vec::new()));
    save(&throttle, head(), None, Some(&notes), &mut bytes).unwrap();
    Parts::new(&bytes[..]).unwrap().check().unwrap();
    assert_eq!(restored(&bytes, true, &throttle, 0).notes, notes);
    let too_long = [vec![7; NOTE_BYTES_MAX + 16]];
    assert!(save(&throttle, head(), None, Some(&too_long), &mut Vec::new()).is_err());

    let mut before = saved(&throttle, None);
    let version = b"slowlane state".len();
    for number in 0..VERSION + 2 {
        before[version..version + 2].copy_from_slice(&number.to_le_bytes());
        assert_eq!(Parts::new(&before[..]).is_ok(), number == VERSION, "{number} is sealed as {VERSION}");
    }
    // Until 5, the checksum of the first frame did not include the version.
    let [length, checksum, payload] = [version + 2, version + 6, version + 14];
    let bytes = u32::from_le_bytes(before[length..checksum].try_into().unwrap()) as usize;
    let unsealed = xxh3_64_with_seed(&before[payload..payload + bytes], 0);
    before[checksum..payload].copy_from_slice(&unsealed.to_le_bytes());
    for (number, is_read) in [(5, true), (4, true), (3, true), (2, false), (VERSION, false)] {
        before[version..version + 2].copy_from_slice(&u16::to_le_bytes(number));
        assert_eq!(Parts::new(&before[..]).is_ok(), is_read, "{number}");
    }
}
