//! A network of addresses, as CIDR writes it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The bits of an address that count, and how many they are.
///
/// ```
/// use slowlane::base::network::Network;
/// let network = |address: &str, prefix| Network::of(address.parse().unwrap(), prefix).to_string();
/// assert_eq!(network("192.0.2.77", 24), "192.0.2.0/24");
/// assert_eq!(network("2001:db8::1", 0), "::/0");
/// assert_eq!(network("2001:db8::1", 128), "2001:db8::1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network that an address lies in. A prefix that is longer than the address is all of it.
    pub fn of(address: IpAddr, prefix: u8) -> Network {
        let address = match address {
            IpAddr::V4(v4) => IpAddr::V4(v4 & v4_mask(prefix)),
            IpAddr::V6(v6) => IpAddr::V6(v6 & v6_mask(prefix)),
        };
        Network { address, prefix }
    }

    fn is_whole(&self) -> bool {
        self.prefix >= if self.address.is_ipv4() { 32 } else { 128 }
    }
}

/// The first so many bits of an address.
pub fn v4_mask(prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(!u32::MAX.checked_shr(prefix.into()).unwrap_or(0))
}

/// The first so many bits of an address.
pub fn v6_mask(prefix: u8) -> Ipv6Addr {
    Ipv6Addr::from_bits(!u128::MAX.checked_shr(prefix.into()).unwrap_or(0))
}

/// One address that is all of it stands without its length.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_whole() {
            true => write!(f, "{}", self.address),
            false => write!(f, "{}/{}", self.address, self.prefix),
        }
    }
}
