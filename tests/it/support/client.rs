//! A strict HTTP client that keeps its connection and measures times.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tokio::net::TcpSocket;

use super::PATIENCE;

/// An answer, and the time that it took.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
    pub asked_at: Instant,
    pub took: Duration,
}

impl Response {
    pub fn answered_at(&self) -> Instant {
        self.asked_at + self.took
    }

    /// The value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

/// A connection from this address, which is one of the loopback.
pub fn connection_from(source: &str, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let connection = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    connection.set_nonblocking(false).unwrap();
    connection
}

/// One keep-alive connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).unwrap()
    }

    pub fn try_connect(address: SocketAddr) -> std::io::Result<Client> {
        Client::over(TcpStream::connect(address)?)
    }

    /// A client on a connection that the test has made.
    pub fn over(stream: TcpStream) -> std::io::Result<Client> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    pub fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        self.try_request(method, path, headers, body).unwrap()
    }

    pub fn try_request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> std::io::Result<Response> {
        let started = Instant::now();
        self.send(method, path, headers, body)?;
        self.receive(method, started)
    }

    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> std::io::Result<()> {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            text += "Host: localhost\r\n";
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        text += "\r\n";
        text += body;
        self.stream.get_mut().write_all(text.as_bytes())
    }

    /// Sends the rest of a request that was begun before.
    pub fn send_rest(&mut self, text: &str) -> std::io::Result<()> {
        self.stream.get_mut().write_all(text.as_bytes())
    }

    /// Reads the answer to a request with this method, sent at this time.
    pub fn receive(&mut self, method: &str, asked_at: Instant) -> std::io::Result<Response> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::other(format!("no status in {status_line:?}")))?;
        let (headers, body) = (Vec::new(), String::new());
        let mut response = Response { status, headers, body, asked_at, took: Duration::ZERO };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            response.headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        if method != "HEAD" && ![101, 204].contains(&status) {
            response.body = self.body(&response)?;
        }
        response.took = asked_at.elapsed();
        Ok(response)
    }

    fn body(&mut self, response: &Response) -> std::io::Result<String> {
        let mut body = Vec::new();
        if response.header("transfer-encoding") == Some("chunked") {
            loop {
                let length = usize::from_str_radix(&self.line()?, 16).map_err(std::io::Error::other)?;
                self.stream.by_ref().take(length as u64).read_to_end(&mut body)?;
                self.line()?;
                if length == 0 {
                    break;
                }
            }
        } else if let Some(length) = response.header("content-length") {
            let length = length.parse().map_err(std::io::Error::other)?;
            self.stream.by_ref().take(length).read_to_end(&mut body)?;
        } else {
            self.stream.read_to_end(&mut body)?;
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// A GET on a new connection.
pub fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Response {
    Client::connect(address).request("GET", path, headers, "")
}
