//! Logging in with a form (mod_auth_form): by the session of a request, by the form that a request
//! to a protected place sends, and by the handlers for logging in and out.

use crate::body;
use crate::filtering;
use crate::login::{auth_name, check_password, why};
use crate::serve::Pipeline;
use crate::sessions;
use crate::site::Plan;
use bytes::Bytes;
use evenkeel_expr::Text;
use evenkeel_message::{Answer, Fields, Level, Method, Notice, Request, Status, quoted};
use evenkeel_modules::auth_form::{self, Remembered, Work};
use evenkeel_modules::passwords::Login;
use evenkeel_modules::sessions::{Form, FormLogin, Kept};
use evenkeel_modules::{RequestContext, Verdict};
use std::sync::Arc;

/// The media type of a form.
const FORM: &[u8] = b"application/x-www-form-urlencoded";

/// What became of a login (Apache: an HTTP status, OK or DECLINED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Granted,
    /// Another module may decide (AuthFormAuthoritative Off).
    Declined,
    Refused(Status),
}

const UNAUTHORIZED: Outcome = Outcome::Refused(Status::UNAUTHORIZED);

/// What a form says.
struct Sent {
    login: Option<FormLogin>,
    location: Option<Vec<u8>>,
    media_type: Option<Vec<u8>>,
    body: Option<Bytes>,
    method: Option<Vec<u8>>,
}

/// Authenticates the user of a request (mod_auth_form.c: authenticate_form_authn). Returns false if
/// another module may decide.
///
/// # Errors
/// The answer if the user is not authenticated, and the redirect after a login.
pub(crate) async fn log_in(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    auth_type: &Arc<[u8]>,
) -> Result<bool, Answer> {
    let realm = realm(pipeline, request, plan)?;
    request.resource.auth_type = Some(Arc::clone(auth_type));
    let mut outcome = match remembered(pipeline, request, plan, &realm).await {
        Remembered { user: Some(user), password: Some(password), hash } => {
            let is_known = hash.is_some_and(|hash| plan.auth_form.knows(&user, &hash));
            let outcome = match is_known {
                true => Outcome::Granted,
                false => check(pipeline, request, plan, &user, &password).await?,
            };
            if outcome == Outcome::Granted {
                fake_basic(request, plan, &user, &password);
                return Ok(true);
            }
            outcome
        }
        _ => UNAUTHORIZED,
    };
    let mut location = None;
    let is_initial = request.resource.depth == 0 && request.previous.is_none();
    if outcome == UNAUTHORIZED && request.resource.method == Method::Post && is_initial {
        match read_form(pipeline, request, plan).await {
            Err(status) => {
                request.replace_body(Bytes::new());
                outcome = Outcome::Refused(status);
            }
            Ok(sent) => {
                location = sent.location.clone();
                outcome = log_in_by(pipeline, request, plan, &realm, sent).await?;
                if outcome == Outcome::Granted {
                    if let Some(target) = success_location(pipeline, request, plan, location)? {
                        return Err(redirect(Status::FOUND, target));
                    }
                    return Ok(true);
                }
            }
        }
    }
    if outcome == UNAUTHORIZED
        && let Some(required) = plan.auth_form.required()
    {
        let target = expression(pipeline, request, plan, required, (2340, "login required"))?;
        return Err(redirect(Status::FOUND, target));
    }
    if let Some(target) = location {
        return Err(redirect(Status::FOUND, target));
    }
    match outcome {
        Outcome::Declined => Ok(false),
        Outcome::Granted => Ok(true),
        Outcome::Refused(status) => Err(refused(plan, status)),
    }
}

/// AuthName, which names the entries of the session.
fn realm(pipeline: &Pipeline, request: &mut Request, plan: &Plan) -> Result<Arc<[u8]>, Answer> {
    if let Some(realm) = auth_name(pipeline, request, plan) {
        return Ok(realm);
    }
    let text = format!("need AuthName: {}", quoted(&request.resource.path));
    request.notify(Notice::new("auth_form", Level::Error, 1810, text));
    Err(Status::INTERNAL_SERVER_ERROR.into())
}

/// The login of an earlier form of the request, or that of its session. The request has its user
/// although nobody has checked the password yet, as in Apache.
async fn remembered(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    realm: &[u8],
) -> Remembered {
    let login = Kept::of(request).login(realm);
    let remembered = match login.filter(|it| !it.user.is_empty() && !it.password.is_empty()) {
        Some(FormLogin { user, password, .. }) => {
            Remembered { user: Some(user), password: Some(password), hash: None }
        }
        None => match sessions::load(pipeline, request, plan).await {
            Some(session) => {
                let session = session.borrow();
                Remembered::of(&session, realm)
            }
            None => Remembered::default(),
        },
    };
    if let Some(user) = &remembered.user {
        request.resource.user = Some(user.as_slice().into());
    }
    remembered
}

/// Logs in with a form that a request to a protected place has sent. Its body takes the place of
/// the request's, and its method leads to another request.
async fn log_in_by(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    realm: &[u8],
    sent: Sent,
) -> Result<Outcome, Answer> {
    match (sent.body, &sent.media_type) {
        (Some(body), Some(media_type)) => {
            request.fields_mut().set("Content-Type", media_type);
            request.replace_body(body);
        }
        _ => request.replace_body(Bytes::new()),
    }
    if sent.method.is_some_and(|method| method != request.method_name()) {
        request.resource.content.handler = Some(auth_form::REDIRECT.into());
    }
    let Some(login) = sent.login else { return Ok(UNAUTHORIZED) };
    enter(pipeline, request, plan, realm, login).await
}

/// Checks a login and keeps it in the session.
async fn enter(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    realm: &[u8],
    login: FormLogin,
) -> Result<Outcome, Answer> {
    request.resource.user = Some(login.user.as_slice().into());
    Kept::of(request).keep_login(realm, login.clone());
    let outcome = check(pipeline, request, plan, &login.user, &login.password).await?;
    if outcome == Outcome::Granted {
        fake_basic(request, plan, &login.user, &login.password);
        if let Some(session) = sessions::load(pipeline, request, plan).await {
            let pair = Some((&*login.user, &*login.password));
            plan.auth_form.keep(&mut session.borrow_mut(), realm, pair);
        }
    }
    Ok(outcome)
}

fn fake_basic(request: &mut Request, plan: &Plan, user: &[u8], password: &[u8]) {
    if plan.auth_form.fakes_basic() {
        auth_form::fake_basic(request, user, password);
    }
}

/// Reads the form in the body of a request (mod_auth_form.c: get_form_auth).
///
/// # Errors
/// 413 for a form that is too large, and what refuses a body.
async fn read_form(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
) -> Result<Sent, Status> {
    body::begin(request, plan, false)?;
    if plan.core.input_filters.is_some()
        && let Some(pipeline) = pipeline.own.upgrade()
    {
        let plan = Arc::new(plan.clone());
        filtering::filter_input(&pipeline, request, &plan);
    }
    read_filtered_form(pipeline, request, plan).await
}

/// The same where the filters of the body are in place.
async fn read_filtered_form(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
) -> Result<Sent, Status> {
    let settings = &plan.auth_form;
    let media_type = request.fields().first("Content-Type").unwrap_or_default();
    let is_form =
        media_type.get(..FORM.len()).is_some_and(|start| start.eq_ignore_ascii_case(FORM));
    // Each byte of a form may be escaped, and each pair has two separators.
    let most = settings.form_bytes().saturating_mul(5).saturating_add(1 << 16);
    let (mut text, mut is_too_long) = (Vec::new(), false);
    if request.body.is_some() {
        let may_wait = pipeline.before_wait(request, plan).await;
        let take = |bytes: &[u8]| {
            is_too_long |= text.len() + bytes.len() > most;
            if is_form && !is_too_long {
                text.extend_from_slice(bytes);
            }
            Ok(())
        };
        body::read(request, &may_wait, take).await?;
    }
    if is_form && is_too_long {
        return Err(Status::CONTENT_TOO_LARGE);
    }
    let form = Form::parse(&text, settings.form_bytes()).map_err(|_| Status::CONTENT_TOO_LARGE)?;
    let method = form.text(settings.method_field());
    let media_type = form.text(settings.media_type_field());
    let body = form.value(settings.body_field()).map(Bytes::copy_from_slice);
    let location = form.text(settings.location_field());
    let user = form.text(settings.user_field());
    // A password with a NUL never matches.
    let password = form.value(settings.password_field()).map(<[u8]>::to_vec);
    for (number, name, field, value) in [
        (2982, "username", settings.user_field(), &user),
        (2983, "password", settings.password_field(), &password),
    ] {
        if value.is_none() {
            let text = format!(
                "form parsed, but {name} field '{field}' was missing or empty, unauthorized"
            );
            request.notify(Notice::new("auth_form", Level::Debug, number, text));
            break;
        }
    }
    if let Some(user) = &user {
        request.resource.user = Some(user.as_slice().into());
    }
    let login = user.zip(password).map(|(user, password)| FormLogin {
        user,
        password,
        method: method.clone(),
        media_type: media_type.clone(),
    });
    Ok(Sent { login, location, media_type, body, method })
}

/// Asks the providers about a login (mod_auth_form.c: check_authn).
async fn check(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    user: &[u8],
    password: &[u8],
) -> Result<Outcome, Answer> {
    let settings = &plan.auth_form;
    let login = Login::of(user, password);
    let checked =
        check_password(pipeline, request, plan, settings.providers(), &login, ("auth_form", 1806));
    let (verdict, places) = checked.await?;
    let path = quoted(&request.resource.path).into_owned();
    let user = quoted(user);
    let (number, text) = match verdict {
        Verdict::Granted => return Ok(Outcome::Granted),
        Verdict::NotFound | Verdict::Failed if !settings.is_authoritative() => {
            return Ok(Outcome::Declined);
        }
        Verdict::Denied => {
            let why = why(plan, &places);
            let text = format!(
                "user '{user}': authentication failure for \"{path}\": password Mismatch; {why}"
            );
            (1807, text)
        }
        Verdict::NotFound => {
            (1808, format!("user '{user}' not found: {path}; {}", why(plan, &places)))
        }
        Verdict::Failed => return Ok(Outcome::Refused(Status::INTERNAL_SERVER_ERROR)),
    };
    request.notify(Notice::new("auth_form", Level::Error, number, text));
    Ok(UNAUTHORIZED)
}

/// Where a login leads to: the place that the form names, or that of the configuration.
fn success_location(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    sent: Option<Vec<u8>>,
) -> Result<Option<Vec<u8>>, Answer> {
    if sent.is_some() {
        return Ok(sent);
    }
    let Some(success) = plan.auth_form.success() else { return Ok(None) };
    expression(pipeline, request, plan, success, (2339, "login success")).map(Some)
}

fn expression(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    text: &Text,
    (number, what): (u16, &str),
) -> Result<Vec<u8>, Answer> {
    let core = pipeline.site.server(request.server).core(plan);
    let value = text.value(&RequestContext::new(request, core)).map(|value| value.to_vec());
    value.map_err(|error| {
        let text = format!("Can't evaluate {what} expression: {error}");
        request.notify(Notice::new("auth_form", Level::Error, number, text));
        Status::INTERNAL_SERVER_ERROR.into()
    })
}

fn redirect(status: Status, target: Vec<u8>) -> Answer {
    let mut fields = Fields::new();
    fields.set("Location", target);
    Answer::with_fields(status, fields)
}

/// The answer to a request without a login. No cache may store the page that asks for one, so that
/// no browser sends the form again.
fn refused(plan: &Plan, status: Status) -> Answer {
    match status {
        Status::UNAUTHORIZED if !plan.auth_form.may_store() => {
            Answer::with_fields(status, auth_form::no_store())
        }
        status => status.into(),
    }
}

/// Answers a request for one of the handlers.
pub(crate) async fn perform(
    work: Work,
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
) -> Answer {
    let answered = match work {
        Work::Login => take_login(pipeline, request, plan).await,
        Work::Logout => log_out(pipeline, request, plan).await,
        Work::Redirect => send_other(pipeline, request, plan),
    };
    answered.unwrap_or_else(|answer| answer)
}

/// Takes the form of a page for logging in (mod_auth_form.c: authenticate_form_login_handler).
async fn take_login(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
) -> Result<Answer, Answer> {
    if request.resource.method != Method::Post {
        let path = quoted(&request.resource.path);
        let text = format!("the form-login-handler only supports the POST method for {path}");
        request.notify(Notice::new("auth_form", Level::Error, 1811, text));
        let mut fields = Fields::new();
        fields.set("Allow", "POST");
        return Err(Answer::with_fields(Status::METHOD_NOT_ALLOWED, fields));
    }
    let realm = realm(pipeline, request, plan)?;
    let known = Kept::of(request).login(&realm);
    let sent = match known {
        Some(login) => {
            Sent { login: Some(login), location: None, media_type: None, body: None, method: None }
        }
        None => read_filtered_form(pipeline, request, plan).await?,
    };
    let outcome = match sent.login {
        Some(login) => enter(pipeline, request, plan, &realm, login).await?,
        None => UNAUTHORIZED,
    };
    match outcome {
        Outcome::Granted => match success_location(pipeline, request, plan, sent.location)? {
            Some(target) => Ok(redirect(Status::FOUND, target)),
            None => Ok(Status::OK.into()),
        },
        UNAUTHORIZED if plan.auth_form.required().is_some() => {
            let mut target = Vec::new();
            if let Some(required) = plan.auth_form.required() {
                target = expression(pipeline, request, plan, required, (2342, "login required"))?;
            }
            Ok(redirect(Status::FOUND, target))
        }
        Outcome::Refused(status) => Err(status.into()),
        // No other module takes the form.
        Outcome::Declined => Err(Status::NOT_FOUND.into()),
    }
}

/// Removes the login from the session (mod_auth_form.c: authenticate_form_logout_handler).
async fn log_out(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
) -> Result<Answer, Answer> {
    let realm = realm(pipeline, request, plan)?;
    if let Some(session) = sessions::load(pipeline, request, plan).await {
        plan.auth_form.keep(&mut session.borrow_mut(), &realm, None);
    }
    let mut fields = auth_form::no_store();
    let Some(logout) = plan.auth_form.logout() else {
        return Ok(Answer::with_fields(Status::OK, fields));
    };
    let target = expression(pipeline, request, plan, logout, (2343, "logout"))?;
    fields.set("Location", target);
    Ok(Answer::with_fields(Status::TEMPORARY_REDIRECT, fields))
}

/// Replaces the login by the request that its form asks for (mod_auth_form.c:
/// authenticate_form_redirect_handler).
fn send_other(pipeline: &Pipeline, request: &mut Request, plan: &Plan) -> Result<Answer, Answer> {
    let realm = realm(pipeline, request, plan)?;
    let login = Kept::of(request).login(&realm);
    let asked = login.and_then(|login| login.method.zip(login.media_type));
    let Some((method, _)) = asked else {
        let text = format!(
            "internal redirect requested but one or all of method, mimetype or body are NULL: {}",
            quoted(&request.resource.path)
        );
        request.notify(Notice::new("auth_form", Level::Error, 1813, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    };
    match Method::parse(&method) {
        Method::Other | Method::Registered => Err(Status::NOT_IMPLEMENTED.into()),
        method => {
            request.resource.method = method;
            // The request that follows finds the session loaded.
            request.resource.always.set("Cache-Control", "no-cache, private");
            let mut target = Vec::new();
            evenkeel_proto::escape_uri(&mut target, &request.resource.path);
            Ok(Answer::Redirect(target))
        }
    }
}
