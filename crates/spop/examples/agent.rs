//! An agent that counts requests: `cargo run -p spop --example agent 127.0.0.1:9000`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program, with sockets")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};

use spop::{Ack, Connection, Data, Frame, Scope, Step, Variable};

const COUNTED: Variable = Variable::new(Scope::Txn, b"count");

static COUNT: AtomicI64 = AtomicI64::new(0);

pub(crate) fn serve(mut stream: TcpStream) -> Result<(), Box<dyn std::error::Error>> {
    let (mut connection, mut unread, mut out) = (Connection::new(16_380), Vec::new(), Vec::new());
    let mut chunk = [0; 4_096];
    loop {
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            length => unread.extend_from_slice(&chunk[..length]),
        }
        let mut consumed = 0;
        while let Some((frame, length)) = Frame::cut(&unread[consumed..], connection.frame_bytes_max())? {
            consumed += length;
            match connection.receive(frame, &mut out) {
                Step::Continue => {}
                Step::Close(_) => return Ok(stream.write_all(&out)?),
                Step::Notify(notify) => {
                    let count = Data::Int64(COUNT.fetch_add(1, Ordering::Relaxed) + 1);
                    let ack = Ack::begin(&mut out, notify.stream_id, notify.frame_id);
                    ack.set(&COUNTED, count).finish();
                }
            }
        }
        unread.drain(..consumed);
        stream.write_all(&out)?;
        out.clear();
    }
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind(std::env::args().nth(1).expect("an address"))?;
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || serve(stream).map_err(|error| eprintln!("{error}")));
    }
    Ok(())
}
