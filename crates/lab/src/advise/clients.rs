//! The clients of one type, in bounded memory.

use std::collections::HashMap;

use crate::advise::crowd::FEW;
use crate::advise::{AdviseError, By, Client};
use crate::replay::{KEYS_MAX, forget_half, name, text};
use slowlane_core::base::{Key, Request, SloId, Timestamp};
use slowlane_core::policy::{Method, Policy};

/// Fewer addresses are no crowd.
const SCATTERED_MIN: u64 = 100;

/// The clients of a type by key. The keys are those that a policy would count.
pub(super) struct Clients {
    pub(super) by: By,
    pub(super) id: SloId,
    policy: Policy,
    /// Its hasher has a secret: the clients in the log chose the values of the keys.
    pub(super) rows: HashMap<Key, Client>,
    forgotten: u64,
}

impl Clients {
    pub(super) fn new((by, digit): (&By, u16)) -> Result<Clients, AdviseError> {
        let number = u32::from(digit) * 1_000 + 1;
        let slo = format!("{number} burst=1 rate=1/s");
        // Any value that is not empty.
        let policy = by.policy(digit, &slo, Method::Reg, &by.lines(number, &[".".to_owned()]))?;
        let id = SloId::new(number).expect("the layout has taken the digit");
        Ok(Clients { by: by.clone(), id, policy, rows: HashMap::new(), forgotten: 0 })
    }

    /// Counts a request, if it has the fields of the type. Returns its cost.
    pub(super) fn count(&mut self, request: &Request<'_>, now: Timestamp, bot: Option<&str>) -> u32 {
        let cases = self.policy.cases(request);
        let cost = cases.cost;
        let Some(case) = cases.list.first().filter(|case| case.slo.id == self.id) else { return cost };
        let key = case.key;
        if self.rows.len() >= KEYS_MAX && !self.rows.contains_key(&key) {
            forget_half(&mut self.rows, |client| client.requests, |_| self.forgotten += 1);
        }
        let field = self.by.looked_up();
        let value = || text(&self.policy, self.id, request, field);
        let new = || Client::new(name(&self.policy, self.id, request), value());
        self.rows.entry(key).or_insert_with(new).count(now.as_nanos(), cost, bot);
        cost
    }

    /// A sentence about many addresses with few requests, if they send most of them.
    pub(super) fn scattered(&self, requests: u64) -> Option<String> {
        let is_few = |client: &&Client| client.requests <= FEW.into();
        let busy: u64 =
            self.rows.values().filter(|client| !is_few(client)).map(|client| client.requests).sum();
        let (addresses, few) =
            (self.rows.values().filter(is_few).count() as u64 + self.forgotten, requests - busy);
        (addresses >= SCATTERED_MIN && few * 2 > requests).then(|| {
            format!(
                "{addresses} addresses send {} % of the requests, {FEW} each at most. No network, user agent or page \
                 tells a crowd from the others, so a limit would make everybody wait. If the application is overrun, \
                 use law=protect.",
                few * 100 / requests
            )
        })
    }

    pub(super) fn note(&self) -> Option<String> {
        let (forgotten, by) = (self.forgotten, self.by.name());
        (forgotten > 0).then(|| {
            format!("by {by}: more than {KEYS_MAX} clients; {forgotten} with few requests were left out of the figures")
        })
    }
}
