//! One HAProxy that enforces limits locally: its counts, and the limits pushed to it.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::time::Duration;

use crate::base::{Decision, Judged, Key, Request, Timestamp, Value, Verdict};
use crate::law::Judgement;
use crate::peers::update::{self, Numbers};
use crate::peers::{LIMITS, Pair};
use crate::policy::{Case, Cases, Policy};
use crate::throttle::{ProxyLimits, Throttle};

/// The maximum number of keys of one proxy: the size of HAProxy's tables in the files that slowlane prints.
pub const KEYS_MAX: usize = 100_000;

/// Keys without a limit are accepted only while fewer than one in this many places is taken, because clients can invent
/// any number of such keys, and nothing is pushed for such keys.
const WITHOUT_LIMIT: usize = 2;

/// The maximum number of tables of one proxy: a policy has fewer lookups.
const TABLES_MAX: usize = 64;

/// The lifetime of limits in HAProxy, unless the definition of their table sets a different one.
const LIMITS_EXPIRE: Duration = Duration::from_secs(10);

/// The lifetime of counts in HAProxy, unless the definition of their table sets a different one.
const PACE_EXPIRE: Duration = Duration::from_secs(60);

/// A limit update is repeated after this many quarters of its lifetime. An update costs HAProxy a fraction of the work
/// for a request.
const REPEATED_AFTER: u32 = 3;

/// A key with a full bucket and without requests for this long gets no more pushes until its next request.
const IDLE: Duration = Duration::from_secs(10);

/// X alone is pushed early only if the new X is more than this, and more than one slot, later than the proxy's own
/// clock, because the proxy's updates take that long to arrive.
const LATER: Duration = Duration::from_millis(1);

/// After the first limit update of a key, requests may still pass unlimited for this long, while the limit update and
/// the counts are in flight.
const ON_THE_WAY: Duration = Duration::from_millis(100);

/// One HAProxy that enforces limits locally.
#[derive(Debug)]
pub struct Proxy {
    /// The fields of the pair whose table names list no fields.
    first: Vec<String>,
    tables: BTreeMap<String, Counted>,
    limits_expire: Duration,
    keys_max: usize,
    keys: usize,
    /// The number of counts dropped because there was no room for their keys.
    left_out: u64,
    /// Whether a key was left out. When such a key finds room later, its old counts cannot be distinguished from new
    /// counts.
    has_left_out: bool,
    /// Whether the proxy is still sending its entries from before this connection, or from before this slowlane
    /// started. Until the proxy has sent all of these entries, counts of unknown keys are not charged.
    is_beginning: bool,
}

/// A table that the proxy counts in.
#[derive(Debug)]
struct Counted {
    pair: Pair,
    limits: String,
    expire: Duration,
    keys: HashMap<Box<[u8]>, ProxyCount>,
}

/// A key as the proxy has counted it.
#[derive(Clone, Copy, Debug)]
pub struct ProxyCount {
    pub admitted: u32,
    pub denied: u32,
    pub seen: Timestamp,
    /// The proxy's own theoretical arrival time, as far as slowlane can know it.
    clock: Timestamp,
    /// The key in slowlane. None if the key of its SLO has different fields from those of this table.
    counts_as: Option<Key>,
    pub pushed: Option<Pushed>,
    /// From this moment, the proxy's own clock advances with each request. Earlier, the proxy may not know the limit.
    paced_from: Timestamp,
}

/// The last limit update of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// None if the key no longer belongs to this table.
    pub limits: Option<ProxyLimits>,
    pub numbers: Numbers,
    pub at: Timestamp,
}

/// An entry to send to the proxy for one of its tables of limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitPush {
    pub table: String,
    pub key: Box<[u8]>,
    pub numbers: Numbers,
}

/// The new part of an update: the requests since the previous update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub admitted: u32,
    pub denied: u32,
    /// The proxy's decision on the last of these requests. None if that request passed at once.
    pub throttled: Option<Decision>,
}

/// The moment of a call, on the table's clock and, as the time since 1970, on the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub now: Timestamp,
    pub wall: Duration,
}

impl Proxy {
    /// `first` holds the fields of the pair whose table names list no fields.
    pub fn new(first: Vec<String>, keys_max: usize) -> Proxy {
        Proxy {
            first,
            tables: BTreeMap::new(),
            limits_expire: LIMITS_EXPIRE,
            keys_max,
            keys: 0,
            left_out: 0,
            has_left_out: false,
            is_beginning: true,
        }
    }

    /// Begins a connection: the proxy first sends all its entries. Unknown keys sent then predate the connection.
    pub fn begin(&mut self) {
        self.is_beginning = true;
        // The next connection may have other tables.
        self.tables.retain(|_, table| !table.keys.is_empty());
        self.forget_updates();
    }

    /// Notes that the proxy has sent all its entries.
    pub fn has_reported_all(&mut self) {
        self.is_beginning = false;
    }

    /// Notes that the proxy may have lost all limit updates.
    pub fn forget_updates(&mut self) {
        let known = self.tables.values_mut().flat_map(|table| table.keys.values_mut());
        known.for_each(|known| known.pushed = None);
    }

    /// Notes a table of the proxy, and the lifetime of the table's entries.
    pub fn defined(&mut self, name: &str, expire: Option<Duration>) {
        if name.trim_start_matches('/').starts_with(LIMITS) {
            self.limits_expire = expire.unwrap_or(LIMITS_EXPIRE);
        } else if let Some(pair) = Pair::of(name, &self.first)
            && (self.tables.contains_key(name) || self.tables.len() < TABLES_MAX)
        {
            let expire = expire.unwrap_or(PACE_EXPIRE);
            let new = || Counted { limits: pair.limits(), pair, expire, keys: HashMap::new() };
            self.tables.entry(name.to_owned()).or_insert_with(new).expire = expire;
        }
    }

    /// Applies the counts of a key: charges new requests, and adds the key's limit update to `pushes` if the proxy
    /// needs one at once. None if the table is not one of slowlane's, or if there is no room for the key.
    pub fn counted(
        &mut self,
        throttle: &Throttle,
        table: &str,
        key: &[u8],
        counts: [u32; 2],
        moment: Moment,
        pushes: &mut Vec<LimitPush>,
    ) -> Option<Count> {
        let (has_several, expire) = (self.tables.len() > 1, self.limits_expire);
        let counted = self.tables.get_mut(table)?;
        let [admitted, denied] = counts;
        let Moment { now, .. } = moment;
        let policy = throttle.policy();
        let cases = cases(&policy, &counted.pair, key);
        if !counted.keys.contains_key(key) {
            let room = if cases.is_some() { self.keys_max } else { self.keys_max / WITHOUT_LIMIT };
            if self.keys >= room {
                self.left_out += 1;
                self.has_left_out = true;
                return None;
            }
            self.keys += 1;
            let before = match () {
                () if self.is_beginning => counts,
                // HAProxy sends an update for nearly every request, so one request is counted as new.
                () if self.has_left_out => counts.map(|count| count.saturating_sub(1)),
                () => [0, 0],
            };
            let known = ProxyCount {
                admitted: before[0],
                denied: before[1],
                seen: now,
                clock: now,
                counts_as: None,
                pushed: None,
                paced_from: Timestamp::from_nanos(u64::MAX),
            };
            counted.keys.insert(key.into(), known);
        }
        let known = counted.keys.get_mut(key).expect("the key was just inserted");
        // HAProxy has forgotten the key in the meantime, and counts from 0 again. During a resync, such counts cannot
        // be distinguished from old counts.
        if !self.is_beginning && now.since(known.seen) > counted.expire + ON_THE_WAY {
            (known.admitted, known.denied) = (0, 0);
        }
        let news = [since(known.admitted, admitted), since(known.denied, denied)];
        (known.admitted, known.denied, known.seen) = (admitted, denied, now);

        let proxy_limits = cases.as_ref().map(|cases| {
            throttle.charge(cases, news[0], news[1], now);
            throttle.proxy_limits(cases, now)
        });
        if now >= known.paced_from
            && let Some(ProxyLimits::Paced(paced)) = proxy_limits
        {
            known.clock = known.clock.max(now) + paced.slot.saturating_mul(news[0]);
        }
        let case = cases.as_ref().and_then(|cases| cases.list.first());
        known.counts_as = case.map(|case| case.key);
        if let Some(numbers) = known.push(proxy_limits, moment, expire, has_several) {
            pushes.push(LimitPush { table: counted.limits.clone(), key: key.into(), numbers });
        }
        let throttled =
            case.zip(proxy_limits).and_then(|(case, proxy_limits)| throttled(case, proxy_limits, news, now));
        Some(Count { admitted: news[0], denied: news[1], throttled })
    }

    /// Adds to `pushes` the limit updates that are due, because earlier updates would expire or are no longer correct.
    /// Drops keys that the proxy has forgotten. Call this method several times a second.
    pub fn due(&mut self, throttle: &Throttle, moment: Moment, pushes: &mut Vec<LimitPush>) {
        let (has_several, limits_expire) = (self.tables.len() > 1, self.limits_expire);
        let (policy, mut keys) = (throttle.policy(), 0);
        for Counted { pair, limits, expire, keys: all } in self.tables.values_mut() {
            let kept = *expire * 2;
            all.retain(|_, known| moment.now.since(known.seen) < kept || known.is_still_pushed(moment));
            for (key, known) in all.iter_mut().filter(|(_, known)| known.is_still_pushed(moment)) {
                let proxy_limits =
                    cases(&policy, pair, key).map(|cases| throttle.proxy_limits(&cases, moment.now));
                if let Some(numbers) = known.push(proxy_limits, moment, limits_expire, has_several) {
                    pushes.push(LimitPush { table: limits.clone(), key: key.clone(), numbers });
                }
            }
            keys += all.len();
        }
        self.keys = keys;
    }

    /// The request that a key of one of the proxy's tables stands for.
    pub fn request<'k>(&'k self, table: &str, key: &'k [u8]) -> Option<Request<'k>> {
        request(&self.tables.get(table)?.pair, key)
    }

    /// The number of keys kept for this proxy.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// The number of counts dropped since the last call, because there were too many keys.
    pub fn take_left_out(&mut self) -> u64 {
        mem::take(&mut self.left_out)
    }

    /// The names of the tables in which the proxy counts.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// The proxy's counts for a key of slowlane, each with its table and the key in that table. One key of slowlane,
    /// such as a network's key, may stand for several keys of the proxy.
    pub fn counts(&self, of: Key) -> impl Iterator<Item = (&str, &[u8], &ProxyCount)> {
        self.tables.iter().flat_map(move |(table, counted)| {
            let known = counted.keys.iter().filter(move |(_, known)| known.counts_as == Some(of));
            known.map(move |(key, known)| (table.as_str(), &key[..], known))
        })
    }
}

impl ProxyCount {
    /// The numbers of a limit update, if one is due.
    fn push(
        &mut self,
        proxy_limits: Option<ProxyLimits>,
        moment: Moment,
        expire: Duration,
        has_several: bool,
    ) -> Option<Numbers> {
        let Moment { now, wall } = moment;
        let limits = proxy_limits.map(update::kept);
        let numbers = update::numbers(limits, now, wall);
        // A key without limits, or an unlimited key in a proxy's only table, needs no limit update.
        let is_free = limits.is_none_or(|limits| limits == ProxyLimits::Unlimited && !has_several);
        let is_due = match self.pushed {
            None => !is_free,
            // A change of any number except X changes the behaviour of the proxy.
            Some(pushed) if pushed.numbers[..3] != numbers[..3] => true,
            Some(_) if is_free => false,
            Some(pushed) => {
                let is_old = now.since(pushed.at) >= expire / 4 * REPEATED_AFTER;
                is_old && self.is_in_use_since(pushed, moment) || self.is_behind(limits, now)
            }
        };
        if !is_due {
            return None;
        }
        if self.pushed.is_none_or(|pushed| now.since(pushed.at) >= expire) {
            self.paced_from = now + ON_THE_WAY;
        }
        if let Some(ProxyLimits::Paced(paced)) = limits {
            self.clock = self.clock.max(paced.tat);
        }
        self.pushed = Some(Pushed { limits, numbers, at: now });
        Some(numbers)
    }

    /// Whether the key is near its limit, and requests elsewhere have used the limit since this proxy's last update.
    fn is_behind(&self, proxy_limits: Option<ProxyLimits>, now: Timestamp) -> bool {
        let Some(ProxyLimits::Paced(paced)) = proxy_limits else { return false };
        let is_near = paced.tat.since(now) > paced.burst / 4;
        is_near && paced.tat.since(self.clock) > paced.slot.max(LATER)
    }

    /// Whether the proxy could wrongly let requests pass if its limit update expired. A full bucket lets the next
    /// request pass in any case, and this request triggers a new limit update.
    fn is_in_use_since(&self, pushed: Pushed, moment: Moment) -> bool {
        self.seen > pushed.at || self.clock > moment.now || self.is_refused(moment.now)
    }

    /// Whether the key's limit update still matters: there were recent requests, the bucket is not full, or the key is
    /// refused.
    fn is_still_pushed(&self, moment: Moment) -> bool {
        let now = moment.now;
        now.since(self.seen) < IDLE || self.clock > now || self.is_refused(now)
    }

    fn is_refused(&self, now: Timestamp) -> bool {
        let limits = self.pushed.and_then(|pushed| pushed.limits);
        matches!(limits, Some(ProxyLimits::Refused(until)) if now < until)
    }
}

/// The SLOs of a key. None if the key has too few values, or if its SLO's key has different fields from the table.
fn cases<'p>(policy: &'p Policy, pair: &Pair, key: &[u8]) -> Option<Cases<'p>> {
    let request = request(pair, key)?;
    let cases = policy.cases(&request);
    let of_slo: Vec<&str> = policy.key_fields(cases.list.first()?.slo.id).collect();
    let is_ours = of_slo.len() == pair.fields().len()
        && pair.fields().iter().all(|field| of_slo.contains(&field.as_str()));
    is_ours.then_some(cases)
}

/// The request that a key stands for.
fn request<'k>(pair: &'k Pair, key: &'k [u8]) -> Option<Request<'k>> {
    let mut request = Request::new();
    for (name, value) in pair.values(key)? {
        request.push(name, Value::Text(value));
    }
    Some(request)
}

/// The decision that a proxy has made for the last of these requests, unless it passed at once.
fn throttled(case: &Case<'_>, proxy_limits: ProxyLimits, news: [u32; 2], now: Timestamp) -> Option<Decision> {
    let [admitted, denied] = news;
    let verdict = match proxy_limits {
        ProxyLimits::Refused(until) if denied > 0 => {
            Verdict::Deny { retry_after_s: until.since(now).as_secs().clamp(1, u64::from(u32::MAX)) as u32 }
        }
        ProxyLimits::Paced(_) if denied > 0 => Verdict::Deny { retry_after_s: 1 },
        ProxyLimits::Paced(paced) if admitted > 0 => {
            Verdict::after(paced.tat.since(now).saturating_sub(paced.burst).min(paced.max_delay))
        }
        _ => Verdict::Pass,
    };
    let judged = Judged { is_dry_run: false, ..case.judged(&Judgement::new(verdict, 0)) };
    (verdict != Verdict::Pass).then(|| Decision::of_one(judged, admitted.saturating_add(denied), now))
}

/// The number of events since the count `before`. A count that has become smaller has restarted from 0.
fn since(before: u32, now: u32) -> u32 {
    now.checked_sub(before).unwrap_or(now)
}
