//! Requests that a CGI program answers (mod_cgi, mod_cgid): checks that the file may be run, runs
//! it by the launcher, and makes the response of its output.

use crate::body;
use crate::die::KEEPS_TYPE;
use crate::proxying::translated;
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_files::Looked;
use evenkeel_message::{
    Address, Answer, Body, Fields, Level, MayWait, Method, Notice, Request, Response, Status,
    Variables,
};
use evenkeel_modules::cgi::{self, Entry};
use evenkeel_modules::script::{self, Output, Program};
use evenkeel_modules::userdir;
use evenkeel_modules::wrapper::Identity;
use evenkeel_proto::script::{BadHead, ScriptHead};
use evenkeel_upstream::{Answered, NoPlace, Remains, Run, RunFailure, SharedPlace, run_program};
use std::any::Any;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

/// Whether a request is answered by a program.
pub(crate) fn is_wanted(pipeline: &Pipeline, request: &Request) -> bool {
    pipeline.site.runs_programs.is_some() && cgi::is_wanted(request)
}

/// Runs the program of a request and returns its response.
///
/// # Errors
/// The file may not be run, no place is free in time, the run fails, or the program redirects.
pub(crate) async fn run(
    pipeline: &Rc<Pipeline>,
    request: &mut Box<Request>,
    plan: &Plan,
    looked: &Looked,
) -> Result<Response, Answer> {
    let module = pipeline.site.runs_programs.unwrap_or("cgi");
    cgi::check(request, module, &plan.core, looked.found.kind())?;
    let launcher = launcher(pipeline, request, module)?;
    let may_wait = pipeline.before_wait(request, plan).await;
    let server = pipeline.site.server(request.server);
    let silence = plan.cgi.timeout().unwrap_or_else(|| server.timeout());
    let path_info = request.resource.path_info.clone();
    let translated = match path_info.is_empty() {
        true => None,
        false => Box::pin(translated(pipeline, request, &path_info)).await,
    };
    let variables = variables(pipeline, request, plan, &path_info, translated.as_deref());
    let place = enter(pipeline, request, module, silence, &may_wait).await?;
    let ask = Ask { module, launcher, silence, place };
    let mut run = prepare(pipeline, request, plan, &variables, ask);
    run_as_other(pipeline, request, None, &mut run, &may_wait).await;
    // The variables are those of the request from here on, so that a request to which this one is
    // redirected has them with `REDIRECT_` (util_script.c: ap_add_common_vars).
    request.resource.env = variables;
    let is_nph = run.is_nph;
    let late = Rc::clone(request.late.get_or_insert_with(Rc::default));
    let (departure, mut notices) = (Rc::clone(&request.departure), Vec::new());
    let answered = run_program(&may_wait, run, &departure, &mut notices, &late).await;
    notices.into_iter().for_each(|notice| request.notify(notice));
    let answered = match answered {
        Ok(answered) if is_nph && frames_itself(&answered.head) => {
            let line = b"Transfer-Encoding".to_vec();
            Err((RunFailure::Head(BadHead::NoColon(line)), Remains::default()))
        }
        answered => answered,
    };
    let mut answered = match answered {
        Ok(answered) => answered,
        Err((failure, remains)) => {
            let failed = fail(pipeline, request, module, &failure, remains, &may_wait);
            return Err(failed.await);
        }
    };
    if let Some(answer) = redirect(request, &mut answered).await {
        return Err(answer);
    }
    let sets_status = answered.head.status.is_some();
    let output = Output { head: answered.head, body: answered.body, module };
    let mut response = script::respond(request, output)?;
    if response.status == Status::PRECONDITION_FAILED && !sets_status {
        // The page is the standard one (cgi_common.h: cgi_handle_response).
        request.resource.always.overlay(&response.always);
        return Err(response.status.into());
    }
    response.close = is_nph;
    Ok(response)
}

/// Runs a command of a page by the shell (`exec cmd` of mod_include), and returns its output.
///
/// # Errors
/// No place is free in time, or the shell cannot be started.
pub(crate) async fn run_command(
    pipeline: &Rc<Pipeline>,
    request: &mut Box<Request>,
    plan: &Plan,
    mut variables: Variables,
    command: &[u8],
) -> Result<Body, Answer> {
    let module = pipeline.site.runs_programs.unwrap_or("cgi");
    let launcher = launcher(pipeline, request, module)?;
    let may_wait = pipeline.before_wait(request, plan).await;
    let silence =
        plan.cgi.timeout().unwrap_or_else(|| pipeline.site.server(request.server).timeout());
    let path_info = request.resource.path_info.clone();
    if !path_info.is_empty() {
        variables.set("PATH_INFO", cgi::escape_for_shell(&path_info));
        if let Some(file) = Box::pin(translated(pipeline, request, &path_info)).await {
            variables.set("PATH_TRANSLATED", file);
        }
    }
    let place = enter(pipeline, request, module, silence, &may_wait).await?;
    let late = Rc::clone(request.late.get_or_insert_with(Rc::default));
    let file = request.resource.file.as_bytes().to_vec();
    let mut run = Run {
        order: cgi::shell_order(request, &variables, &plan.core, command),
        launcher,
        body: None,
        silence,
        is_nph: false,
        keeps_remains: false,
        kept_body: 0,
        silent: cgi::silence(module, &file),
        complain: Box::new(move |line| cgi::complaint(module, &file, line)),
        place,
    };
    run_as_other(pipeline, request, Some(command), &mut run, &may_wait).await;
    evenkeel_upstream::run_command(&may_wait, run, &late).await.map_err(|error| {
        let text = format!("couldn't spawn child process: {error}");
        request.notify(Notice::new(module, Level::Error, 1227, text));
        Status::INTERNAL_SERVER_ERROR.into()
    })
}

/// Has the wrapper of suexec run a program of another user: the user of a path below `/~user`, or
/// that of SuexecUserGroup (unixd.c: `ap_os_create_privileged_process`). `command` is that of a
/// page.
async fn run_as_other(
    pipeline: &Pipeline,
    request: &Request,
    command: Option<&[u8]>,
    run: &mut Run,
    _: &MayWait,
) {
    if !pipeline.site.runs_suexec {
        return;
    }
    let settings = &pipeline.site.server(request.server).settings.suexec;
    let mut identity = settings.identity();
    let user = request.resource.notes.value(userdir::USER_NOTE);
    if let Some(user) = user.and_then(|user| String::from_utf8(user.to_vec()).ok()) {
        // The table of users may be on the network.
        let found = pipeline.blocking_pool.spawn(move || Identity::of_userdir(&user)).await;
        identity = found.flatten().or(identity);
    }
    if let Some(identity) = identity {
        if command.is_some() {
            // The wrapper takes the whole command for the name of a program. There is no shell.
            run.order.arguments.truncate(1);
        }
        let program = command.unwrap_or_else(|| request.resource.file.as_bytes());
        identity.apply(&mut run.order, program);
    }
}

/// The socket of the launcher.
pub(crate) fn launcher(
    pipeline: &Pipeline,
    request: &mut Request,
    module: &'static str,
) -> Result<Arc<OwnedFd>, Answer> {
    pipeline.launcher.get().map(Arc::clone).ok_or_else(|| {
        let text = "no launcher starts programs in this process".to_owned();
        request.notify(Notice::own(module, Level::Error, text));
        Status::INTERNAL_SERVER_ERROR.into()
    })
}

fn frames_itself(head: &ScriptHead) -> bool {
    head.fields.contains("Transfer-Encoding")
}

/// What a run needs beside the request.
struct Ask {
    module: &'static str,
    launcher: Arc<OwnedFd>,
    silence: Duration,
    place: Rc<SharedPlace>,
}

fn prepare(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    variables: &Variables,
    ask: Ask,
) -> Run {
    let Ask { module, launcher, silence, place } = ask;
    let settings = &pipeline.site.server(request.server).settings.cgi;
    let file = request.resource.file.as_bytes().to_vec();
    Run {
        order: cgi::order(request, variables, &plan.core),
        launcher,
        body: request.body.take(),
        silence,
        is_nph: cgi::is_nph(request),
        keeps_remains: settings.log().is_some(),
        kept_body: settings.kept_body(),
        silent: cgi::silence(module, &file),
        complain: Box::new(move |line| cgi::complaint(module, &file, line)),
        place,
    }
}

/// The environment of the program.
fn variables(
    pipeline: &Pipeline,
    request: &Request,
    plan: &Plan,
    path_info: &[u8],
    path_translated: Option<&[u8]>,
) -> Variables {
    let core = pipeline.site.server(request.server).core(plan);
    let signature = pipeline.site.signature(request, plan);
    let length = request.fields().first("Content-Length");
    let program = Program {
        file: request.resource.file.as_bytes(),
        path_info,
        path_translated,
        // A body in chunks is passed on as it comes, so its length is not known.
        body_length: length.and_then(|text| std::str::from_utf8(text).ok()?.trim().parse().ok()),
        signature: signature.strip_prefix("<hr>\n").unwrap_or(&signature),
        software: &pipeline.site.identity.banner,
    };
    script::variables(request, core, &program)
}

/// Waits for a place among the running programs of this thread.
async fn enter(
    pipeline: &Pipeline,
    request: &mut Request,
    module: &'static str,
    patience: Duration,
    may_wait: &MayWait,
) -> Result<Rc<SharedPlace>, Answer> {
    let departure = Rc::clone(&request.departure);
    let place = shared_place(request);
    let address = launcher_address();
    let entered = place.enter(&pipeline.places, may_wait, &address, patience, &departure).await;
    entered.map_err(|why| {
        if why == NoPlace::Late {
            let text = format!(
                "no CGI program could be started within {} s: programs have three quarters of the \
                 workers already",
                patience.as_secs()
            );
            request.notify(Notice::own(module, Level::Error, text));
        }
        Answer::from(Status::SERVICE_UNAVAILABLE)
    })?;
    Ok(place)
}

/// The place that the programs of a client's request share while at least one of them runs.
pub(crate) fn shared_place(request: &mut Request) -> Rc<SharedPlace> {
    let shared = request.programs.as_ref().and_then(Weak::upgrade);
    if let Some(place) = shared.and_then(|shared| shared.downcast::<SharedPlace>().ok()) {
        return place;
    }
    let place = Rc::<SharedPlace>::default();
    let shared: Rc<dyn Any> = Rc::<SharedPlace>::clone(&place);
    request.programs = Some(Rc::downgrade(&shared));
    place
}

/// The address under which `Places` counts all programs that the launcher starts. No application
/// has it.
pub(crate) fn launcher_address() -> Address {
    Address::Unix("launcher".into())
}

/// Logs a failed run, in the error log and in that of scripts, and returns the answer.
async fn fail(
    pipeline: &Pipeline,
    request: &mut Request,
    module: &'static str,
    failure: &RunFailure,
    remains: Remains,
    may_wait: &MayWait,
) -> Answer {
    let mut status = cgi::failed(request, module, failure);
    if let RunFailure::Body(error) = failure {
        status = body::refuse(request, error);
    }
    let settings = &pipeline.site.server(request.server).settings.cgi;
    if let (Some(log), RunFailure::Head(_) | RunFailure::LargeHead) = (settings.log(), failure) {
        let entry = Entry::of_run(request, status.code(), &remains);
        let (log, length) = (log.to_path_buf(), settings.length());
        let written = pipeline.blocking_pool.spawn(move || cgi::append(&log, length, &entry));
        let _in_task: &MayWait = may_wait;
        written.await;
    }
    status.into()
}

/// The answer to a program that redirects without a status: an internal redirect to a path of this
/// server, and 302 to anything else (cgi_common.h: `cgi_handle_response`). The rest of its output
/// is read away.
pub(crate) async fn redirect(request: &mut Request, answered: &mut Answered) -> Option<Answer> {
    let Answered { head, body, .. } = answered;
    let status = match &head.status {
        Some((number, _)) => *number,
        None => request.resource.status.code(),
    };
    let location = head.fields.first("Location").filter(|_| status == 200)?.to_vec();
    if let Body::Stream(source, _) = std::mem::replace(body, Body::Empty) {
        let mut source = source;
        while let Some(Ok(_)) = poll_fn(|context| source.as_mut().poll_chunk(context)).await {}
    }
    let always = &mut request.resource.always;
    for (name, value) in head.always.iter() {
        always.set(name, value);
    }
    for cookie in &head.cookies {
        always.add("Set-Cookie", cookie);
    }
    if location.first() != Some(&b'/') {
        let mut fields = Fields::new();
        fields.set("Location", location);
        return Some(Answer::with_fields(Status::FOUND, fields));
    }
    request.resource.method = Method::Get;
    if request.fields().contains("Content-Length") {
        request.fields_mut().remove("Content-Length");
    }
    request.resource.notes.set(KEEPS_TYPE, "");
    Some(Answer::Redirect(location))
}
