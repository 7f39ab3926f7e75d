//! A configuration of nginx with slowlane in one of its servers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::proxy::attach::{Block, Refused, with_blocks};

/// The most files that are read: a loop of includes ends there.
const FILES_MAX: usize = 1_000;

/// The files of a configuration, as texts.
#[derive(Clone, Debug, Default)]
pub struct Files {
    main: PathBuf,
    texts: BTreeMap<PathBuf, String>,
}

/// A configuration with slowlane in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The files that change, as they would be.
    pub changed: BTreeMap<PathBuf, String>,
    /// The whole configuration with slowlane in one text, to be tried.
    pub whole: String,
    /// The server that asks slowlane.
    pub server: String,
    /// What the operator should know.
    pub notes: Vec<String>,
}

/// A directive, with its block if it has one.
#[derive(Clone, Debug)]
struct Directive {
    words: Vec<String>,
    /// The byte after its `;` or `}`, and the byte of its first word.
    begin: usize,
    end: usize,
    block: Option<Inner>,
}

/// The inside of `{ }`.
#[derive(Clone, Debug)]
struct Inner {
    begin: usize,
    end: usize,
    directives: Vec<Directive>,
}

impl Directive {
    fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    fn inner(&self) -> &[Directive] {
        self.block.as_ref().map_or(&[], |block| &block.directives)
    }
}

/// Reads the directives of a text. The error is the number of the line that is not understood.
fn parse(text: &str) -> Result<Vec<Directive>, usize> {
    let mut parser = Parser { text: text.as_bytes(), at: 0 };
    let directives = parser.directives(0).map_err(|()| line_of(text, parser.at))?;
    if parser.at < text.len() { Err(line_of(text, parser.at)) } else { Ok(directives) }
}

/// The line of a byte, counted from 0.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
}

/// Blocks within blocks: nginx itself has no more than a few.
const DEPTH_MAX: usize = 32;

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                _ if byte.is_ascii_whitespace() => self.at += 1,
                _ => return,
            }
        }
    }

    fn directives(&mut self, depth: usize) -> Result<Vec<Directive>, ()> {
        let mut directives = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                None | Some(b'}') => return Ok(directives),
                Some(_) => directives.push(self.directive(depth)?),
            }
        }
    }

    fn directive(&mut self, depth: usize) -> Result<Directive, ()> {
        let (begin, mut words) = (self.at, Vec::new());
        loop {
            self.skip_space();
            match self.peek().ok_or(())? {
                b';' => {
                    self.at += 1;
                    return Ok(Directive { words, begin, end: self.at, block: None });
                }
                b'{' if depth < DEPTH_MAX => {
                    self.at += 1;
                    let inner = self.at;
                    let is_code = words.first().is_some_and(|name: &String| name.ends_with("_by_lua_block"));
                    let directives = if is_code { self.skip_code()? } else { self.directives(depth + 1)? };
                    let end = self.at;
                    if self.peek() != Some(b'}') {
                        return Err(());
                    }
                    self.at += 1;
                    let block = Some(Inner { begin: inner, end, directives });
                    return Ok(Directive { words, begin, end: self.at, block });
                }
                b'{' | b'}' => return Err(()),
                _ => words.push(self.word()?),
            }
        }
    }

    /// Skips Lua up to its last brace.
    fn skip_code(&mut self) -> Result<Vec<Directive>, ()> {
        let mut depth = 0;
        loop {
            match self.peek().ok_or(())? {
                b'{' => depth += 1,
                b'}' if depth == 0 => return Ok(Vec::new()),
                b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }

    fn word(&mut self) -> Result<String, ()> {
        let quote = self.peek().filter(|byte| matches!(byte, b'"' | b'\''));
        self.at += usize::from(quote.is_some());
        let mut word = Vec::new();
        loop {
            let byte = self.peek();
            match (byte, quote) {
                (Some(b'\\'), _) => {
                    word.push(*self.text.get(self.at + 1).ok_or(())?);
                    self.at += 2;
                    continue;
                }
                (None, Some(_)) => return Err(()),
                (Some(byte), Some(quote)) if byte == quote => {
                    self.at += 1;
                    break;
                }
                (Some(b'$'), None) if self.text.get(self.at + 1) == Some(&b'{') => {
                    word.extend_from_slice(b"${");
                    self.at += 2;
                    continue;
                }
                (None | Some(b';' | b'{'), None) => break,
                (Some(byte), None) if byte.is_ascii_whitespace() => break,
                (Some(byte), _) => word.push(byte),
            }
            self.at += 1;
        }
        Ok(String::from_utf8_lossy(&word).into_owned())
    }
}

/// A server of HTTP that could ask slowlane.
#[derive(Clone, Debug)]
struct Server {
    file: PathBuf,
    directive: Directive,
    names: Vec<String>,
}

impl Server {
    fn shown(&self) -> String {
        match self.names.first() {
            Some(name) => name.clone(),
            None => format!("without a name ({})", self.file.display()),
        }
    }

    /// Whether it answers each request itself, by a `return` of its own.
    fn only_returns(&self) -> bool {
        self.directive.inner().iter().any(|directive| directive.name() == "return")
    }
}

/// The places of slowlane's two files.
#[derive(Clone, Copy, Debug)]
pub struct Ours<'a> {
    /// The file for the block `http`, and its text.
    pub http: (&'a Path, &'a str),
    /// The file for a server, and its text.
    pub server: (&'a Path, &'a str),
}

impl Files {
    /// Reads the main file and all that it includes. `read` reads a file, `list` gives the files of a pattern.
    ///
    /// # Errors
    /// A file cannot be read or is not understood.
    pub fn read<E: From<Refused>>(
        main: &Path,
        read: impl Fn(&Path) -> Result<String, E>,
        list: &dyn Fn(&Path) -> Vec<PathBuf>,
    ) -> Result<Files, E> {
        let mut files = Files { main: main.to_owned(), texts: BTreeMap::new() };
        let mut left = vec![main.to_owned()];
        while let Some(path) = left.pop() {
            if files.texts.contains_key(&path) {
                continue;
            }
            if files.texts.len() == FILES_MAX {
                return Err(Refused::TooManyFiles(FILES_MAX).into());
            }
            let text = read(&path)?;
            let directives = parse(&text).map_err(|line| not_understood(&path, line))?;
            files.texts.insert(path, text);
            left.extend(includes(&directives).flat_map(|pattern| list(&files.absolute(pattern))));
        }
        Ok(files)
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.texts.keys().map(PathBuf::as_path)
    }

    /// The text of one of the files.
    pub fn text(&self, path: &Path) -> &str {
        &self.texts[path]
    }

    /// A path of the configuration. nginx looks from the folder of its main file.
    fn absolute(&self, path: &str) -> PathBuf {
        self.main.parent().unwrap_or(Path::new("/")).join(path)
    }
}

fn not_understood(path: &Path, line: usize) -> Refused {
    Refused::Odd { file: path.display().to_string(), line: line + 1, reason: "this is not understood" }
}

/// The patterns of all includes, at any depth.
fn includes(directives: &[Directive]) -> Box<dyn Iterator<Item = &str> + '_> {
    Box::new(directives.iter().flat_map(|directive| {
        let own =
            (directive.name() == "include").then(|| directive.words.get(1).map(String::as_str)).flatten();
        own.into_iter().chain(includes(directive.inner()))
    }))
}

/// Adds slowlane to the server with this name, or to the only one. `list` gives the files of a pattern.
///
/// # Errors
/// No server or more than one fits, slowlane is attached already, or a place for its lines cannot be found.
pub fn attach(
    files: &Files,
    name: Option<&str>,
    ours: Ours<'_>,
    list: &dyn Fn(&Path) -> Vec<PathBuf>,
) -> Result<Attached, Refused> {
    let tree = Tree { files, list };
    let servers = tree.servers()?;
    let server = chosen(&servers, name)?;
    let text = &files.texts[&server.file];
    let refuse = |at: usize, reason: &'static str| Refused::Odd {
        file: server.file.display().to_string(),
        line: line_of(text, at) + 1,
        reason,
    };
    if let Some(own) = server.directive.inner().iter().find(|own| own.name() == "auth_request") {
        return Err(refuse(own.begin, "this server has an auth_request of its own: nginx allows one"));
    }
    let place = line_after(text, &server.directive)
        .ok_or_else(|| refuse(server.directive.begin, "its braces share lines with directives"))?;
    let (http_file, http) = tree.http()?;
    let http_text = &files.texts[&http_file];
    let http_place = last_line(http_text, &http).ok_or_else(|| Refused::Odd {
        file: http_file.display().to_string(),
        line: line_of(http_text, http.begin) + 1,
        reason: "its braces share lines with directives",
    })?;
    let include = |path: &Path| vec![format!("    include {};", path.display())];
    let mut blocks: BTreeMap<&Path, Vec<Block>> = BTreeMap::new();
    blocks.entry(&server.file).or_default().push(Block { before: place, lines: include(ours.server.0) });
    blocks.entry(&http_file).or_default().push(Block { before: http_place, lines: include(ours.http.0) });
    let changed: BTreeMap<PathBuf, String> = blocks
        .into_iter()
        .map(|(path, blocks)| (path.to_owned(), with_blocks(&files.texts[path], blocks)))
        .collect();
    let mut edited = files.clone();
    edited.texts.extend(changed.clone());
    edited.texts.extend([ours.http, ours.server].map(|(path, text)| (path.to_owned(), text.to_owned())));
    let whole = edited.whole(list)?;
    Ok(Attached {
        changed,
        whole,
        server: server.shown(),
        notes: notes(&server.directive, text, &server.file),
    })
}

/// The files of a configuration, and the way from an include to them.
struct Tree<'f> {
    files: &'f Files,
    list: &'f dyn Fn(&Path) -> Vec<PathBuf>,
}

impl Tree<'_> {
    fn parsed(&self, path: &Path) -> Result<Vec<Directive>, Refused> {
        parse(&self.files.texts[path]).map_err(|line| not_understood(path, line))
    }

    /// The block `http`, which is in the main file or in one that it includes.
    fn http(&self) -> Result<(PathBuf, Directive), Refused> {
        for path in self.files.texts.keys() {
            if let Some(http) = self.parsed(path)?.into_iter().find(|directive| directive.name() == "http") {
                return Ok((path.clone(), http));
            }
        }
        Err(Refused::None("block http"))
    }

    /// The servers of HTTP that reach an application.
    fn servers(&self) -> Result<Vec<Server>, Refused> {
        let (file, http) = self.http()?;
        let mut servers = Vec::new();
        self.collect(&file, http.inner(), &mut servers, 0)?;
        Ok(servers.into_iter().filter(|server| !server.only_returns()).collect())
    }

    fn collect(
        &self,
        file: &Path,
        directives: &[Directive],
        servers: &mut Vec<Server>,
        depth: usize,
    ) -> Result<(), Refused> {
        for directive in directives {
            match directive.name() {
                "server" if directive.block.is_some() => {
                    let names = directive.inner().iter().filter(|inner| inner.name() == "server_name");
                    let names = names.flat_map(|names| names.words[1..].to_vec()).filter(|name| name != "_");
                    let names = names.collect();
                    servers.push(Server { file: file.to_owned(), directive: directive.clone(), names });
                }
                "include" if depth < DEPTH_MAX => {
                    let pattern = self.files.absolute(directive.words.get(1).map_or("", String::as_str));
                    for path in (self.list)(&pattern) {
                        self.collect(&path, &self.parsed(&path)?, servers, depth + 1)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn chosen<'s>(servers: &'s [Server], name: Option<&str>) -> Result<&'s Server, Refused> {
    let shown = || servers.iter().map(Server::shown).collect::<Vec<_>>();
    let Some(name) = name else {
        return match servers {
            [only] => Ok(only),
            [] => Err(Refused::None("server")),
            _ => Err(Refused::Several { flag: "--server", found: shown() }),
        };
    };
    let named: Vec<&Server> =
        servers.iter().filter(|server| server.names.iter().any(|own| own == name)).collect();
    match named.as_slice() {
        [only] => Ok(only),
        [] => Err(Refused::NoSuch { kind: "server", name: name.to_owned(), found: shown() }),
        _ => Err(Refused::SameName { name: name.to_owned(), count: named.len() }),
    }
}

/// The line after the first in a block, or after its names and addresses: slowlane's line may be there.
fn line_after(text: &str, server: &Directive) -> Option<usize> {
    let block = server.block.as_ref()?;
    let is_head = |directive: &&Directive| matches!(directive.name(), "listen" | "server_name");
    let head = block.directives.iter().filter(is_head).map(|directive| directive.end).max();
    let at =
        head.filter(|&at| ends_line(text, at)).or(Some(block.begin)).filter(|&at| ends_line(text, at))?;
    Some(line_of(text, at) + 1)
}

/// The line of the brace that ends a block, if nothing stands before it.
fn last_line(text: &str, directive: &Directive) -> Option<usize> {
    let end = directive.block.as_ref()?.end;
    let line = text[..end].rsplit('\n').next()?;
    line.trim().is_empty().then(|| line_of(text, end))
}

/// Whether only a comment follows on the line.
fn ends_line(text: &str, at: usize) -> bool {
    let rest = text[at..].split('\n').next().unwrap_or_default().trim_start();
    rest.is_empty() || rest.starts_with('#')
}

impl Files {
    /// The whole configuration in one text, as `nginx -T` has it.
    ///
    /// # Errors
    /// A file is not understood.
    pub fn whole(&self, list: &dyn Fn(&Path) -> Vec<PathBuf>) -> Result<String, Refused> {
        self.whole_of(&self.main, list, 0)
    }

    /// The text of a file with all includes in their places.
    fn whole_of(
        &self,
        path: &Path,
        list: &dyn Fn(&Path) -> Vec<PathBuf>,
        depth: usize,
    ) -> Result<String, Refused> {
        let text = &self.texts[path];
        let directives = parse(text).map_err(|line| not_understood(path, line))?;
        let mut spans = Vec::new();
        include_spans(&directives, &mut spans);
        let (mut written, mut at) = (String::new(), 0);
        for (begin, end, pattern) in spans {
            written += &text[at..begin];
            at = end;
            let pattern = self.absolute(&pattern);
            let found = if self.texts.contains_key(&pattern) { vec![pattern] } else { list(&pattern) };
            for path in found.iter().filter(|path| depth < DEPTH_MAX && self.texts.contains_key(*path)) {
                written += &self.whole_of(path, list, depth + 1)?;
                written += "\n";
            }
        }
        Ok(written + &text[at..])
    }
}

/// The place of each include, at any depth, and its pattern.
fn include_spans(directives: &[Directive], spans: &mut Vec<(usize, usize, String)>) {
    for directive in directives {
        match (directive.name(), directive.words.get(1)) {
            ("include", Some(pattern)) => spans.push((directive.begin, directive.end, pattern.clone())),
            _ => include_spans(directive.inner(), spans),
        }
    }
}

/// The directives of a server by which requests pass without a question, or get another answer than 429.
fn notes(server: &Directive, text: &str, file: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |directive: &Directive, reason: &str| {
        notes.push(format!("{}:{}: {reason}", file.display(), line_of(text, directive.begin) + 1));
    };
    let mut left: Vec<(&Directive, bool)> = server.inner().iter().map(|inner| (inner, false)).collect();
    left.reverse();
    while let Some((directive, is_in_location)) = left.pop() {
        let words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
        match words[..] {
            ["return", ..] => note(directive, "nginx answers `return` before it asks slowlane: not counted"),
            ["rewrite", .., "redirect" | "permanent"] => {
                note(directive, "nginx redirects before it asks slowlane: not counted");
            }
            ["satisfy", "any"] => {
                note(directive, "with `satisfy any`, a client that `allow` lets in is not asked about")
            }
            ["auth_request", ..] => note(directive, "this location asks another service, and not slowlane"),
            ["error_page", ..] if is_in_location => {
                note(
                    directive,
                    "this location has its own error pages: add slowlane's `error_page 403`, or it answers 403",
                );
            }
            _ => {}
        }
        let is_location = is_in_location || directive.name() == "location";
        left.extend(directive.inner().iter().rev().map(|inner| (inner, is_location)));
    }
    notes
}
