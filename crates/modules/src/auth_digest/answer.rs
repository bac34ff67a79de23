//! The fields of responses: the challenge of a 401 response, and Authentication-Info of the
//! response to a login.

use super::login::{Proof, client_of, now_us};
use super::{COMMON, Directory, md5};
use evenkeel_message::{Fields, Request};
use evenkeel_proto::{DigestField, DigestParameters, escape_quotes};

/// Adds Authentication-Info, which proves to the client that the server knows the password
/// (mod_auth_digest.c: add_auth_info). Subrequests and internal redirects have none.
pub(super) fn inform(request: &mut Request, proof: &Proof, hash: &[u8], next: Option<Box<[u8]>>) {
    if request.resource.depth > 0 || request.previous.is_some() {
        return;
    }
    let response = proof.joined(hash, &md5(&[b":", &proof.uri]));
    let cnonce = proof.sent.cnonce.as_deref().map(escape_quotes);
    let mut info = Vec::new();
    for (start, value, end) in [
        ("rspauth=\"", Some(&response[..]), "\""),
        (", nextnonce=\"", next.as_deref(), "\""),
        (", cnonce=\"", cnonce.as_deref(), "\""),
        (", nc=", proof.sent.count.as_deref(), ""),
        (", qop=", proof.sent.qop.as_deref(), ""),
    ] {
        if let Some(value) = value {
            info.extend_from_slice(start.as_bytes());
            info.extend_from_slice(value);
            info.extend_from_slice(end.as_bytes());
        }
    }
    request.resource.fields.merge("Authentication-Info", info);
}

/// The WWW-Authenticate field of a 401 response (mod_auth_digest.c: note_digest_auth_failure).
/// `realm` is AuthName with its quotation marks escaped.
#[must_use]
pub fn challenge(request: &Request, settings: &Directory, realm: &[u8], is_stale: bool) -> Fields {
    let mut fields = Fields::new();
    let Some(common) = COMMON.get() else { return fields };
    let said = settings.said();
    let sent = match request.fields().whole(b"Authorization").as_deref().map(DigestField::parse) {
        Some(DigestField::Parameters(sent)) => *sent,
        _ => DigestParameters::default(),
    };
    let sent_client = client_of(&sent);
    let is_known = sent_client.is_some_and(|client| common.clients.has(client));
    let is_stale = is_stale || sent.opaque.is_some() && !is_known;
    let needs_new = said.needs_clients() || sent.opaque.is_some() && !is_known;
    let (mut number, mut opaque) = (now_us(request), Vec::new());
    if said.lifetime_us == 0 {
        let (client, nonce) = common.clients.add_one_time();
        (number, opaque) = (nonce, format!("{client:x}").into_bytes());
    } else if needs_new {
        opaque = format!("{:x}", common.clients.add_counting()).into_bytes();
    } else if let Some(sent) = sent.opaque.filter(|_| is_known) {
        opaque = sent;
    }
    let nonce = common.secret.nonce(number, realm, &opaque);
    let mut value =
        [b"Digest realm=\"", realm, b"\", nonce=\"", &nonce, b"\", algorithm=MD5"].concat();
    if !opaque.is_empty() {
        value.extend_from_slice(&[b", opaque=\"", &opaque[..], b"\""].concat());
    }
    if !said.domains.is_empty() {
        value.extend_from_slice(format!(", domain=\"{}\"", said.domains.join(" ")).as_bytes());
    }
    if is_stale {
        value.extend_from_slice(b", stale=true");
    }
    value.extend_from_slice(b", qop=\"auth\"");
    fields.set("WWW-Authenticate", value);
    fields
}
