//! What the other benches and the tests already have, and the keys and limits of this bench.

#![allow(dead_code, reason = "each file is shared with other benches, which use other parts of it")]

#[path = "../../support/cores.rs"]
pub mod cores;
#[path = "../../support/histogram.rs"]
pub mod histogram;
#[path = "../../http/baseline.rs"]
pub mod http_baseline;
#[path = "../../support/plain_server.rs"]
pub mod plain_server;
#[path = "../../../it/support/process.rs"]
pub mod process;
#[path = "../../support/spop_baseline.rs"]
pub mod spop_baseline;
#[path = "../../support/usage.rs"]
pub mod usage;

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use arrayvec::ArrayString;

/// The keys of a load.
const KEYS: usize = 262_144;

/// A million keys have room, even if they do not spread evenly.
pub const KEYS_MAX: u32 = 1_100_000;

/// A client address, and its text.
#[derive(Clone, Copy)]
pub struct Key {
    pub address: Ipv4Addr,
    pub text: ArrayString<15>,
}

impl Key {
    pub fn new(address: Ipv4Addr) -> Key {
        let mut text = ArrayString::new();
        write!(text, "{address}").expect("an address has at most 15 characters");
        Key { address, text }
    }

    /// One of a million keys of 15 characters each.
    pub fn numbered(number: u32) -> Key {
        let [a, b, c] = [10_000, 100, 1].map(|unit| (number / unit % 100) as u8 + 100);
        Key::new(Ipv4Addr::new(100, a, b, c))
    }

    pub fn random() -> Vec<Key> {
        let mut rng = fastrand::Rng::with_seed(7);
        (0..KEYS).map(|_| Key::new(Ipv4Addr::from_bits(rng.u32(..)))).collect()
    }
}

/// A token bucket of each key: its burst, and so many tokens a second or an hour.
#[derive(Clone, Copy)]
pub struct Limit {
    pub burst: u32,
    pub count: u32,
    pub period_s: u32,
}

impl Limit {
    /// No load reaches it.
    pub const NEVER: Limit = Limit { burst: 1_000, count: 1_000, period_s: 1 };
    /// A key that was used once has its state for the rest of the run.
    pub const LONG: Limit = Limit { burst: 100, count: 100, period_s: 3_600 };
    /// A tenth of the requests of the accuracy.
    pub const LOW: Limit = Limit { burst: 10, count: 10, period_s: 1 };

    /// slowlane's files: each client has this bucket.
    pub fn policy(self) -> [(&'static str, String); 2] {
        let Limit { burst, count, period_s } = self;
        let unit = if period_s == 1 { "s" } else { "h" };
        let slo = format!("0 rate=unlimited\n3001 burst={burst} rate={count}/{unit} law=token-bucket\n");
        [("slo.map", slo), ("source.map", "0.0.0.0/0 3001\n".to_owned())]
    }
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Repeats `look` until it finds something.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
