//! The pictures of the manual: each is readable on light and dark pages and aloud, shown by a page, and up to date.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::pages::assert_alike;
use crate::support::slowlane::BINARY;
use crate::support::{project, project_files};

/// The files that `doc/pictures` reads, or the folders that contain them.
const SOURCES: [&str; 4] = ["doc/pictures", "doc/demo.txt", "doc/replay/", "haproxy/maps/"];

/// The last digits of its figures depend on the machine's math library.
const ALIKE: &str = "doc/book/protect.svg";

const BYTES_MAX: usize = 20_000;

/// A page is 358 px wide on a phone of 390 px. A picture of this width, with letters of 15 px, then has letters of 11 px.
const SIZE: &str = " viewBox=\"0 0 480 ";
const LETTERS: &str = "text{font:15px system-ui,sans-serif;";

fn pictures() -> Vec<String> {
    let pictures: Vec<String> = project_files()
        .into_iter()
        .filter(|path| path.starts_with("doc/") && path.ends_with(".svg"))
        .collect();
    assert!(!pictures.is_empty());
    pictures
}

/// The text of the first element with this name.
fn content<'s>(svg: &'s str, element: &str) -> Option<&'s str> {
    let (_, element_on) = svg.split_once(&format!("<{element}"))?;
    let (_, inside_on) = element_on.split_once('>')?;
    inside_on.split_once(&format!("</{element}>")).map(|(inside, _)| inside)
}

#[test]
fn a_picture_is_for_light_and_dark_pages_and_for_screen_readers() {
    let mut missing = Vec::new();
    for path in pictures() {
        let svg = fs::read_to_string(project(&path)).unwrap();
        let has_text = |element| content(&svg, element).is_some_and(|text| text.len() > 10);
        let wanted = [
            ("a title", has_text("title")),
            ("colours for dark pages", svg.contains("@media(prefers-color-scheme:dark){.page{fill:")),
            ("the role of an image", svg.contains(" role=\"img\"")),
            ("nothing to run", !svg.contains("<script")),
            ("nothing to load", svg.matches("http").count() == 1),
            ("a description", has_text("desc")),
            ("a width for phones", svg.contains(SIZE) && svg.contains(LETTERS)),
            ("a small file", svg.len() < BYTES_MAX),
        ];
        missing.extend(
            wanted.into_iter().filter(|(_, has)| !has).map(|(what, _)| format!("{path}: needs {what}")),
        );
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_picture_is_well_formed() {
    const PARSE: &str = "import sys, xml.dom.minidom\nfor path in sys.argv[1:]: xml.dom.minidom.parse(path)";
    let paths = pictures().into_iter().map(|path| project(&path));
    let output = Command::new("python3").args(["-c", PARSE]).args(paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_picture_is_shown_by_a_page() {
    let pages = project_files().into_iter().filter(|path| path.ends_with(".md"));
    let pages: Vec<String> = pages.map(|path| fs::read_to_string(project(&path)).unwrap()).collect();
    let shown = |path: &str| {
        // Either the page links it from the same folder, or from one above.
        let name = path.strip_prefix("doc/book/").or_else(|| path.rsplit('/').next()).unwrap();
        pages.iter().any(|page| page.contains(&format!("]({name})")) || page.contains(&format!("/{name})")))
    };
    let unused: Vec<String> = pictures().into_iter().filter(|path| !shown(path)).collect();
    assert!(unused.is_empty(), "no page shows {unused:?}");
}

/// The pictures that `doc/pictures` draws in this copy of the project, by their path.
fn drawn(copy: &Path) -> BTreeMap<String, String> {
    let mut script = Command::new("python3");
    let output = script.arg(copy.join("doc/pictures")).env("SLOWLANE", BINARY).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut drawn = BTreeMap::new();
    for folder in ["doc/book", "doc/book/laws", "doc/reports"] {
        for entry in fs::read_dir(copy.join(folder)).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
                drawn.insert(path, fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
    drawn
}

#[test]
fn a_picture_is_as_doc_pictures_draws_it() {
    let copy = tempfile::tempdir().unwrap();
    let is_source = |path: &String| SOURCES.iter().any(|source| path.starts_with(source));
    for path in project_files().into_iter().filter(is_source) {
        let to = copy.path().join(&path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(project(&path), to).unwrap();
    }
    let drawn = drawn(copy.path());
    let committed = pictures();
    assert!(drawn.keys().eq(&committed), "drawn: {:?}, committed: {committed:?}", drawn.keys());
    for (path, picture) in drawn {
        let shown = fs::read_to_string(project(&path)).unwrap();
        match path == ALIKE {
            true => assert_alike(&shown, &picture, &path),
            false => assert!(shown == picture, "{path} is another: run doc/pictures"),
        }
    }
}
