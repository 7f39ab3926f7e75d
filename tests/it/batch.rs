//! A batch gives the same verdicts, rows and auxiliary states as single requests.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use slowlane::observe::clock::Clock;
use slowlane::observe::metrics::Metrics;
use slowlane::server::Agent;
use slowlane::server::spoe::Conversation;
use slowlane_core::base::{
    Decision, Decisions, HoldLimits, Key, Request, Sample, Timestamp, Value, WhenFull,
};
use slowlane_core::law::Law;
use slowlane_core::policy::{Batch, Layout, Policy};
use slowlane_core::table::{Cursor, Entry, Page, Sizing};
use slowlane_core::throttle::{AuxUsage, Throttle};
use spop::{Ack, Action, Data, Frame};

use crate::support::spop::{hello, message};

const WEBSITES: [&str; 3] = ["one.example", "two.example", "none.example"];
const OWNERS: [&str; 3] = ["ann", "bob", "nobody"];

/// A request, and the time since the previous one. No time passes within a batch.
#[derive(Clone, Copy, Debug)]
struct Ask {
    source: u32,
    website: usize,
    owner: usize,
    cost: i64,
    sample: u64,
    /// The request begins a new batch, this much later.
    after_ms: Option<u64>,
}

impl Ask {
    fn request(&self) -> Request<'static> {
        let mut request = Request::new();
        let address = IpAddr::V4(Ipv4Addr::from_bits(0x0A00_0000 + self.source));
        request.push(b"source", Value::Address(address));
        request.push(b"website", Value::Text(WEBSITES[self.website].as_bytes()));
        request.push(b"owner", Value::Text(OWNERS[self.owner].as_bytes()));
        request.push(b"cost", Value::Number(self.cost));
        request
    }
}

/// The options of six SLOs of four types.
#[derive(Clone, Debug)]
struct Slos([String; 6]);

impl Slos {
    fn policy(&self) -> Policy {
        let ids = [0, 1001, 1002, 2001, 2002, 3001];
        let slo_map: String = ids
            .iter()
            .zip(&self.0)
            .map(|(id, options)| format!("{id} burst=3 rate=20/s {options}\n"))
            .collect();
        let read = |path: &Path| match path.to_str().unwrap() {
            "slo.map" => Ok(slo_map.clone().into_bytes()),
            "source.map" => Ok(b"10.0.0.0/31 3001\n".to_vec()),
            "website.map" => Ok(b"one.example 2001\ntwo.example 2002\n".to_vec()),
            "owner.map" => Ok(b"ann 1001\nbob 1002\n".to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        Policy::parse(Path::new(""), &Layout::default(), read).unwrap()
    }
}

fn options() -> impl Strategy<Value = String> {
    let also = prop::option::weighted(0.4, prop::sample::select(&["website", "owner", "source"][..]));
    (prop::sample::select(Law::NAMES), any::<bool>(), also, prop::bool::weighted(0.2)).prop_map(
        |(law, is_short, also, dry_run)| {
            let mut options = format!("law={law}");
            match law {
                "pace" | "fair" if is_short => options += " max_delay=100ms",
                "sketch" if is_short && also.is_some() => options += " beyond=also",
                "fixed-window" | "sliding-window" | "sliding-log" if is_short => options += " window=150ms",
                _ => {}
            }
            if let Some(also) = also {
                options += &format!(" also={also}");
            }
            if dry_run {
                options += " dry_run=yes";
            }
            options
        },
    )
}

fn ask() -> impl Strategy<Value = Ask> {
    let cost = prop_oneof![8 => Just(1), 1 => Just(0), 3 => 2i64..9];
    let after_ms = prop::option::weighted(0.1, prop_oneof![0u64..60, 0u64..100_000]);
    (0u32..4, 0usize..3, 0usize..3, cost, any::<u64>(), after_ms).prop_map(
        |(source, website, owner, cost, sample, after_ms)| Ask {
            source,
            website,
            owner,
            cost,
            sample,
            after_ms,
        },
    )
}

/// The state after the decisions.
#[derive(Debug, PartialEq)]
struct Left {
    rows: Vec<(u64, Entry, Duration)>,
    aux_store: AuxUsage,
    evictions: u64,
    /// The next decision on every kind of request, with its formulas. They depend on the auxiliary states.
    foreseen: Vec<(Decision, Vec<String>)>,
}

impl Left {
    fn by(throttle: &Throttle, now: Timestamp) -> Left {
        let (mut rows, mut page, mut next) = (Vec::new(), Page::new(), Some(Cursor::default()));
        while let Some(cursor) = next {
            next = throttle.table().page(cursor, now, &mut page);
            rows.extend(page.iter().map(|row| (row.key.bits(), row.entry, row.left)));
        }
        // Each table spreads its rows in its own way.
        rows.sort_by_key(|&(key, ..)| key);
        let policy = throttle.policy();
        let mut foreseen = Vec::new();
        for number in 0..36 {
            let (source, website, owner) = (number % 4, number as usize / 4 % 3, number as usize / 12);
            let ask = Ask { source, website, owner, cost: 1, sample: 0, after_ms: None };
            let seen = throttle.foresee(&policy.cases(&ask.request()), now, Sample::MIDDLE);
            foreseen.push((seen.decision, seen.views.into_iter().map(|view| view.formula).collect()));
        }
        Left { rows, aux_store: throttle.aux_usage(), evictions: throttle.usage().evictions, foreseen }
    }
}

/// Decides all requests in their batches.
fn in_batches(throttle: &Throttle, asks: &[Ask]) -> (Vec<Decision>, Timestamp) {
    let (policy, mut now, mut all) = (throttle.policy(), START, Vec::new());
    let mut decisions = Decisions::new();
    let mut batch = Batch::of(&policy);
    // A random number is drawn only for a law that needs one.
    let mut drawn = asks.iter().map(|ask| Sample::from_bits(ask.sample));
    for (number, ask) in asks.iter().enumerate() {
        batch.push(&ask.request());
        let gap = asks.get(number + 1).map_or(Some(0), |next| next.after_ms);
        if gap.is_some() || batch.is_full() {
            throttle.sweep(now);
            throttle.decide(&batch, now, &mut || drawn.next().unwrap(), &mut decisions);
            all.extend(decisions.copies());
            batch.clear();
        }
        now = now + Duration::from_millis(gap.unwrap_or(0));
    }
    (all, now)
}

/// Decides all requests as batches of one.
fn one_by_one(throttle: &Throttle, asks: &[Ask]) -> (Vec<Decision>, Timestamp) {
    let (policy, mut now, mut all) = (throttle.policy(), START, Vec::new());
    let mut drawn = asks.iter().map(|ask| Sample::from_bits(ask.sample));
    for (number, ask) in asks.iter().enumerate() {
        throttle.sweep(now);
        let (mut batch, mut decisions) = (Batch::of(&policy), Decisions::new());
        batch.push(&ask.request());
        throttle.decide(&batch, now, &mut || drawn.next().unwrap(), &mut decisions);
        all.push(decisions.only());
        let gap = asks.get(number + 1).and_then(|next| next.after_ms);
        now = now + Duration::from_millis(gap.unwrap_or(0));
    }
    (all, now)
}

/// Over SPOP: two requests under `concurrency` are let through, and one of them ends.
#[test]
fn what_spoe_takes_and_ends_stands_in_the_row() {
    let read = |path: &Path| match path.to_str().unwrap() {
        "slo.map" => Ok(b"0 burst=2 rate=1/s law=concurrency\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
    let sizing = Sizing { entries_max: 100, expire: Duration::from_secs(30) };
    let throttle = Arc::new(Throttle::new(policy, sizing, 0));
    let in_flight = {
        let (throttle, policy) = (throttle.clone(), throttle.policy());
        let key = policy.cases(&Request::new()).list[0].key;
        move |now| throttle.table().get(key, now).unwrap().0.gpt0 / 1_000
    };
    let hold = HoldLimits { holds_max: 1, hold_max: Duration::from_secs(60), when_full: WhenFull::Pass };
    let agent = Agent::new(throttle, Clock::start(), hold, Arc::new(Metrics::new()), Arc::default());
    let mut conversation = Conversation::new(Arc::new(agent), 16_380);

    let later = START + Duration::from_millis(7);
    conversation.answer(&hello(), START);
    let asked: Vec<u8> = (1..=3).flat_map(|id| message(id, b"request", &[])).collect();
    conversation.out.clear();
    conversation.answer(&asked, START);
    assert_eq!(in_flight(START), 2, "the third is denied");
    let ack = Ack::decode(Frame::cut(&conversation.out, 16_380).unwrap().unwrap().0).unwrap();
    let ticket = ack.actions().find_map(|action| match action.unwrap() {
        Action::SetVar { name: b"ticket", value, .. } => Some(value),
        _ => None,
    });
    let ended = message(4, b"response", &[(b"ticket", ticket.expect("the first is let through"))]);
    conversation.answer(&ended, later);
    assert_eq!(in_flight(later), 1, "one has ended");
}

/// A connection remembers where the fields of its requests stand. A new policy, and a block by a field that no policy
/// uses, have them elsewhere.
#[test]
fn a_connection_that_knows_its_arguments_follows_the_policy_and_the_blocks() {
    let policy = |map: &'static str, line: &'static str| {
        let read = move |path: &Path| match path.to_str().unwrap() {
            "slo.map" => Ok(b"0 rate=unlimited\n1001 burst=9 rate=9/s\n2001 burst=9 rate=9/s\n".to_vec()),
            name if name == map => Ok(line.into()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        let layout = Layout::default();
        let layout =
            if map == "owner.map" { layout.with_type(9, vec!["agent".into()]).unwrap() } else { layout };
        Policy::parse(Path::new(""), &layout, read).unwrap()
    };
    let sizing = Sizing { entries_max: 100, expire: Duration::from_secs(30) };
    let throttle = Arc::new(Throttle::new(policy("website.map", "shop.example 2001\n"), sizing, 0));
    let hold = HoldLimits { holds_max: 1, hold_max: Duration::from_secs(60), when_full: WhenFull::Pass };
    let agent = Agent::new(throttle.clone(), Clock::start(), hold, Arc::new(Metrics::new()), Arc::default());
    let mut conversation = Conversation::new(Arc::new(agent), 16_380);
    conversation.answer(&hello(), START);
    let mut ask = |name: &[u8]| {
        let arguments: [(&[u8], Data<'_>); 4] = [
            (name, Data::Str(b"/admin")),
            (b"website", Data::Str(b"shop.example")),
            (b"owner", Data::Str(b"acme")),
            (b"source", Data::Ipv4([192, 0, 2, 1].into())),
        ];
        conversation.out.clear();
        conversation.answer(&message(1, b"request", &arguments), START);
        let ack = Ack::decode(Frame::cut(&conversation.out, 16_380).unwrap().unwrap().0).unwrap();
        let value = |wanted: &[u8]| {
            ack.actions().find_map(|action| match action.unwrap() {
                Action::SetVar { name, value, .. } if name == wanted => Some(value),
                _ => None,
            })
        };
        (value(b"slo").unwrap().to_i64().unwrap(), value(b"verdict") == Some(Data::Str(b"deny")))
    };
    assert_eq!([ask(b"path"), ask(b"path")], [(2001, false); 2]);
    throttle.replace(policy("owner.map", "acme 1001\n"));
    assert_eq!([ask(b"path"), ask(b"path")], [(1001, false); 2], "a new policy");
    let fields = throttle.policy().block_fields([("path", "/admin")]).unwrap();
    throttle.block(fields, START + Duration::from_secs(60), START).unwrap();
    assert_eq!([ask(b"path"), ask(b"path")], [(1001, true); 2], "a block by a field that no policy uses");
    assert_eq!([ask(b"pith"), ask(b"path")], [(1001, false), (1001, true)], "another name in its place");
}

const START: Timestamp = Timestamp::from_millis(1_000_000_000);

/// Compares batches with single requests.
fn same_in_batches(throttle: impl Fn() -> Throttle, asks: &[Ask]) -> Result<(), TestCaseError> {
    let (together, alone) = (throttle(), throttle());
    let (decided, end) = in_batches(&together, asks);
    prop_assert_eq!(&decided, &one_by_one(&alone, asks).0);
    prop_assert_eq!(Left::by(&together, end), Left::by(&alone, end));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// For all laws, `also=`, dry runs, costs and equal keys. The table has one full shard, or eight. Auxiliary states have no room,
    /// little, or enough.
    #[test]
    fn a_batch_decides_as_its_requests_one_by_one(
        slos in [options(), options(), options(), options(), options(), options()].prop_map(Slos),
        asks in prop::collection::vec(ask(), 1..120),
        entries_max in prop::sample::select(&[3u32, 100_000][..]),
        annex_bytes_max in prop::sample::select(&[0usize, 1_500, 4_000, 1 << 20][..]),
    ) {
        let sizing = Sizing { entries_max, expire: Duration::from_secs(30) };
        same_in_batches(|| Throttle::new(slos.policy(), sizing, annex_bytes_max), &asks)?;
    }

    /// Auxiliary states share one limit, so requests of a batch must use the last room in their order.
    #[test]
    fn requests_take_the_last_room_for_annexes_in_their_order(
        laws in prop::collection::vec(prop::sample::select(&["law=fair", "law=sliding-log"][..]), 6),
        asks in prop::collection::vec(ask(), 1..60),
        annex_bytes_max in 200usize..30_000,
    ) {
        let slos = Slos(std::array::from_fn(|place| laws[place].to_owned()));
        let sizing = Sizing { entries_max: 100_000, expire: Duration::from_secs(30) };
        same_in_batches(|| Throttle::new(slos.policy(), sizing, annex_bytes_max), &asks)?;
    }

    /// Without eviction and expiry, a row has let through what the decisions say.
    #[test]
    fn a_row_has_let_through_what_the_decisions_say(
        slos in [options(), options(), options(), options(), options(), options()].prop_map(Slos),
        asks in prop::collection::vec(ask(), 1..120),
    ) {
        let throttle = Throttle::new(slos.policy(), Sizing { entries_max: 100_000, expire: Duration::from_secs(30) }, 1 << 20);
        // All in one millisecond, so that one second counts everything.
        let asks: Vec<Ask> = asks.into_iter().map(|ask| Ask { after_ms: None, ..ask }).collect();
        let (decided, now) = in_batches(&throttle, &asks);
        let let_through = |key: Key| -> u32 {
            let counts = |decision: &&Decision| {
                decision.is_let_through() && decision.judged().iter().any(|judged| judged.key == key && judged.is_counted())
            };
            decided.iter().filter(counts).map(|decision| decision.cost).sum()
        };
        let mut page = Page::new();
        let mut next = Some(Cursor::default());
        while let Some(cursor) = next {
            next = throttle.table().page(cursor, now, &mut page);
            for row in &page {
                prop_assert_eq!(row.entry.gpc1_rate.read(now.ticks_ms()), let_through(row.key));
            }
        }
    }
}
