//! Log lines of real proxies that report the ends of requests, with their bytes and their time.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use slowlane::proxy::end_line;

use crate::cli::ran_in;
use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::Version::{self, V2_6};
use crate::support::haproxy::{
    CONFIG, Delivery, EACH_DELIVERY, Haproxy, VerdictHeaders, each, replace, showing_verdicts_patiently,
};
use crate::support::nginx::Nginx;
use crate::support::printed::{EACH, Printed};
use crate::support::slowlane::{Slowlane, signal};
use crate::support::{PATIENCE, eventually, own_address};

/// Almost nothing is refilled during a test. At `held.example` one second is allowed at once.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n2001 burst=1MB rate=1kB/h unit=bytes reserve=500kB law=token-bucket\n\
         2002 burst=1000s rate=1s/h unit=seconds reserve=500s law=token-bucket\n\
         2003 burst=1s rate=1s/s unit=seconds reserve=1s max_delay=20s\n",
    ),
    ("website.map", "bytes.example 2001\nseconds.example 2002\nheld.example 2003\n"),
];

/// A slowlane that reads log lines at this address.
fn slowlane(ends: SocketAddr, more: &str) -> Slowlane {
    let config = format!("[policy]\nkey_secret_file = \"secret\"\n[ends]\nlisten = [\"{ends}\"]\n{more}");
    Slowlane::with_config(POLICY, &config)
}

fn ends(slowlane: &Slowlane, result: &str) -> f64 {
    slowlane.metric("slowlane_ends_total", &format!("result=\"{result}\""))
}

/// Waits until so many ends have been counted.
fn counted(slowlane: &Slowlane, number: f64) {
    eventually(&format!("{number} ends"), || (ends(slowlane, "counted") == number).then_some(()));
}

fn ticket(slowlane: &Slowlane, website: &str) -> (String, u64) {
    let answer = slowlane.check("", &[("X-Slowlane-Website", website)]);
    let header = |name| answer.header(name).unwrap().to_owned();
    (header("x-slowlane-ticket"), header("x-slowlane-remaining").parse().unwrap())
}

/// What a website has left of its burst, in whole units, if no request is open: a check sees it, and gives it back.
fn left(slowlane: &Slowlane, website: &str) -> u64 {
    let (ticket, remaining) = ticket(slowlane, website);
    let headers = [("X-Slowlane-Ticket", ticket.as_str()), ("X-Slowlane-Cost", "0")];
    assert_eq!(Client::connect(slowlane.http).request("POST", "/done", &headers, "").status, 204);
    remaining + if website == "bytes.example" { 500_000 } else { 500 }
}

/// HAProxy with its reports enabled, as the comment in its file describes. A copy of each line goes to `copy`.
fn reporting(ends: SocketAddr, copy: SocketAddr) -> impl Fn(&str, String) -> String {
    move |name, text| {
        let text = showing_verdicts_patiently(name, text);
        if name != CONFIG {
            return text;
        }
        let log = |to: SocketAddr| format!("    log {to} format rfc5424 local0\n");
        let text =
            replace(&text, "    # log 127.0.0.1:9004 format rfc5424 local0\n", &(log(ends) + &log(copy)));
        let text = replace(&text, "# log-format-sd ", "log-format-sd ");
        let text = ["http-response", "http-after-response"].into_iter().fold(text, |text, rules| {
            let line = format!("{rules} set-var(txn.slowlane_late)");
            replace(&text, &format!("# {line}"), &line)
        });
        let teapot = "    http-request return status 418 if { path /teapot }\n    default_backend";
        replace(&text, "    default_backend", teapot)
    }
}

#[test]
fn haproxy_reports_each_end_with_its_bytes_and_seconds() {
    each(EACH_DELIVERY, |version, delivery| {
        let (app, at) = (Backend::start(), own_address());
        let copies = UdpSocket::bind(own_address()).unwrap();
        let slowlane = slowlane(at, "");
        let edit = reporting(at, copies.local_addr().unwrap());
        let mut haproxy =
            Haproxy::with(version, delivery, &slowlane.spop.to_string(), app.address, edit).unwrap();
        haproxy.wait_for_agent("UP");
        let get = |website, path| haproxy.client().request("GET", path, &[("Host", website)], "").status;

        // A full response: three bytes and some headers.
        assert_eq!(get("bytes.example", "/"), 200);
        counted(&slowlane, 1.0);
        let full = 1_000_000 - left(&slowlane, "bytes.example");
        assert!((3..1_000).contains(&full), "{full}");
        app.gate.takes(Duration::from_millis(1_100));
        assert_eq!(get("seconds.example", "/"), 200);
        app.gate.takes(Duration::ZERO);
        counted(&slowlane, 3.0);
        let busy = 1_000 - left(&slowlane, "seconds.example");
        assert!((2..500).contains(&busy), "1.1 s, rounded up: {busy}");

        // The client leaves while the application is busy.
        app.gate.close();
        let mut leaving = haproxy.client();
        leaving.send("GET", "/", &[("Host", "bytes.example")], "").unwrap();
        eventually("it is inside", || (app.gate.inside() == 1).then_some(()));
        drop(leaving);
        app.gate.open();
        counted(&slowlane, 5.0);
        let aborted = 1_000_000 - left(&slowlane, "bytes.example") - full;
        assert!(aborted < 1_000, "{aborted}");

        // A response of HAProxy itself has no time of the application. 3.4 logs no bytes for it, either.
        let before = left(&slowlane, "seconds.example");
        assert_eq!([get("bytes.example", "/teapot"), get("seconds.example", "/teapot")], [418; 2]);
        counted(&slowlane, 9.0);
        assert_eq!(left(&slowlane, "seconds.example"), before);
        let own = 1_000_000 - left(&slowlane, "bytes.example") - full - aborted;
        assert!(if version == Version::V3_4 { own == 0 } else { (1..1_000).contains(&own) }, "{own}");

        // Requests without a ticket are logged, too.
        assert_eq!(get("free.example", "/"), 200);
        eventually("all lines are read", || {
            (slowlane.metric("slowlane_end_lines_total", "") == 6.0).then_some(())
        });
        assert_eq!(
            (ends(&slowlane, "late"), ends(&slowlane, "refused"), ends(&slowlane, "unmeasured")),
            (0.0, 0.0, 0.0)
        );
    });
}

#[test]
fn a_printed_configuration_reports_ends() {
    for each in EACH {
        let (app, at) = (Backend::start(), own_address());
        let slowlane = slowlane(at, "");
        let Some(haproxy) = Printed::haproxy(each, &slowlane, &app, &["--ends", &at.to_string()]) else {
            continue;
        };
        // Requests have no ticket until HAProxy has found the agent.
        eventually(&format!("{each:?} reports an end"), || {
            haproxy.client().request("GET", "/", &[("Host", "bytes.example")], "");
            (ends(&slowlane, "counted") > 0.0).then_some(())
        });
    }
}

/// The first of three requests is in work, so the second is held at its request, and the third, an upload, at its response.
#[test]
fn a_hold_is_no_time_of_the_application() {
    each(EACH_DELIVERY, |version, delivery| {
        let (app, at) = (Backend::start(), own_address());
        let copies = UdpSocket::bind(own_address()).unwrap();
        copies.set_read_timeout(Some(PATIENCE)).unwrap();
        let slowlane = slowlane(at, "");
        let edit = reporting(at, copies.local_addr().unwrap());
        let mut haproxy =
            Haproxy::with(version, delivery, &slowlane.spop.to_string(), app.address, edit).unwrap();
        haproxy.wait_for_agent("UP");
        app.gate.close();
        let ask = |method, path, body: &str| {
            let mut client = haproxy.client();
            client.send(method, path, &[("Host", "held.example")], body).unwrap();
            client
        };
        let mut asked = Vec::new();
        for (number, (method, path, body)) in
            [("GET", "/first", ""), ("POST", "/upload", "x"), ("GET", "/held", "")].into_iter().enumerate()
        {
            asked.push((method, path, ask(method, path, body)));
            eventually("it is inside", || (app.gate.inside() == number + 1).then_some(()));
        }
        app.gate.open();
        // The ends come in any order.
        let lines: Vec<_> = asked.iter().map(|_| next_line(&copies)).collect();
        for (method, path, mut client) in asked {
            let response = client.receive(method, Instant::now()).unwrap();
            let delay_ms = VerdictHeaders::by(&response).delay.as_millis() as u64;
            assert_eq!(path != "/first", delay_ms > 0, "{path}");
            let is_its = |line: &&Vec<u8>| String::from_utf8_lossy(line).contains(&format!(" {path} "));
            let line = lines.iter().find(is_its).unwrap();
            let (ticket, ending) = end_line::read(line).unwrap();
            assert_eq!(Some(ticket), VerdictHeaders::by(&response).ticket.as_deref());
            let [active, request, queue, connection, late] = timers(line);
            match path {
                "/upload" => assert!(late + 1 >= delay_ms, "{late} < {delay_ms}"),
                _ => assert_eq!(late, 0),
            }
            assert!(request + 1 >= if path == "/held" { delay_ms } else { 0 }, "{path}");
            let seconds = ending.unwrap().seconds.unwrap().micros();
            assert_eq!(seconds, active.saturating_sub(request + queue + connection + late) * 1_000, "{path}");
        }
        counted(&slowlane, 3.0);
    });
}

/// A delay that nothing has held is subtracted from nothing.
#[test]
fn an_upload_that_is_not_held_pays_for_all_its_time() {
    let (app, at) = (Backend::start(), own_address());
    let copies = UdpSocket::bind(own_address()).unwrap();
    copies.set_read_timeout(Some(PATIENCE)).unwrap();
    let slowlane = slowlane(at, "[hold]\nmax = 0\n");
    let edit = reporting(at, copies.local_addr().unwrap());
    let mut haproxy =
        Haproxy::with(V2_6, Delivery::Hold, &slowlane.spop.to_string(), app.address, edit).unwrap();
    haproxy.wait_for_agent("UP");
    app.gate.close();
    let mut first = haproxy.client();
    first.send("GET", "/", &[("Host", "held.example")], "").unwrap();
    eventually("it is inside", || (app.gate.inside() == 1).then_some(()));
    let mut upload = haproxy.client();
    upload.send("POST", "/upload", &[("Host", "held.example")], "x").unwrap();
    eventually("it is inside", || (app.gate.inside() == 2).then_some(()));
    app.gate.open();
    let response = upload.receive("POST", Instant::now()).unwrap();
    let delay_ms = VerdictHeaders::by(&response).delay.as_millis() as u64;
    let lines = [(); 2].map(|()| next_line(&copies));
    let is_its = |line: &&Vec<u8>| String::from_utf8_lossy(line).contains(" /upload ");
    let [.., late] = timers(lines.iter().find(is_its).unwrap());
    assert!(late < delay_ms, "{late} >= {delay_ms}");
}

fn next_line(copies: &UdpSocket) -> Vec<u8> {
    let mut line = vec![0; 4_096];
    let bytes = copies.recv(&mut line).unwrap();
    line.truncate(bytes);
    line
}

fn timers(line: &[u8]) -> [u64; 5] {
    let text = std::str::from_utf8(line).unwrap();
    let (_, timers) = text.split_once(" ms=").unwrap();
    let timers = timers.split(' ').next().unwrap().split('-').map(|timer| timer.parse().unwrap());
    timers.collect::<Vec<u64>>().try_into().unwrap()
}

/// nginx as it is shipped, with reports over HTTP, and two locations without an application.
fn reporting_over_http(name: &str, text: String) -> String {
    match name {
        "nginx.conf" => {
            let text = replace(&text, "# post_action", "post_action");
            let own = [("/dead", "proxy_pass http://127.0.0.1:1;"), ("/pixel", "empty_gif;")].map(
                |(path, answer)| format!("location = {path} {{ {answer} post_action /slowlane-done; }}\n"),
            );
            replace(&text, "location / {", &format!("{}location / {{", own.concat()))
        }
        _ => text,
    }
}

/// nginx as it is shipped, with reports over UDP instead, as the manual describes.
fn reporting_over_udp(ends: SocketAddr) -> impl Fn(&str, String) -> String {
    move |name, text| match name {
        "nginx.conf" => {
            let format = "log_format slowlane_end 'ticket=$slowlane_ticket bytes=$bytes_sent seconds=\"$upstream_response_time\"';\n    server {";
            let text = replace(&text, "server {\n        listen", &format!("{format}\n        listen"));
            let log =
                format!("access_log syslog:server={ends},nohostname slowlane_end if=$slowlane_ticket;\n");
            let own =
                "location = /dead { proxy_pass http://127.0.0.1:1; }\nlocation = /pixel { empty_gif; }\n";
            replace(&text, "        location / {", &format!("        {log}{own}        location / {{"))
        }
        _ => text,
    }
}

/// A full response, one whose client leaves, two of nginx itself.
fn three_ends_of_nginx(slowlane: &Slowlane, app: &Backend, nginx: &Nginx) {
    let get = |website, path| nginx.client().request("GET", path, &[("Host", website)], "").status;
    assert_eq!(get("bytes.example", "/"), 200);
    counted(slowlane, 1.0);
    let full = 1_000_000 - left(slowlane, "bytes.example");
    assert!((3..1_000).contains(&full), "{full}");
    app.gate.takes(Duration::from_millis(1_100));
    assert_eq!(get("seconds.example", "/"), 200);
    app.gate.takes(Duration::ZERO);
    counted(slowlane, 3.0);
    let busy = 1_000 - left(slowlane, "seconds.example");
    assert!((2..500).contains(&busy), "1.1 s, rounded up: {busy}");

    app.gate.close();
    let mut leaving = nginx.client();
    leaving.send("GET", "/", &[("Host", "bytes.example")], "").unwrap();
    eventually("it is inside", || (app.gate.inside() == 1).then_some(()));
    drop(leaving);
    counted(slowlane, 5.0);
    assert_eq!(left(slowlane, "bytes.example"), 1_000_000 - full, "nothing was sent to that client");
    app.gate.open();

    let before = left(slowlane, "seconds.example");
    for (path, status, count) in [("/dead", 502, 8.0), ("/pixel", 200, 10.0)] {
        assert_eq!(get("seconds.example", path), status);
        counted(slowlane, count);
        assert_eq!(left(slowlane, "seconds.example"), before, "{path}");
    }
}

#[test]
fn nginx_reports_each_end_with_its_bytes_and_seconds() {
    let (app, at) = (Backend::start(), own_address());
    let over_http = slowlane(at, "");
    let nginx = Nginx::with_files(&over_http.http.to_string(), app.address, reporting_over_http);
    three_ends_of_nginx(&over_http, &app, &nginx);
    assert_eq!(over_http.metric("slowlane_end_lines_total", ""), 0.0);

    let at = own_address();
    let over_udp = slowlane(at, "");
    let nginx = Nginx::with_files(&over_udp.http.to_string(), app.address, reporting_over_udp(at));
    three_ends_of_nginx(&over_udp, &app, &nginx);
    assert_eq!(over_udp.metric("slowlane_end_lines_total", ""), 5.0);
}

/// nginx whose usual lines have the ticket before them, and at `/plain` have none.
fn with_tickets_first(log: &Path) -> impl Fn(&str, String) -> String {
    move |name, text| match name {
        "nginx.conf" => {
            let combined = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";
            let format = format!(
                "log_format ends 'ticket=$slowlane_ticket seconds=\"$upstream_response_time\" {combined}';\n    server {{"
            );
            let text = replace(&text, "server {\n        listen", &format!("{format}\n        listen"));
            let log = log.display();
            let plain = format!("location = /plain {{ access_log {log} combined; return 204; }}\n");
            replace(
                &text,
                "        location / {",
                &format!("        access_log {log} ends;\n        {plain}        location / {{"),
            )
        }
        _ => text,
    }
}

/// A client writes the ticket of another's request wherever it can.
#[test]
fn the_usual_log_of_nginx_has_the_ends_and_no_client_ends_another() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let config = format!("[policy]\nkey_secret_file = \"secret\"\n[ends]\nfollow = [{log:?}]\n");
    let (app, slowlane) = (Backend::start(), Slowlane::with_config(POLICY, &config));
    let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, with_tickets_first(&log));
    let (open, _) = ticket(&slowlane, "seconds.example");
    let forged = format!("\" ticket={open} seconds=0 \"ticket={open}");
    let headers =
        [("Host", "seconds.example"), ("User-Agent", forged.as_str()), ("Referer", forged.as_str())];
    let get =
        |path: &str| nginx.client().request("GET", &format!("{path}?ticket={open}"), &headers, "").status;
    assert_eq!([get("/"), get("/plain")], [200, 204]);
    counted(&slowlane, 1.0);
    eventually("the plain line is refused", || {
        let refused = slowlane.metric("slowlane_end_lines_dropped_total", "reason=\"unsafe\"");
        (refused == 1.0).then_some(())
    });
    assert_eq!((ends(&slowlane, "late"), ends(&slowlane, "refused")), (0.0, 0.0));
    let done = [("X-Slowlane-Ticket", open.as_str()), ("X-Slowlane-Cost", "0")];
    assert_eq!(Client::connect(slowlane.http).request("POST", "/done", &done, "").status, 204);
    assert_eq!(ends(&slowlane, "counted"), 2.0, "the other's request was open until now");
    let lines: String = fs::read_to_string(&log)
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("ticket="))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(folder.path().join("first.log"), lines).unwrap();
    let advice: Value =
        serde_json::from_str(&ran_in(folder.path(), &["advise", "--json", "first.log"]).out).unwrap();
    assert_eq!(advice["logs"][0]["format"], "nginx or apache combined, below a ticket");
    assert_eq!(advice["requests"], 1);
}

#[test]
fn a_line_that_is_no_report_changes_nothing() {
    let at = own_address();
    let slowlane = slowlane(at, "allow = [\"127.0.0.1/32\"]\n");
    let proxy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |line: &str| assert_eq!(proxy.send_to(line.as_bytes(), at).unwrap(), line.len());
    let lines = |number: f64| {
        eventually("it is read", || {
            (slowlane.metric("slowlane_end_lines_total", "") == number).then_some(())
        });
    };
    let (ticket, _) = ticket(&slowlane, "bytes.example");
    let forged = ticket.replace("2001", "2002");
    for (text, result) in [
        (format!("ticket={ticket} bytes=-1"), "no_amount"),
        (format!("ticket={ticket} bytes=+101 ms=+0-0-0-0"), "no_amount"),
        (format!("ticket={ticket} bytes={}", "9".repeat(8_000)), "no_amount"),
        (format!("ticket={ticket} bytes=1099511627777"), "no_amount"),
        (format!("ticket={ticket}"), "unmeasured"),
        (format!("ticket={ticket} seconds=1"), "unmeasured"),
        (format!("ticket={ticket} \"GET /?x bytes=0\""), "unmeasured"),
        (format!("ticket=1 ticket={ticket} bytes=0"), "refused"),
        (format!("ticket={forged} bytes=0"), "refused"),
    ] {
        let before = ends(&slowlane, result);
        send(&text);
        eventually("it is counted", || (ends(&slowlane, result) == before + 1.0).then_some(()));
    }
    lines(9.0);
    for text in ["", "-", "ticket=", "ticket=- bytes=0", "bytes=0", "\0\u{ff}\n"] {
        send(text);
    }
    lines(15.0);
    let dropped =
        |reason| slowlane.metric("slowlane_end_lines_dropped_total", &format!("reason=\"{reason}\""));
    send(&format!("ticket={ticket} bytes=0 {}", "x".repeat(9_000)));
    eventually("it is too long", || (dropped("too_long") == 1.0).then_some(()));
    let stranger = UdpSocket::bind(("127.0.0.2", 0)).unwrap();
    stranger.send_to(format!("ticket={ticket} bytes=0").as_bytes(), at).unwrap();
    eventually("it is not allowed", || (dropped("not_allowed") == 1.0).then_some(()));
    assert_eq!((ends(&slowlane, "counted"), ends(&slowlane, "late")), (0.0, 0.0));

    send(&format!(
        "<134>1 - - haproxy 7 - ticket={ticket} ms=5-0-0-0-0 bytes=70000 GET /?ticket={ticket} bytes=0\n"
    ));
    counted(&slowlane, 1.0);
    send(&format!("ticket={ticket} bytes=0"));
    eventually("it is late", || (ends(&slowlane, "late") == 1.0).then_some(()));
    assert_eq!(left(&slowlane, "bytes.example"), 930_000);
}

#[test]
fn lines_that_wait_are_read_after_an_upgrade() {
    let at = own_address();
    let mut slowlane = slowlane(at, "");
    let proxy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tickets: Vec<String> = (0..2).map(|_| ticket(&slowlane, "seconds.example").0).collect();
    let sending = |ticket: &str| {
        proxy.send_to(format!("ticket={ticket} seconds=1").as_bytes(), at).unwrap();
    };
    sending(&tickets[0]);
    counted(&slowlane, 1.0);
    slowlane.upgrade();
    sending(&tickets[1]);
    counted(&slowlane, 1.0);
    assert_eq!(left(&slowlane, "seconds.example"), 998);
}

/// A log that is renamed, copied and emptied, not there, and one that is older than slowlane.
#[test]
fn a_followed_log_may_rotate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    fs::write(&path, "{\"ticket\":\"old\"}\n").unwrap();
    let config = format!("[policy]\nkey_secret_file = \"secret\"\n[ends]\nfollow = [{path:?}]\n");
    let policy = "0 burst=100s rate=1s/h unit=seconds reserve=2s law=token-bucket\n";
    let mut slowlane = Slowlane::with_config(&[("slo.map", policy)], &config);
    let append = |text: &str| {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    let line = |slowlane: &Slowlane| {
        let (ticket, _) = ticket(slowlane, "any.example");
        format!("{{\"request_X-Slowlane-Ticket\":\"{ticket}\",\"OriginDuration\":1000000000}}\n")
    };
    append(&line(&slowlane));
    counted(&slowlane, 1.0);
    // A line in two pieces.
    let text = line(&slowlane);
    append(&text[..20]);
    thread::sleep(Duration::from_millis(200));
    append(&text[20..]);
    counted(&slowlane, 2.0);
    // The last line before a rename, and the first after it.
    append(&line(&slowlane));
    fs::rename(&path, path.with_extension("1")).unwrap();
    append(&line(&slowlane));
    counted(&slowlane, 4.0);
    // The writer still has the renamed file.
    fs::rename(&path, path.with_extension("2")).unwrap();
    thread::sleep(Duration::from_millis(200));
    fs::OpenOptions::new()
        .append(true)
        .open(path.with_extension("2"))
        .and_then(|mut file| file.write_all(line(&slowlane).as_bytes()))
        .unwrap();
    counted(&slowlane, 5.0);
    append(&line(&slowlane));
    counted(&slowlane, 6.0);
    // Copied and emptied.
    fs::OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    thread::sleep(Duration::from_millis(200));
    append(&line(&slowlane));
    counted(&slowlane, 7.0);
    assert_eq!((ends(&slowlane, "refused"), ends(&slowlane, "late")), (0.0, 0.0), "old lines are not read");
    assert_eq!(ticket(&slowlane, "any.example").1, 91, "seven seconds, and what is reserved");

    slowlane.kill();
    fs::remove_file(&path).unwrap();
    slowlane.restart();
    append(&line(&slowlane));
    counted(&slowlane, 1.0);
    let before = line(&slowlane);
    slowlane.upgrade();
    append(&before);
    append(&line(&slowlane));
    counted(&slowlane, 2.0);
}

/// A stopped process cannot read. Its socket keeps what fits into the buffer, and the kernel counts the rest.
#[test]
fn lines_that_are_lost_are_counted() {
    const LINES: u32 = 40_000;
    let at = own_address();
    let slowlane = slowlane(at, "");
    let proxy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let process = slowlane.serving_process();
    signal(process, "STOP");
    for _ in 0..LINES {
        proxy.send_to(b"ticket=- ms=0-0--1--1-0 bytes=120", at).unwrap();
    }
    signal(process, "CONT");
    let lost = || slowlane.metric("slowlane_end_lines_dropped_total", "reason=\"lost\"");
    eventually("all are accounted for", || {
        (slowlane.metric("slowlane_end_lines_total", "") + lost() == f64::from(LINES)).then_some(())
    });
    assert!(lost() > 0.0);
}

/// Three requests are in the application while HAProxy, slowlane, or the application dies.
#[test]
fn no_reservation_outlives_its_lease_whoever_dies() {
    let (app, at) = (Backend::start(), own_address());
    let brief = "0 burst=10MB rate=1MB/s unit=bytes reserve=1MB lease=1s\n";
    let config = format!(
        "[policy]\nkey_secret_file = \"secret\"\n[ends]\nlisten = [\"{at}\"]\n[state]\nfile = \"state\"\nevery = \"1s\"\n"
    );
    let mut slowlane = Slowlane::with_config(&[("slo.map", brief)], &config);
    let open = |slowlane: &Slowlane| slowlane.metric("slowlane_reservations_open", "");
    let start = |slowlane: &Slowlane, app: SocketAddr| {
        let edit = reporting(at, own_address());
        let mut haproxy = Haproxy::with(V2_6, Delivery::Hold, &slowlane.spop.to_string(), app, edit).unwrap();
        haproxy.wait_for_agent("UP");
        haproxy
    };
    let inside = |haproxy: &Haproxy| {
        app.gate.close();
        let clients: Vec<Client> = (0..3)
            .map(|_| {
                let mut client = haproxy.client();
                client.send("GET", "/", &[("Host", "any.example")], "").unwrap();
                client
            })
            .collect();
        eventually("three are inside", || (app.gate.inside() == 3).then_some(()));
        clients
    };
    let settles = |slowlane: &Slowlane| eventually("none is open", || (open(slowlane) == 0.0).then_some(()));

    let haproxy = start(&slowlane, app.address);
    let clients = inside(&haproxy);
    drop((haproxy, clients));
    settles(&slowlane);
    assert_eq!(ends(&slowlane, "counted"), 0.0, "nobody has reported an end");
    app.gate.open();
    eventually("the application is idle", || (app.gate.inside() == 0).then_some(()));

    let haproxy = start(&slowlane, app.address);
    let clients = inside(&haproxy);
    slowlane.kill();
    slowlane.restart();
    settles(&slowlane);
    app.gate.open();
    eventually("three reports are late", || (ends(&slowlane, "late") == 3.0).then_some(()));
    assert_eq!((ends(&slowlane, "counted"), open(&slowlane)), (0.0, 0.0));
    drop((haproxy, clients));

    // The kernel closes the connections of a program that is killed.
    let dying = TcpListener::bind(own_address()).unwrap();
    let haproxy = start(&slowlane, dying.local_addr().unwrap());
    let mut client = haproxy.client();
    client.send("GET", "/", &[("Host", "any.example")], "").unwrap();
    drop(dying.accept().unwrap());
    eventually("its end is reported", || (ends(&slowlane, "counted") == 1.0).then_some(()));
    settles(&slowlane);
}
