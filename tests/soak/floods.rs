//! Floods of keys that come once, straight to the agent: over one connection of SPOP, and over many of HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::policy::FLOODED_WEBSITE;
use crate::support::client::Client;
use crate::support::spop::{Heard, Line, hello, request};
use crate::{End, Shared, pause};

/// 2000 keys a second at most: the machine is there for the others, too.
const BATCH: u32 = 20;
const SPOP_PAUSE: Duration = Duration::from_millis(10);

const HTTP_PAUSE: Duration = Duration::from_millis(20);

/// The networks of the floods, in turn: `sliding-log`, `pace`, and no network, but the website of `fair`.
const NETWORKS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 64, 0, 0), Ipv4Addr::new(100, 128, 0, 0), Ipv4Addr::new(172, 16, 0, 0)];

/// The source of a question: another one each time, for days.
fn source(number: u32) -> Ipv4Addr {
    let network = NETWORKS[(number % 3) as usize];
    Ipv4Addr::from_bits(network.to_bits() + number / 3 % (1 << 20))
}

pub fn over_spop(agent: SocketAddr, records: &Shared, end: &End) {
    let mut number = 0;
    while !end.has_come() {
        let ended = flood(agent, &mut number, records, end);
        if let Err(error) = ended
            && !records.gaps.is_open()
        {
            records.fault("the flood's connection is lost", error.to_string());
        }
        pause(SPOP_PAUSE, end);
    }
}

/// Floods over one connection, until the agent dies.
fn flood(agent: SocketAddr, number: &mut u32, records: &Shared, end: &End) -> std::io::Result<()> {
    let closed = || std::io::Error::other("closed by the agent");
    let mut line = Line::try_silent(agent)?;
    line.try_say(&hello())?;
    if line.hear() != Heard::Hello {
        return Err(closed());
    }
    while !end.has_come() {
        let numbers = *number..*number + BATCH;
        let ask = |number| request(u64::from(number), &source(number).to_string(), FLOODED_WEBSITE);
        let batch: Vec<u8> = numbers.flat_map(ask).collect();
        line.try_say(&batch)?;
        for _ in 0..BATCH {
            match line.hear() {
                heard @ Heard::Ack { .. } if heard.variable("verdict").is_some() => {}
                Heard::Closed => return Err(closed()),
                heard => records.fault("the flood got no verdict", format!("{heard:?}")),
            }
        }
        records.add("keys of the flood over SPOP", BATCH.into());
        *number += BATCH;
        pause(SPOP_PAUSE, end);
    }
    Ok(())
}

pub fn over_http(agent: SocketAddr, records: &Shared, end: &End) {
    for number in 0.. {
        if end.has_come() {
            return;
        }
        let source = source(number).to_string();
        let fields = [("X-Slowlane-Source", source.as_str()), ("X-Slowlane-Website", "other.example")];
        let asked = Client::try_connect(agent)
            .and_then(|mut client| client.try_request("GET", "/check?hold=off", &fields, ""));
        match asked {
            Ok(response) if matches!(response.status, 204 | 403) => {
                records.count("connections of the flood over HTTP")
            }
            Ok(response) => records.fault("the flood over HTTP got another answer", format!("{response:?}")),
            Err(_) if records.gaps.is_open() => {}
            Err(error) => records.fault("the flood over HTTP got no answer", error.to_string()),
        }
        pause(HTTP_PAUSE, end);
    }
}
