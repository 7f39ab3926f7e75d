//! Cases of several connections, as HAProxy opens them.

use crate::conformance::case::{Case, Exchange};
use crate::conformance::judges::acks::acks;
use crate::conformance::suite::script::in_turn;

pub(super) const EXCHANGES: &[Exchange] = &[
    Exchange {
        turns: |setting| in_turn(setting, &[(1, 1)]),
        cases: &[Case::must(
            "connections-50",
            "field",
            "serves the same ids on 50 connections at once, as HAProxy opens them",
            acks,
        )],
        connections: 50,
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| in_turn(setting, &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1)]),
        cases: &[Case::must("connection-reused", "field", "serves one stream after the other", acks)],
        ..Exchange::GREETED
    },
];
