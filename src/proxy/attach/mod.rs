//! The lines of slowlane in the operator's own configuration: where they belong, and how they come out again.

pub mod haproxy;
pub mod nginx;

use thiserror::Error;

/// The first line of each block that slowlane adds.
const BEGIN: &str = "# slowlane: begin";

/// The first line of a block behind a last line that had no end of its own.
const BEGIN_NO_END: &str = "# slowlane: begin, after a line without a line end";

/// The last line of a block.
const END: &str = "# slowlane: end";

/// The configuration stays as it is, for this reason.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("line {0}: slowlane is attached already")]
    Attached(usize),
    #[error("no {kind} {name:?} here; there {}", listed(.found))]
    NoSuch { kind: &'static str, name: String, found: Vec<String> },
    #[error("no {0} of HTTP here")]
    None(&'static str),
    #[error("{} of HTTP, and slowlane asks for one: name it with {flag}", listed(.found))]
    Several { flag: &'static str, found: Vec<String> },
    #[error("line {line}: {reason}")]
    Line { line: usize, reason: &'static str },
    #[error("{file}:{line}: {reason}")]
    Odd { file: String, line: usize, reason: &'static str },
    #[error("{count} servers have the name {name:?}: add the lines by hand (`slowlane config nginx`)")]
    SameName { name: String, count: usize },
    #[error("more than {0} files are included")]
    TooManyFiles(usize),
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "are none".to_owned(),
        [only] => format!("is {only}"),
        [most @ .., last] => format!("are {} and {last}", most.join(", ")),
    }
}

/// A block of lines to be added before a line of the text. Lines count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    before: usize,
    lines: Vec<String>,
}

/// The text with the blocks, each between marks.
fn with_blocks(text: &str, mut blocks: Vec<Block>) -> String {
    blocks.sort_by_key(|block| block.before);
    let (mut written, mut lines) = (String::new(), text.split_inclusive('\n').enumerate());
    let mut blocks = blocks.into_iter().peekable();
    loop {
        let (number, line) = lines.next().map_or((usize::MAX, ""), |(number, line)| (number, line));
        while let Some(block) = blocks.next_if(|block| block.before <= number) {
            let has_end = written.is_empty() || written.ends_with('\n');
            let begin = if has_end { BEGIN.to_owned() } else { format!("\n{BEGIN_NO_END}") };
            written += &format!("{begin}\n{}\n{END}\n", block.lines.join("\n"));
        }
        if number == usize::MAX {
            return written;
        }
        written += line;
    }
}

/// The text as it was before slowlane was attached. None: it has no block of slowlane.
pub fn detached(text: &str) -> Option<String> {
    let (mut kept, mut is_ours, mut found) = (String::new(), false, false);
    for line in text.split_inclusive('\n') {
        match line.trim() {
            BEGIN | BEGIN_NO_END => {
                (is_ours, found) = (true, true);
                if line.trim() == BEGIN_NO_END {
                    kept.truncate(kept.trim_end_matches('\n').len());
                }
            }
            END if is_ours => is_ours = false,
            _ if is_ours => {}
            _ => kept += line,
        }
    }
    found.then_some(kept)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is taken out again is what was there, to the byte, whatever its line ends.
        #[test]
        fn a_text_comes_back_to_the_byte(
            text in "[a-z {};\r\n#]{0,60}", places in prop::collection::vec(0usize..12, 1..4),
        ) {
            let lines = text.lines().count();
            let block = |place: usize| Block { before: place.min(lines), lines: vec!["filter x".into(), "  y".into()] };
            let attached = with_blocks(&text, places.into_iter().map(block).collect());
            prop_assert_eq!(detached(&attached), Some(text.clone()));
            prop_assert_eq!(detached(&text), None);
        }
    }

    #[test]
    fn a_block_begins_on_a_line_of_its_own() {
        let block = Block { before: 1, lines: vec!["b".into()] };
        let expected = format!("a\n{BEGIN_NO_END}\nb\n{END}\n");
        assert_eq!(with_blocks("a", vec![block]), expected);
    }
}
