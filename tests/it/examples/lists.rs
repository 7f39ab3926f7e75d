//! Examples that tell clients apart by their addresses: health checkers, allow and block lists, a CDN, IPv6.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

use super::stage::{Stage, in_each_haproxy};
use crate::support::client::{self, Client};
use crate::support::skipped;

#[test]
fn a_health_checker_is_never_throttled() {
    in_each_haproxy("health-checks", |mut stage| {
        stage.edit("checkers.lst", "192.0.2.0/28", "127.9.0.0/28");
        stage.start();
        let mut checker = stage.client_from("127.9.0.7");
        for _ in 0..20 {
            assert_eq!(checker.request("GET", "/health", &[], "").status, 200);
        }
        assert_eq!(stage.judged(), 0.0, "slowlane is not asked");
        for (source, path) in [("127.9.0.7", "/"), ("127.9.0.16", "/health")] {
            let mut client = stage.client_from(source);
            for status in [200; 5].into_iter().chain([429; 3]) {
                assert_eq!(client.request("GET", path, &[], "").status, status, "{source} {path}");
            }
        }
        assert_eq!(stage.judged(), 16.0);
    });
}

#[test]
fn one_list_allows_and_another_blocks() {
    in_each_haproxy("allow-block", |mut stage| {
        stage.edit("maps/source.map", "192.0.2.0/24", "127.9.1.0/24");
        stage.edit("maps/source.map", "198.51.100.", "127.9.2.");
        stage.start();
        let statuses = |source: &str| {
            let mut client = stage.client_from(source);
            (0..8).map(|_| client.request("GET", "/", &[], "").status).collect::<Vec<_>>()
        };
        assert_eq!(statuses("127.9.0.1"), [200, 200, 200, 200, 200, 429, 429, 429]);
        assert_eq!(statuses("127.9.1.1"), [200; 8], "allowed");
        assert_eq!(statuses("127.9.2.1"), [429; 8], "blocked");
        assert_eq!(statuses("127.9.2.7"), [200; 8], "the longest prefix wins");
        stage.edit("maps/source.map", "127.9.1.0/24 3002", "127.9.1.0/24 3003");
        crate::support::eventually("the edit is in force", || {
            (statuses("127.9.1.1") == [429; 8]).then_some(())
        });
    });
}

/// How many of ten requests pass, each with the next of these headers in turn.
fn passed(client: &mut Client, forwarded: &[&str]) -> usize {
    let mut ask = |number: usize| {
        let forwarded = forwarded[number % forwarded.len()];
        client.request("GET", "/", &[("X-Forwarded-For", forwarded)], "").status
    };
    (0..10).filter(|&number| ask(number) == 200).count()
}

/// Five requests pass for each client, as the CDN tells them apart. A stranger is one client, whatever it says.
pub(super) fn clients_behind_a_cdn(stage: &Stage) {
    let mut stranger = stage.client_from("127.9.2.1");
    assert_eq!(passed(&mut stranger, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]), 5);
    let mut cdn = stage.client_from("127.9.1.1");
    assert_eq!(passed(&mut cdn, &["10.0.0.1", "10.0.0.2"]), 10, "two clients over one connection");
    assert_eq!(passed(&mut cdn, &["10.0.0.1", "10.0.0.2"]), 0);
    let forged = ["1.1.1.1, 10.0.0.4", "1.1.1.2, 10.0.0.4", "1.1.1.3, 10.0.0.4"];
    assert_eq!(passed(&mut cdn, &forged), 5, "the last address is the one that the CDN has seen");
}

/// With one hop only, an address of the CDN's networks in the list is a client too.
fn clients_within_the_cdn(stage: &Stage) {
    let mut cdn = stage.client_from("127.9.1.1");
    let behind_customer = ["10.0.0.5, 127.9.1.9", "10.0.0.6, 127.9.1.9"];
    assert_eq!(passed(&mut cdn, &behind_customer), 5, "a client in a network of the CDN is no hop");
}

/// The same with two trusted hops: the CDN, and a load balancer of its network.
fn clients_behind_two_hops(stage: &Stage) {
    let mut stranger = stage.client_from("127.9.2.1");
    let forged = ["10.0.0.1, 127.9.1.9", "10.0.0.2, 127.9.1.9"];
    assert_eq!(passed(&mut stranger, &forged), 5, "a stranger is one client");
    let mut balancer = stage.client_from("127.9.1.1");
    assert_eq!(passed(&mut balancer, &forged), 10, "two clients over one connection");
    assert_eq!(passed(&mut balancer, &forged), 0);
    let forged = ["1.1.1.1, 10.0.0.4, 127.9.1.9", "127.9.1.2, 10.0.0.4, 127.9.1.8"];
    assert_eq!(passed(&mut balancer, &forged), 5, "the CDN has seen 10.0.0.4");
    assert_eq!(passed(&mut balancer, &["1.1.1.3, 10.0.0.4", "10.0.0.4"]), 0, "without the CDN");
}

#[test]
fn a_cdn_is_believed_and_a_stranger_is_not_in_haproxy() {
    in_each_haproxy("cdn", |mut stage| {
        stage.edit("cdn.lst", "192.0.2.0/24", "127.9.1.0/24");
        stage.start();
        clients_behind_a_cdn(&stage);
        clients_within_the_cdn(&stage);

        // The same by the PROXY protocol.
        let proxied = |from: &str, address: &str, forwarded: &str| {
            let mut connection = stage.connection_from(from, 8081);
            connection
                .write_all(format!("PROXY TCP4 {address} 192.0.2.200 1000 8081\r\n").as_bytes())
                .unwrap();
            Client::over(connection)
                .unwrap()
                .request("GET", "/", &[("X-Forwarded-For", forwarded)], "")
                .status
        };
        for status in [200; 5].into_iter().chain([429; 2]) {
            assert_eq!(proxied("127.9.1.1", "10.2.0.1", "10.2.0.9"), status);
        }
        assert_eq!(proxied("127.9.1.1", "10.2.0.2", "10.2.0.9"), 200, "another client");
        assert_eq!(proxied("127.9.2.1", "10.2.0.3", "10.2.0.9"), 400, "a stranger's line is no request");
        // A client within the CDN's own networks, such as a program that the CDN runs for its customers.
        for (number, status) in [200; 5].into_iter().chain([429; 2]).enumerate() {
            assert_eq!(proxied("127.9.1.1", "127.9.1.77", &format!("10.3.0.{number}")), status);
        }
    });
}

#[test]
fn two_trusted_hops_are_believed_by_haproxy() {
    in_each_haproxy("cdn", |mut stage| {
        stage.edit("cdn.lst", "192.0.2.0/24", "127.9.1.0/24");
        let second = "http-request set-src req.hdr_ip(x-forwarded-for,-2)";
        stage.edit("haproxy.cfg", &format!("# {second}"), second);
        stage.start();
        clients_behind_two_hops(&stage);
    });
}

#[test]
fn a_cdn_is_believed_and_a_stranger_is_not_in_nginx() {
    let mut stage = Stage::set("cdn");
    stage.edit("nginx.conf", "192.0.2.0/24", "127.9.1.0/24");
    stage.start_slowlane();
    stage.start_proxy("nginx");
    clients_behind_a_cdn(&stage);
    clients_within_the_cdn(&stage);
    // Each story has a slowlane of its own.
    let mut stage = Stage::set("cdn");
    stage.edit("nginx.conf", "192.0.2.0/24", "127.9.1.0/24");
    stage.edit("nginx.conf", "# real_ip_recursive on;", "real_ip_recursive on;");
    stage.start_slowlane();
    stage.start_proxy("nginx");
    clients_behind_two_hops(&stage);
}

/// The lines that `nginx/slowlane.conf` has as comments, in a server that has none of its own.
#[test]
fn the_lines_for_a_cdn_in_the_file_for_nginx_work() {
    const SHIPPED: &str = "../../nginx/slowlane.conf";
    let mut stage = Stage::set("cdn");
    for line in ["192.0.2.0/24;", "2001:db8:cd::/48;"].map(|network| format!("set_real_ip_from {network}")) {
        stage.edit("nginx.conf", &line, "");
    }
    stage.edit("nginx.conf", "real_ip_header   X-Forwarded-For;", "");
    stage.edit(SHIPPED, "#       set_real_ip_from  192.0.2.0/24;", "set_real_ip_from 127.9.1.0/24;");
    for line in ["real_ip_header    X-Forwarded-For;", "real_ip_recursive on;"] {
        stage.edit(SHIPPED, &format!("#       {line}"), line);
    }
    stage.start_slowlane();
    stage.start_proxy("nginx");
    clients_behind_two_hops(&stage);
}

/// The addresses come by the PROXY protocol: a machine has one of IPv6 on its loopback.
#[test]
fn a_network_of_ipv6_shares_a_bucket() {
    if TcpListener::bind("[::1]:0").is_err() {
        return skipped("this machine has no IPv6");
    }
    // A port is free until the next HAProxy has it, and two could share it.
    let choosing = Mutex::new(());
    in_each_haproxy("ipv6", |mut stage| {
        let chosen = choosing.lock().unwrap();
        let loopback = TcpListener::bind("[::1]:0").unwrap().local_addr().unwrap();
        let bind = format!("bind {loopback}\n    bind {} accept-proxy", stage.at(8080));
        stage.edit("haproxy.cfg", "bind [::]:8080 v4v6", &bind);
        stage.start();
        drop(chosen);
        assert_eq!(client::get(loopback, "/", &[]).status, 200);
        assert_eq!(stage.verdicts(3001, "pass"), 1.0);

        let passed = |network: &str| {
            let ask = |host: &u32| {
                let mut connection = TcpStream::connect(stage.at(8080)).unwrap();
                connection
                    .write_all(format!("PROXY TCP6 {network}::{host:x} 2001:db8::1 1000 8080\r\n").as_bytes())
                    .unwrap();
                Client::over(connection).unwrap().request("GET", "/", &[], "").status == 200
            };
            (1..=10).filter(ask).count()
        };
        assert_eq!(passed("2001:db8:1:1"), 5, "one bucket for the /64");
        assert_eq!(passed("2001:db8:1:2"), 5, "another /64");
        assert_eq!(passed("2001:db8:1:3"), 2, "the rest of the /48");
        assert_eq!(passed("2001:db8:2:1"), 5, "another /48");
    });
}
