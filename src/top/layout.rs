//! Fits columns into a screen: a number is shown completely or not at all.

use ratatui::text::{Line, Span};

/// The number of spaces between two columns.
pub(super) const GAP: usize = 2;

/// The width that a column asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The width that shows every cell completely.
    pub(super) width: usize,
    /// The minimum width. A narrower column is dropped.
    pub(super) least: usize,
    /// The column with the highest rank is dropped first. Columns of rank 0 always stay.
    pub(super) rank: u8,
}

/// The width of each column. None: it is dropped.
///
/// # Errors
/// The width of the columns that always stay, if it exceeds `width`.
pub(super) fn fit(wanted: &[Wanted], width: usize) -> Result<Vec<Option<usize>>, usize> {
    let mut is_kept = vec![true; wanted.len()];
    let least = |is_kept: &[bool]| {
        let kept = wanted.iter().zip(is_kept).filter(|(_, is_kept)| **is_kept);
        kept.map(|(wanted, _)| wanted.least + GAP).sum::<usize>().saturating_sub(GAP)
    };
    while least(&is_kept) > width {
        let may_go = (0..wanted.len()).filter(|&place| is_kept[place] && wanted[place].rank > 0);
        let goes = may_go.max_by_key(|&place| wanted[place].rank).ok_or(least(&is_kept))?;
        is_kept[goes] = false;
    }
    let mut spare = width - least(&is_kept);
    let widths = wanted.iter().zip(&is_kept).map(|(wanted, is_kept)| {
        is_kept.then(|| {
            let more = spare.min(wanted.width - wanted.least);
            spare -= more;
            wanted.least + more
        })
    });
    Ok(widths.collect())
}

/// The terminal columns that a text occupies.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// A name cut to `columns`. The cut is in the middle, because names differ at both ends.
pub(super) fn shortened(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let head = taken(text.chars(), room.div_ceil(2));
    let tail: String = taken(text.chars().rev(), room - width(&head)).chars().rev().collect();
    format!("{head}…{tail}")
}

/// As many letters as fit.
fn taken(letters: impl Iterator<Item = char>, columns: usize) -> String {
    let mut taken = String::new();
    for letter in letters {
        taken.push(letter);
        if width(&taken) > columns {
            taken.pop();
            break;
        }
    }
    taken
}

/// A line of the first pieces that fit. None is cut.
pub(super) fn packed(pieces: impl IntoIterator<Item = Span<'static>>, columns: usize) -> Line<'static> {
    let mut used = 0;
    let fits = |piece: &Span<'static>| {
        // A line needs no trailing spaces.
        let fits = used + width(piece.content.trim_end()) <= columns;
        used += piece.width();
        fits
    };
    Line::from_iter(pieces.into_iter().take_while(fits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NUMBER: Wanted = Wanted { width: 7, least: 7, rank: 1 };
    const NAME: Wanted = Wanted { width: 40, least: 10, rank: 0 };

    #[test]
    fn the_least_wanted_column_goes_first_and_names_take_what_is_left() {
        let wanted = [NUMBER, Wanted { rank: 2, ..NUMBER }, NAME];
        assert_eq!(fit(&wanted, 80), Ok(vec![Some(7), Some(7), Some(40)]));
        assert_eq!(fit(&wanted, 40), Ok(vec![Some(7), Some(7), Some(22)]));
        assert_eq!(fit(&wanted, 27), Ok(vec![Some(7), None, Some(18)]));
        assert_eq!(fit(&wanted, 18), Ok(vec![None, None, Some(18)]));
        assert_eq!(fit(&wanted, 9), Err(10));
    }

    #[test]
    fn a_name_keeps_both_its_ends() {
        assert_eq!(shortened("website=shop.example", 20), "website=shop.example");
        assert_eq!(shortened("website=shop.example", 12), "websit…ample");
        assert_eq!(shortened("日本語の名前", 7), "日…名前");
        assert_eq!(shortened("日本語の名前", 6), "日…前");
        assert_eq!(shortened("ab", 1), "…");
    }

    proptest! {
        #[test]
        fn columns_never_take_more_than_there_is(
            wanted in prop::collection::vec((0usize..30, 0usize..30, 0u8..4), 0..9),
            room in 0usize..150,
        ) {
            let wanted: Vec<Wanted> = wanted
                .into_iter()
                .map(|(least, more, rank)| Wanted { width: least + more, least, rank })
                .collect();
            match fit(&wanted, room) {
                Ok(widths) => {
                    let used: usize = widths.iter().flatten().map(|width| width + GAP).sum();
                    prop_assert!(used.saturating_sub(GAP) <= room);
                    for (wanted, width) in wanted.iter().zip(widths) {
                        prop_assert!(width.is_none_or(|width| (wanted.least..=wanted.width).contains(&width)));
                        prop_assert!(width.is_some() || wanted.rank > 0);
                    }
                }
                Err(least) => prop_assert!(least > room),
            }
        }

        #[test]
        fn a_shortened_name_fits(text in "\\PC{0,40}", columns in 1usize..30) {
            prop_assert!(width(&shortened(&text, columns)) <= columns);
        }
    }
}
