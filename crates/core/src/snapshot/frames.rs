//! Frames: the bytes of a snapshot. Each frame holds one part and the checksum of that part.
//!
//! ```text
//! "slowlane state", version ─ 2 bytes │ frame │ frame │ …
//! frame:  length ─ 4 bytes │ checksum ─ 8 bytes │ payload
//! ```
//! Numbers are little-endian. The checksum is XXH3-64 of the payload. The seed is the number of the frame, from 0, with
//! the version in the upper half of the first frame's seed. Changed, swapped and missing frames are thus detected. This
//! protects against accidents, but not against forgers: only the owner of the file can write to it.

use std::io::{self, Read, Write};

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::snapshot::{SnapshotHead, SnapshotPart};

/// The version of the layout, which changes with any type that a part contains, and with the meaning of a law's state.
pub const VERSION: u16 = 6;

/// The oldest layout that can still be read. It has neither notes nor reservations of work.
const OLDEST_READ: u16 = 3;

/// The first layout in which the checksum of the first frame includes the version.
const SEALS_VERSION: u16 = 6;

/// The maximum size of a payload. The largest payload is an auxiliary state of 512 KiB, whose 8-byte numbers take up to
/// ten bytes each.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

const NAME: &[u8; 14] = b"slowlane state";

/// The size of the length and the checksum of a frame.
const HEAD_BYTES: u64 = 12;

/// The reason why a file cannot be restored as a snapshot.
#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error("the file is not a slowlane snapshot")]
    Foreign,
    #[error("the file has layout {0}, but this slowlane reads only layouts {OLDEST_READ} to {VERSION}")]
    Version(u16),
    #[error("the file is truncated")]
    CutOff,
    #[error("the file is damaged: part {0} does not match its checksum")]
    Damaged(u64),
    #[error("the file is larger than {0} bytes, the maximum for this table and its auxiliary state")]
    Huge(u64),
    #[error("the snapshot's time is {0} ahead of this machine's clock")]
    Future(String),
    #[error(transparent)]
    Unreadable(io::Error),
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> SnapshotError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => SnapshotError::CutOff,
            _ => SnapshotError::Unreadable(error),
        }
    }
}

/// Writes parts, each in a frame, and counts them.
pub struct PartWriter<W> {
    to: W,
    parts: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

impl<W: Write> PartWriter<W> {
    /// Begins a snapshot.
    ///
    /// # Errors
    /// The errors of `to`.
    pub fn new(mut to: W) -> io::Result<PartWriter<W>> {
        to.write_all(NAME)?;
        to.write_all(&VERSION.to_le_bytes())?;
        let bytes = (NAME.len() + size_of_val(&VERSION)) as u64;
        Ok(PartWriter { to, parts: 0, bytes, buffer: Vec::new() })
    }

    pub(super) fn write(&mut self, part: &SnapshotPart) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let buffer = postcard::to_extend(part, buffer).map_err(io::Error::other)?;
        self.write_encoded(&buffer)?;
        self.buffer = buffer;
        Ok(())
    }

    /// Writes a frame with these bytes as its payload.
    ///
    /// # Errors
    /// `to` fails, or the payload has more than [`FRAME_BYTES_MAX`] bytes.
    pub fn write_encoded(&mut self, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= FRAME_BYTES_MAX);
        let length = length.ok_or(io::ErrorKind::FileTooLarge)?;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(&xxh3_64_with_seed(payload, seed(self.parts, VERSION)).to_le_bytes())?;
        self.to.write_all(payload)?;
        self.parts += 1;
        self.bytes += HEAD_BYTES + u64::from(length);
        Ok(())
    }

    /// Writes the end. Returns the size of the whole snapshot in bytes.
    pub(super) fn end(mut self) -> io::Result<u64> {
        self.write(&SnapshotPart::End(self.parts))?;
        Ok(self.bytes)
    }
}

/// The parts of a snapshot, read one by one.
pub struct Parts<R> {
    from: R,
    pub head: SnapshotHead,
    /// The number of frames read so far.
    read: u64,
    /// The payload of the last frame.
    payload: Vec<u8>,
}

impl<R: Read> Parts<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// `from` cannot be read or is not a snapshot, its version is not supported, or its head is missing or damaged.
    pub fn new(mut from: R) -> Result<Parts<R>, SnapshotError> {
        let (mut name, mut version) = ([0; NAME.len()], [0; 2]);
        from.read_exact(&mut name)?;
        if name != *NAME {
            return Err(SnapshotError::Foreign);
        }
        from.read_exact(&mut version)?;
        let version = u16::from_le_bytes(version);
        if !(OLDEST_READ..=VERSION).contains(&version) {
            return Err(SnapshotError::Version(version));
        }
        let mut payload = Vec::new();
        if !read_frame(&mut from, (0, version), &mut payload)? {
            return Err(SnapshotError::CutOff);
        }
        match decoded(&payload, 0)? {
            SnapshotPart::Head(head) => Ok(Parts { from, head, read: 1, payload }),
            _ => Err(SnapshotError::Damaged(0)),
        }
    }

    /// The next part. None after the last one.
    pub(super) fn next(&mut self) -> Result<Option<SnapshotPart>, SnapshotError> {
        let number = self.read;
        if !self.advance()? {
            return Err(SnapshotError::CutOff);
        }
        match decoded(&self.payload, number)? {
            SnapshotPart::Head(_) => Err(SnapshotError::Damaged(number)),
            SnapshotPart::End(parts) if parts == number && !self.advance()? => Ok(None),
            SnapshotPart::End(_) => Err(SnapshotError::Damaged(number)),
            part => Ok(Some(part)),
        }
    }

    /// Reads to the end, to check that the snapshot is complete. Only the last part is decoded: the other parts have
    /// checksums.
    ///
    /// # Errors
    /// The snapshot is incomplete or damaged, or cannot be read.
    pub fn check(mut self) -> Result<(), SnapshotError> {
        while self.advance()? {}
        let before = self.read - 1;
        match decoded(&self.payload, before) {
            Ok(SnapshotPart::End(parts)) if parts == before => Ok(()),
            _ => Err(SnapshotError::CutOff),
        }
    }

    /// Reads the next frame. Returns false if there is no next frame.
    fn advance(&mut self) -> Result<bool, SnapshotError> {
        let is_there = read_frame(&mut self.from, (self.read, VERSION), &mut self.payload)?;
        self.read += u64::from(is_there);
        Ok(is_there)
    }
}

/// The seed of a frame's checksum: the number of the frame or, for the first frame since layout 6, the version in the
/// upper half.
fn seed(number: u64, version: u16) -> u64 {
    let is_sealed = number == 0 && version >= SEALS_VERSION;
    if is_sealed { u64::from(version) << 32 } else { number }
}

/// Reads the payload of the frame with this number in a snapshot of this version. Returns false if no frame is left.
fn read_frame(
    from: &mut impl Read,
    (number, version): (u64, u16),
    payload: &mut Vec<u8>,
) -> Result<bool, SnapshotError> {
    let mut head = Vec::with_capacity(HEAD_BYTES as usize);
    from.take(HEAD_BYTES).read_to_end(&mut head)?;
    if head.is_empty() {
        return Ok(false);
    }
    let (length, checksum) = head.split_first_chunk().ok_or(SnapshotError::CutOff)?;
    let checksum = checksum.first_chunk().ok_or(SnapshotError::CutOff)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(SnapshotError::Damaged(number));
    }
    payload.resize(length, 0);
    from.read_exact(payload)?;
    if xxh3_64_with_seed(payload, seed(number, version)) != u64::from_le_bytes(*checksum) {
        return Err(SnapshotError::Damaged(number));
    }
    Ok(true)
}

fn decoded(payload: &[u8], number: u64) -> Result<SnapshotPart, SnapshotError> {
    match postcard::take_from_bytes(payload) {
        Ok((part, [])) => Ok(part),
        _ => Err(SnapshotError::Damaged(number)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::{Key, KeySecret, Timestamp};

    fn head() -> SnapshotPart {
        SnapshotPart::Head(SnapshotHead::new(
            Timestamp::from_millis(1),
            Duration::ZERO,
            KeySecret::KNOWN,
            Vec::new(),
        ))
    }

    fn gone(bits: u64) -> SnapshotPart {
        SnapshotPart::Gone(vec![Key::from_bits(bits)])
    }

    /// A snapshot with these parts, whether they make sense or not.
    fn snapshot(parts: &[SnapshotPart]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = PartWriter::new(&mut bytes).unwrap();
        parts.iter().for_each(|part| writer.write(part).unwrap());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<SnapshotPart>, SnapshotError> {
        let (mut parts, mut read) = (Parts::new(bytes)?, Vec::new());
        while let Some(part) = parts.next()? {
            read.push(part);
        }
        Ok(read)
    }

    #[test]
    fn parts_come_back_in_their_order_until_the_end() {
        let bytes = snapshot(&[head(), gone(1), gone(2), SnapshotPart::End(3)]);
        assert_eq!(read(&bytes).unwrap(), [gone(1), gone(2)]);
        Parts::new(&bytes[..]).unwrap().check().unwrap();
    }

    #[test]
    fn an_end_that_miscounts_or_is_not_the_last_part_is_damage() {
        let read = |parts: &[SnapshotPart]| read(&snapshot(parts)).unwrap_err();
        assert!(matches!(read(&[head(), gone(1), SnapshotPart::End(1)]), SnapshotError::Damaged(2)));
        assert!(matches!(read(&[head(), gone(1), SnapshotPart::End(3)]), SnapshotError::Damaged(2)));
        assert!(matches!(read(&[head(), SnapshotPart::End(1), gone(1)]), SnapshotError::Damaged(1)));
        assert!(matches!(read(&[head(), gone(1)]), SnapshotError::CutOff));
    }

    #[test]
    fn a_frame_has_a_largest_payload() {
        let mut writer = PartWriter::new(io::sink()).unwrap();
        let mut payload = vec![0; FRAME_BYTES_MAX];
        writer.write_encoded(&payload).unwrap();
        payload.push(0);
        assert_eq!(writer.write_encoded(&payload).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!((writer.parts, writer.bytes), (1, 16 + 12 + FRAME_BYTES_MAX as u64));
    }
}
