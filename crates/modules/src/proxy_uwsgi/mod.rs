//! mod_proxy_uwsgi: applications behind the protocol of uWSGI. [`script`] names the script of a
//! request, and [`fix_variables`] sets the variables that this protocol has differently.

pub use crate::{NoSettings as Directory, NoSettings as Server, NoSettings as Global};

use crate::gateway::{Script, url_as_file};
use crate::{Active, Module};
use evenkeel_message::{Answer, Level, Name, Notice, Proxied, Request, Status, Variables, quoted};

/// mod_proxy_uwsgi.
pub const MODULE: Module = Module {
    file: "mod_proxy_uwsgi.c",
    identifier: "proxy_uwsgi_module",
    active: Active::WhenNamed,
    page: "mod_proxy_uwsgi",
    subject: "Applications of Python and others behind uWSGI, in its own protocol.",
    remarks: &[
        "The body of a request is read whole before the application is asked, up to 64 KiB in \
         memory and more in /var/tmp. A slow client holds no worker of the application, and a \
         chunked body has a CONTENT_LENGTH. Apache streams it, and answers 411 to chunks.",
        "The Content-Length of an application is not used. A response whose end is there together \
         with its head has its own length, and others are sent in chunks.",
        "`RewriteRule ... uwsgi://... [P]` passes requests on. mod_rewrite of Apache does not know \
         this scheme, and answers 500.",
    ],
    directives: &[],
    provides: &[],
};

/// Names the script of a target, and returns the PATH_INFO of the application with it
/// (mod_proxy_uwsgi.c: `uwsgi_canon`, `uwsgi_handler`).
///
/// # Errors
/// 403 if a path without percent-encoding contains a control character or a space. 500 if the path
/// cannot be decoded.
pub fn script(request: &mut Request, proxied: &Proxied) -> Result<(Script, Vec<u8>), Answer> {
    let is_odd = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
    if proxied.is_raw && proxied.path.iter().any(is_odd) {
        let text = "To be forwarded path contains control characters or spaces";
        request.notify(Notice::new("proxy_uwsgi", Level::Error, 10417, text));
        return Err(Status::FORBIDDEN.into());
    }
    let Some(path) = unescaped(&proxied.path) else {
        let url = proxied.target.url(&proxied.path);
        let text = format!("unable to decode uwsgi uri: {}", quoted(&url));
        request.notify(Notice::new("proxy_uwsgi", Level::Error, 10100, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    };
    // Apache decodes the path where it stands, in the name of the file.
    let file = url_as_file(&proxied.target, &path);
    // One slash of those at the front is left.
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    let path = path.get(slashes.saturating_sub(1)..).unwrap_or_default().to_vec();
    let path_info = request.resource.path_info.clone();
    Ok((Script { file, path_info }, path))
}

/// Decodes a path. `None` if an escape is malformed, or stands for a slash or NUL (util.c:
/// `ap_unescape_url`).
fn unescaped(path: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::with_capacity(path.len()), path);
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let [high, low, after @ ..] = behind else { return None };
        let byte = (digit(*high)? << 4) | digit(*low)?;
        if matches!(byte, b'/' | 0) {
            return None;
        }
        out.push(byte);
        rest = after;
    }
    Some(out)
}

/// Sets the variables that differ from those of CGI: the application gets the credentials, a
/// PATH_INFO in any case, and a SCRIPT_NAME without it (mod_proxy_uwsgi.c: `uwsgi_send_headers`).
pub fn fix_variables(request: &Request, variables: &mut Variables, path: &[u8]) {
    if let Some(value) = request.fields().first(Name::Authorization) {
        variables.set("HTTP_AUTHORIZATION", value);
    }
    if !variables.contains("PATH_INFO") {
        variables.set("PATH_INFO", path);
    }
    let path_info = variables.value("PATH_INFO").unwrap_or_default().to_vec();
    let script_name = variables.value("SCRIPT_NAME").unwrap_or_default().to_vec();
    if path_info == b"/" {
        if script_name == b"/" {
            variables.set("SCRIPT_NAME", "");
        }
        return;
    }
    // A name that is shorter stays: it does not end with the path.
    if let Some(length) = script_name.len().checked_sub(path_info.len()) {
        variables.set("SCRIPT_NAME", script_name.get(..length).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_slashes_are_refused() {
        assert_eq!(unescaped(b"/a%20b").as_deref(), Some(&b"/a b"[..]));
        for wrong in ["/a%2Fb", "/a%00", "/a%zz", "/a%4"] {
            assert_eq!(unescaped(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
