//! Recipes of the manual that are for proxies, put in place as they stand.

use std::net::SocketAddr;
use std::time::Instant;

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::haproxy::Version::{V2_6, V3_0, V3_2, V3_4};
use crate::support::haproxy::{CONFIG, Delivery, Haproxy, each, replace};
use crate::support::pages::Page;
use crate::support::printed::{EACH, Printed};
use crate::support::slowlane::Slowlane;

fn recipe(page: &str, name: &str) -> Page {
    let parts = Page::read(page).parts();
    parts.into_iter().find(|part| part.text.starts_with(&format!("{name}\n"))).expect("the recipe")
}

/// Five requests of a website pass, or one search: its price and the config are those of the manual.
fn five_at_most(websites: usize) -> Slowlane {
    let recipe = recipe("doc/book/work.md", "Count expensive requests more than once");
    let [config, costs] = ["toml", "cost.map"].map(|label| recipe.blocks(label).remove(0).text);
    let map: String = (0..websites).map(|n| format!("{n}.example 2001\n")).collect();
    let slo_map = "0 rate=unlimited\n2001 burst=5 rate=1/d law=token-bucket\n";
    let files = [("slo.map", slo_map), ("website.map", &*map), ("cost.map", &*costs)];
    Slowlane::with_config(&files, &format!("[policy]\ndir = \"policy\"\n\n{config}"))
}

/// The flags with which the proxies' files send the fields of its policy.
fn of_its_policy(slowlane: &Slowlane) -> [String; 2] {
    ["--config".to_owned(), slowlane.folder().join("slowlane.toml").display().to_string()]
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
    for version in EACH {
        let (slowlane, app) = (five_at_most(spellings.len() + 1), Backend::start());
        let [flag, config] = of_its_policy(&slowlane);
        let Some(haproxy) = Printed::haproxy(version, &slowlane, &app, &[&flag, &config]) else { continue };
        a_search_costs_five(haproxy.address, &app, &spellings);
    }
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
    let (slowlane, app) = (five_at_most(spellings.len() + 1), Backend::start());
    let [flag, config] = of_its_policy(&slowlane);
    let nginx = Printed::nginx(&slowlane.http.to_string(), &slowlane, &app, &[&flag, &config]);
    a_search_costs_five(nginx.address, &app, &spellings);
}

/// An application that serves one request at a time has one of a crawler. The crawler has four more in the queue when a
/// customer comes, and the customer is next.
#[test]
fn a_full_application_serves_first_who_has_least_inside() {
    let blocks = recipe("doc/book/protect.md", "With HAProxy alone").blocks("text");
    let indented = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let [frontend, backend] = [0, 1].map(|number: usize| indented(&blocks[number].text));
    let backend = replace(&backend, "maxconn 8", "maxconn 1");
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
