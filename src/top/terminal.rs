//! The terminal, taken over and given back as it was, however we leave.

use std::io::{self, Stdout, Write, stdout};
use std::panic;
use std::sync::Once;

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui_crossterm::CrosstermBackend;

use crate::top::screen;
use crate::top::view::View;

/// A screen of our own, until it is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        give_back_on_panic();
        enable_raw_mode()?;
        let opened = execute!(stdout(), EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match opened {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    pub(super) fn draw(&mut self, view: &mut View) -> io::Result<()> {
        self.terminal.draw(|frame| screen::draw(frame, view)).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// A terminal that is gone cannot be given back.
fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}

/// What a panic has to say would be lost on the other screen.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            give_back();
            before(panicked);
        }));
    });
}
