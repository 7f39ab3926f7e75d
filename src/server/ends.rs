//! The listener for log lines, over UDP: each line reports the end of a request.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{interval, sleep};

use crate::observe::revived_task;
use crate::proxy::end_line;
use crate::server::{AccessList, Agent, Listener, Shutdown};

/// The longest line. By default HAProxy writes at most 1,024 bytes, and nginx 2,048.
const LINE_BYTES_MAX: usize = 8_192;

/// How often the lines that the kernel has dropped are counted.
const COUNTED_EVERY: Duration = Duration::from_secs(1);

/// The pause after a read has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener for log lines.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) listener: Arc<Listener>,
    pub(crate) access_list: AccessList,
    pub(crate) agent: Arc<Agent>,
    /// The lines that the kernel had dropped when they were last counted.
    pub(crate) lost: AtomicU64,
    /// The runtime of its socket.
    pub(crate) runtime: Handle,
}

impl Ends {
    /// Reads lines until the shutdown begins. After an upgrade, the next process reads those that wait in the socket.
    pub(crate) fn open(self: &Arc<Ends>, shutdown: &Shutdown) {
        let (ends, shutdown) = (self.clone(), shutdown.clone());
        self.runtime.spawn(async move {
            revived_task("the listener for log lines", || ends.read(&shutdown)).await;
        });
    }

    async fn read(&self, shutdown: &Shutdown) {
        let mut line = vec![0; LINE_BYTES_MAX + 1];
        let (mut ending, mut count) = (pin!(shutdown.signal.begun()), interval(COUNTED_EVERY));
        loop {
            tokio::select! {
                () = ending.as_mut() => return,
                received = self.listener.receive(&mut line) => match received {
                    Ok((bytes, from)) => self.take(&line[..bytes], from),
                    Err(_) => sleep(PAUSE).await,
                },
                _ = count.tick() => self.count_lost(),
            }
        }
    }

    fn take(&self, line: &[u8], from: IpAddr) {
        if !self.access_list.allows(from.to_canonical()) {
            return dropped(&self.agent, "not_allowed", 1);
        }
        end_line(&self.agent, line, LINE_BYTES_MAX);
    }

    /// Counts the lines that the kernel has dropped since the last time.
    fn count_lost(&self) {
        let Ok(lost) = self.listener.lost() else { return };
        dropped(&self.agent, "lost", lost.saturating_sub(self.lost.swap(lost, Relaxed)));
    }
}

/// Ends the request that a line reports, if it reports one.
pub(super) fn end_line(agent: &Agent, line: &[u8], bytes_max: usize) {
    if line.len() > bytes_max {
        return dropped(agent, "too_long", 1);
    }
    agent.metrics.plain.end_lines.inc();
    if let Some((ticket, ending)) = end_line::read(line) {
        agent.end(ticket, ending, agent.clock.now());
    } else if end_line::is_refused(line) {
        dropped(agent, "unsafe", 1);
        agent.unsafe_ticket.call_once(|| {
            tracing::warn!(
                "[ends]: a line has a ticket behind text that clients may choose, or in a container's log: it is not read. \
                 If it is yours, let the format begin with the ticket"
            );
        });
    }
}

fn dropped(agent: &Agent, reason: &'static str, lines: u64) {
    agent.metrics.plain.end_lines_dropped.get_or_create(&[("reason", reason)]).inc_by(lines);
}
