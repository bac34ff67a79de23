//! The filters that modules declare in `MODULE`: an output filter changes a response on its way
//! out, an input filter the body of a request on its way in (Apache: ap_register_output_filter,
//! ap_register_input_filter). A configuration names them, and the pipeline calls the function of
//! the declaration.

use crate::compression::{CompressedForms, Presses};
use crate::external::{self, External};
use crate::include::Tags;
use crate::{Sections, ServerSettings};
use evenkeel_message::{Answer, Body, FilterPosition, Request, Response, Source};
use evenkeel_sys::blocking_pool::BlockingPool;
pub use evenkeel_sys::open::Stat;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// The body of a request.
pub type RequestBody = Pin<Box<dyn Source>>;

/// What a filter works with, beside the request and the response.
pub struct Means<'a> {
    /// The merged settings of the sections that match the request.
    pub sections: &'a Sections,
    /// The settings of the virtual host.
    pub server: &'a ServerSettings,
    /// The threads for work that blocks or uses much CPU time.
    pub blocking_pool: &'a Arc<BlockingPool>,
    /// The permits for bodies that are recoded piece by piece.
    pub presses: &'a Arc<Presses>,
    /// The kept forms of bodies that are compressed again and again.
    pub forms: &'a Rc<CompressedForms>,
    /// What needs other paths of the site, programs and files.
    pub subrequests: &'a dyn Subrequests,
    /// LimitRequestBody with its default, in bytes.
    pub limit_request_body: u64,
}

/// What a filter asks of the server beside the request: the pipeline implements it.
pub trait Subrequests {
    /// The type, owner, size and times of the file of a request, if there is one.
    fn stat(&self, request: &Request) -> Option<Stat>;

    /// Whether the file of a page is known to have no element, with the tags of its host.
    fn is_plain(&self, request: &Request, stat: Stat) -> bool;

    /// The body of a page whose elements are replaced as it is sent.
    fn parse_page(&self, request: &mut Request, tags: Arc<Tags>, page: Body) -> Body;

    /// A body as a source, which reads files beside the serving thread.
    fn source_of(&self, body: Body) -> RequestBody;

    /// The output of the program of an external filter that reads `content`.
    fn pass_through(
        &self,
        request: &mut Request,
        filter: &Arc<External>,
        content: Body,
    ) -> RequestBody;
}

/// What an output filter has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It has left the body as it was.
    Nothing,
    /// It has changed the body.
    Changed,
    /// It has compressed the body, of which no ranges can be sent any more.
    Compressed,
}

/// The function of an output filter.
pub type ActOnResponse = fn(&mut Request, &Means<'_>, &mut Response) -> Result<Effect, Answer>;

/// The function of an input filter: wraps the body.
pub type ActOnBody = fn(&mut Request, &Means<'_>, RequestBody) -> RequestBody;

/// An output filter.
#[derive(Clone)]
pub struct OutputFilter {
    /// The name, which is case-insensitive.
    pub name: &'static str,
    /// The position among the filters of a response.
    pub position: FilterPosition,
    /// Prepares a request before its handler runs (Apache: ap_init_filter_func).
    pub begin: Option<fn(&mut Request, &Means<'_>)>,
    /// Changes a response.
    pub act: ActOnResponse,
    /// The program of an external filter, which is called in place of the function.
    pub external: Option<Arc<External>>,
}

impl OutputFilter {
    /// Changes a response.
    ///
    /// # Errors
    /// The filter cannot do its work.
    pub fn apply(
        &self,
        request: &mut Request,
        means: &Means<'_>,
        response: &mut Response,
    ) -> Result<Effect, Answer> {
        match &self.external {
            None => (self.act)(request, means, response),
            Some(external) => external::filter_response(external, request, means, response),
        }
    }
}

/// An input filter.
#[derive(Clone)]
pub struct InputFilter {
    /// The name, which is case-insensitive.
    pub name: &'static str,
    /// The position among the filters of a body.
    pub position: FilterPosition,
    /// Wraps a body.
    pub act: ActOnBody,
    /// The program of an external filter, which is called in place of the function.
    pub external: Option<Arc<External>>,
}

impl InputFilter {
    /// Wraps a body.
    pub fn apply(
        &self,
        request: &mut Request,
        means: &Means<'_>,
        body: RequestBody,
    ) -> RequestBody {
        match &self.external {
            None => (self.act)(request, means, body),
            Some(external) => external::filter_body(external, request, means, body),
        }
    }
}

/// Two filters are equal if they have the same name and the same program.
impl PartialEq for OutputFilter {
    fn eq(&self, other: &Self) -> bool {
        let program = |filter: &Self| filter.external.as_ref().map(Arc::as_ptr);
        self.name == other.name && program(self) == program(other)
    }
}

impl Eq for OutputFilter {}

impl fmt::Debug for OutputFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
