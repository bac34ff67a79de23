//! From a request to its response: the phases in order, and what becomes of an early exit. A
//! request goes in by value; a response comes out at once, or later where the handler waits.
//! Nothing here touches a socket.

use crate::caching;
use crate::die;
use crate::filtering::{self, Filtered};
use crate::frames::Frames;
use crate::including::PlainPages;
use crate::look;
use crate::phases;
use crate::php::{self, PhpPools};
use crate::proxying;
use crate::site::{Plan, Site};
use crate::storing;
use crate::walk::Walker;
use evenkeel_cache::Shelf;
use evenkeel_message::{
    Allowance, Answer, Fields, Level, MayWait, Notice, Request, Response, Served, Status, Stopped,
    quoted_path,
};
use evenkeel_modules::ServerState;
use evenkeel_modules::beside::{Beside, Large, Thrift};
use evenkeel_modules::compression::{CompressedForms, Presses};
use evenkeel_modules::core::{is_logged, public_name};
use evenkeel_modules::lab::BlockingPool;
use evenkeel_modules::passwords::Store;
use evenkeel_modules::proxy::KnownTarget;
use evenkeel_modules::userdir::Homes;
use evenkeel_upstream::Places;
use std::cell::{OnceCell, RefCell};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Poll;
use std::time::Duration;

/// How long work may stand still before nobody waits for it, whatever Timeout says.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// The kept compressed forms may have this fraction of the bytes of the files in memory.
const FORMS_SHARE: u64 = 4;

/// Writes the notices of a request to the error log and takes them out of it.
pub type Teller = Box<dyn Fn(&mut Request)>;

/// The pipeline of one serving thread: the site, which all threads share, and what this thread
/// has found out about its files and merged sections.
pub struct Pipeline {
    /// The site that is served.
    pub site: Arc<Site>,
    /// What the status page shows; none where mod_status is not active.
    pub(crate) status: Option<Arc<dyn ServerState>>,
    /// How the server is.
    pub(crate) source: Option<Arc<dyn ServerState>>,
    pub(crate) walker: RefCell<Walker>,
    /// The threads for work that blocks or burns, which all pipelines of the process share.
    pub(crate) blocking_pool: Arc<BlockingPool>,
    /// What it takes to change a long body on its way out, shared likewise.
    pub(crate) presses: Arc<Presses>,
    /// The compressed forms of the files that `walker` caches.
    pub(crate) forms: Rc<CompressedForms>,
    teller: Teller,
    /// What gives memory of large requests back.
    thrift: Thrift,
    /// The stored responses that this thread has opened.
    pub(crate) shelf: Shelf,
    /// The home folders of users, for mod_userdir.
    pub(crate) homes: Homes,
    /// The frames of [`respond`].
    responses: Rc<Responses>,
    /// The places at applications.
    pub(crate) places: Rc<Places>,
    /// The socket of the launcher of programs; empty if the site runs none.
    pub(crate) launcher: OnceCell<Arc<OwnedFd>>,
    /// The pages that have no elements.
    pub(crate) plain_pages: PlainPages,
    /// The application of the last handler.
    pub(crate) known_target: KnownTarget,
    /// The pools that run PHP; empty if there are none.
    pub(crate) php: OnceCell<Arc<PhpPools>>,
    /// The frames of subrequests.
    pub(crate) looks: Rc<look::Looks>,
    pub(crate) passed_on: Rc<proxying::PassedOn>,
    pub(crate) scripts: Rc<php::Scripts>,
    /// Itself, for questions.
    pub(crate) own: Weak<Pipeline>,
}

/// A round of looks, until it is dropped.
pub(crate) struct Round {
    pipeline: Rc<Pipeline>,
    /// Whether it is for a large folder.
    pub(crate) is_large: bool,
}

impl Drop for Round {
    fn drop(&mut self) {
        self.pipeline.walker.borrow().files.end_round();
    }
}

/// The request with the plan that holds for it, and what its handler answered.
pub(crate) struct Concluded {
    pub request: Box<Request>,
    pub plan: Arc<Plan>,
    pub result: Result<Response, Answer>,
}

impl Pipeline {
    /// A pipeline for one thread. `source` describes the state of the server. The thread works on
    /// at most `credits` requests at a time, and sends at most `queued` requests at a time to an
    /// application that has a queue. `teller` logs the notices of requests that are about to wait.
    #[must_use]
    pub fn new(
        site: Arc<Site>,
        files: evenkeel_files::Files,
        source: Option<Arc<dyn ServerState>>,
        blocking_pool: Arc<BlockingPool>,
        presses: Arc<Presses>,
        (credits, queued): (usize, usize),
        teller: Teller,
    ) -> Rc<Self> {
        let status =
            source.clone().filter(|_| site.language.vocabulary.module_loaded("mod_status.c"));
        let limit_bytes = files.limits().total_bytes / FORMS_SHARE;
        let forms = CompressedForms::new(usize::try_from(limit_bytes).unwrap_or(usize::MAX));
        let walker = RefCell::new(Walker::new(files));
        let thrift = Thrift::default();
        let (responses, looks) = (Frames::new(respond), Frames::new(look::look));
        let (passed_on, scripts) = (Frames::new(proxying::pass_on), Frames::new(php::run));
        Rc::new_cyclic(|own| Self {
            site,
            status,
            source,
            walker,
            blocking_pool,
            presses,
            forms: Rc::new(forms),
            teller,
            thrift,
            shelf: Shelf::default(),
            homes: Homes::default(),
            responses,
            places: Places::new(credits, queued),
            launcher: OnceCell::new(),
            plain_pages: PlainPages::default(),
            known_target: KnownTarget::default(),
            php: OnceCell::new(),
            looks,
            passed_on,
            scripts,
            own: Weak::clone(own),
        })
    }

    /// Sets the socket on which the launcher of programs receives orders.
    pub fn use_launcher(&self, socket: Arc<OwnedFd>) {
        let _already_set = self.launcher.set(socket);
    }

    /// Sets the pools that run PHP.
    pub fn use_php(&self, pools: Arc<PhpPools>) {
        let _already_set = self.php.set(pools);
    }

    /// Adds the bytes of the thread's compressed forms to a counter.
    pub fn count_forms_in(&self, total: &'static AtomicU64) {
        self.forms.count_in(total);
    }

    /// Runs all phases on a request whose virtual host and path are known.
    #[must_use]
    pub fn serve(self: &Rc<Self>, mut request: Box<Request>) -> Served {
        request.probe = Some(Rc::<Self>::clone(self));
        request.resource.method = request.head.method;
        self.begin(Start::Serve(request))
    }

    /// The answer to a request that cannot be served: it was malformed, too long, too slow, or
    /// made a handler panic. ErrorDocument and the log see it as any other.
    #[must_use]
    pub fn refuse(self: &Rc<Self>, mut request: Box<Request>, status: Status) -> Served {
        request.resource.method = request.head.method;
        if std::mem::take(&mut request.has_bad_path) {
            request.probe = Some(Rc::<Self>::clone(self));
            phases::act_early(self, &mut request);
        }
        let plan = Arc::clone(&self.site.server(request.server).defaults);
        let result = Err(status.into());
        self.begin(Start::Refuse(Box::new(Concluded { request, plan, result })))
    }

    /// Polls the response at once, so that one which need not wait takes no task.
    fn begin(self: &Rc<Self>, start: Start) -> Served {
        let mut call = self.responses.call((Rc::clone(self), start));
        match call.run_now() {
            Some((request, response)) => Served::Now(request, response),
            None => Served::Later(Box::pin(call)),
        }
    }

    /// The phases, each consuming what the one before has made (ARCHITECTURE.md: The journey
    /// of a request).
    pub(crate) async fn phases(
        self: &Rc<Self>,
        request: Box<Request>,
    ) -> Result<Concluded, Stopped<Plan>> {
        let received = phases::receive(self, request).await?;
        let translated = phases::translate(self, received).await?;
        if phases::is_trace(&translated.request) {
            return Box::pin(phases::show(self, translated)).await;
        }
        let mapped = phases::map(self, translated).await?;
        let admitted = phases::admit(self, mapped).await?;
        let prepared = phases::prepare(self, admitted).await?;
        phases::generate(self, prepared).await
    }

    /// Returns a handle that runs work of a request in the blocking pool.
    pub(crate) fn beside(&self, request: &Request, may_wait: &MayWait) -> Beside {
        Beside::new(may_wait, Arc::clone(&self.blocking_pool), Rc::clone(&request.departure))
    }

    /// Is called about once a second. Gives up jobs that have reported no progress for Timeout, and
    /// returns notices about them.
    pub fn tick(&self) -> Vec<Notice> {
        self.thrift.tick(&self.blocking_pool);
        self.forms.tick();
        self.shelf.tick();
        self.walker.borrow().files.drop_old();
        let patience = self.site.server(0).timeout().max(LEAST_PATIENCE);
        let told = self.blocking_pool.abandon_stalled(patience).into_iter();
        let told = told.chain(Store::of_process().abandon_stalled(patience));
        let told = told.map(|text| Notice::own("core", Level::Error, text));
        let of_cache = evenkeel_cache::take_complaint();
        told.chain(of_cache.map(|text| Notice::own("cache_disk", Level::Error, text))).collect()
    }

    /// Whether something is left for the next tick, though nothing is served until then.
    #[must_use]
    pub fn awaits_tick(&self) -> bool {
        self.thrift.awaits_tick()
            || self.walker.borrow().files.grows_old()
            || !self.shelf.is_empty()
    }

    /// Notes that a request takes much memory.
    pub(crate) fn be_thrifty(&self) -> Large {
        self.thrift.note()
    }

    /// Begins a round of looks that follow each other without a wait: see `Files::begin_round`.
    pub(crate) fn begin_round(self: &Rc<Self>, is_large: bool) -> Round {
        self.walker.borrow().files.begin_round(is_large);
        Round { pipeline: Rc::clone(self), is_large }
    }

    /// Makes a response of whatever the phases ended with: filters it, sends an error through
    /// its ErrorDocument, or finds the request that it is redirected to.
    fn conclude(self: &Rc<Self>, concluded: Concluded) -> Next {
        let Concluded { request, plan, result } = concluded;
        match result {
            Ok(response) => self.filtered(request, &plan, response),
            Err(Answer::Response(response)) => self.filtered(request, &plan, *response),
            Err(Answer::Redirect(target)) => self.redirect(request, &plan, &target),
            Err(Answer::Status(status, fields)) => {
                let mut request = request;
                if request.caching.is_some()
                    && let Some(stale) = caching::fail(self, &mut request, &plan, status)
                {
                    return self.complete(request, &plan, Ok(Filtered::stored(stale)));
                }
                let fields = fields.map_or_else(Fields::new, |fields| *fields);
                match die::die(self, request, &plan, status, fields) {
                    die::Fate::Respond(request, response) => Next::Respond(request, response),
                    die::Fate::Redirect(request, target) => self.redirect(request, &plan, &target),
                }
            }
        }
    }

    fn filtered(
        self: &Rc<Self>,
        mut request: Box<Request>,
        plan: &Arc<Plan>,
        response: Response,
    ) -> Next {
        if caching::is_hit(&request) {
            return self.complete(request, plan, Ok(Filtered::stored(response)));
        }
        let filtered = filtering::filter(self, &mut request, plan, response);
        if request.allowance.is_spent() {
            return self.give_up(request, plan);
        }
        let filtered = match std::mem::take(&mut request.undecided) {
            true => Err(Status::INTERNAL_SERVER_ERROR.into()),
            false => filtered,
        };
        match filtered {
            Ok(filtered) if filtered.awaits_body() => {
                Next::Gather(request, Arc::clone(plan), filtered)
            }
            filtered => self.complete(request, plan, filtered),
        }
    }

    /// Makes the response of what the filters have left.
    fn complete(
        self: &Rc<Self>,
        mut request: Box<Request>,
        plan: &Arc<Plan>,
        filtered: Result<Filtered, Answer>,
    ) -> Next {
        // Looked at before ranges are cut, which puts the type into the body.
        let filtered = match filtered {
            Ok(filtered) if !die::is_sound(self, &mut request, filtered.response()) => {
                if request.resource.status == Status::INTERNAL_SERVER_ERROR {
                    // The document of this very error.
                    let response = Response::new(request.resource.status);
                    return self.settled(request, plan, response);
                }
                Err(Status::INTERNAL_SERVER_ERROR.into())
            }
            filtered => filtered,
        };
        let filtered = match filtered {
            Ok(mut filtered) if request.caching.is_some() => {
                let response = filtered.response_mut();
                storing::conclude(self, &mut request, plan, response).map(|()| filtered)
            }
            filtered => filtered,
        };
        match filtered.and_then(|filtered| filtering::cut(&request, plan, filtered)) {
            Ok(mut response) => {
                filtering::pace(self, &mut response);
                self.settled(request, plan, response)
            }
            // Only a status can come of it (416, 500, 503), so this does not come back here.
            Err(answer) => {
                self.conclude(Concluded { request, plan: Arc::clone(plan), result: Err(answer) })
            }
        }
    }

    /// What is served where nothing is left to be done.
    fn settled(&self, mut request: Box<Request>, plan: &Plan, response: Response) -> Next {
        self.keep_notices(&mut request, plan);
        self.settle_name(&mut request, plan);
        Next::Respond(request, response)
    }

    /// The answer where patterns and expressions have taken all that the request may spend: some
    /// of what they say was not carried out.
    fn give_up(self: &Rc<Self>, mut request: Box<Request>, plan: &Arc<Plan>) -> Next {
        let text = format!(
            "what the configuration and the .htaccess files say of {} takes more than {} steps",
            quoted_path(&request.resource.file),
            Allowance::STEPS
        );
        request.notify(Notice::own("core", Level::Error, text));
        let status = Status::INTERNAL_SERVER_ERROR;
        let (request, response) = die::canned(self, request, plan, status, Fields::new());
        Next::Respond(request, response)
    }

    /// Makes the request one for another path on this server (Apache: ap_internal_redirect).
    fn redirect(
        self: &Rc<Self>,
        mut request: Box<Request>,
        plan: &Arc<Plan>,
        target: &[u8],
    ) -> Next {
        let limit = self.site.server(request.server).redirect_limit();
        if request.redirects() >= limit {
            request.notify(look::too_many_redirects(limit));
            let status = Status::INTERNAL_SERVER_ERROR;
            let (request, response) = die::canned(self, request, plan, status, Fields::new());
            return Next::Respond(request, response);
        }
        // Those of the request that follows are of a request of their own.
        self.tell_now(&mut request, plan);
        match die::redirected(self, request, plan, target) {
            Ok(request) => Next::Again(request),
            Err((request, status)) => {
                let (request, response) = die::canned(self, request, plan, status, Fields::new());
                Next::Respond(request, response)
            }
        }
    }

    /// Prepares a request for waiting, and permits it. A client, a resolver, a thread or an
    /// application may take minutes, so the notices of the request are written now. Those of a
    /// subrequest are written with the request, whose section determines the log level. A runtime
    /// exists only from here on: a process of one connection starts one when its request first
    /// waits.
    pub(crate) async fn before_wait(&self, request: &mut Request, plan: &Plan) -> MayWait {
        if request.resource.depth == 0 {
            self.tell_now(request, plan);
        }
        let mut is_in_task = false;
        let task = poll_fn(|context| match std::mem::replace(&mut is_in_task, true) {
            true => Poll::Ready(()),
            false => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        });
        task.await;
        MayWait::in_task()
    }

    /// Has the notices of a request written.
    pub(crate) fn tell_now(&self, request: &mut Request, plan: &Plan) {
        self.keep_notices(request, plan);
        if !request.notices.is_empty() {
            self.settle_name(request, plan);
            (self.teller)(request);
        }
    }

    /// Notes the name under which the server answers and the LogLevel, where a section says another
    /// than the host.
    pub(crate) fn settle_name(&self, request: &mut Request, plan: &Plan) {
        let server = self.site.server(request.server);
        let differs = plan.core.canonical_name != server.defaults.core.canonical_name;
        let name = differs.then(|| public_name(request, server.core(plan)).into());
        request.used_name = name;
        let said = &plan.core.log_level;
        request.log_levels = (!said.is_empty()).then(|| Box::new(said.clone()));
    }

    /// Drops the notices that LogLevel leaves out; only here is the request's section known.
    pub(crate) fn keep_notices(&self, request: &mut Request, plan: &Plan) {
        if request.notices.is_empty() {
            return;
        }
        let server = self.site.server(request.server);
        request.notices.retain_mut(|notice| {
            notice.passed |= is_logged(server.core(plan), notice.module, notice.level);
            notice.passed
        });
    }
}

/// How a response begins.
pub(crate) enum Start {
    /// With the phases.
    Serve(Box<Request>),
    /// With a refusal.
    Refuse(Box<Concluded>),
}

/// The frames of responses.
type Responses = Frames<(Rc<Pipeline>, Start), (Box<Request>, Response)>;

/// What becomes of a request whose phases have ended.
enum Next {
    /// It is answered.
    Respond(Box<Request>, Response),
    /// The first bytes of the body have to be waited for.
    Gather(Box<Request>, Arc<Plan>, Filtered),
    /// The phases run again, for the path that it is redirected to.
    Again(Box<Request>),
}

/// Waits for the beginning of a body that a program makes.
async fn gather(
    pipeline: &Rc<Pipeline>,
    mut request: Box<Request>,
    plan: &Arc<Plan>,
    mut filtered: Filtered,
) -> Next {
    let may_wait = pipeline.before_wait(&mut request, plan).await;
    let departure = Rc::clone(&request.departure);
    let gathered = filtered.gather(&may_wait, &departure).await;
    pipeline.complete(request, plan, gathered.map(|()| filtered))
}

/// Serves a request until there is a response.
pub(crate) async fn respond((pipeline, start): (Rc<Pipeline>, Start)) -> (Box<Request>, Response) {
    let mut next = match start {
        Start::Serve(request) => Next::Again(request),
        Start::Refuse(concluded) => pipeline.conclude(*concluded),
    };
    loop {
        match next {
            Next::Respond(request, response) => return (request, response),
            Next::Gather(request, plan, filtered) => {
                next = Box::pin(gather(&pipeline, request, &plan, filtered)).await;
            }
            Next::Again(request) => {
                let concluded = match pipeline.phases(request).await {
                    Ok(concluded) => concluded,
                    Err(Stopped { request, plan, answer }) => {
                        Concluded { request, plan, result: Err(answer) }
                    }
                };
                next = pipeline.conclude(concluded);
            }
        }
    }
}
