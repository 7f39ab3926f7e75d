//! The files of src/law/ build on each other in one direction.

use std::fs;
use std::path::Path;

/// Its files from the ground up. A file imports only from floors below its own.
const FLOORS: &[&[&str]] = &[
    &["objective", "arrival", "admission", "judgement", "used", "options", "formula"],
    &["bucket", "window", "calendar", "log", "open_tickets"],
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

/// The files that a piece of code imports from: the word after each `crate::law::`.
fn imports(code: &str) -> Vec<&str> {
    let word = |after: &'_ str| after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
    code.split("crate::law::").skip(1).map(|after| &after[..word(after)]).collect()
}

#[test]
fn no_file_of_a_law_imports_from_its_own_floor_or_above() {
    let room = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/law");
    let mut broken = Vec::new();
    for entry in fs::read_dir(room).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let code = code(&fs::read_to_string(&path).unwrap());
        if ["super::", "crate::law::{", "crate::{"].iter().any(|path| code.contains(path)) {
            broken.push(format!("{file} imports from mod.rs: name the file, like crate::law::objective"));
        }
        for import in imports(&code) {
            if floor(import) >= floor(&file) {
                broken.push(format!("{file} may not import from {import}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn an_import_is_found_wherever_it_stands() {
    let text = "//! crate::law::no\nuse crate::law::pace::Pace;\nlet x = crate::law::log;\n#[cfg(test)]\nmod tests {}";
    assert_eq!(imports(&code(text)), ["pace", "log"]);
}
