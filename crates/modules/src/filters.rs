//! The filters that modules declare in `MODULE`: an output filter changes a response on its way
//! out, an input filter the body of a request on its way in (Apache: ap_register_output_filter,
//! ap_register_input_filter). A configuration names them, and the pipeline calls the function of
//! the declaration.

use crate::compression::{CompressedForms, Presses};
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
    fn parse_page(&self, request: &mut Request, tags: Tags, page: Body) -> Body;
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
#[derive(Clone, Copy)]
pub struct OutputFilter {
    /// The name, which is case-insensitive.
    pub name: &'static str,
    /// The position among the filters of a response.
    pub position: FilterPosition,
    /// Prepares a request before its handler runs (Apache: ap_init_filter_func).
    pub begin: Option<fn(&mut Request, &Means<'_>)>,
    /// Changes a response.
    pub act: ActOnResponse,
}

/// An input filter.
#[derive(Clone, Copy)]
pub struct InputFilter {
    /// The name, which is case-insensitive.
    pub name: &'static str,
    /// The position among the filters of a body.
    pub position: FilterPosition,
    /// Wraps a body.
    pub act: ActOnBody,
}

/// Two filters are equal if they have the same name.
impl PartialEq for OutputFilter {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for OutputFilter {}

impl fmt::Debug for OutputFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
