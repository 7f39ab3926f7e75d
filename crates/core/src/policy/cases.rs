//! The SLOs of one request: the chain that begins with the request's own SLO, and the SLOs that lookups add.

use arrayvec::ArrayVec;

use crate::base::{Assurance, Blocked, BlockedBy, CHAIN_MAX, JUDGED_MAX, Judged, Key, Request};
use crate::law::Judgement;
use crate::policy::classify::ask;
use crate::policy::{Answer, Batch, LookupMap, Pattern, Policy, Refused, Slo, SloPlan, Values};

/// One SLO of a request.
#[derive(Clone, Copy, Debug)]
pub struct Case<'p> {
    pub slo: &'p Slo,
    pub plan: &'p SloPlan,
    /// The key under which the request is counted.
    pub key: Key,
    /// A hash of the fields that divide the SLO's bucket among clients; 0 if there are no such fields.
    pub sharer: u64,
    /// The key under which the SLO's assured rate is counted. None without such a rate or an SLO above this one.
    pub assured: Option<Key>,
    /// The amount to charge: a cost in requests, or a reservation in grains.
    pub cost: u32,
    /// Whether a lookup has added this SLO. An added SLO is not above any other SLO.
    pub is_added: bool,
}

impl Case<'_> {
    /// The judgement in the form that a decision holds.
    #[inline]
    pub(crate) fn judged(&self, judgement: &Judgement) -> Judged {
        Judged {
            slo: self.slo.id,
            key: self.key,
            verdict: judgement.verdict,
            remaining: self.slo.remaining(judgement),
            cost: self.cost,
            is_dry_run: self.slo.dry_run,
            ends: self.slo.ends,
            assurance: Assurance::NONE,
        }
    }

    /// The block on the key, if the block affects the decision. A block set by a dry run does not.
    #[inline]
    pub(crate) fn blocked(&self, judgement: &Judgement) -> Option<Blocked> {
        let until = judgement.blocked_until.filter(|_| !self.slo.dry_run)?;
        Some(Blocked { by: BlockedBy::Slo(self.key), until })
    }
}

/// All SLOs of a request, its own first.
#[derive(Clone, Debug)]
pub struct Cases<'p> {
    pub list: ArrayVec<Case<'p>, JUDGED_MAX>,
    /// The number of requests that this request counts as.
    pub cost: u32,
    /// The operator's block that matches the request. The block may already have expired.
    pub blocked: Option<Blocked>,
    /// Whether the answer can be held until a moment that may move in the meantime.
    pub may_hold: bool,
}

impl Policy {
    /// All SLOs of one request: the chain that begins with the request's own SLO and follows `also`, then the
    /// SLOs that lookups add. No type occurs twice, because two SLOs of the same type would share an entry.
    ///
    /// ```
    /// # use std::{io, path::Path};
    /// # use slowlane_core::{policy::{Layout, Policy}, base::{Request, Value}};
    /// let read = |path: &Path| match path.to_str() {
    ///     Some("slo.map") => Ok(b"0 burst=1 rate=1/s\n1001 burst=9 rate=9/s\n2001 burst=1 rate=1/s also=owner".to_vec()),
    ///     Some("owner.map") => Ok(b"acme 1001".to_vec()),
    ///     Some("website.map") => Ok(b"shop.example 2001".to_vec()),
    ///     _ => Err(io::ErrorKind::NotFound.into()),
    /// };
    /// # let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    /// # let mut request = Request::new();
    /// request.push(b"owner", Value::Text(b"acme"));
    /// request.push(b"website", Value::Text(b"shop.example"));
    /// request.push(b"cost", Value::Number(5));
    /// let cases = policy.cases(&request);
    /// let slos: Vec<u32> = cases.list.iter().map(|case| case.slo.id.number()).collect();
    /// assert_eq!((slos, cases.cost), (vec![2001, 1001], 5));
    /// ```
    pub fn cases(&self, request: &Request<'_>) -> Cases<'_> {
        let mut batch = Batch::of(self);
        batch.push(request);
        batch.only_cases(&mut |_, _| {})
    }

    /// The SLOs of a request: the chain from the request's own SLO, then the SLOs that lookups add; or else SLO 0.
    #[inline]
    pub(super) fn listed<'p>(
        &'p self,
        answer: Answer,
        values: Values<'_, '_>,
        cost: u32,
        trace: &mut impl FnMut(&'p LookupMap, Option<Pattern>),
    ) -> Result<ArrayVec<Case<'p>, JUDGED_MAX>, Refused> {
        let mut list: ArrayVec<Case<'_>, JUDGED_MAX> = ArrayVec::new();
        let kind = |place: usize| self.slos[place].id.kind();
        let mut added: ArrayVec<usize, JUDGED_MAX> = ArrayVec::new();
        for map in &self.lookups[self.chosen..] {
            added.extend(ask(map, values, trace).checked()?);
        }
        let mut next = answer.checked()?.or(added.is_empty().then_some(0));
        while let Some(place) = next {
            list.push(self.case(place, values, cost));
            let Some(also) = self.refs[place].also.filter(|_| list.len() < CHAIN_MAX) else { break };
            next = ask(&self.lookups[also], values, trace).checked()?;
            next = next.filter(|&next| list.iter().all(|case| case.slo.id.kind() != kind(next)));
            if let Some(before) =
                list.last_mut().filter(|before| next.is_some() && before.slo.assured.is_some())
            {
                before.assured = Some(self.assured_key(before.key));
            }
        }
        for place in added {
            if list.iter().all(|case| case.slo.id.kind() != kind(place)) {
                list.push(Case { is_added: true, ..self.case(place, values, cost) });
            }
        }
        Ok(list)
    }
}
