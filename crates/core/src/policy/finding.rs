//! Errors and warnings of a policy, with their places.

use std::error::Error;
use std::fmt::{self, Debug, Display};
use std::path::{Path, PathBuf};

/// An error or a warning, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<K> {
    pub path: PathBuf,
    /// The line number, counted from 1. None if the finding concerns the whole file.
    pub line: Option<usize>,
    pub kind: K,
}

impl<K: Display> Display for Finding<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.line {
            Some(line) => write!(f, "{path}:{line}: {}", self.kind),
            None => write!(f, "{path}: {}", self.kind),
        }
    }
}

/// All errors or all warnings of a policy, one per line. Findings beyond `MAX` are only counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings<K, const MAX: usize> {
    listed: Vec<Finding<K>>,
    count: usize,
}

impl<K, const MAX: usize> Findings<K, MAX> {
    /// The first `MAX` findings.
    pub fn listed(&self) -> &[Finding<K>] {
        &self.listed
    }

    /// The number of all findings, listed or not.
    pub fn count(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn add(&mut self, path: &Path, line: Option<usize>, kind: K) {
        self.add_with(path, || (line, kind));
    }

    /// Adds a finding. `find` runs only if the finding is kept, because finding a line number requires
    /// reading all lines before it.
    pub(super) fn add_with(&mut self, path: &Path, find: impl FnOnce() -> (Option<usize>, K)) {
        self.count += 1;
        if self.listed.len() < MAX {
            let (line, kind) = find();
            self.listed.push(Finding { path: path.to_owned(), line, kind });
        }
    }
}

impl<K, const MAX: usize> Default for Findings<K, MAX> {
    fn default() -> Findings<K, MAX> {
        Findings { listed: Vec::new(), count: 0 }
    }
}

impl<K: Display, const MAX: usize> Display for Findings<K, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.listed.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{finding}")?;
        }
        match self.count - self.listed.len() {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// A list that is returned as an error is never empty.
impl<K: Debug + Display, const MAX: usize> Error for Findings<K, MAX> {}
