//! The files of src/law/ build on each other in one direction.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Its files from the ground up. A file imports only from floors below its own.
const FLOORS: &[&[&str]] = &[
    &["judgement", "options", "formula"],
    &["window", "calendar", "open_tickets", "protect"],
    &["aux_state"],
    &["rule"],
    // The laws; each new one stands here.
    &[],
    &["fair", "sliding_log", "sketch", "assured"],
    &["registry"],
    &["mod"],
];

const LAWS: usize = 4;

fn floor(file: &str) -> usize {
    FLOORS.iter().position(|files| files.contains(&file)).unwrap_or(LAWS)
}

/// The code of a file, without comments and unit tests.
fn code(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The code of all files of a folder but its tests.
fn of_folder(folder: &Path) -> String {
    let files =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|path| code(&fs::read_to_string(path).unwrap())).collect::<Vec<_>>().join("\n")
}

/// The file of each name that mod.rs shows to all.
fn shown(text: &str) -> HashMap<&str, &str> {
    let lines =
        text.lines().filter_map(|line| line.split_once("use ")?.1.strip_suffix(';')?.split_once("::"));
    lines.flat_map(|(file, names)| words(names).map(move |name| (name, file))).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The files that a piece of code imports from: the word after each `crate::law::`, or the files of the names there.
fn imports<'t>(code: &'t str, shown: &HashMap<&str, &'t str>) -> Vec<&'t str> {
    let named = |after: &'t str| match after.strip_prefix('{') {
        Some(list) => words(list.split('}').next().unwrap()).collect::<Vec<_>>(),
        None => words(after).take(1).collect(),
    };
    let file = |word| shown.get(word).copied().unwrap_or(word);
    code.split("crate::law::").skip(1).flat_map(named).map(file).collect()
}

#[test]
fn no_file_of_a_law_imports_from_its_own_floor_or_above() {
    let room = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/law");
    let door = fs::read_to_string(room.join("mod.rs")).unwrap();
    let shown = shown(&door);
    let mut broken = Vec::new();
    for entry in fs::read_dir(room).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let code = if path.is_dir() { of_folder(&path) } else { code(&fs::read_to_string(&path).unwrap()) };
        if ["super::", "crate::{"].iter().any(|path| code.contains(path)) {
            broken.push(format!("{file}: begin each import with crate::law::"));
        }
        for import in imports(&code, &shown) {
            let is_own_folder = path.is_dir() && import == file;
            if floor(import) >= floor(&file) && !is_own_folder {
                broken.push(format!("{file} may not import from {import}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn an_import_is_found_wherever_it_stands() {
    let text = "//! crate::law::no\nuse crate::law::pace::Pace;\nuse crate::law::{Rule, Used};\nlet x = crate::law::log;\n\
                fn f() -> crate::law::Rule {}\n#[cfg(test)]\nmod tests {}";
    let shown = shown("pub use rule::Rule;\npub(crate) use used::{Used, USES_MAX};");
    assert_eq!(imports(&code(text), &shown), ["pace", "rule", "used", "log", "rule"]);
}
