//! Reads saved runs, complete or cut short, each separately or several as one sum, such as those of
//! machines that loaded a server together.

use super::about::About;
use super::kept::{KeptFigures, KeptSecond};
use super::series::Series;
use super::{FIGURES, RUN, SECONDS, SECONDS_LOG, hlog};
use crate::load::{Figures, Second};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A saved run.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    /// The folder; the first one for a sum.
    pub folder: PathBuf,
    /// What was asked.
    pub about: About,
    /// The results. If the run was cut short, they come from its seconds.
    pub figures: Figures,
    /// What was sampled besides the load.
    pub series: Series,
    /// Whether the run is complete.
    pub whole: bool,
    /// The number of runs in the sum.
    pub parts: usize,
}

impl Saved {
    /// Whether there was a load, rather than something that was only watched.
    #[must_use]
    pub fn has_load(&self) -> bool {
        !self.figures.by_client.is_empty() || !self.figures.seconds.is_empty()
    }
}

/// The folders of runs at or below `folder`, ordered by name: a sweep, an experiment and a folder
/// that several jobs have written into contain one for each run.
///
/// # Errors
///
/// There is none, or those of the system.
pub fn find(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    // Deeper folders belong to something else.
    find_below(folder, 3, &mut found)?;
    if found.is_empty() {
        return Err(format!("{}: no saved run (there is no {RUN})", folder.display()));
    }
    Ok(found)
}

fn find_below(folder: &Path, levels: usize, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.join(RUN).is_file() {
        found.push(folder.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(folder).map_err(told)?;
    let entries = entries.collect::<Result<Vec<_>, _>>().map_err(told)?;
    let mut inner: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    inner.retain(|path| path.is_dir() && !path.is_symlink());
    inner.sort();
    if levels > 0 {
        for folder in inner {
            find_below(&folder, levels - 1, found)?;
        }
    }
    Ok(())
}

/// Reads a run.
///
/// # Errors
///
/// Which file is missing or cannot be read, and why.
pub fn read(folder: &Path) -> Result<Saved, String> {
    let text = text_of(folder, RUN)?;
    let about: About = from_json(folder, RUN, &text)?;
    if about.format > About::FORMAT {
        let shown = folder.join(RUN);
        let format = about.format;
        return Err(format!("{}: format {format} is of a newer version", shown.display()));
    }
    let series = Series::read(folder)?;
    let seconds = read_seconds(folder)?;
    let whole = folder.join(FIGURES).is_file();
    let figures = if whole { read_figures(folder, seconds)? } else { of_seconds(seconds)? };
    Ok(Saved { folder: folder.to_owned(), about, figures, series, whole, parts: 1 })
}

fn text_of(folder: &Path, name: &str) -> Result<String, String> {
    let path = folder.join(name);
    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn from_json<T: serde::de::DeserializeOwned>(
    folder: &Path,
    name: &str,
    text: &str,
) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{}: {error}", folder.join(name).display()))
}

fn read_figures(folder: &Path, seconds: Vec<Second>) -> Result<Figures, String> {
    let kept: KeptFigures = from_json(folder, FIGURES, &text_of(folder, FIGURES)?)?;
    let told = |error| format!("{}: {error}", folder.join(FIGURES).display());
    let mut figures = Figures { seconds, ..kept.figures().map_err(told)? };
    for (name, histogram) in figures.times.named_mut() {
        let name = format!("{name}.hlog");
        let path = folder.join(&name);
        if path.is_file() {
            let told = |error: String| format!("{}: {error}", path.display());
            let take = |interval: hlog::Interval| {
                let added = histogram.add(&interval.histogram);
                added.map_err(|_| "holds times of more than an hour".to_owned())
            };
            hlog::parse(&text_of(folder, &name)?, take).map_err(told)?;
        }
    }
    Ok(figures)
}

/// The seconds with their histograms. A last line that was cut off is left out.
fn read_seconds(folder: &Path) -> Result<Vec<Second>, String> {
    if !folder.join(SECONDS).is_file() {
        return Ok(Vec::new());
    }
    let text = text_of(folder, SECONDS)?;
    let whole = text.get(..text.rfind('\n').map_or(0, |end| end + 1)).unwrap_or_default();
    let mut seconds = BTreeMap::new();
    for (index, line) in whole.lines().enumerate() {
        let name = format!("{SECONDS}:{}", index + 1);
        let second = from_json::<KeptSecond>(folder, &name, line)?.second();
        seconds.insert(second.number, second);
    }
    if folder.join(SECONDS_LOG).is_file() {
        let told = |error: String| format!("{}: {error}", folder.join(SECONDS_LOG).display());
        let take = |interval: hlog::Interval| {
            // The number was written with three decimal places.
            if let Some(second) = seconds.get_mut(&(interval.from_s.round() as u32)) {
                second.response.add_histogram(&interval.histogram);
            }
            Ok(())
        };
        hlog::parse(&text_of(folder, SECONDS_LOG)?, take).map_err(told)?;
    }
    Ok(seconds.into_values().collect())
}

/// The figures of a run that was cut short. Its statuses and failures are not known by kind.
fn of_seconds(seconds: Vec<Second>) -> Result<Figures, String> {
    let mut figures = Figures::default();
    for second in &seconds {
        let added = figures.times.response.add(second.response.histogram());
        added.map_err(|_| format!("{SECONDS_LOG}: holds times of more than an hour"))?;
        figures.read_bytes += second.read_bytes;
        figures.most_waiting = figures.most_waiting.max(second.waiting);
        figures.elapsed_ns = (u64::from(second.number) + 1) * 1_000_000_000;
    }
    figures.seconds = seconds;
    Ok(figures)
}

/// Adds runs. Runs that overlapped in time share one clock; others are aligned at their beginnings.
#[must_use]
pub fn merge(runs: Vec<Saved>) -> Option<Saved> {
    let first = runs.first()?;
    let (about, folder) = (first.about.clone(), first.folder.clone());
    let begun_us = runs.iter().map(|run| run.about.started_us).min().unwrap_or_default();
    let late_ns = |run: &Saved| run.about.started_us.saturating_sub(begun_us).saturating_mul(1000);
    let earliest_end_ns =
        runs.iter().map(|run| late_ns(run).saturating_add(run.figures.elapsed_ns)).min();
    let together = runs.iter().all(|run| Some(late_ns(run)) < earliest_end_ns);
    let mut sum = Saved {
        folder,
        whole: runs.iter().all(|run| run.whole),
        parts: runs.iter().map(|run| run.parts).sum(),
        about: About { started_us: begun_us, ..about },
        ..Saved::default()
    };
    let mut parts = Vec::with_capacity(runs.len());
    let several = runs.len() > 1;
    for (index, run) in runs.into_iter().enumerate() {
        let late_ns = if together { late_ns(&run) } else { 0 };
        let late_s = (late_ns + 500_000_000) / 1_000_000_000;
        let mut figures = run.figures;
        for second in &mut figures.seconds {
            second.number = second.number.saturating_add(u32::try_from(late_s).unwrap_or_default());
        }
        figures.elapsed_ns = figures.elapsed_ns.saturating_add(late_ns);
        parts.push(figures);
        for (name, points) in run.series.lines {
            let name = if several { format!("{name} of {}", index + 1) } else { name };
            let points = points.into_iter().map(|(at, value)| (at + late_ns as f64 / 1e9, value));
            sum.series.lines.insert(name, points.collect());
        }
    }
    sum.figures = Figures::merge(parts);
    Some(sum)
}
