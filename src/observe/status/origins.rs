//! The lines of the policy that throttle the listed keys.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Weak};

use crate::observe::status::Label;
use slowlane_core::base::{Key, Query, Shown, SloId};
use slowlane_core::policy::{Origin, Policy};

/// The maximum number of lookups for one snapshot. Each lookup counts the lines of a map, which takes milliseconds for
/// a large map.
const LOOKUPS_MAX: usize = 20;

/// Known lines, kept while their keys are listed and their policy is in force.
#[derive(Debug, Default)]
pub(super) struct Origins {
    policy: Weak<Policy>,
    known: HashMap<(Key, SloId), Option<String>>,
}

/// A listed key with its SLO, and the fields of a request that has this key.
pub(super) type Listed<'l> = ((Key, SloId), &'l Label);

impl Origins {
    /// Looks up at most [`LOOKUPS_MAX`] unknown lines of listed keys. Forgets the lines of keys no longer listed.
    pub(super) fn update<'l>(&mut self, policy: &Arc<Policy>, listed: impl Iterator<Item = Listed<'l>>) {
        let mut before = mem::take(&mut self.known);
        let in_force = Arc::downgrade(policy);
        if !self.policy.ptr_eq(&in_force) {
            (self.policy, before) = (in_force, HashMap::new());
        }
        let mut lookups = 0;
        for (key, label) in listed {
            let known = before.remove(&key);
            if known.is_none() && lookups == LOOKUPS_MAX {
                continue;
            }
            let line = known.unwrap_or_else(|| {
                lookups += 1;
                line(policy, &label.query()?, key.1)
            });
            self.known.insert(key, line);
        }
    }

    /// The file and the line, like `source.map:8`, that gave a key its SLO.
    pub(super) fn of(&self, key: (Key, SloId)) -> Option<String> {
        self.known.get(&key).cloned().flatten()
    }
}

/// The line that gives a request this SLO: in a map, or in `slo.map` if no map names the SLO.
fn line(policy: &Policy, query: &str, slo: SloId) -> Option<String> {
    let query = Query::read(query);
    let explanation = policy.explain(&query.request());
    let explained = explanation.of.iter().find(|explained| explained.case.slo.id == slo)?;
    let (path, line) = match explained.origin {
        Some(Origin { path, line, .. }) => (path, line),
        None => (policy.slo_map(), explained.line),
    };
    Some(format!("{}:{line}", Shown(path.file_name()?.as_encoded_bytes())))
}
