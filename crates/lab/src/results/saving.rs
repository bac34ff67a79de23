//! Saves a run. The folder is created before the load begins, each second is written as soon as it
//! is over, and the figures at the end, so that a run which is cut short leaves everything up to
//! that time.

use super::about::About;
use super::kept::{KeptFigures, KeptSecond};
use super::{FIGURES, RUN, SECONDS, SECONDS_LOG, hlog, to_json, write_whole};
use crate::load::{Figures, Second};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A run that is being saved.
pub struct Saving {
    folder: PathBuf,
    started_us: u64,
    seconds: File,
    log: File,
    /// The seconds that a thread may still report.
    open: BTreeMap<u32, Second>,
}

impl Saving {
    /// Creates the folder, with the description of the run.
    ///
    /// # Errors
    ///
    /// It already contains a run, or those of the system.
    pub fn begin(folder: &Path, about: &About) -> Result<Self, String> {
        let shown = folder.display();
        if folder.join(RUN).exists() {
            return Err(format!("{shown}: holds another run; name a new folder, or remove it"));
        }
        fs::create_dir_all(folder).map_err(|error| format!("{shown}: {error}"))?;
        write_whole(&folder.join(RUN), to_json(about)?.as_bytes())?;
        let create = |name: &str| {
            File::create(folder.join(name)).map_err(|error| format!("{shown}/{name}: {error}"))
        };
        let mut saving = Self {
            folder: folder.to_owned(),
            started_us: about.started_us,
            seconds: create(SECONDS)?,
            log: create(SECONDS_LOG)?,
            open: BTreeMap::new(),
        };
        let heading = hlog::heading("response times of each second", about.started_us);
        append(&mut saving.log, &heading)?;
        Ok(saving)
    }

    /// Takes the parts of seconds from [`crate::load::Live::news`], and writes those that are over.
    /// All threads are done with a second when one has reported the second after the next.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn add(&mut self, news: &[Second]) -> Result<(), String> {
        for second in news {
            let own = self.open.entry(second.number).or_insert_with(|| Second::new(second.number));
            own.add(second);
        }
        let newest = self.open.last_key_value().map_or(0, |(number, _)| *number);
        while let Some(entry) = self.open.first_entry() {
            if *entry.key() + 1 >= newest {
                break;
            }
            let second = entry.remove();
            self.write(&second)?;
        }
        Ok(())
    }

    fn write(&mut self, second: &Second) -> Result<(), String> {
        append(&mut self.seconds, &second_line(second)?)?;
        append(&mut self.log, &line_of(second)?)
    }

    /// Writes the figures, and all seconds once more, now complete.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn finish(self, figures: &Figures) -> Result<(), String> {
        let Self { folder, started_us, .. } = self;
        let mut lines = String::new();
        let mut log = hlog::heading("response times of each second", started_us);
        for second in &figures.seconds {
            lines += &second_line(second)?;
            log += &line_of(second)?;
        }
        write_whole(&folder.join(SECONDS), lines.as_bytes())?;
        write_whole(&folder.join(SECONDS_LOG), log.as_bytes())?;
        for (name, histogram) in figures.times.named() {
            if !histogram.is_empty() {
                let mut log = hlog::heading(&format!("{name} times"), started_us);
                log += &hlog::line(0.0, figures.elapsed_ns as f64 / 1e9, histogram)?;
                write_whole(&folder.join(format!("{name}.hlog")), log.as_bytes())?;
            }
        }
        write_whole(&folder.join(FIGURES), to_json(&KeptFigures::of(figures))?.as_bytes())
    }
}

fn second_line(second: &Second) -> Result<String, String> {
    let text = serde_json::to_string(&KeptSecond::of(second));
    text.map(|text| text + "\n").map_err(|error| format!("JSON: {error}"))
}

/// The line of a second in the log of histograms.
fn line_of(second: &Second) -> Result<String, String> {
    hlog::line(f64::from(second.number), 1.0, &second.response.histogram())
}

fn append(file: &mut File, text: &str) -> Result<(), String> {
    file.write_all(text.as_bytes()).map_err(|error| format!("saving results: {error}"))
}
