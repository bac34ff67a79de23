//! Samples over time that are not exchanges: the server's side of a load, or a machine that is
//! watched. The file has a line of JSON for each moment, with numbers by name. A name is
//! `plot/line`, such as `CPU of the server in %/user`: a report draws each plot with its lines.

use super::SERIES;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::Path;

/// What was sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The points of each name: seconds since the beginning of the run, and the value, ordered by
    /// time.
    pub lines: BTreeMap<String, Vec<(f64, f64)>>,
}

/// A line of a plot: its name and its points, seconds and values.
pub type Line<'a> = (&'a str, &'a [(f64, f64)]);

/// A stream of samples that is being written.
pub struct Sampling(BufWriter<File>);

#[derive(Serialize, Deserialize)]
struct Moment {
    at_s: f64,
    values: BTreeMap<String, f64>,
}

impl Sampling {
    /// Begins the stream in the folder of a run.
    ///
    /// # Errors
    ///
    /// Those of the system, with the name of the file.
    pub fn begin(folder: &Path) -> Result<Self, String> {
        let path = folder.join(SERIES);
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        let file = opened.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(BufWriter::new(file)))
    }

    /// Writes the values of a moment, so that they can be read at once. Values that are not numbers
    /// are left out.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn sample(&mut self, at_s: f64, values: BTreeMap<String, f64>) -> Result<(), String> {
        let values = values.into_iter().filter(|(_, value)| value.is_finite()).collect();
        let text = serde_json::to_string(&Moment { at_s, values });
        let text = text.map_err(|error| format!("JSON: {error}"))?;
        let written = writeln!(self.0, "{text}").and_then(|()| self.0.flush());
        written.map_err(|error| format!("{SERIES}: {error}"))
    }
}

impl Series {
    /// Reads the samples in the folder of a run; empty if there are none.
    ///
    /// # Errors
    ///
    /// Which line is not a sample. A last line that was cut off is left out.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let path = folder.join(SERIES);
        let Ok(text) = std::fs::read_to_string(&path) else { return Ok(Self::default()) };
        let whole = text.get(..text.rfind('\n').map_or(0, |end| end + 1)).unwrap_or_default();
        let mut series = Self::default();
        for (index, line) in whole.lines().enumerate() {
            let moment: Moment = serde_json::from_str(line)
                .map_err(|error| format!("{}:{}: {error}", path.display(), index + 1))?;
            for (name, value) in moment.values {
                series.lines.entry(name).or_default().push((moment.at_s, value));
            }
        }
        Ok(series)
    }

    /// The plots with their lines, by the part of the names before the first slash.
    #[must_use]
    pub fn plots(&self) -> BTreeMap<&str, Vec<Line<'_>>> {
        let mut plots: BTreeMap<&str, Vec<Line<'_>>> = BTreeMap::new();
        for (name, points) in &self.lines {
            let (plot, line) = name.split_once('/').unwrap_or((name, ""));
            plots.entry(plot).or_default().push((line, points));
        }
        plots
    }

    /// The mean of a line; none if it has no points.
    #[must_use]
    pub fn mean(&self, name: &str) -> Option<f64> {
        let points = self.lines.get(name).filter(|points| !points.is_empty())?;
        Some(points.iter().map(|(_, value)| value).sum::<f64>() / points.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_back_by_plot() {
        let folder = tempfile::tempdir().unwrap();
        let mut sampling = Sampling::begin(folder.path()).unwrap();
        for second in 0..3 {
            let at_s = f64::from(second);
            let values = [("cpu/user", at_s), ("cpu/system", f64::NAN), ("queue", 7.0)];
            let values = values.map(|(name, value)| (name.to_owned(), value));
            sampling.sample(at_s, values.into()).unwrap();
        }
        let series = Series::read(folder.path()).unwrap();
        assert_eq!((series.mean("cpu/user"), series.mean("cpu/system")), (Some(1.0), None));
        let plots = series.plots();
        assert_eq!(plots.keys().copied().collect::<Vec<_>>(), ["cpu", "queue"]);
        assert_eq!(plots["queue"], [("", [(0.0, 7.0), (1.0, 7.0), (2.0, 7.0)].as_slice())]);
    }
}
