//! The example `tokens`: answers of a language model are charged what they have cost, whatever their clients send.

use std::io::Read;
use std::net::TcpStream;

use super::stage::{Stage, in_each_haproxy};
use crate::support::client::{Client, get};
use crate::support::eventually;

const PATH: &str = "/v1/chat/completions";

/// What a probe, and each request until its end, is charged.
const RESERVED: i64 = 1_000;

/// The prompt has two tokens.
fn chat(tokens: u32, stream: bool) -> String {
    format!(r#"{{"messages": [{{"content": "hello model"}}], "max_tokens": {tokens}, "stream": {stream}}}"#)
}

/// The status of a request with a key, and with further headers.
fn ask(stage: &Stage, key: &str, body: &str, further: &[(&str, &str)]) -> u16 {
    let key = format!("Bearer {key}");
    let headers: Vec<_> = [("Authorization", key.as_str())].iter().chain(further).copied().collect();
    stage.client().request("POST", PATH, &headers, body).status
}

/// A reservation that is open: what is left besides, and its ticket.
fn reserved(stage: &Stage, key: &str) -> (i64, String) {
    let answer = get(stage.at(9001), "/check?hold=off", &[("X-Slowlane-Api-Key", key)]);
    let header = |name| answer.header(name).unwrap_or_else(|| panic!("{name}: {answer:?}"));
    (header("x-slowlane-remaining").parse().unwrap(), header("x-slowlane-ticket").to_owned())
}

/// The tokens that a key has left.
fn left(stage: &Stage, key: &str) -> i64 {
    let (remaining, ticket) = reserved(stage, key);
    let headers = [("X-Slowlane-Ticket", ticket.as_str()), ("X-Slowlane-Cost", "0")];
    assert_eq!(get(stage.at(9001), "/done", &headers).status, 204);
    remaining + RESERVED
}

/// What a story costs a key, once it is settled.
fn costs(stage: &Stage, key: &str, tokens: i64, what: &str, story: impl FnOnce()) {
    let before = left(stage, key);
    story();
    // A token of the refill may be between the two.
    eventually(what, || ((before - left(stage, key) - tokens).abs() <= 1).then_some(()));
}

/// A model without pauses, and an SLO that gives nothing back during the test.
fn set(stage: &mut Stage, proxy: &str) {
    stage.edit("app.py", "TOKENS_PER_SECOND = 2_000", "TOKENS_PER_SECOND = 1_000_000");
    stage.edit("maps/slo.map", "rate=100000/m unit=tokens reserve=p90", "rate=60/h unit=tokens reserve=1000");
    stage.start_app();
    stage.start_slowlane();
    stage.start_proxy(proxy);
}

fn answers_cost_their_usage(stage: &Stage) {
    let acme = "secret-of-acme";
    for (tokens, stream) in [(1, false), (3_000, false), (1, true), (3_000, true)] {
        costs(stage, acme, i64::from(tokens) + 2, "the usage is charged", || {
            assert_eq!(ask(stage, acme, &chat(tokens, stream), &[]), 200);
        });
    }
    costs(stage, acme, 0, "an error is free", || assert_eq!(ask(stage, acme, "{}", &[]), 400));
    assert_eq!(left(stage, "secret-of-globex"), 20_000, "each customer has its own");

    let (two, odd) = (("Authorization", "Bearer secret-of-globex"), "secret-of acme");
    assert!([400, 401].contains(&ask(stage, acme, &chat(1, false), &[two])), "two keys");
    assert_eq!(ask(stage, odd, &chat(1, false), &[]), 401);
    let guesses: Vec<u16> =
        (0..6).map(|guess| ask(stage, &format!("guess-{guess}"), &chat(1, false), &[])).collect();
    assert_eq!(guesses, [401, 401, 401, 401, 401, 429], "a made-up key has no bucket of its own");
}

/// Nothing that a client sends changes its cost, or ends the request of another.
fn no_client_sets_a_cost(stage: &Stage) {
    let (acme, (rest, ticket)) = ("secret-of-acme", reserved(stage, "secret-of-globex"));
    let ticket = ticket.as_str();
    for headers in [
        &[("X-Slowlane-Cost", "0")][..],
        &[("x-usage-total-tokens", "0")],
        &[("X-Slowlane-Ticket", ticket)],
        &[("X-Slowlane-Ticket", ""), ("X-Slowlane-Cost", "0")],
        &[("X-SLOWLANE-TICKET", ticket), ("x-slowlane-ticket", ticket)],
        &[("X_Slowlane_Ticket", ticket), ("X_Slowlane-Ticket", ticket)],
        &[("Connection", "close, X-Slowlane-Ticket, X-Slowlane-Cost, X-Usage-Total-Tokens, Authorization")],
    ] {
        for stream in [false, true] {
            let what = format!("the usage is charged with {headers:?}, stream={stream}");
            costs(stage, acme, 102, &what, || {
                assert_eq!(ask(stage, acme, &chat(100, stream), headers), 200);
            });
        }
    }
    let headers =
        [("Authorization", "Bearer secret-of-acme"), ("X-Slowlane-Ticket", ticket), ("X-Slowlane-Cost", "0")];
    for path in ["/done", "/slowlane-done", "//slowlane-done", "/%73lowlane-done"] {
        for method in ["GET", "POST"] {
            let status = stage.client().request(method, path, &headers, "").status;
            assert!([404, 501].contains(&status), "{method} {path}: {status}");
        }
    }
    let again = reserved(stage, "secret-of-globex").0;
    assert!((rest - RESERVED - again).abs() <= 1, "its ticket is still open: {rest} {again}");
}

/// A client that leaves pays, whether it waits for an answer or reads a stream.
fn who_leaves_pays(stage: &Stage) {
    let (acme, headers) = ("secret-of-acme", [("Authorization", "Bearer secret-of-acme")]);
    let open = || stage.metric("slowlane_reservations_open", "");
    let others = open();
    costs(stage, acme, 2_002, "the answer is charged", || {
        let mut client = stage.client();
        client.send("POST", PATH, &headers, &chat(2_000, false)).unwrap();
        eventually("it is admitted", || (open() > others).then_some(()));
    });
    let before = left(stage, acme);
    let mut stream = TcpStream::connect(stage.at(8080)).unwrap();
    let mut client = Client::over(stream.try_clone().unwrap()).unwrap();
    client.send("POST", PATH, &headers, &chat(4_000, true)).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    drop((client, stream));
    eventually("its end is reported", || (open() == others).then_some(()));
    let paid = before - left(stage, acme);
    assert!((22..=4_003).contains(&paid) && paid != RESERVED, "{paid}");
}

fn story(stage: &mut Stage, proxy: &str) {
    set(stage, proxy);
    answers_cost_their_usage(stage);
    no_client_sets_a_cost(stage);
    who_leaves_pays(stage);
}

#[test]
fn tokens_are_charged_in_haproxy() {
    in_each_haproxy("tokens", |mut stage| story(&mut stage, "haproxy"));
}

#[test]
fn tokens_are_charged_in_nginx() {
    story(&mut Stage::set("tokens"), "nginx");
}
