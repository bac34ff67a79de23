//! The target resource of a request (RFC 9110, section 7.1): everything that belongs to the path
//! that is served. A subrequest and an internal redirect have a resource of their own. Every
//! function here names every field, so that a new field cannot be forgotten.

use crate::{Fields, FileName, Method, Proxied, Status, UrlPath, Variables};
use std::any::Any;
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

/// What is known of the content that will be served. `prepare` sets it from the name of the file
/// and the configuration (mod_mime, ForceType, SetHandler).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The media type with its parameters.
    pub media_type: Option<Box<[u8]>>,
    /// The value of Content-Encoding.
    pub encoding: Option<Box<[u8]>>,
    /// The values of Content-Language.
    pub languages: Vec<Box<[u8]>>,
    /// The output filters that the file's extensions name, separated by `;` (AddOutputFilter).
    pub output_filters: Option<Box<[u8]>>,
    /// The input filters that the file's extensions name, separated by `;` (AddInputFilter).
    pub input_filters: Option<Box<[u8]>>,
    /// The name of the handler. `None` means that the media type names the handler
    /// ([`Content::handler_name`]).
    pub handler: Option<Box<[u8]>>,
    /// Whether AddDefaultCharset must not change the media type.
    pub charset_fixed: bool,
    /// The path to which the handler `redirect-handler` redirects the request internally, without
    /// the query (mod_rewrite).
    pub redirect: Option<Box<[u8]>>,
    /// Whether the default handler has taken the request. If no other handler is named, conditions
    /// then see the media type as the handler's name (config.c: ap_invoke_handler).
    pub is_by_type: bool,
    /// The modification time of the file, in microseconds since 1970 (Apache: finfo.mtime). It is
    /// set only if a directive needs it. `None` if there is no file.
    pub changed_us: Option<i64>,
}

impl Content {
    /// The name of the handler that the configuration sets, or the media type without its
    /// parameters (config.c: `ap_invoke_handler`).
    #[must_use]
    pub fn handler_name(&self) -> Option<&[u8]> {
        let of_type = || {
            let media_type = self.media_type.as_deref()?;
            let name = media_type.split(|byte| *byte == b';').next()?;
            Some(name.trim_ascii())
        };
        self.handler.as_deref().or_else(of_type)
    }

    /// The name of the handler if it runs programs in some module of Apache or of another project.
    /// The file of such a handler is source code and must not be sent.
    #[must_use]
    pub fn program_handler(&self) -> Option<&[u8]> {
        // Each request for a file calls this function, so it copies nothing. Most files have
        // one of these media types.
        self.handler_name().filter(|name| {
            if name.starts_with(b"image/") || PAGES.contains(name) {
                return false;
            }
            let is_php = |window: &[u8]| window.eq_ignore_ascii_case(b"php");
            let is_proxy = |start: &[u8]| start.eq_ignore_ascii_case(b"proxy:");
            name.get(..6).is_some_and(is_proxy)
                || name.windows(3).any(is_php)
                || PROGRAMS.iter().any(|program| name.eq_ignore_ascii_case(program))
        })
    }
}

/// Frequent media types of files that are no programs.
const PAGES: [&[u8]; 4] = [b"text/html", b"text/css", b"text/javascript", b"text/plain"];

/// Handlers that run programs, in lower case. The last one is a media type that mod_cgi accepts as
/// the name of its handler.
const PROGRAMS: [&[u8]; 13] = [
    b"cgi-script",
    b"fcgid-script",
    b"fastcgi-script",
    b"wsgi-script",
    b"perl-script",
    b"modperl",
    b"mod_python",
    b"python-program",
    b"passenger-handler",
    b"lua-script",
    b"isapi-handler",
    b"server-parsed",
    b"application/x-httpd-cgi",
];

/// What a response must say because one of several variants was chosen (mod_negotiation).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// The entity tag of the list of variants; the tag of the variant follows it.
    pub validator: Option<Box<[u8]>>,
    /// Whether a cache that does not know Vary must not store the response (Apache: no_cache).
    pub uncached: bool,
}

/// What a section walk has found of a folder, and the settings of the sections on the way. The room
/// that walks defines both types.
pub type WalkedFolder = (Rc<dyn Any>, Rc<dyn Any>);

/// Identifies merged settings. Two requests have the same id exactly if Apache uses the same
/// configuration in memory for both (per_dir_config), by whose address it decides whether they are
/// in the same sections. The default is the id of the server's settings outside sections. Other ids
/// are comparable only among a client's request, its subrequests and its internal redirects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettingsId(u64);

impl SettingsId {
    /// The id of settings that are newly merged. `merges` counts all merges so far.
    #[must_use]
    pub fn next(merges: &mut u64) -> Self {
        *merges += 1;
        Self(*merges)
    }
}

/// The result of a section walk (request.c: walk_cache_t).
#[derive(Clone, Debug)]
pub struct SectionWalk<S> {
    /// The settings that it began with; none while the first walk of its kind is in progress.
    pub base: Option<SettingsId>,
    /// The sections that held. While the walk is in progress: the sections found so far, followed
    /// by those sections of the compared walk that may still be found.
    pub held: S,
    /// The resulting settings.
    pub result: SettingsId,
    /// The path or file of the walk, where the sections alone do not tell whether two walks have
    /// the same result.
    pub place: Option<Box<[u8]>>,
}

/// The section walks of a request, in order, as Apache keeps them to decide whether another request
/// has the same settings (request.c: prep_walk_cache).
#[derive(Clone, Debug, Default)]
pub struct SectionWalks {
    /// The walk of `<Directory>`, .htaccess and `<Files>`. The room that walks defines the type.
    pub folders: Option<SectionWalk<Rc<dyn Any>>>,
    /// The walks of `<Location>`. The room that walks defines the type.
    pub locations: Vec<SectionWalk<Rc<dyn Any>>>,
    /// The walks of `<If>`, with the numbers of the sections. Nested sections have walks of their
    /// own.
    pub conditions: Vec<SectionWalk<Vec<u64>>>,
}

impl SectionWalks {
    fn clear(&mut self) {
        let Self { folders, locations, conditions } = self;
        *folders = None;
        locations.clear();
        conditions.clear();
    }

    fn memory(&self) -> usize {
        let Self { folders: _, locations, conditions } = self;
        locations.capacity() * size_of::<SectionWalk<Rc<dyn Any>>>()
            + conditions.capacity() * size_of::<SectionWalk<Vec<u64>>>()
    }
}

/// A resource, as far as the phases have found out about it.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The path of the URL.
    pub path: UrlPath,
    /// The query string without the question mark.
    pub query: Option<Vec<u8>>,
    /// The file that the path was mapped to.
    pub file: FileName,
    /// The target of a proxied request, which has no file (Apache: a file name with `proxy:`).
    pub proxied: Option<Box<Proxied>>,
    /// The rest of the path after the file, with its slash (PATH_INFO).
    pub path_info: Vec<u8>,
    /// The method. Subrequests and the pages of errors use GET, whatever the client sent (Apache:
    /// r->method).
    pub method: Method,
    /// 200, or the error whose ErrorDocument is being served.
    pub status: Status,
    /// The request's fields, if they differ from those that the client sent (RequestHeader; Apache:
    /// headers_in).
    pub changed_fields: Option<Rc<Fields>>,
    /// The environment: SetEnv, SetEnvIf, RewriteRule [E] (Apache: subprocess_env).
    pub env: Variables,
    /// Notes that modules leave for each other and for `%{NAME}n`.
    pub notes: Variables,
    /// What is known of the content.
    pub content: Content,
    /// The authenticated user.
    pub user: Option<Box<[u8]>>,
    /// `Basic` or `Digest`; set together with `user`.
    pub auth_type: Option<Arc<[u8]>>,
    /// The login of the parent request of a subrequest or an internal redirect. It is reused if
    /// both requests have the same settings (request.c: `ap_process_request_internal`).
    pub known_login: Option<Box<Login>>,
    /// Fields of the response, unless it is the standard page of an error. A handler's own fields
    /// win over them (Apache: headers_out).
    pub fields: Fields,
    /// Fields of every response, including errors and the responses after internal redirects
    /// (Apache: err_headers_out).
    pub always: Fields,
    /// AcceptPathInfo of a request whose file was replaced by that of a subrequest. `None`
    /// otherwise (Apache: used_path_info).
    pub takes_path: Option<bool>,
    /// What a choice among variants adds to the response; none if there was no choice.
    pub negotiated: Option<Box<Negotiated>>,
    /// The depth of subrequests; 0 for the client's own request (Apache: the length of the chain
    /// r->main).
    pub depth: u8,
    /// For a subrequest: the path of the request that it belongs to (Apache: `r->main->uri`).
    pub main_path: Option<Box<[u8]>>,
    /// Whether it is the subrequest of a question (`-U`, `-F`).
    pub is_question: bool,
    /// Whether this is the resource of a subrequest (or of one within it) for a file whose name was
    /// known before its path.
    pub is_of_file: bool,
    /// Whether the conditions of the request's fields do not apply (Apache: no_local_copy). They
    /// never apply to a subrequest.
    pub is_unconditional: bool,
    /// Whether a RewriteRule with the flag END has matched. No rules are applied after that, to
    /// this request and to its internal redirects.
    pub is_rewriting_over: bool,
    /// What the section walk has found of the folder, for subrequests to other files in it; none
    /// before the walk. A request that is redirected internally begins with the result of the
    /// request before it.
    pub walked: Option<WalkedFolder>,
    /// The settings that hold now (Apache: r->per_dir_config).
    pub settings: SettingsId,
    /// The results of its section walks.
    pub walks: SectionWalks,
    /// The settings of the request that this one is a subrequest or an internal redirect of; none
    /// for a client's own request.
    pub known_settings: Option<SettingsId>,
    /// The section walks of that request.
    pub known_walks: SectionWalks,
}

impl Default for Resource {
    fn default() -> Self {
        Self {
            path: UrlPath::default(),
            query: None,
            file: FileName::default(),
            proxied: None,
            path_info: Vec::new(),
            method: Method::Get,
            status: Status::OK,
            changed_fields: None,
            env: Variables::new(),
            notes: Variables::new(),
            content: Content::default(),
            user: None,
            auth_type: None,
            known_login: None,
            fields: Fields::new(),
            always: Fields::new(),
            takes_path: None,
            negotiated: None,
            depth: 0,
            main_path: None,
            is_question: false,
            is_of_file: false,
            is_unconditional: false,
            is_rewriting_over: false,
            walked: None,
            settings: SettingsId::default(),
            walks: SectionWalks::default(),
            known_settings: None,
            known_walks: SectionWalks::default(),
        }
    }
}

/// The user name and the AuthType of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    user: Option<Box<[u8]>>,
    auth_type: Option<Arc<[u8]>>,
}

impl Resource {
    /// The file name as Apache has it (`r->filename`): for a proxied request it is `proxy:` and the
    /// URL.
    #[must_use]
    pub fn file_name(&self) -> Cow<'_, [u8]> {
        match &self.proxied {
            Some(proxied) => [b"proxy:", &*proxied.name].concat().into(),
            None => self.file.as_bytes().into(),
        }
    }

    fn login(&self) -> Option<Box<Login>> {
        let Self { user, auth_type, .. } = self;
        let is_known = user.is_some() || auth_type.is_some();
        is_known.then(|| Box::new(Login { user: user.clone(), auth_type: auth_type.clone() }))
    }

    /// Reuses the login of the parent request.
    pub fn keep_login(&mut self) {
        (self.user, self.auth_type) = match &self.known_login {
            Some(login) => (login.user.clone(), login.auth_type.clone()),
            None => (None, None),
        };
    }

    /// The resource of a subrequest (request.c: make_sub_request).
    #[must_use]
    pub fn of_subrequest(&self, path: UrlPath, query: Option<Vec<u8>>) -> Self {
        Self {
            path,
            query,
            file: FileName::default(),
            proxied: None,
            path_info: Vec::new(),
            method: Method::Get,
            status: Status::OK,
            changed_fields: self.changed_fields.clone(),
            env: self.env.clone(),
            notes: Variables::new(),
            content: Content::default(),
            user: None,
            auth_type: None,
            known_login: self.login(),
            fields: Fields::new(),
            always: Fields::new(),
            takes_path: None,
            negotiated: None,
            depth: self.depth + 1,
            main_path: Some(self.path[..].into()),
            is_question: false,
            is_of_file: self.is_of_file,
            is_unconditional: true,
            is_rewriting_over: false,
            walked: self.walked.clone(),
            settings: SettingsId::default(),
            walks: SectionWalks::default(),
            known_settings: Some(self.settings),
            known_walks: self.walks.clone(),
        }
    }

    /// The resource of a request that is replaced by one of its subrequests (http_request.c:
    /// ap_internal_fast_redirect).
    #[must_use]
    pub fn replaced_by(self, found: Self) -> Self {
        let mut notes = found.notes;
        for (name, value) in self.notes.iter() {
            if !notes.contains(name) {
                notes.set(name, value);
            }
        }
        let (mut fields, mut always) = (self.fields, self.always);
        fields.extend(&found.fields);
        always.overlay(&found.always);
        Self {
            path: found.path,
            query: found.query,
            file: found.file,
            proxied: found.proxied,
            path_info: found.path_info,
            method: self.method,
            status: self.status,
            changed_fields: self.changed_fields,
            env: found.env,
            notes,
            content: found.content,
            user: found.user,
            auth_type: found.auth_type,
            known_login: self.known_login,
            fields,
            always,
            takes_path: self.takes_path,
            negotiated: self.negotiated,
            depth: self.depth,
            main_path: self.main_path,
            is_question: self.is_question,
            is_of_file: self.is_of_file,
            is_unconditional: self.is_unconditional,
            is_rewriting_over: self.is_rewriting_over,
            walked: self.walked,
            settings: found.settings,
            walks: self.walks,
            known_settings: self.known_settings,
            known_walks: self.known_walks,
        }
    }

    /// Becomes the resource of an internal redirect to another path, and returns the previous state
    /// (http_request.c: internal_internal_redirect).
    pub fn redirect(&mut self, path: UrlPath, query: Option<Vec<u8>>, env: Variables) -> Self {
        let new = Self {
            path,
            query,
            file: FileName::default(),
            proxied: None,
            path_info: Vec::new(),
            method: self.method,
            status: self.status,
            changed_fields: self.changed_fields.clone(),
            env,
            notes: Variables::new(),
            content: Content::default(),
            user: None,
            auth_type: None,
            known_login: self.login(),
            fields: Fields::new(),
            always: std::mem::take(&mut self.always),
            takes_path: None,
            negotiated: self.negotiated.take(),
            depth: self.depth,
            main_path: self.main_path.clone(),
            is_question: self.is_question,
            is_of_file: false,
            is_unconditional: self.depth > 0,
            is_rewriting_over: self.is_rewriting_over,
            walked: self.walked.clone(),
            settings: SettingsId::default(),
            walks: SectionWalks::default(),
            known_settings: Some(self.settings),
            known_walks: std::mem::take(&mut self.walks),
        };
        std::mem::replace(self, new)
    }

    /// Resets the resource for another request of a client, and keeps its memory.
    pub fn renew(&mut self) {
        let Self {
            path,
            query,
            file,
            proxied,
            path_info,
            method,
            status,
            changed_fields,
            env,
            notes,
            content,
            user,
            auth_type,
            known_login,
            fields,
            always,
            takes_path,
            negotiated,
            depth,
            main_path,
            is_question,
            is_of_file,
            is_unconditional,
            is_rewriting_over,
            walked,
            settings,
            walks,
            known_settings,
            known_walks,
        } = self;
        path.clear();
        file.clear();
        path_info.clear();
        env.clear();
        notes.clear();
        fields.clear();
        always.clear();
        walks.clear();
        known_walks.clear();
        *content = Content::default();
        (*method, *status, *depth) = (Method::Get, Status::OK, 0);
        (*query, *user, *auth_type, *main_path) = (None, None, None, None);
        (*is_question, *is_rewriting_over, *is_unconditional) = (false, false, false);
        *proxied = None;
        *known_login = None;
        (*negotiated, *walked, *known_settings, *changed_fields) = (None, None, None, None);
        (*is_of_file, *takes_path, *settings) = (false, None, SettingsId::default());
    }

    /// The memory for what a client and its files have said, used or not, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.path.capacity()
            + self.file.capacity()
            + self.path_info.capacity()
            + self.fields.memory()
            + self.always.memory()
            + self.walks.memory()
            + self.known_walks.memory()
    }
}
