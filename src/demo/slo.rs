//! The SLO that is demonstrated, and the application and the crawlers that show its effect.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::ensure;

use crate::demo::client::CRAWLER;
use crate::proxy::shipped::haproxy::{Delivery, Version};
use slowlane_core::base::Rate;

#[derive(Clone, Copy, Debug)]
pub(crate) enum DemoSlo {
    /// Each source is limited.
    Rate(Rate),
    /// The application is protected, without a rate.
    Protect,
}

/// The rate of the application, as a multiple of the SLO's rate. Alone, the crawler takes all of it.
const CAPACITY: f64 = 6.0;

/// The rough time of a request. Timers are exact to a millisecond.
const SERVICE: Duration = Duration::from_millis(15);

/// The application that is protected: 160 requests/s.
const PROTECTED: (usize, Duration) = (8, Duration::from_millis(50));

/// The networks of the crawlers under `protect`.
const NETWORKS: u32 = 5;

/// Lower rates show too little in a second; higher rates are too much for a small machine.
const RATES: std::ops::RangeInclusive<f64> = 5.0..=500.0;

/// Longer delays exceed the timeouts of the shipped files, which are made for a `max_delay` of 5 s.
const DELAY_MAX_S: f64 = 4.0;

impl DemoSlo {
    /// # Errors
    /// With so many connections of crawlers, there is no effect to see.
    pub(super) fn check(self, clients: u32) -> anyhow::Result<()> {
        let DemoSlo::Rate(rate) = self else { return Ok(()) };
        let per_s = rate.per_second();
        ensure!(
            RATES.contains(&per_s),
            "--rate {rate}: expected {}/s to {}/s, or there is little to see",
            RATES.start(),
            RATES.end()
        );
        ensure!(
            f64::from(clients) <= DELAY_MAX_S * per_s,
            "--clients {clients} --rate {rate}: each would wait for {:.0} s: expected fewer clients or a higher rate, so that it is at most {DELAY_MAX_S} s",
            f64::from(clients) / per_s,
        );
        Ok(())
    }

    /// The workers of the application, and their time for a request.
    pub(super) fn application(self) -> (usize, Duration) {
        match self {
            DemoSlo::Rate(rate) => {
                let per_s = rate.per_second() * CAPACITY;
                let workers = (per_s * SERVICE.as_secs_f64()).round().max(1.0);
                (workers as usize, Duration::from_secs_f64(workers / per_s))
            }
            DemoSlo::Protect => PROTECTED,
        }
    }

    pub(super) fn capacity_per_s(self) -> f64 {
        let (workers, service) = self.application();
        workers as f64 / service.as_secs_f64()
    }

    /// The map that names the SLO, and its text.
    pub(super) fn map(self) -> (&'static str, &'static str) {
        match self {
            DemoSlo::Rate(_) => ("source.map", "0.0.0.0/0 3001\n::/0 3001\n"),
            DemoSlo::Protect => ("website.map", "shop.example 2001\n"),
        }
    }

    /// The line of `slo.map` with these options.
    pub(super) fn line(self, options: &str) -> String {
        let id = if matches!(self, DemoSlo::Rate(_)) { 3001 } else { 2001 };
        format!("{id} {options}")
    }

    /// A burst of one second of requests, or nothing but the law.
    pub(super) fn options(self) -> String {
        match self {
            DemoSlo::Rate(rate) => format!("burst={} rate={rate}", rate.per_second().ceil()),
            DemoSlo::Protect => "law=protect".into(),
        }
    }

    /// The address of the crawler with this number.
    pub(super) fn crawler(self, number: u32) -> Ipv4Addr {
        match self {
            DemoSlo::Rate(_) => CRAWLER,
            DemoSlo::Protect => {
                Ipv4Addr::new(127, 66, (number % NETWORKS) as u8, (1 + number / NETWORKS % 250) as u8)
            }
        }
    }

    /// The best for a version of HAProxy. A turn that may move needs slowlane to hold the request.
    pub(super) fn delivery(self, version: Version) -> Delivery {
        match self {
            DemoSlo::Rate(_) => Delivery::of(version),
            DemoSlo::Protect => Delivery::Hold,
        }
    }

    /// The crawlers, for people.
    pub(super) fn crawlers(self, connections: u32) -> String {
        match self {
            DemoSlo::Rate(_) => format!("  a crawler       {connections} connections that never pause"),
            DemoSlo::Protect => {
                format!("  crawlers        {connections} addresses in {NETWORKS} networks, that never pause")
            }
        }
    }

    /// The last column of the table.
    pub(super) fn last_column(self) -> &'static str {
        match self {
            DemoSlo::Rate(_) => "crawler's req/s",
            DemoSlo::Protect => "the application",
        }
    }
}
