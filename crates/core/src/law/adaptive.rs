//! The `adaptive` law: feedback, as in "Graceful, Adaptive Throttling with HAProxy" (C. Dufour, 2019).
//!
//! ```text
//! throttled = http_req_cnt - burst + slo > 0          slo: the rate, requests per second
//! delay     = N / slo * min(1, rate / slo) * jitter   N: clients = gpt0 / 1000, rate: gpc0_rate(1s)
//! N'        = max(1, N + (rate - slo) / slo)
//! deny      if floor(gpc1_rate(1s) / over) > slo      over: 2
//! ```
//! Delays are whole milliseconds; `jitter` is drawn uniformly from `1 ± jitter`. `http_req_cnt` includes this request;
//! the other counters are read before this request is added. `gpc0_rate` counts throttled requests, and `gpc1_rate` the
//! throttled requests that are admitted. A request of cost n counts as n requests and waits n times as long.
//!
//! The article does not quantify its jitter; here, the default is 0.1. The article updates its estimate after the
//! delay, from earlier readings, so a request counts when it leaves. An agent must decide when a request arrives, so
//! here the request counts on arrival, even if it is denied.
//!
//! The difference matters when many clients arrive together. With more than about 20 clients, the article's law
//! overshoots, because its rate lags. This law sees all clients at once and overestimates their number. It delays them
//! until the estimate has fallen, by one client per request. For 20 s, 50 clients get a fifth less than the SLO allows;
//! 200 clients get almost nothing for minutes.

use std::time::Duration;

use crate::base::Verdict;
use crate::law::formula::{compared, number, option, time};
use crate::law::{Arrival, AuxState, Judgement, Objective, OptionError, Options, Rule, Scale};
use crate::table::Entry;

const JITTER_DEFAULT: f64 = 0.1;

/// Requests are denied above this multiple of the rate.
const OVER_DEFAULT: f64 = 2.0;

/// After this time without a request, all rates are 0: a rate covers a sliding second, so requests count for up to 2 s.
const FADED_S: u32 = 3;

/// The `adaptive` law for one objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive {
    burst: f64,
    slo: f64,
    jitter: f64,
    over: f64,
    max_delay: Duration,
}

impl Adaptive {
    pub(super) fn from_options(objective: Objective, options: &mut Options) -> Result<Adaptive, OptionError> {
        let jitter = options.number("jitter", 0.0..=1.0)?.unwrap_or(JITTER_DEFAULT);
        let over = options.number("over", 1.0..=1_000.0)?.unwrap_or(OVER_DEFAULT);
        let max_delay = options.duration("max_delay")?.unwrap_or(Duration::MAX);
        let burst = f64::from(objective.burst);
        Ok(Adaptive { burst, slo: objective.rate.per_second(), jitter, over, max_delay })
    }
}

impl Rule for Adaptive {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        let now_ms = arrival.now.ticks_ms();
        entry.http_req_cnt = entry.http_req_cnt.wrapping_add(arrival.cost);
        let throttled = f64::from(entry.http_req_cnt) - self.burst + self.slo > 0.0;
        let rate = f64::from(entry.gpc0_rate.read(now_ms));
        let clients = clients(entry);
        let over = self.is_over(entry, now_ms);
        let remaining = self.remaining(entry, rate);

        entry.gpt0 = milli_clients(clients + (rate - self.slo) / self.slo);
        if throttled {
            entry.gpc0_rate.add(arrival.cost, now_ms);
        }
        let delay = if throttled { self.delay(clients, rate, arrival) } else { Duration::ZERO };
        if over || delay > self.max_delay {
            let retry_after_s = self.retry_after_s(entry, arrival);
            return Judgement::new(Verdict::Deny { retry_after_s }, remaining);
        }
        if throttled {
            entry.gpc1_rate.add(arrival.cost, now_ms);
        }
        Judgement::new(Verdict::after(delay), remaining)
    }

    fn explain(&self, _: &Scale, entry: &Entry, _: Option<&AuxState>, arrival: &Arrival) -> String {
        let (now_ms, cost, slo) = (arrival.now.ticks_ms(), arrival.cost, number(self.slo));
        let http_req_cnt = entry.http_req_cnt.wrapping_add(cost);
        let throttled = f64::from(http_req_cnt) - self.burst + self.slo;
        let mut text =
            format!("http_req_cnt {http_req_cnt} - burst {} + slo {slo} = {}", self.burst, number(throttled));
        if throttled <= 0.0 {
            text += " <= 0, not throttled";
        } else {
            let (clients, rate) = (clients(entry), f64::from(entry.gpc0_rate.read(now_ms)));
            let delay = self.delay(clients, rate, arrival);
            let (delay_ns, is_within) = (delay.as_nanos() as u64, delay <= self.max_delay);
            let factor = number(arrival.sample.factor(self.jitter));
            let jitter = number(self.jitter * 100.0);
            let times = if cost == 1 { String::new() } else { format!(" * cost {cost}") };
            text += &format!(
                " > 0; delay = N {} / {slo} * min(1, rate {rate} / {slo}) * jitter {factor} (+-{jitter} %){times} = {}",
                number(clients),
                time(delay_ns),
            );
            if self.max_delay != Duration::MAX {
                text += &format!(
                    " {} max_delay {}",
                    compared(is_within),
                    option(self.max_delay.as_nanos() as u64)
                );
            }
        }
        let accepted = entry.gpc1_rate.read(now_ms);
        let floor = number((f64::from(accepted) / self.over).floor());
        let (within, over) = (compared(!self.is_over(entry, now_ms)), number(self.over));
        text + &format!("; floor(accepted {accepted} / over {over}) = {floor} {within} slo {slo}")
    }

    fn max_delay(&self) -> Option<Duration> {
        Some(self.max_delay)
    }
}

impl Adaptive {
    fn delay(&self, clients: f64, rate: f64, arrival: &Arrival) -> Duration {
        let seconds = clients / self.slo * (rate / self.slo).min(1.0) * arrival.sample.factor(self.jitter);
        Duration::from_millis((seconds * f64::from(arrival.cost) * 1_000.0).round() as u64)
    }

    /// How many more requests would pass unthrottled: the remainder of `burst - slo`, or 0 while the rate is above 0.
    fn remaining(&self, entry: &Entry, rate: f64) -> u32 {
        let unthrottled = self.burst - self.slo - f64::from(entry.http_req_cnt);
        if rate == 0.0 { unthrottled.max(0.0) as u32 } else { 0 }
    }

    fn is_over(&self, entry: &Entry, now_ms: u32) -> bool {
        (f64::from(entry.gpc1_rate.read(now_ms)) / self.over).floor() > self.slo
    }

    /// Whole seconds until `gpc0_rate` and `gpc1_rate` are low enough for this request: at most [`FADED_S`].
    fn retry_after_s(&self, entry: &Entry, arrival: &Arrival) -> u32 {
        let passes_after = |seconds: u32| {
            let now_ms = arrival.now.ticks_ms().wrapping_add(seconds * 1_000);
            let rate = f64::from(entry.gpc0_rate.read(now_ms));
            !self.is_over(entry, now_ms) && self.delay(clients(entry), rate, arrival) <= self.max_delay
        };
        (1..FADED_S).find(|&seconds| passes_after(seconds)).unwrap_or(FADED_S)
    }
}

/// The estimated number of clients. A new entry counts as one client.
fn clients(entry: &Entry) -> f64 {
    f64::from(entry.gpt0.max(1_000)) / 1_000.0
}

fn milli_clients(clients: f64) -> u32 {
    (clients.max(1.0) * 1_000.0).round() as u32
}
