//! Cases of typed data: one more argument of each type (SPOE.txt 3.1).

use crate::conformance::case::{Case, Exchange, Turn};
use crate::conformance::frames::Item;
use crate::conformance::judges::acks::acks;
use crate::conformance::setting::Setting;
use crate::conformance::suite::script::greeted;
use spop::Data;

fn with(setting: &Setting, more: &[Item<'_>]) -> Vec<Turn> {
    greeted(setting.notify_with(1, 1, more), 1)
}

pub(super) const EXCHANGES: &[Exchange] = &[
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Null)]),
        cases: &[Case::must(
            "type-null",
            "3.1",
            "accepts NULL, which HAProxy sends for a missing value",
            acks,
        )],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Bool(true)), (b"y", Data::Bool(false))]),
        cases: &[Case::must("type-bool", "3.1", "accepts booleans", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Int32(-5)), (b"y", Data::Int32(i32::MAX))]),
        cases: &[Case::must("type-int32", "3.1", "accepts 32-bit integers, also below zero", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Uint32(0)), (b"y", Data::Uint32(u32::MAX))]),
        cases: &[Case::must("type-uint32", "3.1", "accepts unsigned 32-bit integers", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Int64(-5)), (b"y", Data::Int64(i64::MIN))]),
        cases: &[Case::must("type-int64", "3.1", "accepts 64-bit integers, also below zero", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Uint64(1 << 63)), (b"y", Data::Uint64(u64::MAX))]),
        cases: &[Case::must("type-uint64", "3.1", "accepts unsigned 64-bit integers", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Ipv4(std::net::Ipv4Addr::BROADCAST))]),
        cases: &[Case::must("type-ipv4", "3.1", "accepts IPv4 addresses", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Ipv6(std::net::Ipv6Addr::LOCALHOST))]),
        cases: &[Case::must("type-ipv6", "3.1", "accepts IPv6 addresses", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Str(b"")), (b"y", Data::Str(&[b'a'; 300]))]),
        cases: &[Case::must("type-string", "3.1", "accepts strings, also empty and long ones", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Str(b"\x00\xff\xfe"))]),
        cases: &[Case::must(
            "type-string-bytes",
            "field",
            "accepts strings of any bytes, as clients send them",
            acks,
        )],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Bin(b"\x00\xff\xfe")), (b"y", Data::Bin(&[0; 300]))]),
        cases: &[Case::must("type-binary", "3.1", "accepts binary data", acks)],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"", Data::Int64(1))]),
        cases: &[Case::must(
            "argument-no-name",
            "field",
            "accepts an argument without a name, as in `args src`",
            acks,
        )],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"", Data::Int64(1)), (b"", Data::Int64(2))]),
        cases: &[Case::must(
            "arguments-no-names",
            "field",
            "accepts two of them, as in `args src dst`",
            acks,
        )],
        ..Exchange::GREETED
    },
];
