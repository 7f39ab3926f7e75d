//! The fields that the policy in force needs, and that requests lack or garble.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::observe::status::faults::{Fault, FaultLine, FieldCounts, Logged, Recent, counts, listed};
use slowlane_core::base::shown;
use slowlane_core::policy::Policy;

/// A field is reported as missing after this many requests without it. A field that one request in a hundred carries
/// is seen by then with a probability of 99 %.
pub const REQUESTS_MIN: u64 = 500;

/// The check of the fields, once a second and outside the request path.
#[derive(Debug, Default)]
pub struct Missing(Mutex<Look>);

/// The findings of one second, for the log.
#[derive(Debug, Default)]
pub struct News {
    pub missing: Vec<MissingLine>,
    pub faults: Vec<FaultLine>,
}

#[derive(Debug, Default)]
struct Look {
    /// The policy that was checked. The reference keeps its address from being reused.
    policy: Weak<Policy>,
    /// All requests at the first check of this policy.
    before: u64,
    /// Requests that this policy has decided.
    requests: u64,
    /// The missing fields that were logged.
    reported: BTreeSet<String>,
    recent: Recent,
    /// The faults under earlier policies.
    earlier: FieldCounts,
    logged: Logged,
    ticks: u64,
}

/// A missing field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingLine {
    pub field: String,
    /// Maps, types and options: `source+owner.map`, `type 4`, `share=owner`.
    pub needed_by: Vec<String>,
    /// The requests since the policy came into force, none of which carried the field.
    pub requests: u64,
}

impl Missing {
    /// Checks the policy in force, and returns what was not returned before. `total` is the number of all requests so
    /// far. Call it once a second.
    pub fn tick(&self, policy: &Arc<Policy>, total: u64) -> News {
        let mut look = self.0.lock();
        if !look.is_at(policy) {
            // The first policy was there before the first request.
            let before = if look.policy.ptr_eq(&Weak::new()) { 0 } else { total };
            let earlier = counts(policy).into_keys().map(|key| (key.clone(), look.earlier(policy, &key)));
            let earlier = earlier.collect();
            let (logged, ticks) = (mem::take(&mut look.logged), look.ticks);
            let policy = Arc::downgrade(policy);
            *look = Look { policy, before, earlier, logged, ticks, ..Look::default() };
        }
        look.requests = total - look.before;
        look.ticks += 1;
        let Look { requests, ticks, .. } = *look;
        look.recent.tick(policy, requests);
        let mut missing = look.lines(policy);
        missing.retain(|line| look.reported.insert(line.field.clone()));
        let faults = look.faults(policy);
        News { missing, faults: look.logged.news(faults, ticks) }
    }

    /// The faults of late.
    pub fn faults(&self, policy: &Arc<Policy>) -> Vec<FaultLine> {
        self.0.lock().faults(policy)
    }

    /// All faults since the start, of the fields of this policy.
    pub fn fault_totals(&self, policy: &Arc<Policy>) -> BTreeMap<(String, Fault), u64> {
        let look = self.0.lock();
        let total = |key: &_, count| count + look.earlier(policy, key);
        counts(policy).into_iter().map(|(key, count)| (key.clone(), total(&key, count))).collect()
    }

    /// The fields that are missing now.
    pub fn lines(&self, policy: &Arc<Policy>) -> Vec<MissingLine> {
        self.0.lock().lines(policy)
    }

    /// Each field that the policy needs, and whether it is missing now.
    pub fn fields(&self, policy: &Arc<Policy>) -> Vec<(String, bool)> {
        let missing = self.lines(policy);
        let is_missing = |field: &str| missing.iter().any(|line| line.field == shown(field));
        policy.needed_fields().map(|needed| (shown(needed.field), is_missing(needed.field))).collect()
    }
}

impl Look {
    fn is_at(&self, policy: &Arc<Policy>) -> bool {
        std::ptr::eq(self.policy.as_ptr(), Arc::as_ptr(policy))
    }

    /// The faults of a field under the policies before this one.
    fn earlier(&self, policy: &Arc<Policy>, key: &(String, Fault)) -> u64 {
        let recent = if self.is_at(policy) { None } else { self.recent.counts().get(key) };
        recent.unwrap_or(&0) + self.earlier.get(key).unwrap_or(&0)
    }

    /// Recent faults, without those of fields that no request carries: these are reported as missing instead.
    fn faults(&self, policy: &Arc<Policy>) -> Vec<FaultLine> {
        if !self.is_at(policy) {
            return Vec::new();
        }
        let (mut faults, missing) = (self.recent.lines(policy), self.lines(policy));
        faults.retain(|fault| missing.iter().all(|line| line.field != fault.field));
        faults
    }

    fn lines(&self, policy: &Arc<Policy>) -> Vec<MissingLine> {
        if !self.is_at(policy) || self.requests < REQUESTS_MIN {
            return Vec::new();
        }
        let missing = policy.needed_fields().filter(|needed| needed.is_missing);
        let line = |needed| MissingLine {
            needed_by: policy.needed_by(&needed).iter().map(shown).collect(),
            field: shown(needed.field),
            requests: self.requests,
        };
        missing.map(line).collect()
    }
}

impl fmt::Display for MissingLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissingLine { field, needed_by, requests } = self;
        write!(f, "no request of {requests} carried {field}, which ")?;
        write!(f, "{} {}", listed(needed_by), if needed_by.len() > 1 { "need" } else { "needs" })
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use slowlane_core::base::{Request, Value};
    use slowlane_core::policy::{Batch, Layout};

    fn policy(files: &'static [(&str, &str)]) -> Arc<Policy> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| path == Path::new(name));
            file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Arc::new(Policy::parse(Path::new(""), &Layout::default(), read).unwrap())
    }

    const OWNERS: &[(&str, &str)] = &[
        ("slo.map", "0 rate=unlimited\n4001 burst=1 rate=1/s\n"),
        ("source+owner.map", "::/0+acme 4001\n"),
        ("website.map", "shop.example 0\n"),
    ];

    fn ask(policy: &Policy, field: &str) {
        let (mut batch, mut request) = (Batch::of(policy), Request::new());
        request.push(field.as_bytes(), Value::Text(b"192.0.2.1"));
        batch.push(&request);
        batch.note_fields();
    }

    fn reported(lines: &[MissingLine]) -> Vec<String> {
        lines.iter().map(MissingLine::to_string).collect()
    }

    #[test]
    fn a_field_is_told_once_and_shown_until_a_request_carries_it() {
        let (missing, policy) = (Missing::default(), policy(OWNERS));
        ask(&policy, "source");
        assert_eq!(missing.tick(&policy, REQUESTS_MIN - 1).missing, []);
        let expected = [
            "no request of 500 carried owner, which source+owner.map and type 4 need",
            "no request of 500 carried website, which website.map needs",
        ];
        assert_eq!(reported(&missing.tick(&policy, REQUESTS_MIN).missing), expected);
        assert_eq!(missing.tick(&policy, REQUESTS_MIN + 1).missing, [], "once");
        let now = |missing: &Missing| {
            missing.lines(&policy).iter().map(|line| (line.field.clone(), line.requests)).collect::<Vec<_>>()
        };
        assert_eq!(now(&missing), [("owner".into(), 501), ("website".into(), 501)]);
        ask(&policy, "website");
        assert_eq!(now(&missing), [("owner".into(), 501)]);
        let fields = [("owner".into(), true), ("source".into(), false), ("website".into(), false)];
        assert_eq!(missing.fields(&policy), fields);
    }

    #[test]
    fn each_policy_counts_its_own_requests_and_is_told_of_once() {
        let missing = Missing::default();
        let (first, second) = (policy(OWNERS), policy(OWNERS));
        assert_eq!(missing.tick(&first, 9_000).missing.len(), 3);
        assert_eq!(missing.tick(&second, 9_300).missing, [], "none of its own");
        assert_eq!(missing.lines(&first), [], "it is no longer in force");
        assert_eq!(missing.tick(&second, 9_799).missing, []);
        assert_eq!(missing.tick(&second, 9_800).missing.len(), 3);
        assert_eq!(missing.tick(&Arc::new(Policy::builtin()), 1 << 40).missing, []);
        assert_eq!(missing.tick(&Arc::new(Policy::builtin()), 1 << 41).missing, [], "nothing is needed");
    }
}
