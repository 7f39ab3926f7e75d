//! A configuration of HAProxy with slowlane in some of its frontends.

use std::collections::BTreeSet;

use crate::proxy::attach::{Attached, BEGIN, Block, Refused, Site, chosen, with_blocks};
use crate::proxy::haproxy_syntax::{Config, Section};
use crate::proxy::shipped::haproxy::Pieces;

/// The rules by which HAProxy itself answers a request or ends the rules, so that no later one is reached.
const FINAL: &str = "allow auth deny redirect reject return silent-drop tarpit use-service";

/// The first words of lines before which HAProxy expects all rules for requests.
const AFTER_RULES: [&str; 4] = ["redirect", "use_backend", "use-server", "default_backend"];

/// Lines that leave the right place unclear, or prevent the check of a copy. Each has its reason.
const ODD: [(&[&str], &str); 3] = [
    (&[".if"], "with an `.if`, slowlane's lines might be left out"),
    (&["default-path", "config"], "with this `default-path`, a copy elsewhere cannot be checked"),
    (&["default-path", "parent"], "with this `default-path`, a copy elsewhere cannot be checked"),
];

/// The first words of slowlane's lines, including pasted ones.
const OURS: [&[&str]; 2] = [&["filter", "spoe", "engine", "slowlane"], &["backend", "slowlane-agents"]];

/// Adds the lines of slowlane to the frontends with these names, or to the only one for HTTP.
///
/// # Errors
/// A frontend is not found or more than one fits, slowlane is attached already, or a place for the lines is not clear.
pub fn attach(text: &str, names: &[String], pieces: &Pieces<'_>) -> Result<Attached<String>, Refused> {
    let config = Config::read(text);
    if let Some(line) = OURS.iter().find_map(|words| config.find(words)) {
        let refused = if text.contains(BEGIN) { Refused::Attached } else { Refused::ByHand };
        return Err(refused(place(line)));
    }
    for (words, reason) in ODD {
        if let Some(line) = config.find(words) {
            return Err(Refused::Odd { place: place(line), reason });
        }
    }
    let fit = config.sections.iter().filter(|section| config.serves(section));
    let sites = fit.map(|of| Site {
        of,
        shown: of.name.to_owned(),
        place: place(of.first),
        names: vec![of.name.to_owned()],
    });
    let (chosen, others) = chosen("frontend", sites.collect(), names)?;
    // The order matters if two of them have the same place.
    let mut blocks = Vec::from_iter(config.global(pieces));
    for site in &chosen {
        blocks.push(Block { at: config.begins[config.rule_place(site.of)], lines: pieces.frontend() });
    }
    blocks.push(Block { at: config.begins[config.end_place()], lines: pieces.end() });
    let found: BTreeSet<(usize, String)> = chosen.iter().flat_map(|site| config.notes(site.of)).collect();
    let mut notes: Vec<String> =
        found.into_iter().map(|(line, note)| format!("{}: {note}", place(line))).collect();
    if let (Some(line), Some(socket)) = (config.find(&["chroot"]), pieces.socket()) {
        notes.push(format!("{}: HAProxy looks for the socket {socket} inside this folder", place(line)));
    }
    notes.extend(others);
    let names = chosen.into_iter().map(|site| site.shown).collect();
    Ok(Attached { after: with_blocks(text, blocks), names, notes })
}

fn place(line: usize) -> String {
    format!("line {}", line + 1)
}

impl<'a> Config<'a> {
    /// The line before which the rules of slowlane belong: after the others, and before the choice of a backend.
    fn rule_place(&self, section: &Section<'_>) -> usize {
        let last_rule = self.body(section).rfind(|(_, words)| words[0] == "http-request");
        let last_rule = last_rule.map_or(section.first, |(line, _)| line);
        let mut after = self.body(section).filter(|(line, _)| *line > last_rule);
        let choice = after.find(|(_, words)| AFTER_RULES.contains(&words[0]));
        choice.map_or_else(|| self.end_of(section), |(line, _)| line)
    }

    /// The line after the last one of a section that is neither empty nor a comment.
    fn end_of(&self, section: &Section<'_>) -> usize {
        self.body(section).last().map_or(section.first, |(line, _)| line) + 1
    }

    /// The lines for the section `global`: inside it, or before everything if there is none.
    fn global(&self, pieces: &Pieces<'_>) -> Option<Block> {
        let mut lines = pieces.global();
        let global = self.sections.iter().find(|section| section.kind == "global");
        if global.is_none() {
            lines.insert(0, "global".to_owned());
        }
        let at = global.map_or(0, |global| self.begins[self.end_of(global)]);
        (!pieces.global().is_empty()).then_some(Block { at, lines })
    }

    /// The line before which slowlane's sections belong: before the first defaults and the comment above them. The
    /// defaults then still apply to everything that follows, in further files too.
    fn end_place(&self) -> usize {
        let first = self.sections.iter().find(|section| section.kind == "defaults");
        let line = first.map_or(self.words.len(), |first| first.first);
        let above = self.lines[..line].iter().rev().take_while(|line| line.starts_with('#'));
        line - above.count()
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
