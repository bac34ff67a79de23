//! mod_proxy: passes requests on to a target. [`translate`] matches a request with the rules
//! of its server and its section, and returns the target. The room `upstream` connects to the
//! target.

mod balancer;
mod directives;
mod health;
pub mod http;
mod http_answer;
mod http_head;
mod member;
mod pass;
mod reverse;
mod worker;

pub use balancer::{Balancer, Choice, Method as BalancerMethod, Session};
pub use directives::MODULE;
pub use health::{
    Asked as CheckRequest, CheckMethod, HCHECK, Named as NamedChecks, NamedCondition,
    checks_at_a_time,
};
pub use member::{Letter, Member};
pub use pass::{Pass, Passed, check_host};
pub use reverse::{Mapping, public_cookie, public_location};
pub use worker::{Upgrade, Worker, upgrade_of};

use crate::core::Section;
use crate::gateway::escape_path;
use crate::settings::merged;
use crate::{Merge, Shared};
use evenkeel_message::{
    Answer, Level, Method, Name, Notice, Proxied, Request, Scheme, Status, Target, quoted,
};
use std::cell::RefCell;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What holds for the process.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// ProxyHCTPsize.
    checks_at_a_time: Option<usize>,
}

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// ProxyPass and ProxyPassMatch, in the order in which they are tried.
    pub passes: Vec<Arc<Pass>>,
    /// Applications with parameters.
    pub workers: Vec<Arc<Worker>>,
    /// Balancers.
    pub balancers: Vec<Arc<Balancer>>,
    /// What ProxyHCTemplate and ProxyHCExpr have named.
    pub health: NamedChecks,
    /// `<Proxy>` and `<ProxyMatch>`, in the order of the configuration.
    pub sections: Vec<Arc<Section>>,
    /// ProxyTimeout.
    pub timeout: Option<Duration>,
    /// ProxyMaxForwards. A negative number sets no field.
    pub most_forwards: Option<i64>,
    /// ProxyVia.
    pub via: Option<Via>,
    /// Whether a line that is no field is left out of the head of a response (ProxyBadHeader).
    pub skips_bad_fields: Option<bool>,
}

impl Rules {
    /// The balancer with this name.
    #[must_use]
    pub fn balancer(&self, name: &str) -> Option<&Arc<Balancer>> {
        self.balancers.iter().find(|balancer| &*balancer.name == name)
    }
}

/// The values of ProxyVia.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The field is passed on as it is.
    Off,
    /// This server is added.
    On,
    /// This server is added, with its version.
    Full,
    /// The field is removed from requests.
    Block,
}

/// The settings of a server. Virtual hosts with equal settings share one allocation.
pub type Server = Shared<Rules>;

crate::unsaid!(Rules);

impl Merge for Rules {
    fn merge(base: &Self, over: &Self) -> Self {
        // ProxyPassInherit has no effect on rules of ProxyPass (mod_proxy.c: merge_proxy_config).
        Self {
            passes: [base.passes.as_slice(), &over.passes].concat(),
            workers: [over.workers.as_slice(), &base.workers].concat(),
            balancers: [over.balancers.as_slice(), &base.balancers].concat(),
            health: NamedChecks::merge(&base.health, &over.health),
            sections: [base.sections.as_slice(), &over.sections].concat(),
            timeout: over.timeout.or(base.timeout),
            most_forwards: over.most_forwards.or(base.most_forwards),
            via: over.via.or(base.via),
            skips_bad_fields: over.skips_bad_fields.or(base.skips_bad_fields),
        }
    }
}

/// The statuses of responses that are replaced by an error document of this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorOverride {
    /// No status.
    Off,
    /// All statuses from 400.
    On,
    /// The listed statuses.
    Statuses(Arc<[u16]>),
}

/// The settings of one section.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// ProxyPass inside the section.
    pub pass: Option<Arc<Pass>>,
    /// ProxyErrorOverride.
    pub errors: Option<ErrorOverride>,
    /// ProxyPassReverse, in order.
    pub reverses: Vec<Arc<Mapping>>,
    /// ProxyPassReverseCookiePath, in order.
    pub cookie_paths: Vec<Arc<Mapping>>,
    /// ProxyPassReverseCookieDomain, in order.
    pub cookie_domains: Vec<Arc<Mapping>>,
    /// ProxyPreserveHost.
    pub preserve_host: Option<bool>,
    /// ProxyAddHeaders.
    pub add_headers: Option<bool>,
    /// Proxy100Continue.
    pub forward_continue: Option<bool>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        let Self {
            pass,
            errors,
            reverses,
            cookie_paths,
            cookie_domains,
            preserve_host,
            add_headers,
            forward_continue,
        } = over;
        self.pass.add(pass);
        self.errors.add(errors);
        self.reverses.extend_from_slice(reverses);
        self.cookie_paths.extend_from_slice(cookie_paths);
        self.cookie_domains.extend_from_slice(cookie_domains);
        self.preserve_host.add(preserve_host);
        self.add_headers.add(add_headers);
        self.forward_continue.add(forward_continue);
    }
}

impl Directory {
    /// Whether an error document replaces a response with this status (proxy_util.c:
    /// `ap_proxy_should_override`).
    #[must_use]
    pub fn overrides(&self, status: Status) -> bool {
        match &self.errors {
            None | Some(ErrorOverride::Off) => false,
            Some(ErrorOverride::On) => status.is_error(),
            Some(ErrorOverride::Statuses(statuses)) => statuses.contains(&status.code()),
        }
    }
}

/// Counts down the field Max-Forwards of a request that is passed on, or sets it to
/// ProxyMaxForwards (mod_proxy.c: `proxy_handler`). Returns whether this server is the last that
/// the request may reach, so that it answers TRACE and OPTIONS itself.
///
/// # Errors
/// 400 if the field is no number, or if it is 0 and the request has another method.
pub fn count_forward(request: &mut Request, server: &Rules) -> Result<bool, Answer> {
    let Some(text) = request.fields().first(Name::MaxForwards) else {
        if let Some(most) = server.most_forwards.filter(|most| *most >= 0) {
            request.fields_mut().set(Name::MaxForwards, most.to_string());
        }
        return Ok(false);
    };
    // strtol(3) reads an empty text as 0.
    let number = std::str::from_utf8(text).ok().and_then(|text| match text {
        "" => Some(0),
        text => text.parse::<i64>().ok().filter(|number| (0..i64::MAX).contains(number)),
    });
    let reason = match number {
        None => {
            let text = format!("Max-Forwards value '{}' could not be parsed", quoted(text));
            request.notify(Notice::new("proxy", Level::Warn, 10188, text));
            "Max-Forwards request header could not be parsed"
        }
        Some(0) if matches!(request.resource.method, Method::Trace | Method::Options) => {
            return Ok(true);
        }
        Some(0) => "Max-Forwards has reached zero - proxy loop?",
        Some(number) => {
            request.fields_mut().set(Name::MaxForwards, (number - 1).to_string());
            return Ok(false);
        }
    };
    note_reason(request, Status::BAD_REQUEST, reason);
    Err(Status::BAD_REQUEST.into())
}

/// The note with the status line of an error page.
pub const STATUS_LINE: &str = "status-line";

/// Has the error page state a reason (proxy_util.c: `ap_proxyerror`).
pub fn note_reason(request: &mut Request, status: Status, reason: &str) {
    let reason = evenkeel_proto::escaped_html(reason.as_bytes());
    let reason = String::from_utf8_lossy(&reason);
    let note = format!(
        "The proxy server could not handle the request<p>Reason: <strong>{reason}</strong></p>"
    );
    request.resource.notes.set("error-notes", note);
    request.resource.notes.set(STATUS_LINE, format!("{} Proxy Error", status.code()));
}

/// Returns the target of the first rule that matches the path of a request: the rule of the
/// section is tried first, then those of the server (mod_proxy.c: `proxy_trans`).
///
/// # Errors
/// 500 if a pattern exceeds the limits of a match.
pub fn translate(
    request: &mut Request,
    server: &Rules,
    section: &Directory,
) -> Result<Option<Proxied>, Answer> {
    if server.passes.is_empty() && section.pass.is_none() {
        return Ok(None);
    }
    if request.resource.path.first() != Some(&b'/') || request.resource.env.contains("no-proxy") {
        return Ok(None);
    }
    for pass in section.pass.iter().chain(&server.passes) {
        match pass.apply(request)? {
            Passed::Elsewhere => {}
            Passed::Never => return Ok(None),
            Passed::To(proxied) => return Ok(Some(proxied)),
        }
    }
    Ok(None)
}

/// Returns the target of a handler `proxy:URL`. Its path is that of the URL, followed by the file
/// of the request (mod_proxy.c: `proxy_handler`). Returns `None` if the request has another
/// handler.
///
/// # Errors
/// 500 if the URL is not a target.
pub fn of_handler(
    request: &mut Request,
    runtime_dir: &Path,
    known: &KnownTarget,
) -> Result<Option<Proxied>, Answer> {
    let handler = request.resource.content.handler.as_deref().unwrap_or_default();
    let Some(url) = handler.strip_prefix(b"proxy:") else { return Ok(None) };
    let Some(target) = known.target_of(url, runtime_dir) else {
        let url = quoted(url).into_owned();
        let text = format!(
            "the handler proxy:{url} is neither an HTTP server nor an application that speaks \
             FastCGI, SCGI or uWSGI (http://host:port, fcgi://host:port or \
             unix:/socket|http://name), and this server passes requests on to no other"
        );
        request.notify(Notice::own("proxy", Level::Error, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    };
    let file = request.resource.file.as_os_str().as_bytes();
    let mut path = [target.path.as_bytes(), file].concat();
    let is_raw = target.scheme == Scheme::Fcgi;
    if !is_raw {
        path = escape_path(&path);
        if !path.starts_with(b"/") {
            path.insert(0, b'/');
        }
    }
    Ok(Some(Proxied { target, path, is_raw, without_query: false, name: Vec::new() }))
}

/// The target of the last handler that a thread has seen. Most sites have one application, whose
/// URL need not be parsed for each request.
#[derive(Default)]
pub struct KnownTarget(RefCell<Option<ParsedUrl>>);

/// A URL and its target.
type ParsedUrl = (Box<[u8]>, Arc<Target>);

impl KnownTarget {
    /// The target of a URL. `None` if the URL is malformed or has an unknown scheme.
    fn target_of(&self, url: &[u8], runtime_dir: &Path) -> Option<Arc<Target>> {
        let mut known = self.0.borrow_mut();
        if let Some((known_url, target)) = &*known
            && **known_url == *url
        {
            return Some(Arc::clone(target));
        }
        let target = Target::parse(std::str::from_utf8(url).ok()?, runtime_dir).ok()?;
        let target = Arc::new(target);
        *known = Some((url.into(), Arc::clone(&target)));
        Some(target)
    }
}

/// Returns the worker whose URL is the longest prefix of the URL of a request (proxy_util.c:
/// `ap_proxy_get_worker`).
#[must_use]
pub fn worker_of<'a>(rules: &'a Rules, proxied: &Proxied) -> Option<&'a Worker> {
    let fitting = rules.workers.iter().filter(|worker| worker.fits(proxied));
    // The first of several workers with the same URL is used.
    let mut best: Option<&Arc<Worker>> = None;
    for worker in fitting {
        if best.is_none_or(|best| worker.target.path.len() > best.target.path.len()) {
            best = Some(worker);
        }
    }
    best.map(|worker| &**worker)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;
    use evenkeel_message::{Peer, RequestHead, UrlPath};

    fn rules(text: &str) -> Rules {
        (*apply(MODULE, text).unwrap().server.proxy).clone()
    }

    fn request() -> Request {
        let address = "127.0.0.1:1".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.resource.path = UrlPath::parse(b"/a/x", Default::default()).unwrap();
        request
    }

    #[test]
    fn a_rule_of_the_main_server_is_tried_before_those_of_a_virtual_host() {
        let main = rules("ProxyPass /a fcgi://127.0.0.1:1/main");
        let host = rules("ProxyPassInherit Off\nProxyPass /a fcgi://127.0.0.1:1/host");
        let both = Rules::merge(&main, &host);
        let passed = translate(&mut request(), &both, &Directory::default()).unwrap().unwrap();
        assert_eq!(passed.path, b"/main/x");
        let excluded = Rules::merge(&rules("ProxyPass /a !"), &host);
        assert!(translate(&mut request(), &excluded, &Directory::default()).unwrap().is_none());
    }

    #[test]
    fn forwards_are_counted_down() {
        let rules = rules("ProxyMaxForwards 7");
        let counted = |said: Option<&str>, method| {
            let mut request = request();
            request.resource.method = method;
            if let Some(said) = said {
                request.fields_mut().set("Max-Forwards", said);
            }
            let is_last = count_forward(&mut request, &rules).ok()?;
            let left = request.fields().first("Max-Forwards").unwrap_or_default();
            Some((is_last, String::from_utf8_lossy(left).into_owned()))
        };
        assert_eq!(counted(None, Method::Get), Some((false, "7".to_owned())));
        assert_eq!(counted(Some("3"), Method::Get), Some((false, "2".to_owned())));
        assert_eq!(counted(Some("0"), Method::Get), None);
        assert_eq!(counted(Some("0"), Method::Options), Some((true, "0".to_owned())));
        for wrong in ["-1", "1x", "9223372036854775807"] {
            assert_eq!(counted(Some(wrong), Method::Trace), None, "{wrong}");
        }
    }
}
