//! External filters: a program that reads a body on its standard input and writes another one on
//! its standard output. [`filter_source`] makes a body of the output. The program is started when
//! the body is first polled.

use crate::cgi::{Complain, Event, Lines, Process, RunFailure, Talk};
use crate::places::SharedPlace;
use bytes::Bytes;
use evenkeel_message::{Chunk, Late, Notice, ReadAhead, Source};
use evenkeel_sys::spawn::Order;
use std::cell::RefCell;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// After this silence of a program, the connection of the client is watched too.
const ASKED_AFTER: Duration = Duration::from_millis(250);

/// A program that filters a body.
pub struct FilterRun {
    /// The order for the launcher.
    pub order: Order,
    /// The socket of the launcher. Without it, the program cannot be started.
    pub launcher: Option<Arc<OwnedFd>>,
    /// What the program reads.
    pub content: Pin<Box<dyn Source>>,
    /// The time in which the program must read or write something.
    pub silence: Duration,
    /// Waits for the place that the programs of the request share. Ends with `ConnectionAborted` if
    /// the client leaves.
    pub enter: Pin<Box<dyn Future<Output = io::Result<Rc<SharedPlace>>>>>,
    /// Makes the notice of a line of the program's standard error. If it is `None`, the lines are
    /// read and discarded.
    pub complain: Option<Complain>,
    /// Makes the notice of a failure.
    pub fail: Box<dyn Fn(&FilterFailure) -> Notice>,
    /// Takes the notices.
    pub late: Rc<RefCell<Late>>,
}

/// The reason for which a filter has failed.
#[derive(Debug)]
pub enum FilterFailure {
    /// The program could not be started.
    Unstarted(io::Error),
    /// The program has ended, or has closed its input, before it had read everything.
    Unread,
    /// The program has neither read nor written anything for too long.
    Silent,
}

/// Makes a body of what the program writes. The body ends with an error if the filter fails, or if
/// what it reads ends with one.
#[must_use]
pub fn filter_source(run: FilterRun) -> Pin<Box<dyn Source>> {
    let FilterRun { order, launcher, content, silence, enter, complain, fail, late } = run;
    let start = async move {
        let launcher = launcher.ok_or_else(|| io::Error::other("no launcher starts programs"))?;
        let place = enter.await?;
        let process = Process::start(&order, &launcher, silence).await?;
        Ok((process, place))
    };
    let filter = Filter {
        state: State::Starting(Box::pin(start), content),
        silence,
        complain,
        fail,
        late,
        silent: None,
        is_slow: false,
    };
    Box::pin(ReadAhead::new(Box::pin(filter)))
}

type Start = Pin<Box<dyn Future<Output = io::Result<(Process, Rc<SharedPlace>)>>>>;

enum State {
    Starting(Start, Pin<Box<dyn Source>>),
    Running(Box<Talk>),
    Over,
}

/// The output of a program that filters a body.
struct Filter {
    state: State,
    silence: Duration,
    complain: Option<Complain>,
    fail: Box<dyn Fn(&FilterFailure) -> Notice>,
    late: Rc<RefCell<Late>>,
    /// A timer that runs while the program is silent.
    silent: Option<Pin<Box<tokio::time::Sleep>>>,
    /// Whether the program has been silent for [`ASKED_AFTER`].
    is_slow: bool,
}

impl Filter {
    /// Logs a failure and ends the body with an error.
    fn fail(&mut self, failure: &FilterFailure) -> Chunk {
        self.state = State::Over;
        let notice = (self.fail)(failure);
        self.late.borrow_mut().notices.push(notice);
        let kind = match failure {
            FilterFailure::Silent => ErrorKind::TimedOut,
            FilterFailure::Unstarted(_) | FilterFailure::Unread => ErrorKind::Other,
        };
        Some(Err(kind.into()))
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Chunk> {
        loop {
            let talk = match &mut self.state {
                State::Over => return Poll::Ready(None),
                State::Running(talk) => talk,
                State::Starting(start, _) => {
                    let started = ready!(start.as_mut().poll(context));
                    match started {
                        Ok(started) => self.begin(started),
                        // The client has left while the program waited for a place.
                        Err(error) if error.kind() == ErrorKind::ConnectionAborted => {
                            self.state = State::Over;
                            return Poll::Ready(Some(Err(error)));
                        }
                        Err(error) => {
                            return Poll::Ready(self.fail(&FilterFailure::Unstarted(error)));
                        }
                    }
                    continue;
                }
            };
            match ready!(talk.poll_event(context)) {
                Ok(Event::Output(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(Event::Complaint(line)) => {
                    if let Some(complain) = &self.complain {
                        self.late.borrow_mut().notices.push(complain(&line));
                    }
                }
                Ok(Event::End) => return Poll::Ready(self.end()),
                Err(RunFailure::Silent) => return Poll::Ready(self.fail(&FilterFailure::Silent)),
                Err(RunFailure::Body(error)) if error.kind() == ErrorKind::BrokenPipe => {
                    return Poll::Ready(self.fail_unread());
                }
                Err(failure) => {
                    self.state = State::Over;
                    let RunFailure::Body(error) = failure else {
                        return Poll::Ready(Some(Err(ErrorKind::Other.into())));
                    };
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn begin(&mut self, (process, place): (Process, Rc<SharedPlace>)) {
        let State::Starting(_, content) = std::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        self.state = State::Running(Box::new(Talk {
            process,
            body: Some(content),
            unsent: Bytes::new(),
            remains: crate::cgi::Remains::default(),
            keeps_remains: false,
            kept_body: 0,
            lines: Lines::default(),
            silence: self.silence,
            timer: None,
            _place: place,
            must_read_all: true,
        }));
    }

    /// Handles the end of the output.
    fn end(&mut self) -> Chunk {
        let State::Running(talk) = &self.state else { return None };
        if let Some(error) = talk.process.error_of_start() {
            return self.fail(&FilterFailure::Unstarted(error));
        }
        if talk.body.is_some() || !talk.unsent.is_empty() {
            return self.fail(&FilterFailure::Unread);
        }
        talk.finish();
        self.state = State::Over;
        None
    }

    /// A program that could not be started has read nothing either.
    fn fail_unread(&mut self) -> Chunk {
        let error = match &self.state {
            State::Running(talk) => talk.process.error_of_start(),
            State::Starting(..) | State::Over => None,
        };
        match error {
            Some(error) => self.fail(&FilterFailure::Unstarted(error)),
            None => self.fail(&FilterFailure::Unread),
        }
    }
}

impl Source for Filter {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        let this = self.get_mut();
        let next = this.poll_piece(context);
        if next.is_ready() {
            (this.silent, this.is_slow) = (None, false);
            return next;
        }
        // Before the program runs, there may be no runtime.
        if matches!(this.state, State::Running(_)) {
            let silent =
                this.silent.get_or_insert_with(|| Box::pin(tokio::time::sleep(ASKED_AFTER)));
            this.is_slow = this.is_slow || silent.as_mut().poll(context).is_ready();
        }
        Poll::Pending
    }

    fn ends_with_client(&self) -> bool {
        self.is_slow
    }
}
