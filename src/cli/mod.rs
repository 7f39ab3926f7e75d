//! The command line: its commands, their help and their exit codes.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "commands read and write files, and tell the time that passes"
)]

mod admin;
mod arguments;
mod check;
mod completions;
mod config;
mod demo;
mod man;
mod progress;
mod replay;
mod run;
mod simulate;
mod table;
mod top;
mod why;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::cli::arguments::{Files, RunArguments};

/// Throttles HAProxy's and nginx's greedy clients gently: pass, wait N ms, or 429.
///
/// slowlane answers HAProxy over SPOP and nginx over auth_request. A client over its Service Level Objective
/// is delayed just enough that its rate settles there; only what cannot be delayed is refused.
#[derive(Debug, Parser)]
#[command(name = "slowlane", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  slowlane demo
      see it work, until Ctrl-C
  slowlane run
      serve on the defaults: SPOP on 127.0.0.1:9000, the HTTP check on 127.0.0.1:9001,
      admin on 127.0.0.1:9002, one objective of 5000 requests/s for everybody
  slowlane run --policy /etc/slowlane/policy
      serve the objectives of slo.map, read again at every edit
  slowlane check --policy /etc/slowlane/policy
      find every mistake before it is served
  slowlane config haproxy
      what to put in front of your application
  slowlane simulate --law pace,adaptive --rate 50/s --clients 10,50,200
      see what a law does to so many clients, before they are served
  slowlane replay --policy maps.new --against maps /var/log/haproxy.log
      see what an edit of the maps would have done to yesterday's traffic
  slowlane top
      watch the daemon on this machine: rates, delays, and who is throttled
  slowlane why source=192.0.2.1 website=shop.example
      what a running daemon would say to a request, and why
  slowlane table show data.gpc0_rate gt 10
      who is throttled, as HAProxy's `show table` tells it";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until SIGTERM or Ctrl-C; SIGHUP reads the policy again.
    ///
    /// The config file is read at the start only; SIGHUP says if it has changed since.
    /// ADDR is host:port or unix:/path. Flags win over the config file, which wins over the defaults.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArguments),
    /// Read the config and the policy, print every mistake with its file and line, and exit.
    ///
    /// Exit code 0: slowlane would serve this, though there may be warnings, on standard error. 1: it would not.
    Check(Files),
    /// Print the configuration in force, or one for HAProxy or nginx.
    #[command(subcommand, after_help = config::EXAMPLES)]
    Config(config::What),
    /// See it work: a crawler, a customer and an application, in front of which slowlane is put after some seconds.
    ///
    /// Everything is on the loopback, on free ports, in a temporary folder, and gone at the end.
    #[command(after_help = demo::EXAMPLES)]
    Demo(demo::Arguments),
    /// Run clients against a law in virtual time, and print what they get.
    #[command(after_help = simulate::EXAMPLES)]
    Simulate(simulate::Arguments),
    /// Watch a daemon: rates, delays, SLOs, and who is throttled.
    #[command(after_help = top::EXAMPLES)]
    Top(top::Arguments),
    /// Tell what a request would be told, and why: the lines that answered, the law with its numbers.
    ///
    /// A running daemon is asked, or the files of a policy. Nothing is counted.
    #[command(after_help = why::EXAMPLES)]
    Why(why::Arguments),
    /// Read and set the table of a running daemon, as HAProxy's Runtime API does its stick tables.
    #[command(after_help = table::EXAMPLES)]
    Table(table::Arguments),
    /// Run access logs through a policy in virtual time, and print who would have been delayed or denied.
    #[command(after_help = replay::EXAMPLES)]
    Replay(replay::Arguments),
    /// Print the completions of a shell.
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::Arguments),
    /// Print the manual page, or write those of all commands.
    #[command(after_help = man::EXAMPLES)]
    Man(man::Arguments),
}

const RUN_EXAMPLES: &str = "\
Examples:
  slowlane run --spop 127.0.0.1:9000 --spop unix:/run/slowlane/spop.sock
  slowlane run --config /etc/slowlane/slowlane.toml --admin 127.0.0.1:9102

The policy directory holds slo.map and the lookup maps, all in HAProxy map syntax:
  slo.map                  <id> burst=<n> rate=<n>/<s|m|h|d> [law=<name>] [dry_run=yes]
                           [also=<lookup>] [option=value ...]
  source+website.map       <address or network>+<website> <id>
  source+owner.map         <address or network>+<owner> <id>
  source.map               <address or network> <id>
  website.map, owner.map   <name> <id>
The first map that answers decides; what none names has SLO 0.

Laws that delay:   pace (the default), fair, warm-up, adaptive
Laws that refuse:  token-bucket, leaky-bucket, fixed-window, sliding-window, sliding-buckets,
                   sliding-log, concurrency
dry_run=yes counts what an SLO would have said, and lets pass. also=owner adds the SLO that
owner.map names.";

/// Runs the command of the command line. Errors go to standard error.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(typed) => arguments::config(typed).and_then(run::run),
        Command::Check(files) => arguments::config(files.into()).and_then(check::check),
        Command::Config(what) => config::print(what),
        Command::Demo(typed) => demo::demo(typed),
        Command::Simulate(typed) => simulate::simulate(typed),
        Command::Top(typed) => top::top(typed),
        Command::Why(typed) => why::why(typed),
        Command::Table(typed) => table::table(typed),
        Command::Replay(typed) => replay::replay(typed),
        Command::Completions(typed) => completions::completions(Cli::command(), &typed),
        Command::Man(typed) => man::man(Cli::command(), &typed),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_read_enough(&error) => ExitCode::SUCCESS,
        Err(error) => {
            for line in error.to_string().lines() {
                eprintln!("slowlane: {line}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Whether the reader of the output has closed it, as `| head` does.
fn is_read_enough(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
