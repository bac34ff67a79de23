//! What is said once for the process: tokens, virtual hosts, filters of accept.

use super::server::ServerTokens;
use crate::{DirectorySettings, ServerSettings};
use evenkeel_config::Position;
use evenkeel_expr::PatternOptions;
use evenkeel_message::Method;
use std::path::PathBuf;

/// The core's settings of the whole process.
#[derive(Clone, Default)]
pub struct Global {
    /// ServerTokens.
    pub tokens: Option<ServerTokens>,
    /// ExtendedStatus.
    pub extended_status: Option<bool>,
    /// AcceptFilter by protocol: whether connections are handed over only with data on them.
    pub accept_filters: Vec<(Box<str>, bool)>,
    /// SeeRequestTail.
    pub see_request_tail: bool,
    /// RegisterHttpMethod, and what `<Limit>` sections of the configuration name beyond the methods
    /// that are built in.
    pub methods: Vec<Box<str>>,
    /// Mutex lines, recorded for DUMP_RUN_CFG.
    pub mutexes: Vec<Box<str>>,
    /// DefaultRuntimeDir.
    pub runtime_dir: Option<Box<str>>,
    /// RegexDefaultOptions.
    pub pattern_options: PatternOptions,
    /// SymLinksWithin, canonical.
    pub links_within: Option<PathBuf>,
    /// `<VirtualHost>` sections in order.
    pub virtual_hosts: Vec<VirtualHost>,
}

impl Global {
    /// Whether a method is built in or has been registered so far (http_protocol.c:
    /// ap_method_number_of).
    #[must_use]
    pub fn knows_method(&self, name: &str) -> bool {
        Method::parse(name.as_bytes()) != Method::Other
            || self.methods.iter().any(|known| **known == *name)
    }
}

/// One `<VirtualHost>`: what it says, not yet merged with the main server.
#[derive(Clone)]
pub struct VirtualHost {
    /// The addresses of its opening line, as written.
    pub addresses: Vec<Box<str>>,
    /// Where it begins.
    pub position: Position,
    /// Its settings.
    pub server: ServerSettings,
    /// What stands in it outside of any section; none where nothing does.
    pub directory: Option<Box<DirectorySettings>>,
}
