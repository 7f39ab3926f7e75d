//! The versions of proxies and stores that the report on compatibility calls tested are those that the tests run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::slowlane::BINARY;
use crate::support::{project, skipped};

/// The programs by the names of their files, and the name of each in the report.
const PROGRAMS: [(&str, &str); 7] = [
    ("haproxy", "HAProxy"),
    ("nginx", "nginx"),
    ("caddy", "Caddy"),
    ("envoy", "Envoy"),
    ("traefik", "Traefik"),
    ("redis-server", "Redis"),
    ("valkey-server", "Valkey"),
];

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// The versions of each program in the table of the report.
fn table() -> BTreeMap<String, Vec<String>> {
    let page = fs::read_to_string(project("doc/reports/compatibility.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("Tested versions\n")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(2);
    let cells = rows.map(|row| row.split('|').map(str::trim).filter(|cell| !cell.is_empty()));
    let row = |mut cells: Box<dyn Iterator<Item = &str>>| {
        let name = cells.next().unwrap().to_owned();
        (name, cells.flat_map(|cell| cell.split(", ")).map(str::to_owned).collect())
    };
    cells.map(|cells| row(Box::new(cells))).collect()
}

/// The first two numbers of the version that a program tells.
fn version(program: &Path) -> Option<String> {
    let told = ["-v", "--version", "version"].iter().find_map(|flag| {
        let output = Command::new(program).arg(flag).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        output.status.success().then(|| String::from_utf8_lossy(&text).into_owned())
    })?;
    let mut numbers = told.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let is_version = |number: &&str| number.split('.').filter(|part| !part.is_empty()).count() >= 3;
    let mut parts = numbers.find(is_version)?.split('.');
    Some(format!("{}.{}", parts.next()?, parts.next()?))
}

/// The programs that tests may run: installed, unpacked from other Debian suites, or from wheels.
fn found(name: &str) -> Vec<PathBuf> {
    let unpacked = fs::read_dir(target().join(name)).into_iter().flatten();
    let unpacked = unpacked.map(|entry| entry.unwrap().path().join(name));
    unpacked.chain([name.into(), target().join("wheels").join(name)]).collect()
}

#[test]
fn every_program_that_the_tests_run_is_in_the_table_of_the_report() {
    let table = table();
    assert_eq!(table.len(), PROGRAMS.len(), "{table:?}");
    for (name, title) in PROGRAMS {
        let versions = found(name).iter().filter_map(|program| version(program)).collect::<Vec<_>>();
        if versions.is_empty() {
            skipped(&format!("{name} cannot be had on this machine (versions)"));
        }
        for version in versions {
            assert!(table[title].contains(&version), "{title} {version} is not in {:?}", table[title]);
        }
    }
}

/// Versions of both: `8` is that of a package, and `8.1` that of the report.
#[test]
fn every_version_that_is_unpacked_is_in_the_table_of_the_report() {
    let table = table();
    let script = fs::read_to_string(project("tests/support/unpack-debian")).unwrap();
    let rows = script.split("table='\n").nth(1).unwrap().split('\'').next().unwrap().lines();
    let mut seen = 0;
    for row in rows {
        let mut words = row.split_whitespace();
        let (name, version) = (words.next().unwrap(), words.next().unwrap());
        let Some((_, title)) = PROGRAMS.iter().find(|(program, _)| *program == name) else { continue };
        let is_same = |told: &String| format!("{told}.").starts_with(&format!("{version}."));
        assert!(table[*title].iter().any(is_same), "{title} {version} is not in {:?}", table[*title]);
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
}

/// Its package needs no more than these libraries.
#[test]
fn the_program_runs_with_the_libraries_of_debian_13() {
    let folder = target().join("haproxy/3.0/usr/lib");
    let libraries = fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let Some(libraries) = libraries.into_iter().find(|path| path.join("libgcc_s.so.1").exists()) else {
        return skipped("the libraries of Debian 13 cannot be had on this machine");
    };
    let loader = fs::read_dir(&libraries).unwrap().map(|entry| entry.unwrap().path());
    let loader = loader.into_iter().find(|path| path.display().to_string().contains("/ld-linux")).unwrap();
    let mut command = Command::new(loader);
    let output = command.arg("--library-path").arg(&libraries).args([BINARY, "--version"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("slowlane "));
}
