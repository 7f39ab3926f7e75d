//! The clients of one type, in bounded memory: their rates, signs that they are bots, and largest debts at every rate.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::advise::{AdviseError, By};
use crate::replay::{KEYS_MAX, forget_half, name, text};
use slowlane_core::base::{Key, Rate, Request, SloId, Timestamp};
use slowlane_core::policy::Policy;

/// A limit for each address does not affect an address with no more requests than this.
pub(super) const FEW: u32 = 10;

/// Fewer addresses are not a crowd.
const SCATTERED_MIN: u64 = 100;

/// The clients of a type, by key. The keys are the keys that a policy would count.
pub(super) struct Clients {
    pub(super) by: By,
    pub(super) id: SloId,
    policy: Policy,
    /// The hasher has a secret, because the clients in the log chose the keys' values.
    pub(super) rows: HashMap<Key, Client>,
    forgotten: u64,
}

impl Clients {
    pub(super) fn new((by, digit): (&By, u16)) -> Result<Clients, AdviseError> {
        let policy = by.policy_of_all(digit)?;
        let id = SloId::new(By::id(digit)).expect("the layout has accepted the digit");
        Ok(Clients { by: by.clone(), id, policy, rows: HashMap::new(), forgotten: 0 })
    }

    /// Counts a request if it has the fields of the type. Returns the cost of the request.
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

    /// A sentence about many addresses with few requests, if these addresses send most of the requests.
    pub(super) fn scattered(&self, requests: u64) -> Option<String> {
        let is_few = |client: &&Client| client.requests <= FEW.into();
        let busy: u64 =
            self.rows.values().filter(|client| !is_few(client)).map(|client| client.requests).sum();
        let (addresses, few) =
            (self.rows.values().filter(is_few).count() as u64 + self.forgotten, requests - busy);
        (addresses >= SCATTERED_MIN && few * 2 > requests).then(|| {
            format!(
                "{addresses} addresses send {} % of the requests, at most {FEW} requests each. No network, \
                 user agent or page distinguishes a crowd, so a limit would make everybody wait. If the \
                 application is overloaded, use law=protect.",
                few * 100 / requests
            )
        })
    }

    pub(super) fn note(&self) -> Option<String> {
        let (forgotten, by) = (self.forgotten, self.by.name());
        (forgotten > 0).then(|| {
            format!(
                "by {by}: more than {KEYS_MAX} clients, so the figures leave out {forgotten} clients with few \
                 requests"
            )
        })
    }
}

/// The rates from which proposals are chosen.
pub(super) static RATES: LazyLock<[Rate; 22]> = LazyLock::new(|| {
    let texts = [
        "1/m", "2/m", "5/m", "10/m", "20/m", "30/m", "1/s", "2/s", "5/s", "10/s", "20/s", "50/s", "100/s",
        "200/s", "500/s", "1000/s", "2000/s", "5000/s", "10000/s", "20000/s", "50000/s", "100000/s",
    ];
    texts.map(|text| text.parse().expect("a rate"))
});

/// A client that sends this many requests a minute for this many consecutive minutes is a bot, because people pause.
const STEADY_PER_MINUTE: u64 = 10;
const STEADY_MINUTES: u64 = 30;

/// The label, in place of a name, of a bot that does not name itself.
pub(super) const STEADY: &str = "(steady)";

const SECOND_NS: u64 = 1_000_000_000;

/// The figures of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    /// The fields of the client's key with their values, in a form that is safe to show.
    pub(super) name: Box<str>,
    /// The value of the field that is looked up.
    pub(super) value: Box<[u8]>,
    pub(super) requests: u64,
    /// The sum of the costs.
    cost: u64,
    second: Peak,
    minute: Peak,
    /// The last minute with many requests, and the current and the longest run of consecutive such minutes.
    busy: u64,
    row: u64,
    row_max: u64,
    /// The name of the bot, and the number of requests whose user agent named a bot.
    agent: Option<Box<str>>,
    named: u64,
    /// For a group of addresses: each bit stands for a 64th of all addresses, so the group has at least as many
    /// addresses as there are set bits.
    pub(super) seen: u64,
    debts: [Debt; 22],
}

/// The number of requests in a second or a minute: in the last such period with requests, and in the busiest.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    at: u64,
    count: u64,
    most: u64,
}

/// A bucket with an unlimited burst: the time at which it will be full again, and the bucket's largest debt so far.
#[derive(Clone, Copy, Debug, Default)]
struct Debt {
    full_at_ns: u64,
    most_ns: u64,
}

impl Peak {
    fn count(&mut self, at: u64) {
        self.count = if at == self.at { self.count + 1 } else { 1 };
        self.at = at;
        self.most = self.most.max(self.count);
    }
}

impl Client {
    pub(super) fn new(name: Box<str>, value: Box<[u8]>) -> Client {
        Client { name, value, ..Client::default() }
    }

    /// Counts a request. The times never go back.
    pub(super) fn count(&mut self, now_ns: u64, cost: u32, bot: Option<&str>) {
        self.requests += 1;
        self.cost = self.cost.saturating_add(cost.into());
        let minute = now_ns / SECOND_NS / 60;
        self.second.count(now_ns / SECOND_NS);
        self.minute.count(minute);
        if self.minute.count == STEADY_PER_MINUTE {
            self.row = if self.busy + 1 == minute { self.row + 1 } else { 1 };
            self.row_max = self.row_max.max(self.row);
            self.busy = minute;
        }
        if let Some(bot) = bot {
            self.named += 1;
            self.agent.get_or_insert_with(|| bot.into());
        }
        for (debt, rate) in self.debts.iter_mut().zip(RATES.iter()) {
            let charge_ns = slot_ns(rate).saturating_mul(cost.into());
            debt.full_at_ns = debt.full_at_ns.max(now_ns).saturating_add(charge_ns);
            debt.most_ns = debt.most_ns.max(debt.full_at_ns - now_ns);
        }
    }

    /// The number of requests in total, in the busiest minute, and in the busiest second.
    pub(super) fn figures(&self) -> [u64; 3] {
        [self.requests, self.minute.most, self.second.most]
    }

    /// The bot's name if most of its requests give a name, or the label for a steady rate.
    pub(super) fn bot(&self) -> Option<&str> {
        match &self.agent {
            Some(agent) if self.named * 2 > self.requests => Some(agent),
            _ => (self.row_max >= STEADY_MINUTES).then_some(STEADY),
        }
    }

    /// The smallest burst with which the client never waits at the rate with this index. The times may be off by
    /// `off_ns`.
    pub(super) fn burst(&self, rate: usize, off_ns: u64) -> u64 {
        let debt_ns = self.debts[rate].most_ns.saturating_add(off_ns);
        // No debt exceeds the total cost of all requests.
        debt_ns.div_ceil(slot_ns(&RATES[rate])).min(self.cost)
    }
}

fn slot_ns(rate: &Rate) -> u64 {
    rate.slot().as_nanos() as u64
}

/// Parts of the names of bots.
const MARKS: [&[u8]; 4] = [b"bot", b"crawl", b"spider", b"slurp"];

/// A brand of phones, not a bot.
const NO_BOT: &[u8] = b"cubot";

/// Longer names are cut, because clients choose them.
const NAME_BYTES_MAX: usize = 40;

/// The word that names a bot in a user agent: `Googlebot/2.1`. An agent with a `+http` address names itself with its
/// first word.
pub(super) fn bot(agent: &[u8]) -> Option<&str> {
    let is_in_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"._/-".contains(byte);
    let words = agent.split(|byte| !is_in_word(byte));
    // The host of a URL begins with two slashes.
    let mut words =
        words.map(|word| word.strip_prefix(b"//").unwrap_or(word)).filter(|word| !word.is_empty());
    let first = words.clone().next().filter(|_| has(agent, b"+http"));
    let is_bot = |word: &&[u8]| MARKS.iter().any(|mark| has(word, mark)) && !has(word, NO_BOT);
    let name = words.find(is_bot).or(first)?;
    std::str::from_utf8(&name[..name.len().min(NAME_BYTES_MAX)]).ok()
}

fn has(text: &[u8], mark: &[u8]) -> bool {
    text.windows(mark.len()).any(|part| part.eq_ignore_ascii_case(mark))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bots_are_known_by_their_own_words() {
        for (agent, name) in [
            (
                "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
                Some("Googlebot/2.1"),
            ),
            ("Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/)", Some("Slurp")),
            ("Sogou web spider/4.0(+http://www.sogou.com)", Some("spider/4.0")),
            (
                "UniversalFeedParser/4.2-pre-314-svn +http://feedparser.org/",
                Some("UniversalFeedParser/4.2-pre-314-svn"),
            ),
            ("Mozilla/5.0 (Linux; Android 9; CUBOT_X18) Mobile Safari/537.36", None),
            ("Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0", None),
            ("Mozilla/5.0 (compatible; http://yandex.com/bots)", Some("yandex.com/bots")),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(bot(agent.as_bytes()), name, "{agent}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_short_and_safe_to_show(agent in prop::collection::vec(any::<u8>(), 0..200), mark in 0usize..4) {
            let agent = [&agent[..], MARKS[mark]].concat();
            let name = bot(&agent).unwrap_or("x");
            prop_assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
}
