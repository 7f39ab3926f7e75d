//! The SLO that is demonstrated, and the application and the crawlers that show its effect.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::demo::client::CRAWLER;
use crate::proxy::shipped::haproxy::{Delivery, Version};

#[derive(Clone, Copy, Debug)]
pub(crate) struct DemoSlo {
    pub(super) id: u16,
    pub(super) options: &'static str,
    /// The map that names the SLO, and its text.
    pub(super) map: (&'static str, &'static str),
    /// The workers of the application, and their time for a request. Timers are exact to a millisecond.
    pub(super) application: (usize, Duration),
    /// Connections of the crawlers.
    pub(super) connections: u32,
    /// Their networks, if they have addresses of their own.
    networks: u32,
    pub(super) introduction: &'static str,
    pub(super) last_column: &'static str,
    /// The crawlers, what they do, and the limit, in the summary.
    pub(super) summary: [&'static str; 3],
}

/// Each source is limited, to a sixth of what the application can answer. Alone, the crawler takes all of it.
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

/// An application that can answer 160 requests/s is protected, without a rate.
pub(crate) const PROTECTED: DemoSlo = DemoSlo {
    id: 2001,
    options: "law=protect",
    map: ("website.map", "shop.example 2001\n"),
    application: (8, Duration::from_millis(50)),
    connections: 80,
    networks: 5,
    introduction: "  crawlers        80 addresses in 5 networks, that never pause",
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

    /// The best for a version of HAProxy. A turn that may move needs slowlane to hold the request.
    pub(super) fn delivery(self, version: Version) -> Delivery {
        if self.networks == 0 { Delivery::of(version) } else { Delivery::Hold }
    }
}
