//! mod_dir: what a request for a folder is answered with, and one for nothing at all. The
//! settings and a request go in; a redirect to the path with its slash, or the paths of the files
//! to look for go out. It looks at no file: `pipeline` does that with a look at each path.

mod directives;

pub use crate::{NoSettings as Server, NoSettings as Global};
pub use directives::MODULE;

use crate::core::{FOLDER, public_url};
use crate::{CoreSettings, Merge};
use evenkeel_message::{Answer, Fields, Method, Request, Status};
use std::sync::Arc;

/// The handler of redirects (mod_dir.c: REWRITE_REDIRECT_HANDLER_NAME). A folder with this handler
/// has no index, even where the handler comes from SetHandler.
pub const REDIRECT: &[u8] = b"redirect-handler";

/// What a folder's index is called where nothing is said (AP_DEFAULT_INDEX).
const DEFAULT_INDEX: &str = "index.html";

/// What a section says of folders.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// DirectoryIndex; empty for `disabled`.
    pub index_names: Option<Arc<Vec<Box<str>>>>,
    /// DirectorySlash.
    pub slash: Option<bool>,
    /// DirectoryCheckHandler.
    pub check_handler: Option<bool>,
    /// DirectoryIndexRedirect; the inner none is `Off`.
    pub index_redirect: Option<Option<Status>>,
    /// FallbackResource; the inner none is `disabled`.
    pub fallback: Option<Option<Box<str>>>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; index_names, slash, check_handler, index_redirect, fallback)
    }
}

impl Directory {
    /// The names to look for in a folder, the first at 0.
    #[must_use]
    pub fn index_name(&self, number: usize) -> Option<&str> {
        match &self.index_names {
            Some(names) => names.get(number).map(|name| &**name),
            None => (number == 0).then_some(DEFAULT_INDEX),
        }
    }

    /// All names to look for in a folder.
    pub fn index_names(&self) -> impl Iterator<Item = &str> {
        (0..).map_while(|number| self.index_name(number))
    }

    /// The status that leads to an index by its own name, where it is not served at once.
    #[must_use]
    pub fn redirect_status(&self) -> Option<Status> {
        self.index_redirect.flatten()
    }

    /// Whether another handler than that of folders keeps this module out.
    #[must_use]
    pub fn leaves_to(&self, handler: Option<&[u8]>) -> bool {
        let checks = self.check_handler == Some(true);
        handler.is_some_and(|name| name == REDIRECT || checks && name != FOLDER)
    }

    /// The path to serve in place of one where nothing is.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_ref()?.as_deref()
    }
}

/// What becomes of a folder whose name came without its slash (mod_dir.c: fixup_dir).
#[derive(Debug)]
pub enum Slash {
    /// It has its slash.
    There,
    /// It has none and gets none: there is no index to look for.
    Missing,
    /// The client is sent to the path with the slash.
    Redirect(Answer),
}

/// Looks for the slash at the end of a folder's path.
#[must_use]
pub fn slash(request: &Request, settings: &Directory, core: CoreSettings<'_>) -> Slash {
    if request.resource.path.ends_with(b"/") {
        return Slash::There;
    }
    // HEAD is a GET without a body here.
    let is_get = matches!(request.resource.method, Method::Get | Method::Head);
    let careful = || request.resource.env.contains("redirect-carefully");
    if settings.slash == Some(false) || (!is_get && careful()) {
        return Slash::Missing;
    }
    let mut path = Vec::with_capacity(request.resource.path.len() + 1);
    evenkeel_proto::escape_uri(&mut path, &request.resource.path);
    path.push(b'/');
    if let Some(query) = &request.resource.query {
        path.push(b'?');
        path.extend_from_slice(query);
    }
    let mut fields = Fields::new();
    fields.set("Location", public_url(request, core, &path));
    Slash::Redirect(Answer::with_fields(Status::MOVED_PERMANENTLY, fields))
}

/// The answer that leads to an index by its own name (DirectoryIndexRedirect).
#[must_use]
pub fn redirect_to_index(
    request: &Request,
    core: CoreSettings<'_>,
    index: &[u8],
    status: Status,
) -> Answer {
    let mut fields = Fields::new();
    fields.set("Location", public_url(request, core, index));
    Answer::with_fields(status, fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::core_settings;
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

    fn location(answer: &Slash) -> String {
        let Slash::Redirect(Answer::Status(status, Some(fields))) = answer else {
            return String::new();
        };
        let location = String::from_utf8_lossy(fields.first("Location").unwrap()).into_owned();
        format!("{} {location}", status.code())
    }

    #[test]
    fn a_folder_gets_its_slash_and_keeps_its_query() {
        let mut settings = Directory::default();
        let asked = request("/a b", Some("x=%20"));
        assert_eq!(
            location(&slash(&asked, &settings, core_settings())),
            "301 http://h/a%20b/?x=%20"
        );
        assert!(matches!(slash(&request("/a/", None), &settings, core_settings()), Slash::There));
        settings.slash = Some(false);
        assert!(matches!(slash(&asked, &settings, core_settings()), Slash::Missing));
    }

    #[test]
    fn clients_that_redirect_a_post_wrongly_are_spared() {
        let settings = Directory::default();
        let mut asked = request("/a", None);
        asked.resource.env.set("redirect-carefully", "1");
        assert!(matches!(slash(&asked, &settings, core_settings()), Slash::Redirect(_)));
        asked.resource.method = Method::Post;
        assert!(matches!(slash(&asked, &settings, core_settings()), Slash::Missing));
    }

    #[test]
    fn inner_sections_win_and_disabled_leaves_no_name() {
        let outer = Directory { fallback: Some(Some("/f".into())), ..Directory::default() };
        assert_eq!((outer.index_name(0), outer.index_name(1)), (Some("index.html"), None));
        assert_eq!(outer.fallback(), Some("/f"));
        let inner = Directory {
            index_names: Some(Arc::default()),
            fallback: Some(None),
            ..Directory::default()
        };
        let merged = Directory::merge(&outer, &inner);
        assert_eq!(merged.index_name(0), None);
        assert_eq!(merged.fallback(), None);
    }
}
