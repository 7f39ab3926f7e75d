//! The rules of Envoy's rate limit service, imported and asked over gRPC to the end of each limit.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use grpc::Entry;
use grpc::Method;
use grpc::ratelimit::{Code, Descriptor, RateLimitRequest, RateLimitResponse};
use slowlane::import::{Written, import};

use crate::support::grpc::Client;
use crate::support::own_address;
use crate::support::slowlane::Slowlane;

/// A descriptor as `key=value,key=value`.
pub(super) fn descriptor(text: &str) -> Descriptor {
    let entry = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap();
        Entry { key: key.to_owned().into(), value: value.to_owned().into() }
    };
    Descriptor { entries: text.split(',').map(entry).collect(), ..Descriptor::default() }
}

/// A slowlane with what is imported.
pub(super) fn served(written: &Written, at: SocketAddr) -> Slowlane {
    let files: BTreeMap<&str, &str> =
        written.files.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
    let policy: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (*name, *text))
        .filter(|(name, _)| *name != "slowlane.toml")
        .collect();
    Slowlane::with_config(&policy, &format!("[grpc]\nlisten = [\"{at}\"]\n{}", files["slowlane.toml"]))
}

/// How many requests with each descriptor in turn pass, of at most ten. None: all ten.
pub(super) fn passed<'d>(
    written: &Written,
    domain: &str,
    descriptors: &[&'d str],
) -> Vec<(&'d str, Option<usize>)> {
    let at = own_address();
    let _slowlane = served(written, at);
    let mut client = Client::connect(at);
    let mut ask = |text: &str| {
        let domain = domain.to_owned().into();
        let request = RateLimitRequest { domain, descriptors: vec![descriptor(text)], hits_addend: 0 };
        let response: RateLimitResponse = client.call(Method::ShouldRateLimit, &request).unwrap();
        response.overall_code() == Code::Ok
    };
    descriptors.iter().map(|&text| (text, (0..10).position(|_| !ask(text)))).collect()
}

fn imported(rules: &str) -> Written {
    import(rules, None).unwrap()
}

/// A whole year as the period, so that no window ends while a test asks.
fn limit(requests: u32) -> String {
    format!("rate_limit: {{unit: year, requests_per_unit: {requests}}}")
}

#[test]
fn a_descriptor_falls_under_the_rule_of_its_whole_path() {
    let rules = format!(
        "domain: mail\ndescriptors:\n\
         - key: kind\n  value: news\n  descriptors:\n  - {{key: to, {}}}\n\
         - {{key: to, {}}}\n\
         - {{key: kind, value: alarm, {}}}\n\
         - key: kind\n  value: bill\n\
         - {{key: plan, value: free, {}}}\n\
         - {{key: plan, rate_limit: {{unlimited: true}}}}\n",
        limit(2),
        limit(4),
        limit(3),
        limit(0)
    );
    let expected = [
        ("kind=news,to=ann", Some(2)),
        ("kind=news,to=bob", Some(2)),
        ("to=ann", Some(4)),
        ("kind=alarm", Some(3)),
        // No rule ends here, or none goes on.
        ("kind=news", None),
        ("kind=alarm,to=ann", None),
        ("to=ann,kind=news", None),
        ("kind=bill", None),
        ("kind=bill,to=ann", None),
        ("plan=free", Some(0)),
        ("plan=paid", None),
        ("other=x", None),
    ];
    assert_eq!(passed(&imported(&rules), "mail", &expected.map(|(text, _)| text)), expected);
    assert_eq!(
        passed(&imported(&rules), "another", &["to=ann"]),
        [("to=ann", None)],
        "rules of another domain"
    );
}

#[test]
fn a_value_that_ends_with_a_plus_is_followed_by_its_comma() {
    let rules = format!(
        "domain: d\ndescriptors:\n- key: a\n  value: x+\n  descriptors:\n  - {{key: b, {}}}\n",
        limit(2)
    );
    assert_eq!(passed(&imported(&rules), "d", &["a=x+,b=y"]), [("a=x+,b=y", Some(2))]);
}

/// A value comes before a wildcard, that before any value, and the service never goes back.
#[test]
fn the_first_rule_of_a_level_is_taken_and_no_other_is_tried() {
    let rules = format!(
        "domain: d\ndescriptors:\n\
         - key: path\n  descriptors:\n  - {{key: user, {}}}\n\
         - {{key: path, value: /a*, {}}}\n\
         - {{key: path, value: /*/z, {}}}\n\
         - key: path\n  value: /a/b\n  descriptors:\n  - {{key: user, value: eve, {}}}\n\
         - {{key: path, value: \"/i.x\", {}}}\n",
        limit(1),
        limit(2),
        limit(3),
        limit(4),
        limit(5)
    );
    let expected = [
        ("path=/a/c", Some(2)),
        ("path=/a/z", Some(2)),
        ("path=/b/z", Some(3)),
        ("path=/i.x", Some(5)),
        ("path=/ijx", None),
        ("path=/b,user=ann", Some(1)),
        ("path=/a/c,user=ann", None),
        ("path=/a/b,user=eve", Some(4)),
        ("path=/a/b,user=ann", None),
        ("path=/a/b", None),
    ];
    assert_eq!(passed(&imported(&rules), "d", &expected.map(|(text, _)| text)), expected);
}

#[test]
fn a_threshold_is_shared_by_all_values_of_a_wildcard() {
    let rules = format!(
        "domain: d\ndescriptors:\n\
         - {{key: file, value: img_*, share_threshold: true, {}}}\n\
         - {{key: file, value: doc_*, {}}}\n\
         - key: team\n  value: red\n  descriptors:\n  - {{key: file, value: \"*.png\", share_threshold: true, {}}}\n",
        limit(4),
        limit(2),
        limit(3)
    );
    let expected = [
        ("file=img_1", Some(4)),
        ("file=img_2", Some(0)),
        ("file=doc_1", Some(2)),
        ("file=doc_2", Some(2)),
        ("team=red,file=a.png", Some(3)),
        ("team=red,file=b.png", Some(0)),
        ("team=red,file=b.gif", None),
    ];
    assert_eq!(passed(&imported(&rules), "d", &expected.map(|(text, _)| text)), expected);
}

#[test]
fn a_shadow_refuses_nobody_and_domains_are_apart() {
    let rules = format!(
        "domain: one\ndescriptors:\n- {{key: a, shadow_mode: true, {}}}\n- {{key: b, quota_mode: true, {}}}\n---\n\
         domain: two\ndescriptors:\n- {{key: a, {}}}\n",
        limit(1),
        limit(2),
        limit(3)
    );
    let one = [("a=x", None), ("b=x", Some(2))];
    assert_eq!(passed(&imported(&rules), "one", &one.map(|(text, _)| text)), one);
    assert_eq!(passed(&imported(&rules), "two", &["a=x", "b=x"]), [("a=x", Some(3)), ("b=x", None)]);
}

#[test]
fn every_unit_has_its_rate() {
    let units = ["second", "MINUTE", "Hour", "day", "week", "month", "year"];
    let rule =
        |unit: &str| format!("- {{key: {unit}, rate_limit: {{unit: {unit}, requests_per_unit: 7}}}}\n");
    let rules: String = units.iter().map(|unit| rule(unit)).collect();
    let several = "- {key: few, rate_limit: {unit: minute, unit_multiplier: 3, requests_per_unit: 7}}\n";
    let written = import(&format!("domain: d\ndescriptors:\n{rules}{several}"), None).unwrap();
    let slos = &written.files.iter().find(|file| file.name == "slo.map").unwrap().text;
    let rates: Vec<&str> = slos
        .lines()
        .filter_map(|line| line.split(' ').find_map(|word| word.strip_prefix("rate=7/")))
        .collect();
    assert_eq!(rates, ["s", "m", "h", "d", "7d", "30d", "365d", "3m"]);
}

#[test]
fn what_is_not_imported_is_named_with_its_line_and_what_it_changes() {
    let rules = format!(
        "domain: d\ndescriptors:\n\
         - key: a\n  detailed_metric: true\n  value_to_metric: true\n  metadata: {{x: y}}\n  {}\n\
         - key: b\n  ratelimit: {{unit: day}}\n\
         - key: c\n  rate_limit: {{unit: fortnight, requests_per_unit: 1}}\n\
         - key: d\n  rate_limit: {{unit: year, unit_multiplier: 2, requests_per_unit: 1}}\n\
         - key: e\n  rate_limit: {{unit: second, requests_per_unit: 4000000000}}\n",
        limit(1)
    );
    let written = import(&rules, None).unwrap();
    let told: Vec<(usize, &str)> = written
        .omissions
        .iter()
        .map(|one| (one.line, one.reason.split([':', ',']).next().unwrap()))
        .collect();
    let metric = "slowlane has no metric per value; `slowlane top` and the decision log show the keys";
    let expected = [
        (4, metric),
        (5, metric),
        (6, "slowlane's answer names the SLO and the key"),
        (9, "unknown key"),
        (10, "expected a whole number per second"),
        (12, "expected a whole number per second"),
        (14, "this limit allows more requests than slowlane can count"),
    ];
    assert_eq!(told, expected);
}
