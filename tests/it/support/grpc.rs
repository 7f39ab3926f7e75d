//! A gRPC client over HTTP/2, for one call at a time.

use std::net::SocketAddr;

use bytes::Bytes;
use grpc::{Method, decoded, framed, unframed};
use h2::client::{self, SendRequest};
use http::{HeaderMap, Request, Version};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::PATIENCE;

/// A connection.
pub struct Client {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
    /// Its result says whether the server has closed it in order.
    connection: JoinHandle<Result<(), h2::Error>>,
}

/// The end of a call: the status, its message, and the message of the response.
#[derive(Debug)]
pub struct Ended {
    pub http: u16,
    /// None: the response has none.
    pub status: Option<u8>,
    pub reason: String,
    pub body: Bytes,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(TcpStream::connect(address)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client::over(runtime, stream)
    }

    /// A client on a connection that the test has made.
    pub fn over(runtime: Runtime, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Client {
        let (requests, connection) = runtime.block_on(client::handshake(stream)).unwrap();
        let connection = runtime.spawn(connection);
        Client { runtime, requests, connection }
    }

    /// Calls a method. The error is the status.
    pub fn call<R: Message + Default>(&mut self, method: Method, message: &impl Message) -> Result<R, u8> {
        let ended = self.send(method.path(), framed(message).into());
        match ended.status.expect("a status") {
            0 => Ok(decoded(&unframed(&ended.body).unwrap()).unwrap()),
            status => Err(status),
        }
    }

    /// Sends any body to a path.
    pub fn send(&mut self, path: &str, body: Bytes) -> Ended {
        self.send_as("application/grpc", path, body).unwrap()
    }

    /// Sends a call with this `tracestate`.
    pub fn send_traced(&mut self, path: &str, body: Bytes, tracestate: &str) -> Result<Ended, h2::Error> {
        self.exchange("application/grpc", path, body, Some(tracestate))
    }

    pub fn send_as(&mut self, kind: &str, path: &str, body: Bytes) -> Result<Ended, h2::Error> {
        self.exchange(kind, path, body, None)
    }

    fn exchange(
        &mut self,
        kind: &str,
        path: &str,
        body: Bytes,
        tracestate: Option<&str>,
    ) -> Result<Ended, h2::Error> {
        let request = Request::post(format!("http://slowlane{path}"))
            .version(Version::HTTP_2)
            .header("content-type", kind)
            .header("te", "trailers");
        let request = match tracestate {
            Some(tracestate) => request.header("tracestate", tracestate),
            None => request,
        };
        let called = exchange(self.requests.clone(), request.body(()).unwrap(), body);
        self.runtime.block_on(async { timeout(PATIENCE, called).await.expect("an answer in time") })
    }

    /// Opens so many streams, and resets each at once.
    pub fn reset(&mut self, streams: usize) -> Result<(), h2::Error> {
        let mut requests = self.requests.clone();
        self.runtime.block_on(async {
            for _ in 0..streams {
                requests = requests.ready().await?;
                let (answer, mut body) =
                    requests.send_request(Request::post("http://s/").body(()).unwrap(), false)?;
                body.send_reset(h2::Reason::CANCEL);
                drop(answer);
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    }

    /// Waits until the server has closed the connection.
    pub fn closed(self) -> Result<(), h2::Error> {
        let Client { runtime, connection, requests } = self;
        drop(requests);
        runtime
            .block_on(async { timeout(PATIENCE, connection).await.expect("it is closed in time").unwrap() })
    }
}

async fn exchange(
    requests: SendRequest<Bytes>,
    request: Request<()>,
    body: Bytes,
) -> Result<Ended, h2::Error> {
    let mut requests = requests.ready().await?;
    let (answer, mut sending) = requests.send_request(request, false)?;
    // A server may answer before it has read everything.
    let _ = sending.send_data(body, true);
    let (head, mut body) = answer.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        bytes.extend_from_slice(&chunk);
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    let text = |headers: &HeaderMap, name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let of = |name| text(&trailers, name).or_else(|| text(&head.headers, name));
    Ok(Ended {
        http: head.status.as_u16(),
        status: of("grpc-status").map(|status| status.parse().unwrap()),
        reason: of("grpc-message").unwrap_or_default(),
        body: bytes.into(),
    })
}
