//! Each limit of the configurations that Envoy's rate limit service ships as examples and tests, asked to its end.
//!
//! The configurations have the structure of the originals with names and numbers of our own. What a limit gives is written
//! from the documentation of the service.

use std::time::{SystemTime, UNIX_EPOCH};

use grpc::Method;
use grpc::ratelimit::{Code, DescriptorStatus, RateLimitRequest, RateLimitResponse, Unit};
use slowlane::import::{Program, import};

use super::descriptors::{descriptor, served};
use crate::support::grpc::Client;
use crate::support::own_address;

/// Rules, in which `@5/minute` is a limit; and what descriptors get: `5/minute`, perhaps with `name=` or `shadow`; `spent`
/// if another has used its bucket up; `unlimited`; or `none`.
type Configuration = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const CONFIGURATIONS: &[Configuration] = &[
    (
        "two values of one key",
        "domain: books\ndescriptors:\n- {key: store, value: loans, @400/second}\n- {key: store, value: other, @300/second}\n",
        &[
            ("books store=loans", "400/second"),
            ("books store=other", "300/second"),
            ("books store=new", "none"),
            ("films store=loans", "none"),
        ],
    ),
    (
        "every option of the large example",
        EXAMPLE,
        &[
            ("shop kind=account", "5/minute"),
            ("shop from=edge,to=ann", "3/minute"),
            ("shop from=edge,to=bob", "1/minute"),
            ("shop from=edge,to=vip", "4/minute"),
            ("shop from=edge,to=eve", "2/minute name=eves"),
            ("shop from=edge", "none"),
            ("shop from=edge,to=new", "none"),
            ("shop red=1", "2/minute"),
            ("shop red=2", "2/minute"),
            ("shop red=1,blue=1", "3/minute"),
            ("shop red=1,blue=2", "3/minute"),
            ("shop red=1,blue=ann", "1/minute name=anns"),
            ("shop red=2,blue=ann", "1/minute name=anns"),
            ("shop red=1,blue=closed", "0/minute name=none"),
            ("shop red=1,grey=1", "1/second"),
            ("shop red=1,grey=pale", "3/minute"),
            ("shop red=1,grey=dark", "4/minute shadow"),
            ("shop red=1,black=1", "unlimited"),
            ("shop white=1", "2/minute"),
            ("shop white=2", "2/minute"),
            ("shop green=1", "unlimited"),
            ("shop pool=first", "1/minute"),
            ("shop pool=second", "2/minute"),
            ("shop pool=third", "none"),
            ("shop black=1", "none"),
        ],
    ),
    (
        "levels, overrides and exceptions",
        BASIC,
        &[
            ("main one=a", "none"),
            ("main one=a,sub=x", "6/second"),
            ("main one=a,sub=y", "6/second"),
            ("main one=a,sub=own", "11/second"),
            ("main one=b,sub=x", "none"),
            ("main two=x", "21/minute"),
            ("main two=y", "21/minute"),
            ("main two=more", "31/minute"),
            ("main two=free", "none"),
            ("main three=x", "1/hour"),
            ("main four=x", "2/day name=fours"),
            ("main five=e", "16/day"),
            ("main five=e,sub=f", "26/day"),
            ("main five=e,sub=g", "none"),
            ("main six=x", "unlimited"),
            ("main seven=x", "71/minute"),
            ("main two=x,sub=x", "none"),
            ("main eight=x", "none"),
        ],
    ),
    (
        "a domain in two files",
        "domain: d\ndescriptors: [{key: a, value: x, @9/minute}]\n---\ndomain: d\ndescriptors: [{key: b, value: x, @8/minute}]\n",
        &[("d a=x", "9/minute"), ("d b=x", "8/minute"), ("d a=y", "none")],
    ),
    (
        "metadata",
        "domain: d\ndescriptors:\n- key: a\n  value: x\n  descriptors:\n  - {key: b, @6/second, metadata: {name: one}}\n  \
      - {key: b, value: y, @12/second}\n- {key: c, @19/minute, metadata: {pool: {name: two}}}\n",
        &[("d a=x,b=x", "6/second"), ("d a=x,b=y", "12/second"), ("d c=x", "19/minute")],
    ),
    (
        "shadows beside others",
        "domain: d\ndescriptors:\n- key: a\n  value: x\n  descriptors:\n  - {key: b, @4/second}\n  \
      - {key: b, value: y, shadow_mode: true, @9/second}\n- {key: c, shadow_mode: true, @19/minute}\n- {key: c, value: y, @29/minute}\n",
        &[
            ("d a=x,b=x", "4/second"),
            ("d a=x,b=y", "9/second shadow"),
            ("d c=x", "19/minute shadow"),
            ("d c=y", "29/minute"),
        ],
    ),
    (
        "wildcards",
        "domain: d\ndescriptors:\n- {key: end, value: foo*, @18/minute}\n- {key: exact, value: foo, @17/minute}\n\
      - {key: any, @16/minute}\n- {key: middle, value: bar*b, @15/minute}\n- {key: many, value: foo*bar*baz, @9/minute}\n\
      - key: nested\n  value: x\n  descriptors: [{key: end, value: goo*, @14/minute}]\n",
        &[
            ("d end=foo", "18/minute"),
            ("d end=foo1", "18/minute"),
            ("d end=foo2", "18/minute"),
            ("d end=fo", "none"),
            ("d exact=foo", "17/minute"),
            ("d exact=foo1", "none"),
            ("d any=x", "16/minute"),
            ("d middle=barb", "15/minute"),
            ("d middle=bar/1/b", "15/minute"),
            ("d middle=bar/1", "none"),
            ("d many=foo1bar2baz", "9/minute"),
            ("d many=foobarbaz", "9/minute"),
            ("d many=foobaz", "none"),
            ("d nested=x,end=goo1", "14/minute"),
            ("d nested=x,end=foo1", "none"),
        ],
    ),
    (
        "shared thresholds",
        SHARED,
        &[
            ("d files=files/a", "90/minute"),
            ("d files=files/b", "spent"),
            ("d nested=p,files=in/a", "70/minute"),
            ("d nested=p,files=in/b", "spent"),
            ("d files=top/a,files=in/a", "60/minute"),
            ("d files=top/b,files=in/b", "spent"),
            ("d route=api/a,method=GET", "50/minute"),
            ("d route=api/b,method=GET", "spent"),
            ("d route=api/b,method=PUT", "50/minute"),
            ("d service=svc/a,endpoint=x", "40/minute"),
            ("d service=svc/b,endpoint=x", "spent"),
            ("d service=svc/b,endpoint=y", "40/minute"),
            ("d tree=tree/a,leaf=leaf/a,type=x", "30/minute"),
            ("d tree=tree/b,leaf=leaf/a,type=x", "spent"),
            ("d tree=tree/a,leaf=leaf/b,type=x", "30/minute"),
            ("d tree=tree/a,leaf=leaf/a,type=y", "30/minute"),
            ("d user=user/a,item=res/a,action=x", "20/minute"),
            ("d user=user/b,item=res/b,action=x", "spent"),
            ("d user=user/b,item=res/b,action=y", "20/minute"),
            ("d leaf=test1", "25/minute"),
            ("d leaf=test2", "35/minute"),
            ("d leaf=test3", "spent"),
            ("d mid=/api/1/v1", "45/minute"),
            ("d mid=/api/2/v1", "spent"),
            ("d multi=svc1ep1rpc", "55/minute"),
            ("d multi=svc2ep2rpc", "spent"),
            ("d route2=/api/1/v2", "65/minute"),
            ("d route2=/api/2/v2", "spent"),
            ("d tenant=t1prod,item=res1v2", "75/minute"),
            ("d tenant=t2prod,item=res2v2", "spent"),
            ("d tenant=t2,item=res2v2", "none"),
        ],
    ),
    (
        "the integration tests",
        "domain: another\ndescriptors:\n- {key: a, @21/minute}\n- {key: b, @11/hour}\n- {key: a_local, @21/minute}\n\
      - {key: b_local, @11/hour}\n- {key: c, @22/day}\n- {key: c_local, @22/day}\n---\ndomain: basic\ndescriptors:\n- {key: a, @51/second}\n\
      - {key: a_local, @51/second}\n- {key: one, @1/minute}\n---\ndomain: reload\ndescriptors:\n- {key: a, @49/second}\n\
      - {key: closed, @0/second}\n- {key: one, @1/minute}\n---\ndomain: shared\ndescriptors:\n\
      - {key: files, value: files/*, share_threshold: true, @10/hour}\n- {key: own, value: own/*, share_threshold: false, @10/hour}\n",
        &[
            ("another a=x", "21/minute"),
            ("another b=x", "11/hour"),
            ("another a_local=x", "21/minute"),
            ("another b_local=x", "11/hour"),
            ("another c=x", "22/day"),
            ("another c_local=x", "22/day"),
            ("basic a=x", "51/second"),
            ("basic a_local=x", "51/second"),
            ("basic one=x", "1/minute"),
            ("reload a=x", "49/second"),
            ("reload closed=x", "0/second"),
            ("reload one=x", "1/minute"),
            ("shared files=files/a", "10/hour"),
            ("shared files=files/b", "spent"),
            ("shared own=own/a", "10/hour"),
            ("shared own=own/b", "10/hour"),
        ],
    ),
    (
        "examples of the manual",
        MANUAL,
        &[
            ("mail kind=ad,to=1", "5/day"),
            ("mail kind=ad,to=2", "5/day"),
            ("mail to=1", "90/day"),
            ("mail kind=news,to=1", "none"),
            ("edge remote_address=198.51.100.1", "10/second"),
            ("edge remote_address=203.0.113.5", "0/second"),
            ("levels key=value,sub=x", "200/second"),
            ("levels key=value", "none"),
            ("inside ldap=x", "unlimited"),
            ("inside cloud=x", "80/minute"),
            ("soft service=a,user=ann", "9/second shadow"),
            ("soft service=a,user=bob", "19/second"),
            ("soft service=b,user=bob", "19/second"),
            ("swap one=x,user=ann", "4/second name=special"),
            ("swap two=x,user=ann", "8/second"),
            ("metric key=x", "9/minute"),
            ("metric key=value", "19/minute"),
            ("deep route=a,method=GET,subject=1", "55/minute"),
            ("deep route=b,method=GET,subject=1", "55/minute"),
            ("deep route=a,method=GET,subject=2", "55/minute"),
            ("acts user=ann,action=readfile,resource=x", "95/minute"),
            ("acts user=ann,action=write,resource=x", "none"),
            ("wild key=value1", "18/minute"),
            ("wild path=/api/1/action", "17/minute"),
            ("wild path=/api/1/other", "none"),
            ("wild route=/api/v1/resource/2/action", "16/minute"),
        ],
    ),
];

const EXAMPLE: &str = "domain: shop\ndescriptors:\n\
    - key: kind\n  value: account\n  rate_limit: {replaces: [{name: anns}, {name: eves}], unit: minute, requests_per_unit: 5}\n\
    - key: from\n  value: edge\n  descriptors:\n\
    \x20 - {key: to, value: ann, rate_limit: {replaces: [{name: anns}], unit: minute, requests_per_unit: 3}}\n\
    \x20 - {key: to, value: bob, @1/minute}\n\
    \x20 - {key: to, value: vip, rate_limit: {replaces: [{name: none}], unit: minute, requests_per_unit: 4}}\n\
    \x20 - {key: to, value: eve, rate_limit: {name: eves, unit: minute, requests_per_unit: 2}}\n\
    - key: red\n  @2/minute\n  descriptors:\n\
    \x20 - {key: blue, @3/minute}\n\
    \x20 - {key: blue, value: ann, rate_limit: {name: anns, unit: minute, requests_per_unit: 1}}\n\
    \x20 - {key: blue, value: closed, rate_limit: {name: none, unit: minute, requests_per_unit: 0}}\n\
    \x20 - {key: grey, @1/second}\n\
    \x20 - {key: grey, value: pale, @3/minute}\n\
    \x20 - {key: grey, value: dark, shadow_mode: true, @4/minute}\n\
    \x20 - {key: black, rate_limit: {unlimited: true}}\n\
    - {key: white, detailed_metric: true, @2/minute}\n\
    - {key: green, rate_limit: {unlimited: true}}\n\
    - {key: pool, value: first, quota_mode: true, @1/minute, metadata: {pool: {name: first}}}\n\
    - {key: pool, value: second, quota_mode: true, @2/minute, metadata: {pool: {name: second}}}\n";

const BASIC: &str = "domain: main\ndescriptors:\n\
    - key: one\n  value: a\n  descriptors:\n  - {key: sub, @6/second}\n  - {key: sub, value: own, @11/second}\n\
    - {key: two, @21/minute}\n- {key: two, value: more, @31/minute}\n- {key: two, value: free}\n\
    - {key: three, @1/hour}\n- {key: four, rate_limit: {name: fours, unit: day, requests_per_unit: 2}}\n\
    - key: five\n  value: e\n  @16/day\n  descriptors: [{key: sub, value: f, @26/day}]\n\
    - {key: six, rate_limit: {unlimited: true}}\n- {key: seven, detailed_metric: true, @71/minute}\n";

const SHARED: &str = "domain: d\ndescriptors:\n\
    - {key: files, value: files/*, share_threshold: true, @90/minute}\n\
    - key: nested\n  value: p\n  descriptors: [{key: files, value: in/*, share_threshold: true, @70/minute}]\n\
    - key: files\n  value: top/*\n  share_threshold: true\n  descriptors: [{key: files, value: in/*, share_threshold: true, @60/minute}]\n\
    - key: route\n  value: api/*\n  share_threshold: true\n  value_to_metric: true\n  descriptors: [{key: method, @50/minute}]\n\
    - key: service\n  value: svc/*\n  share_threshold: true\n  descriptors: [{key: endpoint, detailed_metric: true, @40/minute}]\n\
    - key: tree\n  value: tree/*\n  share_threshold: true\n  descriptors:\n  - key: leaf\n    value: leaf/*\n    share_threshold: false\n    \
      descriptors: [{key: type, @30/minute}]\n\
    - key: user\n  value: user/*\n  share_threshold: true\n  descriptors:\n  - key: item\n    value: res/*\n    share_threshold: true\n    \
      descriptors: [{key: action, @20/minute}]\n\
    - {key: leaf, value: test1, @25/minute}\n- {key: leaf, value: test*, share_threshold: true, @35/minute}\n\
    - {key: mid, value: /api*v1, share_threshold: true, @45/minute}\n- {key: multi, value: svc*ep*rpc, share_threshold: true, @55/minute}\n\
    - {key: route2, value: /api*v2, share_threshold: true, value_to_metric: true, @65/minute}\n\
    - key: tenant\n  value: t*prod\n  share_threshold: true\n  descriptors: [{key: item, value: res*v2, share_threshold: true, @75/minute}]\n";

const MANUAL: &str = "domain: mail\ndescriptors:\n- key: kind\n  value: ad\n  descriptors: [{key: to, @5/day}]\n- {key: to, @90/day}\n---\n\
    domain: edge\ndescriptors:\n- {key: remote_address, @10/second}\n- {key: remote_address, value: 203.0.113.5, @0/second}\n---\n\
    domain: levels\ndescriptors:\n- key: key\n  value: value\n  descriptors: [{key: sub, @200/second}]\n---\n\
    domain: inside\ndescriptors:\n- {key: ldap, rate_limit: {unlimited: true}}\n- {key: cloud, @80/minute}\n---\n\
    domain: soft\ndescriptors:\n- key: service\n  descriptors:\n  - {key: user, value: ann, shadow_mode: true, @9/second}\n  \
      - {key: user, value: bob, @19/second}\n---\n\
    domain: swap\ndescriptors:\n- key: one\n  value: x\n  descriptors:\n  \
      - {key: user, value: ann, rate_limit: {name: special, unit: second, requests_per_unit: 4}}\n\
    - key: two\n  value: x\n  descriptors:\n  \
      - {key: user, value: ann, rate_limit: {replaces: [{name: special}], unit: second, requests_per_unit: 8}}\n---\n\
    domain: metric\ndescriptors:\n- {key: key, detailed_metric: true, @9/minute}\n- {key: key, value: value, @19/minute}\n---\n\
    domain: deep\ndescriptors:\n- key: route\n  value_to_metric: true\n  descriptors:\n  - key: method\n    value_to_metric: true\n    \
      descriptors: [{key: subject, @55/minute}]\n---\n\
    domain: acts\ndescriptors:\n- key: user\n  value_to_metric: true\n  descriptors:\n  - key: action\n    value: read*\n    \
      value_to_metric: true\n    descriptors: [{key: resource, @95/minute}]\n---\n\
    domain: wild\ndescriptors:\n- {key: key, value: value*, @18/minute}\n- {key: path, value: /api/*/action, @17/minute}\n\
    - {key: route, value: /api/*/resource/*/action, @16/minute}\n";

/// The rules with each limit written out.
fn rules(text: &str) -> String {
    let mut parts = text.split('@');
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |written, part| {
        let end = part.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '/').unwrap();
        let (count, unit) = part[..end].split_once('/').unwrap();
        format!("{written}rate_limit: {{unit: {unit}, requests_per_unit: {count}}}{}", &part[end..])
    })
}

fn wall_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn unit(name: &str) -> (Unit, u64) {
    match name {
        "second" => (Unit::Second, 1),
        "minute" => (Unit::Minute, 60),
        "hour" => (Unit::Hour, 3_600),
        "day" => (Unit::Day, 86_400),
        other => panic!("{other}"),
    }
}

struct Asked<'c> {
    client: &'c mut Client,
    domain: &'c str,
    text: &'c str,
}

impl Asked<'_> {
    fn status(&mut self, hits: u64) -> DescriptorStatus {
        let mut one = descriptor(self.text);
        one.hits_addend = Some(hits);
        let request = RateLimitRequest {
            domain: self.domain.to_owned().into(),
            descriptors: vec![one],
            hits_addend: 0,
        };
        let mut response: RateLimitResponse = self.client.call(Method::ShouldRateLimit, &request).unwrap();
        assert_eq!(response.overall_code, response.statuses[0].code, "{}", self.text);
        response.statuses.remove(0)
    }

    /// Asks to the end of the limit. The error is the first that differs.
    fn gets(&mut self, expected: &str) -> Result<(), String> {
        let differs = |what: &str, status: &DescriptorStatus| Err(format!("{what}: {status:?}"));
        let mut words = expected.split(' ');
        let limit = words.next().unwrap();
        let words: Vec<&str> = words.collect();
        if ["none", "unlimited"].contains(&limit) {
            let left = if limit == "none" { 0 } else { u32::MAX };
            let status = [(); 3].map(|()| self.status(1_000)).into_iter().last().unwrap();
            let is_so =
                status.code() == Code::Ok && status.current_limit.is_none() && status.limit_remaining == left;
            return if is_so { Ok(()) } else { differs("no limit", &status) };
        }
        if limit == "spent" {
            let status = self.status(1);
            return if status.code() == Code::OverLimit { Ok(()) } else { differs("spent", &status) };
        }
        let (count, name) = limit.split_once('/').unwrap();
        let (count, (unit, unit_s)): (u32, _) = (count.parse().unwrap(), unit(name));
        let name = words.iter().find_map(|word| word.strip_prefix("name=")).unwrap_or_default();
        let last = if words.contains(&"shadow") { Code::Ok } else { Code::OverLimit };
        // A large limit is asked in three calls, so that a second is enough.
        let hits: Vec<u32> = if count > 100 { vec![count - 1, 1] } else { vec![1; count as usize] };
        let mut left = count;
        for hits in hits.into_iter().chain([1, 1]) {
            let code = if hits > left { last } else { Code::Ok };
            left = left.saturating_sub(hits);
            let status = self.status(hits.into());
            let Some(limit) = &status.current_limit else { return differs("a limit", &status) };
            if (limit.requests_per_unit, limit.unit(), limit.name.as_str()) != (count, unit, name) {
                return differs("the limit", &status);
            }
            if (status.code(), status.limit_remaining) != (code, left) {
                return differs(&format!("{code:?} with {left} left"), &status);
            }
            let reset_s = status.duration_until_reset.map_or(-1, |reset| reset.seconds);
            // Nothing passes a limit of 0 at the end of its window. The service tells that end, and slowlane a day.
            let expected_s = if count == 0 { 86_400 } else { (unit_s - wall_s() % unit_s) as i64 };
            if (reset_s - expected_s).abs() > 1 {
                return differs(&format!("reset in {expected_s} s"), &status);
            }
        }
        Ok(())
    }
}

#[test]
fn every_limit_is_the_one_of_the_service() {
    let mut failures = Vec::new();
    for (name, text, rows) in CONFIGURATIONS {
        let written = import(&rules(text), None).unwrap();
        // A configuration is asked again from the beginning if a window ended meanwhile.
        let mut failed = Vec::new();
        for _ in 0..5 {
            let at = own_address();
            let _slowlane = served(&written, at);
            let (mut client, began_s) = (Client::connect(at), wall_s());
            let differs = |(asked, expected): &(&str, &str)| {
                let (domain, text) = asked.split_once(' ').unwrap();
                let error = Asked { client: &mut client, domain, text }.gets(expected).err()?;
                Some(format!("{name}: {asked} {expected}: {error}"))
            };
            failed = rows.iter().filter_map(differs).collect();
            let ended = |error: &String| error.contains("/second") || began_s / 60 < wall_s() / 60;
            if !failed.iter().any(ended) {
                break;
            }
        }
        failures.extend(failed);
    }
    assert_eq!(failures, [""; 0]);
}

/// Descriptors, the hits of each, how often they are asked about, and whether the request passes.
type Step = (&'static str, u64, usize, bool);

/// Requests with several descriptors, in the order of the tests that the service ships.
const SEQUENCES: &[(&str, &[Step])] = &[
    ("one bucket is used up", &[("red=1,grey=pale", 1, 3, true), ("red=1,grey=pale", 1, 1, false)]),
    ("a shadow", &[("red=1,grey=dark", 1, 9, true)]),
    ("both quotas", &[("pool=first | pool=second", 1, 2, true), ("pool=first | pool=second", 1, 1, false)]),
    (
        "tokens of one quota, asked before and told after",
        &[
            ("pool=first | pool=second", 0, 1, true),
            ("pool=second", 1, 2, true),
            ("pool=first | pool=second", 0, 1, true),
            ("pool=second", 1, 1, false),
            // The first is not used up.
            ("pool=first | pool=second", 0, 1, true),
            ("pool=first", 1, 1, true),
            ("pool=first", 1, 1, false),
            ("pool=first | pool=second", 0, 1, false),
        ],
    ),
    (
        "a ban, and one who is let off",
        &[
            ("red=ann | red=ann,blue=closed", 1, 1, false),
            ("red=ann,blue=closed | from=edge,to=bob", 1, 1, false),
            ("red=ann,blue=closed | from=edge,to=vip", 1, 4, true),
            ("red=ann,blue=closed | from=edge,to=vip", 1, 1, false),
        ],
    ),
    (
        "what is replaced keeps its count",
        &[
            ("red=x,blue=ann | from=edge,to=ann", 1, 3, true),
            ("red=x,blue=ann | from=edge,to=ann", 1, 1, false),
            ("red=x,blue=ann | from=edge,to=other", 1, 1, true),
            ("red=x,blue=ann | from=edge,to=other", 1, 1, false),
        ],
    ),
    (
        "several are replaced",
        &[
            ("red=x,blue=ann | from=edge,to=eve | kind=account", 1, 5, true),
            ("red=x,blue=ann | from=edge,to=eve | kind=account", 1, 1, false),
            ("red=y,blue=ann", 1, 1, true),
            ("red=y,blue=ann", 1, 1, false),
            ("red=z,blue=bob | from=edge,to=eve", 1, 2, true),
            ("red=z,blue=bob | from=edge,to=eve", 1, 1, false),
        ],
    ),
];

#[test]
fn requests_with_several_descriptors_are_decided_as_there() {
    let written = import(&rules(EXAMPLE), None).unwrap();
    for (name, steps) in SEQUENCES {
        let asked = |_| {
            let at = own_address();
            let _slowlane = served(&written, at);
            let (mut client, began_s) = (Client::connect(at), wall_s());
            let mut step = |&(texts, hits, times, passes): &Step| {
                let descriptors = texts.split(" | ").map(descriptor).map(|mut one| {
                    one.hits_addend = Some(hits);
                    one
                });
                let descriptors: Vec<_> = descriptors.collect();
                let expected = if passes { Code::Ok } else { Code::OverLimit };
                let domain = "shop".into();
                let request = RateLimitRequest { domain, descriptors, hits_addend: 0 };
                (0..times).find_map(|time| {
                    let response: RateLimitResponse = client.call(Method::ShouldRateLimit, &request).unwrap();
                    let is_other = response.overall_code() != expected;
                    is_other.then(|| format!("{name}: {texts}, {hits} hits, call {time}: {response:?}"))
                })
            };
            let failed = steps.iter().find_map(&mut step);
            // Otherwise a minute has ended meanwhile.
            (began_s / 60 == wall_s() / 60).then_some(failed)
        };
        assert_eq!((0..5).find_map(asked).expect("a minute is long enough"), None);
    }
}

/// The service refuses these files. Each is named, with the line.
#[test]
fn files_that_the_service_refuses_are_named() {
    let one = "domain: d\ndescriptors:\n- key: a\n  value: x\n";
    for (name, text, expected) in [
        (
            "a bad unit",
            format!("{one}  rate_limit: {{unit: foo, requests_per_unit: 5}}\n"),
            "line 3: expected a whole number",
        ),
        ("no YAML", "'''\n".to_owned(), "line 1"),
        (
            "a key twice",
            format!("{one}  @5/day\n- key: a\n  value: x\n  @9/day\n"),
            "line 6: the key is missing or repeated",
        ),
        ("no domain", "descriptors: [{key: a, @5/day}]\n".to_owned(), "line 1: expected a domain"),
        (
            "no key",
            "domain: d\ndescriptors:\n- value: x\n  @5/day\n".to_owned(),
            "line 3: the key is missing or repeated",
        ),
        (
            "a misspelled key",
            format!("{one}  ratelimit: {{unit: day, requests_per_unit: 5}}\n"),
            "line 5: unknown",
        ),
        (
            "a misspelled number",
            format!("{one}  rate_limit: {{unit: day, requestsperunit: 5}}\n"),
            "line 5: unknown",
        ),
        (
            "no maps",
            "domain: d\ndescriptors:\n- a\n- b\n".to_owned(),
            "line 3: the key is missing or repeated",
        ),
        (
            "a key that is a number",
            format!("0.25: d\n{}", &one["domain: d\n".len()..]),
            "line 1: expected a domain",
        ),
        (
            "no name to replace",
            format!("{one}  rate_limit: {{replaces: [{{name: }}], unit: day, requests_per_unit: 5}}\n"),
            "line 5: an entry names its own rule or none",
        ),
        (
            "its own name",
            format!(
                "{one}  rate_limit: {{name: s, replaces: [{{name: s}}], unit: day, requests_per_unit: 5}}\n"
            ),
            "line 5: an entry names its own rule or none",
        ),
        (
            "no limit with a unit",
            format!("{one}  rate_limit: {{unlimited: true, unit: day, requests_per_unit: 5}}\n"),
            "line 5: `unlimited` is combined with `unit`",
        ),
    ] {
        let told = match import(&rules(&text), Some(Program::Envoy)) {
            Ok(written) => {
                written.omissions.iter().map(|one| format!("line {}: {}", one.line, one.reason)).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        assert!(told.iter().any(|told| told.starts_with(expected)), "{name}: {told:?}");
    }
}
