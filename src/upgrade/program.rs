//! The program of this process, as it was started.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, io, path};

/// Marks a process whose standard input is the socket of a process that hands over to it.
pub(super) const HANDOVER: &str = "SLOWLANE_HANDOVER";

/// The path and the arguments with which this process was started. A new program at the same path is the new version.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Call it at the start: later, the path may hold another program, and the working directory may differ.
    pub(crate) fn of_this_process() -> io::Result<Program> {
        let mut arguments = env::args_os();
        let typed = arguments.next().map(PathBuf::from).unwrap_or_default();
        // A path with a link in it may lead to another version by then. A bare name was looked up in PATH.
        let path = match typed.parent() {
            Some(folder) if folder != Path::new("") => path::absolute(&typed)?,
            _ => env::current_exe()?,
        };
        Ok(Program { path, arguments: arguments.collect() })
    }

    /// Starts the program again. `socket` becomes its standard input.
    pub(super) fn start(&self, socket: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).stdin(Stdio::from(socket)).env(HANDOVER, "1");
        // These variables name this process.
        for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        command.spawn()
    }
}
