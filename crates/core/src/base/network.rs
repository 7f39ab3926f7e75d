//! A network of addresses, in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base::client::{self, is_translated};

/// The leading bits of an address, and their number.
///
/// ```
/// use slowlane_core::base::Network;
/// let network = |address: &str, prefix| Network::of(address.parse().unwrap(), prefix).to_string();
/// assert_eq!(network("192.0.2.77", 24), "192.0.2.0/24");
/// assert_eq!(network("2001:db8::1", 0), "::/0");
/// assert_eq!(network("2001:db8::1", 128), "2001:db8::1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network of an address. If `prefix`, in bits, exceeds the address's length, the network is that
    /// single address.
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

    /// The number of leading bits.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether an address is in this network. An IPv4-mapped IPv6 address counts as IPv4.
    ///
    /// ```
    /// use slowlane_core::base::Network;
    /// let ten: Network = "10.0.0.0/8".parse().unwrap();
    /// assert!(["10.1.2.3", "::ffff:10.1.2.3"].iter().all(|text| ten.contains(text.parse().unwrap())));
    /// assert!(["11.0.0.1", "::10.1.2.3", "2001:db8::1"].iter().all(|text| !ten.contains(text.parse().unwrap())));
    /// ```
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && Network::of(address, self.prefix) == *self
    }

    fn is_whole(&self) -> bool {
        self.prefix >= if self.address.is_ipv4() { 32 } else { 128 }
    }
}

/// The error for text that is not a network. Its message says what was expected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NetworkError {
    #[error("{0:?}: expected an address or a network, like 10.0.0.0/8")]
    NoNetwork(String),
    #[error("{text:?}: expected the first address of the network, {network}")]
    NotFirst { text: String, network: Network },
}

/// Reads an address or `address/length`. A network must be written with its first address, because bits set beyond the
/// length usually mean that the length is wrong. A network of IPv4-mapped addresses becomes an IPv4 network.
///
/// ```
/// use slowlane_core::base::Network;
/// let read = |text: &str| text.parse::<Network>().map(|network| network.to_string()).map_err(|error| error.to_string());
/// assert_eq!(read("192.0.2.7").unwrap(), "192.0.2.7");
/// assert_eq!(read("::ffff:10.0.0.0/104").unwrap(), "10.0.0.0/8");
/// assert_eq!(read("10.0.0.1/8").unwrap_err(), r#""10.0.0.1/8": expected the first address of the network, 10.0.0.0/8"#);
/// assert_eq!(read("10.0.0.0/33").unwrap_err(), r#""10.0.0.0/33": expected an address or a network, like 10.0.0.0/8"#);
/// ```
impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let is_length = |(_, length): (&str, &str)| length.bytes().all(|digit| digit.is_ascii_digit());
        let network = text.rsplit_once('/').is_none_or(is_length).then(|| read(text.as_bytes())).flatten();
        let network = network.ok_or_else(|| NetworkError::NoNetwork(text.to_owned()))?;
        let (address, prefix) = canonical(network);
        let network = Network::of(address, prefix);
        match network.address == address {
            true => Ok(network),
            false => Err(NetworkError::NotFirst { text: text.to_owned(), network }),
        }
    }
}

/// Reads an address, `address/length`, or, for IPv4 only, `address/mask`.
pub(crate) fn read(text: &[u8]) -> Option<(IpAddr, u8)> {
    let text = std::str::from_utf8(text).ok()?;
    let (address, length) = text.rsplit_once('/').map_or((text, None), |(one, two)| (one, Some(two)));
    let address: IpAddr = address.parse().ok()?;
    let (whole, is_ipv4) = if address.is_ipv4() { (32, true) } else { (128, false) };
    let prefix = match length {
        None => whole,
        Some(mask) if is_ipv4 && mask.contains('.') => mask_length(mask.parse().ok()?)?,
        Some(length) => length.parse().ok()?,
    };
    (prefix <= whole).then_some((address, prefix))
}

fn mask_length(mask: Ipv4Addr) -> Option<u8> {
    let ones = mask.to_bits().leading_ones();
    (ones + mask.to_bits().trailing_zeros().min(32) == 32).then_some(ones as u8)
}

/// Converts a network of IPv4-mapped addresses to an IPv4 network, just as the addresses of connections are converted.
pub(crate) fn canonical((address, prefix): (IpAddr, u8)) -> (IpAddr, u8) {
    match (address.to_canonical(), address) {
        (v4 @ IpAddr::V4(_), IpAddr::V6(_)) if prefix >= 96 => (v4, prefix - 96),
        _ => (address, prefix),
    }
}

/// Converts a network to the form in which requests carry addresses: a network of translated addresses
/// becomes the corresponding IPv4 network. None for the translators' whole prefix, which would become all of
/// IPv4 and match every IPv4 client.
pub(crate) fn untranslated((address, prefix): (IpAddr, u8)) -> Option<(IpAddr, u8)> {
    match address {
        IpAddr::V6(v6) if is_translated(v6) && prefix >= 96 => {
            (prefix > 96).then(|| (client::canonical(address), prefix - 96))
        }
        _ => Some((address, prefix)),
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<Network, NetworkError> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> String {
        network.to_string()
    }
}

/// The netmask whose first `prefix` bits are set. If `prefix` is 32 or more, all bits are set.
pub fn v4_mask(prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(!u32::MAX.checked_shr(prefix.into()).unwrap_or(0))
}

/// The netmask whose first `prefix` bits are set. If `prefix` is 128 or more, all bits are set.
pub fn v6_mask(prefix: u8) -> Ipv6Addr {
    Ipv6Addr::from_bits(!u128::MAX.checked_shr(prefix.into()).unwrap_or(0))
}

/// Writes a network like `192.0.2.0/24`. A network of a single address is written without its length.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_whole() {
            true => write!(f, "{}", self.address),
            false => write!(f, "{}/{}", self.address, self.prefix),
        }
    }
}
