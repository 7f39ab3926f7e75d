//! nginx's configuration with its includes, and what of slowlane is in it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::cli::attach::AS_NGINX;
use crate::cli::doctor::proxies::{Read, Site};
use crate::proxy::nginx_syntax::{Directive, line_of, parse};

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
        let failed = RefCell::new(None);
        let list = |pattern: &str| {
            self.list(pattern).unwrap_or_else(|error| {
                failed.replace(Some(error));
                Vec::new()
            })
        };
        let directives = parse(&text, &list).map_err(|at| {
            io::Error::other(format!("{}:{}: not understood", path.display(), line_of(&text, at)))
        })?;
        failed.into_inner().map_or(Ok(()), Err)?;
        self.directives(&directives)
    }

    /// The files of an include.
    fn list(&self, pattern: &str) -> io::Result<Vec<PathBuf>> {
        let pattern = self.main.parent().unwrap_or(Path::new("/")).join(pattern);
        let paths = glob::glob_with(&pattern.to_string_lossy(), AS_NGINX).map_err(io::Error::other)?;
        paths.map(|path| path.map_err(io::Error::from)).collect()
    }

    fn directives(&mut self, directives: &[Directive]) -> io::Result<()> {
        for directive in directives {
            if directive.block.is_none() {
                self.directive(directive)?;
                continue;
            }
            self.blocks.push(Block { words: directive.words.clone(), ..Block::default() });
            self.directives(&directive.inner)?;
            self.close();
        }
        Ok(())
    }

    fn directive(&mut self, directive: &Directive) -> io::Result<()> {
        let words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
        let Some(block) = self.blocks.last_mut() else { return Ok(()) };
        match words[..] {
            ["include", _] => directive.files.iter().try_for_each(|path| self.file(path))?,
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
