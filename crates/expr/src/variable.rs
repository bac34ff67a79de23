//! The variables between `%{` and `}`. The table has every variable that the core of Apache 2.4
//! knows (server/util_expr_eval.c). Their values come from the [`Context`](crate::Context) of the
//! caller.

/// A request header that has a variable of its own, and its spelling in `Vary`.
const HEADERS: &[(&str, &str)] = &[
    ("HTTP_ACCEPT", "Accept"),
    ("HTTP_COOKIE", "Cookie"),
    ("HTTP_FORWARDED", "Forwarded"),
    ("HTTP_HOST", "Host"),
    ("HTTP_PROXY_CONNECTION", "Proxy-Connection"),
    ("HTTP_REFERER", "Referer"),
    ("HTTP_USER_AGENT", "User-Agent"),
];

/// Declares each variable once: its variant, its name, its meaning.
macro_rules! variables {
    ($($(#[doc = $text:literal])+ $variant:ident = $name:literal,)+) => {
        /// A variable whose value the server knows. Other `HTTP_*` variables are headers.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Variable {
            $($(#[doc = $text])+ $variant,)+
        }

        impl Variable {
            /// Every variable, in the order of Apache's manual.
            pub const ALL: &[Variable] = &[$(Variable::$variant,)+];

            /// The variable's name as configuration files spell it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Variable::$variant => $name,)+
                }
            }
        }
    };
}

variables! {
    /// The method, such as `GET`.
    RequestMethod = "REQUEST_METHOD",
    /// The scheme of the request's URI, such as `http`.
    RequestScheme = "REQUEST_SCHEME",
    /// The decoded path of the URI, without the query.
    RequestUri = "REQUEST_URI",
    /// The same as `REQUEST_URI`.
    DocumentUri = "DOCUMENT_URI",
    /// The file that the path was mapped to, or the path until it is mapped.
    RequestFilename = "REQUEST_FILENAME",
    /// The same as `REQUEST_FILENAME`.
    ScriptFilename = "SCRIPT_FILENAME",
    /// The file's time of modification in local time, such as `20101231235959`.
    LastModified = "LAST_MODIFIED",
    /// The name of the file's owner.
    ScriptUser = "SCRIPT_USER",
    /// The name of the file's group.
    ScriptGroup = "SCRIPT_GROUP",
    /// What follows the file in the path.
    PathInfo = "PATH_INFO",
    /// The query without its question mark.
    QueryString = "QUERY_STRING",
    /// `true` within a subrequest, else `false`.
    IsSubreq = "IS_SUBREQ",
    /// The request line as it was received.
    TheRequest = "THE_REQUEST",
    /// The client's address.
    RemoteAddr = "REMOTE_ADDR",
    /// The client's port.
    RemotePort = "REMOTE_PORT",
    /// The client's name if HostnameLookups has found it, otherwise its address.
    RemoteHost = "REMOTE_HOST",
    /// The authenticated user.
    RemoteUser = "REMOTE_USER",
    /// The user according to an ident server.
    RemoteIdent = "REMOTE_IDENT",
    /// The server's name for this request (UseCanonicalName).
    ServerName = "SERVER_NAME",
    /// The server's port for this request (UseCanonicalPhysicalPort).
    ServerPort = "SERVER_PORT",
    /// The address of the administrator.
    ServerAdmin = "SERVER_ADMIN",
    /// The request's protocol, such as `HTTP/1.1`.
    ServerProtocol = "SERVER_PROTOCOL",
    /// The virtual host's document root.
    DocumentRoot = "DOCUMENT_ROOT",
    /// The authentication scheme in force.
    AuthType = "AUTH_TYPE",
    /// The response's media type.
    ContentType = "CONTENT_TYPE",
    /// The name of the handler.
    Handler = "HANDLER",
    /// `on` over HTTP/2, else `off`.
    Http2 = "HTTP2",
    /// `on` over TLS, else `off`.
    Https = "HTTPS",
    /// `on` if the connection uses IPv6, else `off`.
    Ipv6 = "IPV6",
    /// The response's status code.
    RequestStatus = "REQUEST_STATUS",
    /// The identifier of the request in the error log.
    RequestLogId = "REQUEST_LOG_ID",
    /// The identifier of the connection in the error log.
    ConnLogId = "CONN_LOG_ID",
    /// The address of the connection's peer, whatever mod_remoteip sets for the client.
    ConnRemoteAddr = "CONN_REMOTE_ADDR",
    /// The URL prefix that Alias or UserDir matched.
    ContextPrefix = "CONTEXT_PREFIX",
    /// The folder that the prefix stands for.
    ContextDocumentRoot = "CONTEXT_DOCUMENT_ROOT",
    /// The year in local time, four digits.
    TimeYear = "TIME_YEAR",
    /// The month, two digits from 01.
    TimeMon = "TIME_MON",
    /// The day of the month, two digits from 01.
    TimeDay = "TIME_DAY",
    /// The hour, two digits from 00.
    TimeHour = "TIME_HOUR",
    /// The minute, two digits from 00.
    TimeMin = "TIME_MIN",
    /// The second, two digits from 00.
    TimeSec = "TIME_SEC",
    /// The day of the week, 0 for Sunday.
    TimeWday = "TIME_WDAY",
    /// The local time, such as `20101231235959`.
    Time = "TIME",
    /// The server's own name and version.
    ServerSoftware = "SERVER_SOFTWARE",
    /// The date of the module interface that the server claims to have.
    ApiVersion = "API_VERSION",
    /// The body of the response to a health check (mod_proxy_hcheck).
    HcBody = "HC_BODY",
}

/// The meaning of a name between `%{` and `}`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Named {
    /// The value of a request header.
    Header(&'static str),
    /// A value that the server knows.
    Variable(Variable),
}

/// Finds the variable with that name. Case does not matter, as in Apache.
pub(crate) fn find(name: &str) -> Option<Named> {
    let header = HEADERS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    if let Some((_, header)) = header {
        return Some(Named::Header(header));
    }
    let known = Variable::ALL.iter().find(|known| known.name().eq_ignore_ascii_case(name));
    known.copied().map(Named::Variable)
}

/// Whether a name is that of a variable of the TLS session (mod_ssl: ssl_expr_lookup).
pub(crate) fn is_of_session(name: &str) -> bool {
    name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("SSL_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_strangers_are_not() {
        for variable in Variable::ALL {
            assert_eq!(find(&variable.name().to_lowercase()), Some(Named::Variable(*variable)));
        }
        assert_eq!(find("Http_Host"), Some(Named::Header("Host")));
        assert_eq!(find("HTTP_X_FOO"), None);
        assert_eq!(find(""), None);
    }
}
