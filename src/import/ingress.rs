//! Imports the annotations of Ingress objects that make ingress controllers limit requests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slowlane_core::base::units;

use crate::import::files::{ForeignFile, of_rules};
use crate::import::haproxy::{REFUSED, milliseconds};
use crate::import::rule::{
    ADDRESSES, Condition, ENDS, FileLine, ImportFindings, Limit, Match, Rule, at_a_time, quoted, rate,
};
use crate::import::yaml::YamlNode;
use crate::import::{ImportError, Program};

/// The default of ingress-nginx's `limit-burst-multiplier`.
const MULTIPLIER: u64 = 5;

/// The controllers whose annotations are known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Controller {
    /// ingress-nginx.
    Nginx,
    /// The controller of HAProxy Technologies, with annotations of haproxy.org.
    HaproxyOrg,
    /// haproxy-ingress, with annotations of haproxy-ingress.github.io.
    HaproxyIngress,
}

impl Controller {
    /// The controller whose annotations have this prefix. Both ingress-nginx and haproxy-ingress once used
    /// `ingress.kubernetes.io`.
    fn of(prefix: &str, program: Program) -> Option<Controller> {
        match (prefix, program) {
            ("haproxy.org" | "ingress.haproxy.org", _) => Some(Controller::HaproxyOrg),
            ("haproxy-ingress.github.io", _) => Some(Controller::HaproxyIngress),
            ("ingress.kubernetes.io", Program::HaproxyIngress) => Some(Controller::HaproxyIngress),
            ("nginx.ingress.kubernetes.io" | "ingress.kubernetes.io", _) => Some(Controller::Nginx),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Controller::Nginx => "ingress-nginx",
            Controller::HaproxyOrg => "HAProxy's ingress controller",
            Controller::HaproxyIngress => "haproxy-ingress",
        }
    }

    /// Whether an annotation is imported, or has no effect in slowlane.
    fn knows(self, annotation: &str) -> bool {
        let known = match self {
            Controller::Nginx => {
                "limit-connections limit-rpm limit-rps limit-burst-multiplier limit-whitelist limit-allowlist"
            }
            Controller::HaproxyOrg => {
                "rate-limit-requests rate-limit-period rate-limit-status-code rate-limit-size rate-limit-whitelist"
            }
            Controller::HaproxyIngress => "limit-connections limit-rps limit-whitelist",
        };
        known.split(' ').any(|known| known == annotation)
    }
}

pub(super) fn read(
    documents: &[YamlNode],
    program: Program,
    found: &mut ImportFindings,
) -> Result<Vec<ForeignFile>, ImportError> {
    // For each host, the number of the counter for the last object that limits it.
    let mut objects: BTreeMap<String, usize> = BTreeMap::new();
    for document in documents {
        for object in document.objects().filter(|object| object.get("kind").text() == "Ingress") {
            ingress(object, program, &mut objects, found)?;
        }
        for object in document.objects() {
            elsewhere(object, found);
        }
    }
    Ok(of_rules(found))
}

/// Reports limits that other objects set, for the whole controller or for a Service, as omissions.
fn elsewhere(object: &YamlNode, found: &mut ImportFindings) {
    let (entries, object, reason) = match object.get("kind").text() {
        "ConfigMap" => (object.get("data"), None, "settings for the whole controller are not imported"),
        "Service" => {
            (object.get("metadata").get("annotations"), Some(object), "a Service's limits are not imported")
        }
        _ => return,
    };
    let object = object.map_or_else(String::new, |object| format!("{}: ", name(object)));
    for (key, node) in entries.entries().iter().filter(|(key, node)| is_of_limits(key, node.text())) {
        found.omit(node.line, &format!("{object}{key}: {}", node.text()), reason);
    }
}

/// An object's namespace and name, like `shop/web`.
fn name(object: &YamlNode) -> String {
    let metadata = object.get("metadata");
    format!("{}/{}", metadata.get("namespace").text(), metadata.get("name").text())
}

/// Whether a key or its value is about limits. The annotation in which kubectl keeps the applied object does not count,
/// because it repeats the whole object.
fn is_of_limits(key: &str, text: &str) -> bool {
    let has = |words: &[&str], text: &str| words.iter().any(|word| text.contains(word));
    let is_of_limits =
        has(&["limit", "throttle"], key) || has(&["limit_req", "limit_conn", "stick-table", "_rate("], text);
    is_of_limits && !key.ends_with("/last-applied-configuration")
}

/// The annotations of one object that are about limits, by controller and unprefixed name, each with its line and
/// value.
type Annotations<'n> = BTreeMap<(Controller, &'n str), (FileLine, &'n str)>;

fn ingress(
    object: &YamlNode,
    program: Program,
    objects: &mut BTreeMap<String, usize>,
    found: &mut ImportFindings,
) -> Result<(), ImportError> {
    let metadata = object.get("metadata");
    let name = name(object);
    let mut given = Annotations::new();
    for (key, node) in metadata.get("annotations").entries() {
        if !is_of_limits(key, node.text()) {
            continue;
        }
        let (prefix, short) = key.split_once('/').unwrap_or(("", key));
        match Controller::of(prefix, program) {
            Some(controller) if controller.knows(short) => {
                given.insert((controller, short), (node.line, node.text()));
            }
            _ => {
                let text = format!("{name}: {key}: {}", node.text());
                found.omit(node.line, &text, "slowlane does not know this annotation");
            }
        }
    }
    let scopes = scopes(object, found, &given);
    let is_for_all = scopes.iter().any(|scope| host(scope).is_empty());
    let hosts: BTreeSet<String> = scopes.iter().map(|scope| host(scope).to_owned()).collect();
    // Objects for different hosts have different keys. Each additional object for a host needs its own counter.
    let object_of_host = hosts.iter().filter_map(|host| objects.get(host)).max().map_or(0, |last| last + 1);
    let limits = limits(&given, &name, is_for_all, object_of_host, found);
    if !limits.is_empty() {
        objects.extend(hosts.iter().map(|host| (host.clone(), object_of_host)));
    }
    let lists = ["limit-whitelist", "limit-allowlist", "rate-limit-whitelist"];
    let lists = given.iter().filter(|((_, name), _)| lists.contains(name));
    let networks: Vec<String> =
        lists.flat_map(|(_, (_, list))| list.split(',')).map(|network| network.trim().to_owned()).collect();
    if hosts.len() > 1 && !limits.is_empty() {
        for name in given.keys().map(|(controller, _)| controller.name()).collect::<BTreeSet<_>>() {
            found.differs(format!(
                "{name} counts a client's requests to all hosts of an Ingress together; slowlane counts \
                 them for each host separately."
            ));
        }
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

/// The hosts and paths of an object, as scopes. An object without rules applies to every request.
fn scopes(object: &YamlNode, found: &mut ImportFindings, given: &Annotations<'_>) -> Vec<Vec<Condition>> {
    let rules = object.get("spec").get("rules").items();
    let mut scopes = Vec::new();
    for rule in rules {
        let host = rule.get("host").text();
        if host.starts_with('*') {
            let reason = "this host needs a map of websites with match = \"end\"";
            if !given.is_empty() {
                found.omit(rule.line, host, reason);
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
                    // `/a` matches the path /a and the paths below it, but not /ab.
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

/// The limits in the order of their names, which is also the order of ingress-nginx: connections, rpm, rps.
fn limits(
    given: &Annotations<'_>,
    name: &str,
    is_for_all: bool,
    object_of_host: usize,
    found: &mut ImportFindings,
) -> Vec<Limit> {
    let text = |of: Controller, name: &str| given.get(&(of, name)).map(|(_, text)| *text);
    let count = |text: &str| text.parse::<u64>().ok().filter(|&count| count > 0);
    let multiplier = text(Controller::Nginx, "limit-burst-multiplier").and_then(count).unwrap_or(MULTIPLIER);
    let bucket = |count: u64, period| {
        let burst = count.saturating_mul(multiplier).saturating_add(1);
        (format!("burst={burst} rate={count}/{period} law=token-bucket"), BURST)
    };
    let window = |count: u64, period_ms: u64| {
        let window = units::written(Duration::from_millis(period_ms));
        (format!("burst=0 rate={} law=sliding-window window={window}", rate(count, period_ms).0), REFUSED)
    };
    let period = text(Controller::HaproxyOrg, "rate-limit-period").map_or(Some(1_000), milliseconds);
    let fields = if is_for_all { &["source"][..] } else { &["source", "website"] };
    let mut limits = Vec::new();
    for (&(controller, kind), &(line, text)) in given {
        let is_limit = ["limit-connections", "limit-rpm", "limit-rps", "rate-limit-requests"].contains(&kind);
        if !is_limit || text == "0" {
            continue;
        }
        let quoted = quoted(&format!("{name}: {kind}: {text}"));
        let period_ms = if controller == Controller::HaproxyOrg { period } else { Some(1_000) };
        let Some((count, period_ms)) = count(text).zip(period_ms.filter(|&ms| ms > 0)) else {
            found.omit(line, &quoted, "the limit's value or period is not a valid number");
            continue;
        };
        let (options, burst) = match (controller, kind) {
            (_, "limit-connections") => (at_a_time(count), ENDS),
            (Controller::Nginx, "limit-rpm") => bucket(count, "m"),
            (Controller::Nginx, _) => bucket(count, "s"),
            (Controller::HaproxyOrg, _) => {
                found.differs(TOGETHER);
                window(count, period_ms)
            }
            (Controller::HaproxyIngress, _) => {
                found.differs("With limit-rps, haproxy-ingress counts new connections, not requests.");
                window(count, period_ms)
            }
        };
        let counter = format!("{kind} {object_of_host}");
        let key = fields.iter().map(|&field| field.to_owned()).collect();
        limits.push(Limit { counter, key, options, line, quoted });
        found.differs(format!("Each replica of {} {REPLICAS}", controller.name()));
        found.differs(match controller {
            Controller::Nginx => STATUS,
            Controller::HaproxyOrg => {
                "HAProxy refuses with rate-limit-status-code, 403 by default. slowlane refuses with 429."
            }
            Controller::HaproxyIngress => "haproxy-ingress closes the connection. slowlane refuses with 429.",
        });
        [ADDRESSES, burst].into_iter().for_each(|difference| found.differs(difference));
    }
    limits
}

const REPLICAS: &str = "counts by itself, so three replicas admit three times the rate. One slowlane, or a \
                        cluster, counts for all replicas: to admit as much as before, multiply each limit \
                        by the number of replicas.";

const TOGETHER: &str = "HAProxy's ingress controller counts a client's requests to all Ingress objects with the same \
                        rate-limit-period together; slowlane counts them for each object separately.";

const STATUS: &str =
    "ingress-nginx refuses with 503, or with the status in limit-req-status-code. slowlane refuses with 429.";

const BURST: &str = "The burst is the rate times limit-burst-multiplier (5 by default), plus one for the first \
                     request. Excess requests are refused, not delayed: remove law=token-bucket to delay them.";
