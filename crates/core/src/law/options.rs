//! The options of a law in an SLO line: `max_delay=5s`.

use std::time::Duration;

use thiserror::Error;

use crate::base::units::{self, Rate, UnitError, written};

/// A bad option, with the values that it takes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OptionError {
    #[error("{name} {value:?}: {reason}")]
    Unit { name: String, value: String, reason: UnitError },
    #[error("{name} {value:?}: expected a number from {min} to {max}")]
    Number { name: String, value: String, min: String, max: String },
    #[error("{name} {}: expected at least {}", written(*.given), written(*.min))]
    TooShort { name: &'static str, given: Duration, min: Duration },
    #[error("{name} {value:?}: expected {expected}")]
    Unfit { name: &'static str, value: String, expected: &'static str },
    /// A time that suits some rates and not this one.
    #[error("{name} {}: at {rate} it {reason}", written(*.given))]
    Rate { name: &'static str, given: Duration, rate: Rate, reason: String },
    #[error("{name} {value:?}: expected {}", .choices.join(" or "))]
    Choice { name: &'static str, value: String, choices: Vec<&'static str> },
    #[error(
        "error {error} and confidence {confidence} take {} MiB: {} MiB is the most; a larger error or a lower \
         confidence takes less", .bytes >> 20, .bytes_max >> 20
    )]
    Memory { error: String, confidence: String, bytes: usize, bytes_max: usize },
    #[error("law {name:?}: expected one of {}", .names.join(", "))]
    Law { name: String, names: &'static [&'static str] },
    #[error("unknown option {name:?}: {law} takes {}", listed(.known))]
    Unknown { name: String, law: &'static str, known: Vec<&'static str> },
}

impl OptionError {
    /// `name` is no law; `names` are.
    pub(super) fn law(name: &str, names: &'static [&'static str]) -> OptionError {
        OptionError::Law { name: quoted(name), names }
    }

    /// Whether another rate could make the option valid.
    pub(super) fn is_of_rate(&self) -> bool {
        matches!(self, OptionError::Rate { .. })
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// How much of a value an error repeats: a line may have thousands of characters.
const QUOTED_CHARS_MAX: usize = 80;

fn quoted(value: &str) -> String {
    value.chars().take(QUOTED_CHARS_MAX).collect()
}

/// Options by name. A law takes each option that it knows; the rest is an error.
#[derive(Clone, Debug, Default)]
pub struct Options {
    given: Vec<(String, String)>,
    taken: Vec<&'static str>,
}

impl Options {
    pub fn new<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Options {
        let given = given.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Options { given, taken: Vec::new() }
    }

    pub(super) fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, OptionError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match units::duration(&value) {
            Ok(duration) => Ok(Some(duration)),
            Err(reason) => Err(OptionError::Unit { name: name.to_owned(), value: quoted(&value), reason }),
        }
    }

    pub(super) fn number(
        &mut self,
        name: &'static str,
        min: f64,
        max: f64,
    ) -> Result<Option<f64>, OptionError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.parse::<f64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => {
                let (min, max) = (min.to_string(), max.to_string());
                Err(OptionError::Number { name: name.to_owned(), value: quoted(&value), min, max })
            }
        }
    }

    pub(super) fn count(
        &mut self,
        name: &'static str,
        min: u32,
        max: u32,
    ) -> Result<Option<u32>, OptionError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let is_digits = value.bytes().all(|byte| byte.is_ascii_digit());
        match value.parse::<u32>() {
            Ok(count) if is_digits && (min..=max).contains(&count) => Ok(Some(count)),
            _ => {
                let (min, max) = (min.to_string(), max.to_string());
                Err(OptionError::Number { name: name.to_owned(), value: quoted(&value), min, max })
            }
        }
    }

    pub(super) fn choice<const N: usize>(
        &mut self,
        name: &'static str,
        choices: [&'static str; N],
    ) -> Result<Option<&'static str>, OptionError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match choices.into_iter().find(|choice| *choice == value) {
            None => Err(OptionError::Choice { name, value: quoted(&value), choices: choices.into() }),
            known => Ok(known),
        }
    }

    /// # Errors
    /// The first option that the law has not taken.
    pub(super) fn finish(self, law: &'static str) -> Result<(), OptionError> {
        match self.given.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(OptionError::Unknown { name: quoted(&name), law, known: self.taken }),
        }
    }

    /// Whether the line has an option that nobody has taken yet.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| given == name)
    }

    /// The text of an option, if the line has it.
    pub(super) fn take(&mut self, name: &'static str) -> Option<String> {
        self.taken.push(name);
        let at = self.given.iter().position(|(given, _)| given == name)?;
        Some(self.given.remove(at).1)
    }
}
