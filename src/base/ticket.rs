//! A ticket: the proof that a request began, which the proxy returns at its end.

use std::fmt;
use std::str::FromStr;

use arrayvec::ArrayVec;
use thiserror::Error;

use crate::base::key::Key;
use crate::base::slo_id::SloId;
use crate::base::time::Timestamp;

/// The most SLOs that one ticket names.
pub const COUNTED_MAX: usize = 3;

/// The SLOs that count a request until its end, its cost, and the moment it began.
///
/// The text is opaque to the proxy. It holds milliseconds and cost, then the number and key of each SLO.
///
/// ```
/// use slowlane::{base::key::Key, base::slo_id::SloId, base::ticket::Ticket, base::time::Timestamp};
/// let begun = Timestamp::from_millis(90_000);
/// let ticket = Ticket::new(begun, 1, [(SloId::new(2001).unwrap(), Key::from_bits(255))]);
/// assert_eq!(ticket.to_string(), "90000.1-2001.00000000000000FF");
/// assert_eq!(ticket.to_string().parse(), Ok(ticket));
/// assert!("90000.1".parse::<Ticket>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    begun_ms: u32,
    pub cost: u32,
    pub counted: ArrayVec<(SloId, Key), COUNTED_MAX>,
}

/// The text is not a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a slowlane ticket")]
pub struct NoTicket;

impl Ticket {
    /// A ticket of one to [`COUNTED_MAX`] SLOs. Further ones are left out.
    pub fn new(begun: Timestamp, cost: u32, counted: impl IntoIterator<Item = (SloId, Key)>) -> Ticket {
        let counted = counted.into_iter().take(COUNTED_MAX).collect();
        Ticket { begun_ms: begun.ticks_ms(), cost, counted }
    }

    /// The moment at which the request began, at most 49 days before `now`: a ticket holds 32 bits of milliseconds.
    pub fn begun(&self, now: Timestamp) -> Timestamp {
        let ago_ms = u64::from(now.ticks_ms().wrapping_sub(self.begun_ms));
        Timestamp::from_millis((now.as_nanos() / 1_000_000).saturating_sub(ago_ms))
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.begun_ms, self.cost)?;
        self.counted.iter().try_for_each(|(slo, key)| write!(f, "-{slo}.{key}"))
    }
}

impl FromStr for Ticket {
    type Err = NoTicket;

    fn from_str(text: &str) -> Result<Ticket, NoTicket> {
        let mut parts = text.split('-').map(|part| part.split_once('.').ok_or(NoTicket));
        let (begun_ms, cost) = parts.next().ok_or(NoTicket)??;
        let mut counted = ArrayVec::new();
        for part in parts {
            let (slo, key) = part?;
            let slo = u16::try_from(number(slo)?).ok().and_then(SloId::new).ok_or(NoTicket)?;
            let key = Key::from_hex(key).ok_or(NoTicket)?;
            counted.try_push((slo, key)).map_err(|_| NoTicket)?;
        }
        match counted.is_empty() {
            true => Err(NoTicket),
            false => Ok(Ticket { begun_ms: number(begun_ms)?, cost: number(cost)?, counted }),
        }
    }
}

fn number(digits: &str) -> Result<u32, NoTicket> {
    let is_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| digits.parse().ok()).flatten().ok_or(NoTicket)
}
