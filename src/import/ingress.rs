//! ingress-nginx: the annotations `limit-…` of Ingress objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::import::ImportError;
use crate::import::rule::{ADDRESSES, Condition, ENDS, Found, Limit, Match, Rule, at_a_time, quoted};
use crate::import::yaml::{Node, documents};

/// limit-burst-multiplier, if it is not given.
const MULTIPLIER: u64 = 5;

pub(super) fn read(text: &str) -> Result<Found, ImportError> {
    let mut found = Found::default();
    // Earlier objects, by the hosts that they limit.
    let mut objects: BTreeMap<String, usize> = BTreeMap::new();
    for document in documents(text, 0)? {
        for object in document.objects().filter(|object| object.get("kind").text() == "Ingress") {
            ingress(object, &mut objects, &mut found)?;
        }
    }
    Ok(found)
}

/// The annotations of one object that are about limits, by their names without the prefix, with their lines.
type Annotations<'n> = BTreeMap<&'n str, (usize, &'n str)>;

fn ingress(
    object: &Node,
    objects: &mut BTreeMap<String, usize>,
    found: &mut Found,
) -> Result<(), ImportError> {
    let metadata = object.get("metadata");
    let name = format!("{}/{}", metadata.get("namespace").text(), metadata.get("name").text());
    let annotations = metadata.get("annotations").entries().iter();
    let given: Annotations<'_> = annotations
        .filter_map(|(key, node)| Some((key.split_once('/')?.1, (node.line, node.text()))))
        .filter(|(key, _)| key.starts_with("limit-") || key.starts_with("global-rate-limit"))
        .collect();
    let scopes = scopes(object, found, &given);
    let is_for_all = scopes.iter().any(|scope| host(scope).is_empty());
    let hosts: BTreeSet<String> = scopes.iter().map(|scope| host(scope).to_owned()).collect();
    // Objects for different hosts have different keys. Each further object for a host needs its own counter.
    let object_of_host = hosts.iter().filter_map(|host| objects.get(host)).max().map_or(0, |last| last + 1);
    let limits = limits(&given, &name, is_for_all, object_of_host, found);
    if !limits.is_empty() {
        objects.extend(hosts.iter().map(|host| (host.clone(), object_of_host)));
    }
    let networks = given.get("limit-whitelist").or_else(|| given.get("limit-allowlist"));
    let networks: Vec<String> = networks
        .map_or(Vec::new(), |(_, list)| list.split(',').map(|network| network.trim().to_owned()).collect());
    if hosts.len() > 1 && !limits.is_empty() {
        found.differs(
            "ingress-nginx counts a client for all hosts of an Ingress together, slowlane for each host.",
        );
    }
    for scope in scopes {
        found.rule(Rule { line: object.line, scope, limits: limits.clone(), networks: networks.clone() })?;
    }
    Ok(())
}

/// The host of a scope; empty for all hosts.
fn host(scope: &[Condition]) -> &str {
    match scope {
        [(field, Match::Exact(host)), ..] if field == "website" => host,
        _ => "",
    }
}

/// The hosts and paths of an object. One without rules is for every request.
fn scopes(object: &Node, found: &mut Found, given: &Annotations<'_>) -> Vec<Vec<Condition>> {
    let rules = object.get("spec").get("rules").items();
    let mut scopes = Vec::new();
    for rule in rules {
        let host = rule.get("host").text();
        if host.starts_with('*') {
            let reason = "this host needs a map of websites with match = \"end\"";
            if !given.is_empty() {
                found.omissions.add(rule.line, host, reason);
            }
            continue;
        }
        let website = (!host.is_empty()).then(|| ("website".to_owned(), Match::Exact(host.to_owned())));
        let website: Vec<Condition> = website.into_iter().collect();
        let paths = rule.get("http").get("paths").items();
        let mut add = |path: Option<Match>| {
            let path = path.map(|path| ("path".to_owned(), path));
            scopes.push(website.iter().cloned().chain(path).collect());
        };
        for path in paths {
            match (path.get("path").text(), path.get("pathType").text()) {
                ("" | "/", kind) if kind != "Exact" => add(None),
                (path, "Exact") => add(Some(Match::Exact(path.to_owned()))),
                (path, "Prefix") => {
                    // `/a` is the path /a and those below it, not /ab.
                    let path = path.trim_end_matches('/');
                    add(Some(Match::Exact(path.to_owned())));
                    add(Some(Match::Prefix(format!("{path}/"))));
                }
                (path, _) => add(Some(Match::Prefix(path.to_owned()))),
            }
        }
        if paths.is_empty() {
            add(None);
        }
    }
    if rules.is_empty() {
        scopes.push(Vec::new());
    }
    scopes
}

/// The limits in the order of ingress-nginx: connections, rpm, rps.
fn limits(
    given: &Annotations<'_>,
    name: &str,
    is_for_all: bool,
    object_of_host: usize,
    found: &mut Found,
) -> Vec<Limit> {
    let count = |name: &str| {
        given.get(name).and_then(|(_, text)| text.parse::<u64>().ok()).filter(|&count| count > 0)
    };
    let multiplier = count("limit-burst-multiplier").unwrap_or(MULTIPLIER);
    let bucket = |count: u64, period| {
        let burst = count.saturating_mul(multiplier).saturating_add(1);
        (format!("burst={burst} rate={count}/{period} law=token-bucket"), BURST)
    };
    let fields = if is_for_all { &["source"][..] } else { &["source", "website"] };
    let mut limits = Vec::new();
    // In this order: `given` has them by their names.
    for (&kind, &(line, text)) in given {
        let quoted = quoted(&format!("{name}: {kind}: {text}"));
        let (options, burst) = match (kind, count(kind)) {
            ("limit-connections", Some(count)) => (at_a_time(count), ENDS),
            ("limit-rpm", Some(count)) => bucket(count, "m"),
            ("limit-rps", Some(count)) => bucket(count, "s"),
            ("limit-connections" | "limit-rpm" | "limit-rps", None) if text == "0" => continue,
            ("limit-burst-multiplier" | "limit-whitelist" | "limit-allowlist", _) => continue,
            _ => {
                let reason = "slowlane has no such limit, or its value is not a valid number";
                found.omissions.add(line, &quoted, reason);
                continue;
            }
        };
        let counter = format!("{kind} {object_of_host}");
        let key = fields.iter().map(|&field| field.to_owned()).collect();
        limits.push(Limit { counter, key, options, line, quoted });
        [REPLICAS, STATUS, ADDRESSES, burst].into_iter().for_each(|difference| found.differs(difference));
    }
    limits
}

const REPLICAS: &str = "Each replica of ingress-nginx counts by itself: three replicas admit three times the rate. One slowlane, or a cluster, \
     counts for all, so multiply the numbers if you mean that.";

const STATUS: &str =
    "ingress-nginx refuses with 503, unless limit-req-status-code says otherwise. slowlane refuses with 429.";

const BURST: &str = "The burst is the rate times limit-burst-multiplier (5 by default), and one for the first request. Excess requests \
                     are refused, not delayed: remove law=token-bucket to delay them.";
