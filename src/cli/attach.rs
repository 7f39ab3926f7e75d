//! `slowlane attach`: shows the operator's own configuration with slowlane in it, and writes it on demand.

mod tried;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf, absolute};

use anyhow::{anyhow, ensure};
use clap::{Args, Subcommand};
use glob::{MatchOptions, Pattern};

use crate::cli::arguments::RunArguments;
use crate::cli::attach::written::{Change, Folder, read};
use crate::cli::config::{Answers, Asked, Way, haproxy_files, nginx_files, say};
use crate::config::Flags;
use crate::proxy::attach::nginx::{self, Files};
use crate::proxy::attach::{Refused, haproxy, joined};
use crate::proxy::shipped::haproxy::{APP, BIND, Delivery, Pieces};
use crate::proxy::shipped::{File, nginx as nginx_shipped};

pub(super) const EXAMPLES: &str = include_str!("help/attach.txt");

#[derive(Debug, Subcommand)]
pub(super) enum Proxy {
    /// Attach slowlane to frontends of HAProxy.
    ///
    /// Prints a unified diff of your configuration. HAProxy checks the result (`haproxy -c`) before it is shown.
    Haproxy(Haproxy),
    /// Attach slowlane to servers of nginx.
    ///
    /// Prints a unified diff of your configuration. nginx checks the result (`nginx -t`) before it is shown.
    Nginx(Nginx),
}

#[derive(Debug, Args)]
pub(super) struct Haproxy {
    /// Your configuration of HAProxy
    #[arg(long, value_name = "FILE", default_value = "/etc/haproxy/haproxy.cfg")]
    config: PathBuf,
    /// Frontend or listen section to attach to; may be repeated [default: the only one of mode http]
    #[arg(long, value_name = "NAME")]
    frontend: Vec<String>,
    #[command(flatten)]
    way: Way,
    #[command(flatten)]
    action: Action,
    #[command(flatten)]
    slowlane: Ours,
}

#[derive(Debug, Args)]
pub(super) struct Nginx {
    /// Your main configuration of nginx; the files that it includes are read, too
    #[arg(long, value_name = "FILE", default_value = "/etc/nginx/nginx.conf")]
    config: PathBuf,
    /// Server to attach to, by one of its names or as FILE:LINE; may be repeated [default: the only one]
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    #[command(flatten)]
    action: Action,
    #[command(flatten)]
    slowlane: Ours,
}

#[derive(Clone, Copy, Debug, Args)]
struct Action {
    /// Write the result; slowlane/before/, beside your configuration, keeps each file as it was
    #[arg(long, conflicts_with = "undo")]
    write: bool,
    /// Remove the lines that --write has added, and restore each file byte for byte
    #[arg(long)]
    undo: bool,
}

/// The slowlane to attach.
#[derive(Debug, Args)]
struct Ours {
    /// slowlane's config file [default: that of the service, if it exists]
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

pub(super) fn attach(proxy: Proxy) -> anyhow::Result<()> {
    let outcome = match proxy {
        Proxy::Haproxy(typed) => attach_haproxy(typed),
        Proxy::Nginx(typed) => attach_nginx(typed),
    };
    outcome.map_err(|error| match error.root_cause().downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(ErrorKind::PermissionDenied) => error.context("run as root"),
        _ => error,
    })
}

fn attach_haproxy(typed: Haproxy) -> anyhow::Result<()> {
    let Haproxy { config, frontend, way, action, slowlane } = typed;
    let (main, folder) = found(&config)?;
    if action.undo {
        return folder.undo(&config, BTreeSet::from([main]));
    }
    let by_peers = "--delivery peers: its lines set localpeer and track-sc0, which may be yours: \
                    see `slowlane config haproxy --attach`";
    ensure!(way.delivery != Some(Delivery::Peers), by_peers);
    let files = haproxy_files(&way, slowlane.asked(), [BIND, APP, &folder.0.display().to_string()])?;
    let pieces = Pieces::of(&files[0]);
    let refuse = |refused| by_hand(&config, &folder, "haproxy --attach", &pieces.to_paste(), refused);
    let before = read(&main).map_err(&refuse)?;
    let attached = haproxy::attach(&before, &frontend, &pieces).map_err(&refuse)?;
    let warnings = tried::haproxy(&main, &attached.text, &folder.0, &files[1..])?.map_err(&refuse)?;
    let notes = [attached.notes, warnings].concat();
    let changes = [Change { path: main, before, after: attached.text }];
    finish(action, &folder, &files[1..], &changes, &notes, &joined(&attached.frontends))
}

fn attach_nginx(typed: Nginx) -> anyhow::Result<()> {
    let Nginx { config, server, action, slowlane } = typed;
    let config = absolute(&config)?;
    let (main, folder) = found(&config)?;
    let beside = folder.0.parent().unwrap_or(Path::new("/")).to_owned();
    let files = Files::read(&main, &beside, read, list);
    if action.undo {
        // Files that are no longer included are cleaned, too, and so is a tree that is no longer valid.
        let included = files.iter().flat_map(Files::paths).cloned();
        return folder.undo(&config, included.chain([main]).chain(folder.changed()?).collect());
    }
    let printed = nginx_files(slowlane.asked(), nginx_shipped::LISTEN, nginx_shipped::APP)?;
    let own = [1, 2].map(|number| folder.0.join(printed[number].name));
    let ours = own.each_ref().map(PathBuf::as_path);
    let refuse = |refused| by_hand(&config, &folder, "nginx", &nginx::to_paste(ours), refused);
    let files = files.map_err(&refuse)?;
    let attached = nginx::attach(&files, &server, ours).map_err(&refuse)?;
    let change = |(path, after): (PathBuf, String)| {
        let before = files.text(&path).to_owned();
        Change { path, before, after }
    };
    let changes: Vec<Change> = attached.changed.into_iter().map(change).collect();
    // The tree as it will be, with slowlane's own files and the copies of the changed ones.
    let mut written: BTreeMap<PathBuf, &str> = BTreeMap::new();
    written.extend(own.iter().cloned().zip(printed[1..].iter().map(|file| file.text.as_str())));
    for Change { path, before, after } in &changes {
        written.extend([(path.clone(), after.as_str()), (folder.backup(path), before.as_str())]);
    }
    let read = |path: &Path| written.get(path).map_or_else(|| read(path), |text| Ok((*text).to_owned()));
    let list = |pattern: &Path| {
        let mut paths = list(pattern);
        let pattern = Pattern::new(&pattern.to_string_lossy()).unwrap_or_default();
        let is_new = |path: &&PathBuf| pattern.matches_path_with(path, AS_NGINX) && !paths.contains(path);
        let new: Vec<PathBuf> = written.keys().filter(is_new).cloned().collect();
        paths.extend(new);
        paths
    };
    let after = Files::read(&main, &beside, read, list)?;
    let warnings = tried::nginx(&config, &main, &after)?.map_err(&refuse)?;
    let notes = [attached.notes, warnings].concat();
    finish(action, &folder, &printed[1..], &changes, &notes, &joined(&attached.servers))
}

/// The real path of the main file, and slowlane's folder beside the path that was typed.
fn found(config: &Path) -> anyhow::Result<(PathBuf, Folder)> {
    let main = fs::canonicalize(config).map_err(|error| anyhow!("{}: {error}", config.display()))?;
    let folder = absolute(config)?.parent().unwrap_or(Path::new("/")).join("slowlane");
    Ok((main, Folder(folder)))
}

/// Patterns match as those of nginx do.
pub(super) const AS_NGINX: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// The files of an include, by their real paths. A path without a pattern is there, or reading it fails.
fn list(pattern: &Path) -> Vec<PathBuf> {
    let text = pattern.to_string_lossy();
    let found: Vec<PathBuf> = match glob::glob_with(&text, AS_NGINX) {
        Ok(paths) if text.contains(['*', '?', '[']) => paths.flatten().collect(),
        _ => vec![pattern.to_owned()],
    };
    found.into_iter().map(|path| fs::canonicalize(&path).unwrap_or(path)).collect()
}

/// The error of a configuration that stays as it is. Prints the lines to paste, where they are of use.
fn by_hand(config: &Path, folder: &Folder, command: &str, lines: &str, refused: Refused) -> anyhow::Error {
    let mut text = format!("{}: nothing was written: {refused}", config.display());
    if refused.is_for_hands() {
        let folder = folder.0.display();
        text += &format!(
            "\nto attach by hand: `slowlane config {command} --dir {folder}`, and paste the lines above"
        );
        if let Err(error) = say(lines) {
            return error;
        }
    }
    anyhow!(text)
}

/// Shows what changes, and writes it if that is asked for.
fn finish(
    action: Action,
    folder: &Folder,
    files: &[File],
    changes: &[Change],
    notes: &[String],
    names: &str,
) -> anyhow::Result<()> {
    changes.iter().try_for_each(|change| change.show("with slowlane"))?;
    notes.iter().for_each(|note| eprintln!("slowlane: note: {note}"));
    if action.write {
        folder.write(files, changes)?;
        eprintln!("slowlane: reload the proxy: {names} then asks slowlane; --undo removes it");
    } else {
        eprintln!("slowlane: nothing was written; --write puts this in place");
    }
    Ok(())
}
