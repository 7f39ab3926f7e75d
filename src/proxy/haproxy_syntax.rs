//! The sections of a configuration of HAProxy, each with its lines as words.

/// The words that begin a section.
const SECTIONS: &str = "global defaults frontend backend listen acme aggregations cache crt-store dynamic-update \
    fcgi-app http-client http-errors log-forward log-profile mailers namespace_list peers program \
    resolvers ring traces userlist";

/// The words by which a request reaches an application.
const TO_APP: [&str; 4] = ["default_backend", "dispatch", "server", "use_backend"];

/// A section: its words, its first line and the line after its last.
#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    pub(crate) first: usize,
    pub(crate) end: usize,
    /// The index of the `defaults` section that it inherits from.
    pub(crate) defaults: Option<usize>,
}

/// A configuration, line by line. Lines count from 0.
pub(crate) struct Config<'a> {
    /// The byte at which each line begins, and the end of the text.
    pub(crate) begins: Vec<usize>,
    pub(crate) lines: Vec<&'a str>,
    pub(crate) words: Vec<Vec<&'a str>>,
    pub(crate) sections: Vec<Section<'a>>,
}

/// Whether this word begins a section.
pub(crate) fn is_section(word: &str) -> bool {
    SECTIONS.split(' ').any(|section| section == word)
}

/// The words of a line, without its comment and without quotes around a whole word.
fn words(line: &str) -> Vec<&str> {
    let words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
    words.map(|word| word.trim_matches(['"', '\''])).collect()
}

impl<'a> Config<'a> {
    pub(crate) fn read(text: &'a str) -> Config<'a> {
        let lines: Vec<&str> = text.lines().collect();
        let words: Vec<Vec<&str>> = lines.iter().map(|line| words(line)).collect();
        let ends = text.split_inclusive('\n').scan(0, |end, line| {
            *end += line.len();
            Some(*end)
        });
        let begins = std::iter::once(0).chain(ends).collect();
        let is_first = |line: &usize| words[*line].first().is_some_and(|word| is_section(word));
        let firsts: Vec<usize> = (0..words.len()).filter(is_first).collect();
        let ends = firsts.iter().skip(1).copied().chain([words.len()]);
        let mut sections: Vec<Section<'_>> = Vec::new();
        for (&first, end) in firsts.iter().zip(ends) {
            let (kind, line) = (words[first][0], &words[first]);
            let from = line.iter().position(|word| *word == "from").and_then(|at| line.get(at + 1));
            let defaults = match from {
                _ if kind == "global" => None,
                None if kind == "defaults" => None,
                None => sections.iter().rposition(|section| section.kind == "defaults"),
                Some(name) => sections.iter().rposition(|of| of.kind == "defaults" && of.name == *name),
            };
            let name = line.get(1).copied().filter(|name| *name != "from").unwrap_or_default();
            sections.push(Section { kind, name, first, end, defaults });
        }
        Config { begins, lines, words, sections }
    }

    /// The first line that begins with these words.
    pub(crate) fn find(&self, wanted: &[&str]) -> Option<usize> {
        self.words.iter().position(|words| words.starts_with(wanted))
    }

    /// A section and the defaults that it inherits from.
    pub(crate) fn chain<'s>(&'s self, section: &'s Section<'a>) -> impl Iterator<Item = &'s Section<'a>> {
        std::iter::successors(Some(section), |section| Some(&self.sections[section.defaults?]))
    }

    /// The lines of a section with their numbers, as words; without empty lines and comments.
    pub(crate) fn body(&self, section: &Section<'_>) -> impl DoubleEndedIterator<Item = (usize, &[&'a str])> {
        let lines = section.first + 1..section.end;
        lines.map(|line| (line, &self.words[line][..])).filter(|(_, words)| !words.is_empty())
    }

    /// Whether an HTTP request reaches an application through this section.
    pub(crate) fn serves(&self, section: &Section<'_>) -> bool {
        let mode = self.chain(section).find_map(|section| {
            self.body(section).rev().find_map(|(_, words)| (words[0] == "mode").then(|| words.get(1)))
        });
        let has = |wanted: &[&str]| {
            self.chain(section).any(|section| self.body(section).any(|(_, words)| wanted.contains(&words[0])))
        };
        matches!(section.kind, "frontend" | "listen")
            && mode.flatten() == Some(&"http")
            && has(&TO_APP)
            && !self.body(section).any(|(_, words)| words[0] == "disabled")
    }
}
