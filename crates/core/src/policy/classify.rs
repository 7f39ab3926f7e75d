//! A batch of requests, and the lookups that lead from requests to SLOs and keys.

use std::hint::black_box;

use arrayvec::ArrayVec;

use crate::base::{Amount, BATCH_MAX, Blocked, Key, KeyHasher, Request, SloId, Timestamp, Value};
use crate::policy::blocks::BlocksInForce;
use crate::policy::plan::AddressPlace;
use crate::policy::read::slo::{PATHS, SHARE_MAX};
use crate::policy::{
    Answer, COST_MAX, Case, Cases, Draft, EXTRA_MAX, LookupMap, PLACES_MAX, Pattern, Place, Policy, Slo,
    SloPlan, Values,
};

/// The maximum number of values in a batch: enough for eight requests with every field of a policy.
const VALUES_MAX: usize = 8 * PLACES_MAX;

const _: () = assert!(VALUES_MAX >= PLACES_MAX + EXTRA_MAX, "room for one request");

/// Requests to be decided together, with a value for every field that the policy uses.
///
/// ```text
/// values: │ request 0: one place for each field │ request 1 │ … │ the draft │
/// ```
/// A batch belongs to one policy, so no decision mixes two policies.
///
/// ```
/// use slowlane_core::{base::{Request, Value}, policy::{Batch, Policy}};
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
    /// The requests whose answers can be held, one bit for each.
    may_hold: u32,
}

impl<'p: 'a, 'a> Batch<'p, 'a> {
    /// An empty batch for the requests of one policy.
    #[inline]
    pub fn of(policy: &'p Policy) -> Batch<'p, 'a> {
        Batch { policy, width: Batch::width_of(policy), values: ArrayVec::new(), len: 0, may_hold: 0 }
    }

    /// The number of values in each request: one for each field. There is at least one field, the cost.
    fn width_of(policy: &Policy) -> usize {
        policy.fields.count() + policy.fields.extra().count()
    }

    pub fn policy(&self) -> &'p Policy {
        self.policy
    }

    /// The number of values in each request. A block by a field that the policy does not use increases this number.
    pub fn width(&self) -> usize {
        self.width
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
        self.width = Batch::width_of(self.policy);
        self.values.clear();
        (self.len, self.may_hold) = (0, 0);
    }

    /// Begins a request that is filled in, field by field. [`keep_draft`](Batch::keep_draft) adds this draft
    /// to the batch; another draft discards it. The batch must not be full.
    #[inline]
    pub fn draft(&mut self) -> Draft<'p, '_, 'a> {
        let (begin, width) = (self.len * self.width, self.width);
        self.values.truncate(begin);
        for _ in 0..width {
            self.values.push(None);
        }
        Draft::new(&self.policy.fields, &mut self.values[begin..])
    }

    /// Adds the draft to the batch, after filling in its derived fields, whose values may borrow text from the policy.
    #[inline]
    pub fn keep_draft(&mut self) {
        debug_assert_eq!(self.values.len(), (self.len + 1) * self.width, "a draft was begun");
        let policy = self.policy;
        policy.fields.derive(&mut self.values[self.len * self.width..]);
        self.len += 1;
    }

    /// Notes that the proxy lets the agent hold the answer to the batch's last request until a moment that may move.
    pub fn may_hold_last(&mut self) {
        self.may_hold |= 1 << (self.len - 1);
    }

    /// Adds a request. The batch must not be full.
    #[inline]
    pub fn push(&mut self, request: &Request<'a>) {
        let mut draft = self.draft();
        request.fields().for_each(|field| draft.field(field.name, field.value));
        self.keep_draft();
    }

    /// A request's fields that the policy uses, with their values. `number` is the request's index in the batch.
    pub fn fields(&self, number: usize) -> impl Iterator<Item = (&[u8], Value<'_>)> {
        self.policy.fields.named(self.values(number))
    }

    /// Whether slowlane derives a field and therefore ignores any value that a request carries under the field's name.
    pub fn is_derived(&self, name: &[u8]) -> bool {
        self.policy.fields.is_derived(name)
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

/// What the lookups answered for each request of a batch, and the operators' blocks.
pub struct LookedUp {
    answers: [Answer; BATCH_MAX],
    blocks: Option<BlocksInForce>,
}

impl LookedUp {
    #[inline]
    fn blocked(&self, policy: &Policy, values: Values<'_, '_>) -> Option<Blocked> {
        self.blocks.as_ref()?.find(policy.key_secret, values)
    }
}

impl<'p> Batch<'p, '_> {
    /// Looks up all requests.
    ///
    /// Each map is consulted for all requests in turn. If a map is large, the memory that the requests need is read
    /// first, so that the processor fetches it in parallel. A request that an operator has blocked at `now` skips the
    /// maps that are searched, because the request is refused whatever its SLO, and must cost little.
    #[inline]
    pub fn look_up(&self, now: Timestamp) -> LookedUp {
        let blocks = self.policy().blocks.in_force();
        let blocked = self.blocked_at(blocks.as_ref(), now);
        LookedUp { answers: self.answers(blocked, &mut |_, _| {}), blocks }
    }

    /// The case of a request that falls under a single SLO and no operator's block, as most do, and how many
    /// requests it counts as. None for any other request.
    #[inline(always)]
    pub fn only_case(&self, row: usize, looked_up: &LookedUp) -> Option<(Case<'p>, u32)> {
        let (values, answer) = (self.values(row), looked_up.answers[row % BATCH_MAX]);
        if looked_up.blocked(self.policy, values).is_some() {
            return None;
        }
        let cost = self.policy.cost(values);
        if answer == Answer::REFUSED {
            return Some((self.policy.refusal(cost), cost));
        }
        let place = answer.place().unwrap_or(0);
        self.policy.plans[place].is_single.then(|| (self.policy.case(place, values, cost), cost))
    }

    /// The client and the page of a request to an application that this SLO protects.
    pub fn asker(&self, row: usize, slo: SloId) -> Asker {
        let (policy, values) = (self.policy, self.values(row));
        let refs = &policy.refs[policy.place(slo).expect("an SLO of this policy")];
        let mut hasher = KeyHasher::new(policy.key_secret, 0, 0);
        hasher.part(b"page");
        for &place in &refs.page {
            match &values.0[place] {
                Some(Value::Text(path)) if PATHS.contains(&policy.fields.name(place)) => {
                    hasher.part(first_segment(path));
                }
                _ => policy.fields.hash(&mut hasher, policy.fields.masks(), place, values),
            }
        }
        let path = refs.share.iter().map(|&share| policy.member(share, values)).collect();
        Asker { page: hasher.finish(), path }
    }

    /// All SLOs of a request.
    pub fn cases(&self, row: usize, looked_up: &LookedUp) -> Cases<'p> {
        self.cases_traced(row, looked_up, &mut |_, _| {})
    }

    fn cases_traced(
        &self,
        row: usize,
        looked_up: &LookedUp,
        trace: &mut impl FnMut(&'p LookupMap, Option<Pattern>),
    ) -> Cases<'p> {
        let (policy, values) = (self.policy, self.values(row));
        let (cost, blocked) = (policy.cost(values), looked_up.blocked(policy, values));
        let list = policy.listed(looked_up.answers[row], values, cost, trace);
        let list = list.unwrap_or_else(|_| ArrayVec::from_iter([policy.refusal(cost)]));
        Cases { list, cost, blocked, may_hold: self.may_hold(row) }
    }

    /// The SLOs of a batch's only request. Calls `trace` with each map, and with the line found in it, in the
    /// order in which the maps are consulted.
    pub(super) fn only_cases(&self, trace: &mut impl FnMut(&'p LookupMap, Option<Pattern>)) -> Cases<'p> {
        let blocks = self.policy().blocks.in_force();
        let looked_up = LookedUp { answers: self.answers(0, trace), blocks };
        self.cases_traced(0, &looked_up, trace)
    }

    /// Whether the answer to a request can be held until a moment that may move.
    #[inline]
    pub fn may_hold(&self, row: usize) -> bool {
        self.may_hold & 1 << row != 0
    }

    /// The requests that an operator has blocked, one bit for each.
    #[inline]
    fn blocked_at(&self, blocks: Option<&BlocksInForce>, now: Timestamp) -> u32 {
        const { assert!(BATCH_MAX <= u32::BITS as usize) };
        let Some(blocks) = blocks else { return 0 };
        let is_blocked =
            |values| blocks.find(self.policy.key_secret, values).is_some_and(|blocked| blocked.holds_at(now));
        self.rows().enumerate().fold(0, |rows, (row, values)| rows | u32::from(is_blocked(values)) << row)
    }

    /// The answers of the lookups for all requests. Requests in `blocked` skip the maps that are searched.
    #[inline]
    fn answers(
        &self,
        blocked: u32,
        trace: &mut impl FnMut(&'p LookupMap, Option<Pattern>),
    ) -> [Answer; BATCH_MAX] {
        let policy = self.policy();
        let mut answers = [Answer::NEXT; BATCH_MAX];
        for &field in &policy.refusable {
            for (values, answer) in self.rows().zip(&mut answers) {
                if values.is_no_host(field) {
                    *answer = Answer::REFUSED;
                }
            }
        }
        for map in &policy.lookups[..policy.chosen] {
            if self.len > 1 && map.is_large() {
                // Without `black_box`, the compiler would drop the reads, because their results are not used.
                black_box(self.rows().map(|values| map.look(values)).fold(0, u32::wrapping_add));
            }
            let skipped = if map.is_search() { blocked } else { 0 };
            for (row, (values, answer)) in self.rows().zip(&mut answers).enumerate() {
                if *answer == Answer::NEXT && skipped & 1 << row == 0 {
                    *answer = ask(map, values, trace);
                }
            }
        }
        answers
    }
}

/// The answer of a map for these values; `NEXT` if no line matches.
#[inline]
pub(super) fn ask<'p>(
    map: &'p LookupMap,
    values: Values<'_, '_>,
    trace: &mut impl FnMut(&'p LookupMap, Option<Pattern>),
) -> Answer {
    let found = map.find(values);
    trace(map, found);
    found.map_or(Answer::NEXT, |pattern| pattern.answer)
}

impl Policy {
    /// The case of a request that cannot be looked up. Such a request is denied by an SLO with a rate of 0.
    #[cold]
    pub(super) fn refusal(&self, cost: u32) -> Case<'_> {
        let (slo, plan) = (&self.refusing, &self.refusing_plan);
        Case { slo, plan, key: self.refusal_key(), sharer: 0, assured: None, cost, is_added: false }
    }

    fn refusal_key(&self) -> Key {
        KeyHasher::new(self.key_secret, 0, 0).part(b"refused").finish()
    }

    /// The key of the row in which a key's assured rate is measured.
    pub fn assured_key(&self, key: Key) -> Key {
        let bits = key.bits().to_le_bytes();
        KeyHasher::new(self.key_secret, 0, 0).part(b"assured").part(&bits).finish()
    }

    /// Whether a key is the one shared by all requests that cannot be looked up.
    pub fn is_refusal(&self, key: Key) -> bool {
        key == self.refusal_key()
    }

    #[inline(always)]
    pub(super) fn case(&self, place: usize, values: Values<'_, '_>, cost: u32) -> Case<'_> {
        let (slo, plan) = (&self.slos[place], &self.plans[place]);
        let key = self.key(place, values);
        let bare = Case { slo, plan, key, sharer: 0, assured: None, cost, is_added: false };
        if plan.is_bare { bare } else { self.completed(bare, place, values) }
    }

    /// Adds to a case the client, if clients share the SLO's bucket, and the reservation, if the SLO counts work.
    #[inline(never)]
    fn completed<'p>(&'p self, bare: Case<'p>, place: usize, values: Values<'_, '_>) -> Case<'p> {
        let (slo, refs) = (bare.slo, &self.refs[place]);
        let cost = if slo.ends.is_work() { self.reservation(slo, values) } else { bare.cost };
        let sharer = match refs.page.is_empty() {
            true => self.leaf(&refs.share, values),
            false => 0,
        };
        Case { sharer, cost, ..bare }
    }

    /// The client of a request, as a path through a tree of clients. Each level of the path has the same
    /// number of bits.
    fn leaf(&self, share: &[Place], values: Values<'_, '_>) -> u64 {
        let branch = |&share| self.member(share, values).bits();
        match share {
            [] => 0,
            [share] => branch(share),
            levels => {
                let width = u64::BITS / levels.len() as u32;
                levels.iter().map(branch).fold(0, |path, hash| path << width | hash >> (u64::BITS - width))
            }
        }
    }

    /// The hash of one of the fields that distinguish clients.
    fn member(&self, share: Place, values: Values<'_, '_>) -> Key {
        let mut hasher = KeyHasher::new(self.key_secret, 0, 0);
        match &values.0[share] {
            // All networks in a field have the same prefix length, so the address suffices. Hashing the text
            // would take ten times as long.
            Some(Value::Network(network)) => hasher.address(network.address()),
            _ => {
                self.fields.hash(&mut hasher, self.fields.masks(), share, values);
                &mut hasher
            }
        };
        hasher.finish()
    }

    /// The grains that a request reserves before the estimate of its own key is known.
    #[cold]
    fn reservation(&self, slo: &Slo, values: Values<'_, '_>) -> u32 {
        let Some(work) = &slo.work else { return 1 };
        let place = self.fields.announced.filter(|_| work.is_announced());
        let amount = place.and_then(|place| {
            let amount = announcement(values.0[place]?);
            if amount.is_none() {
                self.fields.watch.suspect(place);
            }
            amount
        });
        work.reservation(amount, None)
    }

    /// The number of requests that this request counts as. A cost that is missing or is not a number counts as 1. Only
    /// a cost of 0 is free, so no unusable value, whether from a proxy or a client, makes a request free.
    #[inline]
    pub(super) fn cost(&self, values: Values<'_, '_>) -> u32 {
        let Some(value) = &values.0[self.fields.cost] else { return 1 };
        read_cost(value).unwrap_or_else(|| {
            self.fields.watch.suspect(self.fields.cost);
            1
        })
    }

    #[inline]
    fn key(&self, place: usize, values: Values<'_, '_>) -> Key {
        let SloPlan { id, state_tag, address, .. } = self.plans[place];
        if let Some(AddressPlace { place, digit, masks }) = address
            && let Some(address) = values.address(usize::from(place))
        {
            return KeyHasher::key_of_address(self.key_secret, digit, state_tag, masks.customer(address));
        }
        self.key_of_parts(id, state_tag, values)
    }

    #[inline(never)]
    fn key_of_parts(&self, id: SloId, state_tag: u32, values: Values<'_, '_>) -> Key {
        let mut hasher = KeyHasher::new(self.key_secret, id.kind(), state_tag);
        for &place in self.key_places(id) {
            self.fields.hash(&mut hasher, self.fields.masks_of(id.kind()), place, values);
        }
        hasher.finish()
    }
}

/// A client that requests a page of a protected application, and the page.
#[derive(Clone, Debug)]
pub struct Asker {
    pub page: Key,
    /// The groups that the client belongs to, outermost first, and then the client itself.
    pub(crate) path: ArrayVec<Key, SHARE_MAX>,
}

/// The first segment of a path: `/shop` of `/shop/shoes?size=42`.
pub fn first_segment(path: &[u8]) -> &[u8] {
    let length = path.iter().skip(1).take_while(|byte| !matches!(byte, b'/' | b'?')).count();
    &path[..path.len().min(length + 1)]
}

/// The work that a request announces, if the value is an amount.
pub(super) fn announcement(value: Value<'_>) -> Option<Amount> {
    match value {
        Value::Number(number) => Amount::try_from(number).ok(),
        Value::Text(text) => Amount::read(text).ok(),
        _ => None,
    }
}

/// A cost: a non-negative whole number, or its decimal digits as text. A cost above [`COST_MAX`] counts as
/// [`COST_MAX`]. None for anything else, such as a negative number or a fraction.
pub(super) fn read_cost(value: &Value<'_>) -> Option<u32> {
    match *value {
        Value::Number(number @ 0..) => Some(number.min(COST_MAX.into()) as u32),
        Value::Text(text) if !text.is_empty() && text.iter().all(u8::is_ascii_digit) => {
            let digit = |sum: u32, byte: &u8| sum.saturating_mul(10).saturating_add(u32::from(byte - b'0'));
            Some(text.iter().fold(0, digit).min(COST_MAX))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::policy::Layout;

    #[test]
    fn only_an_explicit_zero_is_free() {
        for free in [Value::Number(0), Value::Text(b"0"), Value::Text(b"000")] {
            assert_eq!(read_cost(&free), Some(0), "{free:?}");
        }
        let address = Value::address("0.0.0.0".parse().unwrap());
        let odd = [Value::Number(-1), Value::Number(i64::MIN), address];
        let texts = ["", "-1", "-0", "+0", "0x0", "0.5", " 0", "0 ", "0\0", "false", "no", "\u{660}"];
        for odd in odd.into_iter().chain(texts.map(|text| Value::Text(text.as_bytes()))) {
            assert_eq!(read_cost(&odd), None, "{odd:?}");
            let mut request = Request::new();
            request.push(b"cost", odd);
            assert_eq!(Policy::builtin().cases(&request).cost, 1, "{odd:?}");
        }
        assert_eq!(Policy::builtin().cases(&Request::new()).cost, 1);
    }

    #[test]
    fn a_large_cost_is_cut() {
        for number in [i64::from(COST_MAX), i64::from(COST_MAX) + 1, u32::MAX.into(), 1 << 32, i64::MAX] {
            assert_eq!(read_cost(&Value::Number(number)), Some(COST_MAX));
            assert_eq!(read_cost(&Value::Text(number.to_string().as_bytes())), Some(COST_MAX));
        }
        assert_eq!(read_cost(&Value::Text(&[b'9'; 5_000])), Some(COST_MAX));
        assert_eq!(read_cost(&Value::Text(b"0000000000000000005")), Some(5));
    }

    /// A row of 33 values: 32 fields and the cost. Eight rows of 34 are all the values of a batch.
    #[test]
    fn a_batch_is_full_with_32_requests_or_with_272_values() {
        let requests = |more: usize| {
            let names = (0..more).map(|number| format!("field{number}")).collect();
            let layout = Layout::default().with_type(9, names).unwrap();
            let policy = Policy::parse(Path::new(""), &layout, |path| match path.to_str() {
                Some("slo.map") => Ok(b"0 burst=1 rate=1/s".to_vec()),
                _ => Err(io::ErrorKind::NotFound.into()),
            });
            let policy = policy.unwrap();
            let mut batch = Batch::of(&policy);
            while !batch.is_full() {
                batch.push(&Request::new());
            }
            batch.len()
        };
        // With source, website and owner they are 32, 16 and 4 fields.
        assert_eq!([requests(29), requests(13), requests(1)], [8, 272 / 17, 32]);
    }
}
