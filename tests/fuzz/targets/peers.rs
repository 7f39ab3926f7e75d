//! Any bytes as one peer, served as the daemon serves it: the same news in one piece and in pieces, bounded keys, and
//! lessons that the other side can read.

use std::path::Path;
use std::time::Duration;

use slowlane_core::base::Timestamp;
use slowlane_core::peers::{Moment, Proxy};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use spop::peers::{Column, Error, Hello, Link, News};

const KEYS_MAX: usize = 8;

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

/// What a connection led to.
#[derive(Debug, PartialEq)]
struct Course {
    updates: usize,
    pushed: Vec<(String, Vec<u8>, [u64; 4])>,
    error: Option<Error>,
}

/// The first byte is the length of the pieces that the others arrive in.
pub fn run(bytes: &[u8]) {
    let Some((&piece_bytes, bytes)) = bytes.split_first() else { return };
    let _ = Hello::cut(bytes);
    let whole = serve(std::iter::once(bytes));
    assert_eq!(serve(bytes.chunks(usize::from(piece_bytes).max(1))), whole);
}

fn serve<'b>(pieces: impl Iterator<Item = &'b [u8]>) -> Course {
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(b"0 burst=1 rate=1/s\n2001 burst=9 rate=5/s\n".to_vec()),
        Some("website.map") => Ok(b"k1 2001\n".to_vec()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse("".as_ref(), &Layout::default(), read).expect("these files are good");
    let throttle = Throttle::new(policy, Sizing { entries_max: 100, expire: Duration::from_secs(30) }, 0);
    let mut proxy = Proxy::new(vec!["website".into()], KEYS_MAX);
    let moment = Moment { now: NOW, wall: Duration::from_secs(1_800_000_000) };

    let mut out = Vec::new();
    let mut link = Link::begin(NOW.since_epoch(), &mut out);
    let mut course = Course { updates: 0, pushed: Vec::new(), error: None };
    let mut unread = Vec::new();
    for piece in pieces {
        unread.extend_from_slice(piece);
        let mut pushes = Vec::new();
        let received = link.receive(&unread, NOW.since_epoch(), &mut out, &mut |news| match news {
            News::Defined(table) => proxy.defined(&table.name, table.expire),
            News::Updated(table, update) => {
                course.updates += 1;
                let values = update.column(table, Column::GPC);
                let counts = [0, 1].map(|place: usize| values.get(place).map_or(0, |&value| value as u32));
                proxy.counted(&throttle, &table.name, update.key, counts, moment, &mut pushes);
            }
            News::Synced => proxy.has_reported_all(),
            News::Asked => proxy.forget_updates(),
        });
        for push in pushes {
            link.push(&push.table, &push.key, &push.numbers, &mut out);
            course.pushed.push((push.table, push.key.into(), push.numbers));
        }
        match received {
            Ok(length) => drop(unread.drain(..length)),
            Err(error) => {
                course.error = Some(error);
                break;
            }
        }
    }
    assert!(proxy.keys() <= KEYS_MAX);
    proxy.due(&throttle, moment, &mut Vec::new());
    // The other side can read every byte of ours.
    let mut reader = Link::begin(NOW.since_epoch(), &mut Vec::new());
    assert_eq!(reader.receive(&out, NOW.since_epoch(), &mut Vec::new(), &mut |_| {}), Ok(out.len()));
    course
}
