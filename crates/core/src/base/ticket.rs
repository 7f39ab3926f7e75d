//! A ticket: the proof that a request began, which the proxy returns when the request ends.

use std::fmt;

use arrayvec::{ArrayString, ArrayVec};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base::{Key, KeySecret, SloId, Timestamp};

/// The maximum number of SLOs in one ticket.
pub const COUNTED_MAX: usize = 16;

/// The SLOs that count a request until its end, and the moment at which the request began.
///
/// The text is opaque to the proxy. It holds the request's start in milliseconds, the id, key, serial and cost of each
/// SLO, and a seal: a keyed hash of the text before it. Without the secret, a ticket cannot be made or altered.
///
/// ```
/// use slowlane_core::base::{Key, KeySecret};
/// use slowlane_core::base::{Counted, Ticket};
/// use slowlane_core::base::{SloId, Timestamp};
///
/// let counted = Counted { slo: SloId::new(2001).unwrap(), key: Key::from_bits(255), serial: 7, cost: 1 };
/// let ticket = Ticket::new(Timestamp::from_millis(90_000), [counted]);
/// let text = ticket.sealed(KeySecret::KNOWN).to_string();
/// assert!(text.starts_with("90000-2001.00000000000000FF.7.1-"));
/// assert_eq!(Ticket::open(&text, KeySecret::KNOWN), Ok(ticket));
/// let other = KeySecret::from_bytes([1; 16]);
/// assert!(Ticket::open(&text, other).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    begun_ms: u32,
    pub counted: ArrayVec<Counted, COUNTED_MAX>,
}

/// An SLO that counts a request until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub slo: SloId,
    pub key: Key,
    /// The request's serial among the tickets of its key. 0 if there was no memory to store the ticket.
    pub serial: u32,
    /// The amount that the request was charged.
    pub cost: u32,
}

/// The error for text that is not a ticket, or whose seal is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a slowlane ticket")]
pub struct NoTicket;

impl Ticket {
    /// The maximum size of a ticket's text, in bytes: a number of ten digits, and a seal of sixteen digits
    /// with its dash. Each SLO adds six, sixteen, ten and ten digits with their separators.
    pub const TEXT_BYTES_MAX: usize = 10 + COUNTED_MAX * 46 + 17;

    /// A ticket of one to [`COUNTED_MAX`] SLOs. SLOs beyond this number are left out.
    pub fn new(begun: Timestamp, counted: impl IntoIterator<Item = Counted>) -> Ticket {
        let counted = counted.into_iter().take(COUNTED_MAX).collect();
        Ticket { begun_ms: begun.ticks_ms(), counted }
    }

    /// The moment at which the request began, at most 49 days before `now`: a ticket holds 32 bits of milliseconds.
    pub fn begun(&self, now: Timestamp) -> Timestamp {
        let ago_ms = u64::from(now.ticks_ms().wrapping_sub(self.begun_ms));
        Timestamp::from_millis((now.as_nanos() / 1_000_000).saturating_sub(ago_ms))
    }

    /// The moment at which the request began, in milliseconds modulo 2^32.
    pub fn begun_ms(&self) -> u32 {
        self.begun_ms
    }

    /// The ticket's text, sealed with `secret`.
    pub fn sealed(&self, secret: KeySecret) -> Sealed<'_> {
        Sealed { ticket: self, secret }
    }

    /// Reads text that was [sealed](Ticket::sealed) with the same secret.
    ///
    /// # Errors
    /// Any other text.
    pub fn open(text: &str, secret: KeySecret) -> Result<Ticket, NoTicket> {
        let (content, seal) = text.rsplit_once('-').ok_or(NoTicket)?;
        let is_sealed = Key::from_hex(seal) == Some(secret.seal(content.as_bytes()));
        if is_sealed { read_content(content) } else { Err(NoTicket) }
    }
}

/// A ticket that is displayed as its sealed text.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'t> {
    ticket: &'t Ticket,
    secret: KeySecret,
}

impl fmt::Display for Sealed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut content = ArrayString::<{ Ticket::TEXT_BYTES_MAX }>::new();
        write_content(self.ticket, &mut content)?;
        write!(f, "{content}-{}", self.secret.seal(content.as_bytes()))
    }
}

fn write_content(ticket: &Ticket, text: &mut impl fmt::Write) -> fmt::Result {
    write!(text, "{}", ticket.begun_ms)?;
    let mut write =
        |Counted { slo, key, serial, cost }: &Counted| write!(text, "-{slo}.{key}.{serial}.{cost}");
    ticket.counted.iter().try_for_each(&mut write)
}

/// Reads a ticket without its seal.
fn read_content(text: &str) -> Result<Ticket, NoTicket> {
    let mut parts = text.split('-');
    let begun_ms = number(parts.next().ok_or(NoTicket)?)?;
    let mut counted = ArrayVec::new();
    for part in parts {
        let mut words = part.splitn(4, '.');
        let mut word = || words.next().ok_or(NoTicket);
        let slo = SloId::new(number(word()?)?).ok_or(NoTicket)?;
        let key = Key::from_hex(word()?).ok_or(NoTicket)?;
        let (serial, cost) = (number(word()?)?, number(word()?)?);
        counted.try_push(Counted { slo, key, serial, cost }).map_err(|_| NoTicket)?;
    }
    if counted.is_empty() { Err(NoTicket) } else { Ok(Ticket { begun_ms, counted }) }
}

fn number(digits: &str) -> Result<u32, NoTicket> {
    let is_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| digits.parse().ok()).flatten().ok_or(NoTicket)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: KeySecret = KeySecret::KNOWN;

    fn tickets() -> impl Strategy<Value = Ticket> {
        let counted =
            (0..SloId::END, any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(slo, key, serial, cost)| {
                Counted { slo: SloId::new(slo).unwrap(), key: Key::from_bits(key), serial, cost }
            });
        (any::<u64>(), prop::collection::vec(counted, 1..=COUNTED_MAX))
            .prop_map(|(begun, counted)| Ticket::new(Timestamp::from_nanos(begun), counted))
    }

    proptest! {
        #[test]
        fn a_ticket_reads_back_as_it_was_sealed(ticket in tickets()) {
            let text = ticket.sealed(SECRET).to_string();
            prop_assert!(text.len() <= Ticket::TEXT_BYTES_MAX);
            prop_assert_eq!(Ticket::open(&text, SECRET), Ok(ticket));
        }

        #[test]
        fn an_altered_ticket_is_none(ticket in tickets(), place: prop::sample::Index, byte in 33u8..127) {
            let text = ticket.sealed(SECRET).to_string();
            let mut altered = text.clone().into_bytes();
            let place = place.index(altered.len());
            prop_assume!(!altered[place].eq_ignore_ascii_case(&byte));
            altered[place] = byte;
            prop_assert_eq!(Ticket::open(std::str::from_utf8(&altered).unwrap(), SECRET), Err(NoTicket));
            prop_assert_eq!(Ticket::open(&text[..place], SECRET), Err(NoTicket));
            prop_assert_eq!(Ticket::open(&text, KeySecret::from_bytes([9; 16])), Err(NoTicket));
        }
    }

    #[test]
    fn a_seal_alone_makes_no_ticket() {
        for content in
            ["", "1", "1-", "1-2003.0.1.1", "1-2003.0000000000000001.1", "-1-2003.0000000000000001.1.1"]
        {
            let sealed = format!("{content}-{}", SECRET.seal(content.as_bytes()));
            assert_eq!(Ticket::open(&sealed, SECRET), Err(NoTicket), "{content:?}");
        }
    }
}
