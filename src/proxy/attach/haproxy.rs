//! A configuration of HAProxy with slowlane in some of its frontends.

use std::collections::BTreeSet;

use crate::proxy::attach::{Block, Refused, with_blocks};
use crate::proxy::haproxy_syntax::{Config, Section};
use crate::proxy::shipped::haproxy::Pieces;

/// The rules by which HAProxy itself answers a request or ends the rules, so that no later one is reached.
const FINAL: &str = "allow auth deny redirect reject return silent-drop tarpit use-service";

/// The words before which HAProxy wants all rules of requests.
const AFTER_RULES: [&str; 4] = ["redirect", "use_backend", "use-server", "default_backend"];

/// A configuration with slowlane in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    pub text: String,
    /// The frontends that ask slowlane.
    pub frontends: Vec<String>,
    /// What the operator should know.
    pub notes: Vec<String>,
}

/// Adds the lines of slowlane to the frontends with these names, or to the only one for HTTP.
///
/// # Errors
/// A frontend is not found or more than one fits, slowlane is attached already, or a place for the lines is not clear.
pub fn attach(text: &str, names: &[String], pieces: &Pieces<'_>) -> Result<Attached, Refused> {
    let config = Config::read(text);
    if let Some(line) = config.find(&["filter", "spoe", "engine", "slowlane"]) {
        return Err(Refused::Attached(place(line)));
    }
    let moves = ["config", "parent"].into_iter().find_map(|from| config.find(&["default-path", from]));
    if let Some(line) = moves {
        return Err(odd(line, "with this `default-path`, a copy elsewhere cannot be checked"));
    }
    let (chosen, others) = config.chosen(names)?;
    // In this order, should two of them have the same place.
    let mut blocks = Vec::from_iter(config.global(pieces)?);
    for section in &chosen {
        blocks.push(Block { at: config.begins[config.rule_place(section)?], lines: pieces.frontend() });
    }
    blocks.push(Block { at: config.begins[config.end_place()?], lines: pieces.end() });
    let found: BTreeSet<(usize, String)> = chosen.iter().flat_map(|section| config.notes(section)).collect();
    let mut notes: Vec<String> =
        found.into_iter().map(|(line, note)| format!("{}: {note}", place(line))).collect();
    if let (Some(line), Some(socket)) = (config.find(&["chroot"]), pieces.socket()) {
        notes.push(format!("{}: HAProxy looks for the socket {socket} inside this folder", place(line)));
    }
    notes.extend(others.iter().map(|other| format!("{} does not ask slowlane", other.name)));
    let frontends = chosen.iter().map(|section| section.name.to_owned()).collect();
    Ok(Attached { text: with_blocks(text, blocks), frontends, notes })
}

fn place(line: usize) -> String {
    format!("line {}", line + 1)
}

fn odd(line: usize, reason: &'static str) -> Refused {
    Refused::Odd { place: place(line), reason }
}

impl<'a> Config<'a> {
    /// The frontends to attach to, and the others that serve an application.
    fn chosen(&self, names: &[String]) -> Result<(Vec<&Section<'a>>, Vec<&Section<'a>>), Refused> {
        let fit: Vec<&Section<'_>> = self.sections.iter().filter(|section| self.serves(section)).collect();
        let found = || fit.iter().map(|section| section.name.to_owned()).collect();
        let missing = names.iter().find(|name| !fit.iter().any(|section| section.name == **name));
        if let Some(name) = missing {
            return Err(Refused::NoSuch { kind: "frontend", name: name.clone(), found: found() });
        }
        match fit[..] {
            [] => Err(Refused::None("frontend that serves an application over HTTP")),
            [_] => Ok((fit, Vec::new())),
            _ if names.is_empty() => Err(Refused::Several { flag: "--frontend", found: found() }),
            _ => Ok(fit.into_iter().partition(|section| names.iter().any(|name| name == section.name))),
        }
    }

    /// How many `.if` are open before a line.
    fn depth(&self, line: usize) -> usize {
        let is = |words: &&Vec<&str>, wanted: &str| words.first() == Some(&wanted);
        let count = |wanted: &str| self.words[..line].iter().filter(|words| is(words, wanted)).count();
        count(".if").saturating_sub(count(".endif"))
    }

    /// The last line up to this one that is inside no `.if`, if it is below the floor.
    fn outside(&self, line: usize, floor: usize) -> Result<usize, Refused> {
        let outside = (0..=line).rev().find(|&line| self.depth(line) == 0).unwrap_or(0);
        if outside <= floor {
            return Err(odd(line.min(self.words.len() - 1), "slowlane's lines would be inside an `.if`"));
        }
        Ok(outside)
    }

    /// The line before which the rules of slowlane belong: after the others, and before the choice of a backend.
    fn rule_place(&self, section: &Section<'_>) -> Result<usize, Refused> {
        let last_rule = self.body(section).rfind(|(_, words)| words[0] == "http-request");
        let last_rule = last_rule.map_or(section.first, |(line, _)| line);
        let after =
            self.body(section).find(|(line, words)| *line > last_rule && AFTER_RULES.contains(&words[0]));
        self.outside(after.map_or_else(|| self.end_of(section), |(line, _)| line), last_rule)
    }

    /// The line after the last one of a section that is neither empty nor a comment.
    fn end_of(&self, section: &Section<'_>) -> usize {
        self.body(section).last().map_or(section.first, |(line, _)| line) + 1
    }

    /// The lines for `global`, where it is, or before everything.
    fn global(&self, pieces: &Pieces<'_>) -> Result<Option<Block>, Refused> {
        let mut lines = pieces.global();
        if lines.is_empty() {
            return Ok(None);
        }
        let Some(global) = self.sections.iter().find(|section| section.kind == "global") else {
            lines.insert(0, "global".to_owned());
            return Ok(Some(Block { at: 0, lines }));
        };
        let line = self.outside(self.end_of(global), global.first)?;
        Ok(Some(Block { at: self.begins[line], lines }))
    }

    /// The line before which the sections of slowlane belong: before the first defaults and the comment above them,
    /// which stay those of all that follows, in further files too.
    fn end_place(&self) -> Result<usize, Refused> {
        let Some(first) = self.sections.iter().find(|section| section.kind == "defaults") else {
            return Ok(self.words.len());
        };
        let mut line = first.first;
        while line > 0 && self.depth(line) > 0 {
            line -= 1;
            if !matches!(self.words[line][..], [] | [".if", ..]) {
                return Err(odd(first.first, "these defaults are inside an `.if`"));
            }
        }
        while line > 0 && self.lines[line - 1].starts_with('#') {
            line -= 1;
        }
        Ok(line)
    }

    /// The lines by which requests pass or are answered before slowlane is asked.
    fn notes(&self, section: &Section<'a>) -> Vec<(usize, String)> {
        let note = |(line, words): (usize, &[&str])| match words[..] {
            ["http-request", "allow", ..] => {
                Some((line, "the requests that `http-request allow` lets pass are not counted".to_owned()))
            }
            ["http-request", action, ..] if FINAL.split(' ').any(|one| one == action) => {
                Some((line, format!("a request that `http-request {action}` answers is not counted")))
            }
            ["monitor-uri", ..] => Some((line, "HAProxy answers `monitor-uri` itself, uncounted".to_owned())),
            _ => None,
        };
        self.chain(section).flat_map(|section| self.body(section)).filter_map(note).collect()
    }
}
