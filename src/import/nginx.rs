//! nginx: `limit_req` and `limit_conn` by server and location.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slowlane_core::base::{HOLD_SHIPPED, units};

use crate::import::included::{MARK, directives};
use crate::import::rule::{ADDRESSES, Condition, ENDS, Found, Limit, Match, Rule, at_a_time, covers, quoted};
use crate::import::{ImportError, RULES_MAX};
use crate::proxy::nginx_syntax::Directive;

/// A zone: the fields of its key, and its rate like `10/s`.
struct Zone {
    key: Vec<String>,
    /// Requests, and the seconds that they are for. None: a zone of `limit_conn`.
    rate: Option<(u64, u64)>,
}

/// The directives in force at a place of the configuration.
#[derive(Clone, Default)]
struct Level<'d> {
    req: Vec<&'d Directive>,
    conn: Vec<&'d Directive>,
    dry_req: bool,
    dry_conn: bool,
}

/// One more than a request can have: the rest is not read.
const LIMITS_MAX: usize = 4;

impl<'d> Level<'d> {
    /// The directives inside. A block with directives of its own does not inherit those above.
    fn inside(&self, directives: &[&'d Directive]) -> Level<'d> {
        let named = |name: &str| {
            let named = directives.iter().copied().filter(|directive| directive.name() == name);
            named.take(LIMITS_MAX).collect::<Vec<_>>()
        };
        let or = |own: Vec<&'d Directive>, above: &[&'d Directive]| {
            if own.is_empty() { above.to_vec() } else { own }
        };
        let is_on = |name: &str, above: bool| {
            let own = directives.iter().rfind(|directive| directive.name() == name);
            own.map_or(above, |own| own.words.get(1).is_some_and(|word| word == "on"))
        };
        Level {
            req: or(named("limit_req"), &self.req),
            conn: or(named("limit_conn"), &self.conn),
            dry_req: is_on("limit_req_dry_run", self.dry_req),
            dry_conn: is_on("limit_conn_dry_run", self.dry_conn),
        }
    }
}

struct Reader<'t> {
    /// The first byte of each line but the first.
    lines: Vec<usize>,
    text: &'t str,
    zones: BTreeMap<String, Zone>,
    found: Found,
}

pub(super) fn read(text: &str) -> Result<Found, ImportError> {
    let directives = directives(text)?;
    let outer = directives.iter().filter(|directive| directive.name() != "http");
    let http = directives.iter().filter(|directive| directive.name() == "http").flat_map(|http| &http.inner);
    let root: Vec<&Directive> = outer.chain(http).collect();
    let lines = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    let mut reader = Reader { lines, text, zones: BTreeMap::new(), found: Found::default() };
    for directive in &root {
        match directive.name() {
            "limit_req_zone" | "limit_conn_zone" => reader.zone(directive),
            "include" if !text.contains(MARK) => {
                reader.found.differs("Included files are not read. `nginx -T | slowlane import -` reads all.")
            }
            _ => {}
        }
    }
    let level = Level::default().inside(&root);
    let servers: Vec<&Directive> =
        root.iter().copied().filter(|directive| directive.name() == "server").collect();
    for server in &servers {
        reader.server(server, &level)?;
    }
    if servers.is_empty() {
        // A file of `http` or of a server alone.
        reader.locations(&root, &level, &[])?;
    }
    let limits = || reader.found.rules.iter().flat_map(|rule| &rule.limits);
    let counters: BTreeSet<&str> = limits().map(|limit| limit.counter.as_str()).collect();
    let laws = limits().map(|limit| (limit.counter.as_str(), limit.options.contains("law=")));
    if laws.collect::<BTreeSet<_>>().len() > counters.len() {
        reader.found.differs(APART);
    }
    Ok(reader.found)
}

const DEFAULT_SERVER: &str = "nginx serves a request for an unknown host from its default server, under the limits there. slowlane limits only the hosts in website.map: let nginx refuse other hosts, or give SLO 0 a limit.";

const APART: &str = "If a zone is used with a queue in one place and without one in another, slowlane counts the two apart; nginx counts them together.";

impl Reader<'_> {
    fn line(&self, directive: &Directive) -> usize {
        self.lines.partition_point(|&start| start <= directive.place.start) + 1
    }

    fn source_of<'s>(&'s self, directive: &Directive) -> &'s str {
        &self.text[directive.place.clone()]
    }

    fn omit(&mut self, directive: &Directive, reason: impl AsRef<str>) {
        // A block may be long, and a note shows only its beginning.
        let (line, text) =
            (self.line(directive), self.source_of(directive).chars().take(200).collect::<String>());
        self.found.omissions.add(line, &text, reason);
    }

    fn zone(&mut self, directive: &Directive) {
        let value = |name: &str| directive.words.iter().find_map(|word| word.strip_prefix(name));
        let name = value("zone=").and_then(|zone| zone.split(':').next());
        let per = |rate: &str, ending, seconds| Some((rate.strip_suffix(ending)?.parse().ok()?, seconds));
        let rate = value("rate=").and_then(|rate| per(rate, "r/s", 1).or_else(|| per(rate, "r/m", 60)));
        let is_req = directive.name() == "limit_req_zone";
        let rate = rate.filter(|&(count, seconds)| is_req && (1..=1_000_000 * seconds).contains(&count));
        match (directive.words.get(1).map(|key| key_fields(key)), name) {
            (Some(Err(reason)), _) => self.omit(directive, reason),
            (Some(Ok(key)), Some(name)) if rate.is_some() || !is_req => {
                if directive.words[1].contains("server_name") {
                    self.found.differs("nginx counts all names of a server together under $server_name; slowlane counts each host.");
                }
                if key.iter().any(|field| field == "source") {
                    self.found.differs(ADDRESSES);
                } else if !key.is_empty() {
                    self.found.differs("nginx does not count a request whose key is empty; slowlane gives all of them one bucket.");
                }
                self.zones.insert(name.to_owned(), Zone { key, rate });
            }
            _ => self.omit(directive, "the zone needs a name, and a rate from 1r/m to 1000000r/s"),
        }
    }

    fn server(&mut self, server: &Directive, above: &Level<'_>) -> Result<(), ImportError> {
        let inner: Vec<&Directive> = server.inner.iter().collect();
        let names = inner.iter().filter(|directive| directive.name() == "server_name");
        let names = names.flat_map(|directive| directive.words.iter().skip(1));
        let names: Vec<&String> = names.filter(|name| !["_", ""].contains(&name.as_str())).collect();
        let level = above.inside(&inner);
        if names.is_empty() {
            return self.locations(&inner, &level, &[]);
        }
        for name in names {
            if name.starts_with(['*', '.', '~']) || name.ends_with('*') {
                let map = "needs a map of websites with match = \"end\" or \"reg\"";
                self.omit(server, format!("the name {name} {map}"));
                continue;
            }
            self.locations(&inner, &level, &[("website".to_owned(), Match::Exact(name.clone()))])?;
        }
        if !self.found.rules.is_empty() {
            self.found.differs(DEFAULT_SERVER);
        }
        Ok(())
    }

    /// Adds the rules of a server, one for each location with limits other than the server's.
    fn locations(
        &mut self,
        inner: &[&Directive],
        level: &Level<'_>,
        server: &[Condition],
    ) -> Result<(), ImportError> {
        let own = self.limits(level);
        let mut rules: Vec<Rule> = Vec::new();
        let mut open: Vec<(&Directive, Level<'_>)> =
            inner.iter().rev().map(|directive| (*directive, level.clone())).collect();
        while let Some((directive, above)) = open.pop() {
            if directive.name() != "location" {
                continue;
            }
            let below: Vec<&Directive> = directive.inner.iter().collect();
            let level = above.inside(&below);
            open.extend(below.iter().rev().map(|directive| (*directive, level.clone())));
            let limits = self.limits(&level);
            let words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
            let path = match words[..] {
                [_, "=", path] => Match::Exact(path.to_owned()),
                [_, "^~", path] | [_, path] if path.starts_with('/') => Match::Prefix(path.to_owned()),
                _ => {
                    if limits != own {
                        let end = directive.block.as_ref().map_or(directive.place.end, |block| block.start);
                        let begin = Directive { place: directive.place.start..end, ..directive.clone() };
                        self.omit(
                            &begin,
                            "only locations that match a path or a prefix become lines of a map",
                        );
                    }
                    continue;
                }
            };
            let scope = server.iter().cloned().chain([("path".to_owned(), path)]).collect();
            if rules.len() == RULES_MAX {
                return Err(ImportError::TooMany);
            }
            rules.push(Rule { line: self.line(directive), scope, limits, ..Rule::default() });
        }
        let others: Vec<Vec<Condition>> =
            rules.iter().filter(|rule| rule.limits != own).map(|rule| rule.scope.clone()).collect();
        rules.retain(|rule| rule.limits != own || others.iter().any(|outer| covers(outer, &rule.scope)));
        let line = inner.first().map_or(1, |directive| self.line(directive));
        rules.push(Rule { line, scope: server.to_vec(), limits: own, ..Rule::default() });
        rules.into_iter().try_for_each(|rule| self.found.rule(rule))
    }

    fn limits(&mut self, level: &Level<'_>) -> Vec<Limit> {
        let req =
            level.req.iter().filter_map(|&directive| self.req(directive, level.dry_req)).collect::<Vec<_>>();
        let conn = level.conn.iter().filter_map(|&directive| self.conn(directive, level.dry_conn));
        req.into_iter().chain(conn.collect::<Vec<_>>()).collect()
    }

    fn limit(&self, directive: &Directive, zone: &str, options: String, is_dry: bool) -> Limit {
        let dry = if is_dry { " dry_run=yes" } else { "" };
        Limit {
            counter: format!("zone {zone}"),
            key: self.zones[zone].key.clone(),
            options: options + dry,
            line: self.line(directive),
            quoted: quoted(self.source_of(directive)),
        }
    }

    fn req(&mut self, directive: &Directive, is_dry: bool) -> Option<Limit> {
        let value = |name: &str| directive.words.iter().find_map(|word| word.strip_prefix(name));
        let count =
            |name: &str| value(name).map_or(Some(0), |count| count.parse::<u32>().ok()).map(u64::from);
        let zone = value("zone=").unwrap_or_default().to_owned();
        let Some((count_per, seconds)) = self.zones.get(&zone).and_then(|zone| zone.rate) else {
            self.omit(directive, format!("its zone {zone:?} is not imported"));
            return None;
        };
        let (Some(burst), Some(delay)) = (count("burst="), count("delay=")) else {
            self.omit(directive, "burst and delay are whole numbers");
            return None;
        };
        let is_nodelay = directive.words.iter().any(|word| word == "nodelay") || delay >= burst;
        let rate = format!("{count_per}/{}", if seconds == 1 { "s" } else { "m" });
        self.found.differs(STATUS);
        self.found.differs(BURST);
        if seconds == 60 && count_per * 1_000 % 60 != 0 {
            self.found.differs(ROUNDED);
        }
        let options = if is_nodelay {
            format!("burst={} rate={rate} law=token-bucket", burst + 1)
        } else {
            let longest = Duration::from_micros(((burst - delay) * seconds * 1_000_000).div_ceil(count_per));
            if longest > HOLD_SHIPPED {
                self.found.differs(CUT);
            }
            format!("burst={} rate={rate} max_delay={}", delay + 1, units::written(longest.min(HOLD_SHIPPED)))
        };
        Some(self.limit(directive, &zone, options, is_dry))
    }

    fn conn(&mut self, directive: &Directive, is_dry: bool) -> Option<Limit> {
        let zone = directive.words.get(1).map_or("", String::as_str).to_owned();
        let count =
            directive.words.get(2).and_then(|count| count.parse::<u16>().ok()).filter(|&count| count > 0);
        let Some(count) = count.filter(|_| self.zones.contains_key(&zone)) else {
            self.omit(directive, "its zone is not imported, or the number is not from 1 to 65535");
            return None;
        };
        self.found.differs(STATUS);
        self.found.differs(ENDS);
        Some(self.limit(directive, &zone, at_a_time(count.into()), is_dry))
    }
}

const STATUS: &str = "nginx refuses with 503, or with limit_req_status and limit_conn_status. slowlane refuses with 429 and Retry-After.";

const BURST: &str = "nginx's burst does not count the first request: burst=5 lets six in at once. slowlane's does: the queue of five \
                     is max_delay, the time that five requests take, and with nodelay, burst=5 becomes burst=6.";

const ROUNDED: &str = "nginx rounds a rate down to thousandths of a request per second: 10r/m is 9.96/m there, and 10/m in slowlane.";

const CUT: &str = "A request waits 20 s at most, which is as long as HAProxy's files allow as shipped. nginx lets it wait longer, and \
                   slowlane refuses it.";

/// The fields that a key is made of. A text without variables is one bucket for all.
pub(super) fn key_fields(key: &str) -> Result<Vec<String>, String> {
    let names = key.split('$').skip(1).map(|rest| {
        let rest = rest.trim_start_matches('{');
        rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next().unwrap_or_default()
    });
    let mut fields: Vec<String> = Vec::new();
    for name in names {
        let field = match name {
            "binary_remote_addr" | "remote_addr" => "source",
            "server_name" | "host" | "http_host" => "website",
            "request_method" => "method",
            "uri" | "document_uri" => "path",
            "request_uri" => "url",
            "args" | "query_string" => "query",
            "http_user_agent" | "http_referer" | "http_origin" => &name[5..],
            _ if name.starts_with("http_x_") => &name[5..],
            _ => return Err(format!("slowlane has no field for ${name}")),
        };
        if !fields.iter().any(|other| other == field) {
            fields.push(field.to_owned());
        }
    }
    Ok(fields)
}
