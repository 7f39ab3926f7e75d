//! Maps of each match method: their keys, hits and misses.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use slowlane_core::base::{Request, Value};
use slowlane_core::policy::{Layout, Lookup, Method, Policy};

/// Any field can be looked up with any method.
const FIELD: &str = "name";

const FILE: &str = "name.map";

/// All lines name an SLO of type 0, so a key costs the same after a hit and a miss.
const SLO_MAP: &str = "0 burst=9 rate=9/s\n1 burst=9 rate=9/s\n";

/// A policy of one map.
pub fn read(folder: &Path, method: Method) -> Policy {
    let lookup = Lookup { fields: vec![FIELD.to_owned()], file: FILE.into(), method, is_added: false };
    let layout = Layout::default().with_lookups(vec![lookup]).expect("one lookup is a layout");
    Policy::read(folder, &layout).expect("what is made up here is without a fault")
}

/// Generates the files of the policy.
pub fn write(folder: &Path, method: Method, lines: u32) {
    let map: String = (0..lines).map(|number| format!("{} 1\n", key(method, number))).collect();
    fs::write(folder.join(FILE), map).unwrap();
    fs::write(folder.join("slo.map"), SLO_MAP).unwrap();
}

/// The lines of the policy's map.
pub fn text(folder: &Path) -> Vec<u8> {
    fs::read(folder.join(FILE)).unwrap()
}

/// The key of a line. Of the networks, half are IPv4 addresses, and every eighth is an IPv6 network.
fn key(method: Method, number: u32) -> String {
    match method {
        Method::Str => format!("www.shop-{number}.example"),
        Method::Ip => match number % 8 {
            0 => format!("{}/64", ipv6(number, 0)),
            1..4 => format!("{}/24", ipv4(number, 0)),
            _ => address(number).to_string(),
        },
        Method::Beg => format!("/shop-{number}/"),
        Method::End => format!(".shop-{number}.example"),
        Method::Dom => format!("shop-{number}"),
        Method::Sub => format!("shop-{number}."),
        Method::Reg => format!("^/shop-{number}/v[0-9]+/"),
    }
}

/// The value of a request that is looked up.
pub enum Asked {
    Name(String),
    Address(IpAddr),
}

impl Asked {
    /// A value that matches the line of this number.
    pub fn hit(method: Method, number: u32) -> Asked {
        match method {
            Method::Str | Method::End | Method::Dom | Method::Sub => {
                Asked::Name(format!("www.shop-{number}.example"))
            }
            Method::Beg | Method::Reg => Asked::Name(format!("/shop-{number}/v1/cart")),
            Method::Ip => Asked::Address(match number % 8 {
                0 => ipv6(number, 7).into(),
                1..4 => ipv4(number, 7).into(),
                _ => address(number).into(),
            }),
        }
    }

    /// A value that matches no line.
    pub fn miss(method: Method, number: u32) -> Asked {
        match method {
            Method::Str | Method::End | Method::Dom | Method::Sub => {
                Asked::Name(format!("www.blog-{number}.example"))
            }
            Method::Beg | Method::Reg => Asked::Name(format!("/shop-{number}x/v1/cart")),
            Method::Ip => Asked::Address(match number % 8 {
                0 => Ipv6Addr::from_bits((0xFD00 << 112) + u128::from(number)).into(),
                _ => Ipv4Addr::from_bits(0xC000_0000 + number).into(),
            }),
        }
    }

    pub fn request(&self) -> Request<'_> {
        let mut request = Request::new();
        request.push(FIELD.as_bytes(), self.value());
        request
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Asked::Name(name) => name.as_bytes(),
            Asked::Address(_) => panic!("an address is no text"),
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            Asked::Name(name) => Value::Text(name.as_bytes()),
            Asked::Address(address) => Value::address(*address),
        }
    }
}

/// Addresses from 10.0.0.0 up, each in its own network.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0A00_0000 + number)
}

/// A host in one of the networks from 64.0.0.0/24 up.
fn ipv4(number: u32, host: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x4000_0000 + (number << 8) + host)
}

/// A host in one of the networks from 2001:db8::/64 up.
fn ipv6(number: u32, host: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits((0x2001_0DB8 << 96) + (u128::from(number) << 64) + u128::from(host))
}
