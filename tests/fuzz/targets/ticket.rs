//! Any text as a ticket, and any ticket as text: each reads back as it was written, and only with its seal.

use slowlane_core::base::{Counted, Key, KeySecret, SloId, Ticket, Timestamp};

const SECRET: KeySecret = KeySecret::KNOWN;

/// Bytes of a moment, then of each SLO with its key, serial and cost.
const HEAD_BYTES: usize = 8;
const COUNTED_BYTES: usize = 18;

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(ticket) = Ticket::open(&text, SECRET) {
        expect_same(&ticket);
    }
    let sealed = format!("{text}-{}", SECRET.seal(text.as_bytes()));
    if let Ok(ticket) = Ticket::open(&sealed, SECRET) {
        expect_same(&ticket);
        assert_eq!(ticket.counted.len(), text.matches('-').count(), "{text}");
    }
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return };
    let begun = u64::from_le_bytes(*head);
    let counted = rest.chunks_exact(COUNTED_BYTES).filter_map(|bytes| {
        let slo = SloId::new(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) * 16)?;
        let key = Key::from_bits(u64::from_le_bytes(bytes[2..10].try_into().unwrap()));
        let [serial, cost] = [10, 14].map(|at| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
        Some(Counted { slo, key, serial, cost })
    });
    let ticket = Ticket::new(Timestamp::from_nanos(begun), counted);
    let text = ticket.sealed(SECRET).to_string();
    match ticket.counted.is_empty() {
        true => assert!(Ticket::open(&text, SECRET).is_err(), "a ticket of no SLO"),
        false => expect_same(&ticket),
    }
    assert!(Ticket::open(&text, KeySecret::from_bytes([1; 16])).is_err(), "another's ticket");
}

fn expect_same(ticket: &Ticket) {
    let text = ticket.sealed(SECRET).to_string();
    assert!(text.len() <= Ticket::TEXT_BYTES_MAX, "{text}");
    assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-')), "{text}");
    assert!(!ticket.counted.is_empty(), "{text}");
    assert_eq!(Ticket::open(&text, SECRET).as_ref(), Ok(ticket));
    for now in [0, 1, u64::from(u32::MAX), u64::MAX / 1_000_000].map(Timestamp::from_millis) {
        assert!(ticket.begun(now) <= now, "{text} begins after {now:?}");
    }
}
