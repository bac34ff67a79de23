//! A line chart over two axes. What is finer than can be seen is drawn by its extremes, so that
//! peaks stay visible and the text stays small.

use super::axis::{Axis, Range};
use super::{colour, escape, frame, shorten, width_of};
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const RIGHT: f64 = 14.0;
const LEFT: f64 = 76.0;
const BOTTOM: f64 = 42.0;
/// The number of columns that a long line is summarised in.
const COLUMNS: usize = 240;
/// Lines of at most this many points have a dot and a label for each point.
const DOTTED: usize = 40;

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    lines: Vec<Line>,
}

/// A line.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The name.
    pub name: String,
    /// The points, ordered by x.
    pub points: Vec<(f64, f64)>,
    /// Whether the line is dashed, because it belongs to the line before it.
    pub dashed: bool,
}

impl Chart {
    /// An empty chart.
    #[must_use]
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self { title: title.to_owned(), x, y, lines: Vec::new() }
    }

    /// The same chart with another line.
    #[must_use]
    pub fn line(mut self, name: &str, points: Vec<(f64, f64)>) -> Self {
        self.lines.push(Line { name: name.to_owned(), points, dashed: false });
        self
    }

    /// Whether there is nothing to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    /// The plot as a file of its own.
    #[must_use]
    pub fn svg(&self) -> String {
        self.draw(true)
    }

    /// The plot as a part of a page that contains [`super::STYLE`].
    #[must_use]
    pub fn inline(&self) -> String {
        self.draw(false)
    }

    fn draw(&self, alone: bool) -> String {
        let mut inner = String::new();
        let top = self.legend(&mut inner);
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Range::of(points().map(|(x, _)| *x), &self.x, true);
        let y = Range::of(points().map(|(_, y)| *y), &self.y, false);
        let area = Area { left: LEFT, top, right: WIDTH - RIGHT, bottom: top + HEIGHT - 90.0 };
        self.grid(&mut inner, &area, &x, &y);
        for (index, line) in self.lines.iter().enumerate() {
            self.path(&mut inner, line, index, &area, &x, &y);
        }
        frame(&self.title, WIDTH, area.bottom + BOTTOM, &inner, alone)
    }

    /// Writes the names of the lines, and returns where the drawing begins below them.
    fn legend(&self, out: &mut String) -> f64 {
        let (mut at, mut y) = (8.0, 38.0);
        if self.lines.len() < 2 {
            return y;
        }
        for (index, line) in self.lines.iter().enumerate() {
            let name = shorten(&line.name, 60);
            let width = width_of(&name) + 34.0;
            if at + width > WIDTH && at > 8.0 {
                (at, y) = (8.0, y + 17.0);
            }
            let stroke = colour(index);
            let dash = if line.dashed { " stroke-dasharray=\"5 3\"" } else { "" };
            let _ = write!(
                out,
                "<path class=\"l\" style=\"stroke:{stroke};stroke-width:3\"{dash} \
                 d=\"M{at:.0} {:.0}h16\"/><text x=\"{:.0}\" y=\"{y:.0}\">{}</text>",
                y - 4.0,
                at + 21.0,
                escape(&name),
            );
            at += width;
        }
        y + 14.0
    }

    fn grid(&self, out: &mut String, area: &Area, x: &Range, y: &Range) {
        let Area { left, top, right, bottom } = *area;
        let mut path = String::new();
        let mut labels = String::new();
        for mark in y.marks(5) {
            let at = area.y(y.place(mark));
            let _ = write!(path, "M{left:.0} {at:.1}H{right:.0}");
            let (x, y, text) = (left - 6.0, at + 4.0, self.y.unit.show(mark));
            let _ =
                write!(labels, "<text x=\"{x:.0}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>");
        }
        for mark in x.marks(8) {
            let at = area.x(x.place(mark));
            let _ = write!(path, "M{at:.1} {bottom:.0}v4");
            let (y, text) = (bottom + 17.0, self.x.unit.show(mark));
            // Keep the outermost marks inside.
            let anchor = if at > right - 20.0 { "end" } else { "middle" };
            let _ = write!(
                labels,
                "<text x=\"{at:.1}\" y=\"{y:.0}\" text-anchor=\"{anchor}\">{text}</text>"
            );
        }
        let (x_label, y_label) = (escape(&self.x.label), escape(&self.y.label));
        let (middle, low) = ((left + right) / 2.0, bottom + 34.0);
        let high = (top + bottom) / 2.0;
        let _ = write!(
            out,
            "<path class=\"g\" d=\"{path}\"/><g class=\"k\">{labels}\
             <text x=\"{middle:.0}\" y=\"{low:.0}\" text-anchor=\"middle\">{x_label}</text>\
             <text transform=\"translate(14 {high:.0})rotate(-90)\" \
             text-anchor=\"middle\">{y_label}</text></g>"
        );
    }

    fn path(&self, out: &mut String, line: &Line, index: usize, area: &Area, x: &Range, y: &Range) {
        let stroke = colour(index);
        let drawable = |(_, value): &&(f64, f64)| !self.y.logarithmic || *value > 0.0;
        let shown = line.points.iter().filter(drawable);
        let placed: Vec<(f64, f64)> =
            shown.map(|(at, value)| (area.x(x.place(*at)), area.y(y.place(*value)))).collect();
        let mut path = String::new();
        for (number, (at, height)) in thinned(&placed, area).into_iter().enumerate() {
            let letter = if number == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{at:.1} {height:.1}");
        }
        let dash = if line.dashed { " stroke-dasharray=\"5 3\"" } else { "" };
        let _ = write!(out, "<path class=\"l\" style=\"stroke:{stroke}\"{dash} d=\"{path}\"/>");
        if line.points.len() <= DOTTED {
            let shown = line.points.iter().filter(drawable);
            for ((at, height), (x, y)) in placed.iter().zip(shown) {
                let told =
                    format!("{} at {}: {}", line.name, self.x.unit.show(*x), self.y.unit.show(*y));
                let _ = write!(
                    out,
                    "<circle cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"2.6\" style=\"fill:{stroke}\">\
                     <title>{}</title></circle>",
                    escape(told.trim_start_matches(" at "))
                );
            }
        }
    }
}

/// The area of the lines.
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Area {
    fn x(&self, place: f64) -> f64 {
        self.left + (self.right - self.left) * place
    }

    fn y(&self, place: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * place
    }
}

/// At most four points for each column: the first, the extremes and the last.
fn thinned(points: &[(f64, f64)], area: &Area) -> Vec<(f64, f64)> {
    if points.len() <= COLUMNS * 2 {
        return points.to_vec();
    }
    let column = |at: f64| ((at - area.left) / (area.right - area.left) * COLUMNS as f64) as usize;
    let mut thin = Vec::with_capacity(COLUMNS * 4);
    for group in points.chunk_by(|one, next| column(one.0) == column(next.0)) {
        let extreme = |higher: bool| {
            let numbered = group.iter().enumerate();
            let best = numbered.max_by(|(_, one), (_, other)| {
                let order = one.1.total_cmp(&other.1);
                if higher { order } else { order.reverse() }
            });
            best.map(|(index, _)| index)
        };
        let last = group.len().checked_sub(1);
        let mut wanted: Vec<usize> =
            [Some(0), extreme(true), extreme(false), last].into_iter().flatten().collect();
        wanted.sort_unstable();
        wanted.dedup();
        thin.extend(wanted.into_iter().filter_map(|index| group.get(index)).copied());
    }
    thin
}

#[cfg(test)]
mod tests {
    use super::super::Unit;
    use super::*;

    fn chart() -> Chart {
        Chart::new("t", Axis::new("x", Unit::Moment), Axis::new("y", Unit::Count))
    }

    #[test]
    fn a_line_is_drawn_from_the_lower_left() {
        let svg = chart().line("a", vec![(0.0, 0.0), (10.0, 50.0)]).svg();
        assert!(svg.contains("<path class=\"l\" style=\"stroke:var(--c0)\" d=\"M76.0 248.0L706.0"));
        assert!(svg.contains("<title>a at 10 s: 50</title>"), "{svg}");
        assert!(svg.starts_with("<svg") && svg.contains("<style>") && svg.ends_with("</svg>\n"));
        assert!(!chart().inline().contains("<style>"));
    }

    #[test]
    fn a_long_line_keeps_its_peaks() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|at| (f64::from(at), 1.0)).collect();
        points[54_321].1 = 900.0;
        let svg = chart().line("a", points).svg();
        assert!(svg.len() < 20_000, "{}", svg.len());
        let top = svg.match_indices("L").any(|(at, _)| {
            let height = svg[at + 1..].split([' ', 'L', '"']).nth(1).unwrap_or("");
            height.parse::<f64>().is_ok_and(|height| height < 50.0)
        });
        assert!(top, "the peak is lost");
    }

    #[test]
    fn zero_has_no_place_where_factors_count() {
        let y = Axis::new("y", Unit::Time).by_factors();
        let chart = Chart::new("t", Axis::new("x", Unit::Count), y);
        let svg = chart.line("a", vec![(0.0, 0.0), (1.0, 10.0), (2.0, 1000.0)]).svg();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
