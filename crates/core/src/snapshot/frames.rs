//! Frames: the bytes of a snapshot, in pieces with a checksum each.
//!
//! ```text
//! "slowlane state", version ─ 2 bytes │ frame │ frame │ …
//! frame:  length ─ 4 bytes │ checksum ─ 8 bytes │ payload
//! ```
//! Numbers are little-endian. The checksum is XXH3-64 of the payload, and its seed is the number of the frame, from 0:
//! it finds accidents, not forgers. So frames can neither be changed, nor swapped, nor left out. Only the owner of the
//! file can write it.

use std::io::{self, Read, Write};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::snapshot::error::SnapshotError;

/// The version of the layout. It changes with every type that a part is made of, and with the meaning of a law's state.
pub const VERSION: u16 = 2;

/// The most bytes of a payload. The largest is an auxiliary state of 512 KiB, whose numbers take up to ten bytes of
/// eight.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

const NAME: &[u8; 14] = b"slowlane state";

/// Writes frames, and counts them.
pub struct FrameWriter<W> {
    to: W,
    frames: u64,
    bytes: u64,
}

impl<W: Write> FrameWriter<W> {
    /// Begins a snapshot.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn new(mut to: W) -> io::Result<FrameWriter<W>> {
        to.write_all(NAME)?;
        to.write_all(&VERSION.to_le_bytes())?;
        Ok(FrameWriter { to, frames: 0, bytes: (NAME.len() + size_of_val(&VERSION)) as u64 })
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// Those of `to`, and a payload of more than [`FRAME_BYTES_MAX`] bytes.
    pub fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= FRAME_BYTES_MAX);
        let length = length.ok_or(io::ErrorKind::FileTooLarge)?;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(&xxh3_64_with_seed(payload, self.frames).to_le_bytes())?;
        self.to.write_all(payload)?;
        self.frames += 1;
        self.bytes += 12 + u64::from(length);
        Ok(())
    }

    /// The bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Reads frames, and checks each.
pub(super) struct FrameReader<R> {
    from: R,
    frames: u64,
    payload: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// Reads the beginning of a snapshot.
    pub(super) fn new(mut from: R) -> Result<FrameReader<R>, SnapshotError> {
        let mut name = [0; NAME.len()];
        from.read_exact(&mut name)?;
        if name != *NAME {
            return Err(SnapshotError::Foreign);
        }
        match u16::from_le_bytes(array(&mut from)?) {
            VERSION => Ok(FrameReader { from, frames: 0, payload: Vec::new() }),
            other => Err(SnapshotError::Version(other, VERSION)),
        }
    }

    /// The payload of the next frame. None: there is nothing more.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, SnapshotError> {
        let Some(length) = self.length()? else { return Ok(None) };
        let damaged = || SnapshotError::Damaged(self.frames);
        if length > FRAME_BYTES_MAX {
            return Err(damaged());
        }
        let checked = u64::from_le_bytes(array(&mut self.from)?);
        self.payload.resize(length, 0);
        self.from.read_exact(&mut self.payload)?;
        if xxh3_64_with_seed(&self.payload, self.frames) != checked {
            return Err(damaged());
        }
        self.frames += 1;
        Ok(Some(&self.payload))
    }

    /// The length of the next frame.
    fn length(&mut self) -> Result<Option<usize>, SnapshotError> {
        let (mut bytes, mut read) = ([0; 4], 0);
        while read < bytes.len() {
            match self.from.read(&mut bytes[read..]) {
                Ok(0) if read == 0 => return Ok(None),
                Ok(0) => return Err(SnapshotError::CutOff),
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(u32::from_le_bytes(bytes) as usize))
    }

    /// The payload of the last frame that was read.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The number of frames read so far.
    pub(super) fn count(&self) -> u64 {
        self.frames
    }
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
