//! The last reloads of the policy, with the errors of refused reloads.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use slowlane_core::base::{Timestamp, shown};

/// The maximum number of reloads kept.
const RELOADS_MAX: usize = 10;

/// The maximum number of errors kept per reload.
const ERRORS_MAX: usize = 8;

/// The maximum number of characters kept per error.
const ERROR_CHARS_MAX: usize = 300;

/// A reload of the policy, successful or refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadLine {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub ok: bool,
    /// The policy in words, like `12 SLOs; website.map 3 lines`; empty if the reload was refused.
    pub summary: String,
    /// The first problems of a refused reload, or the first warnings of a successful reload.
    pub problems: Vec<String>,
    pub problems_total: usize,
}

/// The last reloads, and facts that stay until the process ends.
#[derive(Debug, Default)]
pub struct Reloads {
    list: Mutex<VecDeque<ReloadLine>>,
    /// If the config file has been edited since startup, a report that says how to put the edit in force.
    edited: Mutex<Option<String>>,
}

impl Reloads {
    /// Adds a reload that succeeded, with one warning per line.
    pub fn done(&self, at: Timestamp, summary: String, warnings: &str) {
        let all = self.edited().into_iter().chain(warnings.lines().map(str::to_owned)).collect::<Vec<_>>();
        self.add(at, Some(summary), &all.join("\n"));
    }

    /// Notes an edit of the config file, and the report that later reloads repeat. `None` if the edit was undone.
    pub fn edit(&self, at: Timestamp, summary: String, reported: Option<String>) {
        *self.edited.lock() = reported;
        self.done(at, summary, "");
    }

    /// The report about an edited config file.
    pub fn edited(&self) -> Option<String> {
        self.edited.lock().clone()
    }

    /// Adds a reload that was refused, with one problem per line.
    pub fn refused(&self, at: Timestamp, problems: &str) {
        self.add(at, None, problems);
    }

    /// The reloads, newest first.
    pub fn list(&self) -> Vec<ReloadLine> {
        self.list.lock().iter().cloned().collect()
    }

    fn add(&self, at: Timestamp, summary: Option<String>, problems: &str) {
        let first = problems.lines().take(ERRORS_MAX);
        let reload = ReloadLine {
            at_ms: at.since_epoch().as_millis() as u64,
            ok: summary.is_some(),
            summary: summary.unwrap_or_default(),
            problems: first
                .map(|line| shown(line.chars().take(ERROR_CHARS_MAX).collect::<String>()))
                .collect(),
            problems_total: problems.lines().count(),
        };
        let mut reloads = self.list.lock();
        reloads.truncate(RELOADS_MAX - 1);
        reloads.push_front(reload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_are_there_the_newest_first() {
        let reloads = Reloads::default();
        let done = |number| {
            reloads.done(Timestamp::from_millis(number), format!("{number} SLOs"), "one doubt\nanother");
        };
        (0..50).for_each(done);
        let long = "x".repeat(1_000);
        reloads.refused(Timestamp::from_millis(50), &[long.as_str(); 20].join("\n"));
        let list = reloads.list();
        assert_eq!(list.len(), 10);
        assert_eq!((list[0].problems.len(), list[0].problems_total), (8, 20));
        assert_eq!(list[0].problems[0].len(), 300);
        assert_eq!(list[1].summary, "49 SLOs");
        assert_eq!(list[1].problems, ["one doubt", "another"]);
    }

    #[test]
    fn an_edited_config_file_is_told_until_the_edit_is_taken_back() {
        let reloads = Reloads::default();
        let last = || reloads.list()[0].problems.clone();
        reloads.edit(Timestamp::default(), "1 SLO".into(), Some("it has changed".into()));
        assert_eq!(last(), ["it has changed"]);
        reloads.done(Timestamp::default(), "2 SLOs".into(), "one doubt");
        assert_eq!(last(), ["it has changed", "one doubt"]);
        reloads.edit(Timestamp::default(), "2 SLOs".into(), None);
        assert_eq!(last(), [""; 0]);
    }
}
