//! The configuration that people have: Debian's stock apache2.conf with the modules and the pieces
//! of configuration that its package enables, which are read from where the package puts them. What
//! has to differ differs: where the files and logs are, the port, the process model, and how long
//! connections are kept.

use super::Peer;
use std::fmt::Write as _;
use std::path::Path;

/// Where Debian's package has its configuration.
const FOLDER: &str = "/etc/apache2";

/// The modules that the package enables, the process model apart.
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

/// The pieces that stand in conf-enabled.
const PIECES: [&str; 5] =
    ["charset", "localized-error-pages", "other-vhosts-access-log", "security", "serve-cgi-bin"];

/// What is a process model's, a system's or a benchmark's.
pub(super) struct Own<'a> {
    pub load: &'a str,
    pub user: &'a str,
    pub numbers: &'a str,
    pub application: &'a str,
    pub backlog: u32,
}

/// The configuration of Evenkeel or Apache around the files in a folder.
pub(super) fn text(peer: Peer, root: &Path, port: u16, own: &Own<'_>) -> String {
    let (root, name) = (root.display(), peer.name());
    let Own { load, user, numbers, application, backlog } = own;
    // mod_status comes last, as by its name.
    let modules = || MODULES.into_iter().chain(["status"]);
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
    format!(
        "\
Define APACHE_LOG_DIR {root}/logs
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
</VirtualHost>
"
    )
}
