//! Lets the operator's proxy check a copy of the result, before anything is written.

use std::fs::{self, DirEntry};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::Context;
use tempfile::TempDir;

use crate::proxy::attach::Refused;
use crate::proxy::installed;
use crate::proxy::nginx_files::NginxFiles;
use crate::proxy::shipped::File;

/// The file name prefix of copies of nginx's files.
const COPY: &str = "slowlane-check-";

/// Lets HAProxy check a configuration, first as it is and then with the changes. Returns the new warnings as notes.
pub(super) fn haproxy(
    config: &[PathBuf],
    after: &[String],
    folder: &Path,
    files: &[File],
) -> anyhow::Result<Result<Vec<String>, Refused>> {
    let (binary, _) = installed::haproxy()
        .context("cannot check the configuration: HAProxy 2.6 or later is not installed here")?;
    let copies = TempDir::new()?;
    let moved = |path: &Path| shown(path) + "/";
    for File { name, text } in files {
        fs::write(copies.path().join(name), text)?;
    }
    let written = |text: String, File { name, .. }: &File| {
        text.replace(&format!("{}{name}", moved(folder)), &format!("{}{name}", moved(copies.path())))
    };
    let copy = |number: usize| copies.path().join(format!("haproxy-{number}.cfg"));
    let checked: Vec<PathBuf> = (0..after.len()).map(copy).collect();
    for (copy, after) in checked.iter().zip(after) {
        fs::write(copy, files.iter().fold(after.clone(), written))?;
    }
    let says = |paths: &[PathBuf]| {
        let named = paths.iter().flat_map(|path| [Path::new("-f"), path]);
        run(Command::new(&binary).arg("-c").args(named))
    };
    let files = checked.iter().zip(config).map(|(copy, path)| [copy, path].map(|path| shown(path)));
    let real = files.chain([[moved(copies.path()), moved(folder)]]);
    Ok(judged("HAProxy", says(config)?, says(&checked)?, real))
}

/// Lets nginx check a configuration as it is, and then changed copies, whose `include` lines name the other copies. The
/// other files of the folder are linked, because nginx looks for relative paths beside its main file.
pub(super) fn nginx(
    config: &Path,
    main: &Path,
    after: &NginxFiles,
) -> anyhow::Result<Result<Vec<String>, Refused>> {
    let copies = TempDir::new()?;
    let folder = config.parent().unwrap_or(Path::new("/"));
    // A file whose name looks like a copy's gets no link, because writing the copy would write through the link.
    let is_other = |entry: &DirEntry| !entry.file_name().to_string_lossy().starts_with(COPY);
    for entry in fs::read_dir(folder)?.flatten().filter(is_other) {
        symlink(entry.path(), copies.path().join(entry.file_name()))?;
    }
    let paths: Vec<&PathBuf> = after.paths().collect();
    let place = |path: &Path| {
        let number = paths.iter().position(|known| *known == path).unwrap_or(paths.len());
        copies.path().join(format!("{COPY}{number}.conf"))
    };
    for (path, text) in after.copies(place) {
        fs::write(path, text)?;
    }
    let binary = installed::nginx()
        .context("cannot check the configuration: nginx is not in PATH, /usr/sbin or /usr/local/sbin")?;
    let says = |path: &Path| run(Command::new(binary).arg("-t").arg("-q").arg("-c").arg(path));
    let real = paths.iter().map(|path| [shown(&place(path)), shown(path)]);
    Ok(judged("nginx", says(config)?, says(&place(main))?, real))
}

fn run(command: &mut Command) -> anyhow::Result<Output> {
    command.stdin(Stdio::null()).output().context("cannot run the proxy to check its configuration")
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The warnings that the changes add, or the proxy's refusal. Paths of copies are replaced by the real paths.
fn judged(
    proxy: &'static str,
    before: Output,
    after: Output,
    real: impl Iterator<Item = [String; 2]>,
) -> Result<Vec<String>, Refused> {
    let said = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> =
            text.lines().filter(|line| !line.is_empty() && !line.contains("[NOTICE]")).collect();
        lines.join("\n")
    };
    if !before.status.success() {
        return Err(Refused::AsItIs { proxy, said: said(&before) });
    }
    let said_after = real.fold(said(&after), |text, [copy, path]| text.replace(&copy, &path));
    let (before, said) = (said(&before), said_after);
    // Process ids and line numbers differ between the two runs.
    let bare = |line: &str| line.replace(|c: char| c.is_ascii_digit(), "");
    let known: Vec<String> = before.lines().map(bare).collect();
    let is_new = |line: &&str| !known.contains(&bare(line));
    let warnings = said.lines().filter(|line| line.to_lowercase().contains("[warn")).filter(is_new);
    let warnings: Vec<String> = warnings.map(|line| format!("{proxy} warns: {line}")).collect();
    // In a section that is not in HTTP mode, HAProxy only warns that it ignores the rules.
    if !after.status.success() || warnings.iter().any(|line| line.contains("ignored")) {
        return Err(Refused::Result { proxy, said });
    }
    Ok(warnings)
}
