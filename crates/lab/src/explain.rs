//! What limits a server: the URL of Evenkeel's status page comes in, the sentences that it tells go
//! out, or the figures that they are made of. They are the server's own; control characters are
//! taken out before they reach a terminal. `evenkeel explain` finds the URL of a process or of a
//! configuration and passes it on to `evenkeel-lab explain`.

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

/// Runs `evenkeel-lab explain` and gives its exit status: 0, 1 where the page tells nothing, 2 for
/// words that make no sense.
#[must_use]
pub fn run(given: &[String]) -> i32 {
    let asked: Words = match words::parse(given) {
        Ok(asked) => asked,
        Err(stop) => return words::answer("explain", stop),
    };
    match sentences(&asked.url, !asked.insecure) {
        Ok(lines) => {
            // A reader that went away has what it wanted.
            let _gone = io::stdout().lock().write_all((lines.join("\n") + "\n").as_bytes());
            0
        }
        Err(text) => {
            let _gone = writeln!(io::stderr().lock(), "evenkeel explain: {text}");
            1
        }
    }
}

/// How long a page may take: a server that needs explaining may be slow.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Page {
    pool_words: Vec<String>,
}

/// What a page tells of the limit.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Told {
    /// The name of the limit that binds.
    pub(crate) limit: String,
    /// Requests answered in a second.
    pub(crate) rps: Option<f64>,
    /// The most of them, where that is known.
    pub(crate) maximum_rps: Option<f64>,
    /// The limit behind it.
    pub(crate) next: Option<Next>,
    /// The figures of the last seconds.
    pub(crate) now: Now,
}

/// A limit and at how many requests a second it would bind.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Next {
    pub(crate) limit: String,
    pub(crate) rps: f64,
}

/// Of the figures, what is looked at.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Now {
    /// Requests in progress.
    pub(crate) busy_milli: Option<u64>,
}

#[derive(Deserialize)]
struct Figures {
    pool: Told,
}

/// What was told each second.
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

/// Asks the page at `url` how many requests might be in progress in each of the last seconds, at
/// the most so many; where it was not told, none might.
///
/// # Errors
/// As those of [`sentences`].
pub(crate) fn workers(url: &str, seconds: usize) -> Result<Vec<u64>, String> {
    let page = Status::open(url, true, PATIENCE)?;
    let page = page.with_query(&format!("json&pool&last={seconds}"));
    let told: Seconds = serde_json::from_slice(&page.body()?)
        .map_err(|error| format!("{}: not a status page of Evenkeel: {error}", page.url()))?;
    Ok(told.pool.history.workers.into_iter().map(Option::unwrap_or_default).collect())
}

/// Asks the page at `url` for its figures; gives them and the page as it came, with the history of
/// so many seconds.
///
/// # Errors
/// As those of [`sentences`].
pub(crate) fn figures(url: &str, seconds: usize) -> Result<(Told, Vec<u8>), String> {
    let page = Status::open(url, true, PATIENCE)?;
    let page = page.with_query(&format!("json&pool&last={seconds}"));
    let body = page.body()?;
    let figures: Figures = serde_json::from_slice(&body)
        .map_err(|error| format!("{}: not a status page of Evenkeel: {error}", page.url()))?;
    Ok((figures.pool, body))
}

/// Asks the page at `url`, whose certificate is checked if `verify`.
///
/// # Errors
/// What is wrong with the URL, why there is no page, or that it is not one of Evenkeel's; each
/// begins with the URL.
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
