//! An application, its customers and its crawlers in virtual time, with or without the law in front of the application.

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::time::Duration;

use fastrand::Rng;

use crate::events::EventQueue;
use crate::protect::load::{SECONDS, WORKERS};
use slowlane_core::base::{Key, Timestamp};
use slowlane_core::law::protect::{Arrival, Arrived, Id, Means, Protect, ProtectSettings, ProtectView};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// An application in which workers share one queue, or an application in which all requests share a database.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum AppKind {
    #[default]
    Workers,
    /// With more requests at a time than workers, each request is slower, and each excess request lowers the throughput
    /// by about 0.5 %.
    Database,
}

/// The behaviour of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Asks {
    /// Open loop: the number of page views per second. Each view requests a page, then makes three small requests. A
    /// client gives up after 20 s.
    Views(f64),
    /// Closed loop: the next request follows the answer.
    Crawls,
    /// Closed loop: the next request follows the answer after 45 s on average.
    Rarely,
}

/// The network and the address from which a client sends requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Fixed(u64, u64),
    /// About 90 customers at a time, each for 18 s, in networks that have no crawlers.
    Shoppers,
    /// Customers in the networks of crawlers: the number of the first such network, and how many networks there are.
    Within(u64, u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) group: Group,
    pub(crate) asks: Asks,
    pub(crate) source: Source,
    /// The second at which the client starts to send requests.
    pub(crate) from: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    Customer,
    Office,
    Neighbour,
    Crawler,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Served,
    Refused,
    GaveUp,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) group: Group,
    pub(crate) page: usize,
    pub(crate) begin: f64,
    pub(crate) took_ms: f64,
    pub(crate) outcome: Fate,
}

/// The mean work of a small request, a page and a search. The work of each request varies uniformly by ±50 %.
const WORK_MS: [f64; 3] = [2.0, 60.0, 200.0];

/// How often a customer's first request, or any crawler's request, is of each kind in `WORK_MS`.
const OF_CUSTOMERS: [f64; 3] = [0.0, 0.85, 0.15];
const OF_CRAWLERS: [f64; 3] = [0.0, 0.7, 0.3];

/// How long a crawler pauses between an answer and its next request.
const PAUSE_MS: f64 = 2.0;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The client with this number starts a new job, which begins with its first request.
    Ask(usize),
    /// A job sends its next request.
    Next(usize),
    GiveUp(usize),
    /// A slice of a job's work in the application has been done.
    Worked(usize),
    Wake(usize),
    Change {
        workers: usize,
        factor: f64,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Job {
    client: usize,
    source: [u64; 2],
    page: usize,
    begin: u64,
    /// The time at which the request entered the application.
    entered: u64,
    left_ns: f64,
    work_ms: f64,
    small_left: u32,
    id: Option<Id>,
    is_over: bool,
}

/// An instance of slowlane in front of the application.
#[derive(Clone, Debug)]
pub(crate) struct Slowlane {
    protect: Protect,
    held: HashMap<Id, usize>,
    next_wake: u64,
}

impl Slowlane {
    fn new(settings: ProtectSettings) -> Slowlane {
        Slowlane { protect: Protect::new(settings), held: HashMap::new(), next_wake: u64::MAX }
    }
}

#[derive(Debug, Default)]
pub(crate) struct World {
    now: u64,
    rng: Rng,
    seed: u64,
    kind: AppKind,
    clients: Vec<Caller>,
    events: EventQueue<Event>,
    jobs: Vec<Job>,
    workers: usize,
    factor: f64,
    busy: usize,
    backlog: VecDeque<usize>,
    /// The instances of slowlane in front of the application. Each instance serves every nth job.
    pub(crate) slowlanes: Vec<Slowlane>,
    pub(crate) done: Vec<Done>,
    /// The work that ended in each second, in worker-milliseconds.
    pub(crate) work_ms: Vec<f64>,
    pub(crate) views: Vec<(f64, ProtectView)>,
    /// The fraction of request ends that is never reported to the law, and the second at which this loss begins.
    pub(crate) lost: (f64, f64),
    /// The second until which requests bypass the law.
    pub(crate) installed: f64,
}

impl World {
    /// `before` holds the settings of the law. None if there is no law in front of the application.
    pub(crate) fn new(kind: AppKind, before: Option<ProtectSettings>, seed: u64) -> World {
        World {
            rng: Rng::with_seed(seed),
            seed,
            kind,
            workers: WORKERS,
            factor: 1.0,
            slowlanes: before.map(Slowlane::new).into_iter().collect(),
            work_ms: vec![0.0; 300],
            ..World::default()
        }
    }

    pub(crate) fn client(&mut self, client: Caller) {
        let number = self.clients.len();
        self.clients.push(client);
        let wait = match client.asks {
            Asks::Views(rate) => self.exp(1.0 / rate),
            Asks::Crawls => self.rng.f64(),
            Asks::Rarely => self.exp(45.0),
        };
        self.at(client.from + wait, Event::Ask(number));
    }

    /// From this second on, the application has this many workers, and its work takes `factor` times as long.
    pub(crate) fn change(&mut self, second: f64, workers: usize, factor: f64) {
        self.at(second, Event::Change { workers, factor });
    }

    pub(crate) fn run(mut self, seconds: f64) -> World {
        let mut next_view = 0.0;
        let end = (seconds * SECOND as f64) as u64 + 1;
        while let Some((at, event)) = self.events.next_before(end) {
            self.now = at;
            if let Some(first) = self.slowlanes.first().filter(|_| self.second() >= next_view) {
                self.views.push((self.second(), first.protect.view()));
                next_view = self.second() + 0.5;
            }
            self.happen(event);
            self.plan_wake();
        }
        // A request without an answer counts as given up. The requests of crawlers do not count.
        for number in 0..self.jobs.len() {
            let job = self.jobs[number];
            if !job.is_over && self.clients[job.client].group != Group::Crawler {
                self.report(number, Fate::GaveUp);
            }
        }
        self
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ask(client) => self.ask(client),
            Event::Next(job) => self.send(job),
            Event::GiveUp(job) => self.give_up(job),
            Event::Worked(job) => self.worked(job),
            Event::Wake(slowlane) => {
                self.with_protect(slowlane, |protect, now, released| protect.wake(now, released));
            }
            Event::Change { workers, factor } => {
                (self.workers, self.factor) = (workers, factor);
                self.start();
            }
        }
    }

    /// Starts a job with its first request and, in an open loop, schedules the client's next job.
    fn ask(&mut self, number: usize) {
        let client = self.clients[number];
        if self.second() > SECONDS {
            return;
        }
        let slot = (self.second() * 5.0) as u64 + (self.rng.f64() * 90.0) as u64;
        let hash = mix(slot * 31 + self.seed * 7919);
        let source = match client.source {
            Source::Fixed(network, address) => [network, address],
            Source::Shoppers => [(64 + hash % 16) << 8 | hash >> 8 & 255, hash],
            Source::Within(first, networks) => [first + hash % networks, 200 + (hash >> 8) % 50],
        };
        let weights = match client.asks {
            Asks::Crawls => OF_CRAWLERS,
            Asks::Rarely => [0.0, 0.0, 1.0],
            _ => OF_CUSTOMERS,
        };
        let page = self.choose(weights);
        let small_left = if matches!(client.asks, Asks::Views(_)) { 3 } else { 0 };
        self.jobs.push(Job { client: number, source, page, small_left, ..Job::default() });
        if let Asks::Views(rate) = client.asks {
            let wait = self.exp(1.0 / rate);
            self.at(self.second() + wait, Event::Ask(number));
        }
        self.send(self.jobs.len() - 1);
    }

    fn send(&mut self, number: usize) {
        let mean_ms = WORK_MS[self.jobs[number].page];
        let work_ms = mean_ms * (0.5 + self.rng.f64());
        let now = self.now;
        let job = &mut self.jobs[number];
        *job = Job { begin: now, left_ns: work_ms * MS as f64, work_ms, id: None, is_over: false, ..*job };
        let (page, source) = (job.page, job.source);
        if matches!(self.clients[self.jobs[number].client].asks, Asks::Views(_)) {
            self.at(self.second() + 20.0, Event::GiveUp(number));
        }
        if self.slowlanes.is_empty() || self.second() < self.installed {
            return self.enter(number);
        }
        let path = source.map(|part| Key::from_bits(mix(part)));
        let arrival =
            Arrival { means: Means::Hold, page: Key::from_bits(mix(page as u64 + 99)), path: &path };
        let mut arrived = None;
        let slowlane = self.slowlane_of(number);
        self.with_protect(slowlane, |protect, now, released| {
            arrived = Some(protect.arrive(now, arrival, released))
        });
        match arrived {
            Some(Arrived::Released(id)) => {
                self.jobs[number].id = Some(id);
                self.enter(number);
            }
            Some(Arrived::Waits(id, _)) => {
                self.jobs[number].id = Some(id);
                self.slowlanes[slowlane].held.insert(id, number);
            }
            _ => self.over(number, Fate::Refused),
        }
    }

    /// Calls the law of an instance, admits the jobs that the law releases, and ends the jobs that it refuses.
    fn with_protect(&mut self, slowlane: usize, call: impl FnOnce(&mut Protect, Timestamp, &mut Vec<Id>)) {
        let Some(Slowlane { protect, held, .. }) = self.slowlanes.get_mut(slowlane) else { return };
        let (now, mut released) = (Timestamp::from_nanos(self.now), Vec::new());
        call(protect, now, &mut released);
        let mut waited =
            |id: Id| held.remove(&id).expect("only waiting jobs are released or refused, each only once");
        let refused: Vec<usize> = iter::from_fn(|| protect.overdue(now)).map(&mut waited).collect();
        let released: Vec<usize> = released.into_iter().map(waited).collect();
        refused.into_iter().for_each(|number| self.over(number, Fate::Refused));
        released.into_iter().for_each(|number| self.enter(number));
    }

    fn slowlane_of(&self, job: usize) -> usize {
        job % self.slowlanes.len().max(1)
    }

    fn plan_wake(&mut self) {
        for (number, slowlane) in self.slowlanes.iter_mut().enumerate() {
            let moment = slowlane.protect.next_moment();
            let moment = moment.map_or(u64::MAX, |moment| moment.as_nanos().max(self.now));
            if moment < slowlane.next_wake || slowlane.next_wake <= self.now {
                slowlane.next_wake = moment;
                if moment < u64::MAX {
                    self.events.enter(moment, Event::Wake(number));
                }
            }
        }
    }

    fn enter(&mut self, number: usize) {
        self.jobs[number].entered = self.now;
        self.backlog.push_back(number);
        self.start();
    }

    fn start(&mut self) {
        let most = if self.kind == AppKind::Database { 1_000 } else { self.workers };
        while self.busy < most
            && let Some(job) = self.backlog.pop_front()
        {
            self.busy += 1;
            self.work(job);
        }
    }

    /// Does all of a job's work or, if requests share a database, a slice of that work.
    fn work(&mut self, number: usize) {
        let (slice, slower) = match self.kind {
            AppKind::Workers => (f64::INFINITY, 1.0),
            AppKind::Database => {
                let (busy, able) = (self.busy as f64, self.workers as f64);
                (5.0 * MS as f64, if busy > able { busy / able * (1.0 + 0.005 * (busy - able)) } else { 1.0 })
            }
        };
        let job = &mut self.jobs[number];
        let slice = job.left_ns.min(slice);
        job.left_ns -= slice;
        let end = self.second() + slice * slower * self.factor / SECOND as f64;
        self.at(end, Event::Worked(number));
    }

    fn worked(&mut self, number: usize) {
        let job = self.jobs[number];
        if job.left_ns > 0.0 {
            return self.work(number);
        }
        self.busy -= 1;
        let second = self.second() as usize;
        self.work_ms[second] += job.work_ms * self.factor;
        self.start();
        if let Some(id) = job.id
            && !(self.second() >= self.lost.1 && self.rng.f64() < self.lost.0)
        {
            let took = Duration::from_nanos(self.now - job.entered);
            let slowlane = self.slowlane_of(number);
            self.with_protect(slowlane, |protect, now, released| {
                _ = protect.end(id, now, Some(took), released)
            });
        }
        if !job.is_over {
            self.over(number, Fate::Served);
        }
    }

    fn give_up(&mut self, number: usize) {
        let job = self.jobs[number];
        if job.is_over || self.now - job.begin < 20 * SECOND - MS {
            return;
        }
        let slowlane = self.slowlane_of(number);
        let held = |id: &Id| self.slowlanes.get_mut(slowlane).is_some_and(|of| of.held.remove(id).is_some());
        if let Some(id) = job.id.filter(held) {
            self.with_protect(slowlane, |protect, now, released| assert!(protect.abandon(id, now, released)));
        }
        self.over(number, Fate::GaveUp);
    }

    fn report(&mut self, number: usize, outcome: Fate) {
        let job = self.jobs[number];
        let begin = job.begin as f64 / SECOND as f64;
        let took_ms = (self.now - job.begin) as f64 / MS as f64;
        let group = self.clients[job.client].group;
        self.done.push(Done { group, page: job.page, begin, took_ms, outcome });
    }

    /// Ends a request, and schedules what its client does next.
    fn over(&mut self, number: usize, outcome: Fate) {
        self.report(number, outcome);
        self.jobs[number].is_over = true;
        let (job, is_served) = (self.jobs[number], outcome == Fate::Served);
        match self.clients[job.client].asks {
            Asks::Views(_) if is_served && job.small_left > 0 => {
                self.jobs[number].small_left -= 1;
                self.jobs[number].page = 0;
                self.at(self.second(), Event::Next(number));
            }
            Asks::Crawls => {
                let refused_ms = 250.0 * (0.8 + 0.4 * self.rng.f64());
                let wait_ms = if is_served { PAUSE_MS } else { refused_ms };
                self.at(self.second() + wait_ms / 1e3, Event::Ask(job.client));
            }
            Asks::Rarely => {
                let wait = self.exp(45.0);
                self.at(self.second() + wait, Event::Ask(job.client));
            }
            _ => {}
        }
    }

    fn at(&mut self, second: f64, event: Event) {
        self.events.enter((second * SECOND as f64) as u64, event);
    }

    fn second(&self) -> f64 {
        self.now as f64 / SECOND as f64
    }

    fn exp(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.rng.f64()).ln()
    }

    fn choose(&mut self, weights: [f64; 3]) -> usize {
        let mut draw = self.rng.f64() * weights.iter().sum::<f64>();
        for (page, weight) in weights.into_iter().enumerate() {
            draw -= weight;
            if draw < 0.0 {
                return page;
            }
        }
        2
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) fn mix(bits: u64) -> u64 {
    let mut z = bits.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
