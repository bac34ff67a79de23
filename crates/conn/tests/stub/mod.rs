//! A site of fixed answers and the way from the process model to a worker, for tests and for
//! measuring the path of a connection alone.

use bytes::Bytes;
use evenkeel_conn::{ConnectionSite, Done, Settings};
use evenkeel_message::{
    Body, Chunk, Notice, Peer, Piece, Request, Response, Served, Source, Status, UriOptions,
};
use evenkeel_mpm::service::Service;
use evenkeel_proto::Refusal;
use evenkeel_scoreboard::{ChildLine, Counter, Credit};
use evenkeel_sys::dispatch::{Outcome, ParkReason, ReadyEvent};
use evenkeel_sys::idle_table::ParkedState;
use evenkeel_sys::socket::Socket;
use evenkeel_tls::Door;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll};

/// Answers by path; see `respond`.
pub struct Stub {
    pub settings: Settings,
    pub page: Bytes,
    pub file: Option<Arc<std::os::fd::OwnedFd>>,
    /// Status, request line, bytes of the body sent, whether it was aborted.
    pub log: Arc<Mutex<Vec<String>>>,
    pub keeps_log: bool,
    /// Where `/held` reads how many credits are held while its refusal is answered.
    pub line: Option<ChildLine>,
    /// Where the response of `/flood` waits twice before its first word.
    pub barrier: Option<Arc<Barrier>>,
    /// The TLS side of the site.
    pub door: Option<Arc<dyn Door>>,
    /// How many requests were answered.
    answered: Rc<Cell<u64>>,
    lines: RefCell<Vec<u8>>,
}

impl Stub {
    pub fn new(settings: Settings, log: Arc<Mutex<Vec<String>>>) -> Self {
        Self {
            settings,
            page: Bytes::from(vec![b'x'; 1024]),
            file: None,
            log,
            keeps_log: true,
            line: None,
            barrier: None,
            door: None,
            answered: Rc::default(),
            lines: RefCell::default(),
        }
    }

    fn respond(&self, mut request: Box<Request>) -> Served {
        let mut response = Response::new(Status::OK);
        response.fields.add("Content-Type", "text/plain");
        let path = request.resource.path.to_vec();
        match path.as_slice() {
            b"/panic" => panic!("as asked"),
            b"/secure" => {
                let secure = request.secure.as_ref().unwrap();
                let name = secure.server_name().unwrap_or("-");
                response.body = Body::from(format!("{} {name}", request.server));
            }
            b"/work" => request.work = 7,
            b"/file" => {
                let file = self.file.clone().unwrap();
                response.body = Body::File(Piece::File { file, offset: 0, length: 16 << 20 });
            }
            b"/page" => {
                // As a listing is made: of pieces that nobody else has.
                let piece = || Piece::Bytes(Bytes::from(vec![b'p'; 64 << 10]));
                response.body = Body::Pieces((0..256).map(|_| piece()).collect());
            }
            b"/stream" => {
                let words = ["one ", "two ", "three"].map(Bytes::from).to_vec();
                response.body = Body::Stream(Box::pin(Words(words)), None);
            }
            b"/flood" => {
                let barrier = self.barrier.clone().unwrap();
                return Served::Later(Box::pin(async move {
                    // A task that has waited for its client is watched by the runtime.
                    let mut body = request.body.take().unwrap();
                    while poll_fn(|cx| body.as_mut().poll_chunk(cx)).await.is_some() {}
                    let words = Words(vec![Bytes::from_static(b"word "); 2_000]);
                    response.body = Body::Stream(Box::pin(Flood(Some(barrier), words)), None);
                    (request, response)
                }));
            }
            b"/broken" => {
                response.body = Body::Stream(Box::pin(Broken(false)), None);
            }
            b"/trailers" => {
                let words = vec![Bytes::from_static(b"one")];
                response.body = Body::Stream(Box::pin(Words(words)), None);
                response.trailers.add("Sum", "abc");
            }
            b"/later" | b"/late-panic" => {
                return Served::Later(Box::pin(async move {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    assert_ne!(path, b"/late-panic", "as asked");
                    response.body = Body::Bytes(Bytes::from_static(b"later"));
                    (request, response)
                }));
            }
            b"/watch" => {
                // The most that was answered between two turns of this task, until so much was.
                let answered = Rc::clone(&self.answered);
                let query = request.resource.query.as_deref().unwrap_or_default();
                let enough: u64 = std::str::from_utf8(query).unwrap().parse().unwrap();
                return Served::Later(Box::pin(async move {
                    let mut most = 0;
                    while answered.get() < enough {
                        let before = answered.get();
                        tokio::task::yield_now().await;
                        most = most.max(answered.get() - before);
                    }
                    response.body = Body::from(most.to_string());
                    (request, response)
                }));
            }
            b"/expensive" => {
                return Served::Later(Box::pin(async move {
                    let departure = Rc::clone(&request.departure);
                    poll_fn(|_| departure.poll_permit()).await;
                    let gone = |told| if told { Poll::Ready(()) } else { Poll::Pending };
                    poll_fn(|_| gone(departure.is_told())).await;
                    response.body = Body::Bytes(Bytes::from_static(b"done"));
                    (request, response)
                }));
            }
            b"/place" => {
                // Waits without a credit until its client ends its side, then takes one again.
                return Served::Later(Box::pin(async move {
                    let departure = Rc::clone(&request.departure);
                    departure.return_credit();
                    let gone = |told| if told { Poll::Ready(()) } else { Poll::Pending };
                    poll_fn(|_| gone(departure.is_told())).await;
                    poll_fn(|_| departure.poll_credit()).await;
                    response.body = Body::Bytes(Bytes::from_static(b"placed"));
                    (request, response)
                }));
            }
            b"/events" => {
                response.body = Body::Stream(Box::pin(Events(true)), None);
            }
            b"/turn" => {
                return Served::Later(Box::pin(async move {
                    let departure = Rc::clone(&request.departure);
                    let gone = |told| if told { Poll::Ready(()) } else { Poll::Pending };
                    poll_fn(|_| gone(departure.is_told())).await;
                    response.body = Body::Bytes(Bytes::from_static(b"gone"));
                    (request, response)
                }));
            }
            b"/echo" => {
                return Served::Later(Box::pin(async move {
                    let mut all = Vec::new();
                    if let Some(mut body) = request.body.take() {
                        while let Some(piece) = poll_fn(|cx| body.as_mut().poll_chunk(cx)).await {
                            match piece {
                                Ok(piece) => all.extend_from_slice(&piece),
                                Err(error) => {
                                    response.status = match error.kind() {
                                        std::io::ErrorKind::TimedOut => Status::REQUEST_TIMEOUT,
                                        _ => Status::BAD_REQUEST,
                                    };
                                    break;
                                }
                            }
                        }
                    }
                    response.body = Body::from(all);
                    (request, response)
                }));
            }
            _ => response.body = Body::Bytes(self.page.clone()),
        }
        request.resource.notes.unset("x");
        Served::Now(request, response)
    }
}

struct Words(Vec<Bytes>);

impl Source for Words {
    fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
        let next = (!self.0.is_empty()).then(|| Ok(self.0.remove(0)));
        Poll::Ready(next)
    }
}

/// Words that begin when the test lets them.
struct Flood(Option<Arc<Barrier>>, Words);

impl Source for Flood {
    fn poll_chunk(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        if let Some(barrier) = self.0.take() {
            barrier.wait();
            barrier.wait();
        }
        Pin::new(&mut self.1).poll_chunk(context)
    }
}

/// A word, and then nothing for as long as the client stays.
struct Events(bool);

impl Source for Events {
    fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
        match std::mem::replace(&mut self.0, false) {
            true => Poll::Ready(Some(Ok(Bytes::from_static(b"event")))),
            false => Poll::Pending,
        }
    }

    fn ends_with_client(&self) -> bool {
        true
    }
}

/// A word, then an error.
struct Broken(bool);

impl Source for Broken {
    fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
        let first = !std::mem::replace(&mut self.0, true);
        let error = std::io::ErrorKind::UnexpectedEof.into();
        Poll::Ready(Some(if first { Ok(Bytes::from_static(b"one ")) } else { Err(error) }))
    }
}

impl ConnectionSite for Stub {
    fn server_of(&self, _: SocketAddr) -> usize {
        0
    }

    fn door(&self, _: SocketAddr) -> Option<Arc<dyn Door>> {
        self.door.clone()
    }

    fn settings(&self, _: usize) -> &Settings {
        &self.settings
    }

    fn name(&self, _: usize) -> &[u8] {
        b"stub"
    }

    fn address(&self, request: &mut Request) -> Result<(), Refusal> {
        if request.head.target() == b"/address-panic" {
            panic!("address as asked");
        }
        let known = evenkeel_proto::KnownHost::default();
        evenkeel_proto::address(request, &self.settings.options, &known)?;
        let raw = evenkeel_proto::raw_path(&request.head);
        let read = request.resource.path.read(raw, UriOptions::default());
        read.map_err(|reason| evenkeel_proto::bad_path(reason, raw))
    }

    fn serve(&self, request: Box<Request>) -> Served {
        self.respond(request)
    }

    fn refuse(&self, request: Box<Request>, status: Status) -> Served {
        let mut response = Response::new(status);
        if let Some(line) = self.line.filter(|_| request.head.target() == b"/held") {
            return Served::Later(Box::pin(async move {
                response.body = Body::from(format!("{} held", line.read(Counter::Busy)));
                (request, response)
            }));
        }
        response.body = Body::from(format!("{}\n", status.line()));
        Served::Now(request, response)
    }

    fn record(&self, done: &Done<'_>) {
        if &*done.request.resource.path == b"/record-panic" {
            panic!("record as asked");
        }
        self.answered.set(self.answered.get() + 1);
        if !self.keeps_log {
            let mut lines = self.lines.borrow_mut();
            if lines.len() > 32 * 1024 {
                lines.clear();
            }
            lines.extend_from_slice(&done.request.head.line);
            lines.extend_from_slice(b"127.0.0.1 - - [20/Jul/2013:21:34:49 +0000] 200 1024\n");
            return;
        }
        let line = format!(
            "{} \"{}\" {}{}{}{}",
            done.response.status.code(),
            String::from_utf8_lossy(&done.request.head.line),
            done.transfer.body_sent,
            if done.transfer.aborted { " aborted" } else { "" },
            if done.keep_alive { " kept" } else { "" },
            if done.response.trailers.contains("Sum") { " trailers" } else { "" },
        );
        self.log.lock().unwrap().push(line);
    }

    fn tell_all(&self, request: &mut Request) {
        let peer = request.peer;
        for notice in std::mem::take(&mut request.notices) {
            self.tell(&notice, &peer);
        }
    }

    fn tell(&self, notice: &Notice, _: &Peer) -> bool {
        if self.keeps_log {
            self.log.lock().unwrap().push(format!("notice {}", notice.text));
        }
        self.keeps_log
    }

    fn tick(&self) {}
}

/// A worker as the process model sees it.
pub struct Adapter(pub evenkeel_conn::Connections<Stub>);

impl Service for Adapter {
    fn serve(
        &mut self,
        socket: Socket,
        event: ReadyEvent,
        credit: &mut Option<Credit>,
        requests_left: &mut u32,
    ) -> Outcome {
        self.0.serve(socket, event, credit, requests_left)
    }

    fn shed(&mut self, socket: Socket, event: ReadyEvent, requests_left: &mut u32) -> Outcome {
        self.0.shed(socket, event, requests_left)
    }

    fn expire(&mut self, socket: Socket, reason: ParkReason, state: ParkedState, late: bool) {
        self.0.expire(socket, reason, state, late);
    }

    fn retire(&mut self, retiring: bool) {
        self.0.retire(retiring);
    }

    fn is_short_of_room(&self) -> bool {
        self.0.is_short_of_room()
    }

    fn tick(&mut self) {
        self.0.tick();
    }

    fn notify(&mut self, notice: Notice) {
        eprintln!("{notice:?}");
    }
}
