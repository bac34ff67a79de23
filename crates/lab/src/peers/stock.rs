//! A configuration that people actually have: Debian's stock apache2.conf with the modules and the
//! pieces of configuration that its package enables, read from the package's folder. It differs
//! where it must: the places of files and logs, the port, the process model, and how long
//! connections are kept.

use super::{Http2, Peer};
use std::fmt::Write as _;
use std::path::Path;

/// The folder of the configuration in Debian's package.
const FOLDER: &str = "/etc/apache2";

/// The modules that the package enables, except the process model.
const MODULES: [&str; 17] = [
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_host",
    "authz_user",
    "autoindex",
    "deflate",
    "dir",
    "env",
    "filter",
    "mime",
    "negotiation",
    "reqtimeout",
    "setenvif",
];

/// The pieces in conf-enabled.
const PIECES: [&str; 5] =
    ["charset", "localized-error-pages", "other-vhosts-access-log", "security", "serve-cgi-bin"];

/// The directives that depend on the process model, the system or the benchmark.
pub(super) struct Own<'a> {
    pub load: &'a str,
    pub user: &'a str,
    pub numbers: &'a str,
    pub application: &'a str,
    pub backlog: u32,
    pub http2: Option<Http2>,
}

/// The modules for HTTP/2.
fn of_http2(http2: Option<Http2>) -> &'static [&'static str] {
    match http2 {
        None => &[],
        Some(Http2::ClearText) => &["http2"],
        Some(Http2::Tls) => &["http2", "socache_shmcb", "ssl"],
    }
}

/// The configuration of Evenkeel or Apache, which includes the files of a folder.
pub(super) fn text(peer: Peer, root: &Path, port: u16, own: &Own<'_>) -> String {
    let (root, name) = (root.display(), peer.name());
    let Own { load, user, numbers, application, backlog, http2 } = own;
    // mod_status comes last, in the order of names.
    let more = of_http2(*http2);
    let modules = || MODULES.into_iter().chain(more.iter().copied()).chain(["status"]);
    let mut includes = String::new();
    for module in modules() {
        let _ = writeln!(includes, "Include {FOLDER}/mods-available/{module}.load");
    }
    for module in modules() {
        let _ = writeln!(includes, "IncludeOptional {FOLDER}/mods-available/{module}.conf");
    }
    let pieces: String = PIECES
        .iter()
        .map(|piece| format!("Include {FOLDER}/conf-available/{piece}.conf\n"))
        .collect();
    let secure = match http2 {
        Some(Http2::Tls) => secured(&root.to_string()),
        _ => String::new(),
    };
    format!(
        "\
Define APACHE_LOG_DIR {root}/logs
Define APACHE_RUN_DIR {root}/logs
ServerName localhost
ServerRoot {root}
DefaultRuntimeDir {root}/logs
PidFile {root}/logs/{name}.pid
Timeout 300
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 300
{user}HostnameLookups Off
ErrorLog {root}/logs/{name}-error.log
LogLevel warn
{load}{includes}{numbers}
Listen 127.0.0.1:{port}
ListenBacklog {backlog}
<Directory />
    Options FollowSymLinks
    AllowOverride None
    Require all denied
</Directory>
<Directory /usr/share>
    AllowOverride None
    Require all granted
</Directory>
<Directory {root}/htdocs/>
    Options Indexes FollowSymLinks
    AllowOverride None
    Require all granted
</Directory>
AccessFileName .htaccess
<FilesMatch \"^\\.ht\">
    Require all denied
</FilesMatch>
LogFormat \"%v:%p %h %l %u %t \\\"%r\\\" %>s %O \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" \
vhost_combined
LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" combined
LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O\" common
LogFormat \"%{{Referer}}i -> %U\" referer
LogFormat \"%{{User-agent}}i\" agent
{pieces}{application}<VirtualHost *:{port}>
    ServerAdmin webmaster@localhost
    DocumentRoot {root}/htdocs
    ErrorLog {root}/logs/{name}-error.log
    CustomLog {root}/logs/{name}-access.log combined
{secure}</VirtualHost>
"
    )
}

/// The lines of a host over TLS.
pub(super) fn secured(root: &str) -> String {
    format!(
        "    SSLEngine on\n    SSLCertificateFile {root}/site.pem\n    \
         SSLCertificateKeyFile {root}/site.key\n"
    )
}
