//! The target resource of a request (RFC 9110, section 7.1): all that belongs to the path that is
//! served. A subrequest and an internal redirect get one of their own, and each function here names
//! every field, so that a new one cannot be forgotten.

use crate::{Fields, FileName, Method, Status, UrlPath, Variables};
use std::any::Any;
use std::rc::Rc;

/// What is known of the content that will be served: set by `prepare`, from the file's name and
/// the configuration (mod_mime, ForceType, SetHandler).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The media type with its parameters.
    pub media_type: Option<Box<[u8]>>,
    /// Content-Encoding.
    pub encoding: Option<Box<[u8]>>,
    /// Content-Language values.
    pub languages: Vec<Box<[u8]>>,
    /// Output filters that its extensions name, `;` between them (AddOutputFilter).
    pub output_filters: Option<Box<[u8]>>,
    /// The handler's name; none means the default handler. A media type never stands for one.
    pub handler: Option<Box<[u8]>>,
    /// Whether AddDefaultCharset must not add to the media type.
    pub charset_fixed: bool,
    /// Whether the default handler has taken the request: conditions see the media type as the
    /// handler's name then, where no other is named (config.c: ap_invoke_handler).
    pub is_by_type: bool,
}

/// What a response owes to the choice of one variant among several (mod_negotiation).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// The entity tag of the list of variants, which the variant's own tag is followed by.
    pub validator: Option<Box<[u8]>>,
    /// Whether a cache that knows no Vary must not keep it (Apache: no_cache).
    pub uncached: bool,
}

/// What a section walk has found of a folder, and the settings of the sections that it has met:
/// types of the room that walks.
pub type WalkedFolder = (Rc<dyn Any>, Rc<dyn Any>);

/// Which merged settings hold for a request: the same id wherever Apache has the same configuration
/// in memory (per_dir_config), by whose address it tells whether two requests are in the same
/// sections. The default is the id of the server's settings outside of sections. The other ids are
/// compared among a client's request, its subrequests and its internal redirects alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettingsId(u64);

impl SettingsId {
    /// The id of settings that are merged anew; `merges` is how many were merged before.
    #[must_use]
    pub fn next(merges: &mut u64) -> Self {
        *merges += 1;
        Self(*merges)
    }
}

/// What a section walk has come to (request.c: walk_cache_t).
#[derive(Clone, Debug)]
pub struct SectionWalk<S> {
    /// The settings that it began with; none where it is the first of its kind and under way.
    pub base: Option<SettingsId>,
    /// The sections that held. While the walk is under way, they are those that it has met, and
    /// behind them those that the walk before came to and that it may still meet.
    pub held: S,
    /// The settings that they led to.
    pub result: SettingsId,
    /// The path or file that it was for, where the sections do not tell alone whether two walks
    /// came to the same.
    pub place: Option<Box<[u8]>>,
}

/// The section walks of a request, in their order, as Apache keeps them to tell whether another
/// request comes to the very same settings (request.c: prep_walk_cache).
#[derive(Clone, Debug, Default)]
pub struct SectionWalks {
    /// Of `<Directory>`, .htaccess and `<Files>`: a type of the room that walks.
    pub folders: Option<SectionWalk<Rc<dyn Any>>>,
    /// Of the `<Location>` sections: types of the room that walks.
    pub locations: Vec<SectionWalk<Rc<dyn Any>>>,
    /// Of the `<If>` sections, by their numbers; those nested within have walks of their own.
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

/// A resource, as far as the phases have come to know it.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The path of its URL.
    pub path: UrlPath,
    /// The query string without its question mark.
    pub query: Option<Vec<u8>>,
    /// The file that the path was mapped to.
    pub file: FileName,
    /// What was left of the path behind the file, with its slash (PATH_INFO).
    pub path_info: Vec<u8>,
    /// The method: a subrequest and the page of an error are for GET, whatever the client has sent
    /// (Apache: r->method).
    pub method: Method,
    /// 200, or the error whose ErrorDocument is fetched.
    pub status: Status,
    /// The fields of the request where they are others for it than those that the client has sent
    /// (RequestHeader; Apache: headers_in).
    pub changed_fields: Option<Rc<Fields>>,
    /// Environment: SetEnv, SetEnvIf, RewriteRule [E] (Apache: subprocess_env).
    pub env: Variables,
    /// Notes between modules and for `%{NAME}n`.
    pub notes: Variables,
    /// What is known of the content.
    pub content: Content,
    /// The authenticated user.
    pub user: Option<Box<[u8]>>,
    /// `Basic` or `Digest`, with `user`.
    pub auth_type: Option<Box<[u8]>>,
    /// Fields that the response gets unless it is an error's standard page; those of a handler
    /// stand for them (Apache: headers_out).
    pub fields: Fields,
    /// Fields that every response gets, errors and those to the requests that it is redirected to
    /// included (Apache: err_headers_out).
    pub always: Fields,
    /// What a choice between variants adds to its response; none where nothing was chosen.
    pub negotiated: Option<Box<Negotiated>>,
    /// How many subrequests deep it is; 0 for the client's own request (Apache: the length of
    /// r->main).
    pub depth: u8,
    /// The path of the request whose expression asks for this one; none where none does.
    pub asker: Option<Box<[u8]>>,
    /// Whether it is that of a subrequest, or of one within it, for a file whose name was known
    /// before its path was.
    pub is_of_file: bool,
    /// What the section walk has found of its folder, for subrequests of other files there; none
    /// before the walk. A request that is redirected internally begins with that of the one before.
    pub walked: Option<WalkedFolder>,
    /// The settings that hold for it now (Apache: r->per_dir_config).
    pub settings: SettingsId,
    /// What its section walks have come to.
    pub walks: SectionWalks,
    /// The settings of the request that led here: the one that it is a subrequest of, or that was
    /// redirected to it. None for a client's own.
    pub known_settings: Option<SettingsId>,
    /// What the section walks of the request that led here came to.
    pub known_walks: SectionWalks,
}

impl Default for Resource {
    fn default() -> Self {
        Self {
            path: UrlPath::default(),
            query: None,
            file: FileName::default(),
            path_info: Vec::new(),
            method: Method::Get,
            status: Status::OK,
            changed_fields: None,
            env: Variables::new(),
            notes: Variables::new(),
            content: Content::default(),
            user: None,
            auth_type: None,
            fields: Fields::new(),
            always: Fields::new(),
            negotiated: None,
            depth: 0,
            asker: None,
            is_of_file: false,
            walked: None,
            settings: SettingsId::default(),
            walks: SectionWalks::default(),
            known_settings: None,
            known_walks: SectionWalks::default(),
        }
    }
}

impl Resource {
    /// The resource of a subrequest (request.c: make_sub_request).
    #[must_use]
    pub fn of_subrequest(&self, path: UrlPath, query: Option<Vec<u8>>) -> Self {
        Self {
            path,
            query,
            file: FileName::default(),
            path_info: Vec::new(),
            method: Method::Get,
            status: Status::OK,
            changed_fields: self.changed_fields.clone(),
            env: self.env.clone(),
            notes: Variables::new(),
            content: Content::default(),
            user: self.user.clone(),
            auth_type: self.auth_type.clone(),
            fields: Fields::new(),
            always: Fields::new(),
            negotiated: None,
            depth: self.depth + 1,
            asker: None,
            is_of_file: self.is_of_file,
            walked: self.walked.clone(),
            settings: SettingsId::default(),
            walks: SectionWalks::default(),
            known_settings: Some(self.settings),
            known_walks: self.walks.clone(),
        }
    }

    /// The resource of a request that becomes what a subrequest of it has found
    /// (http_request.c: ap_internal_fast_redirect).
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
            path_info: found.path_info,
            method: self.method,
            status: self.status,
            changed_fields: self.changed_fields,
            env: found.env,
            notes,
            content: found.content,
            user: found.user,
            auth_type: found.auth_type,
            fields,
            always,
            negotiated: self.negotiated,
            depth: self.depth,
            asker: self.asker,
            is_of_file: self.is_of_file,
            walked: self.walked,
            settings: found.settings,
            walks: self.walks,
            known_settings: self.known_settings,
            known_walks: self.known_walks,
        }
    }

    /// Makes it that of an internal redirect to another path, and gives what it was
    /// (http_request.c: internal_internal_redirect).
    pub fn redirect(&mut self, path: UrlPath, query: Option<Vec<u8>>, env: Variables) -> Self {
        let new = Self {
            path,
            query,
            file: FileName::default(),
            path_info: Vec::new(),
            method: self.method,
            status: self.status,
            changed_fields: self.changed_fields.clone(),
            env,
            notes: Variables::new(),
            content: Content::default(),
            user: self.user.clone(),
            auth_type: self.auth_type.clone(),
            fields: Fields::new(),
            always: std::mem::take(&mut self.always),
            negotiated: self.negotiated.take(),
            depth: self.depth,
            asker: self.asker.clone(),
            is_of_file: false,
            walked: self.walked.clone(),
            settings: SettingsId::default(),
            walks: SectionWalks::default(),
            known_settings: Some(self.settings),
            known_walks: std::mem::take(&mut self.walks),
        };
        std::mem::replace(self, new)
    }

    /// Makes it new for another request of a client, its memory kept.
    pub fn renew(&mut self) {
        let Self {
            path,
            query,
            file,
            path_info,
            method,
            status,
            changed_fields,
            env,
            notes,
            content,
            user,
            auth_type,
            fields,
            always,
            negotiated,
            depth,
            asker,
            is_of_file,
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
        (*query, *user, *auth_type, *asker) = (None, None, None, None);
        (*negotiated, *walked, *known_settings, *changed_fields) = (None, None, None, None);
        (*is_of_file, *settings) = (false, SettingsId::default());
    }

    /// How much memory it has for what a client and its files have said, used or not, in bytes.
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
