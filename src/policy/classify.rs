//! The walk through the lookups: from the requests of a batch to their SLOs and keys.

use arrayvec::ArrayVec;

use crate::base::key::{Key, KeyHasher};
use crate::base::request::{Request, Value};
use crate::base::verdict::JUDGED_MAX;
use crate::policy::batch::{BATCH_MAX, Batch};
use crate::policy::bounds::COST_MAX;
use crate::policy::fields::Values;
use crate::policy::generation::Policy;
use crate::policy::index::lookup::LookupMap;
use crate::policy::index::pattern::Pattern;
use crate::policy::read::answer::Answer;
use crate::policy::read::slo::Slo;

/// One SLO of a request.
#[derive(Clone, Copy, Debug)]
pub struct Case<'p> {
    pub slo: &'p Slo,
    /// The key that counts the request.
    pub key: Key,
    /// A hash of the field that divides the SLO's bucket; 0 without such a field.
    pub sharer: u64,
}

/// All SLOs of a request, its own first.
#[derive(Clone, Debug)]
pub struct Cases<'p> {
    pub list: ArrayVec<Case<'p>, JUDGED_MAX>,
    /// How many requests this one counts as.
    pub cost: u32,
}

impl<'p> Batch<'p, '_> {
    /// Calls `each` with the SLOs of every request, in the order of the batch.
    ///
    /// Each map is asked for all requests in turn, so memory fetches their lines in parallel.
    pub fn classify(&self, each: impl FnMut(Cases<'p>)) {
        self.classify_traced(|_, _| {}, each);
    }

    /// Does the same, and gives `trace` every map asked and the line found. The trace of a batch of one
    /// follows the order of its lookups.
    pub(super) fn classify_traced(
        &self,
        mut trace: impl FnMut(&'p LookupMap, Option<Pattern>),
        mut each: impl FnMut(Cases<'p>),
    ) {
        let policy = self.policy();
        let mut answers = [Answer::NEXT; BATCH_MAX];
        for map in &policy.lookups {
            for (values, answer) in self.rows().zip(&mut answers) {
                if *answer == Answer::NEXT {
                    *answer = ask(map, values, &mut trace);
                }
            }
        }
        for (values, answer) in self.rows().zip(answers) {
            each(policy.cases_from(answer.place().unwrap_or(0), values, &mut trace));
        }
    }
}

/// The answer of a map for these values; `NEXT` where no line matches.
#[inline]
fn ask<'p>(
    map: &'p LookupMap,
    values: Values<'_, '_>,
    trace: &mut impl FnMut(&'p LookupMap, Option<Pattern>),
) -> Answer {
    let found = map.find(values);
    trace(map, found);
    found.map_or(Answer::NEXT, |pattern| pattern.answer)
}

impl Policy {
    /// All SLOs of one request: its own, then the SLO that its `also` leads to, and so on. No type comes
    /// twice, because two SLOs of one type would share an entry.
    ///
    /// ```
    /// # use std::{io, path::Path};
    /// # use slowlane::{policy::{Layout, Policy}, base::request::{Request, Value}};
    /// let read = |path: &Path| match path.to_str() {
    ///     Some("slo.map") => Ok(b"0 burst=1 rate=1/s\n1001 burst=9 rate=9/s\n2001 burst=1 rate=1/s also=owner".to_vec()),
    ///     Some("owner.map") => Ok(b"acme 1001".to_vec()),
    ///     Some("website.map") => Ok(b"shop.example 2001".to_vec()),
    ///     _ => Err(io::ErrorKind::NotFound.into()),
    /// };
    /// # let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    /// # let mut request = Request::new();
    /// request.push(b"owner", Value::Text(b"acme"));
    /// request.push(b"website", Value::Text(b"shop.example"));
    /// request.push(b"cost", Value::Number(5));
    /// let cases = policy.cases(&request);
    /// let slos: Vec<u16> = cases.list.iter().map(|case| case.slo.id.number()).collect();
    /// assert_eq!((slos, cases.cost), (vec![2001, 1001], 5));
    /// ```
    pub fn cases(&self, request: &Request<'_>) -> Cases<'_> {
        let mut batch = Batch::of(self);
        batch.push(request);
        let mut only = None;
        batch.classify(|cases| only = Some(cases));
        only.expect("a batch of one has one answer")
    }

    /// The cases of a request whose own SLO is the one at `place`.
    #[inline]
    fn cases_from<'p>(
        &'p self,
        mut place: usize,
        values: Values<'_, '_>,
        trace: &mut impl FnMut(&'p LookupMap, Option<Pattern>),
    ) -> Cases<'p> {
        let mut list: ArrayVec<Case<'_>, JUDGED_MAX> = ArrayVec::new();
        list.push(self.case(place, values));
        while let Some(also) = self.ties[place].also.filter(|_| !list.is_full()) {
            let kind = |place: usize| self.slos[place].id.kind();
            match ask(&self.lookups[also], values, trace).place() {
                Some(next) if list.iter().all(|case| case.slo.id.kind() != kind(next)) => place = next,
                _ => break,
            }
            list.push(self.case(place, values));
        }
        Cases { list, cost: cost(self.fields.cost(values)) }
    }

    #[inline]
    fn case(&self, place: usize, values: Values<'_, '_>) -> Case<'_> {
        let slo = &self.slos[place];
        let sharer = self.ties[place].share.map_or(0, |share| {
            let mut hasher = KeyHasher::new(self.key_secret, 0);
            self.fields.hash(&mut hasher, share, values);
            hasher.finish().bits()
        });
        Case { slo, key: self.key(slo, values), sharer }
    }

    #[inline]
    fn key(&self, slo: &Slo, values: Values<'_, '_>) -> Key {
        let mut hasher = KeyHasher::new(self.key_secret, slo.id.kind());
        for &place in self.key_places(slo.id) {
            self.fields.hash(&mut hasher, place, values);
        }
        hasher.finish()
    }
}

/// A missing or non-numeric cost counts as 1.
fn cost(value: Option<Value<'_>>) -> u32 {
    let number = match value {
        None => return 1,
        Some(Value::Number(number)) => u32::try_from(number.max(0)).unwrap_or(u32::MAX),
        Some(Value::Text(text)) => match text.iter().all(u8::is_ascii_digit) {
            true => std::str::from_utf8(text).ok().and_then(|digits| digits.parse().ok()).unwrap_or(1),
            false => 1,
        },
        Some(Value::Address(_)) => 1,
    };
    number.min(COST_MAX)
}
