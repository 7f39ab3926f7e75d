//! The answer of a line of a map.

/// The answer of a line in two bytes: the index of an SLO in the policy, "next lookup", or "refused".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Answer(u16);

impl Answer {
    /// `-1`, the article's default for a map without an answer. On a line of its own it makes an exception,
    /// such as a subnet of a network. Later lookups then decide about it.
    pub(in crate::policy) const NEXT: Answer = Answer(u16::MAX);

    /// The request is refused: it cannot be looked up, and any other answer would bypass the map.
    pub(in crate::policy) const REFUSED: Answer = Answer(u16::MAX - 1);

    pub(in crate::policy) fn slo(place: usize) -> Answer {
        Answer(u16::try_from(place).expect("no more than SLO_LINES_MAX"))
    }

    pub(in crate::policy) fn place(self) -> Option<usize> {
        (self != Answer::NEXT && self != Answer::REFUSED).then_some(usize::from(self.0))
    }
}
