//! The outcomes as a picture: an SVG that stands alone and is read on light and on dark.
//!
//! ```text
//! legend:   a line each                                          the number of clients, where it changes
//! ┌────────────────┐
//! │ requests/s     │  the mean of each second, or of as many as make POINTS_MAX; the SLO as a dashed line
//! └────────────────┘
//! ┌────────────────┐
//! │ delay          │  the mean of those let through
//! └────────────────┘
//!  0  10  20  30 s
//! ```

use std::fmt::Write;
use std::ops::Range;

use crate::simulate::outcome::Outcome;
use crate::simulate::record::BIN_NS;

/// More lines nobody can tell apart.
pub const LINES_MAX: usize = 12;

/// Per line: with all lines the file stays below 60 kB.
const POINTS_MAX: usize = 120;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 20.0;
const PANEL_HEIGHT: f64 = 200.0;
const PANEL_GAP: f64 = 46.0;
const LEGEND_LINE: f64 = 20.0;

/// About what a letter takes up.
const LETTER: f64 = 7.2;

/// Each colour is used for two lines: through, and dashed.
const COLOURS: usize = 6;

const STYLE: &str = "\
.page{fill:#fff}text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-weight:600}
.end{text-anchor:end}.mid{text-anchor:middle}.grid{stroke:#d0d7de;stroke-width:1}.slo{stroke:#57606a;stroke-dasharray:6 4}
path,.key{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}.dash{stroke-dasharray:3 3}
.c0{stroke:#0969da}.c1{stroke:#cf222e}.c2{stroke:#1a7f37}.c3{stroke:#bf6a02}.c4{stroke:#8250df}.c5{stroke:#0a7ea4}
@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}.grid{stroke:#30363d}.slo{stroke:#9198a1}
.c0{stroke:#58a6ff}.c1{stroke:#ff7b72}.c2{stroke:#3fb950}.c3{stroke:#f0a83a}.c4{stroke:#bc8cff}.c5{stroke:#39c5cf}}
";

/// Draws the outcomes of runs that are equally long and have the same objective; of more than [`LINES_MAX`] only the
/// first.
pub fn plot(outcomes: &[Outcome]) -> String {
    let outcomes = &outcomes[..outcomes.len().min(LINES_MAX)];
    let Some(first) = outcomes.first() else { return String::new() };
    let labels = labels(outcomes);
    let legend = legend(&labels, first);
    let steps = Steps::of(outcomes);
    let rates = Panel::rates(outcomes, legend.bottom + steps.as_ref().map_or(0.0, |_| LEGEND_LINE));
    let delays = Panel::delays(outcomes, rates.bottom() + PANEL_GAP);
    let height = delays.bottom() + 44.0;

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>{} at {}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n{}",
        escaped(&labels.join(", ")),
        first.rate,
        legend.svg
    );
    let axis = TimeAxis { seconds: f64::from(first.seconds) };
    if let Some(steps) = steps {
        steps.draw(&mut svg, &axis, rates.top..delays.bottom());
    }
    rates.draw(&mut svg, &axis);
    delays.draw(&mut svg, &axis);
    axis.draw(&mut svg, delays.bottom());
    svg += "</svg>\n";
    svg
}

/// The law, and what else tells the lines apart.
fn labels(outcomes: &[Outcome]) -> Vec<String> {
    let is_one_load = outcomes.iter().all(|outcome| outcome.clients == outcomes[0].clients);
    let label = |outcome: &Outcome| match is_one_load {
        true => outcome.law.clone(),
        false => format!("{}, {} clients", outcome.law, outcome.clients),
    };
    outcomes.iter().map(label).collect()
}

struct Legend {
    svg: String,
    bottom: f64,
}

fn legend(labels: &[String], first: &Outcome) -> Legend {
    let (mut svg, mut x, mut y) = (String::new(), LEFT, 18.0);
    let slo = ("slo".to_owned(), format!("SLO {}", first.rate));
    let lines = labels.iter().enumerate().map(|(line, label)| (class(line), label.clone()));
    for (class, label) in lines.chain([slo]) {
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

fn class(line: usize) -> String {
    let dash = if line / COLOURS % 2 == 1 { " dash" } else { "" };
    format!("c{}{dash}", line % COLOURS)
}

/// Points of a line: seconds, and the value where there is one.
type Line = Vec<(f64, Option<f64>)>;

struct Panel {
    title: String,
    top: f64,
    lines: Vec<Line>,
    dashed_at: Option<f64>,
    highest: f64,
}

impl Panel {
    fn rates(outcomes: &[Outcome], top: f64) -> Panel {
        let per_second = |count: u32, _, seconds: f64| Some(f64::from(count) / seconds);
        let lines = outcomes.iter().map(|outcome| line(outcome, per_second)).collect();
        let objective = outcomes[0].rate.per_second();
        Panel::new(format!("{}requests let through per second", whose(outcomes)), top, lines, Some(objective))
    }

    fn delays(outcomes: &[Outcome], top: f64) -> Panel {
        let mean = |count: u32, delay_ms: u64, _| (count > 0).then(|| delay_ms as f64 / f64::from(count));
        let lines = outcomes.iter().map(|outcome| line(outcome, mean)).collect();
        Panel::new(format!("{}mean delay, ms", whose(outcomes)), top, lines, None)
    }

    fn new(title: String, top: f64, lines: Vec<Line>, dashed_at: Option<f64>) -> Panel {
        let values = lines.iter().flatten().filter_map(|&(_, value)| value).chain(dashed_at);
        let highest = values.fold(0.0, f64::max);
        Panel { title, top: top + 22.0, lines, dashed_at, highest }
    }

    fn bottom(&self) -> f64 {
        self.top + PANEL_HEIGHT
    }

    fn draw(&self, svg: &mut String, axis: &TimeAxis) {
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
        // The first is drawn last, on top.
        for (number, line) in self.lines.iter().enumerate().rev() {
            let (mut path, mut command) = (String::new(), 'M');
            for &(seconds, value) in line {
                match value {
                    Some(value) => {
                        let _ = write!(path, "{command}{:.1} {:.1}", axis.x(seconds), y(value));
                        // A point between gaps is a line of no length, which has ends.
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

fn whose(outcomes: &[Outcome]) -> &'static str {
    if outcomes[0].is_of_clients { "clients' " } else { "" }
}

/// A series with so many bins to a point that there are not too many.
fn line(outcome: &Outcome, value: impl Fn(u32, u64, f64) -> Option<f64>) -> Line {
    let bins_per_s = (1_000_000_000 / BIN_NS) as usize;
    let seconds_each = (outcome.seconds as usize).div_ceil(POINTS_MAX);
    let point = |(number, bins): (usize, &[(u32, u64)])| {
        let count = bins.iter().map(|bin| bin.0).sum();
        let delay_ms = bins.iter().map(|bin| bin.1).sum();
        let seconds = bins.len() as f64 / bins_per_s as f64;
        ((number * seconds_each) as f64 + seconds / 2.0, value(count, delay_ms, seconds))
    };
    outcome.series.chunks(seconds_each * bins_per_s).enumerate().map(point).collect()
}

/// The changes of the number of clients, where they are the same in all runs.
struct Steps<'o> {
    counts: &'o [u32],
}

/// Room for `50 clients`; where there is less only the number stands.
const STEP_LABEL: f64 = 80.0;

impl<'o> Steps<'o> {
    fn of(outcomes: &'o [Outcome]) -> Option<Steps<'o>> {
        let clients = &outcomes[0].clients;
        let is_same = outcomes.iter().all(|outcome| outcome.clients == *clients);
        (is_same && clients.counts().len() > 1).then(|| Steps { counts: clients.counts() })
    }

    fn draw(&self, svg: &mut String, axis: &TimeAxis, y: Range<f64>) {
        let phase_s = axis.seconds / self.counts.len() as f64;
        let noun = if axis.x(phase_s) - axis.x(0.0) < STEP_LABEL { "" } else { " clients" };
        for (number, clients) in self.counts.iter().enumerate() {
            let starts_s = number as f64 * phase_s;
            let (x, middle) = (axis.x(starts_s), axis.x(starts_s + phase_s / 2.0));
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <text class=\"mid\" x=\"{middle:.1}\" y=\"{:.1}\">{clients}{noun}</text>",
                y.start,
                y.end,
                y.start - 27.0
            );
        }
    }
}

struct TimeAxis {
    seconds: f64,
}

impl TimeAxis {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds / self.seconds * (RIGHT - LEFT)
    }

    fn draw(&self, svg: &mut String, bottom: f64) {
        for tick in ticks(step(self.seconds, 10.0), self.seconds) {
            let (x, y) = (self.x(tick), bottom + 18.0);
            let _ = writeln!(svg, "<text class=\"mid\" x=\"{x:.1}\" y=\"{y:.1}\">{tick}</text>");
        }
        let (x, y) = ((LEFT + RIGHT) / 2.0, bottom + 36.0);
        let _ = writeln!(svg, "<text class=\"mid\" x=\"{x:.1}\" y=\"{y:.1}\">seconds</text>");
    }
}

/// 1, 2 or 5 times a power of ten, so that there are at most so many steps.
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
    fn what_is_markup_is_escaped() {
        assert_eq!(escaped("<a href=\"&\">"), "&lt;a href=&quot;&amp;&quot;&gt;");
    }
}
