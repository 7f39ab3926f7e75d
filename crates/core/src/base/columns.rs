//! Rows of text in columns.

/// Aligns rows in columns, separated by `gap`. The first row holds the headings.
///
/// `is_text` takes the number and heading of a column. Text columns are aligned left, all others right. Panics on a
/// row with more cells than the first.
///
/// ```
/// use slowlane_core::base::aligned;
/// let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
/// let rows = [row(["law", "delayed", "who"]), row(["pace", "7", "everybody"])];
/// assert_eq!(aligned(&rows, "  ", |_, heading| heading != "delayed"), "law   delayed  who\npace        7  everybody\n");
/// ```
pub fn aligned(rows: &[Vec<String>], gap: &str, is_text: impl Fn(usize, &str) -> bool) -> String {
    let Some(head) = rows.first() else { return String::new() };
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let columns: Vec<(usize, bool)> =
        head.iter().enumerate().map(|(column, heading)| (width(column), is_text(column, heading))).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&columns).map(|(cell, &(width, is_text))| match is_text {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join(gap).trim_end();
        text.push('\n');
    }
    text
}
