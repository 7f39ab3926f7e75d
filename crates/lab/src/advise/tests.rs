//! Generated logs: what is proposed spares what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::Cursor;
use std::net::Ipv4Addr;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::access_log::{Choice, Format};
use crate::advise::proposal::others;
use crate::replay::KEYS_MAX;
use slowlane_core::base::{Period, Rate, Verdict};
use slowlane_core::law::{Arrival, Law, Objective, Options};
use slowlane_core::table::Entry;

const BEGIN_MS: u64 = 1_700_000_000_000;

/// A time in ms, and the number of a client.
type Asked = (u64, u8);

/// Requests of many clients: bursts, pauses, and a steady one.
fn asked() -> impl Strategy<Value = Vec<Asked>> {
    let gap = prop_oneof![4 => 0u64..30, 2 => 0u64..900, 1 => 0u64..20_000];
    prop::collection::vec((gap, prop_oneof![0u8..40, Just(0)]), 1..400).prop_map(|all| {
        let mut ms = BEGIN_MS;
        let ask = |(gap, client)| {
            ms += gap;
            (ms, client)
        };
        all.into_iter().map(ask).collect()
    })
}

/// A log with milliseconds.
fn log(asked: &[Asked]) -> String {
    let line = |(ms, client): &Asked| {
        format!("192.0.2.{client} {}.{:03} \"GET / HTTP/1.1\"\n", ms / 1_000, ms % 1_000)
    };
    asked.iter().map(line).collect()
}

/// The same log, as nginx writes it: without the fractions.
fn log_in_seconds(asked: &[Asked]) -> String {
    let line = |(ms, client): &Asked| {
        let at = date::written(Timestamp::from_millis(ms / 1_000 * 1_000)).replace(' ', "T");
        format!("192.0.2.{client} {at}+00:00 \"GET / HTTP/1.1\"\n")
    };
    asked.iter().map(line).collect()
}

const IN_MS: &str = "$remote_addr $msec \"$request\"";
const IN_SECONDS: &str = "$remote_addr $time_iso8601 \"$request\"";

fn settings(by: &str, spare: f64, format: &str) -> Settings {
    let by = if by.is_empty() { Vec::new() } else { vec![by.parse().unwrap()] };
    let reading = replay::ReplaySettings {
        measures: Vec::new(),
        format: Choice::This(Format::parse(format).unwrap()),
        mappings: Vec::new(),
        reorder: Duration::from_secs(60),
        seed: 0,
        top: 1_000,
    };
    let sizing = Sizing { entries_max: 1_000_000, expire: Duration::from_secs(30) };
    Settings { by, spare, except_bots: false, sizing, reading }
}

fn advice(log: &str, settings: &Settings) -> Result<Advice, AdviseError> {
    let open = || Ok(vec![Input { name: "log".into(), bytes: Box::new(Cursor::new(log.to_owned())) }]);
    advise(open, settings, |_| {})
}

fn law(pair: &Pair) -> Law {
    let objective = Objective { burst: pair.burst, rate: pair.rate.parse().unwrap() };
    Law::new("pace", objective, Options::default()).unwrap()
}

/// The clients that wait under a law, by the law itself.
fn waiting(law: &Law, asked: &[Asked]) -> BTreeSet<u8> {
    let mut entries: BTreeMap<u8, Entry> = BTreeMap::new();
    let judge = |&(ms, client): &Asked| {
        let entry = entries.entry(client).or_default();
        (client, law.judge(entry, None, &Arrival::at(Timestamp::from_millis(ms))).verdict)
    };
    asked
        .iter()
        .map(judge)
        .filter(|(_, verdict)| *verdict != Verdict::Pass)
        .map(|(client, _)| client)
        .collect()
}

fn clients(asked: &[Asked]) -> usize {
    asked.iter().map(|(_, client)| client).collect::<BTreeSet<_>>().len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The law that serves agrees with the replay: at least this many clients never wait, and those named do.
    #[test]
    fn a_proposal_spares_what_it_says(asked in asked(), spare in prop_oneof![Just(99.9), Just(90.0), Just(50.0), Just(0.0)]) {
        let settings = settings("source", spare, IN_MS);
        let advice = advice(&log(&asked), &settings).unwrap();
        let proposal = &advice.types[0];
        let waiting = waiting(&law(&proposal.proposed), &asked);
        prop_assert!(waiting.len() <= others(settings.spare, clients(&asked)));
        prop_assert_eq!(proposal.spared, clients(&asked) - waiting.len());
        let named: BTreeSet<String> = proposal.waiting.iter().map(|client| client.who.clone()).collect();
        let named_by_law = waiting.iter().map(|client| format!("source=192.0.2.{client}"));
        prop_assert_eq!(named, named_by_law.collect::<BTreeSet<String>>());
    }

    /// In whole seconds, requests of two seconds may have been milliseconds apart.
    #[test]
    fn a_proposal_from_whole_seconds_spares_at_the_true_times(asked in asked(), spare in prop_oneof![Just(99.9), Just(80.0)]) {
        let settings = settings("source", spare, IN_SECONDS);
        let advice = advice(&log_in_seconds(&asked), &settings).unwrap();
        prop_assert!(advice.whole_seconds);
        let others = others(settings.spare, clients(&asked));
        prop_assert!(advice.types[0].clients - advice.types[0].spared <= others);
        for pair in &advice.types[0].pairs {
            prop_assert!(waiting(&law(pair), &asked).len() <= others, "{:?}", pair);
        }
    }

    #[test]
    fn the_burst_of_a_client_is_the_smallest(gaps_ms in prop::collection::vec(0u64..3_000, 1..60), rate in 0..RATES.len()) {
        let (mut client, mut ms) = (Client::default(), BEGIN_MS);
        let mut asked = Vec::new();
        for gap in gaps_ms {
            ms += gap;
            client.count(ms * 1_000_000, 1, None);
            asked.push((ms, 0));
        }
        let burst = client.burst(rate, 0) as u32;
        let waits = |burst| {
            let objective = Objective { burst, rate: RATES[rate] };
            !waiting(&Law::new("pace", objective, Options::default()).unwrap(), &asked).is_empty()
        };
        prop_assert!(burst >= 1 && !waits(burst) && waits(burst - 1));
    }

    /// Clients choose the values: none breaks the lines that are printed, and each line limits its value.
    #[test]
    fn any_values_of_a_field_give_lines_that_can_be_read(
        values in prop::collection::vec("[ -~]{0,9}|#x|a b|\\PC{1,5}|[a-z.]{1,4}|[ -~é]{150,300}", 1..20), by in prop_oneof![Just("owner"), Just("website"), Just("source+owner"), Just("key")],
    ) {
        let value = |text: &str| text.replace(['\\', '"', '\n'], "");
        let line = |text: &String| format!("192.0.2.1 {}.000 \"GET / HTTP/1.1\" \"{}\"\n", BEGIN_MS / 1_000, value(text));
        let log: String = values.iter().map(line).collect();
        let field = by.rsplit('+').next().unwrap();
        let item = if field == "website" { "$host".to_owned() } else { format!("$slowlane_{field}") };
        let mut settings = settings(by, 99.9, &format!("$remote_addr $msec \"$request\" \"{item}\""));
        settings.reading.top = 5;
        match advice(&log, &settings) {
            Ok(advice) => {
                let proposal = &advice.types[0];
                prop_assert!((1..=5).contains(&proposal.lines.map_lines.lines().count()));
                let keys = proposal.lines.map_lines.lines().map(|line| line.rsplit_once(' ').unwrap().0);
                prop_assert!(keys.clone().all(|key| !key.is_empty() && !key.contains(' ') && !key.starts_with('#')));
                prop_assert_eq!(proposal.spared, proposal.clients);
                let wanted: BTreeSet<&str> = values.iter().map(|text| &**text).filter(|text| !text.is_empty()).collect();
                let is_any = by == "key" && values.iter().all(|text| text == &value(text) && text != "-");
                prop_assert!(!is_any || proposal.lines.map_lines.lines().count() == wanted.len().min(5), "{:?}", proposal.lines.map_lines);
            }
            Err(AdviseError::NoClients(_)) => {}
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

/// Eleven at once, then one each second: 1/s needs a burst of 11, and so does any higher rate.
#[test]
fn the_pair_that_admits_least_in_ten_seconds_is_proposed() {
    let mut asked: Vec<Asked> = (0..11).map(|_| (BEGIN_MS, 1)).collect();
    asked.extend((1..100).map(|second| (BEGIN_MS + second * 1_000, 1)));
    let proposal = &advice(&log(&asked), &settings("source", 100.0, IN_MS)).unwrap().types[0];
    let pair = |rate: &str| proposal.pairs.iter().find(|pair| pair.rate == rate).unwrap();
    assert_eq!([pair("1/s").burst, pair("30/m").burst], [11, 61]);
    assert_eq!(proposal.pairs.last().unwrap().rate, "1/s");
    assert_eq!((proposal.proposed.burst, &*proposal.proposed.rate), (11, "1/s"));
    assert_eq!(proposal.proposed.admits_in_10_s, 21);
    assert_eq!(proposal.lines.slo_line, "3001 burst=11 rate=1/s dry_run=yes");
    assert_eq!(proposal.lines.map_lines, "0.0.0.0/0 3001\n::/0 3001\n");
}

#[test]
fn the_rates_rise_and_are_read_as_they_are_written() {
    assert!(RATES.windows(2).all(|pair| pair[0].slot() > pair[1].slot()));
    assert_eq!(RATES[0], Rate::new(1, Period::Minute).unwrap());
    assert_eq!(RATES.map(|rate| rate.to_string()).last().unwrap(), "100000/s");
}

#[test]
fn bots_may_wait() {
    let mut log = String::new();
    for second in 0..3_600 {
        let _ = writeln!(log, "192.0.2.1 {}.000 \"GET / HTTP/1.1\" \"-\"", BEGIN_MS / 1_000 + second);
    }
    for _ in 0..50 {
        let _ = writeln!(log, "192.0.2.2 {}.500 \"GET / HTTP/1.1\" \"Googlebot/2.1\"", BEGIN_MS / 1_000);
    }
    for number in 3..13 {
        let _ = writeln!(log, "192.0.2.{number} {}.700 \"GET / HTTP/1.1\" \"Mozilla/5.0\"", BEGIN_MS / 1_000);
    }
    let format = "$remote_addr $msec \"$request\" \"$http_user_agent\"";
    let all = advice(&log, &settings("source", 100.0, format)).unwrap();
    let [all] = &all.types[..] else { panic!("one type") };
    assert_eq!((all.clients, all.bots, all.steady_bots, all.spared, all.waiting_clients), (12, 2, 1, 12, 0));
    let people = advice(&log, &Settings { except_bots: true, ..settings("source", 100.0, format) }).unwrap();
    let [people] = &people.types[..] else { panic!("one type") };
    assert_eq!((people.to_spare, people.spared, people.proposed.burst), (10, 10, 1));
    let bots: Vec<_> = people.waiting.iter().map(|client| client.bot.as_deref().unwrap()).collect();
    assert_eq!(bots, ["(steady)", "Googlebot/2.1"]);
    let only = log
        .lines()
        .take(10)
        .map(|line| format!("{line}\n").replace("\"-\"", "\"a bot\""))
        .collect::<String>();
    let none = advice(&only, &Settings { except_bots: true, ..settings("source", 100.0, format) });
    assert!(matches!(none, Err(AdviseError::NoClients(by)) if by == "source"));
}

/// An attacker has more addresses than there is room for, in a log whose times go back. Busy clients stay.
#[test]
fn a_flood_of_clients_is_bounded_and_said() {
    let mut log = String::new();
    for number in 0..KEYS_MAX as u32 * 3 / 2 {
        let second = BEGIN_MS / 1_000 + u64::from(number % 7) * 1_000;
        let _ = writeln!(log, "{} {second}.000 \"GET / HTTP/1.1\"", Ipv4Addr::from(0x0A00_0000 + number));
        if number % 100 == 0 {
            let _ = writeln!(log, "192.0.2.1 {second}.000 \"GET / HTTP/1.1\"");
        }
    }
    let advice = advice(&log, &settings("source", 99.9, IN_MS)).unwrap();
    let proposal = &advice.types[0];
    assert!(proposal.clients <= KEYS_MAX, "{}", proposal.clients);
    assert_eq!((&*proposal.busiest[0].who, proposal.busiest[0].requests), ("source=192.0.2.1", 1_967));
    assert!(advice.notes.iter().any(|note| note.contains("so the figures leave out")), "{:?}", advice.notes);
}

#[test]
fn fields_that_no_request_has_are_an_error_only_if_asked_for() {
    let log = log(&[(BEGIN_MS, 1)]);
    let usual = advice(&log, &settings("", 99.9, IN_MS)).unwrap();
    assert_eq!(usual.types.iter().map(|proposal| &*proposal.by).collect::<Vec<_>>(), ["source"]);
    let error = advice(&log, &settings("source+api_key", 99.9, IN_MS)).unwrap_err();
    assert!(matches!(error, AdviseError::NoClients(by) if by == "source+api_key"));
}

#[test]
fn a_field_of_its_own_has_a_type_from_6_on() {
    let format = "$remote_addr $msec \"$request\" $http_x_key";
    let log = format!("192.0.2.1 {}.000 \"GET / HTTP/1.1\" k7\n", BEGIN_MS / 1_000);
    let mut settings = settings("source+key", 99.9, format);
    settings.reading.mappings = vec!["key=$http_x_key".parse().unwrap()];
    let proposal = &advice(&log, &settings).unwrap().types[0];
    assert_eq!((&*proposal.lines.map, &*proposal.lines.map_lines), ("key.map", "k7 6001\n"));
    assert!(
        proposal.lines.config.starts_with("[policy.types]\n6 = [\"source\", \"key\"]\n"),
        "{}",
        proposal.lines.config
    );
}

/// A client chooses its key, and must not leave the figures by it unseen.
#[test]
fn keys_that_no_line_can_have_are_counted() {
    let format = "$remote_addr $msec \"$request\" $http_x_key";
    let line = |key: &str| format!("192.0.2.1 {}.000 \"GET / HTTP/1.1\" {key}\n", BEGIN_MS / 1_000);
    let log = ["k7", "\\xFF", &"k".repeat(2_000)].map(line).concat();
    let mut settings = settings("key", 99.9, format);
    settings.reading.mappings = vec!["key=$http_x_key".parse().unwrap()];
    let proposal = &advice(&log, &settings).unwrap().types[0];
    assert_eq!((&*proposal.lines.map_lines, proposal.values_left_out), ("k7 6001\n", 2));
}

/// A map ends its keys at the first blank, so such values are expressions, in a map of their own.
#[test]
fn values_with_blanks_are_proposed_as_expressions() {
    let format = "$remote_addr $msec \"$request\" \"$slowlane_owner\"";
    let line = |owner: &str| format!("192.0.2.1 {}.000 \"GET / HTTP/1.1\" \"{owner}\"\n", BEGIN_MS / 1_000);
    let long = "Acme Inc. ".repeat(40);
    let log = ["Acme Inc. (EU)", "#x", "acme", &long].map(line).concat();
    let proposal = &advice(&log, &settings("owner", 100.0, format)).unwrap().types[0];
    let want = format!(
        "^\\x23x$ 1001\n^Acme\\x20Inc\\.\\x20\\(EU\\)$ 1001\n^{} 1001\n^acme$ 1001\n",
        r"Acme\x20Inc\.\x20".repeat(20)
    );
    assert_eq!((&*proposal.lines.map, &*proposal.lines.map_lines), ("owner-reg.map", &*want));
    assert_eq!((proposal.values_left_out, proposal.clients, proposal.spared), (0, 4, 4));
    assert!(
        proposal.lines.config.ends_with("fields = [\"owner\"]\nmap = \"owner-reg.map\"\nmatch = \"reg\"\n"),
        "{}",
        proposal.lines.config
    );
}
