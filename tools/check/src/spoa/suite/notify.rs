//! Cases of NOTIFY and ACK, of typed data, of several connections and of their orderly end (SPOE.txt 3.1 to 3.4).

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::spoa::frames::{flagged, frame, goodbye, notify_of};
use crate::spoa::judges::acks::{
    acks, acks_beside_abort, acks_or_refuses, are_actions, are_not_empty, fit, name_variables, set_fin,
};
use crate::spoa::judges::ends::{closes, gives_a_reason, leaves};
use crate::spoa::setting::{Needs, Setting, UNKNOWN};
use crate::spoa::suite::{greeted, in_pieces, in_turn, refused};
use crate::spoa::{Exchanges, Turn, Until};
use spop::{Data, Head, Kind};

/// For each length of a varint up to 31 bits, the last number of this length, and the first number of the next.
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
const PIPELINED_MAX: usize = 20;

/// A few tens of kilobytes of answers: more than one read, less than the buffers of a socket.
const MANY: usize = 500;

pub(super) fn notifies(suite: &mut Exchanges, setting: &Setting) {
    let notify = || setting.notify(1, 1);
    // This many NOTIFYs of different streams.
    let streams = |count: usize| {
        let notifies = (1..=count as u64).flat_map(|stream_id| setting.notify(stream_id, 1));
        greeted(notifies.collect(), count)
    };

    suite.of(Needs::Room, 1, greeted(notify(), 1));
    suite.must("ack", "3.2.7", "answers a NOTIFY with an ACK of its ids", acks);
    suite.must("ack-fin", "3.2", "sets FIN on an ACK", set_fin);
    suite.must("ack-size", "3.2", "keeps an ACK within the agreed frame size", fit);
    suite.must("ack-actions", "3.4", "fills an ACK with actions on variables that can exist", are_actions);
    let claim = "uses letters that HAProxy accepts in variables";
    suite.should("ack-variables", "field", claim, name_variables);
    suite.should("ack-not-empty", "field", "puts an action into every ACK (3.1.0 waits)", are_not_empty);
    suite.greeted([greeted(notify(), 1), vec![Turn::new(goodbye(0), Until::Closed)]].concat());
    suite.must("ack-once", "3.2.7", "sends no second ACK, up to the end of the connection", acks);

    suite.greeted(in_turn(setting, &[(0, 1)]));
    suite.must("stream-id-0", "field", "accepts stream-id 0, which HAProxy up to 3.0 sends", acks);
    suite.greeted(in_turn(setting, &[(7, 1), (7, 2), (7, 3)]));
    suite.must("frame-ids", "3.2.7", "repeats the frame-ids of one stream", acks);
    suite.greeted(in_turn(setting, &IDS_31_BITS));
    suite.must("ids-31-bits", "3.1", "repeats ids of every length up to 31 bits", acks);
    suite.greeted(in_turn(setting, &IDS_64_BITS));
    suite.should("ids-64-bits", "3.1", "repeats ids of up to 64 bits", acks);

    suite.greeted(in_pieces(1, greeted(notify(), 1)));
    suite.must("notify-bytewise", "3.2", "accepts a NOTIFY that comes byte by byte", acks);
    suite.of(Needs::Pipelining, 1, streams(PIPELINED_MAX));
    suite.must("pipelining", "3.2.1", "answers 20 NOTIFYs that come in one write", acks);
    suite.of(Needs::Pipelining, 1, in_pieces(7, streams(PIPELINED_MAX)));
    suite.must("pipelining-pieces", "3.2.1", "answers 20 NOTIFYs in writes of 7 bytes", acks);
    suite.of(Needs::Pipelining, 1, streams(MANY));
    suite.should("pipelining-500", "field", "answers 500 NOTIFYs that come in one write", acks);

    suite.greeted(greeted(setting.notify_unknown(), 1));
    suite.must("unknown-message", "3.2.6", "answers a message that it does not know", acks);
    suite.greeted(greeted(setting.notify_second(UNKNOWN), 1));
    suite.must("two-messages", "3.3", "answers a NOTIFY of two messages with one ACK", acks);
    suite.greeted(greeted(setting.notify_of_255_arguments(), 1));
    suite.must("arguments-255", "3.2", "accepts a message with 255 arguments", acks);
    suite.greeted(greeted(setting.notify_of_size(setting.frame_bytes_max()), 1));
    suite.must("frame-longest", "3.2", "accepts a frame of the agreed size", acks);
    suite.greeted(greeted(notify_of(b""), 1));
    suite.should("no-message", "3.2.6", "answers a NOTIFY without a message", acks_or_refuses);
    suite.greeted(greeted(setting.notify_second(b""), 1));
    suite.should("message-no-name", "3.2", "answers a message with an empty name", acks_or_refuses);

    let unknown = frame(Head::new(Kind(42), 1, 1), b"\xff\xff");
    suite.greeted(greeted([unknown, notify()].concat(), 1));
    let claim = "skips or refuses a frame of an unknown type";
    suite.must("unknown-frame-type", "3.2.2", claim, acks_or_refuses);
    let reserved = 1 << 31;
    suite.greeted(greeted(flagged(notify(), Head::FIN | reserved), 1));
    suite.should("flags-reserved", "3.2", "ignores or refuses a reserved flag", acks_or_refuses);
    let aborted = flagged(notify(), Head::FIN | Head::ABORT);
    suite.of(Needs::Pipelining, 1, greeted([aborted, setting.notify(2, 1)].concat(), 2));
    suite.should("flags-abort", "field", "answers after ABORT on a whole NOTIFY", acks_beside_abort);
}

/// One or two more arguments of each type.
pub(super) fn types(suite: &mut Exchanges, setting: &Setting) {
    let mut accepts = |name, section, claim, values: &[(&[u8], Data<'_>)]| {
        suite.greeted(greeted(setting.notify_with(1, 1, values), 1));
        suite.must(name, section, claim, acks);
    };
    let (x, y) = (&b"x"[..], &b"y"[..]);
    let claim = "accepts NULL, which HAProxy sends for a missing value";
    accepts("type-null", "3.1", claim, &[(x, Data::Null)]);
    accepts("type-bool", "3.1", "accepts booleans", &[(x, Data::Bool(true)), (y, Data::Bool(false))]);
    let claim = "accepts 32-bit integers, also below zero";
    accepts("type-int32", "3.1", claim, &[(x, Data::Int32(-5)), (y, Data::Int32(i32::MAX))]);
    let claim = "accepts unsigned 32-bit integers";
    accepts("type-uint32", "3.1", claim, &[(x, Data::Uint32(0)), (y, Data::Uint32(u32::MAX))]);
    let claim = "accepts 64-bit integers, also below zero";
    accepts("type-int64", "3.1", claim, &[(x, Data::Int64(-5)), (y, Data::Int64(i64::MIN))]);
    let claim = "accepts unsigned 64-bit integers";
    accepts("type-uint64", "3.1", claim, &[(x, Data::Uint64(1 << 63)), (y, Data::Uint64(u64::MAX))]);
    accepts("type-ipv4", "3.1", "accepts IPv4 addresses", &[(x, Data::Ipv4(Ipv4Addr::BROADCAST))]);
    accepts("type-ipv6", "3.1", "accepts IPv6 addresses", &[(x, Data::Ipv6(Ipv6Addr::LOCALHOST))]);
    let claim = "accepts strings, also empty and long ones";
    accepts("type-string", "3.1", claim, &[(x, Data::Str(b"")), (y, Data::Str(&[b'a'; 300]))]);
    let claim = "accepts strings of any bytes, as clients send them";
    accepts("type-string-bytes", "field", claim, &[(x, Data::Str(b"\x00\xff\xfe"))]);
    let claim = "accepts binary data";
    accepts("type-binary", "3.1", claim, &[(x, Data::Bin(b"\x00\xff\xfe")), (y, Data::Bin(&[0; 300]))]);
    let claim = "accepts an argument without a name, as in `args src`";
    accepts("argument-no-name", "field", claim, &[(b"", Data::Int64(1))]);
    let claim = "accepts two of them, as in `args src dst`";
    accepts("arguments-no-names", "field", claim, &[(b"", Data::Int64(1)), (b"", Data::Int64(2))]);
}

/// Connections that are opened and closed as HAProxy does it.
pub(super) fn connections(suite: &mut Exchanges, setting: &Setting) {
    suite.of(Needs::Greeting, 50, in_turn(setting, &[(1, 1)]));
    let claim = "serves the same ids on 50 connections at once, as HAProxy opens them";
    suite.must("connections-50", "field", claim, acks);
    suite.greeted(in_turn(setting, &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1)]));
    suite.must("connection-reused", "field", "serves one stream after the other", acks);

    suite.greeted(refused(goodbye(0)));
    suite.must("disconnect", "3.2.8", "answers HAPROXY-DISCONNECT with AGENT-DISCONNECT", leaves);
    suite.must("disconnect-reason", "3.2.9", "gives a status-code and a message", gives_a_reason);
    suite.must("disconnect-close", "3.2.8", "closes after its AGENT-DISCONNECT", closes);
    suite.greeted(refused(goodbye(8)));
    let claim = "answers the HAPROXY-DISCONNECT that refuses its hello";
    suite.must("disconnect-refused", "3.2.3", claim, leaves);
    suite.greeted(refused([setting.notify(1, 1), goodbye(0)].concat()));
    suite.must("disconnect-asked", "3.2.8", "answers HAPROXY-DISCONNECT behind a NOTIFY", leaves);
}
