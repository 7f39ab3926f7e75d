//! `slowlane attach`: shows the operator's own configuration with slowlane in it, and writes it on demand.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use similar::TextDiff;
use tempfile::{NamedTempFile, TempDir};

use crate::cli::arguments::RunArguments;
use crate::cli::config::{Answers, Asked, Way, haproxy_files, nginx_files, say};
use crate::config::Flags;
use crate::proxy::attach::{self, detached, nginx};
use crate::proxy::installed;
use crate::proxy::shipped::haproxy::{APP, BIND, Pieces};
use crate::proxy::shipped::{File, nginx as nginx_shipped};

pub(super) const EXAMPLES: &str = include_str!("help/attach.txt");

#[derive(Debug, Subcommand)]
pub(super) enum Proxy {
    /// Attach slowlane to a frontend of HAProxy.
    ///
    /// Prints a unified diff of your configuration. HAProxy checks the result (`haproxy -c`) before it is shown.
    Haproxy(Haproxy),
    /// Attach slowlane to a server of nginx.
    ///
    /// Prints a unified diff of your configuration. nginx checks the result (`nginx -t`) before it is shown.
    Nginx(Nginx),
}

#[derive(Debug, Args)]
pub(super) struct Haproxy {
    /// Your configuration of HAProxy
    #[arg(long, value_name = "FILE", default_value = "/etc/haproxy/haproxy.cfg")]
    config: PathBuf,
    /// Frontend (or listen section) to attach to [default: the only one of mode http]
    #[arg(long, value_name = "NAME")]
    frontend: Option<String>,
    #[command(flatten)]
    way: Way,
    #[command(flatten)]
    action: Action,
    #[command(flatten)]
    slowlane: Ours,
}

/// The slowlane to attach.
#[derive(Debug, Args)]
struct Ours {
    /// slowlane's config file [default: that of the service, if it is there]
    #[arg(long = "slowlane", value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    answers: Answers,
}

impl Ours {
    fn asked(self) -> Asked {
        let run = RunArguments { config: self.file, flags: Flags::default() };
        Asked { answers: self.answers, run }
    }
}

#[derive(Debug, Args)]
pub(super) struct Nginx {
    /// Your main configuration of nginx; the files that it includes are read, too
    #[arg(long, value_name = "FILE", default_value = "/etc/nginx/nginx.conf")]
    config: PathBuf,
    /// Server to attach to, by one of its names [default: the only one]
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    #[command(flatten)]
    action: Action,
    #[command(flatten)]
    slowlane: Ours,
}

#[derive(Clone, Copy, Debug, Args)]
struct Action {
    /// Write the result; the file as it was stays beside it, with the ending .before-slowlane
    #[arg(long, conflicts_with = "undo")]
    write: bool,
    /// Remove the lines that --write has added, and restore the file to the byte
    #[arg(long)]
    undo: bool,
}

pub(super) fn attach(proxy: Proxy) -> anyhow::Result<()> {
    match proxy {
        Proxy::Haproxy(typed) => attach_haproxy(typed),
        Proxy::Nginx(typed) => attach_nginx(typed),
    }
}

fn attach_haproxy(typed: Haproxy) -> anyhow::Result<()> {
    let Haproxy { config, frontend, way, action, slowlane } = typed;
    let text = read(&config)?;
    if action.undo {
        return undo(&config, &text);
    }
    let folder = folder_beside(&config)?;
    let files = haproxy_files(&way, slowlane.asked(), [BIND, APP, &folder.display().to_string()])?;
    let attached = attach::haproxy::attach(&text, frontend.as_deref(), &Pieces::of(&files[0]))
        .map_err(|refused| anyhow!("{}: {refused}", config.display()))?;
    let checked = check_haproxy(&text, &attached.text, &folder, &files[1..]);
    show(&config, &text, &attached.text)?;
    for note in &attached.notes {
        eprintln!("slowlane: {}: note: {note}", config.display());
    }
    checked.map_err(|error| anyhow!("{}: nothing was written: {error}", config.display()))?;
    if !action.write {
        eprintln!("slowlane: nothing was written; --write puts this in place");
        return Ok(());
    }
    write_files(&folder, &files[1..])?;
    replace(&config, &text, &attached.text)?;
    eprintln!(
        "slowlane: the frontend {} asks slowlane after a reload, like `systemctl reload haproxy`; --undo takes it out",
        attached.frontend
    );
    Ok(())
}

fn attach_nginx(typed: Nginx) -> anyhow::Result<()> {
    let Nginx { config, server, action, slowlane } = typed;
    let config = absolute(&config)?;
    let list = |pattern: &Path| -> Vec<PathBuf> {
        let found = glob::glob(&pattern.display().to_string());
        found.map(|paths| paths.flatten().collect()).unwrap_or_default()
    };
    let files = nginx::Files::read(&config, read, &list)?;
    if action.undo {
        let ours: Vec<&Path> = files.paths().filter(|path| detached(files.text(path)).is_some()).collect();
        ensure!(!ours.is_empty(), "{}: slowlane is not attached", config.display());
        return ours.into_iter().try_for_each(|path| undo(path, files.text(path)));
    }
    let folder = folder_beside(&config)?;
    let printed = nginx_files(slowlane.asked(), nginx_shipped::LISTEN, nginx_shipped::APP)?;
    let [http, own] = [1, 2].map(|number| (folder.join(printed[number].name), printed[number].text.as_str()));
    let ours = nginx::Ours { http: (&http.0, http.1), server: (&own.0, own.1) };
    let attached = nginx::attach(&files, server.as_deref(), ours, &list)
        .map_err(|refused| anyhow!("{}: {refused}", config.display()))?;
    let checked = check_nginx(&config, &files.whole(&list)?, &attached.whole);
    for (path, after) in &attached.changed {
        show(path, files.text(path), after)?;
    }
    attached.notes.iter().for_each(|note| eprintln!("slowlane: note: {note}"));
    checked.map_err(|error| anyhow!("{}: nothing was written: {error}", config.display()))?;
    if !action.write {
        eprintln!("slowlane: nothing was written; --write puts this in place");
        return Ok(());
    }
    write_files(&folder, &printed[1..])?;
    attached.changed.iter().try_for_each(|(path, after)| replace(path, files.text(path), after))?;
    eprintln!(
        "slowlane: the server {} asks slowlane after a reload, like `systemctl reload nginx`; --undo takes it out",
        attached.server
    );
    Ok(())
}

/// Lets nginx check the configuration as it is and as it would be, each as one file. Links lead to the other files of
/// its folder, because nginx looks for relative paths beside its configuration.
fn check_nginx(config: &Path, before: &str, after: &str) -> anyhow::Result<()> {
    let copies = TempDir::new()?;
    let folder = config.parent().unwrap_or(Path::new("/"));
    for entry in fs::read_dir(folder)?.flatten() {
        symlink(entry.path(), copies.path().join(entry.file_name()))?;
    }
    let copy = copies.path().join("slowlane-tried.conf");
    let complains = |text: &str| -> anyhow::Result<Option<String>> {
        fs::write(&copy, text)?;
        let output =
            Command::new("nginx").arg("-t").arg("-q").arg("-c").arg(&copy).stdin(Stdio::null()).output();
        let output = output.context("nginx cannot be run to check it")?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((!output.status.success()).then_some(errors))
    };
    let Some(errors) = complains(after)? else { return Ok(()) };
    match complains(before)? {
        Some(errors) => bail!("nginx refuses the configuration as it is (are you root?):\n{errors}"),
        None => bail!("nginx refuses the result:\n{errors}"),
    }
}

/// Lets HAProxy check the configuration as it is and as it would be, in copies.
fn check_haproxy(before: &str, after: &str, folder: &Path, files: &[File]) -> anyhow::Result<()> {
    let (binary, _) = installed::haproxy().context("no HAProxy from 2.6 on is installed here to check it")?;
    let copies = TempDir::new()?;
    let here = |text: &str| {
        text.replace(&format!("{}/", folder.display()), &format!("{}/", copies.path().display()))
    };
    for File { name, text } in files {
        fs::write(copies.path().join(name), here(text))?;
    }
    let complains = |text: &str| -> anyhow::Result<Option<String>> {
        let copy = copies.path().join("haproxy.cfg");
        fs::write(&copy, text)?;
        let output = Command::new(&binary).arg("-c").arg("-f").arg(&copy).stdin(Stdio::null()).output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((!output.status.success()).then(|| errors.replace(&copy.display().to_string(), "line")))
    };
    let Some(errors) = complains(&here(after))? else { return Ok(()) };
    match complains(before)? {
        Some(errors) => bail!("HAProxy refuses the configuration as it is (are you root?):\n{errors}"),
        None => bail!("HAProxy refuses the result:\n{errors}"),
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    String::from_utf8(bytes).map_err(|_| anyhow!("{}: is not UTF-8 text", path.display()))
}

/// The folder of slowlane's own files, beside a configuration.
fn folder_beside(config: &Path) -> anyhow::Result<PathBuf> {
    let config = absolute(config)?;
    Ok(config.parent().unwrap_or(Path::new("/")).join("slowlane"))
}

fn show(path: &Path, before: &str, after: &str) -> anyhow::Result<()> {
    let (old, new) = (path.display().to_string(), format!("{} with slowlane", path.display()));
    say(&TextDiff::from_lines(before, after).unified_diff().header(&old, &new).to_string())
}

/// Writes slowlane's own files. Those of an earlier run are replaced.
fn write_files(folder: &Path, files: &[File]) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for File { name, text } in files {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The file as it was before slowlane.
fn backup(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".before-slowlane");
    name.into()
}

/// Replaces a file whole, with its owner and its permissions, and keeps a copy of what it was.
fn replace(path: &Path, before: &str, after: &str) -> anyhow::Result<()> {
    // A link stays a link.
    let path = fs::canonicalize(path)?;
    fs::copy(&path, backup(&path)).with_context(|| backup(&path).display().to_string())?;
    ensure!(read(&path)? == before, "{}: was edited meanwhile", path.display());
    write_over(&path, after)
}

fn write_over(path: &Path, text: &str) -> anyhow::Result<()> {
    let place = || path.display().to_string();
    let (metadata, folder) = (fs::metadata(path)?, path.parent().unwrap_or(Path::new("/")));
    let file = NamedTempFile::new_in(folder).with_context(place)?;
    fs::write(file.path(), text)?;
    fs::set_permissions(file.path(), metadata.permissions())?;
    chown(file.path(), Some(metadata.uid()), Some(metadata.gid()))?;
    file.as_file().sync_all()?;
    file.persist(path).with_context(place)?;
    Ok(())
}

fn undo(path: &Path, text: &str) -> anyhow::Result<()> {
    let before = detached(text).with_context(|| format!("{}: slowlane is not attached", path.display()))?;
    let path = fs::canonicalize(path)?;
    show(&path, text, &before)?;
    write_over(&path, &before)?;
    let backup = backup(&path);
    if fs::read_to_string(&backup).is_ok_and(|kept| kept == before) {
        fs::remove_file(&backup)?;
    }
    eprintln!("slowlane: reload the proxy to stop asking slowlane; slowlane's own files beside it stay");
    Ok(())
}
