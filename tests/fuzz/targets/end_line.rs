//! Any bytes as a log line, perhaps of JSON: text behind its measures changes nothing, and a ticket behind text is none.

use slowlane::proxy::end_line::read;
use slowlane_core::base::{Amount, Ending};

pub fn run(line: &[u8]) {
    let Some((ticket, ending)) = read(line) else { return };
    assert!(!ticket.is_empty() && ticket != "-", "{ticket:?}");
    if let Ok(Ending { cost, seconds, bytes }) = ending {
        assert!([cost, seconds, bytes].into_iter().flatten().all(|amount| amount <= Amount::MAX));
    }
    if line.starts_with(b"{") {
        return;
    }
    assert_eq!(read(&[b"GET / - ", line].concat()), None, "after other text");
    if !line.contains(&b'"') {
        assert_eq!(
            read(&[line, b"\nticket=1 bytes=0"].concat()),
            Some((ticket, ending)),
            "before a line of a client"
        );
    }
}
