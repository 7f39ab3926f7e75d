//! Cases of the handshake (SPOE.txt 3.2.3 to 3.2.5).

use std::net::Ipv4Addr;

use crate::spoa::frames::{ENGINE_ID, HELLO, Item, OFFERED_BYTES, hello, hello_of};
use crate::spoa::judges::acks::acks;
use crate::spoa::judges::ends::{closes, refuses_as};
use crate::spoa::judges::greeting::{
    agrees_on_a_version_or_refuses, answers, greets, has_capabilities, has_frame_size, has_version, sets_fin,
};
use crate::spoa::suite::{first, greeted_by, in_pieces, only};
use crate::spoa::{Exchanges, Setting};
use spop::{Data, HaproxyHello};

const VERSION: Item<'static> = (b"supported-versions", Data::Str(b"2.0"));
const SIZE: Item<'static> = (b"max-frame-size", Data::Uint32(OFFERED_BYTES));
const NAMES: Item<'static> = (b"capabilities", Data::Str(b"pipelining"));

const HEALTH_CHECK: HaproxyHello<'static> =
    HaproxyHello { capabilities: b"", healthcheck: true, ..HaproxyHello::new(OFFERED_BYTES) };

/// Items that no version of HAProxy has sent yet, of every type.
const UNKNOWN: [Item<'static>; 5] = [
    (b"x-null", Data::Null),
    (b"x-bool", Data::Bool(true)),
    (b"x-number", Data::Int64(-1)),
    (b"x-address", Data::Ipv4(Ipv4Addr::LOCALHOST)),
    (b"x-bytes", Data::Bin(b"\x00\xff")),
];

pub(super) fn hellos(suite: &mut Exchanges, setting: &Setting) {
    let versions = |list| hello(HaproxyHello { supported_versions: list, ..HELLO });
    let size = |frame_bytes_max| hello(HaproxyHello { frame_bytes_max, ..HELLO });
    let capabilities = |list| hello(HaproxyHello { capabilities: list, ..HELLO });

    suite.plain(first(hello(HELLO)));
    suite.must("hello", "3.2.4", "answers the hello of HAProxy 3.1 and later with AGENT-HELLO", greets);
    suite.must("hello-fin", "3.2", "sets FIN on its hello", sets_fin);
    suite.must("hello-version", "3.2.5", "agrees on a version that was announced", has_version);
    let claim = "agrees on a frame size of 256 bytes to the offered one";
    suite.must("hello-frame-size", "3.2.5", claim, has_frame_size);
    suite.must("hello-capabilities", "3.2.5", "lists its capabilities, or none", has_capabilities);

    suite.plain(first(capabilities(b"pipelining,async")));
    suite.must("hello-2.6", "field", "answers the hello of HAProxy 2.1 to 3.0", greets);
    suite.plain(first(hello(HaproxyHello { engine_id: None, ..HELLO })));
    suite.must("hello-no-engine-id", "3.2.4", "accepts a hello without engine-id", greets);
    suite.plain(first(hello_of(&[(b"engine-id", Data::Str(ENGINE_ID)), NAMES, SIZE, VERSION])));
    suite.must("hello-order", "3.2.4", "accepts the items of a hello in any order", greets);
    suite.plain(first(hello_of(&[&UNKNOWN[..], &[VERSION, SIZE, NAMES]].concat())));
    suite.should("hello-unknown-items", "field", "ignores items that it does not know", greets);
    suite.plain(in_pieces(1, first(hello(HELLO))));
    suite.must("hello-bytewise", "3.2", "accepts a hello that comes byte by byte", greets);

    suite.plain(only(hello(HEALTH_CHECK)));
    suite.must("health-check", "3.2.3", "answers a health check with AGENT-HELLO", greets);
    suite.should("health-check-close", "3.2.3", "closes after a health check", closes);
    let no_health_check = hello_of(&[VERSION, SIZE, NAMES, (b"healthcheck", Data::Bool(false))]);
    suite.plain(greeted_by(no_health_check, setting.notify(1, 1), 1));
    suite.must("health-check-false", "3.2.4", "serves after healthcheck=false", acks);

    suite.plain(first(versions(b" 1.0 ,  2.0")));
    suite.must("versions-spaces", "3.2.4", "ignores spaces in the list of versions", greets);
    suite.plain(first(versions(b"3.0,2.0")));
    suite.must("versions-several", "3.2.4", "finds its version among later ones", greets);
    suite.plain(first(versions(b"2.1")));
    suite.should("version-2.1", "3.2.4", "accepts a later minor version, which includes 2.0", greets);
    suite.plain(only(versions(b"1.0")));
    let claim = "agrees on at most version 1.0 if no later one is announced, or refuses";
    suite.must("version-1.0", "3.2.5", claim, agrees_on_a_version_or_refuses);
    suite.should("version-1.0-status", "3.5", "refuses version 1.0 with status 8", refuses_as::<8>);
    suite.plain(first(versions(b"9.9")));
    suite.must("version-9.9", "3.2.4", "answers a version of the future, with either frame", answers);
    suite.plain(only(hello_of(&[SIZE, NAMES])));
    suite.must("version-missing", "3.2.4", "answers a hello without versions", answers);
    suite.should("version-missing-status", "3.5", "refuses it with status 5", refuses_as::<5>);

    suite.plain(only(hello_of(&[VERSION, NAMES])));
    suite.must("frame-size-missing", "3.2.4", "answers a hello without max-frame-size", answers);
    suite.should("frame-size-missing-status", "3.5", "refuses it with status 6", refuses_as::<6>);
    suite.plain(only(size(255)));
    suite.must("frame-size-255", "3.2", "answers a hello with a max-frame-size below 256", answers);
    suite.should("frame-size-255-status", "3.5", "refuses it with status 9", refuses_as::<9>);
    suite.plain(first(size(256)));
    suite.must("frame-size-256", "3.2", "agrees on the smallest frame size", has_frame_size);
    suite.plain(first(size(1_000)));
    suite.must("frame-size-1000", "3.2.4", "agrees on at most what is offered", has_frame_size);
    suite.plain(first(size(u32::MAX)));
    suite.must("frame-size-4-gib", "3.2.4", "accepts the largest offer", has_frame_size);

    suite.plain(first(hello_of(&[VERSION, SIZE])));
    suite.must("capabilities-missing", "3.2.4", "answers a hello without capabilities", answers);
    suite.plain(first(capabilities(b"x-first, pipelining ,x-last")));
    suite.must("capabilities-unknown", "3.2.1", "ignores capabilities that it does not know", greets);
}
