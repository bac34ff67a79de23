//! The questions that an expression may ask about other paths of the site while a request is being
//! served (`-U` and `-F` of ap_expr).

use crate::Request;

/// Answers whether another path could be served to the client of a request.
pub trait Probe {
    /// Whether a request for that URL path would be allowed; none if that cannot be known.
    fn allows_url(&self, request: &Request, url: &[u8]) -> Option<bool>;
    /// Whether that file exists and could be served; none if that cannot be known.
    fn allows_file(&self, request: &Request, path: &[u8]) -> Option<bool>;
}
