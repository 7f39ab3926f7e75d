//! The options of a law in an SLO line, such as `max_delay=5s`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use thiserror::Error;

use crate::base::units::{self, written};
use crate::base::{Rate, UnitError, cut};

/// An invalid option, with the values that are allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OptionError {
    #[error("{name} {value:?}: {reason}")]
    Unit { name: &'static str, value: String, reason: UnitError },
    #[error("{name} {value:?}: expected a number from {min} to {max}")]
    Number { name: &'static str, value: String, min: String, max: String },
    #[error("{name} {}: expected at least {}", written(*.given), written(*.min))]
    TooShort { name: &'static str, given: Duration, min: Duration },
    #[error("{name} {value:?}: expected {expected}")]
    Unfit { name: &'static str, value: String, expected: &'static str },
    /// A time that is valid at some rates, but not at this rate.
    #[error("{name} {}: at {rate}, it {reason}", written(*.given))]
    Rate { name: &'static str, given: Duration, rate: Rate, reason: String },
    #[error("{name} {value:?}: expected {}", .choices.join(" or "))]
    Choice { name: &'static str, value: String, choices: Vec<&'static str> },
    #[error(
        "a sketch with error {error} and confidence {confidence} takes {} MiB, but the maximum is {} MiB: \
         raise error or lower confidence", .bytes >> 20, .bytes_max >> 20
    )]
    Memory { error: String, confidence: String, bytes: usize, bytes_max: usize },
    #[error("law {name:?}: {}", meant(.name, .names))]
    Law { name: String, names: &'static [&'static str] },
    #[error("unknown option {name:?}: {law} takes {}", listed(.known))]
    Unknown { name: String, law: &'static str, known: Vec<&'static str> },
}

impl OptionError {
    /// The error for a `name` that is not among the law names in `names`.
    pub(super) fn law(name: &str, names: &'static [&'static str]) -> OptionError {
        OptionError::Law { name: quoted(name), names }
    }

    /// The error for a value that does not match `expected`.
    pub(crate) fn unfit(name: &'static str, value: &str, expected: &'static str) -> OptionError {
        OptionError::Unfit { name, value: quoted(value), expected }
    }

    /// Whether another rate could make the option valid.
    pub(crate) fn is_of_rate(&self) -> bool {
        matches!(self, OptionError::Rate { .. })
    }
}

/// A hint about an unknown law: the right name if only `_` or capitals differ, a replacement if removed, or all names.
fn meant(name: &str, names: &[&str]) -> String {
    let plain = name.replace('_', "-").to_ascii_lowercase();
    match names.iter().find(|known| **known == plain) {
        Some(known) => format!("did you mean {known}?"),
        None if plain == "warm-up" => "this law has been removed: use pace".into(),
        None => format!("expected one of {}, protect", names.join(", ")),
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// The maximum length of a value that an error quotes: an SLO line may have thousands of characters.
const QUOTED_CHARS_MAX: usize = 80;

fn quoted(value: &str) -> String {
    cut(value.to_owned(), QUOTED_CHARS_MAX)
}

/// The value of an option, if the SLO line has the option.
type Given<T> = Result<Option<T>, OptionError>;

/// The options of an SLO by name. Each reader takes the options that it knows, and the law reads last; an option that
/// no reader takes is an error.
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

    pub(super) fn duration(&mut self, name: &'static str) -> Given<Duration> {
        self.unit(name, units::duration)
    }

    pub(crate) fn duration_of(&mut self, name: &'static str, min: Duration) -> Given<Duration> {
        match self.duration(name)? {
            Some(given) if given < min => Err(OptionError::TooShort { name, given, min }),
            duration => Ok(duration),
        }
    }

    pub(crate) fn rate(&mut self, name: &'static str) -> Given<Rate> {
        self.unit(name, str::parse)
    }

    pub(super) fn number(&mut self, name: &'static str, range: RangeInclusive<f64>) -> Given<f64> {
        self.within(name, range, |text| text.parse().ok())
    }

    pub(crate) fn count(&mut self, name: &'static str, range: RangeInclusive<u32>) -> Given<u32> {
        self.within(name, range, units::whole)
    }

    pub(crate) fn choice<const N: usize>(
        &mut self,
        name: &'static str,
        choices: [&'static str; N],
    ) -> Given<&'static str> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match choices.into_iter().find(|choice| *choice == value) {
            None => Err(OptionError::Choice { name, value: quoted(&value), choices: choices.into() }),
            known => Ok(known),
        }
    }

    /// Takes an option that is neither a number nor one of a few words.
    pub(crate) fn fit<T>(
        &mut self,
        name: &'static str,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Given<T> {
        let Some(value) = self.take(name) else { return Ok(None) };
        read(&value).ok_or_else(|| OptionError::unfit(name, &value, expected)).map(Some)
    }

    fn unit<T>(&mut self, name: &'static str, read: fn(&str) -> Result<T, UnitError>) -> Given<T> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let error = |reason| OptionError::Unit { name, value: quoted(&value), reason };
        read(&value).map(Some).map_err(error)
    }

    fn within<T: PartialOrd + Display>(
        &mut self,
        name: &'static str,
        range: RangeInclusive<T>,
        read: fn(&str) -> Option<T>,
    ) -> Given<T> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = read(&value).filter(|number| range.contains(number));
        let [min, max] = [range.start(), range.end()].map(T::to_string);
        let error = || OptionError::Number { name, value: quoted(&value), min, max };
        number.ok_or_else(error).map(Some)
    }

    /// The options left for the law. The list of taken options starts again, so errors list only options of the law.
    pub(super) fn for_law(self) -> Options {
        Options { taken: Vec::new(), ..self }
    }

    /// # Errors
    /// An option is left that the law has not taken.
    pub(super) fn finish(self, law: &'static str) -> Result<(), OptionError> {
        match self.given.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(OptionError::Unknown { name: quoted(&name), law, known: self.taken }),
        }
    }

    /// The value of an option that no reader has taken yet.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Takes an option, and returns its value if the SLO line has the option.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<String> {
        self.taken.push(name);
        let at = self.given.iter().position(|(given, _)| given == name)?;
        Some(self.given.remove(at).1)
    }

    /// Takes all options that no reader has taken yet.
    pub(crate) fn take_rest(&mut self) -> impl Iterator<Item = (String, String)> {
        self.given.drain(..)
    }
}
