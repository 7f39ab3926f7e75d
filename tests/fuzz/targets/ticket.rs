//! Any text as a ticket, and any ticket as text: each reads back as it was written.

use slowlane::base::key::Key;
use slowlane::base::slo_id::SloId;
use slowlane::base::ticket::{COUNTED_MAX, Ticket};
use slowlane::base::time::Timestamp;

/// Two numbers of ten digits and a mark; each SLO adds four digits, sixteen hex digits and two marks.
const TEXT_BYTES_MAX: usize = 21 + COUNTED_MAX * 22;

/// Bytes of a moment and a cost, then of each SLO and its key.
const HEAD_BYTES: usize = 12;
const COUNTED_BYTES: usize = 10;

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(ticket) = text.parse() {
        expect_same(&ticket);
        assert_eq!(ticket.counted.len(), text.matches('-').count(), "{text}");
    }
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return };
    let begun = u64::from_le_bytes(head[..8].try_into().unwrap());
    let cost = u32::from_le_bytes(head[8..].try_into().unwrap());
    let counted = rest.chunks_exact(COUNTED_BYTES).filter_map(|bytes| {
        let slo = SloId::new(u16::from_le_bytes([bytes[0], bytes[1]]))?;
        Some((slo, Key::from_bits(u64::from_le_bytes(bytes[2..].try_into().unwrap()))))
    });
    let ticket = Ticket::new(Timestamp::from_nanos(begun), cost, counted);
    match ticket.counted.is_empty() {
        true => assert!(ticket.to_string().parse::<Ticket>().is_err(), "a ticket of no SLO"),
        false => expect_same(&ticket),
    }
}

fn expect_same(ticket: &Ticket) {
    let text = ticket.to_string();
    assert!(text.len() <= TEXT_BYTES_MAX, "{text}");
    assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-')), "{text}");
    assert!((1..=COUNTED_MAX).contains(&ticket.counted.len()), "{text}");
    assert_eq!(text.parse().as_ref(), Ok(ticket));
    for now in [0, 1, u64::from(u32::MAX), u64::MAX / 1_000_000].map(Timestamp::from_millis) {
        assert!(ticket.begun(now) <= now, "{text} begins after {now:?}");
    }
}
