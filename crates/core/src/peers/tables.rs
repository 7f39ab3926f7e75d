//! The tables of a proxy: their names, the fields of their keys, and the faults in their definitions.

use crate::base::shown;
use crate::peers::Numbers;
use spop::peers::{Column, Definition, KeyType};

/// The table in which HAProxy counts: its own clock, admissions and denials.
pub const PACE: &str = "slowlane_pace";

/// The table of the limits that slowlane pushes.
pub const LIMITS: &str = "slowlane_limits";

/// The separator between fields in the name of a table.
const IN_NAME: char = '.';

/// The separator between values in a key. Only the last value may contain it.
const IN_KEY: u8 = b'|';

/// The name of the pair whose key has no fields: one bucket for all requests.
const ALL: &str = "all";

/// A pair of tables: one table for counts and one for limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The suffix of both tables' names: empty, or `_` followed by the fields or by `all`.
    suffix: String,
    fields: Vec<String>,
}

impl Pair {
    /// The pair to which a counting table belongs. `first` holds the fields of the pair whose table names list no
    /// fields. None if the table does not belong to slowlane.
    ///
    /// ```
    /// use slowlane_core::peers::Pair;
    /// let first = ["source".to_owned()];
    /// let pair = |name| Pair::of(name, &first).map(|pair| (pair.limits(), pair.fields().join("+")));
    /// assert_eq!(pair("slowlane_pace"), Some(("slowlane_limits".into(), "source".into())));
    /// let both = Some(("slowlane_limits_source.website".into(), "source+website".into()));
    /// assert_eq!(pair("slowlane_pace_source.website"), both);
    /// assert_eq!(pair("slowlane_pace_all"), Some(("slowlane_limits_all".into(), String::new())));
    /// assert_eq!(pair("other"), None);
    /// ```
    pub fn of(name: &str, first: &[String]) -> Option<Pair> {
        // A table within a `peers` section has a `/` before its name.
        let suffix = name.strip_prefix('/').unwrap_or(name).strip_prefix(PACE)?;
        let fields = match suffix.strip_prefix('_') {
            None if suffix.is_empty() => first.to_vec(),
            None => return None,
            Some(ALL) => Vec::new(),
            Some(fields) => fields.split(IN_NAME).map(str::to_owned).collect(),
        };
        let are_named = fields.iter().all(|field| !field.is_empty());
        are_named.then(|| Pair { suffix: suffix.to_owned(), fields })
    }

    /// The name of the table with the limits.
    pub fn limits(&self) -> String {
        format!("{LIMITS}{}", self.suffix)
    }

    /// The names of the key's fields. Empty if all requests share one key.
    pub fn fields(&self) -> &[String] {
        &self.fields
    }

    /// The fields of a key with their values. None if the key has too few values.
    pub fn values<'k>(&'k self, key: &'k [u8]) -> Option<impl Iterator<Item = (&'k [u8], &'k [u8])>> {
        let values = key.splitn(self.fields.len().max(1), |&byte| byte == IN_KEY);
        let count = key.iter().filter(|&&byte| byte == IN_KEY).count() + 1;
        (count >= self.fields.len()).then(|| self.fields.iter().map(String::as_bytes).zip(values))
    }
}

/// The faults of a proxy's tables. HAProxy accepts any table for counts and limits, so only slowlane can detect faults.
pub fn faults<'t>(tables: impl Iterator<Item = &'t Definition>) -> Vec<String> {
    let tables: Vec<&Definition> = tables.collect();
    tables.iter().filter_map(|pace| fault(pace, &tables)).collect()
}

/// The fault in a counting table, or in the table with its limits.
fn fault(pace: &Definition, tables: &[&Definition]) -> Option<String> {
    let name = Pair::of(&pace.name, &[])?.limits();
    let [of_pace, of_limits] = [&pace.name, &name].map(|name| shown(name.as_bytes()));
    let not_text = |table: &str| format!("{table} must be `type string`, or its keys have no limit");
    if pace.key_type != KeyType::String {
        return Some(not_text(&of_pace));
    }
    let Some(limits) = tables.iter().find(|table| table.name == name) else {
        return Some(format!("{of_pace} needs a table {of_limits}, or the keys have no limit"));
    };
    let numbers = limits.columns.iter().find(|column| column.number == Column::GPT);
    if limits.key_type != KeyType::String {
        Some(not_text(&of_limits))
    } else if numbers.is_none_or(|column| column.values as usize != size_of::<Numbers>() / size_of::<u64>()) {
        Some(format!("{of_limits} must store `gpt(4)`, or the keys have no limit"))
    } else if limits.key_bytes < pace.key_bytes {
        Some(format!("{of_limits} needs at least the `len` of {of_pace}, or long keys share a limit"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_values_of_its_fields() {
        let pair = Pair::of("slowlane_pace_source.website", &[]).unwrap();
        let values =
            |key: &'static [u8]| pair.values(key).map(|values| values.map(|(_, value)| value).collect());
        let both: Vec<&[u8]> = vec![b"192.0.2.1", b"a|b.example"];
        assert_eq!(values(b"192.0.2.1|a|b.example"), Some(both));
        assert_eq!(values(b"192.0.2.1"), None);
        let all = Pair::of("/slowlane_pace_all", &[]).unwrap();
        assert_eq!(all.values(b"all").unwrap().count(), 0);
    }

    #[test]
    fn names_without_fields_are_none_of_ours() {
        for name in
            ["slowlane_pace_", "slowlane_pacer", "slowlane_pace_a.", "slowlane_pace_.a", "slowlane_limits"]
        {
            assert_eq!(Pair::of(name, &[]), None, "{name}");
        }
    }

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
            (of_addresses, "slowlane_limits must be `type string`"),
            (of_three, "slowlane_limits must store `gpt(4)`"),
            (short, "slowlane_limits needs at least the `len` of slowlane_pace"),
            (other, "slowlane_pace needs a table slowlane_limits"),
        ] {
            let found = found(&[&pace, &limits]);
            assert!(found.len() == 1 && found[0].starts_with(reported), "{found:?}");
        }
        let pace = Definition { key_type: KeyType::Int, key_bytes: 4, ..pace };
        assert!(found(&[&pace, &limits])[0].starts_with("slowlane_pace must be"));
    }
}
