//! Requests a server's status page, as often as wanted, and returns it as numbers. The page is
//! Evenkeel's (`?json`) or that of any Apache (`?auto`, mod_status).

mod page;

pub(crate) use page::{Connections, LETTERS, Page, Worker, is_busy};

use crate::load::{Target, Trust, Wishes, fetch};
use evenkeel_sys::connect::Remote;
use std::time::Duration;

/// The place of a page, and how to request it.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    target: Target,
    remotes: Vec<Remote>,
    trust: Option<Trust>,
    /// How long a page may take.
    most: Duration,
}

/// The usual path of mod_status.
const USUAL_PATH: &str = "/server-status";

impl Status {
    /// Prepares requests for a page, without sending one. `verify` says whether to check the
    /// certificate of an https server.
    ///
    /// # Errors
    ///
    /// What is wrong with the URL, or its host is unknown.
    pub(crate) fn open(url: &str, verify: bool, most: Duration) -> Result<Self, String> {
        let mut target = Target::parse(url)?;
        let remotes = target.resolve(None)?;
        let trust = Trust::of(&target, &Wishes { verify, ..Wishes::default() })?;
        if target.path == "/" {
            USUAL_PATH.clone_into(&mut target.path);
        }
        Ok(Self { target, remotes, trust, most })
    }

    /// The same page in the form with the most information: Evenkeel's, or the one of all Apaches.
    ///
    /// # Errors
    ///
    /// Why there is no page.
    pub(crate) fn in_best_form(mut self) -> Result<Self, String> {
        if self.has_form() {
            return Ok(self);
        }
        let path = self.path().to_owned();
        self.target.path = format!("{path}?json");
        if !self.body()?.trim_ascii_start().starts_with(b"{") {
            self.target.path = format!("{path}?auto");
        }
        Ok(self)
    }

    /// The same page in the form that costs a server least, which has only sums.
    pub(crate) fn in_short_form(mut self) -> Self {
        if !self.has_form() {
            self.target.path = format!("{}?auto", self.path());
        }
        self
    }

    /// The same page with this query in place of the URL's.
    pub(crate) fn with_query(mut self, query: &str) -> Self {
        self.target.path = format!("{}?{query}", self.path());
        self
    }

    /// Whether the URL says which form is wanted.
    fn has_form(&self) -> bool {
        let (_, query) = self.target.path.split_once('?').unwrap_or_default();
        query.split('&').any(|word| word == "json" || word.contains("auto"))
    }

    /// The page as received.
    ///
    /// # Errors
    ///
    /// Why there is none. The message begins with the URL.
    pub(crate) fn body(&self) -> Result<Vec<u8>, String> {
        let fetched = fetch(&self.target, &self.remotes, self.trust.as_ref(), self.most)?;
        let hint = match fetched.status {
            200 => return Ok(fetched.body),
            401 | 403 => "; the server shows its page to others (Require)",
            404 => "; no status page there (SetHandler server-status)",
            _ => "",
        };
        Err(format!("{}: status {}{hint}", self.target, fetched.status))
    }

    /// Requests and parses the page.
    ///
    /// # Errors
    ///
    /// Why there is none. The message begins with the URL.
    pub(crate) fn page(&self) -> Result<Page, String> {
        Page::parse(&self.body()?).map_err(|problem| format!("{}: {problem}", self.target))
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_here(&self) -> bool {
        Target::is_loopback(&self.remotes)
    }

    pub(crate) fn url(&self) -> String {
        self.target.to_string()
    }

    pub(crate) fn port(&self) -> u16 {
        self.target.port
    }

    /// The path of the URL, without the query.
    pub(crate) fn path(&self) -> &str {
        self.target.path.split('?').next().unwrap_or_default()
    }
}
