//! A pattern: HAProxy's name for a key of a map together with its answer.

/// A line of a map in eight bytes. The key itself stays in the text of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Pattern {
    at: u32,
    length: u16,
    pub(in crate::policy) answer: Answer,
}

impl Pattern {
    /// Stands for the matching line if a value cannot be looked up.
    pub(in crate::policy) const REFUSED: Pattern = Pattern { at: 0, length: 0, answer: Answer::REFUSED };

    pub(in crate::policy) fn new(at: usize, key: &[u8], answer: Answer) -> Pattern {
        let at = u32::try_from(at).expect("no file is longer than FILE_BYTES_MAX");
        let length = u16::try_from(key.len()).expect("no line is longer than LINE_BYTES_MAX");
        Pattern { at, length, answer }
    }

    /// The same line with only part of its key: `length` bytes after the first `skipped` bytes.
    pub(in crate::policy) fn part(self, skipped: usize, length: usize) -> Pattern {
        debug_assert!(skipped + length <= self.length());
        Pattern { at: self.at + skipped as u32, length: length as u16, ..self }
    }

    pub(in crate::policy) fn key(self, text: &[u8]) -> &[u8] {
        &text[self.at()..][..self.length()]
    }

    pub(in crate::policy) fn at(self) -> usize {
        self.at as usize
    }

    pub(in crate::policy) fn length(self) -> usize {
        usize::from(self.length)
    }
}

/// The answer of a line in two bytes: the index of an SLO in the policy, "next lookup", or "refused".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Answer(u16);

/// The error for a request that cannot be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Refused;

impl Answer {
    /// `-1`: no answer, as in the HAProxy article that slowlane is based on. A line with this value makes an
    /// exception, for example for a subnet, and leaves the decision to later lookups.
    pub(in crate::policy) const NEXT: Answer = Answer(u16::MAX);

    /// The request is refused because it cannot be looked up, and any other answer would bypass the map.
    pub(in crate::policy) const REFUSED: Answer = Answer(u16::MAX - 1);

    pub(in crate::policy) fn slo(place: usize) -> Answer {
        Answer(u16::try_from(place).expect("a policy has at most SLO_LINES_MAX SLOs"))
    }

    /// The index of the SLO, if the answer names one. An error if the answer is a refusal.
    pub(in crate::policy) fn checked(self) -> Result<Option<usize>, Refused> {
        if self == Answer::REFUSED { Err(Refused) } else { Ok(self.place()) }
    }

    pub(in crate::policy) fn place(self) -> Option<usize> {
        (self != Answer::NEXT && self != Answer::REFUSED).then_some(usize::from(self.0))
    }
}
