//! Cases of the handshake (SPOE.txt 3.2.3 to 3.2.5).

use crate::conformance::case::{Case, Exchange};
use crate::conformance::frames::{
    CAPABILITIES, ENGINE_ID, FRAME_SIZE, HELLO, Item, OFFERED_BYTES, VERSIONS, hello, hello_of,
};
use crate::conformance::judges::acks::acks;
use crate::conformance::judges::ends::{closes, refuses_as};
use crate::conformance::judges::greeting::{
    agrees_on_a_version_or_refuses, answers, greets, has_capabilities, has_frame_size, has_version, sets_fin,
};
use crate::conformance::suite::script::{first, greeted_by, in_pieces, only};
use spop::{Data, HaproxyHello};

const VERSION: Item<'static> = (VERSIONS, Data::Str(b"2.0"));
const SIZE: Item<'static> = (FRAME_SIZE, Data::Uint32(OFFERED_BYTES));
const NAMES: Item<'static> = (CAPABILITIES, Data::Str(b"pipelining"));

const HEALTH_CHECK: HaproxyHello<'static> =
    HaproxyHello { capabilities: b"", healthcheck: true, ..HaproxyHello::new(OFFERED_BYTES) };

/// Items that no version of HAProxy has sent yet, of every type.
const UNKNOWN: [Item<'static>; 5] = [
    (b"x-null", Data::Null),
    (b"x-bool", Data::Bool(true)),
    (b"x-number", Data::Int64(-1)),
    (b"x-address", Data::Ipv4(std::net::Ipv4Addr::LOCALHOST)),
    (b"x-bytes", Data::Bin(b"\x00\xff")),
];

fn versions(list: &'static [u8]) -> Vec<u8> {
    hello(HaproxyHello { supported_versions: list, ..HELLO })
}

fn size(frame_bytes_max: u32) -> Vec<u8> {
    hello(HaproxyHello { frame_bytes_max, ..HELLO })
}

fn capabilities(list: &'static [u8]) -> Vec<u8> {
    hello(HaproxyHello { capabilities: list, ..HELLO })
}

pub(super) const EXCHANGES: &[Exchange] = &[
    Exchange {
        turns: |_| first(hello(HELLO)),
        cases: &[
            Case::must(
                "hello",
                "3.2.4",
                "answers the hello of HAProxy 3.1 and later with AGENT-HELLO",
                greets,
            ),
            Case::must("hello-fin", "3.2", "sets FIN on its hello", sets_fin),
            Case::must("hello-version", "3.2.5", "agrees on a version that was announced", has_version),
            Case::must(
                "hello-frame-size",
                "3.2.5",
                "agrees on a frame size of 256 bytes to the offered one",
                has_frame_size,
            ),
            Case::must("hello-capabilities", "3.2.5", "lists its capabilities, or none", has_capabilities),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(capabilities(b"pipelining,async")),
        cases: &[Case::must("hello-2.6", "field", "answers the hello of HAProxy 2.1 to 3.0", greets)],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(hello(HaproxyHello { engine_id: None, ..HELLO })),
        cases: &[Case::must("hello-no-engine-id", "3.2.4", "accepts a hello without engine-id", greets)],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(hello_of(&[(b"engine-id", Data::Str(ENGINE_ID)), NAMES, SIZE, VERSION])),
        cases: &[Case::must("hello-order", "3.2.4", "accepts the items of a hello in any order", greets)],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(hello_of(&[&UNKNOWN[..], &[VERSION, SIZE, NAMES]].concat())),
        cases: &[Case::should("hello-unknown-items", "field", "ignores items that it does not know", greets)],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| in_pieces(1, first(hello(HELLO))),
        cases: &[Case::must("hello-bytewise", "3.2", "accepts a hello that comes byte by byte", greets)],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| only(hello(HEALTH_CHECK)),
        cases: &[
            Case::must("health-check", "3.2.3", "answers a health check with AGENT-HELLO", greets),
            Case::should("health-check-close", "3.2.3", "closes after a health check", closes),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |setting| {
            let hello = hello_of(&[VERSION, SIZE, NAMES, (b"healthcheck", Data::Bool(false))]);
            greeted_by(hello, setting.notify(1, 1), 1)
        },
        cases: &[Case::must("health-check-false", "3.2.4", "serves after healthcheck=false", acks)],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(versions(b" 1.0 ,  2.0")),
        cases: &[Case::must("versions-spaces", "3.2.4", "ignores spaces in the list of versions", greets)],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(versions(b"3.0,2.0")),
        cases: &[Case::must("versions-several", "3.2.4", "finds its version among later ones", greets)],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(versions(b"2.1")),
        cases: &[Case::should(
            "version-2.1",
            "3.2.4",
            "accepts a later minor version, which includes 2.0",
            greets,
        )],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| only(versions(b"1.0")),
        cases: &[
            Case::must(
                "version-1.0",
                "3.2.5",
                "agrees on at most version 1.0 if no later one is announced, or refuses",
                agrees_on_a_version_or_refuses,
            ),
            Case::should("version-1.0-status", "3.5", "refuses version 1.0 with status 8", refuses_as::<8>),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(versions(b"9.9")),
        cases: &[Case::must(
            "version-9.9",
            "3.2.4",
            "answers a version of the future, with either frame",
            answers,
        )],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| only(hello_of(&[SIZE, NAMES])),
        cases: &[
            Case::must("version-missing", "3.2.4", "answers a hello without versions", answers),
            Case::should("version-missing-status", "3.5", "refuses it with status 5", refuses_as::<5>),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| only(hello_of(&[VERSION, NAMES])),
        cases: &[
            Case::must("frame-size-missing", "3.2.4", "answers a hello without max-frame-size", answers),
            Case::should("frame-size-missing-status", "3.5", "refuses it with status 6", refuses_as::<6>),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| only(size(255)),
        cases: &[
            Case::must("frame-size-255", "3.2", "answers a hello with a max-frame-size below 256", answers),
            Case::should("frame-size-255-status", "3.5", "refuses it with status 9", refuses_as::<9>),
        ],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(size(256)),
        cases: &[Case::must("frame-size-256", "3.2", "agrees on the smallest frame size", has_frame_size)],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(size(1_000)),
        cases: &[Case::must("frame-size-1000", "3.2.4", "agrees on at most what is offered", has_frame_size)],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(size(u32::MAX)),
        cases: &[Case::must("frame-size-4-gib", "3.2.4", "accepts the largest offer", has_frame_size)],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(hello_of(&[VERSION, SIZE])),
        cases: &[Case::must(
            "capabilities-missing",
            "3.2.4",
            "answers a hello without capabilities",
            answers,
        )],
        ..Exchange::PLAIN
    },
    Exchange {
        turns: |_| first(capabilities(b"x-first, pipelining ,x-last")),
        cases: &[Case::must(
            "capabilities-unknown",
            "3.2.1",
            "ignores capabilities that it does not know",
            greets,
        )],
        ..Exchange::PLAIN
    },
];
