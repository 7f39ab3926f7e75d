//! The generated reference: each page of it is what the program and its files say.

mod commands;
mod config;
mod json;
mod metrics;
mod options;
mod policy;
mod roff;

use std::{env, fs};

use crate::support::project;

/// Compares a page with the one that the program makes now, or writes it.
fn agrees(path: &str, made: &str) {
    if env::var_os("SLOWLANE_WRITE_REFERENCE").is_some() {
        return fs::write(project(path), made).unwrap();
    }
    let page = fs::read_to_string(project(path)).unwrap_or_default();
    let mut lines = page.lines().zip(made.lines());
    let differing =
        lines.find(|(is, should)| is != should).map(|(is, should)| format!("\n- {is}\n+ {should}"));
    assert!(
        page == made,
        "{path} is generated, and the program says something else{}\n\
         SLOWLANE_WRITE_REFERENCE=1 cargo test --test it reference:: writes it",
        differing.unwrap_or_default()
    );
}

/// A page from its source in `doc/reference`: a line `@name words` is replaced by what `make` returns for it.
fn filled(source: &str, mut make: impl FnMut(&str, &str) -> String) -> String {
    let text = fs::read_to_string(project("doc/reference").join(source)).unwrap();
    let mut page = String::new();
    for line in text.lines() {
        match line.strip_prefix('@') {
            Some(directive) => {
                let (name, words) = directive.split_once(' ').unwrap_or((directive, ""));
                page += make(name, words).trim_end();
            }
            None => page += line,
        }
        page.push('\n');
    }
    page
}

/// A table of Markdown. Cells may have any characters.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace("  ", " "));
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let rule = vec!["---".to_owned(); head.len()];
    let escaped = |cells: Vec<String>| cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>();
    let rows: String = rows.into_iter().map(|cells| line(&escaped(cells))).collect();
    line(&head) + &line(&rule) + &rows
}

/// Text with its code between backticks: names with an underscore, quoted values, paths, URLs, empty lists.
fn marked(text: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (number, part) in text.split('`').enumerate() {
        let word = |word: &str| {
            let core = word.trim_matches([',', ';', ':', '.', '(', ')']);
            let is_quoted = core.len() > 1 && core.starts_with('"') && core.ends_with('"');
            let is_code = is_quoted
                || core == "[]"
                || core.len() > 1 && core.starts_with(['/', '['])
                || core.contains(['_', '@'])
                || core.ends_with(".map") && core.len() > 4
                || core.contains("://")
                || core.contains(":/")
                || core.starts_with("unix:") && core.len() > 4;
            if is_code { word.replacen(core, &format!("`{core}`"), 1) } else { word.to_owned() }
        };
        parts.push(match number % 2 {
            0 => part.split(' ').map(word).collect::<Vec<_>>().join(" "),
            _ => part.to_owned(),
        });
    }
    parts.join("`")
}

/// A number with a comma between thousands.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The numbers of a text with a comma between thousands, from a million on.
fn grouped(text: &str) -> String {
    let word = |word: &str| match word.parse::<u64>() {
        Ok(number) if number >= 10_000 => thousands(number),
        _ => word.to_owned(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The text with its first letter in upper case and a full stop.
fn sentence(text: &str) -> String {
    if let Some(link) = text.strip_prefix('[').filter(|link| link.starts_with(char::is_alphabetic)) {
        return format!("[{}", sentence(link));
    }
    let text = text.trim_end_matches(['.', ' ']);
    let mut letters = text.chars();
    match letters.next() {
        // The name of a file or of a key keeps its first letter.
        Some(first)
            if !text
                .split(' ')
                .next()
                .is_some_and(|word| word.contains(['_', '`', '/']) || word == "nginx") =>
        {
            first.to_uppercase().chain(letters).collect::<String>() + "."
        }
        Some(_) => format!("{text}."),
        None => String::new(),
    }
}
