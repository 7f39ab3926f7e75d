//! nginx's configuration with its includes, and what of slowlane is in it.

use std::iter::Peekable;
use std::mem;
use std::path::Path;
use std::str::Chars;
use std::{fs, io};

use crate::cli::doctor::proxies::{Read, Site};

/// The most files that are read: a file may include itself.
const FILES_MAX: u32 = 500;

/// nginx's own default.
const WORKER_CONNECTIONS: u64 = 512;

/// A block that is open: its words, and what was found in it.
#[derive(Default)]
struct Block {
    words: Vec<String>,
    asks: bool,
    has_ipv6: bool,
    /// It answers each request itself, by `return`.
    returns: bool,
}

struct Reader<'r> {
    main: &'r Path,
    files: u32,
    /// The innermost block is the last; the first is the file itself.
    blocks: Vec<Block>,
    read: Read,
}

pub(super) fn read(main: &Path) -> io::Result<Read> {
    let read = Read { worker_connections: Some(WORKER_CONNECTIONS), ..Read::default() };
    let mut reader = Reader { main, files: 0, blocks: vec![Block::default()], read };
    reader.file(main)?;
    Ok(reader.read)
}

impl Reader<'_> {
    fn file(&mut self, path: &Path) -> io::Result<()> {
        self.files += 1;
        if self.files > FILES_MAX {
            return Err(io::Error::other(format!("more than {FILES_MAX} files")));
        }
        let text = fs::read(path)?;
        let text = String::from_utf8_lossy(&text);
        let (mut chars, mut words) = (text.chars().peekable(), Vec::new());
        while let Some(next) = chars.next() {
            match next {
                '#' => drop(chars.by_ref().find(|&c| c == '\n')),
                ';' => self.directive(mem::take(&mut words))?,
                '{' => self.blocks.push(Block { words: mem::take(&mut words), ..Block::default() }),
                '}' => self.close(),
                c if c.is_whitespace() => {}
                c => words.push(word(c, &mut chars)),
            }
        }
        Ok(())
    }

    fn directive(&mut self, words: Vec<String>) -> io::Result<()> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some(block) = self.blocks.last_mut() else { return Ok(()) };
        match words[..] {
            ["include", pattern] => {
                let pattern = self.main.parent().unwrap_or(Path::new("/")).join(pattern);
                for path in glob::glob(&pattern.to_string_lossy()).map_err(io::Error::other)? {
                    self.file(&path.map_err(io::Error::from)?)?;
                }
            }
            ["worker_connections", number] => self.read.worker_connections = number.parse().ok(),
            ["auth_request", uri] => block.asks |= uri.contains("slowlane"),
            ["listen", address, ..] => block.has_ipv6 |= address.starts_with('['),
            ["server_name", name, ..] if name != "_" => block.words.push(name.to_owned()),
            ["return", ..] => block.returns = true,
            ["server", address, ..]
                if block.words.last().is_some_and(|name| name.starts_with("slowlane")) =>
            {
                self.read.agents.push(address.to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self) {
        let Some(block) = self.blocks.pop() else { return };
        let Some(outer) = self.blocks.last_mut() else { return };
        let is_in = |kind: &str| outer.words.first().is_some_and(|word| word == kind);
        match block.words.first().map(String::as_str) {
            Some("location") => outer.asks |= block.asks,
            Some("server") if is_in("http") && !block.returns => {
                let name = block.words.get(1).map_or("a server without a name", String::as_str).to_owned();
                let lacks = (!block.asks && !outer.asks).then_some("no `include slowlane.conf`");
                self.read.sites.push(Site { name, lacks, has_ipv6: block.has_ipv6 });
            }
            _ => {}
        }
    }
}

/// A word that begins with this character, without its quotes.
fn word(first: char, chars: &mut Peekable<Chars<'_>>) -> String {
    let quote = Some(first).filter(|c| matches!(c, '"' | '\''));
    let mut word: String = if quote.is_some() { String::new() } else { first.into() };
    while let Some(&next) = chars.peek() {
        if quote.is_none() && (next.is_whitespace() || next == ';' || next == '{' && !word.ends_with('$')) {
            break;
        }
        chars.next();
        match next {
            '\\' => word.extend(chars.next()),
            next if Some(next) == quote => break,
            next => word.push(next),
        }
    }
    word
}
