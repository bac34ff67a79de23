//! Applies the rules of mod_rewrite in the phases: implements the services that rules need, and
//! acts on their outcome. The pipeline calls these functions only for requests with RewriteEngine
//! on.

use crate::look::{self, Aside, Start, beside, see};
use crate::phases;
use crate::question::{self, climbs};
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_expr::{Condition, Evaluation};
use evenkeel_files::{Kind, Looked};
use evenkeel_message::{
    Answer, Fields, FileName, Level, Notice, Request, RequestHead, Status, Target, UrlPath, quoted,
};
use evenkeel_modules::RequestContext;
use evenkeel_modules::dir::REDIRECT;
use evenkeel_modules::gateway::escape_path;
use evenkeel_modules::rewrite::{
    self, Ahead, Look, Outcome, ProgramMap, Proxied, Surroundings, Verdict,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The cost of a look-ahead subrequest, in steps of the request's allowance: it runs the phases
/// once more.
const LOOK_STEPS: u64 = 1_000_000;

/// The prefix of a proxy URI in log lines.
const PROXY: &[u8] = b"proxy:";

/// The outcome of a server's rules.
pub(crate) enum Translation {
    /// The request is mapped to a file later. Its path may have changed.
    Open,
    /// The request is mapped to a file or to a proxy.
    Mapped,
}

/// Applies the rules of the server.
///
/// # Errors
/// The response to the request.
pub(crate) async fn translate(
    pipeline: &Pipeline,
    request: &mut Box<Request>,
    plan: &Arc<Plan>,
) -> Result<Translation, Answer> {
    let server = pipeline.site.server(request.server);
    let around = Around { pipeline, plan };
    let rules = &server.settings.rewrite;
    let core = server.core(plan);
    match rewrite::translate(request, rules, &plan.rewrite, core, &around).await {
        Outcome::Declined | Outcome::Redirected(_) => Ok(Translation::Open),
        Outcome::Passed(path) => pass(request, path).map(|()| Translation::Open),
        Outcome::Mapped => Ok(Translation::Mapped),
        Outcome::Proxied(target) => {
            request.resource.file.clear();
            proxy(pipeline, request, target, 669).map(|()| Translation::Mapped)
        }
        Outcome::Answered(answer) => Err(answer),
    }
}

/// Applies the rules of the sections of a request that is mapped to a file.
///
/// # Errors
/// The response to the request.
pub(crate) async fn fix_up(
    pipeline: &Pipeline,
    request: &mut Box<Request>,
    plan: &Arc<Plan>,
    found: Option<&Looked>,
) -> Result<(), Answer> {
    let server = pipeline.site.server(request.server);
    let around = Around { pipeline, plan };
    let rules = &server.settings.rewrite;
    let core = server.core(plan);
    match rewrite::fix_up(request, rules, &plan.rewrite, core, found, &around).await {
        Outcome::Declined | Outcome::Mapped | Outcome::Passed(_) => Ok(()),
        Outcome::Redirected(path) => {
            let content = &mut request.resource.content;
            content.handler = Some(REDIRECT.into());
            content.redirect = Some(path.into());
            Ok(())
        }
        Outcome::Proxied(target) => proxy(pipeline, request, target, 10160),
        Outcome::Answered(answer) => Err(answer),
    }
}

/// Returns the target of the internal redirect of a rule, with the query (mod_rewrite.c:
/// handler_redirect). Returns `None` if the request is not redirected.
pub(crate) fn redirect_target(request: &Request) -> Option<Vec<u8>> {
    let content = &request.resource.content;
    let mut target = content.redirect.as_ref()?.to_vec();
    if content.handler.as_deref() != Some(REDIRECT) {
        return None;
    }
    if let Some(query) = &request.resource.query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    Some(target)
}

/// The answer to a request that a rule redirects if another rule sets its handler with the flag H.
/// Apache then calls that handler for a file with the name `redirect:` and the path, which does not
/// exist; the file of the request must not be sent in its place. `kind` is the kind of that file
/// (core.c: default_handler).
pub(crate) fn overridden_redirect(request: &mut Request, kind: Kind) -> Option<Answer> {
    let content = &request.resource.content;
    let target = content.redirect.as_ref()?;
    if content.handler.as_deref() == Some(REDIRECT) {
        return None;
    }
    let (level, number, what, status) = match kind {
        Kind::Absent => (Level::Info, 128, "File does not exist", Status::NOT_FOUND),
        Kind::Directory => (Level::Info, 129, "Attempt to serve directory", Status::NOT_FOUND),
        _ => (Level::Error, 132, "file permissions deny server access", Status::FORBIDDEN),
    };
    let text = format!("{what}: redirect:{}", quoted(target));
    request.notify(Notice::new("core", level, number, text));
    Some(status.into())
}

/// Sets the path of the request to the result of a rule with the flag PT.
fn pass(request: &mut Request, path: Vec<u8>) -> Result<(), Answer> {
    if !path.starts_with(b"/") {
        let line = quoted(&request.head.line);
        let notice =
            Notice::new("core", Level::Error, 126, format!("Invalid URI in request '{line}'"));
        request.notify(notice);
        return Err(Status::BAD_REQUEST.into());
    }
    let Some(decoded) = UrlPath::of_rule(&path) else {
        let text = format!(
            "a rule with the flag PT leads to '{}', whose . or .. is refused",
            quoted(&path)
        );
        request.notify(Notice::own("rewrite", Level::Error, text));
        return Err(Status::FORBIDDEN.into());
    };
    request.resource.path = decoded;
    Ok(())
}

/// Passes the request of a rule with the flag P on. The rule's text must contain the scheme and the
/// host or socket, so that the request cannot choose them (CVE-2021-40438).
///
/// # Errors
/// 403 if no proxy module is active, 500 if this server does not support the target.
fn proxy(
    pipeline: &Pipeline,
    request: &mut Request,
    proxied: Proxied,
    number: u16,
) -> Result<(), Answer> {
    let Proxied { mut uri, origin, is_raw } = proxied;
    if !pipeline.site.passes_on {
        let uri = [PROXY, &uri].concat();
        let text = format!(
            "attempt to make remote request from mod_rewrite without proxy enabled: {}",
            quoted(&uri)
        );
        request.notify(Notice::new("rewrite", Level::Error, number, text));
        return Err(Status::FORBIDDEN.into());
    }
    let target = std::str::from_utf8(&origin).ok().filter(|origin| !origin.is_empty());
    let target = target.and_then(|origin| Target::parse(origin, &pipeline.site.runtime_dir).ok());
    let (Some(target), true) = (target, uri.starts_with(&origin)) else {
        let text = format!(
            "a rule with the flag P passes the request on to {}: this server passes requests on \
             to http:, https:, ws:, wss:, balancer: and fcgi: alone, and only where the rule \
             names the host or socket without references",
            quoted(&uri)
        );
        request.notify(Notice::own("rewrite", Level::Error, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    };
    let name = uri.clone();
    let mut path = uri.split_off(origin.len());
    if is_raw && let Some(mark) = path.iter().position(|byte| *byte == b'?') {
        path.truncate(mark);
    }
    if !path.starts_with(b"/") {
        path.insert(0, b'/');
    }
    let path = if is_raw { path } else { escape_path(&path) };
    let target = Arc::new(target);
    let proxied = evenkeel_message::Proxied { target, path, is_raw, without_query: false, name };
    request.resource.proxied = Some(Box::new(proxied));
    Ok(())
}

/// The services of the server for the rules of one request.
struct Around<'a> {
    pipeline: &'a Pipeline,
    plan: &'a Arc<Plan>,
}

impl Surroundings for Around<'_> {
    fn look<'a>(
        &'a self,
        request: &'a mut Box<Request>,
        ahead: Ahead,
        read: &'a dyn Fn(&RequestContext<'_>, &[u8]) -> Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Look> + 'a>> {
        Box::pin(look(self.pipeline, request, ahead, read))
    }

    fn decide<'a>(
        &'a self,
        request: &'a mut Box<Request>,
        filename: &'a [u8],
        condition: &'a Condition,
    ) -> Pin<Box<dyn Future<Output = Verdict> + 'a>> {
        let server = self.pipeline.site.server(request.server);
        let evaluation = move |request: &mut Request| {
            let context = RequestContext::new(request, server.core(self.plan));
            let context = context.with_filename(filename);
            let mut evaluation = Evaluation::new(&context);
            let answer = evaluation.holds(condition);
            let mut vary = Fields::new();
            evaluation.vary().iter().for_each(|name| vary.merge("Vary", name));
            Verdict { answer, captures: evaluation.captures().clone(), vary }
        };
        Box::pin(question::evaluate(self.pipeline, request, self.plan, evaluation))
    }

    fn ask_program<'a>(
        &'a self,
        request: &'a mut Box<Request>,
        program: &'a ProgramMap,
        key: &'a [u8],
    ) -> Pin<Box<dyn Future<Output = Option<Vec<u8>>> + 'a>> {
        Box::pin(ask_program(self.pipeline, request, self.plan, program, key))
    }

    fn map_below_root(&self, request: &mut Request, path: &[u8]) -> Result<(), Status> {
        let server = self.pipeline.site.server(request.server);
        if climbs(path) {
            phases::tell_unmapped(request);
            return Err(Status::FORBIDDEN);
        }
        phases::below_document_root(request, server, path);
        Ok(())
    }
}

/// Asks the program of a map by the launcher.
async fn ask_program(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    program: &ProgramMap,
    key: &[u8],
) -> Option<Vec<u8>> {
    let shown = quoted(program.program()).into_owned();
    let complain = |request: &mut Request, what: &str| {
        let text = format!("the program {shown} of a RewriteMap has no value for a key: {what}");
        request.notify(Notice::own("rewrite", Level::Error, text));
    };
    let Some(launcher) = pipeline.launcher.get().map(Arc::clone) else {
        complain(request, "no launcher starts programs in this process");
        return None;
    };
    let patience = pipeline.site.server(request.server).timeout();
    let may_wait = pipeline.before_wait(request, plan).await;
    let order = program.order(key, patience);
    match evenkeel_upstream::ask_program(&may_wait, &order, &launcher, patience).await {
        Ok(value) => Some(value),
        Err(error) => {
            complain(request, &error.to_string());
            None
        }
    }
}

/// Runs the phases before the handler for another URL or file, and reads a value from that
/// subrequest.
async fn look(
    pipeline: &Pipeline,
    request: &mut Box<Request>,
    ahead: Ahead,
    read: &dyn Fn(&RequestContext<'_>, &[u8]) -> Vec<u8>,
) -> Look {
    let refused =
        |status, is_undecided| Look { status, file: Vec::new(), value: Vec::new(), is_undecided };
    let is_paid = request.allowance.spend(LOOK_STEPS);
    let Some(own) = pipeline.own.upgrade().filter(|_| is_paid) else {
        return refused(Status::INTERNAL_SERVER_ERROR, true);
    };
    let (path, query, file) = match ahead {
        Ahead::Url(url) => match beside(pipeline, request, &url) {
            Ok((path, query)) => (path, query, None),
            Err(status) => return refused(status, false),
        },
        Ahead::File(path) => match question::file_beside(request, &path) {
            Some((file, path)) => (path.unwrap_or_default(), None, Some(file)),
            None => return refused(Status::FORBIDDEN, false),
        },
    };
    let was_doubtful = std::mem::take(&mut request.doubtful);
    let stand_in = Box::new(Request::new(RequestHead::default(), request.peer, request.time_us));
    let mut asked = std::mem::replace(request, stand_in);
    let aside = Aside::put(&mut asked, path, query);
    let start = match file {
        None => Start::Path,
        Some(file) => at_file(&mut asked, file),
    };
    let (mut asked, seen) = see(&own, asked, start).await;
    let resource = &asked.resource;
    let file = match &resource.content.redirect {
        Some(target) => [b"redirect:", &**target].concat(),
        None => resource.file.as_bytes().to_vec(),
    };
    let core = pipeline.site.server(asked.server).core(&seen.plan);
    let value = read(&RequestContext::new(&asked, core), &file);
    let is_undecided = asked.doubtful;
    aside.restore(&mut asked);
    asked.doubtful |= was_doubtful;
    *request = asked;
    Look { status: seen.status(), file, value, is_undecided }
}

fn at_file(request: &mut Request, file: FileName) -> look::Start {
    (request.resource.file, request.resource.is_of_file) = (file, true);
    Start::File
}
