//! mod_status: the handler `server-status`. A request for the page comes in, the page in the form
//! that its query asks for goes out. What is shown comes from a source that the binary supplies;
//! nothing here reads the system.

pub use crate::{NoSettings as Directory, NoSettings as Server, NoSettings as Global};

use crate::{Active, Directive, Module, ServerState};
use bytes::Bytes;
use evenkeel_message::{Body, Method, Request, Response};
use evenkeel_monitor::{Letterhead, View, render};

/// The handler's other name, in the form of a media type. A type of that name does not select it.
const MAGIC_NAME: &[u8] = b"application/x-httpd-status";

/// mod_status has no directive of its own: ExtendedStatus and SeeRequestTail are the core's.
const DIRECTIVES: &[Directive] = &[];

/// mod_status.
pub const MODULE: Module = Module {
    file: "mod_status.c",
    identifier: "status_module",
    active: Active::Usually,
    page: "mod_status",
    subject: "The state of the server as a page: the handler `server-status`, with `?refresh=N`, \
              `?notable`, `?auto` and `?json`. ExtendedStatus is on where this module is active.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// Whether the request is one for the page. Other methods than GET and HEAD are left to the
/// default handler (mod_status.c: status_handler).
#[must_use]
pub fn is_wanted(request: &Request) -> bool {
    let Some(name) = request.resource.content.handler.as_deref() else { return false };
    let is_read = matches!(request.resource.method, Method::Get | Method::Head);
    is_read && (name == b"server-status" || name == MAGIC_NAME)
}

/// Makes the page. `name` is what the server answers to, `signature` the last line of HTML pages.
#[must_use]
pub fn page(request: &Request, source: &dyn ServerState, name: &str, signature: &str) -> Response {
    let view = View::parse(request.resource.query.as_deref());
    let via = request.peer.local.ip().to_string();
    let text = render(&source.snapshot(view), view, &Letterhead { name, via: &via, signature });
    let mut response = Response::new(request.resource.status);
    response.fields.set("Content-Type", view.media_type());
    if let Some(seconds) = view.refresh_s {
        response.fields.set("Refresh", seconds.to_string());
    }
    response.body = Body::Bytes(Bytes::from(text));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{Peer, RequestHead};
    use evenkeel_monitor::Snapshot;

    struct Fixed;

    impl ServerState for Fixed {
        fn snapshot(&self, _: View) -> Snapshot {
            Snapshot { accesses: 7, ..Snapshot::default() }
        }
    }

    fn request(handler: Option<&str>, query: &str) -> Request {
        let peer =
            Peer { client: "192.0.2.1:1".parse().unwrap(), local: "192.0.2.2:80".parse().unwrap() };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.resource.method = Method::Get;
        request.resource.content.handler = handler.map(|name| name.as_bytes().into());
        request.resource.query = Some(query.into());
        request
    }

    #[test]
    fn the_handler_answers_get_by_either_name() {
        assert!(is_wanted(&request(Some("server-status"), "")));
        assert!(!is_wanted(&request(Some("server-info"), "")));
        let mut named = request(Some("application/x-httpd-status"), "");
        assert!(is_wanted(&named));
        named.resource.method = Method::Head;
        assert!(is_wanted(&named));
        named.resource.method = Method::Post;
        assert!(!is_wanted(&named));
    }

    #[test]
    fn a_media_type_selects_no_handler() {
        let mut typed = request(None, "");
        typed.resource.content.media_type = Some((*b"application/x-httpd-status").into());
        assert!(!is_wanted(&typed));
    }

    #[test]
    fn the_query_chooses_the_form() {
        let page_of = |query: &str| page(&request(Some("server-status"), query), &Fixed, "a", "S");
        let body = |response: &Response| match &response.body {
            Body::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        let html = page_of("refresh=5");
        assert_eq!(html.fields.first("Refresh"), Some(&b"5"[..]));
        assert!(body(&html).contains("Apache Server Status for a (via 192.0.2.2)"));
        assert!(body(&html).contains("S</body>"), "{}", body(&html));
        let auto = page_of("auto");
        assert_eq!(auto.fields.first("Content-Type"), Some(&b"text/plain; charset=ISO-8859-1"[..]));
        assert_eq!(auto.fields.first("Refresh"), None);
        assert!(body(&auto).starts_with("a\nServerVersion: "));
        assert!(body(&page_of("json")).contains("\"accesses\":7"));
    }
}
