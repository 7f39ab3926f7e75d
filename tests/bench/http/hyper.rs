//! A minimal check on hyper: the same policy and the same decision as slowlane's, and an answer with the same headers.
//!
//! It does less than slowlane: it knows no repeated request ids, keeps no status, and holds nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use slowlane_core::base::{Decision, Decisions, Sample, Timestamp, Value};
use slowlane_core::policy::Batch;
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::support::five_maps::{LINES, UNDELAYED, files, parse};

/// Makes this binary the server.
pub const ARGUMENT: &str = "--http-hyper";

/// The beginning of a header that carries a field, as in slowlane's check.
const FIELD: &str = "x-slowlane-";

/// The same table as that of a slowlane without a config.
const SIZING: Sizing = Sizing { entries_max: 1_000_000, expire: Duration::from_secs(30) };

/// Serves at `host:port`.
pub fn run(at: &str) {
    let policy = parse(&files(UNDELAYED, "pace", LINES, LINES));
    let check = Arc::new(Check { throttle: Throttle::new(policy, SIZING, 0), started: Instant::now() });
    Runtime::new().unwrap().block_on(async {
        let listener = TcpListener::bind(at).await.unwrap();
        eprintln!("HTTP on {}", listener.local_addr().unwrap());
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(check.clone().serve(stream));
        }
    });
}

struct Check {
    throttle: Throttle,
    started: Instant,
}

impl Check {
    async fn serve(self: Arc<Check>, stream: TcpStream) {
        let answer = service_fn(|request| {
            let answer = answer(&self.decide(&request));
            async { Ok::<_, Infallible>(answer) }
        });
        // A client that leaves ends only its own connection.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
    }

    fn decide(&self, request: &Request<Incoming>) -> Decision {
        let policy = self.throttle.policy();
        let (mut batch, mut decisions) = (Batch::of(&policy), Decisions::new());
        let mut draft = batch.draft();
        for (name, value) in request.headers() {
            if let Some(field) = name.as_str().strip_prefix(FIELD) {
                draft.field(field.as_bytes(), Value::Text(value.as_bytes()));
            }
        }
        batch.keep_draft();
        let now = Timestamp::from_millis(1_700_000_000_000) + self.started.elapsed();
        let mut sample = || Sample::from_bits(Rng::new().u64(..));
        self.throttle.decide(&batch, now, &mut sample, &mut decisions);
        decisions.only()
    }
}

fn answer(decision: &Decision) -> Response<Empty<Bytes>> {
    Response::builder()
        .status(StatusCode::NO_CONTENT)
        .header("x-slowlane-verdict", decision.verdict.name())
        .header("x-slowlane-slo", decision.slo.number())
        .header("x-slowlane-remaining", decision.remaining)
        .body(Empty::new())
        .unwrap()
}
