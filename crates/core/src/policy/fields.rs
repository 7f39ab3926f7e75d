//! The fields of a layout, and their values in one request.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arrayvec::ArrayVec;

use crate::base::{FIELDS_MAX, KeyHasher, Value, in_one_form, is_same_name, v4_mask, v6_mask};
use crate::policy::field::{Derived, Field, Head, Maker};
use crate::policy::watch::{ValueKind, Watch};
use crate::policy::{Layout, LookupMap};

/// The index of a field among the [`Fields`].
pub(super) type Place = usize;

/// The field with the cost of a request.
const COST: &str = "cost";

/// The field with the work that a request announces.
const ANNOUNCED: &str = "announced";

/// The maximum number of places: one per field that a request can carry, one for the cost, one for announced work.
pub(super) const PLACES_MAX: usize = FIELDS_MAX + 2;

/// The fields that a policy uses, without duplicates, followed by the fields that only blocks use.
#[derive(Debug)]
pub(super) struct Fields {
    fields: Vec<Field>,
    extra: ExtraFields,
    /// Shared with the fields and maps that are the first to detect faults.
    pub(super) watch: Arc<Watch>,
    pub(super) cost: Place,
    /// The place of the announced work. None if no SLO reserves the work that requests announce.
    pub(super) announced: Option<Place>,
    /// The masks that apply unless a type has its own masks.
    masks: Masks,
    type_masks: Box<[Masks]>,
    derived: Vec<Derived>,
    makers: Vec<Maker>,
}

/// The leading bits of an address that become part of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Masks {
    ipv4: Ipv4Addr,
    ipv6: Ipv6Addr,
}

impl Masks {
    fn of((ipv4, ipv6): (u8, u8)) -> Masks {
        Masks { ipv4: v4_mask(ipv4), ipv6: v6_mask(ipv6) }
    }

    /// The number of leading bits for an address of this family.
    pub(super) fn prefix(self, address: IpAddr) -> u8 {
        match address {
            IpAddr::V4(_) => self.ipv4.to_bits().count_ones() as u8,
            IpAddr::V6(_) => self.ipv6.to_bits().count_ones() as u8,
        }
    }

    #[inline]
    pub(super) fn customer(self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(v4) => IpAddr::V4(v4 & self.ipv4),
            IpAddr::V6(v6) => IpAddr::V6(v6 & self.ipv6),
        }
    }
}

impl Fields {
    /// The fields that a layout, `share` and `page` use, the cost and any announced work. None if there are too many.
    pub(super) fn new<'a>(
        layout: &'a Layout,
        makers: Vec<Maker>,
        shares: impl Iterator<Item = &'a str>,
        is_announced: bool,
    ) -> Option<Fields> {
        let mut names = layout.field_names();
        names.extend(layout.with_origins(shares.chain([COST]).chain(is_announced.then_some(ANNOUNCED))));
        let is_too_many = names.len() > FIELDS_MAX + 1 + usize::from(is_announced);
        let place = |of: &str| names.iter().position(|name| *name == of);
        let cost = place(COST).expect("the field cost was just added");
        let announced = place(ANNOUNCED).filter(|_| is_announced);
        let kind = |(place, name): (Place, &&str)| match layout.is_address(name) {
            true => ValueKind::Address,
            false if place == cost => ValueKind::Number,
            false if Some(place) == announced => ValueKind::Amount,
            false => ValueKind::Text,
        };
        let derived = makers.iter().enumerate().filter_map(|(maker, Maker { name, derivation, .. })| {
            Some(Derived { from: place(derivation.from())?, to: place(name)?, maker, is_needed: true.into() })
        });
        let derived = derived.collect();
        let watch = Arc::new(Watch::new(names.iter().enumerate().map(kind)));
        let field =
            |(place, name): (Place, &str)| Field::new(name, layout.is_address(name)).watched(&watch, place);
        (!is_too_many).then(|| Fields {
            fields: names.into_iter().enumerate().map(field).collect(),
            watch: watch.clone(),
            extra: ExtraFields::default(),
            cost,
            announced,
            masks: Masks::of((layout.ipv4_prefix, layout.ipv6_prefix)),
            type_masks: layout.kinds().map(|kind| Masks::of(layout.prefixes(kind))).collect(),
            derived,
            makers,
        })
    }

    pub(super) fn places(&self, names: &[String]) -> Box<[Place]> {
        names.iter().map(|name| self.place(name)).collect()
    }

    pub(super) fn place(&self, name: &str) -> Place {
        let place = self.fields.iter().position(|field| field.name() == name);
        place.expect("the layout, share= or page= has this field")
    }

    /// The fields whose values may be refused: fields that begin with a host, and fields that are derived by
    /// a map that is searched.
    pub(super) fn refusable(&self) -> impl Iterator<Item = Place> {
        let searches =
            |derived: &&Derived| self.makers[derived.maker].map.as_ref().is_some_and(LookupMap::is_search);
        let searched = self.derived.iter().filter(searches).map(|derived| derived.to);
        let hosts = self.fields.iter().enumerate().filter(|(_, field)| field.has_host());
        hosts.map(|(place, _)| place).chain(searched)
    }

    /// The maps of derived fields.
    pub(super) fn maps(&self) -> impl Iterator<Item = &LookupMap> {
        self.makers.iter().filter_map(|maker| maker.map.as_ref())
    }

    /// Computes only these derived fields from now on, until a block needs other derived fields.
    pub(super) fn need(&self, places: &BTreeSet<Place>) {
        self.derived.iter().for_each(|field| field.is_needed.store(places.contains(&field.to), Relaxed));
    }

    pub(super) fn count(&self) -> usize {
        self.fields.len()
    }

    pub(super) fn extra(&self) -> &ExtraFields {
        &self.extra
    }

    /// A field and its place, even if only blocks use the field.
    pub(super) fn find(&self, name: &str) -> Option<(Place, &Field)> {
        let mut fields = self.fields.iter().chain(self.extra.list()).enumerate();
        fields.find(|(_, field)| field.is_named(name.as_bytes()))
    }

    /// The field from which a derived field is made. Any other field is its own origin.
    pub(super) fn origin(&self, place: Place) -> Place {
        self.derived.iter().find(|derived| derived.to == place).map_or(place, |derived| derived.from)
    }

    /// Fills in the derived fields of a request, replacing any values that the request carries under their names.
    #[inline]
    pub(super) fn derive<'a>(&'a self, values: &mut [Option<Value<'a>>]) {
        for &Derived { from, to, maker, ref is_needed } in &self.derived {
            let make = || self.makers[maker].make(&self.fields[to], &values[from]);
            values[to] = if is_needed.load(Relaxed) { make() } else { None };
        }
        if values.len() > self.fields.len() {
            self.derive_extra(values);
        }
    }

    /// Fills the derived fields that only blocks use.
    #[cold]
    fn derive_extra<'a>(&'a self, values: &mut [Option<Value<'a>>]) {
        for (to, field) in (self.fields.len()..values.len()).zip(self.extra.list()) {
            if let Some(maker) = self.maker(field.name().as_bytes())
                && let Some((from, _)) =
                    self.find(maker.derivation.from()).filter(|&(from, _)| from < values.len())
            {
                values[to] = maker.make(field, &values[from]);
            }
        }
    }

    fn maker(&self, name: &[u8]) -> Option<&Maker> {
        self.makers.iter().find(|maker| is_same_name(maker.name.as_bytes(), name))
    }

    pub(super) fn is_derived(&self, name: &[u8]) -> bool {
        self.maker(name).is_some()
    }

    /// The field that a block names. If the policy does not use this field, adds it and, before it, any
    /// origin. None if there are too many fields.
    pub(super) fn for_block(&self, name: &str) -> Option<(Place, &Field)> {
        if let Some(maker) = self.maker(name.as_bytes()) {
            self.for_block(maker.derivation.from())?;
        }
        let is_address =
            name == "source" || self.makers.iter().any(|maker| maker.derivation.needs_address(name));
        if self.find(name).is_none() && !self.extra.add(Field::new(name, is_address)) {
            return None;
        }
        let (place, field) = self.find(name)?;
        let derived = self.derived.iter().filter(|derived| derived.to == place);
        derived.for_each(|derived| derived.is_needed.store(true, Relaxed));
        Some((place, field))
    }

    pub(super) fn name(&self, place: Place) -> &str {
        self.fields[place].name()
    }

    /// The leading bits of an address that are part of the keys of a type.
    #[inline]
    pub(super) fn masks_of(&self, kind: u16) -> Masks {
        self.type_masks[usize::from(kind)]
    }

    /// The leading bits of an address that count where no type applies, as in shares and blocks.
    pub(super) fn masks(&self) -> Masks {
        self.masks
    }

    /// The number of leading bits of an address that identify one customer. None if the whole address does.
    pub(super) fn prefix(&self, masks: Masks, place: Place, value: Value<'_>) -> Option<u8> {
        let Value::Address(address) = value else { return None };
        let (prefix, whole) = (masks.prefix(address), if address.is_ipv4() { 32 } else { 128 });
        (self.fields[place].is_address() && prefix < whole).then_some(prefix)
    }

    /// The fields with the cost and the announced work.
    pub(super) fn measures(&self) -> impl Iterator<Item = Place> {
        [self.cost].into_iter().chain(self.announced)
    }

    /// The values that are present, with the names of their fields.
    pub(super) fn named<'s, 'a: 's>(
        &'s self,
        values: Values<'s, 'a>,
    ) -> impl Iterator<Item = (&'s [u8], Value<'s>)> {
        let named =
            |(field, value): (&'s Field, &'s Option<Value<'a>>)| Some((field.name().as_bytes(), (*value)?));
        self.fields.iter().chain(self.extra.list()).zip(values.0).filter_map(named)
    }

    pub(super) fn is_address(&self, place: Place) -> bool {
        self.fields[place].is_address()
    }

    /// Adds a value to a key. An address field adds the network of one customer; other fields add the text
    /// that a map would hold. A missing value counts as an empty one.
    #[inline]
    pub(super) fn hash(&self, hasher: &mut KeyHasher, masks: Masks, place: Place, values: Values<'_, '_>) {
        match &values.0[place] {
            Some(Value::Address(address)) if self.fields[place].is_address() => {
                hasher.address(masks.customer(*address))
            }
            Some(value) => hasher.part(Text::default().of(value)),
            None => hasher.part(b""),
        };
    }
}

/// The maximum number of fields that only blocks use. Each such field takes a place in every request of a batch.
pub const EXTRA_MAX: usize = 8;

/// Fields added to a policy while it is in force, in the order in which they were added. They are never
/// removed, but the next policy starts without any.
#[derive(Debug, Default)]
pub(super) struct ExtraFields {
    fields: [OnceLock<Field>; EXTRA_MAX],
    count: AtomicUsize,
}

impl ExtraFields {
    /// The number of added fields. A batch that begins now has a place for each of them.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(super) fn list(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().map_while(OnceLock::get)
    }

    /// Adds a field with a new name. Returns false if there are too many fields.
    pub(super) fn add(&self, field: Field) -> bool {
        let mut field = Some(field);
        for place in &self.fields {
            place.get_or_init(|| field.take().expect("the field is taken only once: the loop then ends"));
            if field.is_none() {
                self.count.fetch_add(1, Relaxed);
                return true;
            }
        }
        false
    }
}

/// The place of a field's value in a request, if the request has a place for it.
#[derive(Clone, Copy, Debug)]
pub struct FieldPlace(Option<Place>);

/// A request that is filled in, field by field, while its bytes are read.
#[derive(Debug)]
pub struct Draft<'p, 'v, 'a> {
    fields: &'p [Field],
    extra: &'p ExtraFields,
    values: &'v mut [Option<Value<'a>>],
    /// The number of fields that the request may still carry.
    left: usize,
}

impl<'p, 'v, 'a> Draft<'p, 'v, 'a> {
    /// A draft that fills `values`, which must have an empty place for each field.
    pub(super) fn new(fields: &'p Fields, values: &'v mut [Option<Value<'a>>]) -> Draft<'p, 'v, 'a> {
        Draft { fields: &fields.fields, extra: &fields.extra, values, left: FIELDS_MAX }
    }

    /// Adds a field. If several fields have the same name, the first is used. Fields after the 32nd are ignored.
    #[inline]
    pub fn field(&mut self, name: &[u8], value: Value<'a>) {
        self.field_at(self.place_of(name), value);
    }

    /// The place of a field in the requests of this batch, and of every batch with the same policy and width.
    #[inline]
    pub fn place_of(&self, name: &[u8]) -> FieldPlace {
        let head = Head::of(name);
        let as_written = self.fields.iter().position(|field| field.is_written(head, name));
        let place = as_written.or_else(|| {
            if head.may_be_spelled_otherwise() { self.place_of_other_spelling(name) } else { None }
        });
        let is_extra = place.is_none() && self.values.len() > self.fields.len();
        FieldPlace(if is_extra { self.place_of_extra(name) } else { place })
    }

    /// Takes a field whose place is known.
    #[inline]
    pub fn field_at(&mut self, place: FieldPlace, value: Value<'a>) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        let Some(place) = place.0 else { return };
        if self.values[place].is_some() {
            return;
        }
        match self.fields.get(place) {
            Some(field) => field.put(value, &mut self.values[place]),
            None => self.put_extra(place, value),
        }
    }

    /// The place of a field that only blocks use. A batch that began before the field was added has no such place.
    #[cold]
    fn place_of_extra(&self, name: &[u8]) -> Option<Place> {
        let places = self.fields.len()..self.values.len();
        places.zip(self.extra.list()).find(|(_, field)| field.is_named(name)).map(|(place, _)| place)
    }

    #[cold]
    fn put_extra(&mut self, place: Place, value: Value<'a>) {
        if let Some(field) = self.extra.list().nth(place - self.fields.len()) {
            field.put(value, &mut self.values[place]);
        }
    }

    /// The place of a name in another spelling: headers have `-` where variables have `_`. Most names have neither.
    fn place_of_other_spelling(&self, name: &[u8]) -> Option<Place> {
        if !name.iter().any(|byte| matches!(byte, b'-' | b'_')) {
            return None;
        }
        self.fields.iter().position(|field| field.is_named(name))
    }
}

/// The values of a request, one for each of the [`Fields`].
#[derive(Clone, Copy)]
pub(super) struct Values<'v, 'a>(pub(super) &'v [Option<Value<'a>>]);

impl<'v, 'a> Values<'v, 'a> {
    /// The value of a field. None if it is absent, or if the field was added after the batch began.
    pub(super) fn get(self, place: Place) -> Option<&'v Value<'a>> {
        self.0.get(place)?.as_ref()
    }

    pub(super) fn address(self, place: Place) -> Option<IpAddr> {
        match self.0[place] {
            Some(Value::Address(address)) => Some(address),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn is_no_host(self, place: Place) -> bool {
        matches!(self.0[place], Some(Value::NoHost(_)))
    }

    /// The values joined by `+`, or `None` if one is missing. A single text value is not copied.
    pub(super) fn joined<'t>(self, places: &[Place], text: &'t mut Text) -> Option<&'t [u8]>
    where
        'v: 't,
    {
        match *places {
            [] => Some(b""),
            [place] => Some(text.of(self.0[place].as_ref()?)),
            [first, ref others @ ..] => {
                text.push(self.0[first].as_ref()?);
                for &place in others {
                    text.push_bytes(b"+");
                    text.push(self.0[place].as_ref()?);
                }
                Some(text.bytes())
            }
        }
    }
}

/// The number of bytes that can be joined on the stack. Longer text is rare and may allocate.
const STACK_BYTES: usize = 256;

/// Values in the notation of a map: addresses in canonical form, numbers in decimal, hosts in lower case.
#[derive(Debug, Default)]
pub struct Text {
    stack: ArrayVec<u8, STACK_BYTES>,
    heap: Vec<u8>,
}

impl Text {
    /// One value in the notation of a map. Text is not copied.
    pub fn of<'t>(&'t mut self, value: &Value<'t>) -> &'t [u8] {
        if let Value::Text(text) = *value {
            return text;
        }
        self.push(value);
        self.bytes()
    }

    fn push(&mut self, value: &Value<'_>) {
        let written = match *value {
            Value::Text(text) | Value::NoHost(text) => return self.push_bytes(text),
            Value::Name(name) => {
                return name.iter().for_each(|byte| self.push_bytes(&[byte.to_ascii_lowercase()]));
            }
            Value::Base { text, path } => {
                let (host, path) = text.split_at(path);
                return self.push_bytes(&in_one_form(host, path).unwrap_or_default());
            }
            Value::Address(address) => write!(self, "{address}"),
            Value::Number(number) => write!(self, "{number}"),
            Value::Network(network) => write!(self, "{network}"),
        };
        written.expect("writing to memory cannot fail");
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        if self.heap.is_empty() {
            if self.stack.try_extend_from_slice(bytes).is_ok() {
                return;
            }
            self.heap.extend_from_slice(&self.stack);
        }
        self.heap.extend_from_slice(bytes);
    }

    fn bytes(&self) -> &[u8] {
        if self.heap.is_empty() { &self.stack } else { &self.heap }
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_bytes(text.as_bytes());
        Ok(())
    }
}
