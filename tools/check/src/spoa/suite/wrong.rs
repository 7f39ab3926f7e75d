//! Cases of invalid frames and of clients that do not speak SPOP (SPOE.txt 3.1, 3.2): HAProxy sends none of them.

use std::iter;

use crate::spoa::frames::{HELLO, flagged, frame, goodbye, hello, notify_of};
use crate::spoa::judges::acks::acks_nothing;
use crate::spoa::judges::ends::{closes, leaves, refuses, refuses_as};
use crate::spoa::suite::{only, refused, unread};
use crate::spoa::{Exchanges, Needs, Setting, Turn, Until};
use spop::{Head, Kind};

/// A message without arguments.
const MESSAGE: &[u8] = b"\x07request\x00";

pub(super) fn frames(suite: &mut Exchanges, setting: &Setting) {
    let hello_head = Head::of_connection(Kind::HAPROXY_HELLO);
    suite.plain(only(setting.notify(1, 1)));
    suite.survives("notify-first", "survives a NOTIFY before any hello");
    suite.should("notify-first-ack", "3.2.4", "sends no ACK before the handshake", acks_nothing);
    suite.should("notify-first-refused", "3.2.9", "refuses it", refuses);
    suite.greeted(refused(hello(HELLO)));
    suite.survives("hello-twice", "survives a second hello");
    suite.should("hello-twice-refused", "3.2.4", "refuses it", refuses);
    suite.plain(only(frame(Head { stream_id: 1, ..hello_head }, b"")));
    suite.survives("hello-of-stream", "survives an empty hello with a stream-id");
    suite.should("hello-of-stream-refused", "3.2.4", "refuses it", refuses);
    suite.plain(only(frame(hello_head, b"\x12supported-ver")));
    suite.survives("hello-garbled", "survives a hello that ends within a name");
    suite.should("hello-garbled-refused", "3.2.4", "refuses it", refuses);

    suite.greeted(refused(setting.notify_of_size(setting.frame_bytes_max() + 1)));
    suite.survives("frame-too-long", "survives a frame one byte longer than agreed");
    suite.should("frame-too-long-refused", "3.5", "refuses it with status 3", refuses_as::<3>);
    suite.greeted(refused(b"\xff\xff\xff\xff\x03\x00\x00\x00\x01\x01\x01".to_vec()));
    suite.survives("frame-of-4-gib", "survives the announcement of a frame of 4 GiB");
    suite.should("frame-of-4-gib-refused", "3.5", "refuses it at once with status 3", refuses_as::<3>);
    suite.greeted(refused(b"\x00\x00\x00\x00".to_vec()));
    suite.survives("frame-of-0-bytes", "survives a frame without a head");
    suite.should("frame-of-0-bytes-refused", "3.5", "refuses it with status 4", refuses_as::<4>);
    suite.greeted(refused(b"\x00\x00\x00\x07\x03\x00\x00\x00\x01\xf0\xf0".to_vec()));
    suite.survives("ids-past-end", "survives ids that pass the end of their frame");
    suite.should("ids-past-end-refused", "3.5", "refuses them with status 4", refuses_as::<4>);

    suite.of(Needs::WholePayloads, 1, refused(flagged(notify_of(MESSAGE), 0)));
    suite.survives("fragment", "survives a NOTIFY without FIN");
    suite.should("fragment-refused", "3.5", "refuses it with status 10", refuses_as::<10>);
    suite.greeted(refused(frame(Head::new(Kind::UNSET, 1, 1), MESSAGE)));
    suite.survives("fragment-rest", "survives the rest of a payload that never began");
    suite.should("fragment-rest-refused", "3.2.9", "refuses it", refuses);
    suite.greeted(refused(frame(Head::new(Kind::ACK, 1, 1), b"")));
    suite.survives("frame-of-agent", "survives an ACK from HAProxy's side");
    suite.should("frame-of-agent-refused", "3.2.2", "refuses it", refuses);

    suite.greeted(refused(notify_of(b"\x08request")));
    suite.survives("string-past-end", "survives a string that passes the end of its frame");
    suite.should("string-past-end-refused", "3.5", "refuses it with status 4", refuses_as::<4>);
    suite.greeted(refused(notify_of(b"\x07request\x02\x01a\x00")));
    suite.survives("argument-missing", "survives a message with fewer arguments than it counts");
    suite.should("argument-missing-refused", "3.5", "refuses it with status 4", refuses_as::<4>);
    suite.greeted(refused(notify_of(b"\x07request\x01\x01a\x0a")));
    suite.survives("type-reserved", "survives a value of the reserved type 10");
    suite.should("type-reserved-refused", "3.5", "refuses it with status 4", refuses_as::<4>);
    suite.greeted(refused(notify_of(b"\x07request\x01\x01a\x07\x00\x00\x00\x00")));
    suite.survives("address-cut", "survives a quarter of an IPv6 address");
    suite.should("address-cut-refused", "3.5", "refuses it with status 4", refuses_as::<4>);
    suite.greeted(refused(notify_of(b"\x07request\x01\x01a\x08\xff\xf0\xfe\xfe\xfe\xfe\xfe\xfe\xfe\x0e")));
    suite.survives("length-of-64-bits", "survives a string whose length has 64 bits");
    suite.should("length-of-64-bits-refused", "3.5", "refuses it with status 4", refuses_as::<4>);

    suite.greeted(refused(goodbye(77)));
    suite.survives("disconnect-status-77", "survives HAPROXY-DISCONNECT with an unassigned status");
    suite.should("disconnect-status-77-answer", "3.2.8", "answers it with AGENT-DISCONNECT", leaves);
}

/// Clients that do not speak SPOP, and connections that break.
pub(super) fn strangers(suite: &mut Exchanges, setting: &Setting) {
    suite.plain(only(b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n".to_vec()));
    suite.survives("http", "survives a request over HTTP");
    suite.should("http-closed", "field", "closes it", closes);
    suite.plain(only(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03".to_vec()));
    suite.survives("tls", "survives the start of a TLS handshake");
    suite.should("tls-closed", "field", "closes it", closes);
    suite.plain(only(noise()));
    suite.survives("noise", "survives 4096 bytes of noise");
    suite.should("noise-closed", "field", "closes it", closes);
    suite.greeted(refused(noise()));
    suite.survives("noise-later", "survives noise after the handshake");
    suite.should("noise-later-closed", "field", "closes it", closes);

    suite.plain(Vec::new());
    suite.survives("silent", "serves others beside a silent connection, and after its close");
    suite.plain(vec![Turn::new(hello(HELLO)[..60].to_vec(), Until::Sent)]);
    suite.survives("hello-cut", "survives a close in the middle of a hello");
    suite.greeted(unread(setting.notify(1, 1)[..12].to_vec()));
    suite.survives("notify-cut", "survives a close in the middle of a NOTIFY");
    suite.greeted(unread(setting.notify(1, 1)));
    suite.survives("ack-unread", "survives a close before its ACK is read");
    suite.of(Needs::Nothing, 200, vec![Turn::new(hello(HELLO), Until::Sent)]);
    suite.survives("connections-200", "survives 200 connections that close after their hello");
}

/// Meaningless bytes: the same in each run.
fn noise() -> Vec<u8> {
    // A linear congruential generator, with the constants of Numerical Recipes.
    let next = |seed: &u32| Some(seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    iter::successors(Some(1_u32), next).map(|number| (number >> 24) as u8).take(4_096).collect()
}
