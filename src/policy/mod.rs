//! The policy: which SLO a request falls under, and the key that it is counted by.
//!
//! ```text
//! dir/slo.map             2001 burst=100 rate=50/s
//! dir/website.map         shop.example 2001
//!
//! Request ─▶ lookups in order: source+website, source+owner, source, website, owner
//!            the first map that answers names the SLO; SLO 0 where none does
//!        ─▶ the thousands digit of the SLO: its type, which names the fields of the key
//!        ─▶ (&Slo, Key)
//! ```
//! A policy never changes. It is read whole, or not at all: any problem in any file is an error that tells
//! all of them.

mod bounds;
mod exact;
mod explanation;
mod facts;
mod fields;
mod file;
mod layout;
mod list;
mod lookup;
pub mod map;
mod maps;
mod networks;
mod pattern;
mod prefixes;
mod problem;
mod regexes;
mod slo;
mod strays;
mod summary;
mod warning;

use std::io;
use std::path::Path;
use std::time::Duration;

use arrayvec::ArrayVec;

pub use bounds::{
    BURST_YEARS_MAX, COST_MAX, DEFAULT_LINE, FILE_BYTES_MAX, LINE_BYTES_MAX, LIST_LINES_MAX,
    SEARCHED_BYTES_MAX,
};
pub use explanation::{Asked, Explained, Explanation, Origin, Part};
pub use facts::Fact;
pub use fields::Filing;
use fields::{Fields, PLACES_MAX, Place, Values};
use file::{MapFile, read_file};
pub use layout::{Layout, LayoutError, Lookup, Method};
use lookup::LookupMap;
pub use maps::MapView;
pub use problem::{Fault, PROBLEMS_MAX, Problem, Problems};
pub use slo::Slo;
use slo::Slos;
pub use strays::Strays;
use summary::MapSize;
pub use warning::{Doubt, WARNINGS_MAX, Warning, Warnings};

use crate::base::key::{Key, KeyHasher};
use crate::base::request::{Request, Value};
use crate::base::slo_id::SloId;
use crate::base::verdict::JUDGED_MAX;

/// As many as an id has thousands digits.
const TYPES: usize = SloId::END / 1000;

/// SLOs and the maps that name them, as one generation of files had them.
///
/// ```
/// use std::{io, path::Path};
/// use slowlane::policy::{Layout, Policy};
/// use slowlane::base::request::{Request, Value};
///
/// let read = |path: &Path| match path.to_str() {
///     Some("maps/slo.map") => Ok(b"0 burst=10000 rate=5000/s\n2001 burst=100 rate=50/s".to_vec()),
///     Some("maps/website.map") => Ok(b"shop.example 2001".to_vec()),
///     _ => Err(io::ErrorKind::NotFound.into()),
/// };
/// let policy = Policy::parse(Path::new("maps"), &Layout::default(), read).unwrap();
/// let mut request = Request::new();
/// request.push(b"website", Value::Text(b"shop.example"));
/// assert_eq!(policy.classify(&request).0.id.number(), 2001);
/// assert_eq!(policy.classify(&Request::new()).0.id.number(), 0);
/// ```
#[derive(Debug)]
pub struct Policy {
    /// The path of `slo.map`, and what stands in it.
    slo_map: MapFile,
    /// In the order of their ids: the first is SLO 0.
    slos: Vec<Slo>,
    /// What their options name, in the same order.
    ties: Vec<Ties>,
    /// Those whose maps hold something.
    lookups: Vec<LookupMap>,
    /// Of the maps of all lookups.
    sizes: Vec<MapSize>,
    warnings: Warnings,
    fields: Fields,
    /// What the key of each type is made of.
    types: [Box<[Place]>; TYPES],
}

/// What the options of an SLO name.
#[derive(Clone, Copy, Debug)]
struct Ties {
    /// The number of the lookup that names one more SLO; None also where its map is empty.
    also: Option<usize>,
    share: Option<Place>,
    /// Where it stands in `slo.map`.
    line: usize,
}

/// An SLO that a request falls under.
#[derive(Clone, Copy, Debug)]
pub struct Case<'p> {
    pub slo: &'p Slo,
    /// What it is counted by.
    pub key: Key,
    /// Whose it is among those who share the SLO's bucket, as a hash; 0 where nobody shares.
    pub sharer: u64,
}

/// All SLOs that a request falls under, its own first.
#[derive(Clone, Debug)]
pub struct Cases<'p> {
    pub list: ArrayVec<Case<'p>, JUDGED_MAX>,
    /// How many requests it counts for.
    pub cost: u32,
}

/// The most requests of a docket.
pub const DOCKET_MAX: usize = 32;

/// The most values of a docket: of eight requests at least.
const VALUES_MAX: usize = 8 * PLACES_MAX;

/// Requests that are to be heard together: what each has for the fields of one policy.
#[derive(Clone, Debug, Default)]
pub struct Docket<'a> {
    values: ArrayVec<Option<Value<'a>>, VALUES_MAX>,
    count: usize,
}

impl Docket<'_> {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn clear(&mut self) {
        self.values.clear();
        self.count = 0;
    }
}

impl Policy {
    /// SLO 0 and empty maps.
    pub fn builtin() -> Policy {
        let read = |path: &Path| match path.ends_with("slo.map") {
            true => Ok(DEFAULT_LINE.into()),
            false => Err(io::ErrorKind::NotFound.into()),
        };
        Policy::parse(Path::new("built-in"), &Layout::default(), read)
            .expect("the built-in line is a right one")
    }

    /// Reads `slo.map` and the maps of the layout's lookups from a directory. Any of the latter may be
    /// missing and is empty then.
    ///
    /// # Errors
    /// Every problem of every file; those of a missing `slo.map` begin with `dir/slo.map: no such file`.
    pub fn read(dir: &Path, layout: &Layout) -> Result<Policy, Problems> {
        let mut policy = Policy::parse(dir, layout, read_file)?;
        Strays::look(dir, layout).warn(layout, &mut policy.warnings);
        Ok(policy)
    }

    /// The same with another reader of files.
    pub fn parse(
        dir: &Path,
        layout: &Layout,
        read: impl Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Policy, Problems> {
        // All are read before any is parsed, so that they are as near to one moment as can be.
        let files = layout.files(dir).into_iter().map(|path| MapFile::read(path, &read));
        let mut files = files.collect::<Vec<_>>().into_iter();
        let slo_map = files.next().expect("slo.map comes first");

        let mut problems = Problems::default();
        let slos = Slos::read(&slo_map, layout, &mut problems);
        let shares = slos.shares();
        let Some(fields) = Fields::new(layout, shares) else {
            problems.add(&slo_map.path, None, Fault::TooManyFields);
            return Err(problems);
        };
        let (mut lookups, mut sizes, mut warnings) = (Vec::new(), Vec::new(), Warnings::default());
        for (lookup, file) in layout.lookups().iter().zip(files) {
            let (is_there, places) = (file.text.is_ok(), fields.places(&lookup.fields));
            let map = LookupMap::read(lookup, places, file, &slos, &mut problems, &mut warnings);
            let lines = is_there.then(|| map.as_ref().map_or(0, |map| map.entries));
            sizes.push(MapSize { file: lookup.file.clone(), lines });
            lookups.extend(map);
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let types = std::array::from_fn(|kind| fields.places(layout.type_fields(kind as u8)));
        let lines = slos.lines();
        let slos = slos.into_sorted();
        let ties = |slo: &Slo| Ties {
            line: lines[&slo.id],
            also: slo.also.as_ref().and_then(|also| lookups.iter().position(|map| map.name == *also)),
            share: slo.share.as_ref().map(|share| fields.place(share)),
        };
        let ties = slos.iter().map(ties).collect();
        Ok(Policy { ties, slo_map, slos, lookups, sizes, warnings, fields, types })
    }

    /// The SLO of a request, and the key that it is counted by.
    pub fn classify(&self, request: &Request<'_>) -> (&Slo, Key) {
        let values = self.fields.values(request);
        let values = Values(&values);
        let slo = &self.slos[self.answer(values).unwrap_or(0)];
        (slo, self.key(slo, values))
    }

    /// Every SLO of a request: its own, the one that this names with `also`, and so on, as long as none of a type
    /// comes twice, for these would share an entry.
    ///
    /// ```
    /// # use std::{io, path::Path};
    /// # use slowlane::{policy::{Layout, Policy}, base::request::{Request, Value}};
    /// let read = |path: &Path| match path.to_str() {
    ///     Some("slo.map") => Ok(b"0 burst=1 rate=1/s also=owner\n1001 burst=9 rate=9/s".to_vec()),
    ///     Some("owner.map") => Ok(b"acme 1001".to_vec()),
    ///     _ => Err(io::ErrorKind::NotFound.into()),
    /// };
    /// # let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    /// # let mut request = Request::new();
    /// request.push(b"owner", Value::Text(b"acme"));
    /// request.push(b"cost", Value::Number(5));
    /// let cases = policy.cases(&request);
    /// # // The owner's SLO is the request's own here, and names no other.
    /// assert_eq!((cases.list[0].slo.id.number(), cases.cost), (1001, 5));
    /// ```
    pub fn cases(&self, request: &Request<'_>) -> Cases<'_> {
        let values = self.fields.values(request);
        let values = Values(&values);
        self.cases_of(self.answer(values), values)
    }

    /// Opens the filing of a request for a docket of this policy, which must have room for it. The docket has it when it
    /// is [entered](Policy::enter); one that is not is forgotten.
    pub fn file<'a, 'd>(&self, docket: &'d mut Docket<'a>) -> Filing<'_, 'd, 'a> {
        let begun = docket.count * self.fields.count();
        docket.values.truncate(begun);
        docket.values.extend((0..self.fields.count()).map(|_| None));
        Filing::new(&self.fields, &mut docket.values[begun..])
    }

    /// Enters what was filed into the docket. False: it has no room for another.
    pub fn enter(&self, docket: &mut Docket<'_>) -> bool {
        docket.count += 1;
        docket.count < DOCKET_MAX && (docket.count + 1) * self.fields.count() <= VALUES_MAX
    }

    /// What a request of a docket has for each field, by the names of those that it has.
    pub fn fields_of<'s, 'a: 's>(
        &'s self,
        docket: &'s Docket<'a>,
        number: usize,
    ) -> impl Iterator<Item = (&'s [u8], Value<'s>)> {
        let count = self.fields.count();
        self.fields.named(Values(&docket.values[number * count..(number + 1) * count]))
    }

    /// The [`cases`](Policy::cases) of each request of a docket. Each lookup is asked for all of them in turn, so that the
    /// memory brings their patterns at the same time.
    pub fn hear<'p>(&'p self, docket: &Docket<'_>, mut each: impl FnMut(usize, Cases<'p>)) {
        let rows = || docket.values.chunks_exact(self.fields.count()).take(docket.count).map(Values);
        let mut answers = [None; DOCKET_MAX];
        for map in &self.lookups {
            for (values, answer) in rows().zip(&mut answers) {
                if answer.is_none() {
                    *answer = map.find(values).and_then(|pattern| pattern.answer.place());
                }
            }
        }
        for (number, (values, answer)) in rows().zip(answers).enumerate() {
            each(number, self.cases_of(answer, values));
        }
    }

    fn cases_of(&self, answer: Option<usize>, values: Values<'_, '_>) -> Cases<'_> {
        let mut place = answer.unwrap_or(0);
        let mut list: ArrayVec<Case<'_>, JUDGED_MAX> = ArrayVec::new();
        list.push(self.case(place, values));
        while let Some(also) = self.ties[place].also.filter(|_| !list.is_full()) {
            let answer = self.lookups[also].find(values).and_then(|pattern| pattern.answer.place());
            let kind = |place: usize| self.slos[place].id.kind();
            match answer {
                Some(next) if list.iter().all(|case| case.slo.id.kind() != kind(next)) => place = next,
                _ => break,
            }
            list.push(self.case(place, values));
        }
        Cases { list, cost: cost(self.fields.cost(values)) }
    }

    fn case(&self, place: usize, values: Values<'_, '_>) -> Case<'_> {
        let slo = &self.slos[place];
        let sharer = self.ties[place].share.map_or(0, |share| {
            let mut hasher = KeyHasher::new(0);
            self.fields.hash(&mut hasher, share, values);
            hasher.finish().bits()
        });
        Case { slo, key: self.key(slo, values), sharer }
    }

    /// Warns of SLOs whose delays may be longer than a hold.
    pub fn warn_of_delays_over(&mut self, longest: Duration) {
        for (slo, ties) in self.slos.iter().zip(&self.ties).filter(|(slo, _)| !slo.dry_run) {
            let doubt = match slo.law.max_delay() {
                Some(Duration::MAX) => Doubt::Unbounded(longest),
                Some(max_delay) if max_delay > longest => Doubt::Cut { max_delay, longest },
                _ => continue,
            };
            self.warnings.add(&self.slo_map.path, || (Some(ties.line), doubt));
        }
    }

    /// What is served, though it is hardly what was meant.
    pub fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    pub fn slo(&self, id: SloId) -> Option<&Slo> {
        self.slos.binary_search_by_key(&id, |slo| slo.id).ok().map(|place| &self.slos[place])
    }

    /// All SLOs, in the order of their ids.
    pub fn slos(&self) -> impl Iterator<Item = &Slo> {
        self.slos.iter()
    }

    /// The names of the fields that its maps, the keys of its SLOs and their shares have a use for.
    pub fn used_fields(&self) -> impl Iterator<Item = &str> {
        let looked_up = self.lookups.iter().flat_map(|map| map.places.iter().copied());
        let counted = self.slos.iter().flat_map(|slo| self.types[usize::from(slo.id.kind())].iter().copied());
        let shared = self.ties.iter().filter_map(|ties| ties.share);
        looked_up.chain(counted).chain(shared).map(|place| self.fields.name(place))
    }

    /// The place of the SLO that the first map with an answer names.
    fn answer(&self, values: Values<'_, '_>) -> Option<usize> {
        self.lookups.iter().find_map(|map| map.find(values)?.answer.place())
    }

    fn key(&self, slo: &Slo, values: Values<'_, '_>) -> Key {
        let kind = slo.id.kind();
        let mut hasher = KeyHasher::new(kind);
        for &place in &self.types[usize::from(kind)] {
            self.fields.hash(&mut hasher, place, values);
        }
        hasher.finish()
    }
}

/// What is no number counts for one request, as what has no cost does.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::base::request::Value;

    const SLO_MAP: &str = "0 burst=10000 rate=5000/s\n1001 burst=1 rate=1/s\n2001 burst=1 rate=1/s\n\
        3001 burst=1 rate=1/s\n4001 burst=1 rate=1/s\n5001 burst=1 rate=1/s\n";

    fn parse(files: &[(&str, &[u8])], layout: &Layout) -> Result<Policy, Problems> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| path == Path::new("maps").join(name));
            file.map(|(_, text)| text.to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Policy::parse(Path::new("maps"), layout, read)
    }

    fn policy(maps: &[(&str, &str)]) -> Policy {
        let maps = maps.iter().map(|&(name, text)| (name, text.as_bytes()));
        let files: Vec<_> = [("slo.map", SLO_MAP.as_bytes())].into_iter().chain(maps).collect();
        parse(&files, &Layout::default()).unwrap()
    }

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|&(name, text)| (name, text.as_bytes())).collect();
        match parse(&files, &Layout::default()) {
            Ok(_) => vec![],
            Err(problems) => problems.to_string().lines().map(str::to_owned).collect(),
        }
    }

    fn text(value: &str) -> Value<'_> {
        Value::Text(value.as_bytes())
    }

    fn address(value: &str) -> Value<'_> {
        Value::address(value.parse::<IpAddr>().unwrap())
    }

    fn request<'a>(fields: &[(&'a str, Value<'a>)]) -> Request<'a> {
        let mut request = Request::new();
        for &(name, value) in fields {
            request.push(name.as_bytes(), value);
        }
        request
    }

    fn slo_of(policy: &Policy, fields: &[(&str, Value<'_>)]) -> u16 {
        policy.classify(&request(fields)).0.id.number()
    }

    fn key_of(policy: &Policy, fields: &[(&str, Value<'_>)]) -> Key {
        policy.classify(&request(fields)).1
    }

    #[test]
    fn the_first_map_that_answers_decides() {
        let maps = [
            ("source+website.map", "192.0.2.1+shop.example 5001"),
            ("source+owner.map", "192.0.2.1+ann 4001"),
            ("source.map", "192.0.2.0/24 3001"),
            ("website.map", "shop.example 2001"),
            ("owner.map", "ann 1001"),
        ];
        let all =
            [("source", address("192.0.2.1")), ("website", text("shop.example")), ("owner", text("ann"))];
        for (without, expected) in [5001, 4001, 3001, 2001, 1001, 0].into_iter().enumerate() {
            assert_eq!(slo_of(&policy(&maps[without..]), &all), expected);
        }
    }

    #[test]
    fn a_burst_that_would_never_come_back_is_refused() {
        let slo_map = |line: &str| problems(&[("slo.map", line)]);
        assert_eq!(slo_map("0 burst=3660 rate=1/d"), [""; 0]);
        let problem =
            "maps/slo.map:1: burst 3661 at 1/d takes longer than 10 years to come back: expected less";
        assert_eq!(slo_map("0 burst=3661 rate=1/d"), [problem]);
        assert_eq!(slo_map("0 burst=4294967295 rate=1000000/s"), [""; 0]);
    }

    #[test]
    fn minus_one_leaves_the_answer_to_the_next_lookup() {
        let maps = [
            ("source.map", "10.0.0.0/8 3001\n10.1.0.0/16 -1\n"),
            ("website.map", "shop.example 2001\nfree.example\n"),
            ("owner.map", "ann 1001"),
        ];
        let policy = policy(&maps);
        let from = |source| [("source", address(source)), ("website", text("shop.example"))];
        assert_eq!(slo_of(&policy, &from("10.2.0.1")), 3001);
        assert_eq!(slo_of(&policy, &from("10.1.0.1")), 2001);
        // A key without a value is 0, which is an answer.
        assert_eq!(slo_of(&policy, &[("website", text("free.example")), ("owner", text("ann"))]), 0);
    }

    #[test]
    fn a_lookup_whose_field_is_missing_does_not_answer() {
        let policy = policy(&[("source+website.map", "0.0.0.0/0+ 5001"), ("owner.map", "ann 1001")]);
        assert_eq!(slo_of(&policy, &[("source", address("192.0.2.1")), ("owner", text("ann"))]), 1001);
        assert_eq!(slo_of(&policy, &[("source", address("192.0.2.1")), ("website", text(""))]), 5001);
        assert_eq!(slo_of(&policy, &[("website", text("")), ("owner", text("ann"))]), 1001);
        assert_eq!(slo_of(&policy, &[]), 0);
    }

    #[test]
    fn a_source_that_is_no_address_is_in_no_network() {
        let policy = policy(&[("source.map", "0.0.0.0/0 3001\n::/0 3001\n")]);
        for source in ["unix:", "", "192.0.2.1:80", "[::1]", "192.0.2"] {
            assert_eq!(slo_of(&policy, &[("source", text(source))]), 0, "{source}");
        }
        assert_eq!(slo_of(&policy, &[("source", Value::Text(b"\xff"))]), 0);
        assert_eq!(slo_of(&policy, &[("source", Value::Number(1))]), 0);
    }

    #[test]
    fn a_customer_has_one_key_whichever_proxy_asks() {
        let policy = policy(&[("source.map", "0.0.0.0/0 3001\n::/0 3001\n")]);
        let key = |source| key_of(&policy, &[("source", source)]);
        assert_eq!(key(address("192.0.2.1")), key(text("192.0.2.1")));
        assert_eq!(key(address("::ffff:192.0.2.1")), key(text("192.0.2.1")));
        assert_eq!(key(text("::FFFF:192.0.2.1")), key(address("192.0.2.1")));
        assert_eq!(key(address("2001:db8::1")), key(text("2001:DB8:0:0:ffff::")));
        assert_ne!(key(address("2001:db8::1")), key(address("2001:db8:0:1::1")));
        assert_ne!(key(address("192.0.2.1")), key(address("192.0.2.2")));
        let bytes: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(key(address("192.0.2.1")), KeyHasher::new(3).address(bytes).finish());
    }

    #[test]
    fn a_key_is_made_of_the_fields_of_the_type_in_their_order() {
        let policy =
            policy(&[("website.map", "shop.example 5001\nbare.example 2001\n"), ("owner.map", "7 1001\n")]);
        let source: IpAddr = "192.0.2.1".parse().unwrap();
        let shop = [("website", text("shop.example")), ("source", Value::Address(source))];
        let expected = KeyHasher::new(5).address(source).part(b"shop.example").finish();
        assert_eq!(key_of(&policy, &shop), expected);
        let sourceless = KeyHasher::new(5).part(b"").part(b"shop.example").finish();
        assert_eq!(key_of(&policy, &shop[..1]), sourceless);
        assert_eq!(key_of(&policy, &[("owner", Value::Number(7))]), KeyHasher::new(1).part(b"7").finish());
        assert_eq!(key_of(&policy, &[("owner", text("who"))]), KeyHasher::new(0).finish());
    }

    #[test]
    fn the_prefixes_of_the_layout_say_how_much_of_an_address_is_a_customer() {
        let layout = Layout::default().with_prefixes(24, 0).unwrap();
        let files = [("slo.map", SLO_MAP.as_bytes()), ("source.map", b"0.0.0.0/0 3001\n::/0 3001\n")];
        let policy = parse(&files, &layout).unwrap();
        let key = |source| key_of(&policy, &[("source", address(source))]);
        assert_eq!(key("192.0.2.1"), key("192.0.2.255"));
        assert_ne!(key("192.0.2.1"), key("192.0.3.1"));
        assert_eq!(key("2001:db8::"), key("::1"));
    }

    #[test]
    fn an_operator_throttles_by_fields_of_their_own() {
        let fields = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let lookup = |names, file: &str, method| Lookup { fields: fields(names), file: file.into(), method };
        let layout = Layout::default().with_type(6, fields(&["client", "method"])).unwrap();
        let layout = layout.with_lookups(vec![
            lookup(&["client"], "client.map", Method::Ip),
            lookup(&["method", "path"], "path.map", Method::Beg),
            lookup(&["client", "port"], "text.map", Method::Str),
        ]);
        let files: [(&str, &[u8]); 4] = [
            ("slo.map", b"0 burst=1 rate=1/s\n6001 burst=0 rate=1/m\n6002 burst=0 rate=2/m\n"),
            ("client.map", b"10.0.0.0/8 6001\n"),
            ("path.map", b"GET+/api 6002\n"),
            ("text.map", b"2001:db8::1+443 6001\n"),
        ];
        let policy = parse(&files, &layout.unwrap()).unwrap();
        assert_eq!(slo_of(&policy, &[("client", text("10.0.0.1"))]), 6001);
        assert_eq!(slo_of(&policy, &[("method", text("GET")), ("path", text("/api/items"))]), 6002);
        assert_eq!(slo_of(&policy, &[("client", text("2001:DB8:0::1")), ("port", Value::Number(443))]), 6001);
        let key = key_of(&policy, &[("client", text("10.0.0.1")), ("method", text("GET"))]);
        assert_eq!(key, key_of(&policy, &[("method", text("GET")), ("client", address("10.0.0.1"))]));
    }

    #[test]
    fn ten_kilobytes_of_a_name_are_looked_up_too() {
        let name = "a".repeat(10_000);
        let maps = [
            ("website.map", format!("{name} 2001\n")),
            ("source+website.map", format!("::1+{name}b 5001\n")),
        ];
        let policy = policy(&maps.each_ref().map(|(name, text)| (*name, text.as_str())));
        assert_eq!(slo_of(&policy, &[("website", text(&name)), ("source", address("::1"))]), 2001);
        let longer = name + "b";
        assert_eq!(slo_of(&policy, &[("website", text(&longer)), ("source", address("::1"))]), 5001);
    }

    #[test]
    fn an_answer_is_explained_by_its_line() {
        let policy = policy(&[("website.map", "# ours\nshop.example 2001\n\nbare.example -1\n")]);
        let explain = |website| policy.explain(&request(&[("website", text(website))])).of[0].origin;
        let origin = explain("shop.example").unwrap();
        assert_eq!((origin.lookup, origin.path, origin.line), ("website", Path::new("maps/website.map"), 2));
        assert_eq!(explain("bare.example"), None);
        assert_eq!(policy.slo(SloId::new(2001).unwrap()).unwrap().objective.burst, 1);
        assert_eq!(policy.slo(SloId::new(2002).unwrap()), None);
        assert_eq!(policy.slos().map(|slo| slo.id.kind()).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn no_problem_is_told_of_a_window_whose_rate_is_unknown_or_zero() {
        assert_eq!(
            problems(&[("slo.map", "0 burst=1 rate=50 law=fixed-window window=100ms\n")]),
            ["maps/slo.map:1: rate \"50\": expected a number and a period s, m, h or d, like 50/s"],
        );
        assert_eq!(problems(&[("slo.map", "0 burst=1 rate=0/s law=fixed-window window=100ms\n")]), [""; 0]);
    }

    #[test]
    fn options_that_name_nothing_are_refused() {
        let slo_map = "0 burst=1 rate=1/s law=fair share=\n1 burst=1 rate=1/s also=\n";
        assert_eq!(
            problems(&[("slo.map", slo_map)]),
            [
                "maps/slo.map:1: share \"\": expected the name of a field, like source",
                "maps/slo.map:2: also \"\": expected a lookup, one of source+website, source+owner, source, website, owner",
            ],
        );
    }

    #[test]
    fn every_problem_has_its_place_and_its_remedy() {
        let slo_map = "x burst=1 rate=1/s\n10000\n6001 burst=1 rate=1/s\n2001 burst=1e3 rate=5x/s law=best\n\
            2001 burst=1 rate=1/s\n2002 burst burst=1 burst=2 jitter=1\n2003 rate=1/s burst=-1\n\
            2004 burst=1 rate=1/s max_delay=5\n";
        let maps = [
            ("slo.map", slo_map),
            ("website.map", "a 2001\nb 2009\nc x\nd 10 # no comment\ne 99999999999999999999\n"),
            ("source.map", "10.0.0.0/33 2001\nlocalhost -5\n"),
            ("source+owner.map", "10.0.0.0/8 2001\n"),
        ];
        let expected = [
            "maps/slo.map:1: \"x\": expected the id of an SLO, 0 to 9999, and its options, like `0 burst=10000 rate=5000/s`",
            "maps/slo.map:2: \"10000\": expected the id of an SLO, 0 to 9999, and its options, like `0 burst=10000 rate=5000/s`",
            "maps/slo.map:3: SLO 6001: type 6 has no fields: use one of the types 0, 1, 2, 3, 4, 5, or give it fields in the config",
            "maps/slo.map:4: burst \"1e3\": expected a number of requests, 0 to 4294967295",
            "maps/slo.map:4: rate \"5x/s\": expected a number and a period s, m, h or d, like 50/s",
            "maps/slo.map:4: law \"best\": expected one of adaptive, pace, fair, token-bucket, leaky-bucket, \
                fixed-window, sliding-window, sliding-buckets, sliding-log, warm-up, concurrency",
            "maps/slo.map:5: SLO 2001 is already on line 4: keep one of the two",
            "maps/slo.map:6: \"burst\": expected an option, like burst=100",
            "maps/slo.map:6: \"burst\" is given twice: keep one",
            "maps/slo.map:6: rate is missing: add it, like rate=50/s",
            "maps/slo.map:6: unknown option \"jitter\": pace takes max_delay",
            "maps/slo.map:7: burst \"-1\": expected a number of requests, 0 to 4294967295",
            "maps/slo.map:8: max_delay \"5\": expected a number and a unit us, ms, s, m, h or d, like 5s",
            "maps/slo.map: SLO 0, for requests that no map names, is missing: add the line `0 burst=10000 rate=5000/s`",
            "maps/source+owner.map:1: \"10.0.0.0/8\": expected a network, + and the rest, like 192.0.2.0/24+shop.example",
            "maps/source.map:1: \"10.0.0.0/33\": expected an address or a network, like 192.0.2.0/24 or 2001:db8::/32",
            "maps/source.map:2: SLO -5 is not in slo.map",
            "maps/source.map:2: \"localhost\": expected an address or a network, like 192.0.2.0/24 or 2001:db8::/32",
            "maps/website.map:2: SLO 2009 is not in slo.map",
            "maps/website.map:3: \"x\": expected the id of an SLO, or -1 to leave the answer to the next lookup",
            "maps/website.map:4: \"10 # no comment\": expected the id of an SLO, or -1 to leave the answer to the next lookup; \
                a comment needs a line of its own",
            "maps/website.map:5: \"99999999999999999999\": expected the id of an SLO, or -1 to leave the answer to the next lookup",
        ];
        let problems = problems(&maps);
        for (problem, expected) in problems.iter().zip(expected) {
            assert_eq!(problem, expected);
        }
        assert_eq!(problems.len(), expected.len());
    }

    #[test]
    fn the_numbers_of_a_map_are_read_as_haproxy_reads_them() {
        let policy =
            policy(&[("website.map", "a 0002001\nb +2001\nc\nd -01\ne -0\n"), ("owner.map", "x 1001\n")]);
        let slos = ["a", "b", "c", "d", "e"]
            .map(|name| slo_of(&policy, &[("website", text(name)), ("owner", text("x"))]));
        assert_eq!(slos, [2001, 2001, 0, 1001, 0]);
    }

    fn warnings(files: &[(&str, &str)], layout: &Layout) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|&(name, text)| (name, text.as_bytes())).collect();
        parse(&files, layout).unwrap().warnings().to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_key_that_is_listed_twice_is_told_with_the_line_that_wins() {
        let maps = [
            ("slo.map", SLO_MAP),
            ("source+website.map", "10.0.0.0/8+a 5001\n10.0.0.0/8+b 5001\n10.9.9.9/8+a 5001\n"),
            ("source.map", "# ours\n10.0.0.0/8 3001\n10.0.0.0/9 3001\n10.1.2.3/255.0.0.0 0\n::/0 0\n"),
            ("website.map", "a 2001\nb 2001\na 2001\na -1\n"),
        ];
        let told = [
            "maps/source+website.map:3: \"10.9.9.9/8+a\" is already on line 1, which wins: keep one of the two",
            "maps/source.map:4: \"10.1.2.3/255.0.0.0\" is already on line 2, which wins: keep one of the two",
            "maps/website.map:3: \"a\" is already on line 1, which wins: keep one of the two",
            "maps/website.map:4: \"a\" is already on line 1, which wins: keep one of the two",
        ];
        assert_eq!(warnings(&maps, &Layout::default()), told);
        // Whatever a map is matched with.
        for method in Method::ALL {
            let lookup = Lookup { fields: vec!["a".into()], file: "a.map".into(), method };
            let layout = Layout::default().with_lookups(vec![lookup]).unwrap();
            let lines = "10.0.0.1 0\n10.0.0.2 0\n10.0.0.1 0\n";
            let told = warnings(&[("slo.map", SLO_MAP), ("a.map", lines)], &layout);
            let once = "maps/a.map:3: \"10.0.0.1\" is already on line 1, which wins: keep one of the two";
            assert_eq!(told, [once], "{method:?}");
        }
    }

    #[test]
    fn websites_that_are_never_asked_for_are_told_and_only_where_websites_are_looked_up() {
        let maps = [
            ("slo.map", SLO_MAP),
            ("source+website.map", "::/0+Shop.example 5001\n"),
            ("website.map", "shop.example 2001\nshop.example:8080 2001\n"),
            ("owner.map", "Ann 1001\nhttps://ann.example/ 1001\n"),
        ];
        let told = warnings(&maps, &Layout::default());
        let lower = "websites are asked for in lower case, without a port, as \"shop.example\"";
        assert_eq!(
            told,
            [
                format!("maps/source+website.map:1: \"::/0+Shop.example\" has capitals: {lower}"),
                format!("maps/website.map:2: \"shop.example:8080\" has a port: {lower}"),
            ]
        );
        let lookup = Lookup { fields: vec!["website".into()], file: "w.map".into(), method: Method::Reg };
        let layout = Layout::default().with_lookups(vec![lookup]).unwrap();
        assert_eq!(warnings(&[("slo.map", SLO_MAP), ("w.map", "^[A-Z]:/ 0\n")], &layout), [""; 0]);
    }

    #[test]
    fn a_delay_that_is_longer_than_a_hold_is_told() {
        let slo_map = "0 burst=1 rate=1/s max_delay=61s\n1 burst=1 rate=1/s max_delay=60s\n\
            2 burst=1 rate=1/s law=fair max_delay=2m\n3 burst=1 rate=1/s law=warm-up max_delay=2m dry_run=yes\n\
            4 burst=1 rate=1/s law=adaptive\n5 burst=1 rate=1/s law=token-bucket\n";
        let mut policy = parse(&[("slo.map", slo_map.as_bytes())], &Layout::default()).unwrap();
        assert_eq!(policy.warnings().count(), 0);
        policy.warn_of_delays_over(Duration::from_secs(60));
        let told = policy.warnings().to_string();
        let cut = "holds are cut there, and the SLO is exceeded";
        let expected = [
            format!("maps/slo.map:1: max_delay 61s is longer than [hold] longest, 1m: {cut}"),
            format!("maps/slo.map:3: max_delay 2m is longer than [hold] longest, 1m: {cut}"),
            format!(
                "maps/slo.map:5: adaptive without max_delay may delay for longer than [hold] longest, 1m: {cut}"
            ),
        ];
        assert_eq!(told.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_examples_are_in_no_doubt() {
        for dir in ["haproxy/maps", "doc/replay/maps", "doc/replay/maps.new"] {
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
            assert_eq!(Policy::read(&dir, &Layout::default()).unwrap().warnings().to_string(), "");
        }
    }

    #[test]
    fn map_files_that_no_lookup_reads_are_told() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["slo.map", "sources.map", ".#source.map", "source.map~", "owner.map", "notes.txt"] {
            fs::write(dir.path().join(name), if name == "slo.map" { SLO_MAP } else { "" }).unwrap();
        }
        fs::create_dir(dir.path().join("old.map")).unwrap();
        let told = Policy::read(dir.path(), &Layout::default()).unwrap().warnings().to_string();
        let expected = format!(
            "{}/sources.map: no lookup reads this file: the maps that are read are slo.map, source+website.map, \
             source+owner.map, source.map, website.map, owner.map",
            dir.path().display()
        );
        assert_eq!(told, expected);
    }

    #[test]
    fn without_slo_map_only_that_is_the_problem() {
        let expected =
            "maps/slo.map: no such file: it holds one SLO per line, at least `0 burst=10000 rate=5000/s`";
        assert_eq!(problems(&[("website.map", "shop.example 2001")]), [expected]);
        assert_eq!(problems(&[("slo.map", "0 burst=0 rate=1/d")]), [""; 0]);
    }

    #[test]
    fn a_directory_is_read_and_what_cannot_be_read_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::default();
        assert_eq!(Policy::read(dir.path(), &layout).unwrap_err().listed()[0].fault, Fault::NoSloMap);
        fs::write(dir.path().join("slo.map"), SLO_MAP).unwrap();
        assert_eq!(Policy::read(dir.path(), &layout).unwrap().slos().count(), 6);
        fs::create_dir(dir.path().join("owner.map")).unwrap();
        let problems = Policy::read(dir.path(), &layout).unwrap_err().to_string();
        assert!(problems.ends_with("owner.map: cannot be read: not a regular file"), "{problems}");
    }

    #[test]
    fn the_built_in_policy_is_one_bucket_for_all() {
        let policy = Policy::builtin();
        let (slo, key) = policy.classify(&request(&[("source", address("192.0.2.1"))]));
        assert_eq!((slo.id, slo.objective.burst, slo.law.name()), (SloId::DEFAULT, 10_000, "pace"));
        assert_eq!(slo.objective.rate.to_string(), "5000/s");
        assert_eq!(key, policy.classify(&Request::new()).1);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_map_are_a_policy_or_problems(
            slo_map in prop_oneof![Just(SLO_MAP.as_bytes().to_vec()), prop::collection::vec(any::<u8>(), 0..80)],
            map in "([ .:/+a-c0-9(){}\\[\\]*-]{0,9}( (2001|-1|x))?\r?\n){0,5}",
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            value in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            for method in Method::ALL {
                let lookup = |name: &str| Lookup { fields: vec![name.into()], file: name.into(), method };
                let layout = Layout::default().with_lookups(vec![lookup("a"), lookup("b")]).unwrap();
                let files = [("slo.map", &slo_map[..]), ("a", map.as_bytes()), ("b", &bytes)];
                match parse(&files, &layout) {
                    Ok(policy) => {
                        let mut request = Request::new();
                        request.push(b"a", Value::Text(&value));
                        policy.classify(&request);
                    }
                    Err(problems) => prop_assert!(!problems.listed().is_empty()),
                }
            }
        }
    }
}
