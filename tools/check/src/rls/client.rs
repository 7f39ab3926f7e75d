//! A gRPC client that can send anything over HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use grpc::Method;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use http::{Request, Response};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::endpoint::Endpoint;

/// The maximum size of the headers of an answer.
const HEADERS_BYTES_MAX: u32 = 64 * 1024;

pub(super) type Call = Request<Bytes>;

/// An answer, with its trailers among its headers: an answer without a message has no trailers.
pub(super) type Answer = Response<Bytes>;

/// A call with any body.
pub(super) fn call(method: Method, body: impl Into<Bytes>) -> Call {
    Request::post(format!("http://localhost{}", method.path()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body.into())
        .expect("the path and the headers are valid")
}

/// A connection.
pub(super) struct Client {
    limit: Duration,
    requests: SendRequest<Bytes>,
    pings: PingPong,
    /// The task of the connection, which ends when this is dropped.
    _connection: JoinSet<()>,
}

impl Client {
    pub(super) async fn connect(server: &Endpoint) -> Result<Client, String> {
        let socket = server.connect().await?;
        let handshake =
            Builder::new().enable_push(false).max_header_list_size(HEADERS_BYTES_MAX).handshake(socket);
        let (requests, mut connection) = within(server.limit, handshake).await?;
        let pings = connection.ping_pong().expect("nobody has taken it");
        let mut task = JoinSet::new();
        task.spawn(async { drop(connection.await) });
        Ok(Client { limit: server.limit, requests, pings, _connection: task })
    }

    pub(super) async fn call(&self, call: &Call) -> Result<Answer, String> {
        let (answer, _body) = self.begin(call).await?;
        self.answer(answer).await
    }

    /// Sends a call, without waiting for its answer.
    pub(super) async fn begin(&self, call: &Call) -> Result<(ResponseFuture, SendStream<Bytes>), String> {
        let (answer, mut body) = self.open(call).await?;
        // A server may answer before it has read everything.
        let _ = body.send_data(call.body().clone(), true);
        Ok((answer, body))
    }

    /// Sends the headers of a call.
    pub(super) async fn open(&self, call: &Call) -> Result<(ResponseFuture, SendStream<Bytes>), String> {
        let request = call.clone().map(drop);
        let opened = async { self.requests.clone().ready().await?.send_request(request, false) };
        within(self.limit, opened).await
    }

    pub(super) async fn answer(&self, answer: ResponseFuture) -> Result<Answer, String> {
        within(self.limit, read(answer)).await
    }

    pub(super) async fn ping(&mut self) -> Result<String, String> {
        within(self.limit, self.pings.ping(Ping::opaque())).await.map(|_| String::new())
    }
}

/// Reads an answer. Because the flow control window is never enlarged, the answer has at most 64 KiB.
async fn read(answer: ResponseFuture) -> Result<Answer, h2::Error> {
    let (mut head, mut stream) = answer.await?.into_parts();
    let mut body = Vec::new();
    while let Some(bytes) = stream.data().await {
        body.extend_from_slice(&bytes?);
    }
    head.headers.extend(stream.trailers().await?.unwrap_or_default());
    Ok(Response::from_parts(head, body.into()))
}

async fn within<T>(limit: Duration, result: impl Future<Output = Result<T, h2::Error>>) -> Result<T, String> {
    match timeout(limit, result).await {
        Ok(result) => result.map_err(|error| format!("the call fails: {error}")),
        Err(_) => Err("no answer in time".into()),
    }
}
