//! Cases of frames that are wrong (SPOE.txt 3.1, 3.2): HAProxy sends none of them.

use crate::conformance::case::{Case, Exchange};
use crate::conformance::frames::{HELLO, flagged, frame, goodbye, hello, notify_of};
use crate::conformance::judges::acks::acks_nothing;
use crate::conformance::judges::ends::{leaves, refuses, refuses_as};
use crate::conformance::setting::Needs;
use crate::conformance::suite::script::{only, refused};
use spop::{Head, Kind};

/// A message without arguments.
const MESSAGE: &[u8] = b"\x07request\x00";

pub(super) const EXCHANGES: &[Exchange] = &[
    Exchange {
        turns: |setting| only(setting.notify(1, 1)),
        cases: &[
            Case::survives("notify-first", "survives a NOTIFY before any hello"),
            Case::should("notify-first-ack", "3.2.4", "sends no ACK before the handshake", acks_nothing),
            Case::should("notify-first-refused", "3.2.9", "refuses it", refuses),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| refused(hello(HELLO)),
        cases: &[
            Case::survives("hello-twice", "survives a second hello"),
            Case::should("hello-twice-refused", "3.2.4", "refuses it", refuses),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| only(frame(Head { stream_id: 1, ..Head::of_connection(Kind::HaproxyHello) }, b"")),
        cases: &[
            Case::survives("hello-of-stream", "survives an empty hello with a stream-id"),
            Case::should("hello-of-stream-refused", "3.2.4", "refuses it", refuses),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| only(frame(Head::of_connection(Kind::HaproxyHello), b"\x12supported-ver")),
        cases: &[
            Case::survives("hello-garbled", "survives a hello that ends within a name"),
            Case::should("hello-garbled-refused", "3.2.4", "refuses it", refuses),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |setting| refused(setting.notify_of_size(setting.frame_bytes_max() + 1)),
        cases: &[
            Case::survives("frame-too-long", "survives a frame one byte longer than agreed"),
            Case::should("frame-too-long-refused", "3.5", "refuses it with status 3", refuses_as::<3>),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(b"\xff\xff\xff\xff\x03\x00\x00\x00\x01\x01\x01".to_vec()),
        cases: &[
            Case::survives("frame-of-4-gib", "survives the announcement of a frame of 4 GiB"),
            Case::should(
                "frame-of-4-gib-refused",
                "3.5",
                "refuses it at once with status 3",
                refuses_as::<3>,
            ),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(b"\x00\x00\x00\x00".to_vec()),
        cases: &[
            Case::survives("frame-of-0-bytes", "survives a frame without a head"),
            Case::should("frame-of-0-bytes-refused", "3.5", "refuses it with status 4", refuses_as::<4>),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(b"\x00\x00\x00\x07\x03\x00\x00\x00\x01\xf0\xf0".to_vec()),
        cases: &[
            Case::survives("ids-past-end", "survives ids that pass the end of their frame"),
            Case::should("ids-past-end-refused", "3.5", "refuses them with status 4", refuses_as::<4>),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(flagged(notify_of(MESSAGE), 0)),
        cases: &[
            Case::survives("fragment", "survives a NOTIFY without FIN"),
            Case::should("fragment-refused", "3.5", "refuses it with status 10", refuses_as::<10>),
        ],
        ..Exchange { needs: Needs::WholePayloads, ..Exchange::GREETED }
    },
    Exchange {
        turns: |_| refused(frame(Head::new(Kind::Unset, 1, 1), MESSAGE)),
        cases: &[
            Case::survives("fragment-rest", "survives the rest of a payload that never began"),
            Case::should("fragment-rest-refused", "3.2.9", "refuses it", refuses),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(frame(Head::new(Kind::Ack, 1, 1), b"")),
        cases: &[
            Case::survives("frame-of-agent", "survives an ACK from HAProxy's side"),
            Case::should("frame-of-agent-refused", "3.2.2", "refuses it", refuses),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(notify_of(b"\x08request")),
        cases: &[
            Case::survives("string-past-end", "survives a string that passes the end of its frame"),
            Case::should("string-past-end-refused", "3.5", "refuses it with status 4", refuses_as::<4>),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(notify_of(b"\x07request\x02\x01a\x00")),
        cases: &[
            Case::survives("argument-missing", "survives a message with fewer arguments than it counts"),
            Case::should("argument-missing-refused", "3.5", "refuses it with status 4", refuses_as::<4>),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(notify_of(b"\x07request\x01\x01a\x0a")),
        cases: &[
            Case::survives("type-reserved", "survives a value of the reserved type 10"),
            Case::should("type-reserved-refused", "3.5", "refuses it with status 4", refuses_as::<4>),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(notify_of(b"\x07request\x01\x01a\x07\x00\x00\x00\x00")),
        cases: &[
            Case::survives("address-cut", "survives a quarter of an IPv6 address"),
            Case::should("address-cut-refused", "3.5", "refuses it with status 4", refuses_as::<4>),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(notify_of(b"\x07request\x01\x01a\x08\xff\xf0\xfe\xfe\xfe\xfe\xfe\xfe\xfe\x0e")),
        cases: &[
            Case::survives("length-of-64-bits", "survives a string whose length has 64 bits"),
            Case::should("length-of-64-bits-refused", "3.5", "refuses it with status 4", refuses_as::<4>),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(goodbye(77)),
        cases: &[
            Case::survives("disconnect-status-77", "survives HAPROXY-DISCONNECT with an unassigned status"),
            Case::should("disconnect-status-77-answer", "3.2.8", "answers it with AGENT-DISCONNECT", leaves),
        ],
        ..Exchange::GREETED
    },
];
