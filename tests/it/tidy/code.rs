//! The code of a file: what it names, without comments, literals and test modules.

/// What the rules want to know of a file.
#[derive(Debug, Default)]
pub struct Code {
    /// Every path that is written, with the trees of `use` taken apart: `std::{fs, io}` is two.
    pub paths: Vec<Vec<String>>,
    /// The paths that are made public again: `pub use`.
    pub reexports: Vec<Vec<String>>,
    /// All words, in order.
    pub words: Vec<String>,
    /// The test modules that are files of their own.
    pub test_files: Vec<String>,
}

/// Reads a file.
pub fn code(text: &str) -> Code {
    let mut test_files = Vec::new();
    let tokens = without_tests(tokens(text), &mut test_files);
    let mut code = Code { test_files, ..Code::default() };
    code.words = tokens.iter().filter(|token| is_word(token)).cloned().collect();
    let mut place = 0;
    while place < tokens.len() {
        let follows = |back: usize, what: &str| place >= back && tokens[place - back] == what;
        if tokens[place] == "in" && follows(1, "(") && follows(2, "pub") {
            // `pub(in crate::room)` says who may see an item: it takes nothing from there.
            place += tokens[place..].iter().take_while(|token| *token != ")").count();
        } else if is_word(&tokens[place]) && !follows(1, "::") && !follows(1, ".") {
            let (mut found, mut next) = (Vec::new(), place);
            tree(&tokens, &mut next, &mut Vec::new(), &mut found);
            found.retain(|path: &Vec<String>| path.len() > 1);
            if is_reexport(&tokens[..place]) {
                code.reexports.extend(found.iter().cloned());
            }
            code.paths.extend(found);
            place = next.max(place + 1);
        } else {
            place += 1;
        }
    }
    code
}

/// Whether `pub use` or `pub(crate) use` stands before a path.
fn is_reexport(before: &[String]) -> bool {
    let [before @ .., last] = before else { return false };
    last == "use" && before.last().is_some_and(|word| word == "pub" || word == ")")
}

/// A path and the trees that end it: `a::{b, c::d as e}` is `a::b` and `a::c::d`.
fn tree(tokens: &[String], next: &mut usize, base: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let depth = base.len();
    loop {
        match tokens.get(*next).map(String::as_str) {
            Some("{") if !base.is_empty() => {
                *next += 1;
                while tokens.get(*next).is_some_and(|token| token != "}") {
                    let before = *next;
                    tree(tokens, next, base, found);
                    // `as name`, or the comma.
                    while tokens.get(*next).is_some_and(|token| token != "}" && token != ",") {
                        *next += 1;
                    }
                    if tokens.get(*next).is_some_and(|token| token == ",") {
                        *next += 1;
                    }
                    *next = (*next).max(before + 1);
                }
                *next += 1;
                break;
            }
            Some(token) if is_word(token) => {
                base.push(token.to_owned());
                *next += 1;
                if tokens.get(*next).is_some_and(|token| token == "::")
                    && tokens
                        .get(*next + 1)
                        .is_some_and(|token| is_word(token) || token == "{" || token == "*")
                {
                    *next += 1;
                } else {
                    found.push(base.clone());
                    break;
                }
            }
            _ => {
                // A glob names the module.
                found.push(base.clone());
                *next += 1;
                break;
            }
        }
    }
    base.truncate(depth);
}

/// The tokens without the modules that are only built for tests. Other items for tests stay.
fn without_tests(tokens: Vec<String>, test_files: &mut Vec<String>) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut place) = (Vec::new(), 0);
    while place < tokens.len() {
        if tokens[place..].iter().take(MARK.len()).eq(MARK.iter())
            && let Some(end) = module_end(&tokens, place + MARK.len(), test_files)
        {
            place = end;
        } else {
            kept.push(tokens[place].clone());
            place += 1;
        }
    }
    kept
}

/// One past the end of the module that begins here, behind its attributes and its visibility.
fn module_end(tokens: &[String], start: usize, test_files: &mut Vec<String>) -> Option<usize> {
    let is = |place: usize, what: &str| tokens.get(place).is_some_and(|token| token == what);
    let mut place = start;
    while is(place, "#") {
        place = close(tokens, place + 1, "[", "]");
    }
    if is(place, "pub") {
        place = if is(place + 1, "(") { close(tokens, place + 1, "(", ")") } else { place + 1 };
    }
    if !is(place, "mod") {
        return None;
    }
    if is(place + 2, ";") {
        test_files.push(tokens[place + 1].clone());
        return Some(place + 3);
    }
    Some(close(tokens, place + 2, "{", "}"))
}

/// One past the token that closes what opens here.
fn close(tokens: &[String], open_at: usize, open: &str, closing: &str) -> usize {
    let mut depth = 0;
    for (place, token) in tokens.iter().enumerate().skip(open_at) {
        depth += i32::from(token == open) - i32::from(token == closing);
        if depth == 0 {
            return place + 1;
        }
    }
    tokens.len()
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::` and single signs. Comments and literals are left out.
fn tokens(text: &str) -> Vec<String> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = literal(rest) {
            length
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..end].to_owned());
            end
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    tokens
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
fn paths_are_read_as_they_are_meant() {
    let read = code(
        r##"
        use crate::wire::spop::{Frame, Step as S};
        pub use std::{fs, io::{self, Read}};
        // use crate::comment::X;
        const TEXT: &str = r#"crate::text::X "quoted""#;
        fn f<'a>(x: &'a str) -> char { crate::law::now(); '\''; '"' }
        #[cfg(test)]
        #[allow(unused)]
        pub(super) mod tests { use crate::cli::X; }
        #[cfg(test)]
        mod more;
        pub(in crate::law) fn after() { crate::table::last::<u8>() }
        "##,
    );
    let mut paths: Vec<String> = read.paths.iter().map(|path| path.join("::")).collect();
    paths.sort();
    let want = [
        "crate::law::now",
        "crate::table::last",
        "crate::wire::spop::Frame",
        "crate::wire::spop::Step",
        "std::fs",
        "std::io::Read",
        "std::io::self",
    ];
    assert_eq!(paths, want);
    assert_eq!(read.reexports.len(), 3);
    assert_eq!(read.test_files, ["more"]);
}
