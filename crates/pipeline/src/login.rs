//! Authentication: checks the user name and the password of a request with the providers of its
//! sections, in order. Jobs of the blocking pool read the files of users and hash the passwords. A
//! cached file and a cached verification need no job.

use crate::digest_login;
use crate::form_login;
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_message::{Answer, Fields, Level, Notice, Request, Status, quoted, quoted_path};
use evenkeel_modules::core::{denied_by, listed};
use evenkeel_modules::passwords::{
    Entry, Login, PasswordFile, REMEMBERED, Scheme, Store, is_equal, verify,
};
use evenkeel_modules::{
    Asked, AuthnSource, CheckLogin, Credential, Credentials, Merge as _, RequestContext, Sections,
    Verdict, auth_basic, auth_digest, authn_core, authz_core,
};
use std::future::{Future as _, poll_fn};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// The authentication schemes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Basic,
    Digest,
    Form,
    /// No active module implements the AuthType.
    Unknown,
}

/// The AuthType of a request. Returns `None` if the request needs no login
/// ([`authn_core::auth_type`]).
pub(crate) fn auth_type(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
) -> Option<Arc<[u8]>> {
    if !plan.authn_core.has_type() {
        return None;
    }
    let core = pipeline.site.server(request.server).core(plan);
    let mut notices = Vec::new();
    let context = RequestContext::new(request, core);
    let auth_type = authn_core::auth_type(&context, &plan.authn_core, &mut notices);
    request.notices.append(&mut notices);
    auth_type
}

/// The AuthName of a request ([`authn_core::auth_name`]).
pub(crate) fn auth_name(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
) -> Option<Arc<[u8]>> {
    let core = pipeline.site.server(request.server).core(plan);
    let mut notices = Vec::new();
    let context = RequestContext::new(request, core);
    let name = authn_core::auth_name(&context, &plan.authn_core, &mut notices);
    request.notices.append(&mut notices);
    name
}

fn way(pipeline: &Pipeline, auth_type: &[u8]) -> Way {
    let site = &pipeline.site;
    if auth_type.eq_ignore_ascii_case(b"Basic") && site.has_basic {
        return Way::Basic;
    }
    if auth_type.eq_ignore_ascii_case(b"Digest") && site.has_digest {
        return Way::Digest;
    }
    if auth_type.eq_ignore_ascii_case(b"form") && site.has_forms {
        return Way::Form;
    }
    Way::Unknown
}

/// The 401 answer to a client whose user is missing or not authorized, with the challenge of the
/// AuthType (Apache: ap_note_auth_failure).
pub(crate) fn refusal(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    auth_type: Option<&[u8]>,
) -> Answer {
    let way = auth_type.map_or(Way::Unknown, |auth_type| way(pipeline, auth_type));
    let fields = match way {
        Way::Basic => {
            let realm = auth_name(pipeline, request, plan).unwrap_or_default();
            auth_basic::challenge(&realm)
        }
        Way::Digest => {
            let realm = auth_name(pipeline, request, plan).unwrap_or_default();
            auth_digest::challenge(request, &plan.auth_digest, &realm, false)
        }
        Way::Form | Way::Unknown => Fields::new(),
    };
    Answer::with_fields(Status::UNAUTHORIZED, fields)
}

/// Authenticates the user of a request (Apache's hook check_user_id). `is_any` is true under
/// Satisfy Any; it only selects the message number.
///
/// # Errors
/// The answer if the user is not authenticated.
pub(crate) async fn log_in(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    auth_type: Option<&Arc<[u8]>>,
    is_any: bool,
) -> Result<(), Answer> {
    let Some(auth_type) = auth_type else {
        let path = quoted(&request.resource.path);
        let notice = match pipeline.site.global.active.has("mod_authn_core.c") {
            true => {
                let text = format!(
                    "No authentication done but request not allowed without authentication for \
                     {path}. Authentication not configured?"
                );
                Notice::new("core", Level::Error, if is_any { 28 } else { 27 }, text)
            }
            false => {
                let text = format!("configuration error:  couldn't check user: {path}");
                Notice::new("core", Level::Crit, 25, text)
            }
        };
        request.notify(notice);
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    };
    let has_logged_in = match way(pipeline, auth_type) {
        Way::Basic => basic(pipeline, request, plan, auth_type).await?,
        Way::Digest => {
            digest_login::log_in(pipeline, request, plan).await?;
            true
        }
        Way::Form => Box::pin(form_login::log_in(pipeline, request, plan, auth_type)).await?,
        Way::Unknown => false,
    };
    if !has_logged_in {
        let text =
            format!("AuthType {} configured without corresponding module", quoted(auth_type));
        request.notify(Notice::new("authn_core", Level::Error, 1796, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    }
    Ok(())
}

/// Authenticates with a user name and a password (mod_auth_basic.c: authenticate_basic_user).
/// Returns false if mod_auth_basic leaves the decision to another module (AuthBasicAuthoritative
/// Off).
async fn basic(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    auth_type: &Arc<[u8]>,
) -> Result<bool, Answer> {
    let Some(realm) = auth_name(pipeline, request, plan) else {
        let text = format!("need AuthName: {}", quoted(&request.resource.path));
        request.notify(Notice::new("auth_basic", Level::Error, 1615, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    };
    request.resource.auth_type = Some(Arc::clone(auth_type));
    let challenge = || Answer::with_fields(Status::UNAUTHORIZED, auth_basic::challenge(&realm));
    let login = auth_basic::login(request).map_err(|_| challenge())?;
    request.resource.user = Some(login.user().into());
    let settings = &plan.auth_basic;
    let mut sources = settings.providers();
    let default;
    if sources.is_empty() {
        default = pipeline.site.global.active.authn_source(auth_basic::DEFAULT_PROVIDER);
        sources = default.as_slice();
    }
    if sources.is_empty() {
        let text = "No Authn provider configured";
        request.notify(Notice::new("auth_basic", Level::Error, 1616, text));
    }
    let (mut verdict, mut places) = (Verdict::Failed, Vec::new());
    for source in sources {
        let digest = settings.uses_digests().then(|| login.digest(&realm));
        if digest.is_some() && source.provider.check_realm.is_none() {
            let text = "Authn provider does not support AuthBasicUseDigestAlgorithm";
            request.notify(Notice::new("auth_basic", Level::Error, 2493, text));
            verdict = Verdict::Failed;
            break;
        }
        let proof = match &digest {
            None => Proof::Password,
            Some(digest) => Proof::Digest { realm: &realm, digest },
        };
        let place;
        (verdict, place) = ask(pipeline, request, plan, source, &login, &proof).await?;
        if verdict == Verdict::Granted {
            return Ok(true);
        }
        if verdict != Verdict::NotFound {
            places = vec![place];
            break;
        }
        places.push(place);
    }
    let path = quoted(&request.resource.path);
    let user = quoted(login.user());
    let (number, text) = match verdict {
        Verdict::Granted => return Ok(true),
        Verdict::NotFound | Verdict::Failed if !settings.is_authoritative() => return Ok(false),
        Verdict::Denied => {
            let why = why(plan, &places);
            let text = format!(
                "user {user}: authentication failure for \"{path}\": Password Mismatch; {why}"
            );
            (1617, text)
        }
        Verdict::NotFound => {
            (1618, format!("user {user} not found: {path}; {}", why(plan, &places)))
        }
        Verdict::Failed => return Err(Status::INTERNAL_SERVER_ERROR.into()),
    };
    request.notify(Notice::new("auth_basic", Level::Error, number, text));
    Err(challenge())
}

/// Asks the providers in order whether a password is right: the provider of files if there are
/// none. Also returns the places that have decided, for the error log. `told` is the name of the
/// module and the number of its message if there is no provider.
pub(crate) async fn check_password(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    sources: &[AuthnSource],
    login: &Login,
    told: (&'static str, u16),
) -> Result<(Verdict, Vec<String>), Answer> {
    let default = match sources.is_empty() {
        true => pipeline.site.global.active.authn_source(auth_basic::DEFAULT_PROVIDER),
        false => None,
    };
    let (mut verdict, mut places) = (Verdict::Failed, Vec::new());
    if sources.is_empty() && default.is_none() {
        request.notify(Notice::new(told.0, Level::Error, told.1, "no authn provider configured"));
    }
    for source in sources.iter().chain(&default) {
        let place;
        (verdict, place) = ask(pipeline, request, plan, source, login, &Proof::Password).await?;
        if verdict != Verdict::NotFound {
            places = vec![place];
            break;
        }
        places.push(place);
    }
    Ok((verdict, places))
}

/// The end of the message about a login that has failed: the places that have decided, and the
/// Require lines that need a user.
pub(crate) fn why(plan: &Plan, places: &[String]) -> String {
    let lines = authz_core::lines_that_need_user(&plan.authz_core);
    match lines.is_empty() {
        true => denied_by(places),
        false => format!("{}; needed for {}", denied_by(places), listed(&lines)),
    }
}

/// The proof that is compared with the entry of a user.
enum Proof<'a> {
    /// The password. The entry holds a hash of it.
    Password,
    /// The hash that htdigest writes. The user's entry for the realm holds the same hash.
    Digest { realm: &'a [u8], digest: &'a [u8] },
}

/// Checks a login with one provider. Also returns the place that has decided, for the error log:
/// the file of users with the line of the user's entry, or the provider.
async fn ask(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    source: &AuthnSource,
    login: &Login,
    proof: &Proof<'_>,
) -> Result<(Verdict, String), Answer> {
    let (check, number) = match proof {
        Proof::Password => (Some(source.provider.check), 1620),
        Proof::Digest { .. } => (source.provider.check_realm, 1622),
    };
    let Some(check) = check else { return Ok((Verdict::Failed, String::new())) };
    let file = match consult(pipeline, request, plan, source, check, login.credentials()) {
        Credential::Decided(verdict) => {
            return Ok((verdict, format!("the provider {}", source.name)));
        }
        Credential::InFile(file) => file,
    };
    let Some(users) = load_users(pipeline, request, plan, &file, number).await? else {
        return Ok((Verdict::Failed, String::new()));
    };
    let entry = match proof {
        Proof::Digest { realm, .. } => users.user_of_realm(login.user(), realm),
        Proof::Password => users.user(login.user()),
    };
    let verdict = match proof {
        Proof::Digest { digest, .. } => match entry {
            None => Verdict::NotFound,
            Some(entry) if is_equal(&entry.hash, digest) => Verdict::Granted,
            Some(_) => Verdict::Denied,
        },
        Proof::Password => compare(pipeline, request, plan, &file, &users, login).await?,
    };
    let place = match (verdict, entry) {
        (Verdict::Granted, _) => String::new(),
        (_, entry) => place(&file, entry),
    };
    Ok((verdict, place))
}

/// The place in a file of users that has decided about a login.
pub(crate) fn place(file: &Path, entry: Option<&Entry>) -> String {
    match entry {
        Some(entry) => format!("the password of the user ({}:{})", quoted_path(file), entry.line),
        None => format!("the users of {}", quoted_path(file)),
    }
}

/// Calls a provider with the request's settings, which the settings of an AuthnProviderAlias
/// override.
pub(crate) fn consult(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    source: &AuthnSource,
    check: CheckLogin,
    credentials: Credentials<'_>,
) -> Credential {
    let merged = source.settings.as_ref().map(|said| Sections::merge(plan, said));
    let mut notices = Vec::new();
    let core = pipeline.site.server(request.server).core(plan);
    let context = RequestContext::new(request, core);
    let asked = Asked { context, sections: merged.as_ref().unwrap_or(plan) };
    let credential = check(&asked, &credentials, &mut notices);
    request.notices.append(&mut notices);
    credential
}

/// Returns the users of a file, from the cache or from the disk. Returns `None` if the file cannot
/// be read, and logs the error under `number`.
///
/// # Errors
/// 503 if the blocking pool returns no result.
pub(crate) async fn load_users(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    file: &Arc<Path>,
    number: u16,
) -> Result<Option<Arc<PasswordFile>>, Answer> {
    let store = Store::of_process();
    let stat = pipeline.walker.borrow().files.stat(file.as_os_str().as_bytes());
    if let Some(users) = stat.and_then(|stat| store.known_users(file, &stat)) {
        return Ok(Some(users));
    }
    let may_wait = pipeline.before_wait(request, plan).await;
    let path = Arc::clone(file);
    let what = format!("reading the file of users {}", quoted_path(file));
    let read = move || Store::of_process().users(&path);
    let beside = pipeline.beside(request, &may_wait);
    match beside.perform(what, move |_| Some(read())).await {
        Some(Ok(loaded)) => {
            if loaded.is_new {
                for complaint in &loaded.parsed.complaints {
                    let text = format!("{}: {complaint}", quoted_path(file));
                    request.notify(Notice::own("authn_file", Level::Error, text));
                }
            }
            Ok(Some(loaded.parsed))
        }
        Some(Err(error)) => {
            request.notify(unreadable(file, number, &error));
            Ok(None)
        }
        None => Err(Status::SERVICE_UNAVAILABLE.into()),
    }
}

fn unreadable(file: &Path, number: u16, error: &io::Error) -> Notice {
    let mut text = format!("Could not open password file: {}", quoted_path(file));
    if error.raw_os_error().is_none() {
        text = format!("{text}: {error}");
    }
    Notice::new("authn_file", Level::Error, number, text).because(error)
}

/// Compares a password with the entry of its user. For an unknown user, the password is hashed with
/// the first hash of the file, so that the response time does not reveal which users exist.
async fn compare(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    file: &Path,
    users: &PasswordFile,
    login: &Login,
) -> Result<Verdict, Answer> {
    let entry = users.user(login.user());
    let stored = entry.map(|Entry { hash, .. }| &**hash).or_else(|| users.first_hash());
    let Some(stored) = stored else { return Ok(Verdict::NotFound) };
    let is_right = hash(pipeline, request, plan, file, login, stored, entry.is_some()).await?;
    Ok(match entry {
        None => Verdict::NotFound,
        Some(_) if is_right => Verdict::Granted,
        Some(_) => Verdict::Denied,
    })
}

/// Whether a password matches a stored hash. A cached result needs no hashing. `{SHA}` is fast, so
/// the serving thread computes it. A thread of lower priority computes all other hashes, one at a
/// time. The request returns its credit while it waits for that thread, and needs no permit of the
/// blocking pool: other requests may hold all permits and wait for the same thread.
/// `is_known` is false if the user is unknown and the hash is that of another user.
///
/// # Errors
/// 503 if too many requests wait, if the client disconnects meanwhile, or if the hash is given up.
async fn hash(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    file: &Path,
    login: &Login,
    stored: &[u8],
    is_known: bool,
) -> Result<bool, Answer> {
    let store = Store::of_process();
    if Scheme::of(stored).is_none_or(|scheme| scheme == Scheme::Sha) {
        return Ok(verify(login.password(), stored));
    }
    let provider = file.as_os_str().as_bytes();
    let key = store.key(provider, login.user(), login.password(), stored);
    let lifetime = plan.authn_socache.lifetime("file").unwrap_or(REMEMBERED);
    if let Some(was_right) = store.recall(&key, lifetime) {
        return Ok(was_right);
    }
    let _may_wait = pipeline.before_wait(request, plan).await;
    let Some(place) = store.place() else {
        if store.may_tell() {
            let text = "too many requests wait for a password to be verified; clients are \
                        answered with 503";
            request.notify(Notice::own("auth_basic", Level::Error, text));
        }
        return Err(Status::SERVICE_UNAVAILABLE.into());
    };
    let departure = Rc::clone(&request.departure);
    departure.return_credit();
    let mut task = place.verify(login.password().to_vec(), stored.to_vec());
    let is_right = poll_fn(|context| match Pin::new(&mut task).poll(context) {
        Poll::Pending if departure.is_told() && place.is_queued() && task.dequeue() => {
            Poll::Ready(None)
        }
        done => done,
    })
    .await;
    drop(place);
    poll_fn(|_| departure.poll_credit()).await;
    let Some(is_right) = is_right else {
        return Err(Status::SERVICE_UNAVAILABLE.into());
    };
    // For an unknown user, a match with the hash of another user does not count.
    store.remember(key, is_right && is_known, lifetime);
    Ok(is_right && is_known)
}
