//! Takes over the terminal, and always restores it.

use std::io::{self, Stdout, Write, stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui_crossterm::CrosstermBackend;

use crate::top::screen;
use crate::top::view::View;

/// The alternate screen, until it is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// A process opens one.
    pub(super) fn open() -> io::Result<Screen> {
        give_back_on_panic();
        IS_TAKEN.store(true, Relaxed);
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

/// Whether the terminal must be restored. A second restore would move the cursor back: the shell's prompt would then
/// cover the message of a panic.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Restores the terminal. Errors are ignored: the terminal may be gone.
fn give_back() {
    if !IS_TAKEN.swap(false, Relaxed) {
        return;
    }
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}

/// Restores the terminal before a panic prints: the alternate screen would lose the message.
fn give_back_on_panic() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        give_back();
        before(panicked);
    }));
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Set in the process that is to panic.
    const PANICS: &str = "SLOWLANE_TEST_PANICS";

    fn panic_on_a_screen() {
        let mut screen = Screen::open().unwrap();
        screen.draw(&mut View::new("here".into())).unwrap();
        panic!("what went wrong");
    }

    /// The test runs itself again on a terminal of `script`, and `stty` then shows whether that has lines and an echo.
    #[test]
    fn a_panic_leaves_a_terminal_that_can_be_used_and_says_what_it_was() {
        if std::env::var_os(PANICS).is_some() {
            return panic_on_a_screen();
        }
        let this = std::env::current_exe().unwrap();
        let name = std::thread::current().name().unwrap().to_owned();
        let run = format!(
            "stty rows 24 columns 80; {PANICS}=1 {} --exact --nocapture {name}; stty -a",
            this.display()
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &run, "/dev/null"]).env("TERM", "xterm-256color");
        let output = script.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        const TAKEN: &str = "\x1b[?1049h";
        const GIVEN_BACK: &str = "\x1b[?1049l";
        let (before, after) = text.split_once(GIVEN_BACK).expect("it is given back");
        assert!(before.contains(TAKEN) && before.contains("slowlane"), "{text:?}");
        assert!(after.starts_with("\x1b[?25h"), "with its cursor: {after:?}");
        assert!(after.contains("panicked at") && after.contains("what went wrong"), "{after:?}");
        assert!(!after.contains(GIVEN_BACK), "once: {after:?}");
        assert!(after.contains(" icanon") && after.contains(" echo "), "{after:?}");
    }
}
