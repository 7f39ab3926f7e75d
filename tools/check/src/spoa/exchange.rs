//! Exchanges as data: the bytes to send, the expected answers, and the cases to judge.

use crate::card::{Case, Level};
use crate::spoa::{Needs, Transcript, Until};

/// Bytes to exchange with an agent, and the cases that they decide.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// The turns of each connection, in sequence.
    pub turns: Vec<Turn>,
    /// The number of simultaneous connections that send the same bytes.
    pub connections: usize,
    pub needs: Needs,
    pub cases: Vec<(Case, Judge)>,
}

/// Bytes to send, and the expected answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub bytes: Vec<u8>,
    /// The number of bytes in each write. `None` means all bytes in one write.
    pub piece_bytes: Option<usize>,
    pub until: Until,
}

impl Turn {
    pub(super) fn new(bytes: Vec<u8>, until: Until) -> Turn {
        Turn { bytes, piece_bytes: None, until }
    }
}

/// `Ok` if the agent behaved as required, or else the reason why not.
pub(crate) type Judged = Result<(), String>;

pub(super) type Check = fn(&Transcript) -> Judged;

type Text = &'static str;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Judge {
    /// Judges the transcript of each connection.
    Of(Check),
    /// A connection that was open before, and a new one, must still be served.
    ServesOn,
}

impl Exchange {
    /// Whether the exchange is hostile: HAProxy never sends it, and a case checks that the agent still serves others.
    pub(super) fn is_hostile(&self) -> bool {
        self.cases.iter().any(|(_, judge)| matches!(judge, Judge::ServesOn))
    }
}

/// Exchanges in the order of the suite. A case belongs to the exchange before it.
#[derive(Debug, Default)]
pub(super) struct Exchanges(pub(super) Vec<Exchange>);

impl Exchanges {
    /// Adds an exchange with any agent, whether or not its handshake succeeds.
    pub(super) fn plain(&mut self, turns: Vec<Turn>) {
        self.of(Needs::Nothing, 1, turns);
    }

    /// Adds an exchange with an agent whose handshake succeeds.
    pub(super) fn greeted(&mut self, turns: Vec<Turn>) {
        self.of(Needs::Greeting, 1, turns);
    }

    pub(super) fn of(&mut self, needs: Needs, connections: usize, turns: Vec<Turn>) {
        self.0.push(Exchange { turns, connections, needs, cases: Vec::new() });
    }

    /// Adds a required case. Its section is one of SPOE.txt, or `field` for the practice of HAProxy's versions.
    pub(super) fn must(&mut self, name: Text, section: Text, claim: Text, judge: Check) {
        self.case(Case { name, section, level: Level::Required, claim }, Judge::Of(judge));
    }

    /// Adds an advised case.
    pub(super) fn should(&mut self, name: Text, section: Text, claim: Text, judge: Check) {
        self.case(Case { name, section, level: Level::Advised, claim }, Judge::Of(judge));
    }

    /// Adds the required case of a hostile exchange.
    pub(super) fn survives(&mut self, name: Text, claim: Text) {
        self.case(Case { name, section: "field", level: Level::Required, claim }, Judge::ServesOn);
    }

    fn case(&mut self, case: Case, judge: Judge) {
        self.0.last_mut().expect("an exchange comes before its cases").cases.push((case, judge));
    }
}
