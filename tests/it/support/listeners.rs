//! Two HAProxys and an nginx, each with its own slowlane. The slowlanes share SLOs through one store.

use std::net::SocketAddr;

use super::backend::Backend;
use super::eventually;
use super::haproxy::{Delivery, Haproxy, Version};
use super::nginx::Nginx;
use super::redis::Redis;
use super::slowlane::Slowlane;

/// Three ways into one application.
pub struct Listeners<S> {
    haproxys: [Haproxy; 2],
    nginx: Nginx,
    pub slowlanes: [Slowlane; 3],
    pub store: S,
}

impl Listeners<Redis> {
    /// Opens them with an SLO for the website `shop.example`, and an edit of HAProxy's files by their names.
    pub fn open(slo: &str, edit: impl Fn(&str, String) -> String) -> Listeners<Redis> {
        let redis = Redis::start();
        let url = redis.url();
        Listeners::at(redis, &url, slo, edit)
    }
}

impl<S> Listeners<S> {
    /// The same with another store, at this address.
    pub fn at(store: S, url: &str, slo: &str, edit: impl Fn(&str, String) -> String) -> Listeners<S> {
        let app = Backend::forgetful().address;
        let slowlanes: [Slowlane; 3] = std::array::from_fn(|number| node(number, slo, url));
        let [one, two, three] = &slowlanes;
        let haproxys = [one, two].map(|agent| {
            let agent = agent.spop.to_string();
            let haproxy = Haproxy::with(Version::V2_6, Delivery::Hold, &agent, app, &edit);
            let mut haproxy = haproxy.expect("the distribution has this version");
            haproxy.wait_for_agent("UP");
            haproxy
        });
        let nginx = Nginx::shipped(&three.http.to_string(), app);
        let listeners = Listeners { haproxys, nginx, slowlanes, store };
        listeners.are_joined();
        listeners
    }

    /// The addresses for clients.
    pub fn addresses(&self) -> [SocketAddr; 3] {
        let [one, two] = &self.haproxys;
        [one.address, two.address, self.nginx.address]
    }

    fn are_joined(&self) {
        for slowlane in &self.slowlanes {
            eventually("the slowlanes know each other", || {
                (slowlane.metric("slowlane_cluster_nodes", "") == 3.0).then_some(())
            });
        }
    }
}

fn node(number: usize, slo: &str, store: &str) -> Slowlane {
    let slo_map = format!("0 rate=unlimited\n2001 {slo}\n");
    let files = [("slo.map", slo_map.as_str()), ("website.map", "shop.example 2001\n")];
    Slowlane::with_config(&files, &format!("[cluster]\nstore = \"{store}\"\nnode = \"node{number}\"\n"))
}
