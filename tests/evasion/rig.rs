//! A front between its clients and its application, and what both logs tell of each batch of requests.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::app::App;
use crate::client::{self, Bystander, source};
use crate::fronts::{Front, Kind};
use crate::logs::{Counted, Served, Tail};
use crate::oracle::Oracle;
use crate::policies::{BYSTANDER, BYSTANDER_BURST, Counter, Policy};
use crate::shot::Shot;
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address};
use crate::{grammar, http2};

/// Connections between two looks at the logs.
const BATCH: usize = 2_000;
/// Logs that say no more for so long have said all.
const QUIET: Duration = Duration::from_millis(200);
/// What the bystander asks in each batch.
const ASKED: usize = 16;
/// The faults that are shrunk and shown.
const SHOWN: usize = 5;

/// What became of all requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub sent: usize,
    pub counted: usize,
    pub served: usize,
    pub divergences: usize,
}

/// A front, its slowlane and its application.
pub struct Rig {
    kind: Kind,
    policy: Policy,
    oracle: Oracle,
    front: Front,
    _slowlane: Slowlane,
    _app: App,
    random: Rng,
    decisions: Tail,
    requests: Tail,
    served: HashMap<String, Vec<Served>>,
    counted: HashMap<String, Vec<Counted>>,
    bystander: Bystander,
    asked: u64,
    number: u64,
    pub sums: Sums,
}

impl Rig {
    /// None if the front is not installed.
    pub fn start(kind: Kind, policy: Policy, seed: u64) -> Option<Rig> {
        let (app, peers) = (App::start(), own_address());
        let files = policy.files();
        let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
        let slowlane = Slowlane::with_config(&files, &policy.config(kind.counter(), peers));
        let front = Front::start(kind, &slowlane, peers, &app)?;
        let mut rig = Rig {
            kind,
            policy,
            oracle: Oracle::new(kind, policy, app.address.ip()),
            random: Rng::with_seed(seed),
            decisions: Tail::of(slowlane.folder().join("decisions.json")),
            requests: Tail::of(app.log()),
            front,
            _slowlane: slowlane,
            _app: app,
            served: HashMap::new(),
            counted: HashMap::new(),
            bystander: Bystander::default(),
            asked: 0,
            number: 0,
            sums: Sums::default(),
        };
        rig.wait_for_the_agent();
        Some(rig)
    }

    /// HAProxy asks only when its check has found the agent.
    fn wait_for_the_agent(&mut self) {
        let plain = Shot::of(
            "GET / HTTP/1.1\r\nHost: shop.example\r\nX-Api-Key: bob\r\nUser-Agent: bob\r\nConnection: close\r\n\r\n",
        );
        eventually("the proxy counts", || {
            let before = self.sums.counted;
            self.play(std::slice::from_ref(&plain));
            (self.sums.counted > before).then_some(())
        });
    }

    /// Sends so many requests from the grammar, at least. Returns the shrunk shot and the reason of some divergences.
    pub fn run(&mut self, requests: usize) -> Vec<String> {
        let (mut found, until) = (Vec::new(), self.sums.sent + requests);
        let mut before: Option<(u64, Vec<Shot>)> = None;
        while self.sums.sent < until && found.len() < SHOWN {
            let batch = self.batch(until - self.sums.sent);
            let first = self.send(&batch, ASKED, &mut found);
            // Its last requests have had the time of a batch to reach the logs.
            self.read();
            if let Some((first, shots)) = before.replace((first, batch)) {
                self.judge_and_shrink(first, &shots, &mut found);
            }
        }
        if let Some((first, shots)) = before {
            self.read_all();
            self.judge_and_shrink(first, &shots, &mut found);
        }
        found.extend(self.bystander_fault());
        found
    }

    fn batch(&mut self, requests: usize) -> Vec<Shot> {
        let (mut batch, mut rest) = (Vec::new(), requests);
        while rest > 0 && batch.len() < BATCH {
            let number = self.number + batch.len() as u64;
            let has_fields = self.random.u32(..100) < self.kind.fields_percent();
            let write = if has_fields { http2::shot } else { grammar::shot };
            let shot = write(&mut self.random, number, self.policy.headers);
            rest = rest.saturating_sub(shot.requests);
            batch.push(shot);
        }
        batch
    }

    /// Plays shots, each from an address of its own, while the bystander asks. Returns the number of the first address.
    fn send(&mut self, shots: &[Shot], asked: usize, found: &mut Vec<String>) -> u64 {
        let (first, front) = (self.number, &self.front);
        self.number += shots.len() as u64;
        self.sums.sent += shots.iter().map(|shot| shot.requests).sum::<usize>();
        let bystander = &mut self.bystander;
        let answers = thread::scope(|scope| {
            let answers = scope.spawn(move || bystander.ask(front.address, asked));
            client::play(front, first, shots);
            answers.join().unwrap()
        });
        self.asked += answers.len() as u64;
        let others = answers.iter().find(|status| *status != "200");
        found.extend(
            others.map(|status| format!("{} {}: the bystander got {status}", self.kind, self.policy.name)),
        );
        first
    }

    fn judge_and_shrink(&mut self, first: u64, shots: &[Shot], found: &mut Vec<String>) {
        if !self.judge(first, shots, false).is_empty() {
            self.read_all();
        }
        let faults = self.judge(first, shots, true);
        self.sums.divergences += faults.len();
        let mut is_alone = false;
        for (place, fault) in faults.iter().take(3) {
            if let Some((small, fault)) = self.shrunk(&shots[*place]) {
                is_alone = true;
                found.push(format!("{fault}\n    {}", small.shown()));
            } else if !is_alone {
                found.push(format!("among others: {fault}\n    {}", shots[*place].shown()));
            }
        }
    }

    /// The smallest shot that still fails alone; none if this one does not.
    fn shrunk(&mut self, shot: &Shot) -> Option<(Shot, String)> {
        let mut best = (shot.clone(), self.play(std::slice::from_ref(shot)).pop()?.1);
        let mut place = 0;
        while place < best.0.pieces.len() {
            let mut smaller = best.0.clone();
            smaller.pieces.remove(place);
            match self.play(std::slice::from_ref(&smaller)).pop() {
                Some((_, fault)) => best = (smaller, fault),
                None => place += 1,
            }
        }
        Some(best)
    }

    /// Plays shots, and returns those that were not counted as they were served.
    pub fn play(&mut self, shots: &[Shot]) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let first = self.send(shots, 0, &mut found);
        self.read_all();
        self.judge(first, shots, true)
    }

    /// The faults of these shots. With `ends`, nothing more is expected of them.
    fn judge(&mut self, first: u64, shots: &[Shot], ends: bool) -> Vec<(usize, String)> {
        let mut faults = Vec::new();
        let rows = (ends && self.kind.counter() == Counter::Counts).then(|| self.front.tables().admitted());
        for (place, shot) in shots.iter().enumerate() {
            let source = source(first + place as u64).to_string();
            let served = self.served.get(&source).map_or(&[][..], Vec::as_slice);
            let counted = self.counted.get(&source).map_or(&[][..], Vec::as_slice);
            let fault = self.oracle.fault(shot, served, counted);
            // Each source has a row of its own in the table, with all its requests.
            let row = rows.as_ref().filter(|_| self.policy.fields.is_empty());
            let in_table = row.map(|rows| rows.get(&source).copied().unwrap_or(0) as usize);
            let fault = fault.or_else(|| {
                let in_table = in_table.filter(|in_table| *in_table < counted.len())?;
                Some(format!("{} of {} requests of {source} are in the table", in_table, counted.len()))
            });
            faults.extend(fault.map(|fault| (place, fault)));
            if ends {
                self.sums.served += served.len();
                self.sums.counted += counted.len();
                self.served.remove(&source);
                self.counted.remove(&source);
            }
        }
        faults
    }

    /// Whether the bystander was always counted, once, and charged for nobody else.
    fn bystander_fault(&mut self) -> Option<String> {
        let (served, counted) = (self.served.remove(BYSTANDER), self.counted.remove(BYSTANDER));
        let (served, counted) = (served.unwrap_or_default(), counted.unwrap_or_default());
        let outcome =
            |what: String| Some(format!("{} {}: the bystander {what}", self.kind, self.policy.name));
        let (times, asked) = (counted.len() as u64, self.asked);
        if times != asked || served.len() as u64 != asked {
            return outcome(format!(
                "asked {asked} times, was counted {times} and served {} times",
                served.len()
            ));
        }
        if let Some(counted) = counted.iter().find(|counted| counted.verdict != "pass") {
            return outcome(format!("was judged {counted:?}"));
        }
        let left = counted.iter().filter_map(|counted| counted.remaining).min()?;
        let is_charged = self.kind.counter() == Counter::Asks && left != BYSTANDER_BURST - asked;
        if is_charged { outcome(format!("has {left} requests left after {asked}")) } else { None }
    }

    /// Reads both logs to their end: until both are quiet.
    fn read_all(&mut self) {
        let mut quiet = Instant::now();
        while quiet.elapsed() < QUIET {
            if self.read() > 0 {
                quiet = Instant::now();
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reads what the logs have now. Returns the number of its lines.
    fn read(&mut self) -> usize {
        let mut lines = 0;
        for line in self.requests.lines() {
            let served = Served::read(&line);
            lines += 1;
            if served.status == "200" {
                let source = served.source().to_owned();
                let counted = Counted::by_haproxy(&served, self.policy.fields);
                self.counted.entry(source.clone()).or_default().extend(counted);
                self.served.entry(source).or_default().push(served);
            }
        }
        for line in self.decisions.lines() {
            let counted = Counted::read(&line);
            lines += 1;
            self.counted.entry(counted.field("source")).or_default().push(counted);
        }
        lines
    }
}
