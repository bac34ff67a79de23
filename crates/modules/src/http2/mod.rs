//! mod_http2: which hosts speak HTTP/2, and the bounds of its connections. The connection serves by
//! the settings of its server; the early hints of a section are sent before its requests are
//! answered.

mod ignored;

pub use crate::NoSettings as Global;

use crate::core::parse_interval;
use crate::settings::merged;
use crate::{
    Active, Directive, DirectiveResult, Merge, Module, Scope, Shared, Where, argument, directive,
};
use evenkeel_config::{Call, Contexts, Overrides, Shape};
use evenkeel_message::{Request, Version};
use std::sync::Arc;

/// Where RSRC_CONF | OR_AUTHCFG lets a directive stand.
const UPGRADE: Where = Where::AUTH_CONFIG.with(Contexts::SERVER);

/// Where OR_FILEINFO | OR_AUTHCFG lets a directive stand.
const HINTS: Where = Where::FILE_INFO.or(Overrides::AUTH_CONFIG);

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("H2MaxSessionStreams", Where::SERVER, Shape::One, "100", "maximum number of open streams per session", max_streams),
    directive("H2WindowSize", Where::SERVER, Shape::One, "65535", "window size on client DATA", window_size),
    directive("H2StreamTimeout", Where::SERVER, Shape::One, "", "set stream timeout", stream_timeout),
    directive("H2MaxDataFrameLen", Where::SERVER, Shape::One, "0", "maximum number of bytes in a single HTTP/2 DATA frame", max_data_frame),
    directive("H2MaxHeaderBlockLen", Where::SERVER, Shape::One, "0", "maximum number of bytes in a response header block", max_header_block),
    directive("H2MaxStreamErrors", Where::SERVER, Shape::One, "8", "maximum number of flow control errors tolerated", max_stream_errors),
    directive("H2Direct", Where::SERVER, Shape::One, "on for h2c, off for h2", "on to enable direct HTTP/2 mode", direct),
    directive("H2Upgrade", UPGRADE, Shape::One, "on for h2c, off for h2", "on to allow HTTP/1 Upgrades to h2/h2c", upgrade),
    directive("H2EarlyHints", Where::SERVER, Shape::One, "off", "on to enable interim status 103 responses", early_hints),
    directive("H2EarlyHint", HINTS, Shape::Two, "", "add a a 'Link:' header for a 103 Early Hints response.", early_hint),
    directive("H2PushResource", HINTS, Shape::OneTwoOrThree, "", "add a resource to be pushed in this location/on this server.", push_resource),
];

/// mod_http2.
pub const MODULE: Module = Module {
    file: "mod_http2.c",
    identifier: "http2_module",
    active: Active::WhenNamed,
    page: "mod_http2",
    subject: "HTTP/2 over TLS (`h2`) and in clear text (`h2c`), where Protocols names it.",
    remarks: &[
        "Streams have no workers of their own: a request in progress takes a credit as in \
         HTTP/1.1, and H2MinWorkers and H2MaxWorkers have no effect.",
        "There is no server push. What H2PushResource names becomes a `Link` field of a 103 \
         response where H2EarlyHints is on.",
        "HTTP/2 in clear text begins with the client's preface (H2Direct), or with a request of \
         HTTP/1.1 without a body that asks for h2c (H2Upgrade). There is no upgrade over TLS, for \
         which ALPN exists. H2Upgrade acts for a server; in a section it has no effect.",
        "A request with a Host field that differs from `:authority` is malformed (RFC 9113, \
         section 8.3.1); Apache replaces the field.",
        "A connection that costs more than it asks for ends with ENHANCE_YOUR_CALM: streams that \
         are begun and reset, PING, SETTINGS, priority and empty DATA frames have a budget that \
         time and complete responses refill. Malformed requests count towards H2MaxStreamErrors.",
        "As in Apache, HTTP/2 is inactive in prefork.",
    ],
    directives: &[DIRECTIVES, ignored::DIRECTIVES],
    provides: &[],
};

/// What a server says of HTTP/2.
#[derive(Clone, Debug, Default)]
pub struct OfServer {
    /// H2MaxSessionStreams.
    pub max_streams: Option<u32>,
    /// H2WindowSize, in bytes.
    pub window: Option<u32>,
    /// H2StreamTimeout, in milliseconds.
    pub stream_timeout_ms: Option<u64>,
    /// H2MaxDataFrameLen, in bytes; 0 for no bound.
    pub max_data_frame: Option<usize>,
    /// H2MaxHeaderBlockLen, in bytes; 0 for no bound.
    pub max_header_block: Option<usize>,
    /// H2MaxStreamErrors.
    pub max_stream_errors: Option<u32>,
    /// H2Direct.
    pub is_direct: Option<bool>,
    /// H2Upgrade.
    pub is_upgradable: Option<bool>,
    /// H2EarlyHints.
    pub sends_hints: Option<bool>,
}

/// What a server says, which hosts share.
pub type Server = Shared<OfServer>;

crate::unsaid!(OfServer);

impl Merge for OfServer {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; max_streams, window, stream_timeout_ms, max_data_frame,
            max_header_block, max_stream_errors, is_direct, is_upgradable, sends_hints)
    }
}

/// What a section says of early hints: the lines of the head of a 103 response.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    hints: Option<Arc<[u8]>>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    /// The hints of the innermost section hold, as in Apache (`h2_config_early_headers`).
    fn add(&mut self, over: &Self) {
        let Self { hints } = over;
        if hints.is_some() {
            self.hints.clone_from(hints);
        }
    }
}

/// Sets the variables of a request of HTTP/2, and has its early hints sent (mod_http2.c: h2_fixups;
/// h2_request.c).
pub fn prepare(request: &mut Request, server: &Server, section: &Directory) {
    if request.head.version != Version::Http2 {
        return;
    }
    let env = &mut request.resource.env;
    env.set("HTTP2", "on");
    for name in ["H2PUSH", "H2_PUSH"] {
        env.set(name, "off");
    }
    for name in ["H2_PUSHED", "H2_PUSHED_ON"] {
        env.set(name, "");
    }
    let stream = request.stream.to_string();
    env.set("H2_STREAM_TAG", &stream);
    env.set("H2_STREAM_ID", stream);
    let is_first = request.resource.depth == 0 && request.previous.is_none();
    if let Some(hints) = section.hints.as_deref().filter(|_| is_first)
        && server.sends_hints == Some(true)
    {
        let head = [b"HTTP/1.1 103 Early Hints\r\n", hints, b"\r\n"].concat();
        request.departure.send_interim(&head);
    }
}

/// A number as atoi reads it.
fn number(call: &Call<'_>) -> i64 {
    let text = argument(call, 0).trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let value: i64 = digits.get(..end).unwrap_or_default().parse().unwrap_or(0);
    let value = value.min(i64::from(i32::MAX));
    if text.starts_with('-') { -value } else { value }
}

/// A number that is at least `least`.
fn at_least(call: &Call<'_>, least: u32, fault: &str) -> Result<u32, String> {
    let value = u32::try_from(number(call)).ok().filter(|value| *value >= least);
    value.ok_or_else(|| fault.to_owned())
}

fn flag(call: &Call<'_>) -> Result<bool, String> {
    match argument(call, 0) {
        word if word.eq_ignore_ascii_case("on") => Ok(true),
        word if word.eq_ignore_ascii_case("off") => Ok(false),
        _ => Err("value must be On or Off".to_owned()),
    }
}

fn max_streams(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.http2.max_streams = Some(at_least(call, 1, "value must be > 0")?);
    Ok(())
}

fn window_size(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.http2.window = Some(at_least(call, 1024, "value must be >= 1024")?);
    Ok(())
}

fn stream_timeout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let time_us = parse_interval(argument(call, 0), 1_000_000).ok_or("Invalid timeout value")?;
    scope.server.http2.stream_timeout_ms = Some(time_us / 1000);
    Ok(())
}

const OR_LARGER: &str = "value must be 0 or larger";

fn max_data_frame(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.http2.max_data_frame = Some(at_least(call, 0, OR_LARGER)? as usize);
    Ok(())
}

fn max_header_block(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.http2.max_header_block = Some(at_least(call, 0, OR_LARGER)? as usize);
    Ok(())
}

fn max_stream_errors(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.http2.max_stream_errors = Some(at_least(call, 0, OR_LARGER)?);
    Ok(())
}

fn direct(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.http2.is_direct = Some(flag(call)?);
    Ok(())
}

fn upgrade(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let allows = flag(call)?;
    if scope.section_path.is_some() || scope.in_htaccess {
        ignored::remark(call, "it has no effect in a section, and acts for a server");
    } else {
        scope.server.http2.is_upgradable = Some(allows);
    }
    Ok(())
}

fn early_hints(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.http2.sends_hints = Some(flag(call)?);
    Ok(())
}

/// Adds a field to the early hints of the section.
fn add_hint(scope: &mut Scope, name: &str, value: &str) {
    let hints = &mut scope.directory.http2.hints;
    let line = format!("{name}: {value}\r\n");
    *hints = Some([hints.as_deref().unwrap_or_default(), line.as_bytes()].concat().into());
}

fn early_hint(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (name, value) = (argument(call, 0), argument(call, 1).trim_start());
    if name.is_empty() {
        return Err("Early Hint header name must not be empty".to_owned());
    }
    if value.is_empty() {
        return Err("Early Hint header value must not be empty/only space".to_owned());
    }
    let is_bad = |byte: u8| byte.is_ascii_control() && byte != b'\t';
    if value.bytes().any(is_bad) || name.bytes().any(|byte| is_bad(byte) || byte == b':') {
        return Err("Early Hint header value contains invalid characters".to_owned());
    }
    add_hint(scope, name, value);
    Ok(())
}

/// `[add] /path [critical]`.
fn push_resource(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let words: Vec<&str> = (0..3).map(|at| argument(call, at)).collect();
    let rest = match words.as_slice() {
        ["add", rest @ ..] => rest,
        [_, _, last] if !last.is_empty() => return Err("too many parameter".to_owned()),
        rest => rest,
    };
    let [path, last, ..] = rest else { return Ok(()) };
    if !last.is_empty() && !last.eq_ignore_ascii_case("critical") {
        return Err("unknown last parameter".to_owned());
    }
    if path.bytes().any(|byte| byte <= b' ' || matches!(byte, b'<' | b'>' | 0x7f)) {
        return Err("the path contains invalid characters".to_owned());
    }
    add_hint(scope, "Link", &format!("<{path}>; rel=preload"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn numbers_have_bounds() {
        for (line, fault) in [
            ("H2MaxSessionStreams 0", "value must be > 0"),
            ("H2MaxSessionStreams x", "value must be > 0"),
            ("H2WindowSize 1023", "value must be >= 1024"),
            ("H2MaxStreamErrors -1", OR_LARGER),
            ("H2MaxDataFrameLen -1", OR_LARGER),
            ("H2StreamTimeout x", "Invalid timeout value"),
            ("H2Direct maybe", "value must be On or Off"),
            ("H2EarlyHint Link \" \"", "Early Hint header value must not be empty/only space"),
            ("H2PushResource /a b", "unknown last parameter"),
            ("H2PushResource /a critical c", "too many parameter"),
            ("H2ProxyRequests on", "H2ProxyRequests on: there is no forward proxy"),
        ] {
            assert_eq!(apply(MODULE, line).err().as_deref(), Some(fault), "{line}");
        }
        let scope = apply(
            MODULE,
            "H2MaxSessionStreams 7\nH2WindowSize 2000\nH2StreamTimeout 500ms\nH2Direct off",
        )
        .unwrap();
        let said = &scope.server.http2;
        assert_eq!((said.max_streams, said.window), (Some(7), Some(2000)));
        assert_eq!((said.stream_timeout_ms, said.is_direct), (Some(500), Some(false)));
    }

    #[test]
    fn hints_of_a_section_are_lines_of_a_head() {
        let text = "H2EarlyHint Link \"</a.css>; rel=preload\"\nH2PushResource add /b.js critical";
        let scope = apply(MODULE, text).unwrap();
        let inner = Directory { hints: None };
        let merged = Directory::merge(&scope.directory.http2, &inner);
        assert_eq!(
            merged.hints.as_deref(),
            Some(&b"Link: </a.css>; rel=preload\r\nLink: </b.js>; rel=preload\r\n"[..])
        );
    }
}
