//! mod_proxy: passes requests on to an application. [`translate`] matches a request with the rules
//! of its server and its section, and returns the target. The room `upstream` connects to the
//! target.

mod directives;
mod pass;
mod worker;

pub use crate::NoSettings as Global;
pub use directives::MODULE;
pub use pass::{Pass, Passed, escape_path};
pub use worker::Worker;

use crate::core::Section;
use crate::settings::merged;
use crate::{Merge, Shared};
use evenkeel_message::{Answer, Proxied, Request, Status, Target};
use std::cell::RefCell;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// ProxyPass and ProxyPassMatch, in the order in which they are tried.
    pub passes: Vec<Arc<Pass>>,
    /// Applications with parameters.
    pub workers: Vec<Arc<Worker>>,
    /// `<Proxy>` and `<ProxyMatch>`, in the order of the configuration.
    pub sections: Vec<Arc<Section>>,
    /// ProxyTimeout.
    pub timeout: Option<Duration>,
    /// ProxyPassInherit.
    pub inherits: Option<bool>,
}

/// The settings of a server. Virtual hosts with equal settings share one allocation.
pub type Server = Shared<Rules>;

crate::unsaid!(Rules);

impl Merge for Rules {
    fn merge(base: &Self, over: &Self) -> Self {
        let inherited = match over.inherits {
            Some(false) => &[][..],
            _ => &base.passes,
        };
        Self {
            passes: [over.passes.as_slice(), inherited].concat(),
            workers: [over.workers.as_slice(), &base.workers].concat(),
            sections: [base.sections.as_slice(), &over.sections].concat(),
            timeout: over.timeout.or(base.timeout),
            inherits: over.inherits.or(base.inherits),
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
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        let Self { pass, errors } = over;
        self.pass.add(pass);
        self.errors.add(errors);
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
        use evenkeel_message::{Level, Notice, quoted};
        let url = quoted(url).into_owned();
        let text = format!(
            "the handler proxy:{url} is no FastCGI application (fcgi://host:port or \
             unix:/socket|fcgi://name), and this server passes requests on to no other"
        );
        request.notify(Notice::own("proxy", Level::Error, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    };
    let file = request.resource.file.as_os_str().as_bytes();
    let path = [target.path.as_bytes(), file].concat();
    Ok(Some(Proxied { target, path, is_raw: true, without_query: false, name: Vec::new() }))
}

/// The target of the last handler that a thread has seen. Most sites have one application, whose
/// URL need not be parsed for each request.
#[derive(Default)]
pub struct KnownTarget(RefCell<Option<ParsedUrl>>);

/// A URL and its target.
type ParsedUrl = (Box<[u8]>, Arc<Target>);

impl KnownTarget {
    /// The target of a URL. `None` if the URL is malformed or has another scheme than fcgi.
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
