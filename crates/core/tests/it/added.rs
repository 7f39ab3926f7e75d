//! Lookups that add an SLO: several limits for one request, each by itself.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use slowlane_core::base::{Request, Sample, Timestamp, Value, Verdict};
use slowlane_core::policy::{Layout, LayoutError, Lookup, Method, Policy, PolicyErrors};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::{ProxyLimits, Throttle};

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

/// A lookup of one field in its own map.
fn by(field: &str, is_added: bool) -> Lookup {
    Lookup { fields: vec![field.into()], file: format!("{field}.map").into(), method: Method::Str, is_added }
}

/// One type for each list of fields, from 6 on.
fn layout(types: &[&[&str]], lookups: Vec<Lookup>) -> Layout {
    let named = |fields: &[&str]| fields.iter().map(|&field| field.to_owned()).collect();
    let with =
        |layout: Layout, (kind, fields): (u16, &&[&str])| layout.with_type(kind, named(fields)).unwrap();
    (6..).zip(types).fold(Layout::default(), with).with_lookups(lookups).unwrap()
}

fn read(layout: &Layout, files: &[(&str, &str)]) -> Result<Policy, PolicyErrors> {
    let files: BTreeMap<_, _> = files.iter().copied().collect();
    let read = |path: &Path| {
        let text = files.get(path.to_str().unwrap());
        text.map(|text| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    Policy::examine(Path::new(""), layout, read)
}

fn throttle(policy: Policy) -> Throttle {
    Throttle::new(policy, Sizing { entries_max: 10_000, expire: Duration::from_secs(30) }, 1 << 20)
}

fn request<'a>(fields: &[(&'static str, &'a str)]) -> Request<'a> {
    let mut request = Request::new();
    fields.iter().for_each(|(name, value)| request.push(name.as_bytes(), Value::Text(value.as_bytes())));
    request
}

/// The SLOs that count a request, and its verdict.
fn ask(throttle: &Throttle, fields: &[(&'static str, &str)], ms: u64) -> (Vec<u32>, Verdict) {
    let decision = throttle.decide_one(&request(fields), NOW + Duration::from_millis(ms), Sample::MIDDLE);
    (decision.judged().iter().map(|judged| judged.slo.number()).collect(), decision.verdict)
}

const LINES: &str = "0 burst=1 rate=1/h law=token-bucket\n\
                     6001 burst=9 rate=9/s law=token-bucket\n\
                     7001 burst=3 rate=3/s law=token-bucket\n\
                     8001 burst=1 rate=1/s law=token-bucket\n";

/// 9/s for a tenant, 3/s for each of its users, and 1/s for a user's logins.
fn tenants() -> Throttle {
    let types: [&[&str]; 3] = [&["tenant"], &["tenant", "x_user"], &["tenant", "x_user", "path"]];
    let per_user = Lookup { file: "users.map".into(), ..by("tenant", true) };
    let layout = layout(&types, vec![by("tenant", true), per_user, by("path", true)]);
    let files = [
        ("slo.map", LINES),
        ("tenant.map", "acme 6001\n"),
        ("users.map", "acme 7001\n"),
        ("path.map", "/login 8001\n"),
    ];
    let policy = read(&layout, &files).unwrap();
    assert_eq!(policy.warnings().to_string(), "");
    throttle(policy)
}

#[test]
fn three_lines_are_three_limits_for_one_request() {
    let throttle = tenants();
    let login = [("tenant", "acme"), ("x_user", "ann"), ("path", "/login")];
    assert_eq!(ask(&throttle, &login, 0), (vec![6001, 7001, 8001], Verdict::Pass));
    assert!(matches!(ask(&throttle, &login, 0).1, Verdict::Deny { .. }), "the second login of ann");
    assert_eq!(
        ask(&throttle, &[("tenant", "acme"), ("x_user", "bob"), ("path", "/login")], 0).1,
        Verdict::Pass
    );
    // Two of three are left for ann: the refused one was charged to nobody.
    let shop = [("tenant", "acme"), ("x_user", "ann"), ("path", "/shop")];
    assert_eq!(ask(&throttle, &shop, 0), (vec![6001, 7001], Verdict::Pass));
    assert_eq!(ask(&throttle, &shop, 0).1, Verdict::Pass);
    assert!(matches!(ask(&throttle, &shop, 0).1, Verdict::Deny { .. }));
    // Nine for the tenant: ann had three, bob one. Five others pass, and a sixth does not.
    let names = ["a", "b", "c", "d", "e", "f"];
    let verdicts = names.map(|name| ask(&throttle, &[("tenant", "acme"), ("x_user", name)], 0).1);
    assert_eq!(verdicts[..5], [Verdict::Pass; 5]);
    assert!(matches!(verdicts[5], Verdict::Deny { .. }));
}

#[test]
fn the_default_counts_only_what_no_lookup_names() {
    let throttle = tenants();
    assert_eq!(ask(&throttle, &[("path", "/shop")], 0), (vec![0], Verdict::Pass));
    assert_eq!(ask(&throttle, &[("path", "/login")], 0).0, [8001]);
}

#[test]
fn an_explanation_names_the_line_of_each() {
    let throttle = tenants();
    let (policy, login) =
        (throttle.policy(), request(&[("tenant", "acme"), ("x_user", "ann"), ("path", "/login")]));
    let explained = policy.explain(&login);
    let told: Vec<_> = explained
        .of
        .iter()
        .map(|one| {
            (one.case.slo.id.number(), one.origin.unwrap().lookup, one.origin.unwrap().line, one.named_by)
        })
        .collect();
    assert_eq!(told, [(6001, "tenant", 1, None), (7001, "users", 1, None), (8001, "path", 1, None)]);
}

#[test]
fn a_proxy_that_decides_by_itself_asks_for_such_requests() {
    let throttle = tenants();
    let policy = throttle.policy();
    let cases = policy.cases(&request(&[("path", "/login")]));
    assert_eq!(throttle.proxy_limits(&cases, NOW), ProxyLimits::Ask);
}

#[test]
fn the_longest_of_their_delays_holds() {
    let layout = layout(&[&["a"], &["b"]], vec![by("a", true), by("b", true)]);
    let slos = "0 rate=unlimited\n6001 burst=0 rate=10/s\n7001 burst=0 rate=1/s\n";
    let files = [("slo.map", slos), ("a.map", "x 6001\n"), ("b.map", "x 7001\n")];
    let throttle = throttle(read(&layout, &files).unwrap());
    let both = [("a", "x"), ("b", "x")];
    let second = Duration::from_secs(1);
    assert_eq!(ask(&throttle, &both, 0).1, Verdict::Delay(second));
    assert_eq!(ask(&throttle, &both, 0).1, Verdict::Delay(2 * second));
}

/// An assured rate holds against the SLOs above it, not against a limit beside it.
#[test]
fn an_assured_rate_does_not_pass_an_added_limit() {
    let lookups = vec![by("website", false), by("owner", false), by("path", true)];
    let slos = "0 rate=unlimited\n1001 burst=1 rate=1/h law=token-bucket\n\
                2001 burst=9 rate=9/s also=owner assured=9/s\n6001 burst=1 rate=1/h law=token-bucket\n";
    let files = [
        ("slo.map", slos),
        ("website.map", "shop 2001\n"),
        ("owner.map", "ann 1001\n"),
        ("path.map", "/login 6001\n"),
    ];
    let throttle = throttle(read(&layout(&[&["website", "path"]], lookups), &files).unwrap());
    let page = [("website", "shop"), ("owner", "ann"), ("path", "/page")];
    let login = [("website", "shop"), ("owner", "ann"), ("path", "/login")];
    assert_eq!(ask(&throttle, &login, 0), (vec![2001, 1001, 6001], Verdict::Pass));
    assert!(matches!(ask(&throttle, &login, 0).1, Verdict::Deny { .. }));
    assert_eq!(ask(&throttle, &page, 0), (vec![2001, 1001], Verdict::Pass));
}

#[test]
fn twelve_limits_hold_for_one_request_and_a_thirteenth_lookup_is_an_error() {
    let names: Vec<String> = (1..=14).map(|number| format!("field{number}")).collect();
    let (own, others) = names.split_at(1);
    let types: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
    let types: Vec<&[&str]> = types.iter().map(|fields| &fields[..]).collect();
    let lookups = |count: usize| {
        let added = others[..count].iter().map(|name| by(name, true));
        [by(&own[0], false)].into_iter().chain(added).collect::<Vec<_>>()
    };
    let layout = layout(&types, lookups(13));
    let error = layout.with_lookups([lookups(13), vec![by("more", true)]].concat());
    assert_eq!(error, Err(LayoutError::TooManyAdded));

    let layout = self::layout(&types, lookups(12));
    let slos: String =
        (6..20).map(|kind| format!("{kind}001 burst={kind} rate=1/h law=token-bucket\n")).collect();
    let slos = format!("0 rate=unlimited\n{slos}");
    let maps: Vec<(String, String)> =
        (6..).zip(&names).map(|(kind, name)| (format!("{name}.map"), format!("x {kind}001\n"))).collect();
    let mut files: Vec<(&str, &str)> = maps.iter().map(|(name, text)| (&**name, &**text)).collect();
    files.push(("slo.map", &slos));
    let throttle = throttle(read(&layout, &files).unwrap());
    let names: [&'static str; 13] = std::array::from_fn(|at| &*names[at].clone().leak());
    let all = names.map(|name| (name, "x"));
    let ids: Vec<u32> = (6..19).map(|kind| kind * 1_000 + 1).collect();
    for _ in 0..6 {
        assert_eq!(ask(&throttle, &all, 0), (ids.clone(), Verdict::Pass));
    }
    assert!(matches!(ask(&throttle, &all, 0).1, Verdict::Deny { .. }), "the strictest has a burst of six");
    assert_eq!(ask(&throttle, &all[1..], 0).1, Verdict::Pass);
    let policy = throttle.policy();
    assert_eq!(policy.explain(&request(&all)).of.len(), 13);
}

/// The thousandth type is as good as the first: requests of each have a bucket of their own.
#[test]
fn two_hundred_types_count_by_themselves() {
    let kinds = (6..106).chain(900..1_000);
    let layout = kinds
        .clone()
        .fold(Layout::default(), |layout, kind| layout.with_type(kind, vec!["tenant".into()]).unwrap());
    let layout = layout.with_lookups(vec![by("plan", false)]).unwrap();
    let slos: String =
        kinds.clone().map(|kind| format!("{kind}999 burst=1 rate=1/h law=token-bucket\n")).collect();
    let slos = format!("0 rate=unlimited\n{slos}");
    let plans: String = kinds.clone().map(|kind| format!("p{kind} {kind}999\n")).collect();
    let throttle = throttle(read(&layout, &[("slo.map", &slos), ("plan.map", &plans)]).unwrap());
    for kind in kinds {
        let plan = format!("p{kind}");
        let fields = [("tenant", "acme"), ("plan", &*plan)];
        let slo = u32::from(kind) * 1_000 + 999;
        assert_eq!(ask(&throttle, &fields, 0), (vec![slo], Verdict::Pass));
        assert!(matches!(ask(&throttle, &fields, 0).1, Verdict::Deny { .. }), "{plan}");
    }
}

#[test]
fn limits_that_cannot_hold_together_are_told() {
    let lookups = || vec![by("website", false), by("path", true)];
    let slos = "0 rate=unlimited\n2001 burst=1 rate=1/s\n2002 burst=1 rate=1/s\n";
    let maps = [("website.map", "shop 2001\n"), ("path.map", "/login 2002\n")];
    let policy = read(&layout(&[], lookups()), &[("slo.map", slos), maps[0], maps[1]]).unwrap();
    let warning = "path.map: the lookup path adds SLOs of a type that the lookup website also names, but \
                   only the first SLO of a type counts a request: give the added SLOs a type of their own";
    assert_eq!(policy.warnings().to_string(), warning);
    let throttle = throttle(policy);
    assert_eq!(ask(&throttle, &[("website", "shop"), ("path", "/login")], 0).0, [2001]);

    let slos = "0 rate=unlimited\n2001 burst=1 rate=1/s\n6001 burst=1 rate=1/s also=website\n";
    let maps = [("website.map", "shop 2001\n"), ("path.map", "/login 6001\n")];
    let error = read(&layout(&[&["path"]], lookups()), &[("slo.map", slos), maps[0], maps[1]]).unwrap_err();
    let told = "slo.map:3: SLO 6001 has also=, but its lookup, path, has also = true: remove also= here, \
                and add another lookup with also = true";
    assert_eq!(error.to_string(), told);
}
