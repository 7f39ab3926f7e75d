//! The example `uploads`: each body counts by its length, whatever the method and the version of HTTP.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::stage::{Stage, in_each_haproxy};
use crate::support::eventually;

const MB: usize = 1 << 20;

/// 20 MB at once. The next 5 MB reach the application without a delay, and their answer waits.
#[test]
fn uploads_count_by_the_megabyte() {
    in_each_haproxy("uploads", |mut stage| {
        stage.start();
        let mut client = stage.client();
        assert_eq!(client.request("PUT", "/first", &[], &"x".repeat(20 * MB)).status, 200);
        assert_eq!(stage.verdicts(3001, "pass"), 1.0);
        let asked_at = Instant::now();
        client.send("PATCH", "/second", &[], &"x".repeat(5 * MB)).unwrap();
        eventually("the application has it", || (stage.app.count() == 2).then_some(()));
        assert_eq!(stage.verdicts(3001, "delay"), 1.0);
        let response = client.receive("PATCH", asked_at).unwrap();
        assert_eq!(response.status, 200);
        let seen = stage.app.saw("/second");
        assert_eq!(seen.body_bytes, 5 << 20);
        let (reached, waited) = (seen.at - asked_at, response.answered_at() - seen.at);
        assert!(reached < waited, "it waited {reached:?} at the request, and {waited:?} at the response");
        // Five seconds, less the time since the first upload began.
        assert!(waited > Duration::from_secs(1), "{waited:?}");

        let before = stage.judged();
        let mut other = stage.client();
        assert!((0..50).all(|_| other.request("GET", "/", &[], "").status == 200), "they cost nothing");
        assert_eq!(stage.metric("slowlane_verdicts_total", "verdict=\"delay\""), 1.0);
        assert_eq!(stage.judged(), before + 50.0);
    });
}

/// The application may read the body of any request.
#[test]
fn no_method_carries_a_body_for_nothing() {
    in_each_haproxy("uploads", |mut stage| {
        stage.start();
        let ask =
            |method: &str, headers: &[(&str, &str)]| stage.client().request(method, "/", headers, "").status;
        let (large, methods) =
            ((41 * MB).to_string(), ["POST", "PUT", "PATCH", "PROPFIND", "put", "GET", "DELETE"]);
        for method in methods {
            assert_eq!(ask(method, &[("Content-Length", &large)]), 429, "{method}: longer than 20 s");
            assert_eq!(
                ask(method, &[("Transfer-Encoding", "chunked")]),
                411,
                "{method}: nobody knows its length"
            );
        }
        for method in ["POST", "PATCH", "PROPFIND", "get"] {
            assert_eq!(ask(method, &[]), 411, "{method}");
        }
        for body in [100, 3 * MB] {
            // HAProxy also cancels the rest of the body, and curl may then miss the 411.
            assert_ne!(over_http_2(&stage, "GET", Some(body)), "200", "{body} bytes without a length");
        }
        assert_eq!(stage.app.count(), 0);
        assert_eq!(over_http_2(&stage, "GET", None), "200");
        for method in ["GET", "HEAD", "OPTIONS", "DELETE"] {
            assert_eq!(ask(method, &[]), 200, "{method}");
        }
    });
}

/// The status of a request over HTTP/2 with this many bytes, whose length is not told.
fn over_http_2(stage: &Stage, method: &str, body: Option<usize>) -> String {
    let url = format!("http://{}/", stage.at(8080));
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--http2-prior-knowledge",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
    ]);
    command.args(["--request", method, &url]).stdin(Stdio::piped()).stdout(Stdio::piped());
    if body.is_some() {
        command.args(["--upload-file", "-"]);
    }
    let mut curl = command.spawn().unwrap();
    let mut input = curl.stdin.take().unwrap();
    // curl may be refused before it has read everything.
    let _ = input.write_all(&vec![b'x'; body.unwrap_or(0)]);
    drop(input);
    String::from_utf8(curl.wait_with_output().unwrap().stdout).unwrap()
}
