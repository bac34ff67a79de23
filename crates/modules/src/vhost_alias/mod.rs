//! mod_vhost_alias: a DocumentRoot and a CGI directory whose names contain parts of the request's
//! host name or of the server's address. [`translate`] maps a path to a file.

pub use crate::{NoSettings as Directory, NoSettings as Global};

mod format;

use crate::core::{DOCUMENT_ROOT_NOTE, public_name, public_port};
use crate::{
    Active, CoreSettings, Directive, DirectiveResult, Merge, Module, Scope, Shared, Where,
    argument, directive,
};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{FileName, Request, unquoted};
use format::Format;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

const SCRIPTS: &str = "how to create a ScriptAlias based on the host";
const DOCUMENTS: &str = "how to create the DocumentRoot based on the host";

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("VirtualDocumentRoot", Where::SERVER, Shape::One, "none", DOCUMENTS, set).of_bytes(),
    directive("VirtualDocumentRootIP", Where::SERVER, Shape::One, "none", DOCUMENTS, set).of_bytes(),
    directive("VirtualScriptAlias", Where::SERVER, Shape::One, "none", SCRIPTS, set).of_bytes(),
    directive("VirtualScriptAliasIP", Where::SERVER, Shape::One, "none", SCRIPTS, set).of_bytes(),
];

/// mod_vhost_alias.
pub const MODULE: Module = Module {
    file: "mod_vhost_alias.c",
    identifier: "vhost_alias_module",
    active: Active::Usually,
    page: "mod_vhost_alias",
    subject: "A DocumentRoot for each host, named after the host or the server's address.",
    remarks: &[
        "The host name of a request cannot lead out of the directories of the format: host names \
         with a slash or `..` are refused when the request is parsed.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The handler of VirtualScriptAlias.
const CGI: &[u8] = b"cgi-script";

/// The directory of a VirtualDocumentRoot or VirtualScriptAlias.
#[derive(Clone, Debug)]
pub enum Root {
    /// `none`.
    None,
    /// A format that is expanded with the host name.
    Name(Arc<Format>),
    /// A format that is expanded with the server's IP address.
    Ip(Arc<Format>),
}

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    documents: Option<Root>,
    scripts: Option<Root>,
}

/// The settings of a server, shared by virtual hosts that do not change them.
pub type Server = Shared<Roots>;

crate::unsaid!(Roots);

impl Merge for Roots {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; documents, scripts)
    }
}

/// Maps the path of a request to a file (mod_vhost_alias.c: mva_translate). Returns `None` if the
/// server has no directory for the path.
pub fn translate(request: &mut Request, roots: &Roots, core: CoreSettings<'_>) -> Option<FileName> {
    if roots.documents.is_none() && roots.scripts.is_none() {
        return None;
    }
    let scripts = roots.scripts.as_ref().filter(|root| !matches!(root, Root::None));
    let script = scripts.and_then(|root| Some((root, below_scripts(&request.resource.path)?)));
    let is_script = script.is_some();
    let (root, below) = match script {
        Some(found) => found,
        None => (roots.documents.as_ref()?, &*request.resource.path),
    };
    let port = public_port(request, core);
    let folder = match root {
        Root::None => return None,
        Root::Name(format) => format.fill(&public_name(request, core), port),
        Root::Ip(format) => format.fill(request.peer.local_ip().to_string().as_bytes(), port),
    };
    let file = [&folder, below].concat();
    let notes = &mut request.resource.notes;
    notes.set("context-document-root", &folder);
    notes.set(DOCUMENT_ROOT_NOTE, &folder);
    if is_script {
        notes.set("context-prefix", "/cgi-bin");
        notes.set("alias-forced-type", CGI);
        request.resource.content.handler = Some(CGI.into());
    }
    Some(FileName::new(OsString::from_vec(file)))
}

/// Returns the rest of a path after `/cgi-bin`, with its slash.
fn below_scripts(path: &[u8]) -> Option<&[u8]> {
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    let rest = path.get(slashes..)?.strip_prefix(b"cgi-bin")?;
    rest.starts_with(b"/").then_some(rest)
}

fn set(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = unquoted(argument(call, 0));
    let name = call.name.to_ascii_lowercase();
    let root = if !text.starts_with(b"/") {
        if !text.eq_ignore_ascii_case(b"none") {
            return Err("format string must be an absolute path, or 'none'".into());
        }
        Root::None
    } else {
        let format = Format::parse(&text).ok_or("syntax error in format string")?;
        match name.ends_with("ip") {
            true => Root::Ip(Arc::new(format)),
            false => Root::Name(Arc::new(format)),
        }
    };
    let roots = &mut scope.server.vhost_alias;
    match name.starts_with("virtualscript") {
        true => roots.scripts = Some(root),
        false => roots.documents = Some(root),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apply, core_settings};
    use evenkeel_message::{Peer, RequestHead, UriOptions, UrlPath};

    fn file(text: &str, host: &str, path: &str) -> Option<String> {
        let scope = apply(MODULE, text).unwrap();
        let local = "192.0.2.7:8080".parse().unwrap();
        let peer = Peer { client: local, local };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.resource.path = UrlPath::parse(path.as_bytes(), UriOptions::default()).unwrap();
        request.host = host.into();
        let file = translate(&mut request, &scope.server.vhost_alias, core_settings())?;
        Some(String::from_utf8(file.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn documents_and_programs_have_roots_of_their_own() {
        let text = "VirtualDocumentRoot /www/%0/docs/\nVirtualScriptAliasIP /cgi/%1";
        assert_eq!(file(text, "a.test", "/x/y").unwrap(), "/www/a.test/docs/x/y");
        assert_eq!(file(text, "a.test", "/cgi-bin/y").unwrap(), "/cgi/192/y");
        assert_eq!(file(text, "a.test", "/cgi-binary").unwrap(), "/www/a.test/docs/cgi-binary");
        assert_eq!(file("VirtualDocumentRoot NONE", "a.test", "/x"), None);
        assert_eq!(file("VirtualScriptAlias /cgi", "a.test", "/x"), None);
    }

    #[test]
    fn a_host_takes_back_what_the_server_says() {
        let base = apply(MODULE, "VirtualDocumentRoot /www/%0").unwrap().server.vhost_alias;
        let over = apply(MODULE, "VirtualDocumentRoot none").unwrap().server.vhost_alias;
        let merged = Shared::merge(&base, &over);
        assert!(matches!(merged.documents, Some(Root::None)));
        assert!(matches!(Shared::merge(&base, &Shared::default()).documents, Some(Root::Name(_))));
    }
}
