//! The header fields RateLimit-Policy, RateLimit and Retry-After, as clients get them through real proxies.

use crate::support::backend::Backend;
use crate::support::client::{Client, Response};
use crate::support::printed::{EACH, Printed};
use crate::support::slowlane::Slowlane;
use crate::support::spop::{Line, message};
use spop::Data;

/// One SLO per website: two at once; a window; a dry run; three in flight; one that denies all; one that denies none.
const POLICY: [(&str, &str); 2] = [
    (
        "slo.map",
        "0 burst=1000 rate=1000/s\n2001 burst=2 rate=1/m max_delay=1s\n2002 burst=0 rate=5/m law=sliding-window\n\
         2003 burst=2 rate=1/m dry_run=yes\n2004 burst=3 rate=1/s law=concurrency max=3\n2005 burst=0 rate=0/s\n2006 rate=unlimited\n",
    ),
    (
        "website.map",
        "shop.example 2001\nblog.example 2002\ntried.example 2003\nbusy.example 2004\nclosed.example 2005\nopen.example 2006\n",
    ),
];

/// Status, RateLimit, RateLimit-Policy, Retry-After.
type VerdictHeaders = (u16, Option<String>, Option<String>, Option<String>);

fn outcome(response: &Response) -> VerdictHeaders {
    let header = |name| response.header(name).map(str::to_owned);
    (response.status, header("ratelimit"), header("ratelimit-policy"), header("retry-after"))
}

fn ask(client: impl Fn() -> Client, host: &str) -> VerdictHeaders {
    outcome(&client().request("GET", "/", &[("Host", host)], ""))
}

/// Checks the headers of a proxy that sends quotas to clients.
fn clients_are_told(client: impl Fn() -> Client) {
    let some = |text: &str| Some(text.to_owned());
    let shop = some("\"2001\";q=2;w=120");
    assert_eq!(ask(&client, "shop.example"), (200, some("\"2001\";r=1"), shop.clone(), None));
    assert_eq!(ask(&client, "shop.example"), (200, some("\"2001\";r=0"), shop.clone(), None));
    let (status, limit, policy, retry_after) = ask(&client, "shop.example");
    assert_eq!((status, policy), (429, shop));
    // The time until more requests are left equals Retry-After.
    let seconds: u32 = retry_after.unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(limit, Some(format!("\"2001\";r=0;t={seconds}")));

    let blog = some("\"2002\";q=5;w=60");
    assert_eq!(ask(&client, "blog.example"), (200, some("\"2002\";r=4"), blog, None));
    assert_eq!(ask(&client, "tried.example"), (200, None, None, None));
    assert_eq!(ask(&client, "open.example"), (200, None, None, None));
    let (status, _, policy, _) = ask(&client, "busy.example");
    assert_eq!((status, policy), (200, some("\"2004\";q=3;qu=\"concurrent-requests\"")));
    let closed = (429, some("\"2005\";r=0;t=86400"), some("\"2005\";q=0;w=1"), some("86400"));
    assert_eq!(ask(&client, "closed.example"), closed);
}

/// Checks the headers of a proxy that does not send quotas: only Retry-After.
fn clients_are_not_told(client: impl Fn() -> Client) {
    assert_eq!(ask(&client, "shop.example"), (200, None, None, None));
    assert_eq!(ask(&client, "closed.example"), (429, None, None, Some("86400".to_owned())));
}

#[test]
fn through_each_haproxy_clients_are_told_if_the_operator_wants() {
    for each in EACH {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(&POLICY));
        if let Some(haproxy) = Printed::haproxy(each, &slowlane, &app, &["--ratelimit"]) {
            clients_are_told(|| haproxy.client());
        }
    }
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(&POLICY));
    let haproxy = Printed::haproxy(EACH[0], &slowlane, &app, &[]).unwrap();
    clients_are_not_told(|| haproxy.client());
}

#[test]
fn through_nginx_clients_are_told_if_the_operator_wants() {
    let start = |more: &[&str]| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(&POLICY));
        let nginx = Printed::nginx(&slowlane.http.to_string(), &slowlane, &app, more);
        (nginx, app, slowlane)
    };
    let (nginx, ..) = &start(&["--ratelimit"]);
    clients_are_told(|| nginx.client());
    let (nginx, ..) = &start(&[]);
    clients_are_not_told(|| nginx.client());
}

#[test]
fn who_does_not_ask_is_not_told() {
    let slowlane = Slowlane::with_policy(&POLICY);
    let website = ("X-Slowlane-Website", "blog.example");
    assert_eq!(outcome(&slowlane.check("", &[website])).1, None);
    assert_eq!(outcome(&slowlane.check("?ratelimit=on", &[website])).1.as_deref(), Some("\"2002\";r=3"));
    // A request that is not counted has no quota.
    let free = slowlane.check("?ratelimit=on", &[website, ("X-Slowlane-Cost", "0")]);
    assert_eq!(outcome(&free), (204, None, None, None));

    let mut line = Line::greeted(slowlane.spop);
    assert_eq!(line.ask(1, "192.0.2.1", "blog.example").variable("policy"), None);
    let website = (&b"website"[..], Data::Str(b"blog.example"));
    for (stream_id, asked, policy) in [(2, true, Some("\"2002\";q=5;w=60")), (3, false, None)] {
        line.say(&message(stream_id, b"request", &[website, (b"ratelimit", Data::Bool(asked))]));
        assert_eq!(line.hear().variable("policy"), policy);
    }
}
