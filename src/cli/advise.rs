//! `slowlane advise`: proposes limits under which most clients in yesterday's traffic would not have waited.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::bail;
use clap::Args;

use crate::cli::progress::Progress;
use crate::cli::replay::{far, format, input, refuse_misread, report_problems, size, with_forwarded};
use crate::cli::say;
use crate::config::{Config, Flags};
use slowlane_core::base::units;
use slowlane_lab::access_log::{Choice, Mapping};
use slowlane_lab::advise::{self, By, Settings};
use slowlane_lab::replay;

#[derive(Debug, Args)]
pub(super) struct AdviseArguments {
    /// Access logs
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// Field that identifies clients, or source+FIELD; may be repeated [default: source, website and owner, if logged]
    #[arg(long, value_name = "FIELD")]
    by: Vec<By>,
    /// Percentage of clients that must never wait
    #[arg(long, value_name = "PERCENT", default_value = "99.9", value_parser = percent)]
    spare: f64,
    /// Make bots wait, and apply --spare only to the other clients
    #[arg(long)]
    except_bots: bool,
    /// Log format: a proxy's name, like nginx, or your log-format or log_format [default: detected automatically]
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    format: Option<Choice>,
    /// Source of a field: an item of the log format, or a fixed value; may be repeated
    #[arg(long, value_name = "NAME=ITEM")]
    field: Vec<Mapping>,
    /// Position of the client's address in the list that --field source=ITEM names, counted from the right
    #[arg(long, value_name = "N")]
    forwarded: Option<NonZeroUsize>,
    /// Maximum number of clients to print, and of map lines to print for websites and other values
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Longest time from a request's arrival to its line in the log
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    reorder: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The value of `--spare`.
fn percent(text: &str) -> Result<f64, &'static str> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or("expected a percentage from 0 to 100, like 99.9")
}

pub(super) fn advise(typed: AdviseArguments) -> anyhow::Result<()> {
    let bytes = size(&typed.logs);
    if bytes.is_none() {
        bail!("each log must be a regular file, not standard input, because logs are read several times");
    }
    let settings = Settings {
        by: typed.by,
        spare: typed.spare,
        except_bots: typed.except_bots,
        sizing: Config::load(None, Flags::default())?.table,
        reading: replay::ReplaySettings {
            format: typed.format.unwrap_or(Choice::Any),
            mappings: with_forwarded(typed.field, typed.forwarded)?,
            measures: Vec::new(),
            reorder: typed.reorder,
            seed: 0,
            top: typed.top as usize,
        },
    };
    let read = Arc::new(AtomicU64::new(0));
    let open = || {
        read.store(0, Relaxed);
        typed.logs.iter().map(|path| input(path, &read)).collect()
    };
    let mut progress = Progress::begin();
    let advice = advise::advise::<anyhow::Error>(open, &settings, |lines| {
        let elapsed = progress.elapsed();
        progress.report(|| far(lines, elapsed, read.load(Relaxed), bytes));
    });
    progress.end();
    let advice = advice?;
    report_problems(&advice.logs, &advice.notes);
    if advice.requests == 0 {
        bail!("no advice: no request could be read from any log");
    }
    refuse_misread(&advice.logs)?;
    let text = match typed.json {
        true => serde_json::to_string_pretty(&advice)? + "\n",
        false => advise::report(&advice),
    };
    say(&text)
}
