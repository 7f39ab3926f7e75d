//! A terminal for interactive programs: tests read its screen and press its keys.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use super::eventually;

/// A program on its own terminal, killed when this is dropped.
pub struct Terminal {
    child: Child,
    keyboard: File,
    /// The program's side of the terminal. It stays open after the program has ended.
    line: File,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    /// Starts a program on a terminal with these rows and columns.
    pub fn start(program: &str, args: &[&str], rows: u16, columns: u16) -> Terminal {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let path = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
        let keyboard = File::from(keyboard);
        let line = OpenOptions::new().read(true).write(true).open(path).unwrap();
        set_size(&line, rows, columns);
        // A new session, so that the program gets the signals of this terminal.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program).args(args).env("TERM", "xterm-256color");
        let copy = || line.try_clone().unwrap();
        let child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        follow(keyboard.try_clone().unwrap(), screen.clone());
        Terminal { child, keyboard, line, screen }
    }

    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        set_size(&self.line, rows, columns);
    }

    /// The text on the screen.
    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen meets a condition.
    pub fn shows(&mut self, what: &str, is_it: impl Fn(&str) -> bool) {
        let name = format!("the screen shows {what}");
        eventually(&name, || {
            let text = self.text();
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() || is_it(&text), "{name}: it has ended with {ended:?}\n{text}");
            is_it(&text).then_some(())
        });
    }

    pub fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").arg(format!("-{signal}")).arg(id).status().unwrap().success());
    }

    /// The exit status, and whether the terminal is restored: line mode, echo, cursor, main screen.
    pub fn ended(&mut self) -> (ExitStatus, bool) {
        let status = eventually("the program ends", || self.child.try_wait().unwrap());
        let is_given_back = || {
            let parser = self.screen.lock().unwrap();
            let screen = parser.screen();
            !screen.alternate_screen() && !screen.hide_cursor() && self.modes() == SHELL
        };
        // The last output may arrive late.
        let given_back = (0..400).any(|_| {
            thread::sleep(std::time::Duration::from_millis(5));
            is_given_back()
        });
        (status, given_back)
    }

    /// Whether the terminal is in line mode, and whether it echoes input.
    fn modes(&self) -> [bool; 2] {
        use rustix::termios::LocalModes;
        let modes = tcgetattr(&self.line).unwrap().local_modes;
        [LocalModes::ICANON, LocalModes::ECHO].map(|mode| modes.contains(mode))
    }
}

const SHELL: [bool; 2] = [true; 2];

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- screen:\n{}", self.text());
        }
    }
}

fn set_size(line: &File, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(line, size).unwrap();
}

fn follow(mut output: File, screen: Arc<Mutex<vt100::Parser>>) {
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut piece) {
            screen.lock().unwrap().process(&piece[..count]);
        }
    });
}
