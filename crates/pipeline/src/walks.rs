//! Walks that were made before, kept by server and path as long as what they found holds.

use crate::kept::Kept;
use crate::site::Plan;
use crate::way::FolderWalk;
use evenkeel_files::Looked;
use evenkeel_message::FileName;
use evenkeel_modules::core::Section;
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// Whole walks by server and path.
pub(crate) struct Walks(Kept<(usize, Box<[u8]>), Walk>);

impl Walks {
    pub(crate) fn new(most: usize) -> Self {
        Self(Kept::new(most, 0))
    }

    pub(crate) fn of(&self, server: usize, path: &[u8]) -> Option<&Walk> {
        self.0.of((server, path))
    }

    pub(crate) fn keep(&mut self, server: usize, path: &[u8], walk: Walk) {
        self.0.keep((server, path.into()), walk, 0);
    }

    /// Lets those go that have met one of these sections, which are in order.
    pub(crate) fn let_go(&mut self, outdated: &[u64]) {
        self.0.let_go(|_, walk| {
            walk.sections.iter().any(|one| outdated.binary_search(&one.id).is_ok())
        });
    }
}

/// A walk that holds as long as what it found does, and its plan is kept: what plans weigh is
/// bounded there.
pub(crate) struct Walk {
    pub file: FileName,
    /// The walk of its folder that it began with.
    pub begun: Option<Rc<FolderWalk>>,
    /// What looks beside its file begin with.
    pub folder: Rc<FolderWalk>,
    pub plan: Weak<Plan>,
    pub sections: Rc<[Arc<Section>]>,
    pub looked: Looked,
}
