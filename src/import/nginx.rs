//! Imports nginx's `limit_req` and `limit_conn`, by server and location.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use slowlane_core::base::{HOLD_SHIPPED, units};

use crate::import::files::{ForeignFile, of_rules};
use crate::import::rule::{
    ADDRESSES, Condition, ENDS, FileLine, ImportFindings, Limit, Match, Rule, at_a_time, covers, quoted,
};
use crate::import::{ImportError, Input, RULES_MAX};
use crate::proxy::attach::Refused;
use crate::proxy::nginx_files::{NginxFiles, Placed};

/// A zone: the fields of its key, and its rate.
struct Zone {
    key: Vec<String>,
    /// A number of requests, and a number of seconds: 10r/m is `(10, 60)`. `None` for a zone of `limit_conn`.
    rate: Option<(u64, u64)>,
}

/// The `limit_req` directives, or the `limit_conn` directives, in force at one place in the configuration.
#[derive(Clone)]
struct LimitsInForce<'d> {
    name: &'static str,
    limits: Vec<Placed<'d>>,
    is_dry: bool,
}

/// The `limit_req` and the `limit_conn` directives in force, in this order.
type InheritedLimits<'d> = [LimitsInForce<'d>; 2];

/// The maximum number of limits to read: one more than a request can have, so that an excess is noticed.
const LIMITS_MAX: usize = 4;

/// The limits in force inside a block. A block with directives of its own does not inherit outer directives of the same
/// name.
fn inside<'d>(above: &InheritedLimits<'d>, directives: &[Placed<'d>]) -> InheritedLimits<'d> {
    above.each_ref().map(|&LimitsInForce { name, ref limits, is_dry }| {
        let named = |end| directives.iter().filter(move |own| own.name().strip_prefix(name) == Some(end));
        let own: Vec<Placed<'d>> = named("").copied().take(LIMITS_MAX).collect();
        let dry_run = named("_dry_run").next_back();
        LimitsInForce {
            name,
            limits: if own.is_empty() { limits.clone() } else { own },
            is_dry: dry_run.map_or(is_dry, |own| own.words().get(1) == Some(&"on")),
        }
    })
}

struct Reader<'f> {
    files: &'f NginxFiles,
    paths: Vec<&'f Path>,
    zones: BTreeMap<String, Zone>,
    found: &'f mut ImportFindings,
}

pub(super) fn read(input: &Input<'_>, found: &mut ImportFindings) -> Result<Vec<ForeignFile>, ImportError> {
    let printed = match &input.texts[..] {
        [(_, text)] => NginxFiles::printed(text).map_err(|refused| fault(refused, input))?,
        _ => None,
    };
    let is_printed = printed.is_some();
    let (files, unread) = match printed {
        Some(files) => (files, BTreeSet::new()),
        None => on_disk(input)?,
    };
    // The output of `nginx -T` counts as one file, in which lines have no file names.
    let paths: Vec<&Path> = files.paths().filter(|_| !is_printed).map(PathBuf::as_path).collect();
    found.name_files(paths.iter().copied());
    let mut reader = Reader { files: &files, paths, zones: BTreeMap::new(), found };
    let top = files.top();
    let http = top.iter().filter(|directive| directive.name() == "http");
    let outer = top.iter().copied().filter(|directive| directive.name() != "http");
    let root: Vec<Placed<'_>> = outer.chain(http.flat_map(|&http| files.inside(http))).collect();
    for &directive in &root {
        match directive.name() {
            "limit_req_zone" | "limit_conn_zone" => reader.zone(directive),
            _ => reader.note(directive, "", directive.name() == "stream", &unread),
        }
    }
    if !is_printed && input.included.is_none() && root.iter().any(|directive| directive.name() == "include") {
        reader
            .found
            .differs("Included files are not read. To import them, too, run `nginx -T | slowlane import -`.");
    }
    let none = |name| LimitsInForce { name, limits: Vec::new(), is_dry: false };
    let level = inside(&["limit_req", "limit_conn"].map(none), &root);
    let servers: Vec<Placed<'_>> =
        root.iter().copied().filter(|directive| directive.name() == "server").collect();
    let inner: Vec<Vec<Placed<'_>>> = servers.iter().map(|&server| files.inside(server)).collect();
    let defaults = default_servers(&inner);
    for (number, &server) in servers.iter().enumerate() {
        reader.server(server, &level, defaults.contains(&number))?;
    }
    if servers.is_empty() {
        // Without a `server`, the text is the content of a `server` block, or of an `http` block that has no `server`.
        reader.locations(&root, &level, &[])?;
    }
    let limits = || reader.found.rules.iter().flat_map(|rule| &rule.limits);
    let counters: BTreeSet<&str> = limits().map(|limit| limit.counter.as_str()).collect();
    let laws = limits().map(|limit| (limit.counter.as_str(), limit.options.contains("law=")));
    if laws.collect::<BTreeSet<_>>().len() > counters.len() {
        reader.found.differs(APART);
    }
    Ok(of_rules(reader.found))
}

/// The input files and all files that they include, and the paths of the files that cannot be read.
fn on_disk(input: &Input<'_>) -> Result<(NginxFiles, BTreeSet<PathBuf>), ImportError> {
    let unread = RefCell::new(BTreeSet::new());
    let main: Vec<&Path> = input.texts.iter().map(|(path, _)| &**path).collect();
    let folder = main.first().and_then(|path| path.parent()).unwrap_or(Path::new(""));
    let read = |path: &Path| {
        let own = input.texts.iter().find(|(own, _)| own == path).map(|(_, text)| text.clone());
        let text = own.or_else(|| (input.included?.read)(path));
        Ok(text.unwrap_or_else(|| {
            unread.borrow_mut().insert(path.to_owned());
            String::new()
        }))
    };
    let list = |pattern: &Path| input.included.map_or(Vec::new(), |included| (included.list)(pattern));
    let files = NginxFiles::read(&main, folder, read, list).map_err(|refused| fault(refused, input))?;
    Ok((files, unread.into_inner()))
}

/// The import error for a file that is not understood, or for too many includes.
fn fault(refused: Refused, input: &Input<'_>) -> ImportError {
    let Refused::Syntax { path, line } = refused else { return ImportError::TooMany };
    let error = ImportError::Syntax { line, reason: "cannot be read as nginx configuration".to_owned() };
    let is_only = input.texts.len() == 1 && input.texts[0].0 == path;
    if is_only { error } else { error.inside(&path) }
}

/// The reason why a directive in `block` that limits requests, or changes which client is counted, is not imported.
fn unknown(words: &[&str], block: &str, is_stream: bool) -> Option<&'static str> {
    let known = ["_zone", "_dry_run", "_status", "_log_level"];
    let is_known = |name: &str| {
        let rest = name.strip_prefix("limit_req").or_else(|| name.strip_prefix("limit_conn"));
        rest.is_some_and(|rest| rest.is_empty() || known.contains(&rest)) || name.starts_with("worker_rlimit")
    };
    Some(match words {
        ["limit_conn" | "limit_conn_zone", ..] if is_stream => "slowlane does not limit `stream` connections",
        [name, ..] if is_known(name) => return None,
        [name, ..] if name.ends_with("limit_rate") || name.ends_with("limit_rate_after") => {
            "bytes per second are limited, not requests"
        }
        ["limit_except", ..] => "methods are limited, not a rate",
        [name, ..] if name.contains("_by_lua") && !name.contains("log_") => {
            "Lua code is not read, but may limit requests"
        }
        [name, ..] if name.contains("limit") || name.contains("throttle") => {
            "slowlane does not know this directive"
        }
        ["real_ip_header" | "set_real_ip_from", ..] => {
            "this directive changes the address that nginx counts: make nginx send slowlane the same address"
        }
        ["return", "403" | "429" | "444" | "503", ..] if block == "if" => {
            "a conditional refusal is not imported"
        }
        ["server", _, options @ ..] if options.iter().any(|option| option.starts_with("max_conns=")) => {
            "max_conns limits the connections to a server, not a client's connections"
        }
        _ => return None,
    })
}

const DEFAULT_SERVER: &str = "nginx serves a request for an unknown host from its default server, with that server's limits. slowlane limits only the hosts in website.map: make nginx refuse other hosts, or give SLO 0 a limit.";

/// The servers that get requests for unknown hosts: at each address, the server that is named as the default, or else
/// the first server.
fn default_servers(servers: &[Vec<Placed<'_>>]) -> BTreeSet<usize> {
    let mut defaults: BTreeMap<String, (bool, usize)> = BTreeMap::new();
    for (number, server) in servers.iter().enumerate() {
        let listens = server.iter().filter(|directive| directive.name() == "listen");
        let mut listens: Vec<Vec<&str>> = listens.map(|directive| directive.words()).collect();
        if listens.is_empty() {
            listens.push(vec!["listen", "80"]);
        }
        for words in listens {
            let address = words.get(1).unwrap_or(&"").trim_start_matches("*:").trim_start_matches("0.0.0.0:");
            let is_named = words.iter().any(|word| ["default_server", "default"].contains(word));
            let default = defaults.entry(address.to_owned()).or_insert((is_named, number));
            if is_named && !default.0 {
                *default = (true, number);
            }
        }
    }
    defaults.into_values().map(|(_, number)| number).collect()
}

const APART: &str = "If a zone is used with a queue in one place and without a queue in another, slowlane counts the requests in the two places separately; nginx counts them together.";

impl<'f> Reader<'f> {
    fn line(&self, directive: Placed<'_>) -> FileLine {
        let file = self.paths.iter().position(|path| *path == directive.path).unwrap_or(0);
        FileLine { file, number: directive.line() }
    }

    fn omit(&mut self, directive: Placed<'_>, reason: impl AsRef<str>) {
        self.found.omit(self.line(directive), directive.source().trim_end(), reason);
    }

    /// Reports this directive and the directives inside it as omissions if they limit requests, change which client is
    /// counted, or include a file that cannot be read.
    fn note(&mut self, directive: Placed<'f>, block: &str, is_stream: bool, unread: &BTreeSet<PathBuf>) {
        if let Some(reason) = unknown(&directive.words(), block, is_stream) {
            self.omit(directive, reason);
        } else if directive.directive.files.iter().any(|file| unread.contains(file)) {
            self.omit(directive, "an included file cannot be read");
        }
        let inner = self.files.inside(directive).into_iter();
        inner.for_each(|inner| self.note(inner, directive.name(), is_stream, unread));
    }

    fn zone(&mut self, directive: Placed<'_>) {
        let words = directive.words();
        let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
        let name = value("zone=").and_then(|zone| zone.split(':').next());
        let per = |rate: &str, ending, seconds| Some((rate.strip_suffix(ending)?.parse().ok()?, seconds));
        let rate = value("rate=").and_then(|rate| per(rate, "r/s", 1).or_else(|| per(rate, "r/m", 60)));
        let is_req = directive.name() == "limit_req_zone";
        let rate = rate.filter(|&(count, seconds)| is_req && (1..=1_000_000 * seconds).contains(&count));
        match (words.get(1).map(|key| key_fields(key)), name) {
            (Some(Err(reason)), _) => self.omit(directive, reason),
            (Some(Ok(key)), Some(name)) if rate.is_some() || !is_req => {
                if words[1].contains("server_name") {
                    self.found.differs(
                        "By $server_name, nginx counts all names of a server together; slowlane counts each \
                         host separately.",
                    );
                }
                if key.iter().any(|field| field == "source") {
                    self.found.differs(ADDRESSES);
                } else if !key.is_empty() {
                    self.found.differs(
                        "nginx does not count requests whose key is empty; slowlane counts all of them in one bucket.",
                    );
                }
                self.zones.insert(name.to_owned(), Zone { key, rate });
            }
            _ => self.omit(directive, "the zone needs a name, and a rate from 1r/m to 1000000r/s"),
        }
    }

    fn server(
        &mut self,
        server: Placed<'f>,
        above: &InheritedLimits<'_>,
        is_default: bool,
    ) -> Result<(), ImportError> {
        let inner = self.files.inside(server);
        let names = inner.iter().filter(|directive| directive.name() == "server_name");
        let names = names.flat_map(|of| of.words().into_iter().skip(1).map(|name| (*of, name)));
        let names: Vec<(Placed<'_>, &str)> = names.filter(|(_, name)| !["_", ""].contains(name)).collect();
        let level = inside(above, &inner);
        if names.is_empty() && is_default {
            return self.locations(&inner, &level, &[]);
        }
        if names.is_empty() {
            self.omit(
                server,
                "no host leads to this server: it has no name, and another server is the default",
            );
        }
        for (of, name) in names {
            if name.starts_with(['*', '.', '~']) || name.ends_with('*') {
                let map = "needs a map of websites with match = \"end\" or \"reg\"";
                self.omit(of, format!("the name {name} {map}"));
                continue;
            }
            self.locations(&inner, &level, &[("website".to_owned(), Match::Exact(name.to_owned()))])?;
        }
        if is_default && !self.found.rules.is_empty() {
            self.found.differs(DEFAULT_SERVER);
        }
        Ok(())
    }

    /// Adds a rule for a server, and for each location with limits other than the server's, or inside such a location.
    fn locations(
        &mut self,
        inner: &[Placed<'f>],
        level: &InheritedLimits<'_>,
        server: &[Condition],
    ) -> Result<(), ImportError> {
        let own = self.limits(level);
        let mut rules: Vec<Rule> = Vec::new();
        let mut open: Vec<(Placed<'_>, InheritedLimits<'_>)> =
            inner.iter().rev().map(|directive| (*directive, level.clone())).collect();
        while let Some((directive, above)) = open.pop() {
            if directive.name() != "location" {
                continue;
            }
            let below = self.files.inside(directive);
            let level = inside(&above, &below);
            open.extend(below.iter().rev().map(|directive| (*directive, level.clone())));
            let limits = self.limits(&level);
            let path = match directive.words()[..] {
                [_, "=", path] => Match::Exact(path.to_owned()),
                [_, "^~", path] | [_, path] if path.starts_with('/') => Match::Prefix(path.to_owned()),
                _ => {
                    if limits != own {
                        self.omit(directive, "only locations that match a path or a prefix can be imported");
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
        let line = inner.first().map_or(FileLine { file: 0, number: 1 }, |directive| self.line(*directive));
        rules.push(Rule { line, scope: server.to_vec(), limits: own, ..Rule::default() });
        rules.into_iter().try_for_each(|rule| self.found.rule(rule))
    }

    fn limits(&mut self, level: &InheritedLimits<'_>) -> Vec<Limit> {
        let all = level.iter().flat_map(|of| of.limits.iter().map(|limit| (*limit, of.is_dry)));
        let read = |(limit, is_dry): (Placed<'_>, bool)| match limit.name() {
            "limit_req" => self.req(limit, is_dry),
            _ => self.conn(limit, is_dry),
        };
        all.filter_map(read).collect()
    }

    fn limit(&self, directive: Placed<'_>, zone: &str, options: String, is_dry: bool) -> Limit {
        let dry = if is_dry { " dry_run=yes" } else { "" };
        Limit {
            counter: format!("zone {zone}"),
            key: self.zones[zone].key.clone(),
            options: options + dry,
            line: self.line(directive),
            quoted: quoted(directive.source()),
        }
    }

    fn req(&mut self, directive: Placed<'_>, is_dry: bool) -> Option<Limit> {
        let words = directive.words();
        let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
        let count =
            |name: &str| value(name).map_or(Some(0), |count| count.parse::<u32>().ok()).map(u64::from);
        let zone = value("zone=").unwrap_or_default().to_owned();
        let Some((count_per, seconds)) = self.zones.get(&zone).and_then(|zone| zone.rate) else {
            self.omit(directive, format!("the zone {zone:?} is not imported"));
            return None;
        };
        let (Some(burst), Some(delay)) = (count("burst="), count("delay=")) else {
            self.omit(directive, "expected whole numbers for burst and delay");
            return None;
        };
        let is_known = |word: &&str| {
            *word == "nodelay" || ["zone=", "burst=", "delay="].iter().any(|name| word.starts_with(name))
        };
        if let Some(word) = words[1..].iter().find(|word| !is_known(word)) {
            self.omit(directive, format!("slowlane does not know the parameter {word:?} of limit_req"));
        }
        let is_nodelay = words.contains(&"nodelay") || delay >= burst;
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

    fn conn(&mut self, directive: Placed<'_>, is_dry: bool) -> Option<Limit> {
        let zone = directive.words().get(1).copied().unwrap_or_default().to_owned();
        let count =
            directive.words().get(2).and_then(|count| count.parse::<u16>().ok()).filter(|&count| count > 0);
        let Some(count) = count.filter(|_| self.zones.contains_key(&zone)) else {
            self.omit(directive, "the zone is not imported, or the number is not from 1 to 65535");
            return None;
        };
        self.found.differs(STATUS);
        self.found.differs(ENDS);
        Some(self.limit(directive, &zone, at_a_time(count.into()), is_dry))
    }
}

const STATUS: &str = "nginx refuses with 503, or with the status that limit_req_status or limit_conn_status \
                      sets. slowlane refuses with 429 and Retry-After.";

const BURST: &str = "nginx's burst does not include the first request: burst=5 admits six requests at once. \
                     slowlane's burst includes it. A queue of five becomes max_delay, the time that five \
                     requests take; with nodelay, burst=5 becomes burst=6.";

const ROUNDED: &str = "nginx rounds a rate down to thousandths of a request per second: 10r/m is 9.96/m in nginx, and 10/m in slowlane.";

const CUT: &str = "slowlane delays a request by at most 20 s, the longest delay that its HAProxy files allow as \
                   shipped. A request that would wait longer in nginx is refused.";

/// The fields that make up a key. A key without variables means one bucket for all requests.
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
