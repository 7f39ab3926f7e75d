//! The application behind the proxies: answers 200 at once, and remembers when it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

/// A request as the application sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    pub method: String,
    pub path: String,
    pub body_bytes: u64,
}

/// It listens until the test ends.
#[derive(Clone)]
pub struct Backend {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Backend {
    pub fn start() -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let backend = Backend { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = backend.seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = seen.clone();
                thread::spawn(move || serve(stream, &seen));
            }
        });
        backend
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The request for this path, which must have been the only one.
    pub fn saw(&self, path: &str) -> Seen {
        let seen: Vec<_> = self.seen().into_iter().filter(|seen| seen.path == path).collect();
        assert_eq!(seen.len(), 1, "{path}: {seen:?}");
        seen[0].clone()
    }

    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

/// Ends with the connection. `/status/NNN` is answered with that status.
fn serve(stream: TcpStream, seen: &Mutex<Vec<Seen>>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut stream = BufReader::new(stream);
    loop {
        let request = line(&mut stream)?;
        let at = Instant::now();
        let mut length = 0;
        loop {
            let header = line(&mut stream)?.to_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let body_bytes = std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink()).ok()?;
        let mut words = request.split(' ').map(str::to_owned);
        let (method, path) = (words.next()?, words.next()?);
        let status = path.strip_prefix("/status/").unwrap_or("200 OK").to_owned();
        let body = if method == "HEAD" { "" } else { "ok\n" };
        seen.lock().unwrap().push(Seen { at, method, path, body_bytes });
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\n{body}");
        stream.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let bytes = stream.read_line(&mut line).ok()?;
    (bytes > 0).then(|| line.trim_end().to_owned())
}
