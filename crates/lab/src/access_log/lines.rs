//! The lines of a log, plain or compressed with gzip or zstd, in bounded memory.

use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The maximum length of a line. HAProxy writes at most 64 KiB (`log ... len`).
pub const LINE_BYTES_MAX: usize = 64 << 10;

const BUFFER_BYTES: usize = 256 << 10;

/// The first bytes of compressed files, and the programs that write such files: RFC 1952, section 2.3.1; RFC 8878,
/// section 3.1.1; and two formats that are recognised but not read.
const MAGICS: [(&[u8], &str); 4] =
    [(b"\x1F\x8B", "gzip"), (b"\x28\xB5\x2F\xFD", "zstd"), (b"\xFD7zXZ\0", "xz"), (b"BZh91A", "bzip2")];

/// The length of the longest of these first bytes.
const MAGIC_BYTES: u64 = 6;

/// The lines of a log, numbered from 1.
///
/// ```
/// use slowlane_lab::access_log::Lines;
/// let mut lines = Lines::new(&b"one\r\ntwo"[..]);
/// assert_eq!(lines.next(), Some((1, Some(&b"one"[..]))));
/// assert_eq!(lines.next(), Some((2, Some(&b"two"[..]))));
/// assert_eq!(lines.next(), None);
/// ```
pub struct Lines<'r> {
    input: BufReader<Box<dyn Read + 'r>>,
    /// The name of the log's compression, such as `gzip`.
    compression: Option<&'static str>,
    /// The start of the log.
    head: Vec<u8>,
    /// The last line that was read.
    line: Vec<u8>,
    number: u64,
    broken: Option<String>,
}

impl<'r> Lines<'r> {
    /// Reads the start of the log, which reveals its compression and its format.
    pub fn new(mut input: impl Read + 'r) -> Lines<'r> {
        let mut magic = Vec::new();
        // A single read may return only one byte.
        let read = input.by_ref().take(MAGIC_BYTES).read_to_end(&mut magic);
        let compression = MAGICS.iter().find(|(known, _)| magic.starts_with(known)).map(|(_, name)| *name);
        let whole = Cursor::new(magic).chain(input);
        let mut text: Box<dyn Read + 'r> = match compression {
            Some("gzip") => Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 << 10, whole))),
            Some("zstd") => Box::new(Zstd {
                input: BufReader::with_capacity(64 << 10, whole),
                frame: FrameDecoder::new(),
            }),
            _ => Box::new(whole),
        };
        let mut head = Vec::new();
        let broken = match (read, compression) {
            (Err(error), _) => Some(error.to_string()),
            (_, Some(program @ ("xz" | "bzip2"))) => {
                Some(format!("compressed with {program}: decompress the file first with `{program} -dk`"))
            }
            _ => {
                let read = text.by_ref().take(BUFFER_BYTES as u64).read_to_end(&mut head);
                read.err().map(|error| reason(&error, compression))
            }
        };
        let rest = if broken.is_some() { Box::new(io::empty()) } else { text };
        let input: Box<dyn Read + 'r> = Box::new(Cursor::new(head.clone()).chain(rest));
        let input = BufReader::with_capacity(BUFFER_BYTES, input);
        Lines { input, compression, head, line: Vec::new(), number: 0, broken }
    }

    /// The next line and its number, or None in place of a line longer than [`LINE_BYTES_MAX`].
    #[expect(clippy::should_implement_trait, reason = "a line borrows from the buffer")]
    pub fn next(&mut self) -> Option<(u64, Option<&[u8]>)> {
        self.line.clear();
        let mut limited = self.input.by_ref().take(LINE_BYTES_MAX as u64 + 1);
        let mut read = limited.read_until(b'\n', &mut self.line);
        let is_too_long = self.line.len() > LINE_BYTES_MAX && !self.line.ends_with(b"\n");
        if is_too_long {
            read = self.input.skip_until(b'\n');
        }
        if let Err(error) = read {
            self.broken = Some(reason(&error, self.compression));
            self.input = BufReader::new(Box::new(io::empty()));
        }
        if self.line.is_empty() {
            return None;
        }
        self.number += 1;
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        // Windows ends a line with CR LF.
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Some((self.number, (!is_too_long).then_some(line)))
    }

    /// The start of the log. Consumes no line.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The number of the last line returned.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Why reading stopped before the end of the log.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }
}

fn reason(error: &io::Error, compression: Option<&str>) -> String {
    match (error.kind(), compression) {
        (ErrorKind::UnexpectedEof, Some(name)) => format!("the {name} data ends too early"),
        (ErrorKind::InvalidInput | ErrorKind::InvalidData, Some(name)) => {
            format!("the {name} data is corrupt: {error}")
        }
        _ => error.to_string(),
    }
}

/// The text of one or more zstd frames. A frame whose window is larger than 100 MiB is refused.
struct Zstd<R> {
    input: BufReader<R>,
    frame: FrameDecoder,
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use {FrameDecoderError::ReadFrameHeaderError as OfHeader, ReadFrameHeaderError::SkipFrame};
        let (frame, input) = (&mut self.frame, &mut self.input);
        while frame.can_collect() == 0 {
            if !frame.is_finished() {
                frame.decode_blocks(&mut *input, BlockDecodingStrategy::UptoBlocks(1)).map_err(corrupt)?;
            } else if input.fill_buf()?.is_empty() {
                return Ok(0);
            } else if let Err(error) = frame.reset(&mut *input) {
                let OfHeader(SkipFrame { length, .. }) = error else { return Err(corrupt(error)) };
                io::copy(&mut input.take(length.into()), &mut io::sink())?;
            }
        }
        self.frame.read(buffer)
    }
}

fn corrupt(error: FrameDecoderError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    /// Returns a few bytes at a time.
    struct Dribble<'b>(&'b [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    fn all(bytes: &[u8], at_once: usize) -> (Vec<Option<Vec<u8>>>, Option<String>) {
        let mut lines = Lines::new(Dribble(bytes, at_once));
        let mut all = Vec::new();
        while let Some((number, line)) = lines.next() {
            let line = line.map(<[u8]>::to_vec);
            all.push(line);
            assert_eq!(number, all.len() as u64);
        }
        (all, lines.broken().map(str::to_owned))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn members_of_gzip_are_one_log() {
        let bytes = [gzip(b"one\ntw"), gzip(b"o\nthree")].concat();
        let want: Vec<_> = [&b"one"[..], b"two", b"three"].iter().map(|line| Some(line.to_vec())).collect();
        for at_once in [1, 7, 1 << 20] {
            assert_eq!(all(&bytes, at_once), (want.clone(), None));
        }
    }

    #[test]
    fn truncated_gzip_is_read_to_its_end() {
        let text: Vec<u8> = (0..20_000u32).flat_map(|number| format!("{number:x}\n").into_bytes()).collect();
        let bytes = gzip(&text);
        let (lines, broken) = all(&bytes[..bytes.len() / 2], 1 << 20);
        assert!(lines.len() > 1_000 && lines.len() < 20_000, "{}", lines.len());
        assert_eq!(broken.as_deref(), Some("the gzip data ends too early"));
        let mut bytes = bytes;
        let middle = bytes.len() / 2;
        bytes[middle..middle + 100].fill(0xFF);
        assert!(all(&bytes, 1 << 20).1.unwrap().starts_with("the gzip data is corrupt"));
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let long = vec![b'x'; 3 * BUFFER_BYTES];
        let exact = vec![b'y'; LINE_BYTES_MAX];
        let bytes = [&b"a\n"[..], &long, b"\nb\n", &exact, b"\n", &exact, b"z\nc"].concat();
        let (lines, broken) = all(&bytes, 10_000);
        let lengths: Vec<_> = lines.iter().map(|line| line.as_ref().map(Vec::len)).collect();
        assert_eq!(
            (lengths, broken),
            (vec![Some(1), None, Some(1), Some(LINE_BYTES_MAX), None, Some(1)], None)
        );
        assert_eq!(all(&long, 10_000).0, [None]);
    }

    #[test]
    fn frames_of_zstd_are_one_log() {
        let zstd = |text: &[u8]| {
            ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
        };
        let skipped = b"\x50\x2A\x4D\x18\x03\0\0\0abc";
        let text: Vec<u8> = (0..200_000u32).flat_map(|number| format!("{number:x}\n").into_bytes()).collect();
        let bytes = [&zstd(b"one\ntw")[..], skipped, &zstd(b"o\n"), &zstd(&text), skipped].concat();
        for at_once in [7, 1 << 20] {
            let (lines, broken) = all(&bytes, at_once);
            assert_eq!((lines.len(), broken), (200_002, None));
            assert_eq!(lines[1], Some(b"two".to_vec()));
            assert_eq!(lines[200_001], Some(format!("{:x}", 199_999).into_bytes()));
        }
        let (lines, broken) = all(&bytes[..bytes.len() / 2], 1 << 20);
        assert!(lines.len() > 1_000 && lines.len() < 200_000, "{}", lines.len());
        assert!(broken.unwrap().starts_with("the zstd data is corrupt: "));
    }

    #[test]
    fn other_compressions_are_named() {
        for (bytes, program) in [(&b"\xFD7zXZ\0\0\x04"[..], "xz"), (b"BZh91AY&SY", "bzip2")] {
            let (lines, broken) = all(bytes, 1);
            assert!(lines.is_empty() && broken.unwrap().starts_with(&format!("compressed with {program}: ")));
        }
        assert_eq!(all(b"BZh", 1), (vec![Some(b"BZh".to_vec())], None));
    }

    proptest! {
        #[test]
        fn lines_match_the_standard_library(text in "[ab\n]{0,200}", at_once in 1usize..50) {
            let want: Vec<_> = text.lines().map(|line| Some(line.as_bytes().to_vec())).collect();
            prop_assert_eq!(all(text.as_bytes(), at_once).0, want.clone());
            prop_assert_eq!(all(&gzip(text.as_bytes()), at_once).0, want);
        }
    }
}
