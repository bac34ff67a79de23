//! A request as an expression sees it: what `%{VARIABLE}`, `req()` and `-F` of ap_expr ask for is
//! answered from the request, its settings and, in filters and logs, its response.

use super::{CoreSettings, ServerTokens, facts, naming, software};
use evenkeel_expr::{Condition, Context, Evaluation, EvaluationError, Variable};
use evenkeel_message::{Allowance, Fields, Request, Response, Version};
use std::borrow::Cow;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;

/// The note with the DocumentRoot that mod_vhost_alias has set for one request (core.c:
/// `ap_set_document_root`).
pub const DOCUMENT_ROOT_NOTE: &str = "document-root";

/// The note with the body of the response to a health check (mod_proxy_hcheck.c: hc_get_body).
pub const CHECKED_BODY_NOTE: &str = "hc-body";

/// What an expression may ask of a request.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// The request.
    pub request: &'a Request,
    /// Settings of its server, and of its sections as far as they are known.
    pub core: CoreSettings<'a>,
    /// The response, once there is one.
    pub response: Option<&'a Response>,
    /// The value of REQUEST_FILENAME while a rule computes the file name. `None` means the file of
    /// the request.
    filename: Option<&'a [u8]>,
}

impl<'a> RequestContext<'a> {
    /// A request without response.
    #[must_use]
    pub fn new(request: &'a Request, core: CoreSettings<'a>) -> Self {
        Self { request, core, response: None, filename: None }
    }

    /// Sets the value of REQUEST_FILENAME.
    #[must_use]
    pub fn with_filename(mut self, filename: &'a [u8]) -> Self {
        self.filename = Some(filename);
        self
    }

    /// The same with the response that answers it.
    #[must_use]
    pub fn with_response(mut self, response: &'a Response) -> Self {
        self.response = Some(response);
        self
    }

    /// Whether a condition holds; the request fields that it asked for are added to `vary` as a
    /// Vary field.
    ///
    /// # Errors
    /// The condition has no answer for this request.
    pub fn holds(&self, condition: &Condition, vary: &mut Fields) -> Result<bool, EvaluationError> {
        let mut evaluation = Evaluation::new(self);
        let answer = evaluation.holds(condition);
        for name in evaluation.vary() {
            vary.merge("Vary", name);
        }
        answer
    }

    /// A variable of the connection, the server and the request line.
    fn plain(&self, variable: Variable) -> Option<Cow<'a, [u8]>> {
        let request = self.request;
        let text = |text: String| Some(Cow::Owned(text.into_bytes()));
        match variable {
            Variable::RequestMethod => Some(request.method_name().into()),
            Variable::RequestScheme => Some(request.scheme().as_bytes().into()),
            Variable::RequestUri | Variable::DocumentUri => Some((&*request.resource.path).into()),
            Variable::PathInfo => Some((&*request.resource.path_info).into()),
            Variable::QueryString => {
                Some(request.resource.query.as_deref().unwrap_or_default().into())
            }
            Variable::IsSubreq => Some(if request.resource.depth > 0 {
                b"true"[..].into()
            } else {
                b"false"[..].into()
            }),
            Variable::TheRequest => Some((&*request.head.line).into()),
            Variable::RemoteAddr => text(request.peer.client_ip().to_string()),
            Variable::ConnRemoteAddr => text(request.connected().ip().to_canonical().to_string()),
            Variable::RemoteHost => {
                let name = request.names.as_deref().and_then(|names| names.client.as_deref());
                match name {
                    Some(name) => Some(name.as_bytes().into()),
                    None => text(request.peer.client_ip().to_string()),
                }
            }
            Variable::RemotePort => text(request.connected().port().to_string()),
            Variable::RemoteUser => {
                Some(request.resource.user.as_deref().unwrap_or_default().into())
            }
            Variable::AuthType => {
                Some(request.resource.auth_type.as_deref().unwrap_or_default().into())
            }
            Variable::ServerName => {
                let name = naming::public_name(request, self.core);
                Some(name.into_owned().into())
            }
            Variable::ServerPort => text(naming::public_port(request, self.core).to_string()),
            Variable::ServerAdmin => {
                let admin = self.core.server.admin.as_deref().unwrap_or("[no address given]");
                Some(admin.as_bytes().into())
            }
            // A look is no request of a protocol (request.c: set_sub_req_protocol).
            Variable::ServerProtocol if request.resource.depth > 0 => Some(b"INCLUDED"[..].into()),
            Variable::ServerProtocol => Some(request.head.version.text().as_bytes().into()),
            Variable::Https if request.secure.is_some() => Some(b"on"[..].into()),
            Variable::Http2 if request.head.version == Version::Http2 => Some(b"on"[..].into()),
            Variable::Https | Variable::Http2 => Some(b"off"[..].into()),
            Variable::Ipv6 => Some(if request.connected().ip().to_canonical().is_ipv6() {
                b"on"[..].into()
            } else {
                b"off"[..].into()
            }),
            Variable::ServerSoftware => text(software(ServerTokens::Full).into_string()),
            Variable::ApiVersion => Some(b"20120211:142"[..].into()),
            _ => None,
        }
    }

    /// A variable of what the phases have found out.
    fn found(&self, variable: Variable) -> Option<Cow<'a, [u8]>> {
        let request = self.request;
        let text = |text: String| Some(Cow::Owned(text.into_bytes()));
        match variable {
            Variable::RequestFilename | Variable::ScriptFilename => match self.filename {
                Some(name) => Some(name.into()),
                None => Some(request.resource.file_name()),
            },
            Variable::DocumentRoot => {
                let own = request.resource.notes.value(DOCUMENT_ROOT_NOTE);
                let root = self.core.server.document_root.as_ref();
                let root = own.or_else(|| root.map(|root| root.as_os_str().as_bytes()));
                Some(root.unwrap_or_default().into())
            }
            Variable::ContentType => {
                let sent = self.response.and_then(|it| it.fields.first("Content-Type"));
                match sent {
                    Some(value) => Some(Cow::Owned(value.to_vec())),
                    None => request.resource.content.media_type.as_deref().map(Into::into),
                }
            }
            Variable::Handler if request.resource.proxied.is_some() => {
                Some(b"proxy-server"[..].into())
            }
            Variable::Handler => {
                let content = &request.resource.content;
                let is_known = content.handler.is_some() || content.is_by_type;
                content.handler_name().filter(|_| is_known).map(Into::into)
            }
            Variable::RequestStatus => {
                let status =
                    self.response.map_or(request.resource.status, |response| response.status);
                text(status.code().to_string())
            }
            Variable::HcBody => request.resource.notes.value(CHECKED_BODY_NOTE).map(Into::into),
            Variable::ContextPrefix => {
                request.resource.notes.value("context-prefix").map(Into::into)
            }
            Variable::ContextDocumentRoot => {
                request.resource.notes.value("context-document-root").map(Into::into).or_else(
                    || {
                        let root = self.core.server.document_root.as_ref()?;
                        Some(root.as_os_str().as_bytes().into())
                    },
                )
            }
            Variable::LastModified | Variable::ScriptUser | Variable::ScriptGroup => {
                facts::file_fact(variable, &request.resource.file).map(Cow::Owned)
            }
            Variable::Time
            | Variable::TimeYear
            | Variable::TimeMon
            | Variable::TimeDay
            | Variable::TimeHour
            | Variable::TimeMin
            | Variable::TimeSec
            | Variable::TimeWday => facts::time_fact(variable, request.time_us).map(Cow::Owned),
            _ => None,
        }
    }
}

impl Context for RequestContext<'_> {
    fn variable(&self, variable: Variable) -> Cow<'_, [u8]> {
        self.plain(variable).or_else(|| self.found(variable)).unwrap_or_default()
    }

    fn session_variable(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let value = self.request.secure.as_ref()?.variable(name, false)?;
        Some(value.into_bytes().into())
    }

    fn request_header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.request.fields().whole(name)
    }

    fn response_header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let response = self.response?;
        response.fields.whole(name).or_else(|| response.always.whole(name))
    }

    fn request_environment(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.request.resource.env.value(name).map(Cow::Borrowed)
    }

    fn allowance(&self) -> Option<&Allowance> {
        Some(&self.request.allowance)
    }

    fn note(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.request.resource.notes.value(name).map(Cow::Borrowed)
    }

    fn client_address(&self) -> Option<IpAddr> {
        Some(self.request.peer.client_ip())
    }

    fn file_allowed(&self, path: &[u8]) -> Option<bool> {
        self.request.probe.as_ref().map_or(Some(false), |it| it.allows_file(self.request, path))
    }

    fn url_allowed(&self, url: &[u8]) -> Option<bool> {
        self.request.probe.as_ref().map_or(Some(false), |it| it.allows_url(self.request, url))
    }
}
