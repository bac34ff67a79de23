//! A notice to the administrator: what the error log writes. Modules return or raise notices;
//! only `logging` writes them.

use std::borrow::Cow;

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

/// What the error log has told so far of a connection and of the request on it: the first
/// line of each is where ErrorLogFormat's `connection` and `request` lines go, and only what
/// stands in the error log has an id in the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Whether there is a line of the connection.
    pub connection: bool,
    /// Whether there is a line of the request.
    pub request: bool,
}

/// One thing to tell: who says it, how urgent it is, Apache's number for it and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The module that speaks, as in `LogLevel alias:debug`: `core`, `alias`, `authz_core`.
    pub module: &'static str,
    /// How urgent it is.
    pub level: Level,
    /// Apache's message number (AHnnnnn); none where Apache has no such message.
    pub number: Option<u16>,
    /// The system's error number that is behind it (`(13)Permission denied: ` in the log).
    pub cause: Option<i32>,
    /// What happened, without a line end. Client data in it is escaped when it is written.
    pub text: Cow<'static, str>,
    /// Whether a section's LogLevel has let it pass, so that the server's does not count.
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

    /// A notice of our own, which has no number of Apache's.
    #[must_use]
    pub fn own(module: &'static str, level: Level, text: impl Into<Cow<'static, str>>) -> Self {
        Self { module, level, number: None, cause: None, text: text.into(), passed: false }
    }

    /// The same notice with the system's error behind it, where the error is the system's.
    #[must_use]
    pub fn because(self, error: &std::io::Error) -> Self {
        Self { cause: error.raw_os_error(), ..self }
    }
}
