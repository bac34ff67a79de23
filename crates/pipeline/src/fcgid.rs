//! Requests for FastCGI programs that the launcher keeps (mod_fcgid): reads the body, takes a
//! place, borrows a process, and builds the response from its answer.

use crate::cgi::{launcher, redirect};
use crate::proxying::{refuse_body, spool, translated};
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_files::Looked;
use evenkeel_message::{
    Address, Answer, BodyLength, Level, Notice, Request, Response, Scheme, Status, Target, quoted,
};
use evenkeel_modules::fcgid;
use evenkeel_modules::script::{self, Output, Program};
use evenkeel_upstream::{Ask, Lease, NoPlace, Patience, exchange, program_failure};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Whether a request is answered by a FastCGI program.
pub(crate) fn is_wanted(pipeline: &Pipeline, request: &Request) -> bool {
    pipeline.site.keeps_programs && fcgid::is_wanted(request)
}

/// Asks a process of the program of a request, and returns its response.
///
/// # Errors
/// The program may not be run, no process is free in time, the exchange fails, or the program
/// redirects.
pub(crate) async fn run(
    pipeline: &Rc<Pipeline>,
    request: &mut Box<Request>,
    plan: &Plan,
    looked: &Looked,
) -> Result<Response, Answer> {
    let file = request.resource.file.as_bytes().to_vec();
    let wrapper = plan.fcgid.wrapper(&file);
    fcgid::check(request, &plan.core, looked.found.kind(), wrapper)?;
    let server = pipeline.site.server(request.server);
    let settings = server.settings.fcgid.clone();
    if server.settings.suexec.identity().is_some() {
        let text = "programs of mod_fcgid do not run as the user of SuexecUserGroup".to_owned();
        return Err(fail(request, text, Status::INTERNAL_SERVER_ERROR));
    }
    let wait = server.timeout();
    let launcher = launcher(pipeline, request, "fcgid")?;
    let may_wait = pipeline.before_wait(request, plan).await;
    let length = request.head.length;
    let too_long = |bytes: u64| {
        format!(
            "mod_fcgid: HTTP request length {bytes} (so far) exceeds MaxRequestLen ({})",
            settings.most_body()
        )
    };
    if let BodyLength::Exact(bytes) = length
        && bytes > settings.most_body()
    {
        return Err(fail(request, too_long(bytes), Status::INTERNAL_SERVER_ERROR));
    }
    let body = match request.body.take() {
        Some(source) => spool(&may_wait, source, &pipeline.blocking_pool)
            .await
            .map_err(|error| refuse_body(request, "fcgid", error))?,
        None => Default::default(),
    };
    if body.length() > settings.most_body() {
        return Err(fail(request, too_long(body.length()), Status::INTERNAL_SERVER_ERROR));
    }
    let path_info = request.resource.path_info.clone();
    let path_translated = match path_info.is_empty() {
        true => None,
        false => Box::pin(translated(pipeline, request, &path_info)).await,
    };
    let signature = pipeline.site.signature(request, plan);
    let program = Program {
        file: &file,
        path_info: &path_info,
        path_translated: path_translated.as_deref(),
        // A request without a body has the length 0, as under mod_fcgid.
        body_length: Some(body.length()),
        signature: signature.strip_prefix("<hr>\n").unwrap_or(&signature),
        software: &pipeline.site.identity.banner,
    };
    let core = pipeline.site.server(request.server).core(plan);
    let mut variables = script::variables(request, core, &program);
    fcgid::fix_variables(request, &settings, &mut variables);
    request.resource.env = variables.clone();
    let patience_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let global = &pipeline.site.global.fcgid;
    let order = fcgid::order(request, &settings, global, wrapper, patience_ms);
    let limits = settings.limits(&order.program);
    let departure = Rc::clone(&request.departure);
    let class = order.service.as_ref().map_or(&[][..], |service| &service.class);
    let address = address_of(class);
    let entered = pipeline.places.enter(&may_wait, &address, wait, &departure).await;
    let place = entered.map_err(|why| {
        if why == NoPlace::Late {
            let text = format!("no place at {} became free in time", quoted(&order.program));
            request.notify(Notice::own("fcgid", Level::Error, text));
        }
        Answer::from(Status::SERVICE_UNAVAILABLE)
    })?;
    let lease = match Lease::take(&launcher, &order, wait, &departure).await {
        Ok(lease) => lease,
        Err(error) => {
            let level = match error.kind() {
                ErrorKind::NotConnected => Level::Debug,
                _ => Level::Warn,
            };
            let command = order.arguments.join(&b' ');
            let text = format!("mod_fcgid: can't apply process slot for {}", quoted(&command));
            request.notify(Notice::own("fcgid", level, text).because(&error));
            return Err(Status::SERVICE_UNAVAILABLE.into());
        }
    };
    let silence = Duration::from_secs(limits.io_timeout_s);
    let ask = Ask {
        target: Arc::new(Target {
            scheme: Scheme::Fcgi,
            address,
            host: "localhost".into(),
            port: 0,
            path: "/".into(),
        }),
        variables,
        body,
        patience: Patience { connect: silence, silence, queue: None },
        script: file.clone(),
        place,
        pool: None,
        lease: Some(lease),
    };
    let late = Rc::clone(request.late.get_or_insert_with(Rc::default));
    let mut notices = Vec::new();
    let blocking_pool = &pipeline.blocking_pool;
    let asked = exchange(&may_wait, ask, blocking_pool, &departure, &mut notices, &late).await;
    notices.into_iter().for_each(|notice| request.notify(notice));
    let mut answered = match asked {
        Ok(answered) => answered,
        Err(failure) => {
            let (notice, status) = program_failure(&failure.kind, &file);
            request.notify(notice);
            return Err(status.into());
        }
    };
    if let Some(answer) = redirect(request, &mut answered).await {
        return Err(answer);
    }
    script::respond(request, Output { head: answered.head, body: answered.body, module: "fcgid" })
}

fn fail(request: &mut Request, text: String, status: Status) -> Answer {
    request.notify(Notice::own("fcgid", Level::Warn, text));
    status.into()
}

/// What places are counted under: no socket has this path.
fn address_of(class: &[u8]) -> Address {
    Address::Unix(PathBuf::from(format!("fcgid {}", String::from_utf8_lossy(class))))
}
