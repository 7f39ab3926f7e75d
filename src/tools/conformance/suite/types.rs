//! Cases of typed data: one more argument of each type (SPOE.txt 3.1).

use crate::tools::conformance::case::{Case, Exchange, Turn};
use crate::tools::conformance::frames::Item;
use crate::tools::conformance::judges::acks::acks;
use crate::tools::conformance::setting::Needs;
use crate::tools::conformance::setting::Setting;
use crate::tools::conformance::suite::script::greeted;
use crate::wire::spop::Data;

const TYPED: Exchange = Exchange { needs: Needs::Greeting, ..Exchange::PLAIN };

fn with(setting: &Setting, more: &[Item<'_>]) -> Vec<Turn> {
    greeted(setting.notify_with(1, 1, more), 1)
}

pub(super) const EXCHANGES: &[Exchange] = &[
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Null)]),
        cases: &[Case::must("type-null", "3.1", "takes NULL, which HAProxy sends for a missing value", acks)],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Bool(true)), (b"y", Data::Bool(false))]),
        cases: &[Case::must("type-bool", "3.1", "takes booleans", acks)],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Int32(-5)), (b"y", Data::Int32(i32::MAX))]),
        cases: &[Case::must("type-int32", "3.1", "takes 32-bit integers, also below zero", acks)],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Uint32(0)), (b"y", Data::Uint32(u32::MAX))]),
        cases: &[Case::must("type-uint32", "3.1", "takes unsigned 32-bit integers", acks)],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Int64(-5)), (b"y", Data::Int64(i64::MIN))]),
        cases: &[Case::must("type-int64", "3.1", "takes 64-bit integers, also below zero", acks)],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Uint64(1 << 63)), (b"y", Data::Uint64(u64::MAX))]),
        cases: &[Case::must("type-uint64", "3.1", "takes unsigned 64-bit integers", acks)],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Ipv4(std::net::Ipv4Addr::BROADCAST))]),
        cases: &[Case::must("type-ipv4", "3.1", "takes IPv4 addresses", acks)],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Ipv6(std::net::Ipv6Addr::LOCALHOST))]),
        cases: &[Case::must("type-ipv6", "3.1", "takes IPv6 addresses", acks)],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Str(b"")), (b"y", Data::Str(&[b'a'; 300]))]),
        cases: &[Case::must("type-string", "3.1", "takes strings, also empty and long ones", acks)],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Str(b"\x00\xff\xfe"))]),
        cases: &[Case::must(
            "type-string-bytes",
            "field",
            "takes strings of any bytes, as clients send them",
            acks,
        )],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"x", Data::Bin(b"\x00\xff\xfe")), (b"y", Data::Bin(&[0; 300]))]),
        cases: &[Case::must("type-binary", "3.1", "takes binary data", acks)],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"", Data::Int64(1))]),
        cases: &[Case::must(
            "argument-no-name",
            "field",
            "takes an argument without a name, as in `args src`",
            acks,
        )],
        ..TYPED
    },
    Exchange {
        turns: |setting| with(setting, &[(b"", Data::Int64(1)), (b"", Data::Int64(2))]),
        cases: &[Case::must("arguments-no-names", "field", "takes two of them, as in `args src dst`", acks)],
        ..TYPED
    },
];
