//! Horizontal bars: a row for each, with its name before and its value after it. They suit few
//! things with long names, such as peers, statuses and the steps of a histogram.

use super::{colour, escape, frame, shorten, width_of};
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const ROW: f64 = 20.0;
const TOP: f64 = 30.0;

/// Bars with a title.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// The bars, one in each row.
    pub rows: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// The name.
    pub name: String,
    /// The length.
    pub value: f64,
    /// The text after the bar.
    pub shown: String,
    /// The number of its colour.
    pub colour: usize,
}

impl Bars {
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
        let names: Vec<String> = self.rows.iter().map(|row| shorten(&row.name, 40)).collect();
        let widest = |texts: &mut dyn Iterator<Item = f64>| texts.fold(0.0, f64::max);
        let left = 16.0 + widest(&mut names.iter().map(|name| width_of(name)));
        let behind = 18.0 + widest(&mut self.rows.iter().map(|row| width_of(&row.shown)));
        let longest = widest(&mut self.rows.iter().map(|row| row.value));
        let room = (WIDTH - left - behind).max(40.0);
        let mut inner = String::new();
        for (index, (row, name)) in self.rows.iter().zip(&names).enumerate() {
            let top = TOP + index as f64 * ROW;
            let share = if longest > 0.0 { (row.value / longest).clamp(0.0, 1.0) } else { 0.0 };
            // A value above zero is always visible.
            let long = if row.value > 0.0 { (room * share).max(1.0) } else { 0.0 };
            let (fill, base) = (colour(row.colour), top + 14.0);
            let _ = write!(
                inner,
                "<text x=\"{:.0}\" y=\"{base:.0}\" text-anchor=\"end\">{}</text>\
                 <rect x=\"{left:.0}\" y=\"{:.0}\" width=\"{long:.1}\" height=\"14\" rx=\"2\" \
                 style=\"fill:{fill}\"/><text class=\"k\" x=\"{:.0}\" y=\"{base:.0}\">{}</text>",
                left - 6.0,
                escape(name),
                top + 3.0,
                left + long + 6.0,
                escape(&row.shown),
            );
        }
        let height = TOP + self.rows.len() as f64 * ROW + 8.0;
        frame(&self.title, WIDTH, height, &inner, alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_room_and_a_short_one_is_seen() {
        let bar = |value: f64| Bar { name: "a".into(), value, ..Bar::default() };
        let bars = Bars { title: "t".into(), rows: vec![bar(1e9), bar(1.0), bar(0.0)] };
        let svg = bars.svg();
        let widths: Vec<&str> =
            svg.split("width=\"").skip(2).map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(widths, ["679.4", "1.0", "0.0"]);
    }
}
