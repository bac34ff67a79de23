//! The value of a field as a line gives it: text with placeholders, or an expression. It is
//! compiled with the configuration; for a request its text goes out, as it is.

use crate::{RequestContext, Scope, ServerState};
use evenkeel_expr::{EvaluationError, Text};
use evenkeel_message::{Request, unquoted};
use evenkeel_monitor::View;
use std::time::{SystemTime, UNIX_EPOCH};

/// A compiled value.
#[derive(Debug)]
pub enum Value {
    /// Text and placeholders.
    Parts(Vec<Part>),
    /// `expr=...`.
    Expr(Text),
}

/// A piece of a value.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// Text as it stands.
    Text(Box<[u8]>),
    /// `%D`: microseconds since the request came.
    Duration,
    /// `%t`: when the request came, microseconds since 1970.
    Time,
    /// `%l`: the machine's load averages.
    Load,
    /// `%i`, `%b`: how many workers in a hundred wait, and how many work.
    Workers {
        /// Whether those that wait.
        idle: bool,
    },
    /// `%{NAME}e`: a variable of the request's environment.
    Env(Box<[u8]>),
    /// `%{NAME}s`: a variable of the TLS connection.
    Tls(Box<str>),
}

impl Value {
    /// Compiles a value (mod_headers.c: parse_format_string).
    ///
    /// # Errors
    /// Apache's complaint about a placeholder or an expression.
    pub fn parse(scope: &Scope, text: &str) -> Result<Self, String> {
        if let (Some(start), Some(expression)) = (text.get(..5), text.get(5..))
            && start.eq_ignore_ascii_case("expr=")
        {
            return scope
                .compile_text(expression)
                .map(Value::Expr)
                .map_err(|error| format!("Can't parse value expression : {error}"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (part, behind) = match rest.strip_prefix('%') {
                Some(tag) => placeholder(tag)?,
                None => {
                    let end = rest.find('%').unwrap_or(rest.len());
                    let (text, behind) = rest.split_at(end);
                    (Part::Text((*unquoted(&unescaped(text))).into()), behind)
                }
            };
            parts.push(part);
            rest = behind;
        }
        Ok(Value::Parts(parts))
    }

    /// What it stands for in the request.
    ///
    /// # Errors
    /// The expression has no value for this request.
    pub fn text(
        &self,
        context: &RequestContext<'_>,
        state: Option<&dyn ServerState>,
    ) -> Result<Vec<u8>, EvaluationError> {
        let mut out = Vec::new();
        match self {
            Value::Expr(text) => out = text.value(context)?,
            Value::Parts(parts) => {
                for part in parts {
                    part.write(context.request, state, &mut out);
                }
            }
        }
        Ok(out)
    }
}

/// Makes one line of a value that came from elsewhere (mod_headers.c: unwrap_header).
pub(super) fn unwrap(value: &mut [u8]) {
    for byte in value.iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        *byte = b' ';
    }
}

impl Part {
    fn write(&self, request: &Request, state: Option<&dyn ServerState>, out: &mut Vec<u8>) {
        match self {
            Part::Text(text) => out.extend_from_slice(text),
            Part::Duration => {
                let now_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let now_us = u64::try_from(now_us.as_micros()).unwrap_or(u64::MAX);
                let text = format!("D={}", now_us.saturating_sub(request.time_us));
                out.extend_from_slice(text.as_bytes());
            }
            Part::Time => out.extend_from_slice(format!("t={}", request.time_us).as_bytes()),
            Part::Load => {
                let averages = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
                let averages: Vec<&str> = averages.split(' ').take(3).collect();
                out.extend_from_slice(format!("l={}", averages.join("/")).as_bytes());
            }
            Part::Workers { idle } => {
                let letter = if *idle { 'i' } else { 'b' };
                let share = share_of_workers(state, *idle);
                out.extend_from_slice(format!("{letter}={share}").as_bytes());
            }
            Part::Env(name) => {
                let start = out.len();
                out.extend_from_slice(request.resource.env.value(name).unwrap_or(b"(null)"));
                unwrap(out.get_mut(start..).unwrap_or_default());
            }
            Part::Tls(name) => {
                let value = request.secure.as_ref().and_then(|it| it.variable(name, false));
                let mut value = match value {
                    Some(value) if !value.is_empty() => value.into_bytes(),
                    _ if name.eq_ignore_ascii_case("HTTPS") => match request.secure {
                        Some(_) => b"on".to_vec(),
                        None => b"off".to_vec(),
                    },
                    _ => b"(null)".to_vec(),
                };
                unwrap(&mut value);
                out.extend_from_slice(&value);
            }
        }
    }
}

/// The share of the workers of present children, in per cent; -1 where nobody knows (scoreboard.c:
/// ap_get_sload).
fn share_of_workers(state: Option<&dyn ServerState>, idle: bool) -> i64 {
    let Some(state) = state else { return -1 };
    let counts = state.snapshot(View::counts()).counts();
    let (idle_count, busy) = (counts.idle as u64, counts.busy as u64);
    let part = if idle { idle_count } else { busy };
    (part * 100).checked_div(idle_count + busy).map_or(-1, u64::cast_signed)
}

/// Reads the placeholder behind a `%`, and gives what follows it.
fn placeholder(tag: &str) -> Result<(Part, &str), String> {
    let (argument, letter) = match tag.strip_prefix('{') {
        Some(inner) => inner.split_once('}').unwrap_or((inner, "")),
        None => ("", tag),
    };
    let mut letters = letter.chars();
    let first = letters.next();
    let part = match first {
        Some('%') | None if !tag.starts_with('{') => Part::Text((*b"%").into()),
        Some('D') => Part::Duration,
        Some('t') => Part::Time,
        Some('l') => Part::Load,
        Some('i') => Part::Workers { idle: true },
        Some('b') => Part::Workers { idle: false },
        Some('e') => Part::Env(unquoted(argument).into()),
        Some('s') => Part::Tls(argument.into()),
        other => {
            let letter = other.map(String::from).unwrap_or_default();
            return Err(format!("Unrecognized header format %{letter}"));
        }
    };
    Ok((part, letters.as_str()))
}

/// Text with its escapes undone: `\\`, `\r`, `\n` and `\t`; other backslashes stand for
/// themselves.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let escape = if character == '\\' { characters.peek().copied() } else { None };
        let meant = match escape {
            Some('\\') => '\\',
            Some('r') => '\r',
            Some('n') => '\n',
            Some('t') => '\t',
            _ => {
                out.push(character);
                continue;
            }
        };
        characters.next();
        out.push(meant);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::core_settings;
    use evenkeel_message::{Peer, RequestHead, UriOptions, UrlPath};

    #[test]
    fn placeholders_stand_for_the_request_s_facts() {
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 1234);
        request.resource.env.set("A", "one\r\ntwo");
        request.resource.path = UrlPath::parse(b"/x", UriOptions::default()).unwrap();
        let context = RequestContext::new(&request, core_settings());
        let table = [
            ("plain", "plain"),
            ("%t %%|%{A}e|%{B}e|%{C}s", "t=1234 %|one  two|(null)|(null)"),
            ("%i %b", "i=-1 b=-1"),
            (r"a\tb\qc\\d%", "a\tb\\qc\\d%"),
            ("expr=%{REQUEST_URI}!", "/x!"),
            ("", ""),
        ];
        for (text, expected) in table {
            let value = Value::parse(&Scope::default(), text).unwrap();
            let out = value.text(&context, None).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn unknown_placeholders_are_named() {
        for (text, fault) in [
            ("%q", "Unrecognized header format %q"),
            ("%{a}q", "Unrecognized header format %q"),
            ("%{aD", "Unrecognized header format %"),
            ("expr=%{FOO}", "Can't parse value expression : Variable 'FOO' does not exist"),
        ] {
            let error = Value::parse(&Scope::default(), text).unwrap_err();
            assert_eq!(error, fault, "{text}");
        }
    }
}
