//! Lines for systemd's journal, which adds the time itself and reads the priority from the start of each line.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Whether a file is the stream that `JOURNAL_STREAM` names as `device:inode`.
///
/// systemd sets the variable, but the standard error of a process may still be redirected elsewhere.
pub(super) fn is_journal(file: &impl AsFd, stream: Option<&str>) -> bool {
    let found = file.as_fd().try_clone_to_owned().map(|fd: OwnedFd| File::from(fd).metadata());
    let Ok(Ok(found)) = found else { return false };
    stream.is_some_and(|stream| *stream == format!("{}:{}", found.dev(), found.ino()))
}

/// A format that begins each line with its syslog priority, like `<3>` for an error (sd-daemon(3)).
pub(super) struct Prioritised<F>(pub(super) F);

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        let priority = priority(*event.metadata().level());
        // The journal treats each line as a separate message.
        text.lines().try_for_each(|line| writeln!(writer, "<{priority}>{line}"))
    }
}

/// The priority of a level in syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
