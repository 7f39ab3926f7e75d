//! The outcome of a replay: what each policy said, of whom, and how far to believe it.

use std::fmt;
use std::time::Duration;

use crate::base::units;
use crate::policy::Slo;
use crate::tools::access_log::LogOutcome;
use crate::tools::replay::keys::KeyRow;
use crate::tools::replay::order::RECORDS_MAX;
use crate::tools::replay::series::Series;
use crate::tools::replay::tally::Figures;

/// What came of all logs.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub logs: Vec<LogOutcome>,
    pub begun_ns: u64,
    pub ended_ns: u64,
    /// The policy, and the one that it is held against.
    pub sides: Vec<Side>,
    /// Of each verdict of the first policy (pass, delay, deny) how often the second said which.
    pub changes: Option<[[u64; 3]; 3]>,
    pub notes: Vec<Note>,
}

/// What came of a policy.
#[derive(Clone, Debug)]
pub struct Side {
    pub name: String,
    /// What the proxies would have been told.
    pub total: Figures,
    /// What each SLO says that had a say, on its own account: those with `dry_run=yes` too.
    pub slos: Vec<(Slo, Figures)>,
    /// How many keys had requests delayed or denied, and the first of them; of two policies those that they
    /// judge differently.
    pub throttled_keys: usize,
    pub keys: Vec<KeyRow>,
    pub series: Series,
}

/// What one should know before one believes the figures. Sides are numbered from 0.
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
    /// As late, but there was no room to wait for them.
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
                write!(f, "{whose} the field {field}, which the policy uses: its requests were judged without it; ")?;
                match field.as_str() {
                    "website" => f.write_str(
                        "log the Host (HAProxy: capture request header Host len 64, and --field website=%[capture.req.hdr(0)]; \
                         nginx: $host), or say --field website=NAME",
                    ),
                    _ => write!(f, "say which item has it, like --field {field}=%[var(txn.{field})] or --field {field}=$http_x_{field}"),
                }
            }
            Note::WebsiteByChance => f.write_str(
                "the website is known only of requests with an absolute URI, as HTTP/2 has them: log the Host, or say \
                 --field website=NAME",
            ),
            Note::Zones => f.write_str("times without a zone were read as UTC, beside others that have one"),
            Note::Late { requests, reorder } => write!(
                f,
                "{requests} requests stand more than {} behind later ones and were judged as if they had come then: \
                 raise --reorder, or give logs of several proxies as files of their own",
                units::written(*reorder)
            ),
            Note::Crowded { requests } => write!(
                f,
                "{requests} requests stand behind so many later ones that these could not all be kept back ({RECORDS_MAX} at most), \
                 and were judged as if they had come then: give logs of several proxies as files of their own"
            ),
            Note::PutBack { log, line } => write!(
                f,
                "{log}: from line {line} on its clock is an hour behind, as at the end of summer time, and tells no zone: what \
                 came in that hour was judged as if it had come at once; replay the lines before it in a run of their own"
            ),
            Note::Stray { requests } => {
                write!(f, "{requests} requests are left out: their times are far ahead of the lines behind them")
            }
            Note::Ends { requests, log_tells: true } => {
                write!(f, "of {requests} requests that law=concurrency counts the end is not known: they count for their lease")
            }
            Note::Ends { requests, log_tells: false } => write!(
                f,
                "the log does not tell how long requests took (%Ta, $request_time): {requests} count under law=concurrency for \
                 their whole lease"
            ),
            Note::Evictions { side, entries } => write!(
                f,
                "{}: the table was full and gave up {entries} entries, as it would live: raise [table] size",
                Note::side(*side)
            ),
            Note::Fallbacks { side, requests } => write!(
                f,
                "{}: {requests} requests were judged by the simpler law for want of memory: raise [table] annex_bytes_max",
                Note::side(*side)
            ),
            Note::Forgotten { side, keys, requests_max } => write!(
                f,
                "{}: {keys} keys that mattered least were not kept; a key that is shown may have had {requests_max} requests more",
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
