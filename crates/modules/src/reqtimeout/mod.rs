//! mod_reqtimeout: how long a client may take over a request. The words of RequestReadTimeout go
//! in, a time for each stage comes out; the connection keeps to them.

pub use crate::{NoSettings as Directory, NoSettings as Global};

use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Shared, Where, directive};
use evenkeel_config::{Call, Shape};

/// How long one stage of reading a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTimeout {
    /// Seconds that it may take at first; 0 for no bound.
    pub timeout_s: u32,
    /// Seconds that it may take at most, whatever comes; 0 for no bound.
    pub most_s: u32,
    /// Each so many bytes add a second; 0 for none.
    pub min_rate: u32,
}

impl ReadTimeout {
    /// The head where nothing is configured (mod_reqtimeout.c: MRT_DEFAULT_HEADER_*).
    const HEADER: ReadTimeout = ReadTimeout { timeout_s: 20, most_s: 40, min_rate: 500 };
    /// The body where nothing is configured.
    const BODY: ReadTimeout = ReadTimeout { timeout_s: 20, most_s: 0, min_rate: 500 };
}

/// RequestReadTimeout of a server. A stage is said as a whole: one that names no rate has none.
#[derive(Clone, Debug, Default)]
pub struct ReadTimeouts {
    /// The handshake of TLS.
    pub handshake: Option<ReadTimeout>,
    /// The head of a request.
    pub header: Option<ReadTimeout>,
    /// Its body.
    pub body: Option<ReadTimeout>,
}

/// What a server says, which hosts share.
pub type Server = Shared<ReadTimeouts>;

crate::unsaid!(ReadTimeouts);

impl Merge for ReadTimeouts {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; handshake, header, body)
    }
}

impl ReadTimeouts {
    /// The bound of the TLS handshake; none where there is none, as by default.
    #[must_use]
    pub fn handshake(&self) -> Option<ReadTimeout> {
        self.handshake.filter(|stage| stage.timeout_s > 0)
    }

    /// The bound of a request's head; none where it was taken off.
    #[must_use]
    pub fn header(&self) -> Option<ReadTimeout> {
        Some(self.header.unwrap_or(ReadTimeout::HEADER)).filter(|stage| stage.timeout_s > 0)
    }

    /// The bound of a request's body; none where it was taken off.
    #[must_use]
    pub fn body(&self) -> Option<ReadTimeout> {
        Some(self.body.unwrap_or(ReadTimeout::BODY)).filter(|stage| stage.timeout_s > 0)
    }
}

const DIRECTIVES: &[Directive] = &[directive(
    "RequestReadTimeout",
    Where::SERVER,
    Shape::Raw,
    "handshake=0 header=20-40,MinRate=500 body=20,MinRate=500",
    "Set various timeout parameters for TLS handshake and/or reading request headers and body",
    request_read_timeout,
)];

/// mod_reqtimeout.
pub const MODULE: Module = Module {
    file: "mod_reqtimeout.c",
    identifier: "reqtimeout_module",
    active: Active::Usually,
    page: "mod_reqtimeout",
    subject: "How long a client may take to send a request.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn request_read_timeout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    for word in evenkeel_config::words(call.raw) {
        let Some((key, value)) = word.split_once('=') else {
            return Err("Invalid RequestReadTimeout parameter. Parameter must be in the form \
                        'key=value'"
                .into());
        };
        let server = &mut scope.server.reqtimeout;
        let stage = match key.to_ascii_lowercase().as_str() {
            "handshake" => Ok(&mut server.handshake),
            "header" => Ok(&mut server.header),
            "body" => Ok(&mut server.body),
            _ => Err("Unknown RequestReadTimeout parameter".to_owned()),
        };
        let set = stage.and_then(|stage| {
            *stage = Some(parse(value)?);
            Ok(())
        });
        set.map_err(|text: String| format!("RequestReadTimeout: {key}={value}: {text}"))?;
    }
    Ok(())
}

/// `20`, `20,MinRate=500` or `20-40,MinRate=500` (mod_reqtimeout.c: set_reqtimeout_param).
fn parse(value: &str) -> Result<ReadTimeout, String> {
    const RATE: &str = ",minrate=";
    let Some(at) = value.to_ascii_lowercase().find(RATE) else {
        if value.contains('-') {
            return Err("Must set MinRate option if using timeout range".into());
        }
        return Ok(ReadTimeout { timeout_s: number(value)?, most_s: 0, min_rate: 0 });
    };
    let (times, rate) = value.split_at(at);
    let min_rate = number(rate.get(RATE.len()..).unwrap_or_default())?;
    if min_rate == 0 {
        return Err("Minimum data rate must be larger than 0".into());
    }
    let (initial, most_s) = match times.split_once('-') {
        Some((initial, most)) => (initial, number(most)?),
        None => (times, 0),
    };
    let timeout_s = number(initial)?;
    if most_s > 0 && timeout_s >= most_s {
        return Err("Maximum timeout must be larger than initial timeout".into());
    }
    Ok(ReadTimeout { timeout_s, most_s, min_rate })
}

/// A number as strtol reads it; what is too large counts as the largest.
fn number(text: &str) -> Result<u32, String> {
    let bare = text.trim_start();
    let digits = bare.strip_prefix(['-', '+']).unwrap_or(bare);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    if digits.is_empty() {
        return Err(format!("Value '{text}' not numerical"));
    }
    if !rest.is_empty() {
        return Err(format!("Cannot parse '{rest}'"));
    }
    let value = digits.parse::<u32>().unwrap_or(u32::MAX);
    if bare.starts_with('-') && value > 0 {
        return Err("Value must be non-negative".into());
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_config::{Node, Position};

    fn said(arguments: &str) -> Result<ReadTimeouts, String> {
        let position = Position { file: "t".into(), line: 1 };
        let (name, section) = ("RequestReadTimeout".into(), None);
        let node = Node { name, arguments: arguments.into(), position, section };
        let mut scope = Scope::default();
        evenkeel_config::apply(
            &crate::testing::tables(&[MODULE]),
            &[node],
            &mut scope,
            &mut Vec::new(),
        )
        .map(|()| ReadTimeouts::clone(&scope.server.reqtimeout))
        .map_err(|faults| faults.kept()[0].text.clone())
    }

    #[test]
    fn stages_are_said_as_a_whole() {
        let server = said("HEADER=10-30,MinRate=100 body=0 handshake=5").unwrap();
        let header = ReadTimeout { timeout_s: 10, most_s: 30, min_rate: 100 };
        assert_eq!(server.header(), Some(header));
        assert_eq!(server.body(), None);
        assert_eq!(server.handshake().unwrap().timeout_s, 5);
        let header = said("header=7").unwrap().header();
        assert_eq!(header, Some(ReadTimeout { timeout_s: 7, most_s: 0, min_rate: 0 }));
        let inner = ReadTimeouts { header, ..ReadTimeouts::default() };
        let merged = ReadTimeouts::merge(&server, &inner);
        assert_eq!((merged.header(), merged.body()), (header, None));
    }

    #[test]
    fn nothing_said_is_apaches_default() {
        let server = said("").unwrap();
        assert_eq!(server.header(), Some(ReadTimeout::HEADER));
        assert_eq!(server.body(), Some(ReadTimeout::BODY));
        assert_eq!(server.handshake(), None);
    }

    #[test]
    fn faults_are_told_in_apaches_words() {
        let invalid = "Invalid RequestReadTimeout parameter. Parameter must be in the form \
                       'key=value'";
        assert_eq!(said("header").unwrap_err(), invalid);
        for (word, text) in [
            ("header=a", "Value 'a' not numerical"),
            ("header=5x", "Cannot parse 'x'"),
            ("header=-5", "Must set MinRate option if using timeout range"),
            ("foo=3", "Unknown RequestReadTimeout parameter"),
            ("header=40-20,MinRate=500", "Maximum timeout must be larger than initial timeout"),
            ("header=20-20,MinRate=1", "Maximum timeout must be larger than initial timeout"),
            ("header=20,MinRate=0", "Minimum data rate must be larger than 0"),
            ("body=20,MinRate=-1", "Value must be non-negative"),
            ("header=20-40,minrate=x", "Value 'x' not numerical"),
            ("header=,MinRate=1", "Value '' not numerical"),
        ] {
            assert_eq!(said(word).unwrap_err(), format!("RequestReadTimeout: {word}: {text}"));
        }
    }
}
