//! The judge: whether a request was served under what it was counted under, and under one key.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::fronts::Kind;
use crate::logs::{Counted, Served};
use crate::policies::{Counter, Policy};
use crate::shot::Shot;

/// The most characters of a value in the decision log.
const LOGGED_CHARS: usize = 200;

/// What the application calls a request without a host.
const NO_HOST: &str = "_";

/// The judge of one front and one policy.
pub struct Oracle {
    kind: Kind,
    policy: Policy,
    /// The address of the application, which proxies make the host of a request without one.
    app: String,
    /// The key of each customer that the application has seen, and the other way round.
    keys: HashMap<Vec<String>, String>,
    customers: HashMap<String, Vec<String>>,
}

impl Oracle {
    pub fn new(kind: Kind, policy: Policy, app: IpAddr) -> Oracle {
        Oracle { kind, policy, app: app.to_string(), keys: HashMap::new(), customers: HashMap::new() }
    }

    /// Whether a request was served that was not counted, or as another, or whether one was counted twice.
    pub fn fault(&mut self, shot: &Shot, served: &[Served], counted: &[Counted]) -> Option<String> {
        let mut left: Vec<&Counted> = counted.iter().collect();
        for served in served {
            if let Some(title) = self.policy.headers.iter().find(|title| served.times(title) > 1) {
                return Some(self.outcome(format_args!("the application may take one of several {title}")));
            }
            let seen = self.seen(served);
            let matches: Vec<usize> = (0..left.len()).filter(|&at| self.is_same(&seen, left[at])).collect();
            // The log cuts long values, so two of one shot may look alike: the one with the customer's key, if any.
            let known = self.keys.get(&self.customer(&seen, matches.first().map(|&at| left[at])));
            let place = matches.iter().find(|&&at| Some(&left[at].key) == known).or(matches.first());
            let is_one_of_several = known.is_none() && matches.len() > 1;
            let Some(&place) = place else {
                if self.needs_no_count(&seen) {
                    continue;
                }
                let outcome: Vec<_> = left.iter().map(|counted| &counted.fields).collect();
                return Some(self.outcome(format_args!("served {seen:?}, counted {outcome:?}")));
            };
            let counted = left.remove(place);
            if self.needs_no_count(&seen) || is_one_of_several {
                continue;
            }
            if let Some(fault) = self.another_key(&seen, counted) {
                return Some(fault);
            }
        }
        let times = counted.len();
        (times > shot.requests).then(|| self.outcome(format_args!("counted {times} times")))
    }

    fn outcome(&self, what: std::fmt::Arguments<'_>) -> String {
        format!("{} {}: {what}", self.kind, self.policy.name)
    }

    fn counter(&self) -> Counter {
        self.kind.counter()
    }

    /// By peers, a request without one of the fields has no such key, and no limit of it.
    fn needs_no_count(&self, seen: &[String]) -> bool {
        self.kind.counter() == Counter::Counts
            && seen.iter().any(|value| value.is_empty() || value == NO_HOST)
    }

    fn customer(&self, seen: &[String], counted: Option<&Counted>) -> Vec<String> {
        match self.policy.fields {
            [] => counted.map(|counted| counted.field("source")).into_iter().collect(),
            fields => seen[..fields.len()].to_vec(),
        }
    }

    /// One customer has one key, and one key has one customer.
    fn another_key(&mut self, seen: &[String], counted: &Counted) -> Option<String> {
        let customer = self.customer(seen, Some(counted));
        let (mine, key) =
            (&counted.key, self.keys.entry(customer.clone()).or_insert_with(|| counted.key.clone()).clone());
        // What HAProxy cannot count, it asks slowlane about, whose keys are others.
        if *mine != key && self.kind.counter() == Counter::Asks {
            return Some(self.outcome(format_args!("{customer:?} has the keys {key} and {mine}")));
        }
        let known = self.customers.entry(counted.key.clone()).or_insert_with(|| customer.clone());
        (*known != customer)
            .then(|| format!("{} {}: {known:?} and {customer:?} have one key", self.kind, self.policy.name))
    }

    /// The compared fields as the application saw them.
    fn seen(&self, served: &Served) -> Vec<String> {
        let path = || if self.kind.has_normal_paths() { normal(&served.uri) } else { served.uri.clone() };
        let of = |name: &&str| match *name {
            "website" if served.host == self.app => NO_HOST.to_owned(),
            "website" => canonical(&served.host),
            "method" => served.method.clone(),
            "path" => path(),
            "base" => format!("{}{}", canonical(served.host.trim_start_matches(NO_HOST)), path()),
            "url" if served.args.is_empty() => path(),
            "url" => format!("{}?{}", path(), served.args),
            "x_api_key" => served.x_api_key.trim().to_owned(),
            "user_agent" => served.user_agent.trim().to_owned(),
            other => panic!("no field {other}"),
        };
        self.policy.compared(self.counter()).iter().map(of).collect()
    }

    fn is_same(&self, seen: &[String], counted: &Counted) -> bool {
        let names = self.policy.compared(self.counter());
        names.iter().zip(seen).all(|(name, seen)| is_same(name, seen, &counted.field(name)))
    }
}

fn is_same(name: &str, seen: &str, counted: &str) -> bool {
    match name {
        "website" => host(seen) == host(counted) || seen == NO_HOST && counted.is_empty(),
        "base" => {
            // Cut within the host, it has no path.
            let Some(at) = counted.find('/') else {
                return is_same("path", seen, &counted.to_lowercase());
            };
            let (of, path) = counted.split_at(at);
            is_same("path", seen, &format!("{}{path}", canonical(of)))
        }
        _ => match counted.strip_suffix("...") {
            Some(cut) if cut.chars().count() >= LOGGED_CHARS / 4 => seen.starts_with(cut),
            _ => seen == counted,
        },
    }
}

/// A path as HAProxy's printed rules write it: without parameters, in lower case.
fn normal(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').map(|part| part.split(';').next().unwrap()).collect();
    let mut normal = parts.join("/").to_ascii_lowercase();
    while normal.contains("//") {
        normal = normal.replace("//", "/");
    }
    normal
}

/// A host in its one form: no port, no final dot, lower case.
fn canonical(text: &str) -> String {
    let address =
        |text: &str| text.trim_matches(['[', ']']).parse::<Ipv6Addr>().map(|address| address.to_string());
    if let Ok(address) = address(text) {
        return address;
    }
    let name = match text.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => text,
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_lowercase();
    address(&name).unwrap_or(name)
}

/// The same, cut as in the log.
fn host(text: &str) -> String {
    canonical(text.strip_suffix("...").unwrap_or(text)).chars().take(LOGGED_CHARS).collect()
}
