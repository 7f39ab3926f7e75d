//! The English of the documentation: short sentences, each with its subject first, and no word of our own invention.

use std::fs;
use std::path::PathBuf;

use crate::support::lexicon::BANNED;
use crate::support::pages::{BESIDE, Page, pages};
use crate::support::{project, project_files};

/// The most words in a sentence, on average over a file.
const WORDS_MEAN_MAX: f64 = 20.0;

/// The most words in any sentence.
const WORDS_MAX: usize = 40;

/// Phrases to avoid.
const BANNED_PHRASES: [&str; 6] =
    ["in vain", "to be had", "make it another", "that which", "give or take", "for want of"];

/// How words of American spelling begin; the manual is in British.
const AMERICAN: [&str; 27] = [
    "analyz",
    "behavior",
    "canceled",
    "canceling",
    "catalog",
    "center",
    "color",
    "defense",
    "favor",
    "fiber",
    "fulfill",
    "gray",
    "honor",
    "labeled",
    "labeling",
    "license",
    "modeled",
    "modeling",
    "neighbor",
    "normaliz",
    "optimiz",
    "organiz",
    "prioritiz",
    "recogniz",
    "signaled",
    "summariz",
    "synchroniz",
];

/// How the names of files end that have no comments behind `#`. Pages and manual pages are read in their own way.
const NO_COMMENTS: [&str; 10] = [".gz", ".html", ".json", ".lock", ".md", ".png", ".rs", ".svg", ".1", ".5"];

/// Folders of files that programs write.
const WRITTEN: [&str; 3] = ["tests/fuzz/corpus/", "tests/proptest-regressions/", "tests/it/snapshot/"];

/// How lines of configuration begin that are shipped as comments.
const CODE: [&str; 15] = [
    "http-",
    "tcp-request",
    "auth_",
    "add_header",
    "server ",
    "user ",
    "group ",
    "stats ",
    "set_real",
    "real_ip",
    "worker_",
    "post_action ",
    "tune.",
    "- job_name",
    "static_configs",
];

/// Paragraphs of prose, by their file.
struct Text {
    path: String,
    paragraphs: Vec<String>,
}

/// Gathers lines into paragraphs.
#[derive(Default)]
struct Paragraphs {
    done: Vec<String>,
    open: String,
}

impl Paragraphs {
    fn push(&mut self, line: &str) {
        if !self.open.is_empty() {
            self.open.push(' ');
        }
        self.open += line.trim();
    }

    fn end(&mut self) {
        if !self.open.is_empty() {
            self.done.push(std::mem::take(&mut self.open));
        }
    }

    fn finish(mut self) -> Vec<String> {
        self.end();
        self.done
    }
}

/// The prose of Markdown, without code and pictures. A link is its text, and `code` is one word.
fn of_markdown(text: &str) -> Vec<String> {
    let mut paragraphs = Paragraphs::default();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let is_apart = line.starts_with("```") || line.starts_with("![");
        let item = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        if is_code || is_apart || line.is_empty() {
            paragraphs.end();
        } else if line.starts_with(['#', '|']) {
            paragraphs.end();
            paragraphs.push(&line.replace(['#', '|'], " "));
            paragraphs.end();
        } else if let Some(item) = ["- ", ". "].iter().find_map(|mark| item.strip_prefix(mark)) {
            paragraphs.end();
            paragraphs.push(item);
        } else {
            paragraphs.push(line);
        }
    }
    paragraphs.finish().iter().map(|paragraph| inline(paragraph)).collect()
}

fn inline(paragraph: &str) -> String {
    let mut plain = String::new();
    for (number, part) in paragraph.split('`').enumerate() {
        plain += if number % 2 == 1 { "code" } else { part };
    }
    let mut links = plain.split("](");
    let mut text = links.next().unwrap().to_owned();
    links.for_each(|rest| text += rest.split_once(')').map_or(rest, |(_, rest)| rest));
    text.replace(['[', '*'], "")
}

/// The prose of a manual page, without headings, tables, examples and the tags of lists.
fn of_manual_page(text: &str) -> Vec<String> {
    let mut paragraphs = Paragraphs::default();
    let (mut is_apart, mut is_tag) = (false, false);
    for line in text.lines() {
        let (request, rest) = line.split_once(' ').unwrap_or((line, ""));
        match request {
            ".nf" | ".TS" => is_apart = true,
            ".fi" | ".TE" => is_apart = false,
            _ if is_apart => {}
            ".TP" | ".PP" | ".SH" | ".SS" | ".TH" => paragraphs.end(),
            ".B" | ".I" | ".BR" | ".BI" | ".IR" | ".RB" | ".RI" if !is_tag => {
                paragraphs.push(&rest.replace([' ', '"'], ""));
            }
            _ if is_tag || request.starts_with(['.', '\'']) => {}
            _ => paragraphs.push(line),
        }
        is_tag = request == ".TP";
    }
    paragraphs.finish()
}

/// The comments behind `#`, those behind `--` of Lua, and the annotations of alerts.
fn of_comments(text: &str) -> Vec<String> {
    let mut paragraphs = Paragraphs::default();
    for line in text.lines().map(str::trim_start) {
        let outcome =
            ["summary: ", "description: ", "runbook: "].iter().find_map(|key| line.strip_prefix(key));
        let lua = line.strip_prefix("-- ").map(|comment| ("", comment));
        match (lua.or_else(|| line.split_once("# ")), outcome) {
            (Some(("", comment)), _)
                if comment.starts_with(' ') || CODE.iter().any(|code| comment.starts_with(code)) =>
            {
                paragraphs.end();
            }
            // Columns are not sentences.
            (Some(("", comment)), _) if comment.contains("  ") => paragraphs.end(),
            (Some(("", comment)), _) => paragraphs.push(comment),
            (Some((_, comment)), None) => {
                paragraphs.end();
                paragraphs.push(comment);
                paragraphs.end();
            }
            (_, Some(outcome)) => {
                paragraphs.end();
                paragraphs.push(outcome.trim_matches('"'));
                paragraphs.end();
            }
            (None, None) => paragraphs.end(),
        }
    }
    paragraphs.finish()
}

/// The documentation in Rust sources, which is also the help of commands. Each is text like that of a page.
fn of_rust(text: &str) -> Vec<String> {
    let said = |line: &str| {
        let line = line.trim_start();
        ["///", "//!"].iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or("").trim_start().to_owned()
    };
    of_markdown(&text.lines().map(said).collect::<Vec<_>>().join("\n"))
}

fn texts() -> Vec<Text> {
    let read =
        |path: &str| fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut texts: Vec<Text> = Vec::new();
    let mut add = |path: &str, paragraphs| texts.push(Text { path: path.to_owned(), paragraphs });
    pages().iter().for_each(|page| add(&page.path, of_markdown(&page.text)));
    BESIDE.iter().for_each(|path| add(path, of_markdown(&read(path))));
    commented().iter().for_each(|path| add(path, of_comments(&read(path))));
    let manuals = fs::read_dir(project("doc/man")).unwrap().map(|file| file.unwrap().path());
    manuals.for_each(|path: PathBuf| {
        let name = format!("doc/man/{}", path.file_name().unwrap().to_str().unwrap());
        add(&name, of_manual_page(&read(&name)));
    });
    let dashboard = read("monitoring/grafana-dashboard.json");
    let described =
        dashboard.split("\"description\": \"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
    add("monitoring/grafana-dashboard.json", described.collect());
    texts
}

/// The files whose comments are prose.
fn commented() -> Vec<String> {
    let mut files = project_files();
    files.retain(|path| {
        !NO_COMMENTS.iter().any(|end| path.ends_with(end))
            && !WRITTEN.iter().any(|folder| path.starts_with(folder))
    });
    for known in ["slowlane.toml", "haproxy/slowlane.lua", ".ci/run", "tests/support/count", "Dockerfile"] {
        assert!(files.iter().any(|path| path == known), "{known} is not read: {files:?}");
    }
    files
}

/// The sentences of a paragraph. A fragment without a full stop, as in a list, is not one.
fn sentences(paragraph: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut from = 0;
    for (at, mark) in paragraph.match_indices(['.', '!', '?', ':']) {
        let rest = &paragraph[at + 1..];
        let ends = rest.is_empty() || mark != ":" && rest.trim_start_matches([')', '"']).starts_with(' ');
        if ends {
            sentences.push(paragraph[from..=at].trim());
            from = at + 1;
        }
    }
    sentences
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

#[test]
fn sentences_are_short() {
    let mut long = Vec::new();
    for Text { path, paragraphs } in texts() {
        let sentences: Vec<&str> = paragraphs.iter().flat_map(|paragraph| sentences(paragraph)).collect();
        let total: usize = sentences.iter().map(|sentence| words(sentence)).sum();
        let mean = total as f64 / sentences.len().max(1) as f64;
        if mean > WORDS_MEAN_MAX {
            long.push(format!("{path}: {mean:.1} words in a sentence on average"));
        }
        let longest = sentences.iter().filter(|sentence| words(sentence) > WORDS_MAX);
        long.extend(longest.map(|sentence| format!("{path}: {} words: {sentence}", words(sentence))));
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn words_are_those_of_the_trade() {
    let mut found = Vec::new();
    for Text { path, paragraphs } in texts() {
        for paragraph in &paragraphs {
            let text = paragraph.to_lowercase();
            let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
            let banned = BANNED.iter().filter(|&word| words.contains(word));
            let phrases = BANNED_PHRASES.iter().filter(|&phrase| text.contains(phrase));
            found.extend(banned.chain(phrases).map(|word| format!("{path}: {word:?} in: {paragraph}")));
            // The word belongs to HAProxy's side of SPOE.
            if words.iter().any(|word| word.starts_with("engine"))
                && !text.contains("spoe")
                && !text.contains("haproxy")
            {
                found.push(format!("{path}: an engine of what? {paragraph}"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_spelling_is_british() {
    let mut texts = texts();
    let sources = project_files().into_iter().filter(|path| path.ends_with(".rs"));
    let sources = sources.filter(|path| path.starts_with("src/") || path.starts_with("crates/"));
    texts.extend(sources.map(|path| {
        let paragraphs = of_rust(&fs::read_to_string(project(&path)).unwrap());
        Text { path, paragraphs }
    }));
    let mut found = Vec::new();
    for Text { path, paragraphs } in texts {
        let paragraphs = paragraphs.iter().map(|paragraph| paragraph.to_lowercase());
        let words: Vec<String> = paragraphs
            .flat_map(|text| {
                text.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        let american = words.iter().filter(|word| {
            AMERICAN.iter().any(|start| word.starts_with(start)) && !word.starts_with("catalogue")
        });
        found.extend(american.map(|word| format!("{path}: {word}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Only questions begin with these words; other sentences begin with a noun.
#[test]
fn sentences_begin_with_their_subject() {
    let mut found = Vec::new();
    for Text { path, paragraphs } in texts() {
        let sentences = paragraphs.iter().flat_map(|paragraph| sentences(paragraph));
        let odd = sentences.filter(|sentence| !sentence.ends_with('?'));
        let odd = odd.filter(|sentence| {
            ["What ", "Who ", "Whose ", "That which "].iter().any(|word| sentence.starts_with(word))
        });
        found.extend(odd.map(|sentence| format!("{path}: {sentence}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A reader finds each word once, in its place. Other pages of the manual use it.
#[test]
fn the_first_page_has_a_dozen_words_of_the_manual() {
    const FIRST: &str = "doc/book/README.md";
    let others = texts().into_iter().filter(|text| text.path.starts_with("doc/book/") && text.path != FIRST);
    let manual = others.flat_map(|text| text.paragraphs).collect::<Vec<_>>().join("\n").to_lowercase();
    let is_used = |word: &str| {
        manual
            .match_indices(word)
            .any(|(at, _)| !manual[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-'))
    };
    let section = Page::read(FIRST).section("Words");
    let rows = section.text.lines().filter(|line| line.starts_with("| ")).skip(2);
    let words: Vec<String> = rows.map(|row| row.split('|').nth(1).unwrap().trim().to_lowercase()).collect();
    assert!(words.is_sorted(), "not in order: {words:?}");
    assert!((10..=15).contains(&words.len()), "{} words", words.len());
    let wrong: Vec<&String> = words
        .iter()
        .filter(|word| {
            BANNED.contains(&word.as_str())
                || !is_used(word)
                || words.iter().filter(|other| other == word).count() > 1
        })
        .collect();
    assert!(wrong.is_empty(), "banned, twice, or on no other page: {wrong:?}");
}

#[test]
fn prose_is_told_from_the_rest() {
    let page = "# What it is\n\nSee `a b` in [a page](p.md). Is it?\n\n```sh\nrun this. now\n```\n- An item\n  goes on.\n1. One.\n";
    assert_eq!(of_markdown(page), ["What it is", "See code in a page. Is it?", "An item goes on.", "One."]);
    assert_eq!(sentences("It costs 1.5 s. It ends: so. A fragment"), ["It costs 1.5 s.", "It ends: so."]);
    assert_eq!(words("It costs 1.5 s - now."), 5);
    let manual = ".SH NAME\nslowlane\n.TP\n.B tag\nIt has\n.BR a (1).\n.nf\ncode. code.\n.fi\n";
    assert_eq!(of_manual_page(manual), ["slowlane", "It has a(1)."]);
    let source =
        "/// The `Key` of\n/// a `color`.\n///\n/// ```\n/// let color = 1;\n/// ```\nlet color = 2;\n";
    assert_eq!(of_rust(source), ["The code of a code."]);
    let comments = "# One\n# more.\n#\n# http-request deny\nkey = 1   # Behind it.\n";
    assert_eq!(of_comments(comments), ["One more.", "Behind it."]);
}
