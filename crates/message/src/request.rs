//! A request: its head as the client sent it, and what the phases have found out about it.

use crate::{
    Allowance, BodyLength, Fields, HostNames, LogLevels, Lookups, Method, Notice, Peer, Probe,
    Questions, Resource, Response, Secure, Source, Status, Told, UrlPath, Variables, Whole,
};
use bytes::Bytes;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Deref;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;

/// The protocol version of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/0.9: the request line has no version, and the response has no head.
    Http09,
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
    /// HTTP/2. The request line is made up: a client sends none.
    Http2,
}

impl Version {
    /// The version as it is written in a request line.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Version::Http09 => "HTTP/0.9",
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        }
    }
}

/// The head of a request as it was received, after `proto` has checked and parsed it.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// The request line without its line end (Apache: the_request).
    pub line: Vec<u8>,
    /// The method. [`RequestHead::method_text`] is its text.
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
    /// The size of the head as received, in bytes.
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

    /// The request target as received: in origin, absolute, authority or asterisk form (RFC 9112,
    /// section 3.2).
    #[must_use]
    pub fn target(&self) -> &[u8] {
        self.line.get(self.target.0..self.target.1).unwrap_or_default()
    }

    /// Whether the client wants only the head of the response.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.method == Method::Head
    }

    /// The memory for what the client has sent, used or not, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.line.capacity() + self.fields.memory()
    }

    /// Removes the request and keeps its memory for the next one.
    pub fn clear(&mut self) {
        let Self { line, method, method_end, target, version, fields, length, wire_bytes } = self;
        line.clear();
        fields.clear();
        (*method, *method_end, *target, *version) = (Method::Get, 0, (0, 0), Version::Http11);
        (*length, *wire_bytes) = (BodyLength::None, 0);
    }
}

/// The head of a request as the client sent it. Only the connection that receives it changes it. A
/// clone shares the head: it is kept for the page after a panic that has taken the request along.
#[derive(Clone, Debug, Default)]
pub struct ReceivedHead(Rc<RequestHead>);

impl ReceivedHead {
    /// The head, for the connection that receives it. A shared head is copied first.
    pub fn receive(&mut self) -> &mut RequestHead {
        Rc::make_mut(&mut self.0)
    }

    /// Removes the request and keeps its memory for the next one, unless it is shared.
    fn clear(&mut self) {
        match Rc::get_mut(&mut self.0) {
            Some(head) => head.clear(),
            None => self.0 = Rc::default(),
        }
    }
}

impl Deref for ReceivedHead {
    type Target = RequestHead;

    fn deref(&self) -> &RequestHead {
        &self.0
    }
}

/// One request on its way through the phases. `conn` makes it, the phases fill it in, `record`
/// reads it. It stays on one serving thread.
pub struct Request {
    /// The head as received. [`Request::fields`] are its fields as changed by RequestHeader.
    pub head: ReceivedHead,
    /// The trailer fields of a chunked body, once the body has been read.
    pub trailers: Fields,
    /// The body that is still to be read; none if the head says that there is no body.
    pub body: Option<Pin<Box<dyn Source>>>,
    /// The addresses of the client and of this server.
    pub peer: Peer,
    /// The address of the proxy that has connected on behalf of the client (mod_remoteip). `None`
    /// if the client itself has connected. Apache keeps this address in `conn_rec.client_addr`,
    /// and that of the client in `request_rec.useragent_addr`.
    pub proxy: Option<SocketAddr>,
    /// Whether the address of the client was taken from the PROXY header of the connection.
    pub is_introduced: bool,
    /// The TLS session of the connection; none if the connection is in clear text.
    pub secure: Option<Arc<dyn Secure>>,
    /// The time of the first byte, in microseconds since 1970 (%t, REQUEST_TIME).
    pub time_us: u64,
    /// The number of requests answered on this connection before (%k).
    pub keepalives: u32,
    /// The stream of the request in HTTP/2; 0 in other versions.
    pub stream: u32,
    /// The index of the virtual host in the site.
    pub server: usize,
    /// The host of the request without its port, in lower case; empty if there was none.
    pub host: Vec<u8>,
    /// The port in the request, if it has one.
    pub port: Option<u16>,
    /// What belongs to the path that is being served.
    pub resource: Resource,
    /// The host names that were looked up for the request; none if nothing was.
    pub names: Option<Box<HostNames>>,
    /// For a question (`-U`, `-F`): the answer to questions that are nested too deep within it.
    pub beyond: Option<Rc<Beyond>>,
    /// The number of subrequests that this request has made in total.
    pub looks: u16,
    /// The number of files that were examined to choose one of them (MultiViews).
    pub variant_looks: u16,
    /// The questions that its expressions ask about other paths.
    pub questions: Questions,
    /// The look-ups that its access rules wait for.
    pub lookups: Lookups,
    /// Whether a pattern or condition could not be decided. What depends on it must neither admit
    /// the request nor let a response out.
    pub undecided: bool,
    /// Whether one of its subrequests was refused because something that decides it is missing,
    /// such as the client's name. A question that depends on such a subrequest has no answer.
    pub doubtful: bool,
    /// Whether the request is refused only because of its path, so that what acts before the path
    /// is examined (Apache's hook post_read_request) has yet to act.
    pub has_bad_path: bool,
    /// Whether the request is to be rejected with 503, because more work waits than can be done in
    /// time. A status page is served nevertheless.
    pub shed: bool,
    /// The work done for the request on the serving thread beyond what every request takes, in
    /// units of a plain request. Others get their turn sooner if it is high.
    pub work: u32,
    /// How many times settings were merged for the request and its subrequests
    /// ([`SettingsId::next`]).
    pub merges: u64,
    /// The steps that its patterns and expressions may still take.
    pub allowance: Allowance,
    /// Answers questions of expressions about other paths. Without it, these paths count as not
    /// allowed.
    pub probe: Option<Rc<dyn Probe>>,
    /// The request that was redirected internally to this one, newest first.
    pub previous: Option<Box<Previous>>,
    /// An earlier response, whose memory the next response reuses.
    pub spare: Option<Response>,
    /// Messages of the phases for the error log, in order. They are written before the request
    /// waits and before it is answered.
    pub notices: Vec<Notice>,
    /// What the error log already has of the request and its connection.
    pub told: Told,
    /// The server name of the response (UseCanonicalName). None if no section has decided it, so
    /// that the virtual host does.
    pub used_name: Option<Box<[u8]>>,
    /// LogLevel of the section that has answered, for notices that come later; none if it says
    /// nothing.
    pub log_levels: Option<Box<LogLevels>>,
    /// The nonce that the client has used up with this request (Digest authentication). The
    /// request shares it with its questions.
    pub used_nonce: Rc<RefCell<Option<UsedNonce>>>,
    /// What becomes known only once the body has been sent; none if nothing will.
    pub late: Option<Rc<RefCell<Late>>>,
    /// What the cache knows of the request (mod_cache); none if it has nothing to do with it. The
    /// room that looks it up defines the type.
    pub caching: Option<Box<dyn Any>>,
    /// What the pages of the request share (mod_include). The room that parses pages defines the
    /// type.
    pub page: Option<Rc<dyn Any>>,
    /// The body of the request, if what a page includes gets it too (mod_request).
    pub kept_body: Option<Bytes>,
    /// The sessions and logins of the request, which its subrequests and internal redirects share
    /// (mod_session). The room of the modules defines the type.
    pub sessions: Option<Rc<dyn Any>>,
    /// What the programs that run for the request share. The room that runs programs defines the
    /// type.
    pub programs: Option<Weak<dyn Any>>,
    /// The request has taken a place among those that an application answers.
    pub has_place: bool,
    /// The request is for a part of a response that an application may still be sending. It takes
    /// no place: the response may wait for its part, and would hold the last place meanwhile.
    pub shares_place: bool,
    /// Tells a handler that waits or has much work that its client has disconnected.
    pub departure: Rc<Departure>,
}

/// A nonce that a request has used up. The request, its subrequests, its questions and its internal
/// redirects may present it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedNonce {
    /// The nonce.
    pub nonce: Box<[u8]>,
    /// Whether the nonce was valid for one request. Otherwise its count was used up.
    pub is_one_time: bool,
    /// The nonce that the client shall use next, if it shall use another.
    pub next: Option<Box<[u8]>>,
}

/// What a body knows only at its end, for the logs.
#[derive(Debug, Default)]
pub struct Late {
    /// Notes for `%{NAME}n`.
    pub notes: Variables,
    /// Variables for `%{NAME}e`.
    pub env: Variables,
    /// Notices for the error log.
    pub notices: Vec<Notice>,
}

/// The state of the credit of a request. A child process has one credit for each request that it
/// processes at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CreditState {
    /// The request holds the credit. While `conn` waits for the client, it returns and takes the
    /// credit itself.
    #[default]
    Held,
    /// The handler has returned the credit.
    Returned,
    /// The handler waits for the credit.
    Asked,
}

/// What a handler that waits, or has much work, and `conn` tell each other. First, whether the
/// client has disconnected: `conn` watches the connection for as long as the handler asks. A client
/// that has closed only its sending side counts as disconnected, because the two cannot be told
/// apart; where a response takes little work, it is answered all the same. Second, whether the
/// request may begin expensive work. Third, whether the request holds its credit. Fourth, interim
/// responses, which `conn` sends before the response.
#[derive(Debug, Default)]
pub struct Departure {
    awaited: Cell<bool>,
    told: Cell<bool>,
    permit: Cell<Permit>,
    credit: Cell<CreditState>,
    /// Interim responses that are to be sent.
    interim: RefCell<Vec<u8>>,
    /// Whether the request has no credit that it could return.
    is_detached: bool,
}

/// The state of a request that may need a permit for expensive work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Permit {
    /// Permits are not in use, so none is needed.
    #[default]
    Free,
    Needed,
    Asked,
    Given,
}

impl Departure {
    /// For a part of a response, which is made while the response is sent: it holds no credit, and
    /// is dropped when its client disconnects.
    #[must_use]
    pub fn detached() -> Self {
        Self { is_detached: true, ..Self::default() }
    }

    /// Returns ready once the request may begin expensive work. The caller is polled again at that
    /// time, and must not wait for anything else until then.
    pub fn poll_permit(&self) -> Poll<()> {
        match self.permit.get() {
            Permit::Free | Permit::Given => Poll::Ready(()),
            Permit::Needed | Permit::Asked => {
                self.permit.set(Permit::Asked);
                Poll::Pending
            }
        }
    }

    /// Makes [`Departure::poll_permit`] wait until a permit is given.
    pub fn require_permit(&self) {
        self.permit.set(Permit::Needed);
    }

    /// Whether a permit was requested and has not been given.
    #[must_use]
    pub fn wants_permit(&self) -> bool {
        self.permit.get() == Permit::Asked
    }

    /// Gives the permit.
    pub fn give_permit(&self) {
        self.permit.set(Permit::Given);
    }

    /// Returns the credit of the request, so that the child process can start another request.
    /// A handler calls this function before it waits for a resource that other requests hold,
    /// such as a place at an application, and [`Departure::poll_credit`] after that.
    pub fn return_credit(&self) {
        if self.is_detached {
            return;
        }
        self.credit.set(CreditState::Returned);
    }

    /// Takes the credit again. Returns ready if the request holds it. Otherwise the connection
    /// polls the request again when it has a credit, and the caller must not wait for anything
    /// else until then.
    pub fn poll_credit(&self) -> Poll<()> {
        if self.credit.get() == CreditState::Held {
            return Poll::Ready(());
        }
        self.credit.set(CreditState::Asked);
        Poll::Pending
    }

    /// Whether the request has returned its credit and does not wait for it.
    #[must_use]
    pub fn has_returned_credit(&self) -> bool {
        self.credit.get() == CreditState::Returned
    }

    /// Whether the request waits for its credit.
    #[must_use]
    pub fn wants_credit(&self) -> bool {
        self.credit.get() == CreditState::Asked
    }

    /// Gives the request its credit.
    pub fn give_credit(&self) {
        self.credit.set(CreditState::Held);
    }

    /// Has the head of an interim response sent (RFC 9110, section 15.2). A client that does not
    /// read at this moment may not receive it.
    pub fn send_interim(&self, head: &[u8]) {
        self.interim.borrow_mut().extend_from_slice(head);
    }

    /// The heads of interim responses since the last call.
    #[must_use]
    pub fn take_interim(&self) -> Vec<u8> {
        self.interim.take()
    }

    /// Whether the client has disconnected. The caller is polled again when it does.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.awaited.set(true);
        self.told.get()
    }

    /// Whether a handler has asked and the client is still connected.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.awaited.get() && !self.told.get()
    }

    /// Records that the client has disconnected.
    pub fn tell(&self) {
        self.told.set(true);
    }
}

/// What is kept of a request that was redirected internally (ErrorDocument, DirectoryIndex).
#[derive(Clone, Debug)]
pub struct Previous {
    /// Its resource. The path becomes REDIRECT_URL, the status that led here REDIRECT_STATUS, and
    /// the environment reappears with `REDIRECT_` before each name.
    pub resource: Resource,
    /// The method as received: an ErrorDocument is fetched with GET.
    pub method: Vec<u8>,
    /// The settings that held for it, under which the page of its error is made.
    pub plan: Option<Arc<dyn Any>>,
    /// Whether the error log has a line of it.
    pub told: bool,
    /// The request before that one.
    pub previous: Option<Box<Previous>>,
}

/// Questions that are nested too deep within another question.
#[derive(Debug)]
pub struct Beyond {
    /// The outermost question.
    pub asked: Box<[u8]>,
    /// The answer that they get.
    pub answer: Cell<bool>,
    /// Whether there was such a question.
    pub is_reached: Cell<bool>,
    /// Whether a request within was admitted because it is in the sections of the request that
    /// asks, which would refuse it.
    pub is_presumed: Cell<bool>,
    /// Whether something other than the outermost question led there.
    pub is_mixed: Cell<bool>,
}

impl Request {
    /// A request that has just been received. The phases fill in the rest.
    #[must_use]
    pub fn new(head: RequestHead, peer: Peer, time_us: u64) -> Self {
        let resource = Resource { method: head.method, ..Resource::default() };
        Self {
            head: ReceivedHead(Rc::new(head)),
            trailers: Fields::new(),
            body: None,
            peer,
            proxy: None,
            is_introduced: false,
            secure: None,
            time_us,
            keepalives: 0,
            stream: 0,
            server: 0,
            host: Vec::new(),
            port: None,
            resource,
            names: None,
            beyond: None,
            looks: 0,
            variant_looks: 0,
            questions: Questions::default(),
            lookups: Lookups::default(),
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
            log_levels: None,
            used_nonce: Rc::default(),
            late: None,
            caching: None,
            page: None,
            kept_body: None,
            sessions: None,
            programs: None,
            has_place: false,
            shares_place: false,
            departure: Rc::default(),
        }
    }

    /// A request of the same client for another path, which the caller sets. A condition that asks
    /// about that path uses it, and this request stays as it is.
    #[must_use]
    pub fn question(&self) -> Self {
        let resource = Resource {
            is_question: true,
            is_of_file: false,
            ..self.resource.of_subrequest(UrlPath::default(), None)
        };
        self.with_resource(resource)
    }

    /// The same question once more.
    #[must_use]
    pub fn again(&self) -> Self {
        self.with_resource(self.resource.clone())
    }

    fn with_resource(&self, resource: Resource) -> Self {
        Self {
            head: self.head.clone(),
            trailers: self.trailers.clone(),
            body: None,
            peer: self.peer,
            proxy: self.proxy,
            is_introduced: self.is_introduced,
            secure: self.secure.clone(),
            time_us: self.time_us,
            keepalives: 0,
            stream: self.stream,
            server: self.server,
            host: self.host.clone(),
            port: self.port,
            resource,
            names: self.names.clone(),
            beyond: self.beyond.clone(),
            looks: 0,
            variant_looks: 0,
            questions: Questions::default(),
            lookups: Lookups::default(),
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
            log_levels: None,
            used_nonce: Rc::clone(&self.used_nonce),
            late: None,
            caching: None,
            page: None,
            kept_body: self.kept_body.clone(),
            sessions: self.sessions.clone(),
            programs: None,
            has_place: false,
            shares_place: false,
            departure: Rc::clone(&self.departure),
        }
    }

    /// The scheme of the request's URL (Apache: ap_http_scheme).
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.secure.is_some() { "https" } else { "http" }
    }

    /// The port that is left out of URLs of this scheme.
    #[must_use]
    pub fn default_port(&self) -> u16 {
        if self.secure.is_some() { 443 } else { 80 }
    }

    /// A copy of the request for the parts of its response that are made while the response is
    /// sent. The copy has no body, and holds no credit of its own.
    #[must_use]
    pub fn for_parts(&mut self) -> Self {
        const OF_BODY: [&str; 8] = [
            "Content-Encoding",
            "Content-Language",
            "Content-Length",
            "Content-Location",
            "Content-MD5",
            "Content-Range",
            "Content-Type",
            "Transfer-Encoding",
        ];
        let mut copy = self.with_resource(self.resource.clone());
        copy.keepalives = self.keepalives;
        copy.previous = self.previous.clone();
        copy.told = self.told;
        copy.used_name = self.used_name.clone();
        copy.log_levels = self.log_levels.clone();
        copy.late = Some(Rc::clone(self.late.get_or_insert_default()));
        copy.page = self.page.clone();
        copy.programs = self.programs.clone();
        copy.shares_place = self.has_place || self.shares_place;
        copy.departure = Rc::new(Departure::detached());
        if self.head.length != BodyLength::None && self.kept_body.is_none() {
            copy.head.receive().length = BodyLength::None;
            OF_BODY.into_iter().for_each(|name| {
                copy.fields_mut().remove(name);
            });
        }
        copy
    }

    /// The address that has connected: that of the client, or of a proxy in front of it.
    #[must_use]
    pub fn connected(&self) -> SocketAddr {
        self.proxy.unwrap_or(self.peer.client)
    }

    /// The request's fields for its resource: those of the head, or as changed by RequestHeader and
    /// by a subrequest (Apache: headers_in).
    #[must_use]
    pub fn fields(&self) -> &Fields {
        self.resource.changed_fields.as_deref().unwrap_or(&self.head.fields)
    }

    /// The same fields, to be changed for this resource and for those that follow from it.
    pub fn fields_mut(&mut self) -> &mut Fields {
        let changed = &mut self.resource.changed_fields;
        Rc::make_mut(changed.get_or_insert_with(|| Rc::new(self.head.fields.clone())))
    }

    /// Replaces the body, which was read to its end, by this one.
    pub fn replace_body(&mut self, body: Bytes) {
        let fields = self.fields_mut();
        fields.remove("Transfer-Encoding");
        fields.set("Content-Length", body.len().to_string());
        self.head.receive().length = BodyLength::Exact(body.len() as u64);
        self.body = Some(Box::pin(Whole(Some(body))));
    }

    /// Replaces the body by this one, and keeps it for what the page of the request includes.
    pub fn keep_body(&mut self, body: Bytes) {
        self.replace_body(body.clone());
        self.kept_body = Some(body);
    }

    /// Gives the request the body that was kept, if one was, for another handler.
    pub fn offer_kept_body(&mut self) {
        if let Some(body) = self.kept_body.clone() {
            self.body = Some(Box::pin(Whole(Some(body))));
        }
    }

    /// Reuses the request and its memory for another head on this connection or the next.
    pub fn renew(&mut self, client: Peer, came_us: u64) {
        let Self {
            head,
            trailers,
            body,
            peer,
            proxy,
            is_introduced,
            secure,
            time_us,
            keepalives,
            stream,
            server,
            host,
            port,
            resource,
            names,
            beyond,
            looks,
            variant_looks,
            questions,
            lookups,
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
            log_levels,
            used_nonce,
            late,
            caching,
            page,
            kept_body,
            sessions,
            programs,
            has_place,
            shares_place,
            departure,
        } = self;
        head.clear();
        trailers.clear();
        resource.renew();
        host.clear();
        notices.clear();
        allowance.renew();
        questions.clear();
        lookups.clear();
        if let Some(spare) = spare {
            spare.renew(Status::OK);
        }
        (*peer, *time_us, *keepalives, *stream, *server) = (client, came_us, 0, 0, 0);
        (*body, *port, *names, *beyond) = (None, None, None, None);
        (*proxy, *is_introduced, *secure) = (None, false, None);
        (*probe, *previous, *used_name, *late, *page) = (None, None, None, None, None);
        (*programs, *log_levels, *caching, *sessions, *kept_body) = (None, None, None, None, None);
        (*looks, *variant_looks, *work, *merges) = (0, 0, 0, 0);
        (*undecided, *doubtful, *has_bad_path, *shed) = (false, false, false, false);
        (*has_place, *shares_place) = (false, false);
        *told = Told::default();
        // If something still refers to it, it belongs to another request.
        match Rc::get_mut(used_nonce) {
            Some(used_nonce) => *used_nonce.get_mut() = None,
            None => *used_nonce = Rc::default(),
        }
        match Rc::get_mut(departure) {
            Some(departure) => *departure = Departure::default(),
            None => *departure = Rc::default(),
        }
    }

    /// The memory for what a client and its files have said, used or not, in bytes. After
    /// [`Request::renew`] that is nearly all of the request's memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.head.memory()
            + self.trailers.memory()
            + self.host.capacity()
            + self.resource.memory()
            + self.spare.as_ref().map_or(0, Response::memory)
    }

    /// The name of the current method. Subrequests and the pages of errors use GET, whatever the
    /// client sent (Apache: r->method).
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

    /// Takes over what the body knew at its end.
    pub fn take_late(&mut self) {
        let Some(late) = self.late.take() else { return };
        let mut late = late.borrow_mut();
        for (name, value) in late.notes.iter() {
            self.resource.notes.set(name, value);
        }
        for (name, value) in late.env.iter() {
            self.resource.env.set(name, value);
        }
        self.notices.append(&mut late.notices);
    }

    /// Adds a message for the error log, with the client of this request.
    pub fn notify(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// The number of internal redirects that led here (LimitInternalRecursion).
    #[must_use]
    pub fn redirects(&self) -> usize {
        std::iter::successors(self.previous.as_deref(), |p| p.previous.as_deref()).count()
    }
}
