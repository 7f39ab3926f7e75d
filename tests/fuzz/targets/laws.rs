//! Any law with any options on any schedule, the clock jumping: nothing panics, and as long as it only goes on and
//! the row began empty, no more is let through than a list of all admissions allows.

use std::time::Duration;

use slowlane_core::base::{Sample, SloId, Timestamp, Verdict};
use slowlane_core::law::{Admission, Arrival, Law};
use slowlane_core::policy::Slo;
use slowlane_core::table::Entry;

/// A request, or what becomes of the one before it.
#[derive(Clone, Copy)]
struct Step {
    what: u8,
    pause: u16,
    cost: u8,
}

/// The bytes: law, burst (2), count of the rate (2), options, state of the row (12), then four for each step.
pub fn run(bytes: &[u8]) {
    let Some((head, schedule)) = bytes.split_first_chunk::<18>() else { return };
    let [law, burst_low, burst_high, count_low, count_high, options, state @ ..] = *head;
    let burst = u16::from_le_bytes([burst_low, burst_high]);
    let count = u16::from_le_bytes([count_low, count_high]);
    let name = Law::NAMES[usize::from(law) % Law::NAMES.len()];
    let period = ["s", "m", "h", "d"][usize::from(options & 3)];
    let option = options_of(name)[usize::from(options >> 2) % options_of(name).len()];
    let text = format!("burst={burst} rate={count}/{period} law={name} {option}");
    let Ok(slo) = Slo::parse(SloId::DEFAULT, &text) else { return };
    let steps = schedule.chunks_exact(4).map(|bytes| Step {
        what: bytes[0],
        pause: u16::from_le_bytes([bytes[1], bytes[2]]),
        cost: bytes[3],
    });
    follow(&slo, state, &text, steps.take(300));
}

fn options_of(name: &str) -> &'static [&'static str] {
    match name {
        "adaptive" => &["", "jitter=1", "over=1", "max_delay=10ms"],
        "pace" => &["", "max_delay=0s", "max_delay=366d"],
        "fair" => &["", "max_delay=0s", "max_delay=1h", "sources_max=1", "sources_max=3"],
        "sketch" => &["", "window=10ms", "error=0.5", "confidence=0.999999", "beyond=also window=7d"],
        "fixed-window" | "sliding-window" | "sliding-log" => &["", "window=10ms", "window=1s", "window=7d"],
        "sliding-buckets" => &["", "buckets=1", "buckets=3", "window=700ms", "window=10s buckets=2"],
        "concurrency" => &["", "max=1", "max=65535", "lease=100ms", "lease=366d"],
        "token-bucket" | "leaky-bucket" => &[""],
        _ => panic!("no options are known of {name}"),
    }
}

fn follow(slo: &Slo, state: [u8; 12], text: &str, steps: impl Iterator<Item = Step>) {
    let law = slo.law;
    let (mut entry, mut aux) = (Entry::default(), law.aux());
    let (wide, narrow) = state.split_at(8);
    entry.state.set_wide(u64::from_le_bytes(wide.try_into().unwrap()));
    entry.state.set_narrow(u32::from_le_bytes(narrow.try_into().unwrap()));
    let mut is_plain = state == [0; 12];
    let mut now_ns: u64 = 1_700_000_000_000_000_000;
    let mut last = (1, Timestamp::from_nanos(now_ns));
    // When each left, and how many it counted for.
    let mut left: Vec<(u64, u64)> = Vec::new();
    for step in steps {
        let pause_ns =
            u64::from(step.pause) * [1, 1_000, 100_000, 60_000_000_000][usize::from(step.what >> 4 & 3)];
        let cost = if step.what & 8 == 0 { 1 } else { u32::from(step.cost) << (step.cost % 23) };
        match step.what & 7 {
            0 => {
                is_plain = false;
                now_ns -= pause_ns.min(now_ns / 4);
            }
            1 => {
                is_plain = false;
                law.take_back(&mut entry, aux.as_mut(), &gone(last, now_ns));
            }
            2 => {
                is_plain &= !law.counts_ends();
                law.end(&mut entry, &gone(last, now_ns));
            }
            3 => aux = law.aux(),
            _ => now_ns += pause_ns,
        }
        is_plain &= step.what & 7 != 3 && cost <= 1;
        let now = Timestamp::from_nanos(now_ns);
        let sample = Sample::from_bits(u64::from(step.cost) << 56);
        let arrival = Arrival { sample, cost, sharer: u64::from(step.cost % 5), ..Arrival::at(now) };
        let judgement = match step.what & 128 {
            0 => law.judge(&mut entry, aux.as_mut(), &arrival),
            _ => law.judge(&mut entry, None, &arrival),
        };
        is_plain &= step.what & 128 == 0;
        match judgement.verdict {
            Verdict::Deny { retry_after_s } => assert!(retry_after_s >= 1),
            verdict => {
                last = (cost, now + verdict.wait());
                left.push((last.1.as_nanos(), u64::from(cost)));
            }
        }
    }
    if is_plain && !slo.objective.rate.is_zero() {
        expect_bound(slo, text, &mut left);
    }
}

fn gone((cost, due): (u32, Timestamp), now_ns: u64) -> Admission {
    Admission { cost, due, now: Timestamp::from_nanos(now_ns) }
}

/// In any time that begins and ends with a request.
fn expect_bound(slo: &Slo, text: &str, left: &mut [(u64, u64)]) {
    let option = |name: &str| {
        let value = text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| slowlane_core::base::units::duration(value).unwrap())
    };
    let burst = u64::from(slo.objective.burst).max(1);
    let slot_ns = slo.objective.rate.slot().as_nanos() as u64;
    let window = option("window").unwrap_or(slo.objective.rate.period());
    let limit = slo.objective.rate.requests_in(window) as u64;
    let most = |time_ns: u64| match slo.law.name() {
        "pace" | "fair" | "token-bucket" | "leaky-bucket" => burst + time_ns / slot_ns,
        name if Duration::from_nanos(time_ns) < window => match name {
            "fixed-window" => 2 * limit,
            "sliding-window" | "sketch" => 2 * limit - 1,
            // With one sub-window it is 2N, and never more.
            "sliding-buckets" => 2 * limit,
            "sliding-log" => limit,
            _ => u64::MAX,
        },
        _ => u64::MAX,
    };
    left.sort_unstable();
    for (place, &(start_ns, _)) in left.iter().enumerate() {
        let mut sum = 0;
        for &(end_ns, cost) in &left[place..] {
            sum += cost;
            assert!(sum <= most(end_ns - start_ns), "{text}: {sum} in {} ns", end_ns - start_ns);
        }
    }
}
