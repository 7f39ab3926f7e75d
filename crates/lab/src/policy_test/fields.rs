//! The fields of a request, as a file of cases writes them.

use std::fmt;

use crate::policy_test::mistake::{Fault, Quoted};
use crate::policy_test::words::needs_quotes;
use slowlane_core::base::request::{FIELDS_MAX, Request, Value, is_same_name};

/// Names with their values, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String)>);

impl Fields {
    /// Adds the field of a word like `website=shop.example`.
    pub(super) fn add(&mut self, word: &str) -> Result<(), Fault> {
        let is_of_name = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
        let named = word.split_once('=').filter(|(name, _)| !name.is_empty() && name.chars().all(is_of_name));
        let Some((name, value)) = named else {
            let expected = "a field and its value, like website=shop.example";
            return Err(Fault::Expected { word: Quoted::of(word), expected });
        };
        if self.place(name).is_some() {
            return Err(Fault::FieldTwice(Quoted::of(name)));
        }
        if self.0.len() == FIELDS_MAX {
            return Err(Fault::TooManyFields);
        }
        self.0.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// These fields, with those of `other` in the place of their namesakes.
    pub(super) fn with(&self, other: &Fields) -> Fields {
        let mut both = self.clone();
        for (name, value) in &other.0 {
            match both.place(name) {
                Some(place) => both.0[place].1.clone_from(value),
                None => both.0.push((name.clone(), value.clone())),
            }
        }
        both
    }

    /// Whether a request can carry them all. Those with an empty value are left out.
    pub(super) fn fit(&self) -> bool {
        self.carried().count() <= FIELDS_MAX
    }

    /// The request with these fields. One with an empty value is left out, as a proxy leaves it out.
    pub(super) fn request(&self) -> Request<'_> {
        let mut request = Request::new();
        for (name, value) in self.carried() {
            request.push(name.as_bytes(), Value::Text(value.as_bytes()));
        }
        request
    }

    fn carried(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter().filter(|(_, value)| !value.is_empty())
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.names().position(|other| is_same_name(other.as_bytes(), name.as_bytes()))
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, value)) in self.0.iter().enumerate() {
            let blank = if number == 0 { "" } else { " " };
            match value.contains(needs_quotes) {
                true => {
                    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
                    write!(f, "{blank}{name}=\"{escaped}\"")?;
                }
                false => write!(f, "{blank}{name}={value}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(words: &[&str]) -> Fields {
        let mut fields = Fields::default();
        words.iter().for_each(|word| fields.add(word).unwrap());
        fields
    }

    #[test]
    fn a_line_replaces_fields_of_its_case_or_takes_them_away() {
        let case = fields(&["source=192.0.2.1", "api-key=a", "owner=acme"]);
        let both = case.with(&fields(&["cost=5", "api_key=b", "owner="]));
        assert_eq!(both.to_string(), "source=192.0.2.1 api-key=b owner= cost=5");
        let request = both.request();
        assert_eq!(request.get(b"api_key"), Some(Value::Text(b"b")));
        assert_eq!((request.get(b"owner"), request.fields().count()), (None, 3));
    }

    #[test]
    fn a_field_has_a_name_and_comes_once() {
        let mut fields = fields(&["api-key=1"]);
        assert_eq!(fields.add("api_key=2"), Err(Fault::FieldTwice(Quoted::of("api_key"))));
        for word in ["=1", "a b=1", "\u{feff}source=1", "source", "a->b=1"] {
            assert!(matches!(fields.add(word), Err(Fault::Expected { .. })), "{word}");
        }
        (1..FIELDS_MAX).for_each(|number| fields.add(&format!("f{number}=1")).unwrap());
        assert_eq!(fields.add("more=1"), Err(Fault::TooManyFields));
    }

    #[test]
    fn the_fields_of_a_case_and_of_a_step_are_one_request() {
        let mut case = Fields::default();
        (0..FIELDS_MAX).for_each(|number| case.add(&format!("f{number}=1")).unwrap());
        assert!(case.fit() && case.with(&fields(&["f1=2"])).fit());
        assert!(!case.with(&fields(&["more=1"])).fit());
        assert!(case.with(&fields(&["more=1", "f1="])).fit(), "an empty value takes a field away");
    }
}
