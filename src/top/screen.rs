//! A view, drawn.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};

use crate::shown::shown;
use crate::status::{Minutes, Snapshot};
use crate::top::columns::{self, Column, delay, short, time};
use crate::top::plain;
use crate::top::view::{Popup, Sort, Tab, View};

const PASS: Color = Color::Blue;
const DELAY: Color = Color::Yellow;
const DENY: Color = Color::Red;

const HELP: &str = "q quit  Tab next table  < > sort  r reverse  / filter  Enter explain";

/// Draws it all, in whatever room there is.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let charts = if frame.area().height >= 20 { 4 } else { 0 };
    let [head, numbers, minutes, tabs, table, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(charts),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(self::head(view), head);
    frame.render_widget(Paragraph::new(self::numbers(&view.snapshot)), numbers);
    self::minutes(frame, &view.snapshot.minutes, minutes);
    frame.render_widget(self::tabs(view), tabs);
    match view.tab {
        Tab::Keys => rows(frame, table, view, &columns::keys(), &view.keys()),
        Tab::Slos => rows(frame, table, view, &columns::slos(), &view.slos()),
        Tab::Connections => {
            frame.render_widget(Paragraph::new(plain::connections(&view.snapshot)), table);
        }
    }
    frame.render_widget(self::foot(view), foot);
    if let Some(popup) = &mut view.popup {
        self::popup(frame, popup);
    }
}

fn head(view: &View) -> Line<'static> {
    let Snapshot { version, uptime_s, .. } = &view.snapshot;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut line = Line::from(vec![
        Span::styled("slowlane", bold),
        Span::raw(format!(" {} at {}, up {}", shown(version), view.address, time(*uptime_s))),
    ]);
    if let Some(problem) = &view.problem {
        line.push_span(Span::styled(format!("  NO ANSWER: {problem}"), bold.fg(DENY)));
    }
    line
}

fn numbers(snapshot: &Snapshot) -> Vec<Line<'static>> {
    let [pass, delayed, deny] = snapshot.rates;
    let coloured = |name: &str, rate: f64, colour| Span::styled(format!("{name} {}  ", short(rate)), colour);
    let first = Line::from(vec![
        Span::raw(format!("{} requests/s: ", short(pass + delayed + deny))),
        coloured("pass", pass, PASS),
        coloured("delay", delayed, DELAY),
        coloured("deny", deny, DENY),
        Span::raw(format!("delay p50 {} p99 {}", delay(snapshot.delay.p50_ms), delay(snapshot.delay.p99_ms))),
    ]);
    vec![first, Line::from(plain::stores(snapshot))]
}

/// One line for each verdict and one for the delay, the newest second at the right.
fn minutes(frame: &mut Frame<'_>, minutes: &Minutes, area: Rect) {
    let whole = |rates: &[f64]| -> Vec<u64> { rates.iter().map(|rate| rate.ceil() as u64).collect() };
    let p99: Vec<u64> = minutes.p99_ms.iter().map(|ms| ms.unwrap_or(0)).collect();
    let lines = [
        ("pass/s", whole(&minutes.pass), PASS),
        ("delay/s", whole(&minutes.delay), DELAY),
        ("deny/s", whole(&minutes.deny), DENY),
        ("p99 ms", p99, Color::Magenta),
    ];
    for ((name, values, colour), y) in lines.into_iter().zip(area.top()..area.bottom()) {
        let line = Rect { y, height: 1, ..area };
        let [label, chart] = Layout::horizontal([Constraint::Length(16), Constraint::Min(0)]).areas(line);
        let newest = values.last().copied().unwrap_or(0);
        frame.render_widget(Line::from(format!("{name:<8}{newest:>6} ")), label);
        let first = values.len().saturating_sub(chart.width.into());
        frame.render_widget(Sparkline::default().data(&values[first..]).style(colour), chart);
    }
}

fn tabs(view: &View) -> Line<'static> {
    let plain = Style::new().add_modifier(Modifier::DIM);
    let chosen = Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED);
    let tab = |(number, tab): (usize, Tab)| {
        let style = if tab == view.tab { chosen } else { plain };
        [Span::styled(format!(" {} {} ", number + 1, tab.name()), style), Span::raw(" ")]
    };
    Line::from_iter(Tab::ALL.into_iter().enumerate().flat_map(tab))
}

fn rows<T>(frame: &mut Frame<'_>, area: Rect, view: &View, columns: &[Column<T>], rows: &[&T]) {
    let sort = view.sort(view.tab);
    let texts: Vec<Vec<String>> =
        rows.iter().map(|row| columns.iter().map(|column| (column.text)(row)).collect()).collect();
    let width = |place: usize| {
        let longest = texts.iter().map(|row| row[place].chars().count()).max().unwrap_or(0);
        longest.max(columns[place].name.len() + 1) as u16
    };
    let widths: Vec<Constraint> = (0..columns.len())
        .map(|place| match columns[place].is_number {
            true => Constraint::Length(width(place)),
            false => Constraint::Min(width(place).min(24)),
        })
        .collect();
    let cell = |column: &Column<T>, text: String| {
        let alignment = if column.is_number { Alignment::Right } else { Alignment::Left };
        Cell::from(Line::from(text).alignment(alignment))
    };
    let header = columns.iter().enumerate().map(|(place, column)| cell(column, heading(column, place, sort)));
    let body = texts
        .into_iter()
        .map(|row| Row::new(columns.iter().zip(row).map(|(column, text)| cell(column, text))));
    let table = Table::new(body, widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::UNDERLINED)))
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let selected = (!rows.is_empty()).then_some(view.selected.min(rows.len().saturating_sub(1)));
    frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(selected));
}

fn heading<T>(column: &Column<T>, place: usize, sort: Sort) -> String {
    let mark = match (place == sort.column, sort.is_reversed) {
        (false, _) => "",
        (true, false) => "▼",
        (true, true) => "▲",
    };
    format!("{}{mark}", column.name)
}

fn foot(view: &View) -> Line<'static> {
    let filter = &view.filter;
    match (view.is_typing, filter.is_empty()) {
        (true, _) => Line::from(format!("filter: {filter}█  Enter keeps it, Esc drops it")),
        (false, false) => Line::from(format!("filter: {filter}  Esc drops it   {HELP}")),
        (false, true) => Line::styled(HELP, Style::new().add_modifier(Modifier::DIM)),
    }
}

fn popup(frame: &mut Frame<'_>, popup: &mut Popup) {
    let area = frame.area();
    let (x, y) = (area.width / 12, area.height / 6);
    let area = Rect { x, y, width: area.width - 2 * x, height: area.height - 2 * y };
    let inside = Block::bordered().inner(area);
    let lines: Vec<String> =
        popup.text.lines().flat_map(|line| wrapped(&shown(line), inside.width.into())).collect();
    popup.first = popup.first.min(lines.len().saturating_sub(inside.height.into()));
    let seen = lines.iter().skip(popup.first).take(inside.height.into());
    let foot = if lines.len() > inside.height.into() {
        let last = popup.first + seen.len();
        format!(" Esc closes, arrows scroll: {}-{last} of {} ", popup.first + 1, lines.len())
    } else {
        " Esc closes ".to_owned()
    };
    let text: Vec<Line<'_>> = seen.map(|line| Line::from(line.as_str())).collect();
    let block = Block::bordered().title(" why ").title_bottom(foot);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(text).block(block), area);
}

/// A line as lines of so many columns, parted between words where that can be.
fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let width = |text: &str| Span::raw(text).width();
    let (mut lines, mut last, mut used) = (Vec::new(), String::new(), 0);
    for word in line.split_inclusive(' ') {
        if used > 0 && used + width(word.trim_end()) > columns {
            lines.push(std::mem::take(&mut last));
            used = 0;
        }
        for letter in word.chars() {
            let letter_width = width(letter.encode_utf8(&mut [0; 4]));
            if used > 0 && used + letter_width > columns {
                // A blank at the end of a line is none that is missed.
                if letter == ' ' {
                    continue;
                }
                lines.push(std::mem::take(&mut last));
                used = 0;
            }
            last.push(letter);
            used += letter_width;
        }
    }
    lines.push(last);
    lines
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::status::{FieldLine, KeyLine};

    fn drawn(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    fn view(value: &str) -> View {
        let field = FieldLine { name: "website".into(), value: value.into() };
        let keys =
            vec![KeyLine { fields: vec![field], throttled_per_s: 7.25, slo: 2001, ..KeyLine::default() }];
        let mut view = View::new("here".into());
        view.heard(Ok(Snapshot { version: "1.2.3".into(), keys, ..Snapshot::default() }));
        view
    }

    #[test]
    fn any_size_is_drawn() {
        let mut view = view("shop.example");
        let long = "because of this and of that\n".repeat(70);
        for popup in [None, Some(Popup::default()), Some(Popup { text: long, first: usize::MAX })] {
            view.popup = popup;
            for tab in Tab::ALL {
                view.tab = tab;
                for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 24), (300, 100), (500, 1), (1, 500)] {
                    drawn(&mut view, width, height);
                }
            }
        }
    }

    #[test]
    fn it_says_who_is_throttled_and_what_is_wrong() {
        let mut view = view("shop.example");
        let text = drawn(&mut view, 100, 24);
        for part in ["slowlane 1.2.3 at here", "throttled/s▼", "7.25", "2001", "website=shop.example"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        view.heard(Err("connection refused".into()));
        assert!(drawn(&mut view, 100, 24).contains("NO ANSWER: connection refused"));
    }

    #[test]
    fn a_name_with_escape_codes_is_text() {
        let text = drawn(&mut view("\x1b[31mred\u{202e}"), 100, 24);
        assert!(text.contains(r"website=\u{1b}[31mred\u{202e}") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn an_explanation_that_is_longer_than_the_screen_is_read_line_by_line() {
        use crossterm::event::{KeyCode, KeyEvent};
        let mut view = view("shop.example");
        let lines: Vec<String> =
            (1..=40).map(|line| format!("line {line}, {}", "word ".repeat(20))).collect();
        view.press(KeyCode::Enter.into());
        view.explain(lines.join("\n"));
        // Of 24 rows it has 14 inside, of 100 columns 82: each line is two.
        for (keys, first, last, foot) in [
            (&[][..], "line 1,", "line 7,", "1-14 of 80"),
            (&[KeyCode::Down], "word word", "line 8,", "2-15 of 80"),
            (&[KeyCode::PageDown], "word word", "line 13,", "12-25 of 80"),
            (&[KeyCode::End], "line 34,", "line 40,", "67-80 of 80"),
            (&[KeyCode::PageDown, KeyCode::PageDown, KeyCode::Up], "word word", "line 40,", "66-79 of 80"),
            (&[KeyCode::PageUp], "word word", "line 35,", "56-69 of 80"),
            (&[KeyCode::Home, KeyCode::Up], "line 1,", "line 7,", "1-14 of 80"),
        ] {
            for key in keys {
                view.press(KeyEvent::from(*key));
                drawn(&mut view, 100, 24);
            }
            let text = drawn(&mut view, 100, 24);
            assert!(text.contains(foot), "{foot} in\n{text}");
            let inside = text.lines().filter_map(|line| line.split('│').nth(1)).collect::<Vec<_>>();
            assert_eq!(inside.len(), 14, "{text}");
            assert!(inside[0].starts_with(first), "{first} is first in\n{text}");
            let lines: Vec<_> = inside.iter().filter(|line| line.starts_with("line ")).collect();
            assert!(lines.last().unwrap().starts_with(last), "{last} is last in\n{text}");
        }
        // What is short is seen whole, wherever the one before was left.
        view.press(KeyCode::End.into());
        view.explain("because".into());
        let text = drawn(&mut view, 100, 24);
        assert!(text.contains("│because") && text.contains(" Esc closes ─"), "{text}");
    }

    #[test]
    fn lines_are_parted_between_words_where_that_can_be() {
        assert_eq!(wrapped("one two three", 8), ["one two ", "three"]);
        assert_eq!(wrapped("  a longest", 5), ["  a ", "longe", "st"]);
        assert_eq!(wrapped("日本語", 4), ["日本", "語"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("ab", 0), ["a", "b"]);
    }
}
