//! `slowlane help TOPIC`: a page of the manual for the terminal.

use std::ffi::OsString;

use clap::{Command, error::ErrorKind};

/// The pages that the program contains, by topic.
const PAGES: [(&str, &str); 8] = [
    ("faults", include_str!("../../doc/book/faults.md")),
    ("fields", include_str!("../../doc/book/fields.md")),
    ("haproxy", include_str!("../../doc/book/haproxy.md")),
    ("laws", include_str!("../../doc/book/laws.md")),
    ("limits", include_str!("../../doc/book/limits.md")),
    ("nginx", include_str!("../../doc/book/nginx.md")),
    ("protect", include_str!("../../doc/book/protect.md")),
    ("throttled", include_str!("../../doc/book/throttled.md")),
];

/// The page that `help TOPIC` names, or `None` for other commands and their help. An unknown topic ends the process.
pub(super) fn asked(words: &[OsString], mut cli: Command) -> Option<String> {
    cli.build();
    let topic = words.get(1).filter(|word| words[0] == "help" && cli.find_subcommand(word).is_none())?;
    let page = PAGES.iter().find(|(name, _)| topic == name).map(|(_, page)| plain(page));
    Some(page.unwrap_or_else(|| {
        let names = PAGES.map(|(name, _)| name).join(", ");
        let error = format!("there is no command or topic {topic:?}: the topics are {names}");
        cli.error(ErrorKind::InvalidSubcommand, error).exit()
    }))
}

/// A page as plain text: code is indented, links become their text, and pictures are left out.
fn plain(page: &str) -> String {
    let parts = page.split("```").enumerate().map(|(number, part)| match number % 2 {
        0 => unlinked(part.strip_prefix('\n').unwrap_or(part)),
        _ => part.lines().skip(1).map(|line| format!("    {line}\n")).collect(),
    });
    parts.collect::<String>().replace("\n\n\n\n", "\n\n")
}

fn unlinked(mut text: &str) -> String {
    let mut plain = String::new();
    while let Some((before, link)) = text.split_once("](") {
        let (before, name) = before.rsplit_once('[').unwrap_or(("", before));
        plain += before.strip_suffix('!').unwrap_or(before);
        plain += if before.ends_with('!') { "" } else { name };
        text = link.split_once(')').map_or("", |(_, after)| after);
    }
    plain + text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_shown_without_its_marks() {
        let page = "# A page\n\n![A\npicture](a.svg)\n\nSee [a\nlink](b.md#c), `[x]` and [d](e).\n\n- An item\n  goes on.\n\n\
                    ```sh\n# [a](b)\n```\n\n| a | b |\n";
        let shown =
            "# A page\n\nSee a\nlink, `[x]` and d.\n\n- An item\n  goes on.\n\n    # [a](b)\n\n| a | b |\n";
        assert_eq!(plain(page), shown);
    }

    #[test]
    fn every_page_is_a_topic_that_the_help_names() {
        let names = PAGES.map(|(name, _)| name).join(", ");
        assert!(include_str!("help/slowlane.txt").contains(&format!("; topics: {names}\n")), "{names}");
        for (name, page) in PAGES {
            let text = plain(page);
            let has_marks = |line: &str| line.contains("](") || line.contains("```");
            let marked = text.lines().find(|line| !line.starts_with("    ") && has_marks(line));
            assert_eq!((text.len() > 1_000, marked), (true, None), "{name}");
        }
    }
}
