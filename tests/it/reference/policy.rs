//! The files of a policy: their text in `doc/reference`, and the numbers of the parser.

use std::collections::BTreeSet;

use slowlane_core::base::SloId;
use slowlane_core::base::units::{DURATION_MAX, RATE_MAX_PER_S};
use slowlane_core::law::Law;
use slowlane_core::policy::{
    AUTOMATA_MAX, BURST_YEARS_MAX, FILE_BYTES_MAX, LINE_BYTES_MAX, LIST_LINES_MAX, Method, SEARCH_STEPS_MAX,
};

use super::{agrees, config, filled, options, roff, thousands};

/// The numbers of the code that the text names between braces.
fn with_numbers(text: &str) -> String {
    let numbers = [
        ("ID_MAX", u64::from(SloId::END) - 1),
        ("RATE_MAX_PER_S", RATE_MAX_PER_S),
        ("DURATION_DAYS", DURATION_MAX.as_secs() / 86_400),
        ("BURST_YEARS_MAX", BURST_YEARS_MAX),
        ("FILE_GIB", FILE_BYTES_MAX >> 30),
        ("LINE_BYTES_MAX", LINE_BYTES_MAX as u64),
        ("LIST_LINES_MAX", LIST_LINES_MAX as u64),
        ("AUTOMATA_MAX", AUTOMATA_MAX as u64),
        ("SEARCH_STEPS_MAX", SEARCH_STEPS_MAX as u64),
    ];
    let text = numbers.iter().fold(text.to_owned(), |text, (name, number)| {
        let number = if name.starts_with("ID") { number.to_string() } else { thousands(*number) };
        text.replace(&format!("{{{name}}}"), &number)
    });
    assert!(!text.contains('{'), "a number that the code does not have: {text}");
    text
}

/// The rows of tables, with an `@` in a cell replaced by what the parser says. `named` gets each law and its option.
fn with_options(text: &str, named: &mut BTreeSet<(String, String)>) -> String {
    let (mut head, mut page): (Vec<String>, String) = (Vec::new(), String::new());
    for line in text.lines() {
        let mut cells: Vec<String> =
            line.split(" | ").map(|cell| cell.trim_matches(['|', ' ']).to_owned()).collect();
        if !line.starts_with('|') {
            head.clear();
        } else if head.is_empty() {
            head = cells.clone();
        } else if ["option", "law"].contains(&head[0].as_str()) && !line.starts_with("| ---") {
            let at = |name: &str| head.iter().position(|cell| cell == name);
            let plain =
                |at: usize| cells[at].replace('`', "").split(", ").map(str::to_owned).collect::<Vec<_>>();
            if let Some(at) = at("N") {
                cells[at] = cells[at].replace('@', &format!("1 to {}", options::window_max(&plain(0)[0])));
            } else if let (Some(of_default), Some(of_values)) = (at("default"), at("values")) {
                let laws = at("laws").map_or(vec![String::new()], plain);
                let option = plain(0).remove(0);
                named.extend(
                    laws.iter().flat_map(|law| plain(0).into_iter().map(move |option| (law.clone(), option))),
                );
                let told: BTreeSet<(Option<String>, Option<String>)> = laws
                    .iter()
                    .map(|law| {
                        let base = options::base(Some(law.as_str()).filter(|law| !law.is_empty()), &option);
                        let default =
                            cells[of_default].contains('@').then(|| options::default(&base, &option));
                        (default.flatten(), options::values(&base, &option))
                    })
                    .collect();
                assert_eq!(told.len(), 1, "{option} of {laws:?} is not the same: {told:?}");
                let (default, values) = told.first().unwrap();
                let default = default.as_deref().unwrap_or("none");
                let default = if default == "none" { default.to_owned() } else { format!("`{default}`") };
                cells[of_default] = cells[of_default].replace('@', &default);
                if cells[of_values].contains('@') {
                    let values = values.as_deref().unwrap_or_else(|| panic!("{option} takes anything"));
                    cells[of_values] = cells[of_values].replace('@', values);
                }
            }
        }
        page += &if line.starts_with("| ") {
            format!("| {} |\n", cells.join(" | "))
        } else {
            format!("{line}\n")
        };
    }
    page
}

/// The first cells of the rows below a head, without their backticks.
fn first_cells(page: &str, head: &str) -> Vec<String> {
    let (_, rows) = page.split_once(&format!("\n{head}\n")).unwrap_or_else(|| panic!("no table {head}"));
    let rows = rows.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').nth(1).unwrap().trim().replace('`', "")).collect()
}

fn page() -> String {
    let text = filled("policy.txt", |name, _| match name {
        "lookups" => config::lookups(),
        other => panic!("@{other}"),
    });
    let mut named = BTreeSet::new();
    let page = with_options(&with_numbers(&text), &mut named);
    let laws = || Law::NAMES.iter().copied().chain([Law::PROTECT]);
    let of_laws =
        laws().flat_map(|law| options::of_law(law).into_iter().map(move |option| (law.to_owned(), option)));
    let of_every_slo = options::of_every_slo().into_iter().map(|option| (String::new(), option));
    let mut parsed: BTreeSet<(String, String)> = of_laws.chain(of_every_slo).collect();
    // The line of an SLO reads these for `protect`, because they are fields of a request.
    parsed.extend(["share", "page"].map(|option| (Law::PROTECT.to_owned(), option.to_owned())));
    assert_eq!(named, parsed, "the tables of options and the parser differ");
    assert_eq!(first_cells(&page, "| law | most requests admitted | verdicts |"), laws().collect::<Vec<_>>());
    assert_eq!(
        first_cells(&page, "| `match` | a key matches if | if several match |"),
        Method::ALL.map(Method::name)
    );
    let (_, grammar) = page.split_once("```text\n<id>").unwrap();
    let (grammar, _) = grammar.split_once("```").unwrap();
    for (_, option) in parsed.iter().filter(|(law, _)| law.is_empty()) {
        assert!(grammar.contains(&format!("{option}=")), "the line of an SLO lacks {option}: {grammar}");
    }
    page
}

#[test]
fn the_page_of_the_policy_is_that_of_its_parser() {
    agrees("doc/book/reference-policy.md", &page());
}

#[test]
fn the_manual_page_of_the_policy_is_that_of_its_parser() {
    agrees("doc/man/slo.map.5", &roff::page("slo.map", &page()));
}
