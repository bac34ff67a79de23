//! mod_ext_filter: programs of the configuration filter bodies (`external.rs`). Here are the
//! directives and the settings.

mod directives;

pub use crate::NoSettings as Global;
pub use directives::MODULE;

use crate::external::Definitions;
use crate::{Merge, Shared};

/// The external filters of a virtual host.
pub type Server = Shared<Definitions>;

/// The settings of a section.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// LogStderr and NoLogStderr.
    logs_stderr: Option<bool>,
    /// Onfail=remove and Onfail=abort.
    is_removed: Option<bool>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; logs_stderr, is_removed)
    }
}

impl Directory {
    /// Whether a filter that cannot be started is removed (Onfail).
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.is_removed == Some(true)
    }

    /// Whether the standard error of a filter's program is logged.
    #[must_use]
    pub fn logs_stderr(&self) -> bool {
        self.logs_stderr == Some(true)
    }
}
