//! The proxies of a site: HAProxy 2.6 and 3.2 and nginx, with the shipped files.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::clients::Door;
use crate::records::{Records, Spans};
use crate::samples::Sample;
use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::haproxy::{CONFIG, Delivery, Haproxy, Version, replace, showing_verdicts_patiently};
use crate::support::nginx::Nginx;
use crate::support::process::Process;
use crate::support::slowlane::Slowlane;

/// A HAProxy, and its processes from before a reload that still have connections.
pub struct Reloading {
    door: Door,
    haproxy: Haproxy,
    old: Vec<Process>,
    /// While there are any.
    ending: Arc<Spans>,
    pub samples: Vec<Sample>,
}

pub struct Proxies {
    pub haproxies: Vec<Reloading>,
    pub nginx: Nginx,
    nginx_door: Door,
}

impl Proxies {
    pub fn start(slowlane: &Slowlane, app: &Backend) -> Proxies {
        let versions = [(Version::V2_6, Delivery::Hold), (Version::V3_2, Delivery::Pause)];
        let start =
            |(number, (version, delivery))| Reloading::start(number, version, delivery, slowlane, app);
        let haproxies = versions.into_iter().enumerate().filter_map(start).collect();
        let nginx = Nginx::with_files(&slowlane.http.to_string(), app.address, edited_nginx);
        let nginx_door = Door { name: "nginx", number: 2, address: nginx.address, drops_questions: None };
        Proxies { haproxies, nginx, nginx_door }
    }

    pub fn listeners(&self) -> Vec<Door> {
        self.haproxies.iter().map(|haproxy| haproxy.door.clone()).chain([self.nginx_door.clone()]).collect()
    }

    /// Waits until each proxy has verdicts.
    pub fn wait_for_verdicts(&self) {
        for door in self.listeners() {
            eventually("the proxy asks the agent", || has_verdict(door.address).then_some(()));
        }
    }

    /// Looks after the processes: none has ended by itself.
    pub fn look(&mut self, records: &Records) {
        for haproxy in &mut self.haproxies {
            haproxy.look(records);
        }
        if !self.nginx.process.is_running() {
            records.fault("nginx has ended", self.nginx.process.log().join("\n"));
        }
    }
}

/// A request that no SLO throttles.
fn has_verdict(proxy: SocketAddr) -> bool {
    let asked = Client::try_connect(proxy).and_then(|mut client| client.try_request("GET", "/", &[], ""));
    asked.is_ok_and(|response| response.header("x-verdict").is_some_and(|verdict| !verdict.is_empty()))
}

impl Reloading {
    fn start(
        number: usize,
        version: Version,
        delivery: Delivery,
        slowlane: &Slowlane,
        app: &Backend,
    ) -> Option<Reloading> {
        let agent = slowlane.spop.to_string();
        let haproxy = Haproxy::with(version, delivery, &agent, app.address, edited_haproxy)?;
        let ending = Arc::new(Spans::default());
        let (name, drops_questions) = match version {
            Version::V2_6 => ("HAProxy 2.6", Some(ending.clone())),
            Version::V3_0 => ("HAProxy 3.0", Some(ending.clone())),
            Version::V3_2 => ("HAProxy 3.2", None),
            Version::V3_4 => ("HAProxy 3.4", None),
        };
        let door = Door { name, number, address: haproxy.address, drops_questions };
        Some(Reloading { door, haproxy, old: Vec::new(), ending, samples: Vec::new() })
    }

    pub fn name(&self) -> &'static str {
        self.door.name
    }

    pub fn reload(&mut self, records: &Records) {
        if self.old.is_empty() {
            self.ending.begin();
        }
        self.old.push(self.haproxy.reload());
        records.count("reloads of HAProxy");
    }

    fn look(&mut self, records: &Records) {
        if !self.haproxy.process.is_running() {
            records.fault("HAProxy has ended", self.haproxy.process.log().join("\n"));
        }
        self.samples.extend(Sample::of(self.haproxy.process.id()));
        let before = self.old.len();
        for old in self.old.extract_if(.., |old| !old.is_running()) {
            let (mut old, name) = (old, self.door.name);
            if !old.wait().success() {
                records.fault(
                    "an old process of HAProxy has failed",
                    format!("{name}: {}", old.log().join("\n")),
                );
            }
        }
        if before > 0 && self.old.is_empty() {
            self.ending.end();
        }
    }

    /// Waits until the processes from before the reloads have ended. Their clients have left.
    pub fn wait_for_the_old(&mut self) {
        self.old.iter_mut().for_each(|old| assert!(old.wait().success(), "{}", old.log().join("\n")));
    }
}

/// HAProxy tells its verdicts, waits for a slow machine, and logs no requests: an hour of them is memory of the soak.
fn edited_haproxy(name: &str, text: String) -> String {
    let text = showing_verdicts_patiently(name, text);
    if name != CONFIG {
        return text;
    }
    let text = replace(&text, "log stdout format raw local0", "log stdout format raw local0 notice");
    replace(&text, "timeout check   250ms", "timeout check   5s")
}

/// The same for nginx. Its idle connections to the agent end before the agent would end them.
fn edited_nginx(name: &str, text: String) -> String {
    match name {
        "nginx.conf" => {
            let real = "set_real_ip_from 127.0.0.0/8; real_ip_header X-From;";
            let report = "add_header X-Verdict $slowlane_verdict always;";
            let text =
                replace(&text, "include slowlane.conf;", &format!("{real} {report} include slowlane.conf;"));
            let text = replace(&text, "# post_action /slowlane-done;", "post_action /slowlane-done;");
            let access_log = text.lines().find(|line| line.trim_start().starts_with("access_log ")).unwrap();
            text.replace(access_log, "access_log off;")
        }
        "slowlane-upstream.conf" => replace(&text, "keepalive 64;", "keepalive 64; keepalive_timeout 5s;"),
        "slowlane.conf" => text.replace("proxy_connect_timeout 100ms", "proxy_connect_timeout 5s"),
        _ => text,
    }
}
