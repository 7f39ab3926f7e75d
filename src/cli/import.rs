//! `slowlane import`: prints the limits of nginx, HAProxy, ingress controllers or rate limit services as a policy.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};

use crate::cli::attach::{files_of, list};
use crate::cli::say;
use crate::import::{self, BYTES_MAX, Included, Input, Program, Written};
use slowlane_core::base::shown;

#[derive(Debug, Args)]
pub(super) struct ImportArguments {
    /// Configuration files, in the order in which the proxy reads them, or their folder; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The program that the configuration is for [default: detected automatically]
    #[arg(long, alias = "format", value_name = "PROGRAM")]
    from: Option<Program>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn import(typed: ImportArguments) -> anyhow::Result<()> {
    let name = typed.files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let (name, mut texts) = (shown(name), Vec::new());
    for path in named(&typed.files) {
        let place = shown(path.display().to_string());
        texts.push((path.clone(), text(&path).map_err(|error| anyhow!("{place}: cannot be read: {error}"))?));
    }
    // An include may name a device that never ends, so only regular files are read.
    let read = |path: &Path| path.is_file().then(|| text(path).ok()).flatten();
    let is_piped = typed.files.iter().any(|path| path == Path::new("-"));
    let included = (!is_piped).then_some(Included { list: &list, read: &read });
    let written = import::import_files(&Input { texts, included }, typed.from)
        .map_err(|error| anyhow!("{name}: {error}"))?;
    let printed = if typed.json { serde_json::to_string_pretty(&written)? + "\n" } else { report(&written) };
    say(&printed)?;
    if written.files.is_empty() {
        bail!("{name}: none of its limits can be expressed in slowlane");
    }
    Ok(())
}

/// The named files. A folder stands for its files with one ending: the first ending below that any file has.
fn named(files: &[PathBuf]) -> Vec<PathBuf> {
    let endings = ["cfg", "conf", "yaml", "yml"];
    let of = |path: &PathBuf| {
        let found = endings.iter().map(|ending| files_of(std::slice::from_ref(path), ending));
        found.into_iter().find(|found| !found.is_empty()).unwrap_or_else(|| vec![path.clone()])
    };
    files.iter().flat_map(of).collect()
}

/// Reads at most one byte more than a file may have, so that an endless device cannot fill the memory.
fn text(path: &Path) -> io::Result<String> {
    if path.is_dir() {
        return Err(io::Error::other("this folder has no .cfg, .conf, .yaml or .yml file"));
    }
    let input: Box<dyn Read> =
        if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
    let mut bytes = Vec::new();
    input.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The notes, followed by the files, each under a comment with its name.
fn report(written: &Written) -> String {
    let from = written.from.to_possible_value().expect("no program is hidden");
    let mut report = format!("# Imported from {}. Review the files before you save them.\n", from.get_name());
    let omissions = written.omissions.iter();
    let omissions: Vec<String> =
        omissions.map(|of| format!("{}: {}: {}", of.place(), of.text, of.reason)).collect();
    let notes = [("Where the meaning differs", &written.differences), ("Not imported", &omissions)];
    for (title, notes) in notes.into_iter().filter(|(_, notes)| !notes.is_empty()) {
        report += &format!("#\n# {title}:\n");
        notes.iter().for_each(|note| report += &format!("# - {}\n", shown(note)));
    }
    for file in &written.files {
        report += &format!("\n# ---- {} ----\n{}", file.name, file.text);
    }
    report
}
