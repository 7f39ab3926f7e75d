//! `slowlane attach`: shows the operator's own configuration with slowlane's lines added, and writes it with `--write`.

mod protect;
mod tried;
mod written;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf, absolute};

use anyhow::{Context, anyhow, ensure};
use clap::{Args, Subcommand};
use glob::{GlobResult, Pattern};

use crate::cli::arguments::RunArguments;
pub(super) use crate::cli::attach::written::lossy;
use crate::cli::attach::written::{FileChange, Folder, read};
use crate::cli::config::{AgentFacts, Answers, Way, haproxy_files, nginx_files};
use crate::cli::listening::{self, Taken};
use crate::cli::{say, tell};
use crate::config::{Config, Flags, Listen};
use crate::proxy::attach::nginx::{self, NginxFiles};
use crate::proxy::attach::{Refused, haproxy, joined};
use crate::proxy::nginx_files::{PATTERNS, matching};
use crate::proxy::shipped::haproxy::{self as haproxy_shipped, Delivery, Pieces};
use crate::proxy::shipped::{APP, File, nginx as nginx_shipped};
use slowlane_core::base::{Address, Network};

/// The name of the file that lists the networks whose X-Forwarded-For HAProxy trusts.
const TRUSTED: &str = "trusted.lst";

#[derive(Debug, Subcommand)]
pub(super) enum Proxy {
    /// Attach slowlane to frontends of HAProxy.
    ///
    /// Prints a unified diff of your configuration. Before that, HAProxy checks the result (`haproxy -c`).
    Haproxy(Haproxy),
    /// Attach slowlane to servers of nginx.
    ///
    /// Prints a unified diff of your configuration. Before that, nginx checks the result (`nginx -t`).
    Nginx(Nginx),
}

#[derive(Debug, Args)]
pub(super) struct Haproxy {
    /// Your HAProxy configuration, a file or a folder, as for `haproxy -f`; may be repeated
    #[arg(long, value_name = "FILE", default_value = "/etc/haproxy/haproxy.cfg")]
    config: Vec<PathBuf>,
    /// Frontend or listen section to attach to; may be repeated [default: the only such section in HTTP mode]
    #[arg(long, value_name = "NAME")]
    frontend: Vec<String>,
    #[command(flatten)]
    way: Way,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(super) struct Nginx {
    /// Your main nginx configuration file; the files that it includes are read, too
    #[arg(long, value_name = "FILE", default_value = "/etc/nginx/nginx.conf")]
    config: PathBuf,
    /// Server to attach to: one of its names, or FILE:LINE; may be repeated [default: the only server]
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// slowlane's config file [default: the service's config file, if it exists]
    #[arg(long, value_name = "FILE")]
    slowlane: Option<PathBuf>,
    #[command(flatten)]
    answers: Answers,
    /// Network of a CDN or a load balancer that sends the client's address in X-Forwarded-For; may be repeated
    #[arg(long, value_name = "NETWORK")]
    trusted: Vec<Network>,
    /// Also protect this website from overload [without a name: all requests that no map matches]
    #[arg(long, value_name = "WEBSITE", conflicts_with = "undo")]
    protect: Option<Option<String>>,
    /// Write the result, and keep each original file in slowlane/before/, beside your configuration
    #[arg(long, conflicts_with = "undo")]
    write: bool,
    /// Remove the lines that --write has added, and restore the lines that it has replaced
    #[arg(long)]
    undo: bool,
}

impl Common {
    /// Loads the facts about the slowlane to attach, and the changes to slowlane's own files.
    fn load(self, listen: fn(&Config) -> &Listen) -> anyhow::Result<(AgentFacts, Attaching)> {
        let run = RunArguments { config: self.slowlane, flags: Flags::default() };
        let config = run.or_of_service().load()?;
        let first = listen(&config).addresses.first();
        // If nothing listens at the address, slowlane has not started yet, which is fine.
        let taken = first.and_then(|address| listening::taken(listen(&config), address).ok()).flatten();
        let mut notes = Vec::from_iter(taken.map(|Taken { text, fix }| format!("{text}; {fix}")));
        let protected = |website: &Option<String>| protect::protect(&config, website.as_deref());
        let protected = self.protect.as_ref().map(protected).transpose()?;
        let ends = protected.is_some().then(|| protect::ends(&config));
        let (mut asked, mut changes) = (AgentFacts::of(self.answers, config), Vec::new());
        if let (Some(website), Some((of_policy, policy))) = (self.protect, protected) {
            notes.extend(protect::note(&policy, website.as_deref()));
            asked = asked.with_policy(Some(&policy));
            changes = of_policy;
        }
        Ok((asked, Attaching { is_to_write: self.write, trusted: self.trusted, ends, changes, notes }))
    }
}

/// The changes to make, and the notes about them.
struct Attaching {
    is_to_write: bool,
    trusted: Vec<Network>,
    /// The address for nginx's reports of ends, and any change needed in slowlane's config. `None` without `--protect`.
    ends: Option<anyhow::Result<(Address, Option<FileChange>)>>,
    /// The changes to slowlane's files, followed by the changes to the proxy's files.
    changes: Vec<FileChange>,
    notes: Vec<String>,
}

impl Attaching {
    /// Shows the changes, and writes them with `--write`. `files` are slowlane's own files, and `names` are the sites
    /// that query slowlane.
    fn finish(self, folder: &Folder, files: &[File], names: &[String]) -> anyhow::Result<()> {
        self.changes.iter().try_for_each(|change| change.show("with slowlane"))?;
        self.notes.iter().for_each(|note| tell(format_args!("note: {note}")));
        if self.is_to_write {
            folder.write(files, &self.changes)?;
            tell(format_args!(
                "to make {} query slowlane, reload the proxy; --undo removes the lines",
                joined(names)
            ));
        } else {
            tell(format_args!("nothing was written; to make these changes, add --write"));
        }
        Ok(())
    }
}

pub(super) fn attach(proxy: Proxy) -> anyhow::Result<()> {
    let outcome = match proxy {
        Proxy::Haproxy(typed) => attach_haproxy(typed),
        Proxy::Nginx(typed) => attach_nginx(typed),
    };
    outcome.map_err(|error| match error.root_cause().downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(ErrorKind::PermissionDenied) => error.context("run this as root"),
        _ => error,
    })
}

fn attach_haproxy(typed: Haproxy) -> anyhow::Result<()> {
    let Haproxy { config, frontend, way, common } = typed;
    let config = files_of(&config, "cfg");
    let first = config.first().context("no configuration: this folder has no .cfg file")?;
    let (_, folder) = found(first)?;
    let paths: Vec<PathBuf> = config.iter().map(|path| Ok(found(path)?.0)).collect::<anyhow::Result<_>>()?;
    if common.undo {
        // Changes that --protect made to maps are undone, too.
        let maps = folder.changed()?.into_iter().filter(|path| path.extension() == Some("map".as_ref()));
        return folder.undo(first, paths.into_iter().chain(maps).collect());
    }
    let by_peers = "--delivery peers cannot be attached: it needs `localpeer` and `track-sc0`, which your \
                    configuration may already set; see `slowlane config haproxy --attach`";
    ensure!(way.delivery != Some(Delivery::Peers), by_peers);
    let (asked, mut attaching) = common.load(|config| &config.spop)?;
    let mut files =
        haproxy_files(&way, asked, [haproxy_shipped::LISTEN, APP, &folder.0.display().to_string()])?;
    let mut list = None;
    if !attaching.trusted.is_empty() {
        let text = attaching.trusted.iter().map(|network| format!("{network}\n")).collect();
        files.push(File { name: TRUSTED, text });
        list = Some(folder.0.join(TRUSTED).display().to_string());
    }
    let pieces = Pieces::of(&files[0]);
    let refuse = |refused| by_hand(first, &folder, "haproxy --attach", &pieces.to_paste(), &refused);
    let before = paths.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>().map_err(&refuse)?;
    let names = config.iter().map(|path| path.display().to_string());
    let texts: Vec<(String, &str)> = names.zip(before.iter().map(String::as_str)).collect();
    let attached = haproxy::attach(&texts, &frontend, &pieces, list.as_deref()).map_err(&refuse)?;
    let warnings = tried::haproxy(&config, &attached.after, &folder.0, &files[1..])?.map_err(&refuse)?;
    attaching.notes.extend(attached.notes.into_iter().chain(warnings));
    let changes = paths.into_iter().zip(before).zip(attached.after);
    let changes = changes.map(|((path, before), after)| FileChange { path, before, after });
    attaching.changes.extend(changes.filter(|change| change.before != change.after));
    attaching.finish(&folder, &files[1..], &attached.names)
}

fn attach_nginx(typed: Nginx) -> anyhow::Result<()> {
    let Nginx { config, server, common } = typed;
    let config = absolute(&config)?;
    let (main, folder) = found(&config)?;
    let beside = folder.0.parent().unwrap_or(Path::new("/")).to_owned();
    let files = NginxFiles::read(&[&main], &beside, read, list);
    if common.undo {
        // `--undo` also cleans files that are no longer included, and works even if the configuration is no longer
        // valid.
        let included = files.iter().flat_map(NginxFiles::paths).cloned();
        return folder.undo(&config, included.chain([main]).chain(folder.changed()?).collect());
    }
    let (asked, mut attaching) = common.load(|config| &config.http)?;
    let (ends, listening) = attaching.ends.take().transpose()?.unzip();
    if let Some(change) = listening.flatten() {
        let restart = "restart slowlane so that it listens for reports of finished requests";
        attaching.notes.push(format!("{}: {restart}", change.path.display()));
        attaching.changes.push(change);
    }
    let printed = nginx_files(asked, nginx_shipped::LISTEN, APP)?;
    let own = [1, 2].map(|number| folder.0.join(printed[number].name));
    let ours = own.each_ref().map(PathBuf::as_path);
    let refuse = |refused| by_hand(&config, &folder, "nginx", &nginx::to_paste(ours), &refused);
    let files = files.map_err(&refuse)?;
    let attached =
        nginx::attach(&files, &server, ours, &attaching.trusted, ends.as_ref()).map_err(&refuse)?;
    let change = |(path, after): (PathBuf, String)| {
        let before = files.text(&path).to_owned();
        FileChange { path, before, after }
    };
    let changes: Vec<FileChange> = attached.after.into_iter().map(change).collect();
    // The configuration as it will be written, with slowlane's own files and the backups of the changed files.
    let mut written: BTreeMap<PathBuf, &str> = BTreeMap::new();
    written.extend(own.iter().cloned().zip(printed[1..].iter().map(|file| file.text.as_str())));
    for FileChange { path, before, after } in &changes {
        written.extend([(path.clone(), after.as_str()), (folder.backup(path), before.as_str())]);
    }
    let read = |path: &Path| written.get(path).map_or_else(|| read(path), |text| Ok((*text).to_owned()));
    let list = |pattern: &Path| {
        let there = list(pattern);
        let new = matching(pattern, written.keys().map(PathBuf::as_path)).into_iter();
        there.iter().cloned().chain(new.filter(|path| !there.contains(path))).collect()
    };
    let after = NginxFiles::read(&[&main], &beside, read, list)?;
    let warnings = tried::nginx(&config, &main, &after)?.map_err(&refuse)?;
    attaching.notes.extend(attached.notes.into_iter().chain(warnings));
    attaching.changes.extend(changes);
    attaching.finish(&folder, &printed[1..], &attached.names)
}

/// The real path of the main file, and slowlane's folder beside the path that was typed.
fn found(config: &Path) -> anyhow::Result<(PathBuf, Folder)> {
    let main = fs::canonicalize(config).map_err(|error| anyhow!("{}: {error}", config.display()))?;
    let folder = absolute(config)?.parent().unwrap_or(Path::new("/")).join("slowlane");
    Ok((main, Folder(folder)))
}

/// The files of a configuration: the named files and, for a folder, its files with this ending, sorted by name.
pub(super) fn files_of(named: &[PathBuf], ending: &str) -> Vec<PathBuf> {
    let of = |path: &PathBuf| match path.is_dir() {
        true => {
            list(&PathBuf::from(Pattern::escape(&path.display().to_string())).join(format!("*.{ending}")))
        }
        false => vec![path.clone()],
    };
    named.iter().flat_map(of).collect()
}

/// The files that an include matches, by their real paths. A path without wildcards is listed even if no such file
/// exists, so that reading it fails.
pub(super) fn list(pattern: &Path) -> Vec<PathBuf> {
    let text = pattern.to_string_lossy();
    let or_unreadable = |path: GlobResult| path.unwrap_or_else(|error| error.path().to_owned());
    let found: Vec<PathBuf> = match glob::glob_with(&text, PATTERNS) {
        Ok(paths) if text.contains(['*', '?', '[']) => paths.map(or_unreadable).collect(),
        _ => vec![pattern.to_owned()],
    };
    found.into_iter().map(|path| fs::canonicalize(&path).unwrap_or(path)).collect()
}

/// The error to return if nothing was written. Prints the lines to paste, if the operator can still add them by hand.
fn by_hand(config: &Path, folder: &Folder, command: &str, lines: &str, refused: &Refused) -> anyhow::Error {
    let refusal = format!("{}: nothing was written: {refused}", config.display());
    if !refused.is_for_hands() {
        return anyhow!(refusal);
    }
    let command = format!("slowlane config {command} --dir {}", folder.0.display());
    match say(lines) {
        Ok(()) => anyhow!("{refusal}\nto attach by hand, run `{command}` and paste the lines shown above"),
        Err(error) => error,
    }
}
