//! A run: one event after another, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use fastrand::Rng;

use crate::events::EventQueue;
use crate::simulate::nodes::{Decided, Nodes};
use crate::simulate::scenario::{SLO, Scenario, ScenarioError};
use crate::simulate::{Held, Load, Record, Sender, Sent, Sharing, SimulationOutcome, Step, Who};
use slowlane_core::base::{Amount, Ending, SloId, Ticket, Unit, Verdict};

/// The maximum number of requests in one run: they take a few minutes of computing.
const REQUESTS_MAX: u64 = 100_000_000;

/// The maximum number of events in the queue, which then takes half a gigabyte. Only requests that a law no longer
/// counts as in flight can reach this number.
const UNDER_WAY_MAX: usize = 4_000_000;

const SECOND_NS: u64 = 1_000_000_000;

impl Scenario {
    /// Runs the scenario to its end. `progress` gets the virtual time about once per virtual second.
    ///
    /// # Errors
    /// The scenario is invalid or has too many requests.
    pub fn run(&self, progress: impl FnMut(Duration)) -> Result<SimulationOutcome, ScenarioError> {
        Ok(SimulationOutcome::new(self, self.record(None, REQUESTS_MAX, progress)?))
    }

    /// Runs the scenario on nodes other than slowlane's.
    ///
    /// # Errors
    /// The same as those of [`run`](Scenario::run).
    pub fn run_on(&self, nodes: Box<dyn Sharing>) -> Result<SimulationOutcome, ScenarioError> {
        Ok(SimulationOutcome::new(self, self.record(Some(nodes), REQUESTS_MAX, |_| ())?))
    }

    pub(super) fn record(
        &self,
        nodes: Option<Box<dyn Sharing>>,
        requests_max: u64,
        mut progress: impl FnMut(Duration),
    ) -> Result<Record, ScenarioError> {
        let policy = self.policy()?;
        let slo = SloId::new(SLO).and_then(|id| policy.slo(id)).expect("the policy has this SLO");
        let record = Record::new(self, slo);
        let nodes = match nodes {
            Some(nodes) => nodes,
            None => Box::new(Nodes::new(self)?),
        };
        let mut run = Simulation::begin(self, nodes, record);
        let mut next_second_ns = SECOND_NS;
        while let Some((now_ns, event)) = run.queue.next_before(run.end_ns) {
            if now_ns >= next_second_ns {
                progress(Duration::from_nanos(now_ns));
                next_second_ns = (now_ns / SECOND_NS + 1) * SECOND_NS;
            }
            run.happen(now_ns, event);
            if run.requests > requests_max || run.queue.len() > UNDER_WAY_MAX {
                return Err(ScenarioError::TooManyRequests { law: self.law.clone(), requests_max });
            }
        }
        run.record.fallbacks = run.nodes.fallbacks();
        Ok(run.record)
    }
}

/// An event of a run. Nodes are identified by their numbers.
#[derive(Clone, Debug)]
enum Event {
    /// The number of clients changes.
    Phase(usize),
    /// The connection with this number sends a request.
    Ask(u32),
    /// The attacker sends a request.
    Attack,
    /// An admitted request reaches the application.
    Enter(Box<Entering>),
    /// An admitted request ends.
    End(Box<(Ticket, Ending)>),
    /// A period of a node begins.
    Period(u32),
    /// A node whose state has changed checks whether a message is due.
    Look(u32),
    /// The turn of a held request comes. The request is identified by its node and its own number.
    Turn(u32, u64),
    /// The client of a held request disconnects. If the request's turn has already come, nothing happens.
    Leave(u32, u64),
    /// The node's message reaches the store.
    AtStore(u32),
    /// The answer to a node's message reaches the node, or the node gives up waiting for the answer.
    Reply(u32),
    /// The store forgets everything.
    Flush,
}

/// An admitted request.
#[derive(Clone, Debug)]
struct Entering {
    who: Who,
    connection: u32,
    asked_ns: u64,
    ticket: Option<Ticket>,
}

struct Simulation<'s> {
    load: &'s Load,
    nodes: Box<dyn Sharing>,
    queue: EventQueue<Event>,
    rng: Rng,
    /// The times at which the workers become free.
    free_ns: BinaryHeap<Reverse<u64>>,
    record: Record,
    /// The current number of clients, and whether each of the run's clients is idle, with no event in the queue.
    clients: u32,
    is_idle: Vec<bool>,
    think_ns: u64,
    service_ns: u64,
    patience_ms: u64,
    /// The mean pause between two requests of the attacker.
    gap_ns: u64,
    /// The time until which each node checks for due messages.
    looks_until_ns: Vec<u64>,
    requests: u64,
    end_ns: u64,
}

impl<'s> Simulation<'s> {
    fn begin(scenario: &'s Scenario, nodes: Box<dyn Sharing>, record: Record) -> Simulation<'s> {
        let load = &scenario.load;
        let patience_ms = load.patience.map_or(u64::MAX, |patience| patience.as_millis() as u64);
        let mut run = Simulation {
            load,
            nodes,
            queue: EventQueue::default(),
            rng: Rng::with_seed(scenario.seed),
            free_ns: (0..load.workers.unwrap_or(0)).map(|_| Reverse(0)).collect(),
            clients: 0,
            is_idle: vec![true; load.clients.max() as usize],
            think_ns: nanos(load.think),
            service_ns: nanos(load.service(record.aims_at_rate)),
            record,
            patience_ms,
            gap_ns: load.attack.map_or(0, |rate| nanos(rate.slot())),
            looks_until_ns: vec![0; scenario.cluster.nodes as usize],
            requests: 0,
            end_ns: u64::from(scenario.seconds) * SECOND_NS,
        };
        for phase in 0..load.clients.counts().len() {
            run.queue.enter(run.record.phase_starts_ns(phase), Event::Phase(phase));
        }
        for connection in load.clients.max()..load.connections() {
            let at_ns = run.rng.u64(0..=run.think_ns);
            run.queue.enter(at_ns, Event::Ask(connection));
        }
        if load.has(Who::Attacker) {
            run.queue.enter(load.attack_during.map_or(0, |during| nanos(during.from)), Event::Attack);
        }
        run.begin_periods();
        run
    }

    /// Whether there is only one node, which has no store to talk to.
    fn is_alone(&self) -> bool {
        self.nodes.cluster().nodes == 1
    }

    /// Starts the periods of several nodes at random times, and schedules the store's loss of its data.
    fn begin_periods(&mut self) {
        let cluster = *self.nodes.cluster();
        if self.is_alone() {
            return;
        }
        for node in 0..cluster.nodes {
            let at_ns = self.rng.u64(0..=nanos(cluster.period));
            self.queue.enter(at_ns, Event::Period(node));
        }
        if let Some(flushed) = cluster.flushed {
            self.queue.enter(nanos(flushed), Event::Flush);
        }
    }

    fn happen(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Phase(phase) => self.change_clients(now_ns, self.load.clients.counts()[phase]),
            Event::Ask(connection) => self.ask_and_wait(now_ns, connection),
            Event::Attack => {
                self.ask(now_ns, Who::Attacker, 0);
                let gap_ns = self.gap_of_attacker_ns();
                let next_ns = now_ns.saturating_add(gap_ns);
                if self.load.attack_during.is_none_or(|during| next_ns < nanos(during.to)) {
                    self.queue.enter(next_ns, Event::Attack);
                }
            }
            Event::Enter(entering) => self.enter_and_answer(now_ns, &entering),
            Event::End(ended) => self.nodes.end(&ended.0, &ended.1, now_ns),
            _ => self.talk(now_ns, event),
        }
        // Under `protect`, any event may make room for held requests.
        if self.is_alone() {
            self.changed(0, now_ns);
        }
    }

    /// Counts a refusal, and returns the time at which the sender will have waited for Retry-After.
    fn refuse(&mut self, now_ns: u64, who: Who, retry_after_s: u32) -> u64 {
        self.record.seen(now_ns, |seen| seen.tallies[who as usize].denied += 1);
        let waits_s = if self.load.ignores_retry_after { 0 } else { retry_after_s };
        now_ns + u64::from(waits_s) * SECOND_NS
    }

    /// Counts a client that disconnects at this time. Returns this time.
    fn leave(&mut self, left_ns: u64, who: Who) -> u64 {
        self.record.seen(left_ns, |seen| seen.tallies[who as usize].left += 1);
        left_ns
    }

    /// Lets a request reach the application and begin once a worker is free. Returns the time of the request's end.
    fn enter(&mut self, now_ns: u64, entering: &Entering) -> u64 {
        let &Entering { who, connection, asked_ns, ref ticket } = entering;
        let cost = self.load.cost.map(|costs| costs.sample(&mut self.rng));
        let units = cost.map_or(1.0, |cost| cost.micros() as f64 / Amount::UNIT as f64);
        let free_ns = self.free_ns.pop();
        let begun_ns = free_ns.map_or(now_ns, |Reverse(free_ns)| free_ns.max(now_ns));
        let delay_ms = (begun_ns - asked_ns).div_ceil(1_000_000);
        self.record.let_through(begun_ns, who, self.load.source(who, connection), delay_ms, units);
        let ended_ns = begun_ns.saturating_add(self.takes_ns(cost));
        self.free_ns.extend(free_ns.map(|_| Reverse(ended_ns)));
        if let Some(ticket) = ticket.clone().filter(|_| ended_ns < self.end_ns) {
            let ending = Ending { cost, ..Ending::default() };
            self.queue.enter(ended_ns, Event::End(Box::new((ticket, ending))));
        }
        ended_ns
    }

    /// Lets an admitted request enter the application, and schedules the answer to its sender.
    fn enter_and_answer(&mut self, now_ns: u64, entering: &Entering) {
        let ended_ns = self.enter(now_ns, entering);
        self.answered(entering.who, entering.connection, ended_ns);
    }

    /// Handles the messages between nodes and their store, and the turns of held requests.
    fn talk(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Period(node) => {
                // A random deviation keeps nodes out of step with each other.
                let period_ns = nanos(self.nodes.period());
                let next_ns = now_ns + period_ns - period_ns / 20 + self.rng.u64(0..=period_ns / 10);
                self.queue.enter(next_ns, event);
                self.send(node, true, now_ns);
            }
            Event::Look(node) => {
                if now_ns < self.looks_until_ns[node as usize] {
                    self.queue.enter(now_ns + LOOK_NS, event);
                }
                self.send(node, false, now_ns);
            }
            Event::AtStore(node) => {
                let (updates, back_ns) = self.nodes.reach_store(node, now_ns);
                self.record.seen(now_ns, |seen| seen.messages += updates as u64);
                self.queue.enter(back_ns, Event::Reply(node));
            }
            Event::Reply(node) => {
                self.nodes.take_reply(node, now_ns);
                self.changed(node, now_ns);
            }
            Event::Turn(node, number) => {
                if let Some(held) = self.nodes.release(node, number, now_ns) {
                    let Held { who, connection, asked_ns, .. } = held;
                    let entering = Entering { who, connection, asked_ns, ticket: held.decision.ticket() };
                    self.enter_and_answer(now_ns, &entering);
                    self.changed(node, now_ns);
                }
            }
            Event::Leave(node, number) => {
                if let Some(held) = self.nodes.leave(node, number, now_ns) {
                    let left_ns = self.leave(now_ns, held.who);
                    self.answered(held.who, held.connection, left_ns);
                    self.changed(node, now_ns);
                }
            }
            _ => self.nodes.flush(),
        }
    }

    /// Sends a node's message if one is due.
    fn send(&mut self, node: u32, is_round: bool, now_ns: u64) {
        match self.nodes.send(node, is_round, now_ns) {
            Sent::Arrives(there_ns) => self.queue.enter(there_ns, Event::AtStore(node)),
            Sent::Lost(noticed_ns) => self.queue.enter(noticed_ns, Event::Reply(node)),
            Sent::Nothing => {}
        }
    }

    /// Reacts to a change in the state of a node: turns may have moved, and a message may soon be due.
    fn changed(&mut self, node: u32, now_ns: u64) {
        for step in self.nodes.moved(node, now_ns) {
            match step {
                Step::At { number, due_ns } => {
                    self.queue.enter(due_ns.max(now_ns), Event::Turn(node, number));
                }
                Step::Refused(held) => {
                    let done_ns = self.refuse(now_ns, held.who, 1);
                    self.answered(held.who, held.connection, done_ns);
                }
            }
        }
        if self.is_alone() {
            return;
        }
        let until_ns = &mut self.looks_until_ns[node as usize];
        let is_looking = *until_ns > now_ns;
        *until_ns = now_ns + LOOKS_NS;
        if !is_looking {
            self.queue.enter(now_ns + LOOK_NS, Event::Look(node));
        }
    }

    /// Schedules the next request of a connection, one pause after its last answer. The attacker waits for no answers.
    fn answered(&mut self, who: Who, connection: u32, answered_ns: u64) {
        if who != Who::Attacker {
            let think_ns = if who == Who::Crowd { CROWD_THINK_NS } else { self.think_ns };
            let think_ns = think_ns / 2 + self.rng.u64(0..=think_ns);
            self.queue.enter(answered_ns.saturating_add(think_ns), Event::Ask(connection));
        }
    }

    /// Random gaps with the right mean, so that the attacker is never in step with anything else. With several nodes,
    /// the gaps are exponential, so that each node gets an independent load.
    fn gap_of_attacker_ns(&mut self) -> u64 {
        match self.is_alone() {
            true => self.rng.u64(0..=self.gap_ns.saturating_mul(2)),
            false => (-(1.0 - self.rng.f64()).ln() * self.gap_ns as f64) as u64,
        }
    }

    /// Changes the number of clients. New clients start within one pause. Departing clients get their last answer.
    fn change_clients(&mut self, now_ns: u64, clients: u32) {
        self.clients = clients;
        for client in 0..clients {
            if std::mem::take(&mut self.is_idle[client as usize]) {
                let at_ns = now_ns + self.rng.u64(0..=self.think_ns);
                self.queue.enter(at_ns, Event::Ask(client));
            }
        }
    }

    fn ask_and_wait(&mut self, now_ns: u64, connection: u32) {
        let who = self.load.group(connection);
        if who == Who::Client && connection >= self.clients {
            self.is_idle[connection as usize] = true;
            return;
        }
        if let Some(answered_ns) = self.ask(now_ns, who, connection) {
            self.answered(who, connection, answered_ns);
        }
    }

    /// Sends one request, and returns the time at which its sender is done with the request, Retry-After included. None
    /// if this time is not known yet, because the request is held or waits for a worker.
    fn ask(&mut self, now_ns: u64, who: Who, connection: u32) -> Option<u64> {
        self.requests += 1;
        let node = self.nodes.cluster().node(who, connection, &mut self.rng);
        let source = self.load.place(self.load.source(who, connection));
        let sender = Sender { who, connection, source };
        let Decided { verdict, ticket, turn } = self.nodes.decide(node, sender, self.rng.u64(..), now_ns);
        self.record.asked(now_ns, node, verdict.is_let_through());
        self.changed(node, now_ns);
        if turn != 0 {
            if self.patience_ms < u64::MAX && who != Who::Attacker {
                self.queue.enter(now_ns + self.patience_ms * 1_000_000, Event::Leave(node, turn));
            }
            return None;
        }
        Some(match verdict {
            Verdict::Deny { retry_after_s } => self.refuse(now_ns, who, retry_after_s),
            // A proxy delays by whole milliseconds.
            verdict if verdict.delay_ms() > self.patience_ms && who != Who::Attacker => {
                self.leave(now_ns + self.patience_ms * 1_000_000, who)
            }
            verdict => {
                let begun_ns = now_ns.saturating_add(verdict.delay_ms().saturating_mul(1_000_000));
                let entering = Entering { who, connection, asked_ns: now_ns, ticket };
                if self.load.workers.is_some() {
                    self.queue.enter(begun_ns, Event::Enter(Box::new(entering)));
                    return None;
                }
                self.enter(begun_ns, &entering)
            }
        })
    }

    /// The time that the application takes for a request. A cost in seconds is this time, unless the load gives a
    /// service time.
    fn takes_ns(&self, cost: Option<Amount>) -> u64 {
        let is_time = self.load.service.is_none() && self.record.unit == Some(Unit::Seconds);
        cost.filter(|_| is_time).map_or(self.service_ns, |cost| cost.micros().saturating_mul(1_000))
    }
}

/// The mean pause of a crowd, which sends its next request almost at once.
const CROWD_THINK_NS: u64 = 1_000_000;

/// The time between two checks of a node for due messages.
const LOOK_NS: u64 = 5_000_000;

/// The time for which a node checks for messages after a change. A message that is due later waits for the next period.
const LOOKS_NS: u64 = 100_000_000;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Cluster;

    #[test]
    fn a_run_of_too_many_requests_ends_with_a_remedy() {
        let attack = Some("1000/s".parse().unwrap());
        let load = Load { clients: "0".parse().unwrap(), attack, ..Load::default() };
        let scenario = Scenario {
            law: "pace".into(),
            options: vec![],
            rate: "50/s".into(),
            burst: "1".into(),
            load,
            cluster: Cluster::new(1),
            seconds: 86_400,
            measured: vec![],
            seed: 1,
        };
        let mut seconds = 0;
        let error = scenario.record(None, 10_000, |_| seconds += 1).unwrap_err();
        assert!(error.to_string().starts_with("pace: more than 10000 requests"), "{error}");
        assert!((8..12).contains(&seconds), "progress comes once in a virtual second: {seconds}");
    }
}
