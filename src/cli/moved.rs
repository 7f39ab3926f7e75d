//! Commands of earlier versions, and the commands that replace them.

use std::ffi::OsStr;

/// The new spelling of a command of earlier versions.
pub(super) fn to(words: &[impl AsRef<OsStr>]) -> Option<&'static str> {
    let mut words = words.iter().filter_map(|word| word.as_ref().to_str());
    match words.next()? {
        "blocks" => Some("block list"),
        "unblock" => Some("block rm"),
        "cluster" => Some("status cluster"),
        "peers" => Some("status peers"),
        "block" if is_addition(words) => Some("block add"),
        _ => None,
    }
}

/// Whether fields follow instead of an action.
fn is_addition<'w>(mut words: impl Iterator<Item = &'w str> + Clone) -> bool {
    words.clone().any(|word| word.contains('='))
        && !words.any(|word| matches!(word, "add" | "rm" | "list" | "help"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_old_command_names_the_new_one_and_no_new_command_is_old() {
        let to = |typed: &str| to(&typed.split(' ').collect::<Vec<_>>());
        for (typed, new) in [
            ("blocks --json", "block list"),
            ("unblock source=192.0.2.66", "block rm"),
            ("cluster --admin 127.0.0.1:9002", "status cluster"),
            ("peers", "status peers"),
            ("block source=192.0.2.66 --for 10m", "block add"),
            ("block --for=10m source=192.0.2.66", "block add"),
        ] {
            assert_eq!(to(typed), Some(new), "{typed}");
        }
        for typed in [
            "",
            "block",
            "block lsit",
            "block --help",
            "block list",
            "block rm source=192.0.2.66",
            "block --admin=127.0.0.1:9002 add source=192.0.2.66",
            "why source=192.0.2.66",
            "table clear source=192.0.2.66",
        ] {
            assert_eq!(to(typed), None, "{typed}");
        }
    }
}
