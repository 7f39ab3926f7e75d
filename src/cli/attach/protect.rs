//! `attach --protect`: the policy lines that protect an application, and the address to which nginx reports ends.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};

use crate::cli::attach::written::{FileChange, read};
use crate::config::Config;
use crate::proxy::attach::Block;
use crate::watch::Source;
use slowlane_core::base::{Address, SloId};
use slowlane_core::law::Law;
use slowlane_core::policy::{Policy, Slo, map};

/// The address where slowlane will listen for reports of ends if its config names no address.
const ENDS: &str = "127.0.0.1:9004";

/// The options of SLO 0 if it has no limit. No other options may be replaced.
const UNLIMITED: &str = "rate=unlimited";

/// Protects a website, or everything. Returns the changes to the policy's files, and the resulting policy.
pub(super) fn protect(config: &Config, website: Option<&str>) -> anyhow::Result<(Vec<FileChange>, Policy)> {
    let source = config.policy.as_ref().context("--protect: name slowlane's config file with --slowlane")?;
    let policy = source.read()?;
    let changes = match website {
        Some(website) => protect_website(source, &policy, &website.to_ascii_lowercase())?,
        None => protect_all(source, &policy)?,
    };
    let policy = source.read_with(|path| {
        let path = fs::canonicalize(path).ok()?;
        Some(changes.iter().find(|change| change.path == path)?.after.clone())
    })?;
    Ok((changes, policy))
}

/// A note on requests that are not protected.
pub(super) fn note(policy: &Policy, website: Option<&str>) -> Option<String> {
    let earlier = policy.looked_up().filter(|fields| website.is_none() || *fields != ["website"]);
    let names: Vec<String> = earlier.map(|fields| format!("{}.map", fields.join("+"))).collect();
    let above = if website.is_some() { ", unless their SLO has also=website" } else { "" };
    (!names.is_empty())
        .then(|| format!("requests that match a line of {} are not protected{above}", names.join(" or ")))
}

fn protect_website(source: &Source, policy: &Policy, website: &str) -> anyhow::Result<Vec<FileChange>> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    ensure!(
        !website.is_empty() && website.chars().all(is_plain),
        "--protect {website:?}: expected a website, like shop.example"
    );
    let by_website = ["website".to_owned()];
    let layout = &source.layout;
    let lookup = layout.lookups().iter().find(|lookup| lookup.fields == by_website);
    let kind = layout.kinds().skip(1).find(|&kind| layout.type_fields(kind) == by_website);
    let (Some(lookup), Some(kind)) = (lookup, kind) else {
        bail!("--protect {website}: [policy] needs a lookup and a type by `website` alone")
    };
    let is_protecting = |id: &SloId| policy.slo(*id).is_some_and(|slo| protects(slo) && !slo.dry_run);
    let ids = || (1..1_000).filter_map(|number| SloId::new(u32::from(kind) * 1_000 + number));
    let maps = path(source, &lookup.file);
    let before = existing(&maps)?;
    if let Some(line) = map::lines(before.as_bytes()).flatten().find(|line| line.key == website.as_bytes()) {
        let named = String::from_utf8_lossy(line.value).parse().ok().and_then(SloId::new);
        ensure!(
            named.is_some_and(|id| is_protecting(&id)),
            "{}:{}: {website} already has an SLO: give that SLO law=protect, or add another SLO with also=",
            maps.display(),
            line.number
        );
        return Ok(Vec::new());
    }
    let mut changes = Vec::new();
    let id = match ids().find(is_protecting) {
        Some(id) => id,
        None => {
            let id = ids().find(|id| policy.slo(*id).is_none()).context("all website SLO ids are in use")?;
            changes.push(with_line(path(source, Path::new("slo.map")), format!("{id} law=protect"))?);
            id
        }
    };
    changes.push(with_line(maps, format!("{website} {id}"))?);
    Ok(changes)
}

fn protect_all(source: &Source, policy: &Policy) -> anyhow::Result<Vec<FileChange>> {
    let slo = policy.slo(SloId::DEFAULT).context("SLO 0 is missing")?;
    if protects(slo) {
        return Ok(Vec::new());
    }
    let path = path(source, Path::new("slo.map"));
    let before = read(&path)?;
    let line =
        map::lines(before.as_bytes()).flatten().find(|line| line.key == b"0").context("SLO 0 is missing")?;
    ensure!(
        line.value == UNLIMITED.as_bytes(),
        "{}:{}: SLO 0 has options of its own: add law=protect to this line, or name a website, like \
         --protect shop.example",
        path.display(),
        line.number
    );
    let number = line.number;
    Ok(vec![replaced(path, before, number, "0 law=protect")])
}

fn protects(slo: &Slo) -> bool {
    matches!(slo.law, Law::Protect(_))
}

/// The address to which nginx reports ends and, if slowlane does not listen there yet, the change to its config.
pub(super) fn ends(config: &Config) -> anyhow::Result<(Address, Option<FileChange>)> {
    if let Some(address) = config.ends.addresses.first() {
        return Ok((address.clone(), None));
    }
    let file = config.file.as_ref().context("--protect: name slowlane's config file with --slowlane")?;
    let path = fs::canonicalize(&file.path)?;
    let before = read(&path)?;
    let listen = format!("listen = [\"{ENDS}\"]");
    let lines = || before.lines().map(str::trim_start).zip(1..);
    let Some((_, section)) = lines().find(|(line, _)| line.starts_with("[ends]")) else {
        let change = added(path, before, vec!["[ends]".to_owned(), listen]);
        return Ok((ENDS.parse()?, Some(change)));
    };
    let inside = || lines().skip(section).take_while(|(line, _)| !line.starts_with('['));
    let at = inside().find(|(line, _)| line.starts_with("listen"));
    let change = match at {
        Some((line, number)) => {
            ensure!(
                line.contains(']'),
                "{}:{number}: put the whole list on this line, like {listen}",
                path.display()
            );
            replaced(path, before, number, &listen)
        }
        None => {
            let at = before.split_inclusive('\n').take(section).map(str::len).sum();
            FileChange::of(path, before, Block::at(at, vec![listen]))
        }
    };
    Ok((ENDS.parse()?, Some(change)))
}

fn path(source: &Source, name: &Path) -> PathBuf {
    let path = source.dir.join(name);
    fs::canonicalize(&path).unwrap_or(path)
}

/// A change that adds a line to a file.
fn with_line(path: PathBuf, line: String) -> anyhow::Result<FileChange> {
    let before = existing(&path)?;
    Ok(added(path, before, vec![line]))
}

/// The text of a file of the policy, which `attach` does not create.
fn existing(path: &Path) -> anyhow::Result<String> {
    read(path).map_err(|error| anyhow!("{error}; create the file if it is missing"))
}

fn added(path: PathBuf, before: String, lines: Vec<String>) -> FileChange {
    let block = Block::at(before.len(), lines);
    FileChange::of(path, before, block)
}

/// A change that replaces the line with this number in a file.
fn replaced(path: PathBuf, before: String, number: usize, line: &str) -> FileChange {
    let bytes = |lines| before.split_inclusive('\n').take(lines).map(str::len).sum();
    let block = Block { at: bytes(number - 1), until: bytes(number), lines: vec![line.to_owned()] };
    FileChange::of(path, before, block)
}
