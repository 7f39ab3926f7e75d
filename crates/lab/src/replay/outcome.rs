//! The outcome of a replay: verdicts of each policy, by SLO and key, with notes on how far to trust them.

use std::fmt;
use std::time::Duration;

use crate::access_log::LogOutcome;
use crate::replay::keys::KeyRow;
use crate::replay::order::RECORDS_MAX;
use crate::replay::series::Series;
use crate::replay::tally::Figures;
use slowlane_core::base::units;
use slowlane_core::policy::Slo;

/// The outcome over all logs.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub logs: Vec<LogOutcome>,
    pub begun_ns: u64,
    pub ended_ns: u64,
    /// The policy, and the one that it is compared with.
    pub sides: Vec<Side>,
    /// By verdict of the first policy (pass, delay, deny): how often the second gave each.
    pub changes: Option<[[u64; 3]; 3]>,
    pub notes: Vec<Note>,
}

/// The outcome under one policy.
#[derive(Clone, Debug)]
pub struct Side {
    pub name: String,
    /// The verdicts that the proxies would have got.
    pub total: Figures,
    /// The verdicts of each SLO that was asked, those with `dry_run=yes` included.
    pub slos: Vec<(Slo, Figures)>,
    /// How many keys had requests delayed or denied, and the first of them. With two policies: the keys on which
    /// they differ.
    pub throttled_keys: usize,
    pub keys: Vec<KeyRow>,
    pub series: Series,
}

/// A reason for caution with the figures. Sides are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    NoField {
        field: String,
        everywhere: bool,
    },
    WebsiteByChance,
    Zones,
    Late {
        requests: u64,
        reorder: Duration,
    },
    /// Requests as late as those, because there was no room to wait.
    Crowded {
        requests: u64,
    },
    PutBack {
        log: String,
        line: u64,
    },
    Stray {
        requests: u64,
    },
    Ends {
        requests: u64,
        log_tells: bool,
    },
    Evictions {
        side: usize,
        entries: u64,
    },
    Fallbacks {
        side: usize,
        requests: u64,
    },
    Forgotten {
        side: usize,
        keys: u64,
        requests_max: u64,
    },
}

impl Outcome {
    pub fn requests(&self) -> u64 {
        self.sides.first().map_or(0, |side| side.total.requests)
    }

    pub(super) fn seconds(&self) -> f64 {
        (self.ended_ns - self.begun_ns) as f64 / 1e9
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::NoField { field, everywhere } => {
                let whose = if *everywhere { "the logs do not carry" } else { "some of the logs do not carry" };
                write!(f, "{whose} the field {field}, which the policy uses, so requests were decided without it; ")?;
                match field.as_str() {
                    "website" => f.write_str(
                        "log the Host (HAProxy: capture request header Host len 64, and --field website=%[capture.req.hdr(0)]; \
                         nginx: $host), or give --field website=NAME",
                    ),
                    _ => write!(f, "name the item that has it, like --field {field}=%[var(txn.{field})] or --field {field}=$http_x_{field}"),
                }
            }
            Note::WebsiteByChance => f.write_str(
                "only requests with an absolute URI, like those of HTTP/2, have the website: log the Host, or give \
                 --field website=NAME",
            ),
            Note::Zones => f.write_str("some times have a zone, and others have none and were read as UTC"),
            Note::Late { requests, reorder } => write!(
                f,
                "{requests} requests follow more than {} after later ones and were decided at the later time: \
                 raise --reorder, or give each proxy's log as a file of its own",
                units::written(*reorder)
            ),
            Note::Crowded { requests } => write!(
                f,
                "{requests} requests follow after more later ones than can be held back ({RECORDS_MAX}) and were decided at \
                 the later time: give each proxy's log as a file of its own"
            ),
            Note::PutBack { log, line } => write!(
                f,
                "{log}: from line {line} on its clock is an hour behind, as at the end of summer time, and it has no zone: \
                 the requests of that hour were decided all at once; replay the lines before it in a separate run"
            ),
            Note::Stray { requests } => {
                write!(f, "{requests} requests are left out: their times are far ahead of the lines after them")
            }
            Note::Ends { requests, log_tells: true } => {
                write!(f, "the end of {requests} requests under law=concurrency is unknown: they count for their whole lease")
            }
            Note::Ends { requests, log_tells: false } => write!(
                f,
                "the log has no durations (%Ta, $request_time): {requests} requests under law=concurrency count for their \
                 whole lease"
            ),
            Note::Evictions { side, entries } => write!(
                f,
                "{}: the table was full and evicted {entries} entries, as it would live: raise [table] size",
                Note::side(*side)
            ),
            Note::Fallbacks { side, requests } => write!(
                f,
                "{}: out of memory, {requests} requests were decided by a simpler law: raise [table] annex_bytes_max",
                Note::side(*side)
            ),
            Note::Forgotten { side, keys, requests_max } => write!(
                f,
                "{}: the {keys} least important keys were dropped; a key that is shown may have had {requests_max} more requests",
                Note::side(*side)
            ),
        }
    }
}

impl Note {
    fn side(number: usize) -> &'static str {
        if number == 0 { "--policy" } else { "--against" }
    }
}
