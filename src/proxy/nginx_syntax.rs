//! The syntax of nginx's configuration: directives and their blocks.

/// A directive, with its block if it has one.
#[derive(Clone, Debug)]
pub struct Directive {
    pub words: Vec<String>,
    /// The byte of its first word, and the byte after its `;` or `}`.
    pub begin: usize,
    pub end: usize,
    pub block: Option<Inner>,
}

/// The inside of `{ }`.
#[derive(Clone, Debug)]
pub struct Inner {
    pub begin: usize,
    pub end: usize,
    pub directives: Vec<Directive>,
}

impl Directive {
    pub fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub fn inner(&self) -> &[Directive] {
        self.block.as_ref().map_or(&[], |block| &block.directives)
    }
}

/// Reads the directives of a text.
///
/// ```
/// use slowlane::proxy::nginx_syntax::parse;
/// let directives = parse("server { limit_req zone=one; }").unwrap();
/// assert_eq!(directives[0].inner()[0].words, ["limit_req", "zone=one"]);
/// assert_eq!(parse("server {\n}}").unwrap_err(), 1);
/// ```
///
/// # Errors
/// The line that is not understood, counted from 0.
pub fn parse(text: &str) -> Result<Vec<Directive>, usize> {
    let mut parser = Parser { text: text.as_bytes(), at: 0 };
    let directives = parser.directives(0).map_err(|()| line_of(text, parser.at))?;
    if parser.at < text.len() { Err(line_of(text, parser.at)) } else { Ok(directives) }
}

/// The line of a byte, counted from 0.
pub fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
}

/// Blocks within blocks: nginx itself has no more than a few.
pub const DEPTH_MAX: usize = 32;

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
