//! Adds slowlane's lines to the operator's own configuration, and removes them again.

pub mod haproxy;
pub mod nginx;

use std::collections::BTreeSet;
use std::path::PathBuf;

use thiserror::Error;

/// The first line of each block that slowlane adds.
const BEGIN: &str = "# slowlane: begin";

/// The first line of a block after text without a line break. The text has a line break only while the block exists.
const BEGIN_SPLIT: &str = "# slowlane: begin, the line before had no end";

/// The last line of a block.
const END: &str = "# slowlane: end";

/// The last line of a block that splits a line. The rest of that line follows.
const END_SPLIT: &str = "# slowlane: end, the rest of a line follows";

/// In a block, the beginning of the line that keeps the replaced text.
const INSTEAD: &str = "# slowlane: instead of: ";

/// The note if no line takes the client's address from a header.
const BEHIND: &str = "behind a CDN or a load balancer, all requests appear to come from that proxy's address: \
                      name its networks with --trusted, to take each client's address from X-Forwarded-For";

/// The reason why `--trusted` is refused.
const TAKEN: &str = "this line already sets the client's address: leave out --trusted";

/// The reason why a configuration is not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("{0}: slowlane is already attached; --undo removes the lines that attach has written")]
    Attached(String),
    #[error("{0}: slowlane is already attached by hand: keep slowlane's lines, or remove them first")]
    ByHand(String),
    #[error("there is no {kind} {name:?}, only {}", joined(.found))]
    NoSuch { kind: &'static str, name: String, found: Vec<String> },
    #[error("there is no {0} that serves an application over HTTP")]
    None(&'static str),
    #[error("several {kind}s match: choose with --{kind}, which may be repeated: {}", joined(.found))]
    Several { kind: &'static str, found: Vec<String> },
    #[error("{place}: {reason}")]
    Odd { place: String, reason: &'static str },
    #[error("{}:{line}: slowlane does not understand this line", path.display())]
    Syntax { path: PathBuf, line: usize },
    #[error("{0}")]
    Unread(String),
    #[error("line {0}: the comments around slowlane's lines do not match: remove slowlane's lines by hand")]
    Marks(usize),
    #[error(
        "{proxy} refuses your configuration as it is; if {proxy} cannot read a file, run this command as root:\n{said}"
    )]
    AsItIs { proxy: &'static str, said: String },
    #[error("{proxy} refuses the result:\n{said}")]
    Result { proxy: &'static str, said: String },
}

impl Refused {
    /// Whether the operator may still add the lines by hand.
    pub fn is_for_hands(&self) -> bool {
        matches!(
            self,
            Refused::Odd { .. } | Refused::Syntax { .. } | Refused::Unread(_) | Refused::Result { .. }
        )
    }
}

/// A configuration to which slowlane's lines have been added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached<T> {
    pub after: T,
    /// The frontends or servers that query slowlane.
    pub names: Vec<String>,
    /// Notes for the operator.
    pub notes: Vec<String>,
}

/// A frontend or server that slowlane can be attached to.
struct Site<T> {
    of: T,
    /// The site's name in messages.
    shown: String,
    place: String,
    names: Vec<String>,
}

/// The sites that an operator has named, or the only site; and a note on the sites that are not attached.
fn chosen<T>(
    kind: &'static str,
    sites: Vec<Site<T>>,
    names: &[String],
) -> Result<(Vec<Site<T>>, Option<String>), Refused> {
    let found = || sites.iter().map(|site| site.shown.clone()).collect();
    match sites.len() {
        0 => return Err(Refused::None(kind)),
        1 if names.is_empty() => return Ok((sites, None)),
        _ if names.is_empty() => return Err(Refused::Several { kind, found: found() }),
        _ => {}
    }
    let mut chosen = BTreeSet::new();
    for name in names {
        let is_named = |site: &&Site<T>| site.place == *name || site.names.contains(name);
        let places: Vec<String> = sites.iter().filter(is_named).map(|site| site.place.clone()).collect();
        match places.len() {
            0 => return Err(Refused::NoSuch { kind, name: name.clone(), found: found() }),
            1 => chosen.extend(places),
            _ => return Err(Refused::Several { kind, found: places }),
        }
    }
    let (chosen, others): (Vec<_>, Vec<_>) = sites.into_iter().partition(|site| chosen.contains(&site.place));
    let others: Vec<String> = others.into_iter().map(|other| other.shown).collect();
    let note = (!others.is_empty()).then(|| format!("not attached to slowlane: {}", joined(&others)));
    Ok((chosen, note))
}

/// Names joined for a sentence.
pub fn joined(names: &[String]) -> String {
    match names {
        [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
        _ => names.concat(),
    }
}

/// A block of lines that replaces the bytes of a text from `at` up to `until`. If `at` equals `until`, the lines are
/// only inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub at: usize,
    /// A replacement covers a whole line with its line ending, or a part within one line.
    pub until: usize,
    pub lines: Vec<String>,
}

impl Block {
    pub fn at(at: usize, lines: Vec<String>) -> Block {
        Block { at, until: at, lines }
    }
}

/// The text with the blocks, each between marks.
pub fn with_blocks(text: &str, mut blocks: Vec<Block>) -> String {
    blocks.sort_by_key(|block| block.at);
    let (mut written, mut from) = (String::new(), 0);
    for Block { at, until, lines } in blocks {
        written += &text[from..at];
        from = until;
        let replaced = &text[at..until];
        let is_part = !replaced.is_empty() && !replaced.ends_with('\n');
        let is_split = is_part || !written.is_empty() && !written.ends_with('\n');
        let begin = if is_split { format!("\n{BEGIN_SPLIT}") } else { BEGIN.to_owned() };
        let end = if is_split && until < text.len() { END_SPLIT } else { END };
        let instead = match replaced.trim_end_matches('\n') {
            "" => String::new(),
            replaced => format!("{INSTEAD}{replaced}\n"),
        };
        written += &format!("{begin}\n{instead}{}\n{end}\n", lines.join("\n"));
    }
    written + &text[from..]
}

/// The text as it was before slowlane was attached. `None` if the text has no slowlane block.
///
/// # Errors
/// The marks do not match.
pub fn detached(text: &str) -> Result<Option<String>, Refused> {
    let (mut kept, mut is_inside, mut is_split, mut found) = (String::new(), false, false, false);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        match (line.trim(), is_inside) {
            (BEGIN, false) => (is_inside, found) = (true, true),
            (BEGIN_SPLIT, false) => {
                (is_inside, found, is_split) = (true, true, true);
                kept.pop();
            }
            (END, true) => is_inside = false,
            (END_SPLIT, true) => (is_inside, is_split) = (false, false),
            (BEGIN | BEGIN_SPLIT | END | END_SPLIT, _) => return Err(Refused::Marks(number + 1)),
            (_, true) => {
                let replaced = line.strip_prefix(INSTEAD).unwrap_or_default();
                kept += if is_split { replaced.trim_end_matches('\n') } else { replaced };
            }
            (_, false) => {
                // The block was at the end of the text, and someone has added lines after it.
                if std::mem::take(&mut is_split) {
                    kept.push('\n');
                }
                kept += line;
            }
        }
    }
    if is_inside {
        return Err(Refused::Marks(text.lines().count()));
    }
    Ok(found.then_some(kept))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Removing the lines restores the text byte for byte, whatever its line breaks.
        #[test]
        fn a_text_comes_back_to_the_byte(
            text in "[a-z {};\r\n#]{0,60}", places in prop::collection::vec((0usize..61, 0usize..9), 1..4),
        ) {
            let mut free = 0;
            let mut places: Vec<_> = places.into_iter().map(|(at, length)| (at.min(text.len()), length)).collect();
            places.sort_unstable();
            let block = |(at, length): (usize, usize)| {
                let at = at.max(free);
                let rest = text[at..].split_inclusive('\n').next().unwrap_or_default();
                let is_line = at == 0 || text[..at].ends_with('\n');
                let is_fit = |replaced: &&str| !replaced.ends_with('\n') || is_line && replaced.len() > 1;
                let until = at + rest.get(..length).filter(is_fit).unwrap_or_default().len();
                free = until;
                Block { at, until, lines: vec!["filter x".into(), "  y".into()] }
            };
            let attached = with_blocks(&text, places.into_iter().map(block).collect());
            prop_assert_eq!(detached(&attached), Ok(Some(text.clone())));
            prop_assert_eq!(detached(&text), Ok(None));
        }
    }

    #[test]
    fn a_block_begins_on_a_line_of_its_own() {
        let block = || vec![Block::at(1, vec!["b".into()])];
        assert_eq!(with_blocks("a\n", block()), format!("a\n{BEGIN_SPLIT}\nb\n{END_SPLIT}\n\n"));
        let last = with_blocks("a", block());
        assert_eq!(last, format!("a\n{BEGIN_SPLIT}\nb\n{END}\n"));
        assert_eq!(detached(&format!("{last}more\n")), Ok(Some("a\nmore\n".to_owned())));
    }

    #[test]
    fn marks_that_do_not_match_are_refused() {
        for (text, line) in [
            (format!("a\n{END}\n"), 2),
            (format!("{BEGIN}\nx\n{BEGIN}\ny\n{END}\n"), 3),
            (format!("{BEGIN}\nx\nmine\n"), 3),
            (format!("{BEGIN}\nx\n{END}\n{END_SPLIT}\n"), 4),
        ] {
            assert_eq!(detached(&text), Err(Refused::Marks(line)), "{text}");
        }
    }
}
