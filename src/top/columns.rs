//! The columns of the tables: their cells, and the order of rows by each.

use std::cmp::Ordering;

use crate::observe::status::{BlockedKey, FieldLine, KeyLine, PastKey, SloLine};
use slowlane_core::base::{shown, units::left};

/// A column of a table whose rows are `T`.
pub(super) struct Column<T> {
    pub(super) name: &'static str,
    pub(super) cell: fn(&T) -> Cell,
    /// Numbers are aligned to the right and shown whole.
    pub(super) is_number: bool,
    /// On a narrow screen, the column with the highest rank is dropped first. Columns of rank 0 stay.
    pub(super) rank: u8,
}

/// A cell of a column.
pub(super) struct Cell {
    pub(super) text: String,
    /// The number by which the rows are sorted. A column of words is sorted by its text.
    number: f64,
}

/// The minimum lengths of a shortened name. The next one applies once no other column can be dropped.
pub(super) const NAME_CHARS: [usize; 3] = [40, 24, 10];

impl<T> Column<T> {
    /// The minimum width of a column, by the width of its longest text.
    pub(super) fn least(&self, width: usize, name_chars: usize) -> usize {
        if self.is_number { width } else { width.min(name_chars.max(self.name.len() + 1)) }
    }

    /// The greatest number first, or texts from a to z.
    pub(super) fn order(&self, one: &T, other: &T) -> Ordering {
        let (one, other) = ((self.cell)(one), (self.cell)(other));
        if self.is_number { other.number.total_cmp(&one.number) } else { one.text.cmp(&other.text) }
    }
}

fn number<T>(rank: u8, name: &'static str, cell: fn(&T) -> Cell) -> Column<T> {
    Column { name, cell, is_number: true, rank }
}

fn words<T>(rank: u8, name: &'static str, cell: fn(&T) -> Cell) -> Column<T> {
    Column { name, cell, is_number: false, rank }
}

/// Unknown numbers come after all others.
fn cell(text: String, number: impl Into<Option<f64>>) -> Cell {
    Cell { text, number: number.into().unwrap_or(-1.0) }
}

fn text(text: String) -> Cell {
    cell(text, None)
}

/// The throttled keys.
pub(super) fn keys() -> Vec<Column<KeyLine>> {
    vec![
        number(0, "throttled/s", |key| cell(would(key, short(key.throttled_per_s)), key.throttled_per_s)),
        number(3, "through/s", |key| cell(through(key), key.let_through_per_s)),
        number(0, "delay", |key| {
            let shown = delay(Some(key.delay_ms).filter(|&ms| ms > 0));
            cell(would(key, shown), key.delay_ms as f64)
        }),
        number(5, "clients", |key| cell(some(key.clients), key.clients)),
        number(4, "delayed", |key| cell(would(key, short(key.delayed as f64)), key.delayed as f64)),
        number(2, "denied", |key| cell(would(key, short(key.denied as f64)), key.denied as f64)),
        number(1, "last", |key| ago(key.seen_ms_ago)),
        number(6, "since", |key| ago(key.since_ms_ago)),
        words(7, "line", |key| text(key.line.as_deref().map(shown).unwrap_or_else(|| "-".to_owned()))),
        number(0, "SLO", |key| cell(numbered(key.slo, key.dry_run), -f64::from(key.slo))),
        words(0, "who", |key| text(who(key))),
    ]
}

/// The keys of the history.
pub(super) fn past_keys() -> Vec<Column<PastKey>> {
    vec![
        number(0, "delayed", |key| {
            cell(bracketed(key.dry_run, short(key.delayed as f64)), key.delayed as f64)
        }),
        number(0, "denied", |key| cell(bracketed(key.dry_run, short(key.denied as f64)), key.denied as f64)),
        number(2, "longest", |key| {
            let shown = delay(Some(key.delay_ms).filter(|&ms| ms > 0));
            cell(bracketed(key.dry_run, shown), key.delay_ms as f64)
        }),
        number(3, "first", |key| ago(key.first_ms_ago)),
        number(1, "last", |key| ago(key.last_ms_ago)),
        number(0, "SLO", |key| cell(numbered(key.slo, key.dry_run), -f64::from(key.slo))),
        words(0, "who", |key| text(named(key.refused, &key.fields))),
    ]
}

/// The SLOs.
pub(super) fn slos() -> Vec<Column<SloLine>> {
    vec![
        number(0, "SLO", |slo| cell(slo.id.to_string(), -f64::from(slo.id))),
        number(0, "busiest", |slo| cell(busiest(slo), slo.in_flight.or(slo.busiest_per_s))),
        number(0, "objective", |slo| cell(shown(&slo.objective), slo.rate_per_s.unwrap_or(f64::INFINITY))),
        number(3, "pass/s", |slo| cell(short(slo.rates[0]), slo.rates[0])),
        number(2, "delay/s", |slo| cell(throttled(slo, 1), slo.rates[1] + slo.shadow[1])),
        number(1, "deny/s", |slo| cell(throttled(slo, 2), slo.rates[2] + slo.shadow[2])),
        number(6, "keys", |slo| cell(throttled_keys(slo), slo.keys as f64)),
        words(5, "law", |slo| text(shown(&slo.law))),
        words(4, "one bucket per", |slo| text(per(slo))),
    ]
}

fn ago(ms: u64) -> Cell {
    cell(format!("{} ago", time(ms / 1_000)), -(ms as f64))
}

/// The SLO of a key, marked if it is a dry run.
fn numbered(slo: u16, is_dry_run: bool) -> String {
    if is_dry_run { format!("{slo} dry run") } else { slo.to_string() }
}

/// The result of a dry run is in brackets.
fn bracketed(is_dry_run: bool, text: String) -> String {
    if is_dry_run { format!("({text})") } else { text }
}

fn would(key: &KeyLine, text: String) -> String {
    bracketed(key.dry_run, text)
}

/// The admitted rate, and in brackets the rate that a dry run would admit.
fn through(key: &KeyLine) -> String {
    let let_through = some(key.let_through_per_s);
    match key.would_let_through_per_s {
        Some(would) => format!("{let_through} ({})", short(would)),
        None => let_through,
    }
}

/// The number of keys, with a `+` if there may be more.
fn throttled_keys(slo: &SloLine) -> String {
    format!("{}{}", slo.keys, if slo.keys > 0 && slo.keys_are_more { "+" } else { "" })
}

/// The rate of the busiest key, in the unit of its objective.
fn busiest(slo: &SloLine) -> String {
    let (_, unit) = slo.rate.split_once('/').unwrap_or(("", "s"));
    let (unit, seconds) = match unit {
        "m" => ("m", 60.0),
        "h" => ("h", 3_600.0),
        "d" => ("d", 86_400.0),
        _ => ("s", 1.0),
    };
    match (slo.in_flight_max, slo.in_flight, slo.busiest_per_s) {
        (Some(_), Some(in_flight), _) => format!("{} at a time", short(in_flight)),
        (None, _, Some(per_s)) => format!("{}/{unit}", short(per_s * seconds)),
        _ => "-".to_owned(),
    }
}

/// The rate of a verdict. Verdicts of dry runs are in brackets.
fn throttled(slo: &SloLine, verdict: usize) -> String {
    if slo.dry_run { format!("({})", short(slo.shadow[verdict])) } else { short(slo.rates[verdict]) }
}

fn per(slo: &SloLine) -> String {
    if slo.per.is_empty() { "all together".to_owned() } else { shown(slo.per.join("+")) }
}

/// Replaces the fields of the key of all requests that cannot be looked up.
const REFUSED: &str = "refused: the website is not a host, or a value is too long to search";

/// The fields of a key, and its block.
pub(super) fn who(key: &KeyLine) -> String {
    if key.refused {
        return REFUSED.to_owned();
    }
    let fields = named(false, &key.fields);
    let paced = match key.proxies {
        0 => String::new(),
        1 => " (1 proxy enforces it)".to_owned(),
        proxies => format!(" ({proxies} proxies enforce it)"),
    };
    match &key.blocked {
        None => fields + &paced,
        Some(BlockedKey { by, left_s }) => {
            format!("{fields} (blocked by {}, {} left){paced}", shown(by), left(u64::from(*left_s)))
        }
    }
}

/// The fields of a key.
fn named(is_refused: bool, fields: &[FieldLine]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| format!("{}={}", field.name, field.value)).collect();
    match (is_refused, fields.is_empty()) {
        (true, _) => REFUSED.to_owned(),
        (false, true) => "everybody".to_owned(),
        (false, false) => shown(fields.join(" ")),
    }
}

fn some(number: Option<impl Into<f64>>) -> String {
    number.map_or("-".to_owned(), |number| short(number.into()))
}

/// A number in few digits: `7`, `7.25`, `73.2`, `732`, `73.2k`, `7.32M`.
pub(super) fn short(number: f64) -> String {
    let (number, unit) = match number.abs() {
        1e6.. => (number / 1e6, "M"),
        1e4.. => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let digits = match number.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let text = format!("{number:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

pub(super) fn delay(ms: Option<u64>) -> String {
    match ms {
        None => "-".to_owned(),
        Some(ms @ 0..10_000) => format!("{ms} ms"),
        Some(ms) => format!("{:.1} s", ms as f64 / 1e3),
    }
}

/// A duration: `3 d 4 h`, `4 h 5 min`, `5 min 6 s`, `6 s`.
pub(super) fn time(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 7.0, 7.25, 73.25, 732.4, 7_324.0, 73_240.0, 732_400.0, 7_324_000.0].map(short);
        assert_eq!(shown, ["0", "7", "7.25", "73.2", "732", "7324", "73.2k", "732k", "7.32M"]);
        assert_eq!([None, Some(12), Some(12_340)].map(delay), ["-", "12 ms", "12.3 s"]);
        assert_eq!([59, 61, 3_661, 90_000].map(time), ["59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn the_busiest_key_is_told_in_the_unit_of_its_objective() {
        let slo = |rate: &str, per_s, in_flight, in_flight_max| SloLine {
            rate: rate.into(),
            busiest_per_s: per_s,
            in_flight,
            in_flight_max,
            ..SloLine::default()
        };
        let reported = [
            slo("50/s", Some(49.9), None, None),
            slo("30/m", Some(0.5), None, None),
            slo("7/h", Some(0.001944), None, None),
            slo("1/s", Some(444.0), Some(4.0), Some(5)),
            slo("1/s", Some(444.0), None, Some(5)),
            slo("1/s", None, None, None),
        ];
        assert_eq!(reported.map(|slo| busiest(&slo)), ["49.9/s", "30/m", "7/h", "4 at a time", "-", "-"]);
    }

    #[test]
    fn a_dry_run_lets_all_through_and_its_verdicts_are_in_brackets() {
        let real = KeyLine {
            throttled_per_s: 3.0,
            delayed: 30,
            delay_ms: 40,
            let_through_per_s: Some(2.0),
            ..KeyLine::default()
        };
        let dry_run = KeyLine {
            dry_run: true,
            let_through_per_s: Some(5.0),
            would_let_through_per_s: Some(2.0),
            ..real.clone()
        };
        let reported =
            |key: &KeyLine| keys().iter().take(6).map(|column| (column.cell)(key).text).collect::<Vec<_>>();
        assert_eq!(reported(&real), ["3", "2", "40 ms", "-", "30", "0"]);
        assert_eq!(reported(&dry_run), ["(3)", "5 (2)", "(40 ms)", "-", "(30)", "(0)"]);
    }

    #[test]
    fn a_key_that_is_refused_is_not_everybody() {
        assert_eq!(who(&KeyLine::default()), "everybody");
        assert_eq!(who(&KeyLine { refused: true, ..KeyLine::default() }), REFUSED);
    }

    #[test]
    fn a_blocked_key_names_its_block() {
        let blocked = Some(BlockedKey { by: "SLO 3001".into(), left_s: 599 });
        let reported = who(&KeyLine { blocked, ..KeyLine::default() });
        assert_eq!(reported, "everybody (blocked by SLO 3001, 9m59s left)");
    }

    #[test]
    fn the_greatest_number_is_first_and_text_goes_from_a_to_z() {
        let numbers = number(0, "", |number: &Option<f64>| cell(some(*number), *number));
        assert_eq!(numbers.order(&Some(9.0), &Some(10.0)), Ordering::Greater);
        assert_eq!(numbers.order(&Some(0.0), &None), Ordering::Less);
        let texts = words(0, "", |word: &&str| text((*word).to_owned()));
        assert_eq!(texts.order(&"a", &"b"), Ordering::Less);
    }
}
