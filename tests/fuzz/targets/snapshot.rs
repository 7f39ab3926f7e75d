//! The frames of a snapshot with any content and the right checksums: nothing that is put back breaks a decision.

use std::io;
use std::path::Path;
use std::time::Duration;

use slowlane_core::base::{KeySecret, Request, Sample, Timestamp, Value};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::snapshot::{FRAME_BYTES_MAX, PartWriter, Parts, restore};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

/// The name and the version.
const OPENING_BYTES: usize = 16;

/// The length and the checksum of a frame.
const HEAD_BYTES: usize = 12;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// The policy of the snapshots in the corpus.
const SLOS: &str = include_str!("../../it/snapshot/slo.map");

pub fn run(bytes: &[u8]) {
    let framed = framed(bytes).expect("memory takes all that is written");
    let throttle = throttle();
    if let Ok(parts) = Parts::new(&framed[..]) {
        let _ = restore(parts, true, &throttle, NOW);
    }
    for round in 0..5u64 {
        let now = NOW + Duration::from_millis(round * round * 400);
        for website in 0..12 {
            let website = format!("w{website}");
            let mut request = Request::new();
            request.push(b"website", Value::Text(website.as_bytes()));
            request.push(b"source", Value::Text(b"192.0.2.1"));
            throttle.decide_one(&request, now, Sample::MIDDLE);
        }
    }
    throttle.blocks(usize::MAX, NOW);
    // What was put back can be written again.
    let head = slowlane_core::snapshot::SnapshotHead::new(NOW, Duration::ZERO, KeySecret::KNOWN, Vec::new());
    let mut again = Vec::new();
    slowlane_core::snapshot::save(&throttle, head, None, Some(&[]), &mut again)
        .expect("memory takes all that is written");
    Parts::new(&again[..]).and_then(Parts::check).expect("it was just written");
}

/// The same frames with the right checksums.
fn framed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut framed = Vec::new();
    let mut writer = PartWriter::new(&mut framed)?;
    let mut rest = bytes.get(OPENING_BYTES..).unwrap_or_default();
    while let Some((head, payload)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let (payload, others) = payload.split_at(length.min(payload.len()));
        writer.write_encoded(&payload[..payload.len().min(FRAME_BYTES_MAX)])?;
        rest = others;
    }
    Ok(framed)
}

fn throttle() -> Throttle {
    let websites: String = (0..12).map(|number| format!("w{number} 20{number:02}\n")).collect();
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(SLOS.into()),
        Some("website.map") => Ok(websites.clone().into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse(Path::new(""), &Layout::default(), read).expect("the policy is valid");
    let policy = policy.with_key_secret(KeySecret::from_bytes([7; 16]));
    Throttle::new(policy, Sizing { entries_max: 100, expire: Duration::from_secs(30) }, 1 << 20)
}
