//! Compiles LogFormat into a list of segments that `line` writes for each exchange. The grammar and
//! the error texts are mod_log_config's (parse_log_item). Nothing is looked up by name after
//! compiling.

use crate::clock::TimeFormat;
use evenkeel_message::FieldName;

/// The meaning of one directive of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Text between directives.
    Text(Box<[u8]>),
    /// %h
    RemoteHost,
    /// %a
    ClientAddress,
    /// %{c}a
    PeerAddress,
    /// %A
    LocalAddress,
    /// %u
    User,
    /// %t in its many forms, at the beginning or the end of the exchange.
    Time(TimeShape, Moment),
    /// %r
    RequestLine,
    /// %s
    Status,
    /// %b
    BodyBytesOrHyphen,
    /// %B
    BodyBytes,
    /// %{NAME}i
    RequestField(FieldName),
    /// %{NAME}o
    ResponseField(FieldName),
    /// %{NAME}^ti
    RequestTrailer(FieldName),
    /// %{NAME}^to
    ResponseTrailer(FieldName),
    /// %{NAME}C
    Cookie(Box<[u8]>),
    /// %{NAME}x, and the names of %{NAME}c: a variable of the TLS session.
    Session(Box<str>),
    /// %{NAME}e
    Environment(Box<[u8]>),
    /// %{NAME}n
    Note(Box<[u8]>),
    /// %f
    File,
    /// %H
    Protocol,
    /// %m
    Method,
    /// %q
    Query,
    /// %U
    Path,
    /// %v
    ServerName,
    /// %V
    UsedName,
    /// %p
    Port(PortKind),
    /// %P
    Process(ProcessKind),
    /// %k
    KeepAlives,
    /// %L and %{c}L
    LogId {
        /// Whether it is the connection's id.
        connection: bool,
    },
    /// %R
    Handler,
    /// %X
    ConnectionStatus,
    /// %D and %T
    Duration(DurationUnit),
    /// %I
    BytesReceived,
    /// %O
    BytesSent,
    /// %S
    BytesMoved,
    /// %^FB
    FirstByte,
}

/// The forms of %t.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TimeShape {
    /// `[10/Oct/2000:13:55:36 -0700]`
    Common,
    /// Seconds since 1970.
    Seconds,
    /// Milliseconds since 1970.
    Millis,
    /// Microseconds since 1970.
    Micros,
    /// The milliseconds of the second, three digits.
    MillisOfSecond,
    /// The microseconds of the second, six digits.
    MicrosOfSecond,
    /// A format of strftime.
    Custom(TimeFormat),
}

/// The moment that %t shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The arrival of the request (`begin:`).
    Begin,
    /// The end of the exchange (`end:`).
    End,
}

/// The forms of %p.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum PortKind {
    Canonical,
    Local,
    Remote,
}

/// The forms of %P.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum ProcessKind {
    Process,
    Thread,
    HexThread,
}

/// The units of %T; %D is in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum DurationUnit {
    Seconds,
    Millis,
    Micros,
}

/// One directive with its modifiers, or a run of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The item.
    pub item: Item,
    /// Whether it is about the original request (`<`) or about the one that was answered after
    /// internal redirects (`>`).
    pub original: bool,
    /// The final statuses for which it is written, or with `!` those for which it is not. Otherwise
    /// `-` is written.
    pub statuses: Option<Statuses>,
}

/// The list of statuses of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statuses {
    /// Codes as written, any number.
    pub codes: Box<[u32]>,
    /// Whether `!` precedes them.
    pub negated: bool,
}

/// A compiled LogFormat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFormat {
    pub(crate) segments: Box<[Segment]>,
}

impl LineFormat {
    /// The format of logs that have none (mod_log_config: DEFAULT_LOG_FORMAT).
    pub const COMMON: &'static str = "%h %l %u %t \"%r\" %>s %b";

    /// Compiles a format string, after the configuration's own quoting was removed. The error text
    /// is Apache's.
    pub fn compile(format: &str) -> Result<LineFormat, String> {
        let mut rest = format;
        let mut segments = Vec::new();
        while !rest.is_empty() {
            if rest.starts_with('%') {
                push(&mut segments, directive(&mut rest)?);
            } else {
                push(&mut segments, Segment::always(Item::Text(text(&mut rest).into())));
            }
        }
        push(&mut segments, Segment::always(Item::Text(Box::from(&b"\n"[..]))));
        Ok(LineFormat { segments: segments.into() })
    }
}

impl Segment {
    const fn always(item: Item) -> Segment {
        Segment { item, original: false, statuses: None }
    }
}

/// Adds a segment. Text is joined to the text before it if neither depends on the status.
fn push(segments: &mut Vec<Segment>, next: Segment) {
    if let (Some(Segment { item: Item::Text(before), statuses: None, .. }), Item::Text(after)) =
        (segments.last_mut(), &next.item)
        && next.statuses.is_none()
    {
        *before = [&**before, &**after].concat().into();
    } else {
        segments.push(next);
    }
}

/// Parses text up to the next directive, and replaces `\n`, `\r`, `\t` and `\\`. Any other
/// backslash stands for itself (mod_log_config.c: parse_log_misc_string).
fn text(rest: &mut &str) -> Vec<u8> {
    let end = rest.find('%').unwrap_or(rest.len());
    let (text, after) = rest.split_at(end);
    *rest = after;
    unescape(text)
}

/// Replaces the four backslash sequences of formats.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let replaced = match (byte, bytes.peek()) {
            (b'\\', Some(b'\\')) => b'\\',
            (b'\\', Some(b'n')) => b'\n',
            (b'\\', Some(b'r')) => b'\r',
            (b'\\', Some(b't')) => b'\t',
            _ => {
                out.push(byte);
                continue;
            }
        };
        bytes.next();
        out.push(replaced);
    }
    out
}

/// Parses one directive, from its percent sign to its letter.
fn directive(rest: &mut &str) -> Result<Segment, String> {
    let mut s = rest.strip_prefix('%').unwrap_or(rest);
    if let Some(after) = s.strip_prefix('%') {
        *rest = after;
        return Ok(Segment::always(Item::Text(Box::from(&b"%"[..]))));
    }
    let mut original = None;
    let mut negated = false;
    let mut codes: Vec<u32> = Vec::new();
    let mut argument = "";
    loop {
        let Some(first) = s.chars().next() else {
            return Err("Ran off end of LogFormat parsing args to some directive".into());
        };
        let after = s.get(first.len_utf8()..).unwrap_or_default();
        match first {
            '!' => negated = !negated,
            '<' => original = Some(true),
            '>' => original = Some(false),
            ',' => {}
            '{' => {
                let end = after.find('}').unwrap_or(after.len());
                argument = after.get(..end).unwrap_or_default();
                s = after.get(end + 1..).unwrap_or_default();
                continue;
            }
            '0'..='9' => {
                let end = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
                let (code, after) = s.split_at(end);
                codes.push(code.parse().unwrap_or(u32::MAX));
                s = after;
                continue;
            }
            _ => {
                let (item, of_original, after) = item(s, argument)?;
                *rest = after;
                let statuses =
                    (!codes.is_empty()).then(|| Statuses { codes: codes.into(), negated });
                return Ok(Segment { item, original: original.unwrap_or(of_original), statuses });
            }
        }
        s = after;
    }
}

/// The item with the letter at the beginning of `s`, whether it is about the original request by
/// default, and what follows.
fn item<'a>(s: &'a str, argument: &str) -> Result<(Item, bool, &'a str), String> {
    let name = || Box::<[u8]>::from(argument.as_bytes());
    for (letters, item) in [
        ("^ti", Item::RequestTrailer as fn(FieldName) -> Item),
        ("^to", Item::ResponseTrailer),
        ("^FB", |_| Item::FirstByte),
    ] {
        if let Some(after) = s.strip_prefix(letters) {
            return Ok((item(FieldName::new(name())), false, after));
        }
    }
    let letter = s.chars().next().unwrap_or_default();
    let after = s.get(letter.len_utf8()..).unwrap_or_default();
    let literal = || Item::Text(name());
    let item = match letter {
        'h' => Item::RemoteHost,
        'a' if argument == "c" => Item::PeerAddress,
        'a' => Item::ClientAddress,
        'A' => Item::LocalAddress,
        // There is no mod_ident here, so identd is never asked.
        'l' => Item::Text(Box::from(&b"-"[..])),
        'u' => Item::User,
        't' => time(argument),
        'f' => Item::File,
        'b' => Item::BodyBytesOrHyphen,
        'B' => Item::BodyBytes,
        'i' => Item::RequestField(FieldName::new(name())),
        'o' => Item::ResponseField(FieldName::new(name())),
        'n' => Item::Note(name()),
        'L' => Item::LogId { connection: argument.eq_ignore_ascii_case("c") },
        'e' => Item::Environment(name()),
        'V' => Item::UsedName,
        'v' => Item::ServerName,
        'p' => port(argument).unwrap_or_else(literal),
        'P' => process(argument).unwrap_or_else(literal),
        'H' => Item::Protocol,
        'm' => Item::Method,
        'q' => Item::Query,
        'X' => Item::ConnectionStatus,
        'C' => Item::Cookie(name()),
        'x' => Item::Session(argument.into()),
        'c' => Item::Session(session_variable(argument).into()),
        'k' => Item::KeepAlives,
        'r' => Item::RequestLine,
        'D' => Item::Duration(DurationUnit::Micros),
        'T' => duration(argument).unwrap_or_else(literal),
        'U' => Item::Path,
        's' => Item::Status,
        'R' => Item::Handler,
        'I' => Item::BytesReceived,
        'O' => Item::BytesSent,
        'S' => Item::BytesMoved,
        // Apache shows the first byte. A whole letter here keeps the message valid text.
        unknown => return Err(format!("Unrecognized LogFormat directive %{unknown}")),
    };
    Ok((item, matches!(letter, 'L' | 'r' | 'D' | 'T' | 'U' | 's' | 'R'), after))
}

/// The variable that a name of %{NAME}c stands for (mod_ssl: ssl_var_log_handler_c).
fn session_variable(name: &str) -> &'static str {
    match name {
        "version" => "SSL_PROTOCOL",
        "cipher" => "SSL_CIPHER",
        "subjectdn" | "clientcert" => "SSL_CLIENT_S_DN",
        "issuerdn" | "cacert" => "SSL_CLIENT_I_DN",
        _ => "",
    }
}

/// %{ARGUMENT}t (mod_log_config.c: log_request_time).
fn time(argument: &str) -> Item {
    let (moment, format) = match (argument.strip_prefix("begin"), argument.strip_prefix("end")) {
        (Some(after), _) if after.is_empty() || after.starts_with(':') => (Moment::Begin, after),
        (_, Some(after)) if after.is_empty() || after.starts_with(':') => (Moment::End, after),
        _ => (Moment::Begin, argument),
    };
    let shape = match format.strip_prefix(':').unwrap_or(format) {
        "" => TimeShape::Common,
        "sec" => TimeShape::Seconds,
        "msec" => TimeShape::Millis,
        "usec" => TimeShape::Micros,
        "msec_frac" => TimeShape::MillisOfSecond,
        "usec_frac" => TimeShape::MicrosOfSecond,
        custom => TimeShape::Custom(TimeFormat::parse(custom)),
    };
    Item::Time(shape, moment)
}

fn port(argument: &str) -> Option<Item> {
    Some(Item::Port(match argument.to_ascii_lowercase().as_str() {
        "" | "canonical" => PortKind::Canonical,
        "local" => PortKind::Local,
        "remote" => PortKind::Remote,
        _ => return None,
    }))
}

fn process(argument: &str) -> Option<Item> {
    Some(Item::Process(match argument {
        "" | "pid" => ProcessKind::Process,
        "tid" => ProcessKind::Thread,
        "hextid" => ProcessKind::HexThread,
        _ => return None,
    }))
}

fn duration(argument: &str) -> Option<Item> {
    Some(Item::Duration(match argument.to_ascii_lowercase().as_str() {
        "" | "s" => DurationUnit::Seconds,
        "ms" => DurationUnit::Millis,
        "us" => DurationUnit::Micros,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_joined_and_unescaped() {
        let format = LineFormat::compile(r"a%%b\t\n\\\x").unwrap();
        let expected = Segment::always(Item::Text(Box::from(&b"a%b\t\n\\\\x\n"[..])));
        assert_eq!(*format.segments, [expected]);
    }

    #[test]
    fn text_that_depends_on_the_status_keeps_to_itself() {
        let format = LineFormat::compile("a%200{x}pb").unwrap();
        let depends = format.segments.iter().map(|segment| segment.statuses.is_some());
        assert_eq!(depends.collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn modifiers_may_stand_in_any_order() {
        let format = LineFormat::compile("%!200,304,302{Referer}>i%<s%400,501{x}s").unwrap();
        let [first, second, third, _] = &*format.segments else { panic!("{format:?}") };
        assert_eq!(first.item, Item::RequestField(FieldName::new(*b"Referer")));
        let statuses = first.statuses.as_ref().unwrap();
        assert_eq!((&*statuses.codes, statuses.negated), (&[200, 304, 302][..], true));
        assert!(!first.original && second.original && third.original);
        assert!(!third.statuses.as_ref().unwrap().negated);
    }

    #[test]
    fn mistakes_have_apaches_texts() {
        let error = |format| LineFormat::compile(format).unwrap_err();
        assert_eq!(error("%h %Z"), "Unrecognized LogFormat directive %Z");
        assert_eq!(error("%^xx"), "Unrecognized LogFormat directive %^");
        assert_eq!(error("%^t"), "Unrecognized LogFormat directive %^");
        let off_the_end = "Ran off end of LogFormat parsing args to some directive";
        assert_eq!(error("%"), off_the_end);
        assert_eq!(error("%{User-agent"), off_the_end);
        assert_eq!(error("%>200"), off_the_end);
    }

    #[test]
    fn arguments_choose_the_form() {
        let item = |format| {
            let compiled = LineFormat::compile(format).unwrap();
            compiled.segments.first().map(|segment| segment.item.clone()).unwrap()
        };
        assert_eq!(item("%{remote}p"), Item::Port(PortKind::Remote));
        assert_eq!(item("%{hextid}P"), Item::Process(ProcessKind::HexThread));
        assert_eq!(item("%{ms}T"), Item::Duration(DurationUnit::Millis));
        assert_eq!(item("%{end:msec}t"), Item::Time(TimeShape::Millis, Moment::End));
        assert_eq!(item("%{begin}t"), Item::Time(TimeShape::Common, Moment::Begin));
        assert_eq!(item("%{X}^to"), Item::ResponseTrailer(FieldName::new(*b"X")));
        // An unknown form stands for its own text, as in Apache.
        assert_eq!(item("%{days}T"), Item::Text(Box::from(&b"days\n"[..])));
    }
}
