//! Cases of NOTIFY and ACK (SPOE.txt 3.2.1, 3.2.2, 3.2.6, 3.2.7, 3.4).

use crate::conformance::case::{Case, Exchange, Turn};
use crate::conformance::frames::{flagged, frame, goodbye, notify_of};
use crate::conformance::judges::acks::{
    acks, acks_beside_abort, acks_or_refuses, are_actions, are_not_empty, fit, name_variables, set_fin,
};
use crate::conformance::setting::{Needs, UNKNOWN};
use crate::conformance::suite::script::{greeted, in_pieces, in_turn, streams};
use crate::conformance::transcript::Until;
use spop::{Head, Kind};

const PIPELINED: Exchange = Exchange { needs: Needs::Pipelining, ..Exchange::PLAIN };

/// The last number of each length of a varint up to 31 bits, and the first of the next.
const IDS_31_BITS: [(u64, u64); 8] = [
    (239, 1),
    (240, 239),
    (2_287, 240),
    (2_288, 2_287),
    (264_431, 2_288),
    (264_432, 264_431),
    (33_818_863, 264_432),
    (0x7fff_ffff, 33_818_864),
];

const IDS_64_BITS: [(u64, u64); 4] =
    [(1 << 32, 1), (4_328_786_160, 1 << 40), (i64::MAX as u64, 2), (u64::MAX, u64::MAX)];

/// HAProxy keeps at most 20 NOTIFYs open on a connection.
const PIPELINED_MAX: u64 = 20;

/// A few tens of kilobytes of answers: more than one read, less than the buffers of a socket.
const MANY: u64 = 500;

pub(super) const EXCHANGES: &[Exchange] = &[
    Exchange {
        turns: |setting| greeted(setting.notify(1, 1), 1),
        cases: &[
            Case::must("ack", "3.2.7", "answers a NOTIFY with an ACK of its ids", acks),
            Case::must("ack-fin", "3.2", "sets FIN on an ACK", set_fin),
            Case::must("ack-size", "3.2", "keeps an ACK within the agreed frame size", fit),
            Case::must(
                "ack-actions",
                "3.4",
                "fills an ACK with actions on variables that can exist",
                are_actions,
            ),
            Case::should(
                "ack-variables",
                "field",
                "uses letters that HAProxy accepts in variables",
                name_variables,
            ),
            Case::should(
                "ack-not-empty",
                "field",
                "puts an action into every ACK (3.1.0 waits)",
                are_not_empty,
            ),
        ],
        needs: Needs::Room,
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |setting| {
            let mut turns = greeted(setting.notify(1, 1), 1);
            turns.push(Turn::new(goodbye(0), Until::Closed));
            turns
        },
        cases: &[Case::must(
            "ack-once",
            "3.2.7",
            "sends no second ACK, up to the end of the connection",
            acks,
        )],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| in_turn(setting, &[(0, 1)]),
        cases: &[Case::must(
            "stream-id-0",
            "field",
            "accepts stream-id 0, which HAProxy up to 3.0 sends",
            acks,
        )],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| in_turn(setting, &[(7, 1), (7, 2), (7, 3)]),
        cases: &[Case::must("frame-ids", "3.2.7", "repeats the frame-ids of one stream", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| in_turn(setting, &IDS_31_BITS),
        cases: &[Case::must("ids-31-bits", "3.1", "repeats ids of every length up to 31 bits", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| in_turn(setting, &IDS_64_BITS),
        cases: &[Case::should("ids-64-bits", "3.1", "repeats ids of up to 64 bits", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| in_pieces(1, greeted(setting.notify(1, 1), 1)),
        cases: &[Case::must("notify-bytewise", "3.2", "accepts a NOTIFY that comes byte by byte", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| greeted(streams(setting, PIPELINED_MAX), PIPELINED_MAX as usize),
        cases: &[Case::must("pipelining", "3.2.1", "answers 20 NOTIFYs that come in one write", acks)],
        ..PIPELINED
    },
    Exchange {
        turns: |setting| in_pieces(7, greeted(streams(setting, PIPELINED_MAX), PIPELINED_MAX as usize)),
        cases: &[Case::must("pipelining-pieces", "3.2.1", "answers 20 NOTIFYs in writes of 7 bytes", acks)],
        ..PIPELINED
    },
    Exchange {
        turns: |setting| greeted(streams(setting, MANY), MANY as usize),
        cases: &[Case::should("pipelining-500", "field", "answers 500 NOTIFYs that come in one write", acks)],
        ..PIPELINED
    },
    Exchange {
        turns: |setting| greeted(setting.notify_unknown(), 1),
        cases: &[Case::must("unknown-message", "3.2.6", "answers a message that it does not know", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| greeted(setting.notify_second(UNKNOWN), 1),
        cases: &[Case::must("two-messages", "3.3", "answers a NOTIFY of two messages with one ACK", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| greeted(setting.notify_of_255_arguments(), 1),
        cases: &[Case::must("arguments-255", "3.2", "accepts a message with 255 arguments", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| greeted(setting.notify_of_size(setting.frame_bytes_max()), 1),
        cases: &[Case::must("frame-longest", "3.2", "accepts a frame of the agreed size", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| greeted(notify_of(b""), 1),
        cases: &[Case::should("no-message", "3.2.6", "answers a NOTIFY without a message", acks_or_refuses)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| greeted(setting.notify_second(b""), 1),
        cases: &[Case::should(
            "message-no-name",
            "3.2",
            "answers a message with an empty name",
            acks_or_refuses,
        )],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| {
            let unknown = frame(Head::new(Kind::Unknown(42), 1, 1), b"\xff\xff");
            greeted([unknown, setting.notify(1, 1)].concat(), 1)
        },
        cases: &[Case::must(
            "unknown-frame-type",
            "3.2.2",
            "skips or refuses a frame of an unknown type",
            acks_or_refuses,
        )],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| {
            let reserved = 1 << 31;
            greeted(flagged(setting.notify(1, 1), Head::FIN | reserved), 1)
        },
        cases: &[Case::should(
            "flags-reserved",
            "3.2",
            "ignores or refuses a reserved flag",
            acks_or_refuses,
        )],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| {
            let aborted = flagged(setting.notify(1, 1), Head::FIN | Head::ABORT);
            greeted([aborted, setting.notify(2, 1)].concat(), 2)
        },
        cases: &[Case::should(
            "flags-abort",
            "field",
            "answers after ABORT on a whole NOTIFY",
            acks_beside_abort,
        )],
        ..PIPELINED
    },
];
