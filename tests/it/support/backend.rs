//! The application behind the proxies: records requests, and answers 200 unless its gate is closed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::PATIENCE;

/// A request as the application sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    pub method: String,
    pub path: String,
    pub body_bytes: u64,
    /// In lower case, like `host: shop.example`.
    pub headers: Vec<String>,
}

/// The application. It listens until the test ends.
#[derive(Clone)]
pub struct Backend {
    pub address: SocketAddr,
    /// While it is closed, every request waits.
    pub gate: Arc<Gate>,
    /// None: it forgets.
    seen: Option<Arc<Mutex<Vec<Seen>>>>,
}

/// A gate, open at first. It counts the requests inside: received, but not answered.
#[derive(Default)]
pub struct Gate {
    state: Mutex<Inside>,
    opened: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Inside {
    is_closed: bool,
    takes: Duration,
    count: usize,
    most: usize,
    /// How many may leave while it is closed.
    leave: usize,
}

impl Gate {
    pub fn close(&self) {
        self.state.lock().unwrap().is_closed = true;
    }

    pub fn open(&self) {
        self.state.lock().unwrap().is_closed = false;
        self.opened.notify_all();
    }

    /// Lets one more request leave while it is closed.
    pub fn let_one_out(&self) {
        self.state.lock().unwrap().leave += 1;
        self.opened.notify_one();
    }

    /// Sets the time that each request takes from now on.
    pub fn takes(&self, time: Duration) {
        self.state.lock().unwrap().takes = time;
    }

    pub fn inside(&self) -> usize {
        self.state.lock().unwrap().count
    }

    /// The most requests inside at once.
    pub fn most(&self) -> usize {
        self.state.lock().unwrap().most
    }

    /// Waits at the gate, and counts the request while it is inside.
    fn pass(&self) {
        let mut inside = self.state.lock().unwrap();
        inside.count += 1;
        inside.most = inside.most.max(inside.count);
        let takes = inside.takes;
        let stays = |inside: &mut Inside| inside.is_closed && inside.leave == 0;
        let (mut inside, _) = self.opened.wait_timeout_while(inside, PATIENCE, stays).unwrap();
        inside.leave = inside.leave.saturating_sub(1);
        drop(inside);
        thread::sleep(takes);
        self.state.lock().unwrap().count -= 1;
    }
}

impl Backend {
    pub fn start() -> Backend {
        Backend::with(Some(Arc::default()))
    }

    /// One that keeps no record, for any number of requests.
    pub fn forgetful() -> Backend {
        Backend::with(None)
    }

    fn with(seen: Option<Arc<Mutex<Vec<Seen>>>>) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let backend = Backend { address: listener.local_addr().unwrap(), gate: Arc::default(), seen };
        let (gate, seen) = (backend.gate.clone(), backend.seen.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (gate, seen) = (gate.clone(), seen.clone());
                thread::spawn(move || serve(stream, &gate, seen.as_deref()));
            }
        });
        backend
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.as_ref().expect("it keeps a record").lock().unwrap().clone()
    }

    /// The only request for this path.
    pub fn saw(&self, path: &str) -> Seen {
        let seen: Vec<_> = self.seen().into_iter().filter(|seen| seen.path == path).collect();
        assert_eq!(seen.len(), 1, "{path}: {seen:?}");
        seen[0].clone()
    }

    pub fn count(&self) -> usize {
        self.seen.as_ref().expect("it keeps a record").lock().unwrap().len()
    }
}

/// Serves one connection. The answer to `/status/NNN` has that status. A WebSocket stays until its client leaves.
fn serve(stream: TcpStream, gate: &Gate, seen: Option<&Mutex<Vec<Seen>>>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut stream = BufReader::new(stream);
    loop {
        let request = line(&mut stream)?;
        let at = Instant::now();
        let (mut length, mut headers) = (0, Vec::new());
        loop {
            let header = line(&mut stream)?.to_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            headers.push(header);
        }
        if headers.iter().any(|header| header == "upgrade: websocket") {
            let accepted =
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
            stream.get_mut().write_all(accepted.as_bytes()).ok()?;
            std::io::copy(&mut stream, &mut std::io::sink()).ok()?;
            return None;
        }
        let body_bytes = std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink()).ok()?;
        let mut words = request.split(' ').map(str::to_owned);
        let (method, path) = (words.next()?, words.next()?);
        let status = path.strip_prefix("/status/").unwrap_or("200 OK").to_owned();
        let body = if method == "HEAD" { "" } else { "ok\n" };
        if let Some(seen) = seen {
            seen.lock().unwrap().push(Seen { at, method, path, body_bytes, headers });
        }
        gate.pass();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\n{body}");
        stream.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let bytes = stream.read_line(&mut line).ok()?;
    (bytes > 0).then(|| line.trim_end().to_owned())
}
