//! Line charts over time: a self-contained SVG for light and dark backgrounds.
//!
//! ```text
//! legend                  the phases, where there are several
//! ┌────────────────┐
//! │ a panel        │  lines, and a dashed line for the objective
//! └────────────────┘
//! ┌────────────────┐
//! │ another        │
//! └────────────────┘
//!  0  10  20  30 s
//! ```

use std::fmt::Write;

/// The maximum number of lines that a reader can distinguish.
pub const LINES_MAX: usize = 12;

/// The maximum number of points of a line. With all lines, the file stays below 60 kB.
pub(crate) const POINTS_MAX: usize = 120;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 20.0;
const PANEL_HEIGHT: f64 = 200.0;

/// The height of a panel's title.
const TITLE: f64 = 22.0;

/// The distance from one panel to the title of the next.
const PANEL_GAP: f64 = 46.0;

/// The height of the time axis, below the last panel.
const AXIS: f64 = 44.0;

const LEGEND_LINE: f64 = 20.0;

/// The approximate width of a letter.
const LETTER: f64 = 7.2;

/// The width of `50 clients`. With less room, only the number is shown.
const PHASE_LABEL: f64 = 80.0;

/// Each colour serves two lines: one solid, one dashed.
const COLOURS: usize = 6;

const STYLE: &str = include_str!("chart.css");

/// Panels above one another, with the same time axis.
#[derive(Debug, Default)]
pub(crate) struct Chart<'c> {
    pub title: String,
    /// The names of the lines. A line has the same colour in each panel.
    pub lines: Vec<String>,
    /// The name of the dashed line.
    pub dashed: Option<String>,
    /// The numbers of clients in equal parts of the time. Empty: there is only one part.
    pub phases: &'c [u32],
    pub panels: Vec<Panel>,
    pub seconds: f64,
    /// The unit of the time axis.
    pub unit: ChartUnit,
}

/// Lines on a scale that begins at 0.
#[derive(Debug)]
pub(crate) struct Panel {
    pub title: String,
    pub lines: Vec<ChartLine>,
    pub dashed_at: Option<f64>,
}

/// The points of a line: the time in seconds, and the value if there is one.
pub(crate) type ChartLine = Vec<(f64, Option<f64>)>;

/// A unit of time, and its length in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChartUnit(&'static str, f64);

impl Default for ChartUnit {
    fn default() -> ChartUnit {
        ChartUnit("seconds", 1.0)
    }
}

impl ChartUnit {
    /// The unit that suits a length of time: the largest that fits into it at least five times.
    pub(crate) fn of(seconds: f64) -> ChartUnit {
        let units = [ChartUnit("days", 86_400.0), ChartUnit("hours", 3_600.0), ChartUnit("minutes", 60.0)];
        units.into_iter().find(|ChartUnit(_, each)| seconds >= 5.0 * each).unwrap_or_default()
    }
}

impl Chart<'_> {
    pub(crate) fn svg(&self) -> String {
        let mut svg = String::new();
        let bottom_of_legend = self.draw_legend(&mut svg);
        let phases = if self.phases.is_empty() { 0.0 } else { LEGEND_LINE };
        let tops = (0..self.panels.len()).map(|panel| {
            bottom_of_legend + phases + TITLE + panel as f64 * (PANEL_HEIGHT + PANEL_GAP + TITLE)
        });
        let tops: Vec<f64> = tops.collect();
        let bottom = tops.last().map_or(0.0, |top| top + PANEL_HEIGHT);
        self.draw_phases(&mut svg, bottom_of_legend + phases + TITLE, bottom);
        for (panel, top) in self.panels.iter().zip(&tops) {
            self.draw_panel(&mut svg, panel, *top);
        }
        self.draw_axis(&mut svg, bottom);
        let (title, height) = (escaped(&self.title), bottom + AXIS);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n{svg}</svg>\n",
        )
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds / self.seconds * (RIGHT - LEFT)
    }

    /// Draws the names of the lines, and returns their lower edge.
    fn draw_legend(&self, svg: &mut String) -> f64 {
        let lines = self.lines.iter().enumerate().map(|(line, label)| (class(line), label));
        let dashed = self.dashed.iter().map(|label| ("slo".to_owned(), label));
        let (mut x, mut y) = (LEFT, 18.0);
        for (class, label) in lines.chain(dashed) {
            let width = 30.0 + label.chars().count() as f64 * LETTER + 18.0;
            if x + width > RIGHT && x > LEFT {
                (x, y) = (LEFT, y + LEGEND_LINE);
            }
            let (until, text, line) = (x + 24.0, x + 30.0, y - 4.0);
            let label = escaped(label);
            let _ = writeln!(
                svg,
                "<line class=\"key {class}\" x1=\"{x:.1}\" x2=\"{until:.1}\" y1=\"{line}\" y2=\"{line}\"/>\
                 <text x=\"{text:.1}\" y=\"{y}\">{label}</text>"
            );
            x += width;
        }
        y + 14.0
    }

    fn draw_phases(&self, svg: &mut String, top: f64, bottom: f64) {
        let phase_s = self.seconds / self.phases.len() as f64;
        let noun = if self.x(phase_s) - self.x(0.0) < PHASE_LABEL { "" } else { " clients" };
        for (number, clients) in self.phases.iter().enumerate() {
            let starts_s = number as f64 * phase_s;
            let (x, middle, label) = (self.x(starts_s), self.x(starts_s + phase_s / 2.0), top - 27.0);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>\
                 <text class=\"mid\" x=\"{middle:.1}\" y=\"{label:.1}\">{clients}{noun}</text>",
            );
        }
    }

    fn draw_panel(&self, svg: &mut String, Panel { title, lines, dashed_at }: &Panel, top: f64) {
        let values = lines.iter().flatten().filter_map(|&(_, value)| value).chain(*dashed_at);
        let highest = values.fold(1.0, f64::max);
        let step = step(highest, 5.0);
        let top_value = (highest / step).ceil() * step;
        let y = |value: f64| top + PANEL_HEIGHT - value / top_value * PANEL_HEIGHT;
        let (title, title_y, numbers) = (escaped(title), top - 9.0, LEFT - 8.0);
        let _ = writeln!(svg, "<text class=\"title\" x=\"{LEFT}\" y=\"{title_y:.1}\">{title}</text>");
        let across = |svg: &mut String, class: &str, at: f64| {
            let ends = format!("x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"");
            let _ = write!(svg, "<line class=\"{class}\" {ends}/>");
        };
        for tick in ticks(step, top_value) {
            across(svg, "grid", y(tick));
            let text = y(tick) + 4.0;
            let _ = writeln!(svg, "<text class=\"end\" x=\"{numbers:.1}\" y=\"{text:.1}\">{tick}</text>");
        }
        // The first line is drawn last, on top.
        for (number, line) in lines.iter().enumerate().rev() {
            let (mut path, mut command) = (String::new(), 'M');
            for &(seconds, value) in line {
                match value {
                    Some(value) => {
                        let _ = write!(path, "{command}{:.1} {:.1}", self.x(seconds), y(value));
                        // A single point is a line of length 0: only its round caps are visible.
                        path += if command == 'M' { "h0" } else { "" };
                        command = 'L';
                    }
                    None => command = 'M',
                }
            }
            let _ = writeln!(svg, "<path class=\"{}\" d=\"{path}\"/>", class(number));
        }
        if let Some(value) = *dashed_at {
            across(svg, "slo", y(value));
            svg.push('\n');
        }
    }

    fn draw_axis(&self, svg: &mut String, bottom: f64) {
        let ChartUnit(unit, unit_seconds) = self.unit;
        let units = self.seconds / unit_seconds;
        for tick in ticks(step(units, 10.0), units) {
            let (x, y) = (self.x(tick * unit_seconds), bottom + 18.0);
            let _ = writeln!(svg, "<text class=\"mid\" x=\"{x:.1}\" y=\"{y:.1}\">{tick}</text>");
        }
        let (x, y) = ((LEFT + RIGHT) / 2.0, bottom + 36.0);
        let _ = writeln!(svg, "<text class=\"mid\" x=\"{x:.1}\" y=\"{y:.1}\">{unit}</text>");
    }
}

/// The class of a line, by its number.
fn class(line: usize) -> String {
    let dash = if line / COLOURS % 2 == 1 { " dash" } else { "" };
    format!("c{}{dash}", line % COLOURS)
}

/// A step of 1, 2 or 5 times a power of ten, for at most `steps_max` steps.
fn step(highest: f64, steps_max: f64) -> f64 {
    let mut power = 1.0;
    loop {
        for digit in [1.0, 2.0, 5.0] {
            if highest / (digit * power) <= steps_max {
                return digit * power;
            }
        }
        power *= 10.0;
    }
}

fn ticks(step: f64, highest: f64) -> impl Iterator<Item = f64> {
    (0..).map(move |tick| f64::from(tick) * step).take_while(move |&tick| tick <= highest)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(
            [0.5, 5.0, 5.1, 13.0, 150.0, 5_000_000.0].map(|highest| step(highest, 5.0)),
            [1.0, 1.0, 2.0, 5.0, 50.0, 1_000_000.0]
        );
        assert!(ticks(20.0, 60.0).eq([0.0, 20.0, 40.0, 60.0]));
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escaped("<a href=\"&\">"), "&lt;a href=&quot;&amp;&quot;&gt;");
    }
}
