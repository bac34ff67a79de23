//! The default handler: a file that was found comes in, the response that sends it goes out, with
//! its validators and what the conditions of the request make of them (core.c: default_handler).
//! It never decides whether the client may see the file, and sets no media type.

use super::digests::Digests;
use super::directory::{AcceptPathInfo, Directory, EtagParts};
use super::server::{Server, TraceEnable};
use evenkeel_files::{Contents, Files, Kind, Looked};
use evenkeel_message::{
    Answer, Body, Fields, Level, Method, Name, Notice, Piece, Request, Response, Status,
    Validators, Verdict, evaluate, http_date, quoted,
};
use evenkeel_sys::open::Stat;
use evenkeel_sys::process;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// The note of a request whose file has no entity tag (util_etag.c: ap_set_etag).
const NO_ETAG: &str = "no-etag";

/// A tag is weak until the file has been left alone for this long (util_etag.c: ap_make_etag).
const SETTLED_NS: i64 = 1_000_000_000;

/// Sends a file. `digests` are those that [`super::undigested`] has asked for.
///
/// # Errors
/// The status that Apache gives: 404 for what is absent, a directory, or a path behind a file
/// that AcceptPathInfo does not let through; 403 for what may not be read; 405 and 501 for other
/// methods than GET, HEAD and POST. OPTIONS is an answer too.
pub fn serve_file(
    request: &mut Request,
    files: &Files,
    looked: &Looked,
    server: &Server,
    settings: &Directory,
    digests: Option<Digests>,
) -> Result<Response, Answer> {
    if !matches!(request.resource.method, Method::Get | Method::Head | Method::Post) {
        return Err(other_method(request, server));
    }
    let found = &looked.found;
    match found.kind() {
        Kind::File => {}
        Kind::Directory => {
            return Err(not_found(request, 129, "Attempt to serve directory: "));
        }
        Kind::Absent => return Err(not_found(request, 128, "File does not exist: ")),
        Kind::Other | Kind::Denied(_) => return Err(forbidden(request, None)),
    }
    let says_so = settings.accept_path_info == Some(AcceptPathInfo::On);
    let accepts_path = request.resource.takes_path.unwrap_or(says_so);
    if !request.resource.path_info.is_empty() && !accepts_path {
        return Err(not_found(request, 130, "File does not exist: "));
    }
    if settings.etag.effective() == 0 {
        request.resource.notes.set(NO_ETAG, "omit");
    }
    let contents = files.contents(found).map_err(|error| unreadable(request, &error))?;
    let now_ns = i64::try_from(request.time_us).unwrap_or(i64::MAX).saturating_mul(1000);
    let mut response = request.spare.take().unwrap_or_else(|| Response::new(Status::OK));
    let fields = &mut response.fields;
    describe(&contents, settings, now_ns, digests, fields)
        .map_err(|error| unreadable(request, &error))?;
    if let Some(list) =
        request.resource.negotiated.as_ref().and_then(|choice| choice.validator.as_deref())
    {
        name_list(fields, list);
    }
    request.resource.content.is_by_type = true;
    // The document of an error is sent with the error's status.
    response.status = request.resource.status;
    match meets_conditions(request, &contents, &response.fields, now_ns) {
        Verdict::Proceed => response.body = body(&contents.piece),
        // The fields of the file go with both, as in Apache.
        Verdict::NotModified => response.status = Status::NOT_MODIFIED,
        Verdict::Failed => response.status = Status::PRECONDITION_FAILED,
    }
    Ok(response)
}

/// The methods that the default handler answers, as Allow lists them (http_protocol.c:
/// make_allow).
#[must_use]
pub fn allowed_methods(server: &Server) -> &'static str {
    match server.conduct.trace_enable {
        Some(TraceEnable::Off) => "GET,POST,OPTIONS,HEAD",
        _ => "GET,POST,OPTIONS,HEAD,TRACE",
    }
}

fn body(piece: &Piece) -> Body {
    match piece {
        Piece::Bytes(bytes) => Body::Bytes(bytes.clone()),
        Piece::File { .. } => Body::File(piece.clone()),
    }
}

/// Makes `fields` the header fields of a file: those of the last response where nothing they depend
/// on has changed, so that a request for a known file copies one buffer.
fn describe(
    contents: &Contents,
    settings: &Directory,
    now_ns: i64,
    digests: Option<Digests>,
    fields: &mut Fields,
) -> io::Result<()> {
    let parts = settings.etag.effective();
    let ranges = settings.max_ranges != Some(Some(0));
    // Within the first second the tag is weak, and a time to come is told as now.
    let settled = is_settled(contents, now_ns);
    if settled && contents.copy_head(mark(settings), fields) {
        return Ok(());
    }
    let digests = match digests.filter(|digests| digests.are_of(contents)) {
        Some(digests) => digests,
        None => Digests::of(contents, settings)?,
    };
    fields.clear();
    fields.add("Last-Modified", http_date(last_modified(contents, now_ns)));
    let etag = match digests.sha1 {
        Some(digest) => Some(format!("\"{digest}\"")),
        None => tag(&contents.stat, parts, !settled),
    };
    if let Some(etag) = etag {
        fields.add("ETag", etag);
    }
    fields.add("Accept-Ranges", if ranges { "bytes" } else { "none" });
    if let Some(digest) = digests.md5 {
        fields.add("Content-MD5", digest);
    }
    if settled {
        contents.keep_head(mark(settings), fields);
    }
    Ok(())
}

/// Everything on which the header fields of a file depend besides its contents.
pub(super) fn mark(settings: &Directory) -> u64 {
    let ranges = settings.max_ranges != Some(Some(0));
    let digest = settings.content_digest == Some(true);
    u64::from(settings.etag.effective()) | u64::from(ranges) << 8 | u64::from(digest) << 9
}

/// Whether the file has been left alone for long enough that its tag is strong.
pub(super) fn is_settled(contents: &Contents, now_ns: i64) -> bool {
    now_ns.saturating_sub(contents.modified_ns) > SETTLED_NS
}

/// The entity tag of a list of variants, which is that of the file it is made from.
#[must_use]
pub fn tag_of(stat: &Stat, settings: &Directory, now_us: u64) -> Option<String> {
    let now_ns = i64::try_from(now_us).unwrap_or(i64::MAX).saturating_mul(1000);
    let weak = now_ns.saturating_sub(stat.modified_ns) <= SETTLED_NS;
    tag(stat, settings.etag.effective(), weak)
}

/// The entity tag of what has nothing but a time of its last change, in microseconds.
#[must_use]
pub fn tag_of_time(modified_us: u64, now_us: u64) -> String {
    let settled = now_us.saturating_sub(modified_us) > SETTLED_NS.cast_unsigned() / 1000;
    format!("{}\"{modified_us:x}\"", if settled { "" } else { "W/" })
}

/// Lets a file's tag tell the list of variants too that it was chosen from; where that is weak,
/// so is the whole (util_etag.c: ap_set_etag).
fn name_list(fields: &mut Fields, list: &[u8]) {
    let Some(own) = fields.first("ETag").and_then(|own| own.strip_suffix(b"\"")) else { return };
    let (mark, list) = match list.strip_prefix(b"W/") {
        Some(list) if !own.starts_with(b"W/") => (&b"W/"[..], list),
        Some(list) => (&b""[..], list),
        None => (&b""[..], list),
    };
    let joined = [mark, own, b";", list.get(1..).unwrap_or_default()].concat();
    fields.set("ETag", joined);
}

/// Lets no cache keep a response that was negotiated for a client of HTTP/1.0, which knows no
/// Vary (http_filters.c: ap_http_header_filter).
pub fn forbid_caching(request: &Request, response: &mut Response) {
    let uncached = request.resource.negotiated.as_ref().is_some_and(|choice| choice.uncached);
    if uncached && !response.fields.contains("Expires") {
        let now = i64::try_from(request.time_us / 1_000_000).unwrap_or(i64::MAX);
        response.fields.add("Expires", http_date(now));
    }
}

/// Last-Modified in seconds since 1970, never later than the request (RFC 9110, section 8.8.2.1)
/// nor before 1970.
fn last_modified(contents: &Contents, now_ns: i64) -> i64 {
    told_modified(contents.modified_ns, now_ns)
}

fn told_modified(modified_ns: i64, now_ns: i64) -> i64 {
    modified_ns.min(now_ns).max(0) / 1_000_000_000
}

/// The entity tag that FileETag asks for, with its quotes (util_etag.c: ap_make_etag_ex).
fn tag(stat: &Stat, parts: u8, weak: bool) -> Option<String> {
    // A time before 1970 is written as its two's complement, as Apache does.
    let modified_us = stat.modified_ns.div_euclid(1000).cast_unsigned();
    let values = [
        (EtagParts::INODE, stat.inode),
        (EtagParts::SIZE, stat.size),
        (EtagParts::MTIME, modified_us),
    ];
    let mut tag = String::with_capacity(48);
    for (_, value) in values.iter().filter(|(part, _)| parts & part != 0) {
        let separator = if tag.is_empty() { if weak { "W/\"" } else { "\"" } } else { "-" };
        tag.push_str(separator);
        // Writing to a String cannot fail.
        let _ = write!(tag, "{value:x}");
    }
    (!tag.is_empty()).then(|| tag + "\"")
}

/// Tells the time and the tag of a folder in the fields of its listing. Nothing of them makes an
/// answer conditional, as in Apache.
pub fn track_folder(request: &mut Request, settings: &Directory, stat: &Stat, fields: &mut Fields) {
    let now_ns = i64::try_from(request.time_us).unwrap_or(i64::MAX).saturating_mul(1000);
    let parts = settings.etag.effective();
    let settled = now_ns.saturating_sub(stat.modified_ns) > SETTLED_NS;
    fields.set("Last-Modified", http_date(told_modified(stat.modified_ns, now_ns)));
    match tag(stat, parts, !settled).filter(|_| parts & EtagParts::DIGEST == 0) {
        Some(tag) => fields.set("ETag", tag),
        None if parts == 0 => request.resource.notes.set(NO_ETAG, "omit"),
        None => {}
    }
}

/// What the conditions of the request make of it; none count where an error's document is sent.
fn meets_conditions(
    request: &Request,
    contents: &Contents,
    fields: &Fields,
    now_ns: i64,
) -> Verdict {
    if request.resource.status != Status::OK || request.resource.is_unconditional {
        return Verdict::Proceed;
    }
    let validators = Validators {
        etag: fields.first(Name::ETag),
        modified: Some(last_modified(contents, now_ns)),
    };
    evaluate(request.resource.method, request.fields(), &validators, now_ns / 1_000_000_000)
}

/// Takes out the entity tag of a file for which `FileETag None` holds, whoever has set it
/// (http_filters.c: ap_http_header_filter).
pub fn omit_tag(request: &Request, response: &mut Response) {
    if request.resource.notes.contains(NO_ETAG) {
        response.fields.remove("ETag");
    }
}

/// The answer to methods that send no file.
fn other_method(request: &mut Request, server: &Server) -> Answer {
    let mut fields = Fields::new();
    fields.add("Allow", allowed_methods(server));
    match request.resource.method {
        Method::Options => {
            let mut response = Response::new(Status::OK);
            response.fields = fields;
            Answer::Response(Box::new(response))
        }
        Method::Other => {
            let line = quoted(&request.head.line);
            let text = format!("Invalid method in request {line}");
            request.notify(Notice::new("core", Level::Error, 135, text));
            Status::NOT_IMPLEMENTED.into()
        }
        _ => Answer::with_fields(Status::METHOD_NOT_ALLOWED, fields),
    }
}

fn not_found(request: &mut Request, number: u16, what: &str) -> Answer {
    let text = format!("{what}{}", path_of(request));
    request.notify(Notice::new("core", Level::Info, number, text));
    Status::NOT_FOUND.into()
}

fn forbidden(request: &mut Request, error: Option<&io::Error>) -> Answer {
    let text = format!("file permissions deny server access: {}", path_of(request));
    let notice = Notice::new("core", Level::Error, 132, text);
    request.notify(match error {
        Some(error) => notice.because(error),
        None => notice,
    });
    Status::FORBIDDEN.into()
}

/// The answer where a file cannot be read: 404 where it went away since it was found, 503 where
/// the system has no descriptor or memory left, else 403 as in Apache.
fn unreadable(request: &mut Request, error: &io::Error) -> Answer {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound, _) => not_found(request, 128, "File does not exist: "),
        (_, Some(ENOMEM | ENFILE | EMFILE)) => {
            let limit = process::descriptor_limit(error);
            let text = format!("cannot open {}: {error}{limit}", path_of(request));
            request.notify(Notice::own("core", Level::Crit, text));
            Status::SERVICE_UNAVAILABLE.into()
        }
        _ => forbidden(request, Some(error)),
    }
}

/// The file with the path behind it, for the log.
fn path_of(request: &Request) -> String {
    let mut path = request.resource.file.as_os_str().as_bytes().to_vec();
    path.extend_from_slice(&request.resource.path_info);
    quoted(&path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_files::{Limits, Policy};
    use evenkeel_message::{FileName, Peer, RequestHead};
    use std::path::PathBuf;

    struct Fixture {
        files: Files,
        root: PathBuf,
        _folder: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = std::fs::canonicalize(folder.path()).unwrap();
            std::fs::create_dir(root.join("d")).unwrap();
            let file = std::fs::File::create(root.join("a.txt")).unwrap();
            std::io::Write::write_all(&mut &file, &b"0123456789".repeat(10)).unwrap();
            file.set_modified(
                std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_704_164_645),
            )
            .unwrap();
            let (files, _) = Files::new(Limits::default(), Policy::Told);
            Self { files, root, _folder: folder }
        }

        fn ask(
            &self,
            method: &str,
            name: &str,
            fields: &[(&str, &str)],
            settings: &Directory,
        ) -> (Result<Response, Answer>, Request) {
            let line = format!("{method} /{name} HTTP/1.1");
            let mut head = RequestHead {
                line: line.into_bytes(),
                method: Method::parse(method.as_bytes()),
                ..RequestHead::default()
            };
            for (name, value) in fields {
                head.fields.add(name, value);
            }
            let address = "127.0.0.1:80".parse().unwrap();
            let peer = Peer { client: address, local: address };
            let mut request = Request::new(head, peer, evenkeel_sys::clock::realtime_us());
            request.resource.file = FileName::new(self.root.join(name));
            let looked = self.files.look_up(request.resource.file.as_bytes());
            if looked.found.kind() != Kind::Directory {
                request.resource.path_info = request.resource.file.split_off(looked.rest);
            }
            let server = Server::default();
            (serve_file(&mut request, &self.files, &looked, &server, settings, None), request)
        }

        fn status(&self, method: &str, name: &str, fields: &[(&str, &str)]) -> (u16, String) {
            let (result, request) = self.ask(method, name, fields, &Directory::default());
            let notice = request.notices.first().map(|notice| notice.text.to_string());
            let notice = notice.unwrap_or_default().replace(self.root.to_str().unwrap(), "");
            let status = match result {
                Ok(response) => response.status,
                Err(Answer::Response(response)) => response.status,
                Err(Answer::Status(status, _)) => status,
                Err(Answer::Redirect(_)) => panic!("redirected"),
            };
            (status.code(), notice)
        }
    }

    const TAG: &str = "\"64-60dedc04dd340\"";

    #[test]
    fn a_file_is_described_as_apache_does() {
        let site = Fixture::new();
        // The second answer comes from the fields that the first has left.
        for _ in 0..2 {
            let (result, _) = site.ask("GET", "a.txt", &[], &Directory::default());
            let response = result.unwrap();
            let mut head = Vec::new();
            response.fields.write(&mut head);
            assert_eq!(
                String::from_utf8(head).unwrap(),
                "Last-Modified: Tue, 02 Jan 2024 03:04:05 GMT\r\n\
                 ETag: \"64-60dedc04dd340\"\r\nAccept-Ranges: bytes\r\n"
            );
            assert_eq!(response.body.length(), Some(100));
        }
    }

    #[test]
    fn without_parts_no_tag_may_be_set_either() {
        let site = Fixture::new();
        let etag = EtagParts { set: Some(0), ..EtagParts::default() };
        let settings = Directory { etag, ..Directory::default() };
        let (response, request) = site.ask("GET", "a.txt", &[], &settings);
        let mut response = response.unwrap();
        response.fields.set("ETag", "\"by-hand\"");
        omit_tag(&request, &mut response);
        assert!(!response.fields.contains("ETag"));
    }

    #[test]
    fn the_tag_is_made_of_what_file_etag_names() {
        let site = Fixture::new();
        let tag = |parts: u8| {
            let etag = EtagParts { set: Some(parts), ..EtagParts::default() };
            let settings = Directory { etag, ..Directory::default() };
            let response = site.ask("GET", "a.txt", &[], &settings).0.unwrap();
            response.fields.first("ETag").map(|tag| String::from_utf8(tag.to_vec()).unwrap())
        };
        assert_eq!(tag(0), None);
        assert_eq!(tag(EtagParts::SIZE).unwrap(), "\"64\"");
        let all = tag(EtagParts::INODE | EtagParts::SIZE | EtagParts::MTIME).unwrap();
        assert!(all.ends_with("-64-60dedc04dd340\"") && all.starts_with('"'), "{all}");
        assert_eq!(tag(EtagParts::DIGEST).unwrap(), "\"KbDnh4JxZF//t+7H20p0c6HAC8E=\"");
        let settings = Directory { content_digest: Some(true), ..Directory::default() };
        let response = site.ask("GET", "a.txt", &[], &settings).0.unwrap();
        assert_eq!(response.fields.first("Content-MD5"), Some(&b"egiwfoRkFwPl8sg2qlmhcA=="[..]));
    }

    #[test]
    fn a_tag_is_weak_while_the_file_is_young() {
        let site = Fixture::new();
        std::fs::write(site.root.join("new"), "text").unwrap();
        let response = site.ask("GET", "new", &[], &Directory::default()).0.unwrap();
        assert!(response.fields.first("ETag").unwrap().starts_with(b"W/\"4-"));
        let file = std::fs::File::create(site.root.join("future")).unwrap();
        file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(9999))
            .unwrap();
        let response = site.ask("GET", "future", &[], &Directory::default()).0.unwrap();
        let told = response.fields.first("Last-Modified").unwrap();
        let now = (evenkeel_sys::clock::realtime_us() / 1_000_000).cast_signed();
        assert!(evenkeel_message::parse_http_date(told, now).unwrap() <= now);
        assert!(response.fields.first("ETag").unwrap().starts_with(b"W/\"0-"));
    }

    #[test]
    fn methods_and_what_stands_there_decide_the_status() {
        let site = Fixture::new();
        let none = (200, String::new());
        assert_eq!(site.status("GET", "a.txt", &[]), none);
        assert_eq!(site.status("POST", "a.txt", &[]), none);
        assert_eq!(site.status("OPTIONS", "none", &[]), none);
        assert_eq!(site.status("PUT", "none", &[]), (405, String::new()));
        let (status, text) = site.status("BREW", "a.txt", &[]);
        assert_eq!((status, &*text), (501, "Invalid method in request BREW /a.txt HTTP/1.1"));
        for (name, text) in [
            ("none/x", "File does not exist: /none/x"),
            ("d/", "Attempt to serve directory: /d/"),
            ("a.txt/info", "File does not exist: /a.txt/info"),
        ] {
            assert_eq!(site.status("GET", name, &[]), (404, text.to_string()));
        }
        let settings =
            Directory { accept_path_info: Some(AcceptPathInfo::On), ..Directory::default() };
        assert!(site.ask("GET", "a.txt/info", &[], &settings).0.is_ok());
        let (result, _) = site.ask("DELETE", "a.txt", &[], &settings);
        let Err(Answer::Status(_, Some(fields))) = result else { panic!("deleted") };
        assert_eq!(fields.first("Allow"), Some(&b"GET,POST,OPTIONS,HEAD,TRACE"[..]));
    }

    #[test]
    fn conditions_are_heeded_unless_an_errors_document_is_sent() {
        let site = Fixture::new();
        assert_eq!(site.status("GET", "a.txt", &[("If-None-Match", TAG)]).0, 304);
        assert_eq!(site.status("POST", "a.txt", &[("if-none-match", TAG)]).0, 412);
        assert_eq!(site.status("GET", "a.txt", &[("If-Match", "\"x\"")]).0, 412);
        let date = "Tue, 02 Jan 2024 03:04:05 GMT";
        let (result, _) =
            site.ask("GET", "a.txt", &[("If-Modified-Since", date)], &Directory::default());
        let response = result.unwrap();
        assert_eq!((response.status, response.body.length()), (Status::NOT_MODIFIED, Some(0)));
        assert_eq!(response.fields.first("ETag"), Some(TAG.as_bytes()));
    }
}
