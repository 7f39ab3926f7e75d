//! The annexes: values of `fair` and `sliding-log` in the side store.

use std::time::Duration;

use crate::base::key::Key;
use crate::base::time::Timestamp;
use crate::law::{Annex, Law};
use crate::table::{Keep, Side};

/// The side store, as the laws use it. A law that finds no room here falls back to a simpler one.
#[derive(Debug)]
pub struct Annexes(Side<Annex>);

impl Annexes {
    pub fn new(bytes_max: usize) -> Annexes {
        Annexes(Side::new(bytes_max))
    }

    /// Gives `judge` the annex of `key`. It gets none if the law has none, or if a request of this cost finds
    /// no room.
    #[inline]
    pub fn with<R>(
        &self,
        key: Key,
        law: &Law,
        cost: u32,
        now: Timestamp,
        judge: impl FnOnce(Option<&mut Annex>) -> R,
    ) -> R {
        match law.has_annex() {
            false => judge(None),
            true => self.0.with(key, &Writing { law, cost }, now, judge),
        }
    }

    /// Gives `write` the annex of `key`, if it exists.
    pub fn with_known<R>(&self, key: Key, law: &Law, write: impl FnOnce(Option<&mut Annex>) -> R) -> R {
        match law.has_annex() {
            false => write(None),
            true => self.0.with_known(key, &Writing { law, cost: 0 }, write),
        }
    }

    /// A copy of the annex that [`with`](Annexes::with) would give: usually some kilobytes, 512 KiB at most.
    pub fn copy(&self, key: Key, law: &Law, cost: u32, now: Timestamp) -> Option<Annex> {
        law.has_annex().then(|| self.0.copy(key, &Writing { law, cost }, now))?
    }

    pub fn remove(&self, key: Key) {
        self.0.remove(key);
    }

    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

/// A law with an annex, and the cost of the request about to be written into it.
struct Writing<'l> {
    law: &'l Law,
    cost: u32,
}

impl Keep<Annex> for Writing<'_> {
    fn fresh(&self) -> Annex {
        self.law.annex().expect("only laws with an annex write one")
    }

    fn owns(&self, annex: &Annex) -> bool {
        self.law.owns(annex)
    }

    fn bytes(&self, annex: &Annex) -> usize {
        annex.bytes()
    }

    fn bytes_after(&self, annex: &Annex) -> usize {
        self.law.annex_bytes_after(annex, self.cost)
    }

    fn lifetime(&self) -> Duration {
        self.law.memory()
    }
}
