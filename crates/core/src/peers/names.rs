//! The names of the table pairs, and the fields of their keys.

/// The table that HAProxy counts in: its own clock, admissions, denials.
pub const PACE: &str = "slowlane_pace";

/// The table of the limits that slowlane pushes.
pub const LIMITS: &str = "slowlane_limits";

/// The separator of fields in a name.
const IN_NAME: char = '.';

/// The separator of values in a key. Only the last value may contain it.
const IN_KEY: u8 = b'|';

/// The name of the pair whose key has no fields: one bucket for all requests.
const ALL: &str = "all";

/// A pair of tables: one for counts, one for limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The suffix of both names: empty, or `_` and the fields.
    suffix: String,
    fields: Vec<String>,
}

impl Pair {
    /// The pair of a counting table. `first`: the fields of the pair whose name has none. None: it is not one of our
    /// tables.
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

    /// The names of the key's fields. Empty: all requests have one key.
    pub fn fields(&self) -> &[String] {
        &self.fields
    }

    /// The fields of a key with their values. None: it has too few values.
    pub fn values<'k>(&'k self, key: &'k [u8]) -> Option<impl Iterator<Item = (&'k [u8], &'k [u8])>> {
        let values = key.splitn(self.fields.len().max(1), |&byte| byte == IN_KEY);
        let count = key.iter().filter(|&&byte| byte == IN_KEY).count() + 1;
        (count >= self.fields.len()).then(|| self.fields.iter().map(String::as_bytes).zip(values))
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
}
