//! ErrorDocument: what is answered in place of the standard text of a status.

use evenkeel_expr::Text;
use std::sync::Arc;

/// The document of one status.
#[derive(Clone, Debug)]
pub enum ErrorDocument {
    /// `default`: Apache's own text.
    Standard,
    /// A text, as an expression that may hold variables.
    Text(Arc<Text>),
    /// A path on this server, fetched by an internal redirect; may hold variables.
    Local(Arc<Text>),
    /// A full URL, to which the client is redirected.
    Remote(Box<[u8]>),
}
