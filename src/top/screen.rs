//! Draws a view.

use std::borrow::Cow;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};
use textwrap::WordSplitter;

use crate::observe::status::{Minutes, Snapshot};
use crate::top::columns::{self, Column, delay, short, time};
use crate::top::layout::{self, Wanted, packed, shortened};
use crate::top::plain;
use crate::top::view::{Popup, Sort, Tab, View};
use slowlane_core::base::{Kind, shown};

const PASS: Color = Color::Blue;
const DELAY: Color = Color::Yellow;
const DENY: Color = Color::Red;

const HELP: [&str; 6] = ["q quit", "Tab next table", "/ filter", "Enter explain", "< > sort", "r reverse"];

/// Draws the whole view into the frame.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let width = frame.area().width.into();
    let charts = if frame.area().height >= 20 { 4 } else { 0 };
    let warning = self::warning(&view.snapshot, width);
    let [head, banner, numbers, minutes, tabs, table, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(warning.len() as u16),
        Constraint::Length(2),
        Constraint::Length(charts),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(self::head(view, width), head);
    frame.render_widget(Paragraph::new(warning), banner);
    frame.render_widget(Paragraph::new(self::numbers(&view.snapshot, width)), numbers);
    self::minutes(frame, &view.snapshot.minutes, minutes);
    frame.render_widget(self::tabs(view, width), tabs);
    match view.tab {
        Tab::Keys => rows(frame, table, view, &columns::keys(), &view.keys()),
        Tab::History => rows(frame, table, view, &columns::past_keys(), &view.past_keys()),
        Tab::Slos => rows(frame, table, view, &columns::slos(), &view.slos()),
        Tab::Connections => {
            let text = plain::connections(&view.snapshot);
            let lines = text.lines().flat_map(|line| wrapped(line, width)).map(Line::from);
            frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), table);
        }
    }
    frame.render_widget(self::foot(view, width), foot);
    if let Some(popup) = &mut view.popup {
        self::popup(frame, popup);
    }
}

fn head(view: &View, width: usize) -> Line<'static> {
    let Snapshot { version, uptime_s, .. } = &view.snapshot;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let pieces = [
        Span::styled("slowlane", bold),
        Span::raw(format!(" {}", shown(version))),
        Span::raw(format!(" at {}", view.address)),
        Span::raw(format!(", up {}", time(*uptime_s))),
    ];
    let mut line = packed(pieces, width);
    if let Some(problem) = &view.problem {
        let reported = format!("  NO ANSWER: {problem}");
        line.push_span(Span::styled(shortened(&reported, width.saturating_sub(line.width())), bold.fg(DENY)));
    }
    line
}

/// The maximum number of lines about a rejected policy, and about missing fields.
const WARNING_LINES_MAX: usize = 3;

fn warning(snapshot: &Snapshot, width: usize) -> Vec<Line<'static>> {
    let style = |colour| Style::new().fg(colour).add_modifier(Modifier::BOLD);
    let policy = plain::warning(snapshot).into_iter().flat_map(|(is_refused, reported)| {
        let style = style(if is_refused { DENY } else { DELAY });
        let lines = wrapped(&reported, width).into_iter().take(WARNING_LINES_MAX);
        lines.map(move |line| Line::styled(line, style))
    });
    let missing =
        plain::missing(snapshot).flat_map(|reported| wrapped(&reported, width)).take(WARNING_LINES_MAX);
    policy.chain(missing.map(|line| Line::styled(line, style(DELAY)))).collect()
}

fn numbers(snapshot: &Snapshot, width: usize) -> Vec<Line<'static>> {
    let [pass, delayed, deny] = snapshot.rates;
    let coloured =
        |kind: Kind, rate: f64, colour| Span::styled(format!("{} {}  ", kind.name(), short(rate)), colour);
    let first = [
        Span::raw(format!("{} requests/s: ", short(pass + delayed + deny))),
        coloured(Kind::Pass, pass, PASS),
        coloured(Kind::Delay, delayed, DELAY),
        coloured(Kind::Deny, deny, DENY),
        Span::raw(format!("delay p50 {}", delay(snapshot.delay.p50_ms))),
        Span::raw(format!(" p99 {}", delay(snapshot.delay.p99_ms))),
    ];
    vec![packed(first, width), packed(plain::stores(snapshot).map(Span::raw), width)]
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
        frame.render_widget(Line::from(format!("{name:<8}{:>6} ", short(newest as f64))), label);
        let first = values.len().saturating_sub(chart.width.into());
        frame.render_widget(Sparkline::default().data(&values[first..]).style(colour), chart);
    }
}

fn tabs(view: &View, width: usize) -> Line<'static> {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let chosen = Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED);
    let tab = |(number, tab): (usize, Tab)| {
        let style = if tab == view.tab { chosen } else { dim };
        let name = match tab {
            Tab::Keys => plain::throttled(&view.snapshot),
            Tab::History => plain::since(&view.history),
            Tab::Slos | Tab::Connections => tab.name().to_owned(),
        };
        [Span::styled(format!(" [{}] {name} ", number + 1), style), Span::raw(" ")]
    };
    packed(Tab::ALL.into_iter().enumerate().flat_map(tab), width)
}

fn rows<T>(frame: &mut Frame<'_>, area: Rect, view: &View, columns: &[Column<T>], rows: &[&T]) {
    let sort = view.list().sort;
    let texts: Vec<Vec<String>> =
        rows.iter().map(|row| columns.iter().map(|column| (column.cell)(row).text).collect()).collect();
    let wanted = |name_chars: usize| -> Vec<Wanted> {
        let wanted = |(place, column): (usize, &Column<T>)| {
            let longest = texts.iter().map(|row| layout::width(&row[place])).max().unwrap_or(0);
            // The mark of the order needs a column.
            let width = longest.max(column.name.len() + 1);
            // The heading shows the order of the rows.
            let rank = if place == sort.column { column.rank.min(1) } else { column.rank };
            Wanted { width, least: column.least(width, name_chars), rank }
        };
        columns.iter().enumerate().map(wanted).collect()
    };
    let fits = |name_chars| layout::fit(&wanted(name_chars), area.width.into());
    let [long, middling, short] = columns::NAME_CHARS;
    let widths = match fits(long).or_else(|_| fits(middling)).or_else(|_| fits(short)) {
        Ok(widths) => widths,
        Err(least) => {
            let reported = format!("too narrow for this table: it needs {least} columns");
            let lines = wrapped(&reported, area.width.into()).into_iter().map(Line::from);
            return frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
        }
    };
    let row = |texts: Vec<String>| {
        let cells = columns.iter().zip(texts).zip(&widths).filter_map(|((column, text), width)| {
            let alignment = if column.is_number { Alignment::Right } else { Alignment::Left };
            Some(Cell::from(Line::from(shortened(&text, (*width)?)).alignment(alignment)))
        });
        Row::new(cells)
    };
    let names = columns.iter().enumerate().map(|(place, column)| heading(column, place, sort)).collect();
    let constraints = widths.iter().flatten().map(|&width| Constraint::Length(width as u16));
    let table = Table::new(texts.into_iter().map(row), constraints)
        .header(row(names).style(Style::new().add_modifier(Modifier::UNDERLINED)))
        .column_spacing(layout::GAP as u16)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let selected = (!rows.is_empty()).then_some(view.selected.min(rows.len().saturating_sub(1)));
    frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(selected));
    if rows.is_empty() {
        let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        let lines = wrapped(&view.why_empty(), area.width.into()).into_iter().map(Line::from);
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), below);
    }
}

fn heading<T>(column: &Column<T>, place: usize, sort: Sort) -> String {
    let mark = match (place == sort.column, sort.is_reversed) {
        (false, _) => "",
        (true, false) => "▼",
        (true, true) => "▲",
    };
    format!("{}{mark}", column.name)
}

fn foot(view: &View, width: usize) -> Line<'static> {
    let filter = &view.list().filter;
    let reported = match (view.is_typing, filter.is_empty()) {
        (true, _) => vec![format!("filter: {filter}█"), "Enter keeps it".into(), "Esc clears it".into()],
        (false, false) => vec![format!("filter: {filter}"), "Esc clears it".into()],
        (false, true) => Vec::new(),
    };
    let soft = Style::new().add_modifier(Modifier::DIM);
    let help = HELP.into_iter().filter(|_| !view.is_typing);
    let reported = reported.into_iter().map(|text| Span::raw(shortened(&text, width) + "  "));
    packed(reported.chain(help.map(|text| Span::styled(format!("{text}  "), soft))), width)
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

/// Wraps a line to a number of columns, between words if possible.
fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let options = textwrap::Options::new(columns).word_splitter(WordSplitter::NoHyphenation);
    textwrap::wrap(line, options).into_iter().map(Cow::into_owned).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::observe::status::{Delay, FieldLine, KeyLine, ReloadLine, SloLine};
    use crate::top::fetch::Fetched;

    fn drawn(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    fn fetched(snapshot: Snapshot) -> Fetched {
        Fetched { snapshot, ..Fetched::default() }
    }

    fn view(value: &str) -> View {
        let field = FieldLine { name: "website".into(), value: value.into() };
        let keys =
            vec![KeyLine { fields: vec![field], throttled_per_s: 7.25, slo: 2001, ..KeyLine::default() }];
        let mut view = View::new("here".into());
        let snapshot = Snapshot { version: "1.2.3".into(), keys, ..Snapshot::default() };
        view.update(Ok(fetched(snapshot)));
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
        view.update(Err("connection refused".into()));
        assert!(drawn(&mut view, 100, 24).contains("NO ANSWER: connection refused"));
    }

    /// Splits a line into cells. Two or more blanks separate them.
    fn cells(line: &str) -> Vec<&str> {
        line.trim_matches('"').split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    }

    /// The table under the tabs: the cells of each row, by the names of their columns.
    fn table(text: &str) -> Vec<Vec<(String, String)>> {
        let mut lines = text.lines().skip_while(|line| !line.contains("SLO  ") && !line.contains("SLO▼"));
        let name = |name: &str| name.trim_end_matches(['▼', '▲']).to_owned();
        let names: Vec<String> = cells(lines.next().unwrap_or_default()).into_iter().map(name).collect();
        let rows = lines.map(cells).take_while(|cells| !cells.is_empty());
        rows.map(|cells| {
            assert_eq!(cells.len(), names.len(), "{text}");
            names.iter().cloned().zip(cells.into_iter().map(str::to_owned)).collect()
        })
        .collect()
    }

    /// Every cell shows the whole text of its value. A name may lack its middle.
    fn assert_whole<T>(text: &str, columns: &[Column<T>], rows: &[T], kept: &[&str]) {
        let reported = table(text);
        assert_eq!(reported.len(), rows.len(), "{text}");
        for (cells, row) in reported.iter().zip(rows) {
            for (name, cell) in cells {
                let column = columns.iter().find(|column| column.name == name);
                let column = column.unwrap_or_else(|| panic!("{name} is the name of no column:\n{text}"));
                let whole = (column.cell)(row).text;
                match cell.split_once('…').filter(|_| !column.is_number) {
                    Some((head, tail)) => assert!(whole.starts_with(head) && whole.ends_with(tail), "{text}"),
                    None => assert_eq!(*cell, whole, "{name} in\n{text}"),
                }
            }
            for name in kept {
                assert!(cells.iter().any(|(reported, _)| reported == name), "{name} is kept in\n{text}");
            }
        }
    }

    #[test]
    fn a_number_is_seen_whole_or_not_at_all_however_narrow_the_screen() {
        let field = |name: &str, value: &str| FieldLine { name: name.into(), value: value.into() };
        let long = "a-very-long-name.of-a-shop.example";
        let key = |value: &str, throttled_per_s, delay_ms| KeyLine {
            slo: 2001,
            fields: vec![field("website", value), field("source", "2001:db8:1:2::/64")],
            throttled_per_s,
            delayed: 123_456,
            denied: 9_999,
            delay_ms,
            let_through_per_s: Some(1_234.0),
            clients: Some(99.25),
            ..KeyLine::default()
        };
        let slo = |id, rate: &str, law: &str| SloLine {
            id,
            law: law.into(),
            per: vec!["source".into(), "website".into()],
            rate: rate.into(),
            objective: format!("{rate}, burst 10"),
            rates: [1_234.5, 234.5, 34.5],
            busiest_per_s: Some(1_985.0),
            keys: 100,
            ..SloLine::default()
        };
        let snapshot = Snapshot {
            version: "1.2.3".into(),
            rates: [1_234.5, 234.5, 34.5],
            delay: Delay { p50_ms: Some(1_985), p99_ms: Some(9_985) },
            keys: vec![key(long, 1_234.5, 1_985), key("shop.example", 123.0, 12_345)],
            slos: vec![slo(1, "1000/m", "pace"), slo(2_001, "86400/d", "sliding-buckets")],
            ..Snapshot::default()
        };
        let mut view = View::new("127.0.0.1:9002".into());
        view.update(Ok(fetched(snapshot.clone())));
        for width in [110, 80, 70, 60, 40] {
            view.tab = Tab::Keys;
            let text = drawn(&mut view, width, 24);
            assert_whole(&text, &columns::keys(), &snapshot.keys, &["who", "throttled/s", "delay", "SLO"]);
            for (name, value) in [("p50 ", "1985 ms"), ("p99 ", "9985 ms"), ("deny ", "34.5")] {
                let shown = text.lines().nth(1).and_then(|line| line.split(name).nth(1));
                assert!(shown.is_none_or(|shown| shown.starts_with(value)), "{text}");
            }
            view.tab = Tab::Slos;
            let text = drawn(&mut view, width, 24);
            assert_whole(&text, &columns::slos(), &snapshot.slos, &["SLO", "objective", "busiest"]);
        }
        view.tab = Tab::Keys;
        assert!(drawn(&mut view, 110, 24).contains("denied"), "there is room for it");
        for tab in [Tab::Keys, Tab::Slos] {
            view.tab = tab;
            assert!(drawn(&mut view, 24, 24).contains("too narrow"));
        }
    }

    #[test]
    fn who_was_seen_last_and_when_is_told_and_why_nobody_is() {
        let mut view = view("shop.example");
        view.snapshot.keys[0].seen_ms_ago = 65_400;
        let text = drawn(&mut view, 80, 24);
        let reported = table(&text);
        assert!(reported[0].contains(&("last".to_owned(), "1 min 5 s ago".to_owned())), "{text}");
        assert!(text.contains("[1] throttled") && text.contains("[2] SLOs"), "{text}");
        view.update(Ok(Fetched::default()));
        assert!(drawn(&mut view, 80, 24).contains("no client is throttled"));
    }

    #[test]
    fn a_policy_that_is_refused_is_told_at_the_top_of_each_table_until_one_is_taken() {
        let mut view = view("shop.example");
        let refused = ReloadLine {
            problems: vec!["slo.map:12: rate \"5x/s\": expected a number".into(), "owner.map:1: no".into()],
            problems_total: 7,
            ..ReloadLine::default()
        };
        let taken = ReloadLine { ok: true, summary: "4 SLOs".into(), ..ReloadLine::default() };
        let warned =
            ReloadLine { problems: vec!["owner.map:2: odd".into()], problems_total: 1, ..taken.clone() };
        let mut top_of = |reloads: &[&ReloadLine], tab| {
            view.tab = tab;
            view.snapshot.reloads = reloads.iter().map(|reload| (*reload).clone()).collect();
            let text = drawn(&mut view, 80, 24);
            text.lines()
                .skip(1)
                .take(2)
                .map(|line| line[1..line.len() - 1].trim())
                .collect::<Vec<_>>()
                .join(" ")
        };
        for tab in Tab::ALL {
            let reported = top_of(&[&refused, &taken], tab);
            let begins =
                "POLICY REFUSED, the previous one stays in force (and 6 more): slo.map:12: rate \"5x/s\": ";
            assert!(reported.starts_with(begins), "{reported}");
            assert!(top_of(&[&warned], tab).starts_with("POLICY WARNING: owner.map:2: odd"));
            assert!(!top_of(&[&taken, &refused], tab).contains("POLICY"));
        }
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
        // The frame leaves 14 of 24 rows and 82 of 100 columns, so each line takes two rows.
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
        // A short text is seen whole, wherever the previous one was left.
        view.press(KeyCode::End.into());
        view.explain("because".into());
        let text = drawn(&mut view, 100, 24);
        assert!(text.contains("│because") && text.contains(" Esc closes ─"), "{text}");
    }

    #[test]
    fn lines_are_parted_between_words_where_that_can_be() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("  a longest", 5), ["  a", "longe", "st"]);
        assert_eq!(wrapped("日本語", 4), ["日本", "語"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("ab", 0), ["a", "b"]);
    }
}
