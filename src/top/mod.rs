//! `slowlane top` and `slowlane status`: the status of a daemon as text, once or repeatedly.
//!
//! ```text
//!  /api/status ──Fetched─▶ text ──the lines that fit─▶ the terminal
//! ```

mod columns;
mod text;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use rustix::termios::tcgetwinsize;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::admin_client::{self, AdminClient};
use crate::daemon::asked_to_end;
use crate::observe::status::{HistoryLines, Snapshot};
use text::Room;

/// An answer from the daemon: its status, or the keys throttled in a time span.
enum Fetched {
    Status(Box<Snapshot>),
    History(HistoryLines),
}

impl Fetched {
    fn ask(daemon: &AdminClient, since: Option<Duration>) -> anyhow::Result<Fetched> {
        Ok(match since {
            Some(span) => {
                Fetched::History(serde_json::from_slice(&daemon.get(&admin_client::history(span))?)?)
            }
            None => Fetched::Status(Box::new(daemon.snapshot()?)),
        })
    }

    fn text(&self, room: Room) -> String {
        match self {
            Fetched::Status(snapshot) => text::status(snapshot, room),
            Fetched::History(history) => text::history(history, room),
        }
    }
}

/// Prints the status once or, with a time span, the keys throttled in that span.
pub(crate) fn once(daemon: &AdminClient, since: Option<Duration>) -> anyhow::Result<()> {
    Ok(io::stdout().write_all(Fetched::ask(daemon, since)?.text(Room::ENDLESS).as_bytes())?)
}

/// Prints the ranking of groups that the daemon returns at this path.
pub(crate) fn groups(daemon: &AdminClient, path: &str) -> anyhow::Result<()> {
    let ranking = serde_json::from_slice(&daemon.get(path)?)?;
    Ok(io::stdout().write_all(text::groups(&ranking, Room::ENDLESS).as_bytes())?)
}

/// Whether standard output is a terminal.
pub(crate) fn has_screen() -> bool {
    io::stdout().is_terminal()
}

/// Shows the text of [`once`] on the whole screen, and refreshes it until a signal arrives. Fails if the first query
/// gets no answer.
///
/// The terminal stays in its normal mode, so nothing has to be restored at the end.
pub(crate) fn watch(daemon: AdminClient, since: Option<Duration>) -> anyhow::Result<()> {
    let first = Fetched::ask(&daemon, since)?;
    io::stdout().write_all(ERASE.as_bytes())?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let asked_to_end = asked_to_end()?;
        tokio::select! {
            failed = refresh(daemon, since, first) => failed,
            () = asked_to_end => Ok(()),
        }
    });
    // Do not wait for a query that may still be unanswered.
    runtime.shutdown_background();
    ended
}

/// Refreshes the screen until an error occurs. While the daemon does not answer, its last answer stays visible.
async fn refresh(daemon: AdminClient, since: Option<Duration>, mut last: Fetched) -> anyhow::Result<()> {
    let mut problem = String::new();
    loop {
        show(&problem, &last)?;
        sleep(REFRESHED).await;
        let daemon = daemon.clone();
        problem = match spawn_blocking(move || Fetched::ask(&daemon, since)).await? {
            Ok(fetched) => {
                last = fetched;
                String::new()
            }
            Err(error) => format!("NO ANSWER: {error}\n"),
        };
    }
}

/// The interval between refreshes, because the daemon makes one snapshot per second.
const REFRESHED: Duration = Duration::from_secs(1);

/// Control sequences of ECMA-48: erase all, go to the first line, erase a line, erase what is below.
const ERASE: &str = "\x1b[2J";
const HOME: &str = "\x1b[H";
const ERASE_LINE: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";

/// The number of lines that are not rows of the three tables, such as rates, headings and connections.
const OTHER_LINES: usize = 15;

/// The maximum number of rows on the screen for one line of text, so that a long warning leaves room for the clients.
const ROWS_OF_LINE_MAX: usize = 2;

/// Prints the lines that fit, over the previous lines.
fn show(problem: &str, fetched: &Fetched) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let size = tcgetwinsize(&out).ok().filter(|size| size.ws_row > 1 && size.ws_col > 0);
    let (rows, columns): (usize, usize) =
        size.map_or((24, 80), |size| (size.ws_row.into(), size.ws_col.into()));
    let room = Room { columns, rows: (rows.saturating_sub(OTHER_LINES) / 3).max(3) };
    let text = format!("{problem}{}", fetched.text(room));
    // The last row is left free for the cursor.
    let of_line = |line| wrapped(line, columns).into_iter().take(ROWS_OF_LINE_MAX);
    let lines = text.lines().flat_map(of_line).take(rows - 1);
    let lines: String = lines.map(|line| format!("{ERASE_LINE}{line}\n")).collect();
    write!(out, "{HOME}{lines}{ERASE_BELOW}")?;
    out.flush()
}

/// A line in pieces of at most `columns` characters.
fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    match letters.is_empty() {
        true => vec![String::new()],
        false => letters.chunks(columns).map(String::from_iter).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_wrapped() {
        assert_eq!(wrapped("one two", 4), ["one ", "two"]);
        assert_eq!(wrapped("日本語", 2), ["日本", "語"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
