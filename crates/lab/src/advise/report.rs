//! Advice as text: tables, then the lines to paste.

use crate::advise::{Advice, Busy, Crowd, Pair, Proposal, Waiting};
use slowlane_core::base::{aligned, plural};

const NONE: &str = "-";

/// The crowds, and for each type the figures of its clients; each with the lines to paste.
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
        "path" => ("page", "that ask for"),
        name => (name, "of"),
    };
    let own = |percent: f64| format!("; {percent:.0} % of these are for pages that nobody else asks for");
    let pages = crowd.own_pages_percent.filter(|_| by != "path").map_or(String::new(), own);
    let mut text = format!(
        "\na crowd, by {by}: {addresses} addresses {link} {} send {percent_of_requests:.0} % of the requests, {requests_each} each{pages}\n",
        plural(groups.len(), noun),
    );
    let row = |(value, count): &(String, u64)| vec![count.to_string(), value.clone()];
    text += &table(["requests", "who"], groups.iter().map(row));
    let (waiting, others) = (crowd.waiting_requests, plural(crowd.others, "other client"));
    text += &format!(
        "\nIn a replay of these lines, {waiting} of its {requests} requests were delayed or denied. "
    );
    text += &match crowd.others_waiting {
        0 => format!("Of {others}, none waited.\n"),
        some => format!(
            "Of {others}, {some} waited, with {}.\n",
            plural(crowd.others_waiting_requests, "request")
        ),
    };
    text + &lines(&crowd.config, &crowd.slo_line, &crowd.map, &crowd.map_lines)
}

/// The lines to paste, below the names of their files.
fn lines(config: &str, slo_line: &str, map: &str, map_lines: &str) -> String {
    let config = match config {
        "" => String::new(),
        config => format!("\n# slowlane.toml; it takes a restart\n{config}"),
    };
    format!("{config}\n# slo.map, below the line of SLO 0\n{slo_line}\n\n# {map}\n{map_lines}")
}

fn section(proposal: &Proposal) -> String {
    let Proposal { by, clients, bots, steady_bots, bot_requests, spared, to_spare, .. } = proposal;
    let Proposal { slo_line, map, map_lines, config, values_left_out, .. } = proposal;
    let noun = proposal.noun();
    let named = bots - steady_bots;
    let mut text = format!("\nby {by}: {}\n{}", plural(*clients, noun), rates(proposal));
    let (bots, requests) = (plural(*bots, "bot"), plural(*bot_requests, "request"));
    text += &format!("\n{bots} with {requests}: {named} by user agent, {steady_bots} by a steady rate\n");
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
    let left_out =
        if *values_left_out > 0 { format!("; {values_left_out} more have no line") } else { String::new() };
    text + &lines(config, slo_line, &format!("{map}{left_out}"), map_lines)
}

/// The quantiles, then the busiest clients.
fn rates(proposal: &Proposal) -> String {
    let row = |busy: &Busy| {
        let counts = [busy.requests, busy.busiest_minute, busy.busiest_second].map(|count| count.to_string());
        [&counts[..], &[bot(&busy.bot), busy.who.clone()]].concat()
    };
    let rows = proposal.quantiles.iter().chain(&proposal.busiest).map(row);
    table(["requests", "in one minute", "in one second", "bot", "who"], rows)
}

fn pairs(proposal: &Proposal) -> String {
    let row = |pair: &Pair| {
        let mark = if *pair == proposal.proposed { "proposed" } else { "" };
        let Pair { rate, burst, admits_in_10_s } = pair;
        vec![rate.clone(), burst.to_string(), admits_in_10_s.to_string(), mark.to_owned()]
    };
    table(["rate", "burst", "admitted in 10 s", ""], proposal.pairs.iter().map(row))
}

fn waiting(proposal: &Proposal) -> String {
    let Proposal { waiting_clients, waiting_requests, delayed, denied, waiting, .. } = proposal;
    if waiting.is_empty() {
        return String::new();
    }
    let row = |Waiting { who, counts, bot: known }: &Waiting| {
        let mean = counts.mean_ms().map_or(NONE.to_owned(), |ms| format!("{ms:.1}"));
        let max = counts.max_ms().map_or(NONE.to_owned(), |ms| ms.to_string());
        let counts = [counts.requests, counts.delayed, counts.denied].map(|count| count.to_string());
        [&counts[..], &[mean, max, bot(known), who.clone()]].concat()
    };
    let rows =
        table(["requests", "delayed", "denied", "mean ms", "max ms", "bot", "who"], waiting.iter().map(row));
    let (clients, requests) =
        (plural(*waiting_clients, proposal.noun()), plural(*waiting_requests, "request"));
    format!("{clients} waited: of {requests}, {delayed} delayed and {denied} denied:\n{rows}")
}

fn bot(bot: &Option<String>) -> String {
    bot.clone().unwrap_or(NONE.to_owned())
}

fn table<const N: usize>(headings: [&str; N], rows: impl Iterator<Item = Vec<String>>) -> String {
    let headings = headings.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(headings).chain(rows).collect();
    aligned(&rows, "  ", |_, heading| ["bot", "who", ""].contains(&heading))
}
