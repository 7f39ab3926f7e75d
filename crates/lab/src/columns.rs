//! The rows of a report as columns of text. Each cell comes with its column's heading.

use slowlane_core::base::aligned;

/// A heading, and the cell below it.
pub(crate) type ReportCell = (&'static str, String);

/// A cell without a value.
pub(crate) const NONE: &str = "-";

pub(crate) fn or_none(value: Option<impl ToString>) -> String {
    value.map_or(NONE.to_owned(), |value| value.to_string())
}

/// A part as a percentage of the whole, with one decimal place.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1}", part * 100.0 / whole) } else { NONE.to_owned() }
}

/// The rows as text, below the headings of the first row. Columns in `words` hold words; the others hold numbers.
pub(crate) fn columns(rows: &[Vec<ReportCell>], words: &[&str]) -> String {
    let headings =
        rows.iter().take(1).map(|row| row.iter().map(|(heading, _)| (*heading).to_owned()).collect());
    let cells = rows.iter().map(|row| row.iter().map(|(_, cell)| cell.clone()).collect());
    let rows: Vec<Vec<String>> = headings.chain(cells).collect();
    aligned(&rows, "  ", |_, heading| words.contains(&heading))
}
