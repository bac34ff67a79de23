//! The media type of a file whose name does not tell it (mod_mime_magic): that of another revision
//! of the file, or what its contents say.

use crate::look;
use crate::serve::Pipeline;
use evenkeel_files::{Kind, Looked};
use evenkeel_message::{FileName, Level, Notice, Request, Status, quoted};
use evenkeel_modules::mime_magic::{self, Rules};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;

/// Whether the name of a file leaves its type open, and its contents are asked.
pub(crate) fn is_wanted(pipeline: &Pipeline, request: &Request, looked: &Looked) -> bool {
    matches!(looked.found.kind(), Kind::File | Kind::Other)
        && request.resource.content.media_type.is_none()
        && pipeline.site.server(request.server).settings.mime_magic.rules().is_some()
}

/// Finds the type (mod_mime_magic.c: magic_find_ct).
///
/// # Errors
/// 500 if the file cannot be read although it can be opened.
pub(crate) async fn find_type(
    pipeline: &Rc<Pipeline>,
    mut request: Box<Request>,
    looked: &Looked,
) -> (Box<Request>, Result<(), Status>) {
    let is_known;
    (request, is_known) = by_revision(pipeline, request).await;
    if is_known {
        return (request, Ok(()));
    }
    let server = pipeline.site.server(request.server);
    let Some(rules) = server.settings.mime_magic.rules() else { return (request, Ok(())) };
    let result = by_contents(pipeline, &mut request, looked, rules);
    (request, result)
}

/// Gives a file whose name ends with `@` and a number the type of the file without them, if there
/// is such a file.
async fn by_revision(pipeline: &Rc<Pipeline>, mut request: Box<Request>) -> (Box<Request>, bool) {
    let name = request.resource.file.as_bytes();
    let Some(file) = mime_magic::without_revision(name).map(<[u8]>::to_vec) else {
        return (request, false);
    };
    let name = file.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let path = request.resource.path.beside(name, b"");
    let file = FileName::new(OsStr::from_bytes(&file));
    let glance;
    (request, glance) = look::at_file(pipeline, request, path, file).await;
    request.looks = request.looks.saturating_add(glance.looks);
    let Some(media_type) = glance.content.media_type else { return (request, false) };
    let content = &mut request.resource.content;
    content.media_type = Some(media_type);
    if glance.content.encoding.is_some() {
        content.encoding = glance.content.encoding;
    }
    if !glance.content.languages.is_empty() {
        content.languages = glance.content.languages;
    }
    (request, true)
}

fn by_contents(
    pipeline: &Pipeline,
    request: &mut Request,
    looked: &Looked,
    rules: &Rules,
) -> Result<(), Status> {
    if looked.found.kind() == Kind::Other {
        mime_magic::describe_special(&mut request.resource.content);
        return Ok(());
    }
    let contents = pipeline.walker.borrow().files.contents(&looked.found);
    let contents = match contents {
        Ok(contents) => contents,
        Err(error) => {
            mime_magic::tell_unreadable(request, &error);
            return Ok(());
        }
    };
    let described = mime_magic::describe(&mut request.resource.content, &contents.piece, rules);
    described.map_err(|error| {
        let text = format!("read failed: {}", quoted(request.resource.file.as_bytes()));
        request.notify(Notice::new("mime_magic", Level::Error, 1513, text).because(&error));
        Status::INTERNAL_SERVER_ERROR
    })
}
