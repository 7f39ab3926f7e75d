//! Why a request falls under its SLOs: the lines that answered, and what the keys are made of.

use std::path::Path;

use crate::base::request::Request;
use crate::base::slo_id::SloId;
use crate::policy::fields::{Place, Values};
use crate::policy::lookup::LookupMap;
use crate::policy::pattern::Pattern;
use crate::policy::{Case, Cases, Policy};

/// All SLOs of a request, its own first.
#[derive(Clone, Debug)]
pub struct Explanation<'p> {
    pub of: Vec<Explained<'p>>,
    pub cases: Cases<'p>,
}

/// One SLO of a request.
#[derive(Clone, Debug)]
pub struct Explained<'p> {
    pub case: Case<'p>,
    /// As it stands in `slo.map`, and where.
    pub written: &'p [u8],
    pub line: usize,
    /// None where no map answered.
    pub origin: Option<Origin<'p>>,
    /// The SLO that names it with `also`.
    pub named_by: Option<SloId>,
    /// The maps that were asked before, in vain.
    pub asked: Vec<Asked<'p>>,
    /// What the key is made of.
    pub parts: Vec<Part<'p>>,
    /// By what its bucket is shared.
    pub share: Option<Part<'p>>,
}

/// The line of a map that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'p> {
    /// The fields that were looked up, like `source+website`.
    pub lookup: &'p str,
    pub path: &'p Path,
    pub line: usize,
}

/// A map without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'p> {
    pub lookup: &'p str,
    /// Of the line that says -1: ask the next.
    pub line: Option<usize>,
}

/// A field, and what of its value is part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'p> {
    pub field: &'p str,
    /// As it came from the client; an address as its customer's network. None: it is missing.
    pub value: Option<Vec<u8>>,
}

impl Policy {
    /// What [`cases`](Policy::cases) says, and why. The lines of a map are counted for it: not for every request.
    pub fn explain(&self, request: &Request<'_>) -> Explanation<'_> {
        let values = self.fields.values(request);
        let values = Values(&values);
        let cases = self.cases(request);
        let mut of: Vec<Explained<'_>> = Vec::new();
        for case in &cases.list {
            let (asked, origin) = match of.last() {
                None => self.first_answer(values),
                Some(before) => (Vec::new(), self.also(before.case.slo.id, values)),
            };
            let named_by = of.last().map(|before| before.case.slo.id);
            of.push(self.explained(*case, values, asked, origin, named_by));
        }
        Explanation { of, cases }
    }

    /// The path of `slo.map`.
    pub fn slo_map(&self) -> &Path {
        &self.slo_map.path
    }

    fn explained<'p>(
        &'p self,
        case: Case<'p>,
        values: Values<'_, '_>,
        asked: Vec<Asked<'p>>,
        origin: Option<Origin<'p>>,
        named_by: Option<SloId>,
    ) -> Explained<'p> {
        let ties = &self.ties[self.place(case.slo.id)];
        let parts = self.types[usize::from(case.slo.id.kind())].iter().map(|&place| self.part(place, values));
        let line = self.slo_map.lines().find(|line| line.number == ties.line);
        Explained {
            case,
            written: line.map_or(b"", |line| line.value),
            line: ties.line,
            origin,
            named_by,
            asked,
            parts: parts.collect(),
            share: ties.share.map(|place| self.part(place, values)),
        }
    }

    fn first_answer(&self, values: Values<'_, '_>) -> (Vec<Asked<'_>>, Option<Origin<'_>>) {
        let mut asked = Vec::new();
        for map in &self.lookups {
            let found = map.find(values);
            match found.filter(|pattern| pattern.answer.place().is_some()) {
                Some(pattern) => return (asked, Some(origin(map, pattern))),
                None => {
                    let line = found.map(|pattern| map.line_number(pattern));
                    asked.push(Asked { lookup: &map.name, line });
                }
            }
        }
        (asked, None)
    }

    fn also(&self, slo: SloId, values: Values<'_, '_>) -> Option<Origin<'_>> {
        let map = &self.lookups[self.ties[self.place(slo)].also?];
        Some(origin(map, map.find(values)?))
    }

    fn part(&self, place: Place, values: Values<'_, '_>) -> Part<'_> {
        Part { field: self.fields.name(place), value: self.fields.customer_text(place, values) }
    }

    fn place(&self, id: SloId) -> usize {
        self.slos.binary_search_by_key(&id, |slo| slo.id).expect("an SLO of this policy")
    }
}

fn origin(map: &LookupMap, pattern: Pattern) -> Origin<'_> {
    Origin { lookup: &map.name, path: &map.path, line: map.line_number(pattern) }
}
