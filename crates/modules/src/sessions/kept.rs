//! The sessions and logins of a request, which its subrequests and internal redirects share. Apache
//! keeps them in the notes of the client's request.

use super::{Secrets, Session};
use evenkeel_message::Request;
use std::cell::RefCell;
use std::rc::Rc;

/// What a request has of sessions.
#[derive(Debug, Default)]
pub struct Kept {
    /// The values of the cookies that were read, by name.
    cookies: RefCell<Vec<Read>>,
    sessions: RefCell<Vec<One>>,
    logins: RefCell<Vec<(Box<[u8]>, FormLogin)>>,
}

/// The name of a cookie and its value, if there is one.
type Read = (Box<str>, Option<Vec<u8>>);

/// A session, the name of its cookie and what opens it. Sections with other passphrases have
/// another session of the same cookie, so that none of them trusts what it cannot open.
#[derive(Debug)]
struct One {
    cookie: Box<str>,
    secrets: Option<Secrets>,
    session: Rc<RefCell<Session>>,
}

/// A login by a form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormLogin {
    /// The user name.
    pub user: Vec<u8>,
    /// The password.
    pub password: Vec<u8>,
    /// The method of the request that takes the place of the login.
    pub method: Option<Vec<u8>>,
    /// The media type of its body.
    pub media_type: Option<Vec<u8>>,
}

impl Kept {
    /// What this request has.
    #[must_use]
    pub fn of(request: &mut Request) -> Rc<Self> {
        let known = request.sessions.clone().and_then(|kept| kept.downcast::<Self>().ok());
        known.unwrap_or_else(|| {
            let kept = Rc::<Self>::default();
            request.sessions = Some(Rc::<Self>::clone(&kept));
            kept
        })
    }

    /// The value of a cookie, if the cookie was read: none within if there was none.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<Option<Vec<u8>>> {
        let cookies = self.cookies.borrow();
        cookies.iter().find(|(own, _)| **own == *name).map(|(_, value)| value.clone())
    }

    /// Keeps the value of a cookie.
    pub fn keep_cookie(&self, name: &str, value: Option<Vec<u8>>) {
        self.cookies.borrow_mut().push((name.into(), value));
    }

    /// The session of a cookie, if it is there already.
    #[must_use]
    pub fn session(&self, cookie: &str, secrets: Option<&Secrets>) -> Option<Rc<RefCell<Session>>> {
        let sessions = self.sessions.borrow();
        let is_it = |one: &&One| *one.cookie == *cookie && one.secrets.as_ref() == secrets;
        sessions.iter().find(is_it).map(|one| Rc::clone(&one.session))
    }

    /// Keeps a session.
    pub fn keep_session(
        &self,
        cookie: &str,
        secrets: Option<&Secrets>,
        session: Session,
    ) -> Rc<RefCell<Session>> {
        let session = Rc::new(RefCell::new(session));
        self.sessions.borrow_mut().push(One {
            cookie: cookie.into(),
            secrets: secrets.cloned(),
            session: Rc::clone(&session),
        });
        session
    }

    /// The login of a form for a realm.
    #[must_use]
    pub fn login(&self, realm: &[u8]) -> Option<FormLogin> {
        let logins = self.logins.borrow();
        logins.iter().find(|(own, _)| **own == *realm).map(|(_, login)| login.clone())
    }

    /// Keeps the login of a form for a realm.
    pub fn keep_login(&self, realm: &[u8], login: FormLogin) {
        self.logins.borrow_mut().push((realm.into(), login));
    }
}
