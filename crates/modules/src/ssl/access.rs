//! What mod_ssl does with requests: it refuses those whose host the session was not made for,
//! checks what a section asks of the session, and exports its variables (ssl_engine_kernel.c).

use super::{Directory, OfSection, Options, Policy, Server, Verify};
use crate::{
    Asked, CoreSettings, GlobalSettings, ParsedRequirement, RequestContext, RequireProvider,
    Requirement, Scope,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_message::{
    ClientCertificate, Fields, Level, Notice, Request, Secure, Status, Undecided, quoted,
};
use std::sync::Arc;

/// The note that a check of mod_ssl has failed, for SSLOptions +StrictRequire.
const FORBIDDEN_NOTE: &str = "ssl-access-forbidden";

fn refuse(
    request: &mut Request,
    level: Level,
    number: u16,
    text: String,
    status: Status,
) -> Result<(), Status> {
    request.notify(Notice::new("ssl", level, number, text));
    Err(status)
}

/// Whether a request on a session of `handshake` may ask for `server` (SSLVHostSNIPolicy).
#[must_use]
pub fn misdirects(global: &GlobalSettings, server: &Server, handshake: &Server) -> bool {
    let same = match (&server.0, &handshake.0) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    };
    let (Some(to), Some(from)) = (&server.0, &handshake.0) else {
        return global.ssl.policy != Policy::Insecure && !same;
    };
    let clients = || {
        to.verify == from.verify
            && to.depth == from.depth
            && to.authority_file == from.authority_file
            && to.authority_path == from.authority_path
            && to.name_file == from.name_file
            && to.name_path == from.name_path
            && to.list_file == from.list_file
            && to.list_path == from.list_path
            && to.revocation == from.revocation
            && to.asks_in_sections == from.asks_in_sections
    };
    let keys = || {
        let names = |selection: &Option<evenkeel_tls::Selection>| {
            let suites = selection.as_ref().map(|selection| selection.suites.iter());
            suites.map(|suites| suites.map(|suite| suite.name).collect::<Vec<_>>())
        };
        to.versions == from.versions
            && names(&to.ciphers) == names(&from.ciphers)
            && names(&to.new_ciphers) == names(&from.new_ciphers)
            && to
                .certificates
                .iter()
                .map(|it| &it.path)
                .eq(from.certificates.iter().map(|it| &it.path))
            && to.keys.iter().map(|it| &it.path).eq(from.keys.iter().map(|it| &it.path))
    };
    match global.ssl.policy {
        Policy::Insecure => false,
        Policy::Strict => true,
        Policy::AuthOnly => !same && !clients(),
        Policy::Secure => !(same || clients() && keys()),
    }
}

/// Checks that a request names a host that its session may be used for (ssl_hook_ReadReq).
///
/// # Errors
/// 400 without a host, 403 without SNI under SSLStrictSNIVHostCheck, 421.
pub fn check_host_name(
    request: &mut Request,
    global: &GlobalSettings,
    server: &Server,
    handshake: &Server,
    has_named_hosts: bool,
) -> Result<(), Status> {
    let Some(secure) = request.secure.clone() else { return Ok(()) };
    let strict =
        |server: &Server| server.0.as_ref().is_some_and(|said| said.strict_names == Some(true));
    match secure.server_name() {
        Some(name) if request.host.is_empty() => {
            let text = format!(
                "Hostname {name} provided via SNI, but no hostname provided in HTTP request"
            );
            return refuse(request, Level::Error, 2031, text, Status::BAD_REQUEST);
        }
        None if has_named_hosts && (strict(server) || strict(handshake)) => {
            let text = "No hostname was provided via SNI for a name based virtual host".to_owned();
            request.resource.notes.set(
                "error-notes",
                "Reason: The client software did not provide a hostname using Server Name \
                 Indication (SNI), which is required to access this server.<br />\n",
            );
            return refuse(request, Level::Info, 2033, text, Status::FORBIDDEN);
        }
        _ => {}
    }
    if request.server != secure.server() && misdirects(global, server, handshake) {
        let (name, how) = match secure.server_name() {
            Some(name) => (name.to_owned(), "provided via SNI"),
            None => ("(none)".to_owned(), "(default host as no SNI was provided)"),
        };
        let text = format!(
            "Hostname {name} {how} and hostname {} provided via HTTP have no compatible SSL setup \
             for policy '{}'",
            quoted(&request.host),
            global.ssl.policy.word()
        );
        return refuse(request, Level::Error, 2032, text, Status::MISDIRECTED_REQUEST);
    }
    Ok(())
}

/// Whether a request may be refused for its session, or is that of a user. SSLRequireSSL does not
/// count: a response to a request over TLS is none for a request in clear text.
#[must_use]
pub fn is_guarded(section: &Directory, server: &Server) -> bool {
    let asks = |verify: Option<Verify>| verify.is_some_and(|verify| verify != Verify::None);
    asks(server.0.as_ref().and_then(|said| said.verify))
        || section.0.as_ref().is_some_and(|said| {
            let named = said.user_name.is_some() || said.options.has(Options::FAKE_LOGIN);
            asks(said.verify) || !said.requirements.is_empty() || said.ciphers.is_some() || named
        })
}

/// Checks what the sections ask of the session (ssl_hook_Access).
///
/// # Errors
/// 403.
pub fn check_access(
    request: &mut Request,
    section: &Directory,
    server: &Server,
    core: CoreSettings<'_>,
) -> Result<(), Status> {
    let section = section.0.clone();
    let Some(secure) = request.secure.clone() else {
        return match &section {
            Some(said) if said.requires_tls => deny(request, 2219, "SSL connection required"),
            _ => Ok(()),
        };
    };
    if !server.is_on() {
        return Ok(());
    }
    let of_server = server.0.as_ref().and_then(|said| said.verify);
    let verify = section.as_ref().and_then(|said| said.verify).or(of_server);
    check_client(request, secure.as_ref(), verify.unwrap_or(Verify::None))?;
    let Some(said) = section else { return Ok(()) };
    check_cipher(request, secure.as_ref(), &said)?;
    name_user(request, secure.as_ref(), &said);
    for required in &said.requirements {
        let mut vary = Fields::new();
        let context = RequestContext::new(request, core);
        let holds = context.holds(&required.condition, &mut vary);
        crate::core::merge_vary(&mut request.resource.fields, &vary);
        match holds {
            Ok(true) => {}
            Ok(false) => {
                let (file, client) = (path(request), request.peer.client_ip());
                for (number, text) in [
                    (
                        2266,
                        format!(
                            "Access to {file} denied for {client} (requirement expression not \
                             fulfilled)"
                        ),
                    ),
                    (2228, format!("Failed expression: {}", required.text)),
                ] {
                    request.notify(Notice::new("ssl", Level::Info, number, text));
                }
                return deny(request, 2229, "SSL requirement expression not fulfilled");
            }
            Err(fault) => {
                let text = format!("Failed to execute SSL requirement expression: {fault}");
                return deny(request, 2265, &text);
            }
        }
    }
    Ok(())
}

/// Notes that a check has failed, and answers 403.
fn deny(request: &mut Request, number: u16, reason: &str) -> Result<(), Status> {
    request.resource.notes.set(FORBIDDEN_NOTE, "1");
    let text = format!("access to {} failed, reason: {reason}", path(request));
    refuse(request, Level::Error, number, text, Status::FORBIDDEN)
}

fn path(request: &Request) -> String {
    quoted(request.resource.file.as_bytes()).into_owned()
}

/// The certificate of the client. It was asked for in the handshake, if it was asked for at all:
/// there is no renegotiation, and HTTP/2 forbids it (RFC 9113, section 9.2.1).
fn check_client(request: &mut Request, secure: &dyn Secure, verify: Verify) -> Result<(), Status> {
    use ClientCertificate as Client;
    let client = secure.client();
    let is_good = match verify {
        Verify::None => true,
        Verify::Optional => matches!(client, Client::None | Client::Trusted),
        Verify::OptionalNoCa => client != Client::Untrusted,
        Verify::Require => client == Client::Trusted,
    };
    if is_good {
        return Ok(());
    }
    if client == Client::None {
        let text = "Re-negotiation handshake failed: Client certificate missing".to_owned();
        return refuse(request, Level::Error, 2263, text, Status::FORBIDDEN);
    }
    let verdict = secure.variable("SSL_CLIENT_VERIFY", false).unwrap_or_default();
    let text = format!("Re-negotiation handshake failed: Client verification failed ({verdict})");
    refuse(request, Level::Error, 2262, text, Status::FORBIDDEN)
}

fn check_cipher(
    request: &mut Request,
    secure: &dyn Secure,
    said: &OfSection,
) -> Result<(), Status> {
    let Some(names) = &said.ciphers else { return Ok(()) };
    let current = secure.variable("SSL_CIPHER", false).unwrap_or_default();
    // The suites of TLS 1.3 are none that a section can name.
    if current.starts_with("TLS_") || names.iter().any(|name| *name == current) {
        return Ok(());
    }
    deny(request, 2261, &format!("SSL cipher suite not renegotiated: {current} is not permitted"))
}

/// SSLUserName.
fn name_user(request: &mut Request, secure: &dyn Secure, said: &OfSection) {
    let Some(name) = said.user_name.as_deref() else { return };
    if said.options.has(Options::FAKE_LOGIN) {
        return;
    }
    let legacy = said.options.has(Options::LEGACY_NAMES);
    match secure.variable(name, legacy).filter(|value| !value.is_empty()) {
        Some(value) => {
            request.resource.user = Some(value.into_bytes().into());
            request.resource.auth_type = Some(b"ClientCert"[..].into());
        }
        None => {
            let text = format!("Failed to set r->user to '{name}'");
            request.notify(Notice::new("ssl", Level::Warn, 2227, text));
        }
    }
}

/// Whether a check of mod_ssl has failed that counts whatever `Satisfy any` says (SSLOptions
/// +StrictRequire).
#[must_use]
pub fn forbids_strictly(request: &Request, section: &Directory) -> bool {
    let strict = section.0.as_ref().is_some_and(|said| said.options.has(Options::STRICT));
    strict && request.resource.notes.contains(FORBIDDEN_NOTE)
}

/// Puts the owner of the client's certificate into the request as a user with the password
/// `password` (SSLOptions +FakeBasicAuth), and refuses clients that type one themselves
/// (ssl_hook_UserCheck). A password file lists such users with the hash `xxj31ZMTZzkVA`.
///
/// # Errors
/// 403 for a client that pretends to have a certificate.
pub fn fake_login(request: &mut Request, section: &Directory) -> Result<(), Status> {
    if request.resource.depth > 0 || request.previous.is_some() {
        return Ok(());
    }
    if let Some(user) = spoofed_user(request) {
        let text = format!("Encountered FakeBasicAuth spoof: {}", quoted(&user));
        return refuse(request, Level::Error, 2035, text, Status::FORBIDDEN);
    }
    let Some(secure) = request.secure.clone() else { return Ok(()) };
    let fakes = section.0.as_ref().is_some_and(|said| said.options.has(Options::FAKE_LOGIN));
    let Some(subject) = secure.client_subject().filter(|_| fakes) else { return Ok(()) };
    if request.resource.user.is_some() {
        return Ok(());
    }
    let login = format!("Basic {}", STANDARD.encode(format!("{subject}:password")));
    let text = format!("Faking HTTP Basic Auth header: \"Authorization: {login}\"");
    request.notify(Notice::new("ssl", Level::Info, 2036, text));
    request.fields_mut().set("Authorization", login);
    Ok(())
}

/// The user that a client has typed who looks like the owner of a certificate.
fn spoofed_user(request: &Request) -> Option<Vec<u8>> {
    let field = request.fields().whole("Authorization")?;
    let (scheme, rest) = field.split_at_checked(5)?;
    let is_basic = scheme.eq_ignore_ascii_case(b"Basic") && rest.first() == Some(&b' ');
    let text = STANDARD.decode(rest.trim_ascii()).ok().filter(|_| is_basic)?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (user, password) = text.split_at_checked(colon)?;
    let spoofs = user.starts_with(b"/") && password == b":password";
    spoofs.then(|| user.to_vec())
}

/// Puts the variables of the session into the environment (ssl_hook_Fixup).
pub fn export(request: &mut Request, section: &Directory) {
    let Some(secure) = request.secure.clone() else { return };
    let env = &mut request.resource.env;
    env.set("HTTPS", "on");
    if let Some(name) = secure.server_name() {
        env.set("SSL_TLS_SNI", name);
    }
    let Some(said) = &section.0 else { return };
    if said.options.has(Options::VARIABLES) {
        for (name, value) in secure.exported(said.options.has(Options::LEGACY_NAMES)) {
            env.set(&*name, value);
        }
    }
    if said.options.has(Options::CERTIFICATES) {
        for (name, value) in secure.exported_certificates() {
            env.set(&*name, value);
        }
    }
    if said.options.has(Options::FAKE_LOGIN)
        && let Some(name) = said.user_name.as_deref()
        && let Some(value) = secure.variable(name, said.options.has(Options::LEGACY_NAMES))
    {
        request.resource.user = Some(value.into_bytes().into());
    }
}

/// `Require ssl`.
pub(super) const REQUIRE_TLS: RequireProvider = RequireProvider { name: "ssl", parse: parse_tls };

/// `Require ssl-verify-client`.
pub(super) const REQUIRE_VERIFIED: RequireProvider =
    RequireProvider { name: "ssl-verify-client", parse: parse_verified };

#[derive(Debug)]
struct RequireTls;

#[derive(Debug)]
struct RequireVerified;

fn parse_tls(_: &Scope, text: &str) -> ParsedRequirement {
    no_arguments("ssl", text)?;
    Ok(Arc::new(RequireTls))
}

fn parse_verified(_: &Scope, text: &str) -> ParsedRequirement {
    no_arguments("ssl-verify-client", text)?;
    Ok(Arc::new(RequireVerified))
}

fn no_arguments(name: &str, text: &str) -> Result<(), String> {
    match text.trim() {
        "" => Ok(()),
        _ => Err(format!("'Require {name}' does not take arguments")),
    }
}

impl Requirement for RequireTls {
    fn is_met(&self, asked: &Asked<'_>, _: &mut Vec<Notice>) -> Result<bool, Undecided> {
        Ok(asked.context.request.secure.is_some())
    }
}

impl Requirement for RequireVerified {
    fn is_met(&self, asked: &Asked<'_>, _: &mut Vec<Notice>) -> Result<bool, Undecided> {
        let secure = asked.context.request.secure.as_ref();
        Ok(secure.is_some_and(|secure| secure.client() == ClientCertificate::Trusted))
    }
}
