//! Clients of the proxies: customers within their SLO, crawlers beyond it, and those that leave.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::policy::{OBJECTIVES, Objective};
use crate::records::Spans;
use crate::support::client::{Client, Response};
use crate::{End, Shared, Work, pause};

/// At most 3 requests/s, under SLOs of 10/s.
pub const CUSTOMER_PAUSE: Duration = Duration::from_millis(333);

/// Three connections at up to 20 requests/s each, unless they are delayed.
const CRAWLERS: usize = 3;
const CRAWLER_PAUSE: Duration = Duration::from_millis(50);

const LEAVER_PAUSE: Duration = Duration::from_millis(500);

/// A proxy, as its clients see it.
#[derive(Clone)]
pub struct Door {
    pub name: &'static str,
    pub number: usize,
    pub address: SocketAddr,
    /// While an old process of HAProxy 2.6 ends, it may drop a question to the agent, and says so. Later versions and
    /// nginx do not.
    pub drops_questions: Option<Arc<Spans>>,
}

/// The clients of one proxy.
pub fn of(door: &Door, records: &Shared) -> Vec<Work> {
    let mut crowd: Vec<Work> = Vec::new();
    for objective in &OBJECTIVES {
        for number in 0..=CRAWLERS {
            let (door, records) = (door.clone(), records.clone());
            // The connections of a crawler have the same address.
            let is_customer = number == 0;
            let source = objective.source(door.number, if is_customer { 1 } else { 66 });
            let client = Asker { door, records, objective, source, is_customer };
            crowd.push(Box::new(move |end| client.ask(end)));
        }
    }
    let (door, records) = (door.clone(), records.clone());
    crowd.push(Box::new(move |end| leave(&door, &records, end)));
    crowd
}

struct Asker {
    door: Door,
    records: Shared,
    objective: &'static Objective,
    source: String,
    is_customer: bool,
}

impl Asker {
    /// Asks in a loop, with a new connection only after the proxy has closed the old one.
    fn ask(&self, end: &End) {
        let mut connection = None;
        for number in 0_u64.. {
            if end.has_come() {
                return;
            }
            let asked_at = Instant::now();
            let response = self.asked(&mut connection, number);
            let is_over = |response: &Response| response.header("connection") == Some("close");
            if response.as_ref().map_or(true, is_over) {
                connection = None;
            }
            self.judge(response, asked_at);
            pause(if self.is_customer { CUSTOMER_PAUSE } else { CRAWLER_PAUSE }, end);
        }
    }

    fn asked(&self, connection: &mut Option<Client>, number: u64) -> io::Result<Response> {
        let client = match connection {
            Some(client) => client,
            None => connection.insert(Client::try_connect(self.door.address)?),
        };
        let host = self.objective.website.unwrap_or("any.example");
        // HAProxy delays an upload at the response.
        let (method, body) = if number.is_multiple_of(4) { ("POST", "some text") } else { ("GET", "") };
        client.try_request(method, "/", &[("Host", host), ("X-From", &self.source)], body)
    }

    fn judge(&self, response: io::Result<Response>, asked_at: Instant) {
        let is_gap = self.records.gaps.meet(asked_at, Instant::now());
        let whose = if self.is_customer { "customers" } else { "crawlers" };
        let response = match response {
            Ok(response) => response,
            Err(error) => return self.fault("a request without an answer", error.to_string()),
        };
        self.records.count(&format!("requests of {whose} through {}", self.door.name));
        let verdict = response.header("x-verdict").filter(|verdict| !verdict.is_empty());
        match (response.status, verdict) {
            (429, None | Some("deny")) if self.is_customer => {
                self.fault("a customer is refused", format!("{response:?}"));
            }
            (429, None | Some("deny")) => self.records.count("refused crawlers"),
            (200, Some("pass")) => {}
            (200, Some("delay")) => self.delayed(&response),
            (200, None) if is_gap => self.records.count("passed while the agent was dead"),
            (200, None) if self.is_dropped(&response, asked_at) => {
                self.records.count("passed because an ending HAProxy 2.6 dropped the question");
            }
            (200, None) => self.fault("an agent that lives was not asked", format!("{response:?}")),
            _ => self.fault("another answer than 200 and 429", format!("{response:?}")),
        }
    }

    fn delayed(&self, response: &Response) {
        match (self.is_customer, self.objective.may_delay) {
            (false, _) => self.records.count("delayed crawlers"),
            (true, Some(reason)) => self.records.count(&format!("delayed customers: {reason}")),
            (true, None) => self.fault("a customer is delayed", format!("{response:?}")),
        }
    }

    /// HAProxy's errors of SPOE from 256 on are those of the protocol: here, a connection that it has closed itself.
    fn is_dropped(&self, response: &Response, asked_at: Instant) -> bool {
        let error = response.header("x-error").and_then(|error| error.parse::<u32>().ok());
        let is_ending = |spans: &Arc<Spans>| spans.meet(asked_at, Instant::now());
        error.is_some_and(|error| error >= 256) && self.door.drops_questions.as_ref().is_some_and(is_ending)
    }

    fn fault(&self, kind: &str, example: String) {
        let Asker { door, objective, source, .. } = self;
        self.records.fault(kind, format!("{} {source} SLO {}: {example}", door.name, objective.id));
    }
}

/// Asks as a crawler, and goes before the answer.
fn leave(door: &Door, records: &Shared, end: &End) {
    while !end.has_come() {
        let source = OBJECTIVES[0].source(door.number, 66);
        let left = Client::try_connect(door.address)
            .and_then(|mut client| client.send("GET", "/left", &[("X-From", &source)], ""));
        match left {
            Ok(()) => records.count("clients that left"),
            Err(error) => records.fault("a proxy does not listen", format!("{}: {error}", door.name)),
        }
        pause(LEAVER_PAUSE, end);
    }
}
