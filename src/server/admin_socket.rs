//! One connection of the admin socket, the Runtime API for clients like socat.

use std::io;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::server::agent::Agent;
use crate::server::runtime_api::{Answer, Command, Info, PIECE_BYTES, Prompt, commands};
use crate::server::shutdown::{Shutdown, Signal};
use crate::server::stream::Stream;
use crate::server::write_timeout::{WriteTimeout, limited};

/// The longest line, as in HAProxy, where `tune.bufsize` limits it.
pub(super) const LINE_BYTES_MAX: usize = 16 * 1024;

/// The longest wait for a whole line, and for a client to read its answer.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves until the client closes, the last answer is sent, or the shutdown begins.
pub(crate) async fn serve(stream: Stream, agent: Arc<Agent>, shutdown: Shutdown) {
    let mut console = Console {
        stream: limited(stream, IDLE_TIMEOUT),
        read: Vec::new(),
        prompt: Prompt::Once,
        agent,
        signal: shutdown.signal(),
    };
    if let Some(Err(error)) = shutdown.unless_begun(console.run()).await {
        tracing::debug!("admin socket closed: {error}");
    }
}

/// A client that sends commands and reads their answers.
struct Console {
    stream: WriteTimeout,
    /// Bytes read but not yet used.
    read: Vec<u8>,
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
                let command = Command::parse(words);
                match command {
                    Ok(Command::Quit) => return self.close().await,
                    Ok(Command::Prompt(prompt)) => self.switch(prompt),
                    _ => {}
                }
                self.answer(command, place + 1 == commands.len()).await?;
            }
            if self.prompt == Prompt::Once {
                return self.close().await;
            }
        }
        Ok(())
    }

    /// The next line without its line break; `None` at the end of the input, or if the line is too long.
    async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut looked = 0;
        loop {
            if let Some(end) = self.read[looked..].iter().position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(looked + end + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.pop();
                return Ok(Some(line));
            }
            looked = self.read.len();
            if looked > LINE_BYTES_MAX {
                return Ok(None);
            }
            let mut piece = [0; 1024];
            match self.stream.read(&mut piece).await? {
                // The last line needs no line break.
                0 if looked > 0 => return Ok(Some(std::mem::take(&mut self.read))),
                0 => return Ok(None),
                read => self.read.extend_from_slice(&piece[..read]),
            }
        }
    }

    fn switch(&mut self, prompt: Prompt) {
        self.prompt = match (prompt, self.prompt) {
            (Prompt::Toggle, Prompt::Prompting) => Prompt::Once,
            (Prompt::Toggle, _) => Prompt::Prompting,
            (prompt, _) => prompt,
        };
    }

    /// Writes an answer and an empty line. After the last command of a line, the prompt follows.
    async fn answer(&mut self, command: Result<Command, String>, is_last: bool) -> io::Result<()> {
        let mut answer = self.agent.answer(command, &self.signal);
        let mut piece = String::with_capacity(PIECE_BYTES);
        while answer.more(&self.agent.throttle, self.agent.clock.now(), &mut piece) {
            self.stream.write_all(piece.as_bytes()).await?;
            piece.clear();
            // Yield after each piece, so that other clients are served meanwhile.
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
            _ = self.stream.read(&mut unread) => {}
            () = std::future::ready(()) => {}
        }
        self.stream.shutdown().await
    }
}

impl Agent {
    /// The answer to a command, or to a faulty one.
    pub(super) fn answer(&self, command: Result<Command, String>, signal: &Signal) -> Answer {
        Answer::to(command, &self.throttle, &self.info(signal), self.clock.now())
    }

    fn info(&self, signal: &Signal) -> Info {
        let listeners = [&self.metrics.spop, &self.metrics.http, &self.metrics.admin];
        Info {
            pid: std::process::id(),
            threads: available_parallelism().map_or(1, usize::from),
            uptime: self.clock.uptime(),
            connections: listeners.iter().map(|listener| listener.open.get()).sum(),
            connections_total: listeners.iter().map(|listener| listener.accepted.get()).sum(),
            requests_total: self.metrics.verdicts.total(),
            is_ending: signal.has_ended(),
        }
    }
}
