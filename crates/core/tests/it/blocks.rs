//! Blocks in virtual time: of operators by the fields of requests, and of SLOs by their keys.

use std::io;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{
    Blocked, BlockedBy, Decision, Decisions, Request, Sample, SloId, Target, Timestamp, Value, Verdict,
};
use slowlane_core::policy::{Batch, BlockTargetError, EXTRA_MAX, Layout, Lookup, Method, Policy, SHAPES_MAX};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::{
    Block, BlockError, BlockOrigin, Change, Changes, KEY_BLOCKS_MAX, OPERATOR_BLOCKS_MAX, Throttle,
};

const START: Timestamp = Timestamp::from_millis(1_000_000_000);

const DENY: fn(u32) -> Verdict = |retry_after_s| Verdict::Deny { retry_after_s };

fn at(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

fn policy(slo_map: &str, website_map: &str) -> Policy {
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(slo_map.into()),
        Some("website.map") => Ok(website_map.into()),
        Some("owner.map") if slo_map.contains("\n1001 ") => Ok(b"acme 1001\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    Policy::parse(Path::new(""), &Layout::default(), read).unwrap()
}

fn throttle(policy: Policy) -> Throttle {
    Throttle::new(policy, Sizing { entries_max: 10_000, expire: Duration::from_secs(30) }, 1 << 20)
}

type Typed<'a> = &'a [(&'a str, &'a str)];

fn block(throttle: &Throttle, fields: Typed<'_>, seconds: u64) -> Result<(), BlockError> {
    let fields = throttle.policy().block_fields(fields.iter().copied())?;
    throttle.block(fields, at(seconds), START).map(drop)
}

fn unblock(throttle: &Throttle, fields: Typed<'_>) -> bool {
    let fields = throttle.policy().block_fields(fields.iter().copied()).unwrap();
    throttle.unblock(&Target::Fields(fields))
}

fn request<'a>(fields: Typed<'a>) -> Request<'a> {
    let mut request = Request::new();
    for (name, value) in fields {
        request.push(name.as_bytes(), Value::Text(value.as_bytes()));
    }
    request
}

fn ask(throttle: &Throttle, fields: Typed<'_>, seconds: u64) -> Decision {
    throttle.decide_one(&request(fields), at(seconds), Sample::MIDDLE)
}

/// A blocked request is refused whatever its SLO is, so no map searches its value.
#[test]
fn what_is_blocked_is_not_searched_for() {
    let lookup = |field: &str, method| Lookup {
        fields: vec![field.into()],
        file: format!("{field}.map").into(),
        method,
        is_added: false,
    };
    let layout = Layout::default()
        .with_lookups(vec![lookup("path", Method::Reg), lookup("owner", Method::Str)])
        .unwrap();
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(b"0 rate=unlimited\n1001 burst=9 rate=9/s\n1002 burst=9 rate=9/s\n".to_vec()),
        Some("path.map") => Ok(b"^/login 1002\n".to_vec()),
        Some("owner.map") => Ok(b"acme 1001\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let throttle = throttle(Policy::parse(Path::new(""), &layout, read).unwrap());
    let fields = [("source", "192.0.2.1"), ("path", "/login"), ("owner", "acme")];
    let slo = |seconds| ask(&throttle, &fields, seconds).slo.number();
    assert_eq!(slo(0), 1002);
    block(&throttle, &[("source", "192.0.2.1")], 10).unwrap();
    assert_eq!((slo(9), verdict(&throttle, &fields)), (1001, DENY(10)));
    assert_eq!(slo(10), 1002, "the block is over");
}

fn verdict(throttle: &Throttle, fields: Typed<'_>) -> Verdict {
    ask(throttle, fields, 0).verdict
}

#[test]
fn all_fields_of_a_block_must_match() {
    let throttle = throttle(Policy::builtin());
    let both = [("source", "192.0.2.66"), ("website", "shop.example")];
    block(&throttle, &both, 600).unwrap();
    assert_eq!(verdict(&throttle, &both), DENY(600));
    for other in [
        &[("source", "192.0.2.67"), ("website", "shop.example")][..],
        &[("source", "192.0.2.66"), ("website", "blog.example")],
        &[("source", "192.0.2.66")],
        &[("website", "shop.example")],
        &[],
    ] {
        assert_eq!(verdict(&throttle, other), Verdict::Pass, "{other:?}");
    }
    assert_eq!(ask(&throttle, &both, 599).verdict, DENY(1));
    assert_eq!(ask(&throttle, &both, 600).verdict, Verdict::Pass);
    assert!(unblock(&throttle, &both));
    assert_eq!(verdict(&throttle, &both), Verdict::Pass);
    assert!(!unblock(&throttle, &both));
}

#[test]
fn values_are_compared_as_requests_and_keys_have_them() {
    let throttle = throttle(Policy::builtin());
    for (blocked, same, other) in [
        (("source", "192.0.2.66"), ("source", "::ffff:192.0.2.66"), ("source", "192.0.2.67")),
        (("source", "198.51.100.0/24"), ("source", "198.51.100.9"), ("source", "198.51.101.9")),
        (("source", "2001:db8::1"), ("source", "2001:db8::2"), ("source", "2001:db8:0:1::1")),
        (("source", "2001:db8:9::1/128"), ("source", "2001:db8:9::1"), ("source", "2001:db8:9::2")),
        (("source", "::ffff:203.0.113.0/120"), ("source", "203.0.113.9"), ("source", "203.0.112.9")),
        (("source", "[2001:db8::1]:443"), ("source", "2001:db8::2"), ("source", "2001:db8:0:1::1")),
        (("website", "Shop.Example.:80"), ("website", "shop.example"), ("website", "a.shop.example")),
        (("path", "/a b"), ("path", "/a b"), ("path", "/A b")),
        (("api-key", "x"), ("api_key", "x"), ("api_key", "")),
    ] {
        block(&throttle, &[blocked], 10).unwrap();
        assert_eq!(verdict(&throttle, &[same]), DENY(10), "{blocked:?}");
        assert_eq!(verdict(&throttle, &[other]), Verdict::Pass, "{blocked:?}");
        assert!(unblock(&throttle, &[blocked]));
    }
    let refused = |typed| match block(&throttle, &[typed], 10).unwrap_err() {
        BlockError::Fault(fault) => fault,
        error => panic!("{error}"),
    };
    for value in ["localhost", "192.0.2.0/33", "192.0.2", "[::1"] {
        assert!(matches!(refused(("source", value)), BlockTargetError::Address { .. }), "{value}");
    }
    assert!(matches!(refused(("website", "shop.example,x")), BlockTargetError::Host { .. }));
}

#[test]
fn a_field_that_no_policy_uses_is_compared_from_the_next_batch_on() {
    let throttle = throttle(Policy::builtin());
    let policy = throttle.policy();
    let mut early = Batch::of(&policy);
    block(&throttle, &[("path", "/x")], 10).unwrap();
    early.push(&request(&[("path", "/x")]));
    let mut decisions = Decisions::new();
    throttle.decide(&early, START, &mut || Sample::MIDDLE, &mut decisions);
    assert_eq!(decisions.only().verdict, Verdict::Pass, "this batch has no place for a path");
    early.clear();
    early.push(&request(&[("owner", "ann"), ("path", "/x")]));
    early.push(&request(&[("path", "/y")]));
    throttle.decide(&early, START, &mut || Sample::MIDDLE, &mut decisions);
    let verdicts: Vec<_> = decisions.copies().map(|decision| decision.verdict).collect();
    assert_eq!(verdicts, [DENY(10), Verdict::Pass]);
    assert_eq!(early.fields(0).count(), 2, "the field can be logged");
}

#[test]
fn a_blocked_request_falls_under_its_slo_and_is_not_let_through() {
    let slos = "0 rate=unlimited\n1001 burst=9 rate=9/s\n2001 burst=9 rate=9/s dry_run=yes\n\
                2002 burst=9 rate=9/s also=owner\n2003 burst=9 rate=9/s law=concurrency max=5\n";
    let websites = "dry.example 2001\nboth.example 2002\nbusy.example 2003\n";
    let throttle = throttle(policy(slos, websites));
    block(&throttle, &[("source", "192.0.2.66")], 10).unwrap();
    for (website, slo, count) in [
        ("open.example", 0, 1),
        ("dry.example", 2001, 1),
        ("both.example", 2002, 2),
        ("busy.example", 2003, 1),
    ] {
        let owner = if website == "both.example" { "acme" } else { "ann" };
        let fields = [("source", "192.0.2.66"), ("website", website), ("owner", owner), ("cost", "3")];
        let decision = ask(&throttle, &fields, 0);
        assert_eq!((decision.verdict, decision.slo), (DENY(10), SloId::new(slo).unwrap()), "{website}");
        assert_eq!((decision.judged().len(), decision.remaining), (count, 0), "{website}");
        assert_eq!(decision.ticket(), None, "{website}");
        assert!(matches!(decision.blocked(), Some(Blocked { by: BlockedBy::Operator(_), .. })), "{website}");
        let row = throttle.table().get(decision.key, START).expect("it is counted").0;
        assert_eq!((row.http_req_cnt, row.gpc1_rate.read(START.ticks_ms())), (3, 0), "{website}");
    }
}

const REFUSING: &str = "0 rate=unlimited\n2001 burst=1 rate=1/s law=token-bucket block=60s\n";

#[test]
fn a_key_that_its_slo_refuses_stays_out_and_asking_does_not_prolong_it() {
    let throttle = throttle(policy(REFUSING, "shop.example 2001\nblog.example 2001\n"));
    let shop = |seconds| ask(&throttle, &[("website", "shop.example")], seconds);
    assert_eq!(shop(0).verdict, Verdict::Pass);
    let first = shop(0);
    assert_eq!((first.verdict, first.blocked()), (DENY(1), None), "the law itself refuses the first");
    let until = at(60);
    for seconds in [0, 5, 59] {
        let decision = shop(seconds);
        assert_eq!(decision.verdict, DENY(60 - seconds as u32));
        assert_eq!(decision.blocked(), Some(Blocked { by: BlockedBy::Slo(first.key), until }));
    }
    assert_eq!(ask(&throttle, &[("website", "blog.example")], 0).verdict, Verdict::Pass);
    assert_eq!([shop(60).verdict, shop(60).verdict], [Verdict::Pass, DENY(1)]);
    assert_eq!(shop(61).verdict, DENY(59), "that refusal began the next block");
    let listed = throttle.blocks(9, at(61));
    let slo = SloId::new(2001);
    assert_eq!(
        listed,
        [Block { target: Target::Key(first.key), until: at(120), origin: BlockOrigin::Slo(slo) }]
    );
    assert!(throttle.unblock(&Target::Key(first.key)));
    assert_eq!(shop(61).verdict, Verdict::Pass);
}

#[test]
fn a_block_begins_within_a_batch() {
    let throttle = throttle(policy(REFUSING, "shop.example 2001\n"));
    let policy = throttle.policy();
    let mut batch = Batch::of(&policy);
    (0..4).for_each(|_| batch.push(&request(&[("website", "shop.example")])));
    let mut decisions = Decisions::new();
    throttle.decide(&batch, START, &mut || Sample::MIDDLE, &mut decisions);
    let verdicts: Vec<_> = decisions.copies().map(|decision| decision.verdict).collect();
    assert_eq!(verdicts, [Verdict::Pass, DENY(1), DENY(60), DENY(60)]);
}

#[test]
fn a_dry_run_blocks_nobody_and_reports_what_it_would_do() {
    let slos = REFUSING.replace("block=60s", "block=60s dry_run=yes");
    let throttle = throttle(policy(&slos, "shop.example 2001\n"));
    let shop = |seconds| ask(&throttle, &[("website", "shop.example")], seconds);
    for shadow in [Verdict::Pass, DENY(1), DENY(60)] {
        let decision = shop(0);
        assert_eq!((decision.verdict, decision.blocked()), (Verdict::Pass, None));
        assert_eq!(decision.judged()[0].verdict, shadow);
    }
    assert_eq!(throttle.block_usage(START).keys, 0);
    assert!(matches!(throttle.blocks(9, START)[0].origin, BlockOrigin::DryRun(Some(_))));
    // Without the dry run, the SLO begins anew.
    throttle.replace(policy(REFUSING, "shop.example 2001\n"));
    assert_eq!((shop(30).verdict, shop(30).verdict), (Verdict::Pass, DENY(1)));
    assert_eq!(shop(30).verdict, DENY(60));
}

#[test]
fn blocks_survive_a_reload() {
    let throttle = throttle(policy(REFUSING, "shop.example 2001\n"));
    let (path, shop) = ([("path", "/x")], [("website", "shop.example")]);
    block(&throttle, &path, 100).unwrap();
    let before: Vec<_> = (0..2).map(|_| verdict(&throttle, &shop)).collect();
    assert_eq!(before, [Verdict::Pass, DENY(1)]);
    // The same law with another rate has the same keys.
    throttle.replace(policy(
        "0 rate=unlimited\n2001 burst=9 rate=9/s law=token-bucket\n2002 burst=1 rate=1/s law=fair share=path\n",
        "shop.example 2001\n",
    ));
    assert_eq!((verdict(&throttle, &path), verdict(&throttle, &shop)), (DENY(100), DENY(60)));
    throttle.sweep(at(60));
    assert_eq!(throttle.blocks(9, at(60)).len(), 1);
    throttle.sweep(at(100));
    assert_eq!(throttle.blocks(9, START), []);
}

#[test]
fn memory_and_work_are_bounded_and_the_refusal_names_the_remedy() {
    let throttle = throttle(Policy::builtin());
    let fields: Vec<String> = (0..=EXTRA_MAX).map(|number| format!("field{number}")).collect();
    let by = |name: &str| block(&throttle, &[(name, "x")], 10);
    fields[..EXTRA_MAX].iter().for_each(|name| by(name).unwrap());
    assert_eq!(by(&fields[EXTRA_MAX]), Err(BlockTargetError::TooManyFields.into()));
    for prefix in EXTRA_MAX..SHAPES_MAX {
        block(&throttle, &[("source", &format!("2001:db8::/{}", 32 + prefix))], 10).unwrap();
    }
    assert_eq!(
        block(&throttle, &[("source", "2001:db8::/20")], 10),
        Err(BlockTargetError::TooManyShapes.into())
    );

    let changes = |range: std::ops::Range<usize>| {
        range.map(|number| Change {
            target: Target::parse(format!("field0={number}").as_bytes()).unwrap(),
            until: Some(at(20)),
        })
    };
    assert_eq!(throttle.apply(changes(0..OPERATOR_BLOCKS_MAX), START), SHAPES_MAX, "those were there before");
    let full = block(&throttle, &[("field0", "y")], 10).unwrap_err();
    assert_eq!(full, BlockError::TooMany);
    assert!(full.to_string().contains("`slowlane block rm`"), "{full}");
    assert_eq!(verdict(&throttle, &[("field0", "7")]), DENY(20));
    let fields = throttle.policy().block_fields([("field0", "y")]).unwrap();
    throttle.block(fields, at(30), at(20)).expect("blocks that are over give way");

    let keys = (0..KEY_BLOCKS_MAX as u64 + 5).map(|bits| {
        let target =
            Target::parse(format!("key={:016X}", (bits + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)).as_bytes());
        Change { target: target.unwrap(), until: Some(at(20)) }
    });
    assert_eq!(throttle.apply(keys, START), 5);
    assert_eq!(throttle.block_usage(START).refused, 5);
}

fn changes(throttle: &Throttle) -> impl Iterator<Item = Change> {
    let Changes { ordered, keys, .. } = throttle.take_changes();
    ordered.into_iter().map(|ordered| ordered.change).chain(keys)
}

#[test]
fn changes_are_handed_out_once_and_those_from_elsewhere_are_not() {
    let [one, other] = [(); 2].map(|()| throttle(policy(REFUSING, "shop.example 2001\n")));
    assert_eq!((changes(&one).count(), changes(&other).count()), (0, 0));
    let (source, shop) = ([("source", "192.0.2.66")], [("website", "shop.example")]);
    block(&one, &source, 60).unwrap();
    (0..3).for_each(|_| _ = ask(&one, &shop, 0));
    let handed_out: Vec<Change> = changes(&one).collect();
    let reported: Vec<_> =
        handed_out.iter().map(|change| (change.target.to_string(), change.until)).collect();
    let key = format!("key={}", ask(&one, &shop, 0).key);
    assert_eq!(reported, [("source=192.0.2.66".to_owned(), Some(at(60))), (key, Some(at(60)))]);
    assert_eq!(other.apply(handed_out, START), 0);
    assert_eq!((verdict(&other, &source), verdict(&other, &shop)), (DENY(60), DENY(60)));
    assert!(unblock(&one, &source));
    assert_eq!(other.apply(changes(&one), START), 0);
    let over =
        |text: &str, until| Change { target: Target::parse(text.as_bytes()).unwrap(), until: Some(until) };
    other.apply(
        [over("key=00000000000000AB", START), over("path=/x", START), over("path=/y", at(u64::MAX >> 32))],
        START,
    );
    let listed = other.blocks(9, START);
    assert!(
        listed.iter().all(|block| block.until <= START + Duration::from_secs(366 * 86_400)),
        "{listed:?}"
    );
    let reported: Vec<_> = listed.iter().map(|block| block.target.to_string()).collect();
    assert_eq!(
        reported,
        ["path=/y", &format!("key={}", ask(&one, &shop, 0).key)],
        "what is over is no block"
    );
    assert_eq!(verdict(&other, &source), Verdict::Pass);
    assert_eq!((changes(&one).count(), changes(&other).count()), (0, 0));
}

#[test]
fn foreseeing_tells_of_the_block_and_changes_nothing() {
    let throttle = throttle(policy(REFUSING, "shop.example 2001\n"));
    block(&throttle, &[("source", "192.0.2.66")], 60).unwrap();
    let foreseen = |fields: Typed<'_>| {
        let policy = throttle.policy();
        throttle.foresee(&policy.cases(&request(fields)), START, Sample::MIDDLE).decision
    };
    let by_source = foreseen(&[("source", "192.0.2.66")]);
    assert_eq!(by_source.verdict, DENY(60));
    let Some(Blocked { by: BlockedBy::Operator(number), .. }) = by_source.blocked() else {
        panic!("{by_source:?}")
    };
    assert_eq!(throttle.operator_block(number, START).unwrap().to_string(), "source=192.0.2.66");
    let shop: Typed<'_> = &[("website", "shop.example")];
    assert_eq!((ask(&throttle, shop, 0).verdict, foreseen(shop).verdict), (Verdict::Pass, DENY(1)));
    assert_eq!(foreseen(shop).blocked(), None, "a foreseen refusal begins no block");
    assert_eq!((ask(&throttle, shop, 0).verdict, foreseen(shop).verdict), (DENY(1), DENY(60)));
}

const NAMES: [&str; 4] = ["source", "website", "owner", "path"];
const VALUES: [[&str; 3]; 4] = [
    ["192.0.2.1", "192.0.2.200", "2001:db8::1"],
    ["shop.example", "blog.example", "a.example"],
    ["ann", "bob", "192.0.2.1"],
    ["/", "/x", ""],
];

/// A choice of values, one for each name, or none.
fn values() -> impl Strategy<Value = [Option<usize>; 4]> {
    prop::array::uniform4(prop::option::of(0usize..3))
}

fn typed(choice: &[Option<usize>; 4]) -> Vec<(&'static str, &'static str)> {
    let chosen = (0..4).filter_map(|name| Some((NAMES[name], VALUES[name][choice[name]?])));
    chosen.filter(|(_, value)| !value.is_empty()).collect()
}

proptest! {
    /// The index finds what trying every block finds.
    #[test]
    fn a_request_is_blocked_if_all_fields_of_a_block_match(
        blocks in prop::collection::vec((values(), 1u64..100), 0..8), requests in prop::collection::vec(values(), 1..8),
    ) {
        let throttle = throttle(Policy::builtin());
        let blocks: Vec<_> = blocks.iter().map(|(choice, seconds)| (typed(choice), *seconds)).collect();
        for (fields, seconds) in blocks.iter().filter(|(fields, _)| !fields.is_empty()) {
            block(&throttle, fields, *seconds).unwrap();
        }
        for fields in requests.iter().map(typed) {
            let matches = |block: &[(&str, &str)]| !block.is_empty() && block.iter().all(|field| fields.contains(field));
            // A second block of the same fields replaces the first.
            let last = |block: &[(&str, &str)]| blocks.iter().rev().find(|(other, _)| other == block).map(|(_, end)| *end);
            let end = blocks.iter().filter(|(block, _)| matches(block)).filter_map(|(block, _)| last(block)).max();
            let expected = end.map_or(Verdict::Pass, |seconds| DENY(seconds as u32));
            prop_assert_eq!(verdict(&throttle, &fields), expected);
        }
    }
}

#[test]
fn the_option_block_is_a_duration_of_at_least_a_second() {
    let errors = |options: &str| {
        let read = |path: &Path| match path.to_str() {
            Some("slo.map") => Ok(format!("0 {options}").into_bytes()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        Policy::parse(Path::new(""), &Layout::default(), read)
            .map(|_| ())
            .map_err(|errors| errors.to_string())
    };
    assert_eq!(errors("burst=1 rate=1/s block=366d"), Ok(()));
    for (options, reported) in [
        (
            "burst=1 rate=1/s block=10",
            r#"block "10": expected a whole number and a unit (us, ms, s, m, h or d), like 5s"#,
        ),
        ("burst=1 rate=1/s block=367d", r#"block "367d": expected a duration of at most 366 days"#),
        ("burst=1 rate=1/s block=999ms", "block 999ms: expected at least 1s"),
        ("rate=unlimited block=10m", "block=10m has no effect with rate=unlimited"),
    ] {
        assert!(errors(options).unwrap_err().contains(reported), "{options}: {:?}", errors(options));
    }
}
