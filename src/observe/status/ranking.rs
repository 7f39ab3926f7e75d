//! The ranking of groups, as operators see it.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::observe::status::groups::NETWORK;
use slowlane_core::base::Network;

/// A network is left out if one narrower group has nearly all of its requests.
const NEARLY_ALL: f64 = 0.9;

/// The minimum number of sampled requests for a crowd, because among fewer requests one busy client is normal.
const CROWD_MIN: u64 = 200;
const CROWD_SHARE: f64 = 0.95;
const FEW: u32 = 50;

/// The answer from `/api/groups`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// The span in seconds. Its means are exponentially damped.
    pub over_s: u32,
    pub requests_per_s: f64,
    /// How far the true rate of a group may exceed its `requests_per_s`, apart from the error of the sample.
    pub error_per_s: f64,
    /// The number of requests in the sample, and how many requests each of them stands for now.
    pub sampled: u64,
    pub one_in: u32,
    pub groups: Vec<GroupRow>,
}

/// A group: an address, a network or the value of a field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupRow {
    pub field: String,
    pub value: String,
    pub requests_per_s: f64,
    /// The group's share of all requests, 0 to 1.
    pub share: f64,
    /// The mean number of requests in the application: seconds spent there per second. 0 if the proxy reports no ends.
    pub work: f64,
    /// The mean number of waiting requests: seconds of delay per second.
    pub delay: f64,
    pub denied_per_s: f64,
    /// The approximate number of addresses in the group. `None` if there are more than about 600.
    pub addresses: Option<u32>,
}

/// The measure that ranks groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum RankedBy {
    #[default]
    Requests,
    Work,
    Delay,
}

impl RankedBy {
    fn of(self, row: &GroupRow) -> f64 {
        match self {
            RankedBy::Requests => row.requests_per_s,
            RankedBy::Work => row.work,
            RankedBy::Delay => row.delay,
        }
    }
}

/// The network that nearly all requests come from, if they come from few addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crowd {
    pub network: Network,
    pub addresses: u32,
    /// The number of requests from this network, among the `of` requests in the sample.
    pub requests: u64,
    pub of: u64,
}

impl Ranking {
    /// The first `most` groups of each field, or only of `field`, ranked by a measure that must be above zero. A
    /// network is left out if it has a single address, or if nearly all of its requests come from one narrower group.
    pub(super) fn by(mut self, measure: RankedBy, field: Option<&str>, most: usize) -> Ranking {
        let mut networks: Vec<(Network, f64)> = self.groups.iter().filter_map(GroupRow::network).collect();
        networks.sort_by_key(|(network, _)| Reverse(network.prefix()));
        let is_itself = |row: &GroupRow| {
            let Some((network, requests)) = row.network().filter(|_| row.field == NETWORK) else {
                return true;
            };
            let narrower = |(other, _): &&(Network, f64)| {
                other.prefix() > network.prefix() && network.contains(other.address())
            };
            let is_most = |&(_, most): &(Network, f64)| most >= requests * NEARLY_ALL;
            row.addresses != Some(1) && !networks.iter().filter(narrower).any(is_most)
        };
        self.groups.retain(|row| field.is_none_or(|field| row.field == field) && measure.of(row) > 0.0);
        self.groups.sort_by(|one, other| {
            let by_measure = measure.of(other).total_cmp(&measure.of(one));
            one.field.cmp(&other.field).then(by_measure).then_with(|| one.value.cmp(&other.value))
        });
        let (mut listed, mut of) = (0, String::new());
        self.groups.retain(|row| {
            if row.field != of {
                (listed, of) = (0, row.field.clone());
            }
            let stays = listed < most && is_itself(row);
            listed += usize::from(stays);
            stays
        });
        self
    }

    /// The network that nearly all requests come from, if they come from few addresses.
    pub(super) fn crowd(&self) -> Option<Crowd> {
        let of_all =
            |row: &&GroupRow| row.share >= CROWD_SHARE && row.addresses.is_some_and(|few| few <= FEW);
        let rows = self.groups.iter().filter(of_all);
        let networks = rows.filter_map(|row| Some((row.network()?.0, row)));
        let (network, row) = networks.max_by_key(|(network, _)| network.prefix())?;
        let requests = (row.share * self.sampled as f64) as u64;
        (self.sampled >= CROWD_MIN).then_some(Crowd {
            network,
            addresses: row.addresses?,
            requests,
            of: self.sampled,
        })
    }
}

impl GroupRow {
    /// The network of a row for an address or a network, and the row's rate of requests.
    fn network(&self) -> Option<(Network, f64)> {
        let is_one = self.field == NETWORK || self.field == "source";
        Some((is_one.then(|| self.value.parse().ok()).flatten()?, self.requests_per_s))
    }
}

/// The number of different addresses, estimated with two words of memory: each address sets one bit, which its hash
/// chooses. Several addresses may share a bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AddressBits([u64; 2]);

impl AddressBits {
    pub(super) fn of(hash: u64) -> AddressBits {
        // The upper bits of the hash choose the bit, because the lower bits already choose a counter's place.
        let mut bits = [0; 2];
        bits[usize::from(hash >> 63 == 1)] = 1 << (hash >> 57 & 63);
        AddressBits(bits)
    }

    pub(super) fn and(self, AddressBits([first, second]): AddressBits) -> AddressBits {
        AddressBits([self.0[0] | first, self.0[1] | second])
    }

    /// The estimated number of addresses that have set the bits (linear counting: Whang and others, 1990). `None` if
    /// there are too many for an estimate.
    pub(super) fn addresses(self) -> Option<u32> {
        let zeros = f64::from(self.0[0].count_zeros() + self.0[1].count_zeros());
        (zeros > 0.0).then(|| (128.0 * (128.0 / zeros).ln()).round() as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    #[test]
    fn bits_tell_the_number_of_addresses_about() {
        let hasher = RandomState::new();
        let bits = |addresses: u32| {
            (0..addresses)
                .fold(AddressBits::default(), |bits, n| bits.and(AddressBits::of(hasher.hash_one(n))))
        };
        assert_eq!([bits(0), bits(1)].map(AddressBits::addresses), [Some(0), Some(1)]);
        assert_eq!(bits(9_000).addresses(), None);
        for addresses in [10_u32, 50, 100, 200] {
            let told = bits(addresses).addresses().unwrap();
            assert!(told.abs_diff(addresses) <= addresses / 3 + 2, "{told} for {addresses}");
        }
    }
}
