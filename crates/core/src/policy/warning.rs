//! Warnings: suspicious but valid lines of a policy.

use std::time::Duration;

use thiserror::Error;

use crate::base::{HOLD_SHIPPED, Rate, SloId, units::written};
use crate::policy::Findings;

/// The maximum number of warnings that are kept. Additional warnings are only counted.
pub const WARNINGS_MAX: usize = 10;

/// The warnings of a policy, one per line.
pub type Warnings = Findings<WarningKind, WARNINGS_MAX>;

/// A warning about the files of a policy, without the place that it concerns.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WarningKind {
    #[error("no lookup reads this file: the maps in use are {0}")]
    Unread(String),
    #[error("{key:?} is already on line {first}, which wins: keep one of the two")]
    KeyTwice { key: String, first: usize },
    #[error("{key:?} has {what}: a website must be a bare host, like {meant:?}")]
    Website { key: String, what: &'static str, meant: String },
    #[error("{0:?} has quotes, which are part of the key: write the key without them")]
    Quotes(String),
    #[error(
        "{key:?}: {method} treats * as an ordinary character: to match all names that end in .example.com, \
         write \".example.com\" in a map with match = \"end\""
    )]
    Wildcard { key: String, method: &'static str },
    #[error("{key:?} has no value, so it selects SLO 0: put a space before the SLO instead of {separator}")]
    Joined { key: String, separator: char },
    #[error("{0:?} has no value, so it selects SLO 0: write the id of an SLO after the key")]
    NoValue(String),
    #[error("{0:?} is a network, but is compared as text: networks belong in maps with match = \"ip\"")]
    Network(String),
    #[error(
        "{0:?}: the # is part of the key: a comment needs a line of its own, with the # in the first column"
    )]
    Comment(String),
    #[error(
        "also={lookup} leads from SLO {via} to SLO {next}, which has no effect there, because an SLO of the same \
         type has already counted the request: give SLO {next} a different type, or remove also="
    )]
    Also { via: SloId, lookup: String, next: SloId },
    #[error(
        "the keys with also={lookup} are assured {assured}/s in all, but the SLOs of that lookup have only \
         {rate}/s: lower the assured rates, or raise the rates of those SLOs"
    )]
    Assured { assured: String, rate: String, lookup: String },
    #[error(
        "block= refuses all clients that share {0}, even if only one exceeds the limit: remove block=, or \
         use a type that includes the source"
    )]
    SharedBlock(String),
    #[error(
        "SLO 0 is one bucket for all clients together, so a single client can use it up: for a bucket per client, write \
         `0 rate=unlimited` and `3001 burst=20 rate=10/s` to slo.map, and `0.0.0.0/0 3001` and `::/0 3001` to source.map"
    )]
    OneBucket,
    #[error(
        "the lookup {lookup} adds SLOs of a type that the lookup {before} also names, but only the first \
         SLO of a type counts a request: give the added SLOs a type of their own"
    )]
    AddedTwice { lookup: String, before: String },
    #[error("no map names {ids}: an SLO has no effect until a line in {file} names it")]
    Unnamed { ids: String, file: String },
    #[error("this line covers only IPv4, so clients with IPv6 addresses escape it: add a line for {0:?}")]
    Ipv4Alone(String),
    #[error(
        "{by} matches every {whom} first, so no {whom} reaches this map: move this map's lookup before the \
         lookup of {by}, or add also={also} to the SLO on that line"
    )]
    NeverAsked { by: String, whom: &'static str, also: String },
    #[error(
        "type {kind} has the {field} field, which no lookup reads and no shipped file sends: if your proxy \
         sends it, name it in a lookup; otherwise, use one of source, website, owner, method, path, query, \
         url, base, user_agent, referer, origin, x_..."
    )]
    UnknownField { kind: u16, field: String },
    #[error(
        "max_delay {} is longer than [hold] longest, {}, so holds end early and the SLO is exceeded: \
         shorten max_delay, or raise [hold] longest",
        written(*.max_delay), written(*.longest)
    )]
    Cut { max_delay: Duration, longest: Duration },
    #[error(
        "max_delay is {}, but HAProxy, with the shipped files, waits only {}, so requests proceed early: \
         regenerate the files with `slowlane config haproxy`",
        written(*.max_delay), written(HOLD_SHIPPED)
    )]
    Shipped { max_delay: Duration },
    #[error(
        "without max_delay, adaptive may delay requests for longer than [hold] longest, {}, so holds end \
         early and the SLO is exceeded: add max_delay=", written(*.0)
    )]
    Unbounded(Duration),
    #[error(
        "the {law} law cannot be shared, so each node of the cluster allows the full SLO: write cluster=local \
         if this is intended"
    )]
    Unshared { law: &'static str },
    #[error(
        "cluster=rate: burst {burst} at {rate} is too small for [cluster] period {}, so nodes refuse \
         requests even below the rate: raise the burst to {least} or more, or shorten the period", written(*.period)
    )]
    Hasty { burst: u32, rate: Rate, period: Duration, least: u64 },
    #[error(
        "rate {rate} is too low for several nodes that push limits to HAProxy as a peer, so the rate is \
         exceeded in some seconds: regenerate HAProxy's files with --delivery hold or --delivery pause"
    )]
    Uneven { rate: Rate },
    #[error(
        "unit={0}: HAProxy as a peer cannot limit work by itself, so it queries slowlane for each request"
    )]
    Asked(String),
    #[error(
        "law=protect: HAProxy as a peer neither holds requests nor reports when they end, so nothing is \
         protected: attach HAProxy over SPOE instead"
    )]
    Unprotected,
    #[error(
        "cluster={sharing}: all nodes together may let through more than the quota allows in {}: to prevent \
         this, use cluster=lease",
        written(*.window)
    )]
    Quota { sharing: &'static str, window: Duration },
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_eleventh_warning_is_only_counted() {
        let mut warnings = Warnings::default();
        for line in 1..=WARNINGS_MAX {
            warnings.add(Path::new("owner.map"), Some(line), WarningKind::Unread("x".into()));
        }
        for _ in 0..3 {
            warnings.add_with(Path::new("owner.map"), || unreachable!("nobody reads it"));
        }
        assert_eq!(warnings.count(), WARNINGS_MAX + 3);
        let shown = warnings.to_string();
        assert_eq!(shown.lines().count(), WARNINGS_MAX + 1);
        assert!(shown.ends_with("\nand 3 more"), "{shown}");
    }
}
