//! A `--field` option: a field and its place in a log.

use std::str::FromStr;

use thiserror::Error;

use crate::access_log::format::Format;
use crate::access_log::format_error::FormatError;
use crate::access_log::piece::Item;

/// `owner=%[var(txn.tenant)]`: a field and the item with its value, or a value for every request.
///
/// ```
/// use slowlane_lab::access_log::Mapping;
/// assert!("owner=$http_x_owner".parse::<Mapping>().is_ok());
/// assert!("website=shop.example".parse::<Mapping>().is_ok());
/// assert!("owner".parse::<Mapping>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub field: String,
    pub(super) from: Given,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Item(Item),
    Constant(String),
}

/// Why a mapping cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MappingError {
    #[error(
        "expected a field and an item or a value, like owner=%[var(txn.owner)], owner=$http_x_owner or owner=acme"
    )]
    Expected,
    #[error(transparent)]
    Item(#[from] FormatError),
}

impl FromStr for Mapping {
    type Err = MappingError;

    fn from_str(text: &str) -> Result<Mapping, MappingError> {
        let (field, from) = text.split_once('=').ok_or(MappingError::Expected)?;
        if field.is_empty() || from.is_empty() {
            return Err(MappingError::Expected);
        }
        let from = match from.starts_with(['%', '$']) {
            true => Given::Item(Format::item(from)?),
            false => Given::Constant(from.to_owned()),
        };
        Ok(Mapping { field: field.to_owned(), from })
    }
}
