//! mod_alias: paths of the site that lead elsewhere. A request and the rules of its server and
//! sections go in; the name of a file outside of DocumentRoot, or the redirect that answers the
//! request, goes out. It looks at no file.

mod directives;
mod rule;

pub use crate::NoSettings as Global;
pub use directives::MODULE;
pub use rule::Rule;

use crate::core::public_url;
use crate::settings::merged;
use crate::{CoreSettings, Merge, RequestContext, Shared};
use evenkeel_expr::Text;
use evenkeel_message::{Answer, Fields, Level, Notice, Request, Status, quoted};
use rule::is_url;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The handler of ScriptAlias.
const CGI: &[u8] = b"cgi-script";

/// What a server says: rules in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Alias and its kin.
    pub aliases: Vec<Arc<Rule>>,
    /// Redirect and its kin.
    pub redirects: Vec<Arc<Rule>>,
}

/// What a server says, which hosts share.
pub type Server = Shared<Rules>;

crate::unsaid!(Rules);

impl Merge for Rules {
    fn merge(base: &Self, over: &Self) -> Self {
        Self {
            aliases: [over.aliases.as_slice(), &base.aliases].concat(),
            redirects: [over.redirects.as_slice(), &base.redirects].concat(),
        }
    }
}

/// Alias and ScriptAlias in a section, with a file name alone.
#[derive(Debug)]
pub struct SectionAlias {
    /// The file.
    pub file: Text,
    /// The section's path, which AliasPreservePath takes from that of the request.
    pub fake: Option<Box<[u8]>>,
    /// Whether it is a program.
    pub is_script: bool,
}

/// Redirect in a section, without a path.
#[derive(Debug)]
pub struct SectionRedirect {
    /// Where to; none where the status is no redirect.
    pub target: Option<Text>,
    /// The status, which may be any number.
    pub status: u16,
}

/// What a section says.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Redirect and its kin with a path; an inner section's stand before an outer one's.
    pub redirects: VecDeque<Arc<Rule>>,
    /// Alias of the section itself.
    pub alias: Option<Arc<SectionAlias>>,
    /// Redirect of the section itself.
    pub redirect: Option<Arc<SectionRedirect>>,
    /// RedirectRelative.
    pub relative: Option<bool>,
    /// AliasPreservePath.
    pub preserve_path: Option<bool>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        let Self { redirects, alias, redirect, relative, preserve_path } = over;
        for rule in redirects.iter().rev() {
            self.redirects.push_front(Arc::clone(rule));
        }
        self.alias.add(alias);
        self.redirect.add(redirect);
        self.relative.add(relative);
        self.preserve_path.add(preserve_path);
    }
}

/// A redirect before the path is translated: the section's own, then the server's rules.
///
/// # Errors
/// The redirect, or 500 where its target is none.
pub fn redirect_first(
    request: &mut Request,
    server: &Rules,
    section: &Directory,
    core: CoreSettings<'_>,
) -> Result<(), Answer> {
    if server.redirects.is_empty() && section.redirect.is_none() {
        return Ok(());
    }
    redirect(request, section, core, &server.redirects, (673, 674))
}

/// A redirect when all sections are known (Apache: fixups): .htaccess and folders included.
///
/// # Errors
/// As [`redirect_first`].
pub fn redirect_last(
    request: &mut Request,
    section: &Directory,
    core: CoreSettings<'_>,
) -> Result<(), Answer> {
    if section.redirects.is_empty() && section.redirect.is_none() {
        return Ok(());
    }
    redirect(request, section, core, &section.redirects, (675, 676))
}

/// The first redirect that fits (mod_alias.c: translate_alias_redir, fixup_redir). The numbers
/// are those of a target that is completed and of one that cannot be.
fn redirect<'a>(
    request: &mut Request,
    section: &Directory,
    core: CoreSettings<'_>,
    rules: impl IntoIterator<Item = &'a Arc<Rule>>,
    (completed, refused): (u16, u16),
) -> Result<(), Answer> {
    if !matches!(request.resource.path.first(), None | Some(b'/')) {
        return Ok(());
    }
    let own = own_redirect(request, section, core)?;
    let found = match own {
        Some(found) => Some(found),
        None => rule_redirect(request, rules)?,
    };
    let Some((number, target)) = found else { return Ok(()) };
    let Some(status) = Status::new(number).filter(|status| status.code() < 600) else {
        let text = format!("Invalid response status {number}");
        request.notify(Notice::new("http", Level::Error, 1579, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    };
    if !status.is_redirect() {
        return Err(status.into());
    }
    let path = |request: &Request| quoted(&request.resource.path).into_owned();
    let mut location = target;
    if location.starts_with(b"/") && section.relative != Some(true) {
        let whole = public_url(request, core, &location);
        let text = format!(
            "incomplete redirection target of '{}' for URI '{}' modified to '{}'",
            quoted(&location),
            path(request),
            quoted(&whole)
        );
        request.notify(Notice::new("alias", Level::Debug, completed, text));
        location = whole;
    }
    if !location.starts_with(b"/") && !is_url(&location) {
        let text = format!(
            "cannot redirect '{}' to '{}'; target is not a valid absoluteURI or abs_path",
            path(request),
            quoted(&location)
        );
        request.notify(Notice::new("alias", Level::Error, refused, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    }
    if let Some(query) = request.resource.query.as_ref().filter(|_| !location.contains(&b'?')) {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    if location.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        let text = format!(
            "Response header 'Location' value of '{}' contains invalid characters, aborting \
             request",
            quoted(&location)
        );
        request.notify(Notice::new("http", Level::Error, 2430, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    }
    let mut fields = Fields::new();
    fields.set("Location", location);
    Err(Answer::with_fields(status, fields))
}

/// The redirect of the section itself: its status and target.
fn own_redirect(
    request: &mut Request,
    section: &Directory,
    core: CoreSettings<'_>,
) -> Result<Option<(u16, Vec<u8>)>, Answer> {
    let Some(redirect) = &section.redirect else { return Ok(None) };
    let Some(target) = &redirect.target else { return Ok(Some((redirect.status, Vec::new()))) };
    match target.value(&RequestContext::new(request, core)) {
        Ok(target) => Ok(Some((redirect.status, rule::escape_target(&target)))),
        Err(error) => {
            let text = format!("Can't evaluate redirect expression: {error}");
            request.notify(Notice::new("alias", Level::Error, 2826, text));
            Err(Status::INTERNAL_SERVER_ERROR.into())
        }
    }
}

fn rule_redirect<'a>(
    request: &mut Request,
    rules: impl IntoIterator<Item = &'a Arc<Rule>>,
) -> Result<Option<(u16, Vec<u8>)>, Answer> {
    for rule in rules {
        match rule.redirect(&request.allowance, &request.resource.path) {
            Ok(Some(target)) => {
                note_context(request, rule);
                return Ok(Some((rule.status, target)));
            }
            Ok(None) => {}
            Err(error) => return Err(unmatched(request, &error)),
        }
    }
    Ok(None)
}

/// A pattern that cannot be matched within its bounds must not let the request through.
fn unmatched(request: &mut Request, error: &evenkeel_expr::MatchError) -> Answer {
    request.notify(Notice::own("alias", Level::Error, error.to_string()));
    Status::INTERNAL_SERVER_ERROR.into()
}

/// The file that an alias gives to the request's path; none where no alias fits. Names that are
/// not absolute begin at `server_root`.
///
/// # Errors
/// 500 where the name cannot be evaluated.
pub fn translate(
    request: &mut Request,
    server: &Rules,
    section: &Directory,
    core: CoreSettings<'_>,
    server_root: &Path,
) -> Result<Option<PathBuf>, Answer> {
    if let Some(alias) = &section.alias {
        return section_alias(request, section, core, alias, server_root).map(Some);
    }
    if !matches!(request.resource.path.first(), None | Some(b'/')) {
        return Ok(None);
    }
    for rule in &server.aliases {
        let file = match rule.file(&request.allowance, &request.resource.path) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            Err(error) => return Err(unmatched(request, &error)),
        };
        if rule.is_script {
            force_script(request);
        }
        note_context(request, rule);
        return Ok(Some(server_root.join(OsString::from_vec(file))));
    }
    Ok(None)
}

/// Alias in a section (mod_alias.c: try_alias).
fn section_alias(
    request: &mut Request,
    section: &Directory,
    core: CoreSettings<'_>,
    alias: &SectionAlias,
    server_root: &Path,
) -> Result<PathBuf, Answer> {
    let mut file = match alias.file.value(&RequestContext::new(request, core)) {
        Ok(file) => file,
        Err(error) => {
            let text = format!("Can't evaluate alias expression: {error}");
            request.notify(Notice::new("alias", Level::Error, 2825, text));
            return Err(Status::INTERNAL_SERVER_ERROR.into());
        }
    };
    let preserves = section.preserve_path == Some(true);
    if let Some(fake) = alias.fake.as_deref().filter(|_| preserves)
        && let Some(length) = crate::prefix::match_prefix(&request.resource.path, fake)
    {
        set_context(request, fake, &file);
        file.extend_from_slice(request.resource.path.get(length..).unwrap_or_default());
    }
    if alias.is_script {
        force_script(request);
    }
    Ok(server_root.join(OsString::from_vec(file)))
}

fn force_script(request: &mut Request) {
    request.resource.content.handler = Some(CGI.into());
    request.resource.notes.set("alias-forced-type", CGI);
}

/// Notes the context of a rule with a prefix; Apache does so for redirects too.
fn note_context(request: &mut Request, rule: &Rule) {
    if let Some(prefix) = rule.prefix() {
        let root = rule.real.as_deref().unwrap_or_default();
        set_context(request, prefix, root);
    }
}

/// What CONTEXT_PREFIX and CONTEXT_DOCUMENT_ROOT are for what follows.
fn set_context(request: &mut Request, prefix: &[u8], root: &[u8]) {
    request.resource.notes.set("context-prefix", prefix);
    request.resource.notes.set("context-document-root", root);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::testing::{apply, apply_in, core_settings};
    use evenkeel_message::{Peer, RequestHead, UriOptions, UrlPath};

    fn request(path: &str, query: Option<&str>) -> Request {
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.resource.path = UrlPath::parse(path.as_bytes(), UriOptions::default()).unwrap();
        request.resource.query = query.map(Into::into);
        request.host = b"h".to_vec();
        request
    }

    fn answer(result: Result<(), Answer>) -> String {
        match result {
            Ok(()) => "none".into(),
            Err(Answer::Status(status, fields)) => {
                let fields = fields.unwrap_or_default();
                let location = fields.first("Location").unwrap_or_default();
                format!("{} {}", status.code(), String::from_utf8_lossy(location))
            }
            Err(other) => format!("{other:?}"),
        }
    }

    fn redirected(text: &str, path: &str, query: Option<&str>) -> String {
        let scope = apply(MODULE, text).unwrap();
        let mut request = request(path, query);
        answer(redirect_first(
            &mut request,
            &scope.server.alias,
            &scope.directory.alias,
            core_settings(),
        ))
    }

    fn redirected_in_location(text: &str, path: &str) -> String {
        let scope = apply_in(MODULE, Place::Location("/l".into()), text).unwrap();
        let mut request = request(path, Some("q"));
        answer(redirect_last(&mut request, &scope.directory.alias, core_settings()))
    }

    fn aliased(text: &str, path: &str) -> Option<PathBuf> {
        let scope = apply(MODULE, text).unwrap();
        let mut request = request(path, None);
        translate(
            &mut request,
            &scope.server.alias,
            &scope.directory.alias,
            core_settings(),
            Path::new("/etc/base"),
        )
        .unwrap()
    }

    #[test]
    fn redirects_keep_the_rest_and_the_query() {
        let at = |text, path| redirected(text, path, Some("q=1"));
        assert_eq!(at("Redirect /o http://n/f", "/o/a b"), "302 http://n/f/a%20b?q=1");
        assert_eq!(at("Redirect /o http://n/f", "/older"), "none");
        assert_eq!(at("Redirect /o http://n/?own", "/o/x"), "302 http://n/?own/x");
        assert_eq!(at("Redirect permanent /o /t", "/o/x"), "301 http://h/t/x?q=1");
        assert_eq!(at("RedirectRelative On\nRedirect 308 /o /t", "/o"), "308 /t?q=1");
        assert_eq!(at("Redirect gone /o", "/o/x"), "410 ");
        assert_eq!(at("Redirect 404 /o", "/o/x"), "404 ");
        assert_eq!(at("Redirect 999 /o", "/o/x"), "500 ");
    }

    #[test]
    fn redirect_match_escapes_the_path_and_not_the_query() {
        let text = "RedirectMatch ^/m/(.*) http://x/$1?y=$1#z";
        assert_eq!(redirected(text, "/m/a b", Some("q")), "302 http://x/a%20b?y=a b#z");
        assert_eq!(redirected("RedirectMatch ^/o/(.*) rel/$1", "/o/x", None), "500 ");
        assert_eq!(redirected(text, "/m/a\r\nX: y", None), "500 ");
        assert_eq!(redirected("RedirectMatch 403 ^/f", "/f", None), "403 ");
        assert_eq!(
            redirected(r"RedirectMatch ^/t/(.*)$ http://x/$1/\$1&", "/t/q", None),
            "302 http://x/q/$1&"
        );
    }

    #[test]
    fn a_section_redirects_itself_before_its_rules() {
        assert_eq!(redirected_in_location("Redirect http://x/l", "/l/rest"), "302 http://x/l?q");
        assert_eq!(redirected_in_location("Redirect gone", "/l"), "410 ");
        let both = "Redirect /l http://y/\nRedirect 301 \"http://x/%{REQUEST_URI} a\"";
        assert_eq!(redirected_in_location(both, "/l"), "301 http://x//l%20a?q");
        assert_eq!(redirected_in_location("Redirect foo", "/l"), "500 ");
    }

    #[test]
    fn aliases_give_files_and_the_first_wins() {
        let file = |text, path| aliased(text, path).map(|path| path.display().to_string());
        let icons = "Alias /i/ /usr/icons/\nAlias /p /usr/pics";
        assert_eq!(file(icons, "/i/a.gif").as_deref(), Some("/usr/icons/a.gif"));
        assert_eq!(file(icons, "/i"), None);
        assert_eq!(file(icons, "/p").as_deref(), Some("/usr/pics"));
        assert_eq!(file(icons, "/pa"), None);
        assert_eq!(file("Alias /r rel", "/r/x").as_deref(), Some("/etc/base/rel/x"));
        let pattern = "AliasMatch ^/m/(.*)\\.pic$ /usr/$1.gif";
        assert_eq!(file(pattern, "/m/a/b.pic").as_deref(), Some("/usr/a/b.gif"));
    }

    #[test]
    fn script_alias_forces_the_handler() {
        let scope = apply(MODULE, "ScriptAlias /cgi-bin/ /usr/lib/cgi-bin/").unwrap();
        let mut request = request("/cgi-bin/x", None);
        let root = Path::new("/");
        let file = translate(
            &mut request,
            &scope.server.alias,
            &scope.directory.alias,
            core_settings(),
            root,
        )
        .unwrap();
        assert_eq!(file, Some("/usr/lib/cgi-bin/x".into()));
        assert_eq!(request.resource.content.handler.as_deref(), Some(CGI));
        assert_eq!(request.resource.notes.value("context-prefix"), Some(&b"/cgi-bin/"[..]));
    }

    #[test]
    fn an_alias_in_a_location_is_one_file_unless_the_path_is_preserved() {
        let at = |text: &str| {
            let scope = apply_in(MODULE, Place::Location("/l".into()), text).unwrap();
            let mut request = request("/l/rest", None);
            translate(
                &mut request,
                &scope.server.alias,
                &scope.directory.alias,
                core_settings(),
                Path::new("/"),
            )
            .unwrap()
        };
        assert_eq!(at("Alias /usr/one"), Some("/usr/one".into()));
        assert_eq!(at("AliasPreservePath On\nAlias /usr/one"), Some("/usr/one/rest".into()));
    }

    #[test]
    fn a_virtual_host_is_asked_before_the_main_server() {
        let base = apply(MODULE, "Redirect /a http://base/").unwrap().server.alias;
        let over = apply(MODULE, "Redirect /a http://over/").unwrap().server.alias;
        let merged = Rules::merge(&base, &over);
        let first = merged.redirects.first().and_then(|rule| rule.real.as_deref());
        assert_eq!((merged.redirects.len(), first), (2, Some(&b"http://over/"[..])));
    }
}
