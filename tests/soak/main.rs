//! The soak: everything that goes wrong in production, all at once, for as long as `SLOWLANE_SOAK` says.
//!
//! `tests/soak/run 1h`. Without a length it takes 30 s.
//!
//! Two sites, each of one slowlane, HAProxy 2.6 and 3.2 and nginx with the shipped files, and an application. Each has
//! customers within their SLOs, crawlers beyond them, and clients that leave. Meanwhile:
//!
//! - a policy edit each second, some of them broken, half-written or asked for by SIGHUP
//! - reloads of HAProxy
//! - floods of keys that come once, over SPOP and over HTTP
//! - peers that stall, send half a question, or never read
//! - operators that read the table, the page and the metrics
//! - a decision log on a full disk
//!
//! The agent of the first site is killed (`kill -9`) each minute. That of the second serves to the end: only a long life
//! shows a slow leak.
//!
//! Every request must be answered, and every customer be let through without a delay. An agent may log only what
//! [`log`] explains. Memory and file descriptors must not grow ([`samples`]). No time is judged.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod clients;
mod floods;
mod log;
mod policy;
mod proxies;
mod records;
mod samples;
mod site;
mod stalled;
#[path = "../it/support/mod.rs"]
mod support;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use slowlane_core::base::units;

use records::Records;
use site::Site;
use support::haproxy::Version;
use support::skipped;

/// In less time, the agent would not even give up a peer that never reads.
const LENGTH_MIN: Duration = Duration::from_secs(30);

/// How often what happens.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    length: Duration,
    kill_every: Duration,
    reload_every: Duration,
}

impl Plan {
    /// An hour has a kill each minute. A shorter soak has at least two.
    fn of(length: Duration) -> Plan {
        assert!(length >= LENGTH_MIN, "a soak takes 30s at least");
        let kill_every = (length / 3).min(Duration::from_secs(60));
        Plan { length, kill_every, reload_every: (length / 6).min(Duration::from_secs(20)) }
    }
}

/// The end of the soak, for all its threads.
#[derive(Clone, Default)]
pub struct End(Arc<AtomicBool>);

impl End {
    pub fn has_come(&self) -> bool {
        self.0.load(Relaxed)
    }

    fn comes(&self) {
        self.0.store(true, Relaxed);
    }
}

/// Held by each thread: when one returns or panics, the others end, too.
struct Ending(End);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.comes();
    }
}

#[test]
fn everything_at_once_harms_no_customer_and_leaves_memory_and_descriptors_flat() {
    let length = std::env::var("SLOWLANE_SOAK").unwrap_or_else(|_| "30s".into());
    let plan = Plan::of(units::duration(&length).expect("SLOWLANE_SOAK is a length, like 30s, 5m or 1h"));
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone()).unwrap();
    }
    if Version::V3_2.binary().is_none() {
        skipped("HAProxy 3.2 cannot be had on this machine: the soak has 2.6 only");
    }
    let mut sites = [Site::start("killed", Some(plan.kill_every)), Site::start("kept", None)];
    soak(&mut sites, plan, &interrupted);
    assert!(!interrupted.load(Relaxed), "the soak was interrupted: everything that it started has ended");
    let outcome: Vec<(String, Vec<String>)> = sites.into_iter().map(Site::end).collect();
    let summary: String = outcome.iter().map(|(outcome, _)| outcome.as_str()).collect();
    // Not captured: the figures are told of a soak that passes, too.
    let _ = writeln!(std::io::stderr(), "\nsoak of {length}\n{summary}");
    let faults: Vec<String> = outcome.into_iter().flat_map(|(_, faults)| faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Runs both sites with all their clients until the end.
fn soak(sites: &mut [Site], plan: Plan, interrupted: &AtomicBool) {
    let end = End::default();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for site in sites {
            let (records, crowd) = (site.records.clone(), site.crowd());
            for work in crowd {
                let ending = Ending(end.clone());
                threads.push((records.clone(), scope.spawn(move || work(&ending.0))));
            }
            let ending = Ending(end.clone());
            threads.push((records, scope.spawn(move || site.run(plan, &ending.0, interrupted))));
        }
        for (records, thread) in threads {
            if thread.join().is_err() {
                records.fault("a thread of the soak has panicked", "its message is above".into());
            }
        }
    });
}

/// A work of the crowd.
pub type Work = Box<dyn FnOnce(&End) + Send>;

/// Sleeps between two works, unless the end has come.
pub fn pause(time: Duration, end: &End) {
    if !end.has_come() {
        thread::sleep(time);
    }
}

/// The records of a site, for its threads.
pub type Shared = Arc<Records>;
