//! The CGI variables of a request (RFC 3875, section 4; util_script.c: `ap_add_common_vars`,
//! `ap_add_cgi_vars`).

use crate::CoreSettings;
use crate::core::{public_name, public_port};
use evenkeel_message::{AddressText, Name, Request, Variables, eq_ignore_case};
use evenkeel_proto::escaped_html;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::LazyLock;

/// The default of PATH, if neither the environment of the request nor that of the server sets it
/// (ap_config_layout.h: DEFAULT_PATH).
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin:/usr/ucb:/usr/bsd:/usr/local/bin";

/// The variables of the server's own environment that a script gets. They are read once, because
/// a look into the environment takes a lock and scans it.
static OWN: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(|| {
    let own = |name| std::env::var_os(name).map(OsStringExt::into_vec);
    let path = own("PATH").unwrap_or_else(|| DEFAULT_PATH.to_vec());
    let libraries = own("LD_LIBRARY_PATH").map(|value| ("LD_LIBRARY_PATH", value));
    [("PATH", path)].into_iter().chain(libraries).collect()
});

/// The usual number of variables beside those of the header fields.
const USUAL: usize = 26;

/// More than the usual number of bytes of all variables.
const USUAL_BYTES: usize = 2048;

/// The values of variables that a [`Request`] does not contain.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// SCRIPT_FILENAME.
    pub file: &'a [u8],
    /// The rest of the path behind the program (PATH_INFO).
    pub path_info: &'a [u8],
    /// The file that PATH_INFO maps to (PATH_TRANSLATED).
    pub path_translated: Option<&'a [u8]>,
    /// The length of the body, if it was read completely, in bytes.
    pub body_length: Option<u64>,
    /// SERVER_SIGNATURE, with the newline at its end.
    pub signature: &'a str,
    /// SERVER_SOFTWARE.
    pub software: &'a str,
}

/// Returns the environment of the request with the CGI variables. A CGI variable replaces a
/// variable of the environment with the same name.
#[must_use]
pub fn variables(request: &Request, core: CoreSettings<'_>, program: &Program<'_>) -> Variables {
    let mut variables = request.resource.env.clone();
    variables.reserve(request.fields().len() + USUAL, USUAL_BYTES);
    add_fields(&mut variables, request, core, program);
    for (name, value) in &*OWN {
        if !variables.contains(name) {
            variables.set(name, value);
        }
    }
    add_server(&mut variables, request, core, program);
    add_client(&mut variables, request);
    add_previous(&mut variables, request, core);
    add_request(&mut variables, request, core, program);
    variables
}

/// Adds the header fields of the request: HTTP_NAME, CONTENT_TYPE and CONTENT_LENGTH.
fn add_fields(
    variables: &mut Variables,
    request: &Request,
    core: CoreSettings<'_>,
    program: &Program<'_>,
) {
    let passes_credentials = core.directory.cgi_pass_auth == Some(true);
    let mut variable = Vec::new();
    for (known, name, value) in request.fields().merged() {
        match known {
            Name::Authorization | Name::ProxyAuthorization if !passes_credentials => {}
            // A body that was read completely is sent with its length, and without chunks.
            Name::ContentLength => {}
            Name::TransferEncoding if program.body_length.is_some() => {}
            Name::ContentType => variables.set("CONTENT_TYPE", value),
            // Many programs read HTTP_PROXY as a setting, which no client may set (httpoxy).
            Name::Other if eq_ignore_case(name, b"Proxy") => {}
            Name::Other => {
                variable.clear();
                if export(&mut variable, name) {
                    variables.set(&variable, value);
                }
            }
            _ => variables.set(known.variable(), value),
        }
    }
    if let Some(length) = program.body_length {
        variables.set("CONTENT_LENGTH", itoa::Buffer::new().format(length));
    }
}

/// Appends the variable of a header field. Returns false if the name of the field has other bytes
/// than letters, digits and `-` (util_script.c: `http2env`).
fn export(variable: &mut Vec<u8>, name: &[u8]) -> bool {
    variable.extend_from_slice(b"HTTP_");
    let mut is_exported = true;
    variable.extend(name.iter().map(|byte| {
        let exported = EXPORTED.get(usize::from(*byte)).copied().unwrap_or_default();
        is_exported &= exported != 0;
        exported
    }));
    is_exported
}

/// What the bytes of the name of a field become in the name of a variable. A name with a byte that
/// becomes 0 is not exported.
const EXPORTED: [u8; 256] = {
    let (mut table, mut byte) = ([0; 256], 0_u8);
    let mut rest: &mut [u8] = &mut table;
    while let Some((place, behind)) = rest.split_first_mut() {
        *place = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => byte.to_ascii_uppercase(),
            b'-' => b'_',
            _ => 0,
        };
        (rest, byte) = (behind, byte.wrapping_add(1));
    }
    table
};

fn add_server(
    variables: &mut Variables,
    request: &Request,
    core: CoreSettings<'_>,
    program: &Program<'_>,
) {
    let root = core.server.document_root.as_ref();
    let root = root.map_or(&b""[..], |root| root.as_os_str().as_bytes());
    let notes = &request.resource.notes;
    let public = public_name(request, core);
    let mut name = escaped_html(&public);
    if public.contains(&b':') {
        name = [b"[", &*name, b"]"].concat().into();
    }
    variables.set("SERVER_SIGNATURE", program.signature);
    variables.set("SERVER_SOFTWARE", program.software);
    variables.set("SERVER_NAME", name);
    variables.set("SERVER_ADDR", AddressText::new(request.peer.local_ip()).as_bytes());
    let mut decimal = itoa::Buffer::new();
    variables.set("SERVER_PORT", decimal.format(public_port(request, core)));
    let name = request.names.as_deref().and_then(|names| names.client.as_deref());
    if let Some(name) = name {
        variables.set("REMOTE_HOST", name);
    }
    variables.set("REMOTE_ADDR", AddressText::new(request.peer.client_ip()).as_bytes());
    variables.set("DOCUMENT_ROOT", root);
    variables.set("REQUEST_SCHEME", request.scheme());
    variables.set("CONTEXT_PREFIX", notes.value("context-prefix").unwrap_or_default());
    let context_root = notes.value("context-document-root").unwrap_or(root);
    variables.set("CONTEXT_DOCUMENT_ROOT", context_root);
    let admin = core.server.admin.as_deref().unwrap_or("[no address given]");
    variables.set("SERVER_ADMIN", admin);
    variables.set("SCRIPT_FILENAME", program.file);
}

fn add_client(variables: &mut Variables, request: &Request) {
    let mut decimal = itoa::Buffer::new();
    variables.set("REMOTE_PORT", decimal.format(request.peer.client.port()));
    match &request.resource.user {
        Some(user) => variables.set("REMOTE_USER", user),
        None => {
            let mut previous = request.previous.as_deref();
            while let Some(before) = previous {
                if let Some(user) = &before.resource.user {
                    variables.set("REDIRECT_REMOTE_USER", user);
                    break;
                }
                previous = before.previous.as_deref();
            }
        }
    }
    if let Some(auth_type) = &request.resource.auth_type {
        variables.set("AUTH_TYPE", auth_type);
    }
}

/// Adds the variables of the request that was redirected internally to this one.
fn add_previous(variables: &mut Variables, request: &Request, core: CoreSettings<'_>) {
    let Some(previous) = request.previous.as_deref() else { return };
    let path = &previous.resource.path;
    match core.directory.qualify_redirects {
        Some(true) => {
            variables.set("REDIRECT_URL", crate::core::public_url(request, core, path));
        }
        _ => variables.set("REDIRECT_URL", &**path),
    }
    if let Some(query) = &previous.resource.query {
        variables.set("REDIRECT_QUERY_STRING", query);
    }
}

fn add_request(
    variables: &mut Variables,
    request: &Request,
    core: CoreSettings<'_>,
    program: &Program<'_>,
) {
    let resource = &request.resource;
    variables.set("GATEWAY_INTERFACE", "CGI/1.1");
    // A subrequest is no request of a protocol (request.c: set_sub_req_protocol).
    let protocol = if resource.depth > 0 { "INCLUDED" } else { request.head.version.text() };
    variables.set("SERVER_PROTOCOL", protocol);
    variables.set("REQUEST_METHOD", request.method_name());
    variables.set("QUERY_STRING", resource.query.as_deref().unwrap_or_default());
    let rule = core.directory.cgi_variables.iter().rev().find(|(name, _)| &**name == "REQUEST_URI");
    let is_current = rule.is_some_and(|(_, rule)| &**rule == "current-uri");
    match is_current {
        true => variables.set("REQUEST_URI", &*resource.path),
        false => variables.set("REQUEST_URI", request.head.target()),
    }
    let path = &*resource.path;
    if program.path_info.is_empty() {
        variables.set("SCRIPT_NAME", path);
        return;
    }
    if resource.depth > 0 {
        variables.set("SCRIPT_NAME", path);
        variables.set("PATH_INFO", program.path_info);
        return;
    }
    let end = find_path_info(path, program.path_info);
    variables.set("SCRIPT_NAME", path.get(..end).unwrap_or_default());
    variables.set("PATH_INFO", program.path_info);
    if let Some(translated) = program.path_translated {
        variables.set("PATH_TRANSLATED", translated);
    }
}

/// Returns the offset at which `path_info` begins in `path`. The two are compared from their ends,
/// because `path` may have several slashes where `path_info` has one (util_script.c:
/// `ap_find_path_info`).
fn find_path_info(path: &[u8], path_info: &[u8]) -> usize {
    let (mut end, mut rest) = (path.len(), path_info);
    while let (Some(at), [before @ .., last]) = (end.checked_sub(1), rest) {
        if path.get(at) != Some(last) {
            break;
        }
        (end, rest) = (at, before);
        if *last == b'/' {
            while end > 0 && path.get(end - 1) == Some(&b'/') {
                end -= 1;
            }
        }
    }
    let tail = path.get(end..).unwrap_or_default();
    end + tail.iter().position(|byte| *byte == b'/').unwrap_or(tail.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_info_is_found_from_behind() {
        assert_eq!(find_path_info(b"/a.php/x/y", b"/x/y"), 6);
        assert_eq!(find_path_info(b"/a.php//x//y", b"/x/y"), 6);
        assert_eq!(find_path_info(b"/a.php", b"/zz"), 6);
        assert_eq!(find_path_info(b"/x/y", b"/x/y"), 0);
        assert_eq!(find_path_info(b"/dir/alias", b"/other/alias"), 4);
    }

    #[test]
    fn names_with_other_bytes_are_not_exported() {
        let mut variable = Vec::new();
        assert!(export(&mut variable, b"x-Forwarded-For"));
        assert_eq!(variable, b"HTTP_X_FORWARDED_FOR");
        assert!(!export(&mut variable, b"x_y") && !export(&mut variable, b"x.y"));
    }

    #[test]
    fn variables_of_known_names_are_exported_names() {
        for known in [Name::Te, Name::Host, Name::ETag, Name::UpgradeInsecureRequests] {
            let mut variable = Vec::new();
            assert!(export(&mut variable, known.text().as_bytes()));
            assert_eq!(known.variable(), variable);
        }
        assert_eq!(Name::Other.variable(), b"");
    }
}
