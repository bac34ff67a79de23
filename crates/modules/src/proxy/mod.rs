//! mod_proxy: requests that are passed on to an application instead of being answered from a file.
//! The configuration's directives become rules; a request and the rules of its server and sections
//! go in, and the target goes out. It connects to nothing: the module of the target's scheme does.

mod directives;
mod pass;
mod worker;

pub use crate::NoSettings as Global;
pub use directives::MODULE;
pub use pass::{Pass, Passed, escape_path};
pub use worker::Worker;

use crate::settings::merged;
use crate::{Merge, Shared};
use evenkeel_message::{Answer, Proxied, Request, Status, Target};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What a server says.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// ProxyPass and ProxyPassMatch, in the order in which they are tried.
    pub passes: Vec<Arc<Pass>>,
    /// Applications with parameters.
    pub workers: Vec<Arc<Worker>>,
    /// ProxyTimeout.
    pub timeout: Option<Duration>,
    /// ProxyPassInherit.
    pub inherits: Option<bool>,
}

/// What a server says, which hosts share.
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
            timeout: over.timeout.or(base.timeout),
            inherits: over.inherits.or(base.inherits),
        }
    }
}

/// The statuses of an application that this server's own pages take the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorOverride {
    /// None.
    Off,
    /// All errors.
    On,
    /// These.
    Statuses(Arc<[u16]>),
}

/// What a section says.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// ProxyPass of the section itself.
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
    /// Whether an application's response of this status is replaced (mod_proxy.h:
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

/// Where the path of a request is passed on to: the section's own rule first, then the server's
/// (mod_proxy.c: `proxy_trans`).
///
/// # Errors
/// 500 where a pattern cannot be matched.
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

/// The target of a handler `proxy:URL`, and the path for it: the file of the request behind that
/// of the URL (mod_proxy.c: `proxy_handler`). None where the handler is another.
///
/// # Errors
/// 500 where the URL is none that this server can pass requests to.
pub fn of_handler(request: &mut Request, runtime_dir: &Path) -> Result<Option<Proxied>, Answer> {
    let handler = request.resource.content.handler.as_deref().unwrap_or_default();
    let Some(url) = handler.strip_prefix(b"proxy:") else { return Ok(None) };
    let target = std::str::from_utf8(url).ok();
    let Some(Ok(target)) = target.map(|url| Target::parse(url, runtime_dir)) else {
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
    Ok(Some(Proxied { target: Arc::new(target), path, is_raw: true, without_query: false }))
}

/// The worker whose URL is the longest that a target begins with (proxy_util.c:
/// `ap_proxy_get_worker`).
#[must_use]
pub fn worker_of<'a>(rules: &'a Rules, proxied: &Proxied) -> Option<&'a Worker> {
    let fitting = rules.workers.iter().filter(|worker| worker.fits(proxied));
    // Of equal ones the first has the parameters.
    let mut best: Option<&Arc<Worker>> = None;
    for worker in fitting {
        if best.is_none_or(|best| worker.target.path.len() > best.target.path.len()) {
            best = Some(worker);
        }
    }
    best.map(|worker| &**worker)
}
