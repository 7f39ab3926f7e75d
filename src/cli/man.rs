//! `slowlane man` and `slowlane completions`: manual pages and completions, generated from the help texts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Command, ValueHint};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::cli::say;

pub(super) const EXAMPLES: &str = include_str!("help/man.txt");

#[derive(Debug, Args)]
pub(super) struct ManArguments {
    /// Write slowlane.1 and a page for each command to this directory, instead of printing slowlane.1
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

/// A manual page: the name of its file, and its text in roff.
struct Page {
    file: String,
    text: Vec<u8>,
}

pub(super) fn man(command: Command, typed: &ManArguments) -> anyhow::Result<()> {
    let pages = pages(command)?;
    match &typed.dir {
        Some(dir) => write(dir, &pages),
        None => say(&pages[0].text),
    }
}

fn write(dir: &Path, pages: &[Page]) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for page in pages {
        let path = dir.join(&page.file);
        fs::write(&path, &page.text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The page of slowlane, followed by the pages of all commands and subcommands.
fn pages(command: Command) -> io::Result<Vec<Page>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut commands = vec![command];
    let mut pages = Vec::new();
    while let Some(command) = commands.pop() {
        pages.push(page(&command)?);
        commands.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
    }
    pages[1..].sort_by(|one, other| one.file.cmp(&other.file));
    Ok(pages)
}

/// The page of a command. Its `after_help` is written here, because the generator would join the lines of its examples.
fn page(command: &Command) -> io::Result<Page> {
    let bare = command.clone().after_help(None::<&'static str>).after_long_help(None::<&'static str>);
    let man = Man::new(bare).manual("slowlane").source(format!("slowlane {}", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render(&mut text)?;
    let after = command.get_after_long_help().or(command.get_after_help());
    if let Some(after) = after {
        text.extend(sections(&after.to_string()).bytes());
    }
    let is_whole = command.get_name() == env!("CARGO_PKG_NAME");
    text.extend(see_also(is_whole).bytes());
    Ok(Page { file: man.get_filename(), text })
}

/// Converts help to roff. A line like `Examples:` begins a section of that name; text before the first such line
/// becomes the section `Notes`. Line breaks are kept.
fn sections(after: &str) -> String {
    let mut roff = String::new();
    let mut is_open = false;
    for line in after.lines() {
        let heading = line.strip_suffix(':').filter(|heading| !heading.contains(' '));
        if heading.is_some() || !is_open {
            let end = if is_open { ".fi\n" } else { "" };
            roff.push_str(&format!("{end}.SH {}\n.nf\n", heading.unwrap_or("Notes").to_uppercase()));
            is_open = true;
        }
        if heading.is_none() {
            roff.push_str(&escaped(line));
            roff.push('\n');
        }
    }
    if is_open {
        roff.push_str(".fi\n");
    }
    roff
}

/// Escapes text so that roff prints it unchanged: a backslash begins an escape, a hyphen may be set as a dash, and a
/// full stop or an apostrophe at the beginning of a line begins a request.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

fn see_also(is_whole: bool) -> String {
    let whole = if is_whole { "" } else { ".BR slowlane (1),\n" };
    format!(".SH \"SEE ALSO\"\n{whole}.BR slowlane.toml (5),\n.BR slo.map (5)\n")
}

#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    /// The shell that needs the completions
    shell: Shell,
}

pub(super) fn completions(mut command: Command, typed: &CompletionsArguments) -> anyhow::Result<()> {
    // The generator panics if it cannot write, so the script is first written to memory.
    let mut script = Vec::new();
    generate(typed.shell, &mut command, env!("CARGO_PKG_NAME"), &mut script);
    say(&script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines_and_mean_nothing_to_roff() {
        let roff = sections("Examples:\n  slowlane run --policy 'a\\b'\n\n.TH evil\n");
        assert_eq!(
            roff,
            ".SH EXAMPLES\n.nf\n  slowlane run \\-\\-policy \\(aqa\\eb\\(aq\n\n\\&.TH evil\n.fi\n"
        );
    }

    #[test]
    fn what_has_no_heading_is_a_note_and_each_heading_a_section() {
        assert_eq!(
            sections("One.\nFiles:\n  a\nLaws that delay: pace"),
            ".SH NOTES\n.nf\nOne.\n.fi\n.SH FILES\n.nf\n  a\nLaws that delay: pace\n.fi\n"
        );
        assert_eq!(sections(""), "");
    }

    #[test]
    fn there_is_a_page_for_each_command_and_for_the_commands_of_a_command() {
        let hidden = Command::new("secret").hide(true);
        let config = Command::new("config").subcommand(Command::new("nginx")).subcommand(hidden);
        let whole =
            Command::new("slowlane").about("all of it").subcommand(config).subcommand(Command::new("a"));
        let pages = pages(whole).unwrap();
        let files: Vec<_> = pages.iter().map(|page| page.file.as_str()).collect();
        assert_eq!(files, ["slowlane.1", "slowlane-a.1", "slowlane-config-nginx.1", "slowlane-config.1"]);
        let text = String::from_utf8_lossy(&pages[0].text);
        assert!(text.contains("slowlane \\- all of it"), "{text}");
    }
}
