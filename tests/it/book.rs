//! The manual: its reference is complete, its links lead somewhere, and the lines that it shows are in the files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use slowlane_core::law::Law;

use crate::cli::{COMMANDS, ran};
use crate::support::pages::{BESIDE, Page, REFERENCE, REFERENCE_PAGES, pages};
use crate::support::slowlane::Slowlane;
use crate::support::tls::Authority;
use crate::support::{project, skipped, wheels};

/// The pages of the reference as one text, and the names that they lack.
struct Reference {
    text: String,
    missing: Vec<String>,
}

impl Reference {
    fn read() -> Reference {
        let texts = REFERENCE_PAGES.map(|path| Page::read(path).text);
        Reference { text: texts.join("\n"), missing: Vec::new() }
    }

    /// Expects a name between backticks.
    fn wants(&mut self, kind: &str, name: &str) {
        if !self.text.contains(&format!("`{name}`")) {
            self.missing.push(format!("{kind} {name}"));
        }
    }

    /// Expects a row of a table: a name between backticks, and the cell after it.
    fn wants_row(&mut self, kind: &str, name: &str, cell: &str) {
        if !self.text.contains(&format!("\n| `{name}` | {cell} |")) {
            self.missing.push(format!("{kind} {name}: {cell}"));
        }
    }

    fn lacks_nothing(self) {
        assert!(self.missing.is_empty(), "the reference lacks:\n{}", self.missing.join("\n"));
    }
}

#[test]
fn the_reference_names_every_key() {
    let mut reference = Reference::read();
    for (section, key) in keys() {
        reference.wants("key", &format!("{section}.{key}"));
    }
    reference.lacks_nothing();
}

/// The row of a key has the default of the shipped config file.
#[test]
fn the_reference_names_every_default() {
    let mut reference = Reference::read();
    let file = fs::read_to_string(project("slowlane.toml")).unwrap();
    let (mut section, mut rows) = ("", 0);
    for line in file.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_start_matches('[').split(']').next().unwrap();
        }
        let setting = line.split_once(" = ").filter(|(key, _)| !key.starts_with('#'));
        // The types and the lookups are described in words.
        let Some((key, value)) = setting.filter(|_| !section.starts_with("policy.")) else { continue };
        let default = format!("`{}`", value.split("  #").next().unwrap().trim_end());
        reference.wants_row("default of", &format!("{section}.{key}"), &default);
        rows += 1;
    }
    assert!(rows > 35, "{rows}");
    reference.lacks_nothing();
}

/// The section of a command has each flag that its help lists.
#[test]
fn the_section_of_a_command_has_its_flags() {
    let page = Page::read(REFERENCE);
    for (command, flag) in flags() {
        let mut sections = page.text.split("\n### slowlane ").skip(1);
        let section = sections.find(|section| section.starts_with(&format!("{command}\n")));
        let section = section.unwrap_or_else(|| panic!("{REFERENCE} has no section {command}"));
        let has = [' ', '`', '['].iter().any(|end| section.contains(&format!("`{flag}{end}")));
        assert!(has, "the section of {command} lacks {flag}");
    }
}

/// Every key of the shipped config file with its section, including keys that are commented out.
fn keys() -> Vec<(String, String)> {
    let file = fs::read_to_string(project("slowlane.toml")).unwrap();
    let (mut section, mut keys) = (String::new(), Vec::new());
    for line in file.lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_start_matches('[').split(']').next().unwrap().to_owned();
        }
        let key = line.split_once(" = ").map(|(key, _)| key);
        // A number is a type of SLO, not a key.
        let key = key.filter(|key| key.starts_with(char::is_alphabetic) && !key.contains(' '));
        keys.extend(key.map(|key| (section.clone(), key.to_owned())));
    }
    assert!(keys.len() > 15, "{keys:?}");
    keys
}

/// Every flag of every command, as the help lists them.
fn flags() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let (mut open, mut parents) = (vec![String::new()], Vec::new());
    while let Some(command) = open.pop() {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        words.push("--help");
        let help = ran(&words).out;
        let mut in_commands = false;
        for line in help.lines() {
            if !line.starts_with(' ') {
                in_commands = COMMANDS.contains(&line);
            }
            let mut words = line.split_whitespace();
            match words.next() {
                Some("help") if in_commands => {}
                Some(word) if in_commands && line.starts_with("  ") && !line.starts_with("   ") => {
                    open.push(format!("{command} {word}"));
                    if help.contains(" <COMMAND>\n") {
                        parents.push(command.trim().to_owned());
                    }
                }
                Some(first) if line.starts_with("  ") && first.starts_with('-') => {
                    let long = std::iter::once(first).chain(words).find(|word| word.starts_with("--"));
                    // A value that may be left out is written `--tls[=<NAME>]`.
                    let long = long.and_then(|flag| flag.split("[=").next());
                    let long = long.map(|flag| flag.trim_end_matches(',').to_owned());
                    let long = long.filter(|flag| flag != "--help");
                    found.extend(long.map(|flag| (command.trim().to_owned(), flag)));
                }
                _ => {}
            }
        }
    }
    // A command of commands does nothing alone, and its flags are listed by each of them.
    found.retain(|(command, _)| !parents.contains(command));
    assert!(found.len() > 10, "{found:?}");
    found
}

/// A law rejects an unknown option and names its own.
#[test]
fn every_law_has_its_section_and_every_option_its_row() {
    let mut reference = Reference::read();
    let laws = Page::read("doc/book/laws.md");
    ["burst", "rate", "law", "dry_run", "also", "assured"]
        .iter()
        .for_each(|option| reference.wants("option", option));
    for law in Law::NAMES {
        assert!(laws.text.contains(&format!("\n### {law}\n")), "doc/book/laws.md has no section {law}");
        assert!(laws.text.contains(&format!("| [`{law}`](#{law})")), "its table has no row {law}");
        let outcome = ran(&["simulate", "--law", law, "--option", "nothing=1"]).problems.join("\n");
        let (_, options) =
            outcome.split_once(&format!("unknown option \"nothing\": {law} takes ")).expect(&outcome);
        let options = options.lines().next().unwrap().replace(" and ", ", ");
        let options = options.split(", ").filter(|&option| option != "none");
        options.for_each(|option| reference.wants(&format!("option of {law}"), option));
    }
    reference.lacks_nothing();
}

#[test]
fn the_reference_names_every_variable_of_haproxy() {
    let mut reference = Reference::read();
    let mut variables = BTreeSet::new();
    // Those of the answer, and those that the shipped files use.
    let answer = fs::read_to_string(project("src/proxy/haproxy.rs")).unwrap();
    let (answer, _) = answer.split_once("\n#[cfg(test)]").unwrap();
    for name in answer.split("Variable::new(Scope::Txn, b\"").skip(1) {
        variables.insert(format!("txn.slowlane.{}", name.split('"').next().unwrap()));
    }
    // It makes an answer that says nothing.
    variables.remove("txn.slowlane.unknown");
    for text in texts("haproxy") {
        for rest in text.split("txn.slowlane").skip(1) {
            let end = rest.find(|c: char| c != '_' && c != '.' && !c.is_ascii_lowercase()).unwrap();
            variables.insert(format!("txn.slowlane{}", rest[..end].trim_end_matches('.')));
        }
    }
    assert!(variables.len() > 8, "{variables:?}");
    variables.iter().for_each(|variable| reference.wants("variable", variable));
    reference.lacks_nothing();
}

#[test]
fn the_reference_names_every_header() {
    let mut reference = Reference::read();
    let slowlane = Slowlane::with_policy(&[
        ("slo.map", "0 burst=1 rate=1/m max_delay=90s\n2001 burst=1 rate=1/s law=concurrency\n"),
        ("website.map", "shop.example 2001\n"),
    ]);
    let ask = |query, website| slowlane.check(query, &[("X-Slowlane-Website", website)]);
    let answers = [
        ask("?ratelimit=on", "shop.example"),
        ask("", "shop.example"),
        ask("", "blog.example"),
        ask("?hold=off", "blog.example"),
    ];
    let own = |name: &str| name.contains("slowlane") || name.contains("ratelimit") || name == "retry-after";
    let mut names = BTreeSet::new();
    for answer in &answers {
        let head = answer.headers.iter().map(|(name, _)| name.to_ascii_lowercase());
        names.extend(head.filter(|name| own(name)));
    }
    assert_eq!(names.len(), 8, "{names:?}");
    let asked = ["source", "website", "owner", "method", "cost"].map(|field| format!("x-slowlane-{field}"));
    names.extend(asked);
    reference.text = reference.text.to_ascii_lowercase();
    names.iter().for_each(|name| reference.wants("header", name));
    reference.lacks_nothing();
}

/// The texts of the files of a folder of the project, without subfolders.
fn texts(folder: &str) -> Vec<String> {
    let files = fs::read_dir(project(folder)).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// The line with single spaces between words, and none around them.
fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn configuration_that_is_shown_is_configuration_that_is_shipped() {
    let examples = fs::read_dir(project("examples")).unwrap().map(Result::unwrap);
    let examples = examples.filter(|entry| entry.path().is_dir()).map(|folder| folder.file_name());
    let examples: Vec<String> = examples.map(|name| format!("examples/{}", name.to_str().unwrap())).collect();
    for (label, own) in [("haproxy", &["haproxy", "doc/cluster"][..]), ("nginx", &["nginx"])] {
        let folders: Vec<&str> = own.iter().copied().chain(examples.iter().map(String::as_str)).collect();
        // Some lines are shipped as comments.
        let texts: Vec<String> = folders.iter().flat_map(|folder| texts(folder)).collect();
        let shipped: BTreeSet<String> = texts
            .iter()
            .flat_map(|text| text.lines())
            .map(|line| squeezed(line.trim_start().trim_start_matches("# ").split(";  ").next().unwrap()))
            .map(|line| line.trim_end_matches(';').to_owned())
            .collect();
        let mut shown = 0;
        for page in pages() {
            for block in page.blocks(label) {
                for line in block.text.lines().filter(|line| !line.trim().is_empty()) {
                    let line = squeezed(line.split(";  ").next().unwrap());
                    let line = line.trim_end_matches(';');
                    assert!(shipped.contains(line), "{}: {folders:?} have no line {line:?}", page.path);
                    shown += 1;
                }
            }
        }
        assert!(shown > 5, "{label}: {shown} lines are shown");
    }
}

/// The map files below one heading are a policy; only SLO 0 is added. A config file there has its types and lookups.
#[test]
fn policies_that_are_shown_are_served() {
    let mut shown = 0;
    for part in pages().iter().flat_map(Page::parts) {
        let maps = part.all_blocks().into_iter().filter(|block| block.label.ends_with(".map"));
        let maps: Vec<_> = maps.collect();
        if maps.is_empty() {
            continue;
        }
        let place = format!("{}, {}", part.path, part.text.lines().next().unwrap());
        let folder = tempfile::tempdir().unwrap();
        for map in &maps {
            let path = folder.path().join(&map.label);
            assert!(!path.exists(), "{place}: two files {}", map.label);
            let first = if map.label == "slo.map" { "0 rate=unlimited\n" } else { "" };
            fs::write(path, first.to_owned() + &map.text).unwrap();
        }
        let mut args = vec!["check".to_owned(), "--policy".to_owned(), folder.path().display().to_string()];
        for config in part.blocks("toml") {
            let path = folder.path().join("slowlane.toml");
            fs::write(&path, config.text).unwrap();
            args.extend(["--config".to_owned(), path.display().to_string()]);
        }
        let outcome = ran(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((outcome.code, outcome.problems), (0, vec![]), "{place}");
        shown += 1;
    }
    assert!(shown > 20, "{shown} policies are shown");
}

/// The recipes are by task, and there are enough of them to find one's own.
#[test]
fn there_are_eighteen_recipes_with_their_lines() {
    let pages =
        ["limits", "fields", "work", "protect"].map(|name| Page::read(&format!("doc/book/{name}.md")));
    let with_maps = |recipe: &&Page| recipe.all_blocks().iter().any(|block| block.label.ends_with(".map"));
    let parts: Vec<Page> = pages.iter().flat_map(Page::parts).collect();
    let count = parts.iter().filter(with_maps).count();
    assert!(count >= 18, "{count} parts with maps");
}

#[test]
fn config_files_that_are_shown_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slowlane.toml");
    let secret = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    let (authority, tls) = (Authority::new("servers"), folder.path().join("tls"));
    let pair = authority.pair("slowlane");
    fs::create_dir(tls).unwrap();
    secret("store.token", b"0123456789abcdef");
    for (name, path) in
        [("slowlane.pem", &pair.cert), ("slowlane.key", &pair.key), ("ca.pem", &authority.cert())]
    {
        secret(&format!("tls/{name}"), &fs::read(path).unwrap());
    }
    let mut shown = 0;
    for page in pages() {
        for block in page.blocks("toml") {
            fs::write(&path, block.text).unwrap();
            let outcome = ran(&["check", "--config", path.to_str().unwrap()]);
            assert_eq!((outcome.code, outcome.problems), (0, vec![]), "{}", page.path);
            shown += 1;
        }
    }
    assert!(shown > 0);
}

#[test]
fn every_link_leads_somewhere() {
    let mut links = 0;
    for page in pages().into_iter().chain(BESIDE.map(Page::read)) {
        let folder = Path::new(&page.path).parent().unwrap();
        for target in page.links().into_iter().filter(|target| !target.starts_with("http")) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { PathBuf::from(&page.path) } else { plain(&folder.join(file)) };
            assert!(project("").join(&path).exists(), "{}: {target} is not there", page.path);
            if !anchor.is_empty() {
                let anchors = Page::read(path.to_str().unwrap()).anchors();
                assert!(anchors.iter().any(|other| other == anchor), "{}: no heading {target}", page.path);
            }
            links += 1;
        }
    }
    assert!(links > 100, "{links}");
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{} leaves the project", path.display()),
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn the_summary_names_every_page_once() {
    let mut summarised = Page::read("doc/book/SUMMARY.md").links();
    summarised.sort();
    let pages = pages();
    let chapters = pages.iter().filter_map(|page| page.path.strip_prefix("doc/book/"));
    let chapters: Vec<&str> = chapters.filter(|&name| name != "SUMMARY.md").collect();
    assert_eq!(summarised, chapters);
}

/// mdBook makes a page of each, without a plugin and without a warning.
#[test]
fn mdbook_builds_the_manual() {
    let program = wheels().join("mdbook");
    if !program.exists() {
        return skipped("mdBook cannot be had on this machine");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut mdbook = Command::new(program);
    let output =
        mdbook.arg("build").arg("--dest-dir").arg(folder.path()).arg(project("doc")).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !log.contains("WARN") && !log.contains("ERROR"), "{log}");
    for link in Page::read("doc/book/SUMMARY.md").links() {
        let page = folder.path().join(link.replace("README.md", "index.md")).with_extension("html");
        assert!(page.exists(), "{link}");
    }
}

/// A module that is added or renamed is told to readers of the design.
#[test]
fn the_design_names_every_module() {
    let design = Page::read("doc/design.md").text;
    for root in ["src", "crates/core/src", "crates/lab/src"] {
        for entry in fs::read_dir(project(root)).unwrap().map(Result::unwrap) {
            let module = entry.file_name().to_str().unwrap().trim_end_matches(".rs").to_owned();
            assert!(
                module == "lib" || module.contains('.') || design.contains(&format!("`{module}`")),
                "doc/design.md has no module {module} of {root}"
            );
        }
    }
}

#[test]
fn the_readme_names_the_compiler_that_cargo_asks_for() {
    let manifest = fs::read_to_string(project("Cargo.toml")).unwrap();
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    let named = format!("Rust {}", version.trim_matches('"'));
    assert!(Page::read("README.md").text.contains(&named), "README.md: not {named}");
}

/// A stranger reads all of it.
#[test]
fn the_readme_is_short() {
    let lines = Page::read("README.md").text.lines().count();
    assert!(lines <= 250, "{lines} lines: what a newcomer does not need belongs to doc/book");
}
