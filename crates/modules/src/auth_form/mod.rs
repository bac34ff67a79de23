//! mod_auth_form: logging in with a form, whose user name and password a session keeps. The
//! pipeline reads the form and asks the providers.

mod directives;

pub use crate::{NoSettings as Global, NoSettings as Server};
pub use directives::MODULE;

use crate::passwords::is_equal;
use crate::sessions::Session;
use crate::{AuthnSource, Merge};
use evenkeel_expr::Text;
use evenkeel_message::{Fields, Request};
use md5::{Digest as _, Md5};
use std::sync::Arc;

/// The handler that takes logins.
pub const LOGIN: &[u8] = b"form-login-handler";

/// The handler that ends sessions.
pub const LOGOUT: &[u8] = b"form-logout-handler";

/// The handler of a login whose form asks for another request.
pub const REDIRECT: &[u8] = b"form-redirect-handler";

/// The most bytes of a form where AuthFormSize is not set.
const FORM_BYTES: usize = 8192;

/// The settings of one section. A field is `None` if the section does not set it.
#[derive(Clone, Default)]
pub struct Directory {
    providers: Option<Arc<Vec<AuthnSource>>>,
    authoritative: Option<bool>,
    site: Option<Arc<str>>,
    names: Names,
    size: Option<usize>,
    fake_basic: Option<bool>,
    disable_no_store: Option<bool>,
    success: Option<Arc<Text>>,
    required: Option<Arc<Text>>,
    logout: Option<Arc<Text>>,
}

/// The names of the fields of the form.
#[derive(Clone, Debug, Default)]
struct Names {
    user: Option<Arc<str>>,
    password: Option<Arc<str>>,
    location: Option<Arc<str>>,
    method: Option<Arc<str>>,
    media_type: Option<Arc<str>>,
    body: Option<Arc<str>>,
}

impl Merge for Names {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; user, password, location, method, media_type, body)
    }
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(
            base, over; providers, authoritative, site, names, size, fake_basic, disable_no_store,
            success, required, logout
        )
    }
}

impl Directory {
    /// The providers of AuthFormProvider, in order. Empty if it is not set.
    #[must_use]
    pub fn providers(&self) -> &[AuthnSource] {
        self.providers.as_ref().map_or(&[], |providers| providers)
    }

    /// Whether a login is rejected if no provider knows the user (AuthFormAuthoritative).
    #[must_use]
    pub fn is_authoritative(&self) -> bool {
        self.authoritative.unwrap_or(true)
    }

    /// The most bytes of names and values of a form (AuthFormSize).
    #[must_use]
    pub fn form_bytes(&self) -> usize {
        self.size.unwrap_or(FORM_BYTES)
    }

    /// Whether applications get the login as one of the scheme Basic (AuthFormFakeBasicAuth).
    #[must_use]
    pub fn fakes_basic(&self) -> bool {
        self.fake_basic == Some(true)
    }

    /// Whether caches may store a page with the form (AuthFormDisableNoStore).
    #[must_use]
    pub fn may_store(&self) -> bool {
        self.disable_no_store == Some(true)
    }

    /// Where a login leads to (AuthFormLoginSuccessLocation).
    #[must_use]
    pub fn success(&self) -> Option<&Arc<Text>> {
        self.success.as_ref()
    }

    /// Where a request without a login leads to (AuthFormLoginRequiredLocation).
    #[must_use]
    pub fn required(&self) -> Option<&Arc<Text>> {
        self.required.as_ref()
    }

    /// Where the end of a session leads to (AuthFormLogoutLocation).
    #[must_use]
    pub fn logout(&self) -> Option<&Arc<Text>> {
        self.logout.as_ref()
    }

    /// The field with the user name.
    #[must_use]
    pub fn user_field(&self) -> &str {
        self.names.user.as_deref().unwrap_or("httpd_username")
    }

    /// The field with the password.
    #[must_use]
    pub fn password_field(&self) -> &str {
        self.names.password.as_deref().unwrap_or("httpd_password")
    }

    /// The field with the URL that a login leads to.
    #[must_use]
    pub fn location_field(&self) -> &str {
        self.names.location.as_deref().unwrap_or("httpd_location")
    }

    /// The field with the method of the request that follows.
    #[must_use]
    pub fn method_field(&self) -> &str {
        self.names.method.as_deref().unwrap_or("httpd_method")
    }

    /// The field with the media type of its body.
    #[must_use]
    pub fn media_type_field(&self) -> &str {
        self.names.media_type.as_deref().unwrap_or("httpd_mimetype")
    }

    /// The field with its body.
    #[must_use]
    pub fn body_field(&self) -> &str {
        self.names.body.as_deref().unwrap_or("httpd_body")
    }

    /// Whether the hash in a session proves that the user has logged in, so that no provider is
    /// asked (AuthFormSitePassphrase; mod_auth_form.c: check_site).
    #[must_use]
    pub fn knows(&self, user: &[u8], hash: &[u8]) -> bool {
        let Some(site) = &self.site else { return false };
        is_equal(&site_hash(user, site), hash)
    }

    /// Keeps a login in a session, or removes the login from it (mod_auth_form.c:
    /// set_session_auth).
    pub fn keep(&self, session: &mut Session, realm: &[u8], login: Option<(&[u8], &[u8])>) {
        let hash = match (login, &self.site) {
            (Some((user, _)), Some(site)) => Some(site_hash(user, site)),
            _ => None,
        };
        session.change(&entry(realm, "user"), login.map(|(user, _)| user));
        session.change(&entry(realm, "pw"), login.map(|(_, password)| password));
        session.change(&entry(realm, "site"), hash.as_deref());
    }
}

/// What a session knows of a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The user name.
    pub user: Option<Vec<u8>>,
    /// The password.
    pub password: Option<Vec<u8>>,
    /// The hash of the user name and AuthFormSitePassphrase.
    pub hash: Option<Vec<u8>>,
}

impl Remembered {
    /// The login of a realm in a session (mod_auth_form.c: get_session_auth).
    #[must_use]
    pub fn of(session: &Session, realm: &[u8]) -> Self {
        let value = |name| session.value(&entry(realm, name)).map(<[u8]>::to_vec);
        Self { user: value("user"), password: value("pw"), hash: value("site") }
    }
}

fn entry(realm: &[u8], name: &str) -> Vec<u8> {
    [realm, b"-", name.as_bytes()].concat()
}

fn site_hash(user: &[u8], site: &str) -> Vec<u8> {
    let digest = Md5::digest([user, b":", site.as_bytes()].concat());
    digest.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

/// Gives applications the login as one of the scheme Basic.
pub fn fake_basic(request: &mut Request, user: &[u8], password: &[u8]) {
    use base64::Engine as _;
    let login = [user, b":", password].concat();
    let encoded = base64::engine::general_purpose::STANDARD.encode(login);
    request.fields_mut().set("Authorization", format!("Basic {encoded}"));
}

/// The field of a page that caches may not store.
#[must_use]
pub fn no_store() -> Fields {
    let mut fields = Fields::new();
    fields.set("Cache-Control", "no-store");
    fields
}

/// What a request is for, by the name of its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Takes a login.
    Login,
    /// Ends a session.
    Logout,
    /// Sends the request of a login's form.
    Redirect,
}

/// The work of a request for one of the handlers.
#[must_use]
pub fn wanted(request: &Request) -> Option<Work> {
    match request.resource.content.handler.as_deref()? {
        LOGIN => Some(Work::Login),
        LOGOUT => Some(Work::Logout),
        REDIRECT => Some(Work::Redirect),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_keeps_a_login_until_it_is_removed() {
        let settings = Directory { site: Some("secret".into()), ..Directory::default() };
        let mut session = Session::default();
        settings.keep(&mut session, b"realm", Some((b"ann", b"pw")));
        let remembered = Remembered::of(&session, b"realm");
        assert_eq!(remembered.user.as_deref(), Some(&b"ann"[..]));
        // md5 of `ann:secret`.
        let hash = remembered.hash.unwrap();
        assert!(settings.knows(b"ann", &hash));
        assert!(!settings.knows(b"eve", &hash) && !settings.knows(b"ann", b""));
        assert!(!Directory::default().knows(b"ann", &hash));
        assert_eq!(Remembered::of(&session, b"other"), Remembered::default());
        settings.keep(&mut session, b"realm", None);
        assert_eq!(Remembered::of(&session, b"realm"), Remembered::default());
    }
}
