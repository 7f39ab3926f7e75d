//! The fields that the policy in force needs, and that no request carries.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use slowlane_core::base::shown;
use slowlane_core::policy::Policy;

/// A field is reported as missing after this many requests without it. A field that one request in a hundred carries
/// is seen by then with a probability of 99 %.
pub const REQUESTS_MIN: u64 = 500;

/// The check for missing fields, once a second and outside the request path.
#[derive(Debug, Default)]
pub struct Missing(Mutex<Look>);

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
    /// Checks the policy in force, and returns the missing fields that were not returned before, for the log. `total`
    /// is the number of all requests so far. Call it once a second.
    pub fn tick(&self, policy: &Arc<Policy>, total: u64) -> Vec<MissingLine> {
        let mut look = self.0.lock();
        if !look.is_at(policy) {
            // The first policy was there before the first request.
            let before = if look.policy.ptr_eq(&Weak::new()) { 0 } else { total };
            *look = Look { policy: Arc::downgrade(policy), before, ..Look::default() };
        }
        look.requests = total - look.before;
        let mut lines = look.lines(policy);
        lines.retain(|line| look.reported.insert(line.field.clone()));
        lines
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
        match needed_by.as_slice() {
            [] => f.write_str("the policy needs"),
            [one] => write!(f, "{one} needs"),
            [some @ .., last] => write!(f, "{} and {last} need", some.join(", ")),
        }
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
        assert_eq!(missing.tick(&policy, REQUESTS_MIN - 1), []);
        let expected = [
            "no request of 500 carried owner, which source+owner.map and type 4 need",
            "no request of 500 carried website, which website.map needs",
        ];
        assert_eq!(reported(&missing.tick(&policy, REQUESTS_MIN)), expected);
        assert_eq!(missing.tick(&policy, REQUESTS_MIN + 1), [], "once");
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
        assert_eq!(missing.tick(&first, 9_000).len(), 3);
        assert_eq!(missing.tick(&second, 9_300), [], "none of its own");
        assert_eq!(missing.lines(&first), [], "it is no longer in force");
        assert_eq!(missing.tick(&second, 9_799), []);
        assert_eq!(missing.tick(&second, 9_800).len(), 3);
        assert_eq!(missing.tick(&Arc::new(Policy::builtin()), 1 << 40), []);
        assert_eq!(missing.tick(&Arc::new(Policy::builtin()), 1 << 41), [], "nothing is needed");
    }
}
