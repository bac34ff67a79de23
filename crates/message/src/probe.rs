//! How an expression may ask about other paths of the site while a request is on its way (`-U`
//! and `-F` of ap_expr). A request and a path go in, yes, no or neither comes out.

use crate::Request;

/// Asks whether another path could be served to the client of a request.
pub trait Probe {
    /// Whether a request for that URL path would not be refused; none where that is not known.
    fn allows_url(&self, request: &Request, url: &[u8]) -> Option<bool>;
    /// Whether that file exists and could be served; none where that is not known.
    fn allows_file(&self, request: &Request, path: &[u8]) -> Option<bool>;
}
