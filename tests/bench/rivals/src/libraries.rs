//! The libraries in this process, and slowlane's own decision beside them.

use std::collections::HashMap;
use std::hint::black_box;
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use governor::Quota;
use limitador::limit::{Limit as Window, Namespace};
use pingora_limits::rate::Rate;
use slowlane_core::base::{Request, Sample, Timestamp, Value};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use throttlecrab::{PeriodicStore, RateLimiter};

use crate::load::Meter;
use crate::support::{KEYS_MAX, Key, Limit, usage};

/// Decisions between two reads of the clock, in the first pass.
const BATCH: u32 = 256;

/// Decisions of the second pass.
const TIMED: u32 = 500_000;

/// Whether a request of this key is admitted.
pub type Decide = Box<dyn FnMut(Key) -> bool>;

pub struct Library {
    pub name: &'static str,
    pub create: fn(Limit) -> Decide,
}

/// The first is the baseline.
pub const LIBRARIES: [Library; 6] = [
    Library {
        name: "baseline: reads the clock",
        create: |_| Box::new(|_| black_box(SystemTime::now()) > UNIX_EPOCH),
    },
    Library { name: "slowlane-core", create: slowlane },
    Library { name: "governor", create: governor },
    Library { name: "pingora-limits, `Rate`", create: pingora },
    Library { name: "throttlecrab", create: throttlecrab },
    Library { name: "limitador, in memory", create: limitador },
];

fn slowlane(limit: Limit) -> Decide {
    let files = limit.policy();
    let read = |path: &Path| {
        let file = files.iter().find(|(name, _)| path == Path::new(name));
        file.map(|(_, text)| text.clone().into_bytes()).ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    let sizing = Sizing { entries_max: KEYS_MAX, expire: Duration::from_secs(30) };
    let throttle = Throttle::new(policy, sizing, 0);
    Box::new(move |key| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        let mut request = Request::new();
        request.push(b"source", Value::Address(key.address.into()));
        let now = Timestamp::from_nanos(now.as_nanos() as u64);
        throttle.decide_one(&request, now, Sample::MIDDLE).verdict.is_let_through()
    })
}

fn governor(limit: Limit) -> Decide {
    let number = |number| NonZeroU32::new(number).expect("more than none");
    let quota = if limit.period_s == 1 { Quota::per_second } else { Quota::per_hour };
    let limiter = governor::RateLimiter::keyed(quota(number(limit.count)).allow_burst(number(limit.burst)));
    Box::new(move |key| limiter.check_key(&key.address).is_ok())
}

/// As in its documentation: the events of the current period, refused ones included.
fn pingora(limit: Limit) -> Decide {
    let rate = Rate::new(Duration::from_secs(limit.period_s.into()));
    Box::new(move |key| rate.observe(&key.address, 1) <= limit.count as isize)
}

/// With the store and the capacity of throttlecrab-server.
fn throttlecrab(limit: Limit) -> Decide {
    let mut limiter = RateLimiter::new(PeriodicStore::with_capacity(100_000));
    let [burst, count, period_s] = [limit.burst, limit.count, limit.period_s].map(i64::from);
    Box::new(move |key| {
        limiter.rate_limit(&key.text, burst, count, period_s, 1, SystemTime::now()).unwrap().0
    })
}

/// A fixed window: it has no burst.
fn limitador(limit: Limit) -> Decide {
    let limiter = limitador::RateLimiter::new(KEYS_MAX.into());
    let namespace = Namespace::from("bench");
    let source = "source".try_into().expect("a variable");
    limiter.add_limit(Window::new("bench", limit.count.into(), limit.period_s.into(), vec![], vec![source]));
    Box::new(move |key| {
        let request = HashMap::from([("source".to_owned(), key.text.to_string())]);
        !limiter.check_rate_limited_and_update(&namespace, &request.into(), 1).unwrap().limited
    })
}

impl Library {
    /// Decisions per second, the CPU of each in µs, the 99th percentile in µs, and the part that is refused. Before each
    /// decision of the percentile and after it, the clock is read.
    pub fn load(&self, keys: &[Key], time: Duration) -> [f64; 4] {
        let mut decide = (self.create)(Limit::NEVER);
        keys.iter().for_each(|&key| _ = decide(key));
        let mut rng = fastrand::Rng::with_seed(7);
        let mut refuses = || u32::from(!decide(keys[rng.usize(..keys.len())]));
        let (cpu_ns, started) = (usage::cpu_ns(process::id()), Instant::now());
        let [mut count, mut refused] = [0; 2];
        while started.elapsed() < time {
            refused += (0..BATCH).map(|_| refuses()).sum::<u32>();
            count += BATCH;
        }
        let (took, cpu_ns) = (started.elapsed(), usage::cpu_ns(process::id()) - cpu_ns);
        let mut meter = Meter::start(process::id());
        for _ in 0..TIMED {
            let asked = Instant::now();
            black_box(refuses());
            meter.add(asked.elapsed());
        }
        let ([_, _, p99_us, _], count) = (meter.figures(), f64::from(count));
        [count / took.as_secs_f64(), cpu_ns as f64 / 1e3 / count, p99_us, f64::from(refused) / count]
    }
}
