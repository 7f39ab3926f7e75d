//! Line charts over time: a self-contained SVG for light and dark backgrounds.
//!
//! ```text
//! legend
//! ┌────────────────┐
//! │ a panel        │  lines, and a dashed line for the objective
//! └────────────────┘
//! ┌────────────────┐
//! │ another        │
//! └────────────────┘
//!  0  10  20  30 s
//! ```

use std::fmt::Write;

/// The most lines that a reader can tell apart.
pub const LINES_MAX: usize = 12;

/// The most points of a line. With all lines the file stays below 60 kB.
pub const POINTS_MAX: usize = 120;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 20.0;
const PANEL_HEIGHT: f64 = 200.0;

/// The distance from one panel to the next.
pub const PANEL_GAP: f64 = 46.0;

pub const LEGEND_LINE: f64 = 20.0;

/// The approximate width of a letter.
const LETTER: f64 = 7.2;

/// Each colour serves two lines: one solid, one dashed.
const COLOURS: usize = 6;

const STYLE: &str = "\
.page{fill:#fff}text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-weight:600}
.end{text-anchor:end}.mid{text-anchor:middle}.grid{stroke:#d0d7de;stroke-width:1}.slo{stroke:#57606a;stroke-dasharray:6 4}
path,.key{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}.dash{stroke-dasharray:3 3}
.c0{stroke:#0969da}.c1{stroke:#cf222e}.c2{stroke:#1a7f37}.c3{stroke:#bf6a02}.c4{stroke:#8250df}.c5{stroke:#0a7ea4}
@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}.grid{stroke:#30363d}.slo{stroke:#9198a1}
.c0{stroke:#58a6ff}.c1{stroke:#ff7b72}.c2{stroke:#3fb950}.c3{stroke:#f0a83a}.c4{stroke:#bc8cff}.c5{stroke:#39c5cf}}
";

/// The names of the lines.
pub struct Legend {
    pub svg: String,
    pub bottom: f64,
}

impl Legend {
    /// Takes classes, as [`class`] gives them, with their labels.
    pub fn new(entries: impl IntoIterator<Item = (String, String)>) -> Legend {
        let (mut svg, mut x, mut y) = (String::new(), LEFT, 18.0);
        for (class, label) in entries {
            let width = 30.0 + label.chars().count() as f64 * LETTER + 18.0;
            if x + width > RIGHT && x > LEFT {
                (x, y) = (LEFT, y + LEGEND_LINE);
            }
            let (until, text, line) = (x + 24.0, x + 30.0, y - 4.0);
            let label = escaped(&label);
            let _ = writeln!(
                svg,
                "<line class=\"key {class}\" x1=\"{x:.1}\" x2=\"{until:.1}\" y1=\"{line}\" y2=\"{line}\"/>\
                 <text x=\"{text:.1}\" y=\"{y}\">{label}</text>"
            );
            x += width;
        }
        Legend { svg, bottom: y + 14.0 }
    }
}

/// The class of a line, by its number.
pub fn class(line: usize) -> String {
    let dash = if line / COLOURS % 2 == 1 { " dash" } else { "" };
    format!("c{}{dash}", line % COLOURS)
}

/// The class of the dashed line.
pub const SLO_CLASS: &str = "slo";

/// The whole picture.
pub fn page(title: &str, height: f64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n{body}</svg>\n",
        escaped(title)
    )
}

/// Points of a line: seconds, and the value where there is one.
pub type Line = Vec<(f64, Option<f64>)>;

/// Lines above one another, on a scale that begins at 0.
pub struct Panel {
    title: String,
    top: f64,
    lines: Vec<Line>,
    dashed_at: Option<f64>,
    highest: f64,
}

impl Panel {
    pub fn new(title: String, top: f64, lines: Vec<Line>, dashed_at: Option<f64>) -> Panel {
        let values = lines.iter().flatten().filter_map(|&(_, value)| value).chain(dashed_at);
        let highest = values.fold(0.0, f64::max);
        Panel { title, top: top + 22.0, lines, dashed_at, highest }
    }

    pub fn top(&self) -> f64 {
        self.top
    }

    pub fn bottom(&self) -> f64 {
        self.top + PANEL_HEIGHT
    }

    pub fn draw(&self, svg: &mut String, axis: &TimeAxis) {
        let step = step(self.highest.max(1.0), 5.0);
        let top_value = (self.highest.max(1.0) / step).ceil() * step;
        let y = |value: f64| self.bottom() - value / top_value * PANEL_HEIGHT;
        let _ = writeln!(
            svg,
            "<text class=\"title\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
            self.top - 9.0,
            escaped(&self.title)
        );
        for tick in ticks(step, top_value) {
            let (at, text) = (y(tick), y(tick) + 4.0);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"end\" x=\"{:.1}\" y=\"{text:.1}\">{tick}</text>",
                LEFT - 8.0
            );
        }
        // The first line is drawn last, on top.
        for (number, line) in self.lines.iter().enumerate().rev() {
            let (mut path, mut command) = (String::new(), 'M');
            for &(seconds, value) in line {
                match value {
                    Some(value) => {
                        let _ = write!(path, "{command}{:.1} {:.1}", axis.x(seconds), y(value));
                        // A single point is a line of length 0: only its round caps are drawn.
                        path += if command == 'M' { "h0" } else { "" };
                        command = 'L';
                    }
                    None => command = 'M',
                }
            }
            let _ = writeln!(svg, "<path class=\"{}\" d=\"{path}\"/>", class(number));
        }
        if let Some(value) = self.dashed_at {
            let at = y(value);
            let _ = writeln!(
                svg,
                "<line class=\"slo\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
            );
        }
    }
}

/// The time axis, from left to right.
pub struct TimeAxis {
    seconds: f64,
    unit: &'static str,
    unit_seconds: f64,
}

impl TimeAxis {
    pub fn of_seconds(seconds: f64) -> TimeAxis {
        TimeAxis { seconds, unit: "seconds", unit_seconds: 1.0 }
    }

    /// Picks the unit that people would use.
    pub fn of_any_length(seconds: f64) -> TimeAxis {
        let units = [("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)];
        let (unit, unit_seconds) = units
            .into_iter()
            .find(|&(_, unit_seconds)| seconds >= 5.0 * unit_seconds)
            .unwrap_or(("seconds", 1.0));
        TimeAxis { seconds, unit, unit_seconds }
    }

    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    pub fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds / self.seconds * (RIGHT - LEFT)
    }

    pub fn draw(&self, svg: &mut String, bottom: f64) {
        let units = self.seconds / self.unit_seconds;
        for tick in ticks(step(units, 10.0), units) {
            let (x, y) = (self.x(tick * self.unit_seconds), bottom + 18.0);
            let _ = writeln!(svg, "<text class=\"mid\" x=\"{x:.1}\" y=\"{y:.1}\">{tick}</text>");
        }
        let (x, y) = ((LEFT + RIGHT) / 2.0, bottom + 36.0);
        let _ = writeln!(svg, "<text class=\"mid\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", self.unit);
    }
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
