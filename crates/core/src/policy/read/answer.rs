//! The answer of a line of a map.

/// The answer of a line in two bytes: the index of an SLO in the policy, "next lookup", or "refused".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Answer(u16);

/// The request cannot be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Refused;

impl Answer {
    /// `-1`, the article's default for a map without an answer. On a line of its own it makes an exception,
    /// such as a subnet of a network. Later lookups then decide about it.
    pub(in crate::policy) const NEXT: Answer = Answer(u16::MAX);

    /// The request is refused: it cannot be looked up, and any other answer would bypass the map.
    pub(in crate::policy) const REFUSED: Answer = Answer(u16::MAX - 1);

    pub(in crate::policy) fn slo(place: usize) -> Answer {
        Answer(u16::try_from(place).expect("no more than SLO_LINES_MAX"))
    }

    /// The index of the SLO, if it names one.
    pub(in crate::policy) fn checked(self) -> Result<Option<usize>, Refused> {
        if self == Answer::REFUSED { Err(Refused) } else { Ok(self.place()) }
    }

    pub(in crate::policy) fn place(self) -> Option<usize> {
        (self != Answer::NEXT && self != Answer::REFUSED).then_some(usize::from(self.0))
    }
}
