//! The example `concurrency`: WebSockets and long polls count until they end.

use std::time::Instant;

use super::stage::{Stage, in_each_haproxy};
use crate::support::client::{Client, Response};
use crate::support::eventually;

/// Opens a WebSocket, and keeps it.
fn websocket(mut client: Client) -> (Client, Response) {
    let headers = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
    let response = client.request("GET", "/chat", &headers, "");
    (client, response)
}

/// An upgrade to HTTP/2 would be a tunnel: its requests would reach the application unseen.
#[test]
fn no_upgrade_but_a_websocket_is_passed_on() {
    let stage = Stage::play("concurrency", "nginx");
    for (path, upgrade) in [("/h2c", "h2c"), ("/both", "websocket, h2c"), ("/other", "x-tunnel")] {
        let headers =
            [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", upgrade), ("HTTP2-Settings", "AAMAAABk")];
        assert_eq!(stage.client().request("GET", path, &headers, "").status, 200, "{upgrade}");
        let seen = stage.app.saw(path).headers;
        let asks = |header: &&String| header.starts_with("upgrade:") || *header == "connection: upgrade";
        assert_eq!(seen.iter().find(asks), None, "{upgrade}");
    }
}

/// Five polls wait in the application, and a sixth is refused. Their answers make room.
fn five_polls_at_a_time(stage: &Stage) {
    stage.app.gate.close();
    let mut polls: Vec<Client> = (0..5).map(|_| stage.client_from("127.9.0.2")).collect();
    for poll in &mut polls {
        poll.send("GET", "/poll", &[], "").unwrap();
    }
    eventually("five are inside", || (stage.app.gate.inside() == 5).then_some(()));
    let refused = stage.client_from("127.9.0.2").request("GET", "/poll", &[], "");
    assert_eq!(refused.status, 429);
    stage.app.gate.open();
    for poll in &mut polls {
        assert_eq!(poll.receive("GET", Instant::now()).unwrap().status, 200);
    }
    for _ in 0..20 {
        let mut client = stage.client_from("127.9.0.2");
        eventually("a place is free", || (client.request("GET", "/", &[], "").status == 200).then_some(()));
    }
}

#[test]
fn a_websocket_counts_until_it_ends() {
    let stage = Stage::play("concurrency", "nginx");
    let mut open: Vec<Client> = Vec::new();
    for _ in 0..5 {
        let (client, response) = websocket(stage.client());
        assert_eq!(response.status, 101);
        open.push(client);
    }
    assert_eq!(websocket(stage.client()).1.status, 429);
    assert_eq!(stage.client().request("GET", "/", &[], "").status, 429, "other requests of this source, too");
    let (other, accepted) = websocket(stage.client_from("127.9.0.1"));
    assert_eq!(accepted.status, 101, "another source has its own five");
    drop(open.pop());
    let again = eventually("its place is free", || {
        let (client, response) = websocket(stage.client());
        (response.status == 101).then_some(client)
    });
    assert_eq!(websocket(stage.client()).1.status, 429, "only one place was free");
    drop((open, other, again));
    five_polls_at_a_time(&stage);
}

#[test]
fn a_long_poll_counts_until_it_is_answered_in_haproxy() {
    in_each_haproxy("concurrency", |mut stage| {
        stage.start();
        five_polls_at_a_time(&stage);
    });
}
