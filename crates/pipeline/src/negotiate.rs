//! Negotiated resources: a request for a file that is not there, under `Options MultiViews`, or
//! for a type map goes in; the request for the variant that mod_negotiation chooses, or its 300 or
//! 406, comes out. It judges no variant and looks at each by the phases alone.

use crate::frames::MaybeReady;
use crate::look::{self, Aside, Seen, VARIANT_LOOKS};
use crate::phases;
use crate::serve::Pipeline;
use crate::site::Plan;
use crate::way::symlink_rule;
use evenkeel_files::{Kind, Looked, SymlinkRule};
use evenkeel_message::{
    Admitted, Answer, Body, Level, Method, Negotiated, Notice, Piece, Prepared, Request, Response,
    Status, Stopped, Validators, Verdict, evaluate, quoted, quoted_path,
};
use evenkeel_modules::core::{self, Options};
use evenkeel_modules::mime;
use evenkeel_modules::negotiation::{
    self, LIST_NOTE, Outcome, PROGRAM_TYPE, Resource, Variant, escape_segment, map_text, read_map,
};

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Variants of one map whose files are asked for their length, and those among them that are
/// looked at as the client would see them.
const MEASURED: usize = 1000;
const LOOKED_AT: usize = 100;

/// What it takes to read a folder at once, in plain requests: up to 1,000 entries.
const WORK_A_FOLDER: u32 = 64;

/// How many looks the reading of a large folder counts for.
const LOOKS_A_FOLDER: u16 = 5;

type Chosen = Result<(Prepared<Plan, Option<Looked>>, bool), Stopped<Plan>>;

/// The variants of a resource, and the tag that stands for all of them.
struct Variants {
    list: Vec<Variant>,
    validator: Option<Box<[u8]>>,
}

/// Chooses a file for a name that has only beginnings of files; says whether one took its place
/// (mod_negotiation.c: handle_multi).
pub(crate) fn find_variant(
    pipeline: &Rc<Pipeline>,
    admitted: phases::Access,
) -> MaybeReady<'_, Chosen> {
    let Admitted { request, plan, found } = admitted;
    let is_absent = found.as_ref().is_some_and(|looked| looked.found.kind() == Kind::Absent);
    let prepared = Prepared { request, plan, found };
    match is_absent && pipeline.site.negotiates && allows_multiviews(&prepared.plan) {
        true => MaybeReady::later(choose(pipeline, prepared)),
        false => MaybeReady::now(Ok((prepared, false))),
    }
}

async fn choose(pipeline: &Rc<Pipeline>, prepared: phases::Ready) -> Chosen {
    let Prepared { mut request, plan, found } = prepared;
    let names = match names(pipeline, &mut request, &plan).await {
        Ok(names) if names.is_empty() => return Ok((Prepared { request, plan, found }, false)),
        Ok(names) => names,
        Err(answer) => return Err(Stopped { request, plan, answer }),
    };
    let (mut request, gathered) = gather(pipeline, request, &names).await;
    let mut variants = match gathered {
        Ok(variants) => variants,
        Err(status) => return Err(Stopped { request, plan, answer: status.into() }),
    };
    if variants.list.is_empty() {
        let text = format!(
            "Negotiation: discovered file(s) matching request: {} (None could be negotiated).",
            quoted_path(&request.resource.file)
        );
        request.notify(Notice::new("negotiation", Level::Error, 687, text));
        return Err(Stopped { request, plan, answer: Status::NOT_FOUND.into() });
    }
    let prefers_programs = !matches!(request.resource.method, Method::Get | Method::Head)
        || request.resource.query.is_some()
        || !request.resource.path_info.is_empty();
    let resource = Resource { prefers_programs };
    let settings = &plan.negotiation;
    match negotiation::negotiate(&mut request, settings, &mut variants.list, resource) {
        Outcome::List { status, fields, list } => {
            negotiation::tell(&mut request, &fields);
            request.resource.notes.set(LIST_NOTE, list);
            Err(Stopped { request, plan, answer: status.into() })
        }
        Outcome::Choice { index, transparent, fields } => {
            let name = variants.list.get(index).map(|variant| variant.name.clone());
            let name = name.unwrap_or_default();
            let (mut request, aside, seen) = look_beside(pipeline, request, &name).await;
            if let Err(status) = may_send(&request, &seen, transparent) {
                aside.restore(&mut request);
                return Err(Stopped { request, plan, answer: status.into() });
            }
            aside.keep(&mut request, &plan);
            name_choice(&mut request, &name, transparent);
            negotiation::tell(&mut request, &fields);
            let validator = variants.validator;
            request.resource.negotiated = Some(Box::new(Negotiated { validator, uncached: false }));
            Ok((Prepared { request, plan: seen.plan, found: seen.found }, true))
        }
    }
}

fn allows_multiviews(plan: &Plan) -> bool {
    plan.core.options.effective().has(Options::MULTI_VIEWS)
}

/// The answer where the folder cannot be listed.
fn unlisted(request: &mut Request, reason: &str) -> Answer {
    let folder = quoted_path(request.resource.file.parent().unwrap_or(Path::new("/"))).into_owned();
    let text = format!("cannot read directory for multi: {folder}/: {reason}");
    request.notify(Notice::new("negotiation", Level::Error, 686, text));
    Status::FORBIDDEN.into()
}

/// The files of the folder whose names go on behind the request's with a dot, in the order of
/// their bytes, so that the order of the folder decides nothing. A small folder is read at once, a
/// large one beside the serving thread.
async fn names(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
) -> Result<Vec<Vec<u8>>, Answer> {
    let (Some(folder), Some(base)) =
        (request.resource.file.parent(), request.resource.file.file_name())
    else {
        return Ok(Vec::new());
    };
    // Others get their turn the sooner for it.
    request.work = request.work.saturating_add(WORK_A_FOLDER);
    let read = match negotiation::few_siblings(folder, base.as_bytes()) {
        Some(read) => read,
        None => {
            let (folder, base) = (folder.to_owned(), base.as_bytes().to_vec());
            request.looks = request.looks.saturating_add(LOOKS_A_FOLDER);
            let may_wait = pipeline.before_wait(request, plan).await;
            let beside = pipeline.beside(request, &may_wait);
            let read = negotiation::siblings(&beside, folder, base).await;
            read.ok_or(Status::SERVICE_UNAVAILABLE)?
        }
    };
    match read {
        Ok(mut names) => {
            names.sort_unstable();
            Ok(names)
        }
        Err(reason) => Err(unlisted(request, &reason)),
    }
}

/// Looks at each file; a type map among them stands for all. An error is the answer.
async fn gather(
    pipeline: &Rc<Pipeline>,
    mut request: Box<Request>,
    names: &[Vec<u8>],
) -> (Box<Request>, Result<Variants, Status>) {
    let mut variants = Variants { list: Vec::new(), validator: folder_tag(&request) };
    for name in names {
        if !is_followed(pipeline, &request, name) {
            continue;
        }
        let asked = request.resource.file.file_name().unwrap_or_default().as_bytes().to_vec();
        let (back, aside, seen) = look_beside(pipeline, request, name).await;
        request = back;
        if request.variant_looks > VARIANT_LOOKS {
            // The look has said so, once.
            aside.restore(&mut request);
            return (request, Err(Status::INTERNAL_SERVER_ERROR));
        }
        let usable = seen.is_file() && answers_to(&asked, name, pipeline, &seen);
        let map = usable && negotiation::is_map_of_name(&request.resource.content);
        let found = (usable && !map).then(|| variant(&request, &seen, name)).flatten();
        aside.restore(&mut request);
        if map {
            return match &seen.found {
                Some(looked) => read_variants(pipeline, request, &seen.plan, looked).await,
                None => (request, Err(Status::NOT_FOUND)),
            };
        }
        variants.list.extend(found);
    }
    (request, Ok(variants))
}

/// Whether the host's Options admit a file beside the request's, where that is a link. Those of the
/// folder have their say when the file is looked at (request.c: ap_sub_req_lookup_dirent, which
/// asks before any section is known).
fn is_followed(pipeline: &Pipeline, request: &Request, name: &[u8]) -> bool {
    let rule = symlink_rule(pipeline.site.server(request.server).defaults.core.options);
    if rule == SymlinkRule::Follow {
        return true;
    }
    let file = request.resource.file.beside(name, b"");
    rule.admits(pipeline.walker.borrow().files.look_up(file.as_bytes()).found.link())
}

/// The tag of a list of variants that are the files of a folder: that of the folder's last change.
fn folder_tag(request: &Request) -> Option<Box<[u8]>> {
    let folder = std::fs::metadata(request.resource.file.parent()?).ok()?;
    let modified = folder.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    let modified_us = u64::try_from(modified.as_micros()).ok()?;
    let tag = core::tag_of_time(modified_us, request.time_us);
    Some(tag.into_bytes().into())
}

/// Whether the name of a file may be shortened to what was asked for: each part of it that says
/// nothing of the content was named, in order.
fn answers_to(asked: &[u8], name: &[u8], pipeline: &Pipeline, seen: &Seen) -> bool {
    let silent = mime::silent_parts(name, &seen.plan.mime, &pipeline.site.types);
    silent.is_some_and(|silent| {
        let mut silent = silent.into_iter().peekable();
        for part in asked.split(|byte| *byte == b'.') {
            silent.next_if(|wanted| *wanted == part);
        }
        silent.peek().is_none()
    })
}

/// What a look has told of a file; none where its type is not known.
fn variant(request: &Request, seen: &Seen, name: &[u8]) -> Option<Variant> {
    let content = &request.resource.content;
    let program = || content.handler.is_some().then_some(PROGRAM_TYPE);
    let media_type = content.media_type.as_deref().or_else(program)?;
    let mut variant = Variant::new(name, media_type);
    variant.encoding = content.encoding.as_deref().map(<[u8]>::to_vec);
    variant.languages = content.languages.iter().map(|language| language.to_vec()).collect();
    variant.is_handled = content.handler.is_some();
    let stat = seen.found.as_ref().and_then(|looked| looked.found.stat());
    variant.length = stat.map(|stat| stat.size);
    Some(variant)
}

/// Makes the request one for a file beside its own and runs the phases for it.
async fn look_beside(
    pipeline: &Rc<Pipeline>,
    mut request: Box<Request>,
    name: &[u8],
) -> (Box<Request>, Aside, Seen) {
    let behind = request.resource.path_info.clone();
    let path = request.resource.path.beside(name, &behind);
    let file = request.resource.file.beside(name, &behind);
    let query = request.resource.query.clone();
    let aside = Aside::put(&mut request, path, query);
    request.resource.file = file;
    let (request, seen) = look::see_file(pipeline, request).await;
    (request, aside, seen)
}

/// Whether the chosen file can be sent. What was chosen by RFC 2295 must not be negotiated itself,
/// which is said of a file that may be sent alone (mod_negotiation.c: setup_choice_response).
fn may_send(request: &Request, seen: &Seen, transparent: bool) -> Result<(), Status> {
    let was_chosen = request.resource.always.contains("TCN");
    let again = was_chosen || request.resource.content.handler.as_deref() == Some(b"type-map");
    match seen.status() {
        status if status != Status::OK && !was_chosen => Err(status),
        _ if transparent && again => Err(Status::VARIANT_ALSO_NEGOTIATES),
        Status::OK => Ok(()),
        status => Err(status),
    }
}

/// Says where the chosen variant stands by itself.
fn name_choice(request: &mut Request, name: &[u8], transparent: bool) {
    if transparent {
        let mut location = Vec::new();
        escape_segment(&mut location, name);
        request.resource.always.set("Content-Location", location);
    }
}

/// Serves a type map: the request goes on as one for the chosen file, or is answered with what
/// the map itself holds (mod_negotiation.c: handle_map_file).
pub(crate) async fn serve_map(
    pipeline: &Rc<Pipeline>,
    mut request: Box<Request>,
    plan: &Arc<Plan>,
    looked: &Looked,
) -> (Box<Request>, Result<Response, Answer>) {
    let (back, read) = read_variants(pipeline, request, plan, looked).await;
    request = back;
    let mut variants = match read {
        Ok(variants) => variants,
        Err(status) => return (request, Err(status.into())),
    };
    let resource = Resource { prefers_programs: false };
    let settings = &plan.negotiation;
    let outcome = negotiation::negotiate(&mut request, settings, &mut variants.list, resource);
    let (index, transparent, fields) = match outcome {
        Outcome::Choice { index, transparent, fields } => (index, transparent, fields),
        Outcome::List { status, fields, list } => {
            negotiation::tell(&mut request, &fields);
            request.resource.notes.set(LIST_NOTE, list);
            return (request, Err(status.into()));
        }
    };
    let chosen = variants.list.swap_remove(index);
    if transparent {
        let (back, aside, seen) = look_beside(pipeline, request, &chosen.name).await;
        request = back;
        let outcome = may_send(&request, &seen, true);
        aside.restore(&mut request);
        if let Err(status) = outcome {
            return (request, Err(status.into()));
        }
        name_choice(&mut request, &chosen.name, true);
    }
    negotiation::tell(&mut request, &fields);
    let server = &pipeline.site.server(request.server).settings.negotiation;
    let uncached = negotiation::is_uncached(&request, server);
    request.resource.negotiated =
        Some(Box::new(Negotiated { validator: variants.validator, uncached }));
    let result = match chosen.body {
        Some(part) => send_part(pipeline, &mut request, plan, looked, &chosen, part),
        None => Err(Answer::Redirect(target(&request, &chosen.name))),
    };
    (request, result)
}

/// The path of the chosen file with what stood behind the map's, and the query.
fn target(request: &Request, name: &[u8]) -> Vec<u8> {
    let mut target = Vec::new();
    evenkeel_proto::escape_uri(
        &mut target,
        request.resource.path.file_folder(&request.resource.path_info),
    );
    target.extend_from_slice(name);
    // It was decoded once already, and the redirect decodes what it is given.
    evenkeel_proto::escape_uri(&mut target, &request.resource.path_info);
    if let Some(query) = &request.resource.query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}

/// Sends a part of the map.
fn send_part(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    looked: &Looked,
    chosen: &Variant,
    (start, length): (u64, u64),
) -> Result<Response, Answer> {
    if !matches!(request.resource.method, Method::Get | Method::Head | Method::Post) {
        return Err(Status::METHOD_NOT_ALLOWED.into());
    }
    let contents = pipeline.walker.borrow().files.contents(&looked.found);
    let contents = match contents {
        Ok(contents) => contents,
        Err(error) => {
            let path = quoted(looked.found.path()).into_owned();
            let text = format!("cannot read the variant in type map file: {path}");
            request.notify(Notice::own("negotiation", Level::Error, text).because(&error));
            return Err(Status::FORBIDDEN.into());
        }
    };
    let content = &mut request.resource.content;
    if !chosen.media_type.is_empty() {
        let charset: &[&[u8]] =
            if chosen.charset.is_empty() { &[] } else { &[b"; charset=", &chosen.charset] };
        let whole = [&[chosen.media_type.as_slice()], charset].concat().concat();
        content.media_type = Some(whole.into());
    }
    if !chosen.languages.is_empty() {
        content.languages = chosen.languages.iter().map(|it| it.as_slice().into()).collect();
    }
    if let Some(encoding) = chosen.encoding.as_deref().filter(|it| !it.is_empty()) {
        content.encoding = Some(encoding.into());
    }
    let mut response = Response::new(request.resource.status);
    let ranges = plan.core.max_ranges != Some(Some(0));
    response.fields.add("Accept-Ranges", if ranges { "bytes" } else { "none" });
    let now = i64::try_from(request.time_us / 1_000_000).unwrap_or(i64::MAX);
    let modified = Some(contents.stat.modified_ns.div_euclid(1_000_000_000).min(now));
    let validators = Validators { etag: None, modified };
    match evaluate(request.resource.method, request.fields(), &validators, now) {
        Verdict::Proceed => {
            response.body = match contents.piece.slice(start, length) {
                Piece::Bytes(bytes) => Body::Bytes(bytes),
                piece => Body::File(piece),
            }
        }
        Verdict::NotModified => response.status = Status::NOT_MODIFIED,
        Verdict::Failed => response.status = Status::PRECONDITION_FAILED,
    }
    Ok(response)
}

/// Reads a type map. An error is the answer.
async fn read_variants(
    pipeline: &Pipeline,
    mut request: Box<Request>,
    plan: &Plan,
    looked: &Looked,
) -> (Box<Request>, Result<Variants, Status>) {
    let path = quoted(looked.found.path()).into_owned();
    if looked.found.kind() == Kind::Directory {
        // Apache can open one and reads nothing from it.
        return (request, Ok(Variants { list: Vec::new(), validator: None }));
    }
    let contents = pipeline.walker.borrow().files.contents(&looked.found);
    let contents = contents.and_then(|held| Ok((map_text(&held.piece)?, held.stat)));
    let (text, stat) = match contents {
        Ok(read) => read,
        Err(error) => {
            let text = format!("cannot access type map file: {path}");
            request.notify(Notice::new("negotiation", Level::Error, 683, text).because(&error));
            let status = match error.kind() {
                io::ErrorKind::NotFound => Status::NOT_FOUND,
                _ => Status::FORBIDDEN,
            };
            return (request, Err(status));
        }
    };
    let (mut list, notices) = match read_map(&text, looked.found.name(), &path) {
        Ok(read) => read,
        Err(fault) => {
            request.notify(fault.0);
            return (request, Err(Status::INTERNAL_SERVER_ERROR));
        }
    };
    notices.into_iter().for_each(|notice| request.notify(notice));
    for (number, variant) in list.iter_mut().take(MEASURED).enumerate() {
        if variant.length.is_none() {
            request = measure(pipeline, request, looked, variant, number < LOOKED_AT).await;
        }
    }
    let validator = core::tag_of(&stat, &plan.core, request.time_us);
    let validator = validator.map(|tag| tag.into_bytes().into());
    (request, Ok(Variants { list, validator }))
}

/// Finds out the length of a file that a map names. It counts in the choice, but is told only to
/// clients that may see the file.
async fn measure(
    pipeline: &Pipeline,
    request: Box<Request>,
    map: &Looked,
    variant: &mut Variant,
    may_look: bool,
) -> Box<Request> {
    if variant.name.windows(2).any(|two| two == b"..") {
        return request;
    }
    let folder = map.found.path();
    let folder = folder.get(..folder.len() - map.found.name().len()).unwrap_or_default();
    let path = [folder, &variant.name].concat();
    let found = pipeline.walker.borrow().files.look_up(&path).found;
    let Some(stat) = found.stat() else { return request };
    variant.length = Some(stat.size);
    variant.is_length_hidden = true;
    if !may_look {
        return request;
    }
    let url = target(&request, &variant.name);
    let (request, admitted) = look::admitted(pipeline, request, &url).await;
    let is_same = admitted.is_some_and(|looked| looked.found.path() == found.path());
    variant.is_length_hidden = !is_same;
    request
}
