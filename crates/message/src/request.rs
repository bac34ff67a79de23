//! A request: its head as it came, and what the phases have found out about it so far.

use crate::{
    Allowance, BodyLength, Fields, HostNames, Method, Notice, Peer, Probe, Resource, Response,
    Source, Status, Told, UrlPath, Variables,
};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ops::Deref;
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
        self.line.capacity() + self.fields.memory()
    }

    /// Forgets the request and keeps its memory for the next.
    pub fn clear(&mut self) {
        let Self { line, method, method_end, target, version, fields, length, wire_bytes } = self;
        line.clear();
        fields.clear();
        (*method, *method_end, *target, *version) = (Method::Get, 0, (0, 0), Version::Http11);
        (*length, *wire_bytes) = (BodyLength::None, 0);
    }
}

/// The head of a request as the client has sent it. Only the connection that reads it changes it.
#[derive(Clone, Debug, Default)]
pub struct ReceivedHead(RequestHead);

impl ReceivedHead {
    /// The head while the connection reads it.
    pub fn receive(&mut self) -> &mut RequestHead {
        &mut self.0
    }
}

impl Deref for ReceivedHead {
    type Target = RequestHead;

    fn deref(&self) -> &RequestHead {
        &self.0
    }
}

/// One request on its way through the phases. `conn` makes it, the phases fill it, `record`
/// reads it; it lives on one serving thread.
pub struct Request {
    /// The head as it came. [`Request::fields`] are its fields with what RequestHeader has changed.
    pub head: ReceivedHead,
    /// Trailer fields of a chunked body, once it has been read.
    pub trailers: Fields,
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
    /// What belongs to the path that is served.
    pub resource: Resource,
    /// What was looked up of host names for it; none where nothing was.
    pub names: Option<Box<HostNames>>,
    /// Where it answers a question: what those are told that are asked too deep within it.
    pub beyond: Option<Rc<Beyond>>,
    /// How many looks at other paths this request has taken in all.
    pub looks: u16,
    /// How many files it has looked at to choose one of them (MultiViews).
    pub variant_looks: u16,
    /// What was read of a folder for it beforehand; none where nothing was.
    pub siblings: Option<Rc<Siblings>>,
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
    /// How many times settings were merged for it and its subrequests ([`SettingsId::next`]).
    pub merges: u64,
    /// What its patterns and expressions may still take.
    pub allowance: Allowance,
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
    /// Its resource. The path is REDIRECT_URL, the status that led here REDIRECT_STATUS; the
    /// environment reappears with `REDIRECT_` in front of each name.
    pub resource: Resource,
    /// The method as it came: an ErrorDocument is fetched with GET.
    pub method: Vec<u8>,
    /// The settings that held for it: the page of its error is made under them.
    pub plan: Option<Arc<dyn Any>>,
    /// Whether the error log has a line of it.
    pub told: bool,
    /// The request before that one.
    pub previous: Option<Box<Previous>>,
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

impl Request {
    /// A request that has just come; the phases fill the rest.
    #[must_use]
    pub fn new(head: RequestHead, peer: Peer, time_us: u64) -> Self {
        let resource = Resource { method: head.method, ..Resource::default() };
        Self {
            head: ReceivedHead(head),
            trailers: Fields::new(),
            body: None,
            peer,
            time_us,
            keepalives: 0,
            server: 0,
            host: Vec::new(),
            port: None,
            resource,
            names: None,
            beyond: None,
            looks: 0,
            variant_looks: 0,
            siblings: None,
            undecided: false,
            doubtful: false,
            has_bad_path: false,
            shed: false,
            work: 0,
            merges: 0,
            allowance: Allowance::default(),
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

    /// A request of the same client that is for another path, which the caller sets: what a
    /// condition asks about that path, and this one stays as it is.
    #[must_use]
    pub fn question(&self) -> Self {
        let resource = Resource {
            asker: Some(self.resource.path[..].into()),
            is_of_file: false,
            ..self.resource.of_subrequest(UrlPath::default(), None)
        };
        Self {
            head: self.head.clone(),
            trailers: self.trailers.clone(),
            body: None,
            peer: self.peer,
            time_us: self.time_us,
            keepalives: 0,
            server: self.server,
            host: self.host.clone(),
            port: self.port,
            resource,
            names: self.names.clone(),
            beyond: self.beyond.clone(),
            looks: 0,
            variant_looks: 0,
            siblings: None,
            undecided: false,
            doubtful: false,
            has_bad_path: false,
            shed: false,
            work: 0,
            merges: self.merges,
            allowance: self.allowance.clone(),
            probe: self.probe.clone(),
            previous: None,
            spare: None,
            notices: Vec::new(),
            told: Told::default(),
            used_name: None,
            late: None,
            departure: Rc::default(),
        }
    }

    /// The fields of the request as they are for its resource: those of the head, or what
    /// RequestHeader and a subrequest have made of them (Apache: headers_in).
    #[must_use]
    pub fn fields(&self) -> &Fields {
        self.resource.changed_fields.as_deref().unwrap_or(&self.head.fields)
    }

    /// The same, to be changed for the resource and for those that follow from it.
    pub fn fields_mut(&mut self) -> &mut Fields {
        let changed = &mut self.resource.changed_fields;
        Rc::make_mut(changed.get_or_insert_with(|| Rc::new(self.head.fields.clone())))
    }

    /// Makes the request new for another head on the same connection or the next, its memory
    /// kept.
    pub fn renew(&mut self, client: Peer, came_us: u64) {
        let Self {
            head,
            trailers,
            body,
            peer,
            time_us,
            keepalives,
            server,
            host,
            port,
            resource,
            names,
            beyond,
            looks,
            variant_looks,
            siblings,
            undecided,
            doubtful,
            has_bad_path,
            shed,
            work,
            merges,
            allowance,
            probe,
            previous,
            spare,
            notices,
            told,
            used_name,
            late,
            departure,
        } = self;
        head.receive().clear();
        trailers.clear();
        resource.renew();
        host.clear();
        notices.clear();
        allowance.renew();
        if let Some(spare) = spare {
            spare.renew(Status::OK);
        }
        (*peer, *time_us, *keepalives, *server) = (client, came_us, 0, 0);
        (*body, *port, *names, *beyond, *siblings) = (None, None, None, None, None);
        (*probe, *previous, *used_name, *late) = (None, None, None, None);
        (*looks, *variant_looks, *work, *merges) = (0, 0, 0, 0);
        (*undecided, *doubtful, *has_bad_path, *shed) = (false, false, false, false);
        *told = Told::default();
        // One that somebody still has belongs to another request.
        match Rc::get_mut(departure) {
            Some(departure) => *departure = Departure::default(),
            None => *departure = Rc::default(),
        }
    }

    /// How much memory it has for what a client and its files have said, used or not, in bytes;
    /// of a renewed request, that is nearly all.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.head.memory()
            + self.trailers.memory()
            + self.host.capacity()
            + self.resource.memory()
            + self.spare.as_ref().map_or(0, Response::memory)
    }

    /// The name of the method that it has now: a look at another path and the page of an error are
    /// for GET, whatever the client has sent (Apache: r->method).
    #[must_use]
    pub fn method_name(&self) -> &[u8] {
        match self.resource.method {
            Method::Head if self.resource.status != Status::OK && self.previous.is_some() => b"GET",
            Method::Registered | Method::Other => self.head.method_text(),
            method => method.text().as_bytes(),
        }
    }

    /// Whether only the head of the response is wanted.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.resource.method == Method::Head
    }

    /// Takes over what the body has told in the end.
    pub fn take_late(&mut self) {
        let Some(late) = self.late.take() else { return };
        let mut late = late.borrow_mut();
        for (name, value) in late.notes.iter() {
            self.resource.notes.set(name, value);
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
