//! HAProxy's configuration, and what of slowlane is in it.

use std::path::Path;
use std::{fs, io};

use crate::cli::doctor::proxies::{Read, Site};

/// The words that begin a section which matters here, or end one.
const SECTIONS: [&str; 9] =
    ["global", "defaults", "frontend", "backend", "listen", "peers", "resolvers", "userlist", "http-errors"];

/// The lines of a section, word by word. The first has its kind and its name.
type Section<'t> = Vec<Vec<&'t str>>;

pub(super) fn read(path: &Path) -> io::Result<Read> {
    let text = fs::read(path)?;
    let text = String::from_utf8_lossy(&text);
    let (mut sections, mut read) = (Vec::<Section<'_>>::new(), Read::default());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        match (words.first(), sections.last_mut()) {
            (None, _) => {}
            (Some(first), Some(section)) if !SECTIONS.contains(first) => section.push(words),
            _ => sections.push(vec![words]),
        }
    }
    let mut default = "tcp";
    for section in &sections {
        let mode = second(section, "mode").last().unwrap_or(default);
        match section[0][..] {
            ["defaults", ..] => default = second(section, "mode").last().unwrap_or("tcp"),
            ["frontend" | "listen", name, ..] if mode == "http" && serves(section) => {
                read.sites.push(site(name, section))
            }
            ["backend", name, ..] if name.starts_with("slowlane") => {
                let addresses =
                    section.iter().filter(|words| words[0] == "server").filter_map(|words| words.get(2));
                read.agents.extend(addresses.map(|address| address.replace("unix@", "unix:")));
            }
            _ => {}
        }
    }
    Ok(read)
}

/// The words after this first word.
fn second<'t>(section: &Section<'t>, first: &str) -> impl Iterator<Item = &'t str> {
    section.iter().filter(move |words| words[0] == first).filter_map(|words| words.get(1).copied())
}

/// Whether requests reach an application through it: a page of statistics alone asks nobody.
fn serves(section: &Section<'_>) -> bool {
    section.iter().any(|words| matches!(words[0], "default_backend" | "use_backend" | "server"))
}

fn site(name: &str, section: &Section<'_>) -> Site {
    let has = |wanted: &[&str]| section.iter().any(|words| words.starts_with(wanted));
    let lacks = match has(&["filter", "spoe", "engine", "slowlane"]) {
        false => Some("no `filter spoe engine slowlane`"),
        true if has(&["http-request", "send-spoe-group", "slowlane"]) => None,
        true => Some("slowlane's filter, and no `http-request send-spoe-group slowlane decide`"),
    };
    let has_ipv6 =
        second(section, "bind").any(|address| address.contains("::") || address.starts_with("ipv6@"));
    Site { name: name.to_owned(), lacks, has_ipv6 }
}
