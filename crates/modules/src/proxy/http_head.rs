//! The head of a request to an HTTP server (mod_proxy_http.c: `proxy_http_canon`; proxy_util.c:
//! `ap_proxy_create_hdrbrgd`).

use super::http::remove_hop_by_hop;
use super::{Directory, Rules, Via};
use crate::core::{CoreSettings, Tristate, public_name, public_port, server_name};
use evenkeel_message::{
    AddressText, Answer, Fields, Level, Name, Notice, Proxied, Request, Status, Version,
};
use evenkeel_proto::encode_request_line;
use std::io::Write as _;

/// How the body of the request is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// Content-Length.
    Exact(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

/// What the head of a request depends on, beside the request.
#[derive(Clone, Copy)]
pub struct Sender<'a> {
    /// The settings of the server.
    pub rules: &'a Rules,
    /// The settings of the section.
    pub section: &'a Directory,
    /// The settings of the core, for names.
    pub core: CoreSettings<'a>,
    /// The name and version of this server, for ProxyVia Full.
    pub software: &'a str,
    /// The framing of the body.
    pub framing: Framing,
    /// Whether the request asks the server for `100 Continue` (`Expect: 100-continue`).
    pub expects: bool,
    /// The protocol that the server is asked to switch to.
    pub upgrade: Option<&'a [u8]>,
    /// Whether the connection is kept.
    pub keeps: bool,
    /// The version of the request.
    pub version: Version,
}

/// The target of a request to an HTTP server: the path, and the query of the client.
/// `keeps_slashes` says that encoded slashes of the path are sent as they are (AllowEncodedSlashes
/// NoDecode; proxy_util.c: PROXY_CANONENC_NOENCODEDSLASHENCODING).
///
/// # Errors
/// 403 if the path or the query contains a space or a control byte, which would end the line.
pub fn target_text(
    request: &mut Request,
    proxied: &Proxied,
    keeps_slashes: bool,
) -> Result<Vec<u8>, Answer> {
    let is_odd = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
    let mut target = match keeps_slashes && !proxied.is_raw {
        true => with_slashes(&proxied.path),
        false => proxied.path.clone(),
    };
    if target.iter().any(is_odd) {
        let text = "To be forwarded path contains control characters or spaces";
        request.notify(Notice::new("proxy_http", Level::Error, 10415, text));
        return Err(Status::FORBIDDEN.into());
    }
    // The path of a rule with `nocanon` contains the query.
    let has_query = proxied.is_raw && target.contains(&b'?');
    if !has_query && let Some(query) = &request.resource.query {
        if query.iter().any(is_odd) {
            let text = "To be forwarded query string contains control characters or spaces";
            request.notify(Notice::new("proxy_http", Level::Error, 10408, text));
            return Err(Status::FORBIDDEN.into());
        }
        target.push(b'?');
        target.extend_from_slice(query);
    }
    Ok(target)
}

/// The path with `%252F` as `%2F`.
fn with_slashes(mut path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    while let Some(at) = memchr::memmem::find(path, b"%252") {
        let (before, rest) = path.split_at_checked(at).unwrap_or_default();
        out.extend_from_slice(before);
        let is_slash = matches!(rest.get(4), Some(b'F' | b'f'));
        out.extend_from_slice(if is_slash { b"%2" } else { b"%252" });
        path = rest.get(4..).unwrap_or_default();
    }
    out.extend_from_slice(path);
    out
}

/// The head of a request to an HTTP server.
///
/// # Errors
/// 400 if the method cannot be sent.
pub fn request_head(
    request: &Request,
    proxied: &Proxied,
    target: &[u8],
    sender: &Sender<'_>,
) -> Result<Vec<u8>, Answer> {
    let fields = fields(request, sender);
    let mut out = Vec::with_capacity(fields.bytes() + target.len() + 256);
    if !encode_request_line(&mut out, request.method_name(), target, sender.version) {
        return Err(Status::BAD_REQUEST.into());
    }
    out.extend_from_slice(b"Host: ");
    match request.fields().first(Name::Host) {
        Some(host) if sender.section.preserve_host == Some(true) && is_line(host) => {
            out.extend_from_slice(host);
        }
        None if sender.section.preserve_host == Some(true) => {
            out.extend_from_slice(server_name(sender.core.server).as_bytes());
        }
        _ => proxied.target.write_authority(&mut out),
    }
    out.extend_from_slice(b"\r\n");
    for (_, line) in fields.lines() {
        out.extend_from_slice(line);
    }
    // Writing to a vector cannot fail.
    let _ = match sender.framing {
        Framing::None => Ok(()),
        Framing::Exact(length) => write!(out, "Content-Length: {length}\r\n"),
        Framing::Chunked => write!(out, "Transfer-Encoding: chunked\r\n"),
    };
    if let Some(upgrade) = sender.upgrade {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: ");
        out.extend_from_slice(upgrade);
        out.extend_from_slice(b"\r\n\r\n");
        return Ok(out);
    }
    out.extend_from_slice(match (sender.version, sender.keeps) {
        (Version::Http11, true) => b"Connection: Keep-Alive\r\n\r\n",
        (Version::Http11, false) => b"Connection: close\r\n\r\n",
        _ => b"\r\n",
    });
    Ok(out)
}

/// Whether a value may stand in a line.
fn is_line(value: &[u8]) -> bool {
    !value.iter().any(u8::is_ascii_control)
}

/// The fields of the request, without those that `request_head` writes itself.
fn fields(request: &Request, sender: &Sender<'_>) -> Fields {
    let mut fields = request.fields().clone();
    let received = &request.head.fields;
    let host = fields.first(Name::Host).map(<[u8]>::to_vec);
    // A client does not remove what the configuration has set (compare CVE-2022-31813).
    remove_hop_by_hop(&mut fields, |fields, name| fields.joined(name) != received.joined(name));
    for name in [Name::Host, Name::ContentLength] {
        fields.remove(name);
    }
    fields.remove("HTTP2-Settings");
    if !sender.expects {
        fields.remove(Name::Expect);
    }
    if request.resource.depth > 0 {
        for name in [
            Name::IfMatch,
            Name::IfModifiedSince,
            Name::IfRange,
            Name::IfUnmodifiedSince,
            Name::IfNoneMatch,
        ] {
            fields.remove(name);
        }
    }
    match sender.rules.via {
        None | Some(Via::Off) => {}
        Some(Via::Block) => {
            fields.remove(Name::Via);
        }
        Some(Via::On | Via::Full) => fields.merge(Name::Via, via(request, sender)),
    }
    if sender.section.add_headers != Some(false) {
        let client = AddressText::new(request.peer.client_ip());
        fields.merge(Name::XForwardedFor, client.as_bytes());
        if let Some(host) = host {
            fields.merge("X-Forwarded-Host", host);
        }
        fields.merge("X-Forwarded-Server", server_name(sender.core.server));
    }
    fields
}

/// The element of Via for this server.
pub(super) fn via(request: &Request, sender: &Sender<'_>) -> Vec<u8> {
    let version = request.head.version.text();
    let mut via = version.strip_prefix("HTTP/").unwrap_or(version).as_bytes().to_vec();
    via.push(b' ');
    // The name that the client has used is none of this server.
    match sender.core.directory.canonical_name.unwrap_or_default() {
        Tristate::Off => via.extend_from_slice(server_name(sender.core.server).as_bytes()),
        _ => via.extend_from_slice(&public_name(request, sender.core)),
    }
    let port = public_port(request, sender.core);
    // Writing to a vector cannot fail.
    if port != request.default_port() {
        let _ = write!(via, ":{port}");
    }
    if sender.rules.via == Some(Via::Full) {
        let software = sender.software.split(' ').next().unwrap_or_default();
        let _ = write!(via, " ({software})");
    }
    via
}
