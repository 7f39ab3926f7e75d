//! Tokens of Rust source: words, `::` and single signs.

/// The tokens of a text. Comments and literals are left out.
///
/// A literal in an attribute stays when it may be a path, as in `#[serde(with = "crate::wire::x")]`.
pub fn tokens(text: &str) -> Vec<String> {
    let (mut tokens, mut rest, mut brackets) = (Vec::new(), text, 0);
    while let Some(first) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            comment(rest)
        } else if let Some(length) = literal(rest) {
            let inner = rest[..length].trim_matches('"');
            if brackets > 0 && !inner.contains(|c: char| c.is_whitespace() || c == '"') {
                tokens.extend(self::tokens(inner));
            }
            length
        } else if is_letter(first) || first.is_numeric() {
            // `r#name` is `name`.
            let start = if rest.starts_with("r#") { 2 } else { 0 };
            let word = &rest[start..];
            let end = word.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(word.len());
            tokens.push(word[..end].to_owned());
            start + end
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            match first {
                '[' if brackets > 0 || begins_attribute(&tokens) => brackets += 1,
                ']' if brackets > 0 => brackets -= 1,
                _ => {}
            }
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    tokens
}

pub fn is_word(token: &str) -> bool {
    token.starts_with(is_letter)
}

fn is_letter(letter: char) -> bool {
    letter.is_alphabetic() || letter == '_'
}

/// Whether `#` or `#!` stands before a bracket.
fn begins_attribute(before: &[String]) -> bool {
    before.last().is_some_and(|last| last == "#") || before.ends_with(&["#".to_owned(), "!".to_owned()])
}

/// The length of the comment that a text begins with. Comments nest.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        at += if rest.starts_with("/*") {
            depth += 1;
            2
        } else if rest.starts_with("*/") {
            depth -= 1;
            2
        } else {
            rest.chars().next().map_or(0, char::len_utf8)
        };
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of the string or character literal that a text begins with.
fn literal(text: &str) -> Option<usize> {
    let head = text.trim_start_matches(['b', 'c', 'r']);
    let prefix = text.len() - head.len();
    let hashes = head.len() - head.trim_start_matches('#').len();
    if prefix <= 2 && text[..prefix].contains('r') && head[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let body = prefix + hashes + 1;
        return text[body..].find(&end).map(|at| body + at + end.len());
    }
    if prefix <= 1 && head.starts_with('"') {
        return quoted(head, '"').map(|length| prefix + length);
    }
    // A lifetime has no second quote: 'a' is a letter, 'a is none.
    let is_letter =
        head.starts_with('\'') && (head[1..].starts_with('\\') || head.chars().nth(2) == Some('\''));
    if prefix <= 1 && is_letter { quoted(head, '\'').map(|length| prefix + length) } else { None }
}

fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            letter if letter == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[test]
fn comments_and_literals_are_left_out() {
    let read = |text: &str| tokens(text).join(" ");
    assert_eq!(read("a /* /* */ \" */ b /* \" */ c // d\ne"), "a b c e");
    assert_eq!(read(r###"a r#"b " c"# '"' d '\'' b'"' <'a> "e \" f" g"###), "a d < ' a > g");
    assert_eq!(read("r#crate::r#mod"), "crate :: mod");
    assert_eq!(
        read(r#"#[a(b = "c::d")] #![e = "f g"] x = "y::z""#),
        "# [ a ( b = c :: d ) ] # ! [ e = ] x ="
    );
}
