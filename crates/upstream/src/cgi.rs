//! One run of a CGI program: sends the order to the launcher, passes the body of the request to the
//! program's standard input, and returns the head and the body of its output. What the program
//! writes to its standard error is returned as notices for the error log.

use crate::fcgi::Answered;
use crate::places::SharedPlace;
use bytes::Bytes;
use evenkeel_message::{Body, Chunk, Departure, Late, MayWait, Notice, ReadAhead, Source};
use evenkeel_proto::script::{BadHead, HeadEnd, MOST_HEAD, ScriptHead, parse_script_head};
use evenkeel_sys::pipe::{input_pipe, output_pipe, read};
use evenkeel_sys::spawn::{
    Order, Standard, packet_pair, receive_control, send_control, send_order,
};
use evenkeel_sys::watch::{Watch, WatchedWriter};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep, timeout};

/// The time between two attempts to send an order to a launcher that does not keep up.
const AGAIN: Duration = Duration::from_millis(5);

/// After this silence of a program, the connection of the client is watched too.
const ASKED_AFTER: Duration = Duration::from_millis(250);

/// The bytes of output that are read at a time.
const READ: usize = 32 << 10;

/// The longest line of standard error that is logged, in bytes (cgi_common.h: HUGE_STRING_LEN).
const MOST_LINE: usize = 8191;

/// The most lines of standard error that are logged for a request.
const MOST_LINES: usize = 1000;

/// The message with which the launcher is told that the output of a program was read.
const DONE: &[u8] = b"done";

/// The most bytes of a body that is passed on whole, with its length.
const MOST_WHOLE: usize = 64 << 10;

/// Makes the notice about a line of standard error.
pub type Complain = Box<dyn Fn(&[u8]) -> Notice>;

/// A program to run.
pub struct Run {
    /// The order for the launcher.
    pub order: Order,
    /// The socket of the launcher.
    pub launcher: Arc<OwnedFd>,
    /// The body of the request.
    pub body: Option<Pin<Box<dyn Source>>>,
    /// The time in which the program must write something.
    pub silence: Duration,
    /// Whether the program writes its own status line (a name with `nph-`).
    pub is_nph: bool,
    /// Whether a failed run leaves its [`Remains`].
    pub keeps_remains: bool,
    /// How many bytes of the request body are kept for the log of scripts.
    pub kept_body: usize,
    /// Makes a notice of a line of standard error.
    pub complain: Complain,
    /// Makes the notice of a program that falls silent after its head.
    pub silent: Notice,
    /// The place of the request among the running programs, which is taken.
    pub place: Rc<SharedPlace>,
}

/// The reason for which a run has failed.
#[derive(Debug)]
pub enum RunFailure {
    /// The program could not be started.
    Unstarted(io::Error),
    /// The body of the request could not be received.
    Body(io::Error),
    /// The program was silent for too long.
    Silent,
    /// The head of the output is malformed.
    Head(BadHead),
    /// The head of the output exceeds [`MOST_HEAD`].
    LargeHead,
    /// The client has disconnected.
    ClientGone,
}

/// What a failed run leaves for the log of scripts.
#[derive(Debug, Default)]
pub struct Remains {
    /// The beginning of the body of the request.
    pub body: Vec<u8>,
    /// What the program has written to its standard output.
    pub output: Vec<u8>,
    /// The lines of its standard error.
    pub errors: Vec<Vec<u8>>,
}

/// Runs a program. Notices about the time before the head is complete are added to `notices`, later
/// ones to `late`.
///
/// # Errors
/// The program cannot be started, fails, or is silent for too long.
pub async fn run_program(
    _: &MayWait,
    run: Run,
    departure: &Departure,
    notices: &mut Vec<Notice>,
    late: &Rc<RefCell<Late>>,
) -> Result<Answered, (RunFailure, Remains)> {
    let Run {
        order,
        launcher,
        body,
        silence,
        is_nph,
        keeps_remains,
        kept_body,
        complain,
        silent,
        place,
    } = run;
    let process = Process::start(&order, &launcher, silence).await;
    drop(order);
    let mut talk = match process {
        Ok(process) => Talk {
            process,
            body,
            unsent: Bytes::new(),
            remains: Remains::default(),
            keeps_remains,
            kept_body,
            lines: Lines::default(),
            silence,
            timer: None,
            _place: place,
            must_read_all: false,
        },
        Err(error) => return Err((RunFailure::Unstarted(error), Remains::default())),
    };
    match head(&mut talk, is_nph, departure, &complain, notices).await {
        Ok((head, first)) => {
            let stream = Stream {
                talk: Some(talk),
                first: Some(first),
                failed: None,
                complain,
                silent_notice: silent,
                late: Rc::clone(late),
                silent: None,
                is_slow: false,
            };
            Ok(Answered { head, body: stream.gather().await, env: Default::default() })
        }
        Err(failure) => Err((failure, talk.remains)),
    }
}

/// Runs a command whose output has no head, and returns the output.
///
/// # Errors
/// The program cannot be started.
pub async fn run_command(_: &MayWait, run: Run, late: &Rc<RefCell<Late>>) -> io::Result<Body> {
    let process = Process::start(&run.order, &run.launcher, run.silence).await?;
    let talk = Talk {
        process,
        body: run.body,
        unsent: Bytes::new(),
        remains: Remains::default(),
        keeps_remains: false,
        kept_body: 0,
        lines: Lines::default(),
        silence: run.silence,
        timer: None,
        _place: run.place,
        must_read_all: false,
    };
    let stream = Stream {
        talk: Some(talk),
        first: None,
        failed: None,
        complain: run.complain,
        silent_notice: run.silent,
        late: Rc::clone(late),
        silent: None,
        is_slow: false,
    };
    Ok(stream.gather().await)
}

/// Asks a program that answers questions one after another, and returns its answer, a line without
/// its end.
///
/// # Errors
/// The program cannot be started, has ended, or does not answer within `patience`.
pub async fn ask_program(
    _: &MayWait,
    order: &Order,
    launcher: &Arc<OwnedFd>,
    patience: Duration,
) -> io::Result<Vec<u8>> {
    let process = Process::start(order, launcher, patience).await?;
    let answer = async {
        let mut answer = Vec::new();
        loop {
            let mut buffer = [0_u8; 4096];
            let read = |context: &mut Context<'_>| {
                process.output.poll_read(context, |pipe| read(pipe, &mut buffer))
            };
            match poll_fn(read).await? {
                0 => return Ok::<_, io::Error>(answer),
                count => answer.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            }
        }
    };
    // The launcher gives up after `patience`, and this waits a little longer for its report.
    let most = patience + ASKED_AFTER;
    let answer = timeout(most, answer).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))?;
    match process.error_of_start() {
        Some(error) => Err(error),
        None => Ok(answer),
    }
}

/// A running program.
pub(crate) struct Process {
    input: Option<WatchedWriter>,
    output: Watch,
    errors: Option<Watch>,
    control: OwnedFd,
}

impl Process {
    pub(crate) async fn start(
        order: &Order,
        launcher: &Arc<OwnedFd>,
        patience: Duration,
    ) -> io::Result<Self> {
        let (program_input, input) = input_pipe()?;
        let (output, program_output) = output_pipe()?;
        let (errors, program_errors) = output_pipe()?;
        let (control, launchers_end) = packet_pair()?;
        let standard =
            Standard { input: program_input, output: program_output, error: program_errors };
        let sent = async {
            loop {
                match send_order(launcher.as_fd(), order, &standard, launchers_end.as_fd()) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(AGAIN).await,
                    sent => break sent,
                }
            }
        };
        timeout(patience, sent).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))?;
        Ok(Self {
            input: Some(WatchedWriter::new(input)?),
            output: Watch::owned(output)?,
            errors: Some(Watch::owned(errors)?),
            control,
        })
    }

    /// The launcher's report that the program could not be started.
    pub(crate) fn error_of_start(&self) -> Option<io::Error> {
        let message = receive_control(self.control.as_fd())?;
        let number = i32::from_le_bytes(message.try_into().ok()?);
        Some(io::Error::from_raw_os_error(number))
    }
}

/// An event of a running program.
pub(crate) enum Event {
    /// A piece of its output.
    Output(Bytes),
    /// A line of its standard error.
    Complaint(Vec<u8>),
    /// The end of its output. What it writes to standard error later is not read.
    End,
}

/// The exchange with a running program. Dropping it ends the program.
pub(crate) struct Talk {
    pub(crate) process: Process,
    pub(crate) body: Option<Pin<Box<dyn Source>>>,
    pub(crate) unsent: Bytes,
    pub(crate) remains: Remains,
    pub(crate) keeps_remains: bool,
    pub(crate) kept_body: usize,
    pub(crate) lines: Lines,
    pub(crate) silence: Duration,
    pub(crate) timer: Option<Pin<Box<Sleep>>>,
    /// Kept until the program has ended.
    pub(crate) _place: Rc<SharedPlace>,
    /// Whether it is a failure that the program does not read all of `body`.
    pub(crate) must_read_all: bool,
}

impl Talk {
    /// The next event. After [`Event::End`] and after an error there is none.
    pub(crate) fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Event, RunFailure>> {
        let has_sent = self.poll_send(context).map_err(RunFailure::Body)?;
        let mut heard = self.poll_errors(context);
        if heard.is_pending() {
            heard = self.poll_output(context);
        }
        if heard.is_ready() || has_sent {
            self.timer = None;
        }
        if heard.is_ready() {
            return heard.map(Ok);
        }
        let silence = self.silence;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(silence)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(RunFailure::Silent)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Passes the body of the request on. A program that reads no more gets no more, and the rest
    /// of the body is read away. Says whether anything was sent.
    fn poll_send(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut has_sent = false;
        loop {
            if !self.unsent.is_empty() {
                let Some(input) = &self.process.input else {
                    self.unsent.clear();
                    continue;
                };
                match input.poll_write(context, &self.unsent) {
                    Poll::Pending => return Ok(has_sent),
                    Poll::Ready(Ok(count)) => {
                        let _sent = self.unsent.split_to(count);
                        has_sent = true;
                    }
                    Poll::Ready(Err(error)) if self.must_read_all => return Err(error),
                    Poll::Ready(Err(_)) => self.process.input = None,
                }
                continue;
            }
            let Some(body) = &mut self.body else {
                self.process.input = None;
                return Ok(has_sent);
            };
            match body.as_mut().poll_chunk(context) {
                Poll::Pending => return Ok(has_sent),
                Poll::Ready(None) => self.body = None,
                Poll::Ready(Some(chunk)) => {
                    self.unsent = chunk?;
                    has_sent = true;
                    let room = self.kept_body.saturating_sub(self.remains.body.len());
                    let kept = self.unsent.get(..room.min(self.unsent.len()));
                    self.remains.body.extend_from_slice(kept.unwrap_or_default());
                }
            }
        }
    }

    /// Reads a line of standard error.
    fn poll_errors(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        loop {
            if let Some(line) = self.lines.next() {
                if self.keeps_remains {
                    self.remains.errors.push(line.clone());
                }
                return Poll::Ready(Event::Complaint(line));
            }
            let Some(errors) = &self.process.errors else { return Poll::Pending };
            let mut buffer = [0_u8; 4096];
            match ready!(errors.poll_read(context, |pipe| read(pipe, &mut buffer))) {
                Ok(0) | Err(_) => {
                    self.process.errors = None;
                    self.lines.end();
                }
                Ok(count) => self.lines.add(buffer.get(..count).unwrap_or_default()),
            }
        }
    }

    fn poll_output(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        let mut buffer = vec![0; READ];
        match ready!(self.process.output.poll_read(context, |pipe| read(pipe, &mut buffer))) {
            Ok(0) | Err(_) => Poll::Ready(Event::End),
            Ok(count) => {
                buffer.truncate(count);
                Poll::Ready(Event::Output(buffer.into()))
            }
        }
    }

    /// Tells the launcher that the output was read to its end.
    pub(crate) fn finish(&self) {
        send_control(self.process.control.as_fd(), DONE);
    }
}

/// Splits standard error into lines, at most [`MOST_LINES`] of them.
#[derive(Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    is_over: bool,
    count: usize,
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn end(&mut self) {
        self.is_over = true;
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.bytes.iter().take(MOST_LINE).position(|byte| *byte == b'\n');
        let (length, used) = match end {
            Some(end) => (end, end + 1),
            None if self.bytes.len() >= MOST_LINE => (MOST_LINE, MOST_LINE),
            None if self.is_over && !self.bytes.is_empty() => (self.bytes.len(), self.bytes.len()),
            None => return None,
        };
        let mut line: Vec<u8> = self.bytes.drain(..used).take(length).collect();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        self.count += 1;
        match self.count > MOST_LINES {
            true => self.next(),
            false => Some(line),
        }
    }
}

/// Waits for the head. Returns the head, and the beginning of the body that came with it.
async fn head(
    talk: &mut Talk,
    is_nph: bool,
    departure: &Departure,
    complain: &dyn Fn(&[u8]) -> Notice,
    notices: &mut Vec<Notice>,
) -> Result<(ScriptHead, Bytes), RunFailure> {
    let (mut head, mut end) = (Vec::new(), HeadEnd::default());
    let mut until_asked = pin!(sleep(ASKED_AFTER));
    let mut asks = false;
    loop {
        let event = poll_fn(|context| {
            let event = talk.poll_event(context);
            if event.is_ready() {
                return event;
            }
            asks = asks || until_asked.as_mut().poll(context).is_ready();
            match asks && departure.is_told() {
                true => Poll::Ready(Err(RunFailure::ClientGone)),
                false => Poll::Pending,
            }
        });
        let failure = match event.await? {
            Event::Complaint(line) => {
                notices.push(complain(&line));
                continue;
            }
            Event::Output(mut bytes) => match end.find(&bytes) {
                Some(at) => {
                    head.extend_from_slice(&bytes.split_to(at));
                    match parse(&head, is_nph) {
                        Ok(parsed) => return Ok((parsed, bytes)),
                        Err(bad) => {
                            head.extend_from_slice(&bytes);
                            RunFailure::Head(bad)
                        }
                    }
                }
                None => {
                    head.extend_from_slice(&bytes);
                    if head.len() <= MOST_HEAD {
                        continue;
                    }
                    RunFailure::LargeHead
                }
            },
            Event::End => match talk.process.error_of_start() {
                Some(error) => RunFailure::Unstarted(error),
                None => {
                    talk.finish();
                    RunFailure::Head(parse(&head, is_nph).err().unwrap_or(BadHead::Premature))
                }
            },
        };
        talk.remains.output = head;
        let _over = timeout(ASKED_AFTER, drain(talk, complain, notices)).await;
        return Err(failure);
    }
}

/// Reads what is left of the standard error of a program whose output is of no use.
async fn drain(talk: &mut Talk, complain: &dyn Fn(&[u8]) -> Notice, notices: &mut Vec<Notice>) {
    while talk.process.errors.is_some() || !talk.lines.bytes.is_empty() {
        let Event::Complaint(line) = poll_fn(|context| talk.poll_errors(context)).await else {
            return;
        };
        notices.push(complain(&line));
    }
}

/// Parses a head. A script that writes its own status line has it in place of a `Status` field.
fn parse(head: &[u8], is_nph: bool) -> Result<ScriptHead, BadHead> {
    if !is_nph {
        return parse_script_head(head);
    }
    let end = head.iter().position(|byte| *byte == b'\n').ok_or(BadHead::Nothing)?;
    let (line, rest) = head.split_at_checked(end + 1).unwrap_or_default();
    let line = line.trim_ascii();
    let status = line.strip_prefix(b"HTTP/").and_then(|it| it.split(|byte| *byte == b' ').nth(1));
    let number = status.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let Some(number) = number else { return Err(BadHead::NoColon(line.to_vec())) };
    let mut parsed = parse_script_head(rest)?;
    let text = line.iter().position(|byte| *byte == b' ').map_or(0, |space| space + 1);
    parsed.status = Some((number, line.get(text..).unwrap_or_default().to_vec()));
    Ok(parsed)
}

/// The output of a program after its head, as a stream.
struct Stream {
    /// `None` after the end.
    talk: Option<Talk>,
    /// The bytes that were read before the stream was polled, and the error behind them.
    first: Option<Bytes>,
    failed: Option<io::Error>,
    complain: Complain,
    silent_notice: Notice,
    late: Rc<RefCell<Late>>,
    /// A timer that runs while the program is silent.
    silent: Option<Pin<Box<Sleep>>>,
    /// Whether the program has been silent for [`ASKED_AFTER`].
    is_slow: bool,
}

impl Stream {
    /// Returns the whole body if it is short and comes at once, and a stream otherwise.
    async fn gather(mut self) -> Body {
        let mut whole = self.first.take().unwrap_or_default();
        let mut has_yielded = false;
        while whole.len() <= MOST_WHOLE {
            match poll_fn(|context| Poll::Ready(self.poll_next(context))).await {
                Poll::Ready(None) => return Body::Bytes(whole),
                Poll::Ready(Some(Ok(bytes))) => {
                    whole = match whole.is_empty() {
                        true => bytes,
                        false => [&*whole, &*bytes].concat().into(),
                    };
                }
                Poll::Ready(Some(Err(error))) => {
                    self.failed = Some(error);
                    break;
                }
                // A program ends soon after it has written its output.
                Poll::Pending if !has_yielded => {
                    has_yielded = true;
                    tokio::task::yield_now().await;
                }
                Poll::Pending => break,
            }
        }
        self.first = Some(whole);
        Body::Stream(Box::pin(ReadAhead::new(Box::pin(self))), None)
    }

    /// Receives the next piece, and measures how long the program is silent.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Chunk> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let next = self.poll_piece(context);
        if next.is_ready() {
            (self.silent, self.is_slow) = (None, false);
            return next;
        }
        let silent = self.silent.get_or_insert_with(|| Box::pin(sleep(ASKED_AFTER)));
        self.is_slow = self.is_slow || silent.as_mut().poll(context).is_ready();
        Poll::Pending
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Chunk> {
        loop {
            let Some(talk) = &mut self.talk else { return Poll::Ready(None) };
            match ready!(talk.poll_event(context)) {
                Ok(Event::Output(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(Event::Complaint(line)) => {
                    let notice = (self.complain)(&line);
                    self.late.borrow_mut().notices.push(notice);
                }
                Ok(Event::End) => {
                    talk.finish();
                    self.talk = None;
                    return Poll::Ready(None);
                }
                Err(failure) => {
                    self.talk = None;
                    let kind = match failure {
                        RunFailure::Silent => {
                            let notice = self.silent_notice.clone();
                            self.late.borrow_mut().notices.push(notice);
                            ErrorKind::TimedOut
                        }
                        _ => ErrorKind::UnexpectedEof,
                    };
                    return Poll::Ready(Some(Err(kind.into())));
                }
            }
        }
    }
}

impl Source for Stream {
    fn poll_chunk(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        match self.first.take().filter(|first| !first.is_empty()) {
            Some(bytes) => Poll::Ready(Some(Ok(bytes))),
            None => self.poll_next(context),
        }
    }

    fn held(&self) -> u64 {
        self.first.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }

    fn ends_with_client(&self) -> bool {
        self.is_slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_standard_error_are_split_and_bounded() {
        let mut lines = Lines::default();
        lines.add(b"one\r\ntwo\nthr");
        let next = |lines: &mut Lines| lines.next().map(|line| line.len());
        assert_eq!(
            (next(&mut lines), next(&mut lines), next(&mut lines)),
            (Some(3), Some(3), None)
        );
        lines.add(&vec![b'x'; MOST_LINE + 10]);
        assert_eq!((next(&mut lines), next(&mut lines)), (Some(MOST_LINE), None));
        lines.end();
        assert_eq!((next(&mut lines), next(&mut lines)), (Some(13), None));
        lines.add("\n".repeat(2 * MOST_LINES).as_bytes());
        assert_eq!(std::iter::from_fn(|| lines.next()).count(), MOST_LINES - 4);
    }

    #[test]
    fn a_status_line_of_a_script_is_its_status() {
        let head = parse(b"HTTP/1.1 418 Short and stout\r\nX-A: b\r\n\r\n", true).unwrap();
        assert_eq!(head.status, Some((418, b"418 Short and stout".to_vec())));
        assert_eq!(head.always.first(b"X-A"), Some(&b"b"[..]));
        assert!(parse(b"X-A: b\n\n", true).is_err() && parse(b"HTTP/1.1\n\n", true).is_err());
    }
}
