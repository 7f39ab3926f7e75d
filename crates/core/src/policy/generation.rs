//! The policy as loaded from its files: the SLOs, and the maps that name them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use crate::base::{HOLD_SHIPPED, KeySecret, Quota, Sharing, SloId, counted};
use crate::policy::blocks::Blocks;
use crate::policy::field::Maker;
use crate::policy::plan::AddressPlace;
use crate::policy::read::file::read_file;
use crate::policy::read::slo::Slos;
use crate::policy::{
    DEFAULT_LINE, Derivation, Fields, Layout, LookupMap, MapFile, Place, PolicyErrorKind, PolicyErrors, Slo,
    SloPlan, Strays, WarningKind, Warnings,
};

/// A set of SLOs and the maps that name them. A policy is immutable except for the blocks, the cost estimates
/// and the record of the fields seen in requests: when its files are edited, a new policy replaces it.
///
/// ```
/// use std::{io, path::Path};
/// use slowlane_core::policy::{Layout, Policy};
/// use slowlane_core::base::{Request, Value};
///
/// let read = |path: &Path| match path.to_str() {
///     Some("maps/slo.map") => Ok(b"0 burst=10000 rate=5000/s\n2001 burst=100 rate=50/s".to_vec()),
///     Some("maps/website.map") => Ok(b"shop.example 2001".to_vec()),
///     _ => Err(io::ErrorKind::NotFound.into()),
/// };
/// let policy = Policy::parse(Path::new("maps"), &Layout::default(), read).unwrap();
/// let mut request = Request::new();
/// request.push(b"website", Value::Text(b"shop.example"));
/// assert_eq!(policy.cases(&request).list[0].slo.id.number(), 2001);
/// assert_eq!(policy.cases(&Request::new()).list[0].slo.id.number(), 0);
/// ```
#[derive(Debug)]
pub struct Policy {
    /// The path and the text of `slo.map`.
    pub(super) slo_map: MapFile,
    /// Sorted by id; the first is SLO 0.
    pub(super) slos: Vec<Slo>,
    /// The lookup and the fields to which each SLO's options refer, in the same order as `slos`.
    pub(super) refs: Vec<SloRefs>,
    /// The plan of each SLO, in the same order as `slos`.
    pub(super) plans: Vec<SloPlan>,
    /// The lookups whose maps have keys, in the order of the layout, except that lookups that add an SLO come last.
    pub(super) lookups: Vec<LookupMap>,
    /// The number of lookups that can name a request's own SLO. The first of them to answer determines that SLO.
    pub(super) chosen: usize,
    /// Each map's file, and how many of its lines hold a key; None if the file does not exist.
    pub(super) sizes: Vec<(PathBuf, Option<usize>)>,
    pub(super) warnings: Warnings,
    pub(super) fields: Fields,
    /// The fields that make up the key of each type.
    pub(super) types: Box<[Box<[Place]>]>,
    pub(super) key_secret: KeySecret,
    /// The fields that maps and keys use and whose values can cause a request to be refused.
    pub(super) refusable: Vec<Place>,
    /// The SLO of requests that cannot be looked up.
    pub(super) refusing: Slo,
    pub(super) refusing_plan: SloPlan,
    pub(super) has_replacements: bool,
    /// A hash of the SLOs that nodes share, and of everything that determines the keys of these SLOs.
    pub(super) shared_hash: String,
    /// The blocks that operators have set.
    pub(super) blocks: Blocks,
}

/// The lookup and the fields to which the options of an SLO refer.
#[derive(Clone, Debug, Default)]
pub(super) struct SloRefs {
    /// The index of the lookup that `also` names. None if the SLO has no such option or the lookup's map is empty.
    pub(super) also: Option<usize>,
    /// The fields that distinguish clients, outermost first.
    pub(super) share: Box<[Place]>,
    /// The fields that identify a page.
    pub(super) page: Box<[Place]>,
    /// The SLO's line in `slo.map`.
    pub(super) line: usize,
}

impl Policy {
    /// The built-in policy: SLO 0 and no maps.
    pub fn builtin() -> Policy {
        let read = |path: &Path| match path.ends_with("slo.map") {
            true => Ok(DEFAULT_LINE.into()),
            false => Err(io::ErrorKind::NotFound.into()),
        };
        Policy::parse(Path::new("built-in"), &Layout::default(), read).expect("the built-in line is valid")
    }

    /// Reads `slo.map` and the maps of the layout from a directory. If a lookup's map is missing, it counts
    /// as empty. If `slo.map` or the map of a derived field is missing, that is an error.
    ///
    /// # Errors
    /// All problems in all files. If `slo.map` is missing, the list begins with `dir/slo.map: no such file`.
    pub fn read(dir: &Path, layout: &Layout) -> Result<Policy, PolicyErrors> {
        let mut policy = Policy::examine(dir, layout, read_file)?;
        Strays::look(dir, layout).warn(layout, &mut policy.warnings);
        Ok(policy)
    }

    /// Does the same as [`read`](Policy::read), but reads files with the function `read` and does not look
    /// for unused files.
    ///
    /// # Errors
    /// Every faulty line, every unreadable file, and every missing file that is required.
    pub fn examine(
        dir: &Path,
        layout: &Layout,
        read: impl Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Policy, PolicyErrors> {
        let mut policy = Policy::parse(dir, layout, read)?;
        policy.warn_of_traps(layout);
        Ok(policy)
    }

    /// Does the same as [`examine`](Policy::examine), but does not warn about combinations of lines.
    ///
    /// # Errors
    /// Every faulty line, every unreadable file, and every missing file that is required.
    pub fn parse(
        dir: &Path,
        layout: &Layout,
        read: impl Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Policy, PolicyErrors> {
        // Reads all files before parsing any of them, so that their contents date from nearly the same moment.
        let files = layout.files(dir).into_iter().map(|path| MapFile::read(path, &read));
        let mut files: Vec<MapFile> = files.collect();
        let mut of_derived = files.split_off(1 + layout.lookups().len()).into_iter();
        let mut files = files.into_iter();
        let slo_map = files.next().expect("slo.map comes first");

        let mut errors = PolicyErrors::default();
        let slos = Slos::read(&slo_map, layout, &mut errors);
        let (mut lookups, mut sizes, mut warnings) = (Vec::new(), Vec::new(), Warnings::default());
        let maker = |(name, derivation): (&String, &Derivation)| {
            let (name, derivation) = (name.clone(), derivation.clone());
            let mut read =
                |named, file| LookupMap::read(named, [0].into(), file, None, &mut errors, &mut warnings);
            let map = derivation.lookup().and_then(|lookup| read((lookup, name.clone()), of_derived.next()?));
            Maker { name, derivation, map }
        };
        let makers = layout.derived.iter().map(maker).collect();
        let Some(fields) = Fields::new(layout, makers, slos.shares(), slos.are_announced()) else {
            errors.add(&slo_map.path, None, PolicyErrorKind::TooManyFields);
            return Err(errors);
        };
        for (lookup, file) in layout.lookups().iter().zip(files) {
            let (is_there, places) = (file.text.is_ok(), fields.places(&lookup.fields));
            let named = (lookup, layout.name_of(lookup));
            let map = LookupMap::read(named, places, file, Some(&slos), &mut errors, &mut warnings);
            let lines = is_there.then(|| map.as_ref().map_or(0, |map| map.entries));
            sizes.push((lookup.file.clone(), lines));
            lookups.extend(map);
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let of_derived = layout.maps().skip(sizes.len()).zip(fields.maps());
        sizes.extend(of_derived.map(|(lookup, map)| (lookup.file.clone(), Some(map.entries))));
        lookups.sort_by_key(|map| map.is_added);
        let chosen = lookups.partition_point(|map| !map.is_added);
        let types = layout.kinds().map(|kind| fields.places(layout.type_fields(kind))).collect();
        let Slos { sorted: slos, lines, .. } = slos;
        let refs = |slo: &Slo| SloRefs {
            line: lines[&slo.id],
            also: slo.also.as_ref().and_then(|also| lookups.iter().position(|map| map.name == *also)),
            share: fields.places(&slo.share),
            page: fields.places(&slo.page),
        };
        let refs = slos.iter().map(refs).collect();
        let refusing = Slo::parse(SloId::DEFAULT, "burst=0 rate=0/s").expect("the line is valid");
        let mut policy = Policy {
            refs,
            plans: Vec::new(),
            slo_map,
            slos,
            lookups,
            chosen,
            sizes,
            warnings,
            types,
            key_secret: KeySecret::KNOWN,
            refusable: Vec::new(),
            refusing_plan: SloPlan::alone(&refusing),
            refusing,
            has_replacements: false,
            shared_hash: String::new(),
            blocks: Blocks::default(),
            fields,
        };
        policy.has_replacements = policy.slos.iter().any(|slo| !slo.replaces.is_empty());
        policy.shared_hash = policy.hash_of_shared(layout);
        let used: BTreeSet<Place> = policy.used(0..policy.slos.len()).collect();
        let ranked = policy.fields.places(&layout.ranked);
        policy.fields.need(&used.iter().chain(&ranked).copied().collect());
        policy.refusable = policy.fields.refusable().filter(|place| used.contains(place)).collect();
        policy.watch_fields();
        policy.check_also(&mut errors);
        policy.let_parents_owe(&mut errors);
        policy.warn_of_assured();
        let may_be_alone = policy.chosen == policy.lookups.len();
        policy.plans = policy
            .slos
            .iter()
            .zip(&policy.refs)
            .map(|(slo, refs)| SloPlan::of(slo, refs, policy.address_place(slo.id), may_be_alone))
            .collect();
        if errors.is_empty() { Ok(policy) } else { Err(errors) }
    }

    /// A hash of the SLOs that the nodes of a cluster share, and of everything that determines the keys of
    /// these SLOs. Nodes with the same hash agree on every shared key.
    pub fn shared_hash(&self) -> &str {
        &self.shared_hash
    }

    fn hash_of_shared(&self, layout: &Layout) -> String {
        let mut text = format!("{} {}\n", layout.ipv4_prefix, layout.ipv6_prefix);
        // Includes at least types 0 to 9, as earlier versions did: nodes of all versions must compute the same hash.
        for kind in 0..=(*layout.kinds().end()).max(9) {
            text += &format!("{kind}: {}\n", layout.type_fields(kind).join(" "));
            if layout.own_prefixes(kind) != (None, None) {
                text += &format!("{kind}: {:?}\n", layout.prefixes(kind));
            }
            for derivation in layout.type_fields(kind).iter().filter_map(|field| layout.derivation(field)) {
                text += &format!("{kind}: {derivation:?}\n");
            }
        }
        for slo in self.slos.iter().filter(|slo| slo.sharing != Sharing::Local) {
            let unit = slo.work.as_ref().map_or("", |work| work.unit.name());
            text += &format!("{} {:?} {:?} {:?} {unit}\n", slo.id, slo.objective, slo.law, slo.sharing);
        }
        format!("{:016X}", xxh3_64(text.as_bytes()))
    }

    /// The secret with which the policy hashes keys and seals tickets.
    pub fn key_secret(&self) -> KeySecret {
        self.key_secret
    }

    /// Sets the secret with which the policy hashes keys and seals tickets. The default is [`KeySecret::KNOWN`].
    pub fn with_key_secret(self, key_secret: KeySecret) -> Policy {
        Policy { key_secret, ..self }
    }

    /// Copies the previous policy's cost estimates to each SLO that counts work and whose unit and grain are unchanged.
    pub fn continue_from(&mut self, before: &Policy) {
        for (id, work) in self.slos.iter_mut().filter_map(|slo| Some((slo.id, slo.work.as_mut()?))) {
            let known = before.slo(id).and_then(|slo| slo.work.as_ref());
            known.inspect(|known| work.continue_from(known));
        }
    }

    /// The total memory for sketches, in bytes.
    pub fn sketch_bytes(&self) -> usize {
        self.slos.iter().filter_map(|slo| slo.law.sketched()).map(|law| law.shape.bytes()).sum()
    }

    /// Warns of SLOs whose delays may be longer than the longest hold, or than HAProxy waits with the shipped files.
    pub fn warn_of_delays_over(&mut self, longest: Duration) {
        for (slo, refs) in self.slos.iter().zip(&self.refs).filter(|(slo, _)| !slo.dry_run) {
            let warning = match slo.law.max_delay() {
                Some(Duration::MAX) => WarningKind::Unbounded(longest),
                Some(max_delay) if max_delay > longest => WarningKind::Cut { max_delay, longest },
                Some(max_delay) if max_delay > HOLD_SHIPPED => WarningKind::Shipped { max_delay },
                _ => continue,
            };
            self.warnings.add(&self.slo_map.path, Some(refs.line), warning);
        }
    }

    /// Warnings about suspicious but valid lines.
    pub fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    /// The path of `slo.map`.
    pub fn slo_map(&self) -> &Path {
        &self.slo_map.path
    }

    /// Whether any SLO replaces other SLOs.
    pub fn has_replacements(&self) -> bool {
        self.has_replacements
    }

    pub fn slo(&self, id: SloId) -> Option<&Slo> {
        self.place(id).map(|place| &self.slos[place])
    }

    /// The quota of the SLO that gave a decision, if clients may see that quota; `remaining` comes from the
    /// same decision. None if no SLO counted the request.
    pub fn quota(&self, slo: SloId, remaining: u32) -> Option<Quota> {
        counted(remaining)?;
        self.slo(slo)?.quota()
    }

    /// All SLOs, sorted by id.
    pub fn slos(&self) -> impl Iterator<Item = &Slo> {
        self.slos.iter()
    }

    /// The names of all fields that maps, keys, `share` and `page` use, with each derived field replaced by its origin.
    pub fn used_fields(&self) -> impl Iterator<Item = &str> {
        self.used_places(0..self.slos.len()).map(|place| self.fields.name(place))
    }

    /// The fields that maps use, the fields that these SLOs use in keys, `share` and `page`, and the cost and
    /// announced work if they are derived fields. Each derived field is replaced by its origin.
    pub(super) fn used_places(&self, slos: impl Iterator<Item = usize>) -> impl Iterator<Item = Place> {
        self.used(slos).map(|place| self.fields.origin(place))
    }

    fn used(&self, slos: impl Iterator<Item = usize>) -> impl Iterator<Item = Place> {
        let looked_up = self.lookups.iter().flat_map(|map| &map.places);
        let counted = slos.flat_map(|slo| {
            let refs = &self.refs[slo];
            self.key_places(self.slos[slo].id).iter().chain(&refs.share).chain(&refs.page)
        });
        let measures = self.fields.measures().filter(|&place| self.fields.origin(place) != place);
        looked_up.chain(counted).copied().chain(measures)
    }

    /// The fields of each lookup whose map has a key, in the order of the lookups.
    pub fn looked_up(&self) -> impl Iterator<Item = Vec<String>> {
        let name = |&place: &Place| self.fields.name(place).to_owned();
        self.lookups.iter().map(move |map| map.places.iter().map(name).collect())
    }

    /// The names of the fields that make up the key of an SLO.
    pub fn key_fields(&self, slo: SloId) -> impl Iterator<Item = &str> {
        self.key_places(slo).iter().map(|&place| self.fields.name(place))
    }

    /// The index of an SLO in `slos`.
    pub(super) fn place(&self, id: SloId) -> Option<usize> {
        self.slos.binary_search_by_key(&id, |slo| slo.id).ok()
    }

    /// The only field of an SLO's key, if that field holds addresses and the type is a single digit.
    fn address_place(&self, slo: SloId) -> Option<AddressPlace> {
        let (&[place], digit @ 0..=9) = (self.key_places(slo), slo.kind()) else { return None };
        let masks = self.fields.masks_of(slo.kind());
        self.fields.is_address(place).then_some(AddressPlace {
            place: place as u16,
            digit: digit as u8,
            masks,
        })
    }

    /// The indexes of the fields that make up the key of an SLO.
    pub(super) fn key_places(&self, slo: SloId) -> &[Place] {
        &self.types[usize::from(slo.kind())]
    }
}
