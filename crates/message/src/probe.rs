//! The questions that an expression may ask about other paths of the site while a request is being
//! served (`-U` and `-F` of ap_expr).

use crate::{MayWait, Request};
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// Answers whether another path could be served to the client of a request.
pub trait Probe {
    /// Whether a request for that URL path would be allowed; none if that cannot be known.
    fn allows_url(&self, request: &Request, url: &[u8]) -> Option<bool>;
    /// Whether that file exists and could be served; none if that cannot be known.
    fn allows_file(&self, request: &Request, path: &[u8]) -> Option<bool>;
}

/// The answer to a question, when it is there; none where it cannot be decided.
pub type Answering = Pin<Box<dyn Future<Output = Option<bool>>>>;

/// A question whose answer has to wait.
pub struct OpenQuestion {
    asked: Vec<u8>,
    answer: Answering,
}

impl OpenQuestion {
    /// A question, and the future that answers it.
    #[must_use]
    pub fn new(asked: Vec<u8>, answer: Answering) -> Self {
        Self { asked, answer }
    }

    /// Waits for the answer.
    pub async fn answered(self, _: &MayWait) -> (Vec<u8>, Option<bool>) {
        (self.asked, self.answer.await)
    }
}

/// The questions of the expressions that are being evaluated for a request. An expression cannot
/// wait: the question that it leaves open is answered, and the expression evaluated once more.
#[derive(Default)]
pub struct Questions {
    answered: Vec<(Vec<u8>, Option<bool>)>,
    open: Cell<Option<OpenQuestion>>,
}

impl Questions {
    /// The answer to a question that was open.
    #[must_use]
    pub fn answer(&self, asked: &[u8]) -> Option<Option<bool>> {
        let known = self.answered.iter().find(|(known, _)| known == asked);
        known.map(|(_, answer)| *answer)
    }

    /// Leaves a question open.
    pub fn leave_open(&self, question: OpenQuestion) {
        self.open.set(Some(question));
    }

    /// The question that was left open last.
    pub fn take_open(&mut self) -> Option<OpenQuestion> {
        self.open.take()
    }

    /// Notes the answer to a question that was open.
    pub fn note(&mut self, asked: Vec<u8>, answer: Option<bool>) {
        self.answered.push((asked, answer));
    }

    /// Forgets all questions and answers.
    pub fn clear(&mut self) {
        self.answered.clear();
        self.open.take();
    }
}

impl fmt::Debug for Questions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Questions").field("answered", &self.answered).finish_non_exhaustive()
    }
}
