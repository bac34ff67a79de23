//! External filters: programs that filter the bodies of responses and of requests. [`External`] is
//! a filter that ExtFilterDefine defines. [`filter_response`] and [`filter_body`] decide whether
//! its program runs. The launcher starts the program; no shell is involved.

use crate::core::Directory as CoreDirectory;
use crate::{Effect, InputFilter, Means, Merge, OutputFilter, RequestBody, script};
use evenkeel_config::Position;
use evenkeel_message::{
    Answer, Body, Chunk, FilterPosition, Level, Name, Notice, Request, Response, Source, Status,
    Variables, quoted,
};
use evenkeel_sys::spawn::{Order, may_execute};
use evenkeel_upstream::FilterFailure;
use std::collections::HashSet;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// An external filter (ExtFilterDefine).
#[derive(Clone, Debug)]
pub struct External {
    /// The name, which is case-insensitive.
    pub(crate) name: Box<str>,
    /// Whether it filters the bodies of requests (`mode=input`).
    pub(crate) is_input: bool,
    /// `ftype`.
    pub(crate) position: FilterPosition,
    /// The program and its arguments.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// The only media type of bodies that are filtered.
    pub(crate) in_type: Option<Box<str>>,
    /// The media type of what the program writes.
    pub(crate) out_type: Option<Box<str>>,
    /// The variable without which the filter does nothing.
    pub(crate) enable_env: Option<Box<str>>,
    /// The variable with which the filter does nothing.
    pub(crate) disable_env: Option<Box<str>>,
    /// Whether the program writes as many bytes as it reads.
    pub(crate) preserves_length: bool,
    /// Where the filter is defined.
    pub(crate) defined: Position,
}

/// The external filters of a virtual host.
#[derive(Clone, Debug, Default)]
pub struct Definitions(pub(crate) Vec<Arc<External>>);

crate::unsaid!(Definitions);

impl Merge for Definitions {
    /// A name that the host does not define is looked up in the main server (mod_ext_filter.c:
    /// find_filter_def).
    fn merge(base: &Self, over: &Self) -> Self {
        Self(over.0.iter().chain(&base.0).cloned().collect())
    }
}

impl Definitions {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn named(&self, name: &str, is_input: bool) -> Option<&Arc<External>> {
        let is_it =
            |it: &&Arc<External>| it.is_input == is_input && it.name.eq_ignore_ascii_case(name);
        self.0.iter().find(is_it)
    }

    /// The external output filter of this name.
    #[must_use]
    pub fn output_filter(&self, name: &str) -> Option<OutputFilter> {
        self.named(name, false).map(|external| OutputFilter {
            name: "an external filter",
            position: external.position,
            begin: None,
            act: |_, _, _| Ok(Effect::Nothing),
            external: Some(Arc::clone(external)),
        })
    }

    /// The external input filter of this name.
    #[must_use]
    pub fn input_filter(&self, name: &str) -> Option<InputFilter> {
        self.named(name, true).map(|external| InputFilter {
            name: "an external filter",
            position: external.position,
            act: |_, _, body| body,
            external: Some(Arc::clone(external)),
        })
    }
}

/// The names of the external filters of all virtual hosts, without case. Apache registers a filter
/// for the whole server, and answers with 500 where the virtual host of a request does not define
/// it (mod_ext_filter.c: init_filter_instance).
#[derive(Clone, Debug, Default)]
pub struct DefinedNames(HashSet<Box<str>>);

impl DefinedNames {
    /// The names that these virtual hosts define.
    pub fn of<'a>(hosts: impl Iterator<Item = &'a Definitions>) -> Self {
        Self(hosts.flat_map(|it| &it.0).map(|it| it.name.to_ascii_lowercase().into()).collect())
    }

    fn has(&self, name: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&*name.to_ascii_lowercase())
    }

    /// A filter that refuses every response, if a virtual host defines an external filter of this
    /// name. The one of the request does not.
    pub(crate) fn refusing_output(
        &self,
        request: &mut Request,
        name: &str,
    ) -> Option<OutputFilter> {
        const REFUSING: OutputFilter = OutputFilter {
            name: "an external filter of another host",
            position: FilterPosition::RESOURCE,
            begin: None,
            act: |_, _, _| Err(Answer::Status(Status::INTERNAL_SERVER_ERROR, None)),
            external: None,
        };
        self.has(name).then(|| {
            request.notify(undefined(name));
            REFUSING
        })
    }

    /// A filter that fails the body of every request, if a virtual host defines an external filter
    /// of this name. The one of the request does not.
    pub(crate) fn refusing_input(&self, request: &mut Request, name: &str) -> Option<InputFilter> {
        self.has(name).then(|| {
            request.notify(undefined(name));
            InputFilter {
                name: "an external filter of another host",
                position: FilterPosition::RESOURCE,
                act: |_, _, _| Box::pin(Failed),
                external: None,
            }
        })
    }
}

fn undefined(name: &str) -> Notice {
    let text = format!("couldn't find definition of filter '{name}' in the virtual host");
    Notice::new("ext_filter", Level::Error, 1459, text)
}

impl External {
    /// The order to run the program.
    #[must_use]
    pub fn order(&self, variables: &Variables, core: &CoreDirectory) -> Order {
        Order {
            program: self.program().to_vec(),
            arguments: self.arguments.clone(),
            variables: script::environment(variables),
            folder: b"/".to_vec(),
            limits: core.process_limits,
            question: None,
            service: None,
        }
    }

    fn program(&self) -> &[u8] {
        self.arguments.first().map_or(&[], Vec::as_slice)
    }

    /// The program with the place of its definition, for the error log.
    fn shown(&self) -> String {
        let Self { name, defined, .. } = self;
        format!("'{}' (ExtFilterDefine {name}, {defined})", quoted(self.program()))
    }

    /// Whether the filter acts on a body (mod_ext_filter.c: init_filter_instance).
    pub(crate) fn acts_on(&self, media_type: Option<&[u8]>, env: &Variables) -> bool {
        let bare = |text: &[u8]| text.split(|byte| *byte == b';').next().map(<[u8]>::to_vec);
        let is_meant = self.in_type.as_ref().is_none_or(|wanted| {
            let bare = media_type.and_then(bare);
            bare.is_some_and(|bare| bare.eq_ignore_ascii_case(wanted.as_bytes()))
        });
        is_meant
            && self.enable_env.as_ref().is_none_or(|name| env.contains(&**name))
            && !self.disable_env.as_ref().is_some_and(|name| env.contains(&**name))
    }

    /// The notice of a failure.
    #[must_use]
    pub fn failed(&self, failure: &FilterFailure) -> Notice {
        let shown = self.shown();
        let (number, text) = match failure {
            FilterFailure::Unstarted(error) => return self.unstarted(error, "aborting"),
            FilterFailure::Unread => {
                (1461, format!("the program {shown} has ended before it had read everything"))
            }
            FilterFailure::Silent => {
                (1466, format!("the program {shown} has not read or written anything in time"))
            }
        };
        Notice::new("ext_filter", Level::Error, number, text)
    }

    fn unstarted(&self, error: &io::Error, what_follows: &str) -> Notice {
        let shown = self.shown();
        let text = format!("couldn't create child process to run {shown}: {what_follows}");
        Notice::new("ext_filter", Level::Error, 1458, text).because(error)
    }

    /// The notice of a line that the program has written to its standard error.
    #[must_use]
    pub fn complaint(&self, line: &[u8]) -> Notice {
        let text = format!("stderr from {}: {}", self.shown(), quoted(line));
        Notice::own("ext_filter", Level::Error, text)
    }
}

/// Has the program filter the body of a response.
///
/// # Errors
/// 500 if the program cannot be executed, unless the filter is removed then (Onfail).
pub(crate) fn filter_response(
    external: &Arc<External>,
    request: &mut Request,
    means: &Means<'_>,
    response: &mut Response,
) -> Result<Effect, Answer> {
    let media_type = response.fields.first(Name::ContentType);
    if response.status.is_bodiless() || !external.acts_on(media_type, &request.resource.env) {
        return Ok(Effect::Nothing);
    }
    if let Err(error) = may_execute(external.program()) {
        let is_removed = means.sections.ext_filter.is_removed();
        request.notify(external.unstarted(&error, what_follows(is_removed)));
        return match is_removed {
            true => Ok(Effect::Nothing),
            false => Err(Status::INTERNAL_SERVER_ERROR.into()),
        };
    }
    if let Some(out_type) = &external.out_type {
        response.fields.set(Name::ContentType, &**out_type);
    }
    let content = std::mem::take(&mut response.body);
    let length = content.length().filter(|_| external.preserves_length);
    let output = means.subrequests.pass_through(request, external, content);
    response.body = Body::Stream(output, length);
    Ok(Effect::Changed)
}

fn what_follows(is_removed: bool) -> &'static str {
    if is_removed { "removing" } else { "aborting" }
}

/// The body of a request whose filter cannot be started.
struct Failed;

impl Source for Failed {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
        Poll::Ready(Some(Err(io::ErrorKind::Other.into())))
    }
}

/// Has the program filter the body of a request.
pub(crate) fn filter_body(
    external: &Arc<External>,
    request: &mut Request,
    means: &Means<'_>,
    body: RequestBody,
) -> RequestBody {
    let media_type = request.fields().first(Name::ContentType);
    if !external.acts_on(media_type, &request.resource.env) {
        return body;
    }
    if let Err(error) = may_execute(external.program()) {
        let is_removed = means.sections.ext_filter.is_removed();
        request.notify(external.unstarted(&error, what_follows(is_removed)));
        return if is_removed { body } else { Box::pin(Failed) };
    }
    means.subrequests.pass_through(request, external, Body::Stream(body, None))
}
