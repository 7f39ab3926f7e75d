//! Envoy's rate limit service: descriptors of a domain.

use crate::import::ImportError;
use crate::import::rule::{ADDRESSES, Condition, ImportFindings, Limit, Match, Rule, quoted};
use crate::import::yaml::{YamlNode, documents};

/// Periods that the service names, and their names in a rate.
const UNITS: [(&str, &str); 5] =
    [("second", "s"), ("minute", "m"), ("hour", "h"), ("day", "d"), ("month", "month")];

pub(super) fn read(all: &[YamlNode]) -> Result<ImportFindings, ImportError> {
    let mut found = ImportFindings::default();
    for document in all {
        domain(document, &mut found)?;
        let is_map = |object: &&YamlNode| object.get("kind").text() == "ConfigMap";
        let files = document.objects().filter(is_map).flat_map(|map| map.get("data").entries());
        for (_, file) in files.filter(|(_, file)| file.text().contains("descriptors:")) {
            documents(file.text(), file.line.above())?
                .iter()
                .try_for_each(|inner| domain(inner, &mut found))?;
        }
    }
    if !found.is_empty() {
        found.differs(
            "Windows follow the clock in UTC, as Envoy's do. N requests may pass at the end of one, and N at the start of \
             the next.",
        );
        found.differs(
            "Envoy applies every descriptor of a request. slowlane applies the first lookup that matches, and one more with \
             also=.",
        );
        found.differs(
            "The proxy must send each key as a field: X-Slowlane-<Key> over HTTP, an argument over SPOE. remote_address is \
             source, and host is website.",
        );
    }
    Ok(found)
}

fn domain(node: &YamlNode, found: &mut ImportFindings) -> Result<(), ImportError> {
    descriptors(node, node.get("domain").text(), &[], found)
}

/// Adds the rules of descriptors below others. The limit on YAML's depth bounds the tree.
fn descriptors(
    node: &YamlNode,
    domain: &str,
    above: &[Condition],
    found: &mut ImportFindings,
) -> Result<(), ImportError> {
    for descriptor in node.get("descriptors").items() {
        let field = match descriptor.get("key").text() {
            "remote_address" | "masked_remote_address" => "source",
            "host" | ":authority" | "authority" => "website",
            key => key,
        };
        let value = descriptor.get("value").text();
        let is = match value.strip_suffix('*') {
            Some(prefix) => Match::Prefix(prefix.to_owned()),
            None if value.is_empty() => Match::Any,
            None if field == "source" => Match::Network(value.to_owned()),
            None => Match::Exact(value.to_owned()),
        };
        let scope: Vec<Condition> = above.iter().cloned().chain([(field.to_owned(), is)]).collect();
        rule(descriptor, domain, &scope, found)?;
        descriptors(descriptor, domain, &scope, found)?;
    }
    Ok(())
}

fn rule(
    descriptor: &YamlNode,
    domain: &str,
    scope: &[Condition],
    found: &mut ImportFindings,
) -> Result<(), ImportError> {
    let line = descriptor.line;
    let path = scope.iter().map(|(field, is)| match is {
        Match::Any => field.clone(),
        Match::Network(value) | Match::Exact(value) => format!("{field}={value}"),
        Match::Prefix(value) => format!("{field}={value}*"),
    });
    let path = path.collect::<Vec<_>>().join(", ");
    let add = |found: &mut ImportFindings, limits| {
        found.rule(Rule { line, scope: scope.to_vec(), limits, ..Rule::default() })
    };
    let limit = descriptor.get("rate_limit");
    if limit.is_none() && !descriptor.get("descriptors").is_none() {
        return Ok(());
    }
    // A descriptor without a limit and without descriptors below is an exception.
    if limit.is_none() || limit.get("unlimited").text() == "true" {
        return add(found, Vec::new());
    }
    let (unit, count) = (limit.get("unit").text(), limit.get("requests_per_unit").text());
    let text = format!("{domain}: {path}: {count} per {unit}");
    if !limit.get("replaces").is_none() {
        let reason = "`replaces` is not imported: the limit applies together with those that it replaces";
        found.omissions.add(line, &text, reason);
    }
    let period = UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name));
    let (Some((_, period)), Ok(count)) = (period, count.parse::<u64>()) else {
        found.omissions.add(line, &text, "expected a whole number per second, minute, hour, day or month");
        return Ok(());
    };
    if *period == "month" {
        found.differs("A month is a calendar month. Envoy's has 30 days.");
    }
    if scope.iter().any(|(field, is)| field == "source" && *is == Match::Any) {
        found.differs(ADDRESSES);
    }
    let is_shadow = descriptor.get("shadow_mode").text() == "true";
    let law = if count == 0 { "" } else { " law=fixed-window reset=calendar" };
    let dry = if is_shadow { " dry_run=yes" } else { "" };
    let key = scope.iter().map(|(field, _)| field.clone()).collect();
    let options = format!("burst=0 rate={count}/{period}{law}{dry}");
    add(found, vec![Limit { counter: String::new(), key, options, line, quoted: quoted(&text) }])
}
