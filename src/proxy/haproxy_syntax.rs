//! The grammar of HAProxy's configuration files: sections, each with its lines as words.

use nom::branch::alt;
use nom::bytes::complete::{is_a, is_not, tag};
use nom::character::complete::{anychar, char};
use nom::combinator::{opt, recognize};
use nom::multi::{fold_many0, fold_many1, many0};
use nom::sequence::{delimited, preceded};
use nom::{IResult, Parser};

/// The words that begin a section.
const SECTIONS: &str = "global defaults frontend backend listen acme aggregations cache crt-store dynamic-update \
    fcgi-app http-client http-errors log-forward log-profile mailers namespace_list peers program \
    resolvers ring traces userlist";

/// The first words of lines with which a section passes requests to an application.
const TO_APP: [&str; 4] = ["default_backend", "dispatch", "server", "use_backend"];

/// A section: its kind and name, its first line, and the line after its last line.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) first: usize,
    pub(crate) end: usize,
    /// The index of the `defaults` section from which this section inherits.
    pub(crate) defaults: Option<usize>,
}

/// A line of one of the files.
pub(crate) struct Line<'a> {
    /// The index of the line's file, and the number of the line in that file, from 1.
    pub(crate) file: usize,
    pub(crate) number: usize,
    /// The name of the line's section, or the kind of a section without a name. Empty if the line is in no section.
    pub(crate) section: String,
    /// Whether the line begins a section.
    pub(crate) is_head: bool,
    /// The positions in the file of the line's first byte, and of the byte after its line break.
    pub(crate) begin: usize,
    pub(crate) end: usize,
    pub(crate) text: &'a str,
    pub(crate) words: Vec<String>,
    /// The number of `.if` blocks around the line. The lines `.if` and `.endif` themselves count as inside.
    pub(crate) depth: usize,
}

/// A configuration of one or more files, line by line. Lines are numbered from 0 across all files.
pub(crate) struct Config<'a> {
    pub(crate) lines: Vec<Line<'a>>,
    pub(crate) sections: Vec<Section>,
}

/// The words of a line, without its comment.
fn words(line: &str) -> Vec<String> {
    let word = |text| -> IResult<&str, String> {
        let piece = alt((plain, quoted('"'), quoted('\'')));
        preceded(opt(is_a(BLANKS)), fold_many1(piece, String::new, |word, piece| word + &piece)).parse(text)
    };
    many0(word).parse(line).map_or(Vec::new(), |(_, words)| words)
}

const BLANKS: &str = " \t\r\x0b\x0c";

fn plain(text: &str) -> IResult<&str, String> {
    alt((is_not(" \t\r\x0b\x0c\"'\\#"), escaped)).map(str::to_owned).parse(text)
}

fn escaped(text: &str) -> IResult<&str, &str> {
    alt((preceded(char('\\'), recognize(anychar)), tag("\\"))).parse(text)
}

/// A quoted part of a word. The end of the line also ends the quotation. In single quotes, no character is special.
fn quoted<'t>(quote: char) -> impl FnMut(&'t str) -> IResult<&'t str, String> {
    move |text| {
        let pieces = |text| {
            if quote == '"' { alt((is_not("\"\\"), escaped)).parse(text) } else { is_not("'").parse(text) }
        };
        let inside = fold_many0(pieces, String::new, |word, piece: &str| word + piece);
        delimited(char(quote), inside, opt(char(quote))).parse(text)
    }
}

impl<'a> Config<'a> {
    /// Reads the files in the order in which HAProxy loads them. Each file begins outside of a section.
    pub(crate) fn read(files: &[&'a str]) -> Config<'a> {
        let (mut lines, mut sections): (Vec<Line<'_>>, Vec<Section>) = Default::default();
        for (file, text) in files.iter().enumerate() {
            let (mut depth, mut begin, first) = (0_usize, 0, sections.len());
            for (above, whole) in text.split_inclusive('\n').enumerate() {
                let (text, end) = (whole.trim_end_matches(['\n', '\r']), begin + whole.len());
                let words = words(text);
                let word = words.first().map_or("", String::as_str);
                let is_head = SECTIONS.split(' ').any(|section| section == word);
                if is_head {
                    if let Some(before) = sections[first..].last_mut() {
                        before.end = lines.len();
                    }
                    sections.push(Section::of(&words, lines.len(), &sections));
                }
                let section = sections[first..].last().map_or("", Section::shown).to_owned();
                depth += usize::from(word == ".if");
                let (number, closed) = (above + 1, usize::from(word == ".endif"));
                lines.push(Line { file, number, section, is_head, begin, end, text, words, depth });
                (begin, depth) = (end, depth.saturating_sub(closed));
            }
            if let Some(last) = sections[first..].last_mut() {
                last.end = lines.len();
            }
        }
        Config { lines, sections }
    }

    /// The words of a line.
    pub(crate) fn words(&self, line: usize) -> Vec<&str> {
        self.lines[line].words.iter().map(String::as_str).collect()
    }

    /// The first line that begins with these words.
    pub(crate) fn find(&self, wanted: &[&str]) -> Option<usize> {
        (0..self.lines.len()).find(|&line| self.words(line).starts_with(wanted))
    }

    /// A section and the defaults that it inherits from.
    pub(crate) fn chain<'s>(&'s self, section: &'s Section) -> impl Iterator<Item = &'s Section> {
        std::iter::successors(Some(section), |section| Some(&self.sections[section.defaults?]))
    }

    /// The lines of a section as words, with their numbers, except empty lines and comments.
    pub(crate) fn body(&self, section: &Section) -> impl DoubleEndedIterator<Item = (usize, Vec<&str>)> {
        let lines = section.first + 1..section.end;
        lines.map(|line| (line, self.words(line))).filter(|(_, words)| !words.is_empty())
    }

    /// Whether an HTTP request reaches an application through this section.
    pub(crate) fn serves(&self, section: &Section) -> bool {
        let mode = self.chain(section).find_map(|section| {
            self.body(section)
                .rev()
                .find_map(|(_, words)| (words[0] == "mode").then(|| words.get(1).copied()))
        });
        let has = |wanted: &[&str]| {
            self.chain(section).any(|section| self.body(section).any(|(_, words)| wanted.contains(&words[0])))
        };
        matches!(&*section.kind, "frontend" | "listen")
            && mode.flatten() == Some("http")
            && has(&TO_APP)
            && !self.body(section).any(|(_, words)| words[0] == "disabled")
    }
}

impl Section {
    fn shown(&self) -> &str {
        if self.name.is_empty() { &self.kind } else { &self.name }
    }

    /// The section that begins with these words, after the earlier sections.
    fn of(words: &[String], first: usize, earlier: &[Section]) -> Section {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let from = words.iter().position(|word| word == "from").map(|at| word(at + 1));
        let defaults = match (word(0), from) {
            ("global", _) | ("defaults", None) => None,
            (_, None) => earlier.iter().rposition(|section| section.kind == "defaults"),
            (_, Some(name)) => earlier.iter().rposition(|of| of.kind == "defaults" && of.name == name),
        };
        let name = if word(1) == "from" { "" } else { word(1) }.to_owned();
        Section { kind: word(0).to_owned(), name, first, end: first + 1, defaults }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_those_that_haproxy_reads() {
        for (line, read) in [
            (r#"  acl a path_beg "/a b" '/c"d' # no"#, vec!["acl", "a", "path_beg", "/a b", r#"/c"d"#]),
            (r#"a\ b "c\"d"e'\f' ""#, vec!["a b", r#"c"de\f"#, ""]),
            ("a#b c", vec!["a"]),
            ("\t\r", vec![]),
            ("\\", vec!["\\"]),
        ] {
            assert_eq!(words(line), read, "{line}");
        }
    }

    /// As `haproxy -f a.cfg -f b.cfg` says of a file that begins with a keyword: "out of section".
    #[test]
    fn a_file_begins_outside_of_a_section_and_inherits_from_defaults_before() {
        let config =
            Config::read(&["defaults\n mode http\nfrontend a\n", " bind :1\nfrontend b\n server s :2\n"]);
        let [defaults, a, b] = &config.sections[..] else { panic!("{:?}", config.sections) };
        assert_eq!((a.first, a.end, b.first, b.end), (2, 3, 4, 6));
        assert_eq!((defaults.defaults, a.defaults, b.defaults), (None, Some(0), Some(0)));
        assert!(config.serves(b) && !config.serves(a));
    }

    proptest! {
        /// Whatever a file holds, its lines are those of the text.
        #[test]
        fn any_text_is_read_whole(text in r#"(frontend |\.if |\.endif|[a"'\\#$ \r\né]){0,60}"#) {
            let config = Config::read(&[&text]);
            prop_assert_eq!(config.lines.last().map_or(0, |line| line.end), text.len());
            for section in &config.sections {
                prop_assert!(section.first < section.end && section.end <= config.lines.len(), "{:?}", section);
            }
        }
    }
}
