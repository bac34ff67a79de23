//! A heat map: a table of cells whose colour is stronger for greater values, with the value in each
//! cell.

use super::{Unit, escape, frame, shorten, width_of};
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const ROW: f64 = 26.0;
const TOP: f64 = 52.0;
/// The strongest colour on which the text can still be read, in both schemes.
const STRONGEST: f64 = 0.6;

/// A heat map.
#[derive(Clone, Debug)]
pub struct Heat {
    /// The title.
    pub title: String,
    /// The label of the columns, and their names.
    pub columns: (String, Vec<String>),
    /// The label of the rows, and their names from top to bottom.
    pub rows: (String, Vec<String>),
    /// The values of each row; none where there is no value.
    pub values: Vec<Vec<Option<f64>>>,
    /// The unit of the values.
    pub unit: Unit,
}

impl Heat {
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
        let (columns, rows) = (&self.columns.1, &self.rows.1);
        let heading = format!("{} \\ {}", self.rows.0, self.columns.0);
        let names = rows.iter().chain([&heading]).map(|name| width_of(&shorten(name, 30)));
        let left = 16.0 + names.fold(0.0, f64::max);
        let wide = (WIDTH - left - 8.0) / columns.len().max(1) as f64;
        let all = || self.values.iter().flatten().flatten().copied();
        let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        let mut inner = String::new();
        let text = |out: &mut String, class: &str, x: f64, y: f64, anchor: &str, text: &str| {
            let text = escape(text);
            let _ = write!(
                out,
                "<text{class} x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"{anchor}\">{text}</text>"
            );
        };
        text(&mut inner, " class=\"k\"", left - 8.0, TOP - 8.0, "end", &heading);
        for (index, name) in columns.iter().enumerate() {
            let x = left + (index as f64 + 0.5) * wide;
            text(&mut inner, " class=\"k\"", x, TOP - 8.0, "middle", name);
        }
        for (index, (name, values)) in rows.iter().zip(&self.values).enumerate() {
            let top = TOP + index as f64 * ROW;
            text(&mut inner, " class=\"k\"", left - 8.0, top + 17.0, "end", &shorten(name, 30));
            for (column, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let x = left + column as f64 * wide;
                let share = if high > low { (value - low) / (high - low) } else { 1.0 };
                let strength = 0.06 + (STRONGEST - 0.06) * share;
                let _ = write!(
                    inner,
                    "<rect x=\"{:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"{:.0}\" rx=\"3\" \
                     style=\"fill:var(--c0);fill-opacity:{strength:.2}\"/>",
                    x + 1.0,
                    top + 1.0,
                    wide - 2.0,
                    ROW - 2.0
                );
                let shown = self.unit.show(*value);
                text(&mut inner, "", x + wide / 2.0, top + 17.0, "middle", &shown);
            }
        }
        frame(&self.title, WIDTH, TOP + rows.len() as f64 * ROW + 10.0, &inner, alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_value_is_the_strongest() {
        let heat = Heat {
            title: "t".into(),
            columns: ("clients".into(), vec!["1".into(), "2".into()]),
            rows: ("pause".into(), vec!["0".into()]),
            values: vec![vec![Some(10.0), Some(30.0)]],
            unit: Unit::Count,
        };
        let svg = heat.svg();
        let strengths: Vec<&str> =
            svg.split("fill-opacity:").skip(1).map(|it| it.split('"').next().unwrap()).collect();
        assert_eq!(strengths, ["0.06", "0.60"]);
        assert!(svg.contains(">30</text>") && svg.contains(">pause \\ clients</text>"));
    }
}
