//! Fields of a request on the command line.

use std::str::FromStr;

use slowlane_core::base::query;

#[derive(Clone, Debug)]
pub(super) struct FieldArgument {
    pub(super) name: String,
    pub(super) value: String,
}

impl FromStr for FieldArgument {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<FieldArgument, &'static str> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(FieldArgument { name: name.into(), value: value.into() })
            }
            _ => Err("expected a field and its value, like website=shop.example"),
        }
    }
}

/// The admin path for a query with fields.
pub(super) fn path(action: &str, fields: &[FieldArgument]) -> String {
    let query = query::written(fields.iter().map(|FieldArgument { name, value }| (name, value)));
    format!("/api/{action}?{query}")
}
