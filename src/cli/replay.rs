//! `slowlane replay`: shows the effect of a policy on yesterday's traffic.

use std::fs::{self, File};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;

use crate::cli::progress::Progress;
use crate::cli::{say, tell};
use crate::config::{Config, Flags};
use slowlane_core::base::{plural, shown, units};
use slowlane_core::throttle::Throttle;
use slowlane_lab::access_log::{Choice, Faulty, Format, FormatError, LogOutcome, Mapping, Measure};
use slowlane_lab::replay::{self, Input, ReplaySettings, Subject};

#[derive(Debug, Args)]
pub(super) struct ReplayArguments {
    /// Access logs; - is standard input
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// The policy directory
    #[arg(long, value_name = "DIR")]
    policy: Option<PathBuf>,
    /// The config file (TOML), from which to read lookups, types and the size of the table
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Another policy directory, to compare with --policy
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Log format: a proxy's name, like nginx, or your log-format or log_format [default: detected automatically]
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    format: Option<Choice>,
    /// Source of a field: an item of the log format, or a fixed value; may be repeated
    #[arg(long, value_name = "NAME=ITEM")]
    field: Vec<Mapping>,
    /// Position of the client's address in the list that --field source=ITEM names, counted from the right
    #[arg(long, value_name = "N")]
    forwarded: Option<NonZeroUsize>,
    /// Measure of a request's work (seconds, bytes or cost) and its item, for SLOs with a unit; may be repeated
    #[arg(long, value_name = "NAME=ITEM")]
    measure: Vec<Measure>,
    /// Maximum number of keys to print
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Longest time from a request's arrival to its line in the log
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    reorder: Duration,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The words that `--format` accepts in place of a format: the names of proxies, and `json`.
const PROXIES: [&str; 7] = ["haproxy", "nginx", "apache", "caddy", "traefik", "envoy", "json"];

/// The value of `--format`.
pub(super) fn format(text: &str) -> Result<Choice, FormatError> {
    match PROXIES.contains(&text) {
        true => Ok(Choice::Of(text.to_owned())),
        false => Format::parse(text).map(Choice::This),
    }
}

pub(super) fn replay(typed: ReplayArguments) -> anyhow::Result<()> {
    let mut subjects = vec![subject(&typed, typed.policy.clone())?];
    if let Some(against) = &typed.against {
        subjects.push(subject(&typed, Some(against.clone()))?);
    }
    let read = Arc::new(AtomicU64::new(0));
    let inputs = typed.logs.iter().map(|path| input(path, &read)).collect::<anyhow::Result<Vec<Input>>>()?;
    let settings = ReplaySettings {
        format: typed.format.clone().unwrap_or(Choice::Any),
        mappings: with_forwarded(typed.field.clone(), typed.forwarded)?,
        measures: typed.measure.clone(),
        reorder: typed.reorder,
        seed: typed.seed,
        top: typed.top,
    };
    let (mut progress, bytes) = (Progress::begin(), size(&typed.logs));
    let outcome = replay::replay(inputs, &subjects, &settings, |lines| {
        let elapsed = progress.elapsed();
        progress.report(|| far(lines, elapsed, read.load(Relaxed), bytes));
    });
    progress.end();
    let outcome = outcome?;
    report_problems(&outcome.logs, &outcome.notes);
    if outcome.requests() == 0 {
        bail!("nothing was replayed: no request could be read from any log");
    }
    refuse_misread(&outcome.logs)?;
    let form = if typed.json { replay::json } else { replay::report };
    say(&form(&outcome))
}

/// Reads a policy as the daemon would.
fn subject(typed: &ReplayArguments, policy: Option<PathBuf>) -> anyhow::Result<Subject> {
    let config = Config::load(typed.config.as_deref(), Flags { policy: policy.clone(), ..Flags::default() })?;
    let name = match &policy {
        Some(dir) => dir.display().to_string(),
        None if config.policy.is_some() => "as configured".to_owned(),
        None => "built in".to_owned(),
    };
    let throttle = Throttle::new(config.read_policy()?, config.table, config.sections.table.annex_bytes_max);
    Ok(Subject { name: shown(&name), throttle })
}

const STDIN: &str = "-";

pub(super) fn input(path: &Path, read: &Arc<AtomicU64>) -> anyhow::Result<Input> {
    if path == Path::new(STDIN) {
        return Ok(Input {
            name: "standard input".to_owned(),
            bytes: Box::new(CountedReader(io::stdin(), read.clone())),
        });
    }
    let name = shown(path.display().to_string());
    let unreadable = |error| anyhow!("{name}: cannot be read: {error}");
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        bail!("{name}: this is a directory: name the logs in it");
    }
    Ok(Input { name, bytes: Box::new(CountedReader(file, read.clone())) })
}

/// A reader that counts its bytes.
struct CountedReader<R>(R, Arc<AtomicU64>);

impl<R: Read> Read for CountedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

/// If a larger percentage of all lines is unusable, the remaining lines say nothing about the requests.
const UNUSABLE_PERCENT_MAX: u64 = 5;

/// The number of lines that could not be read or had no usable client, and the number of all lines.
fn unusable(logs: &[LogOutcome]) -> [u64; 2] {
    [logs.iter().map(LogOutcome::unusable).sum(), logs.iter().map(|log| log.lines).sum()]
}

/// Prints problems on standard error: the share of unusable lines, the skipped lines of each log, and the notes.
pub(super) fn report_problems(logs: &[LogOutcome], notes: &[String]) {
    let [unusable, lines] = unusable(logs);
    let share = format!("{:.1} %", unusable as f64 * 100.0 / lines.max(1) as f64);
    if unusable > 0 {
        let noun = if lines == 1 { "line" } else { "lines" };
        tell(format_args!(
            "{unusable} of {lines} {noun} ({share}) could not be read, or had no usable client"
        ));
    }
    for LogOutcome { name, format, told, is_empty, lines, requests, errors, broken } in logs {
        if *is_empty && broken.is_none() {
            tell(format_args!("{name}: is empty"));
        } else if let Some(told) = told {
            tell(format_args!("{name}: {told}"));
        } else if format.is_none() && broken.is_none() {
            tell(format_args!(
                "{name}: no line has a known format: give HAProxy's log-format or nginx's log_format with --format"
            ));
        }
        for Faulty { why, count, numbers, .. } in errors {
            let more = if *count > numbers.len() as u64 { ", ..." } else { "" };
            let noun = if numbers.len() == 1 { "line" } else { "lines" };
            let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let numbers = numbers.join(", ");
            tell(format_args!(
                "{name}: {count} of {} left out: {why} ({noun} {numbers}{more})",
                plural(*lines, "line")
            ));
        }
        match broken {
            Some(why) if *lines == 0 => tell(format_args!("{name}: {why}")),
            Some(why) => tell(format_args!(
                "{name}: {why}, after line {lines} ({} read)",
                plural(*requests, "request")
            )),
            None => {}
        }
    }
    for note in notes {
        tell(note);
    }
}

/// Fails if so many lines were unusable that the usable lines are not representative.
pub(super) fn refuse_misread(logs: &[LogOutcome]) -> anyhow::Result<()> {
    let [unusable, lines] = unusable(logs);
    if unusable * 100 > lines * UNUSABLE_PERCENT_MAX {
        bail!(
            "no result: more than {UNUSABLE_PERCENT_MAX} % of the lines could not be used; name the format of \
             the lines with --format, and the client with --field source=ITEM"
        );
    }
    Ok(())
}

/// Applies `--forwarded` to the log item that the field `source` comes from.
pub(super) fn with_forwarded(
    mut mappings: Vec<Mapping>,
    forwarded: Option<NonZeroUsize>,
) -> anyhow::Result<Vec<Mapping>> {
    let mut source = mappings.iter_mut().filter(|mapping| mapping.field == "source").peekable();
    if forwarded.is_some() && source.peek().is_none() {
        bail!(
            "--forwarded needs the log item that holds the list, like --field 'source=$http_x_forwarded_for'"
        );
    }
    source.for_each(|mapping| mapping.forwarded = forwarded);
    Ok(mappings)
}

/// The total size of the logs in bytes, or `None` if the size of any log is unknown.
pub(super) fn size(logs: &[PathBuf]) -> Option<u64> {
    let size = |path: &PathBuf| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|file| file.len());
    logs.iter().map(size).sum()
}

const BAR_WIDTH: u64 = 30;

pub(super) fn far(lines: u64, elapsed: Duration, read: u64, bytes: Option<u64>) -> String {
    let bar = bytes.filter(|&bytes| bytes > 0).map_or(String::new(), |bytes| {
        let done = read.min(bytes);
        let full = (done * BAR_WIDTH / bytes) as usize;
        let left_s = elapsed.as_secs_f64() * (bytes - done) as f64 / done.max(1) as f64;
        format!("[{:<30}] {:>3} %, {left_s:.0} s left  ", "#".repeat(full), done * 100 / bytes)
    });
    format!("{bar}{lines} lines, {:.1} million/s", lines as f64 / elapsed.as_secs_f64() / 1e6)
}
