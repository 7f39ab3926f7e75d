//! The reasons for a request's SLOs: the lines that answered, and the parts of its keys.

use std::path::Path;

use crate::base::{Request, SloId, cut, shown};
use crate::policy::{Answer, Asker, Batch, Case, Cases, LookupMap, Masks, Pattern, Place, Policy, Values};

/// All SLOs of a request, its own first, with their reasons.
#[derive(Clone, Debug)]
pub struct Explanation<'p> {
    pub of: Vec<Explained<'p>>,
    pub cases: Cases<'p>,
    /// The client and the page of the request, if an SLO protects an application.
    pub asker: Option<Asker>,
}

/// One SLO of a request.
#[derive(Clone, Debug)]
pub struct Explained<'p> {
    pub case: Case<'p>,
    /// The text of the SLO in `slo.map`, and its line.
    pub written: &'p [u8],
    pub line: usize,
    /// None if no map answered.
    pub origin: Option<Origin<'p>>,
    /// The SLO whose `also` led here.
    pub named_by: Option<SloId>,
    /// The maps that were consulted before and had no answer.
    pub asked: Vec<Asked<'p>>,
    /// The parts of the key.
    pub parts: Vec<Part<'p>>,
    /// The field that divides the SLO's bucket.
    pub share: Vec<Part<'p>>,
}

/// The line of a map that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'p> {
    /// The fields of the lookup, like `source+website`.
    pub lookup: &'p str,
    pub path: &'p Path,
    pub line: usize,
}

/// A map without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'p> {
    pub lookup: &'p str,
    /// The line with -1: the next lookup decides.
    pub line: Option<usize>,
}

/// A field, and the part of its value that enters a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'p> {
    pub field: &'p str,
    /// The value as the client sent it; for an address, the network of its customer. None if it is missing.
    pub value: Option<Vec<u8>>,
}

impl Batch<'_, '_> {
    /// The outermost group of a request under an SLO with `share`, like `network 203.0.113.0/24`.
    pub fn group_name(&self, row: usize, slo: SloId) -> String {
        self.policy().group_name(slo, self.values(row))
    }
}

impl Policy {
    /// The [`cases`](Policy::cases) of a request with the reasons, from a trace of the same walk. It counts
    /// lines in maps, so it is too slow for every request.
    pub fn explain(&self, request: &Request<'_>) -> Explanation<'_> {
        let mut batch = Batch::of(self);
        batch.push(request);
        let mut trace = Vec::new();
        let cases = batch.only_cases(&mut |map, found| trace.push((map, found)));

        let mut before = None;
        let of = cases.list.iter().copied().map(|case| {
            let place = self.place(case.slo.id).filter(|_| !std::ptr::eq(case.slo, &self.refusing));
            let names = |(_, found): &Found<'_>| found.is_some_and(|pattern| pattern.answer.place() == place);
            let by = trace.iter().position(|found| place.is_some() && names(found));
            let is_first = before.is_none();
            let named_by = before.replace(case.slo.id).filter(|_| !case.is_added);
            let asked = if is_first { &trace[..by.unwrap_or(trace.len())] } else { &[] };
            let origin = by.and_then(|by| Some(origin(trace[by].0, trace[by].1?)));
            self.explained(case, batch.values(0), asked, origin, named_by)
        });
        let protected = cases.list.iter().find(|case| case.slo.law.protection().is_some());
        let asker = protected.map(|case| batch.asker(0, case.slo.id));
        Explanation { of: of.collect(), cases, asker }
    }

    fn explained<'p>(
        &'p self,
        case: Case<'p>,
        values: Values<'_, '_>,
        asked: &[Found<'p>],
        origin: Option<Origin<'p>>,
        named_by: Option<SloId>,
    ) -> Explained<'p> {
        let refs = &self.refs[self.place(case.slo.id).expect("an SLO of this policy")];
        let line = self.slo_map.lines().find(|line| line.number == refs.line);
        let written = line.filter(|_| !std::ptr::eq(case.slo, &self.refusing));
        let masks = self.fields.masks_of(case.slo.id.kind());
        let parts = self.key_places(case.slo.id).iter().map(|&place| self.part(masks, place, values));
        Explained {
            case,
            written: written.map_or(REFUSED, |line| line.value),
            line: refs.line,
            origin,
            named_by,
            asked: asked.iter().map(in_vain).collect(),
            parts: parts.collect(),
            share: refs.share.iter().map(|&place| self.part(self.fields.masks(), place, values)).collect(),
        }
    }

    fn group_name(&self, slo: SloId, values: Values<'_, '_>) -> String {
        let refs = &self.refs[self.place(slo).expect("an SLO of this policy")];
        let Some(&outermost) = refs.share.first() else { return String::new() };
        let Part { field, value } = self.part(self.fields.masks(), outermost, values);
        let name = shown(field);
        let text = value.map_or_else(|| format!("no {name}"), |value| format!("{name} {}", shown(value)));
        cut(text, GROUP_NAME_CHARS)
    }

    fn part(&self, masks: Masks, place: Place, values: Values<'_, '_>) -> Part<'_> {
        Part { field: self.fields.name(place), value: self.fields.customer_text(masks, place, values) }
    }
}

/// The longest name of a group: a client may choose it, and many are kept.
const GROUP_NAME_CHARS: usize = 60;

/// Replaces the options of an SLO.
const REFUSED: &[u8] = b"refused: the website is not a host, or a value is too long to be searched";

/// A map that was consulted, and the line found.
type Found<'p> = (&'p LookupMap, Option<Pattern>);

fn in_vain<'p>(&(map, found): &Found<'p>) -> Asked<'p> {
    let line = found.filter(|pattern| pattern.answer != Answer::REFUSED);
    Asked { lookup: &map.name, line: line.map(|pattern| map.line_number(pattern)) }
}

fn origin(map: &LookupMap, pattern: Pattern) -> Origin<'_> {
    Origin { lookup: &map.name, path: &map.path, line: map.line_number(pattern) }
}
