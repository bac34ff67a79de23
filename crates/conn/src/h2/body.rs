//! The body of a request: the contents of DATA frames, which the session has put into the inbox of
//! the stream. Reading them reopens the client's flow-control windows.

use super::session_state::State;
use crate::exchange::request_body::{BodyReader, Taken};
use bytes::Bytes;
use evenkeel_message::{Fields, Level, Notice, Status};
use std::io::{self, ErrorKind};
use std::task::{Context, Poll};

/// The body of a request on its stream.
pub(crate) struct StreamBody {
    state: State,
    stream: u32,
    is_complete: bool,
    received: u64,
    fault: Option<&'static str>,
}

impl StreamBody {
    pub(crate) fn new(state: &State, stream: u32) -> Self {
        Self { state: state.clone(), stream, is_complete: false, received: 0, fault: None }
    }

    fn pop(&self) -> Option<Bytes> {
        let mut state = self.state.borrow_mut();
        let bytes = state.inbox(self.stream)?.data.pop_front()?;
        let shared = &mut *state;
        shared.engine.used(self.stream, bytes.len(), &mut shared.out);
        Some(bytes)
    }
}

impl BodyReader for StreamBody {
    fn has_arrived(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let inbox = state.inbox(self.stream);
        inbox.is_some_and(|inbox| !inbox.data.is_empty() || inbox.has_ended)
    }

    fn take(&mut self) -> Taken {
        let piece = self.pop();
        let mut state = self.state.borrow_mut();
        let Some(inbox) = state.inbox(self.stream) else { return Taken::Nothing };
        self.is_complete = inbox.has_ended && inbox.data.is_empty();
        match piece {
            Some(bytes) => {
                self.received += bytes.len() as u64;
                if bytes.is_empty() { Taken::Nothing } else { Taken::Data(bytes) }
            }
            None if inbox.fault.is_some() => {
                self.fault = inbox.fault;
                Taken::Broken
            }
            None => Taken::Nothing,
        }
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut state = self.state.borrow_mut();
        let is_gone = state.is_gone;
        let Some(inbox) = state.inbox(self.stream) else { return Poll::Ready(Ok(0)) };
        if !inbox.data.is_empty() || inbox.has_ended || inbox.fault.is_some() {
            return Poll::Ready(Ok(1));
        }
        if inbox.is_reset || is_gone {
            return Poll::Ready(Ok(0));
        }
        inbox.wait(context);
        Poll::Pending
    }

    fn send_continue(&mut self) {
        let mut state = self.state.borrow_mut();
        let shared = &mut *state;
        let status = Status::CONTINUE;
        shared.engine.inform(self.stream, status, &Fields::new(), &mut shared.out);
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn fault(&self) -> io::Error {
        ErrorKind::InvalidData.into()
    }

    fn take_notices(&mut self) -> Vec<Notice> {
        let text = self.fault.take().map(|fault| format!("the body is malformed: {fault}"));
        text.map(|text| Notice::own("http2", Level::Info, text)).into_iter().collect()
    }

    fn take_trailers(&mut self) -> Fields {
        let mut state = self.state.borrow_mut();
        state
            .inbox(self.stream)
            .map(|inbox| std::mem::take(&mut inbox.trailers))
            .unwrap_or_default()
    }
}
