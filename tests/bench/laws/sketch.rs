//! An event under `sketch` beside those of pingora-limits, for keys without end.

use std::hint::black_box;
use std::time::Duration;

use pingora_limits::estimator::Estimator;
use pingora_limits::rate::{PROPORTIONAL_RATE_ESTIMATE_CALC_FN, Rate};
use slowlane_core::base::{Key, Timestamp};
use slowlane_core::law::Law;
use slowlane_core::table::Sketch;

use crate::law;
use crate::support::effort::Effort;
use crate::support::{Cost, key, print as line};

/// Keys are drawn evenly from so many.
const KEYS: [u32; 3] = [1_000, 100_000, 10_000_000];

/// Events between two reads of the clock.
const BATCH: usize = 256;

/// Of a million events per second.
const BATCH_TIME: Duration = Duration::from_micros(256);

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A rate that hardly any key reaches, and one that nearly all exceed.
const PASSING_PER_SECOND: u32 = 1_000_000;
const REFUSING_PER_SECOND: u32 = 1;

type Event = Box<dyn FnMut(Key, Timestamp)>;

pub fn print(effort: Effort) {
    for keys in KEYS.map(|keys| effort.count(keys)) {
        let mut subjects: Vec<(&str, Event)> = vec![
            ("pingora Rate, 4 x 1,024", of_rate()),
            ("pingora Estimator, same cells", of_estimator()),
            ("sketch, passing", of_law(PASSING_PER_SECOND)),
            ("sketch, refusing", of_law(REFUSING_PER_SECOND)),
        ];
        let mut rng = fastrand::Rng::with_seed(7);
        let figures =
            effort.in_turns(&mut subjects, |(_, event)| [measure(keys, &mut rng, event, effort.time)]);
        let others: Vec<(&str, f64)> = (0..2).map(|place| (subjects[place].0, figures[place][0])).collect();
        for (place, (name, _)) in subjects.iter().enumerate() {
            let others = if place < 2 { &[][..] } else { &others };
            line(&format!("an event, {keys} keys"), name, figures[place][0], "ns", others);
        }
    }
}

fn measure(keys: u32, rng: &mut fastrand::Rng, event: &mut Event, time: Duration) -> f64 {
    let (mut cost, mut now) = (Cost::within(time), START);
    while cost.has_time() {
        let keys: [Key; BATCH] = std::array::from_fn(|_| key(rng.u32(0..keys)));
        now = now + BATCH_TIME;
        cost.of(BATCH, || keys.into_iter().for_each(|key| event(key, now)));
    }
    cost.ns_each()
}

fn of_law(rate_per_second: u32) -> Event {
    let Law::Sketch(law) = law("sketch", 0, rate_per_second) else { unreachable!("it has this name") };
    let sketch = Sketch::new(law.shape, law.period());
    Box::new(move |key, now| {
        black_box(sketch.with(key, 1, now, |seen| {
            let judgement = law.judge_seen(seen, 1);
            (judgement.verdict.is_let_through(), judgement)
        }));
    })
}

/// Counts, without a window and a limit.
fn of_estimator() -> Event {
    let Law::Sketch(law) = law("sketch", 0, 1) else { unreachable!("it has this name") };
    let estimator = Estimator::new(law.shape.rows as usize, 1 << law.shape.column_bits);
    Box::new(move |key, _| {
        black_box(estimator.incr(key.bits(), 1));
    })
}

/// Counts and reads the rate, as for a limit.
fn of_rate() -> Event {
    let rate = Rate::new(Duration::from_secs(1));
    Box::new(move |key, _| {
        rate.observe(&key.bits(), 1);
        black_box(rate.rate_with(&key.bits(), PROPORTIONAL_RATE_ESTIMATE_CALC_FN));
    })
}
