//! The choice of the handler that answers a request, in the order of Apache's hook `handler`.

use crate::cgi;
use crate::die::KEEPS_TYPE;
use crate::fcgid;
use crate::listing;
use crate::php;
use crate::proxying;
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_files::{Kind, Looked};
use evenkeel_message::{Answer, Level, Notice, Proxied, Request, Status, quoted};
use evenkeel_modules::php::Wanted;
use evenkeel_modules::{actions, asis, auth_form, core, info, lab, negotiation, status};

/// The handler of a request.
pub(crate) enum Handler {
    /// None: the server refuses the request because of its load.
    Shed,
    /// mod_autoindex.
    Listing,
    /// mod_lab.
    Lab(lab::Work),
    /// mod_status.
    Status,
    /// mod_info.
    Info,
    /// mod_auth_form.
    Form(auth_form::Work),
    /// mod_proxy.
    Proxy(Box<Proxied>),
    /// mod_negotiation, for a type map.
    Map,
    /// mod_asis.
    AsIs,
    /// mod_cgi and mod_cgid.
    Cgi,
    /// mod_fcgid.
    Fcgid,
    /// php_module.
    Php(Wanted),
    /// The file itself (Apache: default_handler).
    File,
}

impl Handler {
    /// Whether the handler reads the body of the request.
    pub(crate) fn reads_body(&self) -> bool {
        matches!(
            self,
            Handler::Lab(lab::Work::Echo)
                | Handler::Form(auth_form::Work::Login | auth_form::Work::Redirect)
                | Handler::Proxy(_)
                | Handler::Cgi
                | Handler::Fcgid
                | Handler::Php(_)
        )
    }
}

/// Chooses the handler of a request.
///
/// # Errors
/// The answer of a handler that applies to the request and refuses it.
pub(crate) fn choose(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    found: Option<&Looked>,
) -> Result<Handler, Answer> {
    if request.shed && !status::is_wanted(request) {
        return Ok(Handler::Shed);
    }
    // It stays with the request, whose header lines and log formats name it.
    if let Some(proxied) = request.resource.proxied.clone() {
        return Ok(Handler::Proxy(proxied));
    }
    if found.is_some_and(|folder| listing::is_wanted(pipeline, request, folder)) {
        return Ok(Handler::Listing);
    }
    if let Some(work) = lab::wanted(request, &pipeline.site.global.lab)? {
        return Ok(Handler::Lab(work));
    }
    if pipeline.status.is_some() && status::is_wanted(request) {
        return Ok(Handler::Status);
    }
    if pipeline.site.directives.is_some() && info::is_wanted(request) {
        return Ok(Handler::Info);
    }
    if pipeline.site.has_forms
        && let Some(work) = auth_form::wanted(request)
    {
        return Ok(Handler::Form(work));
    }
    if pipeline.site.sends_as_is && asis::is_wanted(request) && found.is_some() {
        return Ok(Handler::AsIs);
    }
    if found.is_some() && cgi::is_wanted(pipeline, request) {
        return Ok(Handler::Cgi);
    }
    if found.is_some() && fcgid::is_wanted(pipeline, request) {
        return Ok(Handler::Fcgid);
    }
    if let Some(wanted) = php::wanted(pipeline, request) {
        return Ok(Handler::Php(wanted));
    }
    if let Some(proxied) = proxying::target(pipeline, request)? {
        return Ok(Handler::Proxy(proxied));
    }
    let is_map = pipeline.site.negotiates && negotiation::is_map(&request.resource.content);
    if is_map && found.is_some() {
        return Ok(Handler::Map);
    }
    if let Some(found) = found
        && !plan.actions.is_empty()
    {
        let has_file = found.found.kind() != Kind::Absent;
        if let Some(target) = actions::target(request, &plan.actions, has_file)? {
            request.resource.notes.set(KEEPS_TYPE, "");
            return Err(Answer::Redirect(target));
        }
    }
    refuse_program(request, found)?;
    Ok(Handler::File)
}

/// Refuses to send the source of a program whose handler no loaded module provides. Apache sends
/// the source.
fn refuse_program(request: &mut Request, found: Option<&Looked>) -> Result<(), Answer> {
    let Some(name) = request.resource.content.program_handler() else { return Ok(()) };
    let is_file = found.is_some_and(|looked| looked.found.kind() == Kind::File);
    if !is_file && !name.starts_with(b"proxy:") {
        return Ok(());
    }
    let text = format!(
        "{}: the configuration gives this file to the handler {}, which runs programs and which no \
         loaded module provides",
        core::refused_target(request),
        quoted(name)
    );
    request.notify(Notice::own("core", Level::Error, text));
    Err(Status::INTERNAL_SERVER_ERROR.into())
}
