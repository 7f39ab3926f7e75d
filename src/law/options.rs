//! The options of a law as an SLO line writes them: `max_delay=5s`.

use std::time::Duration;

use thiserror::Error;

use crate::base::units::{self, Rate, UnitError, written};
use crate::law::Law;

/// An option that cannot be taken, and what may stand there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OptionError {
    #[error("{name} {value:?}: {reason}")]
    Unit { name: String, value: String, reason: UnitError },
    #[error("{name} {value:?}: expected a number from {min} to {max}")]
    Number { name: String, value: String, min: String, max: String },
    #[error("{name} {}: expected at least {}", written(*.given), written(*.min))]
    TooShort { name: &'static str, given: Duration, min: Duration },
    #[error("window {}: at {rate} it holds less than one request: make it longer", written(*.window))]
    WindowEmpty { window: Duration, rate: Rate },
    #[error(
        "window {}: at {rate} it holds more than {limit_max} requests: make it shorter{or}",
        written(*.window)
    )]
    Window { window: Duration, rate: Rate, limit_max: u32, or: &'static str },
    #[error(
        "max_delay {}: at {rate} it holds {slots} slots, of which fair keeps {slots_max} at most: make it shorter",
        written(*.max_delay)
    )]
    Slots { max_delay: Duration, rate: Rate, slots: u32, slots_max: u32 },
    #[error("warmup {}: at {rate} it stores more than 16 million permits: make it shorter", written(*.warmup))]
    WarmUp { warmup: Duration, rate: Rate },
    #[error("law {name:?}: expected one of {}", Law::NAMES.join(", "))]
    Law { name: String },
    #[error("{name:?} is no option of {law}, which takes {}", listed(.known))]
    Unknown { name: String, law: &'static str, known: Vec<&'static str> },
}

impl OptionError {
    pub(super) fn law(name: &str) -> OptionError {
        OptionError::Law { name: quoted(name) }
    }

    /// Whether it may be an error at one rate, and none at another.
    pub(super) fn is_of_rate(&self) -> bool {
        use OptionError::{Slots, WarmUp, Window, WindowEmpty};
        matches!(self, Slots { .. } | WarmUp { .. } | Window { .. } | WindowEmpty { .. })
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

/// Options by name, taken one by one by the law that they are for.
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

    /// Every option has been taken, or the first that has not is an error.
    pub(super) fn finish(self, law: &'static str) -> Result<(), OptionError> {
        match self.given.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(OptionError::Unknown { name: quoted(&name), law, known: self.taken }),
        }
    }

    pub(super) fn take(&mut self, name: &'static str) -> Option<String> {
        self.taken.push(name);
        let at = self.given.iter().position(|(given, _)| given == name)?;
        Some(self.given.remove(at).1)
    }
}
