//! Parses the lines of access logs into a [`Record`] of the request and the response, or a
//! [`Misfit`] that says where the line differs from its format. Nothing here opens a file or sends
//! anything.

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

/// The format of the lines of a log.
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

/// mod_log_config's own format, and what Debian's apache2.conf and most others call combined and
/// vhost_combined. Their size is that of the body (%b) or of everything that was sent (%O); nothing
/// in a line says which.
const COMMON: &str = r#"%h %l %u %t "%r" %>s %b"#;
const COMBINED: &str = r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#;
const VHOST_COMBINED: &str = r#"%v:%p %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#;

impl Format {
    /// The named formats, in the order in which they are tried. The format of a log is the one that
    /// most lines match, and of two that match equally well, the one that says more.
    pub(super) const NAMES: [&str; 5] = ["json", "vhost_combined", "combined", "common", "urls"];

    /// A format by its name, or from a string of LogFormat.
    ///
    /// # Errors
    ///
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

    /// The name, or the string.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Parses a line without its line end; `None` if the line is to be skipped.
    ///
    /// # Errors
    ///
    /// Where the line differs from the format.
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
