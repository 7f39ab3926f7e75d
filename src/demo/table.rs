//! The table that the demonstration prints, with a line for each second.

use std::io::{self, Write};

use crate::demo::tally::Second;

/// The length of the longest bar, in characters.
const BAR_COLUMNS: f64 = 40.0;

/// Prints the lines, each with a bar for the crawler's rate, or with the state of the protected application.
pub(super) struct DelayTable {
    is_terminal: bool,
    most_per_s: f64,
}

impl DelayTable {
    pub(super) fn new(is_terminal: bool, most_per_s: f64) -> DelayTable {
        DelayTable { is_terminal, most_per_s }
    }

    /// Prints the heading. `last` is the name of the last column.
    pub(super) fn head(&self, last: &str, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "            crawler            customer")?;
        writeln!(out, "second  req/s  answer in   req/s  answer in   429   {last}")
    }

    /// Prints the line for one second. The last column shows `last` if given, else a bar for the crawler's rate.
    pub(super) fn row(
        &self,
        number: usize,
        second: &Second,
        last: Option<String>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Second { crawler_per_s, crawler_ms, customer_per_s, customer_ms, refused, .. } = second;
        writeln!(
            out,
            "{number:>6}  {crawler_per_s:>5.0}  {crawler_ms:>6.0} ms   {customer_per_s:>5.0}  {customer_ms:>6.0} ms  {refused:>4}   {}",
            last.unwrap_or_else(|| self.bar(*crawler_per_s))
        )
    }

    /// Prints an event between two seconds.
    pub(super) fn event(&self, text: &str, out: &mut impl Write) -> io::Result<()> {
        match self.is_terminal {
            true => writeln!(out, "        \x1b[1m{text}\x1b[0m"),
            false => writeln!(out, "        {text}"),
        }
    }

    fn bar(&self, per_s: f64) -> String {
        let columns = (per_s / self.most_per_s * BAR_COLUMNS).round().clamp(0.0, BAR_COLUMNS) as usize;
        (if self.is_terminal { "█" } else { "#" }).repeat(columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stands_under_its_head() {
        let table = DelayTable::new(false, 300.0);
        let mut out = Vec::new();
        table.head("crawler's req/s", &mut out).unwrap();
        let second = Second {
            crawler_per_s: 50.0,
            crawler_ms: 399.6,
            customer_per_s: 5.0,
            customer_ms: 17.2,
            refused: 0,
            lost: 0,
        };
        table.row(7, &second, None, &mut out).unwrap();
        table.row(8, &Second { crawler_per_s: 900.0, ..second }, None, &mut out).unwrap();
        table.row(9, &second, Some("9 inside".into()), &mut out).unwrap();
        table.event("now", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "second  req/s  answer in   req/s  answer in   429   crawler's req/s");
        assert_eq!(lines[2], "     7     50     400 ms       5      17 ms     0   #######");
        assert!(lines[3].ends_with(&format!("   {}", "#".repeat(40))));
        assert_eq!(lines[4], "     9     50     400 ms       5      17 ms     0   9 inside");
        assert_eq!(lines[5], "        now");
    }
}
