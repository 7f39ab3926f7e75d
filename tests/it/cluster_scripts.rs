//! The records of shared keys in Rust and in Lua: the same messages have the same answers, in virtual time.

use std::fs;

use fastrand::Rng;
use slowlane_core::base::{Key, Timestamp};
use slowlane_core::cluster::{
    Answer, Arguments, CountMessage, CountReply, Grant, LeaseMessage, LeaseReply, Message, Plan, Records,
    Reply, Wants,
};

use crate::support::redis::{Redis, servers};
use crate::support::{own_address, project};

const MESSAGES: usize = 400;

/// Messages of this many keys alternate.
const KEYS: u64 = 4;

/// No record ends within a test: Redis would reckon with its own clock.
const KEPT_S: f64 = 1e6;

/// A number that the node does not know.
const UNKNOWN: i64 = i64::MIN;

/// The numbers of a message, but for the life of its record. Times are in microseconds.
type Generate = fn(&mut Rng) -> Vec<i64>;

/// The message of these numbers.
type Read = fn(&[i64]) -> Arguments;

/// Numbers of an answer, and by how much the rounding of the script may change each of them.
type Numbers = Vec<(f64, f64)>;

/// Redis takes the time from the last two arguments instead of its clock.
fn script(name: &str) -> String {
    let read = |name: &str| fs::read_to_string(project(&format!("src/sync/{name}.lua"))).unwrap();
    let script =
        (read("common") + &read(name)).replace("redis.call('TIME')", "{ARGV[#ARGV - 1], ARGV[#ARGV]}");
    assert!(script.contains("#ARGV"), "the clock is replaced");
    script
}

/// Mostly some milliseconds, often some seconds, and sometimes a minute.
fn step_us(rng: &mut Rng) -> u64 {
    match rng.u32(0..20) {
        0 => rng.u64(0..60_000_000),
        1..=7 => rng.u64(0..3_000_000),
        _ => rng.u64(0..200_000),
    }
}

/// With each server that a store may be.
fn are_the_same(name: &str, generate: Generate, read: Read) {
    for server in servers() {
        are_the_same_in(&Redis::of(server, own_address(), &[]), name, generate, read);
    }
}

fn are_the_same_in(redis: &Redis, name: &str, generate: Generate, read: Read) {
    let seed = std::env::var("SLOWLANE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("SLOWLANE_SEED={seed}");
    let (mut rng, script) = (Rng::with_seed(seed), script(name));
    let (mut records, mut now_us) = (Records::new(100), 1_000_000_000_000);
    for message in 0..MESSAGES {
        now_us += step_us(&mut rng);
        let (bits, numbers) = (rng.u64(0..KEYS), generate(&mut rng));
        let (key, arguments) = (format!("{bits:016X}"), read(&numbers));
        let written = match &arguments {
            Arguments::Rate(message) => serde_json::to_string(message),
            Arguments::Count(message) => serde_json::to_string(message),
            Arguments::Lease(message) => serde_json::to_string(message),
        };
        let [seconds, rest] = [now_us / 1_000_000, now_us % 1_000_000].map(|part| part.to_string());
        let of_lua = redis.ask(&["EVAL", &script, "1", &key, &written.unwrap(), &seconds, &rest]);
        let answer = records.post(Key::from_bits(bits), &arguments, Timestamp::from_nanos(now_us * 1_000));
        let of_rust = numbers_of(&answer);
        let answer = match &arguments {
            Arguments::Rate(_) => serde_json::from_str(&of_lua).map(Answer::Rate),
            Arguments::Count(_) => serde_json::from_str(&of_lua).map(Answer::Count),
            Arguments::Lease(_) => serde_json::from_str(&of_lua).map(Answer::Lease),
        };
        let lua: Vec<f64> = numbers_of(&answer.unwrap_or_else(|_| panic!("{of_lua}")))
            .iter()
            .map(|(number, _)| *number)
            .collect();
        let differs = |(lua, (rust, most)): (&f64, &(f64, f64))| (lua - rust).abs() > *most;
        let is_same = lua.len() == of_rust.len() && !lua.iter().zip(&of_rust).any(differs);
        assert!(is_same, "{name}, message {message}, {numbers:?}: {of_lua} in Lua, {of_rust:?} in Rust");
    }
}

/// The script rounds times to microseconds, and demands to a ten thousandth, with each message.
fn numbers_of(answer: &Answer) -> Numbers {
    const US: f64 = 400.0;
    match *answer {
        Answer::Rate(Reply { ahead_s, demand, slow_demand, age_s, ref grant }) => {
            let mut numbers =
                vec![(ahead_s * 1e6, US), (demand, 0.05), (slow_demand, 0.05), (age_s * 1e6, US)];
            if let Some(Grant { holes, first_s, count, refused }) = grant {
                numbers.extend([(first_s * 1e6, US), (f64::from(*count), 0.0), (f64::from(*refused), 0.0)]);
                numbers.extend(holes.iter().map(|hole_s| (hole_s * 1e6, US)));
            }
            numbers
        }
        Answer::Count(CountReply { current, before, over, age_s }) => {
            vec![(current, 0.5), (before, 0.5), (over, 0.5), (age_s * 1e6, US)]
        }
        Answer::Lease(LeaseReply { granted, given, rest_s }) => {
            vec![(granted, 0.5), (given, 0.5), (rest_s * 1e6, US)]
        }
    }
}

fn or_unknown(rng: &mut Rng, number: i64) -> i64 {
    if rng.u32(0..3) == 0 { UNKNOWN } else { number }
}

fn known(number: i64) -> Option<f64> {
    (number != UNKNOWN).then_some(number as f64)
}

/// What a node lets through and knows; and sometimes a node that has been without the store.
#[test]
fn rates_are_the_same() {
    let generate: Generate = |rng| {
        let (charge, restore) = (rng.i64(-500_000..3_000_000), rng.i64(-9_000_000..20_000_000));
        let (burst, cap) = (rng.i64(0..2) * 1_000_000, 10_200_000 + rng.i64(0..2) * 4_800_000);
        let (restore, known_us) = (or_unknown(rng, restore), rng.i64(0..2) * rng.i64(0..9_000_000));
        let (asked, lately, returns) = (rng.i64(0..100), rng.i64(0..100), i64::from(rng.u32(0..5) == 0));
        // Half of the messages are about held requests: slots that they want, and slots that they return.
        let wants = i64::from(rng.bool()) * rng.i64(1..40);
        let (waited, half_trip) = (rng.i64(0..3_000_000), rng.i64(0..100_000));
        let mut numbers = vec![
            charge, asked, lately, burst, cap, restore, 1_000_000, known_us, returns, wants, waited,
            half_trip,
        ];
        numbers.extend((0..rng.u32(0..6)).map(|_| rng.i64(-1_000_000..9_000_000)));
        numbers
    };
    are_the_same("rate", generate, |numbers| {
        let s = |place: usize| numbers[place] as f64 / 1e6;
        Arguments::Rate(Message {
            charge: numbers[0] as f64 / 1e5,
            slot_s: 0.1,
            asked: numbers[1] as f64,
            asked_lately: numbers[2] as f64,
            burst_s: s(3),
            cap_s: s(4) - Plan::AHEAD_MAX_S,
            restore_s: known(numbers[5]).map(|us| us / 1e6),
            memory_s: s(6),
            kept_s: KEPT_S,
            known_age_s: s(7),
            returns: numbers[8] == 1,
            wants: (numbers[9] > 0).then(|| Wants {
                run: numbers[10] as u64 % 3,
                number: numbers[11] as u64 % 50,
                want: numbers[9] as u32 - 1,
                waited_s: s(10),
                half_trip_s: s(11),
                back: (12..numbers.len()).map(s).collect(),
            }),
            own: 0.0,
        })
    });
}

/// Windows of five seconds, whose limit is edited.
#[test]
fn counts_are_the_same() {
    let generate: Generate = |rng| {
        let (charge, current) = (rng.i64(-20..200), rng.i64(0..1_500));
        let (before, over, age) = (rng.i64(0..1_500), rng.i64(0..500), rng.i64(0..5_000_000));
        let limit = 500 + rng.i64(0..2) * 500;
        vec![charge, or_unknown(rng, current), before, over, age, limit, 5_000_000]
    };
    are_the_same("count", generate, |numbers| {
        let number = |place: usize| numbers[place] as f64;
        let restore = known(numbers[1]).map(|current| CountReply {
            current,
            before: number(2),
            over: number(3),
            age_s: number(4) / 1e6,
        });
        let (charge, limit, window_s) = (number(0), number(5), number(6) / 1e6);
        Arguments::Count(CountMessage { charge, restore, limit, window_s, kept_s: KEPT_S })
    });
}

/// Quotas of a minute, whose limit is edited, some by the calendar. Near its end a node gets a part by its demand, which
/// is none here.
#[test]
fn leases_are_the_same() {
    let generate: Generate = |rng| {
        let (want, given) = (rng.i64(-20..60), rng.i64(0..900));
        let (rest, limit) = (rng.i64(-5_000_000..65_000_000), 400 + rng.i64(0..2) * 400);
        let (given, age) = (or_unknown(rng, given), rng.i64(0..60_000_000));
        let age = or_unknown(rng, age);
        vec![want, 0, given, rest, limit, 20, 60_000_000, age]
    };
    are_the_same("lease", generate, |numbers| {
        let number = |place: usize| numbers[place] as f64;
        Arguments::Lease(LeaseMessage {
            want: number(0),
            asked: number(1),
            restore: known(numbers[2]).map(|given| (given, number(3) / 1e6)),
            limit: number(4),
            kept_back: number(5),
            window_s: number(6) / 1e6,
            age_s: known(numbers[7]).map(|us| us / 1e6),
            kept_s: KEPT_S,
        })
    });
}
