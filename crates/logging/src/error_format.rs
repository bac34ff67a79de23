//! Compiles ErrorLogFormat into a list of items that `error_line` writes for each notice. The
//! grammar and the error texts are those of the core (server/core.c: parse_errorlog_item). Nothing
//! is looked up by name after compiling.

use crate::clock::TimeFormat;

/// The meaning of one item of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ErrorItem {
    /// Text, without the backslashes.
    Text(Box<[u8]>),
    /// %M
    Message,
    /// %a and %{c}a
    ClientAddress,
    /// %A
    LocalAddress,
    /// %{NAME}e
    Environment(Box<[u8]>),
    /// %E
    SystemError,
    /// %F, which is always empty, because notices do not record a place in the source.
    SourcePlace,
    /// %{NAME}i
    RequestField(Box<[u8]>),
    /// %k
    KeepAlives,
    /// %l
    Level,
    /// %L: the id of the request, of the connection (`c`), or of the connection if the line is
    /// about no request (`C`).
    LogId(IdScope),
    /// %m
    Module,
    /// %{NAME}n
    Note(Box<[u8]>),
    /// %P
    Process,
    /// %T
    Thread,
    /// %t
    Time(ErrorTime),
    /// %v
    ServerName,
    /// %V
    UsedName,
}

/// Whose id %L is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum IdScope {
    Request,
    Connection,
    ConnectionOnly,
}

/// The forms of %t.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ErrorTime {
    /// Named forms: with digits of the second's fraction, in ISO 8601, with the zone.
    Named {
        /// 0, 3 or 6 digits.
        fraction: usize,
        /// `2011-05-12 08:28:57` in place of `Thu May 12 08:28:57 2011`.
        compact: bool,
        /// Whether the offset from UTC follows.
        zone: bool,
    },
    /// A format of strftime.
    Custom(TimeFormat),
}

/// An item with its modifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorSegment {
    /// The item.
    pub item: ErrorItem,
    /// Whether a field begins here. An item without a value removes its field.
    pub starts_field: bool,
    /// `+`: without a value the whole line is omitted.
    pub required: bool,
    /// `-`: without a value a hyphen is written.
    pub hyphen: bool,
    /// Only for notices of this level or less urgent ones, numbered from 0 as in syslog.
    pub least_level: u32,
}

/// The use of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorFormatKind {
    /// Every line of the log.
    Main,
    /// A line before the first line of a connection.
    Connection,
    /// A line before the first line of a request.
    Request,
}

impl ErrorFormatKind {
    /// Parses ErrorLogFormat's first argument if there are two. The error text is Apache's.
    pub fn parse(word: &str) -> Result<Self, String> {
        match word.to_ascii_lowercase().as_str() {
            "connection" => Ok(Self::Connection),
            "request" => Ok(Self::Request),
            _ => Err("ErrorLogFormat type must be one of request, connection".into()),
        }
    }
}

/// A compiled ErrorLogFormat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorFormat {
    pub(crate) segments: Box<[ErrorSegment]>,
}

impl ErrorFormat {
    /// Compiles a format string, after the configuration's own quoting was removed. The error text
    /// is Apache's.
    pub fn compile(kind: ErrorFormatKind, format: &str) -> Result<ErrorFormat, String> {
        let mut rest = format;
        let mut segments: Vec<ErrorSegment> = Vec::new();
        while !rest.is_empty() {
            let segment = item(&mut rest)?;
            check(kind, &segment)?;
            segments.push(segment);
        }
        let has_message = segments.iter().any(|segment| segment.item == ErrorItem::Message);
        if kind == ErrorFormatKind::Main && !has_message {
            return Err("main ErrorLogFormat must contain message format string '%M'".into());
        }
        Ok(ErrorFormat { segments: segments.into() })
    }
}

fn check(kind: ErrorFormatKind, segment: &ErrorSegment) -> Result<(), String> {
    let main = kind == ErrorFormatKind::Main;
    if segment.least_level > 15 {
        return Err("The specified loglevel modifier is out of range".into());
    }
    if main && segment.required {
        return Err("The '+' flag cannot be used in the main error log format".into());
    }
    if !main && segment.least_level > 0 {
        return Err("The loglevel cannot be used as a condition in once-per-request or \
                    once-per-connection formats"
            .into());
    }
    if !main && segment.item == ErrorItem::Message {
        return Err("%M cannot be used in once-per-request or once-per-connection formats".into());
    }
    Ok(())
}

/// Parses the next item of a format.
fn item(rest: &mut &str) -> Result<ErrorSegment, String> {
    let mut starts_field = rest.starts_with(' ');
    if let Some(after) = rest.strip_prefix("% ") {
        // A delimiter of fields that writes nothing.
        starts_field = true;
        *rest = after;
        if rest.is_empty() {
            return Ok(plain(ErrorItem::Text(Box::default()), starts_field));
        }
    }
    let Some(mut s) = rest.strip_prefix('%') else {
        return Ok(plain(ErrorItem::Text(text(rest).into()), starts_field));
    };
    if let Some(after) = s.strip_prefix('%') {
        *rest = after;
        return Ok(plain(ErrorItem::Text(Box::from(&b"%"[..])), starts_field));
    }
    let mut segment = plain(ErrorItem::Message, starts_field);
    let mut argument = "";
    loop {
        let Some(first) = s.chars().next() else {
            return Err("Ran off end of error log format parsing args to some directive".into());
        };
        let after = s.get(first.len_utf8()..).unwrap_or_default();
        match first {
            '+' => segment.required = true,
            '-' => segment.hyphen = true,
            '{' => {
                let end = after.find('}').unwrap_or(after.len());
                argument = after.get(..end).unwrap_or_default();
                s = after.get(end + 1..).unwrap_or_default();
                continue;
            }
            '0'..='9' => {
                let end = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
                let (level, after) = s.split_at(end);
                segment.least_level = level.parse().unwrap_or(u32::MAX);
                s = after;
                continue;
            }
            letter => {
                segment.item = value(letter, argument)
                    .ok_or_else(|| format!("Unrecognized error log format directive %{letter}"))?;
                *rest = after;
                return Ok(segment);
            }
        }
        s = after;
    }
}

const fn plain(item: ErrorItem, starts_field: bool) -> ErrorSegment {
    ErrorSegment { item, starts_field, required: false, hyphen: false, least_level: 0 }
}

/// Parses text up to the next percent sign or the next space that begins a field.
fn text(rest: &mut &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = rest.bytes().enumerate().peekable();
    let mut end = rest.len();
    let mut in_spaces = true;
    while let Some((at, byte)) = bytes.next() {
        if byte == b'%' || (byte == b' ' && !in_spaces) {
            end = at;
            break;
        }
        in_spaces &= byte == b' ';
        if byte == b'\\' {
            let (next, taken) = match bytes.peek() {
                Some((_, b'r')) => (b'\r', true),
                Some((_, b'n')) => (b'\n', true),
                Some((_, b't')) => (b'\t', true),
                Some((_, other)) => (*other, true),
                None => (b'\\', false),
            };
            if taken {
                bytes.next();
            }
            out.push(next);
        } else {
            out.push(byte);
        }
    }
    *rest = rest.get(end..).unwrap_or_default();
    out
}

fn value(letter: char, argument: &str) -> Option<ErrorItem> {
    let name = || Box::<[u8]>::from(argument.as_bytes());
    Some(match letter {
        'M' => ErrorItem::Message,
        'a' => ErrorItem::ClientAddress,
        'A' => ErrorItem::LocalAddress,
        'e' => ErrorItem::Environment(name()),
        'E' => ErrorItem::SystemError,
        'F' => ErrorItem::SourcePlace,
        'i' => ErrorItem::RequestField(name()),
        'k' => ErrorItem::KeepAlives,
        'l' => ErrorItem::Level,
        'L' => ErrorItem::LogId(match argument {
            "c" => IdScope::Connection,
            "C" => IdScope::ConnectionOnly,
            _ => IdScope::Request,
        }),
        'm' => ErrorItem::Module,
        'n' => ErrorItem::Note(name()),
        'P' => ErrorItem::Process,
        'T' => ErrorItem::Thread,
        't' => ErrorItem::Time(time(argument)),
        'v' => ErrorItem::ServerName,
        'V' => ErrorItem::UsedName,
        _ => return None,
    })
}

fn time(argument: &str) -> ErrorTime {
    if argument.starts_with('%') {
        return ErrorTime::Custom(TimeFormat::parse(argument));
    }
    let fraction = match () {
        () if argument.contains('u') => 6,
        () if argument.contains('m') => 3,
        () => 0,
    };
    let compact = argument.contains('c');
    ErrorTime::Named { fraction, compact, zone: argument.contains('z') }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn main(format: &str) -> Result<ErrorFormat, String> {
        ErrorFormat::compile(ErrorFormatKind::Main, format)
    }

    #[test]
    fn fields_begin_at_spaces_and_at_percent_space() {
        let format = main(r"[%t] [client\ %a] %7F: %M% ,\ referer\ %{Referer}i").unwrap();
        let starts: Vec<(usize, bool)> = format
            .segments
            .iter()
            .map(|s| s.starts_field)
            .enumerate()
            .filter(|(_, s)| *s)
            .collect();
        assert_eq!(starts, [(3, true), (6, true), (9, true), (11, true)], "{format:#?}");
        let texts: Vec<String> = format
            .segments
            .iter()
            .filter_map(|s| match &s.item {
                ErrorItem::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
                _ => None,
            })
            .collect();
        assert_eq!(texts, ["[", "]", " [client ", "]", " ", ":", " ", ", referer "]);
    }

    #[test]
    fn mistakes_have_apaches_texts() {
        let request = |format| ErrorFormat::compile(ErrorFormatKind::Request, format).unwrap_err();
        assert_eq!(
            main("%t").unwrap_err(),
            "main ErrorLogFormat must contain message format string '%M'"
        );
        assert_eq!(main("%M %y").unwrap_err(), "Unrecognized error log format directive %y");
        assert_eq!(
            main("%M %").unwrap_err(),
            "Ran off end of error log format parsing args to some directive"
        );
        assert_eq!(main("%M %16a").unwrap_err(), "The specified loglevel modifier is out of range");
        assert_eq!(
            main("%M %+a").unwrap_err(),
            "The '+' flag cannot be used in the main error log format"
        );
        assert!(request("%M").starts_with("%M cannot be used"));
        assert!(request("%4a").starts_with("The loglevel cannot be used"));
        assert!(ErrorFormatKind::parse("both").is_err());
    }

    #[test]
    fn times_take_their_options_together() {
        assert_eq!(time("cu"), ErrorTime::Named { fraction: 6, compact: true, zone: false });
        assert_eq!(time("cuz"), ErrorTime::Named { fraction: 6, compact: true, zone: true });
        assert_eq!(time("m"), ErrorTime::Named { fraction: 3, compact: false, zone: false });
        assert!(matches!(time("%H"), ErrorTime::Custom(_)));
    }
}
