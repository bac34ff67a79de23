//! The response to a client, made of that of an HTTP server (mod_proxy_http.c:
//! `ap_proxy_http_process_response`).

use super::http::remove_hop_by_hop;
use super::http_head::{Sender, via};
use super::{Via, public_cookie, public_location};
use crate::core::public_url;
use evenkeel_message::{
    Body, Fields, Name, Request, Response, Status, eq_ignore_case, http_date, parse_http_date,
};
use evenkeel_proto::OriginHead;
use evenkeel_sys::clock;
use std::io::Write as _;

/// The note on a request whose response keeps the fields Date and Server of another server.
const PROXIED: &str = "proxied";

/// Makes the response.
pub fn respond(
    request: &mut Request,
    head: OriginHead,
    body: Body,
    sender: &Sender<'_>,
) -> Response {
    let status = Status::new(head.status).unwrap_or(Status::BAD_GATEWAY);
    let mut response = Response::new(status);
    response.status_line = Some(format!("{} {}", head.status, head.reason).into());
    let mut fields = head.fields;
    let protocol = fields.joined(Name::Upgrade);
    remove_hop_by_hop(&mut fields, |_, _| false);
    if !request.resource.env.contains("Proxy-Chain-Auth") {
        fields.remove("Proxy-Authenticate");
    }
    if let Some(media_type) = fields.first(Name::ContentType) {
        request.resource.content.media_type = Some(media_type.into());
    }
    response.fields = for_client(request, &fields, sender);
    if matches!(sender.rules.via, Some(Via::On | Via::Full)) {
        response.fields.add(Name::Via, via(request, sender));
    }
    if let Some(protocol) = protocol.filter(|_| head.status == 101) {
        response.fields.set(Name::Upgrade, protocol);
        response.fields.set(Name::Connection, "Upgrade");
    }
    response.is_own_body = true;
    response.is_whole = true;
    if !response.status.is_bodiless() {
        response.body = body;
    }
    request.resource.notes.set(PROXIED, "1");
    response
}

/// The fields with their dates in the form of RFC 9110 and their addresses for clients.
fn for_client(request: &Request, fields: &Fields, sender: &Sender<'_>) -> Fields {
    let mut out = Fields::with_capacity(fields.len(), fields.bytes());
    let absolute = |path: &[u8]| public_url(request, sender.core, path);
    for (name, value) in fields.iter() {
        let is = |other: &str| eq_ignore_case(name, other.as_bytes());
        let changed = match () {
            () if is("Set-Cookie") => public_cookie(sender.section, value),
            () if ["Location", "Content-Location", "URI", "Destination"].into_iter().any(is) => {
                public_location(sender.section, &sender.rules.balancers, value, absolute)
            }
            () if ["Date", "Expires", "Last-Modified"].into_iter().any(is) => {
                let now = i64::try_from(clock::realtime_us() / 1_000_000).unwrap_or(i64::MAX);
                parse_http_date(value, now).map(|time| http_date(time).to_vec())
            }
            () => None,
        };
        out.add(name, changed.as_deref().unwrap_or(value));
    }
    out
}

/// The head of an interim response for the client.
#[must_use]
pub fn encode_interim(head: &OriginHead) -> Vec<u8> {
    let mut fields = head.fields.clone();
    remove_hop_by_hop(&mut fields, |_, _| false);
    fields.remove(Name::ContentLength);
    let mut out = Vec::with_capacity(fields.bytes() + 64);
    // Writing to a vector cannot fail.
    let _ = write!(out, "HTTP/1.1 {} {}\r\n", head.status, head.reason);
    for (_, line) in fields.lines() {
        out.extend_from_slice(line);
    }
    out.extend_from_slice(b"\r\n");
    out
}
