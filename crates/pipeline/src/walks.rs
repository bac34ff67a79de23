//! Walks that were made before, kept by server and path as long as what they found holds.

use crate::site::Plan;
use crate::way::FolderWalk;
use evenkeel_files::Looked;
use evenkeel_message::FileName;
use evenkeel_modules::core::Section;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Whole walks by server and path.
pub(crate) struct Walks {
    /// By the index of the server; those behind the last server that was asked have none.
    servers: Vec<HashMap<Box<[u8]>, Walk, foldhash::quality::RandomState>>,
    count: usize,
    most: usize,
}

impl Walks {
    pub(crate) fn new(most: usize) -> Self {
        Self { servers: Vec::new(), count: 0, most }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.most);
    }

    pub(crate) fn of(&self, server: usize, path: &[u8]) -> Option<&Walk> {
        self.servers.get(server)?.get(path)
    }

    pub(crate) fn keep(&mut self, server: usize, path: &[u8], walk: Walk) {
        if self.count >= self.most {
            self.clear();
        }
        if self.servers.len() <= server {
            self.servers.resize_with(server + 1, HashMap::default);
        }
        let Some(walks) = self.servers.get_mut(server) else { return };
        self.count += usize::from(walks.insert(path.into(), walk).is_none());
    }

    /// Lets those go that have met one of these sections.
    pub(crate) fn let_go(&mut self, outdated: &[u64]) {
        for walks in &mut self.servers {
            let before = walks.len();
            walks.retain(|_, walk| !walk.sections.iter().any(|one| outdated.contains(&one.id)));
            self.count -= before - walks.len();
        }
    }
}

/// A walk that holds as long as what it found does.
pub(crate) struct Walk {
    pub file: FileName,
    /// The walk of its folder that it began with.
    pub begun: Option<Rc<FolderWalk>>,
    /// What looks beside its file begin with.
    pub folder: Rc<FolderWalk>,
    pub plan: Arc<Plan>,
    pub sections: Rc<[Arc<Section>]>,
    pub looked: Looked,
}
