//! Answering a NOTIFY, from bytes to bytes, allocates nothing after a warm-up.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use slowlane::observe::clock::Clock;
use slowlane::observe::metrics::Metrics;
use slowlane::observe::status::Status;
use slowlane::server::Agent;
use slowlane::server::spoe::Conversation;
use slowlane_core::base::{HoldLimits, Timestamp, WhenFull};
use slowlane_core::law::Law;
use slowlane_core::policy::{Derivation, Layout, Lookup, Method, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use spop::{Data, Notify};

use crate::support::spop::hello;

const NOTIFIES: usize = 10_000;

/// The requests of one read, more than a batch holds.
const BATCH: usize = 100;

/// A policy with five full maps, with both laws under each.
fn policy() -> Policy {
    policy_of(|_| ["", "law=adaptive"].map(str::to_owned))
}

/// A policy with five full maps. `of` gives the options of the two SLOs of each type.
fn policy_of(of: impl Fn(usize) -> [String; 2]) -> Policy {
    let read = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        let lines = |line: fn(usize) -> String| (0..1_000).map(line).collect::<String>();
        // Lines alternate between the first SLO (…1) and the second (…2).
        let text = match name {
            "slo.map" => {
                (0..6_000)
                    .step_by(1_000)
                    .map(|kind| {
                        let [one, other] = of(kind / 1_000);
                        format!(
                            "{} burst=2 rate=1/s {one}\n{} burst=2 rate=1/s {other}\n",
                            kind + 1,
                            kind + 2
                        )
                    })
                    .collect::<String>()
                    + "0 burst=10000 rate=5000/s\n"
            }
            "source+website.map" => {
                lines(|i| format!("10.{}.0.0/16+w{i}.example 500{}\n", i % 256, 1 + i % 2))
            }
            "source+owner.map" => lines(|i| format!("10.{}.0.0/16+o{i} 400{}\n", i % 256, 1 + i % 2)),
            "source.map" => lines(|i| format!("2001:db8:{i:x}::/48 300{}\n", 1 + i % 2)),
            "website.map" => lines(|i| format!("w{i}.example 200{}\n", 1 + i % 2)),
            _ => lines(|i| format!("o{i} 100{}\n", 1 + i % 2)),
        };
        Ok(text.into_bytes())
    };
    Policy::parse(Path::new(""), &Layout::default(), read).unwrap()
}

/// A batch of questions from different sources. Some websites and owners match a lookup, others match none.
fn batch(number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in number * BATCH..(number + 1) * BATCH {
        let (website, owner) = (index % 1_500, index % 1_200);
        let has_owner = index % 4 < 2;
        let network = if has_owner { owner } else { website } as u8;
        let source = match index % 3 {
            0 => Data::Ipv4(Ipv4Addr::new(10, network, (index >> 8) as u8, index as u8)),
            1 => Data::Ipv6(Ipv6Addr::new(0x2001, 0x0db8, website as u16, index as u16, 0, 0, 0, 1)),
            _ => Data::Ipv6(Ipv4Addr::from_bits(index as u32).to_ipv6_mapped()),
        };
        let (website, owner) = (format!("w{website}.example"), format!("o{owner}"));
        let arguments: [(&[u8], Data<'_>); 5] = [
            (b"source", source),
            (b"website", Data::Str(website.as_bytes())),
            (b"owner", if has_owner { Data::Str(owner.as_bytes()) } else { Data::Null }),
            (b"method", Data::Str(b"GET")),
            (b"secure", Data::Bool(true)),
        ];
        Notify::begin(&mut bytes, index as u64, 1).message(b"request", &arguments).finish();
    }
    bytes
}

/// A daemon without sockets: one conversation, as the server uses it.
struct Daemon {
    agent: Arc<Agent>,
    conversation: Conversation,
    now: Timestamp,
}

impl Daemon {
    fn new(sizing: Sizing) -> Daemon {
        Daemon::of(policy(), sizing)
    }

    fn of(policy: Policy, sizing: Sizing) -> Daemon {
        let throttle = Arc::new(Throttle::new(policy, sizing, 64 << 20));
        let hold = HoldLimits { holds_max: 10, hold_max: Duration::from_secs(60), when_full: WhenFull::Pass };
        let (metrics, status) = (Arc::new(Metrics::new()), Arc::new(Status::default()));
        let agent = Arc::new(Agent::new(throttle, Clock::start(), hold, metrics, status));
        let conversation = Conversation::new(agent.clone(), 16_380);
        let mut daemon = Daemon { agent, conversation, now: Timestamp::from_millis(1_000_000) };
        daemon.take(&hello());
        daemon
    }

    /// Answers the read bytes.
    fn take(&mut self, bytes: &[u8]) {
        self.conversation.out.clear();
        self.now = self.now + Duration::from_millis(1);
        let used = self.conversation.answer(bytes, self.now);
        assert_eq!((used.bytes, used.close), (bytes.len(), None));
    }
}

fn measured(daemon: &mut Daemon, batches: &[Vec<u8>]) -> AllocationInfo {
    measure(|| batches.iter().for_each(|batch| daemon.take(batch)))
}

#[track_caller]
fn assert_none(taken: AllocationInfo) {
    assert_eq!((taken.count_total, taken.bytes_total), (0, 0));
}

#[test]
fn ten_thousand_questions_take_no_memory_whether_their_keys_are_new_or_known() {
    let sizing = Sizing { entries_max: 100_000, expire: Duration::from_secs(30) };
    let mut daemon = Daemon::new(sizing);
    let batches: Vec<_> = (0..NOTIFIES / BATCH + 1).map(batch).collect();
    let (first, others) = batches.split_first().unwrap();
    // The first batch allocates memory that each thread needs once.
    daemon.take(first);
    assert_none(measured(&mut daemon, others));
    assert_none(measured(&mut daemon, others));

    // The questions fell under all SLOs, so the test covers all lookups.
    let slos = [0, 1001, 1002, 2001, 2002, 3001, 3002, 4001, 4002, 5001, 5002];
    assert!(daemon.agent.status.throttled.keys.top(1_000).len() > 100, "nobody was noted");
    let text = daemon.agent.metrics.text(&[]);
    for slo in slos {
        assert!(text.contains(&format!("slo=\"{slo}\"")), "SLO {slo} was never asked for:\n{text}");
    }
    for verdict in ["pass", "delay", "deny"] {
        assert!(text.contains(&format!("verdict=\"{verdict}\"")), "nothing was {verdict}:\n{text}");
    }
    assert!(daemon.agent.throttle.usage().entries > 5_000);
}

const SIZING: Sizing = Sizing { entries_max: 100_000, expire: Duration::from_secs(30) };

/// Every law without auxiliary states, alone and with a second SLO.
#[test]
fn no_law_that_remembers_in_its_row_takes_memory() {
    for name in Law::NAMES.iter().filter(|name| !["fair", "sliding-log", "concurrency"].contains(name)) {
        let can_owe = ["pace", "token-bucket", "leaky-bucket"].contains(name);
        let assured = if can_owe { " assured=1/m" } else { "" };
        // The SLO of the website is the second one for those of source and owner.
        let of = |kind: usize| {
            let also = if kind == 3 || kind == 1 { format!(" also=website{assured}") } else { String::new() };
            [format!("law={name}{also}"), format!("law={name} dry_run=yes{also}")]
        };
        let mut daemon = Daemon::of(policy_of(of), SIZING);
        let batches: Vec<_> = (0..21).map(batch).collect();
        let (first, others) = batches.split_first().unwrap();
        daemon.take(first);
        assert_none(measured(&mut daemon, others));
        assert_none(measured(&mut daemon, others));
        // Under a sketch only SLO 0, which is under another law, has a row.
        let entries = daemon.agent.throttle.usage().entries;
        assert!(if *name == "sketch" { entries == 1 } else { entries > 1_000 }, "{name}: {entries}");
        assert!(
            daemon.agent.status.throttled.dry_runs.top(1_000).len() > 100,
            "{name}: no dry run was noted"
        );
    }
}

/// Laws with auxiliary states allocate for a new key, a growing log and a new source, but nothing after a warm-up. So does a law
/// with tickets.
#[test]
fn a_law_that_remembers_beside_the_row_takes_no_memory_once_it_is_warm() {
    for name in ["fair", "sliding-log", "concurrency"] {
        let of = |kind: usize| {
            let also = if kind == 3 || kind == 1 { " also=website" } else { "" };
            [format!("law={name}{also}"), format!("law={name}{also}")]
        };
        let mut daemon = Daemon::of(policy_of(of), SIZING);
        let batches: Vec<_> = (0..10).map(batch).collect();
        let cold = measured(&mut daemon, &batches);
        assert!(cold.count_total > 0, "{name}");
        // Until the bursts are used up, and every source has its place in the auxiliary state.
        (0..20).for_each(|_| batches.iter().for_each(|batch| daemon.take(batch)));
        assert_none(measured(&mut daemon, &batches));
        assert!(
            daemon.agent.throttle.aux_usage().bytes > 0 && daemon.agent.throttle.aux_usage().fallbacks == 0,
            "{name}"
        );
    }
}

#[test]
fn a_table_that_is_full_or_forgets_takes_no_memory() {
    // 1792 is the worst size: the index of a shard is full, just before it would grow.
    for entries_max in [1_000, 1_792] {
        for expire in [Duration::from_secs(30), Duration::from_millis(3)] {
            let mut daemon = Daemon::new(Sizing { entries_max, expire });
            let batches: Vec<_> = (0..NOTIFIES / BATCH + 1).map(batch).collect();
            let (first, others) = batches.split_first().unwrap();
            daemon.take(first);
            assert_none(measured(&mut daemon, others));
            assert_none(measured(&mut daemon, others));
            assert!(daemon.agent.throttle.usage().entries <= entries_max.into());
        }
    }
}

/// Blocks of fields that the policy knows and of one that it does not, of networks and of keys.
#[test]
fn blocks_take_no_memory_from_a_request() {
    let mut daemon = Daemon::of(
        policy_of(|_| ["", " dry_run=yes"].map(|more| format!("law=token-bucket block=60s{more}"))),
        SIZING,
    );
    let (throttle, start) = (daemon.agent.throttle.clone(), Timestamp::from_millis(1_000_000));
    for fields in [
        &[("source", "10.1.0.0/16"), ("website", "w1.example")][..],
        &[("source", "2001:db8:1::/48")],
        &[("owner", "o2"), ("method", "GET")],
        &[("method", "POST")],
    ] {
        let fields = throttle.policy().block_fields(fields.iter().copied()).unwrap();
        throttle.block(fields, start + Duration::from_secs(3_600), start).unwrap();
    }
    let batches: Vec<_> = (0..21).map(batch).collect();
    // Until every key that is refused has its block.
    (0..5).for_each(|_| batches.iter().for_each(|batch| daemon.take(batch)));
    assert_none(measured(&mut daemon, &batches));
    assert!(daemon.agent.metrics.plain.blocked.get() > 1_000, "nothing was blocked");
    assert!(throttle.block_usage(start).keys > 100, "no key was blocked");
}

/// Fields that maps make, of addresses and of parts of websites: in keys, in lookups and in a block.
#[test]
fn derived_fields_take_no_memory() {
    let map = |from: &str, method| Derivation::map(from, format!("of-{from}.map").into(), method);
    let lookup = |field: &str| Lookup {
        fields: vec![field.into()],
        file: format!("{field}.map").into(),
        method: Method::Str,
        is_added: false,
    };
    let layout = Layout::default().with_derived("asn", map("source", Method::Ip)).unwrap();
    let layout = layout.with_derived("kind", map("website", Method::Sub)).unwrap();
    let layout = layout.with_type(6, vec!["asn".into(), "kind".into()]).unwrap();
    let layout = layout.with_lookups(vec![lookup("kind"), lookup("asn")]).unwrap();
    let read = |path: &Path| {
        let text: String = match path.to_str().unwrap() {
            "slo.map" => {
                "0 rate=unlimited\n6001 burst=2 rate=1/s\n6002 burst=2 rate=1/s law=adaptive\n".into()
            }
            "of-source.map" => {
                (0..256).map(|i| format!("10.{i}.0.0/16 AS{i}\n2001:db8:{i:x}::/48 AS{i}\n")).collect()
            }
            "of-website.map" => (0..100).map(|i| format!("{i}.ex shops+{i}\n")).collect(),
            "asn.map" => (0..256).map(|i| format!("AS{i} 6001\n")).collect(),
            _ => (0..100).map(|i| format!("shops+{i} 6002\n")).collect(),
        };
        Ok(text.into_bytes())
    };
    let mut daemon = Daemon::of(Policy::parse(Path::new(""), &layout, read).unwrap(), SIZING);
    let (throttle, start) = (daemon.agent.throttle.clone(), Timestamp::from_millis(1_000_000));
    let fields = throttle.policy().block_fields([("asn", "AS7")]).unwrap();
    throttle.block(fields, start + Duration::from_secs(3_600), start).unwrap();
    let batches: Vec<_> = (0..21).map(batch).collect();
    let (first, others) = batches.split_first().unwrap();
    daemon.take(first);
    assert_none(measured(&mut daemon, others));
    assert_none(measured(&mut daemon, others));
    assert!(daemon.agent.throttle.usage().entries > 256, "the fields make no keys");
    assert!(daemon.agent.metrics.plain.blocked.get() > 5, "nothing was blocked");
}
