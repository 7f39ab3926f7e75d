//! Chooses the format of a log: a given format, or a known format that fits the log's first lines.

use std::borrow::Cow;

use crate::access_log::json::Leaves;
use crate::access_log::wraps::Wraps;
use crate::access_log::{Dialect, Format, Item, LogPlan, LogRecord, Mapping, ParseError};

/// The number of lines to read to recognise the format.
const LOOKED_AT: usize = 200;

/// The maximum number of combinations of wraps to which another wrap is added. Real lines have at most two or three
/// wraps: those of kubectl, CRI and syslog.
const WRAPS_MAX: usize = 24;

/// The formats that a log may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Any known format.
    Any,
    /// Any known format with this word in its name, such as `nginx`.
    Of(String),
    This(Format),
}

/// A format, and the wraps around its lines.
pub(super) type LogKind = (Format, Wraps);

impl Choice {
    /// The format of a log that begins like this, if a format fits, and a message to the operator about the choice.
    pub(super) fn made(&self, head: &[u8], mappings: &[Mapping]) -> (Option<LogKind>, Option<String>) {
        let lines = head.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).take(LOOKED_AT).collect();
        let (kind, proposal) = self.recognised(&lines, mappings);
        let told = match (self, &kind) {
            (Choice::This(given), _) => {
                return (kind.or_else(|| Some((given.clone(), Wraps::default()))), None);
            }
            (_, Some((format, wraps))) => Some(format!("read as {}{}", format.name, wraps.describe())),
            _ => proposal.map(|options| {
                format!(
                    "the JSON has unknown keys; if the following options are correct, add them to the command: \
                     {options}"
                )
            }),
        };
        (kind, told)
    }

    /// The format that fits the most lines completely. In a tie, or if no format fits, the format that fits the most
    /// lines up to its wanted items is chosen; then the format that knows the most JSON keys. Among equals, the format
    /// with the most wraps wins, because a host at the start of a line would also match a wrap; then the first format.
    /// For JSON with unknown keys, also returns the options with which to read it.
    fn recognised(&self, lines: &[&[u8]], mappings: &[Mapping]) -> (Option<LogKind>, Option<String>) {
        let mappings: Vec<Mapping> =
            mappings.iter().filter(|mapping| mapping.is_structural()).cloned().collect();
        let (mut best, mut most, mut proposal) = (None, [0, 0, usize::MAX], None);
        for wraps in all_wraps(lines).into_iter().rev() {
            let inside = inside(&wraps, lines);
            let leaves = Leaves::of(&inside);
            proposal = proposal.or_else(|| leaves.proposal());
            for format in self.formats(&leaves) {
                let is_json = format.dialect == Dialect::Json;
                let mappings = if is_json { &mappings[..] } else { &[] };
                let plan = LogPlan::new(format, mappings, &|field| is_json && field == "source");
                let Some(mut plan) = plan.ok().filter(|plan| !is_json || plan.has("source")) else {
                    continue;
                };
                let mut count = |is_whole| {
                    let reads =
                        inside.iter().map(|line| plan.read(line, is_whole, &mut LogRecord::default()));
                    reads.filter(|read| matches!(read, Ok(()) | Err(ParseError::NoRequest))).count()
                };
                let known = |item: &&Item| is_json && !item.noun.starts_with('.');
                let counts = [count(true), count(false), plan.format.items.iter().filter(known).count()];
                if counts > most {
                    (best, most) = (Some((plan.format, wraps.clone())), counts);
                }
            }
        }
        (best, proposal)
    }

    fn formats(&self, leaves: &Leaves) -> Vec<Format> {
        let known = Format::known().into_iter().chain(leaves.formats());
        match self {
            Choice::Any => known.collect(),
            Choice::Of(word) => known.filter(|format| format.name.contains(word)).collect(),
            Choice::This(format) => vec![format.clone()],
        }
    }
}

/// The lines without these wraps. A line that lacks one of the wraps is left out.
fn inside<'l>(wraps: &Wraps, lines: &[&'l [u8]]) -> Vec<Cow<'l, [u8]>> {
    let mut wraps = wraps.clone();
    lines.iter().filter_map(|line| wraps.strip(line).ok()).collect()
}

/// The combinations of wraps that these lines may have, starting with the fewest wraps.
fn all_wraps(lines: &[&[u8]]) -> Vec<Wraps> {
    let (mut all, mut at) = (vec![Wraps::default()], 0);
    while at < all.len().min(WRAPS_MAX) {
        let more: Vec<Wraps> = all[at].more().filter(|more| !inside(more, lines).is_empty()).collect();
        all.extend(more);
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::tests::{EXAMPLES, HTTPLOG};

    fn name(text: &str) -> Option<String> {
        Choice::Any.made(text.as_bytes(), &[]).0.map(|(format, wraps)| format.name + &wraps.describe())
    }

    #[test]
    fn each_known_format_is_recognised() {
        for (want, line) in EXAMPLES {
            assert_eq!(name(line).as_deref(), Some(*want), "{line}");
        }
        assert_eq!(name(&format!("{HTTPLOG} and more of its own")).as_deref(), Some("haproxy httplog"));
        for text in ["", "\n\n", "hello\nworld\n", "\0\x01\x02"] {
            assert_eq!(name(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_few_lines_of_another_format_do_not_matter() {
        assert_eq!(name(&format!("garbage\n{HTTPLOG}\n\n{HTTPLOG}\n")).as_deref(), Some("haproxy httplog"));
    }
}
