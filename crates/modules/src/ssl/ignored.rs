//! Directives that are accepted and do nothing, each with its reason, and those that are refused
//! because leaving them out would let in what the administrator keeps out.

use super::directives::remark;
use crate::{Directive, DirectiveResult, Scope, Where, directive, global_directive};
use evenkeel_config::{Call, GlobalCall, Shape};

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    global_directive("SSLCryptoDevice", Shape::One, "builtin", "SSL external Crypto Device usage ('builtin', '...')", crypto_device),
    global_directive("SSLRandomSeed", Shape::TwoOrThree, "", "SSL Pseudo Random Number Generator (PRNG) seeding source ('startup|connect builtin|file:/path|exec:/path [bytes]')", random_seed),
    directive("SSLFIPS", Where::SERVER, Shape::Flag, "off", "Enable FIPS-140 mode (`on', `off')", fips),
    directive("SSLCompression", Where::SERVER, Shape::Flag, "off", "Enable SSL level compression (`on', `off')", flag),
    directive("SSLInsecureRenegotiation", Where::SERVER, Shape::Flag, "off", "Enable support for insecure renegotiation", flag),
    directive("SSLRenegBufferSize", Where::AUTH_CONFIG, Shape::One, "131072", "Configure the amount of memory that will be used for buffering the request body if a per-location SSL renegotiation is required due to changed access control requirements", silent),
    directive("SSLSRPVerifierFile", Where::SERVER, Shape::One, "", "SRP verifier file ('/path/to/file' - created by srptool)", srp),
    directive("SSLSRPUnknownUserSeed", Where::SERVER, Shape::One, "", "SRP seed for unknown users (to avoid leaking a user's existence) ('some secret text')", srp),
    directive("SSLOCSPEnable", Where::SERVER, Shape::Raw, "off", "Enable use of OCSP to verify certificate revocation mode ('on', 'leaf', 'off')", ocsp_enable),
    directive("SSLOCSPDefaultResponder", Where::SERVER, Shape::One, "", "URL of the default OCSP Responder", no_ocsp),
    directive("SSLOCSPOverrideResponder", Where::SERVER, Shape::Flag, "off", "Force use of the default responder URL ('on', 'off')", no_ocsp),
    directive("SSLOCSPResponseTimeSkew", Where::SERVER, Shape::One, "300", "Maximum time difference in OCSP responses", no_ocsp),
    directive("SSLOCSPResponseMaxAge", Where::SERVER, Shape::One, "-1", "Maximum age of OCSP responses", no_ocsp),
    directive("SSLOCSPResponderTimeout", Where::SERVER, Shape::One, "10", "OCSP responder query timeout", no_ocsp),
    directive("SSLOCSPUseRequestNonce", Where::SERVER, Shape::Flag, "on", "Whether OCSP queries use a nonce or not ('on', 'off')", no_ocsp),
    directive("SSLOCSPProxyURL", Where::SERVER, Shape::One, "", "Proxy URL to use for OCSP requests", no_ocsp),
    directive("SSLOCSPNoVerify", Where::SERVER, Shape::Flag, "off", "Do not verify OCSP Responder certificate ('on', 'off')", no_ocsp),
    directive("SSLOCSPResponderCertificateFile", Where::SERVER, Shape::One, "", "Trusted OCSP responder certificates(`/path/to/file' - PEM encoded certificates)", no_ocsp),
    global_directive("SSLStaplingCache", Shape::One, "", "SSL Stapling Response Cache storage (`dbm:/path/to/file')", no_stapling_globally),
    directive("SSLUseStapling", Where::SERVER, Shape::Flag, "off", "SSL switch for the OCSP Stapling protocol (`on', `off')", use_stapling),
    directive("SSLStaplingResponseTimeSkew", Where::SERVER, Shape::One, "300", "SSL stapling option for maximum time difference in OCSP responses", silent),
    directive("SSLStaplingResponderTimeout", Where::SERVER, Shape::One, "10", "SSL stapling option for OCSP responder timeout", silent),
    directive("SSLStaplingResponseMaxAge", Where::SERVER, Shape::One, "-1", "SSL stapling option for maximum age of OCSP responses", silent),
    directive("SSLStaplingStandardCacheTimeout", Where::SERVER, Shape::One, "3600", "SSL stapling option for normal OCSP Response Cache Lifetime", silent),
    directive("SSLStaplingReturnResponderErrors", Where::SERVER, Shape::Flag, "on", "SSL stapling switch to return Status Errors Back to Client(`on', `off')", silent),
    directive("SSLStaplingFakeTryLater", Where::SERVER, Shape::Flag, "on", "SSL stapling switch to send tryLater response to client on error (`on', `off')", silent),
    directive("SSLStaplingErrorCacheTimeout", Where::SERVER, Shape::One, "600", "SSL stapling option for OCSP Response Error Cache Lifetime", silent),
    directive("SSLStaplingForceURL", Where::SERVER, Shape::One, "", "SSL stapling option to Force the OCSP Stapling URL", silent),
    directive("SSLLog", Where::ANYWHERE, Shape::Raw, "", "SSLLog directive is no longer supported - use ErrorLog.", log),
    directive("SSLLogLevel", Where::ANYWHERE, Shape::Raw, "", "SSLLogLevel directive is no longer supported - use LogLevel.", log_level),
];

fn silent(_: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    Ok(())
}

fn crypto_device(_: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    match call.first() {
        "builtin" => Ok(()),
        other => Err(format!(
            "SSLCryptoDevice: {other}: there is no device support; cryptography runs on the CPU"
        )),
    }
}

fn random_seed(_: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    match call.first() {
        word if word.eq_ignore_ascii_case("startup") || word.eq_ignore_ascii_case("connect") => {
            Ok(())
        }
        word => Err(format!("SSLRandomSeed: invalid context: `{word}'")),
    }
}

fn fips(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match call.flag {
        true => Err("SSLFIPS on is not there: the cryptography is not FIPS-validated".to_owned()),
        false => Ok(()),
    }
}

fn flag(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    if call.flag {
        let text = format!("{} on has no effect: there is nothing of the kind", call.name);
        remark(call, text);
    }
    Ok(())
}

fn srp(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    Err(format!("{}: there is no SRP; clients log in by certificate or by password", call.name))
}

fn ocsp_enable(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = call.raw.split_whitespace().next().unwrap_or_default();
    if word.eq_ignore_ascii_case("off") {
        return Ok(());
    }
    Err("SSLOCSPEnable: certificates of clients are not looked up by OCSP; use \
         SSLCARevocationFile and SSLCARevocationCheck"
        .to_owned())
}

fn no_ocsp(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    remark(call, format!("{} has no effect: there is no OCSP", call.name));
    Ok(())
}

fn use_stapling(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    if call.flag {
        let text = "SSLUseStapling has no effect: handshakes carry no OCSP response";
        remark(call, text);
    }
    Ok(())
}

fn no_stapling_globally(_: &mut Scope, _: &GlobalCall<'_>) -> DirectiveResult {
    Ok(())
}

fn log(_: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    Err("SSLLog directive is no longer supported - use ErrorLog.".to_owned())
}

fn log_level(_: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    Err("SSLLogLevel directive is no longer supported - use LogLevel.".to_owned())
}
