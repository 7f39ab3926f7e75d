//! A snapshot as plain text, for pipes and files.

use std::fmt::Write;

use crate::observe::status::{ClusterUse, Fault, HistoryLines, KeyCount, PeersUse, Snapshot};
use crate::top::columns::{self, Column, delay, short, time};
use slowlane_core::base::{aligned, shown};

/// The whole snapshot, table by table.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let [pass, delayed, deny] = snapshot.rates;
    let mut text = format!("slowlane {} up {}\n", shown(&snapshot.version), time(snapshot.uptime_s));
    if let Some((_, reported)) = warning(snapshot) {
        line(&mut text, format_args!("{reported}"));
    }
    for reported in missing(snapshot) {
        line(&mut text, format_args!("{reported}"));
    }
    text += &format!(
        "{} requests/s: pass {} delay {} deny {}, delay p50 {} p99 {}\n{}\n\n{}\n",
        short(pass + delayed + deny),
        short(pass),
        short(delayed),
        short(deny),
        delay(snapshot.delay.p50_ms),
        delay(snapshot.delay.p99_ms),
        stores(snapshot).concat(),
        throttled(snapshot),
    );
    table(&columns::keys(), &snapshot.keys, &mut text);
    text += "\nSLOs\n";
    table(&columns::slos(), &snapshot.slos, &mut text);
    text + "\n" + &connections(snapshot)
}

/// The keys of the history.
pub(super) fn history(history: &HistoryLines) -> String {
    let [delayed, denied] = [&history.delayed, &history.denied]
        .map(|counts| short(counts.iter().map(|&count| count as f64).sum()));
    let mut text = format!("{}: {delayed} requests delayed, {denied} denied\n", since(history));
    table(&columns::past_keys(), &history.keys, &mut text);
    text
}

/// The time span of the history, and the number of keys if the list is incomplete.
pub(super) fn since(history: &HistoryLines) -> String {
    let span = time(history.at_ms.saturating_sub(history.from_ms) / 1_000);
    let KeyCount { number, is_exact } = history.keys_total;
    let (listed, more) = (history.keys.len(), if is_exact { "" } else { " or more" });
    match number > listed as u64 || !is_exact {
        true => format!("throttled in the last {span} (first {listed} of {number}{more})"),
        false => format!("throttled in the last {span}"),
    }
}

/// The errors of the last policy, and whether it was rejected because of them. None: no errors.
pub(super) fn warning(snapshot: &Snapshot) -> Option<(bool, String)> {
    let reload = snapshot.reloads.first().filter(|reload| !reload.ok || reload.problems_total > 0)?;
    let first = reload.problems.first().map(shown).unwrap_or_default();
    let more = match reload.problems_total.saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let reported = match reload.ok {
        true => format!("POLICY WARNING{more}: {first}"),
        false => format!("POLICY REFUSED, the previous one stays in force{more}: {first}"),
    };
    Some((!reload.ok, reported))
}

/// `throttled`, and the number of keys if the list is incomplete: `throttled (first 100 of about 1003)`.
pub(super) fn throttled(snapshot: &Snapshot) -> String {
    let dry_runs = snapshot.keys.iter().filter(|key| key.dry_run).count();
    let groups = [
        (snapshot.keys.len() - dry_runs, snapshot.keys_total, ""),
        (dry_runs, snapshot.dry_run_keys_total, " by dry runs"),
    ];
    let cut = groups.into_iter().filter(|(listed, total, _)| total.number > *listed as u64);
    let reported = cut.map(|(listed, KeyCount { number, is_exact }, by)| {
        format!("first {listed} of {}{number}{by}", if is_exact { "" } else { "about " })
    });
    let reported: Vec<String> = reported.collect();
    if reported.is_empty() { "throttled".to_owned() } else { format!("throttled ({})", reported.join(", ")) }
}

/// A line for each field that the policy needs, and that requests lack or garble.
pub(super) fn missing(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let missing = snapshot.fields_missing.iter();
    let missing = missing.map(|missing| format!("FIELD MISSING: {}", shown(missing.to_string())));
    missing.chain(snapshot.field_faults.iter().map(|line| match line.fault {
        Fault::Unreadable => format!("FIELD UNREADABLE: {}", shown(&line.text)),
        Fault::Absent => format!("FIELD ABSENT: {}", shown(&line.text)),
    }))
}

/// Table, holds, connections, blocks, the cluster and the peers, for one line.
pub(super) fn stores(snapshot: &Snapshot) -> [String; 6] {
    let Snapshot { table, holds, connections, blocks, cluster, peers, .. } = snapshot;
    let [entries, entries_max, evictions] =
        [table.entries, table.entries_max, table.evictions].map(|number| short(number as f64));
    let [held, held_max] = [holds.now, holds.max].map(|number| short(number as f64));
    [
        format!("table {entries} of {entries_max}, {evictions} evicted"),
        format!("; held {held} of {held_max}"),
        match (connections.spop, connections.http, connections.grpc) {
            (spop, http, 0) => format!("; connections SPOP {spop} HTTP {http}"),
            (spop, http, grpc) => format!("; connections SPOP {spop} HTTP {http} gRPC {grpc}"),
        },
        match blocks.operators + blocks.keys {
            0 => String::new(),
            blocks => format!("; blocks {}", short(blocks as f64)),
        },
        match cluster {
            None => String::new(),
            Some(ClusterUse { silent: Some(_), since_s, .. }) => {
                format!("; STORE SILENT for {}", time(*since_s))
            }
            Some(ClusterUse { nodes, other_slos: 0, round_trip_ms, .. }) => {
                format!("; cluster of {nodes}, store {round_trip_ms:.1} ms")
            }
            Some(ClusterUse { nodes, other_slos, .. }) => {
                format!("; cluster of {nodes}, {other_slos} with OTHER SLOs")
            }
        },
        match peers {
            None => String::new(),
            Some(PeersUse { connected, lost: 0, keys, .. }) => {
                format!("; peers {connected} with {} keys", short(*keys as f64))
            }
            Some(PeersUse { connected, lost, .. }) => format!("; peers {connected}, {lost} LOST"),
        },
    ]
}

/// The connections, and the outcomes of the last reloads.
pub(super) fn connections(snapshot: &Snapshot) -> String {
    let mut text = String::from("connected\n");
    for engine in &snapshot.connections.engines {
        let (id, from) = (shown(&engine.id), shown(&engine.from));
        line(&mut text, format_args!("  {:>5}  HAProxy engine {id} from {from}", engine.connections));
    }
    line(&mut text, format_args!("  {:>5}  HTTP check (nginx)", snapshot.connections.http));
    line(&mut text, format_args!("  {:>5}  gRPC (Envoy)", snapshot.connections.grpc));
    line(&mut text, format_args!("  {:>5}  admin", snapshot.connections.admin));
    text += "\nreloads\n";
    for reload in &snapshot.reloads {
        let age = time(snapshot.at_ms.saturating_sub(reload.at_ms) / 1_000);
        let what = if reload.ok { shown(&reload.summary) } else { "REFUSED".to_owned() };
        line(&mut text, format_args!("  {age} ago: {what}"));
        for problem in &reload.problems {
            line(&mut text, format_args!("    {}", shown(problem)));
        }
    }
    if snapshot.reloads.is_empty() {
        text += "  none since the start\n";
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string can always be written to");
}

fn table<T>(columns: &[Column<T>], rows: &[T], text: &mut String) {
    let head = columns.iter().map(|column| column.name.to_owned()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|column| (column.cell)(row).text).collect());
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(cells).collect();
    for line in aligned(&lines, " ", |place, _| !columns[place].is_number).lines() {
        *text += &format!("  {line}\n");
    }
    if rows.is_empty() {
        *text += "  none\n";
    }
}
