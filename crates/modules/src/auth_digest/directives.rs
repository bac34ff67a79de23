//! mod_auth_digest's directives (mod_auth_digest.c: digest_cmds).

use super::{LEAST_SIZE, Said};
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use std::sync::Arc;

const AUTH: Where = Where::AUTH_CONFIG;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("AuthDigestProvider", AUTH, Shape::Iterate, "file", "specify the auth providers for a directory or location", provider).or_left_out(touch),
    directive("AuthDigestQop", AUTH, Shape::Iterate, "auth", "A list of quality-of-protection options", qop).or_left_out(touch),
    directive("AuthDigestNonceLifetime", AUTH, Shape::One, "300", "Maximum lifetime of the server nonce (seconds)", nonce_lifetime).or_left_out(touch),
    directive("AuthDigestNcCheck", AUTH, Shape::Flag, "Off", "Whether or not to check the nonce-count sent by the client", nc_check).or_left_out(touch),
    directive("AuthDigestAlgorithm", AUTH, Shape::One, "MD5", "The algorithm used for the hash calculation", algorithm).or_left_out(touch),
    directive("AuthDigestDomain", AUTH, Shape::Iterate, "", "A list of URI's which belong to the same protection space as the current URI", domain).or_left_out(touch),
    directive("AuthDigestShmemSize", Where::SERVER, Shape::One, "1000", "The amount of shared memory to allocate for keeping track of clients", shmem_size),
];

/// mod_auth_digest.
pub const MODULE: Module = Module {
    file: "mod_auth_digest.c",
    identifier: "auth_digest_module",
    active: Active::Usually,
    page: "mod_auth_digest",
    subject: "Logging in with a password that is not sent.",
    remarks: &[
        "As in Apache, a section that has a directive of this module inherits no setting of this \
         module from the outer sections.",
        "The secret of the nonces is made when the server starts and stays the same over reloads, \
         so that a nonce of an old child process is valid in a new one. A restart makes a new \
         secret.",
        "Under AuthDigestNcCheck On, each nonce count is accepted once. Browsers send the requests \
         of several connections out of order, so a count may be up to 31 smaller than the highest \
         one so far. Apache accepts only a count above the highest one. The count 0 is never \
         accepted.",
        "The table of clients for AuthDigestNcCheck and AuthDigestNonceLifetime 0 is shared by all \
         child processes, because each connection may be served by another one: with a table in \
         each process, a recorded request would be accepted once in each. The table holds at least \
         the 4096 newest clients, however small AuthDigestShmemSize is. It is made when the server \
         starts: a changed AuthDigestShmemSize has no effect in a reload, nor has one in a virtual \
         host.",
        "Under AuthDigestNcCheck On, every challenge has a new opaque value, and no nextnonce is \
         sent. A client whose nonce expires receives stale=true.",
        "A user cannot log in if the third field of the user's line in the file is not a hash as \
         htdigest writes it. The error log names the line.",
        "The error log line about an invalid nonce does not contain the hash that would be valid.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The settings that the directives of a section fill. They begin with the defaults, and not with
/// those of the outer section, because Apache's module has no function that merges them.
fn said(scope: &mut Scope) -> &mut Said {
    Arc::make_mut(scope.directory.auth_digest.said.get_or_insert_default())
}

/// The effect of a directive that is skipped: the section has settings of its own.
fn touch(scope: &mut Scope) {
    let _ = said(scope);
}

fn provider(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = argument(call, 0);
    let source = scope.global().active.named_authn_source(name)?;
    if source.provider.check_realm.is_none() {
        return Err(format!("The '{name}' Authn provider doesn't support Digest Authentication"));
    }
    said(scope).providers.push(source);
    Ok(())
}

fn qop(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    if !argument(call, 0).eq_ignore_ascii_case("auth") {
        return Err("AuthDigestQop is deprecated: only 'auth' is supported".into());
    }
    touch(scope);
    Ok(())
}

/// Parses a number as strtol(3) does. Returns the number, which is saturated, and the rest.
fn number(text: &str) -> (i64, &str) {
    let bare = text.trim_start_matches(is_space);
    let unsigned = bare.strip_prefix(['-', '+']).unwrap_or(bare);
    let end = unsigned.find(|char: char| !char.is_ascii_digit()).unwrap_or(unsigned.len());
    let (digits, rest) = unsigned.split_at(end);
    if digits.is_empty() {
        return (0, text);
    }
    let number = digits.parse::<i64>().unwrap_or(i64::MAX);
    (if bare.starts_with('-') { -number } else { number }, rest)
}

/// White space of C's isspace.
fn is_space(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

fn nonce_lifetime(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    let (seconds, rest) = number(word);
    if !rest.is_empty() && !rest.starts_with(is_space) {
        return Err(format!("Invalid time in AuthDigestNonceLifetime: {word}"));
    }
    said(scope).lifetime_us = seconds.saturating_mul(1_000_000);
    Ok(())
}

fn nc_check(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).checks_count = call.flag;
    Ok(())
}

fn algorithm(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    if !word.eq_ignore_ascii_case("MD5") {
        return Err(format!("Unsupported algorithm in AuthDigestAlgorithm: {word}"));
    }
    touch(scope);
    Ok(())
}

fn domain(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).domains.push(argument(call, 0).into());
    Ok(())
}

fn shmem_size(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    let (number, rest) = number(word);
    let rest = rest.trim_start_matches(is_space);
    let unit = match rest.bytes().next() {
        None | Some(b'b' | b'B') => 1,
        Some(b'k' | b'K') => 1 << 10,
        Some(b'm' | b'M') => 1 << 20,
        Some(_) => return Err(format!("Invalid size in AuthDigestShmemSize: {word}")),
    };
    // Apache multiplies without a check too.
    let size = number.wrapping_mul(unit);
    if size < LEAST_SIZE {
        return Err(format!("size in AuthDigestShmemSize too small: {size} < {LEAST_SIZE}"));
    }
    if let Some(call) = call.as_global() {
        scope.global_mut(&call).auth_digest.size = usize::try_from(size).ok();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_strtols() {
        for (text, want) in [
            ("300", (300, "")),
            (" -7 x", (-7, " x")),
            ("+1k", (1, "k")),
            ("x", (0, "x")),
            ("", (0, "")),
            ("- 1", (0, "- 1")),
            ("99999999999999999999", (i64::MAX, "")),
        ] {
            assert_eq!(number(text), want, "{text}");
        }
    }
}
