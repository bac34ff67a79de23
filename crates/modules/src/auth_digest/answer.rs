//! The fields of responses: the challenge of a 401 response, and Authentication-Info of the response
//! to a login.

use super::login::{Proof, client_of, now_us};
use super::{COMMON, Directory, Said, md5};
use evenkeel_message::{Fields, Request};
use evenkeel_proto::{DigestField, DigestParameters, escape_quotes};

/// Adds Authentication-Info, which proves to the client that the server knows the password
/// (mod_auth_digest.c: add_auth_info). Subrequests and internal redirects have none.
pub(super) fn inform(
    request: &mut Request,
    said: &Said,
    proof: &Proof,
    hash: &[u8],
    next: Option<Box<[u8]>>,
) {
    if request.resource.depth > 0 || request.previous.is_some() {
        return;
    }
    let DigestParameters { qop, count, cnonce, .. } = &proof.sent;
    let mut info = Vec::new();
    let with_response = !said.has_no_qop() || qop.is_some();
    if with_response {
        info.extend_from_slice(b"rspauth=\"");
        info.extend_from_slice(&rspauth(proof, hash));
        info.push(b'"');
    }
    if let Some(next) = next {
        info.extend_from_slice(b", nextnonce=\"");
        info.extend_from_slice(&next);
        info.push(b'"');
    }
    if with_response {
        let cnonce = cnonce.as_deref().map(escape_quotes);
        for (start, value, end) in [
            (", cnonce=\"", cnonce.as_deref(), "\""),
            (", nc=", count.as_deref(), ""),
            (", qop=", qop.as_deref(), ""),
        ] {
            if let Some(value) = value {
                info.extend_from_slice(start.as_bytes());
                info.extend_from_slice(value);
                info.extend_from_slice(end.as_bytes());
            }
        }
    }
    if !info.is_empty() {
        request.resource.fields.merge("Authentication-Info", info);
    }
}

/// The response of the server. As in Apache, its text ends where the client has left out a part.
fn rspauth(proof: &Proof, hash: &[u8]) -> Vec<u8> {
    let uri_hash = md5(&[b":", &proof.uri]);
    let DigestParameters { qop, count, cnonce, .. } = &proof.sent;
    let qop = qop.as_deref().unwrap_or_default();
    match (count, cnonce) {
        (None, _) => md5(&[hash, b":", &proof.nonce, b":"]),
        (Some(count), None) => md5(&[hash, b":", &proof.nonce, b":", count, b":"]),
        (Some(count), Some(cnonce)) => {
            md5(&[hash, b":", &proof.nonce, b":", count, b":", cnonce, b":", qop, b":", &uri_hash])
        }
    }
}

/// The WWW-Authenticate field of a 401 response (mod_auth_digest.c: note_digest_auth_failure).
/// `realm` is AuthName with its quotation marks escaped.
#[must_use]
pub fn challenge(request: &Request, settings: &Directory, realm: &[u8], is_stale: bool) -> Fields {
    let mut fields = Fields::new();
    let Some(common) = COMMON.get() else { return fields };
    let unset;
    let said = match settings.said.as_deref() {
        Some(said) => said,
        None => {
            unset = Said::default();
            &unset
        }
    };
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
    let own_realm = said.realm.as_deref().unwrap_or_default();
    let nonce = common.secret.nonce(number, own_realm, &opaque);
    let algorithm = said.algorithm.as_bytes();
    let mut value =
        [b"Digest realm=\"", realm, b"\", nonce=\"", &nonce, b"\", algorithm=", algorithm].concat();
    if !opaque.is_empty() {
        value.extend_from_slice(&[b", opaque=\"", &opaque[..], b"\""].concat());
    }
    if !said.domains.is_empty() {
        value.extend_from_slice(format!(", domain=\"{}\"", said.domains.join(" ")).as_bytes());
    }
    if is_stale {
        value.extend_from_slice(b", stale=true");
    }
    if said.qop.is_empty() {
        value.extend_from_slice(b", qop=\"auth\"");
    } else if !said.has_no_qop() {
        value.extend_from_slice(format!(", qop=\"{}\"", said.qop.join(",")).as_bytes());
    }
    fields.set("WWW-Authenticate", value);
    fields
}
