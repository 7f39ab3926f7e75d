//! Cases of clients that do not speak SPOP, and of connections that break.

use crate::conformance::case::{Case, Exchange, Turn};
use crate::conformance::frames::{HELLO, hello};
use crate::conformance::judges::ends::closes;
use crate::conformance::suite::script::{only, refused, unread};
use crate::conformance::transcript::Until;

/// Bytes without sense: the same in each run.
fn noise() -> Vec<u8> {
    // A linear congruential generator, with the constants of Numerical Recipes.
    let next = |seed: &u32| Some(seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(Some(1_u32), next).map(|number| (number >> 24) as u8).take(4_096).collect()
}

pub(super) const EXCHANGES: &[Exchange] = &[
    Exchange {
        turns: |_| only(b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n".to_vec()),
        cases: &[
            Case::survives("http", "survives a request over HTTP"),
            Case::should("http-closed", "field", "closes it", closes),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| only(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03".to_vec()),
        cases: &[
            Case::survives("tls", "survives the start of a TLS handshake"),
            Case::should("tls-closed", "field", "closes it", closes),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| only(noise()),
        cases: &[
            Case::survives("noise", "survives 4096 bytes of noise"),
            Case::should("noise-closed", "field", "closes it", closes),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| refused(noise()),
        cases: &[
            Case::survives("noise-later", "survives noise after the handshake"),
            Case::should("noise-later-closed", "field", "closes it", closes),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| Vec::new(),
        cases: &[Case::survives("silent", "serves others beside a silent connection, and after its close")],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| vec![Turn::new(hello(HELLO)[..60].to_vec(), Until::Sent)],
        cases: &[Case::survives("hello-cut", "survives a close in the middle of a hello")],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |setting| unread(setting.notify(1, 1)[..12].to_vec()),
        cases: &[Case::survives("notify-cut", "survives a close in the middle of a NOTIFY")],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| unread(setting.notify(1, 1)),
        cases: &[Case::survives("ack-unread", "survives a close before its ACK is read")],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| vec![Turn::new(hello(HELLO), Until::Sent)],
        connections: 200,
        cases: &[Case::survives("connections-200", "survives 200 connections that close after their hello")],
        ..Exchange::PLAIN
    },
];
