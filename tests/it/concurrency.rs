//! The law `concurrency` through real proxies: counted requests, and reports of their end.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use crate::support::backend::Backend;
use crate::support::client::{self, Client, Response};
use crate::support::haproxy::Version::{V2_6, V3_0, V3_2, V3_4};
use crate::support::haproxy::{
    CONFIG, Delivery, EACH_DELIVERY, Haproxy, VerdictHeaders, each, logging_every_request, replace,
    showing_verdicts_patiently,
};
use crate::support::nginx::Nginx;
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, key_hasher};

/// `five` and `one` have that many places. The lease of `brief` is a second, that of the others a minute.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 burst=10000 rate=5000/s\n2001 burst=1 rate=1/s law=concurrency max=5\n\
         2002 burst=1 rate=1/s law=concurrency max=5 lease=1s\n2003 burst=1 rate=1/s law=concurrency max=1\n",
    ),
    ("website.map", "five.example 2001\nbrief.example 2002\none.example 2003\n"),
];

/// The requests in flight for a website, from the table.
fn in_flight(slowlane: &Slowlane, website: &str) -> u32 {
    let lease = if website == "brief.example" { "lease=1s" } else { "" };
    let options = format!("burst=1 rate=1/s law=concurrency {lease}");
    let key = key_hasher(2, &options).part(website.as_bytes()).finish();
    let row = client::get(slowlane.admin, &format!("/api/table/{key}"), &[]);
    let gpt0 = row.body.split(' ').find_map(|column| column.strip_prefix("gpt0="));
    // At least 1000, as under any law, so one request in flight cannot be told from none.
    gpt0.expect("the table has the entry").parse::<u32>().unwrap() / 1_000
}

fn verdicts(slowlane: &Slowlane, verdict: &str) -> f64 {
    slowlane.metric("slowlane_verdicts_total", &format!("verdict=\"{verdict}\""))
}

/// Asks with a client that waits for its answer at the gate.
fn ask_and_stay(mut client: Client, website: &str) -> Client {
    client.send("GET", "/", &[("Host", website)], "").unwrap();
    client
}

/// Twenty clients ask at once where five are allowed. While the application does not answer, five are inside and fifteen
/// are denied. Then it answers, and the clients ask repeatedly.
fn twenty_for_five(slowlane: &Slowlane, app: &Backend, client: impl Fn() -> Client + Sync) {
    let ask = || client().request("GET", "/", &[("Host", "five.example")], "");
    app.gate.close();
    let first: Vec<Response> = thread::scope(|scope| {
        let asked: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        let judged = || verdicts(slowlane, "pass") + verdicts(slowlane, "deny");
        eventually("all are judged", || (judged() == 20.0).then_some(()));
        eventually("five are inside", || (app.gate.inside() == 5).then_some(()));
        assert_eq!([verdicts(slowlane, "pass"), verdicts(slowlane, "deny")], [5.0, 15.0]);
        assert_eq!(in_flight(slowlane, "five.example"), 5);
        app.gate.open();
        asked.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let refused: Vec<_> = first.iter().filter(|response| response.status == 429).collect();
    assert_eq!(refused.len(), 15);
    assert!(refused.iter().all(|response| response.header("retry-after") == Some("1")), "{refused:?}");
    assert_eq!(first.iter().filter(|response| response.status == 200).count(), 5);
    eventually("all have ended", || (in_flight(slowlane, "five.example") == 1).then_some(()));

    app.gate.takes(Duration::from_millis(20));
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = client();
                for _ in 0..20 {
                    let response = client.request("GET", "/", &[("Host", "five.example")], "");
                    assert!([200, 429].contains(&response.status), "{response:?}");
                }
            });
        }
    });
    assert_eq!(app.gate.most(), 5, "never more than five were inside");
    assert!(verdicts(slowlane, "pass") > 5.0, "a place that is free again is taken again");
    eventually("all have ended", || (in_flight(slowlane, "five.example") == 1).then_some(()));
}

#[test]
fn five_at_a_time_are_let_through_haproxy() {
    each(EACH_DELIVERY, |version, delivery| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let agent = slowlane.spop.to_string();
        let mut haproxy =
            Haproxy::with(version, delivery, &agent, app.address, showing_verdicts_patiently).unwrap();
        haproxy.wait_for_agent("UP");
        twenty_for_five(&slowlane, &app, || haproxy.client());

        // HAProxy reports the end of requests with a ticket, and of no others.
        let questions = || slowlane.metric("slowlane_spop_frames_total", "notify");
        let mut client = haproxy.client();
        for (website, has_ticket, outcome) in [("five.example", true, 2.0), ("free.example", false, 1.0)] {
            let before = questions();
            let response = client.request("GET", "/", &[("Host", website)], "");
            assert_eq!(response.status, 200);
            assert_eq!(VerdictHeaders::by(&response).ticket.is_some(), has_ticket, "{website}");
            assert_eq!(questions() - before, outcome, "{website}");
        }
        let uploaded = client.request("POST", "/", &[("Host", "five.example")], &"x".repeat(100_000));
        assert_eq!(VerdictHeaders::by(&uploaded).remaining, Some(4));
        let next = client.request("GET", "/", &[("Host", "five.example")], "");
        assert_eq!(VerdictHeaders::by(&next).remaining, Some(4), "the place of the upload is free");
    });
}

#[test]
fn a_place_that_nobody_frees_is_free_when_its_lease_is_over() {
    each(&[(V2_6, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let agent = slowlane.spop.to_string();
        let start = || {
            let mut haproxy =
                Haproxy::with(version, delivery, &agent, app.address, showing_verdicts_patiently).unwrap();
            haproxy.wait_for_agent("UP");
            haproxy
        };
        let haproxy = start();
        app.gate.close();
        let lost: Vec<_> = (0..5).map(|_| ask_and_stay(haproxy.client(), "brief.example")).collect();
        eventually("five are inside", || (app.gate.inside() == 5).then_some(()));
        // Killed, so the ends of the five requests are never reported.
        drop((haproxy, lost));
        app.gate.open();
        let haproxy = start();
        eventually("all places are free", || {
            let outcome =
                VerdictHeaders::by(&haproxy.client().request("GET", "/", &[("Host", "brief.example")], ""));
            (outcome.remaining == Some(4)).then_some(())
        });
    });
}

#[test]
fn a_client_that_leaves_haproxy_frees_its_place_when_the_application_has_answered() {
    each(
        &[(V2_6, Delivery::Hold), (V3_0, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)],
        |version, delivery| {
            let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
            let edit = |name: &str, text: String| match name {
                CONFIG => {
                    let text = showing_verdicts_patiently(name, text);
                    replace(&text, "\nbackend app\n", "\nbackend app\n    no option abortonclose\n")
                }
                _ => showing_verdicts_patiently(name, text),
            };
            let agent = slowlane.spop.to_string();
            let mut haproxy = Haproxy::with(version, delivery, &agent, app.address, edit).unwrap();
            haproxy.wait_for_agent("UP");
            let status = || haproxy.client().request("GET", "/", &[("Host", "one.example")], "").status;
            app.gate.close();
            let leaving = ask_and_stay(haproxy.client(), "one.example");
            eventually("it is inside", || (app.gate.inside() == 1).then_some(()));
            drop(leaving);
            assert_eq!(status(), 429, "the application is still busy with it");
            app.gate.open();
            eventually("its place is free", || (status() == 200).then_some(()));
        },
    );
}

/// Without a response, HAProxy sends no event. HAProxy 2.6 waits for the response anyway.
#[test]
fn a_client_that_leaves_haproxy_with_abortonclose_keeps_its_place_for_the_lease() {
    each(&[(V3_0, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let edit = |name: &str, text: String| match name {
            CONFIG => {
                let text = logging_every_request(name, text);
                replace(&text, "\nbackend app\n", "\nbackend app\n    option abortonclose\n")
            }
            _ => logging_every_request(name, text),
        };
        let agent = slowlane.spop.to_string();
        let mut haproxy = Haproxy::with(version, delivery, &agent, app.address, edit).unwrap();
        haproxy.wait_for_agent("UP");
        let get = |website| haproxy.client().request("GET", "/", &[("Host", website)], "");
        app.gate.close();
        let leaving = ["one.example", "brief.example"].map(|website| ask_and_stay(haproxy.client(), website));
        eventually("they are inside", || (app.gate.inside() == 2).then_some(()));
        drop(leaving);
        // The client left before the headers of the response.
        let has_left = |line: &&String| line.contains(" CH-- ");
        eventually("HAProxy has seen it", || {
            (haproxy.process.log().iter().filter(has_left).count() == 2).then_some(())
        });
        app.gate.open();
        assert_eq!(get("one.example").status, 429, "for a minute");
        eventually("the lease is over", || {
            (VerdictHeaders::by(&get("brief.example")).remaining == Some(4)).then_some(())
        });
    });
}

/// HAProxy sends no event for its own responses.
#[test]
fn a_response_that_haproxy_makes_frees_no_place_before_the_lease_is_over() {
    each(
        &[(V2_6, Delivery::Hold), (V3_0, Delivery::Hold), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)],
        |version, delivery| {
            let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
            let edit = |name: &str, text: String| match name {
                CONFIG => {
                    let text = showing_verdicts_patiently(name, text);
                    let line = "    http-request return status 418 if { path /teapot }\n    default_backend";
                    replace(&text, "    default_backend", line)
                }
                _ => showing_verdicts_patiently(name, text),
            };
            let agent = slowlane.spop.to_string();
            let mut haproxy = Haproxy::with(version, delivery, &agent, app.address, edit).unwrap();
            haproxy.wait_for_agent("UP");
            let mut client = haproxy.client();
            let mut get = |website, path| client.request("GET", path, &[("Host", website)], "");
            assert_eq!(get("one.example", "/teapot").status, 418);
            assert_eq!(get("one.example", "/").status, 429, "for a minute");
            for _ in 0..5 {
                get("brief.example", "/teapot");
            }
            eventually("the lease is over", || {
                (VerdictHeaders::by(&get("brief.example", "/")).remaining == Some(4)).then_some(())
            });
        },
    );
}

/// The shipped nginx configuration, but with reports of the end, and with all upstream statuses in the log.
fn reporting_the_end(name: &str, text: String) -> String {
    match name {
        "nginx.conf" => {
            let text = replace(&text, "# post_action", "post_action");
            replace(&text, "'host=$host", "'answers=$upstream_status; host=$host")
        }
        _ => text,
    }
}

#[test]
fn five_at_a_time_are_let_through_nginx() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, reporting_the_end);
    twenty_for_five(&slowlane, &app, || nginx.client());

    // The client gets the answer of the application. The end is reported if there is a ticket.
    let mut client = nginx.client();
    for (website, answers) in [("five.example", "404 : 204;"), ("free.example", "404;")] {
        let response = client.request("GET", "/status/404", &[("Host", website)], "");
        assert_eq!((response.status, response.body.as_str()), (404, "ok\n"));
        eventually("it is logged", || {
            let log = nginx.access_log();
            let host = format!("host={website} ");
            let line = log.iter().find(|line| line.contains("/status/404") && line.contains(&host))?;
            assert!(line.contains(&format!("answers={answers}")), "{line}");
            Some(())
        });
    }
}

#[test]
fn a_client_that_leaves_nginx_frees_its_place_at_once() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, reporting_the_end);
    app.gate.close();
    let leaving = ask_and_stay(nginx.client(), "one.example");
    eventually("it is inside", || (app.gate.inside() == 1).then_some(()));
    assert_eq!(nginx.client().request("GET", "/", &[("Host", "one.example")], "").status, 429);
    drop(leaving);
    let mut stayed = eventually("its place is free", || {
        let denied = verdicts(&slowlane, "deny");
        let client = ask_and_stay(nginx.client(), "one.example");
        let let_through = eventually("it is judged", || {
            let is_denied = verdicts(&slowlane, "deny") > denied;
            (is_denied || verdicts(&slowlane, "pass") == 2.0).then_some(!is_denied)
        });
        let_through.then_some(client)
    });
    app.gate.open();
    assert_eq!(stayed.receive("GET", std::time::Instant::now()).unwrap().status, 200);
}

#[test]
fn nginx_as_it_is_shipped_frees_a_place_when_its_lease_is_over() {
    let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
    let nginx = Nginx::shipped(&slowlane.http.to_string(), app.address);
    let get = |website| nginx.client().request("GET", "/", &[("Host", website)], "").status;
    assert_eq!([get("one.example"), get("one.example")], [200, 429]);
    for _ in 0..5 {
        get("brief.example");
    }
    eventually("the lease is over", || (get("brief.example") == 200).then_some(()));
}

#[test]
fn a_proxy_without_events_tells_of_the_end_over_http() {
    let slowlane = Slowlane::with_policy(POLICY);
    let check = || slowlane.check("", &[("X-Slowlane-Website", "one.example")]);
    let done = |method: &str, headers: &[(&str, &str)]| {
        Client::connect(slowlane.http).request(method, "/done", headers, "").status
    };
    for method in ["GET", "POST"] {
        let let_through = check();
        assert_eq!((let_through.status, let_through.header("x-slowlane-remaining")), (204, Some("0")));
        let refused = check();
        assert_eq!((refused.status, refused.header("x-slowlane-ticket")), (403, None));
        let ticket = let_through.header("x-slowlane-ticket").unwrap();
        assert_eq!(done(method, &[("X-Slowlane-Ticket", ticket)]), 204);
    }

    let let_through = check();
    let ticket = let_through.header("x-slowlane-ticket").unwrap();
    let (begun, counted) = ticket.split_once('-').unwrap();
    let (slo, _) = counted.split_once('.').unwrap();
    // Made-up tickets, with another key, SLO, time, cost or serial, have no seal.
    for forged in [
        format!("{begun}-{slo}.0123456789ABCDEF.1-0123456789ABCDEF"),
        format!("{begun}-5999.0123456789ABCDEF.1-0123456789ABCDEF"),
        format!("1-{counted}"),
        format!("1.1-{counted}"),
        ticket.replacen(".1-", ".9-", 1),
        ticket.replacen(".3.1-", ".4.1-", 1),
        ticket[..ticket.len() - 17].to_owned(),
    ] {
        assert_ne!(forged, ticket);
        assert_eq!(done("GET", &[("X-Slowlane-Ticket", &forged)]), 400, "{forged}");
    }
    for nonsense in [
        "",
        "x",
        "1",
        "1.1",
        "1.1-",
        "1.1-2003",
        "-1.1-2003.0",
        "1.1-2003.0123456789ABCDEFF",
        "1.1-9999999.0",
    ] {
        assert_eq!(done("GET", &[("X-Slowlane-Ticket", nonsense)]), 400, "{nonsense:?}");
    }
    assert_eq!(done("POST", &[]), 400);
    assert_eq!(check().status, 403, "none of them was the ticket");
    for _ in 0..3 {
        assert_eq!(done("GET", &[("X-Slowlane-Ticket", ticket)]), 204, "a repeated end is one end");
    }
    assert_eq!([check().status, check().status], [204, 403]);
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 8.0, "an end is no verdict");
    let ends = ["counted", "late", "refused"]
        .map(|result| slowlane.metric("slowlane_ends_total", &format!("result=\"{result}\"")));
    assert_eq!(ends, [3.0, 2.0, 17.0]);
}

/// Each of these freed the place of another request, although only the first had ended.
#[test]
fn a_repeated_or_made_up_end_frees_no_place_of_another_request() {
    let slowlane = Slowlane::with_policy(POLICY);
    let check = || slowlane.check("", &[("X-Slowlane-Website", "five.example")]);
    let done = |ticket: &str| {
        Client::connect(slowlane.http).request("GET", "/done", &[("X-Slowlane-Ticket", ticket)], "");
    };
    let tickets: Vec<String> =
        (0..5).map(|_| check().header("x-slowlane-ticket").unwrap().to_owned()).collect();
    assert_eq!(tickets.iter().collect::<HashSet<_>>().len(), 5, "each ticket is its request's own");
    assert_eq!((check().status, in_flight(&slowlane, "five.example")), (403, 5));
    for _ in 0..5 {
        done(&tickets[2]);
    }
    assert_eq!(in_flight(&slowlane, "five.example"), 4);
    // A made-up ticket of the same key and time, in the old form too.
    let (content, _) = tickets[0].rsplit_once('-').unwrap();
    for forged in
        [content.to_owned(), content.rsplit_once('.').unwrap().0.to_owned(), format!("{content}-{:016X}", 0)]
    {
        done(&forged);
    }
    assert_eq!(in_flight(&slowlane, "five.example"), 4);
    tickets.iter().for_each(|ticket| done(ticket));
    let again: Vec<u16> = (0..6).map(|_| check().status).collect();
    assert_eq!(again, [204, 204, 204, 204, 204, 403]);
    tickets.iter().for_each(|ticket| done(ticket));
    assert_eq!(check().status, 403, "the tickets of ended requests end no others");
}

/// A repeated question has the ticket of the first, and both its ends are reported.
#[test]
fn a_repeated_question_of_nginx_frees_one_place() {
    let slowlane = Slowlane::with_policy(POLICY);
    let ask = |id: &str| {
        let headers = [("X-Slowlane-Website", "five.example"), ("X-Request-Id", id)];
        slowlane.check("", &headers).header("x-slowlane-ticket").unwrap().to_owned()
    };
    let (first, repeated, second) = (ask("1"), ask("1"), ask("2"));
    assert_eq!((&first, in_flight(&slowlane, "five.example")), (&repeated, 2));
    assert_ne!(first, second);
    for ticket in [&first, &repeated] {
        Client::connect(slowlane.http).request("GET", "/done", &[("X-Slowlane-Ticket", ticket)], "");
    }
    assert_eq!(in_flight(&slowlane, "five.example"), 1);
}
