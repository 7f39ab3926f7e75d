//! Advice as text: tables, then the lines to paste.

use crate::advise::{Advice, Busy, Crowd, Pair, Proposal, ProposedLines, Waiting};
use crate::columns::{ReportCell, columns, or_none};
use slowlane_core::base::plural;

/// The crowds, and the figures of each type's clients, each with the lines to paste.
pub fn report(advice: &Advice) -> String {
    let Advice { requests, from, to, .. } = advice;
    let seconds = if advice.whole_seconds { "; times in whole seconds" } else { "" };
    let crowds =
        advice.crowds.iter().map(crowd).chain(advice.scattered.iter().map(|text| format!("\n{text}\n")));
    let sections: String = crowds.chain(advice.types.iter().map(section)).collect();
    format!("{} from {from} to {to} UTC{seconds}\n{sections}", plural(*requests, "request"))
}

fn crowd(crowd: &Crowd) -> String {
    let Crowd { by, groups, addresses, requests, requests_each, percent_of_requests, .. } = crowd;
    let (noun, link) = match &**by {
        "asn" => ("ASN", "of"),
        "user_agent" => ("user agent", "with"),
        "path" => ("page", "that request"),
        name => (name, "of"),
    };
    let own = |percent: f64| format!("; {percent:.0} % of these are for pages no other client requests");
    let pages = crowd.own_pages_percent.filter(|_| by != "path").map_or(String::new(), own);
    let mut text = format!(
        "\na crowd, by {by}: {addresses} addresses {link} {} send {percent_of_requests:.0} % of the requests, {requests_each} each{pages}\n",
        plural(groups.len(), noun),
    );
    let row = |(value, count): &(String, u64)| vec![("requests", count.to_string()), ("who", value.clone())];
    text += &table(groups.iter().map(row));
    let (waiting, others) = (crowd.waiting_requests, plural(crowd.others, "other client"));
    text += &format!(
        "\nIn a replay of these lines, {waiting} of the crowd's {requests} requests were delayed or denied. "
    );
    text += &match crowd.others_waiting {
        0 => format!("Of {others}, none waited.\n"),
        some => format!(
            "Of {others}, {some} waited, with {}.\n",
            plural(crowd.others_waiting_requests, "request")
        ),
    };
    text + &lines(&crowd.lines, 0)
}

/// The lines to paste, below the names of the files that they belong to.
fn lines(lines: &ProposedLines, values_left_out: usize) -> String {
    let ProposedLines { slo_line, map, map_lines, config } = lines;
    let config = match &**config {
        "" => String::new(),
        config => format!("\n# slowlane.toml; restart slowlane after a change\n{config}"),
    };
    let left_out =
        if values_left_out > 0 { format!("; values left out: {values_left_out}") } else { String::new() };
    format!("{config}\n# slo.map, below the line of SLO 0\n{slo_line}\n\n# {map}{left_out}\n{map_lines}")
}

fn section(proposal: &Proposal) -> String {
    let Proposal { by, clients, bots, steady_bots, bot_requests, spared, to_spare, .. } = proposal;
    let noun = proposal.noun();
    let named = bots - steady_bots;
    let mut text = format!("\nby {by}: {}\n{}", plural(*clients, noun), rates(proposal));
    let (bots, requests) = (plural(*bots, "bot"), plural(*bot_requests, "request"));
    text += &format!(
        "\n{bots} with {requests}: {named} recognised by user agent, {steady_bots} by a steady rate\n"
    );
    let percent = *spared as f64 * 100.0 / *to_spare as f64;
    text += &format!(
        "\nfor each rate, the smallest burst that spares enough of {}:\n{}",
        plural(*to_spare, noun),
        pairs(proposal)
    );
    text += &format!(
        "\nIn a replay under the proposal, {spared} of {} never waited ({percent:.2} %).\n",
        plural(*to_spare, noun)
    );
    text += &waiting(proposal);
    text + &lines(&proposal.lines, proposal.values_left_out)
}

/// The quantiles, then the busiest clients.
fn rates(proposal: &Proposal) -> String {
    let row = |busy: &Busy| {
        vec![
            ("requests", busy.requests.to_string()),
            ("in one minute", busy.busiest_minute.to_string()),
            ("in one second", busy.busiest_second.to_string()),
            ("bot", or_none(busy.bot.as_ref())),
            ("who", busy.who.clone()),
        ]
    };
    table(proposal.quantiles.iter().chain(&proposal.busiest).map(row))
}

fn pairs(proposal: &Proposal) -> String {
    let row = |pair: &Pair| {
        let mark = if *pair == proposal.proposed { "proposed" } else { "" };
        let (burst, admits) = (pair.burst.to_string(), pair.admits_in_10_s.to_string());
        vec![
            ("rate", pair.rate.clone()),
            ("burst", burst),
            ("admitted in 10 s", admits),
            ("", mark.to_owned()),
        ]
    };
    table(proposal.pairs.iter().map(row))
}

fn waiting(proposal: &Proposal) -> String {
    let Proposal { waiting_clients, waiting_requests, delayed, denied, waiting, .. } = proposal;
    if waiting.is_empty() {
        return String::new();
    }
    let row = |Waiting { who, counts, bot }: &Waiting| {
        [&counts.cells()[..], &[("bot", or_none(bot.as_ref())), ("who", who.clone())]].concat()
    };
    let rows = table(waiting.iter().map(row));
    let (clients, requests) =
        (plural(*waiting_clients, proposal.noun()), plural(*waiting_requests, "request"));
    format!("{clients} waited; of {requests}, {delayed} were delayed and {denied} denied:\n{rows}")
}

fn table(rows: impl Iterator<Item = Vec<ReportCell>>) -> String {
    columns(&rows.collect::<Vec<_>>(), &["bot", "who", ""])
}
