//! Judges: each accepts a transcript, or returns the reason why not.

pub(super) mod acks;
pub(super) mod ends;
pub(super) mod greeting;

use spop::{Data, Frame, items};

use crate::spoa::Judged;

fn ensure(holds: bool, reason: impl Into<String>) -> Judged {
    if holds { Ok(()) } else { Err(reason.into()) }
}

/// The first item with this name. All items must be readable; `of` names the frame in the reason.
fn item<'a>(frame: Frame<'a>, of: &str, name: &str) -> Result<Option<Data<'a>>, String> {
    let items: Result<Vec<_>, _> = items(frame.payload).collect();
    let items = items.map_err(|error| format!("{of} is not a list of names and values: {error}"))?;
    Ok(items.into_iter().find(|(own, _)| *own == name.as_bytes()).map(|(_, value)| value))
}

fn mandatory<'a>(frame: Frame<'a>, of: &str, name: &str) -> Result<Data<'a>, String> {
    item(frame, of, name)?.ok_or_else(|| format!("{of} has no {name}"))
}

fn number(frame: Frame<'_>, of: &str, name: &str) -> Result<i64, String> {
    let value = mandatory(frame, of, name)?;
    value.to_i64().ok_or_else(|| format!("{name} is not a number: {value:?}"))
}

fn string<'a>(frame: Frame<'a>, of: &str, name: &str) -> Result<&'a [u8], String> {
    match mandatory(frame, of, name)? {
        Data::Str(text) => Ok(text),
        other => Err(format!("{name} is not a string: {other:?}")),
    }
}

#[cfg(test)]
mod tests;
