//! Cases of several connections, as HAProxy opens them.

use crate::tools::conformance::case::{Case, Exchange};
use crate::tools::conformance::judges::acks::acks;
use crate::tools::conformance::setting::Needs;
use crate::tools::conformance::suite::script::in_turn;

const TOGETHER: Exchange = Exchange { needs: Needs::Greeting, connections: 50, ..Exchange::PLAIN };

pub(super) const EXCHANGES: &[Exchange] = &[
    Exchange {
        turns: |setting| in_turn(setting, &[(1, 1)]),
        cases: &[Case::must(
            "connections-50",
            "field",
            "serves the same ids on 50 connections at once, as HAProxy opens them",
            acks,
        )],
        ..TOGETHER
    },
    Exchange {
        turns: |setting| in_turn(setting, &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1)]),
        cases: &[Case::must("connection-reused", "field", "serves one stream after the other", acks)],
        ..Exchange { connections: 1, ..TOGETHER }
    },
];
