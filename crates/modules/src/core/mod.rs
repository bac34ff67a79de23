//! The core: what every server needs before any module (Apache: core.c). Server identity, the
//! sections and their merge, options and overrides, limits, error documents.

mod client;
mod content;
mod context;
mod digests;
mod directory;
mod directory_directives;
mod error_document;
mod facts;
mod global;
mod lookup;
mod naming;
mod options;
mod output_filter;
mod ranges;
mod refusal;
pub(crate) mod sections;
mod server;
mod server_directives;
mod settings;
mod static_handler;
mod vary;

pub use client::{AddressFault, in_domain, known_names, parse_network, verified_name};
pub use content::{describe_content, name_type, override_type};
pub use context::{CHECKED_BODY_NOTE, DOCUMENT_ROOT_NOTE, RequestContext};
pub use digests::{Digests, undigested, wants_digests};
pub use directory::{AcceptPathInfo, Directory, ErrorDocuments, EtagParts, OnOff, Tristate};
pub use directory_directives::is_url;
pub use error_document::ErrorDocument;
pub use facts::{file_fact, time_fact};
pub use global::{Global, VirtualHost};
pub use lookup::look_up_names;
pub use naming::{public_name, public_port, public_url, server_name, wildcard_match};
pub use options::{AllowOverride, OptionChange, Options};
pub use ranges::cut_to_ranges;
pub use refusal::{cited, denied_by, listed, refused_target};
pub use sections::{Kind, Match, Section};
pub use server::{
    Aliases, Conduct, HttpProtocol, Sections, Server, ServerTokens, TraceEnable, is_logged,
};
pub use server_directives::parse_interval;
pub use settings::CoreSettings;
pub use static_handler::{
    allowed_methods, forbid_caching, omit_tag, serve_file, tag_of, tag_of_time, track_folder,
};
pub use vary::{merge_vary, settle_vary};

use crate::{Active, Module};

/// The handler of folders, which is their media type too (httpd.h: DIR_MAGIC_TYPE).
pub const FOLDER: &[u8] = b"httpd/unix-directory";

/// The core.
pub const MODULE: Module = Module {
    file: "core.c",
    identifier: "core_module",
    active: Active::Always,
    page: "core",
    subject: "What every site needs: sections, virtual hosts, files, limits, error pages.",
    remarks: &[
        "Where Apache differs from RFC 9110, the RFC holds: a Range is for GET alone, \
         If-Unmodified-Since is ignored beside If-Match, and a date of 1970 or before is a date.",
        "A redirect or a refusal goes before LimitRequestBody.",
        "A change of a file acts on the next request, and so does that of a .htaccess file. A \
         change that the kernel tells nobody of acts within a second: a write through a shared \
         mapping, through a hard link that was made after the file was read, or through a \
         descriptor whose name is gone (O_TMPFILE, or a link that was removed); a write into a \
         layer below an overlay; a file system that is mounted over a folder. After such a change \
         of an access rule, reload the server: that acts at once.",
        "LAST_MODIFIED in conditions is the time of the file. Apache still has 1970 there.",
        "Under prefork and worker, a response has `Connection: close` while other connections \
         wait for a worker, whatever KeepAlive says: at once where clients pause between \
         requests, else after eight requests or a tenth of a second. A connection that is idle \
         for three quarters of a second meanwhile is closed. Apache keeps connections for \
         KeepAliveTimeout, and others wait as long.",
        "-U and -F of conditions lead to one another four times at most. Where an answer depends \
         on questions beyond that, there is none, and the request is answered with 500: Apache \
         asks on up to ten times, and each time may turn the answer round.",
        "What cannot be decided lets nobody through: a pattern or an expression that takes too \
         many steps is answered with 500. Apache takes it for one that does not hold.",
    ],
    directives: &[
        sections::DIRECTIVES,
        server_directives::DIRECTIVES,
        directory_directives::DIRECTIVES,
    ],
    provides: output_filter::OUTPUT_FILTERS,
};

/// The protocol, whose directives are the core's.
pub const HTTP: Module = Module {
    file: "http_core.c",
    identifier: "http_module",
    active: Active::Always,
    page: "core",
    subject: "",
    remarks: &[],
    directives: &[],
    provides: &[],
};

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
