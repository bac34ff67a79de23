//! mod_auth_form's directives.

use super::Directory;
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_expr::Text;
use std::sync::Arc;

const AUTH: Where = Where::AUTH_CONFIG;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("AuthFormProvider", AUTH, Shape::Iterate, "file", "specify the auth providers for a directory or location", provider),
    directive("AuthFormUsername", AUTH, Shape::One, "httpd_username", "The field of the login form carrying the username", user),
    directive("AuthFormPassword", AUTH, Shape::One, "httpd_password", "The field of the login form carrying the password", password),
    directive("AuthFormLocation", AUTH, Shape::One, "httpd_location", "The field of the login form carrying the URL to redirect on successful login.", location),
    directive("AuthFormMethod", AUTH, Shape::One, "httpd_method", "The field of the login form carrying the original request method.", method),
    directive("AuthFormMimetype", AUTH, Shape::One, "httpd_mimetype", "The field of the login form carrying the original request mimetype.", media_type),
    directive("AuthFormBody", AUTH, Shape::One, "httpd_body", "The field of the login form carrying the urlencoded original request body.", body),
    directive("AuthFormSize", Where::SECTION, Shape::One, "8192", "Maximum size of body parsed by the form parser", size),
    directive("AuthFormLoginRequiredLocation", AUTH, Shape::One, "", "If set, redirect the browser to this URL rather than return 401 Not Authorized.", required),
    directive("AuthFormLoginSuccessLocation", AUTH, Shape::One, "", "If set, redirect the browser to this URL when a login processed by the login handler is successful.", success),
    directive("AuthFormLogoutLocation", AUTH, Shape::One, "", "The URL of the logout successful page. An attempt to access an URL handled by the handler form-logout-handler will result in an redirect to this page after logout.", logout),
    directive("AuthFormSitePassphrase", AUTH, Shape::One, "", "If set, use this passphrase to determine whether the user should be authenticated. Bypasses the user authentication check on every website hit, and is useful for high traffic sites.", site),
    directive("AuthFormAuthoritative", AUTH, Shape::Flag, "On", "Set to 'Off' to allow access control to be passed along to lower modules if the UserID is not known to this module", authoritative),
    directive("AuthFormFakeBasicAuth", AUTH, Shape::Flag, "Off", "Set to 'On' to pass through authentication to the rest of the server as a basic authentication header.", fake_basic),
    directive("AuthFormDisableNoStore", AUTH, Shape::Flag, "Off", "Set to 'on' to stop the sending of a Cache-Control no-store header with the login screen. This allows the browser to cache the credentials, but at the risk of it being possible for the login form to be resubmitted and revealed to the backend server through XSS. Use at own risk.", disable_no_store),
];

/// mod_auth_form.
pub const MODULE: Module = Module {
    file: "mod_auth_form.c",
    identifier: "auth_form_module",
    active: Active::WhenNamed,
    page: "mod_auth_form",
    subject: "Logging in with a form (`AuthType form`), and the handlers `form-login-handler` and \
              `form-logout-handler`.",
    remarks: &[
        "A session holds the password. Seal it (SessionCryptoPassphrase), and serve it over TLS.",
        "The request that a form asks for (AuthFormMethod, AuthFormMimetype, AuthFormBody) is an \
         internal redirect, whose response has its own fields and status. In Apache it is a \
         subrequest, so that the response lacks its validators. A method that the server does not \
         know is answered with 501.",
        "User and password of a form are no notes of the request: no LogFormat shows them.",
        "The handlers need AuthName; in Apache a login without a realm is never found again.",
        "A password that contains a NUL is always rejected.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn settings(scope: &mut Scope) -> &mut Directory {
    &mut scope.directory.auth_form
}

fn provider(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let source = scope.global().active.named_authn_source(call.first())?;
    Arc::make_mut(settings(scope).providers.get_or_insert_default()).push(source);
    Ok(())
}

/// The name of a field of the form.
fn field(call: &Call<'_>) -> Result<Option<Arc<str>>, String> {
    let name = call.first();
    if name.is_empty() || name.contains(['=', '&']) {
        return Err(format!("{} cannot be empty, or contain '=' or '&'.", call.name));
    }
    Ok(Some(name.into()))
}

fn user(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).names.user = field(call)?;
    Ok(())
}

fn password(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).names.password = field(call)?;
    Ok(())
}

fn location(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).names.location = field(call)?;
    Ok(())
}

fn method(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).names.method = field(call)?;
    Ok(())
}

fn media_type(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).names.media_type = field(call)?;
    Ok(())
}

fn body(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).names.body = field(call)?;
    Ok(())
}

fn size(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = call.first();
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let digits = text.get(..end).filter(|digits| !digits.is_empty());
    let size = match digits {
        Some(digits) => digits.parse().ok(),
        None if text.starts_with('-') => None,
        None => Some(0),
    };
    let Some(size) = size else {
        return Err("AuthCookieFormSize must be a size in bytes, or zero.".to_owned());
    };
    settings(scope).size = Some(size);
    Ok(())
}

/// Compiles a location. `what` names it in the error.
fn compile(scope: &Scope, call: &Call<'_>, what: &str) -> Result<Option<Arc<Text>>, String> {
    let text = call.first();
    let compiled = scope.compile_text(text);
    let fault = |error| format!("Could not parse {what} expression '{text}': {error}");
    compiled.map(|text| Some(Arc::new(text))).map_err(fault)
}

fn required(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = compile(scope, call, "login required")?;
    settings(scope).required = text;
    Ok(())
}

fn success(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = compile(scope, call, "login success")?;
    settings(scope).success = text;
    Ok(())
}

fn logout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = compile(scope, call, "logout required")?;
    settings(scope).logout = text;
    Ok(())
}

fn site(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).site = Some(call.first().into());
    Ok(())
}

fn authoritative(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).authoritative = Some(call.flag);
    Ok(())
}

fn fake_basic(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).fake_basic = Some(call.flag);
    Ok(())
}

fn disable_no_store(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).disable_no_store = Some(call.flag);
    Ok(())
}
