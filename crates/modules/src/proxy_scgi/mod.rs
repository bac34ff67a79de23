//! mod_proxy_scgi: applications that speak SCGI. [`script`] names the script of a request, and
//! [`redirect`] finds the internal redirect that a response asks for.

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::gateway::{Script, escape_path, url_as_file};
use crate::settings::merged;
use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{Answer, Method, Proxied, Request};
use evenkeel_proto::script::ScriptHead;
use std::borrow::Cow;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("ProxySCGISendfile", Where::CONFIG, Shape::One, "Off", "The name of the X-Sendfile pseudo response header or On or Off", sendfile),
    directive("ProxySCGIInternalRedirect", Where::CONFIG, Shape::One, "On", "The name of the pseudo response header or On or Off", internal_redirect),
];

/// mod_proxy_scgi.
pub const MODULE: Module = Module {
    file: "mod_proxy_scgi.c",
    identifier: "proxy_scgi_module",
    active: Active::WhenNamed,
    page: "mod_proxy_scgi",
    subject: "Applications that speak SCGI.",
    remarks: &[
        "The body of a request is read whole before the application is asked, up to 64 KiB in \
         memory and more in /var/tmp. A slow client holds no worker of the application, and a \
         chunked body has a CONTENT_LENGTH. Apache streams it, and answers 411 to chunks.",
        "`ProxySCGISendfile Off` is the only value: a response of an application cannot name a \
         file that is sent in its place.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The variable that makes the path of the target the PATH_INFO.
const PATH_INFO_RULE: &str = "proxy-scgi-pathinfo";

/// The values of ProxySCGIInternalRedirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InternalRedirect {
    /// A response cannot ask for one.
    Off,
    /// A response asks for one by this field.
    By(Box<str>),
}

/// The settings of one section.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// ProxySCGIInternalRedirect.
    pub internal_redirect: Option<InternalRedirect>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        if over.internal_redirect.is_some() {
            self.internal_redirect.clone_from(&over.internal_redirect);
        }
    }
}

fn sendfile(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match call.first().eq_ignore_ascii_case("off") {
        true => Ok(()),
        false => Err(format!(
            "ProxySCGISendfile {}: this server does not send files that a response of an \
             application names; only Off is supported",
            call.first()
        )),
    }
}

fn internal_redirect(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let value = match call.first() {
        word if word.eq_ignore_ascii_case("off") => InternalRedirect::Off,
        word if word.eq_ignore_ascii_case("on") => InternalRedirect::By("Location".into()),
        name => InternalRedirect::By(name.into()),
    };
    scope.directory.proxy_scgi.internal_redirect = Some(value);
    Ok(())
}

/// Names the script of a target (mod_proxy_scgi.c: `scgi_canon`).
#[must_use]
pub fn script(request: &Request, proxied: &Proxied) -> Script {
    // The parameter `nocanon` has no effect here.
    let path = match proxied.is_raw {
        true => Cow::from(escape_path(&proxied.path)),
        false => Cow::from(&proxied.path),
    };
    let file = url_as_file(&proxied.target, &path);
    let path_info = match request.resource.env.contains(PATH_INFO_RULE) {
        true => path.into_owned(),
        false => request.resource.path_info.clone(),
    };
    Script { file, path_info }
}

/// The internal redirect that a response asks for. The request becomes a GET, as those of CGI
/// programs do (mod_proxy_scgi.c: `pass_response`, `scgi_request_status`).
pub fn redirect(
    request: &mut Request,
    head: &mut ScriptHead,
    settings: &Directory,
) -> Option<Answer> {
    let status = head.status.as_ref().map_or(200, |(number, _)| *number);
    let name = match &settings.internal_redirect {
        _ if status != 200 => return None,
        Some(InternalRedirect::Off) => return None,
        Some(InternalRedirect::By(name)) => &**name,
        None => "Location",
    };
    let fields = if head.always.contains(name) { &mut head.always } else { &mut head.fields };
    let location = fields.first(name).filter(|location| location.first() == Some(&b'/'))?.to_vec();
    fields.remove(name);
    let always = &mut request.resource.always;
    for (name, value) in head.always.iter() {
        always.set(name, value);
    }
    for cookie in &head.cookies {
        always.add("Set-Cookie", cookie);
    }
    if request.resource.method != Method::Head {
        request.resource.method = Method::Get;
    }
    if request.fields().contains("Content-Length") {
        request.fields_mut().remove("Content-Length");
    }
    Some(Answer::Redirect(location))
}
