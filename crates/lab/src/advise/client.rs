//! One client: its rates, the signs of a bot, and its largest debt at every rate.

use std::sync::LazyLock;

use slowlane_core::base::Rate;

/// The rates that are tried.
pub(super) static RATES: LazyLock<[Rate; 22]> = LazyLock::new(|| {
    let texts = [
        "1/m", "2/m", "5/m", "10/m", "20/m", "30/m", "1/s", "2/s", "5/s", "10/s", "20/s", "50/s", "100/s",
        "200/s", "500/s", "1000/s", "2000/s", "5000/s", "10000/s", "20000/s", "50000/s", "100000/s",
    ];
    texts.map(|text| text.parse().expect("a rate"))
});

/// A bot sends this many requests in each of this many consecutive minutes. People pause.
const STEADY_PER_MINUTE: u64 = 10;
const STEADY_MINUTES: u64 = 30;

/// The sign of a bot that does not name itself.
pub(super) const STEADY: &str = "(steady)";

const SECOND_NS: u64 = 1_000_000_000;

/// The figures of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    /// The fields of its key and their values, safe to show.
    pub(super) name: Box<str>,
    /// The value of the field that is looked up.
    pub(super) value: Box<[u8]>,
    pub(super) requests: u64,
    /// The sum of the costs.
    cost: u64,
    second: Peak,
    minute: Peak,
    /// The last minute with many requests, and the number of such minutes in a row: now, and at most.
    busy: u64,
    row: u64,
    row_max: u64,
    /// The name of the bot, and how many requests named one.
    agent: Option<Box<str>>,
    named: u64,
    /// Of a group: a bit for a 64th of all addresses, so no more bits are set than it has addresses.
    pub(super) seen: u64,
    debts: [Debt; 22],
}

/// The requests of a second or a minute: of the last one, and of the busiest.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    at: u64,
    count: u64,
    most: u64,
}

/// A bucket with an unlimited burst: when it is full again, and its largest debt.
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

    /// All requests, and those of the busiest minute and second.
    pub(super) fn figures(&self) -> [u64; 3] {
        [self.requests, self.minute.most, self.second.most]
    }

    /// The name of the bot in most of its requests, or the sign of its steady rate.
    pub(super) fn bot(&self) -> Option<&str> {
        match &self.agent {
            Some(agent) if self.named * 2 > self.requests => Some(agent),
            _ => (self.row_max >= STEADY_MINUTES).then_some(STEADY),
        }
    }

    /// The smallest burst with which it never waits at the rate with this number. Its times may be off by `off_ns`.
    pub(super) fn burst(&self, rate: usize, off_ns: u64) -> u64 {
        let debt_ns = self.debts[rate].most_ns.saturating_add(off_ns);
        // No debt is larger than all requests together.
        debt_ns.div_ceil(slot_ns(&RATES[rate])).min(self.cost)
    }
}

fn slot_ns(rate: &Rate) -> u64 {
    rate.slot().as_nanos() as u64
}
