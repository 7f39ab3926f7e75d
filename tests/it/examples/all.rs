//! No example is forgotten: each has a test, a README, and a place in the list of all.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::stage::files;
use crate::support::pages::Page;
use crate::support::project;

/// The list of all.
const LIST: &str = "examples/README.md";

/// The most words of a README: its purpose, how to try it, and what to look at.
const WORDS_MAX: usize = 350;

/// The commands that a README has in blocks of shell. `Stage` types them as they stand there.
const PLAYED: [&str; 8] = [
    "slowlane run --policy maps",
    "slowlane run --config slowlane.toml",
    "haproxy -f haproxy.cfg",
    "nginx -p . -c nginx.conf -e stderr -g 'daemon off;'",
    "caddy run --config Caddyfile --adapter caddyfile",
    "traefik --configFile=traefik.yml",
    "envoy --config-path envoy.yaml --disable-hot-restart",
    "python3 app.py",
];

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
fn every_example_has_a_readme_that_the_list_leads_to() {
    let list = Page::read(LIST).links();
    let mut commands = 0;
    for name in names() {
        let target = format!("{name}/README.md");
        assert_eq!(list.iter().filter(|link| **link == target).count(), 1, "{LIST}: {target}");
        let readme = Page::read(&format!("examples/{target}"));
        let words = readme.text.split_whitespace().count();
        assert!((50..=WORDS_MAX).contains(&words), "{}: {words} words", readme.path);
        let links = readme.links();
        for leads in ["../README.md", "../../doc/book/"] {
            assert!(links.iter().any(|link| link.starts_with(leads)), "{}: no link {leads}", readme.path);
        }
        for line in readme.blocks("sh").iter().flat_map(|block| block.text.lines()) {
            assert!(PLAYED.contains(&line), "{}: no test types {line}", readme.path);
            commands += 1;
        }
    }
    assert!(commands > 30, "{commands}");
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
