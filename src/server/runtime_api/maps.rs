//! The maps of the policy, as the Runtime API shows them.

use std::fmt::Write;
use std::sync::Weak;

use slowlane_core::base::Shown;
use slowlane_core::policy::{MapView, Policy};

/// The approximate length of a piece in bytes, a little less than a page of rows.
pub const PIECE_BYTES: usize = 8 * 1024;

/// Finds a map by `#1`, by its path in `show map`, or by the name of its file.
pub(super) fn map<'p>(policy: &'p Policy, name: &str) -> Result<MapView<'p>, String> {
    let is_it = |map: &MapView<'_>| match name.strip_prefix('#') {
        Some(number) => number.parse() == Ok(map.number),
        None => map.path.as_os_str() == name || map.path.file_name().is_some_and(|file| file == name),
    };
    let none = || "Unknown map identifier. Please use #<id> or <file>.\n".to_owned();
    policy.maps().find(is_it).ok_or_else(none)
}

/// `show map`.
pub(super) fn maps(policy: &Policy) -> String {
    let line = |map: MapView<'_>| {
        let path = Shown(map.path.as_os_str().as_encoded_bytes());
        let used_by = match map.lookup {
            Some(lookup) => format!("lookup {} ({})", Shown(lookup.as_bytes()), map.method),
            None => "SLOs".into(),
        };
        format!(
            "{} ({path}) pattern loaded from file '{path}' used by {used_by}. curr_ver=0 next_ver=0 entry_cnt={}\n",
            map.number, map.entries
        )
    };
    "# id (file) description\n".to_owned() + &policy.maps().map(line).collect::<String>()
}

/// Lines of `show map <map>` from an index on, and the index of the next piece. In place of HAProxy's memory address, it
/// shows the offset of the line in its file.
///
/// The policy is held weakly: a slow reader must not keep an old policy alive.
pub(super) fn lines(policy: &Weak<Policy>, number: usize, from: usize, out: &mut String) -> Option<usize> {
    let Some(policy) = policy.upgrade() else {
        out.push_str("# the policy has been reloaded meanwhile: repeat the command\n");
        return None;
    };
    let map = policy.maps().nth(number)?;
    for (line, next) in map.lines_from(from) {
        writeln!(out, "{:#x} {} {}", line.at, Shown(line.key), Shown(line.value))
            .expect("writing to a string cannot fail");
        if out.len() >= PIECE_BYTES {
            return Some(next);
        }
    }
    None
}

/// `get map`.
pub(super) fn get(map: &MapView<'_>, value: &str) -> String {
    let found = map.find(value.as_bytes());
    let method = map.method;
    match found {
        None => format!("type={method}, case=sensitive, found=no\n"),
        Some(line) => {
            let idx = if matches!(method, "str" | "ip" | "beg") { "tree" } else { "list" };
            let (key, value) = (Shown(line.key), Shown(line.value));
            format!(
                "type={method}, case=sensitive, found=yes, idx={idx}, key=\"{key}\", value=\"{value}\", type=\"str\"\n"
            )
        }
    }
}
