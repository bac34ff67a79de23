//! The settings of the core that apply to a request.

use super::{Directory, Server};

/// The settings of the core that apply to a request.
#[derive(Clone, Copy)]
pub struct CoreSettings<'a> {
    /// Those of its server.
    pub server: &'a Server,
    /// Those of its sections, merged.
    pub directory: &'a Directory,
}
