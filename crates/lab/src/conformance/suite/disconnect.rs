//! Cases of the orderly end of a connection (SPOE.txt 3.2.3, 3.2.8, 3.2.9).

use crate::conformance::case::{Case, Exchange};
use crate::conformance::frames::goodbye;
use crate::conformance::judges::ends::{closes, gives_a_reason, leaves};
use crate::conformance::suite::script::refused;

pub(super) const EXCHANGES: &[Exchange] = &[
    Exchange {
        turns: |_| refused(goodbye(0)),
        cases: &[
            Case::must("disconnect", "3.2.8", "answers HAPROXY-DISCONNECT with AGENT-DISCONNECT", leaves),
            Case::must("disconnect-reason", "3.2.9", "gives a status-code and a message", gives_a_reason),
            Case::must("disconnect-close", "3.2.8", "closes after its AGENT-DISCONNECT", closes),
        ],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |_| refused(goodbye(8)),
        cases: &[Case::must(
            "disconnect-refused",
            "3.2.3",
            "answers the HAPROXY-DISCONNECT that refuses its hello",
            leaves,
        )],
        ..Exchange::GREETED
    },
    Exchange {
        turns: |setting| refused([setting.notify(1, 1), goodbye(0)].concat()),
        cases: &[Case::must(
            "disconnect-asked",
            "3.2.8",
            "answers HAPROXY-DISCONNECT behind a NOTIFY",
            leaves,
        )],
        ..Exchange::GREETED
    },
];
