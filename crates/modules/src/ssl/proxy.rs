//! TLS to the servers behind a proxy (SSLProxyEngine and its kin). The files are read with the
//! configuration, before the server gives up its privileges. [`connector`] makes the client's side
//! of TLS of the settings of a section.

use super::directives::{file, folder, new_ciphers, old_ciphers, parse_protocol, parse_revocation};
use super::files::{authorities, fault, lists, members, read};
use super::{Directory, Named};
use crate::{Directive, DirectiveResult, Merge, Scope, Where, argument, directive};
use evenkeel_config::{Call, Contexts, Shape};
use evenkeel_tls::{
    CertificateDer, CertificateRevocationListDer, Connector, ConnectorSettings, Identity,
    NameCheck, PeerCheck, Revocation, Selection, ServerSettings, ServerTrust, Versions, identities,
};
use std::cell::RefCell;
use std::sync::Arc;

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    directive("SSLProxyEngine", Where::CONFIG, Shape::Flag, "off", "SSL switch for the proxy protocol engine ('on', 'off')", engine),
    directive("SSLProxyProtocol", Where::CONFIG, Shape::Raw, "all -SSLv3", "SSL Proxy: enable or disable SSL protocol flavors ('[+-][TLSv1|TLSv1.1|TLSv1.2|TLSv1.3] ...' - see manual)", protocol),
    directive("SSLProxyCipherSuite", Where::CONFIG, Shape::OneOrTwo, "DEFAULT", "SSL Proxy: colon-delimited list of permitted SSL ciphers , optionally preceded by protocol specifier ('XXX:...:XXX' - see manual)", cipher_suite),
    directive("SSLProxyVerify", Where::CONFIG, Shape::One, "none", "SSL Proxy: whether to verify the remote certificate ('on' or 'off')", verify),
    directive("SSLProxyVerifyDepth", Where::CONFIG, Shape::One, "1", "SSL Proxy: maximum certificate verification depth ('N' - number of intermediate certificates)", verify_depth),
    directive("SSLProxyCACertificateFile", Where::CONFIG, Shape::One, "", "SSL Proxy: file containing server certificates ('/path/to/file' - PEM encoded certificates)", authority_file),
    directive("SSLProxyCACertificatePath", Where::CONFIG, Shape::One, "", "SSL Proxy: directory containing server certificates ('/path/to/dir' - contains PEM encoded certificates)", authority_path),
    directive("SSLProxyCARevocationPath", Where::CONFIG, Shape::One, "", "SSL Proxy: CA Certificate Revocation List (CRL) path ('/path/to/dir' - contains PEM encoded files)", list_path),
    directive("SSLProxyCARevocationFile", Where::CONFIG, Shape::One, "", "SSL Proxy: CA Certificate Revocation List (CRL) file ('/path/to/file' - PEM encoded)", list_file),
    directive("SSLProxyCARevocationCheck", Where::CONFIG, Shape::Raw, "none", "SSL Proxy: CA Certificate Revocation List (CRL) checking mode", revocation),
    directive("SSLProxyMachineCertificateFile", Where::CONFIG, Shape::One, "", "SSL Proxy: file containing client certificates ('/path/to/file' - PEM encoded certificates)", machine_file),
    directive("SSLProxyMachineCertificatePath", Where::CONFIG, Shape::One, "", "SSL Proxy: directory containing client certificates ('/path/to/dir' - contains PEM encoded certificates)", machine_path),
    directive("SSLProxyMachineCertificateChainFile", Where::CONFIG, Shape::One, "", "SSL Proxy: file containing issuing certificates of the client certificate (`/path/to/file' - PEM encoded certificates)", machine_chain),
    directive("SSLProxyCheckPeerExpire", Where::CONFIG, Shape::Flag, "on", "SSL Proxy: check the peer certificate's expiration date", check),
    directive("SSLProxyCheckPeerCN", Where::CONFIG, Shape::Flag, "on", "SSL Proxy: check the peer certificate's CN", check),
    directive("SSLProxyCheckPeerName", Where::CONFIG, Shape::Flag, "on", "SSL Proxy: check the peer certificate's name (must be present in subjectAltName extension or CN", check),
];

/// The number of issuers above a server's certificate if SSLProxyVerifyDepth does not say.
const DEPTH: usize = 1;

/// The most connectors that a thread keeps. There are as many as sections with settings of their
/// own.
const MOST_KEPT: usize = 64;

/// The settings of a section.
#[derive(Clone, Debug, Default)]
pub(super) struct OfProxy {
    engine: Option<bool>,
    versions: Option<Versions>,
    ciphers: Option<Selection>,
    new_ciphers: Option<Selection>,
    trust: Option<ServerTrust>,
    depth: Option<usize>,
    authority_file: Option<Certificates>,
    authority_path: Option<Certificates>,
    list_file: Option<Lists>,
    list_path: Option<Lists>,
    revocation: Option<(Revocation, bool)>,
    machine_file: Option<Arc<[Identity]>>,
    machine_path: Option<Arc<[Identity]>>,
    machine_chain: Option<Certificates>,
    check_expire: Option<bool>,
    check_name: Option<bool>,
    check_common_name: Option<bool>,
}

type Certificates = Arc<[CertificateDer<'static>]>;
type Lists = Arc<[CertificateRevocationListDer<'static>]>;

impl Merge for OfProxy {
    fn merge(base: &Self, over: &Self) -> Self {
        macro_rules! said {
            ($($field:ident),* $(,)?) => {
                Self { $($field: over.$field.clone().or_else(|| base.$field.clone())),* }
            };
        }
        said! {
            engine, versions, ciphers, new_ciphers, trust, depth, authority_file, authority_path,
            list_file, list_path, revocation, machine_file, machine_path, machine_chain,
            check_expire, check_name, check_common_name,
        }
    }
}

/// The reason for which there is no connector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoConnector {
    /// SSLProxyEngine is off.
    Off,
    /// The settings leave nothing that could be spoken, or contain what cannot be used.
    Faulty(String),
}

thread_local! {
    static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// Settings and their connector, whose sessions the thread's connections resume.
struct Kept {
    settings: Arc<OfProxy>,
    connector: Result<Arc<Connector>, String>,
}

/// The connector of a section.
///
/// # Errors
/// TLS to servers is off, or cannot be spoken with these settings.
pub fn connector(section: &Directory) -> Result<Arc<Connector>, NoConnector> {
    let settings = section.1.as_ref().filter(|said| said.engine == Some(true));
    let settings = settings.ok_or(NoConnector::Off)?;
    KEPT.with_borrow_mut(|kept| {
        let known = kept.iter().find(|one| Arc::ptr_eq(&one.settings, settings));
        let connector = match known {
            Some(known) => known.connector.clone(),
            None => {
                let connector = settings.connector().map(Arc::new);
                if kept.len() >= MOST_KEPT {
                    kept.remove(0);
                }
                let settings = Arc::clone(settings);
                kept.push(Kept { settings, connector: connector.clone() });
                connector
            }
        };
        connector.map_err(NoConnector::Faulty)
    })
}

impl OfProxy {
    fn connector(&self) -> Result<Connector, String> {
        let (revocation, lists_may_lack) = self.revocation.unwrap_or((Revocation::Ignored, false));
        let servers = ServerSettings {
            trust: self.trust.unwrap_or_default(),
            authorities: joined(&self.authority_file, &self.authority_path),
            lists: joined(&self.list_file, &self.list_path),
            revocation,
            lists_may_lack,
            depth: self.depth.unwrap_or(DEPTH),
        };
        let issuers = self.machine_chain.as_deref().unwrap_or_default();
        let identities = joined(&self.machine_file, &self.machine_path);
        let suites = |selection: &Option<Selection>| selection.as_ref().map(|it| it.suites.clone());
        Connector::new(ConnectorSettings {
            versions: self.versions.clone().unwrap_or_else(Versions::all),
            old_suites: suites(&self.ciphers),
            new_suites: suites(&self.new_ciphers),
            servers,
            check: self.check(),
            identities: identities.iter().map(|one| one.with_issuers(issuers)).collect(),
        })
    }

    /// SSLProxyCheckPeerName wins over SSLProxyCheckPeerCN where it is set, and follows it where it
    /// is not (ssl_engine_io.c: ssl_io_filter_handshake).
    fn check(&self) -> PeerCheck {
        let name = match (self.check_name, self.check_common_name) {
            (Some(true), _) | (None, None | Some(true)) => NameCheck::All,
            (Some(false), Some(true)) => NameCheck::CommonName,
            (None, Some(false)) | (Some(false), None | Some(false)) => NameCheck::None,
        };
        PeerCheck { expire: self.check_expire != Some(false), name }
    }
}

fn joined<T: Clone>(file: &Option<Arc<[T]>>, folder: &Option<Arc<[T]>>) -> Vec<T> {
    [file, folder].into_iter().flatten().flat_map(|list| list.iter().cloned()).collect()
}

/// The settings that a directive fills. It may stand in a server or in `<Proxy>` (PROXY_CONF).
fn said<'a>(scope: &'a mut Scope, call: &Call<'_>) -> Result<&'a mut OfProxy, String> {
    let place = Contexts::NOT_IN_DIRECTORY
        .with(Contexts::NOT_IN_LOCATION)
        .with(Contexts::NOT_IN_FILES)
        .with(Contexts::NOT_IN_IF);
    // Apache checks the context itself, not a rule of the directive.
    call.check_place(place).map_err(|text| {
        text.replace("cannot occur within", "not allowed in").replace("> section", "> context")
    })?;
    Ok(Arc::make_mut(scope.directory.ssl.1.get_or_insert_default()))
}

fn engine(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope, call)?.engine = Some(call.flag);
    Ok(())
}

fn protocol(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let versions = parse_protocol(call)?;
    said(scope, call)?.versions = Some(versions);
    Ok(())
}

fn cipher_suite(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (protocol, text) = match call.second() {
        Some(text) => (argument(call, 0), text),
        None => ("SSL", argument(call, 0)),
    };
    match protocol {
        "SSL" => said(scope, call)?.ciphers = Some(old_ciphers(call, text)?),
        "TLSv1.3" => said(scope, call)?.new_ciphers = Some(new_ciphers(call, text)?),
        other => return Err(format!("protocol '{other}' not supported")),
    }
    Ok(())
}

fn verify(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    let trust = match word.to_ascii_lowercase().as_str() {
        "none" | "off" => ServerTrust::Any,
        "optional" | "require" | "on" => ServerTrust::Authorities,
        "optional_no_ca" => ServerTrust::AnyIssuer,
        _ => return Err(format!("{}: Invalid argument '{word}'", call.name)),
    };
    said(scope, call)?.trust = Some(trust);
    Ok(())
}

fn verify_depth(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    if word.starts_with('-') {
        return Err(format!("{}: Invalid argument '{word}'", call.name));
    }
    // atoi(3): what is no number is 0.
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let depth = word.get(..digits).and_then(|text| text.parse().ok()).unwrap_or(0);
    said(scope, call)?.depth = Some(depth);
    Ok(())
}

fn authority_file(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let named = file(scope, call)?;
    said(scope, call)?.authority_file = Some(authorities(Some(&named), None)?.into());
    Ok(())
}

fn authority_path(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let named = folder(scope, call)?;
    said(scope, call)?.authority_path = Some(authorities(None, Some(&named))?.into());
    Ok(())
}

fn list_file(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let named = file(scope, call)?;
    said(scope, call)?.list_file = Some(lists(Some(&named), None)?.into());
    Ok(())
}

fn list_path(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let named = folder(scope, call)?;
    said(scope, call)?.list_path = Some(lists(None, Some(&named))?.into());
    Ok(())
}

fn revocation(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let revocation = parse_revocation(call)?;
    said(scope, call)?.revocation = Some(revocation);
    Ok(())
}

/// The identities of a file, at least one.
fn machines(named: &Named) -> Result<Vec<Identity>, String> {
    let all = identities(&read(named)?).map_err(|text| {
        let number = if text.contains("do not match") { "AH02326" } else { "AH02252" };
        format!("{number}: {}", fault(named, &text))
    })?;
    match all.is_empty() {
        true => Err(format!("AH02206: {}", fault(named, "there is no certificate with its key"))),
        false => Ok(all),
    }
}

fn machine_file(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let named = file(scope, call)?;
    said(scope, call)?.machine_file = Some(machines(&named)?.into());
    Ok(())
}

fn machine_path(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let named = folder(scope, call)?;
    let mut all = Vec::new();
    for named in members(Some(&named))? {
        // A folder also holds other files.
        all.extend(identities(&read(&named)?).unwrap_or_default());
    }
    if all.is_empty() {
        let text = "no file of the folder has a certificate with its key";
        return Err(format!("AH02206: {}", fault(&named, text)));
    }
    said(scope, call)?.machine_path = Some(all.into());
    Ok(())
}

fn machine_chain(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let named = file(scope, call)?;
    said(scope, call)?.machine_chain = Some(authorities(Some(&named), None)?.into());
    Ok(())
}

/// SSLProxyCheckPeerExpire, SSLProxyCheckPeerCN and SSLProxyCheckPeerName.
fn check(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let flag = Some(call.flag);
    let said = said(scope, call)?;
    match call.name {
        "SSLProxyCheckPeerExpire" => said.check_expire = flag,
        "SSLProxyCheckPeerCN" => said.check_common_name = flag,
        _ => said.check_name = flag,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_checked_unless_both_directives_leave_it_out() {
        for (name, common_name, want) in [
            (None, None, NameCheck::All),
            (Some(true), Some(false), NameCheck::All),
            (None, Some(false), NameCheck::None),
            (Some(false), None, NameCheck::None),
            (Some(false), Some(true), NameCheck::CommonName),
        ] {
            let said =
                OfProxy { check_name: name, check_common_name: common_name, ..OfProxy::default() };
            assert_eq!(said.check(), PeerCheck { expire: true, name: want });
        }
    }

    #[test]
    fn a_connector_needs_the_engine_and_is_made_once() {
        let off = Directory::default();
        assert_eq!(connector(&off).err(), Some(NoConnector::Off));
        let said = OfProxy { engine: Some(true), ..OfProxy::default() };
        let on = Directory(None, Some(Arc::new(said)));
        assert!(Arc::ptr_eq(&connector(&on).unwrap(), &connector(&on).unwrap()));
        let none = OfProxy {
            engine: Some(true),
            versions: Some(Versions::default()),
            ..OfProxy::default()
        };
        let none = Directory(None, Some(Arc::new(none)));
        assert!(matches!(connector(&none), Err(NoConnector::Faulty(_))));
    }
}
