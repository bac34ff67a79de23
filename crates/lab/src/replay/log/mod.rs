//! Access logs as they are read again. A line comes in, what was asked and what the server said of
//! it goes out as a [`Record`], or a [`Misfit`] that says where the line departs from its format.
//! Nothing here opens a file or sends anything.

mod escape;
mod format;
mod json;
mod matching;
mod record;
mod stamp;
mod urls;

#[cfg(test)]
mod tests;

use format::Pattern;
pub(super) use record::{Misfit, Record, Sizes};
pub(super) use stamp::Stamp;

/// How the lines of a log are written.
#[derive(Clone, Debug)]
pub(super) struct Format {
    name: String,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    Pattern(Pattern),
    Json,
    Urls,
}

/// mod_log_config's own, and what Debian's apache2.conf and most others name combined and
/// vhost_combined. Their size is of the body (%b) or of all that was sent (%O); nothing in a line
/// tells which.
const COMMON: &str = r#"%h %l %u %t "%r" %>s %b"#;
const COMBINED: &str = r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#;
const VHOST_COMBINED: &str = r#"%v:%p %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#;

impl Format {
    /// Formats that are known by name, in the order in which they are tried: what more lines of a
    /// log fit is its format, and of two that fit as well the one that says more.
    pub(super) const NAMES: [&str; 5] = ["json", "vhost_combined", "combined", "common", "urls"];

    /// A format by its name, or a string of LogFormat's.
    ///
    /// # Errors
    /// What is wrong with the string.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let shape = match text {
            "json" => Shape::Json,
            "urls" => Shape::Urls,
            "common" => Shape::Pattern(Pattern::compile(COMMON)?.of_unknown_sizes()),
            "combined" => Shape::Pattern(Pattern::compile(COMBINED)?.and_more()),
            "vhost_combined" => Shape::Pattern(Pattern::compile(VHOST_COMBINED)?.and_more()),
            _ if !text.contains('%') => {
                let names = Self::NAMES.join(", ");
                return Err(format!("{text}: neither {names} nor a string as LogFormat has it"));
            }
            _ => Shape::Pattern(Pattern::compile(text)?),
        };
        Ok(Self { name: text.to_owned(), shape })
    }

    /// Its name, or its string.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads a line without its line end; `None` where it is to be passed over.
    ///
    /// # Errors
    /// Where the line departs from the format.
    pub(super) fn parse(&self, line: &[u8]) -> Result<Option<Record>, Misfit> {
        match &self.shape {
            Shape::Pattern(pattern) => pattern.parse(line).map(Some),
            Shape::Json => json::parse(line).map(Some),
            Shape::Urls => urls::parse(line),
        }
    }

    /// Whether it has the times of its requests.
    pub(super) fn has_times(&self) -> bool {
        match &self.shape {
            Shape::Pattern(pattern) => pattern.has_times(),
            Shape::Json => true,
            Shape::Urls => false,
        }
    }

    /// What its sizes count.
    pub(super) fn sizes(&self) -> Sizes {
        match &self.shape {
            Shape::Pattern(pattern) => pattern.sizes(),
            Shape::Json => Sizes::Unknown,
            Shape::Urls => Sizes::None,
        }
    }
}
