//! The incident of the manual: its traffic is played again, and its commands print what the page shows.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::cli::{Ran, ran};
use crate::support::PATIENCE;
use crate::support::client::Client;
use crate::support::pages::Page;
use crate::support::slowlane::Slowlane;

const PAGE: &str = "doc/book/incident.md";

/// Stands on the page for lines that are left out.
const LEFT_OUT: &str = "…";

/// Units of numbers: a slow machine may print 990 ms instead of 1 s.
const UNITS: [&str; 4] = ["us", "ms", "s", "-"];

/// A command of the page, and the lines that it printed there.
struct Shown {
    command: String,
    lines: Vec<String>,
}

/// The commands in blocks that begin with a prompt. Other blocks are logs.
fn shown(page: &Page) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    for block in page.blocks("text").iter().filter(|block| block.text.starts_with("$ ")) {
        for line in block.text.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => shown.push(Shown { command: command.to_owned(), lines: Vec::new() }),
                None => shown.last_mut().unwrap().lines.push(line.to_owned()),
            }
        }
    }
    shown
}

/// The words of a line, without digits, times, keys and padding.
fn words(line: &str) -> Vec<String> {
    let is_key = |word: &str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let words = line.split_whitespace();
    let words = words.filter(|word| !is_key(word) && !is_number(word) && !UNITS.contains(word));
    words.map(|word| word.replace(|c: char| c.is_ascii_digit() || c == '.', "")).collect()
}

/// Whether these lines were printed, in their order, and no others unless the page leaves some out.
fn is_printed(lines: &[String], printed: &str) -> bool {
    let mut printed = printed.lines().map(words);
    if !lines.iter().any(|line| line == LEFT_OUT) {
        return printed.eq(lines.iter().map(|line| words(line)));
    }
    let mut kept = lines.iter().filter(|line| *line != LEFT_OUT).map(|line| words(line));
    kept.all(|wanted| printed.any(|line| line == wanted))
}

/// A crawler from many addresses of one network, and eight customers of another, until the daemon ends.
fn play(http: SocketAddr) {
    thread::spawn(move || {
        let mut client = Client::connect(http);
        for number in 0_u64.. {
            let source = match number % 40 {
                0 => format!("192.0.2.{}", number / 40 % 8 * 7 + 7),
                _ => format!("203.0.113.{}", number % 60 + 1),
            };
            let fields = [("X-Slowlane-Source", source.as_str()), ("X-Slowlane-Website", "shop.example")];
            if client.try_request("GET", "/check?hold=off", &fields, "").is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    });
}

/// The output of a command, as if the daemon were installed.
fn output(slowlane: &Slowlane, command: &str) -> String {
    let (folder, admin) = (slowlane.folder().display().to_string(), slowlane.admin.to_string());
    let (config, policy) = (format!("{folder}/slowlane.toml"), format!("{folder}/policy"));
    let mut args: Vec<&str> = command.split(' ').collect();
    match args[0] {
        "check" => args.extend(["--config", &config, "--policy", &policy]),
        _ => args.extend(["--admin", &admin]),
    }
    let Ran { code, out, problems } = ran(&args);
    assert_eq!((code, problems.as_slice()), (0, &[][..]), "{command}");
    out.replace(&folder, "/etc/slowlane")
}

#[test]
fn the_incident_of_the_manual_is_what_really_happens() {
    let page = Page::read(PAGE);
    let text = |label: &str| page.blocks(label).remove(0).text;
    let (slos, websites) = (format!("0 rate=unlimited\n{}", text("slo.map")), text("website.map"));
    let slowlane = Slowlane::with_config(
        &[("slo.map", slos.as_str()), ("website.map", websites.as_str())],
        &text("toml"),
    );
    play(slowlane.http);
    let mut typed = 0;
    for Shown { command, lines } in shown(&page) {
        let edit = command.strip_prefix("echo '");
        if let Some((line, map)) = edit.and_then(|edit| edit.split_once("' >>/etc/slowlane/policy/")) {
            let path = slowlane.policy().join(map);
            let mut map = OpenOptions::new().append(true).create(true).open(path).unwrap();
            writeln!(map, "{line}").unwrap();
        }
        let Some(command) = command.strip_prefix("slowlane ") else { continue };
        // A change is made once. Else the state that the page shows may need some time.
        let until = if command.starts_with("block") { Instant::now() } else { Instant::now() + PATIENCE };
        loop {
            let printed = output(&slowlane, command);
            if is_printed(&lines, &printed) {
                break;
            }
            assert!(
                Instant::now() < until,
                "{command}: the page has\n{}\nbut not\n{printed}",
                lines.join("\n")
            );
            thread::sleep(Duration::from_millis(20));
        }
        typed += 1;
    }
    assert!(typed >= 8, "{typed} commands");
}
