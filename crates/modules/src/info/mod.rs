//! mod_info: the handler `server-info`, a page about the configuration and the modules of the
//! server. What is shown comes from the pipeline.

mod configuration;
mod page;

pub use crate::{NoSettings as Directory, NoSettings as Global};
pub use page::{Facts, page};

use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{Method, Request};
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("AddModuleInfo", Where::SERVER, Shape::Two, "", "a module name and additional information on that module", add_module_info),
];

/// mod_info.
pub const MODULE: Module = Module {
    file: "mod_info.c",
    identifier: "info_module",
    active: Active::WhenNamed,
    page: "mod_info",
    subject: "The configuration and the modules of the server as a page: the handler \
              `server-info`, with `?config`, `?server`, `?list`, `?hooks`, `?providers` and \
              `?mod_NAME.c`.",
    remarks: &[
        "The page shows every line of the configuration, passphrases included. Protect it.",
        "The server has no hooks that modules register for. `?hooks` lists the phases of a request \
         and the hooks of Apache that each stands for, and the entry of a module names what the \
         module provides.",
        "The text of AddModuleInfo is HTML, as in Apache. Everything else is escaped.",
        "A query that is no module gets the line `No such module`. Apache leaves the line out.",
        "`-D DUMP_CONFIG` prints the configuration with and without this module.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The name of the handler.
const HANDLER: &[u8] = b"server-info";

/// The settings of one virtual host.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// AddModuleInfo: the names of modules and texts.
    more: Arc<Vec<(Box<str>, Box<str>)>>,
}

impl Merge for Server {
    /// The lines of a virtual host stand before those of the main server.
    fn merge(base: &Self, over: &Self) -> Self {
        let more = match (base.more.is_empty(), over.more.is_empty()) {
            (_, true) => Arc::clone(&base.more),
            (true, false) => Arc::clone(&over.more),
            _ => Arc::new(over.more.iter().chain(base.more.iter()).cloned().collect()),
        };
        Self { more }
    }
}

impl Server {
    /// The text about a module, if there is one.
    fn about(&self, module: &str) -> Option<&str> {
        self.more.iter().find(|(name, _)| **name == *module).map(|(_, text)| &**text)
    }
}

fn add_module_info(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let line = (argument(call, 0).into(), argument(call, 1).into());
    Arc::make_mut(&mut scope.server.info.more).push(line);
    Ok(())
}

/// Whether the request is one for the page (mod_info.c: display_info).
#[must_use]
pub fn is_wanted(request: &Request) -> bool {
    matches!(request.resource.method, Method::Get | Method::Head)
        && request.resource.content.handler.as_deref() == Some(HANDLER)
}
