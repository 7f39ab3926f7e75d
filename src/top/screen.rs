//! A view, drawn.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState, Wrap};

use crate::shown::shown;
use crate::status::{Minutes, Snapshot};
use crate::top::columns::{self, Column, delay, short, time};
use crate::top::plain;
use crate::top::view::{Sort, Tab, View};

const PASS: Color = Color::Blue;
const DELAY: Color = Color::Yellow;
const DENY: Color = Color::Red;

const HELP: &str = "q quit  Tab next table  < > sort  r reverse  / filter  Enter explain";

/// Draws it all, in whatever room there is.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
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
    if let Some(text) = &view.popup {
        popup(frame, text);
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

fn popup(frame: &mut Frame<'_>, text: &str) {
    let area = frame.area();
    let (x, y) = (area.width / 12, area.height / 6);
    let area = Rect { x, y, width: area.width - 2 * x, height: area.height - 2 * y };
    let lines: Vec<Line<'_>> = text.lines().map(|line| Line::from(shown(line))).collect();
    let block = Block::bordered().title(" why ").title_bottom(" Esc closes ");
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::status::{FieldLine, KeyLine};

    fn drawn(view: &View, width: u16, height: u16) -> String {
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
        for popup in [None, Some("because\nof this".to_owned())] {
            view.popup = popup;
            for tab in Tab::ALL {
                view.tab = tab;
                for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 24), (300, 100), (500, 1), (1, 500)] {
                    drawn(&view, width, height);
                }
            }
        }
    }

    #[test]
    fn it_says_who_is_throttled_and_what_is_wrong() {
        let mut view = view("shop.example");
        let text = drawn(&view, 100, 24);
        for part in ["slowlane 1.2.3 at here", "throttled/s▼", "7.25", "2001", "website=shop.example"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        view.heard(Err("connection refused".into()));
        assert!(drawn(&view, 100, 24).contains("NO ANSWER: connection refused"));
    }

    #[test]
    fn a_name_with_escape_codes_is_text() {
        let text = drawn(&view("\x1b[31mred\u{202e}"), 100, 24);
        assert!(text.contains(r"website=\u{1b}[31mred\u{202e}") && !text.contains('\x1b'), "{text}");
    }
}
