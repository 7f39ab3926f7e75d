//! The demonstration: the daemon between real clients and a real application, with a line for each second.
//!
//! ```text
//!  a crawler   127.0.0.2  N connections ─┐
//!                                        ├─▶ HAProxy ─▶ an application with a limited rate
//!  a customer  127.0.0.3  5 requests/s  ─┘      │
//!                                            slowlane
//! ```
//! In the first seconds, the SLO limits nothing, and the crawler takes all capacity of the application. Then
//! `slo.map` is edited, as an operator would, and every source is limited to the rate.

mod app;
mod client;
mod haproxy;
mod http;
mod table;
mod tally;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
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
use crate::proxy::shipped::haproxy::Version;
use crate::watch::Reload;
use slowlane_core::base::{Address, Rate};

/// The settings of a demonstration.
pub(crate) struct Demo {
    /// Connections of the crawler.
    pub clients: u32,
    pub rate: Rate,
    /// The number of seconds to print.
    pub seconds: u32,
    /// Whether it continues after that, until a signal.
    pub stays: bool,
    /// The program to start, or the reason why there is none: then the clients query slowlane over HTTP themselves,
    /// as nginx would.
    pub haproxy: Result<(PathBuf, Version), String>,
}

pub(crate) const SECONDS_DEFAULT: u32 = 15;

/// Some seconds without a limit, some while the law settles, and some with a settled rate.
pub(crate) const SECONDS_MIN: u32 = 8;

/// Seconds in which the SLO limits nothing.
const FREE_S: u32 = 4;

/// From the edit of `slo.map` until the burst is used up and its requests are answered.
const SETTLE_S: u32 = 2;

/// The rate of the application, as a multiple of the SLO's rate. Alone, the crawler takes all of it.
const CAPACITY: f64 = 6.0;

/// An SLO that limits nothing here.
const FREE: &str = "burst=1000000 rate=1000000/s";

/// Lower rates show too little in a second; higher rates are too much for a small machine.
const RATES: std::ops::RangeInclusive<f64> = 5.0..=500.0;

/// Longer delays exceed the timeouts of the shipped files, which are made for a `max_delay` of 5 s.
const DELAY_MAX_S: f64 = 4.0;

impl Demo {
    /// Runs the demonstration to its end or to a signal. It leaves no process and no directory behind.
    ///
    /// # Errors
    /// Settings that show no effect, a daemon or a proxy that does not start, or an output that cannot be written.
    pub(crate) fn run(&self, out: &mut impl Write, is_terminal: bool) -> anyhow::Result<()> {
        let rate = self.rate.per_second();
        ensure!(
            RATES.contains(&rate),
            "--rate {}: expected {}/s to {}/s, or there is little to see",
            self.rate,
            RATES.start(),
            RATES.end()
        );
        ensure!(
            f64::from(self.clients) <= DELAY_MAX_S * rate,
            "--clients {} --rate {}: each would wait for {:.0} s: expected fewer clients or a higher rate, so that it is at most {DELAY_MAX_S} s",
            self.clients,
            self.rate,
            f64::from(self.clients) / rate,
        );
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
        stage.let_in(self.clients, &tally);

        let table = DelayTable::new(is_terminal, CAPACITY * self.rate.per_second());
        table.head(out)?;
        let mut seconds = Vec::new();
        let mut tick = interval_at(Instant::now() + Duration::from_secs(1), Duration::from_secs(1));
        while seconds.len() < self.seconds as usize {
            if seconds.len() == FREE_S as usize {
                let line = self.objective();
                stage.edit(&line)?;
                table.event(&format!("slo.map now says: {line}"), out)?;
            }
            tick.tick().await;
            let second = tally.take();
            table.row(seconds.len() + 1, &second, out)?;
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

    /// The line of `slo.map`. Its burst is one second of requests.
    fn objective(&self) -> String {
        let burst = self.rate.per_second().ceil();
        format!("3001 burst={burst} rate={}", self.rate)
    }

    fn introduce(&self, stage: &Stage, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{}", stage.proxy_note)?;
        writeln!(out, "  a crawler       {} connections that never pause", self.clients)?;
        writeln!(out, "  a customer      1 connection, {} requests/s", client::CUSTOMER_PER_S)?;
        let capacity = CAPACITY * self.rate.per_second();
        writeln!(out, "  an application  that can answer some {capacity:.0} requests/s")?;
        writeln!(out, "  the page        http://{}/\n", stage.page())
    }

    fn sum_up(&self, seconds: &[Second], out: &mut impl Write) -> std::io::Result<()> {
        // The first second includes the start.
        let before = Second::mean(&seconds[1..FREE_S as usize]);
        let settled = (FREE_S + SETTLE_S) as usize;
        let after = Second::mean(&seconds[settled..]);
        let refused: u32 = seconds.iter().map(|second| second.refused).sum();
        let lost: u32 = seconds.iter().map(|second| second.lost).sum();
        writeln!(
            out,
            "\nWithout a limit, the crawler got {:.0} requests/s, and the customer waited {:.0} ms for an answer.",
            before.crawler_per_s, before.customer_ms
        )?;
        writeln!(
            out,
            "Limited to {}, it gets {:.1} requests/s (seconds {} to {}) after {:.0} ms each, and the customer waits {:.0} ms.",
            self.rate,
            after.crawler_per_s,
            settled + 1,
            seconds.len(),
            after.crawler_ms,
            after.customer_ms
        )?;
        match refused {
            0 => writeln!(out, "Nobody got a 429.")?,
            refused => writeln!(out, "{refused} requests got a 429.")?,
        }
        if lost > 0 {
            writeln!(out, "{lost} requests got no answer, or a wrong one.")?;
        }
        Ok(())
    }
}

/// Everything that runs, dropped in this order: the clients first, the folder last.
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
        fs::write(policy.join("source.map"), "0.0.0.0/0 3001\n::/0 3001\n")?;
        write_slo_map(&policy, &format!("3001 {FREE}"))?;

        // Free ports on the loopback interface.
        let any = || vec![Address::Tcp("127.0.0.1:0".into())];
        let flags =
            Flags { policy: Some(policy), spop: any(), http: any(), admin: any(), ..Flags::default() };
        let slowlane = daemon::start(&Config::load(None, flags)?)?;
        let [spop, http, _] = &slowlane.addresses;
        let (spop, check) = (spop[0].parse()?, http[0].parse()?);
        let app = App::start(demo.rate.per_second() * CAPACITY).await?;
        let (haproxy, proxy_note) = match &demo.haproxy {
            Ok((binary, version)) => {
                let haproxy = HaproxyChild::start(binary, *version, spop, app.address, folder.path()).await?;
                let note = haproxy.note(*version, spop);
                (Some(haproxy), note)
            }
            Err(why) => (None, format!("{why}: slowlane takes its place, and queries itself over HTTP")),
        };
        let target = match &haproxy {
            Some(haproxy) => Target { site: haproxy.address, check: None },
            None => Target { site: app.address, check: Some(check) },
        };
        Ok(Stage { target, haproxy, proxy_note, slowlane, _app: app, folder })
    }

    /// Starts the clients. They end with the runtime.
    fn let_in(&self, clients: u32, tally: &Arc<AnswerTally>) {
        for _ in 0..clients {
            tokio::spawn(client::crawl(self.target, tally.clone()));
        }
        tokio::spawn(client::visit(self.target, tally.clone()));
    }

    /// Saves `slo.map`, as an operator would.
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

    /// An error if HAProxy has ended.
    fn check(&mut self) -> anyhow::Result<()> {
        self.haproxy.as_mut().map_or(Ok(()), HaproxyChild::check)
    }
}

/// Replaces the file atomically: a reader finds the old one or the new one.
fn write_slo_map(policy: &Path, line: &str) -> std::io::Result<()> {
    let new = policy.join("slo.map.new");
    fs::write(&new, format!("0 {FREE}\n{line}\n"))?;
    fs::rename(new, policy.join("slo.map"))
}
