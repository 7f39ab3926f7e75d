//! The columns of the tables, and their cells.

use crate::observe::status::{BlockedKey, FieldLine, GroupRow, KeyLine, PastKey, SloLine};
use slowlane_core::base::{shown, units::left};

/// A column of a table whose rows are `T`.
pub(super) struct ScreenColumn<T> {
    /// On a narrow terminal, the column with the highest rank is dropped first. Columns of rank 0 stay.
    pub(super) rank: u8,
    pub(super) name: &'static str,
    pub(super) cell: fn(&T) -> String,
    /// Numbers are aligned to the right.
    pub(super) is_number: bool,
}

const fn number<T>(rank: u8, name: &'static str, cell: fn(&T) -> String) -> ScreenColumn<T> {
    ScreenColumn { rank, name, cell, is_number: true }
}

const fn words<T>(rank: u8, name: &'static str, cell: fn(&T) -> String) -> ScreenColumn<T> {
    ScreenColumn { rank, name, cell, is_number: false }
}

/// The columns for throttled keys. The results of a dry run are in brackets.
pub(super) const KEYS: [ScreenColumn<KeyLine>; 11] = [
    number(0, "throttled/s", |key| bracketed(key.dry_run, short(key.throttled_per_s))),
    number(3, "through/s", through),
    number(0, "delay", |key| bracketed(key.dry_run, longest(key.delay_ms))),
    number(5, "clients", |key| some(key.clients)),
    number(4, "delayed", |key| bracketed(key.dry_run, short(key.delayed as f64))),
    number(2, "denied", |key| bracketed(key.dry_run, short(key.denied as f64))),
    number(1, "last", |key| ago(key.seen_ms_ago)),
    number(6, "since", |key| ago(key.since_ms_ago)),
    words(7, "line", |key| key.line.as_deref().map_or_else(|| "-".to_owned(), shown)),
    number(0, "SLO", |key| numbered(key.slo, key.dry_run)),
    words(0, "who", who),
];

/// The columns for the keys of the history.
pub(super) const PAST_KEYS: [ScreenColumn<PastKey>; 7] = [
    number(0, "delayed", |key| bracketed(key.dry_run, short(key.delayed as f64))),
    number(0, "denied", |key| bracketed(key.dry_run, short(key.denied as f64))),
    number(2, "longest", |key| bracketed(key.dry_run, longest(key.delay_ms))),
    number(3, "first", |key| ago(key.first_ms_ago)),
    number(1, "last", |key| ago(key.last_ms_ago)),
    number(0, "SLO", |key| numbered(key.slo, key.dry_run)),
    words(0, "who", |key| named(key.refused, &key.fields)),
];

/// The columns for the groups of requests.
pub(super) const GROUPS: [ScreenColumn<GroupRow>; 7] = [
    number(0, "requests/s", |group| short(group.requests_per_s)),
    number(1, "%", |group| format!("{:.0}", group.share * 100.0)),
    number(2, "inside", |group| short(group.work)),
    number(3, "waiting", |group| short(group.delay)),
    number(4, "denied/s", |group| short(group.denied_per_s)),
    number(5, "addresses", |group| group.addresses.map_or("> 600".into(), |addresses| addresses.to_string())),
    words(0, "who", |group| shown(format!("{}={}", group.field, group.value))),
];

/// The columns for the SLOs.
pub(super) const SLOS: [ScreenColumn<SloLine>; 9] = [
    number(0, "SLO", |slo| slo.id.to_string()),
    number(0, "busiest", busiest),
    number(0, "objective", |slo| shown(&slo.objective)),
    number(3, "pass/s", |slo| short(slo.rates[0])),
    number(2, "delay/s", |slo| throttled(slo, 1)),
    number(1, "deny/s", |slo| throttled(slo, 2)),
    // A `+` means that there may be more.
    number(6, "keys", |slo| {
        format!("{}{}", slo.keys, if slo.keys > 0 && slo.keys_are_more { "+" } else { "" })
    }),
    words(5, "law", |slo| shown(&slo.law)),
    words(4, "one bucket per", |slo| match slo.per.is_empty() {
        true => "all together".to_owned(),
        false => shown(slo.per.join("+")),
    }),
];

fn bracketed(is_dry_run: bool, text: String) -> String {
    if is_dry_run { format!("({text})") } else { text }
}

/// The SLO of a key, marked if the SLO is a dry run.
fn numbered(slo: u32, is_dry_run: bool) -> String {
    if is_dry_run { format!("{slo} dry run") } else { slo.to_string() }
}

fn ago(ms: u64) -> String {
    format!("{} ago", left(ms / 1_000))
}

/// The longest or last delay. Zero means that there was none.
fn longest(ms: u64) -> String {
    delay(Some(ms).filter(|&ms| ms > 0))
}

/// The admitted rate, and in brackets the rate that a dry run would admit.
fn through(key: &KeyLine) -> String {
    let let_through = some(key.let_through_per_s);
    match key.would_let_through_per_s {
        Some(would) => format!("{let_through} ({})", short(would)),
        None => let_through,
    }
}

/// The rate of the busiest key, in the unit of the SLO's rate; or the most requests in flight, if its law counts these.
fn busiest(slo: &SloLine) -> String {
    let (unit, seconds) = match slo.rate.split_once('/').map_or("s", |(_, unit)| unit) {
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

/// Shown instead of fields for the key shared by all requests that cannot be looked up.
const REFUSED: &str = "refused: the website is not a valid host name, or a value is too long to be looked up";

/// The fields of a key, and its block.
fn who(key: &KeyLine) -> String {
    let blocked = match &key.blocked {
        Some(BlockedKey { by, left_s }) => {
            format!(" (blocked by {}, {} left)", shown(by), left(u64::from(*left_s)))
        }
        None => String::new(),
    };
    named(key.refused, &key.fields) + &blocked
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

fn some(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), short)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 7.0, 7.25, 73.25, 732.4, 7_324.0, 73_240.0, 732_400.0, 7_324_000.0].map(short);
        assert_eq!(shown, ["0", "7", "7.25", "73.2", "732", "7324", "73.2k", "732k", "7.32M"]);
        assert_eq!([None, Some(12), Some(12_340)].map(delay), ["-", "12 ms", "12.3 s"]);
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
            |key: &KeyLine| KEYS.iter().take(6).map(|column| (column.cell)(key)).collect::<Vec<_>>();
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
}
