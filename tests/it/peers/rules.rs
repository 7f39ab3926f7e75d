//! The rules of the printed files, in virtual time: HAProxy's two tables and its arithmetic.

use std::collections::HashMap;

/// A clock that is further beyond the longest delay begins anew.
const FAR_US: i64 = 10_000_000;

/// One HAProxy.
#[derive(Default)]
pub struct Rules {
    own: HashMap<String, u32>,
    limits: HashMap<String, ([u64; 4], u64)>,
    counts: HashMap<String, [u32; 2]>,
}

/// The verdict of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruled {
    /// It leaves after this many milliseconds.
    Passes(u64),
    Denied,
    /// It queries over SPOE.
    Asks,
}

impl Rules {
    /// Takes up an entry of the table of limits, which lives for `expire_us`.
    pub fn learn(&mut self, key: &str, numbers: [u64; 4], now_us: u64, expire_us: u64) {
        self.limits.insert(key.to_owned(), (numbers, now_us + expire_us));
    }

    /// Decides a request, and returns the counts that an update then tells.
    pub fn ask(&mut self, key: &str, now_us: u64) -> (Ruled, [u32; 2]) {
        let limits = self.limits.get(key).filter(|(_, end)| *end > now_us).map(|(numbers, _)| *numbers);
        let counts = self.counts.entry(key.to_owned()).or_default();
        let Some([slot, tau, most, x]) = limits.filter(|limits| limits[0] > 0) else {
            if limits.is_some_and(|limits| limits[1] == 2) {
                return (Ruled::Asks, *counts);
            }
            counts[0] += 1;
            return (Ruled::Passes(0), *counts);
        };
        let now = now_us as u32;
        let own = self.own.get(key).copied().unwrap_or(0);
        let ahead = |clock: u32| i64::from(clock.wrapping_sub(now) as i32);
        let own = match own {
            // What has passed before the limit was there.
            0 => (u64::from(counts[0]) * slot).min(tau) as i64,
            own => ahead(own),
        };
        let after = own.max(ahead(x as u32)).max(0) + slot as i64;
        let over = after - most as i64;
        if over > FAR_US {
            self.own.remove(key);
        }
        if after > tau as i64 && over > 0 {
            counts[1] += 1;
            return (Ruled::Denied, *counts);
        }
        self.own.insert(key.to_owned(), now.wrapping_add(after as u32));
        counts[0] += 1;
        (Ruled::Passes((after as u64).saturating_sub(tau).div_ceil(1_000)), *counts)
    }
}
