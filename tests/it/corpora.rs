//! The corpora of the fuzz targets, replayed through the code that the fuzzer runs.

use std::fs;
use std::panic;
use std::path::PathBuf;

use crate::support::project;

#[path = "../fuzz/targets/mod.rs"]
pub mod targets;

/// The inputs of a target, in a stable order.
fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = project("tests/fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_target_accepts_its_corpus() {
    for (name, run) in targets::ALL {
        let inputs = corpus(name);
        assert!(inputs.len() >= 5, "{name}: {} inputs", inputs.len());
        for path in inputs {
            let bytes = fs::read(&path).unwrap();
            let ran = panic::catch_unwind(|| run(&bytes));
            assert!(ran.is_ok(), "{name} fails on {}", path.display());
        }
    }
}

/// A target that is missing in one place would never be fuzzed, or never replayed.
#[test]
fn every_target_has_a_binary_and_a_corpus() {
    let names: Vec<&str> = targets::ALL.iter().map(|(name, _)| *name).collect();
    let listed = |folder: &str, ending: &str| {
        let files = fs::read_dir(project("tests/fuzz").join(folder)).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(ending)?.to_owned())).collect();
        names.sort();
        names
    };
    assert_eq!(listed("fuzz_targets", ".rs"), names);
    assert_eq!(listed("corpus", ""), names);
    let manifest = fs::read_to_string(project("tests/fuzz/Cargo.toml")).unwrap();
    for name in names {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is not built");
    }
}
