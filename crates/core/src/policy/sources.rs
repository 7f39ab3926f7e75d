//! A sample of the sources of late: do nearly all requests come from one network?

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::base::{Network, Value};

/// The number of sources in the sample.
const SOURCES_MAX: usize = 1_024;

/// The number of requests sampled in a second, which each cost a little more than others.
pub(super) const SAMPLED_EACH_SECOND: u32 = 64;

/// With fewer requests, one busy client is no wonder.
const SOURCES_MIN: usize = 200;

/// The networks of operators of proxies. Their customers' clients come from anywhere.
const PREFIXES: (u8, u8) = (16, 32);

/// Nearly all requests, in percent.
const NEARLY_ALL: usize = 95;

/// The most addresses that are few.
const FEW: usize = 50;

/// The last sources, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The number of requests still to sample in this second.
    left: AtomicU32,
    ring: Mutex<VecDeque<IpAddr>>,
}

/// Nearly all requests come from few addresses of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crowd {
    /// The smallest network that has them all.
    pub network: Network,
    pub addresses: usize,
    /// The requests from there, of those in the sample.
    pub requests: usize,
    pub of: usize,
}

impl Sources {
    /// Begins to sample. False if it has not ended since the last call.
    pub(super) fn begin(&self) -> bool {
        self.left.swap(SAMPLED_EACH_SECOND, Relaxed) == 0
    }

    /// Whether the sample of this second is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    /// Takes a request into the sample, unless that is complete.
    pub(super) fn take(&self, source: Option<&Value<'_>>) {
        let Some(Value::Address(address)) = source else { return };
        if self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
            return;
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.push_back(*address);
        if ring.len() > SOURCES_MAX {
            ring.pop_front();
        }
    }

    pub(super) fn crowd(&self) -> Option<Crowd> {
        let sources = self.ring.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut networks = BTreeMap::<IpAddr, Vec<IpAddr>>::new();
        for &source in &sources {
            let prefix = if source.is_ipv4() { PREFIXES.0 } else { PREFIXES.1 };
            networks.entry(Network::of(source, prefix).address()).or_default().push(source);
        }
        let largest = networks.into_values().max_by_key(Vec::len)?;
        let addresses: BTreeSet<IpAddr> = largest.iter().copied().collect();
        let (requests, of) = (largest.len(), sources.len());
        let is_crowd = of >= SOURCES_MIN && requests * 100 >= of * NEARLY_ALL && addresses.len() <= FEW;
        let (first, last) = (addresses.first()?, addresses.last()?);
        is_crowd.then(|| Crowd { network: common(*first, *last), addresses: addresses.len(), requests, of })
    }
}

/// The smallest network with two addresses of one family.
fn common(one: IpAddr, other: IpAddr) -> Network {
    let prefix = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => 0,
    };
    Network::of(one, prefix as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crowd among sources that were all sampled.
    fn crowd(sources: impl Iterator<Item = String>) -> Option<(String, usize, usize)> {
        let sample = Sources::default();
        for source in sources {
            sample.begin();
            sample.take(Some(&Value::address(source.parse().unwrap())));
        }
        sample.crowd().map(|Crowd { network, addresses, of, .. }| (network.to_string(), addresses, of))
    }

    #[test]
    fn a_few_addresses_of_one_network_are_a_crowd() {
        let one = |_| "192.0.2.7".to_owned();
        assert_eq!(crowd((0..SOURCES_MIN - 1).map(one)), None, "too few");
        assert_eq!(crowd((0..SOURCES_MIN).map(one)), Some(("192.0.2.7".into(), 1, SOURCES_MIN)));
        let edges = |number| format!("192.0.2.{}", number % FEW);
        assert_eq!(crowd((0..5_000).map(edges)), Some(("192.0.2.0/26".into(), FEW, SOURCES_MAX)));
        let edges = |number| format!("2001:db8:{:x}::1", number % 3);
        assert_eq!(crowd((0..300).map(edges)), Some(("2001:db8::/46".into(), 3, 300)));
        let many = |number| format!("192.0.{}.{}", number % 2, number % 100);
        assert_eq!(crowd((0..5_000).map(many)), None, "a network with many clients");
        let anywhere = |number: usize| format!("{}.0.2.7", number % 200 + 1);
        assert_eq!(crowd((0..5_000).map(anywhere)), None);
        let others = |number: usize| if number.is_multiple_of(16) { anywhere(number) } else { one(number) };
        assert_eq!(crowd((0..1_600).map(others)), None, "6 % come from elsewhere");
        let others = |number: usize| if number.is_multiple_of(32) { anywhere(number) } else { one(number) };
        assert_eq!(crowd((0..1_600).map(others)), Some(("192.0.2.7".into(), 1, SOURCES_MAX)), "3 % do");
    }

    #[test]
    fn a_second_samples_so_many_and_no_more() {
        let (sample, source) = (Sources::default(), Value::address("192.0.2.7".parse().unwrap()));
        sample.take(Some(&source));
        assert!(sample.is_complete() && sample.begin() && !sample.begin());
        (0..5_000).for_each(|_| sample.take(Some(&source)));
        [None, Some(&Value::Text(b"unix:"))].iter().for_each(|none| sample.take(*none));
        assert_eq!(sample.ring.lock().unwrap().len(), SAMPLED_EACH_SECOND as usize);
    }
}
