//! mod_autoindex: the listing of a folder that has no index. The settings of its sections, what
//! stands in the folder and what looks at its entries came upon go in; the page goes out. Which
//! entries a client may see is not decided here: `pipeline` takes a look at each.

mod cell;
mod directives;
mod entry;
mod folder;
mod options;
mod order;
mod page;
mod query;
mod rows;
mod rule;
mod settings;
mod title;

pub use crate::{NoSettings as Server, NoSettings as Global};
pub use directives::MODULE;
pub use entry::Entry;
pub use folder::{Candidate, Folder};
pub use page::{Insert, Listing};
pub use query::Asked;
pub use settings::{Directory, Key, Order, Said, Width};

use crate::beside::Beside;
use crate::core;
use crate::core::FOLDER;
use evenkeel_files::Found;
use evenkeel_message::{
    Answer, Body, Level, Method, Notice, Piece, Request, Response, Status, quoted_path,
};
use options::Flags;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The largest file of text that is shown before or behind a listing, in bytes.
const MOST_TEXT: u64 = 8 << 20;

/// The charset of a listing that is told none (mod_autoindex.c: index_directory).
const DEFAULT_CHARSET: &str = "ISO-8859-1";

/// Whether a request for a folder is one for its listing. Other methods and handlers are none of
/// this module's: the default handler, where it is named, lists no folder either
/// (mod_autoindex.c: handle_autoindex).
#[must_use]
pub fn is_wanted(request: &Request) -> bool {
    let handler = request.resource.content.handler.as_deref();
    handler.is_none_or(|name| name == FOLDER)
        && matches!(request.resource.method, Method::Get | Method::Head)
}

/// The answer where Options does not say Indexes. `index_names` are those that were looked for, if
/// any were.
pub fn refuse(request: &mut Request, index_names: Option<&[&str]>) -> Answer {
    let looked_for = index_names.filter(|_| request.resource.path.ends_with(b"/"));
    let names = looked_for.map_or("none".into(), |names| names.join(","));
    let text = format!(
        "Cannot serve directory {}: No matching DirectoryIndex ({names}) found, and \
         server-generated directory index forbidden by Options directive",
        quoted_path(&request.resource.file)
    );
    request.notify(Notice::new("autoindex", Level::Error, 1276, text));
    Status::FORBIDDEN.into()
}

/// The answer where a folder cannot be opened.
pub fn unreadable(request: &mut Request, error: &io::Error) -> Answer {
    let text = format!("Can't open directory for index: {}", quoted_path(&request.resource.file));
    request.notify(Notice::new("autoindex", Level::Error, 1275, text).because(error));
    Status::FORBIDDEN.into()
}

/// The response without its body: the type, and what tells of changes where TrackModified wants
/// that.
#[must_use]
pub fn head(
    request: &mut Request,
    core: &core::Directory,
    said: &Said,
    folder: &Found,
) -> Response {
    let mut response = Response::new(request.resource.status);
    let media_type = said.media_type.as_deref().unwrap_or("text/html");
    let content_type = match said.charset.as_deref().unwrap_or(DEFAULT_CHARSET) {
        "" => media_type.to_owned(),
        charset => format!("{media_type};charset={charset}"),
    };
    response.fields.set("Content-Type", content_type);
    if said.has(Flags::TRACK_MODIFIED)
        && let Some(stat) = folder.stat()
    {
        core::track_folder(request, core, &stat, &mut response.fields);
    }
    response
}

/// Whether entries are listed that the client may not see.
#[must_use]
pub fn shows_forbidden(asked: &Asked) -> bool {
    asked.flags.has(Flags::SHOW_FORBIDDEN)
}

/// Whether HTML files are read for their titles.
#[must_use]
pub fn scans_titles(asked: &Asked) -> bool {
    asked.flags.has(Flags::SCAN_HTML_TITLES)
}

/// Reads a folder; none where nothing comes of that (see [`Beside::perform`]).
pub async fn read(
    beside: &Beside,
    folder: PathBuf,
    said: Arc<Said>,
    asked: Asked,
) -> Option<io::Result<Folder>> {
    let what = format!("reading the folder {} for its listing", quoted_path(&folder));
    beside.perform(what, move |progress| folder::read(&folder, &said, &asked, progress)).await
}

/// Opens a folder, to see whether it can be read; none as for [`read`].
pub async fn open(beside: &Beside, folder: PathBuf) -> Option<io::Result<()>> {
    let what = format!("opening the folder {}", quoted_path(&folder));
    beside.perform(what, move |_| Some(folder::open(&folder))).await
}

/// Makes the body of a page; none as for [`read`].
pub async fn render(beside: &Beside, listing: Listing) -> Option<Body> {
    let what = format!("making the listing of {}", quoted_path(&listing.folder));
    let mut pieces = beside.perform(what, move |progress| listing.render(progress)).await?;
    Some(match (pieces.pop(), pieces.is_empty()) {
        (Some(Piece::Bytes(bytes)), true) => Body::Bytes(bytes),
        (last, _) => {
            pieces.extend(last);
            Body::Pieces(pieces)
        }
    })
}

/// Lets the other connections of the thread have their turn.
pub async fn pause() {
    tokio::task::yield_now().await;
}

/// What a file that was found for HeaderName or ReadmeName is to the page; nothing where it is
/// neither HTML nor text.
#[must_use]
pub fn insert(media_type: &[u8], piece: Piece) -> Insert {
    let is_text = media_type.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"text/"));
    if title::is_html(media_type) {
        Insert::Html(piece)
    } else if is_text && piece.len() <= MOST_TEXT {
        Insert::Text(piece)
    } else {
        Insert::Nothing
    }
}
