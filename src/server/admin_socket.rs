//! One connection of the admin socket, the Runtime API for clients like socat.

use std::io;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use crate::server::runtime_api::{Control, PIECE_BYTES, Prompt, RuntimeAnswer, VERSION, answer, commands};
use crate::server::{Accepted, Agent, Service, Shutdown, Signal, Stream, WriteTimeout, limited};

/// The longest line, as in HAProxy, where `tune.bufsize` limits it.
pub(super) const LINE_BYTES_MAX: usize = 16 * 1024;

/// The longest wait for a whole line, and for a client to read its answer.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The service of the admin socket.
#[derive(Debug)]
pub(crate) struct AdminSocket;

impl Service for AdminSocket {
    fn call(self: Arc<Self>, Accepted { stream, agent, shutdown, .. }: Accepted) -> BoxFuture<'static, ()> {
        Box::pin(serve(stream, agent, shutdown))
    }
}

/// Serves until the client closes, the last answer is sent, or the shutdown begins.
async fn serve(stream: Stream, agent: Arc<Agent>, shutdown: Shutdown) {
    let mut console = Console {
        stream: BufReader::new(limited(stream, IDLE_TIMEOUT)),
        prompt: Prompt::Once,
        agent,
        signal: shutdown.signal.clone(),
    };
    if let Some(Err(error)) = shutdown.signal.unless_begun(console.run()).await {
        tracing::debug!("admin socket closed: {error}");
    }
}

/// A client that sends commands and reads their answers.
struct Console {
    stream: BufReader<WriteTimeout>,
    prompt: Prompt,
    agent: Arc<Agent>,
    signal: Signal,
}

impl Console {
    async fn run(&mut self) -> io::Result<()> {
        // The limit is for the whole line: single bytes do not extend it.
        while let Some(line) = timeout(IDLE_TIMEOUT, self.line()).await.unwrap_or(Ok(None))? {
            let commands = commands(&line);
            for (place, words) in commands.iter().enumerate() {
                let answer = self.agent.answer(words, &self.signal);
                match answer.control {
                    Some(Control::Quit) => return self.close().await,
                    Some(Control::Prompt(prompt)) => self.switch(prompt),
                    None => {}
                }
                self.write(answer, place + 1 == commands.len()).await?;
            }
            if self.prompt == Prompt::Once {
                return self.close().await;
            }
        }
        Ok(())
    }

    /// The next line without its line break; `None` at the end of the input, or if the line is too long.
    async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        (&mut self.stream).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line).await?;
        let has_break = line.pop_if(|last| *last == b'\n').is_some();
        // The last line needs no line break.
        let is_line = has_break || (1..=LINE_BYTES_MAX).contains(&line.len());
        Ok(is_line.then_some(line))
    }

    fn switch(&mut self, prompt: Prompt) {
        self.prompt = match (prompt, self.prompt) {
            (Prompt::Toggle, Prompt::Prompting) => Prompt::Once,
            (Prompt::Toggle, _) => Prompt::Prompting,
            (prompt, _) => prompt,
        };
    }

    /// Writes an answer and an empty line. After the last command of a line, the prompt follows.
    async fn write(&mut self, mut answer: RuntimeAnswer, is_last: bool) -> io::Result<()> {
        let mut piece = String::with_capacity(PIECE_BYTES);
        while answer.more(&self.agent.throttle, self.agent.clock.now(), &mut piece) {
            self.stream.write_all(piece.as_bytes()).await?;
            piece.clear();
            // Yield after each piece, so that other clients are served in the meantime.
            tokio::task::yield_now().await;
        }
        piece.push_str(if is_last && self.prompt == Prompt::Prompting { "\n> " } else { "\n" });
        self.stream.write_all(piece.as_bytes()).await
    }

    /// Closes the connection. It reads remaining bytes first, because unread bytes cause a connection reset.
    async fn close(&mut self) -> io::Result<()> {
        let mut unread = [0; LINE_BYTES_MAX];
        tokio::select! {
            biased;
            _ = self.stream.get_mut().read(&mut unread) => {}
            () = std::future::ready(()) => {}
        }
        self.stream.shutdown().await
    }
}

impl Agent {
    /// The answer to a command of the Runtime API.
    pub(super) fn answer(&self, words: &[String], signal: &Signal) -> RuntimeAnswer {
        answer(words, &self.throttle, self.clock.now(), || self.info(signal))
    }

    /// The lines of HAProxy's `show info` that apply to slowlane.
    fn info(&self, signal: &Signal) -> String {
        let uptime_s = self.clock.uptime().as_secs();
        let (days, hours, minutes) = (uptime_s / 86_400, uptime_s / 3_600 % 24, uptime_s / 60 % 60);
        let listeners = [&self.metrics.spop, &self.metrics.http, &self.metrics.admin];
        format!(
            "Name: slowlane\nVersion: {VERSION}\nNbthread: {}\nNbproc: 1\nProcess_num: 1\nPid: {}\n\
             Uptime: {days}d {hours}h{minutes:02}m{:02}s\nUptime_sec: {uptime_s}\n\
             CurrConns: {}\nCumConns: {}\nCumReq: {}\nStopping: {}\n",
            available_parallelism().map_or(1, usize::from),
            std::process::id(),
            uptime_s % 60,
            listeners.iter().map(|listener| listener.open.get()).sum::<i64>(),
            listeners.iter().map(|listener| listener.accepted.get()).sum::<u64>(),
            self.metrics.verdicts.total(),
            u8::from(signal.has_ended()),
        )
    }
}
