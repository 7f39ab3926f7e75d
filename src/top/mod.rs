//! `slowlane top`: the status page in a terminal.
//!
//! ```text
//!  a thread: /api/status ──Fetched──▶┐
//!  keys, resizes ──────────Event───▶┤ View ─▶ a screen
//!  signals ────────────────────────▶┘
//! ```

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it queries once a second, in its own thread"
)]

mod columns;
mod fetch;
mod layout;
mod plain;
mod screen;
mod terminal;
mod view;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::admin_client::AdminClient;
use crate::observe::status::{DAY, KeyLine};
use fetch::Fetched;
use terminal::Screen;
use view::{Action, Tab, View};

/// The daemon has new numbers once a second.
const INTERVAL: Duration = Duration::from_secs(1);

/// The longest delay until a signal or an answer is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// Prints one snapshot as text; with a time span, the keys throttled in it.
pub(crate) fn once(daemon: &AdminClient, since: Option<Duration>) -> anyhow::Result<()> {
    let text = match since {
        Some(span) => plain::history(&fetch::history(daemon, span)?),
        None => plain::text(&daemon.snapshot()?),
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Whether there is a screen to draw on, and a keyboard.
pub(crate) fn has_screen() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Shows the daemon's status until the user leaves. With a time span, its history is shown first. Fails if the
/// first query gets no answer.
pub(crate) fn watch(daemon: &AdminClient, since: Option<Duration>) -> anyhow::Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let mut view = View::new(daemon.address.to_string());
    let span = since.unwrap_or(DAY);
    if since.is_some() {
        view.tab = Tab::History;
    }
    view.update(fetch::status(daemon, span).map_err(|error| anyhow!(error)).map(Ok)?);
    let (answers, asks) = asker(daemon.clone(), span);

    let mut screen = Screen::open()?;
    while !ended.load(Relaxed) {
        screen.draw(&mut view)?;
        // The next draw detects a new size by itself.
        if event::poll(LOOK)?
            && let Event::Key(key) = event::read()?
        {
            match view.press(key) {
                Action::Nothing => {}
                Action::Leave => return Ok(()),
                // The thread lives as long as this loop.
                Action::Explain(key) => drop(asks.send(key)),
            }
        }
        loop {
            match answers.try_recv() {
                Ok(Answer::Status(status)) => view.update(status.map(|status| *status)),
                Ok(Answer::Why(text)) => view.explain(text),
                Err(TryRecvError::Empty) => break,
                // The thread has printed the reason. Old numbers must not look like new ones.
                Err(TryRecvError::Disconnected) => {
                    bail!("slowlane top has ended: it can no longer query the daemon")
                }
            }
        }
    }
    Ok(())
}

/// An answer from the daemon.
enum Answer {
    Status(Result<Box<Fetched>, String>),
    Why(String),
}

/// Asks in its own thread, so that the screen never waits for the daemon.
fn asker(daemon: AdminClient, span: Duration) -> (Receiver<Answer>, Sender<Box<KeyLine>>) {
    let (answer, answers) = mpsc::channel();
    let (asks, asked) = mpsc::channel::<Box<KeyLine>>();
    thread::spawn(move || {
        let mut next = Instant::now() + INTERVAL;
        loop {
            let reported = match asked.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(key) => Answer::Why(fetch::why(&daemon, &key)),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    next = Instant::now() + INTERVAL;
                    Answer::Status(fetch::status(&daemon, span).map(Box::new))
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            if answer.send(reported).is_err() {
                return;
            }
        }
    });
    (answers, asks)
}
