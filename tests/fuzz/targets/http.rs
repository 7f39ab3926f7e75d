//! Any bytes as one connection to the HTTP check, served as the daemon serves it: every answer is whole and one of
//! ours, and the same answers come however the bytes arrive. A body that comes late ends the connection, so there may be
//! fewer.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use slowlane::observe::clock::Clock;
use slowlane::server::Agent;
use slowlane::server::http::Check;
use slowlane::server::shutdown;
use slowlane::server::stream::Stream;
use slowlane_core::base::{HoldLimits, WhenFull};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use super::watched::watched;

/// More than any input asks for.
const ANSWERS_MAX: usize = 4_096;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

/// The first byte is the length of the pieces that the others arrive in.
pub fn run(bytes: &[u8]) {
    let Some((&piece_bytes, bytes)) = bytes.split_first() else { return };
    let piece_bytes = usize::from(piece_bytes).max(bytes.len() / 64).max(1);
    RUNTIME.with(|runtime| {
        let whole = runtime.block_on(serve([bytes]));
        let in_pieces = runtime.block_on(serve(bytes.chunks(piece_bytes)));
        for answer in whole.iter().chain(&in_pieces) {
            expect_ours(answer);
        }
        for (one, other) in whole.iter().zip(&in_pieces) {
            assert_eq!(steady(one), steady(other));
        }
    });
}

async fn serve<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut client, server) = UnixStream::pair().expect("two sockets");
    let (_trigger, shutdown) = shutdown::channel();
    let check = Arc::new(Check::new(Duration::from_secs(3_600), Vec::new()));
    let serving = check.serve(Stream::Unix(server), Vec::new(), agent(), shutdown);
    let asking = async {
        for piece in pieces {
            // The server may have closed.
            if client.write_all(piece).await.is_err() {
                break;
            }
            yield_now().await;
        }
        let mut said = Vec::new();
        let _ = client.shutdown().await;
        let _ = client.read_to_end(&mut said).await;
        String::from_utf8(said).expect("an answer is text")
    };
    let ((), said) = tokio::join!(serving, asking);
    answers(&said)
}

/// Headers that depend on the time, or on the bytes that have come by then.
const VARYING: [&str; 6] =
    ["connection: ", "date: ", "ratelimit: ", "retry-after: ", "x-slowlane-delay: ", "x-slowlane-ticket: "];

/// An answer without the varying headers.
fn steady(answer: &str) -> String {
    let is_steady = |line: &&str| !VARYING.iter().any(|name| line.starts_with(name));
    answer.split_inclusive("\r\n").filter(is_steady).collect()
}

/// Cuts the answers apart. Each has a length, or no body.
fn answers(mut said: &str) -> Vec<String> {
    let mut answers = Vec::new();
    while !said.is_empty() {
        let head = said.find("\r\n\r\n").expect("a whole head") + 4;
        let length =
            value(&said[..head], "content-length").map_or(0, |length| length.parse().expect("a length"));
        let (answer, rest) = said.split_at(head + length);
        answers.push(answer.to_owned());
        said = rest;
    }
    assert!(answers.len() < ANSWERS_MAX);
    answers
}

fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn expect_ours(answer: &str) {
    let status: u16 = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let verdict = value(answer, "x-slowlane-verdict");
    match status {
        200 | 204 => assert_ne!(verdict, Some("deny"), "{answer}"),
        403 | 429 => {
            assert_eq!(verdict, Some("deny"), "{answer}");
            let retry_after: Option<u32> = value(answer, "retry-after").and_then(|text| text.parse().ok());
            assert!(retry_after.is_some_and(|seconds| seconds >= 1), "{answer}");
        }
        400 | 404 | 413 | 414 | 431 => assert_eq!(verdict, None, "{answer}"),
        100 => {}
        _ => panic!("no answer of ours: {answer}"),
    }
}

/// Nothing is held, so no answer waits.
fn agent() -> Arc<Agent> {
    let sizing = Sizing { entries_max: 64, expire: Duration::from_secs(3_600) };
    let throttle = Arc::new(Throttle::new(policy(), sizing, 1 << 16));
    let hold = HoldLimits { holds_max: 0, hold_max: Duration::from_secs(60), when_full: WhenFull::Pass };
    let (metrics, status) = watched();
    Arc::new(Agent::new(throttle, Clock::start(), hold, metrics, status))
}

/// Passes, denials, delays that nobody holds, and tickets. The rates are so low that the time between two requests
/// changes no verdict.
fn policy() -> Policy {
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => {
            Ok(b"0 burst=2 rate=1/d law=token-bucket\n1001 burst=1 rate=1/d law=concurrency max=2\n\
            2001 burst=1 rate=1/d max_delay=2d also=owner\n"
                .to_vec())
        }
        Some("website.map") => Ok(b"shop.example 2001\n".to_vec()),
        Some("owner.map") => Ok(b"acme 1001\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    Policy::parse(Path::new(""), &Layout::default(), read).expect("a policy without mistakes")
}
