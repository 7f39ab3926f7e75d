//! A key of a map with its answer, as HAProxy calls it: a pattern.

/// What a line answers, in two bytes: the place of an SLO in the policy, or "ask the next lookup".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer(u16);

impl Answer {
    /// `-1`, the article's default of a map that has no answer. On a line of its own it carves a hole: a
    /// network's subnet, a website of a prefix, that other lookups are to decide about.
    pub(super) const NEXT: Answer = Answer(u16::MAX);

    pub(super) fn slo(place: usize) -> Answer {
        Answer(u16::try_from(place).expect("no more than 10000 SLOs"))
    }

    pub(super) fn place(self) -> Option<usize> {
        (self != Answer::NEXT).then_some(usize::from(self.0))
    }
}

/// Eight bytes for a line of a map. The key stays where it stands, in the text of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    at: u32,
    length: u16,
    pub(super) answer: Answer,
}

impl Pattern {
    pub(super) fn new(at: usize, key: &[u8], answer: Answer) -> Pattern {
        let at = u32::try_from(at).expect("no file is longer than FILE_BYTES_MAX");
        let length = u16::try_from(key.len()).expect("no line is longer than LINE_BYTES_MAX");
        Pattern { at, length, answer }
    }

    /// The same line with a part of its key: `length` bytes, `skipped` bytes in.
    pub(super) fn part(self, skipped: usize, length: usize) -> Pattern {
        debug_assert!(skipped + length <= self.length());
        Pattern { at: self.at + skipped as u32, length: length as u16, ..self }
    }

    pub(super) fn key(self, text: &[u8]) -> &[u8] {
        &text[self.at()..][..self.length()]
    }

    pub(super) fn at(self) -> usize {
        self.at as usize
    }

    pub(super) fn length(self) -> usize {
        usize::from(self.length)
    }
}
