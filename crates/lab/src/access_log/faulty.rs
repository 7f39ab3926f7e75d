//! Counts of lines with a fault.

use crate::access_log::plan::Fault;

/// How many line numbers are kept for each fault.
pub const NUMBERS_MAX: usize = 5;

/// Kinds of fault that are counted apart: as many as items can be missing from a line. The rest count as the last.
const KINDS_MAX: usize = 64;

/// How many lines had a fault, and the numbers of the first few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faulty {
    pub count: u64,
    pub numbers: Vec<u64>,
}

/// The faults of a log, by kind.
#[derive(Debug, Default)]
pub(super) struct Faults {
    kinds: Vec<(Fault, Faulty)>,
}

impl Faults {
    /// Counts a fault of this line.
    pub(super) fn count(&mut self, fault: Fault, number: u64) {
        let place = match self.kinds.iter().position(|(known, _)| *known == fault) {
            Some(place) => place,
            None if self.kinds.len() < KINDS_MAX => {
                self.kinds.push((fault, Faulty::default()));
                self.kinds.len() - 1
            }
            None => self.kinds.len() - 1,
        };
        let faulty = &mut self.kinds[place].1;
        faulty.count += 1;
        if faulty.numbers.len() < NUMBERS_MAX {
            faulty.numbers.push(number);
        }
    }

    pub(super) fn kinds(&self) -> &[(Fault, Faulty)] {
        &self.kinds
    }
}
