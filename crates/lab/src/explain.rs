//! Reads what limits a server from Evenkeel's status page: its sentences, or the figures behind
//! them. Control characters are removed before the text reaches a terminal. `evenkeel explain`
//! finds the URL for a process or a configuration and passes it to `evenkeel-lab explain`.

use crate::status::Status;
use crate::words;
use clap::Parser;
use serde::Deserialize;
use std::io::{self, Write as _};
use std::time::Duration;

/// Tells what limits the server with this status page now
#[derive(Debug, Parser)]
#[command(
    name = "explain",
    bin_name = "evenkeel-lab explain",
    after_help = "`evenkeel explain` finds the URL of a process or of a configuration. The exit \
                  status is 0 where the limit was told, 1 where it is not to be had, 2 where the \
                  words make no sense."
)]
struct Words {
    /// The status page (/server-status where only a host is given)
    #[arg(value_name = "URL")]
    url: String,
    /// Takes any certificate
    #[arg(long)]
    insecure: bool,
}

/// The declaration of the command line.
#[must_use]
pub fn command() -> clap::Command {
    words::command::<Words>()
}

/// Runs `evenkeel-lab explain` and returns its exit status: 0, 1 if the page gives no answer, 2 for
/// words that make no sense.
#[must_use]
pub fn run(given: &[String]) -> i32 {
    let asked: Words = match words::parse(given) {
        Ok(asked) => asked,
        Err(stop) => return words::answer("explain", stop),
    };
    match sentences(&asked.url, !asked.insecure) {
        Ok(lines) => {
            // It is not an error if the reader is gone.
            let _gone = io::stdout().lock().write_all((lines.join("\n") + "\n").as_bytes());
            0
        }
        Err(text) => {
            let _gone = writeln!(io::stderr().lock(), "evenkeel explain: {text}");
            1
        }
    }
}

/// How long a page may take. A server that needs explaining may be slow.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Page {
    pool_words: Vec<String>,
}

/// What a page says about the limit.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Told {
    /// The name of the limit that binds.
    pub(crate) limit: String,
    /// The requests answered in a second.
    pub(crate) rps: Option<f64>,
    /// The maximum, if it is known.
    pub(crate) maximum_rps: Option<f64>,
    /// The next limit.
    pub(crate) next: Option<Next>,
    /// The figures of the last seconds.
    pub(crate) now: Now,
}

/// A limit, and the requests a second at which it would bind.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Next {
    pub(crate) limit: String,
    pub(crate) rps: f64,
}

/// The figures that are used.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Now {
    /// The requests in progress, in thousandths.
    pub(crate) busy_milli: Option<u64>,
}

#[derive(Deserialize)]
struct Figures {
    pool: Told,
}

/// The history of each second.
#[derive(Deserialize)]
struct History {
    workers: Vec<Option<u64>>,
}

#[derive(Deserialize)]
struct Past {
    history: History,
}

#[derive(Deserialize)]
struct Seconds {
    pool: Past,
}

/// Asks the page at `url` how many requests could be in progress in each of the last `seconds`
/// seconds; 0 where that is unknown.
///
/// # Errors
///
/// As for [`sentences`].
pub(crate) fn workers(url: &str, seconds: usize) -> Result<Vec<u64>, String> {
    let page = Status::open(url, true, PATIENCE)?;
    let page = page.with_query(&format!("json&pool&last={seconds}"));
    let told: Seconds = serde_json::from_slice(&page.body()?)
        .map_err(|error| format!("{}: not a status page of Evenkeel: {error}", page.url()))?;
    Ok(told.pool.history.workers.into_iter().map(Option::unwrap_or_default).collect())
}

/// Asks the page at `url` for its figures. Returns them and the page as received, with `seconds`
/// seconds of history.
///
/// # Errors
///
/// As for [`sentences`].
pub(crate) fn figures(url: &str, seconds: usize) -> Result<(Told, Vec<u8>), String> {
    let page = Status::open(url, true, PATIENCE)?;
    let page = page.with_query(&format!("json&pool&last={seconds}"));
    let body = page.body()?;
    let figures: Figures = serde_json::from_slice(&body)
        .map_err(|error| format!("{}: not a status page of Evenkeel: {error}", page.url()))?;
    Ok((figures.pool, body))
}

/// Asks the page at `url` for its sentences. `verify` says whether to check its certificate.
///
/// # Errors
///
/// What is wrong with the URL, why there is no page, or that it is not one of Evenkeel's. Each
/// message begins with the URL.
pub fn sentences(url: &str, verify: bool) -> Result<Vec<String>, String> {
    let page = Status::open(url, verify, PATIENCE)?.with_query("json&last=1");
    parse(&page.body()?).ok_or_else(|| {
        format!("{}: not a status page of Evenkeel, which alone tells its limits", page.url())
    })
}

fn parse(body: &[u8]) -> Option<Vec<String>> {
    let page: Page = serde_json::from_slice(body).ok()?;
    let plain = |line: &String| line.chars().filter(|c| !c.is_control()).collect();
    Some(page.pool_words.iter().map(plain).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentences_are_read_and_cleaned() {
        let body = br#"{"pool_words": ["Limit: cpu: \u001b[31mred", "Now: 3"], "more": 1}"#;
        assert_eq!(parse(body).unwrap(), ["Limit: cpu: [31mred", "Now: 3"]);
        assert!(parse(b"Total Accesses: 3").is_none() && parse(b"{}").is_none());
    }
}
