//! Behind a CDN and a load balancer: what `slowlane attach` adds, leaves and says.

use std::net::SocketAddr;
use std::process::Command;

use crate::attach::{Own, haproxy_config, nginx, write_nginx};
use crate::support::backend::Backend;
use crate::support::behind::{NETWORKS, one_hop, two_hops};
use crate::support::client::{Client, connection_from};
use crate::support::haproxy::replace;
use crate::support::process::Process;
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address};

/// Five requests of each source pass.
const POLICY: [(&str, &str); 2] = [
    ("slo.map", "0 rate=unlimited\n3001 burst=5 rate=1/h law=token-bucket\n"),
    ("source.map", "0.0.0.0/0 3001\n"),
];

/// The flags that name both networks.
const TRUSTED: [&str; 4] = ["--trusted", NETWORKS[0], "--trusted", NETWORKS[1]];

/// The note if nothing takes the client's address.
const BEHIND: &str = "note: behind a CDN or a load balancer, all requests appear to come from that proxy's \
                      address: name its networks with --trusted";

/// Waits until the proxy asks slowlane. Then clients behind each hop count apart.
fn counts_apart(shop: SocketAddr) {
    let from = |source: &str| Client::over(connection_from(source, shop)).unwrap();
    eventually("it listens", || std::net::TcpStream::connect(shop).ok());
    eventually("a request over the limit is refused", || {
        let status = from("127.9.9.9").request("GET", "/", &[("Host", "shop.example")], "").status;
        (status == 429).then_some(())
    });
    one_hop(&from);
    two_hops(&from);
}

#[test]
fn attach_takes_the_clients_address_in_haproxy_and_gives_it_back() {
    let slowlane = Slowlane::with_policy(&POLICY);
    let (own, app, shop) = (Own::new(Some(&slowlane)), Backend::start(), own_address());
    let before = haproxy_config(shop, own_address(), app.address);
    own.write("haproxy.cfg", &before);
    assert!(own.said("haproxy", "haproxy.cfg", &[]).contains(BEHIND));
    assert!(!own.said("haproxy", "haproxy.cfg", &TRUSTED).contains(BEHIND));
    own.attached("haproxy", "haproxy.cfg", &[&TRUSTED[..], &["--write"]].concat());
    assert_eq!(own.text("slowlane/trusted.lst"), NETWORKS.join("\n") + "\n");
    {
        // A slow machine may stall for longer than HAProxy waits.
        for (name, short, long) in [
            ("slowlane/spoe-slowlane.conf", "timeout processing 100ms", "timeout processing 5s"),
            ("haproxy.cfg", "timeout check   250ms", "timeout check   5s"),
        ] {
            own.write(name, &replace(&own.text(name), short, long));
        }
        let mut command = Command::new("haproxy");
        let _haproxy = Process::start(command.arg("-db").arg("-f").arg(own.path("haproxy.cfg")));
        counts_apart(shop);
    }
    own.attached("haproxy", "haproxy.cfg", &["--undo"]);
    assert_eq!(own.text("haproxy.cfg"), before);
}

#[test]
fn attach_takes_the_clients_address_in_nginx_and_gives_it_back() {
    let slowlane = Slowlane::with_policy(&POLICY);
    let (own, app, shop) = (Own::new(Some(&slowlane)), Backend::start(), own_address());
    let before = write_nginx(&own, shop, app.address);
    assert!(own.said("nginx", "nginx.conf", &[]).contains(BEHIND));
    assert!(!own.said("nginx", "nginx.conf", &TRUSTED).contains(BEHIND));
    own.attached("nginx", "nginx.conf", &[&TRUSTED[..], &["--write"]].concat());
    {
        let _nginx = nginx(&own);
        counts_apart(shop);
    }
    own.attached("nginx", "nginx.conf", &["--undo"]);
    assert_eq!((own.text("nginx.conf"), own.text("sites/shop.conf")), before);
}

#[test]
fn attach_leaves_the_line_of_haproxy_that_takes_the_clients_address() {
    let (own, shop) = (Own::new(None), own_address());
    let plain = haproxy_config(shop, own_address(), own_address());
    let bind = format!("    bind {shop}\n");
    let rule = |line: &str| plain.replace(&bind, &format!("{bind}    {line}\n"));
    let takes = ": slowlane counts each client by the address that this line provides\n";
    let set_src = "http-request set-src hdr_ip(x-forwarded-for,-1)";
    for (text, line, note) in [
        (rule(&format!("{set_src} if {{ src 127.9.1.0/24 }}")), 18, takes),
        (rule("tcp-request connection expect-proxy layer4 if { src 127.9.1.0/24 }"), 18, takes),
        (plain.replace(&bind, &format!("    bind {shop} accept-proxy\n")), 17, takes),
        (
            rule(set_src),
            18,
            ": any client of this port can choose the address that slowlane counts: add `if { src -f FILE",
        ),
    ] {
        own.write("haproxy.cfg", &text);
        let said = own.said("haproxy", "haproxy.cfg", &["--frontend", "shop"]);
        assert!(said.contains(&format!("note: line {line}{note}")), "{said}");
        assert!(!said.contains(BEHIND), "{said}");
        let refused = own.refused("haproxy", "haproxy.cfg", &TRUSTED);
        let leave = format!("line {line}: this line already sets the client's address: leave out --trusted");
        assert!(refused.contains(&leave), "{refused}");
    }
    own.attached("haproxy", "haproxy.cfg", &["--write"]);
    let text = own.text("haproxy.cfg");
    assert!(text.find("set-src") < text.find("send-spoe-group slowlane decide"), "{text}");
}

#[test]
fn attach_leaves_the_lines_of_nginx_that_take_the_clients_address() {
    let own = Own::new(None);
    let (main, site) = write_nginx(&own, own_address(), own_address());
    let from = "set_real_ip_from 127.9.1.0/24; set_real_ip_from 127.9.3.0/24;";
    let header = "real_ip_header X-Forwarded-For;";
    let in_http = |lines: &str| main.replace("access_log off;", &format!("access_log off;\n    {lines}"));
    let in_server = |lines: &str| site.replace("\n\n", &format!("\n    {lines}\n"));
    let takes = ": slowlane counts each client by the address in this header\n";
    for (main, site, place, note) in [
        (in_http(&format!("{from}\n    {header}")), site.clone(), "nginx.conf:12", takes),
        (in_http(from), in_server(header), "shop.conf:4", takes),
        (
            main.clone(),
            in_server(from),
            "shop.conf:4",
            ": nginx reads X-Real-IP: to read the CDN's header, add `real_ip_header",
        ),
    ] {
        own.write("nginx.conf", &main);
        own.write("sites/shop.conf", &site);
        let said = own.said("nginx", "nginx.conf", &[]);
        assert!(said.contains(&format!("{place}{note}")), "{said}");
        assert_eq!(said.matches(note).count(), 1, "{said}");
        assert!(!said.contains(BEHIND), "{said}");
        let refused = own.refused("nginx", "nginx.conf", &TRUSTED);
        assert!(
            refused.contains(": this line already sets the client's address: leave out --trusted"),
            "{refused}"
        );
    }
    own.write("nginx.conf", &in_http(header));
    own.write("sites/shop.conf", &site);
    assert!(own.said("nginx", "nginx.conf", &[]).contains(BEHIND), "a header of nobody who is trusted");
}
