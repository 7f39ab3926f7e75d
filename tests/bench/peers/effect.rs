//! From the first request of a key to its limit in HAProxy.

use std::net::Ipv4Addr;
use std::time::Instant;

use crate::site::{Pupil, Pusher, SLO};
use crate::support::effort::Effort;
use crate::support::programs::backend::Backend;
use crate::support::programs::haproxy::Version;
use crate::support::programs::skipped;
use crate::support::{peers, percentile};

/// The number of new keys, one after the other.
const KEYS: u32 = 500;

/// The first of them: 10.0.0.1.
const FIRST: u32 = 0x0a00_0001;

pub fn print(effort: Effort) {
    println!("from the first request of a key to its limit in HAProxy's table (mark: p50 at most 1 ms)");
    println!("HAProxy   keys        p50        p99       most   one look");
    for version in [Version::V3_2, Version::V2_6] {
        let (pusher, app) = (Pusher::start(SLO, "10.0.0.0/8 3001\n"), Backend::forgetful());
        let Some(haproxy) = Pupil::new(version, "lb1").start(&pusher, &app) else {
            skipped(&format!("HAProxy {version:?} cannot be had on this machine"));
            continue;
        };
        let mut client = haproxy.client();
        let (mut took_ms, mut looks) = (Vec::new(), 0_u32);
        for number in 0..effort.count(KEYS) {
            let source = Ipv4Addr::from_bits(FIRST + number).to_string();
            let asked = Instant::now();
            client.send("GET", "/", &[("X-From", &source)], "").expect("it is sent");
            loop {
                looks += 1;
                if peers::slot_us(&haproxy, &source).is_some() {
                    break;
                }
                assert!(asked.elapsed().as_secs() < 10, "{source} is not taught");
            }
            took_ms.push(asked.elapsed().as_secs_f64() * 1_000.0);
            assert_eq!(client.receive("GET", asked).expect("it is answered").status, 200);
        }
        let look_ms = took_ms.iter().sum::<f64>() / f64::from(looks);
        took_ms.sort_by(f64::total_cmp);
        println!(
            "{:<7} {:>6} {:>7.2} ms {:>7.2} ms {:>7.2} ms {look_ms:>7.2} ms",
            version.number(),
            took_ms.len(),
            percentile(&took_ms, 50),
            percentile(&took_ms, 99),
            percentile(&took_ms, 100),
        );
    }
}
