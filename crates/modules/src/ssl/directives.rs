//! The directives of mod_ssl that act.

use super::access::{REQUIRE_TLS, REQUIRE_VERIFIED};
use super::{Bound, Dialog, Named, OfServer, Options, Policy, Required, Store, Verify};
use super::{ignored, proxy};
use crate::{
    Active, Directive, DirectiveResult, Module, Provided, Scope, Where, argument, directive,
    global_directive,
};
use evenkeel_config::{Call, GlobalCall, Notice, Overrides, Shape, words};
use evenkeel_tls::{Revocation, Selection, Versions, parse_ciphers, parse_new_ciphers};
use std::sync::Arc;

/// In servers and sections, and in .htaccess under AuthConfig (SSL_CMD_ALL).
const SERVER_AND_SECTIONS: Where = Where::CONFIG.or(Overrides::AUTH_CONFIG);

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    global_directive("SSLPassPhraseDialog", Shape::One, "builtin", "SSL dialog mechanism for the pass phrase query ('builtin', '|/path/to/pipe_program', or 'exec:/path/to/cgi_program')", dialog),
    global_directive("SSLSessionCache", Shape::One, "none", "SSL Session Cache storage ('none', 'nonenotnull', 'dbm:/path/to/file')", session_cache),
    global_directive("SSLVHostSNIPolicy", Shape::One, "secure", "SSL VirtualHost SNI compatibility policy setting", policy),
    directive("SSLEngine", Where::SERVER, Shape::One, "off", "SSL switch for the protocol engine ('on', 'off')", engine),
    directive("SSLCipherSuite", SERVER_AND_SECTIONS, Shape::OneOrTwo, "DEFAULT", "Colon-delimited list of permitted SSL Ciphers, optional preceded by protocol identifier ('XXX:...:XXX' - see manual)", cipher_suite),
    directive("SSLCertificateFile", Where::SERVER, Shape::One, "", "SSL Server Certificate file ('/path/to/file' - PEM or DER encoded)", certificate),
    directive("SSLCertificateKeyFile", Where::SERVER, Shape::One, "", "SSL Server Private Key file ('/path/to/file' - PEM or DER encoded)", key),
    directive("SSLCertificateChainFile", Where::SERVER, Shape::One, "", "SSL Server CA Certificate Chain file ('/path/to/file' - PEM encoded)", chain),
    directive("SSLSessionTicketKeyFile", Where::SERVER, Shape::One, "", "TLS session ticket encryption/decryption key file (RFC 5077) ('/path/to/file' - file with 48 bytes of random data)", ticket_key),
    directive("SSLCACertificatePath", Where::CONFIG, Shape::One, "", "SSL CA Certificate path ('/path/to/dir' - contains PEM encoded files)", authority_path),
    directive("SSLCACertificateFile", Where::CONFIG, Shape::One, "", "SSL CA Certificate file ('/path/to/file' - PEM encoded)", authority_file),
    directive("SSLCADNRequestPath", Where::SERVER, Shape::One, "", "SSL CA Distinguished Name path ('/path/to/dir' - symlink hashes to PEM of acceptable CA names to request)", name_path),
    directive("SSLCADNRequestFile", Where::SERVER, Shape::One, "", "SSL CA Distinguished Name file ('/path/to/file' - PEM encoded to derive acceptable CA names to request)", name_file),
    directive("SSLCARevocationPath", Where::SERVER, Shape::One, "", "SSL CA Certificate Revocation List (CRL) path ('/path/to/dir' - contains PEM encoded files)", list_path),
    directive("SSLCARevocationFile", Where::SERVER, Shape::One, "", "SSL CA Certificate Revocation List (CRL) file ('/path/to/file' - PEM encoded)", list_file),
    directive("SSLCARevocationCheck", Where::SERVER, Shape::Raw, "none", "SSL CA Certificate Revocation List (CRL) checking mode", revocation),
    directive("SSLVerifyClient", SERVER_AND_SECTIONS, Shape::One, "none", "SSL Client verify type ('none', 'optional', 'require', 'optional_no_ca')", verify_client),
    directive("SSLVerifyDepth", SERVER_AND_SECTIONS, Shape::One, "1", "SSL Client verify depth ('N' - number of intermediate certificates)", verify_depth),
    directive("SSLSessionCacheTimeout", Where::SERVER, Shape::One, "300", "SSL Session Cache object lifetime ('N' - number of seconds)", lifetime),
    directive("SSLProtocol", Where::SERVER, Shape::Raw, "all -SSLv3", "Enable or disable various SSL protocols ('[+-][TLSv1|TLSv1.1|TLSv1.2|TLSv1.3] ...' - see manual)", protocol),
    directive("SSLHonorCipherOrder", Where::SERVER, Shape::Flag, "off", "Use the server's cipher ordering preference", honor_order),
    directive("SSLSessionTickets", Where::SERVER, Shape::Flag, "on", "Enable or disable TLS session tickets(`on', `off')", tickets),
    directive("SSLUserName", SERVER_AND_SECTIONS, Shape::One, "", "Set user name to SSL variable value", user_name),
    directive("SSLStrictSNIVHostCheck", Where::SERVER, Shape::Flag, "off", "Strict SNI virtual host checking", strict_names),
    directive("SSLOptions", Where::OPTIONS, Shape::Raw, "", "Set one or more options to configure the SSL engine('[+-]option[=value] ...' - see manual)", options),
    directive("SSLRequireSSL", Where::AUTH_CONFIG, Shape::None, "", "Require the SSL protocol for the per-directory context (no arguments)", require_tls),
    directive("SSLRequire", Where::AUTH_CONFIG, Shape::Raw, "", "Require a boolean expression to evaluate to true for granting access(arbitrary complex boolean expression - see manual)", require),
    directive("SSLOpenSSLConfCmd", Where::SERVER, Shape::Two, "", "OpenSSL configuration command", openssl),
];

/// mod_ssl.
pub const MODULE: Module = Module {
    file: "mod_ssl.c",
    identifier: "ssl_module",
    active: Active::Usually,
    page: "mod_ssl",
    subject: "HTTPS: certificates, versions and ciphers of TLS, certificates of clients, and the \
              variables that say what was agreed.",
    remarks: &[
        "The server speaks TLS 1.2 and TLS 1.3, with the suites that have ephemeral keys and \
         authenticated encryption. SSLCipherSuite and SSLProtocol are read as OpenSSL reads them; \
         names of what the server lacks select nothing and are named in a warning.",
        "There is no renegotiation. SSLVerifyClient in a section makes the handshake of its whole \
         host ask for a certificate, which is not needed; the section then decides. In .htaccess \
         files it works only where the host asks: set `SSLVerifyClient optional` in the host.",
        "SSLCipherSuite in a section refuses sessions with other suites (403).",
        "SSL_SESSION_ID is not set, because the TLS library does not tell it.",
        "There is no OCSP: SSLUseStapling has no effect, and SSLOCSPEnable is refused.",
        "The passphrase of a key is kept until the server ends, so that it can be reloaded.",
        "A ticket of SSLSessionTicketKeyFile opens on every server of this kind, and on no other.",
        "A certificate that has expired is served with a warning at the start.",
        "SSLProxyEngine and its kin speak TLS 1.2 and TLS 1.3 with servers behind this one. A \
         certificate of X.509 version 1, or with an RSA key of less than 2048 bits, is refused \
         whatever SSLProxyVerify says.",
        "As in Apache, SSLProxyVerify is `none` unless it is set: the name and the dates of a \
         certificate are compared, but nobody vouches for it.",
    ],
    directives: &[DIRECTIVES, proxy::DIRECTIVES, ignored::DIRECTIVES],
    provides: &[Provided::Require(REQUIRE_TLS), Provided::Require(REQUIRE_VERIFIED)],
};

/// Warns about a directive at its place; Apache has no such message.
pub(super) fn remark(call: &Call<'_>, text: impl Into<String>) {
    let text = format!("{} ({})", text.into(), place(call));
    call.notice(Notice { number: None, ..Notice::warn("ssl", 0, text) });
}

/// Whether the directive stands in a section that requests are matched with (Apache: cmd->path).
fn in_section(scope: &Scope) -> bool {
    scope.section_path.is_some() || scope.in_htaccess
}

fn place(call: &Call<'_>) -> Arc<str> {
    format!("line {} of {}", call.position.line, call.position.file).into()
}

/// A file that must be there and hold something (ssl_engine_config.c, ssl_cmd_check_file).
pub(super) fn file(scope: &Scope, call: &Call<'_>) -> Result<Named, String> {
    let path = scope.server_path(argument(call, 0));
    let is_good = std::fs::metadata(&path).is_ok_and(|it| it.is_file() && it.len() > 0);
    if !is_good {
        let path = path.display();
        return Err(format!("{}: file '{path}' does not exist or is empty", call.name));
    }
    Ok(Named { path, place: place(call) })
}

pub(super) fn folder(scope: &Scope, call: &Call<'_>) -> Result<Named, String> {
    let path = scope.server_path(argument(call, 0));
    if !path.is_dir() {
        return Err(format!("{}: directory '{}' does not exist", call.name, path.display()));
    }
    Ok(Named { path, place: place(call) })
}

fn said(scope: &mut Scope) -> &mut OfServer {
    scope.server.ssl.said()
}

fn engine(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let on = match argument(call, 0).to_ascii_lowercase().as_str() {
        "on" => true,
        "off" => false,
        "optional" => {
            call.notice(Notice::warn("ssl", 10510, "'SSLEngine optional' is no longer supported"));
            false
        }
        _ => return Err("Argument must be On or Off".to_owned()),
    };
    let said = said(scope);
    said.engine = Some(on);
    said.engine_place = Some(place(call));
    Ok(())
}

fn certificate(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    refuse_uri(call)?;
    let file = file(scope, call)?;
    said(scope).certificates.push(file);
    Ok(())
}

fn key(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    refuse_uri(call)?;
    let file = file(scope, call)?;
    said(scope).keys.push(file);
    Ok(())
}

fn refuse_uri(call: &Call<'_>) -> DirectiveResult {
    match argument(call, 0).get(..7) {
        Some("pkcs11:") => {
            Err(format!("{}: keys in tokens (pkcs11:) are not supported; use a file", call.name))
        }
        _ => Ok(()),
    }
}

fn chain(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let file = file(scope, call)?;
    said(scope).chain = Some(file);
    Ok(())
}

fn ticket_key(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let file = file(scope, call)?;
    said(scope).ticket_key = Some(file);
    Ok(())
}

fn authority_file(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    refuse_in_section(scope)?;
    let file = file(scope, call)?;
    said(scope).authority_file = Some(file);
    Ok(())
}

fn authority_path(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    refuse_in_section(scope)?;
    let folder = folder(scope, call)?;
    said(scope).authority_path = Some(folder);
    Ok(())
}

fn refuse_in_section(scope: &Scope) -> DirectiveResult {
    match in_section(scope) {
        true => Err("Your SSL library does not have support for per-directory CA".to_owned()),
        false => Ok(()),
    }
}

fn name_file(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let file = file(scope, call)?;
    said(scope).name_file = Some(file);
    Ok(())
}

fn name_path(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let folder = folder(scope, call)?;
    said(scope).name_path = Some(folder);
    Ok(())
}

fn list_file(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let file = file(scope, call)?;
    said(scope).list_file = Some(file);
    Ok(())
}

fn list_path(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let folder = folder(scope, call)?;
    said(scope).list_path = Some(folder);
    Ok(())
}

fn revocation(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).revocation = Some(parse_revocation(call)?);
    Ok(())
}

/// The words of SSLCARevocationCheck.
pub(super) fn parse_revocation(call: &Call<'_>) -> Result<(Revocation, bool), String> {
    let invalid = |word: &str| format!("{}: Invalid argument '{word}'", call.name);
    let words = words(call.raw);
    let mut words = words.iter();
    let mode = match words.next().map(|word| word.to_ascii_lowercase()).as_deref() {
        Some("none") => Revocation::Ignored,
        Some("leaf") => Revocation::Leaf,
        Some("chain") => Revocation::Chain,
        word => return Err(invalid(word.unwrap_or_default())),
    };
    let mut may_lack = false;
    for word in words {
        if !word.eq_ignore_ascii_case("no_crl_for_cert_ok") {
            return Err(invalid(word));
        }
        may_lack = true;
    }
    Ok((mode, may_lack))
}

fn verify_client(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    let verify = match word.to_ascii_lowercase().as_str() {
        "none" | "off" => Verify::None,
        "optional" => Verify::Optional,
        "require" | "on" => Verify::Require,
        "optional_no_ca" => Verify::OptionalNoCa,
        _ => return Err(format!("{}: Invalid argument '{word}'", call.name)),
    };
    if !in_section(scope) {
        said(scope).verify = Some(verify);
        return Ok(());
    }
    scope.directory.ssl.said().verify = Some(verify);
    if verify != Verify::None && !scope.in_htaccess {
        said(scope).asks_in_sections = Some(true);
        let text = "SSLVerifyClient in a section: the handshake of the whole host asks for a \
                    certificate, because TLS has no renegotiation; the section decides";
        remark(call, text);
    }
    Ok(())
}

fn verify_depth(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    // atoi(3): what is no number is 0.
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    if word.starts_with('-') {
        return Err(format!("{}: Invalid argument '{word}'", call.name));
    }
    let depth = word.get(..digits).and_then(|text| text.parse().ok()).unwrap_or(0);
    if !in_section(scope) {
        said(scope).depth = Some(depth);
        return Ok(());
    }
    if !scope.in_htaccess {
        let least = &mut said(scope).least_depth;
        *least = Some(least.map_or(depth, |least| least.min(depth)));
    }
    remark(call, "SSLVerifyDepth in a section holds for the whole host, if it is the least");
    Ok(())
}

fn lifetime(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    if word.starts_with('-') {
        return Err("SSLSessionCacheTimeout: Invalid argument".to_owned());
    }
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let seconds = word.get(..digits).and_then(|text| text.parse().ok()).unwrap_or(0);
    said(scope).lifetime_s = Some(seconds);
    Ok(())
}

fn protocol(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).versions = Some(parse_protocol(call)?);
    Ok(())
}

/// The words of SSLProtocol.
pub(super) fn parse_protocol(call: &Call<'_>) -> Result<Versions, String> {
    let words = words(call.raw);
    let versions = Versions::parse(words.iter().map(String::as_str))
        .map_err(|text| format!("{}: {text}", call.name))?;
    for word in &versions.overriding {
        let text = format!(
            "{}: Protocol '{word}' overrides already set parameter(s). Check if a +/- prefix is \
             missing.",
            call.name
        );
        call.notice(Notice::warn("ssl", 2532, text));
    }
    if !versions.lacking.is_empty() {
        let names = versions.lacking.join(", ");
        remark(call, format!("{}: {names} is never spoken: it is broken", call.name));
    }
    Ok(versions)
}

fn cipher_suite(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (protocol, text) = match call.second() {
        Some(text) => (argument(call, 0), text),
        None => ("SSL", argument(call, 0)),
    };
    match protocol {
        "SSL" => {
            let selection = old_ciphers(call, text)?;
            if in_section(scope) {
                let names = selection.suites.iter().map(|suite| suite.name).collect();
                scope.directory.ssl.said().ciphers = Some(names);
            } else {
                said(scope).ciphers = Some(selection);
            }
        }
        "TLSv1.3" if in_section(scope) => {
            return Err("TLSv1.3 ciphers cannot be set inside a directory context".to_owned());
        }
        "TLSv1.3" => said(scope).new_ciphers = Some(new_ciphers(call, text)?),
        other => return Err(format!("protocol '{other}' not supported")),
    }
    Ok(())
}

pub(super) fn old_ciphers(call: &Call<'_>, text: &str) -> Result<Selection, String> {
    let selection = parse_ciphers(text)
        .map_err(|fault| format!("Unable to configure permitted SSL ciphers: {}", fault.0))?;
    note_lacking(call, &selection);
    Ok(selection)
}

pub(super) fn new_ciphers(call: &Call<'_>, text: &str) -> Result<Selection, String> {
    let selection = parse_new_ciphers(text)
        .map_err(|fault| format!("Unable to configure permitted TLSv1.3 ciphers: {}", fault.0))?;
    if selection.suites.is_empty() {
        let names = selection.lacking.join(", ");
        return Err(format!(
            "Unable to configure permitted TLSv1.3 ciphers: the server does not have {names}"
        ));
    }
    note_lacking(call, &selection);
    Ok(selection)
}

fn note_lacking(call: &Call<'_>, selection: &Selection) {
    if !selection.lacking.is_empty() {
        let names = selection.lacking.join(", ");
        remark(call, format!("{}: the server does not have {names}", call.name));
    }
    if selection.suites.is_empty() {
        remark(call, format!("{}: none of these ciphers is available", call.name));
    }
}

fn honor_order(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).honor_order = Some(call.flag);
    Ok(())
}

fn tickets(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).tickets = Some(call.flag);
    Ok(())
}

fn strict_names(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).strict_names = Some(call.flag);
    Ok(())
}

fn user_name(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.ssl.said().user_name = Some(argument(call, 0).into());
    Ok(())
}

fn options(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let mut is_first = true;
    let mut options = scope.directory.ssl.said().options;
    for word in words(call.raw) {
        let sign = word.chars().next().filter(|char| matches!(char, '+' | '-'));
        let name = if sign.is_some() { word.get(1..).unwrap_or_default() } else { &word };
        if sign.is_none() && is_first {
            options = Options { all: 0, relative: false, ..options };
            is_first = false;
        }
        let option = match name.to_ascii_lowercase().as_str() {
            "stdenvvars" => Options::VARIABLES,
            "exportcertdata" => Options::CERTIFICATES,
            "fakebasicauth" => Options::FAKE_LOGIN,
            "strictrequire" => Options::STRICT,
            "optrenegotiate" => Options::RENEGOTIATE,
            "legacydnstringformat" => Options::LEGACY_NAMES,
            _ => return Err(format!("SSLOptions: Illegal option '{name}'")),
        };
        match sign {
            Some('-') => {
                options.added &= !option;
                options.removed |= option;
                options.all &= !option;
            }
            Some(_) => {
                options.added |= option;
                options.removed &= !option;
                options.all |= option;
            }
            None => (options.all, options.added, options.removed) = (option, option, 0),
        }
    }
    if options.has(Options::RENEGOTIATE) {
        remark(call, "SSLOptions OptRenegotiate has no effect: there is no renegotiation");
    }
    scope.directory.ssl.said().options = options;
    Ok(())
}

fn require_tls(scope: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    scope.directory.ssl.said().requires_tls = true;
    Ok(())
}

fn require(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let condition =
        scope.compile_requirement(call.raw).map_err(|error| format!("SSLRequire: {error}"))?;
    let required = Required { text: call.raw.into(), condition };
    scope.directory.ssl.said().requirements.push(Arc::new(required));
    Ok(())
}

fn openssl(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (command, value) = (argument(call, 0), argument(call, 1));
    let bound = || match value {
        "TLSv1.3" => Ok(Bound::New),
        "TLSv1.2" => Ok(Bound::Old),
        "None" | "SSLv3" | "TLSv1" | "TLSv1.1" => Ok(Bound::Older),
        _ => Err(format!("'{value}': invalid value for {command}")),
    };
    match command.to_ascii_lowercase().as_str() {
        "minprotocol" => said(scope).least_version = Some(bound()?),
        "maxprotocol" if value == "None" => said(scope).most_version = Some(Bound::New),
        "maxprotocol" => said(scope).most_version = Some(bound()?),
        "cipherstring" => said(scope).ciphers = Some(old_ciphers(call, value)?),
        "ciphersuites" => said(scope).new_ciphers = Some(new_ciphers(call, value)?),
        "curves" | "groups" => {
            let names = value.split(':').map(str::to_owned).collect();
            said(scope).groups = Some(names);
        }
        "dhparameters" | "options" | "signaturealgorithms" | "clientsignaturealgorithms" => {
            remark(call, format!("SSLOpenSSLConfCmd {command} has no effect"));
        }
        _ => return Err(format!("'{command}': invalid OpenSSL configuration command")),
    }
    Ok(())
}

fn dialog(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let word = call.first();
    let dialog = if word.eq_ignore_ascii_case("builtin") {
        Dialog::Builtin
    } else if let Some(path) = word.strip_prefix("exec:").filter(|path| !path.is_empty()) {
        let path = scope.server_path(path);
        if !path.exists() {
            let path = path.display();
            return Err(format!("SSLPassPhraseDialog: file '{path}' does not exist"));
        }
        Dialog::Program(path)
    } else if let Some(program) = word.strip_prefix('|').filter(|program| !program.is_empty()) {
        Dialog::Pipe(program.into())
    } else {
        return Err("SSLPassPhraseDialog: Invalid argument".to_owned());
    };
    scope.global_mut(call).ssl.dialog = dialog;
    Ok(())
}

/// The size of the table where SSLSessionCache names none (mod_socache_shmcb.c).
const TABLE_BYTES: usize = 512_000;

fn session_cache(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let word = call.first();
    let (kind, rest) = word.split_once(':').unwrap_or((word, ""));
    let store = match kind.to_ascii_lowercase().as_str() {
        "none" | "nonenotnull" => Store::Nothing,
        "shmcb" => {
            let size = rest.rsplit_once('(').and_then(|(_, size)| size.strip_suffix(')'));
            let bytes = match size {
                Some(size) => size.parse().map_err(|_| {
                    format!("SSLSessionCache: the size '{size}' is not a number of bytes")
                })?,
                None => TABLE_BYTES,
            };
            if bytes < 8192 {
                let text = "SSLSessionCache: Invalid argument: size has to be >= 8192 bytes";
                return Err(text.to_owned());
            }
            Store::Table(bytes)
        }
        "dbm" | "dc" | "memcache" | "redis" => {
            let text = format!(
                "SSLSessionCache {kind}: sessions are kept in shared memory instead, in \
                 {TABLE_BYTES} bytes"
            );
            call.notice(Notice { number: None, ..Notice::warn("ssl", 0, text) });
            Store::Table(TABLE_BYTES)
        }
        _ => {
            return Err(format!(
                "SSLSessionCache: '{kind}' session cache not supported (known names: shmcb, dbm, \
                 dc, memcache, redis). Maybe you need to load the appropriate socache module \
                 (mod_socache_{kind}?)."
            ));
        }
    };
    scope.global_mut(call).ssl.cache = Some(store);
    Ok(())
}

fn policy(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let word = call.first();
    let all = [Policy::Strict, Policy::Secure, Policy::AuthOnly, Policy::Insecure];
    let policy = all.into_iter().find(|policy| policy.word().eq_ignore_ascii_case(word));
    let policy = policy.ok_or_else(|| format!("Invalid SSLVhostSNIPolicy argument '{word}'"))?;
    scope.global_mut(call).ssl.policy = policy;
    Ok(())
}
