//! The options of an SLO that counts work: its unit, the reservation for a request, and the time within which the end
//! of a request may be reported.
//!
//! ```text
//! 3001 burst=20s rate=2s/s unit=seconds reserve=p90 lease=10m
//!
//! on arrival       the reservation is charged: fixed, the estimate of a quantile, or what the request announces
//! at the end       the difference from the true cost is charged or given back, once
//! ```
//! Laws count in whole grains. Grains are as fine as the law can count with a rate of at most 100,000 grains
//! per second: at 10 MB/s, a grain is 100 bytes. A cost between two grains is rounded sometimes up and
//! sometimes down, so that no client gains from the rounding.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::base::{Amount, Ending, Period, Quantile, Rate, Unit, units::written};
use crate::law::{Law, Objective, OptionError, Options, Scale};
use crate::policy::PolicyErrorKind;

/// The highest rate, in grains per second. At this rate, a grain's slot is 10 µs, rounded to a nanosecond.
const GRAINS_PER_S: u64 = 100_000;

/// The default lease of an SLO. Almost no request lasts longer.
const LEASE_DEFAULT: Duration = Duration::from_secs(600);

const LEASE_MIN: Duration = Duration::from_millis(100);

/// The longest lease. It must be shorter than 49 days, because tickets hold 32 bits of milliseconds.
const LEASE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The default quantile to learn, in percent.
const QUANTILE_DEFAULT: u8 = 90;

/// Until the first cost is known, a request reserves the largest reservation divided by this number.
const UNKNOWN_PART: u32 = 20;

/// The settings and estimates of an SLO that counts work instead of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    pub unit: Unit,
    /// How long after a request's arrival its end may be reported.
    pub lease: Duration,
    reserve: Reserve,
    burst: Amount,
    rate: (Amount, Period),
    /// The rate as written on the SLO's line, such as `2s/s`.
    rate_text: String,
    /// The size of a grain, in millionths of a unit. The size depends on the law.
    grain: u64,
    /// The largest reservation, which a full bucket or an empty window always admits.
    reserve_max: u32,
    costs: Costs,
}

/// The amount that is charged when a request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserve {
    Fixed(Amount),
    /// The amount in the `announced` field, or the estimate if this field has no usable amount.
    Announced,
    /// The estimate of this quantile, in percent.
    Learned(u8),
}

/// The costs that were reported for all keys of an SLO.
#[derive(Clone, Debug, Default)]
struct Costs(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The estimate over all keys, as bits. It is used for a key that has no estimate of its own yet.
    estimate: AtomicU64,
    settled_grains: AtomicU64,
}

/// Reported costs are not part of a policy, so they never make two policies differ.
impl PartialEq for Costs {
    fn eq(&self, _: &Costs) -> bool {
        true
    }
}

impl Work {
    /// Takes the options that have a different meaning for work. None if the SLO counts requests.
    pub(super) fn take(options: &mut Options) -> Result<Option<Work>, PolicyErrorKind> {
        let unit = |name: &str| Some((name != "requests").then_some(Unit::named(name)?));
        let Some(unit) = options.fit("unit", UNITS_EXPECTED, unit)?.flatten() else { return Ok(None) };
        let burst = options.fit("burst", unit.expected(), |text| unit.read(text))?;
        let burst = burst.ok_or(PolicyErrorKind::NoBurst)?;
        let rate_text = options.get("rate").unwrap_or_default().to_owned();
        let rate = options.fit("rate", rate_expected(&unit), |text| read_rate(text, &unit))?;
        let rate = rate.ok_or(PolicyErrorKind::NoRate)?;
        let reserve = options.fit("reserve", RESERVES_EXPECTED, |text| Reserve::read(text, &unit))?;
        let reserve = reserve.unwrap_or(Reserve::Learned(QUANTILE_DEFAULT));
        let lease = options.duration_of("lease", LEASE_MIN)?.unwrap_or(LEASE_DEFAULT);
        if lease > LEASE_MAX {
            return Err(OptionError::unfit("lease", &written(lease), "at most 1d").into());
        }
        let (grain, reserve_max, costs) = (1, 1, Costs::default());
        Ok(Some(Work { unit, lease, reserve, burst, rate, rate_text, grain, reserve_max, costs }))
    }

    /// The law and its objective, in the finest grains that the law can count.
    pub(super) fn law(self, name: &str, options: &Options) -> Result<(Work, Objective, Law), OptionError> {
        let (burst, (rate, period)) = (self.burst, self.rate);
        let least = (rate.micros() / period.seconds()).div_ceil(GRAINS_PER_S);
        let least = least.max(burst.micros().div_ceil(u64::from(u32::MAX))).max(1);
        let mut failed = None;
        for grain in round_numbers().skip_while(|&grain| grain < least).take(ROUNDS_MAX) {
            let count = (rate.micros() + grain / 2) / grain;
            let objective = Objective {
                burst: u32::try_from(burst.micros().div_ceil(grain)).unwrap_or(u32::MAX),
                rate: Rate::new(count, period).expect("a rate in grains is bounded"),
            };
            match Law::new(name, objective, options.clone()) {
                Ok(law) if law.settles() && law.window().is_none() && burst == Amount::ZERO => {
                    return Err(OptionError::unfit(
                        "burst",
                        "0",
                        "more than 0, because the burst bounds each reservation",
                    ));
                }
                Ok(mut law) if law.settles() || law.is_closed() => {
                    law.owe_work();
                    let reserve_max = law.window().map_or(objective.burst, |window| window.limit).max(1);
                    return Ok((Work { grain, reserve_max, ..self }, objective, law));
                }
                Ok(_) => return Err(OptionError::unfit("unit", self.unit.name(), LAWS_EXPECTED)),
                Err(error) if error.is_of_rate() => failed = failed.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Err(failed.expect("every round has failed"))
    }
}

/// The maximum number of grain sizes that are tried.
const ROUNDS_MAX: usize = 30;

const UNITS_EXPECTED: &str = "requests, seconds, bytes, or a name of your own, like tokens";

const RESERVES_EXPECTED: &str = "an amount in the SLO's unit, p50 to p99, or announced";

const LAWS_EXPECTED: &str = "a law that can charge requests when they end: \
                             pace, token-bucket, leaky-bucket, fixed-window or sliding-window";

/// The sizes of grains to try: 1, 2, 5, 10, 20, 50, …
fn round_numbers() -> impl Iterator<Item = u64> {
    (0..18).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)))
}

/// Reads an amount and a period, such as `10MB/s`.
fn read_rate(text: &str, unit: &Unit) -> Option<(Amount, Period)> {
    let (amount, period) = text.rsplit_once('/')?;
    Some((unit.read(amount)?, Period::named(period)?))
}

fn rate_expected(unit: &Unit) -> &'static str {
    match unit {
        Unit::Seconds => "a duration per period (s, m, h, d or month), like 2s/s",
        Unit::Bytes => "a size per period (s, m, h, d or month), like 10MB/s",
        Unit::Named(_) => "a number per period (s, m, h, d or month), like 1000/m",
    }
}

impl Reserve {
    fn read(text: &str, unit: &Unit) -> Option<Reserve> {
        if text == "announced" {
            return Some(Reserve::Announced);
        }
        let percent = text.strip_prefix('p').and_then(|percent| percent.parse().ok());
        match percent.filter(|percent| (50..=99).contains(percent)) {
            Some(percent) => Some(Reserve::Learned(percent)),
            None => unit.read(text).map(Reserve::Fixed),
        }
    }
}

impl Work {
    /// The grains to charge when a request arrives: at least 1, and no more than a full bucket or an empty
    /// window admits. `own` is the estimate for the request's key.
    pub fn reservation(&self, announced: Option<Amount>, own: Option<Quantile>) -> u32 {
        let announced = announced.filter(|_| self.reserve == Reserve::Announced);
        let grains = match (self.reserve, announced) {
            (Reserve::Fixed(amount), _) | (_, Some(amount)) => self.grains_up(amount),
            _ => {
                let known = own.and_then(|own| own.cost()).or_else(|| self.estimate().cost());
                known.unwrap_or(self.reserve_max / UNKNOWN_PART)
            }
        };
        grains.clamp(1, self.reserve_max)
    }

    /// Whether reservations are estimates. Each key has its own estimate.
    pub fn is_learned(&self) -> bool {
        matches!(self.reserve, Reserve::Learned(_))
    }

    /// Whether requests announce their cost.
    pub fn is_announced(&self) -> bool {
        self.reserve == Reserve::Announced
    }

    /// The grains of a reported cost. None if the proxy has reported no measure in this unit. `turn` decides whether a
    /// cost between two grains is rounded up or down, so that the mean over consecutive turns is exact.
    pub fn cost(&self, ending: &Ending, turn: u32) -> Option<u32> {
        let micros = self.unit.of(ending)?.micros();
        // The numbers of the van der Corput sequence are evenly spread between 0 and 1.
        let part = ((u128::from(turn.reverse_bits()) * u128::from(self.grain)) >> 32) as u64;
        Some(u32::try_from((micros + part) / self.grain).unwrap_or(u32::MAX))
    }

    /// The quantile that is learned, between 0 and 1.
    pub fn quantile(&self) -> f32 {
        match self.reserve {
            Reserve::Learned(percent) => f32::from(percent) / 100.0,
            Reserve::Fixed(_) | Reserve::Announced => f32::from(QUANTILE_DEFAULT) / 100.0,
        }
    }

    /// Updates the estimate over all keys with the cost of a request that has ended.
    pub fn learn(&self, cost: u32) {
        let mut quantile = self.estimate();
        quantile.observe(cost, self.quantile());
        // If two threads store an estimate at the same moment, one cost may be lost.
        self.costs.0.estimate.store(quantile.to_bits(), Relaxed);
        self.costs.0.settled_grains.fetch_add(cost.into(), Relaxed);
    }

    /// The estimate over all keys of the SLO.
    pub fn estimate(&self) -> Quantile {
        Quantile::from_bits(self.costs.0.estimate.load(Relaxed))
    }

    /// The total work of all requests whose cost was reported, in the SLO's unit.
    pub fn settled(&self) -> f64 {
        self.costs.0.settled_grains.load(Relaxed) as f64 * self.grain()
    }

    /// Takes over the costs of an earlier policy, if the unit and the grain are the same.
    pub(in crate::policy) fn continue_from(&mut self, before: &Work) {
        if self.unit == before.unit && self.grain == before.grain {
            self.costs = before.costs.clone();
        }
    }

    /// Converts a number of grains to an amount of the unit.
    pub fn amount(&self, grains: u32) -> Amount {
        Amount::from_micros(u64::from(grains).saturating_mul(self.grain))
    }

    /// The size of a grain, in units.
    pub fn grain(&self) -> f64 {
        self.grain as f64 / Amount::UNIT as f64
    }

    /// The scale in which explanations write numbers of grains.
    pub(crate) fn scale(&self) -> Scale {
        Scale { rate: self.rate_text.clone(), grain: self.grain() }
    }

    /// The allowance in words, like `2s/s, burst 20s`.
    pub(super) fn describe(&self, law: &Law) -> String {
        match (law.window(), law.is_closed()) {
            (_, true) => "nothing".into(),
            (Some(window), _) => window.describe_as(&self.unit.text(self.amount(window.limit))),
            (None, _) => format!("{}, burst {}", self.rate_text, self.unit.text(self.burst)),
        }
    }

    /// A tag that distinguishes states with different units or grains.
    pub(in crate::policy) fn state_tag(&self) -> u32 {
        self.unit
            .name()
            .bytes()
            .fold(self.grain as u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }

    fn grains_up(&self, amount: Amount) -> u32 {
        u32::try_from(amount.micros().div_ceil(self.grain)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::SloId;
    use crate::policy::Slo;

    fn slo(line: &str) -> Slo {
        Slo::parse(SloId::DEFAULT, line).unwrap_or_else(|kinds| panic!("{line}: {}", kinds[0]))
    }

    #[test]
    fn an_slo_says_what_it_allows_in_its_unit() {
        for (line, says, grain) in [
            ("burst=20s rate=2s/s unit=seconds", "2s/s, burst 20s", 2e-5),
            ("burst=1MB rate=10MB/s unit=bytes reserve=64kB", "10MB/s, burst 1MB", 100.0),
            ("burst=5000 rate=100000/m unit=tokens reserve=announced", "100000/m, burst 5000 tokens", 0.02),
            ("burst=0 rate=10GB/d unit=bytes law=fixed-window", "10GB in 1d", 10.0),
            ("burst=1s rate=0s/s unit=seconds", "nothing", 1e-6),
            ("burst=10 rate=10/s unit=requests", "10/s, burst 10", 1.0),
        ] {
            let slo = slo(line);
            assert_eq!(slo.describe(), says);
            assert_eq!(slo.work.as_ref().map_or(1.0, |work| work.grain()), grain, "{line}");
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_refused_with_a_remedy() {
        for (line, says) in [
            ("burst=20 rate=2s/s unit=seconds", "burst \"20\": expected a duration, like 20s or 500ms"),
            (
                "burst=2s rate=2/s unit=seconds",
                "rate \"2/s\": expected a duration per period (s, m, h, d or month), like 2s/s",
            ),
            (
                "burst=2MB rate=2MB unit=bytes",
                "rate \"2MB\": expected a size per period (s, m, h, d or month), like 10MB/s",
            ),
            ("rate=2MB/s unit=bytes", "burst is missing: add it, for example burst=100"),
            (
                "burst=1 rate=1/s unit=10s",
                "unit \"10s\": expected requests, seconds, bytes, or a name of your own, like tokens",
            ),
            (
                "burst=0 rate=1/s unit=tokens",
                "burst \"0\": expected more than 0, because the burst bounds each reservation",
            ),
            (
                "burst=1 rate=1/s unit=tokens reserve=p100",
                "reserve \"p100\": expected an amount in the SLO's unit, p50 to p99, or announced",
            ),
            ("burst=1 rate=1/s unit=tokens lease=2d", "lease \"2d\": expected at most 1d"),
            ("burst=1 rate=1/s unit=tokens lease=1ms", "lease 1ms: expected at least 100ms"),
            ("burst=1 rate=1/s unit=tokens assured=1/s", "assured \"1/s\": expected an SLO without unit="),
            (
                "burst=1 rate=1/s unit=tokens law=fixed-window cluster=lease",
                "cluster=lease: the fixed-window law allows only count, split, local",
            ),
            (
                "rate=unlimited unit=tokens",
                "unit=tokens has no effect with rate=unlimited: remove it, or give a rate like 50/s",
            ),
            ("burst=1 rate=1/s reserve=5", "unknown option \"reserve\": pace takes max_delay"),
        ] {
            let kinds = Slo::parse(SloId::DEFAULT, line).expect_err(line);
            assert_eq!(kinds.iter().map(ToString::to_string).collect::<Vec<_>>(), [says], "{line}");
        }
        for law in ["adaptive", "fair", "sliding-buckets", "sliding-log", "concurrency", "sketch"] {
            let line = format!("burst=1 rate=1/s unit=tokens law={law}");
            let kinds = Slo::parse(SloId::DEFAULT, &line).expect_err(law);
            assert!(
                kinds[0].to_string().starts_with("unit \"tokens\": expected a law that"),
                "{law}: {}",
                kinds[0]
            );
        }
    }

    proptest! {
        /// Rates from a byte a month to a terabyte a second: none is off by more than a ten-thousandth.
        #[test]
        fn grains_keep_the_rate(count in 1u64..1 << 40, period in prop::sample::select(vec!["s", "m", "h", "d", "month"])) {
            let line = format!("burst={count} rate={count}/{period} unit=bytes max_delay=366d");
            let Ok(slo) = Slo::parse(SloId::DEFAULT, &line) else { return Err(TestCaseError::reject("too slow to refill")) };
            let period_s = Period::named(period).unwrap().seconds() as f64;
            let slot_s = slo.law.gcra().unwrap().slot().as_nanos() as f64 / 1e9;
            let per_s = slo.work.as_ref().unwrap().grain() / slot_s;
            let error = per_s / (count as f64 / period_s) - 1.0;
            prop_assert!(error.abs() < 1e-4, "{error}");
        }

        /// Costs between two grains: over any consecutive tickets, the sum is off by a few grains.
        #[test]
        fn no_cost_between_two_grains_is_lost(micros in 0u64..1_000_000_000, first: u32, count in 1u32..2_000) {
            let slo = slo("burst=10MB rate=10MB/s unit=bytes");
            let work = slo.work.unwrap();
            let ending = Ending { bytes: Some(Amount::from_micros(micros)), ..Ending::default() };
            let turns = (0..count).map(|turn| first.wrapping_add(turn));
            let sum: u64 = turns.map(|turn| u64::from(work.cost(&ending, turn).unwrap())).sum();
            let exact = micros as f64 * f64::from(count) / work.grain as f64;
            prop_assert!((sum as f64 - exact).abs() <= 1.0 + f64::from(count).log2(), "{sum} {exact}");
        }
    }
}
