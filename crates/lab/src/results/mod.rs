//! Saved results: a folder for each run, which is written during the run and at its end, and can be
//! read back, also several folders as one sum. Histograms are in HdrHistogram's log format and the
//! rest is JSON, so that other tools can read them too.
//!
//! During the run:
//! - `run.json`, first: [`About`], the options, versions, the machine without its names.
//! - `seconds.jsonl`: a line for each second, with counts and percentiles.
//! - `seconds.hlog`: response times of each second, two significant digits.
//! - `series.jsonl`: [`Series`], samples of the server's side or of a machine.
//!
//! At its end:
//! - `figures.json`: [`Figures`] without their histograms, and what follows from them.
//! - `response.hlog`, `service.hlog`, `connect.hlog`, `wait.hlog`, `pause.hlog`: times of the whole
//!   run, three significant digits; only those with values.
//!
//! All times in histograms are nanoseconds.
//!
//! [`Figures`]: crate::load::Figures

mod about;
mod hlog;
mod kept;
mod reading;
mod saving;
mod series;

pub use about::{About, Machine, without_secrets};
pub use kept::{Percentiles, SHOWN_PERCENTILES};
pub use reading::{Saved, find, merge, read};
pub use saving::Saving;
pub use series::{Line, Sampling, Series};

const RUN: &str = "run.json";
const FIGURES: &str = "figures.json";
const SECONDS: &str = "seconds.jsonl";
const SECONDS_LOG: &str = "seconds.hlog";
const SERIES: &str = "series.jsonl";

/// Writes a file so that it exists either completely or not at all.
fn write_whole(path: &std::path::Path, bytes: &[u8]) -> Result<(), String> {
    let part = path.with_extension("part");
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::write(&part, bytes).map_err(told)?;
    std::fs::rename(&part, path).map_err(told)
}

/// A value as JSON text. If JSON cannot represent its keys, that is a defect of this program,
/// reported like any other error.
fn to_json(value: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string_pretty(value).map_err(|error| format!("JSON: {error}"))
}

#[cfg(test)]
mod tests;
