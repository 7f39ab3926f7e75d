//! Cases as data: what is sent, what is awaited, and which judge decides.

use crate::conformance::setting::{Needs, Setting};
use crate::conformance::transcript::{Transcript, Until};

/// Bytes to exchange with an agent, and the cases that they decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// The turns of each connection, one after the other.
    pub turns: fn(&Setting) -> Vec<Turn>,
    /// Connections that are open together and send the same.
    pub connections: usize,
    pub needs: Needs,
    pub cases: &'static [Case],
}

impl Exchange {
    /// One connection, without cases.
    pub(super) const PLAIN: Exchange =
        Exchange { turns: |_| Vec::new(), connections: 1, needs: Needs::Nothing, cases: &[] };

    /// The same, with an agent that can be greeted.
    pub(super) const GREETED: Exchange = Exchange { needs: Needs::Greeting, ..Exchange::PLAIN };

    /// No HAProxy sends this: a case asks whether the agent serves other connections afterwards.
    pub(super) fn is_hostile(&self) -> bool {
        self.cases.iter().any(|case| matches!(case.judge, Judge::ServesOn))
    }
}

/// Bytes to send, and what to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub bytes: Vec<u8>,
    pub writing: Writing,
    pub until: Until,
}

impl Turn {
    pub(super) fn new(bytes: Vec<u8>, until: Until) -> Turn {
        Turn { bytes, writing: Writing::AtOnce, until }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    AtOnce,
    /// So many bytes in each write.
    InPieces(usize),
}

/// One line of the score card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub name: &'static str,
    /// The section of SPOE.txt, or `field`: the practice of HAProxy's versions.
    pub section: &'static str,
    pub level: Level,
    /// The expected behaviour of the agent.
    pub claim: &'static str,
    pub judge: Judge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The specification demands it, or no HAProxy can use the agent without it.
    Required,
    Advised,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Judge {
    /// Asked for the transcript of each connection.
    Of(fn(&Transcript) -> Result<(), String>),
    /// A connection that was open before, and a new one, are still served.
    ServesOn,
}

impl Case {
    /// A required case.
    pub(super) const fn must(
        name: &'static str,
        section: &'static str,
        claim: &'static str,
        judge: fn(&Transcript) -> Result<(), String>,
    ) -> Case {
        Case { name, section, level: Level::Required, claim, judge: Judge::Of(judge) }
    }

    /// An advised case.
    pub(super) const fn should(
        name: &'static str,
        section: &'static str,
        claim: &'static str,
        judge: fn(&Transcript) -> Result<(), String>,
    ) -> Case {
        Case { name, section, level: Level::Advised, claim, judge: Judge::Of(judge) }
    }

    /// The required case of a hostile exchange.
    pub(super) const fn survives(name: &'static str, claim: &'static str) -> Case {
        Case { name, section: "field", level: Level::Required, claim, judge: Judge::ServesOn }
    }
}
