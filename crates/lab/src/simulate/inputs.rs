//! The inputs of a simulated slowlane: the sizes of its table, moments and requests.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::simulate::scenario::WEBSITE;
use slowlane_core::base::{Request, Timestamp, Value};
use slowlane_core::table::Sizing;

/// One bucket needs one entry.
pub(super) const SIZING: Sizing = Sizing { entries_max: 16, expire: Duration::from_secs(30) };

/// More than the largest auxiliary state of one key.
pub(super) const ANNEX_BYTES_MAX: usize = 64 << 20;

/// The start of a run: midnight, for laws whose windows are aligned to the clock.
const START: Timestamp = Timestamp::from_millis(20_000 * 86_400 * 1_000);

const FIRST_SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The moment of the table this long after the start.
pub(super) fn at(now_ns: u64) -> Timestamp {
    START + Duration::from_nanos(now_ns)
}

/// A request from the source whose address has this index, for the website of the SLO.
pub(super) fn request<'a>(place: u32) -> Request<'a> {
    let address = IpAddr::V4(Ipv4Addr::from_bits(FIRST_SOURCE.to_bits() + place));
    let mut request = Request::new();
    request.push(b"source", Value::Address(address));
    request.push(b"website", Value::Text(WEBSITE.as_bytes()));
    request
}
