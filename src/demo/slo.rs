//! The SLO that is demonstrated, and the application and the crawlers that show its effect.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::demo::client::CRAWLER;
use crate::proxy::shipped::haproxy::{Delivery, Version};

#[derive(Clone, Copy, Debug)]
pub(crate) struct DemoSlo {
    pub(super) id: u16,
    pub(super) options: &'static str,
    /// The name and the text of the map that leads to the SLO.
    pub(super) map: (&'static str, &'static str),
    /// How many workers the application has, and how long a request takes. Timers are exact to a millisecond.
    pub(super) application: (usize, Duration),
    /// The number of connections that the crawlers open.
    pub(super) connections: u32,
    /// The number of networks that the crawlers use. If it is 0, all connections have the same address.
    networks: u32,
    pub(super) introduction: &'static str,
    pub(super) last_column: &'static str,
    /// The summary's words for the crawlers, for their share of the requests, and for the limit.
    pub(super) summary: [&'static str; 3],
}

/// Each source is limited to a sixth of the application's capacity. Without a limit, the crawler takes all of it.
pub(crate) const LIMITED: DemoSlo = DemoSlo {
    id: 3001,
    options: "burst=50 rate=50/s",
    map: ("source.map", "0.0.0.0/0 3001\n::/0 3001\n"),
    application: (5, Duration::from_micros(16_667)),
    connections: 20,
    networks: 0,
    introduction: "  a crawler       20 connections that never pause",
    last_column: "crawler's req/s",
    summary: ["the crawler", "it gets", "Limited to 50/s"],
};

/// An application that can answer 160 requests/s is protected by `law=protect`, which needs no rate.
pub(crate) const PROTECTED: DemoSlo = DemoSlo {
    id: 2001,
    options: "law=protect",
    map: ("website.map", "shop.example 2001\n"),
    application: (8, Duration::from_millis(50)),
    connections: 80,
    networks: 5,
    introduction: "  crawlers        80 addresses in 5 networks that never pause",
    last_column: "the application",
    summary: ["the crawlers", "they get", "With law=protect"],
};

impl DemoSlo {
    pub(super) fn capacity_per_s(self) -> f64 {
        let (workers, service) = self.application;
        workers as f64 / service.as_secs_f64()
    }

    /// The address of the crawler with this number.
    pub(super) fn crawler(self, number: u32) -> Ipv4Addr {
        match self.networks {
            0 => CRAWLER,
            networks => Ipv4Addr::new(127, 66, (number % networks) as u8, (1 + number / networks) as u8),
        }
    }

    /// The best delivery for a version of HAProxy. With `law=protect`, a request's turn may still change, so slowlane
    /// must hold the request.
    pub(super) fn delivery(self, version: Version) -> Delivery {
        if self.networks == 0 { Delivery::of(version) } else { Delivery::Hold }
    }
}
