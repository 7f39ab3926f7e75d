//! The status, and the history of throttled keys, as text.

use crate::observe::status::{ClusterUse, Fault, HistoryLines, KeyCount, PeersUse, Ranking, Snapshot};
use crate::top::columns::{GROUPS, KEYS, PAST_KEYS, SLOS, ScreenColumn, delay, short};
use slowlane_core::base::{aligned, shown, units::left};

/// The space for text: the number of characters per line, and the number of rows in each table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

impl Room {
    /// The unlimited room of a pipe or a file.
    pub(super) const ENDLESS: Room = Room { columns: usize::MAX, rows: usize::MAX };
}

/// The whole snapshot, table by table.
pub(super) fn status(snapshot: &Snapshot, room: Room) -> String {
    let [pass, delayed, deny] = snapshot.rates.map(short);
    let all = short(snapshot.rates.iter().sum());
    let [p50, p99] = [snapshot.delay.p50_ms, snapshot.delay.p99_ms].map(delay);
    let warnings = warning(snapshot).into_iter().chain(missing(snapshot)).map(|line| line + "\n");
    [
        format!("slowlane {} up {}\n", shown(&snapshot.version), left(snapshot.uptime_s)),
        warnings.collect(),
        format!("{all} requests/s: pass {pass} delay {delayed} deny {deny}, delay p50 {p50} p99 {p99}\n"),
        format!("{}\n\n{}\n", stores(snapshot), throttled(snapshot)),
        table(&KEYS, &snapshot.keys, room),
        "\nbusiest in the last minute\n".to_owned(),
        table(&GROUPS, &snapshot.groups, room),
        "\nSLOs\n".to_owned(),
        table(&SLOS, &snapshot.slos, room),
        format!("\n{}", connections(snapshot)),
    ]
    .concat()
}

/// The keys of the history, as a table.
pub(super) fn history(history: &HistoryLines, room: Room) -> String {
    let span = left(history.at_ms.saturating_sub(history.from_ms) / 1_000);
    let KeyCount { number, is_exact } = history.keys_total;
    let (listed, more) = (history.keys.len(), if is_exact { "" } else { " or more" });
    let cut = match number > listed as u64 || !is_exact {
        true => format!(" (first {listed} of {number}{more})"),
        false => String::new(),
    };
    let [delayed, denied] = [&history.delayed, &history.denied]
        .map(|counts| short(counts.iter().map(|&count| count as f64).sum()));
    format!("throttled in the last {span}{cut}: requests delayed {delayed}, denied {denied}\n")
        + &table(&PAST_KEYS, &history.keys, room)
}

/// The groups of a span, field by field.
pub(super) fn groups(ranking: &Ranking, room: Room) -> String {
    let Ranking { over_s, requests_per_s, error_per_s, one_in, groups, .. } = ranking;
    let sampled = if *one_in > 1 { format!(", one request in {one_in} is counted") } else { String::new() };
    let error = match *error_per_s >= 0.01 {
        true => format!("Each group may have up to {}/s more.\n", short(*error_per_s)),
        false => String::new(),
    };
    let (all, over) = (short(*requests_per_s), left((*over_s).into()));
    format!("{all} requests/s, averaged over {over}{sampled}\n") + &table(&GROUPS, groups, room) + &error
}

/// The first problem of the last reload, how many others there were, and whether it was refused; `None` without any.
fn warning(snapshot: &Snapshot) -> Option<String> {
    let reload = snapshot.reloads.first().filter(|reload| !reload.ok || reload.problems_total > 0)?;
    let first = reload.problems.first().map(shown).unwrap_or_default();
    let more = match reload.problems_total.saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(match reload.ok {
        true => format!("POLICY WARNING{more}: {first}"),
        false => format!("POLICY REFUSED; the previous one stays in force{more}: {first}"),
    })
}

/// A line for each field that the policy needs, but that requests lack or send with unusable values.
fn missing(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let missing = snapshot.fields_missing.iter();
    let missing = missing.map(|missing| format!("FIELD MISSING: {}", shown(missing.to_string())));
    missing.chain(snapshot.field_faults.iter().map(|line| match line.fault {
        Fault::Unreadable => format!("FIELD UNREADABLE: {}", shown(&line.text)),
        Fault::Absent => format!("FIELD ABSENT: {}", shown(&line.text)),
    }))
}

/// `throttled`, with the number of keys if the list is incomplete, as in `throttled (first 100 of 512 or more)`.
fn throttled(snapshot: &Snapshot) -> String {
    let dry_runs = snapshot.keys.iter().filter(|key| key.dry_run).count();
    let groups = [
        (snapshot.keys.len() - dry_runs, snapshot.keys_total, ""),
        (dry_runs, snapshot.dry_run_keys_total, " by dry runs"),
    ];
    let cut = groups.into_iter().filter(|(listed, total, _)| total.number > *listed as u64);
    let reported = cut.map(|(listed, KeyCount { number, is_exact }, by)| {
        format!("first {listed} of {number}{}{by}", if is_exact { "" } else { " or more" })
    });
    let reported: Vec<String> = reported.collect();
    if reported.is_empty() { "throttled".to_owned() } else { format!("throttled ({})", reported.join(", ")) }
}

/// The maximum number of protected applications in the line that [`stores`] returns.
const PROTECTED_MAX: usize = 3;

/// One line about the table, holds, connections, blocks, the cluster, protected applications and peers.
fn stores(snapshot: &Snapshot) -> String {
    let Snapshot { table, holds, connections, blocks, cluster, peers, protect, .. } = snapshot;
    let [entries, entries_max, evictions, held, held_max] =
        [table.entries, table.entries_max, table.evictions, holds.now, holds.max]
            .map(|number| short(number as f64));
    let mut line = format!(
        "table {entries} of {entries_max}, {evictions} evicted; held {held} of {held_max}; connections SPOP {} HTTP {}",
        connections.spop, connections.http
    );
    if connections.grpc > 0 {
        line += &format!(" gRPC {}", connections.grpc);
    }
    if blocks.operators + blocks.keys > 0 {
        line += &format!("; blocks {}", short((blocks.operators + blocks.keys) as f64));
    }
    line += &match cluster {
        None => String::new(),
        Some(ClusterUse { silent: Some(_), since_s, .. }) => format!("; STORE SILENT for {}", left(*since_s)),
        Some(ClusterUse { nodes, other_slos: 0, round_trip_ms, .. }) => {
            format!("; cluster of {nodes}, store {round_trip_ms:.1} ms")
        }
        Some(ClusterUse { nodes, other_slos, .. }) => {
            format!("; cluster of {nodes}, {other_slos} with OTHER SLOs")
        }
    };
    for application in protect.iter().take(PROTECTED_MAX) {
        line += &format!("; SLO {}: {}", application.slo, application.state());
    }
    line + &match peers {
        None => String::new(),
        Some(PeersUse { connected, lost: 0, keys, .. }) => {
            format!("; peers {connected}, keys {}", short(*keys as f64))
        }
        Some(PeersUse { connected, lost, .. }) => format!("; peers {connected}, {lost} LOST"),
    }
}

/// The connections, and the outcomes of the last reloads.
fn connections(snapshot: &Snapshot) -> String {
    let connections = &snapshot.connections;
    let mut text = String::from("connected\n");
    let mut connected = |number: u64, with: &str| text += &format!("  {number:>5}  {with}\n");
    connected(connections.spop, "SPOP (HAProxy)");
    connected(connections.http, "HTTP check (nginx)");
    connected(connections.grpc, "gRPC (Envoy)");
    connected(connections.admin, "admin");
    text += "\nreloads\n";
    for reload in &snapshot.reloads {
        let age = left(snapshot.at_ms.saturating_sub(reload.at_ms) / 1_000);
        let what = if reload.ok { shown(&reload.summary) } else { "REFUSED".to_owned() };
        text += &format!("  {age} ago: {what}\n");
        text.extend(reload.problems.iter().map(|problem| format!("    {}\n", shown(problem))));
    }
    if snapshot.reloads.is_empty() {
        text += "  none since startup\n";
    }
    text
}

fn table<T>(columns: &[ScreenColumn<T>], rows: &[T], room: Room) -> String {
    let cells = |row| columns.iter().map(|column| (column.cell)(row)).collect();
    let head = columns.iter().map(|column| column.name.to_owned()).collect();
    let lines: Vec<Vec<String>> = [head].into_iter().chain(rows.iter().take(room.rows).map(cells)).collect();
    let kept = fitting(columns, &lines, room.columns);
    let lines: Vec<Vec<String>> =
        lines.iter().map(|line| kept.iter().map(|&place| line[place].clone()).collect()).collect();
    let text = aligned(&lines, GAP, |place, _| !columns[kept[place]].is_number);
    let more = match (rows.len(), rows.len().saturating_sub(room.rows)) {
        (0, _) => "  none\n".to_owned(),
        (_, 0) => String::new(),
        (_, more) => format!("  and {more} more\n"),
    };
    let cut = |line: &str| line.chars().take(room.columns.saturating_sub(INDENT.len())).collect::<String>();
    text.lines().map(|line| format!("{INDENT}{}\n", cut(line))).collect::<String>() + &more
}

const INDENT: &str = "  ";
const GAP: &str = "  ";

/// How many characters of the last column must fit on the screen. A longer name may be cut.
const NAME_CHARS: usize = 40;

/// The indices of the columns that fit. A number is shown in full or not at all.
fn fitting<T>(columns: &[ScreenColumn<T>], lines: &[Vec<String>], room: usize) -> Vec<usize> {
    let last = columns.len() - 1;
    let width = |place: usize| {
        let longest = lines.iter().map(|line| line[place].chars().count()).max().unwrap_or(0);
        if place == last { longest.min(NAME_CHARS) } else { longest + GAP.len() }
    };
    let mut kept: Vec<usize> = (0..=last).collect();
    while INDENT.len() + kept.iter().map(|&place| width(place)).sum::<usize>() > room {
        let may_go = kept.iter().copied().filter(|&place| columns[place].rank > 0);
        let Some(goes) = may_go.max_by_key(|&place| columns[place].rank) else { break };
        kept.retain(|&place| place != goes);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::status::{Delay, FieldLine, KeyLine, ReloadLine, SloLine};

    fn snapshot(value: &str) -> Snapshot {
        let field = FieldLine { name: "website".into(), value: value.into() };
        let keys =
            vec![KeyLine { fields: vec![field], throttled_per_s: 7.25, slo: 2001, ..KeyLine::default() }];
        Snapshot { version: "1.2.3".into(), keys, ..Snapshot::default() }
    }

    fn wide(columns: usize) -> Room {
        Room { columns, ..Room::ENDLESS }
    }

    #[test]
    fn any_size_is_printed() {
        let snapshot = snapshot("shop.example");
        for (columns, rows) in [(0, 0), (1, 1), (3, 2), (20, 5), (80, 24), (500, 1)] {
            status(&snapshot, Room { columns, rows });
            history(&HistoryLines::default(), Room { columns, rows });
        }
    }

    #[test]
    fn it_says_who_is_throttled() {
        let text = status(&snapshot("shop.example"), wide(100));
        for part in ["slowlane 1.2.3 up 0s", "throttled/s", "7.25", "2001", "website=shop.example"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    /// Splits a line into cells. Two or more blanks separate them.
    fn cells(line: &str) -> Vec<&str> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    }

    /// The table below a title: the cells of each row, by the names of their columns.
    fn table<'t>(text: &'t str, title: &str) -> Vec<Vec<(&'t str, &'t str)>> {
        let mut lines = text.lines().skip_while(|line| *line != title).skip(1);
        let names = cells(lines.next().unwrap_or_default());
        let rows = lines.map(cells).take_while(|cells| !cells.is_empty());
        rows.map(|cells| {
            assert_eq!(cells.len(), names.len(), "{text}");
            names.iter().copied().zip(cells).collect()
        })
        .collect()
    }

    /// Every cell shows the whole text of its value. The last name may lack its end.
    fn assert_whole<T>(text: &str, title: &str, columns: &[ScreenColumn<T>], rows: &[T], kept: &[&str]) {
        let reported = table(text, title);
        assert_eq!(reported.len(), rows.len(), "{text}");
        for (cells, row) in reported.iter().zip(rows) {
            for &(name, cell) in cells {
                let column = columns.iter().find(|column| column.name.starts_with(name));
                let column = column.unwrap_or_else(|| panic!("{name} is the name of no column:\n{text}"));
                let whole = (column.cell)(row);
                match column.is_number {
                    true => assert_eq!(cell, whole, "{name} in\n{text}"),
                    false => assert!(whole.starts_with(cell), "{name} in\n{text}"),
                }
            }
            for kept in kept {
                assert!(cells.iter().any(|(name, _)| name == kept), "{kept} is kept in\n{text}");
            }
        }
    }

    #[test]
    fn a_number_is_seen_whole_or_not_at_all_however_narrow_the_screen() {
        let field = |name: &str, value: &str| FieldLine { name: name.into(), value: value.into() };
        let long = "a-very-long-name.of-a-shop.example";
        let key = |value: &str, throttled_per_s, delay_ms| KeyLine {
            slo: 2001,
            fields: vec![field("website", value), field("source", "2001:db8:1:2::/64")],
            throttled_per_s,
            delayed: 123_456,
            denied: 9_999,
            delay_ms,
            let_through_per_s: Some(1_234.0),
            clients: Some(99.25),
            ..KeyLine::default()
        };
        let slo = |id, rate: &str, law: &str| SloLine {
            id,
            law: law.into(),
            per: vec!["source".into(), "website".into()],
            rate: rate.into(),
            objective: format!("{rate}, burst 10"),
            rates: [1_234.5, 234.5, 34.5],
            busiest_per_s: Some(1_985.0),
            keys: 100,
            ..SloLine::default()
        };
        let snapshot = Snapshot {
            rates: [1_234.5, 123.4, 34.5],
            delay: Delay { p50_ms: Some(1_985), p99_ms: Some(9_985) },
            keys: vec![key(long, 1_234.5, 1_985), key("shop.example", 123.0, 12_345)],
            slos: vec![slo(1, "1000/m", "pace"), slo(2_001, "86400/d", "sliding-buckets")],
            ..Snapshot::default()
        };
        for columns in [200, 110, 80, 70, 60] {
            let text = status(&snapshot, wide(columns));
            let kept = ["who", "throttled/s", "delay", "SLO"];
            assert_whole(&text, "throttled", &KEYS, &snapshot.keys, &kept);
            assert_whole(&text, "SLOs", &SLOS, &snapshot.slos, &["SLO", "objective", "busiest"]);
            let rows = text.lines().filter(|line| line.starts_with(INDENT));
            assert!(
                rows.clone().count() >= 6 && rows.clone().all(|row| row.chars().count() <= columns),
                "{text}"
            );
        }
        assert!(status(&snapshot, wide(110)).contains("denied"), "there is room for it");
    }

    #[test]
    fn who_was_seen_last_and_when_is_told_and_that_nobody_is() {
        let mut snapshot = snapshot("shop.example");
        snapshot.keys[0].seen_ms_ago = 65_400;
        let text = status(&snapshot, wide(100));
        assert!(table(&text, "throttled")[0].contains(&("last", "1m5s ago")), "{text}");
        let nobody = status(&Snapshot::default(), wide(100));
        assert!(nobody.split_once("SLOs").unwrap().0.ends_with("  none\n\n"), "{nobody}");
    }

    #[test]
    fn a_policy_that_is_refused_is_told_at_the_top_until_one_is_taken() {
        let refused = ReloadLine {
            problems: vec!["slo.map:12: rate \"5x/s\": expected a number".into(), "owner.map:1: no".into()],
            problems_total: 7,
            ..ReloadLine::default()
        };
        let taken = ReloadLine { ok: true, summary: "4 SLOs".into(), ..ReloadLine::default() };
        let warned =
            ReloadLine { problems: vec!["owner.map:2: odd".into()], problems_total: 1, ..taken.clone() };
        let top_of = |reloads: &[&ReloadLine]| {
            let reloads = reloads.iter().map(|reload| (*reload).clone()).collect();
            let text = status(&Snapshot { reloads, ..snapshot("shop.example") }, wide(80));
            text.lines().nth(1).unwrap().to_owned()
        };
        let begins =
            "POLICY REFUSED; the previous one stays in force (and 6 more): slo.map:12: rate \"5x/s\": ";
        assert!(top_of(&[&refused, &taken]).starts_with(begins));
        assert!(top_of(&[&warned]).starts_with("POLICY WARNING: owner.map:2: odd"));
        assert!(!top_of(&[&taken, &refused]).contains("POLICY"));
    }

    #[test]
    fn a_name_with_escape_codes_is_text() {
        let text = status(&snapshot("\x1b[31mred\u{202e}"), Room::ENDLESS);
        assert!(text.contains(r"website=\u{1b}[31mred\u{202e}") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn a_short_screen_says_how_many_rows_it_lacks() {
        let slos = (1..=9).map(|id| SloLine { id, ..SloLine::default() }).collect();
        let text = status(&Snapshot { slos, ..Snapshot::default() }, Room { rows: 4, ..Room::ENDLESS });
        assert!(text.contains("\n  and 5 more\n") && text.matches("all together").count() == 4, "{text}");
    }
}
