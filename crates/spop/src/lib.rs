//! SPOP 2.0, the protocol between HAProxy and its agents, as plain values, without sockets or clocks.
//!
//! The protocol is defined by HAProxy's `doc/SPOE.txt`. Comments cite its sections.
//!
//! ```text
//!  HAProxy                                       agent
//!    │ HAPROXY-HELLO    versions, frame size       │
//!    │ ──────────────────────────────────────────▶ │
//!    │       version, frame size       AGENT-HELLO │
//!    │ ◀────────────────────────────────────────── │
//!    │ NOTIFY 7/1       messages with arguments    │
//!    │ NOTIFY 8/1                                  │
//!    │ ──────────────────────────────────────────▶ │    stream-id / frame-id
//!    │        variables to set, in any order   ACK │
//!    │ ◀────────────────────────────────────────── │
//!    │ HAPROXY-DISCONNECT        AGENT-DISCONNECT  │
//!    │ ◀─────────────────────────────────────────▶ │    either may begin; the agent closes
//! ```
//!
//! [`Frame::cut`] cuts frames from the read buffer, and [`Connection::receive`] processes them. Frames and messages
//! borrow from the read buffer, and answers are appended to the write buffer:
//!
//! ```
//! use spop::{Ack, Connection, Data, Error, Frame, Scope, Step, Variable};
//!
//! const ARGUMENTS: Variable = Variable::new(Scope::Txn, b"arguments");
//!
//! /// Answers every whole frame in `bytes` and returns their length.
//! fn answer(connection: &mut Connection, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Error> {
//!     let mut consumed = 0;
//!     while let Some((frame, length)) = Frame::cut(&bytes[consumed..], connection.frame_bytes_max())? {
//!         consumed += length;
//!         match connection.receive(frame, out) {
//!             Step::Continue => {}
//!             Step::Close(_) => break,
//!             Step::Notify(notify) => {
//!                 let mut arguments = 0;
//!                 let mut messages = notify.messages();
//!                 while let Some(message) = messages.next_message()? {
//!                     for argument in message.arguments() {
//!                         let (_name, _value) = argument?;
//!                         arguments += 1;
//!                     }
//!                 }
//!                 Ack::begin(out, notify.stream_id, notify.frame_id)
//!                     .set(&ARGUMENTS, Data::Int64(arguments))
//!                     .finish();
//!             }
//!         }
//!     }
//!     Ok(consumed)
//! }
//!
//! // HAProxy's side:
//! use spop::{Action, HaproxyHello, Kind, Notify};
//! let mut asked = Vec::new();
//! HaproxyHello::new(16_380).encode(&mut asked);
//! Notify::begin(&mut asked, 7, 1).message(b"request", &[(b"owner", Data::Str(b"acme"))]).finish();
//!
//! let mut answered = Vec::new();
//! assert_eq!(answer(&mut Connection::new(16_380), &asked, &mut answered), Ok(asked.len()));
//!
//! let (hello, length) = Frame::cut(&answered, 16_380)?.unwrap();
//! assert_eq!(hello.head.kind, Kind::AGENT_HELLO);
//! let (ack, _) = Frame::cut(&answered[length..], 16_380)?.unwrap();
//! let actions: Vec<_> = Ack::decode(ack)?.actions().collect();
//! assert_eq!(actions, [Ok(Action::SetVar { scope: Scope::Txn, name: b"arguments", value: Data::Int64(1) })]);
//! # Ok::<(), Error>(())
//! ```

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::dbg_macro,
    reason = "only the edge reads from and writes to the terminal"
)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "unit tests are exempt: Clippy enforces this crate's rules in the build without tests"
    )
)]

mod ack;
mod connection;
mod cursor;
mod data;
mod disconnect;
mod error;
mod frame;
mod hello;
mod names;
mod notify;
pub mod peers;
#[cfg(test)]
mod tests;
pub mod varint;

use cursor::Cursor;
use frame::FrameWriter;

pub use ack::{Ack, AckWriter, Action, EmptyAck, Scope, ShortAck, Variable};
pub use connection::{Close, Connection, Greeting, Step};
pub use data::{Data, encode_string, items};
pub use disconnect::Disconnect;
pub use error::{Error, ReadError, Status};
pub use frame::{FRAME_BYTES_MIN, Frame, Head, Kind};
pub use hello::{AgentHello, HaproxyHello};
pub use names::Names;
pub use notify::{Message, Messages, Notify, NotifyWriter};

/// Runs the examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
