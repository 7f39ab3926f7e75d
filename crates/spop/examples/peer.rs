//! A peer that prints the entries of HAProxy's stick tables: `cargo run -p spop --example peer 127.0.0.1:10000`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program, with sockets")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use spop::peers::{Hello, HelloStatus, Link, News};

pub(crate) fn listen(
    mut stream: TcpStream,
    print: impl Fn(&str, &[u8]),
) -> Result<(), Box<dyn std::error::Error>> {
    stream.set_read_timeout(Some(std::time::Duration::from_secs(1)))?;
    let (begun, mut unread, mut out, mut link) = (Instant::now(), Vec::new(), Vec::new(), None);
    let mut chunk = [0; 4_096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => unread.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        let now = begun.elapsed();
        if link.is_none()
            && let Some((_, length)) = Hello::cut(&unread).map_err(|status| format!("{status:?}"))?
        {
            unread.drain(..length);
            HelloStatus::OK.encode(&mut out);
            link = Some(Link::begin(now, &mut out));
        }
        if let Some(link) = &mut link {
            let consumed = link.receive(&unread, now, &mut out, &mut |news| {
                if let News::Updated(table, update) = news {
                    print(&table.name, update.key);
                }
            })?;
            unread.drain(..consumed);
            link.tick(now, &mut out).map_err(|silence| format!("silent for {silence:?}"))?;
            if !out.is_empty() {
                link.sent(now);
            }
        }
        stream.write_all(&out)?;
        out.clear();
    }
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind(std::env::args().nth(1).expect("an address"))?;
    for stream in listener.incoming().flatten() {
        let print = |table: &str, key: &[u8]| println!("{table}: {}", String::from_utf8_lossy(key));
        std::thread::spawn(move || listen(stream, print).map_err(|error| eprintln!("{error}")));
    }
    Ok(())
}
