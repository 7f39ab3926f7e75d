//! The documentation in Markdown: the README and the manual.

use std::fs;

use super::project;

/// The page of the reference that has the commands.
pub const REFERENCE: &str = "doc/book/reference-commands.md";

/// All pages of the reference.
pub const REFERENCE_PAGES: [&str; 4] = [
    REFERENCE,
    "doc/book/reference-config.md",
    "doc/book/reference-policy.md",
    "doc/book/reference-protocols.md",
];

/// The pages beside the README and the manual.
pub const BESIDE: [&str; 13] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "tests/bench/README.md",
    "doc/design.md",
    "doc/reports/README.md",
    "doc/reports/cluster-accuracy.md",
    "doc/reports/cluster-internals.md",
    "doc/reports/compared.md",
    "doc/reports/compatibility.md",
    "doc/reports/laws.md",
    "doc/reports/performance.md",
    "doc/reports/protect.md",
];

/// A page of the project, or a section of one.
pub struct Page {
    /// The path from the root of the project.
    pub path: String,
    pub text: String,
}

/// The lines between two fences.
pub struct Block {
    /// The word after the opening fence: the language, or the name of a file.
    pub label: String,
    pub text: String,
}

impl Page {
    pub fn read(path: &str) -> Page {
        let text = fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        Page { path: path.to_owned(), text }
    }

    /// The blocks of this page that have this label.
    pub fn blocks(&self, label: &str) -> Vec<Block> {
        self.all_blocks().into_iter().filter(|block| block.label == label).collect()
    }

    pub fn all_blocks(&self) -> Vec<Block> {
        let fenced = self.text.split("```").skip(1).step_by(2);
        let block = |block: &str| {
            let (label, text) = block.split_once('\n').expect("a block has lines");
            Block { label: label.to_owned(), text: text.to_owned() }
        };
        fenced.map(block).collect()
    }

    /// The section after each heading of level 2.
    pub fn sections(&self) -> Vec<Page> {
        let sections = self.text.split("\n## ").skip(1);
        sections.map(|text| Page { path: self.path.clone(), text: text.to_owned() }).collect()
    }

    /// The text after each heading of level 2 or 3.
    pub fn parts(&self) -> Vec<Page> {
        let parts = self.text.split("\n## ").flat_map(|section| section.split("\n### ")).skip(1);
        parts.map(|text| Page { path: self.path.clone(), text: text.to_owned() }).collect()
    }

    /// The section after the heading of this name.
    pub fn section(&self, name: &str) -> Page {
        let wanted =
            self.sections().into_iter().find(|section| section.text.starts_with(&format!("{name}\n")));
        wanted.unwrap_or_else(|| panic!("{} has no section {name}", self.path))
    }

    /// The anchors of the headings, as links name them.
    pub fn anchors(&self) -> Vec<String> {
        let prose = self.text.split("```").step_by(2);
        let headings = prose.flat_map(str::lines).filter_map(|line| line.strip_prefix('#'));
        headings.map(anchor).collect()
    }

    /// The targets of links and pictures.
    pub fn links(&self) -> Vec<String> {
        let prose: String = self.text.split("```").step_by(2).collect();
        let targets = prose.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned());
        targets.collect()
    }
}

fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
    kept.collect::<String>().replace(' ', "-")
}

/// The README, then every page of the manual, then the READMEs of the examples.
pub fn pages() -> Vec<Page> {
    let in_folder = |folder: &str| {
        let entries = fs::read_dir(project(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| format!("{folder}/{}", name.to_str().unwrap())).collect::<Vec<_>>()
    };
    let mut paths: Vec<String> = ["doc/book", "examples"].into_iter().flat_map(in_folder).collect();
    let of_examples = paths.iter().filter(|path| path.starts_with("examples/") && project(path).is_dir());
    let of_examples: Vec<String> = of_examples.map(|folder| format!("{folder}/README.md")).collect();
    paths.extend(of_examples);
    paths.retain(|path| path.ends_with(".md"));
    paths.sort();
    paths.insert(0, "README.md".to_owned());
    paths.iter().map(|path| Page::read(path)).collect()
}

/// Texts that differ at most in their numbers, and there only by the noise of a run.
#[track_caller]
pub fn assert_alike(shown: &str, made: &str, name: &str) {
    let words = |text: &str| -> (Vec<String>, Vec<f64>) {
        let marked = text.replace(|c: char| !c.is_ascii_digit() && c != '.', " ");
        let numbers = marked.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        (
            text.split(|c: char| c.is_ascii_digit() || "+-. ".contains(c))
                .map(str::to_owned)
                .filter(|word| !word.is_empty())
                .collect(),
            numbers,
        )
    };
    let ((shown_words, shown), (made_words, made)) = (words(shown), words(made));
    assert!(shown_words == made_words, "{name} has other words");
    let far =
        shown.iter().zip(&made).find(|(shown, made)| (*shown - *made).abs() > (made.abs() / 5.0).max(5.0));
    assert!(shown.len() == made.len() && far.is_none(), "{name}: {far:?}");
}
