//! Requests for PHP scripts (php_module): reads the body, takes a place, asks the pool, and makes
//! the response of its answer.

use crate::frames::Frames;
use crate::proxying::{refuse_body, spool, translated};
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_files::{Kind, Looked};
use evenkeel_message::{
    Address, Answer, BodyLength, Level, MayWait, Notice, Request, Response, Scheme, Status, Target,
    Variables, quoted,
};
use evenkeel_modules::php::{self, Wanted};
use evenkeel_modules::script::{self, Program};
use evenkeel_upstream::{
    Ask, Claims, FailureKind, NoPlace, OwnPool, Patience, Place, exchange, pool_failure,
};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A pool, as a serving thread sees it.
pub trait ApplicationPool: Send + Sync {
    /// Its name in messages.
    fn name(&self) -> &str;

    /// Where its workers accept.
    fn address(&self) -> &Address;

    /// What each request must have.
    fn secret(&self) -> &[u8];

    /// The words by which its idle workers are claimed.
    fn claims(&self) -> &Arc<Claims>;

    /// Counts a request; `None` while the pool has failed and requests are to be refused at once.
    fn begin(&self) -> Option<Begun>;

    /// Counts a request that has failed.
    fn note_failure(&self);

    /// Gets the time in microseconds for which a request has waited for a worker.
    fn note_line_us(&self, line_us: u64);
}

/// A request that is counted.
pub struct Begun {
    /// Counts it until this is dropped.
    pub in_flight: Box<dyn Any>,
    /// Whether it may claim a worker: the pool has more workers than requests.
    pub may_claim: bool,
    /// How many workers the pool has.
    pub workers: usize,
}

/// The pools of a site, and which of them runs the scripts of each server.
pub struct PhpPools {
    /// The pools.
    pub pools: Vec<Arc<dyn ApplicationPool>>,
    /// The index of the pool of each server.
    pub of_servers: Box<[u32]>,
}

impl PhpPools {
    fn of(&self, server: usize) -> Option<Arc<dyn ApplicationPool>> {
        let index = *self.of_servers.get(server)?;
        self.pools.get(usize::try_from(index).ok()?).cloned()
    }
}

/// What a request asks of PHP; `None` if no pool runs scripts.
pub(crate) fn wanted(pipeline: &Pipeline, request: &Request) -> Option<Wanted> {
    pipeline.site.runs_php.then(|| php::wanted(request)).flatten()
}

/// A request for a script, with its plan, what it asks of PHP, and the script's file.
pub(crate) type Scripted = (Rc<Pipeline>, Box<Request>, Arc<Plan>, Wanted, Option<Looked>);

/// The frames of requests for scripts.
pub(crate) type Scripts = Frames<Scripted, (Box<Request>, Result<Response, Answer>)>;

/// Asks the pool for the response to a request.
pub(crate) async fn run(
    (pipeline, mut request, plan, wanted, looked): Scripted,
) -> (Box<Request>, Result<Response, Answer>) {
    let result = try_to_run(&pipeline, &mut request, &plan, wanted, looked.as_ref()).await;
    (request, result)
}

/// # Errors
/// The script may not be run, or the exchange fails.
async fn try_to_run(
    pipeline: &Rc<Pipeline>,
    request: &mut Box<Request>,
    plan: &Plan,
    wanted: Wanted,
    looked: Option<&Looked>,
) -> Result<Response, Answer> {
    check(request, plan, looked)?;
    let Some(pool) = pipeline.php.get().and_then(|pools| pools.of(request.server)) else {
        let text = "no pool runs scripts in this process".to_owned();
        request.notify(Notice::own("php", Level::Error, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    };
    let may_wait = pipeline.before_wait(request, plan).await;
    let length = request.head.length;
    let body = match request.body.take() {
        Some(source) => spool(&may_wait, source, &pipeline.blocking_pool)
            .await
            .map_err(|error| refuse_body(request, "php", error))?,
        None => Default::default(),
    };
    let body_length = (length != BodyLength::None).then(|| body.length());
    let silence = pipeline.site.server(request.server).timeout();
    let queue = pipeline.site.global.php.bounds.queue_timeout_s.map(Duration::from_secs);
    let queue = queue.unwrap_or(silence);
    let patience = Patience { connect: queue, silence, queue: Some(queue) };
    let place = enter(pipeline, request, &*pool, patience, &may_wait).await?;
    let path_info = request.resource.path_info.clone();
    let path_translated = match path_info.is_empty() {
        true => None,
        false => Box::pin(translated(pipeline, request, &path_info)).await,
    };
    let signature = pipeline.site.signature(request, plan);
    let file = request.resource.file.as_bytes().to_vec();
    let program = Program {
        file: &file,
        path_info: &path_info,
        path_translated: path_translated.as_deref(),
        body_length,
        signature: signature.strip_prefix("<hr>\n").unwrap_or(&signature),
        software: &pipeline.site.identity.banner,
    };
    let core = pipeline.site.server(request.server).core(plan);
    let variables = script::variables(request, core, &program);
    let asked = for_worker(request, plan, wanted, variables.clone(), pool.secret());
    // A request to which this one is redirected has them with `REDIRECT_`.
    request.resource.env = variables;
    let Some(Begun { in_flight, may_claim, workers }) = pool.begin() else {
        let text = format!("{}: the pool {} does not start", quoted(&file), pool.name());
        request.notify(Notice::own("php", Level::Error, text));
        return Err(unavailable());
    };
    let told = Arc::clone(&pool);
    let ask = Ask {
        target: Arc::new(target_of(pool.address())),
        variables: asked,
        body,
        patience,
        script: file.clone(),
        place: place.with(in_flight),
        pool: Some(OwnPool {
            name: pool.name().into(),
            note_line_us: Box::new(move |line_us| told.note_line_us(line_us)),
            claims: Arc::clone(pool.claims()),
            may_claim,
            workers,
        }),
        lease: None,
    };
    let late = Rc::clone(request.late.get_or_insert_with(Rc::default));
    let (departure, mut notices) = (Rc::clone(&request.departure), Vec::new());
    let blocking_pool = &pipeline.blocking_pool;
    let answered = exchange(&may_wait, ask, blocking_pool, &departure, &mut notices, &late).await;
    notices.into_iter().for_each(|notice| request.notify(notice));
    match answered {
        Ok(answered) => {
            answered.env.iter().for_each(|(name, value)| request.resource.env.set(name, value));
            php::respond(request, answered.head, answered.body)
        }
        Err(failure) => {
            request.notify(pool_failure(pool.name(), &failure.kind, &file));
            if !matches!(failure.kind, FailureKind::ClientGone) {
                pool.note_failure();
            }
            match failure.status() {
                Status::SERVICE_UNAVAILABLE => Err(unavailable()),
                status => Err(status.into()),
            }
        }
    }
}

/// sapi_apache2.c: `php_handler`.
fn check(request: &mut Request, plan: &Plan, looked: Option<&Looked>) -> Result<(), Answer> {
    let file = quoted(request.resource.file.as_bytes()).into_owned();
    let (text, status) = match looked.map(|looked| looked.found.kind()) {
        Some(Kind::Directory) => {
            (format!("attempt to invoke directory '{file}' as script"), Status::FORBIDDEN)
        }
        None | Some(Kind::Absent) => {
            (format!("script '{file}' not found or unable to stat"), Status::NOT_FOUND)
        }
        Some(kind) if kind != Kind::File => (format!("{file} is no file"), Status::FORBIDDEN),
        _ if !plan.php.has_engine() => (
            format!("{file}: `engine` is off here, and the source of scripts is not sent"),
            Status::FORBIDDEN,
        ),
        _ => return Ok(()),
    };
    request.notify(Notice::own("php", Level::Error, text));
    Err(status.into())
}

/// The parameters of the worker: the variables of the script, and what only the worker sees.
fn for_worker(
    request: &Request,
    plan: &Plan,
    wanted: Wanted,
    mut variables: Variables,
    secret: &[u8],
) -> Variables {
    // None of these comes from outside.
    let foreign: Vec<Vec<u8>> = variables
        .iter()
        .filter(|(name, _)| name.starts_with(b"EVENKEEL_"))
        .map(|(name, _)| name.to_vec())
        .collect();
    foreign.iter().for_each(|name| variables.unset(name));
    variables.set("EVENKEEL_SECRET", secret);
    variables.set("EVENKEEL_SELF", &*request.resource.path);
    variables.set("EVENKEEL_HEADERS", php::encode_fields(request));
    variables.set("EVENKEEL_TIME_US", request.time_us.to_string());
    variables.set("EVENKEEL_REPORT", "1");
    // PHP_AUTH_USER is not taken from REMOTE_USER, because SetEnvIf can set that variable.
    if let Some(user) = &request.resource.user {
        variables.set("EVENKEEL_USER", user);
    }
    if let Some(settings) = plan.php.encode() {
        variables.set("EVENKEEL_INI", settings);
    }
    if request.resource.status != Status::OK {
        variables.set("EVENKEEL_STATUS", request.resource.status.code().to_string());
    }
    if wanted == Wanted::Source {
        variables.set("EVENKEEL_SOURCE", "1");
    }
    variables
}

fn target_of(address: &Address) -> Target {
    Target {
        scheme: Scheme::Fcgi,
        address: address.clone(),
        host: "localhost".into(),
        port: 0,
        path: "/".into(),
    }
}

/// 503: the client may come again in a second.
fn unavailable() -> Answer {
    let mut fields = evenkeel_message::Fields::new();
    fields.set("Retry-After", "1");
    Answer::with_fields(Status::SERVICE_UNAVAILABLE, fields)
}

/// Waits for a place at the pool.
async fn enter(
    pipeline: &Pipeline,
    request: &mut Request,
    pool: &dyn ApplicationPool,
    patience: Patience,
    may_wait: &MayWait,
) -> Result<Place, Answer> {
    if request.shares_place {
        return Ok(Place::default());
    }
    request.has_place = true;
    let departure = Rc::clone(&request.departure);
    let entered =
        pipeline.places.enter_queue(may_wait, pool.address(), patience.connect, &departure).await;
    entered.map_err(|why| {
        if why == NoPlace::Late {
            let text = format!(
                "no place at the pool {} became free within {} s: it has as many requests as a \
                 thread may send",
                pool.name(),
                patience.connect.as_secs()
            );
            request.notify(Notice::own("php", Level::Error, text));
        }
        unavailable()
    })
}
