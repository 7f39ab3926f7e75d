//! A network of addresses, in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The leading bits of an address, and their number.
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
    /// The network of an address. `prefix` is in bits; one longer than the address takes all of it.
    pub fn of(address: IpAddr, prefix: u8) -> Network {
        let address = match address {
            IpAddr::V4(v4) => IpAddr::V4(v4 & v4_mask(prefix)),
            IpAddr::V6(v6) => IpAddr::V6(v6 & v6_mask(prefix)),
        };
        Network { address, prefix }
    }

    /// The first address.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    fn is_whole(&self) -> bool {
        self.prefix >= if self.address.is_ipv4() { 32 } else { 128 }
    }
}

/// The netmask of the first `prefix` bits; all ones from 32 on.
pub fn v4_mask(prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(!u32::MAX.checked_shr(prefix.into()).unwrap_or(0))
}

/// The netmask of the first `prefix` bits; all ones from 128 on.
pub fn v6_mask(prefix: u8) -> Ipv6Addr {
    Ipv6Addr::from_bits(!u128::MAX.checked_shr(prefix.into()).unwrap_or(0))
}

/// `192.0.2.0/24`. A network of a single address is written without its length.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_whole() {
            true => write!(f, "{}", self.address),
            false => write!(f, "{}/{}", self.address, self.prefix),
        }
    }
}
