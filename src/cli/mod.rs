//! The command line: its commands, their help and their exit codes.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "commands read and write files, and the lab's commands show elapsed time"
)]

mod admin;
#[cfg(feature = "lab")]
mod advise;
mod arguments;
mod attach;
mod block;
mod check;
mod config;
#[cfg(feature = "lab")]
mod demo;
mod doctor;
mod import;
mod listening;
mod man;
mod manual;
mod moved;
#[cfg(feature = "lab")]
mod progress;
#[cfg(feature = "lab")]
mod replay;
mod service_user;
#[cfg(feature = "lab")]
mod simulate;
mod table;
#[cfg(feature = "lab")]
mod test;
mod views;
mod why;

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cli::arguments::RunArguments;
use crate::daemon;
use crate::observe::log;

/// Throttles greedy clients of HAProxy and nginx gently: pass, wait N ms, or 429.
///
/// slowlane answers HAProxy over SPOP and nginx over auth_request. A client over its rate limit (SLO, Service Level
/// Objective) is delayed just enough that its rate settles at the limit. Only requests that would wait too long are
/// refused.
#[derive(Debug, Parser)]
#[command(name = "slowlane", version, arg_required_else_help = true, after_help = include_str!("help/slowlane.txt"))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until SIGTERM or Ctrl-C; SIGHUP reloads the policy, and SIGUSR2 upgrades slowlane.
    ///
    /// The config file is read only at startup. On SIGHUP, the log says whether the file has changed.
    /// ADDR is host:port or unix:/path. Flags override the config file, which overrides the defaults.
    #[command(after_help = include_str!("help/run.txt"))]
    Run(RunArguments),
    /// Read the config and the policy, print their errors with file and line, and exit.
    ///
    /// Without flags, the command reads /etc/slowlane/slowlane.toml, as the service does.
    /// Exit code 0: no errors; warnings go to standard error. 1: an error or, with --strict, a warning.
    #[command(after_help = include_str!("help/check.txt"))]
    Check(check::CheckArguments),
    /// Convert the limits of nginx, HAProxy, an ingress controller, Envoy or limitador to a policy, and print it.
    ///
    /// The command reads limit_req and limit_conn, rules on stick tables, annotations of Ingress objects, descriptors
    /// of Envoy's rate limit service, and limits of limitador. Comments in the policy list differences in meaning, and
    /// lines that are not imported.
    #[command(after_help = include_str!("help/import.txt"))]
    Import(import::ImportArguments),
    /// Print slowlane's configuration, or a configuration for HAProxy, nginx or Envoy.
    #[command(subcommand, after_help = include_str!("help/config.txt"))]
    Config(config::What),
    /// Attach slowlane to your own HAProxy or nginx configuration: print a diff, or write the changes.
    #[command(subcommand, after_help = include_str!("help/attach.txt"))]
    Attach(attach::Proxy),
    /// Run a demonstration: slowlane protects an application from a crawler.
    ///
    /// Everything runs on free loopback ports and in a temporary directory. Nothing is left behind.
    #[cfg(feature = "lab")]
    #[command(after_help = include_str!("help/demo.txt"))]
    Demo(demo::DemoArguments),
    /// Run clients against a law in virtual time, and print their rates and delays.
    #[cfg(feature = "lab")]
    #[command(after_help = include_str!("help/simulate.txt"))]
    Simulate(simulate::SimulateArguments),
    /// Print the status of a daemon once: rates, SLOs, throttled clients, cluster, peers.
    #[command(after_help = include_str!("help/status.txt"))]
    Status(views::StatusArguments),
    /// Rank addresses, networks and the values of fields by requests, work or delay.
    ///
    /// The figures are exponentially damped means, like a load average. A busy daemon counts only a sample of its
    /// requests.
    #[command(after_help = include_str!("help/groups.txt"))]
    Groups(views::GroupsArguments),
    /// Monitor a daemon: rates, delays, SLOs, throttled clients.
    #[command(after_help = include_str!("help/top.txt"))]
    Top(views::TopArguments),
    /// Explain the verdict for a request: the map lines that apply, and the law with its numbers.
    ///
    /// The command queries a running daemon or, with --policy, reads the files of a policy. No request is counted.
    #[command(after_help = include_str!("help/why.txt"))]
    Why(why::WhyArguments),
    /// Show how much of its quotas a client has used, how much is left, and when each quota resets.
    #[command(after_help = include_str!("help/quota.txt"))]
    Quota(views::QuotaArguments),
    /// Read and change the table of a running daemon, with the commands of HAProxy's Runtime API.
    #[command(after_help = include_str!("help/table.txt"))]
    Table(table::TableArguments),
    /// Find faults in listeners, proxies, fields, limits, the clock and files, and suggest a remedy for each.
    ///
    /// The command changes nothing. It can check more if you run it as root.
    /// Exit code 0: all is well. 1: something is wrong, or could not be checked.
    #[command(after_help = include_str!("help/doctor.txt"))]
    Doctor(doctor::DoctorArguments),
    /// Block requests by their fields for some time; list blocks, and end them.
    #[command(subcommand, after_help = include_str!("help/block.txt"))]
    Block(block::BlockAction),
    /// Replace a running daemon with the installed version.
    ///
    /// Connections, held answers and counters move to the new process. The signal SIGUSR2 does the same.
    #[command(after_help = include_str!("help/upgrade.txt"))]
    Upgrade(admin::Daemon),
    /// Run access logs through a policy in virtual time, and print the clients that the policy would have throttled.
    #[cfg(feature = "lab")]
    #[command(after_help = include_str!("help/replay.txt"))]
    Replay(replay::ReplayArguments),
    /// Propose limits from access logs: a burst and a rate with which most clients never wait.
    ///
    /// The command prints the clients' rates, marks bots, and proposes lines for your maps. It replays the logs under
    /// the proposal, to show which clients would have waited.
    #[cfg(feature = "lab")]
    #[command(after_help = include_str!("help/advise.txt"))]
    Advise(advise::AdviseArguments),
    /// Run policy tests in virtual time, and print unexpected verdicts.
    ///
    /// Exit code 0: every case passes. 1: a case fails, or a file has an error or cannot be read.
    #[cfg(feature = "lab")]
    #[command(after_help = include_str!("help/test.txt"))]
    Test(test::TestArguments),
    /// Print completions for a shell.
    #[command(after_help = include_str!("help/completions.txt"))]
    Completions(man::CompletionsArguments),
    /// Print slowlane's manual page, or write the manual pages of all commands.
    #[command(after_help = man::EXAMPLES)]
    Man(man::ManArguments),
}

/// The commands of `slowlane --help`, by purpose.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Serve", &["run", "upgrade"]),
    ("Set up", &["attach", "advise", "import", "check", "config", "test", "replay", "simulate"]),
    ("Operate", &["status", "groups", "top", "why", "block", "quota", "table", "doctor"]),
    ("More", &["demo", "completions", "man"]),
];

/// The command with its subcommands listed in groups, which clap cannot do.
fn grouped(command: clap::Command) -> clap::Command {
    let mut listed = String::new();
    for (title, names) in GROUPS {
        listed += &format!("{title}:\n");
        for sub in names.iter().filter_map(|name| command.find_subcommand(name)) {
            listed += &format!("  {:11}  {}\n", sub.get_name(), sub.get_about().unwrap_or_default());
        }
        listed += "\n";
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}Options:\n{{options}}{{after-help}}"
    ))
}

/// Runs the command that was typed. Errors go to standard error.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    if let Some(new) = moved::to(&words) {
        tell(format_args!("`slowlane {}` is now {new}", words[0].display()));
        return ExitCode::from(2);
    }
    if let Some(page) = manual::asked(&words, Cli::command()) {
        return ended(say(&page));
    }
    let cli = Cli::from_arg_matches(&grouped(Cli::command()).get_matches());
    ended(match cli.unwrap_or_else(|error| error.exit()).command {
        Command::Run(typed) => run(typed),
        Command::Attach(proxy) => attach::attach(proxy),
        Command::Check(typed) => check::check(typed),
        Command::Import(typed) => import::import(typed),
        Command::Config(what) => config::print(what),
        #[cfg(feature = "lab")]
        Command::Demo(typed) => demo::demo(typed),
        #[cfg(feature = "lab")]
        Command::Simulate(typed) => simulate::simulate(typed),
        Command::Status(typed) => views::status(typed),
        Command::Top(typed) => views::top(typed),
        Command::Why(typed) => why::why(typed),
        Command::Groups(typed) => views::groups(typed),
        Command::Quota(typed) => views::quota(typed),
        Command::Table(typed) => table::table(typed),
        Command::Doctor(typed) => doctor::doctor(typed),
        Command::Block(action) => block::block(action),
        Command::Upgrade(typed) => admin::upgrade(typed),
        #[cfg(feature = "lab")]
        Command::Replay(typed) => replay::replay(typed),
        #[cfg(feature = "lab")]
        Command::Advise(typed) => advise::advise(typed),
        #[cfg(feature = "lab")]
        Command::Test(typed) => test::test(typed),
        Command::Completions(typed) => man::completions(Cli::command(), &typed),
        Command::Man(typed) => man::man(Cli::command(), &typed),
    })
}

/// Prints the error of a command that has ended, if any, and returns the exit code.
fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_read_enough(&error) => ExitCode::SUCCESS,
        Err(error) => {
            with_causes(&error).lines().for_each(tell);
            ExitCode::FAILURE
        }
    }
}

/// Serves until a signal ends the process.
fn run(typed: RunArguments) -> anyhow::Result<()> {
    let config = typed.load()?;
    let _goodbye = log::start(config.sections.log);
    daemon::run(config)
}

/// Prints text on standard output. If the reader has closed it, as `| head` does, the text is lost and the command
/// continues: its files are still written, and its exit code is unchanged.
fn say<T: AsRef<[u8]> + ?Sized>(text: &T) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_ref()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Prints a line on standard error. If the reader has closed it, the line is lost and the command continues.
fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "slowlane: {line}");
}

/// An error and its causes. A cause that the error's text already contains is not repeated.
fn with_causes(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

/// Whether the reader has closed the output, as `| head` does.
fn is_read_enough(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = Cli::command();
        let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        grouped.retain(|name| cfg!(feature = "lab") || known.contains(name));
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
    }
}
