//! The listing of a folder (mod_autoindex): a request for a folder comes in, the page of those of
//! its entries that the client may see goes out. The folder is read and the page is made beside
//! the serving thread; between them a look is taken at each entry, some at a time, so that a
//! large folder keeps no other connection waiting.

use crate::alike::Alike;
use crate::frames::now_or_never;
use crate::look::{self, Glance};
use crate::serve::{Pipeline, Round};
use crate::site::Plan;
use evenkeel_files::{Found, Kind, Looked};
use evenkeel_message::{Answer, Level, Notice, Piece, Request, Response, Status, quoted_path};
use evenkeel_modules::autoindex::{self, Asked, Candidate, Entry, Folder, Insert, Listing, Said};
use evenkeel_modules::beside::{Beside, SMALL};
use evenkeel_modules::core::Options;
use evenkeel_modules::negotiation;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

/// Entries that are looked at before other connections have their turn. One of which a folder has
/// to be read (MultiViews) counts as many.
const TURN: u32 = 32;

/// Looks that one listing may take, those for the indexes of folders within included.
const LOOKS: u32 = 200_000;

/// Notices of looks that are kept: a folder may hold any number of forbidden entries.
const NOTICES: usize = 1000;

/// Whether a request is one for the listing of a folder.
pub(crate) fn is_wanted(pipeline: &Pipeline, request: &Request, looked: &Looked) -> bool {
    looked.found.kind() == Kind::Directory
        && pipeline.site.folders_are_listed
        && autoindex::is_wanted(request)
}

/// Lists the folder, where Options lets it be listed.
pub(crate) async fn generate(
    pipeline: &Rc<Pipeline>,
    mut request: Box<Request>,
    plan: &Plan,
    folder: &Looked,
) -> (Box<Request>, Result<Response, Answer>) {
    if !plan.core.options.effective().has(Options::INDEXES) {
        let has_index = pipeline.site.folders_have_indexes;
        let names = has_index.then(|| plan.dir.index_names().collect::<Vec<_>>());
        let answer = autoindex::refuse(&mut request, names.as_deref());
        return (request, Err(answer));
    }
    // mod_autoindex.c: handle_autoindex.
    request.resource.file.end_with_slash();
    let said = plan.autoindex.said();
    let asked = Asked::parse(&said, request.resource.query.as_deref());
    let response = autoindex::head(&mut request, &plan.core, &said, &folder.found);
    let may_wait = pipeline.before_wait(&mut request, plan).await;
    let beside = pipeline.beside(&request, &may_wait);
    let desk = Desk { pipeline: Rc::clone(pipeline), beside };
    // Large, and rare beside what else has room in the frame of a response.
    let list = desk.list(request, plan, (said, asked), (&*folder.found, response));
    let (mut request, listed) = Box::pin(list).await;
    let result = match listed {
        Some(Ok(response)) => Ok(response),
        Some(Err(error)) => Err(autoindex::unreadable(&mut request, &error)),
        None => Err(Status::SERVICE_UNAVAILABLE.into()),
    };
    (request, result)
}

/// What a listing is made with.
struct Desk {
    pipeline: Rc<Pipeline>,
    beside: Beside,
}

impl Desk {
    /// Puts the page into the response. None where it could not be made, or nobody waits for it
    /// any more; the error is one of opening the folder.
    async fn list(
        &self,
        request: Box<Request>,
        plan: &Plan,
        (said, asked): (Arc<Said>, Asked),
        (found, mut response): (&Found, Response),
    ) -> (Box<Request>, Option<io::Result<Response>>) {
        let path = PathBuf::from(request.resource.file.clone());
        if request.is_head() {
            let opened = autoindex::open(&self.beside, path).await;
            return (request, opened.map(|opened| opened.map(|()| response)));
        }
        let read = autoindex::read(&self.beside, path, Arc::clone(&said), asked.clone());
        let folder = match read.await {
            Some(Ok(folder)) => folder,
            Some(Err(error)) => return (request, Some(Err(error))),
            None => return (request, None),
        };
        let is_large = folder.candidates.len() >= SMALL;
        let large = is_large.then(|| self.pipeline.be_thrifty());
        let looked = self.look_at_entries(request, folder, &asked, (plan, found)).await;
        let (request, entries) = looked;
        let Some(entries) = entries else { return (request, None) };
        let pipeline = &self.pipeline;
        let (request, header) = find_header(pipeline, request, &said).await;
        let (request, readme) = find_readme(pipeline, request, &said).await;
        let signature = pipeline.site.signature(&request, plan);
        let listing = Listing {
            said,
            asked,
            path: request.resource.path.to_vec(),
            folder: request.resource.file.clone().into(),
            entries,
            header,
            readme,
            signature: signature.strip_prefix("<hr>\n").unwrap_or(&signature).to_owned(),
        };
        let body = autoindex::render(&self.beside, listing).await;
        let Some(body) = body else { return (request, None) };
        let body = match large {
            Some(large) => large.until_gone(body),
            None => body,
        };
        (response.body, response.is_own_body) = (body, true);
        (request, Some(Ok(response)))
    }

    /// The entries of a folder that are listed; none where the folder is a large one and the
    /// client has gone.
    async fn look_at_entries(
        &self,
        mut request: Box<Request>,
        folder: Folder,
        asked: &Asked,
        (plan, found): (&Plan, &Found),
    ) -> (Box<Request>, Option<Vec<Entry>>) {
        let Folder { candidates, mut is_cut } = folder;
        let mut entries = Vec::with_capacity(candidates.len());
        let mut looks = 0;
        let most_notices = request.notices.len() + NOTICES;
        let mut turn_ends = request.work.saturating_add(TURN);
        let is_large = candidates.len() >= SMALL;
        let mut alike: Option<Alike> = None;
        let mut round = Some(self.pipeline.begin_round(is_large));
        for (number, mut candidate) in candidates.into_iter().enumerate() {
            if looks >= LOOKS {
                is_cut = true;
                break;
            }
            request.work = request.work.saturating_add(1);
            if request.work >= turn_ends {
                turn_ends = request.work.saturating_add(TURN);
                drop(round);
                autoindex::pause().await;
                round = Some(self.pipeline.begin_round(is_large));
                if self.beside.is_left() && number >= SMALL {
                    return (request, None);
                }
            }
            if let Some(alike) = &mut alike {
                match alike.entry(&self.pipeline, &request, candidate) {
                    Ok(entry) => {
                        looks += 1;
                        entries.push(entry);
                        continue;
                    }
                    Err(back) => candidate = back,
                }
            }
            let (back, glance) = self.look_at_entry(request, &candidate, &mut round).await;
            request = back;
            if alike.is_none() && !autoindex::scans_titles(asked) {
                alike = Alike::to(&self.pipeline, &request, plan, found.folder(), &glance);
            }
            request.notices.truncate(most_notices);
            looks += u32::from(glance.looks);
            entries.extend(self.entry(candidate, glance, asked, &request.resource.file));
        }
        drop(round);
        if is_cut {
            let text = format!(
                "{} has more entries than a listing shows: the rest is left out",
                quoted_path(&request.resource.file)
            );
            request.notify(Notice::own("autoindex", Level::Warn, text));
        }
        (request, Some(entries))
    }

    /// Looks at an entry. The round of looks ends where this one has to wait, and another begins.
    async fn look_at_entry(
        &self,
        request: Box<Request>,
        candidate: &Candidate,
        round: &mut Option<Round>,
    ) -> (Box<Request>, Glance) {
        // A folder that was asked for without its slash leads to what stands beside it, as the
        // links of its page do.
        let segment = candidate.segment();
        let path = request.resource.path.beside(&segment, b"");
        let file = request.resource.file.below(&segment);
        let mut look = pin!(look::at_file(&self.pipeline, request, path, file));
        if let Some(looked) = now_or_never(look.as_mut()) {
            return looked;
        }
        let is_large = round.take().is_some_and(|round| round.is_large);
        let looked = look.await;
        *round = Some(self.pipeline.begin_round(is_large));
        looked
    }

    /// An entry of a folder, where the look at it lets it be listed (mod_autoindex.c:
    /// make_autoindex_entry).
    fn entry(
        &self,
        candidate: Candidate,
        glance: Glance,
        asked: &Asked,
        folder: &Path,
    ) -> Option<Entry> {
        let Glance { status, found, file, content, .. } = glance;
        let is_refused = matches!(status, Status::UNAUTHORIZED | Status::FORBIDDEN);
        let passed = status == Status::OK;
        let is_listed =
            passed || status.is_redirect() || (is_refused && autoindex::shows_forbidden(asked));
        if !is_listed {
            return None;
        }
        let stat = match &found {
            // A folder's are those of its index, as in Apache.
            Some(looked) => looked.found.stat()?,
            // The index of the folder is the target of a rule of mod_proxy, which has no type.
            None if passed => return None,
            // The subrequest has ended before it looked up the file.
            None => {
                let path = [folder.as_os_str().as_bytes(), b"/", &candidate.name].concat();
                self.pipeline.walker.borrow().files.stat(&path)?
            }
        };
        if !(stat.is_file() || stat.is_folder()) {
            return None;
        }
        let seen = found
            .filter(|_| autoindex::scans_titles(asked))
            .map(|looked| (looked.found.real_path(), stat));
        let (size, modified_ns) = (stat.size, stat.modified_ns);
        let file = Some(file.into());
        Some(Entry { candidate, size, modified_ns, file, seen, content, passed })
    }
}

/// The file of HeaderName. It is asked for with the query of the request, and as one that wants
/// HTML or text.
async fn find_header(
    pipeline: &Rc<Pipeline>,
    mut request: Box<Request>,
    said: &Said,
) -> (Box<Request>, Insert) {
    let Some(name) = &said.header_name else { return (request, Insert::Nothing) };
    let fields = request.resource.changed_fields.clone();
    request.fields_mut().set("Accept", "text/html, text/plain");
    request.fields_mut().remove("Accept-Encoding");
    let (mut request, insert) = find_insert(pipeline, request, name).await;
    request.resource.changed_fields = fields;
    (request, insert)
}

/// The file of ReadmeName, which is asked for without a query.
async fn find_readme(
    pipeline: &Rc<Pipeline>,
    mut request: Box<Request>,
    said: &Said,
) -> (Box<Request>, Insert) {
    let Some(name) = &said.readme_name else { return (request, Insert::Nothing) };
    let query = request.resource.query.take();
    let (mut request, insert) = find_insert(pipeline, request, name).await;
    request.resource.query = query;
    (request, insert)
}

async fn find_insert(
    pipeline: &Rc<Pipeline>,
    request: Box<Request>,
    name: &[u8],
) -> (Box<Request>, Insert) {
    let (request, glance) = look::at_name(pipeline, request, name).await;
    let insert = glance.and_then(|glance| insert(pipeline, &glance));
    (request, insert.unwrap_or_default())
}

/// What was found as a part of the page; none where it is no file that the client may see and
/// the server can read.
fn insert(pipeline: &Pipeline, glance: &Glance) -> Option<Insert> {
    let looked = glance.found.as_ref().filter(|looked| looked.found.kind() == Kind::File)?;
    if glance.content.program_handler().is_some() {
        return None;
    }
    let media_type = glance.content.media_type.as_deref()?;
    let contents = pipeline.walker.borrow().files.contents(&looked.found).ok()?;
    let piece: Piece = contents.piece.clone();
    // HTML is what a request for that path would be answered, and text the file itself. Nothing is
    // inserted of a type map's variants.
    let insert = autoindex::insert(media_type, piece);
    let is_map = pipeline.site.negotiates && negotiation::is_map(&glance.content);
    let is_there = !((glance.is_beyond || is_map) && matches!(insert, Insert::Html(_)));
    is_there.then_some(insert)
}
