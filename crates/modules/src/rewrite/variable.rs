//! The variables `%{NAME}` of rules (mod_rewrite.c: lookup_variable). Names are resolved when a
//! rule is compiled. An unknown name has an empty value.

use crate::RequestContext;
use evenkeel_expr::{Context as _, Variable as Known};
use evenkeel_message::{Request, eq_ignore_case};
use std::borrow::Cow;

/// A variable.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Variable {
    /// An unknown variable. Its value is empty.
    Nothing,
    /// `ENV:NAME`: a note, an environment variable of the request, or one of the server's process.
    Environment(Box<[u8]>),
    /// `HTTP:NAME`, and names such as HTTP_HOST: a field of the request.
    Field(Box<[u8]>),
    /// REQUEST_FILENAME and SCRIPT_FILENAME: the file name of the run.
    Filename,
    /// `SSL:NAME`: a variable of the TLS session.
    Session(Box<str>),
    /// SERVER_ADDR.
    ServerAddress,
    /// A variable that expressions have too.
    Known(Known),
    /// `LA-U:NAME` or `LA-F:NAME`: the value of a variable in a look-ahead subrequest for the URL,
    /// or for the file.
    LookAhead { is_file: bool, name: Box<[u8]>, variable: Box<Variable> },
}

/// Fields of the request that have a variable name of their own.
const FIELDS: &[(&str, &str)] = &[
    ("HTTP_ACCEPT", "Accept"),
    ("HTTP_COOKIE", "Cookie"),
    ("HTTP_FORWARDED", "Forwarded"),
    ("HTTP_HOST", "Host"),
    ("HTTP_PROXY_CONNECTION", "Proxy-Connection"),
    ("HTTP_REFERER", "Referer"),
    ("HTTP_USER_AGENT", "User-Agent"),
];

/// Variables that expressions have and mod_rewrite does not.
const OF_EXPRESSIONS: &[Known] = &[
    Known::DocumentUri,
    Known::LastModified,
    Known::ContentType,
    Known::Handler,
    Known::Http2,
    Known::RequestStatus,
    Known::RequestLogId,
    Known::ConnLogId,
];

impl Variable {
    /// Resolves the name of a variable.
    pub(super) fn compile(name: &[u8]) -> Self {
        Self::compile_within(name, false)
    }

    /// Resolves a name. A look-ahead variable inside of another one has an empty value.
    fn compile_within(name: &[u8], is_ahead: bool) -> Self {
        let is = |word: &str, from: &[u8]| eq_ignore_case(from, word.as_bytes());
        if let [a, b, c, b':', rest @ ..] = name {
            return match [*a, *b, *c] {
                kind if !rest.is_empty() && is("ENV", &kind) => Variable::Environment(rest.into()),
                kind if is("SSL", &kind) => {
                    Variable::Session(String::from_utf8_lossy(rest).into_owned().into())
                }
                _ => Variable::Nothing,
            };
        }
        if let [a, b, c, d, b':', rest @ ..] = name {
            let kind = [*a, *b, *c, *d];
            let is_file = is("LA-F", &kind);
            if is("HTTP", &kind) && !rest.is_empty() {
                return Variable::Field(rest.into());
            }
            if (is_file || is("LA-U", &kind)) && !rest.is_empty() && !is_ahead {
                let variable = Box::new(Self::compile_within(rest, true));
                return Variable::LookAhead { is_file, name: rest.into(), variable };
            }
            return Variable::Nothing;
        }
        if let Some((_, field)) = FIELDS.iter().find(|(known, _)| is(known, name)) {
            return Variable::Field(field.as_bytes().into());
        }
        if is("REQUEST_FILENAME", name) || is("SCRIPT_FILENAME", name) {
            return Variable::Filename;
        }
        if is("SERVER_ADDR", name) {
            return Variable::ServerAddress;
        }
        let known = Known::ALL.iter().find(|known| is(known.name(), name));
        match known.filter(|known| !OF_EXPRESSIONS.contains(known)) {
            Some(known) => Variable::Known(*known),
            None => Variable::Nothing,
        }
    }

    /// Whether the value comes from a subrequest.
    pub(super) fn is_ahead(&self) -> bool {
        matches!(self, Variable::LookAhead { .. })
    }

    /// Returns the value in a request. The value of a look-ahead variable is empty here.
    pub(super) fn value<'a>(
        &'a self,
        context: &'a RequestContext<'_>,
        filename: &'a [u8],
    ) -> Cow<'a, [u8]> {
        match self {
            Variable::Nothing | Variable::LookAhead { .. } => Cow::Borrowed(b""),
            Variable::Filename => filename.into(),
            Variable::ServerAddress => {
                context.request.peer.local_ip().to_string().into_bytes().into()
            }
            Variable::Session(name) if name.eq_ignore_ascii_case("HTTPS") => {
                context.variable(Known::Https)
            }
            Variable::Session(name) => context.session_variable(name).unwrap_or_default(),
            Variable::Field(name) => context.request_header(name).unwrap_or_default(),
            Variable::Environment(name) => {
                let own = context.note(name).or_else(|| context.request_environment(name));
                own.or_else(|| context.process_environment(name)).unwrap_or_default()
            }
            // Apache returns `<unknown>` if it has no owner for the file (APR_FINFO_USER).
            Variable::Known(known @ (Known::ScriptUser | Known::ScriptGroup)) => {
                match context.variable(*known) {
                    fact if fact.is_empty() => Cow::Borrowed(b"<unknown>"),
                    fact => fact,
                }
            }
            Variable::Known(known) => context.variable(*known),
        }
    }

    /// Returns the name of the request field that the value depends on, for Vary. Host is never
    /// listed (RFC 9110, section 12.5.5).
    pub(super) fn varies_by(&self, request: &Request) -> Option<&[u8]> {
        match self {
            Variable::Field(name) if !eq_ignore_case(name, b"Host") => {
                request.fields().contains(&**name).then_some(&**name)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_resolved_without_regard_to_case() {
        let compile = |name: &str| Variable::compile(name.as_bytes());
        assert_eq!(compile("http_host"), Variable::Field(b"Host".as_slice().into()));
        assert_eq!(compile("HTTP:X-a"), Variable::Field(b"X-a".as_slice().into()));
        assert_eq!(compile("env:Foo"), Variable::Environment(b"Foo".as_slice().into()));
        assert_eq!(compile("Request_Uri"), Variable::Known(Known::RequestUri));
        assert_eq!(compile("SCRIPT_FILENAME"), Variable::Filename);
        for name in ["", "X", "HANDLER", "SSX:SSL_CIPHER", "ENV:", "HTTP:", "LA-U:", "HTTP_FOO"] {
            assert_eq!(compile(name), Variable::Nothing, "{name}");
        }
    }

    #[test]
    fn a_look_ahead_has_one_variable() {
        let ahead = Variable::compile(b"LA-U:REMOTE_USER");
        let Variable::LookAhead { is_file, name, variable } = &ahead else { panic!("{ahead:?}") };
        assert!(!is_file && **name == *b"REMOTE_USER" && ahead.is_ahead());
        assert_eq!(**variable, Variable::Known(Known::RemoteUser));
        let twice = Variable::compile(b"LA-F:LA-U:REMOTE_USER");
        let Variable::LookAhead { variable, .. } = twice else { panic!("a look ahead") };
        assert_eq!(*variable, Variable::Nothing);
    }
}
