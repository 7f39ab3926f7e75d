//! A key of a map with its answer, as HAProxy calls it: a pattern.

use crate::policy::Answer;

/// A line of a map in eight bytes. The key itself stays in the text of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Pattern {
    at: u32,
    length: u16,
    pub(in crate::policy) answer: Answer,
}

impl Pattern {
    /// Replaces a line for a value that cannot be looked up.
    pub(in crate::policy) const REFUSED: Pattern = Pattern { at: 0, length: 0, answer: Answer::REFUSED };

    pub(in crate::policy) fn new(at: usize, key: &[u8], answer: Answer) -> Pattern {
        let at = u32::try_from(at).expect("no file is longer than FILE_BYTES_MAX");
        let length = u16::try_from(key.len()).expect("no line is longer than LINE_BYTES_MAX");
        Pattern { at, length, answer }
    }

    /// The same line with a part of its key: `length` bytes after the first `skipped`.
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
