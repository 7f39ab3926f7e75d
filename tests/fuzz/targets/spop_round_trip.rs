//! Whatever can be read is written again so that it reads the same.

use spop::{
    Ack, Action, AgentHello, Data, Disconnect, Error, Frame, HaproxyHello, Head, Kind, Notify, Variable,
};

/// The longest name of a variable that an agent sets.
const NAME_BYTES_MAX: usize = 12;

pub fn run(bytes: &[u8]) {
    frame(bytes);
    let of = |kind| Frame { head: Head::of_connection(kind), payload: bytes };
    haproxy_hello(of(Kind::HAPROXY_HELLO));
    agent_hello(of(Kind::AGENT_HELLO));
    disconnect(of(Kind::AGENT_DISCONNECT));
    notify(of(Kind::NOTIFY));
    ack(of(Kind::ACK));
}

/// A frame has one form only: it comes out as the same bytes.
fn frame(bytes: &[u8]) {
    let Ok(Some((frame, length))) = Frame::cut(bytes, u32::MAX) else { return };
    let mut out = Vec::new();
    frame.encode(&mut out);
    assert_eq!(out, bytes[..length]);
}

fn cut(bytes: &[u8]) -> Frame<'_> {
    let (frame, length) = Frame::cut(bytes, u32::MAX).expect("a frame").expect("a whole one");
    assert_eq!(length, bytes.len());
    frame
}

fn haproxy_hello(frame: Frame) {
    let Ok(hello) = HaproxyHello::decode(frame) else { return };
    let mut out = Vec::new();
    hello.encode(&mut out);
    assert_eq!(HaproxyHello::decode(cut(&out)), Ok(hello));
}

fn agent_hello(frame: Frame) {
    let Ok(hello) = AgentHello::decode(frame) else { return };
    let mut out = Vec::new();
    hello.encode(&mut out);
    assert_eq!(AgentHello::decode(cut(&out)), Ok(hello));
}

fn disconnect(frame: Frame) {
    let Ok(read) = Disconnect::decode(frame) else { return };
    let mut out = Vec::new();
    read.encode_as_agent(&mut out);
    let message = &read.message[..read.message.len().min(255)];
    assert_eq!(Disconnect::decode(cut(&out)), Ok(Disconnect { message, ..read }));
}

type Heard<'a> = Vec<(&'a [u8], Vec<(&'a [u8], Data<'a>)>)>;

fn notify(frame: Frame) {
    let Ok(heard) = walk(frame) else { return };
    let mut out = Vec::new();
    let writer = Notify::begin(&mut out, 0, 0);
    heard.iter().fold(writer, |writer, (name, arguments)| writer.message(name, arguments)).finish();
    assert_eq!(walk(cut(&out)), Ok(heard));
}

fn walk(frame: Frame<'_>) -> Result<Heard<'_>, Error> {
    let mut heard = Vec::new();
    let mut messages = Notify::decode(frame)?.messages();
    while let Some(message) = messages.next_message()? {
        let name = message.name;
        heard.push((name, message.arguments().collect::<Result<_, _>>()?));
    }
    Ok(heard)
}

/// An agent sets variables with short names, and does nothing else.
fn ack(frame: Frame) {
    let Ok(mut actions) = actions(frame) else { return };
    actions.retain(|action| set(action).is_some());
    let mut sets = actions.iter().filter_map(set);
    let Some((variable, value)) = sets.next() else { return };
    let mut out = Vec::new();
    let writer = Ack::begin(&mut out, 0, 0).set(&variable, value);
    sets.fold(writer, |writer, (variable, value)| writer.set(&variable, value)).finish();
    assert_eq!(self::actions(cut(&out)), Ok(actions));
}

fn set<'a>(action: &Action<'a>) -> Option<(Variable, Data<'a>)> {
    match *action {
        Action::SetVar { scope, name, value } if name.len() <= NAME_BYTES_MAX => {
            Some((Variable::new(scope, name), value))
        }
        _ => None,
    }
}

fn actions(frame: Frame<'_>) -> Result<Vec<Action<'_>>, Error> {
    Ack::decode(frame)?.actions().collect()
}
