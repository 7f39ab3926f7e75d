//! The conversation with a real agent, over sockets.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it connects to an agent, and waits for it"
)]

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::card::{Card, Outcome};
use crate::endpoint::{Endpoint, RETRY_PAUSE, Socket};
use crate::spoa::exchange::{Exchange, Judge, Judged, Turn};
use crate::spoa::judges::acks::acks;
use crate::spoa::setting::{Agreed, Needs, Setting};
use crate::spoa::suite::{exchanges, greeted, opening};
use crate::spoa::transcript::{End, Transcript, Until, longest_notify};
use spop::AgentHello;

/// The pause between small writes, so that the agent reads them one by one.
const PIECE_PAUSE: Duration = Duration::from_millis(3);

/// The maximum number of bytes that the connections of an exchange may receive together.
const RECEIVED_BYTES_MAX: usize = 32 << 20;

/// Plays every exchange. Before each exchange, reports how many are done, and how many there are.
///
/// Once the agent cannot be reached, the remaining cases fail without an attempt.
pub(crate) async fn examine(
    agent: &Endpoint,
    mut setting: Setting,
    mut report: impl FnMut(usize, usize),
) -> Card {
    let mut bystander = Bystander { agent, line: None, asked: 0 };
    let mut rows = Vec::new();
    let mut is_reachable = true;
    let mut all = exchanges(&setting);
    for number in 0..all.len() {
        report(number, all.len());
        let exchange = &all[number];
        let cases = exchange.cases.iter();
        if let Some(outcome) = unplayed(exchange, &setting) {
            rows.extend(cases.map(|(case, _)| (*case, outcome.clone())));
        } else if !is_reachable {
            rows.extend(cases.map(|(case, _)| (*case, Outcome::Failed(UNREACHABLE.into()))));
        } else {
            let played = agent.play(exchange, &setting, &mut bystander).await;
            rows.extend(cases.map(|(case, judge)| (*case, played.outcome(judge))));
            // The queue of a listener may be too short for many connections.
            let is_alone = exchange.connections == 1;
            is_reachable = played.transcripts.is_ok() || !is_alone && agent.connect().await.is_ok();
            if number == 0 {
                setting.agreed = played.agreed();
                all = exchanges(&setting);
            }
        }
    }
    Card { rows }
}

/// The reason given for cases that are not tried.
const UNREACHABLE: &str = "not tried: the agent cannot be reached";

/// The outcome of all cases of an exchange that is not played.
fn unplayed(exchange: &Exchange, setting: &Setting) -> Option<Outcome> {
    if let Some(reason) = setting.lacks(exchange.needs) {
        return Some(Outcome::Skipped(reason.into()));
    }
    setting.agreed?;
    let longest = match exchange.is_hostile() {
        // The other connections send only the message.
        true => setting.message_bytes(),
        false => exchange.turns.iter().map(|turn| longest_notify(&turn.bytes)).max().unwrap_or_default(),
    };
    let agreed = setting.frame_bytes_max();
    if longest <= agreed {
        return None;
    }
    Some(match exchange.needs {
        Needs::Room => Outcome::Failed(format!(
            "the message has {longest} bytes, and {agreed} were agreed: shorten its arguments"
        )),
        _ => Outcome::Skipped(format!("a frame has {longest} bytes, and {agreed} were agreed")),
    })
}

/// The result of an exchange.
struct Played {
    /// The transcripts of the connections, or the reason why there are none.
    transcripts: Result<Vec<Transcript>, String>,
    /// Whether other connections are still served after a hostile exchange.
    others: Judged,
}

impl Played {
    fn outcome(&self, judge: &Judge) -> Outcome {
        let judged = match judge {
            Judge::ServesOn => self.others.clone(),
            Judge::Of(judge) => {
                let transcripts = self.transcripts.as_ref().map_err(String::clone);
                transcripts.and_then(|transcripts| transcripts.iter().try_for_each(judge))
            }
        };
        judged.map_or_else(Outcome::Failed, |()| Outcome::Passed(String::new()))
    }

    fn agreed(&self) -> Option<Agreed> {
        let first = self.transcripts.as_ref().ok()?.first()?;
        let hello = first.frames().ok()?.first()?.frame;
        Some(Agreed::of(&AgentHello::decode(hello).ok()?))
    }
}

impl Endpoint {
    async fn play(&self, exchange: &Exchange, setting: &Setting, bystander: &mut Bystander<'_>) -> Played {
        let is_watched = exchange.is_hostile() && setting.agreed.is_some();
        if is_watched {
            bystander.prepare(setting).await;
        }
        let lines = self.converse(&exchange.turns, exchange.connections).await;
        // Checked while the hostile connections are still open.
        let beside = if is_watched { bystander.is_served(setting).await } else { Ok(()) };
        let transcripts = lines.map(|lines| lines.into_iter().map(|line| line.transcript).collect());
        let others = match (exchange.is_hostile(), beside) {
            (true, Ok(())) if is_watched => self.serves_a_newcomer(setting).await,
            (true, beside) if is_watched => beside,
            (true, _) => Err("the plain handshake fails".into()),
            (false, _) => Ok(()),
        };
        Played { transcripts, others }
    }

    /// Opens this many connections, and plays each turn on every one of them.
    async fn converse(&self, turns: &[Turn], connections: usize) -> Result<Vec<Line>, String> {
        let mut lines = Vec::new();
        for _ in 0..connections {
            lines.push(Line::new(self.connect().await?, connections));
        }
        for turn in turns {
            for line in &mut lines {
                line.say(turn, self.limit).await;
            }
            let deadline = Instant::now() + self.limit;
            for line in &mut lines {
                line.wait(turn.until, deadline).await;
            }
        }
        Ok(lines)
    }

    async fn serves_a_newcomer(&self, setting: &Setting) -> Judged {
        let newcomer = self.converse(&greeted(setting.notify(1, 1), 1), 1).await;
        let served = newcomer
            .and_then(|lines| lines.into_iter().map(|line| line.transcript).try_for_each(|all| acks(&all)));
        served.map_err(|reason| format!("afterwards a new connection is not served: {reason}"))
    }
}

/// A well-behaved connection beside the hostile connections.
struct Bystander<'a> {
    agent: &'a Endpoint,
    line: Option<Line>,
    asked: u64,
}

impl Bystander<'_> {
    /// Makes sure that the connection is served before the exchange, so that a later failure is due to the exchange.
    ///
    /// An agent that has crashed gets some time to come back.
    async fn prepare(&mut self, setting: &Setting) {
        let deadline = Instant::now() + self.agent.limit;
        while self.is_served(setting).await.is_err() && Instant::now() < deadline {
            sleep(RETRY_PAUSE).await;
            self.line = self.agent.converse(&[opening()], 1).await.ok().and_then(|mut lines| lines.pop());
        }
    }

    async fn is_served(&mut self, setting: &Setting) -> Judged {
        let line = self.line.as_mut().ok_or("another connection could not be opened before")?;
        self.asked += 1;
        line.transcript = Transcript::default();
        line.say(&Turn::new(setting.notify(self.asked, 1), Until::Frames(1)), self.agent.limit).await;
        line.wait(Until::Frames(1), Instant::now() + self.agent.limit).await;
        acks(&line.transcript).map_err(|reason| format!("another connection is disturbed: {reason}"))
    }
}

/// A connection to the agent.
struct Line {
    socket: Box<dyn Socket>,
    transcript: Transcript,
    received_bytes_max: usize,
}

impl Line {
    /// One of this many connections.
    fn new(socket: Box<dyn Socket>, connections: usize) -> Line {
        let received_bytes_max = RECEIVED_BYTES_MAX / connections;
        Line { socket, transcript: Transcript::default(), received_bytes_max }
    }

    /// Sends the bytes of a turn, unless an earlier turn has failed.
    async fn say(&mut self, turn: &Turn, limit: Duration) {
        if self.transcript.end != End::Open {
            return;
        }
        self.transcript.sent.extend_from_slice(&turn.bytes);
        for bytes in turn.bytes.chunks(turn.piece_bytes.unwrap_or(usize::MAX)) {
            // An agent that has closed may have sent its reason before.
            if !matches!(timeout(limit, self.socket.write_all(bytes)).await, Ok(Ok(()))) {
                return;
            }
            if turn.piece_bytes.is_some() {
                sleep(PIECE_PAUSE).await;
            }
        }
    }

    async fn wait(&mut self, until: Until, deadline: Instant) {
        if timeout_at(deadline, self.read(until)).await.is_err() {
            self.transcript.end = End::Overdue;
        }
    }

    async fn read(&mut self, until: Until) {
        let mut bytes = [0; 16 << 10];
        while self.transcript.end == End::Open && !self.transcript.is_complete(until) {
            match self.socket.read(&mut bytes).await {
                Ok(0) | Err(_) => self.transcript.end = End::Closed,
                Ok(count) if self.transcript.received.len() + count > self.received_bytes_max => {
                    self.transcript.end = End::Flooded;
                }
                Ok(count) => self.transcript.received.extend_from_slice(&bytes[..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use tokio::net::TcpListener;

    use super::*;
    use crate::card::Case;
    use crate::spoa::setting::tests::setting;
    use slowlane_core::base::Address;

    const SHORT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn what_comes_is_kept_up_to_a_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap().to_string());
        let agent = Endpoint { address, limit: Duration::from_secs(20), tls: None };
        let mut line = Line::new(agent.connect().await.unwrap(), RECEIVED_BYTES_MAX / 1_000);
        let (mut other, _) = listener.accept().await.unwrap();
        other.write_all(&[0; 1_100]).await.unwrap();
        line.wait(Until::Closed, Instant::now() + agent.limit).await;
        let transcript = line.transcript;
        assert_eq!(transcript.end, End::Flooded);
        assert!(transcript.received.len() <= 1_000, "{}", transcript.received.len());
    }

    /// A wrong port costs one wait.
    #[tokio::test]
    async fn an_agent_that_cannot_be_reached_is_tried_once() {
        let address = Address::Tcp("127.0.0.1:1".into());
        let mut reported = Vec::new();
        let Card { rows } =
            examine(&Endpoint { address, limit: SHORT, tls: None }, setting(), |over, all| {
                reported.push((over, all))
            })
            .await;
        let exchanges = exchanges(&setting());
        let all = exchanges.len();
        assert_eq!(reported, (0..all).map(|over| (over, all)).collect::<Vec<_>>());
        let tried = |row: &&(Case, Outcome)| matches!(&row.1, Outcome::Failed(why) if why.starts_with("cannot connect"));
        assert_eq!(rows.iter().filter(tried).count(), exchanges[0].cases.len());
        assert!(rows.iter().all(|(_, outcome)| !matches!(outcome, Outcome::Passed(_))));
    }

    fn agreed(frame_bytes_max: u32) -> Setting {
        let agreed = Agreed { frame_bytes_max, pipelining: true, fragmentation: false };
        Setting { agreed: Some(agreed), ..setting() }
    }

    /// The names of the cases that are not played, and whether they fail.
    fn unplayed_cases(setting: &Setting) -> Vec<(&'static str, bool)> {
        let outcomes = exchanges(setting).into_iter().flat_map(|exchange| {
            let outcome = unplayed(&exchange, setting);
            exchange.cases.into_iter().map(|(case, _)| case).zip(iter::repeat(outcome))
        });
        let named = |(case, outcome): (Case, Option<Outcome>)| {
            outcome.map(|outcome| (case.name, matches!(outcome, Outcome::Failed(_))))
        };
        outcomes.filter_map(named).collect()
    }

    #[test]
    fn frames_longer_than_agreed_are_not_sent() {
        assert_eq!(unplayed_cases(&agreed(16_380)), []);
        let small = unplayed_cases(&agreed(256));
        assert_eq!(small, ["arguments-255", "type-string", "type-binary"].map(|name| (name, false)));
    }

    #[test]
    fn a_message_that_is_longer_than_agreed_fails() {
        let long = format!("path=str:{}", "a".repeat(300));
        let setting = Setting { arguments: vec![long.parse().unwrap()], ..agreed(256) };
        let unplayed = unplayed_cases(&setting);
        let failed: Vec<&str> =
            unplayed.iter().filter(|(_, is_failed)| *is_failed).map(|(name, _)| *name).collect();
        assert!(failed.contains(&"ack") && failed.iter().all(|name| name.starts_with("ack")), "{failed:?}");
        for name in ["frame-longest", "type-null", "connections-50", "http", "frame-too-long"] {
            assert!(unplayed.contains(&(name, false)), "{name}");
        }
        assert!(!unplayed.iter().any(|(name, _)| *name == "hello"));
    }
}
