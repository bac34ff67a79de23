//! Pages with server-side includes (mod_include): drives the parser of a page, makes its
//! subrequests, runs its programs and evaluates its expressions. A page is the body of a response,
//! and is parsed as its client takes it.

mod conditions;
mod elements;
mod input;
mod output;

use crate::look::{self, Aside, Start, beside};
use crate::phases;
use crate::question::file_beside;
use crate::serve::{Concluded, Pipeline};
use crate::site::Plan;
use crate::{die, external, filtering};
use evenkeel_files::{Kind, Looked};
use evenkeel_message::{
    Answer, Body, FileName, Level, Notice, Prepared, Request, RequestHead, Response, Status,
    Stopped, UrlPath, Variables,
};
use evenkeel_modules::cgi::escape_for_shell;
use evenkeel_modules::external::External;
use evenkeel_modules::include::{Document, Element, Facts, Page, PageVariables, Tags};
use evenkeel_modules::script::{self, Program};
use evenkeel_modules::{RequestBody, Stat, Subrequests};
pub(crate) use input::Input;
use output::{Outbox, Parts};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// The most subrequests that the pages of a client's request make, nested pages included.
const MOST_SUBREQUESTS: u32 = 5000;

/// The longest element, in bytes.
const LONGEST_ELEMENT: usize = 1 << 20;

/// The elements after which a page lets other requests have their turn.
const TURN: u32 = 500;

/// What the filters of a request ask of the pipeline.
pub(crate) struct Parent<'a> {
    pub(crate) pipeline: &'a Rc<Pipeline>,
    pub(crate) plan: &'a Arc<Plan>,
}

/// What the pages of a client's request share.
pub(crate) struct SharedState {
    variables: RefCell<PageVariables>,
    subrequests: Cell<u32>,
    /// The owner of the outermost page's file.
    owner: Option<u32>,
}

impl Subrequests for Parent<'_> {
    fn stat(&self, request: &Request) -> Option<Stat> {
        let file = request.resource.file.as_bytes();
        if file.is_empty() {
            return None;
        }
        self.pipeline.walker.borrow_mut().files.look_up(file).found.stat()
    }

    fn is_plain(&self, request: &Request, stat: Stat) -> bool {
        self.pipeline.plain_pages.has(request.server, stat)
    }

    fn parse_page(&self, request: &mut Request, tags: Arc<Tags>, page: Body) -> Body {
        let Parent { pipeline, plan } = *self;
        let shared = request.page.clone().and_then(|page| page.downcast::<SharedState>().ok());
        let shared = match shared {
            Some(shared) => shared,
            None => Rc::new(self.begin(request)),
        };
        if let Some(query) = request.resource.query.clone() {
            shared.variables.borrow_mut().set_query(&query, escape_for_shell);
        }
        let before = request.page.replace(Rc::<SharedState>::clone(&shared));
        let copy = Box::new(request.for_parts());
        request.page = before;
        let options = plan.core.options.effective();
        let knows_exec = pipeline.site.runs_programs.is_some();
        let file = request.resource.file.as_bytes();
        let outbox = Rc::new(Outbox::default());
        let run = Run {
            pipeline: Rc::clone(pipeline),
            plan: Arc::clone(plan),
            page: Page::new(plan.include.page(file, options, knows_exec)),
            tags,
            shared,
            request: copy,
            outbox: Rc::clone(&outbox),
            since_turn: 0,
            plain: None,
        };
        let run = match &page {
            Body::File(_) => Run { plain: self.stat(request), ..run },
            _ => run,
        };
        let input = Input::new(page, Arc::clone(&pipeline.blocking_pool));
        Parts::new(Box::pin(run.whole(input)), outbox).into_body()
    }

    fn source_of(&self, body: Body) -> RequestBody {
        external::source_of(self.pipeline, body)
    }

    fn pass_through(
        &self,
        request: &mut Request,
        filter: &Arc<External>,
        content: Body,
    ) -> RequestBody {
        external::pass_through(self.pipeline, request, self.plan, filter, content)
    }
}

impl Parent<'_> {
    /// The variables of the outermost page.
    fn begin(&self, request: &Request) -> SharedState {
        let Parent { pipeline, plan } = *self;
        let resource = &request.resource;
        let stat = self.stat(request);
        let facts = Facts {
            request_us: i64::try_from(request.time_us).unwrap_or(i64::MAX),
            modified_us: stat.map_or(0, |stat| stat.modified_ns / 1000),
            owner: None,
        };
        let document = Document {
            path: &resource.path,
            query: resource.query.as_deref(),
            path_info: &resource.path_info,
            file: resource.file.as_bytes(),
        };
        let cgi = page_variables(pipeline, request, plan);
        SharedState {
            variables: RefCell::new(PageVariables::new(cgi, &document, facts)),
            subrequests: Cell::new(0),
            owner: stat.map(|stat| stat.uid),
        }
    }
}

/// The variables of CGI for a page, or for the program of an external filter.
pub(crate) fn page_variables(pipeline: &Pipeline, request: &Request, plan: &Plan) -> Variables {
    let core = pipeline.site.server(request.server).core(plan);
    let signature = pipeline.site.signature(request, plan);
    let length = request.fields().first("Content-Length");
    let program = Program {
        file: request.resource.file.as_bytes(),
        path_info: &request.resource.path_info,
        path_translated: None,
        body_length: length.and_then(|it| std::str::from_utf8(it).ok()?.trim().parse().ok()),
        signature: signature.strip_prefix("<hr>\n").unwrap_or(&signature),
        software: &pipeline.site.identity.banner,
    };
    script::variables(request, core, &program)
}

/// A page that is being parsed.
struct Run {
    pipeline: Rc<Pipeline>,
    plan: Arc<Plan>,
    page: Page,
    tags: Arc<Tags>,
    shared: Rc<SharedState>,
    request: Box<Request>,
    outbox: Rc<Outbox>,
    /// The elements since others had their turn.
    since_turn: u32,
    /// The file of the page, as long as no element was found in it.
    plain: Option<Stat>,
}

/// A place of the site that a page names.
enum Target {
    /// A URL.
    Url(UrlPath, Option<Vec<u8>>),
    /// A file, and its path where it stands in the folder of the page.
    File(FileName, Option<UrlPath>),
}

/// Why there is nothing at a place.
enum Refused {
    /// A look at the place ended with this status.
    Setup(Status),
    /// The handler ended with this status, and redirects to this URL.
    Handler(Status, Option<Vec<u8>>),
    /// `IncludesNOEXEC` does not let it be included.
    MayExecute,
}

impl Run {
    /// Parses the page to its end.
    async fn whole(mut self, mut input: Input) -> io::Result<()> {
        loop {
            let text = input.at_hand();
            match self.tags.find(text) {
                Some(at) => {
                    self.send_text(&mut input, at).await;
                    input.skip(self.tags.start().len());
                    if !self.element(&mut input).await? {
                        return self.end(true).await;
                    }
                }
                None => {
                    let length = text.len() - self.tags.begun(text);
                    self.send_text(&mut input, length).await;
                    if !input.more().await? {
                        let length = input.at_hand().len();
                        self.send_text(&mut input, length).await;
                        return self.end(false).await;
                    }
                }
            }
        }
    }

    /// Sends the first bytes at hand, unless a condition leaves them out.
    async fn send_text(&mut self, input: &mut Input, length: usize) {
        let text = input.take(length);
        if self.page.is_printing {
            self.outbox.send(text).await;
        }
    }

    /// Acts on the element at hand. Returns false if the page ends inside it.
    async fn element(&mut self, input: &mut Input) -> io::Result<bool> {
        loop {
            if let Some((length, element)) = self.tags.element(input.at_hand()) {
                input.skip(length);
                self.act(element).await;
                return Ok(true);
            }
            if input.at_hand().len() > LONGEST_ELEMENT {
                let text = format!("an element is longer than {LONGEST_ELEMENT} bytes in");
                self.complain(Notice { number: None, ..self.page.notice(0, &text) });
                return Ok(false);
            }
            if !input.more().await? {
                return Ok(false);
            }
        }
    }

    async fn act(&mut self, element: Element) {
        self.plain = None;
        self.since_turn += 1;
        if self.since_turn >= TURN {
            self.since_turn = 0;
            yield_turn().await;
        }
        if elements::may_ask_for_owner(&element) {
            self.find_owner().await;
        }
        let (mut out, mut notices) = (Vec::new(), Vec::new());
        let wait = {
            let variables = &mut self.shared.variables.borrow_mut();
            self.page.act(element, variables, &mut out, &mut notices)
        };
        self.outbox.send(out.into()).await;
        self.tell(notices);
        if let Some(wait) = wait {
            self.wait_for(wait).await;
        }
    }

    async fn end(mut self, is_inside: bool) -> io::Result<()> {
        let (mut out, mut notices) = (Vec::new(), Vec::new());
        self.page.end(is_inside, &mut out, &mut notices);
        if let Some(stat) = self.plain.filter(|_| !is_inside) {
            self.pipeline.plain_pages.note(self.request.server, stat);
        }
        self.outbox.send(out.into()).await;
        self.tell(notices);
        Ok(())
    }

    /// Sends the message of an error.
    async fn fail(&self) {
        let mut out = Vec::new();
        self.page.fail(&mut out);
        self.outbox.send(out.into()).await;
    }

    fn complain(&mut self, notice: Notice) {
        self.tell(vec![notice]);
    }

    /// Writes notices to the error log.
    fn tell(&mut self, notices: Vec<Notice>) {
        notices.into_iter().for_each(|notice| self.request.notify(notice));
        self.pipeline.tell_now(&mut self.request, &self.plan);
    }

    /// A text of an element with its variables replaced.
    fn expanded(&mut self, text: &[u8]) -> Vec<u8> {
        let mut notices = Vec::new();
        let expanded = {
            let variables = &mut self.shared.variables.borrow_mut();
            self.page.expanded(text, variables, &mut notices)
        };
        self.tell(notices);
        expanded
    }

    /// The place that a path or URL names.
    fn url(&self, text: &[u8]) -> Result<Target, Refused> {
        let target = beside(&self.pipeline, &self.request, text).map_err(Refused::Setup)?;
        Ok(Target::Url(target.0, target.1))
    }

    /// The file that a relative name stands for; none if it leads out of the page's folder.
    fn file(&self, name: &[u8]) -> Option<Target> {
        if name.starts_with(b"/") {
            return None;
        }
        let (file, path) = file_beside(&self.request, name)?;
        Some(Target::File(file, path))
    }

    /// Makes a subrequest. `run` says what becomes of what is found; the page's own request is
    /// itself again afterwards.
    async fn subrequest<T>(
        &mut self,
        target: Target,
        run: impl AsyncFnOnce(&Rc<Pipeline>, Box<Request>, look::Seen) -> (Box<Request>, T),
    ) -> Option<T> {
        let count = self.shared.subrequests.get() + 1;
        self.shared.subrequests.set(count);
        if count > MOST_SUBREQUESTS {
            let text = format!("the pages of a request may make {MOST_SUBREQUESTS} subrequests");
            self.complain(Notice::own("include", Level::Error, text));
            return None;
        }
        let (peer, time_us) = (self.request.peer, self.request.time_us);
        let stand_in = Request::new(RequestHead::default(), peer, time_us);
        let mut request = std::mem::replace(&mut self.request, Box::new(stand_in));
        request.resource.env = self.shared.variables.borrow().exported().clone();
        (request.looks, request.variant_looks) = (0, 0);
        let redirects = request.redirects();
        let (aside, found) = match target {
            Target::Url(path, query) => {
                let aside = Aside::put(&mut request, path, query);
                (aside, look::see(&self.pipeline, request, Start::Path).await)
            }
            Target::File(file, path) => {
                let aside = Aside::put(&mut request, path.unwrap_or_default(), None);
                request.resource.file = file;
                (aside, look::see_file(&self.pipeline, request).await)
            }
        };
        let (mut request, result) = run(&self.pipeline, found.0, found.1).await;
        aside.restore(&mut request);
        while request.redirects() > redirects {
            request.previous = request.previous.take().and_then(|previous| previous.previous);
        }
        request.undecided = false;
        self.request = request;
        self.tell(Vec::new());
        Some(result)
    }

    /// What stands at a place, if the client may see it.
    async fn look(&mut self, target: Target) -> Option<Stat> {
        self.subrequest(target, async |_, request, seen| {
            let found = seen.found.as_ref().filter(|_| seen.status() == Status::OK);
            let stat = found.and_then(|looked| looked.found.stat());
            (request, stat)
        })
        .await
        .flatten()
    }

    /// The body of the response to a subrequest. `change` may change what was found before the
    /// handler runs, or refuse it.
    async fn fetch(
        &mut self,
        target: Target,
        change: impl FnOnce(&mut Request, &Looked) -> Result<(), Refused>,
    ) -> Result<Response, Refused> {
        let fetched = self.subrequest(target, async |pipeline, mut request, seen| {
            let status = seen.status();
            let (plan, found) = (seen.plan, seen.found);
            if status != Status::OK {
                return (request, Err(Refused::Setup(status)));
            }
            if let Some(looked) = &found
                && let Err(refused) = change(&mut request, looked)
            {
                return (request, Err(refused));
            }
            request.offer_kept_body();
            respond(pipeline, Prepared { request, plan, found }).await
        });
        fetched.await.unwrap_or(Err(Refused::Setup(Status::INTERNAL_SERVER_ERROR)))
    }

    /// Sends the body of a response as part of the page.
    async fn send_body(&mut self, body: Body) {
        let mut input = Input::new(body, Arc::clone(&self.pipeline.blocking_pool));
        loop {
            let length = input.at_hand().len();
            let text = input.take(length);
            self.outbox.send(text).await;
            match input.more().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let text = "what is included cannot be read to its end in";
                    let notice = self.page.notice(0, text);
                    self.complain(Notice { number: None, ..notice }.because(&error));
                    return;
                }
            }
        }
    }
}

/// Runs the handler of a subrequest and the filters that change its content, and follows internal
/// redirects.
async fn respond(
    pipeline: &Rc<Pipeline>,
    prepared: Prepared<Plan, Option<Looked>>,
) -> (Box<Request>, Result<Response, Refused>) {
    let mut outcome = Box::pin(phases::generate(pipeline, prepared)).await;
    loop {
        let Concluded { mut request, plan, result } = match outcome {
            Ok(concluded) => concluded,
            Err(Stopped { request, plan, answer }) => {
                Concluded { request, plan, result: Err(answer) }
            }
        };
        let target = match result {
            Ok(mut response) => {
                let filtered = filtering::filter_part(pipeline, &mut request, &plan, &mut response);
                return match filtered {
                    Ok(()) => (request, Ok(response)),
                    Err(_) => (request, Err(Refused::Handler(Status::INTERNAL_SERVER_ERROR, None))),
                };
            }
            Err(Answer::Response(response)) => return (request, Ok(*response)),
            Err(Answer::Status(status, fields)) => {
                let location = fields.as_ref().and_then(|fields| fields.first("Location"));
                let location = location.map(<[u8]>::to_vec);
                return (request, Err(Refused::Handler(status, location)));
            }
            Err(Answer::Redirect(target)) => target,
        };
        let limit = pipeline.site.server(request.server).redirect_limit();
        if request.redirects() >= limit {
            request.notify(look::too_many_redirects(limit));
            return (request, Err(Refused::Handler(Status::INTERNAL_SERVER_ERROR, None)));
        }
        request = match die::redirected(pipeline, request, &plan, &target) {
            Ok(request) => request,
            Err((request, status)) => return (request, Err(Refused::Handler(status, None))),
        };
        outcome = Box::pin(pipeline.phases(request)).await;
    }
}

/// Whether a file was found that may be run as a program.
fn is_file(looked: &Looked) -> bool {
    looked.found.kind() == Kind::File
}

/// The files of pages in which no element was found, so that they are sent as other files are.
#[derive(Default)]
pub(crate) struct PlainPages(RefCell<HashSet<(usize, PageId)>>);

/// Identifies the contents of a file: device, inode, size and the times of its last changes.
type PageId = (u64, u64, u64, i64, i64);

impl PlainPages {
    /// The most files that are known. Beyond that all are forgotten.
    const MOST: usize = 4096;

    fn id(stat: Stat) -> PageId {
        (stat.device, stat.inode, stat.size, stat.modified_ns, stat.changed_ns)
    }

    fn has(&self, server: usize, stat: Stat) -> bool {
        self.0.borrow().contains(&(server, Self::id(stat)))
    }

    fn note(&self, server: usize, stat: Stat) {
        let mut known = self.0.borrow_mut();
        if known.len() >= Self::MOST {
            known.clear();
        }
        known.insert((server, Self::id(stat)));
    }
}

/// Lets other tasks of the thread run.
async fn yield_turn() {
    let mut has_yielded = false;
    poll_fn(|context| match std::mem::replace(&mut has_yielded, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}
