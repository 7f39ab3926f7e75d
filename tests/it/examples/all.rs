//! No example is forgotten: each has a test, a page of the manual, and a README that leads there.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::stage::files;
use crate::support::pages::Page;
use crate::support::project;

/// The chapter of the manual that lists them.
const CHAPTER: &str = "doc/book/examples.md";

fn names() -> Vec<String> {
    let folders = fs::read_dir(project("examples")).unwrap().map(Result::unwrap);
    let folders = folders.filter(|entry| entry.file_type().unwrap().is_dir());
    let mut names: Vec<String> = folders.map(|folder| folder.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_example_is_run_by_a_test() {
    let tests = files(&project("tests/it/examples")).into_iter().filter(|file| !file.ends_with("all.rs"));
    let tests: String = tests.map(|file| fs::read_to_string(file).unwrap()).collect();
    for name in names() {
        assert!(
            [format!("(\"{name}\""), format!("\"examples/{name}\"")].iter().any(|call| tests.contains(call)),
            "no test plays {name}"
        );
    }
}

#[test]
fn every_example_has_a_page_and_a_readme_that_leads_there() {
    let leads = |page: &Page, target: String| {
        assert!(page.links().contains(&target), "{} does not lead to {target}", page.path);
    };
    let chapter = Page::read(CHAPTER);
    for name in names() {
        leads(&chapter, format!("examples/{name}.md"));
        leads(&Page::read(&format!("doc/book/examples/{name}.md")), format!("../../../examples/{name}"));
        let readme = Page::read(&format!("examples/{name}/README.md"));
        let lines = readme.text.lines().filter(|line| !line.is_empty()).count();
        assert!((3..=16).contains(&lines), "examples/{name}/README.md: {lines} lines");
        leads(&readme, format!("../../doc/book/examples/{name}.md"));
    }
}

#[test]
fn every_policy_of_an_example_is_without_a_warning() {
    let mut policies = 0;
    for name in names() {
        let folder = project("examples").join(&name);
        let own = tempfile::tempdir().unwrap();
        for file in files(&folder) {
            let copy = own.path().join(file.strip_prefix(&folder).unwrap());
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(file, &copy).unwrap();
            // A file with a token is for nobody else to read, which git cannot say.
            fs::set_permissions(copy, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let (toml, maps) = (own.path().join("slowlane.toml"), own.path().join("maps"));
        let (flag, path) = if toml.exists() { ("--config", toml) } else { ("--policy", maps) };
        if !path.exists() {
            continue;
        }
        let outcome = crate::cli::ran(&["check", "--strict", flag, path.to_str().unwrap()]);
        assert_eq!((outcome.code, outcome.problems), (0, vec![]), "{name}");
        policies += 1;
    }
    assert!(policies > 10, "{policies}");
}
