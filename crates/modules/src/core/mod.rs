//! The core: what every server needs before any module (Apache: core.c). Server identity, the
//! sections and their merge, options and overrides, limits, error documents.

mod content;
mod directory;
mod directory_directives;
mod error_document;
mod facts;
mod global;
mod naming;
mod options;
mod ranges;
mod sections;
mod server;
mod server_directives;
mod static_handler;
mod vary;

pub use content::{describe_content, name_type, override_type};
pub use directory::{AcceptPathInfo, Directory, ErrorDocuments, EtagParts, OnOff, Tristate};
pub use directory_directives::is_url;
pub use error_document::ErrorDocument;
pub use facts::{file_fact, time_fact};
pub use global::{Global, VirtualHost};
pub use naming::{public_name, public_port, public_url, server_name};
pub use options::{AllowOverride, OptionChange, Options};
pub use ranges::cut_to_ranges;
pub use sections::{Kind, Match, Section};
pub use server::{
    Aliases, Conduct, HttpProtocol, LogLevels, Sections, Server, ServerTokens, TraceEnable,
    is_logged,
};
pub use server_directives::parse_interval;
pub use static_handler::{
    allowed_methods, forbid_caching, omit_tag, serve_file, tag_of, tag_of_time, track_folder,
};
pub use vary::{merge_vary, settle_vary};

use crate::Table;

/// The core's directives: sections, those of servers, those of sections.
pub const TABLES: [Table; 3] = [
    table(sections::DIRECTIVES),
    table(server_directives::DIRECTIVES),
    table(directory_directives::DIRECTIVES),
];

const fn table(directives: &'static [crate::Directive]) -> Table {
    Table { module: "core.c", identifier: "core_module", directives }
}

/// The Server field under ServerTokens. Tools that read it expect Apache's shape.
#[must_use]
pub fn software(tokens: ServerTokens) -> Box<str> {
    let (major, minor, patch) = crate::SERVER_VERSION;
    match tokens {
        ServerTokens::ProductOnly => "Apache".into(),
        ServerTokens::Major => format!("Apache/{major}").into(),
        ServerTokens::Minor => format!("Apache/{major}.{minor}").into(),
        ServerTokens::Minimal => format!("Apache/{major}.{minor}.{patch}").into(),
        ServerTokens::Os | ServerTokens::Full => {
            format!("Apache/{major}.{minor}.{patch} (Evenkeel)").into()
        }
    }
}
