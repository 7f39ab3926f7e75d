//! What the rig has found, each by its smallest request.

use crate::fronts::{Http, Kind};

use crate::policies::{DEFAULT, HEADERS, METHOD, PATHS, Policy, URL, WEBSITE};
use crate::rig::Rig;
use crate::shot::{Piece, Shot};
use crate::support::haproxy::Version;
use crate::support::skipped;
use crate::{HOLD, LUA, PAUSE, PEERS, PEERS_LUA};

const PEERS_2_6: Kind = Kind::Haproxy(Version::V2_6, "peers", PEERS_LUA);

const FRONTS: [Kind; 8] = [
    PEERS_2_6,
    Kind::Haproxy(Version::V3_2, "peers", PEERS),
    Kind::Haproxy(Version::V2_6, "hold", HOLD),
    Kind::Haproxy(Version::V2_6, "lua", LUA),
    Kind::Haproxy(Version::V3_0, "hold", HOLD),
    Kind::Haproxy(Version::V3_2, "pause", PAUSE),
    Kind::Nginx,
    Kind::UnpackedNginx("1.30", Http::Three),
];

/// Plays these requests before each front, all together and each alone.
fn are_counted_as_served(policy: Policy, requests: &[&str]) {
    let shots: Vec<Shot> = requests.iter().map(|text| Shot::of(text)).collect();
    FRONTS.into_iter().for_each(|front| front_counts(front, policy, &shots));
}

fn front_counts(front: Kind, policy: Policy, shots: &[Shot]) {
    let Some(mut rig) = Rig::start(front, policy, 0) else {
        return skipped(&format!("{front} cannot be had on this machine"));
    };
    assert_eq!(rig.play(shots), [], "{front}");
    for shot in shots {
        assert_eq!(rig.play(std::slice::from_ref(shot)), [], "{front}: {}", shot.shown());
    }
}

#[test]
fn the_host_of_a_url_without_a_host_header() {
    are_counted_as_served(
        WEBSITE,
        &[
            "GET http://shop.example/ HTTP/1.0\r\n\r\n",
            "GET http://shop.example/ HTTP/1.0\r\nHost:\r\n\r\n",
            "GET HTTP://ann@shop.example:80/ HTTP/1.0\r\n\r\n",
        ],
    );
}

#[test]
fn the_host_of_a_url_beside_another_host_header() {
    are_counted_as_served(
        DEFAULT,
        &[
            "GET http://victim.example/ HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n",
            "GET ftp://victim.example:80/ HTTP/1.0\r\nHost: [2001:db8::1]\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: ann:secret@shop.example:80\r\nConnection: close\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: 2001:db8::1\r\nConnection: close\r\n\r\n",
        ],
    );
}

/// A question that is too long for a frame ends the connection to the agent, and other requests with it.
#[test]
fn a_url_that_would_fill_the_question() {
    let long = |bytes: usize| {
        format!("GET /{} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n", "p".repeat(bytes))
    };
    let texts = [4_000, 4_100, 5_400, 5_500, 7_900, 8_200, 15_000].map(long);
    let plain = "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";
    let requests: Vec<&str> = texts.iter().flat_map(|text| [text.as_str(), plain]).collect();
    are_counted_as_served(PATHS, &requests);
    are_counted_as_served(URL, &requests);
}

#[test]
fn a_header_that_is_sent_twice() {
    let of =
        |lines: &str| format!("GET / HTTP/1.1\r\nHost: shop.example\r\n{lines}Connection: close\r\n\r\n");
    let texts = [
        "X-Api-Key: bob\r\nX-Api-Key: alice\r\n",
        "X-Api-Key: bob\r\nx-api-key:\r\n",
        "X-Api-Key:\r\nX-API-KEY: bob\r\n",
        "User-Agent: bob, alice\r\nUser-Agent: alice\r\n",
    ]
    .map(of);
    are_counted_as_served(HEADERS, &texts.each_ref().map(String::as_str));
}

#[test]
fn a_url_without_a_path_and_one_with_a_fragment() {
    let requests = [
        "GET http://shop.example?rig=x HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n",
        "GET /login#x?rig=1 HTTP/1.0\r\nHost: shop.example\r\n\r\n",
        "GET /%6cogin HTTP/1.0\r\nHost: shop.example\r\n\r\n",
        "GET //x/../LOGIN;a=b HTTP/1.0\r\nHost: shop.example\r\n\r\n",
        "GET /login%20 HTTP/1.0\r\nHost: shop.example\r\n\r\n",
        "GET /login%09%0d%0aX-Slowlane-Owner:%20vip HTTP/1.0\r\nHost: shop.example\r\n\r\n",
    ];
    are_counted_as_served(PATHS, &requests);
    are_counted_as_served(URL, &requests);
}

/// Each made-up method would have a bucket of its own.
#[test]
fn a_method_that_no_program_knows() {
    let requests = ["get", "GETT", "BREW"]
        .map(|method| format!("{method} / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"));
    for front in FRONTS {
        let Some(mut rig) = Rig::start(front, METHOD, 0) else { continue };
        for text in &requests {
            let shot = Shot::of(text);
            let before = rig.sums.served;
            assert_eq!(rig.play(&[shot]), [], "{front}");
            assert_eq!(rig.sums.served, before, "{front} let {text:?} through");
        }
    }
}

/// What a proxy with an example takes for a host, and its application for another one.
#[test]
fn a_host_that_programs_read_in_different_ways() {
    let of = |host: &&str| Shot::of(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    let hosts =
        ["shop.example:80x", "2001:db8::1", "ann:secret@shop.example:80", "shop.example,victim.example"];
    let mut shots: Vec<Shot> = hosts.iter().map(of).collect();
    shots.push(Shot::of(
        "GET / HTTP/1.1\r\nHost: shop.example\r\nHost: [2001:db8::1]\r\nConnection: close\r\n\r\n",
    ));
    let fields = |host| {
        Shot::of_fields(&[(":method", "GET"), (":scheme", "http"), (":authority", host), (":path", "/")])
    };
    shots.extend(["shop.example victim.example", "shop.example:80x", "\r\nHost: victim.example"].map(fields));
    for front in
        [Kind::Caddy(None), Kind::Caddy(Some("2.11")), Kind::Traefik, Kind::Envoy, Kind::EnvoyRateLimit]
    {
        front_counts(front, WEBSITE, &shots);
    }
    for front in FRONTS {
        front_counts(front, WEBSITE, &shots);
    }
}

/// CGI and WSGI make one name of both.
#[test]
fn an_underscore_in_the_name_of_a_header() {
    let of =
        |lines: &str| format!("GET / HTTP/1.1\r\nHost: shop.example\r\n{lines}Connection: close\r\n\r\n");
    let texts = [
        "X_Api_Key: bob\r\n",
        "X-Api-Key: alice\r\nX_Api-Key: bob\r\n",
        "X-Api_Key: bob\r\nUser_Agent: eve\r\nUser-Agent: alice\r\n",
    ]
    .map(of);
    are_counted_as_served(HEADERS, &texts.each_ref().map(String::as_str));
}

/// Two customers whose parts, joined, are the same text.
#[test]
fn the_joint_within_a_part_of_a_key() {
    let of = |lines: &str| format!("GET / HTTP/1.0\r\nHost: shop.example\r\n{lines}\r\n");
    let texts = ["X-Api-Key: a|b\r\nUser-Agent: c\r\n", "X-Api-Key: a\r\nUser-Agent: b|c\r\n"].map(of);
    are_counted_as_served(HEADERS, &texts.each_ref().map(String::as_str));
}

/// HAProxy up to 3.0 writes OPTIONS into a variable.
#[test]
fn a_method_that_haproxy_has_no_number_for() {
    let of = |method| Shot::of(&format!("{method} / HTTP/1.0\r\nHost: shop.example\r\n\r\n"));
    front_counts(PEERS_2_6, METHOD, &["PATCH", "OPTIONS", "DELETE"].map(of));
}

/// Of many checks at once, a few reach the application if Caddy keeps connections: two of three plays find one.
#[test]
fn a_connection_of_caddy_that_leads_to_the_application() {
    let plain = Shot::of("GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
    for front in [Kind::Caddy(None), Kind::Caddy(Some("2.11"))] {
        let Some(mut rig) = Rig::start(front, DEFAULT, 0) else {
            skipped(&format!("{front} cannot be had on this machine"));
            continue;
        };
        for _ in 0..6 {
            assert_eq!(rig.play(&vec![plain.clone(); 4_000]), []);
        }
    }
}

/// The decision log cuts both hosts at the same place, and only the shorter one is served.
#[test]
fn two_long_hosts_of_one_connection() {
    let host = |labels| format!("{}.a", vec!["a".repeat(62); labels].join("."));
    let fields =
        [(0, ":method", "GET"), (0, ":scheme", "https"), (0, ":path", "/"), (0, ":authority", &host(126))];
    let fields = fields.into_iter().chain(fields.map(|(_, name, value)| (1, name, value)));
    let short = host(4);
    let pieces = fields.map(|(request, name, value)| {
        let value = if (request, name) == (1, ":authority") { &short } else { value };
        Piece::Field { request, name: name.as_bytes().to_vec(), value: value.as_bytes().to_vec() }
    });
    let both = Shot { pieces: pieces.collect(), requests: 2, leaves: false };
    let alone =
        Shot::of_fields(&[(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", &short)]);
    for front in [Kind::Nginx, Kind::UnpackedNginx("1.30", Http::Three)] {
        front_counts(front, WEBSITE, &[alone.clone(), both.clone()]);
    }
}
