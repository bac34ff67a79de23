//! The body of an error response for which no ErrorDocument is configured: a status, what is
//! known of the request and the server's signature go in, Apache's standard page comes out
//! (http_protocol.c: ap_send_error_response). Whatever came from the client is escaped.

use evenkeel_message::Status;
use evenkeel_proto::escape_html;

/// What a page tells beside its status.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// The method's text.
    pub method: &'a [u8],
    /// The status line in place of the standard one.
    pub line: Option<&'a str>,
    /// Where a redirect leads.
    pub location: Option<&'a [u8]>,
    /// What was wrong with the request, as HTML (Apache: the note error-notes).
    pub notes: Option<&'a [u8]>,
    /// The list of variants, as HTML, for 300 and 406.
    pub variants: Option<&'a [u8]>,
    /// The Expect field, for 417.
    pub expect: Option<&'a [u8]>,
    /// ServerAdmin, for 500.
    pub admin: &'a str,
    /// The status that an ErrorDocument was wanted for when this error came up.
    pub first_error: Option<Status>,
    /// The signature (ServerSignature), ready HTML; empty where it is off.
    pub signature: &'a str,
}

/// The page of a status.
#[must_use]
pub fn error_page(status: Status, facts: &Facts<'_>) -> Vec<u8> {
    let line = match facts.line {
        Some(line) => String::from_utf8_lossy(&escaped(line.as_bytes())).into_owned(),
        None => status.line(),
    };
    let reason = line.get(4..).unwrap_or_default();
    let mut page = Vec::with_capacity(512);
    page.extend_from_slice(
        b"<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\" \
          \"http://www.w3.org/TR/html4/strict.dtd\">\n<html><head>\n",
    );
    page.extend_from_slice(format!("<title>{line}</title>\n</head><body>\n").as_bytes());
    page.extend_from_slice(format!("<h1>{reason}</h1>\n").as_bytes());
    explain(status, facts, &mut page);
    if let Some(first) = facts.first_error {
        page.extend_from_slice(b"<p>Additionally, a ");
        page.extend_from_slice(first.line().as_bytes());
        page.extend_from_slice(
            b"\nerror was encountered while trying to use an ErrorDocument to handle the \
              request.</p>\n",
        );
    }
    page.extend_from_slice(facts.signature.as_bytes());
    page.extend_from_slice(b"</body></html>\n");
    page
}

/// Text as it may stand in a page.
fn escaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    escape_html(&mut out, text);
    out
}

fn explain(status: Status, facts: &Facts<'_>, page: &mut Vec<u8>) {
    let location = escaped(facts.location.unwrap_or_default());
    let method = escaped(facts.method);
    let notes = facts.notes.unwrap_or_default();
    let variants = facts.variants.unwrap_or_default();
    let parts: &[&[u8]] = match status {
        Status::MULTIPLE_CHOICES => &[variants],
        Status::NOT_ACCEPTABLE => &[
            b"<p>An appropriate representation of the requested resource could not be found on \
              this server.</p>\n",
            variants,
        ],
        Status::MOVED_PERMANENTLY
        | Status::FOUND
        | Status::TEMPORARY_REDIRECT
        | Status::PERMANENT_REDIRECT => {
            &[b"<p>The document has moved <a href=\"", &location, b"\">here</a>.</p>\n"]
        }
        Status::SEE_OTHER => &[
            b"<p>The answer to your request is located <a href=\"",
            &location,
            b"\">here</a>.</p>\n",
        ],
        Status::USE_PROXY => &[
            b"<p>This resource is only accessible through the proxy\n",
            &location,
            b"<br />\nYou will need to configure your client to use that proxy.</p>\n",
        ],
        Status::BAD_REQUEST => &[
            b"<p>Your browser sent a request that this server could not understand.<br />\n",
            notes,
            b"</p>\n",
        ],
        Status::FORBIDDEN => {
            &[b"<p>You don't have permission to access this resource.", notes, b"</p>\n"]
        }
        Status::METHOD_NOT_ALLOWED => {
            &[b"<p>The requested method ", &method, b" is not allowed for this URL.</p>\n"]
        }
        Status::LENGTH_REQUIRED => &[
            b"<p>A request of the requested method ",
            &method,
            b" requires a valid Content-length.<br />\n",
            notes,
            b"</p>\n",
        ],
        Status::NOT_IMPLEMENTED => {
            &[b"<p>", &method, b" not supported for current URL.<br />\n", notes, b"</p>\n"]
        }
        Status::CONTENT_TOO_LARGE => &[
            b"The requested resource does not allow request data with ",
            &method,
            b" requests, or the amount of data provided in\nthe request exceeds the capacity \
              limit.\n",
        ],
        Status::URI_TOO_LONG => &[
            b"<p>The requested URL's length exceeds the capacity\nlimit for this server.<br />\n",
            notes,
            b"</p>\n",
        ],
        Status::EXPECTATION_FAILED => return explain_expectation(facts, page),
        Status::INTERNAL_SERVER_ERROR if notes.is_empty() => return explain_fault(facts, page),
        Status::INTERNAL_SERVER_ERROR => &[notes, b"<p />\n"],
        Status::BAD_GATEWAY => &[
            b"<p>The proxy server received an invalid\r\nresponse from an upstream server.<br />\
              \r\n",
            notes,
            b"</p>\n",
        ],
        status => match sentence(status) {
            Some(text) => &[text.as_bytes()],
            None if notes.is_empty() => return explain_fault(facts, page),
            None => &[b"<p>", notes, b"</p>\n"],
        },
    };
    for part in parts {
        page.extend_from_slice(part);
    }
}

fn explain_expectation(facts: &Facts<'_>, page: &mut Vec<u8>) {
    page.extend_from_slice(
        b"<p>The expectation given in the Expect request-header\n\
          field could not be met by this server.\n",
    );
    match facts.expect {
        Some(expect) => {
            page.extend_from_slice(b"The client sent<pre>\n    Expect: ");
            page.extend_from_slice(&escaped(expect));
            page.extend_from_slice(b"\n</pre>\n");
        }
        None => page.extend_from_slice(
            b"No expectation was seen, the Expect request-header \n\
              field was not presented by the client.\n",
        ),
    }
    page.extend_from_slice(b"</p><p>Only the 100-continue expectation is supported.</p>\n");
}

fn explain_fault(facts: &Facts<'_>, page: &mut Vec<u8>) {
    page.extend_from_slice(
        b"<p>The server encountered an internal error or\n\
          misconfiguration and was unable to complete\n\
          your request.</p>\n\
          <p>Please contact the server administrator at \n ",
    );
    page.extend_from_slice(&escaped(facts.admin.as_bytes()));
    page.extend_from_slice(
        b" to inform them of the time this error occurred,\n \
          and the actions you performed just before this error.</p>\n\
          <p>More information about this error may be available\n\
          in the server error log.</p>\n",
    );
}

/// The explanation of a status that needs nothing of the request.
const fn sentence(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::UNAUTHORIZED | Status::PROXY_AUTHENTICATION_REQUIRED => {
            "<p>This server could not verify that you\nare authorized to access the document\n\
             requested.  Either you supplied the wrong\ncredentials (e.g., bad password), or \
             your\nbrowser doesn't understand how to supply\nthe credentials required.</p>\n"
        }
        Status::NOT_FOUND => "<p>The requested URL was not found on this server.</p>\n",
        Status::REQUEST_TIMEOUT => {
            "<p>Server timeout waiting for the HTTP request from the client.</p>\n"
        }
        Status::GONE => {
            "<p>The requested resource is no longer available on this server and there is no \
             forwarding address.\nPlease remove all references to this resource.</p>\n"
        }
        Status::VARIANT_ALSO_NEGOTIATES => {
            "<p>A variant for the requested resource\n<pre>\n\n</pre>\nis itself a negotiable \
             resource. This indicates a configuration error.</p>\n"
        }
        Status::PRECONDITION_FAILED => {
            "<p>The precondition on the request for this URL evaluated to false.</p>\n"
        }
        Status::UNSUPPORTED_MEDIA_TYPE => {
            "<p>The supplied request data is not in a format\nacceptable for processing by this \
             resource.</p>\n"
        }
        Status::RANGE_NOT_SATISFIABLE => {
            "<p>None of the range-specifier values in the Range\nrequest-header field overlap \
             the current extent\nof the selected resource.</p>\n"
        }
        Status::MISDIRECTED_REQUEST => {
            "<p>The client needs a new connection for this\nrequest as the requested host name \
             does not match\nthe Server Name Indication (SNI) in use for this\nconnection.</p>\n"
        }
        Status::UNPROCESSABLE_CONTENT => {
            "<p>The server understands the media type of the\nrequest entity, but was unable to \
             process the\ncontained instructions.</p>\n"
        }
        Status::LOCKED => {
            "<p>The requested resource is currently locked.\nThe lock must be released or proper \
             identification\ngiven before the method can be applied.</p>\n"
        }
        Status::FAILED_DEPENDENCY => {
            "<p>The method could not be performed on the resource\nbecause the requested action \
             depended on another\naction and that other action failed.</p>\n"
        }
        Status::PRECONDITION_REQUIRED => "<p>The request is required to be conditional.</p>\n",
        Status::TOO_MANY_REQUESTS => {
            "<p>The user has sent too many requests\nin a given amount of time.</p>\n"
        }
        Status::HEADER_FIELDS_TOO_LARGE => {
            "<p>The server refused this request because\nthe request header fields are too \
             large.</p>\n"
        }
        Status::UNAVAILABLE_FOR_LEGAL_REASONS => {
            "<p>Access to this URL has been denied for legal reasons.<br />\n</p>\n"
        }
        Status::SERVICE_UNAVAILABLE => {
            "<p>The server is temporarily unable to service your\nrequest due to maintenance \
             downtime or capacity\nproblems. Please try again later.</p>\n"
        }
        Status::GATEWAY_TIMEOUT => {
            "<p>The gateway did not receive a timely response\nfrom the upstream server or \
             application.</p>\n"
        }
        Status::INSUFFICIENT_STORAGE => {
            "<p>The method could not be performed on the resource\nbecause the server is unable \
             to store the\nrepresentation needed to successfully complete the\nrequest.  There \
             is insufficient free space left in\nyour storage allocation.</p>\n"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_data_is_escaped_and_a_second_error_told() {
        let facts = Facts {
            method: b"<GET>",
            first_error: Some(Status::NOT_FOUND),
            signature: "<hr>\n",
            ..Facts::default()
        };
        let page = String::from_utf8(error_page(Status::METHOD_NOT_ALLOWED, &facts)).unwrap();
        assert!(page.contains("<title>405 Method Not Allowed</title>"));
        assert!(page.contains("method &lt;GET&gt; is not allowed"));
        assert!(page.contains("Additionally, a 404 Not Found\nerror"));
        assert!(page.ends_with("request.</p>\n<hr>\n</body></html>\n"));
    }
}
