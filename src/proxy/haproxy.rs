//! HAProxy's SPOE messages as queries, and decisions as HAProxy's variables.
//!
//! The names match the files in `haproxy/`: the messages `request`, `hold`, `abandoned` and `response`, and the
//! variables `txn.slowlane.verdict`, `delay`, `retry_after`, `slo`, `key`, `remaining`, `turn`, `ticket`, `end` and
//! `policy`.

use std::fmt::Write;
use std::time::Duration;

use arrayvec::ArrayString;
use serde::{Deserialize, Serialize};

use slowlane_core::base::{
    Amount, AmountError, Details, Ending, Key, KeySecret, POLICY_BYTES_MAX, Quota, Ruling, Ticket, Value,
    Verdict, counted,
};
use slowlane_core::policy::FieldPlace;
use spop::{Ack, Data, Error, Message, Messages, Names, Notify, Scope, ShortAck, Variable};

/// The query in a NOTIFY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question<'a> {
    /// `request`: requests a verdict. The arguments are the fields; `ratelimit` also requests the client's quota, and
    /// with `hold`, HAProxy will send the `hold` message if it gets a `turn`.
    Verdict { wants_quota: bool, may_hold: bool },
    /// `hold`: requests an answer after this delay, or at this turn.
    Hold { delay: Duration, turn: Option<(Key, u64)> },
    /// `abandoned`: reports that HAProxy has abandoned the hold of this delay before the hold's end.
    Abandoned(Duration),
    /// `response`: reports that the request with this ticket has ended, and its measures. The ticket is still sealed.
    End(&'a str, Result<Ending, AmountError>),
    /// Anything else. HAProxy waits for an answer to this, too.
    Nothing,
}

/// The stream-id and frame-id of a NOTIFY, unique on its connection until its ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Id {
    stream_id: u64,
    frame_id: u64,
}

impl Id {
    pub fn of(notify: &Notify<'_>) -> Id {
        Id { stream_id: notify.stream_id, frame_id: notify.frame_id }
    }
}

/// The arguments of the last `request` on a connection, each with a note of the place for its value. HAProxy sends the
/// same arguments each time.
#[derive(Debug, Default)]
pub struct Arguments {
    names: Names<Argument>,
}

impl Arguments {
    /// Forgets all notes.
    pub fn forget_notes(&mut self) {
        self.names.forget_tags();
    }
}

#[derive(Clone, Copy, Debug)]
struct Argument {
    role: Role,
    note: Option<FieldPlace>,
}

impl Argument {
    fn new(name: &[u8]) -> Argument {
        let role = match name {
            b"ratelimit" => Role::Quota,
            b"hold" => Role::Hold,
            b"cost" => Role::Cost,
            _ => Role::Field,
        };
        Argument { role, note: None }
    }
}

/// The role of an argument, which may also be a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Field,
    Cost,
    Hold,
    Quota,
}

/// Reads the query of a NOTIFY.
///
/// If there are several queries, the first is used. Messages with unknown names are ignored, and so are unknown
/// arguments of messages other than `request`. `field` gets each field of a request as it is read, even if an invalid
/// part follows, and with each field the note that is kept for its name.
///
/// # Errors
/// A part of the NOTIFY is unreadable.
pub fn question<'a>(
    notify: &Notify<'a>,
    arguments: &mut Arguments,
    mut field: impl FnMut(&mut Option<FieldPlace>, &'a [u8], Value<'a>),
) -> Result<Question<'a>, Error> {
    let mut messages = notify.messages();
    let Some(message) = messages.next_message()? else { return Ok(Question::Nothing) };
    let question = match message.name {
        b"request" => request(message, arguments, &mut field)?,
        _ => other(message)?,
    };
    if messages.is_at_end() && question != Question::Nothing {
        return Ok(question);
    }
    question_of_several(question, messages, arguments, &mut field)
}

/// Reads the messages after the first one. Usually there are no more messages.
#[cold]
fn question_of_several<'a>(
    mut question: Question<'a>,
    mut messages: Messages<'a>,
    arguments: &mut Arguments,
    field: &mut impl FnMut(&mut Option<FieldPlace>, &'a [u8], Value<'a>),
) -> Result<Question<'a>, Error> {
    while let Some(message) = messages.next_message()? {
        if question == Question::Nothing {
            question = match message.name {
                b"request" => request(message, arguments, field)?,
                _ => other(message)?,
            };
        }
    }
    Ok(question)
}

/// Reads a message other than `request`.
#[inline(never)]
fn other<'a>(message: Message<'_, 'a>) -> Result<Question<'a>, Error> {
    match message.name {
        name @ (b"hold" | b"abandoned") => {
            let (mut delay, mut key, mut number) = (Duration::ZERO, None, None);
            message.each_argument(|name, data| match name {
                b"delay" => delay = milliseconds(data),
                b"key" => key = data.to_i64().map(|bits| Key::from_bits(bits as u64)),
                b"turn" => number = data.to_i64().map(|number| number as u64),
                _ => {}
            })?;
            let turn = key.zip(number);
            Ok(if name == b"hold" { Question::Hold { delay, turn } } else { Question::Abandoned(delay) })
        }
        b"response" => {
            let (mut ticket, mut ending) = (None, Ok(Ending::default()));
            message.each_argument(|name, data| match (name, &mut ending) {
                (b"ticket", _) => ticket = text(data),
                (b"cost", Ok(known)) => ending = amount(data).map(|cost| Ending { cost, ..*known }),
                (b"seconds", Ok(known)) => ending = amount(data).map(|seconds| Ending { seconds, ..*known }),
                (b"bytes", Ok(known)) => ending = amount(data).map(|bytes| Ending { bytes, ..*known }),
                _ => {}
            })?;
            Ok(ticket.map_or(Question::Nothing, |ticket| Question::End(ticket, ending)))
        }
        _ => Ok(Question::Nothing),
    }
}

/// Reads a request. This is a separate function, because together with the other messages, its values would not stay in
/// registers.
#[inline(never)]
fn request<'a>(
    message: Message<'_, 'a>,
    arguments: &mut Arguments,
    field: &mut impl FnMut(&mut Option<FieldPlace>, &'a [u8], Value<'a>),
) -> Result<Question<'a>, Error> {
    let (mut wants_quota, mut may_hold) = (false, false);
    message.each_named(&mut arguments.names, |known, name, data| {
        let Argument { role, note } = known.get_or_insert_with(|| Argument::new(name));
        let value = match data {
            Data::Str(bytes) | Data::Bin(bytes) if !bytes.is_empty() => Value::Text(bytes),
            // HAProxy sends NULL for a missing sample.
            Data::Str(_) | Data::Bin(_) | Data::Null => return,
            Data::Ipv4(address) => Value::Address(address.into()),
            // A BOOL is not a valid cost. As a number, `false` would make a request free.
            Data::Bool(_) if *role == Role::Cost => Value::Text(b"a boolean"),
            Data::Bool(truth) => {
                wants_quota |= truth && *role == Role::Quota;
                may_hold |= truth && *role == Role::Hold;
                Value::Number(truth.into())
            }
            Data::Ipv6(address) => Value::address(address.into()),
            number => match number.to_i64() {
                Some(number) => Value::Number(number),
                None => return,
            },
        };
        field(note, name, value);
    })?;
    Ok(Question::Verdict { wants_quota, may_hold })
}

fn text(data: Data<'_>) -> Option<&str> {
    if let Data::Str(text) = data { std::str::from_utf8(text).ok() } else { None }
}

/// A measure of a request that has ended; `None` for empty text and for NULL, which HAProxy sends for a missing sample.
fn amount(data: Data<'_>) -> Result<Option<Amount>, AmountError> {
    match data {
        Data::Null | Data::Str(b"") => Ok(None),
        Data::Str(text) => Amount::read(text).map(Some),
        Data::Int32(_) | Data::Uint32(_) | Data::Int64(_) | Data::Uint64(_) => {
            Amount::try_from(data.to_i64().ok_or(AmountError::TooLarge)?).map(Some)
        }
        _ => Err(AmountError::NoNumber),
    }
}

/// The delay of a `hold` in milliseconds. Negative numbers and other types mean no delay.
fn milliseconds(data: Data<'_>) -> Duration {
    let delay_ms = data.to_i64().and_then(|delay_ms| u64::try_from(delay_ms).ok());
    Duration::from_millis(delay_ms.unwrap_or(0))
}

const VERDICT: Variable = Variable::new(Scope::Txn, b"verdict");
const DELAY: Variable = Variable::new(Scope::Txn, b"delay");
const RETRY_AFTER: Variable = Variable::new(Scope::Txn, b"retry_after");
const SLO: Variable = Variable::new(Scope::Txn, b"slo");
const KEY: Variable = Variable::new(Scope::Txn, b"key");
const REMAINING: Variable = Variable::new(Scope::Txn, b"remaining");
const POLICY: Variable = Variable::new(Scope::Txn, b"policy");
const TURN: Variable = Variable::new(Scope::Txn, b"turn");
const TICKET: Variable = Variable::new(Scope::Txn, b"ticket");
const END: Variable = Variable::new(Scope::Txn, b"end");
const UNKNOWN: Variable = Variable::new(Scope::Txn, b"unknown");

/// Appends the answer to a `request`, with the client's quota if requested.
#[inline]
pub fn answer_verdict(
    id: Id,
    (ruling, details): (&Ruling, Option<&Details>),
    secret: KeySecret,
    quota: Option<Quota>,
    out: &mut Vec<u8>,
) {
    if details.is_none() && quota.is_none() && ruling.verdict.is_let_through() {
        answer_briefly(id, ruling, out);
    } else {
        answer_in_full(id, ruling, details, secret, quota, out);
    }
}

fn answer_in_full(
    id: Id,
    ruling: &Ruling,
    details: Option<&Details>,
    secret: KeySecret,
    quota: Option<Quota>,
    out: &mut Vec<u8>,
) {
    let mut ack = Ack::begin(out, id.stream_id, id.frame_id)
        .set(&VERDICT, Data::Str(ruling.verdict.name().as_bytes()))
        .set(&DELAY, Data::Int64(ruling.verdict.delay_ms() as i64))
        .set(&SLO, Data::Int64(ruling.slo.number().into()))
        .set(&KEY, Data::Int64(ruling.key.bits() as i64));
    if let Some(remaining) = counted(ruling.remaining) {
        ack = ack.set(&REMAINING, Data::Int64(remaining.into()));
    }
    if let Some(&Details { turn, .. }) = details.filter(|details| details.turn != 0) {
        ack = ack.set(&TURN, Data::Int64(turn as i64));
    }
    if let Some(quota) = quota {
        let mut policy = ArrayString::<POLICY_BYTES_MAX>::new();
        write!(policy, "\"{}\";{quota}", ruling.slo.number()).expect("the parts of a policy fit the text");
        ack = ack.set(&POLICY, Data::Str(policy.as_bytes()));
    }
    if let Verdict::Deny { retry_after_s } = ruling.verdict {
        ack = ack.set(&RETRY_AFTER, Data::Int64(retry_after_s.into()));
    } else if let Some(details) = details
        && let Some(ticket) = details.ticket(ruling)
    {
        ack = ack.set(&TICKET, Data::Str(written(&ticket, secret).as_bytes()));
        if details.ends_with_stream() {
            ack = ack.set(&END, Data::Str(b"stream"));
        }
    }
    ack.finish();
}

/// Writes the same bytes as [`answer_in_full`] for a request that is let through without details and without a quota.
/// The constant bytes are encoded beforehand.
#[inline]
fn answer_briefly(id: Id, ruling: &Ruling, out: &mut Vec<u8>) {
    let mut ack = ShortAck::default();
    ack.begin(id.stream_id, id.frame_id);
    if ruling.verdict == Verdict::Pass {
        ack.bytes(b"\x01\x03\x02\x07verdict\x08\x04pass\x01\x03\x02\x05delay\x04\0");
    } else {
        ack.bytes(b"\x01\x03\x02\x07verdict\x08\x05delay\x01\x03\x02\x05delay\x04");
        ack.number(ruling.verdict.delay_ms());
    }
    ack.bytes(b"\x01\x03\x02\x03slo\x04");
    ack.number(ruling.slo.number().into());
    ack.bytes(b"\x01\x03\x02\x03key\x04");
    ack.number(ruling.key.bits());
    if let Some(remaining) = counted(ruling.remaining) {
        ack.bytes(b"\x01\x03\x02\x09remaining\x04");
        ack.number(remaining.into());
    }
    ack.finish(out);
}

fn written(ticket: &Ticket, secret: KeySecret) -> ArrayString<{ Ticket::TEXT_BYTES_MAX }> {
    let mut text = ArrayString::new();
    write!(text, "{}", ticket.sealed(secret)).expect("the parts of a ticket fit the text");
    text
}

/// Appends the answer to a finished `hold`: `pass`, or the configured verdict if holding was impossible.
///
/// HAProxy's `hold` group has a different variable prefix, so the variables of the verdict keep their values.
pub fn answer_hold(id: Id, verdict: Verdict, out: &mut Vec<u8>) {
    let name = Data::Str(verdict.name().as_bytes());
    let mut ack = Ack::begin(out, id.stream_id, id.frame_id).set(&VERDICT, name);
    if let Verdict::Deny { retry_after_s } = verdict {
        ack = ack.set(&RETRY_AFTER, Data::Int64(retry_after_s.into()));
    }
    ack.finish();
}

/// Appends an answer without effect. An ACK needs an action, so this one unsets a variable that is never set.
pub fn answer_nothing(id: Id, out: &mut Vec<u8>) {
    Ack::begin(out, id.stream_id, id.frame_id).set(&UNKNOWN, Data::Null).finish();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use slowlane_core::base::{Assurance, Decision, Ends, Judged, Request, SloId, Timestamp};
    use spop::{Action, Frame};

    const SECRET: KeySecret = KeySecret::KNOWN;
    const VERDICT_ALONE: Question<'_> = Question::Verdict { wants_quota: false, may_hold: false };

    type Spoken<'a> = (&'a [u8], &'a [(&'a [u8], Data<'a>)]);

    /// A NOTIFY with these messages, encoded for the wire.
    fn notify(messages: &[Spoken<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let writer = Notify::begin(&mut bytes, 7, 1);
        messages.iter().fold(writer, |writer, (name, arguments)| writer.message(name, arguments)).finish();
        bytes
    }

    fn asked(bytes: &[u8]) -> Result<Question<'_>, Error> {
        question(&read(bytes), &mut Arguments::default(), |_, _, _| {})
    }

    fn read(bytes: &[u8]) -> Notify<'_> {
        Notify::decode(Frame::cut(bytes, 16_380).unwrap().unwrap().0).unwrap()
    }

    #[test]
    fn arguments_are_fields_and_null_is_none() {
        let arguments: [(&[u8], Data); 6] = [
            (b"source", Data::Ipv6("::ffff:192.0.2.1".parse().unwrap())),
            (b"website", Data::Str(b"\xff.example")),
            (b"owner", Data::Null),
            (b"empty", Data::Str(b"")),
            (b"secure", Data::Bool(true)),
            (b"", Data::Int64(-5)),
        ];
        let bytes = notify(&[(b"request", &arguments)]);
        let mut request = Request::new();
        let mut arguments = Arguments::default();
        let asked = question(&read(&bytes), &mut arguments, |_, name, value| request.push(name, value));
        assert_eq!(asked, Ok(VERDICT_ALONE));
        assert_eq!(request.get(b"source"), Some(Value::Address("192.0.2.1".parse().unwrap())));
        assert_eq!(request.get(b"website"), Some(Value::Text(b"\xff.example")));
        assert_eq!([request.get(b"owner"), request.get(b"empty")], [None, None]);
        assert_eq!(request.get(b"secure"), Some(Value::Number(1)));
        assert_eq!(request.get(b""), Some(Value::Number(-5)));
    }

    #[test]
    fn a_truth_is_no_cost_and_a_large_number_stays_large() {
        let cost = |data| {
            let bytes = notify(&[(b"request", &[(b"cost", data)])]);
            let mut request = Request::new();
            let mut arguments = Arguments::default();
            question(&read(&bytes), &mut arguments, |_, name, value| request.push(name, value)).unwrap();
            match request.get(b"cost") {
                Some(Value::Number(cost)) => Some(cost),
                Some(Value::Text(b"a boolean")) => Some(-1),
                other => other.map(|cost| panic!("{cost:?}")),
            }
        };
        assert_eq!([Data::Bool(false), Data::Bool(true), Data::Null].map(cost), [Some(-1), Some(-1), None]);
        assert_eq!([Data::Uint64(1 << 63), Data::Int64(0)].map(cost), [Some(i64::MAX), Some(0)]);
    }

    #[test]
    fn the_first_question_counts_and_others_are_walked_over() {
        let delay: [(&[u8], Data); 1] = [(b"delay", Data::Int64(250))];
        let bytes = notify(&[(b"other", &delay), (b"hold", &delay), (b"request", &delay)]);
        assert_eq!(asked(&bytes), Ok(Question::Hold { delay: Duration::from_millis(250), turn: None }));
        assert_eq!(asked(&notify(&[(b"other", &delay)])), Ok(Question::Nothing));
        assert_eq!(asked(&notify(&[])), Ok(Question::Nothing));
    }

    #[test]
    fn an_invalid_delay_is_not_held() {
        for data in [Data::Null, Data::Str(b"250"), Data::Int64(-250), Data::Bool(true)] {
            let bytes = notify(&[(b"hold", &[(b"delay", data)])]);
            assert_eq!(asked(&bytes), Ok(Question::Hold { delay: Duration::ZERO, turn: None }), "{data:?}");
        }
    }

    #[test]
    fn a_notify_that_is_broken_at_its_end_asks_nothing() {
        let mut bytes = notify(&[(b"request", &[])]);
        bytes.push(9);
        bytes[3] += 1;
        assert!(asked(&bytes).is_err());
    }

    fn decision(verdict: Verdict, slo: SloId, ends: Ends) -> Decision {
        let key = Key::from_bits(u64::MAX);
        let judged = Judged {
            slo,
            key,
            verdict,
            remaining: 4,
            cost: 1,
            is_dry_run: false,
            ends,
            assurance: Assurance::NONE,
        };
        Decision::of(&[judged], 1, Timestamp::from_millis(90_000))
    }

    #[test]
    fn a_ticket_comes_with_the_verdict_and_goes_with_the_response() {
        let decision = decision(Verdict::Pass, SloId::new(2001).unwrap(), Ends::InFlight);
        let mut out = Vec::new();
        answer_verdict(Id { stream_id: 1, frame_id: 1 }, decision.parts(), SECRET, None, &mut out);
        let ack = Ack::decode(Frame::cut(&out, 256).unwrap().unwrap().0).unwrap();
        let ticket = ack.actions().find_map(|action| match action.unwrap() {
            Action::SetVar { name: b"ticket", value, .. } => Some(value),
            _ => None,
        });
        let bytes = notify(&[(b"response", &[(b"ticket", ticket.unwrap())])]);
        let Ok(Question::End(text, Ok(_))) = asked(&bytes) else { panic!("{:?}", asked(&bytes)) };
        assert_eq!(Ticket::open(text, SECRET), Ok(decision.ticket().unwrap()));
        for nonsense in [Data::Str(b"\xFF"), Data::Int64(1), Data::Null] {
            let bytes = notify(&[(b"response", &[(b"ticket", nonsense)])]);
            assert_eq!(asked(&bytes), Ok(Question::Nothing));
        }
    }

    #[test]
    fn the_quota_is_sent_on_request() {
        let arguments =
            |asked| notify(&[(b"request", &[(b"ratelimit", asked), (b"owner", Data::Str(b"acme"))])]);
        assert_eq!(
            asked(&arguments(Data::Bool(true))),
            Ok(Question::Verdict { wants_quota: true, may_hold: false })
        );
        for not in [Data::Bool(false), Data::Str(b"true"), Data::Null, Data::Int64(1)] {
            assert_eq!(asked(&arguments(not)), Ok(VERDICT_ALONE), "{not:?}");
        }
        let decision = decision(Verdict::Deny { retry_after_s: 3 }, SloId::new(3001).unwrap(), Ends::Never);
        let answer = |quota| {
            let mut out = Vec::new();
            answer_verdict(Id { stream_id: 1, frame_id: 1 }, decision.parts(), SECRET, quota, &mut out);
            out
        };
        let mut without = Vec::new();
        answer_verdict(Id { stream_id: 1, frame_id: 1 }, decision.parts(), SECRET, None, &mut without);
        assert_eq!(answer(None), without);
        let with = answer(Some(Quota::Window { requests: 100, window_s: 2 }));
        let ack = Ack::decode(Frame::cut(&with, 256).unwrap().unwrap().0).unwrap();
        let policy =
            Action::SetVar { scope: Scope::Txn, name: b"policy", value: Data::Str(b"\"3001\";q=100;w=2") };
        assert!(ack.actions().any(|action| action == Ok(policy)));
    }

    proptest! {
        #[test]
        fn a_brief_answer_is_the_full_one(
            delay in prop_oneof![Just(0), 1_u64..10_000_000_000_000], bits: u64, number in 0..SloId::END, remaining: u32,
            stream_id: u64, frame_id: u64,
        ) {
            let ruling = Ruling {
                verdict: Verdict::after(Duration::from_nanos(delay)),
                key: Key::from_bits(bits),
                at: Timestamp::from_millis(90_000),
                remaining,
                cost: 1,
                slo: SloId::new(number).unwrap(),
            };
            let id = Id { stream_id, frame_id };
            let (mut brief, mut full) = (Vec::new(), Vec::new());
            answer_briefly(id, &ruling, &mut brief);
            answer_in_full(id, &ruling, None, SECRET, None, &mut full);
            prop_assert_eq!(brief, full);
        }
    }

    #[test]
    fn a_denial_sets_all_its_variables() {
        let slo = SloId::new(3001).unwrap();
        let verdict = Verdict::Deny { retry_after_s: 3 };
        let mut out = Vec::new();
        let id = Id { stream_id: 0, frame_id: 9 };
        answer_verdict(id, decision(verdict, slo, Ends::Never).parts(), SECRET, None, &mut out);
        let ack = Ack::decode(Frame::cut(&out, 256).unwrap().unwrap().0).unwrap();
        assert_eq!((ack.stream_id, ack.frame_id), (0, 9));
        let set = |name, value| Ok(Action::SetVar { scope: Scope::Txn, name, value });
        let actions: Vec<_> = ack.actions().collect();
        let want = [
            set(b"verdict", Data::Str(b"deny")),
            set(b"delay", Data::Int64(0)),
            set(b"slo", Data::Int64(3001)),
            set(b"key", Data::Int64(-1)),
            set(b"remaining", Data::Int64(4)),
            set(b"retry_after", Data::Int64(3)),
        ];
        assert_eq!(actions, want);
    }
}
