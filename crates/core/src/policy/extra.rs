//! Fields that only blocks use.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::policy::Field;

/// The maximum number of fields that only blocks use. Each takes a place in every request of a batch.
pub const EXTRA_MAX: usize = 8;

/// Fields that were added to a policy in force, in order of addition. None is removed: the next policy starts without
/// any.
#[derive(Debug, Default)]
pub(super) struct ExtraFields {
    fields: [OnceLock<Field>; EXTRA_MAX],
    count: AtomicUsize,
}

impl ExtraFields {
    /// The number of fields. A batch that begins now has a place for each.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn list(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().map_while(OnceLock::get)
    }

    /// Adds a field with a new name. False if there are too many.
    pub(super) fn add(&self, field: Field) -> bool {
        let mut field = Some(field);
        for place in &self.fields {
            place.get_or_init(|| field.take().expect("it is taken once, and then the loop ends"));
            if field.is_none() {
                self.count.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }
}
