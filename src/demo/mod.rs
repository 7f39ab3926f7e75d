//! The demonstration: the daemon between real clients and a real application, with a line of output for each second.
//!
//! ```text
//!  a crawler   127.0.0.2  N connections ─┐
//!                                        ├─▶ HAProxy ─▶ an application with a limited rate
//!  a customer  127.0.0.3  5 requests/s  ─┘      │
//!                                            slowlane
//! ```
//! For the first few seconds, the SLO limits nothing, and the crawler takes all of the application's capacity. Then the
//! demonstration edits `slo.map`, as an operator would, and every source is limited to the rate.
//!
//! With `--protect`, the crawlers have many addresses, 127.66.x.y, and the new line in `slo.map` protects the
//! application instead.

mod app;
mod client;
mod haproxy;
mod slo;
mod table;
mod tally;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{Instant, interval_at};

use crate::config::{Config, Flags};
use crate::daemon::{self, Serving, asked_to_end};
use crate::demo::app::App;
use crate::demo::client::Target;
use crate::demo::haproxy::HaproxyChild;
use crate::demo::table::DelayTable;
use crate::demo::tally::{AnswerTally, Second};
use crate::observe::status::ProtectedLine;
use crate::proxy::shipped::haproxy::Version;
use crate::watch::Reload;
use slowlane_core::base::{Address, plural};

pub(crate) use slo::{DemoSlo, LIMITED, PROTECTED};

/// The settings of a demonstration.
pub(crate) struct Demo {
    pub slo: DemoSlo,
    /// The number of seconds to print.
    pub seconds: u32,
    /// Whether, after these seconds, the demonstration continues until a signal arrives.
    pub stays: bool,
    /// The HAProxy to start and its version, or the reason why there is none. Without HAProxy, the clients query
    /// slowlane over HTTP themselves, as nginx would.
    pub haproxy: Result<(PathBuf, Version), String>,
}

pub(crate) const SECONDS_DEFAULT: u32 = 15;

/// The minimum number of seconds: some without a limit, some while the law settles, and some with a settled rate.
pub(crate) const SECONDS_MIN: u32 = 8;

/// The number of seconds, at the beginning, in which the SLO limits nothing.
const FREE_S: u32 = 4;

/// The number of seconds from the edit of `slo.map` until the burst is used up and the burst's requests are answered.
const SETTLE_S: u32 = 2;

/// The options of an SLO that limits nothing here.
const FREE: &str = "burst=1000000 rate=1000000/s";

impl Demo {
    /// Runs the demonstration until it ends or a signal stops it. No process and no directory is left behind.
    ///
    /// # Errors
    /// The daemon or the proxy does not start, HAProxy ends early, or the output cannot be written.
    pub(crate) fn run(&self, out: &mut impl Write, is_terminal: bool) -> anyhow::Result<()> {
        let runtime = Runtime::new().context("cannot start the runtime")?;
        runtime.block_on(async {
            let end = asked_to_end()?;
            tokio::select! {
                result = self.play(out, is_terminal) => result,
                () = end => Ok(()),
            }
        })
    }

    async fn play(&self, out: &mut impl Write, is_terminal: bool) -> anyhow::Result<()> {
        let mut stage = Stage::set(self).await?;
        self.introduce(&stage, out)?;
        let tally = Arc::new(AnswerTally::default());
        stage.let_in(self, &tally);

        let table = DelayTable::new(is_terminal, self.slo.capacity_per_s());
        table.head(self.slo.last_column, out)?;
        let mut seconds = Vec::new();
        let mut tick = interval_at(Instant::now() + Duration::from_secs(1), Duration::from_secs(1));
        while seconds.len() < self.seconds as usize {
            if seconds.len() == FREE_S as usize {
                let line = format!("{} {}", self.slo.id, self.slo.options);
                stage.edit(&line)?;
                table.event(&format!("slo.map now says: {line}"), out)?;
            }
            tick.tick().await;
            let second = tally.take();
            // The state of the protected application, if any.
            let state = stage.slowlane.protected().first().map(ProtectedLine::state);
            table.row(seconds.len() + 1, &second, state, out)?;
            seconds.push(second);
            stage.check()?;
        }
        self.sum_up(&seconds, out)?;
        if self.stays {
            writeln!(
                out,
                "\nThe demo continues. The page is at http://{}/; Ctrl-C ends everything.",
                stage.page()
            )?;
            loop {
                tick.tick().await;
                tally.take();
                stage.check()?;
            }
        }
        Ok(())
    }

    fn introduce(&self, stage: &Stage, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{}", stage.proxy_note)?;
        writeln!(out, "{}", self.slo.introduction)?;
        writeln!(out, "  a customer      1 connection, {} requests/s", client::CUSTOMER_PER_S)?;
        let capacity = self.slo.capacity_per_s();
        writeln!(out, "  an application  that can answer some {capacity:.0} requests/s")?;
        writeln!(out, "  the page        http://{}/\n", stage.page())
    }

    fn sum_up(&self, seconds: &[Second], out: &mut impl Write) -> std::io::Result<()> {
        // The first second is left out, because it includes startup.
        let before = Second::mean(&seconds[1..FREE_S as usize]);
        let settled = (FREE_S + SETTLE_S) as usize;
        let after = Second::mean(&seconds[settled..]);
        let refused: u32 = seconds.iter().map(|second| second.refused).sum();
        let lost: u32 = seconds.iter().map(|second| second.lost).sum();
        let [who, get, limited] = self.slo.summary;
        writeln!(
            out,
            "\nWithout a limit, {who} got {:.0} requests/s, and the customer waited {:.0} ms for an answer.",
            before.crawler_per_s, before.customer_ms
        )?;
        writeln!(
            out,
            "{limited}, {get} {:.1} requests/s (seconds {} to {}), each answered after {:.0} ms, and the \
             customer waits {:.0} ms.",
            after.crawler_per_s,
            settled + 1,
            seconds.len(),
            after.crawler_ms,
            after.customer_ms
        )?;
        match refused {
            0 => writeln!(out, "No request got a 429.")?,
            refused => writeln!(out, "{} got a 429.", plural(refused, "request"))?,
        }
        if lost > 0 {
            writeln!(out, "{} got no answer, or a wrong one.", plural(lost, "request"))?;
        }
        Ok(())
    }
}

/// Everything that runs, except the clients. The fields are dropped in this order: HAProxy first, the folder last.
struct Stage {
    target: Target,
    haproxy: Option<HaproxyChild>,
    proxy_note: String,
    slowlane: Serving,
    _app: App,
    folder: TempDir,
}

impl Stage {
    async fn set(demo: &Demo) -> anyhow::Result<Stage> {
        let folder = tempfile::Builder::new().prefix("slowlane-demo-").tempdir()?;
        let policy = folder.path().join("policy");
        fs::create_dir(&policy)?;
        let (map, text) = demo.slo.map;
        fs::write(policy.join(map), text)?;
        write_slo_map(&policy, &format!("{} {FREE}", demo.slo.id))?;

        // Free ports on the loopback interface.
        let any = || vec![Address::Tcp("127.0.0.1:0".into())];
        let flags =
            Flags { policy: Some(policy), spop: any(), http: any(), admin: any(), ..Flags::default() };
        let slowlane = daemon::start(&Config::load(None, flags)?)?;
        let [spop, http, _] = &slowlane.addresses;
        let (spop, check) = (spop[0].parse()?, http[0].parse()?);
        let (workers, service) = demo.slo.application;
        let app = App::start(workers, service).await?;
        let (haproxy, proxy_note) = match &demo.haproxy {
            Ok((binary, version)) => {
                let form = (*version, demo.slo.delivery(*version));
                let haproxy = HaproxyChild::start(binary, form, spop, app.address, folder.path()).await?;
                let note = haproxy.note(form, spop);
                (Some(haproxy), note)
            }
            Err(why) => {
                (None, format!("{why}: slowlane takes HAProxy's place, and queries itself over HTTP"))
            }
        };
        let target = match &haproxy {
            Some(haproxy) => Target { site: haproxy.address, check: None },
            None => Target { site: app.address, check: Some(check) },
        };
        Ok(Stage { target, haproxy, proxy_note, slowlane, _app: app, folder })
    }

    /// Starts the clients, which end with the runtime.
    fn let_in(&self, demo: &Demo, tally: &Arc<AnswerTally>) {
        for number in 0..demo.slo.connections {
            tokio::spawn(client::crawl(self.target, demo.slo.crawler(number), tally.clone()));
        }
        tokio::spawn(client::visit(self.target, tally.clone()));
    }

    /// Saves `slo.map`, as an operator would, and asks slowlane to reload it.
    fn edit(&self, line: &str) -> anyhow::Result<()> {
        write_slo_map(&self.folder.path().join("policy"), line)?;
        self.slowlane.reload.iter().for_each(Reload::ask);
        Ok(())
    }

    /// The address of the status page.
    fn page(&self) -> &str {
        let [_, _, admin] = &self.slowlane.addresses;
        &admin[0]
    }

    /// Returns an error if HAProxy has ended.
    fn check(&mut self) -> anyhow::Result<()> {
        self.haproxy.as_mut().map_or(Ok(()), HaproxyChild::check)
    }
}

/// Replaces the file atomically, so that a reader sees either the old file or the new one.
fn write_slo_map(policy: &Path, line: &str) -> std::io::Result<()> {
    let new = policy.join("slo.map.new");
    fs::write(&new, format!("0 {FREE}\n{line}\n"))?;
    fs::rename(new, policy.join("slo.map"))
}
