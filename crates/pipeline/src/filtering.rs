//! The filters of a response on its way out (the phase `filter`), and those of the body of a
//! request on its way in. A module declares its filters in its `MODULE`; the declaration has the
//! function that is called here.

use crate::body;
use crate::external::source_of;
use crate::including::Parent;
use crate::phases::{around, is_trace};
use crate::serve::Pipeline;
use crate::sessions;
use crate::site::Plan;
use evenkeel_message::{
    Answer, Body, Departure, FilterPosition, Level, MayWait, Name, Notice, Request, Response,
    Status,
};
use evenkeel_modules::external::{DefinedNames, Definitions};
use evenkeel_modules::{Effect, Means, RequestContext, core, expires, filter, headers, ratelimit};
use std::rc::Rc;
use std::sync::Arc;

/// The most filters that may change one body. Without a bound, an .htaccess file could name filters
/// that compress and unpack a body again and again.
const MOST_CHANGES: u32 = 8;

/// A response on its way out.
pub(crate) struct Filtered {
    response: Response,
    /// Whether its body was compressed.
    is_compressed: bool,
    /// Whether a program makes its body.
    is_external: bool,
}

impl Filtered {
    /// The response as it is so far.
    pub(crate) fn response(&self) -> &Response {
        &self.response
    }

    /// A response that was stored after its filters.
    pub(crate) fn stored(response: Response) -> Self {
        Self { response, is_compressed: false, is_external: false }
    }

    /// The response, to be changed.
    pub(crate) fn response_mut(&mut self) -> &mut Response {
        &mut self.response
    }

    /// Whether the response has to wait for the first bytes of its body, without which its status
    /// is not known.
    pub(crate) fn awaits_body(&self) -> bool {
        self.is_external && matches!(self.response.body, Body::Stream(..))
    }

    /// Waits for the first bytes of the body, and then for its end if it comes soon.
    ///
    /// # Errors
    /// 500 if the body fails before any of it is sent, or if the client leaves.
    pub(crate) async fn gather(
        &mut self,
        may_wait: &MayWait,
        departure: &Departure,
    ) -> Result<(), Answer> {
        let body = std::mem::take(&mut self.response.body);
        match evenkeel_upstream::gather(may_wait, body, departure).await {
            Some(body) => {
                self.response.body = body;
                Ok(())
            }
            None => Err(Status::INTERNAL_SERVER_ERROR.into()),
        }
    }
}

/// What changes a response on its way out, in order.
///
/// # Errors
/// A status where a filter cannot do its work.
pub(crate) fn filter(
    pipeline: &Rc<Pipeline>,
    request: &mut Request,
    plan: &Arc<Plan>,
    mut response: Response,
) -> Result<Filtered, Answer> {
    let server = pipeline.site.server(request.server);
    core::name_type(request, &mut response);
    add_earlier(request, &mut response);
    // What shows a request as it came, or speaks for the server as a whole, is sent before filters
    // are put in (request.c: the answer of map_to_storage is the last word).
    let is_traced = is_trace(request) || &*request.resource.path == b"*";
    if !is_traced {
        expires::act_on_response(request, &plan.expires, &mut response);
    }
    let recoded = match is_traced {
        true => Recoded::default(),
        false => recode(pipeline, request, plan, &mut response)?,
    };
    if !is_traced && plan.session.is_on() {
        sessions::save(request, plan, &mut response);
    }
    if !is_traced {
        headers::act_on_response(request, around(pipeline, server, plan), &mut response);
    }
    core::describe_content(request, &plan.core, &mut response);
    core::settle_vary(request, &mut response);
    core::omit_tag(request, &mut response);
    core::forbid_caching(request, &mut response);
    let Recoded { is_compressed, is_external } = recoded;
    Ok(Filtered { response, is_compressed, is_external })
}

/// The external filters of a request's virtual host, and the names of those of all.
fn external_filters<'a>(
    pipeline: &'a Pipeline,
    request: &Request,
) -> (&'a Definitions, &'a DefinedNames) {
    let own = &*pipeline.site.server(request.server).settings.ext_filter;
    (own, &pipeline.site.external_filters)
}

/// What filters have done to a body.
#[derive(Default)]
struct Recoded {
    is_compressed: bool,
    is_external: bool,
}

/// Sends the response through the output filters that are named for it; none as a rule.
fn recode(
    pipeline: &Rc<Pipeline>,
    request: &mut Request,
    plan: &Arc<Plan>,
    response: &mut Response,
) -> Result<Recoded, Answer> {
    // Apache makes no digest of a file if such a filter stands before its handler, whether or not
    // the filter changes the response (core.c: default_handler).
    if plan.core.content_digest == Some(true) && plan.filter.has_resource_filter() {
        response.fields.remove("Content-MD5");
    }
    let named = filter::Named {
        by_extension: request.resource.content.output_filters.clone(),
        by_section: plan.core.output_filters.as_deref(),
    };
    if named.is_empty() && plan.filter.passes_by(response.fields.first(Name::ContentType)) {
        return Ok(Recoded::default());
    }
    let parent = Parent { pipeline, plan };
    let means = means(pipeline, request, plan, &parent);
    let (mut recoded, mut changes) = (Recoded::default(), 0);
    let external = external_filters(pipeline, request);
    let active = &pipeline.site.global.active;
    for step in filter::steps(&plan.filter, &named, request, active, external).iter() {
        let output = match step {
            filter::Step::Plain(output) => Some(output.clone()),
            filter::Step::Chosen(filter) => {
                let mut notices = Vec::new();
                let server = pipeline.site.server(request.server);
                let context = RequestContext::new(request, server.core(plan));
                let output = filter.choose(context, response, &mut notices);
                request.notices.append(&mut notices);
                output
            }
        };
        let Some(output) = output else { continue };
        let effect = output.apply(request, &means, response)?;
        recoded.is_compressed |= effect == Effect::Compressed;
        recoded.is_external |= output.external.is_some() && effect != Effect::Nothing;
        if output.position == FilterPosition::RESOURCE || recoded.is_external {
            response.fields.remove("Content-MD5");
        }
        changes += u32::from(effect != Effect::Nothing);
        if changes > MOST_CHANGES {
            let text = format!("more than {MOST_CHANGES} filters change a body");
            request.notify(Notice::own("filter", Level::Error, text));
            return Err(Status::INTERNAL_SERVER_ERROR.into());
        }
    }
    Ok(recoded)
}

/// What the filters of a request work with.
fn means<'a>(
    pipeline: &'a Pipeline,
    request: &Request,
    plan: &'a Plan,
    parent: &'a Parent<'a>,
) -> Means<'a> {
    Means {
        sections: plan,
        server: &pipeline.site.server(request.server).settings,
        blocking_pool: &pipeline.blocking_pool,
        presses: &pipeline.presses,
        forms: &pipeline.forms,
        subrequests: parent,
        limit_request_body: body::limit(plan),
    }
}

/// Sends a part of a response, which a subrequest has made, through the output filters that are
/// named for it.
///
/// # Errors
/// A status where a filter cannot do its work.
pub(crate) fn filter_part(
    pipeline: &Rc<Pipeline>,
    request: &mut Request,
    plan: &Arc<Plan>,
    response: &mut Response,
) -> Result<(), Answer> {
    core::name_type(request, response);
    recode(pipeline, request, plan, response).map(|_| ())
}

/// Lets the output filters of a request prepare it before its handler runs (config.c:
/// ap_invoke_handler, which calls ap_init_filter_func).
pub(crate) fn begin(pipeline: &Rc<Pipeline>, request: &mut Request, plan: &Arc<Plan>) {
    let by_extension = request.resource.content.output_filters.as_deref();
    let by_section = plan.core.output_filters.as_deref();
    if by_extension.is_none() && by_section.is_none() && plan.filter.prepares_none() {
        return;
    }
    let named = filter::Named { by_extension: by_extension.map(Into::into), by_section };
    let parent = Parent { pipeline, plan };
    for output in filter::preparing(&plan.filter, &named, &pipeline.site.global.active) {
        if let Some(begin) = output.begin {
            begin(request, &means(pipeline, request, plan, &parent));
        }
    }
}

/// Sends the body of a request through the input filters that are named for it; none as a rule.
pub(crate) fn filter_input(pipeline: &Rc<Pipeline>, request: &mut Request, plan: &Arc<Plan>) {
    let named = filter::Named {
        by_extension: request.resource.content.input_filters.clone(),
        by_section: plan.core.input_filters.as_deref(),
    };
    if named.is_empty() {
        return;
    }
    let external = external_filters(pipeline, request);
    let active = &pipeline.site.global.active;
    let filters = filter::input_filters(&named, request, active, external);
    let parent = Parent { pipeline, plan };
    let means = means(pipeline, request, plan, &parent);
    // The filter that is nearest to the handler is the last to see the body.
    for filter in filters.iter().rev() {
        if let Some(body) = request.body.take() {
            request.body = Some(filter.apply(request, &means, body));
        }
    }
}

/// Puts the fields that were set before there was a response before those that it has.
fn add_earlier(request: &mut Request, response: &mut Response) {
    if !request.resource.always.is_empty() {
        let mut always = std::mem::take(&mut request.resource.always);
        always.overlay(&response.always);
        response.always = always;
    }
    if request.resource.fields.is_empty() {
        return;
    }
    let mut fields = std::mem::take(&mut request.resource.fields);
    let vary = fields.joined(b"Vary").filter(|_| response.fields.contains("Vary"));
    fields.overlay(&response.fields);
    if let Some(vary) = vary {
        fields.merge("Vary", vary);
    }
    response.fields = fields;
}

/// What changes the standard page of an error on its way out.
pub(crate) fn filter_error(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    mut response: Response,
) -> Response {
    let server = pipeline.site.server(request.server);
    expires::act_on_page(request, &plan.expires, &mut response);
    if plan.session.is_on() {
        sessions::save(request, plan, &mut response);
    }
    headers::act_on_error(request, around(pipeline, server, plan), &mut response);
    core::settle_vary(request, &mut response);
    core::forbid_caching(request, &mut response);
    response
}

/// What is cut out of a finished response: the ranges that the request asked for. No filter may
/// change the body after it. A body that was compressed is sent whole: what another version of the
/// server had made of the same file might not fit.
pub(crate) fn cut(request: &Request, plan: &Plan, filtered: Filtered) -> Result<Response, Answer> {
    let Filtered { response, is_compressed, is_external: _ } = filtered;
    if is_compressed || response.is_whole {
        return Ok(response);
    }
    core::cut_to_ranges(request, response, &plan.core)
}

/// Bounds the rate at which the body of a finished response is sent, if a filter has said so.
pub(crate) fn pace(pipeline: &Pipeline, response: &mut Response) {
    let Some(pace) = response.pace.take() else { return };
    if response.body.length() == Some(0) {
        return;
    }
    let body = std::mem::take(&mut response.body);
    let length = body.length();
    let paced = ratelimit::Paced::new(source_of(pipeline, body), pace);
    response.body = Body::Stream(Box::pin(paced), length);
}
