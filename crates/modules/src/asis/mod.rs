//! mod_asis: files that begin with their own header fields (the handler `send-as-is`). The contents
//! of a file come in, the response that they describe goes out.

pub use crate::{NoSettings as Directory, NoSettings as Global, NoSettings as Server};

use crate::script::{Output, respond};
use crate::{Active, Module};
use evenkeel_message::{
    Answer, Body, Fields, Level, Method, Notice, Piece, Request, Response, Status, quoted,
};
use evenkeel_proto::script::{BadHead, HeadEnd, MOST_HEAD, ScriptHead, parse_script_head};
use evenkeel_sys::open;
use std::io;

/// mod_asis.
pub const MODULE: Module = Module {
    file: "mod_asis.c",
    identifier: "asis_module",
    active: Active::WhenNamed,
    page: "mod_asis",
    subject: "Files that begin with their own header fields: the handler `send-as-is`.",
    remarks: &[
        "The head of a file may have 64 KiB. A file without an empty line is a head alone.",
        "A file with a malformed head is answered with 500. Apache sends an empty body.",
        "HEAD is told the length of the body.",
        "The media type `httpd/send-as-is` selects no handler. Use `AddHandler send-as-is`.",
    ],
    directives: &[],
    provides: &[],
};

/// Whether a request is for a file that is sent as it is (mod_asis.c: asis_handler).
#[must_use]
pub fn is_wanted(request: &Request) -> bool {
    // HEAD is a GET without a body here.
    matches!(request.resource.method, Method::Get | Method::Head)
        && request.resource.content.handler.as_deref() == Some(b"send-as-is")
}

/// The answer where there is no file.
pub fn absent(request: &mut Request) -> Answer {
    let text = format!("File does not exist: {}", quoted(request.resource.file.as_bytes()));
    request.notify(Notice::new("asis", Level::Info, 1233, text));
    Status::NOT_FOUND.into()
}

/// The answer where the file cannot be read.
pub fn unreadable(request: &mut Request, error: &io::Error) -> Answer {
    let file = quoted(request.resource.file.as_bytes()).into_owned();
    let text = format!("file permissions deny server access: {file}");
    request.notify(Notice::new("asis", Level::Error, 1234, text).because(error));
    Status::FORBIDDEN.into()
}

/// The response that a file describes.
///
/// # Errors
/// 500 if the head of the file is malformed, 403 if it cannot be read. A Location that is a path
/// redirects the request within the server.
pub fn respond_as_is(request: &mut Request, contents: &Piece) -> Result<Response, Answer> {
    let beginning = match contents {
        Piece::Bytes(bytes) => bytes.clone(),
        Piece::File { file, offset, .. } => {
            let mut beginning = vec![0; MOST_HEAD];
            let read = open::read_at(file, &mut beginning, *offset);
            beginning.truncate(read.map_err(|error| unreadable(request, &error))?);
            beginning.into()
        }
    };
    let end = HeadEnd::default().find(&beginning);
    let mut head = beginning.get(..end.unwrap_or(beginning.len())).unwrap_or_default().to_vec();
    if end.is_none() && beginning.len() as u64 == contents.len() {
        // The file is a head alone.
        head.extend_from_slice(b"\n\n");
    }
    let head = parse_script_head(&head).map_err(|bad| refuse(request, &bad))?;
    if let Some(target) = inner_target(&head) {
        return Err(redirect(request, &head, target));
    }
    let end = end.unwrap_or(beginning.len()) as u64;
    let body = Body::File(contents.slice(end, contents.len()));
    // The conditions of the request are not compared with the fields of the file.
    request.resource.is_unconditional = true;
    let mut response = respond(request, Output { head, body, module: "asis" })?;
    (response.is_own_body, response.is_whole) = (false, false);
    Ok(response)
}

/// The path of a Location that leads to another path of this server.
fn inner_target(head: &ScriptHead) -> Option<Vec<u8>> {
    let number = head.status.as_ref().map_or(200, |(number, _)| *number);
    let leads = number == 200 || (300..400).contains(&number) && number != 304;
    let location = head.fields.first("Location")?;
    (leads && location.first() == Some(&b'/')).then(|| location.to_vec())
}

/// Redirects the request within the server, whatever its method was.
fn redirect(request: &mut Request, head: &ScriptHead, target: Vec<u8>) -> Answer {
    let mut always = Fields::new();
    head.always.iter().for_each(|(name, value)| always.set(name, value));
    head.cookies.iter().for_each(|cookie| always.add("Set-Cookie", cookie));
    request.resource.always.overlay(&always);
    request.resource.method = Method::Get;
    Answer::Redirect(target)
}

fn refuse(request: &mut Request, bad: &BadHead) -> Answer {
    let name = quoted(request.resource.file.last()).into_owned();
    let text = match bad {
        BadHead::Nothing | BadHead::Premature => {
            format!("{name}: the head of the file does not end")
        }
        BadHead::NoColon(line) => {
            format!("{name}: a line of the head has no colon: {}", quoted(line))
        }
    };
    request.notify(Notice::own("asis", Level::Error, text));
    Status::INTERNAL_SERVER_ERROR.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use evenkeel_message::{Peer, RequestHead};
    use std::io::Write as _;
    use std::sync::Arc;

    fn request() -> Request {
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        Request::new(RequestHead::default(), peer, 0)
    }

    #[test]
    fn a_file_describes_its_response() {
        let text = b"Status: 301 Moved\nLocation: http://other.test/\n\nbody";
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        let length = text.len() as u64;
        let large = Piece::File { file: Arc::new(file.into()), offset: 0, length };
        for contents in [Piece::Bytes(Bytes::from_static(text)), large] {
            let response = respond_as_is(&mut request(), &contents).unwrap();
            assert_eq!(response.status.code(), 301);
            assert_eq!(response.fields.first("Location"), Some(&b"http://other.test/"[..]));
            assert_eq!(response.body.length(), Some(4));
        }
    }

    #[test]
    fn a_path_redirects_within_the_server_and_a_bad_head_is_refused() {
        let answer = |text: &'static str| {
            let mut request = request();
            let contents = Piece::Bytes(Bytes::from_static(text.as_bytes()));
            let answer = respond_as_is(&mut request, &contents).unwrap_err();
            (answer, request.notices.len())
        };
        let (answer_to_path, _) = answer("Location: /a\n\n");
        assert!(matches!(answer_to_path, Answer::Redirect(path) if path == b"/a"));
        for bad in ["no colon\n\n", "no colon"] {
            let (refused, notices) = answer(bad);
            let is_error = matches!(refused, Answer::Status(Status::INTERNAL_SERVER_ERROR, _));
            assert!(is_error && notices == 1, "{bad}");
        }
    }
}
