//! The reasons for a verdict: matching lines, keys, entries and formulas of the laws.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::observe::status::row::Columns;
use crate::observe::status::{BlockedKey, PeerCount};
use slowlane_core::base::{
    Assurance, Decision, Field, Judged, Key, Kind, Request, Sample, Shown, Timestamp, Value, Verdict,
    counted, is_same_name, shown, units::left,
};
use slowlane_core::law::Sketch;
use slowlane_core::policy::{Asked, Explained, Origin, Part, Policy};
use slowlane_core::throttle::{Throttle, View};

/// The decision that [`Throttle::decide`] would make on a request, with its reasons. Nothing is counted.
///
/// All text from clients is made safe to display.
#[derive(Clone, Debug, Serialize)]
pub struct Why {
    pub fields: Vec<Named>,
    /// The names of fields that no map, key or share of the policy uses; they may be misspelt.
    pub unused: Vec<String>,
    /// How many requests this request would count as.
    pub cost: u32,
    /// The verdict that the proxy would get.
    #[serde(flatten)]
    pub outcome: VerdictFields,
    /// The SLO that decides.
    pub slo: u32,
    /// The block that refuses the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<BlockedKey>,
    pub slos: Vec<RefusingSlo>,
}

/// A field and its value.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    pub name: String,
    pub value: Option<String>,
}

/// A verdict, in fields named like HAProxy's variables.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct VerdictFields {
    pub verdict: Kind,
    #[serde(rename = "delay")]
    pub delay_ms: u64,
    #[serde(rename = "retry_after", skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u32>,
    /// The number of additional requests that would pass without delay. `None` without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u32>,
}

/// The verdict of one SLO, with its reasons.
#[derive(Clone, Debug, Serialize)]
pub struct RefusingSlo {
    pub slo: u32,
    /// The path of `slo.map` and the number of its line.
    pub at: String,
    /// The text of that line.
    pub options: String,
    pub law: &'static str,
    pub dry_run: bool,
    /// The line of a map that named the SLO, if any.
    pub named_at: Option<String>,
    pub lookup: Option<String>,
    pub also_of: Option<u32>,
    /// The earlier lookups that had no answer.
    pub asked: Vec<String>,
    /// Sixteen hex digits. `None` if the key changes with each start, because the config names no secret.
    pub key: Option<String>,
    pub key_of: Vec<Named>,
    pub shared_by: Option<Named>,
    /// `None` before the first request of a key, and after its entry has expired.
    pub entry: Option<Columns>,
    pub formula: String,
    /// The formula of the SLO's assured rate, if the SLO has such a rate and another SLO is above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assured: Option<String>,
    /// Whether the request bypasses the SLOs above, because of its assured rate.
    pub carries: bool,
    /// The SLO whose assured rate overrules this verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried_by: Option<u32>,
    /// The counts of proxies that enforce limits locally.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerCount>,
    /// The unit of the SLO's numbers, if it does not count requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    #[serde(flatten)]
    pub outcome: VerdictFields,
}

impl Why {
    /// Explains the decision on a request, without jitter.
    pub fn of(throttle: &Throttle, request: &Request<'_>, now: Timestamp) -> Why {
        let policy = throttle.policy();
        let explanation = policy.explain(request);
        let foreseen =
            throttle.foresee_for(explanation.asker.as_ref(), &explanation.cases, now, Sample::MIDDLE);
        let decision = foreseen.decision;
        let slos = explanation.of.iter().zip(&foreseen.views);
        Why {
            fields: request.fields().map(Named::given).collect(),
            unused: unused(&policy, request),
            cost: explanation.cases.cost,
            outcome: VerdictFields::of(decision.verdict, decision.remaining),
            slo: decision.slo.number(),
            blocked: decision.blocked().and_then(|blocked| BlockedKey::of(blocked, throttle, now)),
            slos: slos
                .map(|(explained, view)| RefusingSlo::of(&policy, explained, view, &decision))
                .collect(),
        }
    }
}

/// The names of unused fields, except `cost`, which is shown separately, and `announced`.
fn unused(policy: &Policy, request: &Request<'_>) -> Vec<String> {
    let is_used = |name: &[u8]| policy.used_fields().any(|used| is_same_name(used.as_bytes(), name));
    let names = request.fields().map(|field| field.name);
    let is_own = |name: &[u8]| is_same_name(b"cost", name) || is_same_name(b"announced", name);
    names.filter(|name| !is_own(name) && !is_used(name)).map(shown).collect()
}

impl Why {
    /// Removes the keys, which are valid for one run only, unless the config names their secret.
    pub fn leave_out_keys(&mut self) {
        self.slos.iter_mut().for_each(|slo| slo.key = None);
    }

    /// Adds the counts of proxies that enforce limits locally.
    pub fn add_peers(&mut self, counts_of: impl Fn(Key) -> Vec<PeerCount>) {
        for slo in &mut self.slos {
            slo.peers = slo.key.as_deref().and_then(Key::from_hex).map(&counts_of).unwrap_or_default();
        }
    }

    /// JSON for programs, with a final line break.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain values are JSON") + "\n"
    }
}

impl Named {
    fn given(field: &Field<'_>) -> Named {
        let value = match field.value {
            Value::Text(text) | Value::Name(text) | Value::NoHost(text) | Value::Base { text, .. } => {
                shown(text)
            }
            Value::Address(address) => address.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Network(network) => network.to_string(),
        };
        Named { name: shown(field.name), value: Some(value) }
    }

    fn part(part: &Part<'_>) -> Named {
        Named { name: shown(part.field.as_bytes()), value: part.value.as_deref().map(shown) }
    }

    /// `network+source` and its values; `None` without parts.
    fn path(parts: &[Part<'_>]) -> Option<Named> {
        let mut parts = parts.iter().map(Named::part);
        let first = parts.next()?;
        Some(parts.fold(first, |Named { name, value }, inner| Named {
            name: format!("{name}+{}", inner.name),
            value: value.zip(inner.value).map(|(value, inner)| format!("{value}+{inner}")),
        }))
    }
}

impl VerdictFields {
    fn of(verdict: Verdict, remaining: u32) -> VerdictFields {
        let retry_after_s = match verdict {
            Verdict::Deny { retry_after_s } => Some(retry_after_s),
            Verdict::Pass | Verdict::Delay(_) => None,
        };
        VerdictFields {
            verdict: verdict.kind(),
            delay_ms: verdict.delay_ms(),
            retry_after_s,
            remaining: counted(remaining),
        }
    }
}

impl RefusingSlo {
    fn of(policy: &Policy, explained: &Explained<'_>, view: &View, decision: &Decision) -> RefusingSlo {
        let slo = explained.case.slo;
        let list = decision.judged();
        let guarantee = list.iter().find(|judged| judged.assurance.carries);
        // An SLO that a first stage excludes has no part in the decision.
        let own = |judged: &&Judged| (judged.slo, judged.key) == (slo.id, explained.case.key);
        let own = list.iter().find(own);
        let Assurance { carries, is_carried } = own.map(|judged| judged.assurance).unwrap_or_default();
        let origin = explained.origin.as_ref();
        RefusingSlo {
            slo: slo.id.number(),
            at: place(policy.slo_map(), explained.line),
            options: shown(explained.written),
            law: slo.law.name(),
            dry_run: slo.dry_run,
            named_at: origin.map(|&Origin { path, line, .. }| place(path, line)),
            lookup: origin.map(|origin| shown(origin.lookup.as_bytes())),
            also_of: explained.named_by.map(|id| id.number()),
            asked: explained.asked.iter().map(asked).collect(),
            key: Some(explained.case.key.to_string()),
            key_of: explained.parts.iter().map(Named::part).collect(),
            shared_by: Named::path(&explained.share),
            entry: view.found.map(|found| Columns::of(&found, decision.at)),
            formula: view.formula.clone(),
            assured: view.assured.clone(),
            carries,
            peers: Vec::new(),
            carried_by: guarantee.filter(|_| is_carried).map(|guarantee| guarantee.slo.number()),
            unit: slo.unit().map(|unit| unit.name().to_owned()),
            outcome: VerdictFields::of(view.judgement.verdict, slo.remaining(&view.judgement)),
        }
    }
}

fn place(path: &Path, line: usize) -> String {
    format!("{}:{line}", Shown(path.as_os_str().as_encoded_bytes()))
}

fn asked(asked: &Asked<'_>) -> String {
    let lookup = Shown(asked.lookup.as_bytes());
    match asked.line {
        Some(line) => format!("{lookup} (line {line}: -1)"),
        None => lookup.to_string(),
    }
}

/// Text for people:
///
/// ```text
/// request   website=shop.example
/// SLO 2001  burst=2 rate=50/s
///   in      policy/slo.map:2
///   named   policy/website.map:1 (lookup website)
///   key     26C7827D889F6DA3 of website shop.example
///   entry   exp=29998 gpt0=2000 gpc0_rate(1000)=3 http_req_cnt=3 gpc1_rate(1000)=3
///   pace    used 3 + cost 1 - burst 2 = 2 over; delay = 2 / 50/s = 40 ms <= max_delay 5s
///   says    delay 40 ms
/// verdict   delay 40 ms
/// ```
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields =
            if self.fields.is_empty() { "without a field".into() } else { joined(&self.fields, "=", " ") };
        let cost = if self.cost == 1 { String::new() } else { format!(", counts for {}", self.cost) };
        writeln!(f, "request   {fields}{cost}")?;
        if !self.unused.is_empty() {
            writeln!(
                f,
                "not used  {}: not named by any map, key or share of this policy",
                self.unused.join(", ")
            )?;
        }
        self.slos.iter().try_for_each(|slo| slo.fmt(f))?;
        if let Some(BlockedKey { by, left_s }) = &self.blocked {
            let (by, left) = (Shown(by.as_bytes()), left(u64::from(*left_s)));
            writeln!(f, "blocked   by {by}, for another {left}; `slowlane block rm` ends the block")?;
        }
        let of = if self.slos.len() > 1 { format!(" (SLO {})", self.slo) } else { String::new() };
        writeln!(f, "verdict   {}{of}, if asked now; nothing was counted", self.outcome)
    }
}

impl fmt::Display for RefusingSlo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<9} {}", format!("SLO {}", self.slo), self.options)?;
        writeln!(f, "  in      {}", self.at)?;
        writeln!(f, "  named   {}", self.named())?;
        let key = self.key.as_deref().unwrap_or("random at each start,");
        let type_digit = self.slo / 1_000;
        match self.key_of.is_empty() {
            true => writeln!(f, "  key     {key} shared by all requests (type {type_digit})")?,
            false => {
                let parts = joined(&self.key_of, " ", ", ");
                writeln!(f, "  key     {key} of {parts} (type {type_digit})")?;
            }
        }
        if let Some(share) = &self.shared_by {
            writeln!(f, "  shared  by {share}", share = joined(std::slice::from_ref(share), " ", ""))?;
        }
        match &self.entry {
            Some(columns) => writeln!(f, "  entry   exp={} {columns}", columns.exp)?,
            None if self.law == Sketch::NAME => writeln!(f, "  entry   none: sketch keeps no rows")?,
            None => writeln!(f, "  entry   none: a new key")?,
        }
        let unit = self.unit.as_ref().map_or(String::new(), |unit| format!(" ({unit})"));
        writeln!(f, "  {:<7} {}{unit}", self.law, self.formula)?;
        if let Some(assured) = &self.assured {
            let carries = if self.carries { ": bypasses the SLOs above" } else { "" };
            writeln!(f, "  assured {assured}{carries}")?;
        }
        for count in &self.peers {
            writeln!(f, "  peer    {count}")?;
        }
        let but = match (self.dry_run, self.carried_by) {
            (true, _) => " (dry_run=yes: not enforced)".to_owned(),
            (false, Some(slo)) => {
                format!(" (overruled by the assured rate of SLO {slo})")
            }
            (false, None) => String::new(),
        };
        writeln!(f, "  says    {}{but}", self.outcome)
    }
}

impl RefusingSlo {
    fn named(&self) -> String {
        let asked = match self.asked.is_empty() {
            true => String::new(),
            false => format!("; no answer from {}", self.asked.join(", ")),
        };
        match (&self.named_at, &self.lookup, self.also_of) {
            (Some(at), Some(lookup), Some(also_of)) => format!("{at} (also={lookup} of SLO {also_of})"),
            (Some(at), Some(lookup), None) => format!("{at} (lookup {lookup}{asked})"),
            _ => format!("by no map, so the default applies{asked}"),
        }
    }
}

impl fmt::Display for VerdictFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.verdict, self.retry_after_s) {
            (Kind::Delay, _) => write!(f, "delay {} ms", self.delay_ms)?,
            (_, Some(seconds)) => write!(f, "deny, retry after {seconds} s")?,
            (kind, None) => f.write_str(kind.name())?,
        }
        match self.remaining {
            None | Some(0) => Ok(()),
            Some(remaining) => write!(f, ", {remaining} more would pass at once"),
        }
    }
}

fn joined(named: &[Named], between: &str, after: &str) -> String {
    let one = |Named { name, value }: &Named| match value {
        Some(value) => format!("{name}{between}{value}"),
        None => format!("{name}{between}(missing)"),
    };
    named.iter().map(one).collect::<Vec<_>>().join(after)
}
