//! Adds slowlane to some of the frontends in an HAProxy configuration.

use std::collections::BTreeSet;

use crate::proxy::attach::{Attached, BEGIN, BEHIND, Block, Refused, Site, TAKEN, chosen, with_blocks};
use crate::proxy::haproxy_syntax::{Config, Line, Section};
use crate::proxy::shipped::haproxy::Pieces;

/// The actions with which HAProxy answers a request itself or stops its rules, so that no later rule is reached.
const FINAL: &str = "allow auth deny redirect reject return silent-drop tarpit use-service";

/// The first words of lines before which HAProxy expects all rules for requests.
const AFTER_RULES: [&str; 4] = ["redirect", "use_backend", "use-server", "default_backend"];

/// The first words of slowlane's lines, including pasted ones.
const OURS: [&[&str]; 2] = [&["filter", "spoe", "engine", "slowlane"], &["backend", "slowlane-agents"]];

/// The number of hops that `--trusted` can skip: a CDN, a load balancer, and one more hop.
const HOPS: usize = 3;

/// A place for lines: the index of a file, and a position in this file, in bytes.
type Place = (usize, usize);

/// Adds the lines of slowlane to the frontends with these names, or to the only HTTP frontend. The files, each with its
/// name, are one configuration; the result has the files in the same order. `trusted` is the path of a list of networks
/// whose X-Forwarded-For has the client's address.
///
/// # Errors
/// A frontend is not found or more than one fits, slowlane is attached already, or a place for the lines is not clear.
pub fn attach(
    files: &[(String, &str)],
    names: &[String],
    pieces: &Pieces<'_>,
    trusted: Option<&str>,
) -> Result<Attached<Vec<String>>, Refused> {
    let texts: Vec<&str> = files.iter().map(|(_, text)| *text).collect();
    let config = Config::read(&texts);
    let place = |line: usize| {
        let Line { file, number, .. } = config.lines[line];
        if files.len() == 1 { format!("line {number}") } else { format!("{}:{number}", files[file].0) }
    };
    if let Some(line) = OURS.iter().find_map(|words| config.find(words)) {
        let is_marked = texts.iter().any(|text| text.contains(BEGIN));
        return Err(if is_marked { Refused::Attached } else { Refused::ByHand }(place(line)));
    }
    for kind in ["config", "parent"] {
        if let Some(line) = config.find(&["default-path", kind]) {
            let reason = "with this `default-path`, slowlane cannot check a copy of the file elsewhere";
            return Err(Refused::Odd { place: place(line), reason });
        }
    }
    let fit = config.sections.iter().filter(|section| config.serves(section));
    let sites = fit.map(|of| Site {
        of,
        shown: of.name.clone(),
        place: place(of.first),
        names: vec![of.name.clone()],
    });
    let (chosen, others) = chosen("frontend", sites.collect(), names)?;
    let global = config.sections.iter().find(|section| section.kind == "global");
    // HAProxy may leave out a section that is inside an `.if`.
    let mut needed = chosen.iter().map(|site| site.of).chain(global);
    if let Some(section) = needed.find(|section| config.lines[section.first].depth > 0) {
        let reason = "HAProxy may leave out slowlane's lines inside this `.if`";
        return Err(Refused::Odd { place: place(config.outside(section.first)), reason });
    }
    let taken: Vec<Option<usize>> = chosen.iter().map(|site| config.client_line(site.of)).collect();
    if let (Some(_), Some(line)) = (trusted, taken.iter().find_map(|line| *line)) {
        return Err(Refused::Odd { place: place(line), reason: TAKEN });
    }
    let lines = [trusted.map(trusting).unwrap_or_default(), pieces.frontend()].concat();
    // The order matters if two blocks have the same place.
    let mut blocks: Vec<(Place, Vec<String>)> = Vec::from_iter(config.global(global, pieces));
    blocks.extend(chosen.iter().map(|site| (config.rule_place(site.of), lines.clone())));
    blocks.push((config.end_place(), pieces.end()));
    let found: BTreeSet<(usize, String)> = chosen.iter().flat_map(|site| config.notes(site.of)).collect();
    let mut notes: Vec<String> =
        found.into_iter().map(|(line, note)| format!("{}: {note}", place(line))).collect();
    if let (Some(line), Some(socket)) = (config.find(&["chroot"]), pieces.socket()) {
        notes.push(format!("{}: HAProxy looks for the socket {socket} inside this folder", place(line)));
    }
    notes.extend((trusted.is_none() && taken.contains(&None)).then(|| BEHIND.to_owned()));
    notes.extend(others);
    let names = chosen.into_iter().map(|site| site.shown).collect();
    let after = texts.iter().enumerate().map(|(number, text)| {
        let own = blocks.iter().filter(|((file, _), _)| *file == number);
        with_blocks(text, own.map(|((_, at), lines)| Block::at(*at, lines.clone())).collect())
    });
    Ok(Attached { after: after.collect(), names, notes })
}

/// The rules that take the client's address from X-Forwarded-For: hop by hop from the right, as long as the address is
/// in the networks of the list.
fn trusting(list: &str) -> Vec<String> {
    let rule =
        |hop| format!("    http-request set-src req.hdr_ip(x-forwarded-for,-{hop}) if {{ src -f {list} }}");
    (1..=HOPS).map(rule).collect()
}

/// Whether a line replaces the source address of the connection with the client's address.
fn takes_client(words: &[&str]) -> bool {
    match words {
        ["http-request", "set-src", ..] | ["tcp-request", _, "set-src" | "expect-proxy", ..] => true,
        ["bind", options @ ..] => options.contains(&"accept-proxy"),
        _ => false,
    }
}

impl Config<'_> {
    fn before(&self, line: usize) -> Place {
        (self.lines[line].file, self.lines[line].begin)
    }

    fn after(&self, line: usize) -> Place {
        (self.lines[line].file, self.lines[line].end)
    }

    /// The place where slowlane's rules belong: after the section's `http-request` rules, before the first line that
    /// redirects or chooses a backend or server, and outside every `.if`.
    fn rule_place(&self, section: &Section) -> Place {
        let last_rule = self.body(section).rfind(|(_, words)| words[0] == "http-request");
        let last_rule = last_rule.map_or(section.first, |(line, _)| line);
        let mut after = self.body(section).filter(|(line, _)| *line > last_rule);
        let choice = after.find(|(_, words)| AFTER_RULES.contains(&words[0]));
        match choice {
            Some((line, _)) => self.before(self.outside(line)),
            None => self.end_of(section),
        }
    }

    /// This line, or the line of the outermost `.if` around it.
    fn outside(&self, line: usize) -> usize {
        let around = self.lines[..=line].iter().rposition(|line| line.depth == 0).map_or(0, |line| line + 1);
        around.min(line)
    }

    /// The place after a section's last line that is neither empty nor a comment nor inside an `.if`.
    fn end_of(&self, section: &Section) -> Place {
        let is_outside =
            |(line, words): &(usize, Vec<&str>)| self.lines[*line].depth == usize::from(words[0] == ".endif");
        self.after(self.body(section).rfind(is_outside).map_or(section.first, |(line, _)| line))
    }

    /// The lines needed for `global`, if any, and their place: at its end, or before everything if `global` is missing.
    fn global(&self, global: Option<&Section>, pieces: &Pieces<'_>) -> Option<(Place, Vec<String>)> {
        let mut lines = pieces.global();
        if global.is_none() {
            lines.insert(0, "global".to_owned());
        }
        let place = global.map_or(self.before(0), |global| self.end_of(global));
        (!pieces.global().is_empty()).then_some((place, lines))
    }

    /// The place for slowlane's sections: before the first `defaults` and the comment above it. That `defaults` still
    /// applies to everything after it, in later files too. Without a `defaults`, the place is the end of the last file.
    fn end_place(&self) -> Place {
        let Some(first) = self.sections.iter().find(|section| section.kind == "defaults") else {
            return self.after(self.lines.len() - 1);
        };
        let line = self.outside(first.first);
        let file = self.lines[line].file;
        let above = self.lines[..line].iter().rev();
        let above = above.take_while(|line| line.file == file && line.text.starts_with('#'));
        self.before(line - above.count())
    }

    /// The line that tells a section where to get the client's address.
    fn client_line(&self, section: &Section) -> Option<usize> {
        let mut lines = self.chain(section).flat_map(|section| self.body(section));
        lines.find(|(_, words)| takes_client(words)).map(|(line, _)| line)
    }

    /// Lines that let requests pass or answer them uncounted, or that determine a client's address, each with a note.
    fn notes(&self, section: &Section) -> Vec<(usize, String)> {
        let lines = self.chain(section).flat_map(|section| self.body(section));
        lines.filter_map(|(line, words)| Some((line, note(&words)?))).collect()
    }
}

fn note(words: &[&str]) -> Option<String> {
    let note = match words {
        ["http-request", "allow", ..] => "requests that `http-request allow` lets pass are not counted",
        ["http-request", action, ..] if FINAL.split(' ').any(|one| one == *action) => {
            return Some(format!("a request that `http-request {action}` answers is not counted"));
        }
        ["option", "abortonclose", ..] => {
            "up to HAProxy 3.2, a request whose client disconnects early may pass uncounted: \
             move `option abortonclose` to the backends"
        }
        ["http-request", "set-src", rule @ ..]
            if !rule.iter().any(|word| ["if", "unless"].contains(word)) =>
        {
            "any client of this port can choose the address that slowlane counts: add `if { src -f FILE }`, \
             where FILE lists the networks of your CDN"
        }
        words if takes_client(words) => "slowlane counts each client by the address that this line provides",
        ["monitor-uri", ..] => "HAProxy answers requests for `monitor-uri` itself, so they are not counted",
        _ => return None,
    };
    Some(note.to_owned())
}
