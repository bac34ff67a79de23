//! External filters (mod_ext_filter): has a program of the configuration, which the launcher
//! starts, filter the body of a response or of a request.

use crate::cgi;
use crate::including::{Input, page_variables};
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_message::{Body, Chunk, MayWait, Request, Source, Variables};
use evenkeel_modules::cgi::escape_for_shell;
use evenkeel_modules::external::External;
use evenkeel_modules::{RequestBody, include};
use evenkeel_upstream::{Complain, FilterRun, NoPlace, filter_source};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The output of the program of a filter that reads `content`.
pub(crate) fn pass_through(
    pipeline: &Rc<Pipeline>,
    request: &mut Request,
    plan: &Arc<Plan>,
    filter: &Arc<External>,
    content: Body,
) -> RequestBody {
    let variables = variables(pipeline, request, plan);
    let order = filter.order(&variables, &plan.core);
    let server = pipeline.site.server(request.server);
    let silence = server.timeout();
    let place = cgi::shared_place(request);
    let departure = Rc::clone(&request.departure);
    let own = Rc::clone(pipeline);
    let enter = async move {
        let may_wait = in_task().await;
        match place
            .enter(&own.places, &may_wait, &cgi::launcher_address(), silence, &departure)
            .await
        {
            Ok(()) => Ok(place),
            Err(NoPlace::Late) => Err(io::Error::other(format!(
                "no program could be started within {} s: programs have three quarters of the \
                 workers already",
                silence.as_secs()
            ))),
            Err(NoPlace::ClientGone) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    };
    let complain = plan.ext_filter.logs_stderr().then(|| {
        let filter = Arc::clone(filter);
        Box::new(move |line: &[u8]| filter.complaint(line)) as Complain
    });
    let fail = {
        let filter = Arc::clone(filter);
        Box::new(move |failure: &_| filter.failed(failure))
    };
    filter_source(FilterRun {
        order,
        launcher: pipeline.launcher.get().map(Arc::clone),
        content: source_of(pipeline, content),
        silence,
        enter: Box::pin(enter),
        complain,
        fail,
        late: Rc::clone(request.late.get_or_insert_default()),
    })
}

/// The environment of the program (mod_ext_filter.c: init_ext_filter_process).
fn variables(pipeline: &Pipeline, request: &Request, plan: &Plan) -> Variables {
    let resource = &request.resource;
    let mut variables = page_variables(pipeline, request, plan);
    variables.set("DOCUMENT_URI", &*resource.path);
    variables.set("DOCUMENT_PATH_INFO", &*resource.path_info);
    if let Some(query) = &resource.query {
        variables.set("QUERY_STRING_UNESCAPED", escape_for_shell(&include::decode_url(query)));
    }
    variables
}

/// Waits for the second poll, which a task of a runtime makes. The first poll of a body may come
/// before the request has a task.
async fn in_task() -> MayWait {
    let mut is_in_task = false;
    poll_fn(|context| match std::mem::replace(&mut is_in_task, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
    MayWait::in_task()
}

/// A body as a source.
pub(crate) fn source_of(pipeline: &Pipeline, body: Body) -> RequestBody {
    match body {
        Body::Stream(source, _) => source,
        body => {
            let input = Input::new(body, Arc::clone(&pipeline.blocking_pool));
            Box::pin(Reading { input: Some(input), next: None })
        }
    }
}

type Next = Pin<Box<dyn Future<Output = (Input, Chunk)>>>;

/// Reads a body that is in memory or in files piece by piece.
struct Reading {
    input: Option<Input>,
    next: Option<Next>,
}

impl Source for Reading {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        let this = self.get_mut();
        if let Some(mut input) = this.input.take() {
            this.next = Some(Box::pin(async move {
                let next = input.next().await.transpose();
                (input, next)
            }));
        }
        let Some(next) = &mut this.next else { return Poll::Ready(None) };
        let (input, chunk) = ready!(next.as_mut().poll(context));
        (this.input, this.next) = (Some(input), None);
        Poll::Ready(chunk)
    }
}
