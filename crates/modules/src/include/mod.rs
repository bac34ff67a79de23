//! mod_include: pages whose elements are replaced as they are sent (server-side includes). This
//! module parses pages and acts on the elements that need nothing else; the pipeline drives it, and
//! makes the subrequests, runs the programs and evaluates the expressions of a page.

mod directives;
mod legacy;
mod page;
mod parser;
mod text;
mod variables;

pub use crate::NoSettings as Global;
pub use directives::MODULE;
pub use legacy::{Answers, Expression, Invalid};
pub use page::{MOST_COMMAND, Matched, Page, PageSettings, Wait, valued};
pub use parser::{Argument, Element, Tags};
pub use text::{decode_entities, decode_url};
pub use variables::{Document, Facts, PageVariables};

use crate::core::Options;
use crate::{Effect, Means, Merge, OutputFilter, Shared};
use evenkeel_message::{
    Answer, Body, FilterPosition, Level, Name, Notice, Piece, Request, Response, quoted,
};
use evenkeel_sys::open::Stat;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock};

/// The filter of pages.
pub const INCLUDES: OutputFilter = OutputFilter {
    name: "INCLUDES",
    position: FilterPosition::RESOURCE,
    begin: Some(begin),
    act,
    external: None,
};

/// The handler of pages (mod_include.c: include_fixup).
const HANDLER: &[u8] = b"server-parsed";

/// XBitHack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XBitHack {
    /// The permissions of a file mean nothing.
    Off,
    /// A file of HTML that its owner may execute is a page.
    On,
    /// The same, and a page that its group may execute has a Last-Modified.
    Full,
}

/// What a section says of pages. `None` as a rule, so that other requests pay nothing for it.
#[derive(Clone, Debug, Default)]
pub struct Directory(Option<Arc<Said>>);

/// The directives of a section.
#[derive(Clone, Debug, Default)]
struct Said {
    x_bit_hack: Option<XBitHack>,
    error_message: Option<Arc<[u8]>>,
    time_format: Option<Arc<[u8]>>,
    undefined: Option<Arc<[u8]>>,
    legacy: Option<bool>,
    last_modified: Option<bool>,
    etag: Option<bool>,
}

impl Merge for Said {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(
            base, over;
            x_bit_hack, error_message, time_format, undefined, legacy, last_modified, etag
        )
    }
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        match (&base.0, &over.0) {
            (_, None) => base.clone(),
            (None, Some(_)) => over.clone(),
            (Some(base), Some(over)) => Self(Some(Arc::new(Said::merge(base, over)))),
        }
    }
}

/// The tags of a server. Hosts that configure none share those of the main server.
#[derive(Clone, Debug, Default)]
pub struct TagNames {
    start: Option<Arc<[u8]>>,
    end: Option<Arc<[u8]>>,
}

crate::unsaid!(TagNames);

impl Merge for TagNames {
    // A host does not inherit the tags (mod_include.c: there is no merge of servers).
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; start, end)
    }
}

/// The tags of a server that configures none.
const START: &[u8] = b"<!--#";
const END: &[u8] = b"-->";

/// What a server says, which hosts share.
pub type Server = Shared<TagNames>;

impl TagNames {
    /// The tags.
    #[must_use]
    pub fn tags(&self) -> Arc<Tags> {
        static USUAL: LazyLock<Arc<Tags>> = LazyLock::new(|| Arc::new(Tags::new(START, END)));
        if self.start.is_none() && self.end.is_none() {
            return Arc::clone(&USUAL);
        }
        let (start, end) = (self.start.as_deref(), self.end.as_deref());
        Arc::new(Tags::new(start.unwrap_or(START), end.unwrap_or(END)))
    }
}

impl Directory {
    fn said(&self) -> Option<&Said> {
        self.0.as_deref()
    }

    fn change(&mut self) -> &mut Said {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    /// The settings of a page of this section.
    #[must_use]
    pub fn page(&self, file: &[u8], options: Options, knows_exec: bool) -> PageSettings {
        let default = Said::default();
        let said = self.said().unwrap_or(&default);
        let text =
            |said: &Option<Arc<[u8]>>, default: &[u8]| said.as_deref().unwrap_or(default).to_vec();
        PageSettings {
            error_message: text(
                &said.error_message,
                b"[an error occurred while processing this directive]",
            ),
            time_format: text(&said.time_format, b"%A, %d-%b-%Y %H:%M:%S %Z"),
            undefined: text(&said.undefined, b"(none)"),
            is_legacy: said.legacy == Some(true),
            may_exec: options.has(Options::INCLUDES_EXEC),
            knows_exec,
            file: file.to_vec(),
        }
    }

    fn x_bit_hack(&self) -> XBitHack {
        self.said().and_then(|said| said.x_bit_hack).unwrap_or(XBitHack::Off)
    }

    /// Whether XBitHack is on, so that [`choose`] needs the permissions of files.
    #[must_use]
    pub fn looks_at_permissions(&self) -> bool {
        self.x_bit_hack() != XBitHack::Off
    }
}

/// Adds the filter of pages to a request whose handler or permissions ask for it
/// (mod_include.c: include_fixup).
pub fn choose(request: &mut Request, settings: &Directory, stat: Option<Stat>) {
    const OWNER_EXECUTES: u32 = 0o100;
    let content = &mut request.resource.content;
    let media_type = content.media_type.as_deref().unwrap_or_default();
    if content.handler.as_deref() == Some(HANDLER) {
        if media_type.is_empty() {
            content.media_type = Some(b"text/html"[..].into());
        }
        content.handler = Some(b"default-handler"[..].into());
    } else {
        let executes = stat.is_some_and(|stat| stat.mode & OWNER_EXECUTES != 0);
        let is_page = settings.looks_at_permissions() && executes;
        if !is_page || !media_type.starts_with(b"text/html") {
            return;
        }
    }
    content.output_filters = Some(match content.output_filters.take() {
        None => INCLUDES.name.as_bytes().into(),
        Some(before) => [&before, &b";"[..], INCLUDES.name.as_bytes()].concat().into(),
    });
}

/// Whether XBitHack Full lets a page have the time of its file, because its group may execute it.
fn has_time(settings: &Directory, stat: Option<Stat>) -> bool {
    const GROUP_EXECUTES: u32 = 0o010;
    let executes = stat.is_some_and(|stat| stat.mode & GROUP_EXECUTES != 0);
    settings.x_bit_hack() == XBitHack::Full && executes
}

/// The name of a user. This blocks while the system looks it up.
#[must_use]
pub fn owner_name(uid: u32) -> Option<String> {
    evenkeel_sys::identity::user_numbered(uid).ok().flatten().map(|user| user.name)
}

/// Reads at most `most` bytes of a file, from `offset` on. This blocks.
///
/// # Errors
/// Those of pread(2).
pub fn read_file(file: &OwnedFd, offset: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; most];
    let count = evenkeel_sys::open::read_at(file, &mut buffer, offset)?;
    buffer.truncate(count);
    Ok(buffer)
}

/// Notes that a page has no validators of its file (mod_include.c: includes_setup).
fn begin(request: &mut Request, means: &Means<'_>) {
    let settings = &means.sections.include;
    if !has_time(settings, means.subrequests.stat(request)) {
        request.resource.is_unconditional = true;
    }
    if settings.said().and_then(|said| said.etag) != Some(true) {
        request.resource.notes.set("no-etag", "");
    }
}

/// Has a page parsed as it is sent (mod_include.c: includes_filter).
fn act(
    request: &mut Request,
    means: &Means<'_>,
    response: &mut Response,
) -> Result<Effect, Answer> {
    if !means.sections.core.options.effective().has(Options::INCLUDES) {
        let text = format!(
            "mod_include: Options +Includes (or IncludesNoExec) wasn't set, INCLUDES filter \
             removed: {}",
            quoted(&request.resource.path)
        );
        request.notify(Notice::new("include", Level::Warn, 1374, text));
        return Ok(Effect::Nothing);
    }
    let settings = &means.sections.include;
    let stat = means.subrequests.stat(request);
    let modified = stat.map(|stat| stat.modified_ns / 1_000_000_000);
    let keeps = settings.said().and_then(|said| said.last_modified) == Some(true);
    let fields = &mut response.fields;
    fields.remove(Name::ContentLength);
    let set_time = |fields: &mut evenkeel_message::Fields| {
        if let Some(modified) = modified {
            let now = i64::try_from(request.time_us / 1_000_000).unwrap_or(i64::MAX);
            fields.set(Name::LastModified, evenkeel_message::http_date(modified.min(now)));
        }
    };
    if keeps {
        if !fields.contains(Name::LastModified) {
            set_time(fields);
        }
    } else if has_time(settings, stat) {
        set_time(fields);
    } else {
        fields.remove(Name::LastModified);
    }
    let tags = means.server.include.tags();
    let is_plain = match &response.body {
        Body::Empty => true,
        Body::Bytes(bytes) | Body::File(Piece::Bytes(bytes)) => tags.find(bytes).is_none(),
        Body::File(_) => stat.is_some_and(|stat| means.subrequests.is_plain(request, stat)),
        _ => false,
    };
    if is_plain {
        return Ok(Effect::Nothing);
    }
    let body = std::mem::take(&mut response.body);
    response.body = means.subrequests.parse_page(request, tags, body);
    response.is_own_body = true;
    Ok(Effect::Changed)
}
