//! The parts of a snapshot, and the reader of them.

use std::io::{Read, Write};
use std::time::Duration;
use std::{fmt, io};

use serde::{Deserialize, Serialize};

use crate::base::key::{Key, KeySecret};
use crate::base::time::Timestamp;
use crate::snapshot::error::SnapshotError;
use crate::snapshot::frames::{FrameReader, FrameWriter};
use crate::table::Entry;
use crate::throttle::AuxCopy;

/// A part of a snapshot. The first is the head, the last the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Part {
    Head(Head),
    Rows(Vec<Row>),
    /// What a key has beside its row, and the moment at which it expires.
    AuxCopy(Key, Timestamp, AuxCopy),
    Blocks(Vec<SavedBlock>),
    /// The number of parts before it.
    End(u64),
    /// Keys that are to be forgotten, before parts with what they are now.
    Gone(Vec<Key>),
}

/// What has to be known before the rest is put back.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The moment of the snapshot, on the clock of the process.
    pub saved_at: Timestamp,
    /// The same moment on the wall clock, since 1970.
    pub wall: Duration,
    secret: String,
    /// The SLOs of that moment: each with its number and its promise.
    pub slos: Vec<(u16, String)>,
}

impl Head {
    pub fn new(saved_at: Timestamp, wall: Duration, secret: KeySecret, slos: Vec<(u16, String)>) -> Head {
        Head { saved_at, wall, secret: secret.to_hex(), slos }
    }

    /// The secret of the saved keys. None: there is none that can be read.
    pub fn key_secret(&self) -> Option<KeySecret> {
        KeySecret::read(self.secret.as_bytes())
    }
}

/// Without the secret.
impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Head { saved_at, wall, secret: _, slos } = self;
        f.debug_struct("Head")
            .field("saved_at", saved_at)
            .field("wall", wall)
            .field("slos", slos)
            .finish_non_exhaustive()
    }
}

/// The rest of a row's lifetime at the moment of the snapshot, in milliseconds, rounded down: a moment would take
/// more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lifetime(u64);

impl Lifetime {
    pub(super) fn of(left: Duration) -> Lifetime {
        Lifetime(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
    }

    /// What is left of it after some time. None: it is over.
    pub(super) fn after(self, age: Duration) -> Option<Duration> {
        Duration::from_millis(self.0).checked_sub(age).filter(|left| !left.is_zero())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) left: Lifetime,
    pub(super) entry: Entry,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedBlock {
    pub(super) target: String,
    pub(super) until: Timestamp,
    pub(super) slo: Option<u16>,
    pub(super) is_dry_run: bool,
}

/// Writes parts.
pub(super) struct PartWriter<W> {
    frames: FrameWriter<W>,
    bytes: Vec<u8>,
    parts: u64,
}

impl<W: Write> PartWriter<W> {
    pub(super) fn new(to: W) -> io::Result<PartWriter<W>> {
        Ok(PartWriter { frames: FrameWriter::new(to)?, bytes: Vec::new(), parts: 0 })
    }

    pub(super) fn write(&mut self, part: &Part) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.bytes = postcard::to_extend(part, bytes).map_err(io::Error::other)?;
        self.parts += 1;
        self.frames.write(&self.bytes)
    }

    /// Writes the end. Returns the bytes of the whole snapshot.
    pub(super) fn end(mut self) -> io::Result<u64> {
        self.write(&Part::End(self.parts))?;
        Ok(self.frames.bytes())
    }
}

/// The parts of a snapshot, read one by one.
pub struct Parts<R> {
    frames: FrameReader<R>,
    pub head: Head,
}

impl<R: Read> Parts<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// It is no snapshot, one of another version, or one that has no head.
    pub fn new(from: R) -> Result<Parts<R>, SnapshotError> {
        let mut frames = FrameReader::new(from)?;
        let first = frames.next()?.ok_or(SnapshotError::CutOff)?;
        match decoded(first, 0)? {
            Part::Head(head) => Ok(Parts { frames, head }),
            _ => Err(SnapshotError::Damaged(0)),
        }
    }

    /// The next part. None: it was the end, and nothing comes after it.
    pub(super) fn next(&mut self) -> Result<Option<Part>, SnapshotError> {
        let number = self.frames.count();
        match decoded(self.frames.next()?.ok_or(SnapshotError::CutOff)?, number)? {
            Part::Head(_) => Err(SnapshotError::Damaged(number)),
            Part::End(parts) if parts == number && self.frames.next()?.is_none() => Ok(None),
            Part::End(_) => Err(SnapshotError::Damaged(number)),
            part => Ok(Some(part)),
        }
    }

    /// Reads to the end, to see whether all of it is whole. Only the end is decoded: the checksums tell the rest.
    ///
    /// # Errors
    /// It is not.
    pub fn check(mut self) -> Result<(), SnapshotError> {
        while self.frames.next()?.is_some() {}
        let before = self.frames.count() - 1;
        match decoded(self.frames.payload(), before) {
            Ok(Part::End(parts)) if parts == before => Ok(()),
            _ => Err(SnapshotError::CutOff),
        }
    }
}

fn decoded(payload: &[u8], number: u64) -> Result<Part, SnapshotError> {
    match postcard::take_from_bytes(payload) {
        Ok((part, [])) => Ok(part),
        _ => Err(SnapshotError::Damaged(number)),
    }
}
