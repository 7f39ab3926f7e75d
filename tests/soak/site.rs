//! A site: one agent, its proxies and its application, and what is done to them each second.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::proxies::Proxies;
use crate::records::Records;
use crate::samples::{DESCRIPTORS, RESIDENT, Sample};
use crate::support::backend::Backend;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{client, eventually};
use crate::{End, Plan, Work, clients, floods, log, policy, stalled};

/// The time between a kill and the restart, as a supervisor takes it.
const DEAD: Duration = Duration::from_secs(1);

/// The time that the application takes for a request: concurrent requests meet in it.
const WORK: Duration = Duration::from_millis(20);

/// The commands of operators, one a second in turn.
const COMMANDS: [&[&str]; 3] = [&["table", "show"], &["top", "--once"], &["why", "source=10.31.0.66"]];
const PAGES: [&str; 3] = ["/metrics", "/api/status", "/"];

pub struct Site {
    name: &'static str,
    slowlane: Slowlane,
    proxies: Proxies,
    kill_every: Option<Duration>,
    /// The samples of the agent, for each of its lives.
    lives: Vec<Vec<Sample>>,
    pub records: Arc<Records>,
}

impl Site {
    pub fn start(name: &'static str, kill_every: Option<Duration>) -> Site {
        let files = policy::files();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let slowlane = Slowlane::with_config(&files, policy::CONFIG);
        fill_disk(&slowlane);
        let app = Backend::forgetful();
        app.gate.takes(WORK);
        let proxies = Proxies::start(&slowlane, &app);
        let (lives, records) = (vec![Vec::new()], Arc::default());
        Site { name, slowlane, proxies, kill_every, lives, records }
    }

    /// Everyone who comes to this site.
    pub fn crowd(&self) -> Vec<Work> {
        let (spop, http) = (self.slowlane.spop, self.slowlane.http);
        let listeners = self.proxies.listeners();
        let mut crowd: Vec<Work> =
            listeners.iter().flat_map(|door| clients::of(door, &self.records)).collect();
        let records = self.records.clone();
        crowd.push(Box::new(move |end| floods::over_spop(spop, &records, end)));
        let records = self.records.clone();
        crowd.push(Box::new(move |end| floods::over_http(http, &records, end)));
        let (records, peers) = (self.records.clone(), stalled::peers(&self.slowlane));
        crowd.push(Box::new(move |end| peers(end, &records)));
        crowd
    }

    /// Does each second what is due, until the end.
    pub fn run(&mut self, plan: Plan, end: &End, interrupted: &AtomicBool) {
        let started = Instant::now();
        let (mut killed_at, mut reloaded_at) = (started, started);
        for second in 0_u64.. {
            if end.has_come() || interrupted.load(Relaxed) || started.elapsed() >= plan.length {
                return;
            }
            self.look();
            policy::edit(&self.slowlane, second, &self.records);
            if reloaded_at.elapsed() >= plan.reload_every {
                reloaded_at = Instant::now();
                self.reload_proxies();
            }
            if self.kill_every.is_some_and(|every| killed_at.elapsed() >= every) {
                killed_at = Instant::now();
                self.kill(second);
            }
            self.operate(second as usize);
            thread::sleep(
                (started + Duration::from_secs(second + 1)).saturating_duration_since(Instant::now()),
            );
        }
    }

    fn look(&mut self) {
        let log = || self.slowlane.process.log().join("\n");
        match Sample::of(self.slowlane.process.id()) {
            Some(sample) => self.lives.last_mut().expect("it has a life").push(sample),
            None => panic!("the agent has ended by itself:\n{}", log()),
        }
        self.proxies.look(&self.records);
    }

    fn reload_proxies(&mut self) {
        self.proxies.haproxies.iter_mut().for_each(|haproxy| haproxy.reload(&self.records));
    }

    /// Kills the agent, and starts it again. Each second time HAProxy is reloaded in between.
    fn kill(&mut self, second: u64) {
        self.records.gaps.begin();
        self.slowlane.kill();
        self.judge_log();
        self.records.count("kills");
        if self.records.counted("kills").is_multiple_of(2) {
            self.reload_proxies();
        }
        thread::sleep(DEAD);
        // With a mistake in its policy it would not start.
        policy::mend(&self.slowlane, second);
        self.slowlane.restart();
        self.proxies.wait_for_verdicts();
        self.records.gaps.end();
        self.lives.push(Vec::new());
    }

    fn operate(&self, second: usize) {
        let command = COMMANDS[second % COMMANDS.len()];
        let admin = self.slowlane.admin.to_string();
        let ran = Command::new(BINARY).args(command).args(["--admin", &admin]).output().unwrap();
        if !ran.status.success() || ran.stdout.is_empty() {
            self.records
                .fault("a command fails", format!("{command:?}: {}", String::from_utf8_lossy(&ran.stderr)));
        }
        let page = PAGES[second % PAGES.len()];
        let answer = client::get(self.slowlane.admin, page, &[]);
        if answer.status != 200 {
            self.records.fault("a page fails", format!("{page}: {answer:?}"));
        }
        self.records.add("readings of operators", 2);
    }

    fn judge_log(&self) {
        let log = self.slowlane.process.log();
        let (explained, unexplained) = log::judged(&log);
        for (reason, lines) in explained {
            self.records.add(&format!("log lines because {reason}"), lines);
        }
        for line in unexplained {
            self.records.fault("a line of the log that nothing explains", line.clone());
        }
    }

    /// Ends everything. Returns what happened, and the faults.
    pub fn end(mut self) -> (String, Vec<String>) {
        self.judge_figures();
        self.judge_metrics();
        self.judge_disk();
        self.judge_nginx();
        self.proxies.haproxies.iter_mut().for_each(|haproxy| haproxy.wait_for_the_old());
        self.slowlane.process.signal("TERM");
        if !self.slowlane.process.wait().success() {
            self.records.fault("the agent does not end in order", String::new());
        }
        self.judge_log();
        let faults = self.records.faults().into_iter().map(|fault| format!("{}: {fault}", self.name));
        (self.outcome(), faults.collect())
    }

    fn judge_figures(&self) {
        // A life that has just begun has no quarters.
        let longest = self.lives.iter().map(Vec::len).max().unwrap_or(0);
        let lives: Vec<_> = self.lives.iter().filter(|life| life.len() * 2 > longest).cloned().collect();
        for figure in [RESIDENT, DESCRIPTORS] {
            for grew in figure.grew(&lives) {
                self.records.fault("the agent grows", grew);
            }
        }
        for haproxy in &self.proxies.haproxies {
            for grew in DESCRIPTORS.grew(std::slice::from_ref(&haproxy.samples)) {
                self.records.fault("HAProxy grows", format!("{}: {grew}", haproxy.name()));
            }
        }
    }

    /// The soak has done what it says. Else a flat memory would mean nothing.
    fn judge_metrics(&self) {
        let metrics = [
            ("slowlane_table_evictions_total", ""),
            ("slowlane_policy_reloads_total", "done"),
            ("slowlane_policy_reloads_total", "refused"),
            ("slowlane_decision_log_dropped_total", "write"),
        ];
        // The last life of the killed agent may have just begun.
        for (name, label) in metrics.into_iter().filter(|_| self.kill_every.is_none()) {
            let number = self.slowlane.metric(name, label);
            self.records.add(&format!("{name} {label}"), number as u64);
            if number == 0.0 {
                self.records.fault("something of the soak did not happen", format!("{name} {label}"));
            }
        }
        let mut counts = vec![
            "refused crawlers",
            "delayed crawlers",
            "reloads of HAProxy",
            "peers that never read that came again",
        ];
        if self.kill_every.is_some() {
            counts.extend(["kills", "passed while the agent was dead"]);
        }
        for count in counts.into_iter().filter(|count| self.records.counted(count) == 0) {
            self.records.fault("something of the soak did not happen", count.to_owned());
        }
    }

    /// Once the disk has room, lines are written again.
    fn judge_disk(&self) {
        let path = self.slowlane.folder().join("decisions.json");
        std::fs::remove_file(&path).unwrap();
        eventually("the decision log has room again", || {
            let fields = [("X-Slowlane-Source", "10.31.0.66")];
            self.slowlane.check("?hold=off", &fields);
            std::fs::read_to_string(&path).is_ok_and(|text| text.ends_with("}\n")).then_some(())
        });
    }

    /// nginx has errors only of the agent that was killed.
    fn judge_nginx(&self) {
        let agent = format!("upstream: \"http://{}/", self.slowlane.http);
        for line in self.proxies.nginx.error_log() {
            if self.kill_every.is_some() && line.contains(&agent) {
                self.records.count("lines of nginx because the agent was dead");
            } else {
                self.records.fault("nginx has an error", line);
            }
        }
    }

    fn outcome(&self) -> String {
        let mut outcome = format!("the agent that is {}: {} lives\n", self.name, self.lives.len());
        let mut line = |text: String| outcome += &format!("    {text}\n");
        line("least / median / most of all lives, and medians of the quarters of the longest".into());
        for figure in [RESIDENT, DESCRIPTORS] {
            line(format!("slowlane     {}", figure.shown(&self.lives)));
            for haproxy in &self.proxies.haproxies {
                let samples = std::slice::from_ref(&haproxy.samples);
                line(format!("{:<12} {}", haproxy.name(), figure.shown(samples)));
            }
        }
        for (what, number) in self.records.counts() {
            line(format!("{number:>9} {what}"));
        }
        line(format!("{:>9} faults", self.records.faults().len()));
        outcome
    }
}

/// Every write to the decision log fails as on a full disk.
fn fill_disk(slowlane: &Slowlane) {
    let path = slowlane.folder().join("decisions.json");
    let _ = std::fs::remove_file(&path);
    std::os::unix::fs::symlink("/dev/full", path).unwrap();
}
