//! What each program admits of requests at ten times a limit, beside an exact token bucket.

use std::thread;
use std::time::{Duration, Instant};

use crate::libraries::{Decide, LIBRARIES};
use crate::servers::{DECIDERS, Programs};
use crate::support::{Key, Limit};

const REQUESTS: u32 = 1_000;

/// So many requests at once, and the time between these.
pub type Pattern = (u32, Duration);

/// 100 requests per second: ten times 10/s.
pub const STEADY: Pattern = (1, Duration::from_millis(10));

/// Ten times a burst of 10, with pauses in which a bucket becomes full.
pub const BURSTS: Pattern = (100, Duration::from_millis(1_500));

/// Asks all programs in turn.
pub fn measure(programs: &Programs, (at_once, pause): Pattern) -> Vec<(&'static str, Trial)> {
    let running: Vec<_> =
        DECIDERS.iter().map(|rival| (rival.name, rival.start(programs, Limit::LOW))).collect();
    let servers = running.iter().map(|(name, server)| (*name, server.asker()));
    let libraries = LIBRARIES[1..].iter().map(|library| (library.name, (library.create)(Limit::LOW)));
    let mut trials: Vec<_> =
        servers.chain(libraries).map(|(name, decide)| (name, Trial::new(decide))).collect();
    let started = Instant::now();
    for round in 0..REQUESTS / at_once {
        thread::sleep((started + pause * round).saturating_duration_since(Instant::now()));
        trials.iter_mut().for_each(|(_, trial)| (0..at_once).for_each(|_| trial.ask()));
    }
    trials
}

/// What a program has admitted, and what an exact token bucket.
pub struct Trial {
    decide: Decide,
    tokens: f64,
    at: Instant,
    pub admitted: u32,
    pub exact: u32,
}

impl Trial {
    fn new(decide: Decide) -> Trial {
        Trial { decide, tokens: Limit::LOW.burst.into(), at: Instant::now(), admitted: 0, exact: 0 }
    }

    fn ask(&mut self) {
        let (now, Limit { burst, count, period_s }) = (Instant::now(), Limit::LOW);
        let refill = (now - self.at).as_secs_f64() * f64::from(count) / f64::from(period_s);
        (self.tokens, self.at) = ((self.tokens + refill).min(burst.into()), now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            self.exact += 1;
        }
        self.admitted += u32::from((self.decide)(Key::numbered(0)));
    }

    /// As a part of what is right, in percent.
    pub fn error_percent(&self) -> f64 {
        100.0 * (f64::from(self.admitted) / f64::from(self.exact) - 1.0)
    }
}
