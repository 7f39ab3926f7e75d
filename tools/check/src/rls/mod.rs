//! A conformance suite for servers of Envoy's rate limit service: calls, and judgements of their answers.
//!
//! ```text
//!  cases      what Envoy sends, and how each answer is judged
//!    │
//!  client     over HTTP/2, a call becomes an answer
//!    │
//!  judges     an answer becomes a pass with what was seen, or the reason for a failure
//! ```

mod cases;
mod client;
mod judges;

use std::time::Duration;

use tokio::time::timeout;

use crate::card::{Card, Outcome, listed};
use crate::endpoint::Endpoint;
use cases::{Way, trials};
use client::{Call, Client, call};
use grpc::ratelimit::RateLimitRequest;
use grpc::{Method, framed};
use http::HeaderValue;
use judges::{Judged, answered};

/// Envoy's default timeout of a call. Later answers are lost: by default, Envoy then passes the request.
const DEADLINE: Duration = Duration::from_millis(20);

/// The number of tries: a busy machine may delay some.
const TRIES: usize = 20;

/// The number of simultaneous calls. Envoy allows more, but the default of many servers is 100.
const SIMULTANEOUS: usize = 64;

/// Tries every case. Before each case, reports how many are done, and how many there are.
///
/// The first case is the plain call; if it fails, the other cases are skipped.
pub(crate) async fn examine(
    server: &Endpoint,
    plain: &RateLimitRequest,
    mut report: impl FnMut(usize, usize),
) -> Card {
    let trials = trials(plain);
    let plain = call(Method::ShouldRateLimit, framed(plain));
    let mut rows: Vec<(_, Outcome)> = Vec::new();
    for (case, way) in &trials {
        report(rows.len(), trials.len());
        let outcome = match rows.first() {
            None | Some((_, Outcome::Passed(_))) => {
                way.tried(server, &plain).await.map_or_else(Outcome::Failed, Outcome::Passed)
            }
            Some(_) => Outcome::Skipped("the plain call fails".into()),
        };
        rows.push((*case, outcome));
    }
    Card { rows }
}

/// Every case and its expectation.
pub(crate) fn list() -> String {
    listed("the server", trials(&RateLimitRequest::default()).into_iter().map(|(case, _)| case))
}

impl Way {
    /// Tries a case on a connection of its own, which must serve a plain call afterwards.
    async fn tried(&self, server: &Endpoint, plain: &Call) -> Judged {
        let mut client = Client::connect(server).await?;
        let seen = match self {
            Way::Call(call, judge) => judge(&client.call(call).await?)?,
            Way::AtOnce => at_once(&client, plain).await?,
            Way::InTime => in_time(&client, plain).await?,
            Way::Cancelled => cancelled(&client, plain).await?,
            Way::Ping => client.ping().await?,
        };
        let after = client.call(plain).await.and_then(|answer| answered(&answer));
        after.map_err(|reason| format!("{seen}; afterwards a plain call fails: {reason}"))?;
        Ok(seen)
    }
}

async fn at_once(client: &Client, plain: &Call) -> Judged {
    let mut begun = Vec::new();
    for _ in 0..SIMULTANEOUS {
        begun.push(client.begin(plain).await?);
    }
    for (number, (answer, _)) in begun.into_iter().enumerate() {
        let judged = client.answer(answer).await.and_then(|answer| answered(&answer));
        judged.map_err(|reason| format!("call {}: {reason}", number + 1))?;
    }
    Ok(String::new())
}

/// Judges whether the fastest of several calls is in time.
async fn in_time(client: &Client, plain: &Call) -> Judged {
    let mut call = plain.clone();
    call.headers_mut().insert("grpc-timeout", HeaderValue::from_static("20m"));
    let mut in_time = 0;
    for _ in 0..TRIES {
        let answer = timeout(DEADLINE, client.call(&call)).await;
        in_time += usize::from(matches!(answer, Ok(Ok(answer)) if answered(&answer).is_ok()));
    }
    let seen = format!("{in_time} of {TRIES} calls in time");
    if in_time > 0 { Ok(seen) } else { Err(seen) }
}

/// Resets one of two calls whose messages have begun.
async fn cancelled(client: &Client, plain: &Call) -> Judged {
    let mut rest = plain.body().clone();
    let half = rest.split_to(rest.len() / 2);
    let (_gone, mut reset) = client.open(plain).await?;
    let (answer, mut kept) = client.open(plain).await?;
    for body in [&mut reset, &mut kept] {
        body.send_data(half.clone(), false).map_err(|error| error.to_string())?;
    }
    // Once a third call is answered, the server has read the beginning of both.
    answered(&client.call(plain).await?)?;
    reset.send_reset(h2::Reason::CANCEL);
    kept.send_data(rest, true).map_err(|error| error.to_string())?;
    answered(&client.answer(answer).await?)
}
