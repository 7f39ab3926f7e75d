//! Any bytes as lines of the Runtime API, asked of a small table one after the other.

use std::time::Duration;

use slowlane::server::runtime_api::{answer, commands};
use slowlane_core::base::{Key, Timestamp};
use slowlane_core::policy::Policy;
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

const ENTRIES_MAX: u32 = 200;

/// Of a table without rows: many more pieces than any answer has.
const PIECES_MAX: usize = 1_000;

pub fn run(text: &[u8]) {
    let sizing = Sizing { entries_max: ENTRIES_MAX, expire: Duration::from_secs(30) };
    let throttle = Throttle::new(Policy::builtin(), sizing, 0);
    let now = Timestamp::from_millis(60_000);
    for bits in 0..100 {
        throttle
            .table()
            .with(Key::from_bits(bits << 40 | bits), now, Duration::ZERO, |entry| entry.gpt0 = bits as u32);
    }
    for line in text.split(|&byte| byte == b'\n') {
        for words in commands(line) {
            let mut answer = answer(&words, &throttle, now);
            let (mut reported, mut pieces) = (String::new(), 1);
            while answer.more(&throttle, now, &mut reported) {
                pieces += 1;
                assert!(pieces < PIECES_MAX, "an answer has an end");
            }
            // The empty line that ends an answer is the only one in it, and each other line is whole.
            assert!(reported.is_empty() || reported.ends_with('\n'));
            assert!(!reported.contains("\n\n") && !reported.starts_with('\n'));
            assert!(!reported.chars().any(|letter| letter.is_control() && letter != '\n'));
            assert!(throttle.usage().entries <= u64::from(ENTRIES_MAX));
        }
    }
}
