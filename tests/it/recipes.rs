//! Recipes of the manual that are lines for proxies, put in place as they stand.

use std::net::SocketAddr;
use std::time::Instant;

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::haproxy::Version::{V2_6, V3_0, V3_2, V3_4};
use crate::support::haproxy::{CONFIG, Delivery, Haproxy, each, replace};
use crate::support::nginx::Nginx;
use crate::support::pages::Page;
use crate::support::slowlane::Slowlane;

/// The blocks of a recipe's lines, each with the indentation of a shipped file.
fn lines(page: &str, recipe: &str) -> Vec<String> {
    let parts = Page::read(page).parts();
    let recipe = parts.iter().find(|part| part.text.starts_with(&format!("{recipe}\n"))).expect("the recipe");
    let indented = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect();
    recipe.blocks("text").iter().map(|block| indented(&block.text)).collect()
}

const EXPENSIVE: &str = "Count expensive requests more than once";

/// Five requests of a website pass, or one search.
fn five_at_most(websites: usize) -> Slowlane {
    let map: String = (0..websites).map(|n| format!("{n}.example 2001\n")).collect();
    let slo_map = "0 rate=unlimited\n2001 burst=5 rate=1/d law=token-bucket\n";
    Slowlane::with_policy(&[("slo.map", slo_map), ("website.map", &map)])
}

/// Each spelling either is refused or uses up the five of its website.
fn a_search_costs_five(proxy: SocketAddr, app: &Backend, spellings: &[&str]) {
    let ask = |n: usize, path: &str| {
        Client::connect(proxy).request("GET", path, &[("Host", &format!("{n}.example"))], "").status
    };
    assert_eq!([ask(0, "/other/search"), ask(0, "/")], [200, 200]);
    for (n, spelling) in (1..).zip(spellings) {
        let before = app.count();
        match ask(n, spelling) {
            200 => assert_eq!(ask(n, "/"), 429, "{spelling}"),
            refused => assert_eq!((refused, app.count()), (400, before), "{spelling}"),
        }
    }
}

#[test]
fn no_spelling_of_a_path_makes_it_cheap() {
    let spellings = [
        "/search",
        "/search/a?b=c",
        "/%73earch",
        "/s%65arch",
        "//search",
        "/SEARCH",
        "/search;a=b",
        "/;a=b/search",
        "/./search",
        "/x/../search",
        "/x/%2e%2e/search",
        "/%2fsearch",
        "/search%00",
        "/x\\..\\search",
    ];
    let of_haproxy = lines("doc/book/recipes-fields.md", EXPENSIVE);
    each(&[(V2_6, Delivery::Lua), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)], |version, delivery| {
        let (slowlane, app) = (five_at_most(spellings.len() + 1), Backend::start());
        let edit = |name: &str, text: String| match name {
            CONFIG => replace(
                &text,
                "    http-request send-spoe-group",
                &(of_haproxy[0].clone() + "    http-request send-spoe-group"),
            ),
            "spoe-slowlane.conf" => {
                let args = text.lines().find(|line| line.trim_start().starts_with("args source=src "));
                let text = replace(&text, args.expect("the arguments"), of_haproxy[1].trim_end());
                replace(&text, "timeout processing 100ms", "timeout processing 5s")
            }
            _ => text,
        };
        let mut haproxy =
            Haproxy::with(version, delivery, &slowlane.spop.to_string(), app.address, edit).unwrap();
        haproxy.wait_for_agent("UP");
        a_search_costs_five(haproxy.address, &app, &spellings);
    });
}

#[test]
fn no_spelling_of_a_path_makes_it_cheap_in_nginx() {
    // nginx does not take parameters out of a path.
    let spellings = [
        "/search",
        "/search/a?b=c",
        "/%73earch",
        "//search",
        "/SEARCH",
        "/search;a=b",
        "/./search",
        "/x/../search",
        "/x/..%2fsearch",
    ];
    let of_nginx = lines("doc/book/recipes-fields.md", EXPENSIVE);
    let (slowlane, app) = (five_at_most(spellings.len() + 1), Backend::start());
    let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, |name, text| match name {
        "slowlane-upstream.conf" => text + &of_nginx[2],
        "slowlane.conf" => {
            let attached = "auth_request     /slowlane-check;";
            let text = replace(&text, attached, &(of_nginx[3].clone() + attached));
            let source = "    proxy_set_header X-Slowlane-Source";
            replace(&text, source, &(of_nginx[4].clone() + source))
        }
        _ => text,
    });
    a_search_costs_five(nginx.address, &app, &spellings);
}

/// An application that serves one request at a time has one of a crawler. The crawler has four more in the queue when a
/// customer comes, and the customer is next.
#[test]
fn a_full_application_serves_first_who_has_least_inside() {
    let recipe = lines("doc/book/protect.md", "With HAProxy alone");
    let (frontend, backend) = (&recipe[0], replace(&recipe[1], "maxconn 8", "maxconn 1"));
    let versions =
        [(V2_6, Delivery::Lua), (V3_0, Delivery::Lua), (V3_2, Delivery::Pause), (V3_4, Delivery::Pause)];
    each(&versions, |version, delivery| {
        for [crawler, neighbour, customer] in [
            ["203.0.113.7", "203.0.113.8", "192.0.2.1"],
            ["2001:db8:1::7", "2001:db8:1:2::8", "2001:db8:2::1"],
        ] {
            let app = Backend::start();
            let edit = |name: &str, text: String| {
                if name != CONFIG {
                    return text;
                }
                let from = "    http-request set-src req.hdr(x-from)\n";
                let text = replace(
                    &text,
                    "    acl slowlane_has_host",
                    &format!("{from}{frontend}    acl slowlane_has_host"),
                );
                let server = format!("    server app1 {}", app.address);
                replace(&text, &server, &replace(&backend, "    server app1 127.0.0.1:8000", &server))
            };
            let mut haproxy = Haproxy::with(version, delivery, "127.0.0.1:1", app.address, edit).unwrap();
            haproxy.wait_for_agent("DOWN");
            app.gate.close();
            let ask = |from: &str, path: &str, waiting: usize| {
                let mut client = haproxy.client();
                client.send("GET", path, &[("X-From", from)], "").unwrap();
                eventually("the request is inside or waits", || {
                    let stats = haproxy.runtime("show stat\n")?;
                    let row = stats.lines().find(|line| line.starts_with("app,BACKEND,"))?;
                    let queued: usize = row.split(',').nth(2)?.parse().ok()?;
                    (app.gate.inside() == 1 && queued == waiting).then_some(())
                });
                client
            };
            let mut clients: Vec<Client> = (0..3).map(|n| ask(crawler, "/crawler", n)).collect();
            clients.push(ask(neighbour, "/neighbour", 3));
            clients.push(ask(customer, "/customer", 4));
            app.gate.open();
            for client in &mut clients {
                assert_eq!(client.receive("GET", Instant::now()).unwrap().status, 200);
            }
            let paths: Vec<String> = app.seen().into_iter().map(|seen| seen.path).collect();
            assert_eq!(paths, ["/crawler", "/customer", "/crawler", "/crawler", "/neighbour"]);
        }
    });
}
