//! An import beside the original: small models of nginx, HAProxy and Envoy, and slowlane's verdicts on the same log.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use slowlane::import::{Written, import};
use slowlane_core::base::{Request, Sample, Timestamp, Value, Verdict};
use slowlane_core::policy::{Layout, Lookup, Method, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

/// What happens to a request, however long it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pass,
    Delayed,
    Refused,
}

/// The pairs of kinds that differ: the original's, slowlane's, and how often.
type Differences = BTreeMap<(Kind, Kind), usize>;

/// One request of a log: the millisecond and the client.
type Entry = (u64, u8);

/// A log of ten minutes: each client is slow, at the limit, above it, or comes in bursts.
fn log(seed: u64, rate_per_s: f64) -> Vec<Entry> {
    let mut rng = Rng::with_seed(seed);
    let mut log = Vec::new();
    for client in 0..40 {
        let mean_ms = 1_000.0 / rate_per_s / [0.3, 0.9, 1.1, 4.0][usize::from(client % 4)];
        let mut at = rng.u64(0..5_000);
        while at < 600_000 {
            let together = if rng.u8(0..20) == 0 { rng.u64(1..30) } else { 1 };
            log.extend((0..together).map(|_| (at, client)));
            at += 1 + (-rng.f64().max(1e-9).ln() * mean_ms * together as f64) as u64;
        }
    }
    log.sort();
    log
}

/// nginx's `limit_req` for one zone: parts of a request, whole milliseconds, one state for each client.
struct Nginx {
    /// The parts of one request: 1,000 in nginx.
    one: u64,
    /// Parts per second, rounded down.
    rate: u64,
    burst: u64,
    /// The excess that is not delayed.
    delay: u64,
    clients: BTreeMap<u8, (u64, u64)>,
}

impl Nginx {
    fn ask(&mut self, (now, client): Entry) -> Kind {
        let excess = match self.clients.get(&client) {
            Some(&(excess, last)) => (excess + self.one).saturating_sub(self.rate * (now - last) / 1_000),
            None => 0,
        };
        if excess > self.burst * self.one {
            return Kind::Refused;
        }
        self.clients.insert(client, (excess, now));
        let delay_ms = excess.saturating_sub(self.delay * self.one) * 1_000 / self.rate;
        if delay_ms == 0 { Kind::Pass } else { Kind::Delayed }
    }
}

/// HAProxy's `http_req_rate` with a rule that refuses above `most`. The request itself is counted first.
struct Haproxy {
    period: u64,
    most: u64,
    /// The beginning of the period, the count in the one before, and in this one.
    clients: BTreeMap<u8, (u64, u64, u64)>,
}

impl Haproxy {
    fn ask(&mut self, (now, client): Entry) -> Kind {
        let (begin, before, count) = self.clients.entry(client).or_insert((0, 0, 0));
        if now - *begin < self.period {
            *count += 1;
        } else {
            (*before, *count) = (*count, 1);
            *begin += self.period;
            if now - *begin >= self.period {
                (*before, *begin) = (0, now);
            }
        }
        let rest = *begin + self.period - now;
        let rate = (*before * rest + *count * self.period) / self.period;
        if rate > self.most { Kind::Refused } else { Kind::Pass }
    }
}

fn throttle(written: &Written) -> Throttle {
    let read = |path: &Path| {
        let file = written.files.iter().find(|file| Path::new(&file.name) == path);
        file.map(|file| file.text.clone().into_bytes()).ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    let text = |name: &str| name.to_owned();
    let lookup = |file: &str, method| Lookup {
        fields: vec![text("domain"), text("descriptor")],
        file: file.into(),
        method,
        is_added: false,
    };
    let by_descriptor = [lookup("descriptor.map", Method::Str), lookup("descriptor-reg.map", Method::Reg)];
    let lookups = [Layout::default().lookups(), &by_descriptor].concat();
    let layout = Layout::default().with_type(6, vec![text("domain"), text("descriptor")]).unwrap();
    let policy = Policy::parse(Path::new(""), &layout.with_lookups(lookups).unwrap(), read).unwrap();
    Throttle::new(policy, Sizing { entries_max: 1_000, expire: Duration::from_secs(30) }, 0)
}

/// A whole day, so that the windows of the clock begin with the log.
const START_MS: u64 = 20_000 * 86_400_000;

fn slowlane(throttle: &Throttle, (now, client): Entry) -> Kind {
    let descriptor = format!("remote_address=192.0.2.{client}");
    let mut request = Request::new();
    request.push(b"source", Value::Address(IpAddr::from([192, 0, 2, client])));
    request.push(b"domain", Value::Text(b"edge"));
    request.push(b"descriptor", Value::Text(descriptor.as_bytes()));
    match throttle.decide_one(&request, Timestamp::from_millis(START_MS + now), Sample::MIDDLE).verdict {
        Verdict::Pass => Kind::Pass,
        Verdict::Delay(_) => Kind::Delayed,
        Verdict::Deny { .. } => Kind::Refused,
    }
}

/// The requests whose fate differs, and how many there are in all.
fn differences(log: &[Entry], written: &Written, mut original: impl FnMut(Entry) -> Kind) -> Differences {
    let throttle = throttle(written);
    let mut differences = Differences::new();
    for &entry in log {
        let (theirs, ours) = (original(entry), slowlane(&throttle, entry));
        if theirs != ours {
            *differences.entry((theirs, ours)).or_default() += 1;
        }
    }
    differences
}

fn nginx(rate: &str, parameters: &str) -> Written {
    let text = format!(
        "limit_req_zone $remote_addr zone=a:1m rate={rate};\nserver {{ limit_req zone=a {parameters}; }}\n"
    );
    import(&text, None).unwrap()
}

/// 120,000 requests or so: none is treated otherwise, because the laws are the same.
#[test]
fn every_request_has_the_fate_that_nginx_gives_it() {
    for (seed, (rate, parameters, burst, delay)) in (1..).zip([
        ("1r/s", "burst=5", 5, 0),
        ("1r/s", "burst=5 nodelay", 5, 5),
        ("1r/s", "burst=12 delay=8", 12, 8),
        ("1r/s", "", 0, 0),
        ("10r/s", "burst=20", 20, 0),
        ("8r/s", "burst=3", 3, 0),
    ]) {
        let count: u64 = rate.trim_end_matches("r/s").parse().unwrap();
        let log = log(seed, count as f64);
        let mut model = Nginx { one: 1_000, rate: count * 1_000, burst, delay, clients: BTreeMap::new() };
        let kinds: Vec<Kind> = log.iter().map(|&entry| model.ask(entry)).collect();
        assert!(log.len() > 10_000 && kinds.contains(&Kind::Refused) && kinds.contains(&Kind::Pass));
        model.clients.clear();
        let found = differences(&log, &nginx(rate, parameters), |entry| model.ask(entry));
        assert_eq!(found, Differences::new(), "{rate} {parameters}: of {}", log.len());
    }
}

/// 10r/m is 166 thousandths of a request per second in nginx. The note says so.
#[test]
fn a_rate_that_nginx_rounds_differs_as_the_note_says() {
    let written = nginx("10r/m", "burst=3 nodelay");
    assert!(written.differences.iter().any(|note| note.contains("9.96/m")));
    let log = log(7, 10.0 / 60.0);
    let model = |one, rate| Nginx { one, rate, burst: 3, delay: 3, clients: BTreeMap::new() };
    let (mut rounded, mut exact) = (model(1_000, 166), model(60_000, 10_000));
    let found = differences(&log, &written, |entry| rounded.ask(entry));
    let count: usize = found.values().sum();
    println!("nginx at 10r/m: {found:?} of {}", log.len());
    assert!(count > 0 && count * 20 < log.len(), "{found:?} of {}", log.len());
    assert_eq!(
        differences(&log, &written, |entry| exact.ask(entry)),
        Differences::new(),
        "without the rounding"
    );
}

const HAPROXY: &str = "frontend f\n stick-table type ip size 1m expire 30s store http_req_rate(10s)\n http-request track-sc0 src\n \
                       http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }\n";

/// A client that HAProxy never refuses is not refused here either, except where windows begin at another moment. Else
/// only refused requests make the difference: HAProxy counts them, and goes on refusing.
#[test]
fn haproxy_refuses_more_because_it_counts_what_it_refused() {
    let written = import(HAPROXY, None).unwrap();
    let log = log(8, 2.0);
    let mut model = Haproxy { period: 10_000, most: 20, clients: BTreeMap::new() };
    let found = differences(&log, &written, |entry| model.ask(entry));
    let of = |theirs, ours| found.get(&(theirs, ours)).copied().unwrap_or(0);
    let (stricter, looser) = (of(Kind::Pass, Kind::Refused), of(Kind::Refused, Kind::Pass));
    assert_eq!(stricter + looser, found.values().sum::<usize>());
    println!(
        "HAProxy: of {} requests, {looser} pass that it refuses, {stricter} are refused that it lets pass",
        log.len()
    );
    assert!(looser > stricter * 5, "{found:?}");
    for note in ["counts refused requests, too", "begin at different moments"] {
        assert!(written.differences.iter().any(|text| text.contains(note)), "{note}");
    }
    // The same model without the refused requests: what is left is where the windows begin.
    let mut admitted = Haproxy { period: 10_000, most: 20, clients: BTreeMap::new() };
    let found = differences(&log, &written, |entry| {
        let before = admitted.clients.get(&entry.1).copied();
        let kind = admitted.ask(entry);
        if kind == Kind::Refused {
            let (begin, previous, count) = admitted.clients[&entry.1];
            let rotated = before.is_none_or(|before| before.0 != begin);
            admitted
                .clients
                .insert(entry.1, if rotated { (begin, previous, 0) } else { (begin, previous, count - 1) });
        }
        kind
    });
    let left: usize = found.values().sum();
    println!("HAProxy without the refused requests: {found:?}");
    assert!(left * 2 < looser + stricter, "{found:?}");
}

/// Windows of the clock: no request differs.
#[test]
fn every_request_has_the_fate_that_envoy_gives_it() {
    let written = import(
        "domain: edge\ndescriptors:\n- key: remote_address\n  rate_limit: {unit: minute, requests_per_unit: 30}\n",
        None,
    )
    .unwrap();
    let log = log(9, 0.5);
    let mut counts: BTreeMap<(u8, u64), u64> = BTreeMap::new();
    let mut refused = 0;
    let found = differences(&log, &written, |(now, client)| {
        let count = counts.entry((client, now / 60_000)).or_default();
        *count += 1;
        refused += usize::from(*count > 30);
        if *count > 30 { Kind::Refused } else { Kind::Pass }
    });
    assert_eq!(found, Differences::new(), "of {}", log.len());
    assert!(refused > 100, "{refused}");
}
