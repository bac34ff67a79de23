//! A request: its head as it came, and what the phases have found out about it so far.

use crate::{
    Allowance, BodyLength, Fields, FileName, HostNames, Method, Notice, Peer, Probe, Response,
    Source, Status, Told, UrlPath, Variables,
};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// The protocol version of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/0.9: a request line without version; the answer has no head.
    Http09,
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

impl Version {
    /// As it stands in a request line.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Version::Http09 => "HTTP/0.9",
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }
}

/// The head of a request as it came over the wire, checked and taken apart by `proto`.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// The request line without its line end (Apache: the_request).
    pub line: Vec<u8>,
    /// The method; its text is [`RequestHead::method_text`].
    pub method: Method,
    /// Where the method ends in `line`.
    pub method_end: usize,
    /// Where the request target begins and ends in `line`.
    pub target: (usize, usize),
    /// The version.
    pub version: Version,
    /// The header fields.
    pub fields: Fields,
    /// Trailer fields of a chunked body, once it has been read.
    pub trailers: Fields,
    /// How long the body is.
    pub length: BodyLength,
    /// Bytes that the head took on the wire.
    pub wire_bytes: usize,
}

impl Default for RequestHead {
    fn default() -> Self {
        Self {
            line: Vec::new(),
            method: Method::Get,
            method_end: 0,
            target: (0, 0),
            version: Version::Http11,
            fields: Fields::new(),
            trailers: Fields::new(),
            length: BodyLength::None,
            wire_bytes: 0,
        }
    }
}

impl RequestHead {
    /// The text of the method.
    #[must_use]
    pub fn method_text(&self) -> &[u8] {
        self.line.get(..self.method_end).unwrap_or_default()
    }

    /// The request target as it came: origin, absolute, authority or asterisk form
    /// (RFC 9112, section 3.2).
    #[must_use]
    pub fn target(&self) -> &[u8] {
        self.line.get(self.target.0..self.target.1).unwrap_or_default()
    }

    /// Whether only the head of the response is wanted.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.method == Method::Head
    }

    /// How much memory it has for what a client has sent, used or not, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.line.capacity() + self.fields.memory() + self.trailers.memory()
    }

    /// Forgets the request and keeps its memory for the next.
    pub fn clear(&mut self) {
        let Self {
            line,
            method,
            method_end,
            target,
            version,
            fields,
            trailers,
            length,
            wire_bytes,
        } = self;
        line.clear();
        fields.clear();
        trailers.clear();
        (*method, *method_end, *target, *version) = (Method::Get, 0, (0, 0), Version::Http11);
        (*length, *wire_bytes) = (BodyLength::None, 0);
    }
}

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

/// What a section walk has found of a folder, and the settings of the sections that it has met:
/// types of the room that walks.
pub type WalkedFolder = (Rc<dyn Any>, Rc<dyn Any>);

/// One request on its way through the phases. `conn` makes it, the phases fill it, `record`
/// reads it; it lives on one serving thread.
pub struct Request {
    /// The head as it came; RequestHeader may change its fields.
    pub head: RequestHead,
    /// The body still to be read; none where the head says that there is none.
    pub body: Option<Pin<Box<dyn Source>>>,
    /// The two ends of the connection.
    pub peer: Peer,
    /// When the first byte came, microseconds since 1970 (%t, REQUEST_TIME).
    pub time_us: u64,
    /// How many requests were answered on this connection before (%k).
    pub keepalives: u32,
    /// Index of the virtual host in the site.
    pub server: usize,
    /// The host of the request without port, in lower case; empty where none was given.
    pub host: Vec<u8>,
    /// The port that the request names, where it names one.
    pub port: Option<u16>,
    /// The path of its URL.
    pub path: UrlPath,
    /// The query string without its question mark.
    pub query: Option<Vec<u8>>,
    /// The file that the path was mapped to.
    pub file: FileName,
    /// What was left of the path behind the file, with its slash (PATH_INFO).
    pub path_info: Vec<u8>,
    /// Environment of the request: SetEnv, SetEnvIf, RewriteRule [E] (Apache: subprocess_env).
    pub env: Variables,
    /// Notes between modules and for `%{NAME}n`.
    pub notes: Variables,
    /// What is known of the content.
    pub content: Content,
    /// The authenticated user and the kind of authentication.
    pub user: Option<Box<[u8]>>,
    /// `Basic` or `Digest`, with `user`.
    pub auth_type: Option<Box<[u8]>>,
    /// What was looked up of host names for it; none where nothing was.
    pub names: Option<Box<HostNames>>,
    /// 200, or the error whose ErrorDocument this request fetches.
    pub status: Status,
    /// Fields that the response gets unless it is an error's standard page; those of a handler
    /// stand for them (Apache: headers_out).
    pub fields: Fields,
    /// Fields that every response to this request gets, errors and those to the requests that
    /// it is redirected to included (Apache: err_headers_out).
    pub always: Fields,
    /// How many looks at another path deep this is; 0 for the client's own request (Apache:
    /// the length of r->main).
    pub depth: u8,
    /// The path of the request whose expression asks for this one; none where none does.
    pub asker: Option<Box<[u8]>>,
    /// Where it answers a question: what those are told that are asked too deep within it.
    pub beyond: Option<Rc<Beyond>>,
    /// Whether it is a look, or within one, at a file whose name was known before its path was.
    pub is_of_file: bool,
    /// How many looks at other paths this request has taken in all.
    pub looks: u16,
    /// How many files it has looked at to choose one of them (MultiViews).
    pub variant_looks: u16,
    /// What was read of a folder for it beforehand; none where nothing was.
    pub siblings: Option<Rc<Siblings>>,
    /// What a choice between variants adds to its response; none where nothing was chosen.
    pub negotiated: Option<Box<Negotiated>>,
    /// Whether a pattern or condition could not be decided: what depends on it must not let the
    /// request through, nor a response out.
    pub undecided: bool,
    /// Whether a look of it was refused for want of what decides it, such as the client's name: a
    /// question that such a look answers has no answer.
    pub doubtful: bool,
    /// Whether it is refused for its path alone, so that what acts before the path is looked at has
    /// yet to act (Apache's hook post_read_request).
    pub has_bad_path: bool,
    /// Whether it is to be turned away with 503, since more work waits than can be done in time;
    /// a status page is served all the same.
    pub shed: bool,
    /// What was done for it on the serving thread beyond what all requests take, counted in plain
    /// requests that might have been answered instead; others get their turn the sooner for it.
    pub work: u32,
    /// What its patterns and expressions may still take.
    pub allowance: Allowance,
    /// What the section walk has found of its folder, for looks at other files there; none before
    /// the walk. A request that is redirected internally begins with that of the one before.
    pub walked: Option<WalkedFolder>,
    /// The settings of the sections around the file that it was last mapped to, where these have
    /// conditions, before those of the conditions.
    pub unconditioned: Option<Arc<dyn Any>>,
    /// What its walks of sections have come to.
    pub walks: SectionWalks,
    /// What those of the request came to that it is a look of, or that was redirected to it.
    pub known_walks: SectionWalks,
    /// Whether the `<Location>` sections that hold for it did in the same walk of that request.
    pub is_located_again: bool,
    /// Whether its conditions came out as in the same walk of that request.
    pub is_conditioned_again: bool,
    /// The settings under which it was admitted, or is to be, and the depth of the look that was: a
    /// look from there under the same ones needs no decision of its own.
    pub admitted: Option<(u8, Arc<dyn Any>)>,
    /// Where expressions ask about other paths; without it they count as not allowed.
    pub probe: Option<Rc<dyn Probe>>,
    /// The request that was redirected internally to this one, newest first.
    pub previous: Option<Box<Previous>>,
    /// An earlier response, whose memory the next one is made in.
    pub spare: Option<Response>,
    /// What the phases want to have logged, in order; written before the request waits and
    /// before it is answered.
    pub notices: Vec<Notice>,
    /// What the error log has of it and its connection already.
    pub told: Told,
    /// The name under which the server answers it (UseCanonicalName); none where that is the
    /// virtual host's to say, as no section has settled it.
    pub used_name: Option<Box<[u8]>>,
    /// What is known only once the body has been sent; none where nothing will be.
    pub late: Option<Rc<RefCell<Late>>>,
    /// Where a handler that waits or has much work learns that its client has gone.
    pub departure: Rc<Departure>,
}

/// What a body tells when its end has been reached, for the logs.
#[derive(Debug, Default)]
pub struct Late {
    /// Notes for `%{NAME}n`.
    pub notes: Variables,
    /// Notices for the error log.
    pub notices: Vec<Notice>,
}

/// What a handler that waits or has much work asks of `conn`, and is told. Whether the client has
/// gone: the connection is watched as long as the handler asks. A client that has merely ended its
/// side counts as gone: the two cannot be told apart, and it is answered all the same where that is
/// little work. And whether it is the request's turn to have expensive work done.
#[derive(Debug, Default)]
pub struct Departure {
    awaited: Cell<bool>,
    told: Cell<bool>,
    permit: Cell<Permit>,
}

/// Where a request stands that may need a permit for expensive work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Permit {
    /// Nobody gives permits: none is needed.
    #[default]
    Free,
    Needed,
    Asked,
    Given,
}

impl Departure {
    /// Ready once the request may have expensive work done. The asker is polled again then; until
    /// that it must wait for nothing else.
    pub fn poll_permit(&self) -> Poll<()> {
        match self.permit.get() {
            Permit::Free | Permit::Given => Poll::Ready(()),
            Permit::Needed | Permit::Asked => {
                self.permit.set(Permit::Asked);
                Poll::Pending
            }
        }
    }

    /// Says that [`Departure::poll_permit`] waits until a permit is given.
    pub fn require_permit(&self) {
        self.permit.set(Permit::Needed);
    }

    /// Whether a permit was asked for and not given.
    #[must_use]
    pub fn wants_permit(&self) -> bool {
        self.permit.get() == Permit::Asked
    }

    /// Lets the work begin.
    pub fn give_permit(&self) {
        self.permit.set(Permit::Given);
    }

    /// Asks: true once the client has gone. The asker is polled again when it goes.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.awaited.set(true);
        self.told.get()
    }

    /// Whether somebody has asked and was not told.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.awaited.get() && !self.told.get()
    }

    /// Tells that the client has gone.
    pub fn tell(&self) {
        self.told.set(true);
    }
}

/// What a response owes to the choice of one variant among several (mod_negotiation).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// The entity tag of the list of variants, which the variant's own tag is followed by.
    pub validator: Option<Box<[u8]>>,
    /// Whether a cache that knows no Vary must not keep it (Apache: no_cache).
    pub uncached: bool,
}

/// The files of a folder that names without their extensions may mean (MultiViews).
#[derive(Debug)]
pub struct Siblings {
    /// The folder.
    pub folder: PathBuf,
    /// The names that were looked for.
    pub bases: Vec<Vec<u8>>,
    /// The names of the files, in no order; or why the folder cannot be read.
    pub names: Result<Vec<Vec<u8>>, Box<str>>,
}

/// What stays of a request that was redirected internally (ErrorDocument, DirectoryIndex).
#[derive(Clone, Debug)]
pub struct Previous {
    /// Its path before the redirect (REDIRECT_URL).
    pub path: UrlPath,
    /// Its query string.
    pub query: Option<Vec<u8>>,
    /// The file that its path was mapped to.
    pub file: FileName,
    /// What was known of its content.
    pub content: Content,
    /// The status that led here (REDIRECT_STATUS); 200 where no error did.
    pub status: Status,
    /// Its environment, which reappears with `REDIRECT_` in front.
    pub env: Variables,
    /// Its notes, such as the prefix of its alias.
    pub notes: Variables,
    /// The method as it came: an ErrorDocument is fetched with GET.
    pub method: Vec<u8>,
    /// The settings that held for it, to be known again: where they hold for the new request
    /// too, access has been decided (Apache: per_dir_config, compared by address).
    pub plan: Option<Arc<dyn Any>>,
    /// Whether the error log has a line of it.
    pub told: bool,
    /// The request before that one.
    pub previous: Option<Box<Previous>>,
}

impl Previous {
    /// Lets the request be what this one was, or be itself again.
    pub fn exchange(&mut self, request: &mut Request) {
        std::mem::swap(&mut self.path, &mut request.path);
        std::mem::swap(&mut self.query, &mut request.query);
        std::mem::swap(&mut self.file, &mut request.file);
        std::mem::swap(&mut self.content, &mut request.content);
        std::mem::swap(&mut self.env, &mut request.env);
        std::mem::swap(&mut self.notes, &mut request.notes);
    }
}

/// Questions that are asked too deep within another one.
#[derive(Debug)]
pub struct Beyond {
    /// The outermost question.
    pub asked: Box<[u8]>,
    /// What they are answered.
    pub answer: Cell<bool>,
    /// Whether there was one.
    pub is_reached: Cell<bool>,
    /// Whether a request within was let in since it is in the sections of the one that asks, which
    /// would refuse it.
    pub is_presumed: Cell<bool>,
    /// Whether something else than the outermost question led there.
    pub is_mixed: Cell<bool>,
}

/// The outcomes of a request's walks of sections, in their order, as Apache keeps them to tell
/// whether another request comes to the very same settings (request.c: prep_walk_cache).
#[derive(Clone, Debug, Default)]
pub struct SectionWalks {
    /// Of the `<Location>` sections.
    pub locations: Vec<Rc<dyn Any>>,
    /// Of the `<If>` sections.
    pub conditions: Vec<Rc<dyn Any>>,
}

impl SectionWalks {
    fn clear(&mut self) {
        self.locations.clear();
        self.conditions.clear();
    }
}

impl Request {
    /// A request that has just come; the phases fill the rest.
    #[must_use]
    pub fn new(head: RequestHead, peer: Peer, time_us: u64) -> Self {
        Self {
            head,
            body: None,
            peer,
            time_us,
            keepalives: 0,
            server: 0,
            host: Vec::new(),
            port: None,
            path: UrlPath::default(),
            query: None,
            file: FileName::default(),
            path_info: Vec::new(),
            env: Variables::new(),
            notes: Variables::new(),
            content: Content::default(),
            user: None,
            auth_type: None,
            names: None,
            status: Status::OK,
            fields: Fields::new(),
            always: Fields::new(),
            depth: 0,
            asker: None,
            beyond: None,
            is_of_file: false,
            looks: 0,
            variant_looks: 0,
            siblings: None,
            negotiated: None,
            undecided: false,
            doubtful: false,
            has_bad_path: false,
            shed: false,
            work: 0,
            allowance: Allowance::default(),
            walked: None,
            unconditioned: None,
            walks: SectionWalks::default(),
            known_walks: SectionWalks::default(),
            is_located_again: false,
            is_conditioned_again: false,
            admitted: None,
            probe: None,
            previous: None,
            spare: None,
            notices: Vec::new(),
            told: Told::default(),
            used_name: None,
            late: None,
            departure: Rc::default(),
        }
    }

    /// Makes the request new for another head on the same connection or the next, its memory
    /// kept.
    pub fn renew(&mut self, peer: Peer, time_us: u64) {
        self.head.clear();
        self.body = None;
        (self.peer, self.time_us, self.keepalives, self.server) = (peer, time_us, 0, 0);
        self.host.clear();
        self.port = None;
        self.path.clear();
        self.query = None;
        self.file.clear();
        self.path_info.clear();
        self.env.clear();
        self.notes.clear();
        self.content = Content::default();
        (self.user, self.auth_type, self.names, self.previous) = (None, None, None, None);
        self.status = Status::OK;
        self.fields.clear();
        self.always.clear();
        (self.depth, self.probe) = (0, None);
        (self.walked, self.admitted) = (None, None);
        (self.is_of_file, self.unconditioned) = (false, None);
        if let Some(spare) = &mut self.spare {
            spare.renew(Status::OK);
        }
        self.walks.clear();
        self.known_walks.clear();
        (self.is_located_again, self.is_conditioned_again) = (false, false);
        (self.looks, self.variant_looks, self.asker, self.beyond) = (0, 0, None, None);
        (self.undecided, self.doubtful) = (false, false);
        (self.has_bad_path, self.shed) = (false, false);
        self.work = 0;
        (self.siblings, self.negotiated, self.late) = (None, None, None);
        self.allowance.renew();
        self.notices.clear();
        (self.told, self.used_name) = (Told::default(), None);
        // One that somebody still has belongs to another request.
        match Rc::get_mut(&mut self.departure) {
            Some(departure) => *departure = Departure::default(),
            None => self.departure = Rc::default(),
        }
    }

    /// How much memory it has for what a client and its files have said, used or not, in bytes;
    /// of a renewed request, that is nearly all.
    #[must_use]
    pub fn memory(&self) -> usize {
        let fields = [&self.fields, &self.always];
        let paths = [self.host.capacity(), self.path.capacity(), self.path_info.capacity()];
        self.head.memory()
            + fields.map(Fields::memory).iter().sum::<usize>()
            + paths.iter().sum::<usize>()
            + self.file.capacity()
            + self.spare.as_ref().map_or(0, Response::memory)
    }

    /// The name of the method that it has now: a look at another path and the page of an error are
    /// for GET, whatever the client has sent (Apache: r->method).
    #[must_use]
    pub fn method_name(&self) -> &[u8] {
        match self.head.method {
            Method::Head if self.status != Status::OK && self.previous.is_some() => b"GET",
            Method::Registered | Method::Other => self.head.method_text(),
            method => method.text().as_bytes(),
        }
    }

    /// Takes over what the body has told in the end.
    pub fn take_late(&mut self) {
        let Some(late) = self.late.take() else { return };
        let mut late = late.borrow_mut();
        for (name, value) in late.notes.iter() {
            self.notes.set(name, value);
        }
        self.notices.append(&mut late.notices);
    }

    /// Notes something for the error log, with this request's client.
    pub fn notify(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// How many internal redirects led here (LimitInternalRecursion).
    #[must_use]
    pub fn redirects(&self) -> usize {
        std::iter::successors(self.previous.as_deref(), |p| p.previous.as_deref()).count()
    }
}
