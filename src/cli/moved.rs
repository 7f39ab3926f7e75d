//! Commands of earlier versions, and the commands that replace them.

use std::ffi::OsStr;

/// The successor of a command of earlier versions, and where to learn more.
pub(super) fn to(words: &[impl AsRef<OsStr>]) -> Option<String> {
    let mut words = words.iter().filter_map(|word| word.as_ref().to_str());
    let new = match words.next()? {
        "blocks" => "block list",
        "unblock" => "block rm",
        "cluster" => "status cluster",
        "peers" => "status peers",
        "block" if is_addition(words) => "block add",
        "spoa-check" => return Some(apart("spoa")),
        "rls-check" => return Some(apart("rls")),
        _ => return None,
    };
    Some(format!("`slowlane {new}`; see `slowlane {new} --help`"))
}

/// Where to find a command of the checker, a program that slowlane's packages do not contain.
fn apart(suite: &str) -> String {
    format!(
        "`slowlane-check {suite}`, a separate program: to install it from slowlane's sources, run `cargo \
         install --path tools/check`"
    )
}

/// Whether `block` is followed by fields instead of an action, as in earlier versions.
fn is_addition<'w>(mut words: impl Iterator<Item = &'w str> + Clone) -> bool {
    words.clone().any(|word| word.contains('='))
        && !words.any(|word| matches!(word, "add" | "rm" | "list" | "help"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_old_command_names_the_new_one_and_no_new_command_is_old() {
        let to = |typed: &str| {
            let new = to(&typed.split(' ').collect::<Vec<_>>())?;
            Some(new.split('`').nth(1).unwrap().to_owned())
        };
        for (typed, new) in [
            ("blocks --json", "slowlane block list"),
            ("unblock source=192.0.2.66", "slowlane block rm"),
            ("cluster --admin 127.0.0.1:9002", "slowlane status cluster"),
            ("peers", "slowlane status peers"),
            ("block source=192.0.2.66 --for 10m", "slowlane block add"),
            ("spoa-check --list", "slowlane-check spoa"),
            ("rls-check 127.0.0.1:9005", "slowlane-check rls"),
            ("block --for=10m source=192.0.2.66", "slowlane block add"),
        ] {
            assert_eq!(to(typed).as_deref(), Some(new), "{typed}");
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
