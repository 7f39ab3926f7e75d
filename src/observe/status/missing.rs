//! The fields that the policy in force needs, but that requests lack or send with unusable values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use slowlane_core::base::{cut, shown};
use slowlane_core::policy::{Needed, Policy, ValueKind};

/// A field is reported as missing after this many requests without it. Among so many requests, a field that one in a
/// hundred carries is seen with a probability of 99 %.
pub const REQUESTS_MIN: u64 = 500;

/// A window ends after this many requests. With at least [`FEW`] requests, it also ends after [`TICKS`].
const MANY: u64 = 5_000;
const FEW: u64 = 100;

/// The shortest window with few requests, in seconds.
const TICKS: u64 = 60;

/// The shortest time between two log lines about the same field, in seconds.
const LOG_EVERY: u64 = 600;

/// The maximum number of characters of an example, because a client may have chosen its text.
const EXAMPLE_CHARS: usize = 64;

/// If a larger share of the requests has faults, the configuration is wrong.
const SHARE_MAX: f64 = 0.01;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// The value is not what the policy needs.
    Unreadable,
    /// There is no value, although every limit needs one.
    Absent,
}

/// A fault in a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultLine {
    pub field: String,
    pub fault: Fault,
    /// The number of requests with the fault, among the last `of` requests.
    pub requests: u64,
    pub of: u64,
    /// The beginning of the last unreadable value.
    pub example: Option<String>,
    /// The whole fault in words, for people.
    pub text: String,
}

impl FaultLine {
    /// Whether the fault affects more than a few odd requests.
    pub fn is_much(&self) -> bool {
        self.requests as f64 > SHARE_MAX * self.of as f64
    }
}

/// Checks whether requests carry usable values of the fields that the policy needs, once a second and outside the
/// request path.
#[derive(Debug, Default)]
pub struct Missing(Mutex<Look>);

/// The findings of one second, for the log.
#[derive(Debug, Default)]
pub struct News {
    pub missing: Vec<MissingLine>,
    pub faults: Vec<FaultLine>,
}

/// A missing field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingLine {
    pub field: String,
    /// The maps, types and options that need the field, like `source+owner.map`, `type 4` or `share=owner`.
    pub needed_by: Vec<String>,
    /// The number of requests since the policy came into force; none of them carried the field.
    pub requests: u64,
}

/// The number of faults, by field and kind.
type FieldCounts = BTreeMap<(String, Fault), u64>;

/// The counts of a policy at a moment.
#[derive(Clone, Debug, Default)]
struct Mark {
    /// Seconds since startup.
    tick: u64,
    /// The number of requests that the policy has decided.
    requests: u64,
    faults: FieldCounts,
}

#[derive(Debug, Default)]
struct Look {
    /// The policy that was checked. The reference keeps the policy's address from being reused.
    policy: Weak<Policy>,
    /// The number of all requests before the first check of this policy.
    before: u64,
    now: Mark,
    /// The starts of the previous and the current window. Faults since the earlier start count as recent.
    begins: [Mark; 2],
    /// The missing fields that were logged.
    reported: BTreeSet<String>,
    /// The numbers of faults under earlier policies.
    earlier: FieldCounts,
    /// The tick at which each fault was logged. Kept across policies, because some policies are replaced every minute.
    logged: FieldCounts,
}

impl Missing {
    /// Checks the policy in force, and returns only findings that are new. `total` tells the number of all requests
    /// so far. It is asked after the faults are read, because a request is counted after its faults. Call this once a
    /// second.
    pub fn tick(&self, policy: &Arc<Policy>, total: impl FnOnce() -> u64) -> News {
        let mut look = self.0.lock();
        let look = &mut *look;
        let (faults, total) = (counts(policy), total());
        if !look.is_at(policy) {
            look.turn_to(policy, total);
        }
        let tick = look.now.tick + 1;
        look.now = Mark { tick, requests: total - look.before, faults };
        let begin = &look.begins[1];
        let (since, ticks) = (look.now.requests - begin.requests, tick - begin.tick);
        if since >= MANY || since >= FEW && ticks >= TICKS {
            look.begins.swap(0, 1);
            look.begins[1] = look.now.clone();
        }
        policy.calm();
        let (mut missing, mut faults) = (look.lines(policy), look.faults(policy));
        missing.retain(|line| look.reported.insert(line.field.clone()));
        look.logged.retain(|_, at| tick - *at < LOG_EVERY);
        faults.retain(|line| *look.logged.entry((line.field.clone(), line.fault)).or_insert(tick) == tick);
        News { missing, faults }
    }

    /// The recent faults.
    pub fn faults(&self, policy: &Arc<Policy>) -> Vec<FaultLine> {
        self.0.lock().faults(policy)
    }

    /// The numbers of faults since startup, for the fields of this policy.
    pub fn fault_totals(&self, policy: &Arc<Policy>) -> BTreeMap<(String, Fault), u64> {
        let (look, mut totals) = (self.0.lock(), counts(policy));
        totals.iter_mut().for_each(|(key, count)| *count += look.earlier(policy, key));
        totals
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

    fn turn_to(&mut self, policy: &Arc<Policy>, total: u64) {
        // The first policy was in force before the first request, so all requests count.
        let before = if self.policy.ptr_eq(&Weak::new()) { 0 } else { total };
        let mut earlier = counts(policy);
        earlier.iter_mut().for_each(|(key, count)| *count = self.earlier(policy, key));
        let now = Mark { tick: self.now.tick, ..Mark::default() };
        let (begins, logged) = ([now.clone(), now.clone()], mem::take(&mut self.logged));
        let reported = BTreeSet::new();
        *self = Look { policy: Arc::downgrade(policy), before, now, begins, reported, earlier, logged };
    }

    /// The number of a field's faults under the policies before this one.
    fn earlier(&self, policy: &Arc<Policy>, key: &(String, Fault)) -> u64 {
        let last = if self.is_at(policy) { None } else { self.now.faults.get(key) };
        last.unwrap_or(&0) + self.earlier.get(key).unwrap_or(&0)
    }

    fn lines(&self, policy: &Arc<Policy>) -> Vec<MissingLine> {
        if !self.is_at(policy) || self.now.requests < REQUESTS_MIN {
            return Vec::new();
        }
        let missing = policy.needed_fields().filter(|needed| needed.is_missing);
        let line = |needed| MissingLine {
            needed_by: policy.needed_by(&needed).iter().map(shown).collect(),
            field: shown(needed.field),
            requests: self.now.requests,
        };
        missing.map(line).collect()
    }

    /// Recent faults, except in fields that no request carries, which are reported as missing instead.
    fn faults(&self, policy: &Arc<Policy>) -> Vec<FaultLine> {
        if !self.is_at(policy) {
            return Vec::new();
        }
        let lines = policy.faults().flat_map(|needed| {
            [Fault::Unreadable, Fault::Absent].map(|fault| self.fault(policy, &needed, fault))
        });
        let missing = self.lines(policy);
        lines.flatten().filter(|fault| missing.iter().all(|line| line.field != fault.field)).collect()
    }

    fn fault(&self, policy: &Policy, needed: &Needed<'_>, fault: Fault) -> Option<FaultLine> {
        let (key, begin) = ((shown(needed.field), fault), &self.begins[0]);
        let count = |mark: &Mark| mark.faults.get(&key).copied().unwrap_or(0);
        let requests = count(&self.now) - count(begin);
        // The faults of a request are counted before the request, so the number of requests may lag behind.
        let of = (self.now.requests - begin.requests).max(requests);
        if requests == 0 {
            return None;
        }
        let example = (fault == Fault::Unreadable).then(|| cut(shown(policy.example(needed)), EXAMPLE_CHARS));
        let needed_by = listed(&policy.needed_by(needed).iter().map(shown).collect::<Vec<_>>());
        let (field, fault) = key;
        let like = example.as_deref().unwrap_or_default();
        let text = match (fault, needed.kind) {
            (Fault::Absent, _) => {
                format!(
                    "{requests} of the last {of} requests carried no {field}, which every limit needs: no \
                     limit applied to these requests"
                )
            }
            (_, ValueKind::Number) => format!(
                "{requests} of the last {of} requests carried a {field} like \"{like}\", which is not a whole \
                 number: each of these requests counts as 1"
            ),
            (_, ValueKind::Amount) => format!(
                "{requests} of the last {of} requests carried an {field} like \"{like}\", which is not an \
                 amount: each of these requests reserves the usual amount"
            ),
            (_, ValueKind::Address | ValueKind::Text) => format!(
                "{requests} of the last {of} requests carried a {field} like \"{like}\", which is not an \
                 address; the field is needed by {needed_by}"
            ),
        };
        Some(FaultLine { field, fault, requests, of, example, text })
    }
}

fn counts(policy: &Policy) -> FieldCounts {
    let counted = policy.faults().flat_map(|faults| {
        let field = shown(faults.field);
        [(Fault::Unreadable, faults.unreadable), (Fault::Absent, faults.absent)]
            .map(|(fault, count)| ((field.clone(), fault), count))
    });
    counted.collect()
}

/// Words as a list in a sentence: `a, b and c`.
fn listed(words: &[String]) -> String {
    match words {
        [] => "the policy".to_owned(),
        [one] => one.clone(),
        [some @ .., last] => format!("{} and {last}", some.join(", ")),
    }
}

impl fmt::Display for MissingLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissingLine { field, needed_by, requests } = self;
        write!(f, "none of {requests} requests carried {field}, which ")?;
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
        assert_eq!(missing.tick(&policy, || REQUESTS_MIN - 1).missing, []);
        let expected = [
            "none of 500 requests carried owner, which source+owner.map and type 4 need",
            "none of 500 requests carried website, which website.map needs",
        ];
        assert_eq!(reported(&missing.tick(&policy, || REQUESTS_MIN).missing), expected);
        assert_eq!(missing.tick(&policy, || REQUESTS_MIN + 1).missing, [], "once");
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
        assert_eq!(missing.tick(&first, || 9_000).missing.len(), 3);
        assert_eq!(missing.tick(&second, || 9_300).missing, [], "none of its own");
        assert_eq!(missing.lines(&first), [], "it is no longer in force");
        assert_eq!(missing.tick(&second, || 9_799).missing, []);
        assert_eq!(missing.tick(&second, || 9_800).missing.len(), 3);
        assert_eq!(missing.tick(&Arc::new(Policy::builtin()), || 1 << 40).missing, []);
        assert_eq!(missing.tick(&Arc::new(Policy::builtin()), || 1 << 41).missing, [], "nothing is needed");
    }
}
