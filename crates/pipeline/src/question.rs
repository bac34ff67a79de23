//! Questions that expressions ask about other paths of the site (`-U` and `-F` of ap_expr). Each
//! runs the phases on a copy of the request, up to what it asks about. Expressions and access rules
//! are evaluated without waiting. If the answer to a question or a look-up of a rule has to wait,
//! [`evaluate`] waits for it and evaluates once more.

use crate::frames::{MaybeReady, now_or_never};
use crate::look::{self, Start, beside, is_too_deep, may_not_look, see};
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_files::{Kind, Looked};
use evenkeel_message::{
    Answering, Beyond, FileName, Job, Lookup, OpenQuestion, Probe, Request, Translated, UrlPath,
};
use evenkeel_modules::core::look_up_names;
use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Questions of expressions within one another, where LimitInternalRecursion lets more be asked.
/// Each may ask several, so that their number grows with a power of this.
const QUESTIONS: u8 = 4;

/// How deep the questions of a request are asked. A question that leads to nothing but itself, and
/// is denied the last time, comes out by whether that limit is even: so this is even where the
/// limit of the server is.
fn question_limit(pipeline: &Pipeline, request: &Request) -> u8 {
    match pipeline.site.server(request.server).look_limit() {
        limit if limit <= usize::from(QUESTIONS) => u8::MAX,
        limit if limit % 2 == 0 => QUESTIONS,
        _ => QUESTIONS - 1,
    }
}

/// Evaluates expressions and rules of a request until all their questions are answered and all
/// their look-ups are done. It may do so several times, so that an evaluation leaves nothing behind
/// but its result.
pub(crate) fn evaluate<'a, T>(
    pipeline: &'a Pipeline,
    request: &'a mut Request,
    plan: &'a Plan,
    mut evaluation: impl FnMut(&mut Request) -> T + 'a,
) -> MaybeReady<'a, T> {
    request.questions.clear();
    request.lookups.clear();
    let told = request.notices.len();
    let result = evaluation(request);
    let Some(mut open) = Open::take(request) else { return MaybeReady::now(result) };
    request.notices.truncate(told);
    MaybeReady::later(async move {
        loop {
            open.close(pipeline, request, plan).await;
            // The last evaluation tells what it tells.
            let told = request.notices.len();
            let result = evaluation(request);
            let Some(next) = Open::take(request) else { return result };
            request.notices.truncate(told);
            open = next;
        }
    })
}

/// What an evaluation waits for.
enum Open {
    Question(OpenQuestion),
    Lookup(Lookup),
}

impl Open {
    fn take(request: &mut Request) -> Option<Self> {
        let question = request.questions.take_open().map(Open::Question);
        question.or_else(|| request.lookups.take_open().map(Open::Lookup))
    }

    /// Waits for the answer or the result, and notes it for the next evaluation.
    async fn close(self, pipeline: &Pipeline, request: &mut Request, plan: &Plan) {
        let may_wait = pipeline.before_wait(request, plan).await;
        match self {
            Open::Question(question) => {
                let (asked, answer) = question.answered(&may_wait).await;
                request.questions.note(asked, answer);
            }
            Open::Lookup(Lookup::Names(wanted)) => {
                look_up_names(request, wanted, &may_wait).await;
            }
            Open::Lookup(Lookup::Job(Job { key, what, work })) => {
                let beside = pipeline.beside(request, &may_wait);
                let found = beside.perform(what, move |_| Some(work())).await;
                request.lookups.note(key, found);
            }
        }
    }
}

/// What a question asks about.
#[derive(Clone)]
enum Subject {
    /// A path and its query.
    Url(UrlPath, Option<Vec<u8>>),
    /// A file, and its path where it stands in the folder of the request's.
    File(FileName, Option<UrlPath>),
}

impl Probe for Pipeline {
    /// A path where nothing is counts as allowed, as in Apache (util_expr_eval.c: op_url_subr).
    fn allows_url(&self, request: &Request, url: &[u8]) -> Option<bool> {
        // A subrequest for the path of its own request asks no more (util_expr_eval.c:
        // op_url_subr).
        if request.resource.main_path.as_deref() == Some(&request.resource.path[..]) {
            return Some(false);
        }
        let Ok((path, query)) = beside(self, request, url) else { return Some(false) };
        self.ask(request, [b"U", url].concat(), Subject::Url(path, query))
    }

    fn allows_file(&self, request: &Request, path: &[u8]) -> Option<bool> {
        let Some((file, beside)) = file_beside(request, path) else { return Some(false) };
        self.ask(request, [b"F", path].concat(), Subject::File(file, beside))
    }
}

/// Resolves the name of a file, which may be relative to the folder of the request's file. Returns
/// the file, and its URL path if it is in that folder. Returns `None` for a relative name that
/// leads above the folder (request.c: `ap_sub_req_lookup_file`).
pub(crate) fn file_beside(request: &Request, path: &[u8]) -> Option<(FileName, Option<UrlPath>)> {
    if !path.starts_with(b"/") && climbs(path) {
        return None;
    }
    let own = request.resource.file.as_bytes();
    let folder = match own.ends_with(b"/") {
        true => &*request.resource.file,
        false => request.resource.file.parent().unwrap_or(Path::new("/")),
    };
    let file = FileName::new(folder.join(OsStr::from_bytes(path)));
    let name = file.file_name().filter(|_| file.parent() == Some(folder));
    let beside = name.map(|name| request.resource.path.beside(name.as_bytes(), b""));
    Some((file, beside))
}

/// Whether a name leads above the folder that it begins in.
pub(crate) fn climbs(path: &[u8]) -> bool {
    let mut depth = 0_usize;
    for segment in path.split(|byte| *byte == b'/') {
        depth = match segment {
            b"" | b"." => depth,
            b".." => match depth.checked_sub(1) {
                Some(above) => above,
                None => return true,
            },
            _ => depth + 1,
        };
    }
    false
}

impl Pipeline {
    /// What a request is told that asks about another path; none where it cannot be decided, or
    /// is left open since the answer has to wait.
    fn ask(&self, request: &Request, asked: Vec<u8>, subject: Subject) -> Option<bool> {
        if let Some(answer) = request.questions.answer(&asked) {
            return answer;
        }
        if may_not_look(self, request) || is_too_deep(self, request, request.resource.depth + 1) {
            return Some(false);
        }
        let pipeline = self.own.upgrade()?;
        let limit = question_limit(self, request);
        let question = Box::new(request.question());
        let mut answer: Answering = match &request.beyond {
            Some(beyond) => {
                if *beyond.asked != *asked || !request.resource.is_question {
                    beyond.is_mixed.set(true);
                }
                if request.resource.depth >= limit {
                    beyond.is_reached.set(true);
                    return Some(beyond.answer.get());
                }
                Box::pin(answer(pipeline, question, subject))
            }
            None if request.resource.depth >= limit => return None,
            None => Box::pin(either_answer(pipeline, question, asked.clone(), subject)),
        };
        match now_or_never(answer.as_mut()) {
            Some(answer) => answer,
            None => {
                request.questions.leave_open(OpenQuestion::new(asked, answer));
                None
            }
        }
    }
}

/// The answer to a question. Where it leads to questions beyond [`QUESTIONS`], it is asked with
/// either answer to those: none where they decide it.
async fn either_answer(
    pipeline: Rc<Pipeline>,
    question: Box<Request>,
    asked: Vec<u8>,
    subject: Subject,
) -> Option<bool> {
    let beyond = Rc::new(Beyond {
        asked: asked.into(),
        answer: Cell::new(false),
        is_reached: Cell::new(false),
        is_presumed: Cell::new(false),
        is_mixed: Cell::new(false),
    });
    let ask = || {
        let mut copy = Box::new(question.again());
        copy.beyond = Some(Rc::clone(&beyond));
        answer(Rc::clone(&pipeline), copy, subject.clone())
    };
    let told = ask().await?;
    if !beyond.is_reached.get() {
        return Some(told);
    }
    if beyond.is_presumed.get() {
        return None;
    }
    if !beyond.is_mixed.get() {
        return Some(told);
    }
    beyond.answer.set(true);
    ask().await.filter(|other| *other == told)
}

/// What the phases say of a question's subject.
async fn answer(
    pipeline: Rc<Pipeline>,
    mut question: Box<Request>,
    subject: Subject,
) -> Option<bool> {
    match subject {
        Subject::Url(path, query) => {
            (question.resource.path, question.resource.query) = (path, query);
            let (question, seen) = see(&pipeline, question, Start::Path).await;
            let is_allowed = seen.status().code() < 400;
            (is_allowed || !question.doubtful).then_some(is_allowed)
        }
        Subject::File(file, path) => {
            question.resource.file = file;
            question.resource.path = path.unwrap_or(question.resource.path);
            let plan = Arc::clone(&pipeline.site.server(question.server).defaults);
            let is_file = |looked: &Looked| looked.found.kind() == Kind::File;
            match look::admit(&pipeline, Translated { request: question, plan }).await {
                Ok(admitted) => Some(admitted.found.as_ref().is_some_and(is_file)),
                Err(stopped) => (!stopped.request.doubtful).then_some(false),
            }
        }
    }
}
