//! Imports HAProxy's rules that refuse requests based on a rate or a number of connections in a stick table.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use slowlane_core::base::{plural, units};

use crate::import::files::{ForeignFile, of_rules};
use crate::import::rule::{
    ADDRESSES, Condition, ENDS, FileLine, ImportFindings, Limit, Match, Rule, at_a_time, covers, quoted, rate,
};
use crate::import::{ImportError, Input, RULES_MAX};
use crate::proxy::haproxy_syntax::{Config, Line};

/// A part of a condition: whether it is negated, and the words of its expression.
type Term<'w> = (bool, &'w [String]);

/// A rule that refuses requests above a limit.
struct LimitRule {
    section: String,
    scopes: Vec<Vec<Condition>>,
    /// Networks that the rule does not apply to.
    networks: Vec<String>,
    limit: Limit,
    /// The maximum number of requests or connections that pass.
    most: u64,
}

/// The tables, ACLs and tracked keys that the lines declare.
#[derive(Default)]
struct Declared<'l> {
    /// The period of `http_req_rate` in milliseconds, by the name of the table.
    periods: BTreeMap<String, u64>,
    /// The expressions of each ACL, by section and name. An ACL holds if one of its expressions holds.
    acls: BTreeMap<(&'l str, &'l str), Vec<&'l [String]>>,
    /// The first `track-sc` line for each section and counter number.
    tracks: BTreeMap<(&'l str, &'l str), &'l Line<'l>>,
}

/// The maximum number of parts in a condition.
const TERMS_MAX: usize = 16;

/// The maximum number of combinations of values in one condition.
const SCOPES_MAX: usize = 64;

pub(super) fn read(input: &Input<'_>, found: &mut ImportFindings) -> Result<Vec<ForeignFile>, ImportError> {
    let texts: Vec<&str> = input.texts.iter().map(|(_, text)| text.as_str()).collect();
    let config = Config::read(&texts);
    let lines = || config.lines.iter().filter(|line| !line.words.is_empty() && !line.is_head);
    let declared = Declared::of(lines());
    let (mut refusals, mut limits) = (Vec::new(), 0);
    for line in lines() {
        let (place, text) = (line.place(), line.text.trim());
        if let Some(reason) = unknown(&line.words) {
            found.omit(place, text, reason);
        }
        let condition = line.condition();
        if !condition.iter().any(|word| is_counter(word) || declared.counts(&line.section, word)) {
            continue;
        }
        let Some(action) = line.action() else {
            found.omit(place, text, "only rules for requests can be imported as limits");
            continue;
        };
        limits += 1;
        if limits > RULES_MAX {
            return Err(ImportError::TooMany);
        }
        if !["deny", "tarpit", "reject", "silent-drop", "return"].contains(&action) {
            found.omit(place, text, "only rules that refuse requests can be imported as limits");
            continue;
        }
        let terms = declared.terms(&line.section, condition);
        let terms = terms.ok_or("the condition is too long or has alternatives: split the rule".to_owned());
        match terms.and_then(|terms| declared.refusal(line, &terms, found)) {
            Ok(refusal) => refusals.push(refusal),
            Err(reason) => found.omit(place, text, reason),
        }
        if !line.words.windows(2).any(|pair| pair == ["deny_status", "429"]) {
            found.differs("HAProxy refuses with the status in deny_status (403 by default), or closes the connection. slowlane refuses with 429 and Retry-After.");
        }
    }
    combine(&refusals, found)?;
    Ok(of_rules(found))
}

/// Adds a rule for each scope, with the limits of all scopes in the same section that contain this scope.
fn combine(refusals: &[LimitRule], found: &mut ImportFindings) -> Result<(), ImportError> {
    let mut seen: Vec<(&str, &Vec<Condition>)> = Vec::new();
    for refusal in refusals {
        for scope in &refusal.scopes {
            if let Some((section, _)) = seen.iter().find(|(_, other)| *other == scope) {
                if *section != refusal.section {
                    let reason = format!(
                        "{section} limits the same requests: slowlane does not know a request's section"
                    );
                    found.omit(refusal.limit.line, &refusal.limit.quoted, reason);
                }
                continue;
            }
            seen.push((&refusal.section, scope));
            let mut around: Vec<&LimitRule> =
                refusals.iter().filter(|other| other.section == refusal.section).collect();
            around.retain(|other| other.scopes.iter().any(|outer| covers(outer, scope)));
            // If one counter has two limits, the lower limit applies.
            around.sort_by_key(|other| other.most);
            let mut chain: Vec<&LimitRule> = Vec::new();
            for other in around {
                if chain.iter().all(|own| own.limit.counter != other.limit.counter) {
                    chain.push(other);
                }
            }
            chain.sort_by_key(|own| own.limit.line);
            let line = refusal.limit.line;
            let has = |network: &&String| chain.iter().all(|own| own.networks.contains(network));
            let (networks, partial): (Vec<&String>, Vec<&String>) = refusal.networks.iter().partition(has);
            for network in partial {
                found.omit(line, network, "slowlane cannot exempt a network from only some limits");
            }
            let networks = networks.into_iter().cloned().collect();
            let limits = chain.iter().map(|own| own.limit.clone()).collect();
            found.rule(Rule { line, scope: scope.clone(), limits, networks })?;
        }
    }
    Ok(())
}

impl Line<'_> {
    fn place(&self) -> FileLine {
        FileLine { file: self.file, number: self.number }
    }

    /// The action of a rule for requests, like `deny`. `None` for other lines.
    fn action(&self) -> Option<&str> {
        let word = match self.words.first()?.as_str() {
            "http-request" => 1,
            "tcp-request" => 2,
            "use_backend" => 0,
            _ => return None,
        };
        self.words.get(word).map(String::as_str)
    }

    /// The condition: `if` or `unless`, and all words after it.
    fn condition(&self) -> &[String] {
        let begin = self.words.iter().position(|word| word == "if" || word == "unless");
        begin.map_or(&[], |begin| &self.words[begin..])
    }
}

impl<'l> Declared<'l> {
    fn of(lines: impl Iterator<Item = &'l Line<'l>>) -> Declared<'l> {
        let mut declared = Declared::default();
        for line in lines {
            let (section, words) =
                (line.section.as_str(), line.words.iter().map(String::as_str).collect::<Vec<_>>());
            match words[..] {
                ["stick-table", ..] => declared.table(section.to_owned(), &words),
                ["table", name, ..] => declared.table(format!("{section}/{name}"), &words),
                ["acl", name, ..] => {
                    declared.acls.entry((section, name)).or_default().push(&line.words[2..]);
                }
                _ => {
                    let number = line.action().and_then(|action| action.strip_prefix("track-sc"));
                    number.map(|number| declared.tracks.entry((section, number)).or_insert(line));
                }
            }
        }
        declared
    }

    fn table(&mut self, name: String, words: &[&str]) {
        let stored = words
            .iter()
            .flat_map(|word| word.split(","))
            .find_map(|word| word.strip_prefix("http_req_rate("));
        let period = stored.and_then(|period| milliseconds(period.trim_end_matches(')')));
        self.periods.insert(name, period.unwrap_or(0));
    }

    /// Whether a word of a condition names an ACL that reads a counter.
    fn counts(&self, section: &str, word: &str) -> bool {
        let named = self.acls.get(&(section, word.trim_start_matches('!'))).into_iter().flatten();
        named.filter_map(|words| words.first()).any(|word| is_counter(word))
    }

    /// The parts of a condition, all of which must hold. `None` if the condition has alternatives or too many parts.
    fn terms(&self, section: &str, condition: &'l [String]) -> Option<Vec<Term<'l>>> {
        let (mut terms, mut is_not) = (Vec::new(), condition.first().is_some_and(|word| word == "unless"));
        if is_not && condition.iter().filter(|word| word.as_str() == "}").count() > 1 {
            return None;
        }
        let mut at = 1;
        while let Some(word) = condition.get(at) {
            let name = word.trim_start_matches('!');
            is_not ^= (word.len() - name.len()) % 2 == 1;
            at += 1;
            match name {
                "" => continue,
                "or" | "||" => return None,
                _ if terms.len() == TERMS_MAX => return None,
                "{" => {
                    let end = condition[at..].iter().position(|word| word == "}")? + at;
                    terms.push((is_not, &condition[at..end]));
                    at = end + 1;
                }
                name => match self.acls.get(&(section, name)).map(Vec::as_slice) {
                    None => terms.push((is_not, &condition[at - 1..at])),
                    Some([expression]) => terms.push((is_not, expression)),
                    Some(_) => return None,
                },
            }
            is_not = false;
        }
        Some(terms)
    }

    fn refusal(
        &self,
        line: &'l Line<'l>,
        terms: &[Term<'l>],
        found: &mut ImportFindings,
    ) -> Result<LimitRule, String> {
        let is_limit = |(_, words): &&Term<'_>| words.first().is_some_and(|word| is_counter(word));
        let limits: Vec<&Term<'_>> = terms.iter().filter(is_limit).collect();
        let [(false, expression)] = limits[..] else {
            return Err("expected one counter in the condition, without `!`".to_owned());
        };
        let (limit, most, tracked) = self.limit(line, expression, found)?;
        let tracked = tracked.map_or(Some(Vec::new()), |track| self.terms(&track.section, track.condition()));
        let tracked = tracked.ok_or("the track-sc line's condition is too long or has alternatives")?;
        let (mut scopes, mut networks) = (vec![Vec::new()], Vec::new());
        for (is_not, words) in terms.iter().filter(|term| !is_limit(term)).chain(&tracked) {
            let matches = conditions(words)?;
            if *is_not && matches.iter().all(|(_, is)| matches!(is, Match::Network(_))) {
                networks.extend(matches.iter().filter_map(|(_, is)| is.value()).map(str::to_owned));
                if networks.len() > RULES_MAX {
                    return Err(format!("the rule has more than {RULES_MAX} networks"));
                }
                continue;
            }
            if *is_not {
                return Err(format!("no map can express `!{}`", words.join(" ")));
            }
            if scopes.len() * matches.len() > SCOPES_MAX {
                return Err(format!("the conditions have more than {SCOPES_MAX} combinations of values"));
            }
            let with = |scope: &Vec<Condition>| -> Vec<Vec<Condition>> {
                matches.iter().map(|new| [&scope[..], slice::from_ref(new)].concat()).collect()
            };
            scopes = scopes.iter().flat_map(with).collect();
        }
        if scopes != [Vec::new()] {
            found.differs(
                "HAProxy counts every request that track-sc tracks. slowlane counts only the requests that \
                 meet all conditions.",
            );
        }
        Ok(LimitRule { section: line.section.clone(), scopes, networks, limit, most })
    }

    /// The limit in an expression like `sc_http_req_rate(0) gt 20`, the number, and the line that tracks the key.
    fn limit(
        &self,
        line: &Line<'_>,
        words: &[String],
        found: &mut ImportFindings,
    ) -> Result<(Limit, u64, Option<&'l Line<'l>>), String> {
        let (name, arguments) = parts(&words[0]);
        let arguments: Vec<&str> =
            arguments.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        let unknown = || format!("slowlane does not count {name}");
        if name.contains('(') {
            return Err(unknown());
        }
        let (key, fetch, table, track) = if let Some(fetch) = name.strip_prefix("src_") {
            ("src", fetch, arguments.first().copied(), None)
        } else {
            let rest = name.strip_prefix("sc").ok_or_else(unknown)?;
            let (number, fetch) = rest.split_once('_').ok_or_else(unknown)?;
            let (number, table) = match number {
                "" => (*arguments.first().ok_or_else(unknown)?, arguments.get(1).copied()),
                number => (number, arguments.first().copied()),
            };
            let own = self.tracks.get(&(line.section.as_str(), number));
            let other = || self.tracks.iter().find(|((_, other), _)| *other == number).map(|(_, line)| line);
            let track = *own.or_else(other).ok_or_else(|| format!("no line tracks sc{number}"))?;
            let tracked = &track.words[usize::from(track.words[0] == "tcp-request") + 2..];
            let named = tracked.iter().skip_while(|word| *word != "table").nth(1).map(String::as_str);
            let key = tracked.first().map_or("", String::as_str);
            (key, fetch, table.or(named).or(Some(&track.section)), Some(track))
        };
        let table = table.unwrap_or(&line.section);
        let key = key_fields(key)?;
        let operands: Vec<&str> =
            words[1..].iter().map(String::as_str).filter(|word| !["-m", "int"].contains(word)).collect();
        if !["http_req_rate", "conn_cur"].contains(&fetch) {
            return Err(unknown());
        }
        let most = match operands[..] {
            ["gt", count] => count.parse::<u64>().ok(),
            ["ge", count] => count.parse::<u64>().ok().and_then(|count| count.checked_sub(1)),
            _ => None,
        };
        let most = most.filter(|most| *most > 0).ok_or("expected gt or ge, and a whole number above 0")?;
        let options = match fetch {
            "http_req_rate" => {
                let period = self.periods.get(table).copied().filter(|&period| period > 0);
                let period = period.ok_or_else(|| format!("no table {table} stores http_req_rate"))?;
                let (rate, is_exact) = rate(most, period);
                if !is_exact {
                    found.differs(format!(
                        "A limit of {} in {period} ms becomes {rate}, which is a little more.",
                        plural(most, "request")
                    ));
                }
                found.differs(REFUSED);
                found.differs(DELAY);
                let window = units::written(Duration::from_millis(period));
                format!("burst=0 rate={rate} law=sliding-window window={window}")
            }
            _ => {
                found.differs(ENDS);
                at_a_time(most)
            }
        };
        if key.iter().any(|field| field == "source") {
            found.differs(ADDRESSES);
        }
        let counter = format!("{table} {fetch}");
        Ok((
            Limit { counter, key, options, line: line.place(), quoted: quoted(line.text.trim()) },
            most,
            track,
        ))
    }
}

/// The reason why a line that affects limits other than by a condition is not imported as it stands.
fn unknown(words: &[String]) -> Option<&'static str> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let stores = |word: &&str| word.contains("_rate(") || word.contains("sc_") || word.starts_with("%[sc");
    Some(match words[..] {
        [".if" | ".elif" | ".else", ..] => "the lines in this block are imported as if they were in force",
        ["rate-limit", ..] => "this line limits the sessions of a whole frontend",
        ["filter", filter, ..] if filter.starts_with("bwlim") => "bytes per second are limited, not requests",
        [_, "set-bandwidth-limit", ..] => "bytes per second are limited, not requests",
        [_, action, ..] if action.starts_with("lua.") => "Lua code is not read, but may limit requests",
        ["server" | "default-server", ref options @ ..] if options.contains(&"maxconn") => {
            "a server's maxconn limits the connections to the server, not a client's connections"
        }
        ref rest if rest.iter().any(|word| is_of_all(word)) => {
            "this line counts a whole frontend, backend or server"
        }
        [
            "http-request" | "tcp-request" | "http-response" | "http-after-response" | "tcp-response",
            ref rest @ ..,
        ] if rest.iter().any(|word| word.starts_with("set-var") || word.starts_with("sc-"))
            && rest.iter().any(stores) =>
        {
            "slowlane does not follow a counter in a variable: rules that read the variable are not imported"
        }
        _ => return None,
    })
}

pub(super) const REFUSED: &str = "HAProxy counts refused requests, too: a client that does not slow down \
                                  stays refused. slowlane counts only the requests that it admits, so such \
                                  a client still gets its rate. The periods of the two programs begin at \
                                  different moments, so verdicts near the limit differ.";

const DELAY: &str = "To delay requests instead of refusing them, replace `burst=0` with a burst, and remove law= and window=.";

/// Whether a word fetches a counter of a stick table, directly or through a `table_` converter.
fn is_counter(word: &str) -> bool {
    let looked_up = word.split_once(",table_").map(|(_, fetch)| fetch);
    let fetch = looked_up.unwrap_or(word).split('(').next().unwrap_or_default();
    let is_tracked = fetch
        .strip_prefix("sc")
        .is_some_and(|rest| rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).starts_with('_'));
    let is_number = ["_rate", "_cnt", "_cur"].iter().any(|ending| fetch.ends_with(ending))
        || fetch.contains("gpc")
        || fetch.contains("gpt");
    is_number && (is_tracked || looked_up.is_some() || fetch.starts_with("src_"))
}

/// Whether a word fetches a number that a frontend, a backend or a server counts for all its clients together.
fn is_of_all(word: &str) -> bool {
    let fetch = word.trim_start_matches('!').split('(').next().unwrap_or_default();
    let is_of = ["fe_", "be_", "srv_"].iter().any(|of| fetch.starts_with(of));
    ["queue", "avg_queue", "connslots"].contains(&fetch) && word.contains('(')
        || is_of && ["_rate", "_conn", "_queue"].iter().any(|ending| fetch.ends_with(ending))
}

/// The name of a fetch, and its arguments.
fn parts(word: &str) -> (&str, &str) {
    match word.rsplit_once('(') {
        Some((name, rest)) => (name, rest.trim_end_matches(')')),
        None => (word, ""),
    }
}

/// The alternatives of a condition that is not a limit. At least one alternative must match.
fn conditions(words: &[String]) -> Result<Vec<Condition>, String> {
    let unknown = || format!("no map can express `{}`", words.join(" "));
    let (name, mut values) = words.split_first().ok_or_else(unknown)?;
    let (field, is): (&str, fn(String) -> Match) = match parts(name) {
        (method, "") if method.starts_with("METH_") => {
            return Ok(vec![("method".to_owned(), Match::Exact(method["METH_".len()..].to_owned()))]);
        }
        ("src", "") => ("source", Match::Network),
        ("path", "") => ("path", Match::Exact),
        ("path_beg", "") => ("path", Match::Prefix),
        ("method", "") => ("method", Match::Exact),
        ("hdr" | "req.hdr" | "req.fhdr", header) if header.eq_ignore_ascii_case("host") => {
            ("website", Match::Exact)
        }
        _ => return Err(unknown()),
    };
    if field == "website" && values.first().is_some_and(|flag| flag == "-i") {
        values = &values[1..];
    }
    if values.is_empty() || values.iter().any(|value| value.starts_with('-')) {
        return Err(unknown());
    }
    Ok(values.iter().map(|value| (field.to_owned(), is(value.clone()))).collect())
}

/// The fields that make up a tracked key.
fn key_fields(key: &str) -> Result<Vec<String>, String> {
    let unknown = || format!("slowlane has no field for {key:?}");
    let (fetch, converter) = key.split_once(',').unwrap_or((key, ""));
    match parts(converter) {
        ("" | "lower", _) => {}
        // The mask for IPv6 is not read: slowlane counts IPv6 addresses by network, as the note `ADDRESSES` says.
        ("ipmask", mask) if mask == "32" || mask.starts_with("32,") => {}
        ("ipmask", _) => return Err("slowlane counts each IPv4 address, not its network".to_owned()),
        _ => return Err(unknown()),
    }
    let fields: &[&str] = match parts(fetch) {
        ("src", "") => &["source"],
        ("base" | "base32", "") => &["base"],
        ("base32+src", "") => &["base", "source"],
        ("url" | "url32", "") => &["url"],
        ("url32+src", "") => &["source", "url"],
        ("path", "") => &["path"],
        ("method", "") => &["method"],
        // A constant key means one bucket for all requests.
        ("str" | "int" | "always_true", _) => &[],
        ("hdr" | "req.hdr" | "req.fhdr", header) => {
            let name = header.to_ascii_lowercase().replace('-', "_");
            return match name.as_str() {
                "host" => Ok(vec!["website".to_owned()]),
                "user_agent" | "referer" | "origin" => Ok(vec![name]),
                _ if name.starts_with("x_") => Ok(vec![name]),
                _ => Err(unknown()),
            };
        }
        _ => return Err(unknown()),
    };
    Ok(fields.iter().map(|field| (*field).to_owned()).collect())
}

/// Converts a time in HAProxy's notation to milliseconds. A number without a unit is in milliseconds.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let text =
        if text.bytes().all(|byte| byte.is_ascii_digit()) { format!("{text}ms") } else { text.to_owned() };
    units::duration(&text).ok().and_then(|duration| u64::try_from(duration.as_millis()).ok())
}
