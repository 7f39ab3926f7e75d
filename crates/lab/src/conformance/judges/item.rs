//! The value of an item in a frame of the connection.

use spop::{Data, Frame, items};

/// The first item with this name. All items must be readable; `of` names the frame in the reason.
pub(super) fn item<'a>(frame: Frame<'a>, of: &str, name: &[u8]) -> Result<Option<Data<'a>>, String> {
    let items: Result<Vec<_>, _> = items(frame.payload).collect();
    let items = items.map_err(|error| format!("{of} is no list of names and values: {error}"))?;
    Ok(items.into_iter().find(|(own, _)| *own == name).map(|(_, value)| value))
}
