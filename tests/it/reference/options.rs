//! The options of SLOs as the parser has them: their defaults, and the values that it takes.

use std::collections::BTreeSet;
use std::fs;

use slowlane_core::base::SloId;
use slowlane_core::law::Law;
use slowlane_core::policy::Slo;

use super::{grouped, thousands};
use crate::support::project;

/// A line of `slo.map` with this law, or with this option of every SLO.
pub fn base(law: Option<&str>, option: &str) -> String {
    match (law, option) {
        (Some(Law::PROTECT), _) => "law=protect".to_owned(),
        (Some(law), _) => format!("burst=20 rate=10/s law={law}"),
        (None, "reserve" | "lease") => "burst=20 rate=10/s unit=tokens".to_owned(),
        (None, "assured") => "burst=20 rate=10/s also=website".to_owned(),
        (None, "burst") => "rate=10/s".to_owned(),
        (None, "rate") => "burst=20".to_owned(),
        (None, _) => "burst=20 rate=10/s".to_owned(),
    }
}

fn parse(line: &str) -> Result<Slo, String> {
    Slo::parse(SloId::DEFAULT, line).map_err(|errors| errors[0].to_string())
}

/// The part of an error after "expected".
fn expected(base: &str, option: &str, value: &str) -> Option<String> {
    let error = parse(&format!("{base} {option}={value}")).err()?;
    Some(error.split_once("expected ")?.1.trim_start_matches("one of ").to_owned())
}

/// The value that an option has where it is not given. None: it has no default that can be written.
pub fn default(base: &str, option: &str) -> Option<String> {
    let without = parse(base).unwrap_or_else(|error| panic!("{base}: {error}"));
    let words = expected(base, option, "?").unwrap_or_default().replace(" or ", ", ");
    let words = words.split(", ").map(str::to_owned);
    let fields = ["source", "network+source", "p90"].map(str::to_owned);
    let numbers = (1..=1000).flat_map(|n| [n.to_string(), (f64::from(n) / 1000.0).to_string()]);
    let tenths = (11..100).map(|n| (f64::from(n) / 10.0).to_string());
    let times =
        ["s", "ms", "m", "h", "d"].into_iter().flat_map(|unit| (1..=60).map(move |n| format!("{n}{unit}")));
    let mut candidates = words.chain(fields).chain(numbers).chain(tenths).chain(times);
    candidates.find(|value| parse(&format!("{base} {option}={value}")).is_ok_and(|slo| slo == without))
}

/// The values that an option takes, in words. None: any text.
pub fn values(base: &str, option: &str) -> Option<String> {
    let expected = |value: &str| expected(base, option, value);
    let text = expected("?")?;
    if text.starts_with("a whole number and a unit") {
        let most = expected("300d").map(|text| text.trim_start_matches("at most ").to_owned());
        let least = expected("1us").map(|text| text.trim_start_matches("at least ").to_owned());
        return Some(match (least, most) {
            (Some(least), most) => format!("{least} to {}", most.unwrap_or_else(|| "366d".to_owned())),
            (None, Some(most)) => format!("at most {most}"),
            (None, None) => "a duration".to_owned(),
        });
    }
    if let Some(range) = text.strip_prefix("a number from ") {
        return Some(grouped(range));
    }
    if text.contains(" or ")
        && !text.contains("a name")
        && !text.contains("an amount")
        && !text.contains("like")
    {
        return Some(quoted(&text.replace(" or ", ", ")));
    }
    Some(if option == "law" { quoted(&text) } else { text })
}

/// Words between backticks.
fn quoted(words: &str) -> String {
    words.split(", ").map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// The options of a law by its own error.
pub fn of_law(law: &str) -> Vec<String> {
    let base = base(Some(law), "");
    let error = parse(&format!("{base} nothing=1")).unwrap_err();
    let (_, options) = error.split_once(" takes ").unwrap_or_else(|| panic!("{error}"));
    options.split(", ").filter(|&option| option != "none").map(str::to_owned).collect()
}

/// The options that the code of an SLO's line reads, whatever the law.
pub fn of_every_slo() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in ["slo.rs", "work.rs"] {
        let text = fs::read_to_string(project("crates/core/src/policy/read").join(file)).unwrap();
        for call in text.split("options.").skip(1) {
            let named = call
                .split_once("(\"")
                .filter(|(method, _)| method.chars().all(|c| c.is_lowercase() || c == '_'));
            found.extend(named.map(|(_, rest)| rest.split('"').next().unwrap().to_owned()));
        }
    }
    // These two it reads for a law, because they are fields of a request.
    found.retain(|option| !["share", "page"].contains(&option.as_str()));
    found
}

/// The most requests in a window of a law.
pub fn window_max(law: &str) -> String {
    let is_taken = |count: u64| parse(&format!("burst=1 rate={count}/d law={law}")).is_ok();
    let (mut taken, mut refused) = (1, 1 << 40);
    while taken + 1 < refused {
        let middle = u64::midpoint(taken, refused);
        if is_taken(middle) { taken = middle } else { refused = middle }
    }
    thousands(taken)
}
