//! The health checks of the members of all balancers (mod_proxy_hcheck), in the process that the
//! parent starts for them. `upstream` carries out the checks; which are due, what they ask for and
//! what follows from their results is decided here.

use crate::site::{Plan, Server, Site};
use crate::walk::merge;
use crate::way::proxies;
use evenkeel_expr::{Evaluation, EvaluationError};
use evenkeel_message::{
    Level, Method, Notice, Peer, Proxied, Request, RequestHead, Response, Status, Version,
};
use evenkeel_modules::RequestContext;
use evenkeel_modules::core::CHECKED_BODY_NOTE;
use evenkeel_modules::proxy::{self, Balancer, CheckMethod, Member};
use evenkeel_modules::ssl::{self, NoConnector};
use evenkeel_upstream::{
    CheckAnswer, CheckFailure, CheckOrder, CheckPlan, CheckRequest, CheckResult, Patience, Tls,
    run_checks,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

/// Writes a notice of the server with this index to the error log.
pub type CheckTeller = Box<dyn Fn(usize, &Notice)>;

/// Checks the members of the balancers of a site for ever.
///
/// # Errors
/// The runtime cannot be built.
pub fn check_balancers(site: &Arc<Site>, tell: CheckTeller) -> io::Result<()> {
    let places = site.balancers.iter().map(|balancer| Place::of(site, balancer)).collect();
    let started = "_proxy_hcheck_ watchdog started.".to_owned();
    tell(0, &Notice::new("proxy_hcheck", Level::Debug, 3258, started));
    let running = RefCell::default();
    run_checks(Rc::new(Checking { site: Arc::clone(site), places, tell, running }))
}

struct Checking {
    site: Arc<Site>,
    places: Vec<Place>,
    tell: CheckTeller,
    /// The checks in progress, by the number of their members.
    running: RefCell<HashMap<usize, Running>>,
}

/// A check in progress.
struct Running {
    /// The index of the balancer.
    place: usize,
    member: Arc<Member>,
    method: CheckMethod,
    /// The method and the line of the request.
    asked: Option<(&'static str, Vec<u8>)>,
}

/// A balancer, with the settings that hold for requests to it.
struct Place {
    balancer: Arc<Balancer>,
    /// The index of the server in which it was configured.
    home: usize,
    plan: Plan,
}

impl Place {
    fn of(site: &Site, balancer: &Arc<Balancer>) -> Self {
        let has = |server: &Server| {
            server.settings.proxy.balancers.iter().any(|one| Arc::ptr_eq(one, balancer))
        };
        let home = site.servers.iter().position(has).unwrap_or(0);
        let server = site.server(home);
        let mut request = Request::new(RequestHead::default(), nobody(), 0);
        request.resource.proxied = balancer.members().next().map(|member| {
            let target = Arc::new(member.worker.target.clone());
            let name = format!("balancer://{}/", balancer.name).into_bytes();
            let (path, is_raw, without_query) = (Vec::new(), true, true);
            Box::new(Proxied { target, path, is_raw, without_query, name })
        });
        let mut sections = Vec::new();
        proxies(server, &mut request, &mut sections);
        let plan = merge(&server.defaults, &sections, &[]);
        Self { balancer: Arc::clone(balancer), home, plan }
    }
}

/// The peer of a request that no client has sent.
fn nobody() -> Peer {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    Peer { client: address, local: address }
}

/// The number of a member in this process.
fn number(member: &Arc<Member>) -> usize {
    Arc::as_ptr(member).addr()
}

impl CheckPlan for Checking {
    fn most(&self) -> usize {
        proxy::checks_at_a_time(&self.site.global.proxy)
    }

    fn begin(&self, now_us: u64, begin: &mut dyn FnMut(CheckOrder)) -> u64 {
        let mut next_us = u64::MAX;
        for (index, place) in self.places.iter().enumerate() {
            for member in place.balancer.members() {
                let Some(due_us) = member.check_due_us(now_us) else { continue };
                let is_running = || self.running.borrow().contains_key(&number(member));
                if due_us > now_us {
                    next_us = next_us.min(due_us);
                } else if !is_running()
                    && let Some(order) = self.order(index, place, member)
                {
                    begin(order);
                }
            }
        }
        next_us
    }

    fn end(&self, id: usize, result: CheckResult) {
        let Some(running) = self.running.borrow_mut().remove(&id) else { return };
        let Some(place) = self.places.get(running.place) else { return };
        let is_sound = match result {
            Ok(None) => true,
            Ok(Some(answer)) => self.is_sound(place, &running, answer),
            Err(failure) => {
                (self.tell)(place.home, &notice_of(&failure, &running));
                false
            }
        };
        self.conclude(place, &running.member, running.method, is_sound);
    }
}

impl Checking {
    /// The check of a member, which begins with this. `None` if it cannot be carried out, and has
    /// failed by that.
    fn order(&self, index: usize, place: &Place, member: &Arc<Member>) -> Option<CheckOrder> {
        let text = format!("Health checking {}", member.url());
        (self.tell)(place.home, &Notice::new("proxy_hcheck", Level::Debug, 3256, text));
        let (server, method) = (self.site.server(place.home), member.check_method());
        let worker = &member.worker;
        let silence = worker.timeout.or(server.settings.proxy.timeout);
        let silence = silence.unwrap_or_else(|| server.timeout());
        let connect = worker.connection_timeout.unwrap_or(silence);
        let target = Arc::new(worker.target.clone());
        let asked = member.check_request();
        let tls = match asked.is_some() && target.scheme.is_secure() {
            true => match ssl::connector(&place.plan.ssl) {
                Ok(connector) => Some(Tls { connector, host: target.host.clone() }),
                Err(why) => {
                    (self.tell)(place.home, &no_tls(&why, server));
                    self.conclude(place, member, method, false);
                    return None;
                }
            },
            false => None,
        };
        let request = asked.as_ref().map(|asked| CheckRequest {
            head: asked.head.clone(),
            is_head: asked.method == "HEAD",
            reads_body: asked.method == "GET",
            tls,
        });
        let asked = asked.map(|asked| (asked.method, asked.line));
        let running = Running { place: index, member: Arc::clone(member), method, asked };
        let id = number(member);
        self.running.borrow_mut().insert(id, running);
        let patience = Patience { connect, silence, queue: None };
        Some(CheckOrder { id, target, patience, request })
    }

    /// Whether the response to a check is one of a sound server: it meets the condition of the
    /// member, or has a status of 2xx or 3xx where there is none (mod_proxy_hcheck.c:
    /// hc_check_http).
    fn is_sound(&self, place: &Place, running: &Running, answer: CheckAnswer) -> bool {
        let server = self.site.server(place.home);
        let name = running.member.check_condition();
        let condition = Some(name.as_bytes()).filter(|name| !name.is_empty());
        let condition = condition.and_then(|name| server.settings.proxy.health.condition(name));
        let Some(condition) = condition else { return (200..400).contains(&answer.head.status) };
        let (method, line) = running.asked.clone().unwrap_or_default();
        let is_new = line.ends_with(b"1.1");
        let head = RequestHead {
            method_end: method.len(),
            line,
            method: Method::parse(method.as_bytes()),
            version: if is_new { Version::Http11 } else { Version::Http10 },
            ..RequestHead::default()
        };
        let mut request = Request::new(head, nobody(), answer.time_us);
        request.resource.method = Method::parse(method.as_bytes());
        request.resource.notes.set(CHECKED_BODY_NOTE, answer.body);
        let status = Status::new(answer.head.status).unwrap_or(Status::INTERNAL_SERVER_ERROR);
        let mut response = Response::new(status);
        response.fields = answer.head.fields;
        let core = server.core(&place.plan);
        let context = RequestContext::new(&request, core).with_response(&response);
        let held: Result<bool, EvaluationError> =
            Evaluation::new(&context).holds(&condition.condition);
        held.unwrap_or_else(|error| {
            let url = running.member.url();
            let text = format!("Error on checking condition {} for {url}: {error}", condition.name);
            (self.tell)(place.home, &Notice::new("proxy_hcheck", Level::Info, 3301, text));
            false
        })
    }

    fn conclude(&self, place: &Place, member: &Arc<Member>, method: CheckMethod, is_sound: bool) {
        let text = format!(
            "Health check {} Status ({}) for {}.",
            method.name(),
            i32::from(!is_sound),
            member.url()
        );
        (self.tell)(place.home, &Notice::new("proxy_hcheck", Level::Debug, 3251, text));
        if let Some(notice) = member.note_check(is_sound) {
            (self.tell)(place.home, &notice);
        }
    }
}

/// The line about a check that has found nothing.
fn notice_of(failure: &CheckFailure, running: &Running) -> Notice {
    let function = if running.asked.is_some() { "HCOH" } else { "HCTCP" };
    match failure {
        CheckFailure::Origin(failure) => failure.check_notice(function),
        CheckFailure::Body(error) => {
            let text = "Error reading response body".to_owned();
            Notice::new("proxy_hcheck", Level::Debug, 3300, text).because(error)
        }
        CheckFailure::Late => {
            let text =
                format!("{function}: no whole response from {} in time", running.member.url());
            Notice::own("proxy_hcheck", Level::Debug, text)
        }
    }
}

fn no_tls(why: &NoConnector, server: &Server) -> Notice {
    match why {
        NoConnector::Off => {
            let name = server.name();
            let text = format!("SSL Proxy requested for {name} but not enabled for us.");
            Notice::new("ssl", Level::Error, 10272, text)
        }
        NoConnector::Faulty(text) => Notice::own("ssl", Level::Error, text.clone()),
    }
}
