//! Notices to the administrator, which become lines of the error log. Modules return or raise them;
//! only `logging` writes them.

use memchr::memchr;
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The levels of `LogLevel`, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Level {
    Emerg,
    Alert,
    Crit,
    Error,
    Warn,
    Notice,
    Info,
    Debug,
    Trace1,
    Trace2,
    Trace3,
    Trace4,
    Trace5,
    Trace6,
    Trace7,
    Trace8,
}

impl Level {
    /// Every level in order.
    pub const ALL: [Level; 16] = [
        Level::Emerg,
        Level::Alert,
        Level::Crit,
        Level::Error,
        Level::Warn,
        Level::Notice,
        Level::Info,
        Level::Debug,
        Level::Trace1,
        Level::Trace2,
        Level::Trace3,
        Level::Trace4,
        Level::Trace5,
        Level::Trace6,
        Level::Trace7,
        Level::Trace8,
    ];

    /// The word of the level in configuration and log.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Level::Emerg => "emerg",
            Level::Alert => "alert",
            Level::Crit => "crit",
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Notice => "notice",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace1 => "trace1",
            Level::Trace2 => "trace2",
            Level::Trace3 => "trace3",
            Level::Trace4 => "trace4",
            Level::Trace5 => "trace5",
            Level::Trace6 => "trace6",
            Level::Trace7 => "trace7",
            Level::Trace8 => "trace8",
        }
    }

    /// The level of a word, without regard to case.
    #[must_use]
    pub fn parse(word: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.word().eq_ignore_ascii_case(word))
    }
}

/// LogLevel: one level for all and exceptions by module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogLevels {
    /// For modules that are not named.
    pub all: Option<Level>,
    /// By module name (`alias`).
    pub modules: Vec<(Box<str>, Level)>,
}

impl LogLevels {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.modules.is_empty()
    }

    /// The level up to which the module's notices are written; `warn` where nothing is said.
    #[must_use]
    pub fn of(&self, module: &str) -> Level {
        let named = self.modules.iter().rev().find(|(name, _)| &**name == module);
        named.map(|(_, level)| *level).or(self.all).unwrap_or(Level::Warn)
    }
}

/// What the error log already has of a connection and of the current request. The lines
/// `connection` and `request` of ErrorLogFormat go before the first line of each, and only
/// connections and requests with a line in the error log have an id in the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Whether the log has a line of the connection.
    pub connection: bool,
    /// Whether the log has a line of the request.
    pub request: bool,
}

/// One message: its module, its level, Apache's number for it and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The module that raises it, as in `LogLevel alias:debug`: `core`, `alias`, `authz_core`.
    pub module: &'static str,
    /// The level.
    pub level: Level,
    /// Apache's message number (AHnnnnn), or none if Apache has no such message.
    pub number: Option<u16>,
    /// The error number of the system call behind it (`(13)Permission denied: ` in the log).
    pub cause: Option<i32>,
    /// What happened, without a line end. Data of the client is escaped when the line is written;
    /// use [`quoted`] to put bytes into the text.
    pub text: Cow<'static, str>,
    /// Whether the LogLevel of a section has already let it pass, so that the server's LogLevel
    /// does not apply.
    pub passed: bool,
}

impl Notice {
    /// A notice with Apache's number.
    #[must_use]
    pub fn new(
        module: &'static str,
        level: Level,
        number: u16,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { module, level, number: Some(number), cause: None, text: text.into(), passed: false }
    }

    /// A notice that Apache does not have, and which therefore has no number.
    #[must_use]
    pub fn own(module: &'static str, level: Level, text: impl Into<Cow<'static, str>>) -> Self {
        Self { module, level, number: None, cause: None, text: text.into(), passed: false }
    }

    /// The same notice with the system's error number, if the error has one.
    #[must_use]
    pub fn because(self, error: &std::io::Error) -> Self {
        Self { cause: error.raw_os_error(), ..self }
    }
}

/// The bytes 0x80 to 0xff are mapped to characters from here on, at the end of the last private
/// plane.
const FIRST: u32 = 0x10_ff00;

/// Converts bytes of a client or of a file name for the text of a notice. A byte that is not part
/// of UTF-8 becomes a character of its own, which [`quoted_byte`] converts back when the log is
/// written.
#[must_use]
pub fn quoted(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|char| quoted_byte(char).is_some()) => Cow::Borrowed(text),
        _ => {
            let mut text = String::with_capacity(bytes.len() + 16);
            for chunk in bytes.utf8_chunks() {
                for char in chunk.valid().chars() {
                    match quoted_byte(char) {
                        // If a client sends such a character, its bytes are quoted one by one.
                        Some(_) => {
                            let mut bytes = [0; 4];
                            text.extend(char.encode_utf8(&mut bytes).bytes().filter_map(stand_in));
                        }
                        None => text.push(char),
                    }
                }
                text.extend(chunk.invalid().iter().copied().filter_map(stand_in));
            }
            Cow::Owned(text)
        }
    }
}

/// Converts the name of a file for the text of a notice.
#[must_use]
pub fn quoted_path(path: &Path) -> Cow<'_, str> {
    quoted(path.as_os_str().as_bytes())
}

/// The character for a byte above 0x7f.
fn stand_in(byte: u8) -> Option<char> {
    char::from_u32(FIRST + u32::from(byte))
}

/// The byte that a character of a [`quoted`] text stands for, if it stands for one.
#[must_use]
pub fn quoted_byte(char: char) -> Option<u8> {
    let byte = u8::try_from(u32::from(char).checked_sub(FIRST)?).ok()?;
    (byte >= 0x80).then_some(byte)
}

/// The bytes of a text in which bytes outside UTF-8 are [`quoted`], such as a text of the
/// configuration.
#[must_use]
pub fn unquoted(text: &str) -> Cow<'_, [u8]> {
    if !has_quoted(text) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for char in text.chars() {
        match quoted_byte(char) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// Whether a text contains [`quoted`] bytes.
#[must_use]
pub fn has_quoted(text: &str) -> bool {
    // The UTF-8 form of all these characters begins with this byte, which is rare elsewhere.
    memchr(0xf4, text.as_bytes()).is_some() && text.chars().any(|char| quoted_byte(char).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let stand_ins: String = all.iter().filter_map(|byte| stand_in(*byte)).collect();
        for bytes in [&all[..], b"plain", "\u{e4}\u{10ffff}".as_bytes(), stand_ins.as_bytes()] {
            assert_eq!(*unquoted(&quoted(bytes)), *bytes);
        }
        assert!(matches!(quoted("\u{e4}".as_bytes()), Cow::Borrowed("\u{e4}")));
    }
}
