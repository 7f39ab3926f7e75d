//! The code of a file: what it names, without comments, literals and test modules.
//!
//! Tokens are read, not types. Out of reach are the methods of a value that is handed in, the names that a macro of
//! another crate makes up, and a module that a `.rs` file and a directory of the same name share. clippy.toml sees the
//! types behind those names, and visibility keeps rooms to themselves.

use super::tokens::{is_word, tokens};

/// What the rules want to know of a file.
#[derive(Debug, Default)]
pub struct Code {
    /// Every path that is written, with the trees of `use` taken apart: `std::{fs, io}` is two.
    ///
    /// A path that begins with an imported name is written out, and a glob ends with `*`.
    pub paths: Vec<Vec<String>>,
    /// The paths that are made public again: `pub use`.
    pub reexports: Vec<Vec<String>>,
    /// Ways to name something that a reader of paths cannot follow.
    pub hidden: Vec<&'static str>,
    /// The macros that are called or defined.
    pub macros: Vec<String>,
    /// The test modules that are files of their own.
    pub test_files: Vec<String>,
}

/// A path of a `use`, and the name that it has in this file.
struct Import {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

/// Words that are no name. `return ::std::fs::read(x)` names a path of `std`, not of `return`.
const KEYWORDS: &[&str] = &[
    "as", "async", "await", "break", "const", "continue", "dyn", "else", "enum", "extern", "fn", "for", "if",
    "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "static", "struct",
    "trait", "type", "unsafe", "use", "where", "while", "yield",
];

/// Reads a file.
pub fn code(text: &str) -> Code {
    let mut test_files = Vec::new();
    let tokens = without_tests(tokens(text), &mut test_files);
    // A module that is also built without tests is no test module.
    test_files.retain(|file| !tokens.windows(2).any(|pair| pair[0] == "mod" && pair[1] == *file));
    let (mut imports, mut paths) = (Vec::new(), Vec::new());
    let mut place = 0;
    while place < tokens.len() {
        let follows = |back: usize, what: &str| place >= back && tokens[place - back] == what;
        if tokens[place] == "in" && follows(1, "(") && follows(2, "pub") {
            // `pub(in crate::room)` says who may see an item: it takes nothing from there.
            place += tokens[place..].iter().take_while(|token| *token != ")").count();
        } else if tokens[place] == "use" && tokens.get(place + 1).is_some_and(|next| next != "<") {
            let is_public = place > 0 && (follows(1, "pub") || follows(1, ")"));
            place += 1;
            let first = imports.len();
            tree(&tokens, &mut place, &mut Vec::new(), &mut imports);
            imports[first..].iter_mut().for_each(|import| import.is_public = is_public);
        } else if begins_path(&tokens, place) {
            let (mut found, mut next) = (Vec::new(), place);
            tree(&tokens, &mut next, &mut Vec::new(), &mut found);
            paths.extend(found.into_iter().map(|import| import.path).filter(|path| path.len() > 1));
            place = next.max(place + 1);
        } else {
            place += 1;
        }
    }
    let mut hidden = hidden(&tokens);
    if imports.iter().any(|import| import.path.ends_with(&["*".to_owned()])) {
        hidden.push("imports a glob");
    }
    let calls = tokens.windows(3).filter(|three| is_word(&three[0]) && three[1] == "!" && three[2] != "=");
    let written_out = |path: &[String]| written_out(path, &imports);
    Code {
        paths: imports
            .iter()
            .map(|import| &import.path)
            .chain(&paths)
            .map(|path| written_out(path))
            .collect(),
        reexports: imports
            .iter()
            .filter(|import| import.is_public)
            .map(|import| written_out(&import.path))
            .collect(),
        hidden,
        macros: calls.map(|three| three[0].clone()).collect(),
        test_files,
    }
}

/// Whether a path begins here: at a name that is no part of a longer path, and no field or method.
fn begins_path(tokens: &[String], place: usize) -> bool {
    let is_name = |token: &String| is_word(token) && !KEYWORDS.contains(&token.as_str());
    let before = |back: usize| place.checked_sub(back).map(|place| &tokens[place]);
    let is = |back: usize, what: &str| before(back).is_some_and(|token| token == what);
    // `::std` begins a path, `x::std` and `<X>::std` do not.
    let is_inside = is(1, "::") && before(2).is_some_and(|token| is_name(token) || token == ">");
    // `..x` is a range.
    let is_member = is(1, ".") && !is(2, ".");
    is_name(&tokens[place]) && !is_inside && !is_member
}

/// A path and the trees that end it: `a::{b, c::d as e}` is `a::b` and `a::c::d`.
fn tree(tokens: &[String], next: &mut usize, base: &mut Vec<String>, found: &mut Vec<Import>) {
    let is = |place: usize, what: &str| tokens.get(place).is_some_and(|token| token == what);
    let depth = base.len();
    if is(*next, "::") {
        *next += 1;
    }
    while let Some(token) = tokens.get(*next) {
        *next += 1;
        if token == "{" {
            while *next < tokens.len() && !is(*next, "}") {
                tree(tokens, next, base, found);
                if is(*next, ",") {
                    *next += 1;
                }
            }
            *next += 1;
            break;
        }
        if token != "self" || base.is_empty() {
            base.push(token.clone());
        }
        let goes_on = is(*next, "::")
            && tokens.get(*next + 1).is_some_and(|token| is_word(token) || token == "{" || token == "*");
        if goes_on {
            *next += 1;
            continue;
        }
        let mut name = base.last().cloned().unwrap_or_default();
        // In `x::y as crate::Z` a path follows, no name.
        if is(*next, "as") && [",", "}", ";"].iter().any(|end| is(*next + 2, end)) {
            name = tokens[*next + 1].clone();
            *next += 2;
        }
        found.push(Import { path: base.clone(), name, is_public: false });
        break;
    }
    base.truncate(depth);
}

/// A path with an imported name at its start taken for what it stands for: `fs::read` is `std::fs::read`.
fn written_out(path: &[String], imports: &[Import]) -> Vec<String> {
    const CHAIN_MAX: usize = 8;
    let mut path = path.to_owned();
    for _ in 0..CHAIN_MAX {
        let stands_for = imports.iter().find(|import| import.name == path[0] && import.path[0] != path[0]);
        let Some(import) = stands_for else { break };
        path.splice(..1, import.path.iter().cloned());
    }
    path
}

/// The ways to name something unseen that a file uses.
fn hidden(tokens: &[String]) -> Vec<&'static str> {
    let mut hidden = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        let is = |place: usize, what: &str| tokens.get(place).is_some_and(|token| token == what);
        let before = |back: usize, what: &str| place >= back && is(place - back, what);
        match token.as_str() {
            "crate" | "super" if !(is(place + 1, "::") || before(1, "(") && before(2, "pub")) => {
                hidden.push("gives the crate or a module another name");
            }
            "crate" | "super" | "self" if is(place + 1, "::") && is(place + 2, "$") => {
                hidden.push("makes up a path in a macro");
            }
            "include" if is(place + 1, "!") => hidden.push("includes another file"),
            "path" if is(place + 1, "=") && !is(place + 2, ">") && (before(1, "[") || before(1, ",")) => {
                hidden.push("moves a module to another file");
            }
            "macro_use" | "macro_export" => hidden.push("hands out a macro without a path"),
            "mod" if is(place + 2, "{") => hidden.push("has a module inside"),
            _ => {}
        }
    }
    hidden
}

/// The tokens without the modules and the attributes that are only there for tests. Other items for tests stay.
fn without_tests(tokens: Vec<String>, test_files: &mut Vec<String>) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    const ATTRIBUTE: [&str; 7] = ["#", "!", "[", "cfg_attr", "(", "test", ","];
    let (mut kept, mut place) = (Vec::new(), 0);
    while place < tokens.len() {
        if tokens[place..].iter().take(MARK.len()).eq(MARK.iter())
            && let Some(end) = module_end(&tokens, place + MARK.len(), test_files)
        {
            place = end;
        } else if tokens[place..].iter().take(ATTRIBUTE.len()).eq(ATTRIBUTE.iter()) {
            place = close(&tokens, place + 2, "[", "]");
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
        "std::io",
        "std::io::Read",
    ];
    assert_eq!(paths, want);
    assert_eq!(read.reexports.len(), 3);
    assert_eq!(read.test_files, ["more"]);
    assert_eq!(read.hidden, [""; 0]);
}

#[test]
fn no_way_to_write_a_path_is_missed() {
    let faults = [
        ("use ::a::b;", "a::b"),
        ("use {a::b};", "a::b"),
        ("use {::a::{self, b::{c as d, *}}};", "a a::b::* a::b::c"),
        ("use a::*;", "a::*"),
        ("fn f() { return ::a::b() }", "a::b"),
        ("fn f() { 0..a::b }", "a::b"),
        ("fn f() { x.y.a::<B>(); <A as a::b>::c() }", "a::b"),
        ("fn f() { x::y as a::b }", "a::b x::y"),
        ("fn f(x: impl Fn(a::b) -> c::d + use<'_>) {}", "a::b c::d"),
        ("macro_rules! m { ($x:ty) => { $crate::a::b::<$x>() } }", "crate::a::b"),
        ("#[x(with = \"a::b\")] struct S;", "a::b"),
        ("fn f() { r#a::r#b() }", "a::b"),
        ("use std::fs as f; use f as g; fn f() { g::read() }", "std::fs std::fs std::fs::read"),
        ("use a::b; type T = b::c;", "a::b a::b::c"),
    ];
    for (text, want) in faults {
        let mut paths: Vec<String> = code(text).paths.iter().map(|path| path.join("::")).collect();
        paths.sort();
        assert_eq!(paths.join(" "), want, "{text}");
    }
}
