//! A body that is compressed or unpacked while the client receives it. The blocking pool makes a
//! piece after the piece before it has been sent, so that a long body neither blocks the serving
//! thread nor takes more memory than its press stands for.

use super::codec::{Codec, Encoder, Fault, read};
use super::forms::{CompressedForms, LARGEST, Made as Form, Origin};
use super::notes::Notes;
use super::presses::Press;
use bytes::{Buf, Bytes};
use evenkeel_message::{Chunk, Late, Piece, Request, Source, quoted_path};
use evenkeel_sys::blocking_pool::{BlockingPool, BlockingTask};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Bytes of a piece that is made at a time.
const PIECE: usize = 64 << 10;
/// The bytes of input after which a thread of the pool yields to other work, whatever came out.
const TURN: usize = 256 << 10;
/// Bytes that are read of a file at once.
const READ_AT_ONCE: usize = 64 << 10;

/// The body of a response to HEAD, which nobody reads.
pub(crate) struct Silence;

impl Source for Silence {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
        Poll::Ready(None)
    }
}

/// What goes to the blocking pool and comes back.
pub(crate) struct Work {
    codec: Codec,
    pieces: VecDeque<Piece>,
    /// What was read and is not used up.
    at_hand: Bytes,
    /// Whether nothing will be added to the pieces.
    is_fed: bool,
    press: Press,
}

/// What a turn has made, and whether it was the last.
struct Made {
    bytes: Bytes,
    is_last: bool,
}

impl Work {
    pub(crate) fn new(codec: Codec, pieces: VecDeque<Piece>, is_fed: bool, press: Press) -> Self {
        Self { codec, pieces, at_hand: Bytes::new(), is_fed, press }
    }

    /// Whether there is nothing to work on until more is fed.
    fn is_hungry(&self) -> bool {
        !self.is_fed && self.at_hand.is_empty() && self.pieces.is_empty()
    }

    /// The number of unshared input bytes that are buffered, without those that the press covers.
    fn held(&self) -> u64 {
        let is_more = self.at_hand.is_unique() && self.at_hand.len() > READ_AT_ONCE;
        let at_hand = if is_more { self.at_hand.len() as u64 } else { 0 };
        at_hand + self.pieces.iter().map(Piece::held).sum::<u64>()
    }

    /// Makes one piece, which is shorter if the input runs out.
    fn make(&mut self) -> Result<Made, Fault> {
        let mut out = Vec::with_capacity(PIECE);
        let mut left = TURN;
        let is_last = loop {
            if self.at_hand.is_empty() {
                self.at_hand = read(&mut self.pieces, READ_AT_ONCE)?.unwrap_or_default();
            }
            let (now, then) = self.at_hand.split_at(left.min(self.at_hand.len()));
            let is_last = then.is_empty() && self.is_fed && self.pieces.iter().all(Piece::is_empty);
            let mut rest = now;
            let is_made = self.codec.turn(&mut rest, is_last, &mut out)?;
            let used = now.len() - rest.len();
            self.at_hand.advance(used);
            left -= used;
            let is_waiting = self.at_hand.is_empty() && self.pieces.is_empty() && !is_last;
            if is_made || is_waiting || out.len() == out.capacity() || left == 0 {
                break is_made;
            }
        };
        Ok(Made { bytes: out.into(), is_last })
    }
}

/// The body.
pub(crate) struct Recoded {
    blocking_pool: Arc<BlockingPool>,
    /// The name of the job, for the error log if the job makes no progress.
    what: Box<str>,
    state: State,
    /// Where more input comes from. `None` if all of it is here.
    source: Option<Pin<Box<dyn Source>>>,
    notes: Option<Notes>,
    /// Receives the notes and notices that are known only at the end of the body.
    late: Rc<RefCell<Late>>,
    limits: (u64, u64),
    /// The press of work that is done, until its last piece has been taken.
    last: Option<Press>,
    /// Keeps what comes out for the next response with the same body.
    keeping: Option<Keeping>,
}

/// What is needed to keep the compressed form of a body once it is complete.
pub(crate) struct Keeping {
    pub(crate) forms: Rc<CompressedForms>,
    pub(crate) origin: Origin,
    pub(crate) encoder: Encoder,
    /// What has come out so far.
    pub(crate) bytes: Vec<u8>,
}

impl Keeping {
    /// Keeps the form, whose last bytes these were.
    fn end(self, counts: (u64, u64)) {
        let made = Form { bytes: self.bytes.into(), counts };
        self.forms.keep(self.origin, self.encoder, made);
    }
}

enum State {
    Rests(Box<Work>),
    AtWork(BlockingTask<(Box<Work>, Result<Made, Fault>)>),
    Ended,
}

impl Recoded {
    pub(crate) fn new(
        blocking_pool: Arc<BlockingPool>,
        work: Work,
        source: Option<Pin<Box<dyn Source>>>,
        notes: Option<Notes>,
        request: &mut Request,
        limits: (u64, u64),
    ) -> Self {
        let late = Rc::clone(request.late.get_or_insert_default());
        let verb = if work.codec.unpacks() { "unpacking" } else { "compressing" };
        let what = format!("{verb} {}", quoted_path(&request.resource.file)).into();
        let state = State::Rests(Box::new(work));
        let (last, keeping) = (None, None);
        Self { blocking_pool, what, state, source, notes, late, limits, last, keeping }
    }

    /// Keeps the compressed form once it is complete.
    pub(crate) fn keeping(self, keeping: Option<Keeping>) -> Self {
        Self { keeping, ..self }
    }

    /// Feeds work that cannot go on without. Errors are those of the source.
    fn poll_feed(&mut self, work: &mut Work, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while work.is_hungry() {
            let chunk = match &mut self.source {
                Some(source) => ready!(source.as_mut().poll_chunk(context)).transpose()?,
                None => None,
            };
            match chunk {
                Some(bytes) => work.pieces.push_back(Piece::Bytes(bytes)),
                None => work.is_fed = true,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Notes the two lengths, once they are known.
    fn end(&mut self, work: Work) {
        if let Some(notes) = &self.notes {
            notes.write(work.codec.counts(), &mut self.late.borrow_mut().notes);
        }
        if let Some(keeping) = self.keeping.take() {
            keeping.end(work.codec.counts());
        }
        self.last = Some(work.press);
    }

    /// Copies what comes out, unless the form becomes too large to be kept.
    fn copy(&mut self, made: &[u8]) {
        if let Some(keeping) = &mut self.keeping {
            keeping.bytes.extend_from_slice(made);
            if keeping.bytes.len() > LARGEST {
                self.keeping = None;
            }
        }
    }
}

impl Source for Recoded {
    fn is_expensive(&self) -> bool {
        true
    }

    fn poll_chunk(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        let this = &mut *self;
        loop {
            match std::mem::replace(&mut this.state, State::Ended) {
                State::Ended => return Poll::Ready(None),
                State::Rests(mut work) => {
                    match this.poll_feed(&mut work, context) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                        Poll::Pending => {
                            this.state = State::Rests(work);
                            return Poll::Pending;
                        }
                    }
                    this.state =
                        State::AtWork(this.blocking_pool.spawn_long(&*this.what, move |_| {
                            let made = work.make();
                            (work, made)
                        }));
                }
                State::AtWork(mut task) => {
                    let done = match Pin::new(&mut task).poll(context) {
                        Poll::Ready(done) => done,
                        Poll::Pending => {
                            this.state = State::AtWork(task);
                            return Poll::Pending;
                        }
                    };
                    let Some((work, made)) = done else {
                        let error = io::Error::other("no thread can be had");
                        return Poll::Ready(Some(Err(error)));
                    };
                    match made {
                        Ok(Made { bytes, is_last }) => {
                            this.copy(&bytes);
                            match is_last {
                                true => this.end(*work),
                                false => this.state = State::Rests(work),
                            }
                            if !bytes.is_empty() {
                                return Poll::Ready(Some(Ok(bytes)));
                            }
                        }
                        Err(fault) => {
                            this.late.borrow_mut().notices.push(fault.notice(this.limits));
                            return Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into())));
                        }
                    }
                }
            }
        }
    }

    fn held(&self) -> u64 {
        let own = match &self.state {
            State::Rests(work) => work.held(),
            State::AtWork(_) | State::Ended => 0,
        };
        let kept = self.keeping.as_ref().map_or(0, |keeping| keeping.bytes.len() as u64);
        own + kept + self.source.as_ref().map_or(0, |source| source.held())
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::Inflater;
    use super::super::notes::NoteNames;
    use super::super::presses::Presses;
    use super::*;
    use evenkeel_message::{FileName, Peer, RequestHead};
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::task::Waker;
    use std::time::Duration;

    const GZIP: Encoder = Encoder::Gzip { level: 6, window: 15 };

    /// A source of these pieces.
    struct Pieces(VecDeque<Bytes>);

    impl Source for Pieces {
        fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    fn request() -> Request {
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        Request::new(RequestHead::default(), peer, 0)
    }

    fn notes() -> Notes {
        let name = |text: &str| Some(text.into());
        Notes(NoteNames { input: name("in"), output: name("out"), ratio: name("ratio") })
    }

    /// All that comes, and the length of the longest piece.
    fn drain(mut body: Recoded) -> io::Result<(Vec<u8>, usize)> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mut whole, mut longest) = (Vec::new(), 0);
        while let Some(piece) =
            runtime.block_on(poll_fn(|context| Pin::new(&mut body).poll_chunk(context)))
        {
            let piece = piece?;
            longest = longest.max(piece.len());
            whole.extend_from_slice(&piece);
        }
        Ok((whole, longest))
    }

    fn recoded(work: Work, source: Option<Pin<Box<dyn Source>>>, request: &mut Request) -> Recoded {
        Recoded::new(Arc::new(BlockingPool::new(1)), work, source, Some(notes()), request, (200, 3))
    }

    fn file(bytes: &[u8], length: u64) -> Piece {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, bytes).unwrap();
        Piece::File { file: Arc::new(file.into()), offset: 0, length }
    }

    #[test]
    fn what_waits_to_be_compressed_is_counted_where_it_is_nobody_elses() {
        let shared = Bytes::from(vec![b's'; 500]);
        let own = |_| Piece::Bytes(Bytes::from(vec![b'o'; 1000]));
        let pieces = (0..3).map(own).chain([Piece::Bytes(shared.clone())]).collect();
        let press = Presses::new(1).take().unwrap();
        let work = Work::new(GZIP.codec(), pieces, true, press);
        let body = recoded(work, None, &mut request());
        assert_eq!((body.held(), shared.len()), (3000, 500));
    }

    #[test]
    fn a_file_is_compressed_in_pieces_and_unpacks_to_itself() {
        // A sequence that does not repeat, so that it cannot be compressed much.
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let text: Vec<u8> = (0..1_000_000).map(|_| next()).collect();
        let mut request = request();
        let pieces = VecDeque::from([
            Piece::Bytes(Bytes::from_static(b"head")),
            file(&text, text.len() as u64),
            Piece::Bytes(Bytes::new()),
        ]);
        let presses = Presses::new(1);
        let press = presses.take().unwrap();
        let work = Work::new(GZIP.codec(), pieces, true, press);
        let (packed, longest) = drain(recoded(work, None, &mut request)).unwrap();
        assert!(packed.len() > 900_000 && longest <= PIECE);
        request.take_late();
        assert_eq!(request.resource.notes.value("in"), Some(&b"1000004"[..]));
        assert!(request.resource.notes.contains("out") && request.resource.notes.contains("ratio"));

        let source = Pieces(packed.chunks(1000).map(Bytes::copy_from_slice).collect());
        let codec = Codec::Inflate(Box::new(Inflater::new(200, 3, 8096)));
        // The press came back with the body before.
        let work = Work::new(codec, VecDeque::new(), false, presses.take().unwrap());
        let body = recoded(work, Some(Box::pin(source)), &mut request);
        let (unpacked, longest) = drain(body).unwrap();
        assert!(unpacked == [b"head", text.as_slice()].concat() && longest <= PIECE);
    }

    /// Bytes whose memory is given back only when the test says so.
    struct Held(&'static [u8], mpsc::Sender<()>, mpsc::Receiver<()>);

    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            self.0
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            self.1.send(()).unwrap();
            self.2.recv().unwrap();
        }
    }

    #[test]
    fn the_log_names_the_file_whose_body_does_not_stir() {
        let unpacks = Codec::Inflate(Box::new(Inflater::new(200, 3, 8096)));
        for (codec, what) in [
            (GZIP.codec(), "compressing /srv/large.txt has not stirred for 0 seconds"),
            (unpacks, "unpacking /srv/large.txt has not stirred for 0 seconds"),
        ] {
            let mut request = request();
            request.resource.file = FileName::new("/srv/large.txt");
            let (hangs, does_hang) = mpsc::channel();
            let (free, freed) = mpsc::channel();
            let beginning = Held(b"\x1f\x8b\x08\0\0\0\0\0\0\x03", hangs, freed);
            let pieces = [Bytes::from_owner(beginning), Bytes::from_static(b"\x03\0")];
            let pieces = pieces.into_iter().map(Piece::Bytes).collect();
            let work = Work::new(codec, pieces, false, Presses::new(1).take().unwrap());
            let blocking_pool = Arc::new(BlockingPool::new(1));
            let mut body =
                Recoded::new(Arc::clone(&blocking_pool), work, None, None, &mut request, (200, 3));
            let context = &mut Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut body).poll_chunk(context).is_pending());
            does_hang.recv().unwrap();
            let told = blocking_pool.abandon_stalled(Duration::ZERO);
            assert!(told.first().is_some_and(|text| text.starts_with(what)), "{told:?}");
            // Its client is not kept waiting.
            let Poll::Ready(Some(Err(_))) = Pin::new(&mut body).poll_chunk(context) else {
                panic!("the response goes on");
            };
            free.send(()).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_read_breaks_off() {
        let mut request = request();
        let pieces = VecDeque::from([file(b"short", 100_000)]);
        let press = Presses::new(1).take().unwrap();
        let work = Work::new(GZIP.codec(), pieces, true, press);
        assert!(drain(recoded(work, None, &mut request)).is_err());
        request.take_late();
        assert_eq!(request.notices.len(), 1);
        assert!(!request.resource.notes.contains("in"));
    }

    #[test]
    fn a_turn_uses_up_no_more_than_its_bytes_however_much_is_at_hand() {
        let text = Bytes::from(vec![b'x'; 3 * TURN + 1]);
        let press = Presses::new(1).take().unwrap();
        let pieces = VecDeque::from([Piece::Bytes(text.clone())]);
        let mut work = Work::new(GZIP.codec(), pieces, true, press);
        let mut packed = Vec::new();
        for turn in 1..=4 {
            let made = work.make().unwrap();
            packed.extend_from_slice(&made.bytes);
            assert_eq!(made.is_last, turn == 4, "{turn}");
            assert_eq!(work.codec.counts().0, (turn * TURN as u64).min(text.len() as u64));
        }
        assert!(packed.len() < 2000);
    }

    #[test]
    fn a_client_that_goes_gives_its_press_back() {
        let presses = Presses::new(1);
        let work = || {
            let pieces = VecDeque::from([Piece::Bytes(Bytes::from(vec![b'x'; 100_000]))]);
            Work::new(GZIP.codec(), pieces, true, presses.take().unwrap())
        };
        let mut request = request();
        drop(recoded(work(), None, &mut request));
        assert_eq!(presses.free(), 1);

        let mut body = recoded(work(), None, &mut request);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut next =
            || runtime.block_on(poll_fn(|context| Pin::new(&mut body).poll_chunk(context)));
        assert!(next().is_some_and(|piece| piece.is_ok()) && presses.free() == 0);
        // The last piece has been taken, but nobody has come for more.
        assert!(next().is_none() && presses.free() == 0);
        drop(body);
        assert_eq!(presses.free(), 1);
    }
}
