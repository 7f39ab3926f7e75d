//! Any bytes to a token server: commands are the same in one piece and byte by byte, and read back as they were written.

use slowlane::resp::{Reader, WORDS_MAX, write_array, write_bulk};

/// Small, so that inputs reach it.
const BYTES_MAX: usize = 4_096;

pub fn run(bytes: &[u8]) {
    let (mut rest, mut whole) = (bytes, Reader::default());
    loop {
        let read = whole.read(rest, BYTES_MAX);
        let mut slow = Reader::default();
        let mut in_pieces = (0..=rest.len()).map(|end| slow.read(&rest[..end], BYTES_MAX));
        assert_eq!(read, in_pieces.find(|read| *read != Ok(None)).unwrap_or(Ok(None)));
        let Ok(Some((words, used))) = read else { return };
        assert!(words.len() <= WORDS_MAX && used <= BYTES_MAX.max(16), "{} words, {used} bytes", words.len());
        let mut written = Vec::new();
        write_array(&mut written, words.len());
        words.iter().for_each(|word| write_bulk(&mut written, word));
        // Only a length may have been written with zeros in front.
        assert!(written.len() <= used);
        assert_eq!(Reader::default().read(&written, BYTES_MAX), Ok(Some((words, written.len()))));
        rest = &rest[used..];
    }
}
