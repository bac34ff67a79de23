//! The check of a login: first the parameters of the Authorization field ([`begin`]), then the
//! response, the nonce and the nonce count ([`conclude`]), in Apache's order as far as the answer
//! depends on it (mod_auth_digest.c: authenticate_digest_user).

use super::answer::inform;
use super::clients::Use;
use super::{COMMON, Common, Directory, Said, md5, nonce, uri};
use crate::CoreSettings;
use crate::core::{public_name, public_port};
use crate::passwords::is_equal;
use evenkeel_message::{Level, Notice, Request, Status, UsedNonce, quoted};
use evenkeel_proto::{DigestField, DigestParameters};

/// The length of a response in hexadecimal digits (MD5_DIGEST_LEN).
const RESPONSE: usize = 32;

/// A new nonce is announced if the old one expires within this time, in microseconds
/// (NEXTNONCE_DELTA).
const NEXT_NONCE_US: i64 = 30_000_000;

/// The reason for which a login is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// 401 with a new challenge. `is_stale` says that the password was right and that the nonce
    /// alone must be replaced.
    Challenge {
        /// Whether the challenge contains `stale=true`.
        is_stale: bool,
    },
    /// This status without a challenge.
    Status(Status),
}

const CHALLENGE: Denial = Denial::Challenge { is_stale: false };
const STALE: Denial = Denial::Challenge { is_stale: true };

/// An Authorization field whose parameters fit the request and the section. The password is not
/// checked yet.
pub struct Proof {
    user: Vec<u8>,
    realm: Vec<u8>,
    pub(super) nonce: Vec<u8>,
    pub(super) uri: Vec<u8>,
    response: Vec<u8>,
    pub(super) sent: DigestParameters,
}

impl Proof {
    /// The user name.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// The realm of the user's hash.
    #[must_use]
    pub fn realm(&self) -> &[u8] {
        &self.realm
    }

    /// The hash over the parameters, which proves that its sender knows the hash of the user.
    pub(super) fn joined(&self, hash: &[u8], request_hash: &[u8]) -> Vec<u8> {
        let part = |value: &Option<Vec<u8>>| value.clone().unwrap_or_default();
        let DigestParameters { qop, count, cnonce, .. } = &self.sent;
        let (count, cnonce, qop) = (part(count), part(cnonce), part(qop));
        let parts = [hash, &self.nonce, &count, &cnonce, &qop, request_hash];
        md5(&[&parts.join(&b':')])
    }

    fn opaque(&self) -> &[u8] {
        self.sent.opaque.as_deref().unwrap_or_default()
    }
}

fn tell(request: &mut Request, number: u16, text: String) {
    request.notify(Notice::new("auth_digest", Level::Error, number, text));
}

fn path(request: &Request) -> String {
    quoted(&request.resource.path).into_owned()
}

/// Parses the Authorization field of a request and compares its parameters with the request and the
/// realm that is `expected`. A valid field sets the user of the request (mod_auth_digest.c:
/// authenticate_digest_user).
///
/// # Errors
/// The denial. The error log has its reason.
pub fn begin(
    request: &mut Request,
    expected: &[u8],
    core: CoreSettings<'_>,
) -> Result<Proof, Denial> {
    let sent = parameters(request)?;
    let lacks = sent.qop.is_some() && (sent.cnonce.is_none() || sent.count.is_none());
    let DigestParameters { username, realm, nonce, uri, response, .. } = &sent;
    let (Some(user), Some(realm), Some(nonce), Some(uri), Some(response), false) =
        (username, realm, nonce, uri, response, lacks)
    else {
        return Err(malformed(request));
    };
    if !nonce::is_formed(nonce) || response.len() != RESPONSE {
        return Err(malformed(request));
    }
    let (user, realm) = (user.clone(), realm.clone());
    let (nonce, uri, response) = (nonce.clone(), uri.clone(), response.clone());
    let proof = Proof { user, realm, nonce, uri, response, sent };
    request.resource.user = Some(proof.user.as_slice().into());
    request.resource.auth_type = Some(b"Digest"[..].into());
    check_uri(request, &proof.uri, core)?;
    if proof.sent.opaque.is_some() && client_of(&proof.sent).is_none() {
        let opaque = quoted(proof.opaque());
        tell(request, 1787, format!("received invalid opaque - got `{opaque}'"));
        return Err(CHALLENGE);
    }
    if proof.realm != expected {
        let (realm, expected) = (quoted(&proof.realm), quoted(expected));
        tell(request, 1788, format!("realm mismatch - got `{realm}' but expected `{expected}'"));
        return Err(CHALLENGE);
    }
    if let Some(algorithm) = proof.sent.algorithm.as_deref()
        && !algorithm.eq_ignore_ascii_case(b"MD5")
    {
        let (algorithm, path) = (quoted(algorithm), path(request));
        tell(request, 1789, format!("unknown algorithm `{algorithm}' received: {path}"));
        return Err(CHALLENGE);
    }
    Ok(proof)
}

/// The parameters of the Authorization field.
fn parameters(request: &mut Request) -> Result<DigestParameters, Denial> {
    let Some(field) = request.fields().whole(b"Authorization") else { return Err(CHALLENGE) };
    match DigestField::parse(&field) {
        DigestField::Parameters(parameters) => Ok(*parameters),
        DigestField::OtherScheme(scheme) => {
            let (scheme, path) = (quoted(scheme).into_owned(), path(request));
            drop(field);
            let text = format!("client used wrong authentication scheme `{scheme}': {path}");
            tell(request, 1781, text);
            Err(CHALLENGE)
        }
    }
}

fn malformed(request: &mut Request) -> Denial {
    let text = format!(
        "missing user, realm, nonce, uri, digest, cnonce, or nonce_count in authorization header: {}",
        path(request)
    );
    tell(request, 1782, text);
    CHALLENGE
}

/// The number of the client in the opaque value. Returns `None` if there is none.
pub(super) fn client_of(sent: &DigestParameters) -> Option<u64> {
    let opaque = std::str::from_utf8(sent.opaque.as_deref()?).ok()?;
    let is_number = opaque.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(opaque, 16).ok().filter(|number| is_number && *number != 0)
}

fn check_uri(request: &mut Request, own: &[u8], core: CoreSettings<'_>) -> Result<(), Denial> {
    let result = {
        let name = public_name(request, core);
        let host = uri::Host { name: &name, port: public_port(request, core) };
        uri::compare(own, request.head.target(), &host)
    };
    let target = quoted(request.head.target()).into_owned();
    let has_hack = || request.resource.env.contains(b"AuthDigestEnableQueryStringHack");
    match result {
        uri::Match::Same => return Ok(()),
        uri::Match::WithoutQuery if has_hack() => {
            let text = format!("applying AuthDigestEnableQueryStringHack to uri <{target}>");
            request.notify(Notice::new("auth_digest", Level::Info, 1784, text));
            return Ok(());
        }
        uri::Match::Malformed => {
            let text = format!("invalid uri <{}> in Authorization header", quoted(own));
            tell(request, 1783, text);
        }
        uri::Match::WithoutQuery | uri::Match::Other => {
            let own = quoted(own);
            let text = format!("uri mismatch - <{own}> does not match request-uri <{target}>");
            tell(request, 1786, text);
        }
    }
    Err(Denial::Status(Status::BAD_REQUEST))
}

/// The result of the providers.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// The stored hash of the user.
    Hash(&'a [u8]),
    /// No provider knows the user in the realm.
    Nobody,
    /// The provider denies the user.
    Denied,
}

/// Checks the response of a client with the hash of the user, and the nonce. A login that succeeds
/// adds Authentication-Info to the response. `why` returns the end of the message about a user or a
/// password that is refused: the lines that deny it.
///
/// # Errors
/// The denial. The error log has its reason.
pub fn conclude(
    request: &mut Request,
    settings: &Directory,
    proof: &Proof,
    found: Found<'_>,
    why: &dyn Fn() -> String,
) -> Result<(), Denial> {
    let said = settings.said();
    let Some(common) = COMMON.get() else {
        return Err(Denial::Status(Status::INTERNAL_SERVER_ERROR));
    };
    let (user, realm, path) = (quoted(&proof.user), quoted(&proof.realm), path(request));
    let hash = match found {
        Found::Hash(hash) => hash,
        Found::Nobody => {
            let text = format!("user `{user}' in realm `{realm}' not found: {path}; {}", why());
            tell(request, 1790, text);
            return Err(CHALLENGE);
        }
        Found::Denied => {
            let text =
                format!("user `{user}' in realm `{realm}' denied by provider: {path}; {}", why());
            tell(request, 1791, text);
            return Err(CHALLENGE);
        }
    };
    let qop = proof.sent.qop.as_deref();
    if !qop.is_some_and(|qop| qop.eq_ignore_ascii_case(b"auth")) {
        let qop = quoted(qop.unwrap_or(b"(null)"));
        let text = format!(
            "invalid or missing qop value '{qop}', RFC 2069 is no longer supported: {path}"
        );
        tell(request, 10560, text);
        return Err(CHALLENGE);
    }
    if !is_equal(&expected(request, proof, hash), &proof.response) {
        tell(request, 1794, format!("user {user}: password mismatch: {path}; {}", why()));
        return Err(CHALLENGE);
    }
    let issued = check_nonce(request, said, common, proof)?;
    let is_one_time = said.lifetime_us == 0;
    let is_used = |used: &UsedNonce| *used.nonce == *proof.nonce && used.is_one_time == is_one_time;
    let used = request.used_nonce.borrow().clone().filter(is_used);
    let next = match used {
        Some(used) => used.next,
        None => use_nonce(request, said, common, proof, issued)?.map(Box::from),
    };
    if said.needs_clients() {
        let nonce = proof.nonce.as_slice().into();
        let used = UsedNonce { nonce, is_one_time, next: next.clone() };
        *request.used_nonce.borrow_mut() = Some(used);
    }
    inform(request, proof, hash, next);
    Ok(())
}

/// The response of a client that knows the hash.
fn expected(request: &Request, proof: &Proof, hash: &[u8]) -> Vec<u8> {
    let request_hash = md5(&[request.head.method_text(), b":", &proof.uri]);
    proof.joined(hash, &request_hash)
}

/// Checks that the server has made the nonce, and that it has not expired. Returns its number.
fn check_nonce(
    request: &mut Request,
    said: &Said,
    common: &Common,
    proof: &Proof,
) -> Result<i64, Denial> {
    let nonce = quoted(&proof.nonce).into_owned();
    let Some(number) = common.secret.number(&proof.nonce, &proof.realm, proof.opaque()) else {
        // Apache's text ends with the hash that would be valid.
        let text = format!("invalid nonce {nonce} received - hash is not that of this server");
        tell(request, 1776, text);
        return Err(STALE);
    };
    if said.lifetime_us > 0 {
        let age_us = now_us(request).saturating_sub(number);
        if age_us < 0 {
            let text = format!("invalid nonce {nonce} received - user attempted time travel");
            tell(request, 1777, text);
            return Err(STALE);
        }
        if age_us > said.lifetime_us {
            let text = format!(
                "user {}: nonce expired ({}.00 seconds old - max lifetime {}.00) - sending new nonce",
                quoted(&proof.user),
                age_us / 1_000_000,
                said.lifetime_us / 1_000_000
            );
            request.notify(Notice::new("auth_digest", Level::Info, 1778, text));
            return Err(STALE);
        }
    }
    Ok(number)
}

pub(super) fn now_us(request: &Request) -> i64 {
    i64::try_from(request.time_us).unwrap_or(i64::MAX)
}

/// Uses up the nonce, or its count. Returns the nonce that the client shall use next, if it shall
/// use another.
fn use_nonce(
    request: &mut Request,
    said: &Said,
    common: &Common,
    proof: &Proof,
    issued: i64,
) -> Result<Option<Vec<u8>>, Denial> {
    let client = client_of(&proof.sent).unwrap_or_default();
    let make = |number| Some(common.secret.nonce(number, &proof.realm, proof.opaque()));
    if said.lifetime_us == 0 {
        let _only_a_number = count_of(request, proof)?;
        return match common.clients.use_nonce(client, issued) {
            Use::First(next) => Ok(make(next)),
            Use::Unknown => Err(unknown(request, client)),
            Use::Again(_) => {
                let (user, nonce) = (quoted(&proof.user), quoted(&proof.nonce));
                let text =
                    format!("user {user}: one-time-nonce {nonce} already used - sending new nonce");
                request.notify(Notice::new("auth_digest", Level::Info, 1779, text));
                Err(STALE)
            }
        };
    }
    if said.checks_count {
        return use_count(request, common, proof, client).map(|()| None);
    }
    let age_us = now_us(request).saturating_sub(issued);
    let is_old = said.lifetime_us > 0 && age_us > said.lifetime_us.saturating_sub(NEXT_NONCE_US);
    Ok(if is_old { make(now_us(request)) } else { None })
}

fn unknown(request: &mut Request, client: u64) -> Denial {
    let text = format!("client {client} is no longer known - sending new nonce");
    request.notify(Notice::new("auth_digest", Level::Info, 10618, text));
    STALE
}

/// The nonce count that the client sent.
fn count_of(request: &mut Request, proof: &Proof) -> Result<u64, Denial> {
    let count = proof.sent.count.as_deref().unwrap_or_default();
    let is_number = !count.is_empty() && count.iter().all(u8::is_ascii_hexdigit);
    let number = std::str::from_utf8(count).ok().filter(|_| is_number);
    number.and_then(|it| u64::from_str_radix(it, 16).ok()).ok_or_else(|| {
        tell(request, 1773, format!("invalid nc {} received - not a number", quoted(count)));
        CHALLENGE
    })
}

/// Uses up the nonce count.
fn use_count(
    request: &mut Request,
    common: &Common,
    proof: &Proof,
    client: u64,
) -> Result<(), Denial> {
    let number = count_of(request, proof)?;
    match common.clients.use_count(client, number) {
        Use::First(()) => Ok(()),
        Use::Unknown => Err(unknown(request, client)),
        Use::Again(highest) => {
            let text = format!(
                "Warning, possible replay attack: nonce-count check failed: {number} is not above \
                 {highest} for nonce {}",
                quoted(&proof.nonce)
            );
            tell(request, 1774, text);
            Err(CHALLENGE)
        }
    }
}
