//! Tables of a proxy whose keys cannot be limited, as warnings for operators.

use crate::base::shown;
use crate::peers::{Numbers, Pair};
use spop::peers::{Column, Definition, KeyType};

/// The faults of a proxy's tables. HAProxy accepts any table for counts and limits, so only slowlane can detect them.
pub fn faults<'t>(tables: impl Iterator<Item = &'t Definition>) -> Vec<String> {
    let tables: Vec<&Definition> = tables.collect();
    tables.iter().filter_map(|pace| fault(pace, &tables)).collect()
}

/// The fault of a counting table, or of the table with its limits.
fn fault(pace: &Definition, tables: &[&Definition]) -> Option<String> {
    let name = Pair::of(&pace.name, &[])?.limits();
    let [of_pace, of_limits] = [&pace.name, &name].map(|name| shown(name.as_bytes()));
    let not_text = |table: &str| format!("{table} is not of `type string`: its keys are not limited");
    if pace.key_type != KeyType::String {
        return Some(not_text(&of_pace));
    }
    let Some(limits) = tables.iter().find(|table| table.name == name) else {
        return Some(format!("{of_pace} has no table {of_limits} beside it: its keys are not limited"));
    };
    let numbers = limits.columns.iter().find(|column| column.number == Column::GPT);
    if limits.key_type != KeyType::String {
        Some(not_text(&of_limits))
    } else if numbers.is_none_or(|column| column.values as usize != size_of::<Numbers>() / size_of::<u64>()) {
        Some(format!("{of_limits} does not store `gpt(4)`: its keys are not limited"))
    } else if limits.key_bytes < pace.key_bytes {
        Some(format!("{of_limits} has a shorter `len` than {of_pace}: long keys share a limit"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, key_type: KeyType, key_bytes: u64, values: u32) -> Definition {
        let columns = vec![Column { number: Column::GPT, values, period_ms: None }];
        Definition { id: 1, name: name.into(), key_type, key_bytes, columns, expire: None }
    }

    #[test]
    fn tables_that_cannot_be_limited_are_named() {
        let pace = table("slowlane_pace", KeyType::String, 129, 1);
        let limits = table("slowlane_limits", KeyType::String, 129, 4);
        let other = table("other", KeyType::Ipv4, 4, 1);
        let found = |tables: &[&Definition]| faults(tables.iter().copied());
        assert_eq!(found(&[&pace, &limits, &other]), Vec::<String>::new());
        assert_eq!(found(&[&other]), Vec::<String>::new());

        let of_addresses = Definition { key_type: KeyType::Ipv4, key_bytes: 4, ..limits.clone() };
        let of_three = table("slowlane_limits", KeyType::String, 129, 3);
        let short = Definition { key_bytes: 65, ..limits.clone() };
        for (limits, reported) in [
            (of_addresses, "slowlane_limits is not of `type string`"),
            (of_three, "slowlane_limits does not store `gpt(4)`"),
            (short, "slowlane_limits has a shorter `len`"),
            (other, "slowlane_pace has no table slowlane_limits"),
        ] {
            let found = found(&[&pace, &limits]);
            assert!(found.len() == 1 && found[0].starts_with(reported), "{found:?}");
        }
        let pace = Definition { key_type: KeyType::Int, key_bytes: 4, ..pace };
        assert!(found(&[&pace, &limits])[0].starts_with("slowlane_pace is not of"));
    }
}
