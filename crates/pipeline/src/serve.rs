//! From a request to its response: the phases in order, and what becomes of an early exit. A
//! request goes in by value; a response comes out at once, or later where the handler waits.
//! Nothing here touches a socket.

use crate::die;
use crate::look;
use crate::negotiate::{self, Wanted};
use crate::phases::{self, Access, Generated, Walked};
use crate::site::{Plan, Site};
use crate::walk::Walker;
use evenkeel_message::{
    Admitted, Allowance, Answer, Fields, Level, Notice, Request, Response, Status, Stopped,
    quoted_path,
};
use evenkeel_modules::ServerState;
use evenkeel_modules::beside::{Beside, Large, Thrift};
use evenkeel_modules::core::{WantedNames, is_logged, look_up_names, public_name};
use evenkeel_modules::deflate::Presses;
use evenkeel_modules::lab::BlockingPool;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How long work may stand still before nobody waits for it, whatever Timeout says.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// A response that a handler has still to make.
pub type Pending = Pin<Box<dyn Future<Output = (Box<Request>, Response)>>>;

/// Writes the notices of a request to the error log and takes them out of it.
pub type Teller = Box<dyn Fn(&mut Request)>;

/// What serving a request gives.
pub enum Served {
    /// The response, made without waiting.
    Now(Box<Request>, Response),
    /// The response will come; the request is in the future's keeping.
    Later(Pending),
}

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
    teller: Teller,
    /// What gives memory of large requests back.
    thrift: Thrift,
}

/// A round of looks, until it is dropped.
pub(crate) struct Round(Rc<Pipeline>);

impl Drop for Round {
    fn drop(&mut self) {
        self.0.walker.borrow().files.end_round();
    }
}

/// The request with the plan that holds for it, and what its handler answered.
pub(crate) struct Concluded {
    pub request: Box<Request>,
    pub plan: Arc<Plan>,
    pub result: Result<Response, Answer>,
}

impl Pipeline {
    /// A pipeline for one thread. `source` says how the server is; `teller` is called for
    /// requests that are about to wait, those that do not are told of by who records them.
    #[must_use]
    pub fn new(
        site: Arc<Site>,
        files: evenkeel_files::Files,
        source: Option<Arc<dyn ServerState>>,
        blocking_pool: Arc<BlockingPool>,
        presses: Arc<Presses>,
        teller: Teller,
    ) -> Rc<Self> {
        let status =
            source.clone().filter(|_| site.language.vocabulary.module_loaded("mod_status.c"));
        let walker = RefCell::new(Walker::new(files));
        let thrift = Thrift::default();
        Rc::new(Self { site, status, source, walker, blocking_pool, presses, teller, thrift })
    }

    /// Runs all phases on a request whose virtual host and path are known.
    #[must_use]
    pub fn serve(self: &Rc<Self>, mut request: Box<Request>) -> Served {
        request.probe = Some(Rc::<Self>::clone(self));
        request.resource.method = request.head.method;
        self.serve_resource(request)
    }

    /// Runs all phases on what a client's request or an internal redirect of it is for.
    fn serve_resource(self: &Rc<Self>, request: Box<Request>) -> Served {
        match self.run(request) {
            Ok(generated) => self.finish(generated),
            Err(Stopped { request, plan, answer }) => {
                self.conclude(Concluded { request, plan, result: Err(answer) })
            }
        }
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
        let result = Err(Answer::Status(status, Fields::new()));
        self.conclude(Concluded { request, plan, result })
    }

    /// The phases, each consuming what the one before has made (ARCHITECTURE.md: The journey
    /// of a request).
    fn run(self: &Rc<Self>, request: Box<Request>) -> Result<Generated, Stopped<Plan>> {
        let received = phases::receive(self, request)?;
        let translated = phases::translate(self, received)?;
        let translated = match phases::show(self, translated)? {
            Ok(shown) => return Ok(shown),
            Err(translated) => translated,
        };
        let mut mapped = phases::map(self, translated)?;
        match phases::wants_names(self, &mapped) {
            None => self.answer(mapped),
            Some(wanted) => {
                self.tell_now(&mut mapped.request, &mapped.plan);
                Ok(Generated::Later(Box::pin(Rc::clone(self).wait(mapped, wanted))))
            }
        }
    }

    /// The phases behind the section walk.
    fn answer(self: &Rc<Self>, mapped: Walked) -> Result<Generated, Stopped<Plan>> {
        let mut admitted = phases::admit(self, mapped)?;
        match negotiate::wanted(self, &mut admitted) {
            None => self.handle(admitted),
            Some(wanted) => {
                self.tell_now(&mut admitted.request, &admitted.plan);
                Ok(Generated::Later(Box::pin(Rc::clone(self).read(admitted, wanted))))
            }
        }
    }

    /// The phases behind the decision about access.
    fn handle(self: &Rc<Self>, admitted: Access) -> Result<Generated, Stopped<Plan>> {
        let prepared = phases::prepare(self, admitted)?;
        Ok(phases::generate(self, prepared))
    }

    /// Goes on when the folder has been read without which nothing can be prepared.
    async fn read(self: Rc<Self>, admitted: Access, wanted: Wanted) -> Concluded {
        let Admitted { mut request, plan, found } = admitted;
        let Some(read) = wanted.read(&self.beside(&request)).await else {
            let result = Err(Status::SERVICE_UNAVAILABLE.into());
            return Concluded { request, plan, result };
        };
        request.siblings = Some(Rc::new(read));
        settled(self.handle(Admitted { request, plan, found })).await
    }

    /// Where a request has work done that would hold its serving thread up.
    pub(crate) fn beside(&self, request: &Request) -> Beside {
        Beside {
            blocking_pool: Arc::clone(&self.blocking_pool),
            departure: Rc::clone(&request.departure),
        }
    }

    /// Comes about once a second. Nobody waits longer than Timeout for work beside the serving
    /// threads that does not stir; gives what the administrator should know of that.
    pub fn tick(&self) -> Vec<Notice> {
        self.thrift.tick(&self.blocking_pool);
        let patience = self.site.server(0).timeout().max(LEAST_PATIENCE);
        let told = self.blocking_pool.abandon_stalled(patience).into_iter();
        told.map(|text| Notice::own("core", Level::Error, text)).collect()
    }

    /// Whether something is left for the next tick, though nothing is served until then.
    #[must_use]
    pub fn awaits_tick(&self) -> bool {
        self.thrift.awaits_tick()
    }

    /// Notes that a request takes much memory.
    pub(crate) fn be_thrifty(&self) -> Large {
        self.thrift.note()
    }

    /// Begins a round of looks that follow each other without a wait: see `Files::begin_round`.
    pub(crate) fn begin_round(self: &Rc<Self>, is_large: bool) -> Round {
        self.walker.borrow().files.begin_round(is_large);
        Round(Rc::clone(self))
    }

    /// Goes on when the names have been looked up without which access cannot be decided.
    async fn wait(self: Rc<Self>, mut mapped: Walked, wanted: WantedNames) -> Concluded {
        look_up_names(&mut mapped.request, wanted).await;
        settled(self.answer(mapped)).await
    }

    fn finish(self: &Rc<Self>, generated: Generated) -> Served {
        match generated {
            Generated::Now(concluded) => self.conclude(concluded),
            Generated::Later(handler) => {
                let pipeline = Rc::clone(self);
                Served::Later(Box::pin(Later { pipeline, stage: Stage::Handler(handler) }))
            }
        }
    }

    /// Makes a response of whatever the phases ended with: filters it, sends an error through
    /// its ErrorDocument, or runs the request that it is redirected to.
    pub(crate) fn conclude(self: &Rc<Self>, concluded: Concluded) -> Served {
        let Concluded { request, plan, result } = concluded;
        match result {
            Ok(response) => self.filtered(request, &plan, response),
            Err(Answer::Response(response)) => self.filtered(request, &plan, *response),
            Err(Answer::Redirect(target)) => self.redirect(request, &plan, &target),
            Err(Answer::Status(status, fields)) => {
                match die::die(self, request, &plan, status, fields) {
                    die::Fate::Respond(request, response) => Served::Now(request, response),
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
    ) -> Served {
        let filtered = phases::filter(self, &mut request, plan, response);
        if request.allowance.is_spent() {
            return self.give_up(request, plan);
        }
        let filtered = match std::mem::take(&mut request.undecided) {
            true => Err(Status::INTERNAL_SERVER_ERROR.into()),
            false => filtered,
        };
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
        match filtered.and_then(|filtered| phases::cut(&request, plan, filtered)) {
            Ok(response) => self.settled(request, plan, response),
            // Only a status can come of it (416, 500, 503), so this does not come back here.
            Err(answer) => {
                self.conclude(Concluded { request, plan: Arc::clone(plan), result: Err(answer) })
            }
        }
    }

    /// What is served where nothing is left to be done.
    fn settled(&self, mut request: Box<Request>, plan: &Plan, response: Response) -> Served {
        self.keep_notices(&mut request, plan);
        self.settle_name(&mut request, plan);
        Served::Now(request, response)
    }

    /// The answer where patterns and expressions have taken all that the request may spend: some
    /// of what they say was not carried out.
    fn give_up(self: &Rc<Self>, mut request: Box<Request>, plan: &Arc<Plan>) -> Served {
        let text = format!(
            "what the configuration and the .htaccess files say of {} takes more than {} steps",
            quoted_path(&request.resource.file),
            Allowance::STEPS
        );
        request.notify(Notice::own("core", Level::Error, text));
        let status = Status::INTERNAL_SERVER_ERROR;
        let (request, response) = die::canned(self, request, plan, status, Fields::new());
        Served::Now(request, response)
    }

    /// Runs the request again for another path on this server (Apache: ap_internal_redirect).
    fn redirect(
        self: &Rc<Self>,
        mut request: Box<Request>,
        plan: &Arc<Plan>,
        target: &[u8],
    ) -> Served {
        let limit = self.site.server(request.server).redirect_limit();
        if request.redirects() >= limit {
            request.notify(look::too_many_redirects(limit));
            let status = Status::INTERNAL_SERVER_ERROR;
            let (request, response) = die::canned(self, request, plan, status, Fields::new());
            return Served::Now(request, response);
        }
        // Those of the request that follows are of a request of their own.
        self.tell_now(&mut request, plan);
        match die::redirected(self, request, plan, target) {
            Ok(request) => self.serve_resource(request),
            Err((request, status)) => {
                let (request, response) = die::canned(self, request, plan, status, Fields::new());
                Served::Now(request, response)
            }
        }
    }

    /// Has the notices of a request written that is about to wait: for its client, a resolver or
    /// a thread, all of which may take minutes.
    pub(crate) fn tell_now(&self, request: &mut Request, plan: &Plan) {
        self.keep_notices(request, plan);
        if !request.notices.is_empty() {
            self.settle_name(request, plan);
            (self.teller)(request);
        }
    }

    /// Notes the name under which the server answers, where a section says another than the host.
    pub(crate) fn settle_name(&self, request: &mut Request, plan: &Plan) {
        let server = self.site.server(request.server);
        let differs = plan.core.canonical_name != server.defaults.core.canonical_name;
        let name = differs.then(|| public_name(request, server.core(plan)).into());
        request.used_name = name;
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

/// A response that a handler makes: its result is concluded when it is there. As a type of its own
/// it has room for one stage alone, where an async block keeps the space of all; thousands of these
/// wait at a time.
struct Later {
    pipeline: Rc<Pipeline>,
    stage: Stage,
}

enum Stage {
    Handler(Pin<Box<dyn Future<Output = Concluded>>>),
    /// The error page or the redirected request has to wait too.
    Again(Pending),
}

impl Future for Later {
    type Output = (Box<Request>, Response);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match &mut this.stage {
                Stage::Handler(handler) => {
                    let concluded = ready!(handler.as_mut().poll(context));
                    match this.pipeline.conclude(concluded) {
                        Served::Now(request, response) => return Poll::Ready((request, response)),
                        Served::Later(again) => this.stage = Stage::Again(again),
                    }
                }
                Stage::Again(again) => return again.as_mut().poll(context),
            }
        }
    }
}

/// What the phases have come to, when it is there.
async fn settled(outcome: Result<Generated, Stopped<Plan>>) -> Concluded {
    match outcome {
        Ok(Generated::Now(concluded)) => concluded,
        Ok(Generated::Later(future)) => future.await,
        Err(Stopped { request, plan, answer }) => Concluded { request, plan, result: Err(answer) },
    }
}
