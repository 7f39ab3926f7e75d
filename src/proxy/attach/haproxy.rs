//! A configuration of HAProxy with slowlane in one of its frontends.

use std::collections::HashMap;

use crate::proxy::attach::{Block, Refused, with_blocks};
use crate::proxy::shipped::haproxy::Pieces;

/// The words that begin a section.
const SECTIONS: [&str; 23] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "acme",
    "aggregations",
    "cache",
    "crt-store",
    "fcgi-app",
    "http-errors",
    "log-forward",
    "log-profile",
    "mailers",
    "namespace_list",
    "peers",
    "program",
    "resolvers",
    "ring",
    "traces",
    "userlist",
    "dynamic-update",
    "http-client",
];

/// The rules by which HAProxy itself answers a request or ends the rules, so that no later one is reached.
const FINAL: [&str; 9] =
    ["allow", "auth", "deny", "redirect", "reject", "return", "silent-drop", "tarpit", "use-service"];

/// The words before which HAProxy wants all rules of requests.
const AFTER_RULES: [&str; 4] = ["redirect", "use_backend", "use-server", "default_backend"];

/// A configuration with slowlane in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    pub text: String,
    /// The frontend that asks slowlane.
    pub frontend: String,
    /// What the operator should know.
    pub notes: Vec<String>,
}

/// A section: its line, and the number of its first line and of the line after its last.
#[derive(Clone, Debug)]
struct Section<'a> {
    words: Vec<&'a str>,
    first: usize,
    end: usize,
}

/// Adds the lines of slowlane to the frontend `name`, or to the only one for HTTP.
///
/// # Errors
/// No frontend or more than one fits, slowlane is attached already, or a line is not understood.
pub fn attach(text: &str, name: Option<&str>, pieces: &Pieces<'_>) -> Result<Attached, Refused> {
    let lines: Vec<&str> = text.lines().collect();
    let words: Vec<Vec<&str>> = lines.iter().map(|line| words(line)).collect();
    let is_ours = |words: &Vec<&str>| words.starts_with(&["filter", "spoe", "engine", "slowlane"]);
    if let Some(line) = words.iter().position(is_ours) {
        return Err(Refused::Attached(line + 1));
    }
    let relative = words.iter().position(|words| words.starts_with(&["default-path", "config"]));
    if let Some(line) = relative {
        let reason =
            "default-path config: its relative paths have no meaning in a copy, so nothing can be tried";
        return Err(Refused::Line { line: line + 1, reason });
    }
    let sections = sections(&words);
    let frontend = chosen(&sections, &words, name)?;
    let body = frontend.first + 1..frontend.end;
    let is_rule = |line: &usize| words[*line].first().is_some_and(|word| *word == "http-request");
    let last_rule = body.clone().rfind(is_rule);
    let is_after = |line: &usize| words[*line].first().is_some_and(|word| AFTER_RULES.contains(word));
    let place = body.clone().find(|line| is_after(line) && last_rule.is_none_or(|last| last < *line));
    let mut blocks = vec![
        Block { before: place.unwrap_or_else(|| end_of(&words, frontend)), lines: pieces.frontend() },
        Block { before: lines.len(), lines: pieces.end() },
    ];
    let global = pieces.global();
    if !global.is_empty() {
        match sections.iter().find(|section| section.words[0] == "global") {
            Some(section) => blocks.push(Block { before: end_of(&words, section), lines: global }),
            None => blocks
                .push(Block { before: 0, lines: ["global".to_owned()].into_iter().chain(global).collect() }),
        }
    }
    Ok(Attached {
        text: with_blocks(text, blocks),
        frontend: frontend.words.get(1).copied().unwrap_or_default().to_owned(),
        notes: notes(&words, body),
    })
}

/// The line after the last that says something in a section.
fn end_of(words: &[Vec<&str>], section: &Section<'_>) -> usize {
    let last = (section.first..section.end).rev().find(|&line| !words[line].is_empty());
    last.map_or(section.end, |line| line + 1)
}

/// The words of a line, without its comment. Quotes stay: no word that matters here has one.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().take_while(|word| !word.starts_with('#')).collect()
}

fn sections<'a>(words: &[Vec<&'a str>]) -> Vec<Section<'a>> {
    let is_first = |line: &usize| words[*line].first().is_some_and(|word| SECTIONS.contains(word));
    let firsts: Vec<usize> = (0..words.len()).filter(is_first).collect();
    let ends = firsts.iter().skip(1).copied().chain([words.len()]);
    firsts.iter().zip(ends).map(|(&first, end)| Section { words: words[first].clone(), first, end }).collect()
}

/// The frontend to attach to.
fn chosen<'s, 'a>(
    sections: &'s [Section<'a>],
    words: &[Vec<&str>],
    name: Option<&str>,
) -> Result<&'s Section<'a>, Refused> {
    let named = |section: &&Section<'_>| section.words.get(1).copied().unwrap_or_default().to_owned();
    let http = of_http(sections, words);
    let names = |sections: &[&Section<'_>]| sections.iter().map(named).collect::<Vec<_>>();
    match (name, http.as_slice()) {
        (Some(name), found) => match found.iter().find(|section| section.words.get(1) == Some(&name)) {
            Some(section) => Ok(section),
            None => Err(Refused::NoSuch { kind: "frontend", name: name.to_owned(), found: names(found) }),
        },
        (None, [only]) => Ok(only),
        (None, []) => Err(Refused::None("frontend")),
        (None, found) => Err(Refused::Several { flag: "--frontend", found: names(found) }),
    }
}

/// The frontends whose requests reach an application: in the mode HTTP, and more than a page of statistics.
fn of_http<'s, 'a>(sections: &'s [Section<'a>], words: &[Vec<&str>]) -> Vec<&'s Section<'a>> {
    let mut modes: HashMap<&str, bool> = HashMap::new();
    let (mut last, mut found) = (false, Vec::new());
    for section in sections {
        let body = || section.first + 1..section.end;
        let from =
            section.words.iter().position(|word| *word == "from").and_then(|at| section.words.get(at + 1));
        let inherited = match from {
            Some(name) => modes.get(name).copied().unwrap_or(false),
            None if section.words[0] == "defaults" => false,
            None => last,
        };
        let own = body().rev().find_map(|line| match words[line][..] {
            ["mode", mode, ..] => Some(mode == "http"),
            _ => None,
        });
        let is_http = own.unwrap_or(inherited);
        let has = |wanted: &[&str]| {
            body().any(|line| words[line].first().is_some_and(|word| wanted.contains(word)))
        };
        match section.words[0] {
            "defaults" => {
                last = is_http;
                if let Some(name) = section.words.get(1).filter(|name| **name != "from") {
                    modes.insert(name, is_http);
                }
            }
            "frontend" | "listen" if is_http => {
                let is_page = has(&["stats"]) && !has(&["server", "use_backend", "default_backend"]);
                if !is_page {
                    found.push(section);
                }
            }
            _ => {}
        }
    }
    found
}

/// The rules above slowlane's that answer a request, or let it pass, before slowlane is asked.
fn notes(words: &[Vec<&str>], body: std::ops::Range<usize>) -> Vec<String> {
    let is_final = |line: &usize| match words[*line][..] {
        ["http-request", action, ..] => FINAL.contains(&action),
        _ => false,
    };
    let note = |line: usize| match words[line][1] {
        "allow" => {
            format!("line {}: the requests that `http-request allow` lets pass are not counted", line + 1)
        }
        action => format!("line {}: a request that `http-request {action}` answers is not counted", line + 1),
    };
    body.filter(is_final).map(note).collect()
}
