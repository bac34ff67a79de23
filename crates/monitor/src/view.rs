//! What a status request asks for: the form of the page, from the query string. Nothing in a query
//! string is an error.

use crate::pool::WINDOW;
use evenkeel_scoreboard::READINGS;

/// The form of a status page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// HTML, text or JSON.
    pub form: Form,
    /// The seconds after which the browser loads the page again (the field `Refresh`).
    pub refresh_s: Option<u64>,
    /// The number of last seconds of the history to include (`last=N`, in JSON).
    pub last_s: Option<usize>,
    /// Whether to include only the pool, without workers and processes (`pool`, in JSON).
    pub pool_alone: bool,
}

/// The forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// HTML with the workers in a table.
    #[default]
    Table,
    /// HTML with the workers in paragraphs (`notable`).
    Paragraphs,
    /// Lines of `Key: value` (`auto`).
    Auto,
    /// One JSON object (`json`).
    Json,
}

/// The seconds between two pages if `refresh` names none (mod_status.c).
const DEFAULT_REFRESH_S: u64 = 10;

impl View {
    /// Parses a query string as mod_status does: a word counts wherever it stands.
    #[must_use]
    pub fn parse(query: Option<&[u8]>) -> View {
        let query = String::from_utf8_lossy(query.unwrap_or_default());
        let refresh_s = query.split_once("refresh").map(|(_, after)| {
            let digits = after.strip_prefix('=').unwrap_or_default();
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            let seconds = digits.get(..end).and_then(|digits| digits.parse().ok());
            seconds.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_REFRESH_S)
        });
        let form = match () {
            () if query.contains("auto") => Form::Auto,
            () if query.split('&').any(|word| word == "json") => Form::Json,
            () if query.contains("notable") => Form::Paragraphs,
            () => Form::Table,
        };
        let last_s = query.split('&').find_map(|word| word.strip_prefix("last=")?.parse().ok());
        let pool_alone = form == Form::Json && query.split('&').any(|word| word == "pool");
        View { form, refresh_s, last_s, pool_alone }
    }

    /// The smallest view that counts workers: without history and processes.
    #[must_use]
    pub const fn counts() -> View {
        View { form: Form::Json, refresh_s: None, last_s: Some(0), pool_alone: true }
    }

    /// The number of last readings of the history that the page shows or computes the present from.
    #[must_use]
    pub fn readings(self) -> usize {
        let shown = match self.form {
            Form::Table | Form::Paragraphs => READINGS,
            Form::Auto => 0,
            Form::Json => self.last_s.unwrap_or(READINGS),
        };
        shown.max(WINDOW)
    }

    /// The page's media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self.form {
            Form::Table | Form::Paragraphs => "text/html; charset=ISO-8859-1",
            Form::Auto => "text/plain; charset=ISO-8859-1",
            Form::Json => "application/json",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_count_wherever_they_stand() {
        let view = |query: &str| View::parse(Some(query.as_bytes()));
        assert_eq!(View::parse(None), View::default());
        assert_eq!(
            view("auto&refresh=0"),
            View { form: Form::Auto, refresh_s: Some(10), ..View::default() }
        );
        assert_eq!(view("autorefresh=3").refresh_s, Some(3));
        assert_eq!(view("refresh=abc").refresh_s, Some(10));
        let told = View { form: Form::Paragraphs, refresh_s: Some(5), ..View::default() };
        assert_eq!(view("refresh=5&notable"), told);
        assert_eq!((view("json&last=5").last_s, view("json&last=x").last_s), (Some(5), None));
        assert!(
            view("json&pool").pool_alone && !view("json").pool_alone && !view("pool").pool_alone
        );
        let readings = ["", "auto", "json", "json&last=2", "json&pool&last=60"];
        let readings = readings.map(|query| view(query).readings());
        assert_eq!(readings, [READINGS, WINDOW, READINGS, WINDOW, 60]);
        assert_eq!(view("json").media_type(), "application/json");
        assert_eq!(view("jsonp").form, Form::Table);
    }
}
