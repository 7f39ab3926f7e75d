//! A client connection to an HTTP server.

use std::net::{Ipv4Addr, SocketAddr};

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

/// The only website.
pub(super) const WEBSITE: &str = "shop.example";

/// It ends when it is dropped.
pub(super) struct HttpClient(SendRequest<Empty<Bytes>>);

impl HttpClient {
    pub(super) async fn connect(address: SocketAddr, source: Ipv4Addr) -> anyhow::Result<HttpClient> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(HttpClient(sender))
    }

    /// Requests a path, with further headers. Returns the status and the headers of the answer.
    pub(super) async fn get(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<(StatusCode, HeaderMap)> {
        let mut request = Request::get(path).header(HOST, WEBSITE);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.0.ready().await?;
        let answer = self.0.send_request(request.body(Empty::new())?).await?;
        let (head, body) = answer.into_parts();
        body.collect().await?;
        Ok((head.status, head.headers))
    }
}
