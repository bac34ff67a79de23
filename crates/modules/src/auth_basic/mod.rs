//! mod_auth_basic: authentication with a user name and a password that are sent unencrypted (RFC
//! 7617). This module reads no file: the pipeline passes the [`Login`] of a request to the
//! providers.

mod directives;

pub use crate::{NoSettings as Server, NoSettings as Global};
pub use directives::MODULE;

use crate::passwords::Login;
use crate::{AuthnSource, Merge, RequestContext};
use evenkeel_expr::Text;
use evenkeel_message::{Fields, Level, Notice, Request, Status, quoted};
use std::sync::Arc;

/// The provider if AuthBasicProvider is not set (AUTHN_DEFAULT_PROVIDER).
pub const DEFAULT_PROVIDER: &str = "file";

/// The settings of one section. A field is `None` if the section does not set it.
#[derive(Clone, Default)]
pub struct Directory {
    /// AuthBasicProvider.
    providers: Option<Arc<Vec<AuthnSource>>>,
    /// AuthBasicAuthoritative.
    authoritative: Option<bool>,
    /// AuthBasicFake. `Some(None)` is `off`.
    fake: Option<Option<Arc<Fake>>>,
    /// AuthBasicUseDigestAlgorithm: true for `MD5`, false for `Off`.
    digest: Option<bool>,
}

/// The expressions of AuthBasicFake for the user name and the password.
struct Fake {
    user: Text,
    password: Text,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; providers, authoritative, fake, digest)
    }
}

impl Directory {
    /// Whether AuthBasicFake makes the login of a request.
    #[must_use]
    pub fn is_faking(&self) -> bool {
        matches!(self.fake, Some(Some(_)))
    }

    /// The providers of AuthBasicProvider, in order. Empty if AuthBasicProvider is not set.
    #[must_use]
    pub fn providers(&self) -> &[AuthnSource] {
        self.providers.as_ref().map_or(&[], |providers| providers)
    }

    /// Whether a login is rejected if no provider knows the user or a provider fails. Otherwise
    /// another module decides (AuthBasicAuthoritative).
    #[must_use]
    pub fn is_authoritative(&self) -> bool {
        self.authoritative.unwrap_or(true)
    }

    /// Whether the providers compare hashes of htdigest (AuthBasicUseDigestAlgorithm MD5).
    #[must_use]
    pub fn uses_digests(&self) -> bool {
        self.digest == Some(true)
    }
}

/// Parses the Authorization field of a request (mod_auth_basic.c: get_basic_auth).
///
/// # Errors
/// 401 if the field is missing or has another scheme than Basic.
pub fn login(request: &mut Request) -> Result<Login, Status> {
    let Some(field) = request.fields().whole(b"Authorization") else {
        return Err(Status::UNAUTHORIZED);
    };
    if let Some(login) = Login::parse(&field) {
        return Ok(login);
    }
    let path = quoted(&request.resource.path).into_owned();
    let text = format!("client used wrong authentication scheme: {path}");
    request.notify(Notice::new("auth_basic", Level::Error, 1614, text));
    Err(Status::UNAUTHORIZED)
}

/// The WWW-Authenticate field of a 401 response.
#[must_use]
pub fn challenge(realm: &[u8]) -> Fields {
    let mut fields = Fields::new();
    fields.set("WWW-Authenticate", [b"Basic realm=\"", realm, b"\""].concat());
    fields
}

/// Replaces the Authorization field that an application receives (AuthBasicFake). Removes the field
/// if an expression yields an empty text.
///
/// # Errors
/// 500 if an expression cannot be evaluated.
pub fn fake(
    request: &mut Request,
    settings: &Directory,
    core: crate::CoreSettings<'_>,
) -> Result<(), Status> {
    let Some(Some(fake)) = &settings.fake else { return Ok(()) };
    let mut parts = Vec::new();
    let words = [(&fake.user, "user", 2455, 2458), (&fake.password, "password", 2456, 2459)];
    for (text, word, failed, is_empty) in words {
        let value = text.value(&RequestContext::new(request, core)).map(|it| it.to_vec());
        let path = quoted(&request.resource.path).into_owned();
        match value {
            Ok(value) if value.is_empty() => {
                let name = if word == "user" { "username" } else { word };
                let text =
                    format!("AuthBasicFake: empty {name} expression for URI '{path}', ignoring");
                request.notify(Notice::new("auth_basic", Level::Info, is_empty, text));
                request.fields_mut().remove("Authorization");
                return Ok(());
            }
            Ok(value) => parts.push(value),
            Err(error) => {
                let text = format!(
                    "AuthBasicFake: could not evaluate {word} expression for URI '{path}': {error}"
                );
                request.notify(Notice::new("auth_basic", Level::Error, failed, text));
                return Err(Status::INTERNAL_SERVER_ERROR);
            }
        }
    }
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(parts.join(&b':'));
    let text = format!("Basic {encoded}");
    // Apache's log line contains the password; this one does not.
    let told = "AuthBasicFake: the Authorization field is replaced";
    request.notify(Notice::new("auth_basic", Level::Info, 2457, told));
    request.fields_mut().set("Authorization", text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{Peer, RequestHead};

    fn sent(field: Option<&str>) -> Result<Login, Status> {
        let address = "127.0.0.1:80".parse().unwrap();
        let mut head = RequestHead::default();
        if let Some(field) = field {
            head.fields.set("Authorization", field);
        }
        login(&mut Request::new(head, Peer { client: address, local: address }, 0))
    }

    #[test]
    fn a_login_is_read_as_apache_reads_it() {
        for (field, user, password) in [
            ("Basic YW5uOnNlY3JldA==", "ann", "secret"),
            ("basic   YW5uOnNlY3JldA", "ann", "secret"),
            ("BASIC \tYW5uOnNlOmNyZXQ=", "ann", "se:cret"),
            ("Basic YW5u", "ann", ""),
            ("Basic YW5uOg==garbage", "ann", ""),
            ("Basic", "", ""),
            ("Basic ====", "", ""),
            ("Basic YW5uOnNlY3JldAB4", "ann", "secret\0x"),
            ("Basic YW5uADpzZWNyZXQ=", "ann", "\0:secret"),
        ] {
            let login = sent(Some(field)).unwrap();
            assert_eq!(login.user(), user.as_bytes(), "{field}");
            assert_eq!(login.password(), password.as_bytes(), "{field}");
        }
        for field in [None, Some("Digest x"), Some("Basicx YW5uOnNlY3JldA=="), Some("")] {
            assert_eq!(sent(field), Err(Status::UNAUTHORIZED), "{field:?}");
        }
    }

    #[test]
    fn a_digest_is_htdigests() {
        let login = sent(Some("Basic YW5uOnNlY3JldA==")).unwrap();
        assert_eq!(login.digest(b"here"), b"a0e5c6e967cb96af96e17a87f6a6ca1c");
    }
}
