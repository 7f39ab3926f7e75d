//! A batch: the requests to be decided together, seen by one policy.

use arrayvec::ArrayVec;

use crate::base::request::{Request, Value};
use crate::policy::extra::EXTRA_MAX;
use crate::policy::fields::{Draft, PLACES_MAX, Values};
use crate::policy::generation::Policy;

/// The most requests of a batch. A larger batch would hold back its first answer for longer.
pub const BATCH_MAX: usize = 32;

/// The most values of a batch: enough for eight requests with every field of a policy.
const VALUES_MAX: usize = 8 * PLACES_MAX;

const _: () = assert!(VALUES_MAX >= PLACES_MAX + EXTRA_MAX, "room for one request");

/// Requests to be decided together, with a value for every field that the policy uses.
///
/// ```text
/// values: │ request 0: one place for each field │ request 1 │ … │ the draft │
/// ```
/// A batch belongs to one policy, so no decision mixes two generations.
///
/// ```
/// use slowlane_core::{base::request::{Request, Value}, policy::{Batch, Policy}};
/// let policy = Policy::builtin();
/// let mut batch = Batch::of(&policy);
/// batch.draft().field(b"website", Value::Text(b"shop.example"));
/// batch.keep_draft();
/// batch.draft(); // never kept: it is no part of the batch
/// batch.push(&Request::new());
/// assert_eq!(batch.len(), 2);
/// assert_eq!(batch.fields(0).next(), Some((&b"website"[..], Value::Text(b"shop.example"))));
/// ```
#[derive(Clone, Debug)]
pub struct Batch<'p, 'a> {
    policy: &'p Policy,
    width: usize,
    values: ArrayVec<Option<Value<'a>>, VALUES_MAX>,
    len: usize,
}

impl<'p, 'a> Batch<'p, 'a> {
    /// An empty batch for the requests of one policy.
    #[inline]
    pub fn of(policy: &'p Policy) -> Batch<'p, 'a> {
        Batch { policy, width: Batch::width(policy), values: ArrayVec::new(), len: 0 }
    }

    /// Values per request: one for each field. There is at least one, the cost.
    fn width(policy: &Policy) -> usize {
        policy.fields.count() + policy.fields.extra().count()
    }

    pub fn policy(&self) -> &'p Policy {
        self.policy
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the batch has no room for another request.
    pub fn is_full(&self) -> bool {
        self.len == BATCH_MAX || (self.len + 1) * self.width > VALUES_MAX
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.width = Batch::width(self.policy);
        self.values.clear();
        self.len = 0;
    }

    /// Begins a request, to be filled field by field. [`keep_draft`](Batch::keep_draft) adds it to the batch;
    /// another draft discards it. The batch must not be full.
    #[inline]
    pub fn draft(&mut self) -> Draft<'p, '_, 'a> {
        let (begin, width) = (self.len * self.width, self.width);
        self.values.truncate(begin);
        for _ in 0..width {
            self.values.push(None);
        }
        Draft::new(&self.policy.fields, &mut self.values[begin..])
    }

    /// Adds the draft to the batch.
    pub fn keep_draft(&mut self) {
        debug_assert_eq!(self.values.len(), (self.len + 1) * self.width, "a draft was begun");
        self.len += 1;
    }

    /// Adds a request. The batch must not be full.
    #[inline]
    pub fn push(&mut self, request: &Request<'a>) {
        let mut draft = self.draft();
        request.fields().for_each(|field| draft.field(field.name, field.value));
        self.keep_draft();
    }

    /// The fields of a request that the policy knows, with their values. `number` counts from 0.
    pub fn fields(&self, number: usize) -> impl Iterator<Item = (&[u8], Value<'_>)> {
        self.policy.fields.named(self.values(number))
    }

    /// The values of one request.
    pub(super) fn values(&self, number: usize) -> Values<'_, 'a> {
        debug_assert!(number < self.len);
        Values(&self.values[number * self.width..][..self.width])
    }

    /// The values of each request, in the order of the batch.
    pub(super) fn rows(&self) -> impl Iterator<Item = Values<'_, 'a>> {
        let width = self.width;
        (0..self.len).map(move |number| Values(&self.values[number * width..][..width]))
    }
}
