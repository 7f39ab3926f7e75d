//! The state of the screen: its table, order and filter, and how the keyboard changes them.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::observe::status::{HistoryLines, KeyLine, PastKey, SloLine, Snapshot};
use crate::top::columns::{self, Column};
use crate::top::fetch::Fetched;

/// The maximum number of characters of a filter.
const FILTER_CHARS_MAX: usize = 100;

/// The number of lines in a page of an explanation.
const POPUP_PAGE: usize = 10;

/// A table of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Keys,
    Slos,
    Connections,
    History,
}

impl Tab {
    pub(super) const ALL: [Tab; 4] = [Tab::Keys, Tab::Slos, Tab::Connections, Tab::History];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Tab::Keys => "throttled",
            Tab::Slos => "SLOs",
            Tab::Connections => "connections and reloads",
            Tab::History => "throttled before",
        }
    }
}

/// The column that rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sort {
    pub(super) column: usize,
    pub(super) is_reversed: bool,
}

/// The choice of rows of a table, and their order.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) sort: Sort,
    pub(super) filter: String,
}

/// The effect of a key outside the view.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Nothing,
    Leave,
    Explain(Box<KeyLine>),
}

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) address: String,
    pub(super) snapshot: Snapshot,
    pub(super) history: HistoryLines,
    /// The reason why there is no newer snapshot.
    pub(super) problem: Option<String>,
    pub(super) tab: Tab,
    /// One for each table.
    lists: [List; Tab::ALL.len()],
    pub(super) is_typing: bool,
    pub(super) selected: usize,
    /// The explanation that covers the rest of the screen.
    pub(super) popup: Option<Popup>,
}

/// A text of any length, and its first visible line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Popup {
    pub(super) text: String,
    /// May point past the end: drawing corrects it.
    pub(super) first: usize,
}

impl Popup {
    fn scroll(&mut self, code: KeyCode) {
        self.first = match code {
            KeyCode::Up | KeyCode::Char('k') => self.first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.first.saturating_add(1),
            KeyCode::PageUp => self.first.saturating_sub(POPUP_PAGE),
            KeyCode::PageDown | KeyCode::Char(' ') => self.first.saturating_add(POPUP_PAGE),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => self.first,
        };
    }
}

impl View {
    pub(super) fn new(address: String) -> View {
        View { address, ..View::default() }
    }

    /// Takes a new status. With an error, the previous one stays.
    pub(super) fn update(&mut self, answer: Result<Fetched, String>) {
        self.problem = match answer {
            Ok(Fetched { snapshot, history }) => {
                (self.snapshot, self.history) = (snapshot, history);
                None
            }
            Err(problem) => Some(problem),
        };
    }

    pub(super) fn explain(&mut self, text: String) {
        if let Some(popup) = &mut self.popup {
            popup.text = text;
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Action::Leave } else { Action::Nothing };
        }
        if self.is_typing {
            self.edit(key.code);
            return Action::Nothing;
        }
        if let Some(popup) = &mut self.popup {
            match key.code {
                KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => self.popup = None,
                code => popup.scroll(code),
            }
            return Action::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Action::Leave,
            KeyCode::Enter => return self.wish_to_know(),
            KeyCode::Tab => self.open(self.tab as usize + 1),
            KeyCode::Char(number @ '1'..='4') => self.open(number as usize - '1' as usize),
            KeyCode::Char('/') => self.is_typing = self.tab != Tab::Connections,
            KeyCode::Esc => self.list_mut().filter.clear(),
            KeyCode::Char('<') | KeyCode::Left => self.sort_by(|column, count| (column + count - 1) % count),
            KeyCode::Char('>') | KeyCode::Right => self.sort_by(|column, count| (column + 1) % count),
            KeyCode::Char('r') => self.list_mut().sort.is_reversed ^= true,
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected += 1,
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::PageDown => self.selected += 10,
            KeyCode::Home => self.selected = 0,
            _ => {}
        }
        self.selected = self.selected.min(self.rows().saturating_sub(1));
        Action::Nothing
    }

    /// Opens a table, at its first row. After the last table comes the first.
    fn open(&mut self, place: usize) {
        (self.tab, self.selected) = (Tab::ALL[place % Tab::ALL.len()], 0);
    }

    fn edit(&mut self, code: KeyCode) {
        let filter = &mut self.list_mut().filter;
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                filter.clear();
                self.is_typing = false;
            }
            KeyCode::Backspace => drop(filter.pop()),
            KeyCode::Char(letter) if filter.chars().count() < FILTER_CHARS_MAX => filter.push(letter),
            _ => {}
        }
        self.selected = 0;
    }

    fn wish_to_know(&mut self) -> Action {
        let selected = self.selected;
        let key = match self.tab {
            Tab::Keys => self.keys().into_iter().nth(selected).cloned(),
            Tab::History => self.past_keys().into_iter().nth(selected).map(as_key),
            Tab::Slos | Tab::Connections => None,
        };
        match key {
            Some(key) => {
                self.popup = Some(Popup { text: "asking …".to_owned(), first: 0 });
                Action::Explain(Box::new(key))
            }
            None => Action::Nothing,
        }
    }

    /// The list of the open table.
    pub(super) fn list(&self) -> &List {
        &self.lists[self.tab as usize]
    }

    fn list_mut(&mut self) -> &mut List {
        &mut self.lists[self.tab as usize]
    }

    /// The reason why a table has no rows.
    pub(super) fn why_empty(&self) -> String {
        let all = match self.tab {
            Tab::Keys => self.snapshot.keys.len(),
            Tab::History => self.history.keys.len(),
            Tab::Slos | Tab::Connections => self.snapshot.slos.len(),
        };
        match (all, self.tab) {
            (0, Tab::Keys) => "no client is throttled".to_owned(),
            (0, Tab::History) => "no client was throttled".to_owned(),
            (0, _) => "no SLO".to_owned(),
            (all, _) => format!("none of {all} contains \"{}\": Esc clears the filter", self.list().filter),
        }
    }

    fn sort_by(&mut self, next: impl FnOnce(usize, usize) -> usize) {
        let count = match self.tab {
            Tab::Keys => columns::keys().len(),
            Tab::History => columns::past_keys().len(),
            Tab::Slos | Tab::Connections => columns::slos().len(),
        };
        let sort = &mut self.list_mut().sort;
        *sort = Sort { column: next(sort.column, count), is_reversed: false };
    }

    fn rows(&self) -> usize {
        match self.tab {
            Tab::Keys => self.keys().len(),
            Tab::History => self.past_keys().len(),
            Tab::Slos => self.slos().len(),
            Tab::Connections => 0,
        }
    }

    /// The keys that pass the filter, in the chosen order.
    pub(super) fn keys(&self) -> Vec<&KeyLine> {
        found(&self.snapshot.keys, &columns::keys(), &self.lists[Tab::Keys as usize])
    }

    /// The same for the history.
    pub(super) fn past_keys(&self) -> Vec<&PastKey> {
        found(&self.history.keys, &columns::past_keys(), &self.lists[Tab::History as usize])
    }

    pub(super) fn slos(&self) -> Vec<&SloLine> {
        found(&self.snapshot.slos, &columns::slos(), &self.lists[Tab::Slos as usize])
    }
}

/// A key of the history, without its numbers, to be explained.
fn as_key(past: &PastKey) -> KeyLine {
    KeyLine { key: past.key.clone(), why: past.why.clone(), ..KeyLine::default() }
}

/// The rows with the filter text in any column, sorted by one column.
fn found<'s, T>(rows: &'s [T], columns: &[Column<T>], list: &List) -> Vec<&'s T> {
    let (sort, filter) = (list.sort, list.filter.to_lowercase());
    let has = |row: &T| columns.iter().any(|column| (column.cell)(row).text.to_lowercase().contains(&filter));
    let mut found: Vec<&T> = rows.iter().filter(|&row| has(row)).collect();
    found.sort_by(|one, other| {
        let order = columns[sort.column].order(one, other);
        if sort.is_reversed { order.reverse() } else { order }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::status::FieldLine;

    fn key(website: &str, throttled_per_s: f64, denied: u64) -> KeyLine {
        let field = FieldLine { name: "website".into(), value: website.into() };
        KeyLine { fields: vec![field], throttled_per_s, denied, ..KeyLine::default() }
    }

    fn view() -> View {
        let keys = vec![key("a.example", 1.0, 30), key("b.example", 3.0, 10), key("c.test", 2.0, 20)];
        let mut view = View::new("here".into());
        let snapshot = Snapshot { keys, ..Snapshot::default() };
        view.update(Ok(Fetched { snapshot, ..Fetched::default() }));
        view
    }

    fn press(view: &mut View, keys: &str) -> Action {
        let code = |letter| match letter {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            letter => KeyCode::Char(letter),
        };
        keys.chars().map(|letter| view.press(KeyEvent::from(code(letter)))).last().unwrap()
    }

    fn shown(view: &View) -> Vec<&str> {
        view.keys().iter().map(|key| key.fields[0].value.as_str()).collect()
    }

    #[test]
    fn rows_are_sorted_by_any_column_and_found_by_any_word() {
        let mut view = view();
        assert_eq!(shown(&view), ["b.example", "c.test", "a.example"]);
        press(&mut view, "r");
        assert_eq!(shown(&view), ["a.example", "c.test", "b.example"]);
        press(&mut view, ">>>>>");
        assert_eq!(shown(&view), ["a.example", "c.test", "b.example"], "by what is denied");
        press(&mut view, ">>>");
        assert_eq!(shown(&view), ["a.example", "b.example", "c.test"], "by who");
        press(&mut view, "/EXAMPLE\n");
        assert_eq!(shown(&view), ["a.example", "b.example"]);
        press(&mut view, "\x1b");
        assert_eq!(shown(&view).len(), 3);
    }

    #[test]
    fn each_table_has_its_own_filter_and_an_empty_one_says_why() {
        let mut view = view();
        assert_eq!(View::new("here".into()).why_empty(), "no client is throttled");
        press(&mut view, "/nowhere\n");
        assert_eq!((shown(&view).len(), view.list().filter.as_str()), (0, "nowhere"));
        assert_eq!(view.why_empty(), "none of 3 contains \"nowhere\": Esc clears the filter");
        press(&mut view, "\t");
        assert_eq!((view.list().filter.as_str(), view.why_empty().as_str()), ("", "no SLO"));
        // The connections have no filter.
        press(&mut view, "3/");
        assert_eq!(press(&mut view, "q"), Action::Leave);
        press(&mut view, "1\x1b");
        assert_eq!(shown(&view).len(), 3);
    }

    #[test]
    fn q_leaves_but_not_while_one_types() {
        let mut view = view();
        assert_eq!(press(&mut view, "/q"), Action::Nothing);
        assert_eq!(press(&mut view, "\nq"), Action::Leave);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        press(&mut view, "/");
        assert_eq!(view.press(interrupt), Action::Leave);
    }

    #[test]
    fn enter_asks_about_the_selected_key() {
        let mut view = view();
        let Action::Explain(key) = press(&mut view, "j\n") else { panic!() };
        assert_eq!(key.fields[0].value, "c.test");
        view.explain("because".into());
        assert_eq!(view.popup.as_ref().unwrap().text, "because");
        assert_eq!(press(&mut view, "q"), Action::Nothing);
        assert_eq!(view.popup, None);
        view.explain("too late".into());
        assert_eq!(view.popup, None);
        press(&mut view, "jjjjjjjj");
        assert_eq!(view.selected, 2);
        assert_eq!(press(&mut view, "\t\n"), Action::Nothing);
    }

    #[test]
    fn without_an_answer_the_last_one_stays() {
        let mut view = view();
        view.update(Err("gone".into()));
        assert_eq!((shown(&view).len(), view.problem.as_deref()), (3, Some("gone")));
    }
}
