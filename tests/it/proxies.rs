//! Several real proxies, each with its own slowlane, that share SLOs through a real Redis.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::Client;
use crate::support::haproxy::showing_verdicts_patiently;
use crate::support::listeners::Listeners;
use crate::support::process::Process;
use crate::support::slowlane::BINARY;
use crate::support::{client, eventually, own_address, project};

/// 50 clients that wait for each answer, spread over two HAProxys and an nginx.
#[test]
fn three_proxies_pace_their_clients_together() {
    const TIME: Duration = Duration::from_secs(10);
    let listeners = Listeners::open("burst=50 rate=50/s", showing_verdicts_patiently);
    let begun = Instant::now();
    let ask = |door: SocketAddr| {
        let (mut client, mut passed) = (Client::connect(door), 0);
        while begun.elapsed() < TIME {
            passed += u32::from(client.request("GET", "/", &[("Host", "shop.example")], "").status == 200);
        }
        passed
    };
    let passed: [u32; 3] = thread::scope(|scope| {
        let clients = listeners.addresses().into_iter().cycle().take(50);
        let clients: Vec<_> = clients.map(|door| scope.spawn(move || ask(door))).collect();
        let mut passed = [0; 3];
        for (number, client) in clients.into_iter().enumerate() {
            passed[number % 3] += client.join().unwrap();
        }
        passed
    });
    // Each alone would let through a burst, and 50 a second. On a busy machine clients may be slower than the rate.
    let (seconds, sum) = (begun.elapsed().as_secs_f64(), f64::from(passed.iter().sum::<u32>()));
    let (least, most) = (TIME.as_secs_f64() * 50.0 / 2.0, 50.0 + seconds * 50.0 * 1.3);
    assert!((least..=most).contains(&sum), "{passed:?}: expected {least} to {most} together");
    assert!(passed.iter().all(|&passed| passed > 0), "{passed:?}: a door is shut");
}

/// The example of the manual, at an address of its own.
struct Example {
    process: Process,
    address: SocketAddr,
}

impl Example {
    fn start(seconds: &str) -> Example {
        let address = own_address();
        let programs = Path::new(BINARY).parent().unwrap().display().to_string();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
        let mut command = Command::new(project("doc/cluster/run"));
        command.env("PATH", path).args(["--seconds", seconds, "--address", &address.ip().to_string()]);
        let mut example = Example { process: Process::start(&mut command), address };
        example.process.logged("Two proxies");
        example
    }

    fn port(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address.ip(), port)
    }

    /// How many of these requests a door lets through.
    fn passed(&self, door: u16, website: &str, requests: usize) -> usize {
        let mut client = Client::connect(self.port(door));
        let mut ask = || client.request("GET", "/", &[("Host", website)], "").status;
        (0..requests).filter(|_| ask() == 200).count()
    }

    /// The sum of a metric of both slowlanes.
    fn metric(&self, series: &str) -> f64 {
        let metrics = [9112, 9122].map(|admin| client::get(self.port(admin), "/metrics", &[]).body);
        let values =
            metrics.iter().flat_map(|text| text.lines().filter_map(|line| line.strip_prefix(series)));
        values.map(|value| value.trim().parse::<f64>().unwrap()).sum()
    }

    /// Whether nothing listens at any port of the example.
    fn is_over(&self) -> bool {
        let ports = [6390, 8100, 8101, 8102, 9110, 9112, 9120, 9122];
        ports.iter().all(|&port| TcpStream::connect(self.port(port)).is_err())
    }
}

/// A killed script would leave its programs behind.
impl Drop for Example {
    fn drop(&mut self) {
        if self.process.is_running() {
            self.process.signal("TERM");
            self.process.wait();
        }
    }
}

/// A quota of 200 a day: what the first door uses up, the second refuses.
#[test]
fn the_example_has_two_doors_and_one_quota() {
    // HAProxy lets requests pass that a busy machine decides late, so the slowlanes are counted, not the answers.
    const PASSED: &str = r#"slowlane_verdicts_total{slo="2003",verdict="pass"}"#;
    let mut example = Example::start("600");
    eventually("the first door has used up the quota", || {
        example.passed(8101, "quota.example", 7);
        // A fiftieth may stay in the store.
        (example.metric(PASSED) >= 196.0).then_some(())
    });
    assert!(example.passed(8102, "quota.example", 50) < 50, "the second door refuses nobody");
    assert!(example.metric(PASSED) <= 200.0, "{}", example.metric(PASSED));
    assert_eq!(example.passed(8102, "other.example", 5), 5);
    example.process.signal("TERM");
    assert!(example.process.wait().success(), "{:?}", example.process.log());
    assert!(example.is_over(), "a program is left behind");
}

#[test]
fn the_example_ends_by_itself() {
    let mut example = Example::start("0");
    assert!(example.process.wait().success(), "{:?}", example.process.log());
    assert!(example.is_over(), "a program is left behind");
}
