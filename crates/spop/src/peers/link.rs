//! One connection between two peers: the tables of both sides, and their acknowledgements.
//!
//! ```text
//! begin ─▶ resync request ─▶ definitions and updates of all tables ─▶ finished (or partial) ─▶ confirmed
//!          each side does this for itself; then updates are sent as they happen, and each batch is acknowledged
//! ```
//! HAProxy sends no update before its own resync request is answered. An answer sent before that request does not
//! count.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cursor::Cursor;
use crate::peers::frame::{
    ACK, CONTROL, DEFINE, ERROR, Frame, HEARTBEAT, INCREMENTAL, INCREMENTAL_TIMED, PROTOCOL,
    RESYNC_CONFIRMED, RESYNC_FINISHED, RESYNC_PARTIAL, RESYNC_REQUEST, SIZE_LIMIT, STICK_TABLE, SWITCH,
    UPDATE, UPDATE_TIMED, control, ended,
};
use crate::peers::{Column, Definition, Error, KeyType, Update, update};
use crate::varint;

/// The maximum number of tables of the other side.
pub const TABLES_MAX: usize = 64;

/// If this side sends nothing for this long, a heartbeat is due. HAProxy expects one every 3 s, and gives up after 5 s.
const HEARTBEAT_AFTER: Duration = Duration::from_secs(2);

/// The shortest time between two acknowledgements. Each acknowledgement costs HAProxy a wake-up and a read,
/// but HAProxy uses only the last one, after the connection has ended.
const BETWEEN_ACKS: Duration = Duration::from_millis(100);

/// A peer that is silent for this long counts as disconnected. HAProxy sends a heartbeat every 3 s.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The state of a connection. Each `now` is the time since a fixed moment, which is the same for all calls.
///
/// ```
/// use std::time::Duration;
/// use spop::peers::{Link, News};
///
/// let (now, mut out) = (Duration::from_secs(1), Vec::new());
/// let mut link = Link::begin(now, &mut out);
/// assert_eq!(out, b"\0\0", "it asks for all entries");
/// out.clear();
/// // A table `t` of integers with http_req_cnt: key 5 has 3 requests.
/// let bytes = b"\x0a\x82\x08\x01\x01t\x02\x04\xf0\x11\x05\x0a\x80\x09\0\0\0\x07\0\0\0\x05\x03";
/// let mut updates = Vec::new();
/// let read = link.receive(bytes, now, &mut out, &mut |news| {
///     if let News::Updated(table, update) = news {
///         updates.push((table.name.clone(), update.column(table, 9)[0]));
///     }
/// });
/// assert_eq!((read, updates), (Ok(bytes.len()), vec![("t".to_owned(), 3)]));
/// assert_eq!(out, b"\x0a\x84\x05\x01\0\0\0\x07", "it acknowledges update 7 of table 1");
/// ```
#[derive(Debug)]
pub struct Link {
    theirs: BTreeMap<u64, Table>,
    current: Option<u64>,
    ours: Vec<Table>,
    /// The index in `ours` of the table to which pushed updates belong.
    ours_current: Option<usize>,
    read_at: Duration,
    sent_at: Duration,
    acknowledged_at: Option<Duration>,
    has_all: bool,
}

#[derive(Debug)]
struct Table {
    definition: Definition,
    /// The number of the last update.
    last: u32,
    /// The number of the last update that the receiver has acknowledged.
    acknowledged: u32,
}

/// An event from the other side.
#[derive(Debug)]
pub enum News<'a> {
    Defined(&'a Definition),
    Updated(&'a Definition, Update<'a>),
    /// The other side has sent all the entries that are available to it.
    Synced,
    /// The other side has requested all entries, so it may have lost earlier pushes.
    Asked,
}

impl Link {
    /// Requests all entries, right after the handshake. HAProxy then defines every table, including empty ones.
    pub fn begin(now: Duration, out: &mut Vec<u8>) -> Link {
        control(RESYNC_REQUEST, out);
        Link {
            theirs: BTreeMap::new(),
            current: None,
            ours: Vec::new(),
            ours_current: None,
            read_at: now,
            sent_at: now,
            acknowledged_at: None,
            has_all: false,
        }
    }

    /// Processes all whole messages, and returns their total length. Answers are appended to `out`.
    ///
    /// # Errors
    /// The other side breaks the protocol, or reports an error. The connection must end.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now: Duration,
        out: &mut Vec<u8>,
        news: &mut impl FnMut(News<'_>),
    ) -> Result<usize, Error> {
        let mut consumed = 0;
        while let Some((Frame { class, kind, body }, length)) = Frame::cut(&bytes[consumed..])? {
            self.read_at = now;
            match (class, kind) {
                (CONTROL, RESYNC_REQUEST) => {
                    control(RESYNC_FINISHED, out);
                    news(News::Asked);
                }
                (CONTROL, RESYNC_FINISHED | RESYNC_PARTIAL) => {
                    control(RESYNC_CONFIRMED, out);
                    self.has_all = true;
                    news(News::Synced);
                }
                (CONTROL, RESYNC_CONFIRMED | HEARTBEAT) => {}
                (ERROR, PROTOCOL) => return Err(Error::Reported("protocol")),
                (ERROR, SIZE_LIMIT) => return Err(Error::Reported("size limit")),
                (STICK_TABLE, DEFINE) => self.defined(Definition::decode(body)?, news)?,
                (STICK_TABLE, SWITCH) => self.switched(body)?,
                (STICK_TABLE, ACK) => self.acknowledged(body)?,
                (STICK_TABLE, UPDATE | INCREMENTAL | UPDATE_TIMED | INCREMENTAL_TIMED) => {
                    let table = self.current.and_then(|id| self.theirs.get_mut(&id)).ok_or(Error::NoTable)?;
                    let update = Update::decode(kind, body, &table.definition)?;
                    table.last = update.id.unwrap_or(table.last.wrapping_add(1));
                    news(News::Updated(&table.definition, update));
                }
                (CONTROL | ERROR | STICK_TABLE, _) => return Err(Error::UnknownType { class, kind }),
                _ => return Err(Error::UnknownClass(class)),
            }
            consumed += length;
        }
        self.acknowledge(now, out);
        Ok(consumed)
    }

    /// Acknowledges the last update of each table with new updates, at most once per [`BETWEEN_ACKS`].
    fn acknowledge(&mut self, now: Duration, out: &mut Vec<u8>) {
        if self.acknowledged_at.is_some_and(|at| now.saturating_sub(at) < BETWEEN_ACKS) {
            return;
        }
        for table in self.theirs.values_mut().filter(|table| table.acknowledged != table.last) {
            table.acknowledged = table.last;
            append(ACK, out, |body| {
                varint::encode(table.definition.id, body);
                body.extend_from_slice(&table.last.to_be_bytes());
            });
            self.acknowledged_at = Some(now);
        }
    }

    fn defined(&mut self, definition: Definition, news: &mut impl FnMut(News<'_>)) -> Result<(), Error> {
        let id = definition.id;
        self.current = Some(id);
        // A second definition does not restart the numbering of the table's updates.
        if let Some(table) = self.theirs.get_mut(&id) {
            table.definition = definition;
        } else if self.theirs.len() < TABLES_MAX {
            self.theirs.insert(id, Table { definition, last: 0, acknowledged: 0 });
        } else {
            return Err(Error::TooManyTables(TABLES_MAX));
        }
        news(News::Defined(&self.theirs[&id].definition));
        Ok(())
    }

    fn switched(&mut self, body: &[u8]) -> Result<(), Error> {
        let mut cursor = Cursor::new(body);
        let table = cursor.varint()?;
        ended(cursor)?;
        self.current = Some(table);
        if self.theirs.contains_key(&table) { Ok(()) } else { Err(Error::UnknownTable(table)) }
    }

    fn acknowledged(&mut self, body: &[u8]) -> Result<(), Error> {
        let mut cursor = Cursor::new(body);
        let (table, update) = (cursor.varint()?, u32::from_be_bytes(cursor.array()?));
        ended(cursor)?;
        if let Some(table) = self.ours.iter_mut().find(|one| one.definition.id == table) {
            table.acknowledged = update;
        }
        Ok(())
    }

    /// Appends an update of a key in a table that the other side has defined, with `values` for the table's `gpt`
    /// column. Returns false if the other side has no such table with string keys and a `gpt` column of this length.
    pub fn push(&mut self, name: &str, key: &[u8], values: &[u64], out: &mut Vec<u8>) -> bool {
        let known = self.ours.iter().position(|table| table.definition.name == name);
        let Some(place) = known.or_else(|| self.take_up(name)) else { return false };
        let table = &mut self.ours[place];
        if table.definition.place(Column::GPT) != Some((0, values.len())) {
            return false;
        }
        if self.ours_current != Some(place) {
            append(DEFINE, out, |body| table.definition.encode(body));
            self.ours_current = Some(place);
        }
        table.last = table.last.wrapping_add(1);
        append(UPDATE, out, |body| update::encode(table.last, key, values, body));
        true
    }

    /// Adds a table of this side as a copy of the other side's table. Only the `gpt` column is sent; HAProxy leaves the
    /// other columns unchanged. Pushed keys are strings, which HAProxy would misread in a table of another key type.
    fn take_up(&mut self, name: &str) -> Option<usize> {
        let is_pushed =
            |table: &&Table| table.definition.name == name && table.definition.key_type == KeyType::String;
        let theirs = self.theirs.values().find(is_pushed)?;
        let columns = theirs.definition.columns.iter().copied();
        let columns: Vec<Column> = columns.filter(|column| column.number == Column::GPT).collect();
        if columns.is_empty() {
            return None;
        }
        let id = self.ours.len() as u64 + 1;
        let definition = Definition { id, columns, ..theirs.definition.clone() };
        self.ours.push(Table { definition, last: 0, acknowledged: 0 });
        Some(self.ours.len() - 1)
    }

    /// Appends a heartbeat and any acknowledgements that are due. Call this function at least every second.
    ///
    /// # Errors
    /// The other side has been silent for too long. The error is the duration of the silence.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<u8>) -> Result<(), Duration> {
        let silence = now.saturating_sub(self.read_at);
        if silence > SILENCE_MAX {
            return Err(silence);
        }
        if now.saturating_sub(self.sent_at) >= HEARTBEAT_AFTER {
            control(HEARTBEAT, out);
        }
        self.acknowledge(now, out);
        Ok(())
    }

    /// Notes that something was sent.
    pub fn sent(&mut self, now: Duration) {
        self.sent_at = now;
    }

    /// Whether the other side has sent all the entries that are available to it.
    pub fn has_all(&self) -> bool {
        self.has_all
    }

    /// The tables of the other side.
    pub fn tables(&self) -> impl Iterator<Item = &Definition> {
        self.theirs.values().map(|table| &table.definition)
    }

    /// The number of updates that the other side has not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.ours.iter().map(|table| u64::from(table.last.wrapping_sub(table.acknowledged))).sum()
    }
}

/// Appends a message about a table. `write` appends the message's body.
fn append(kind: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    write(&mut body);
    Frame { class: STICK_TABLE, kind, body: &body }.encode(out);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Duration = Duration::from_millis(60_000);

    fn table(id: u64, name: &str, column: u32, values: u32) -> Definition {
        let columns = vec![Column { number: column, values, period_ms: None }];
        let expire = Some(Duration::from_secs(10));
        Definition { id, name: name.into(), key_type: KeyType::String, key_bytes: 65, columns, expire }
    }

    fn define(table: &Definition, out: &mut Vec<u8>) {
        append(DEFINE, out, |body| table.encode(body));
    }

    fn quiet(_: News<'_>) {}

    fn begun() -> Link {
        Link::begin(NOW, &mut Vec::new())
    }

    /// HAProxy would read the text of a key as an address, and limit that one.
    #[test]
    fn keys_of_another_type_are_not_taught() {
        for key_type in [KeyType::Int, KeyType::Ipv4, KeyType::Ipv6, KeyType::Binary] {
            let (mut link, mut bytes, mut out) = (begun(), Vec::new(), Vec::new());
            let limits = Definition { key_type, ..table(7, "slowlane_limits", Column::GPT, 4) };
            define(&limits, &mut bytes);
            link.receive(&bytes, NOW, &mut out, &mut quiet).unwrap();
            assert!(!link.push("slowlane_limits", b"192.0.2.1", &[1, 0, 0, 5], &mut out), "{key_type:?}");
            assert!(out.is_empty());
        }
    }

    #[test]
    fn of_the_columns_of_a_table_only_the_numbers_are_taught() {
        let (mut haproxy, mut slowlane, mut bytes) = (begun(), begun(), Vec::new());
        let numbers = table(7, "slowlane_limits", Column::GPT, 4);
        let rate = Column { number: Column::GPC_RATE, values: 1, period_ms: Some(10_000) };
        let columns = [numbers.columns.clone(), vec![rate]].concat();
        define(&Definition { columns, ..numbers.clone() }, &mut bytes);
        slowlane.receive(&bytes, NOW, &mut Vec::new(), &mut quiet).unwrap();

        let (mut pushed, mut columns) = (Vec::new(), Vec::new());
        assert!(slowlane.push("slowlane_limits", b"192.0.2.1", &[1, 0, 0, 5], &mut pushed));
        let mut note = |news: News<'_>| {
            if let News::Updated(table, _) = news {
                columns.clone_from(&table.columns);
            }
        };
        haproxy.receive(&pushed, NOW, &mut Vec::new(), &mut note).unwrap();
        assert_eq!(columns, numbers.columns);
    }

    /// Every request is an update: an answer to each would cost the other side as much again.
    #[test]
    fn updates_in_quick_succession_have_one_acknowledgement() {
        let (mut haproxy, mut link, mut bytes) = (begun(), begun(), Vec::new());
        define(&table(7, "slowlane_limits", Column::GPT, 4), &mut bytes);
        link.receive(&bytes, NOW, &mut Vec::new(), &mut quiet).unwrap();
        let mut acks_after = |ms: u64, is_updated: bool| {
            let (now, mut update, mut acks) = (NOW + Duration::from_millis(ms), Vec::new(), Vec::new());
            if is_updated {
                assert!(link.push("slowlane_limits", b"192.0.2.1", &[1, 0, 0, 5], &mut update));
                haproxy.receive(&update, now, &mut acks, &mut quiet).unwrap();
            } else {
                haproxy.tick(now, &mut acks).unwrap();
            }
            link.receive(&acks, now, &mut Vec::new(), &mut quiet).unwrap();
            (acks.is_empty(), link.unacknowledged())
        };
        assert_eq!(acks_after(0, true), (false, 0));
        assert_eq!(acks_after(1, true), (true, 1));
        assert_eq!(acks_after(99, true), (true, 2));
        assert_eq!(acks_after(100, false), (false, 0));
        assert_eq!(acks_after(150, true), (true, 1));
        assert_eq!(acks_after(200, true), (false, 0));
    }

    /// What one side sends, the other reads, however the bytes arrive.
    #[test]
    fn a_key_is_taught_with_all_its_numbers() {
        let (mut haproxy, mut slowlane, mut bytes) = (begun(), begun(), Vec::new());
        define(&table(7, "slowlane_limits", Column::GPT, 4), &mut bytes);
        let mut answers = Vec::new();
        slowlane.receive(&bytes, NOW, &mut answers, &mut quiet).unwrap();
        assert!(answers.is_empty(), "there is no update to acknowledge");

        let mut pushed = Vec::new();
        assert!(slowlane.push(
            "slowlane_limits",
            b"192.0.2.1",
            &[20_000, 2_000_000, 7_000_000, 0],
            &mut pushed
        ));
        assert!(slowlane.push("slowlane_limits", b"192.0.2.2", &[1, 0, 0, 5], &mut pushed));
        assert!(!slowlane.push("slowlane_limits", b"192.0.2.2", &[1, 0, 0], &mut pushed), "too few values");
        assert!(!slowlane.push("unknown", b"192.0.2.2", &[1, 0, 0, 5], &mut pushed));
        assert_eq!(slowlane.unacknowledged(), 2);

        let (mut read, mut rest, mut acks) = (Vec::new(), Vec::new(), Vec::new());
        for byte in pushed {
            rest.push(byte);
            let mut note = |news: News<'_>| {
                if let News::Updated(table, update) = news {
                    read.push((table.name.clone(), update.key.to_vec(), update.values));
                }
            };
            let length = haproxy.receive(&rest, NOW, &mut acks, &mut note).unwrap();
            rest.drain(..length);
        }
        let limits = "slowlane_limits".to_owned();
        assert_eq!(read[0], (limits.clone(), b"192.0.2.1".to_vec(), vec![20_000, 2_000_000, 7_000_000, 0]));
        assert_eq!(read[1], (limits, b"192.0.2.2".to_vec(), vec![1, 0, 0, 5]));
        haproxy.tick(NOW + BETWEEN_ACKS, &mut acks).unwrap();
        slowlane.receive(&acks, NOW, &mut Vec::new(), &mut quiet).unwrap();
        assert_eq!(slowlane.unacknowledged(), 0);
    }

    #[test]
    fn a_resync_is_answered_when_it_is_asked_for() {
        let (mut link, mut out, mut reported) = (begun(), Vec::new(), Vec::new());
        let mut note = |news: News<'_>| {
            reported.push(match news {
                News::Asked => "asked",
                News::Synced => "synced",
                News::Defined(_) | News::Updated(..) => "table",
            });
        };
        link.receive(b"\x00\x04", NOW, &mut out, &mut note).unwrap();
        assert!(out.is_empty());
        link.receive(b"\x00\x00\x00\x02\x00\x03", NOW, &mut out, &mut note).unwrap();
        assert_eq!(out, b"\x00\x01\x00\x03");
        assert_eq!(reported, ["asked", "synced"]);
        assert!(link.has_all());
    }

    #[test]
    fn heartbeats_come_in_time_and_silence_ends_it() {
        let (mut link, mut out) = (begun(), Vec::new());
        let at = |seconds| NOW + Duration::from_secs(seconds);
        link.tick(at(1), &mut out).unwrap();
        assert!(out.is_empty());
        link.tick(at(2), &mut out).unwrap();
        assert_eq!(out, b"\x00\x04");
        link.sent(at(2));
        link.tick(at(3), &mut out).unwrap();
        assert_eq!(out.len(), 2);
        assert!(link.tick(at(10), &mut out).is_ok());
        assert!(link.tick(at(11), &mut out).is_err());
        link.receive(b"\x00\x04", at(11), &mut out, &mut quiet).unwrap();
        assert!(link.tick(at(12), &mut out).is_ok());
    }

    #[test]
    fn an_incremental_update_follows_the_one_before() {
        let (mut link, mut out) = (begun(), Vec::new());
        let counts = table(1, "t", 9, 1);
        let mut bytes = Vec::new();
        define(&counts, &mut bytes);
        append(UPDATE, &mut bytes, |body| update::encode(u32::MAX, b"k", &[3], body));
        let incremental = b"\x0a\x81\x03\x01k\x03";
        bytes.extend_from_slice(&[*incremental; 2].concat());
        link.receive(&bytes, NOW, &mut out, &mut quiet).unwrap();
        assert_eq!(out, b"\x0a\x84\x05\x01\0\0\0\x01", "update 1 follows 0, which follows 2^32 - 1");
    }

    #[test]
    fn updates_need_a_table_and_tables_have_a_most() {
        let mut out = Vec::new();
        let update = b"\x0a\x80\x05\0\0\0\x01\x00";
        assert_eq!(begun().receive(update, NOW, &mut out, &mut quiet), Err(Error::NoTable));
        assert_eq!(
            begun().receive(b"\x0a\x83\x01\x05", NOW, &mut out, &mut quiet),
            Err(Error::UnknownTable(5))
        );
        for (error, reported) in [(Error::NoTable, "protocol"), (Error::TooLongName(9), "size limit")] {
            let mut bytes = Vec::new();
            error.encode(&mut bytes);
            let received = begun().receive(&bytes, NOW, &mut out, &mut quiet);
            assert_eq!(received, Err(Error::Reported(reported)));
        }
        let mut bytes = Vec::new();
        (0..=TABLES_MAX as u64).for_each(|id| define(&table(id, "t", 9, 1), &mut bytes));
        let many = begun().receive(&bytes, NOW, &mut out, &mut quiet);
        assert_eq!(many, Err(Error::TooManyTables(TABLES_MAX)));
    }

    #[test]
    fn messages_that_do_not_exist_are_refused() {
        for (bytes, error) in [
            (&b"\x00\x05"[..], Error::UnknownType { class: 0, kind: 5 }),
            (b"\x01\x02", Error::UnknownType { class: 1, kind: 2 }),
            (b"\x0a\x87\x00", Error::UnknownType { class: 10, kind: 0x87 }),
            (b"\x0b\x01", Error::UnknownClass(11)),
            (b"\x0a\x83\x02\x01\x01", Error::TooLong(1)),
        ] {
            assert_eq!(begun().receive(bytes, NOW, &mut Vec::new(), &mut quiet), Err(error));
        }
    }

    proptest! {
        #[test]
        fn any_frame_is_read_or_refused(class in 0..12_u8, kind: u8, body: Vec<u8>) {
            let (mut link, mut bytes) = (begun(), Vec::new());
            define(&table(1, "t", 9, 1), &mut bytes);
            Frame { class, kind, body: &body }.encode(&mut bytes);
            let _ = link.receive(&bytes, NOW, &mut Vec::new(), &mut quiet);
        }

        /// Any bytes in any pieces: the same news, and the same end.
        #[test]
        fn pieces_do_not_matter(bytes: Vec<u8>, piece in 1..9_usize) {
            let mut start = Vec::new();
            define(&table(1, "t", 9, 1), &mut start);
            let bytes = [&start[..], &bytes].concat();
            let serve = |pieces: &mut dyn Iterator<Item = &[u8]>| {
                let (mut link, mut rest, mut reported) = (begun(), Vec::new(), 0);
                for piece in pieces {
                    rest.extend_from_slice(piece);
                    match link.receive(&rest, NOW, &mut Vec::new(), &mut |_| reported += 1) {
                        Ok(length) => drop(rest.drain(..length)),
                        Err(error) => return (reported, Some(error)),
                    }
                }
                (reported, None)
            };
            let whole = serve(&mut std::iter::once(&bytes[..]));
            prop_assert_eq!(serve(&mut bytes.chunks(piece)), whole);
        }
    }
}
