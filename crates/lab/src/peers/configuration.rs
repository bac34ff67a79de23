//! The configurations of the servers, as texts. They are what an administrator would write: no
//! directive is there to win a benchmark, except in configurations whose names say so.

use super::site::{host_folder, host_name};
use super::{FILES, Http2, Peer, Pool, Setup, stock};
use crate::sim::Model;
use std::fmt::Write as _;
use std::path::Path;

/// The user of the server, if root starts it.
const USER: &str = "www-data";

/// The configuration of a server.
pub fn text(peer: Peer, root: &Path, port: u16, setup: &Setup) -> String {
    let workers = setup.workers();
    match peer {
        Peer::Nginx | Peer::NginxTuned => nginx(peer, root, port, setup),
        Peer::H2o => h2o(root, port, workers, setup),
        Peer::Lighttpd => lighttpd(root, port, workers),
        Peer::Haproxy => haproxy(root, port, workers),
        Peer::Caddy => caddy(root, port),
        _ => httpd(peer, root, port, setup),
    }
}

/// A line that only root may use. Other users serve as themselves.
pub(super) fn as_user(line: &str) -> String {
    let is_root = evenkeel_sys::identity::is_root();
    if is_root { line.replace('@', USER) } else { String::new() }
}

/// Apache's event model gets room for many idle connections. Evenkeel needs none.
const EVENT: &str = "ServerLimit 16
StartServers @WORKERS@
ThreadsPerChild 64
MinSpareThreads 64
MaxSpareThreads 256
MaxRequestWorkers 1024
AsyncRequestWorkerFactor 200";
const WORKER: &str = "ServerLimit 16
StartServers @WORKERS@
ThreadsPerChild 64
MinSpareThreads 64
MaxSpareThreads 256
MaxRequestWorkers 1024";
const PREFORK: &str = "ServerLimit 1024
StartServers 64
MinSpareServers 64
MaxSpareServers 256
MaxRequestWorkers 1024";

/// The directives of a process model: those of the setup, or those for 1,024 workers.
fn numbers(model: Model, setup: &Setup) -> String {
    if setup.auto {
        return "MaxRequestWorkers auto".to_owned();
    }
    let Some(pool) = &setup.pool else {
        return match model {
            Model::Event => EVENT.replace("@WORKERS@", &setup.workers().to_string()),
            Model::Worker => WORKER.replace("@WORKERS@", &setup.workers().to_string()),
            Model::Prefork => PREFORK.to_owned(),
        };
    };
    let Pool { start_servers, threads, min_spare, max_spare, workers, .. } = *pool;
    let ratio = pool.buckets_ratio.map(|ratio| format!("\nListenCoresBucketsRatio {ratio}"));
    let ratio = ratio.unwrap_or_default();
    if model == Model::Prefork {
        return format!(
            "ServerLimit {workers}\nStartServers {start_servers}\nMinSpareServers {min_spare}\n\
             MaxSpareServers {max_spare}\nMaxRequestWorkers {workers}{ratio}"
        );
    }
    let factor = if model == Model::Event { "\nAsyncRequestWorkerFactor 200" } else { "" };
    format!(
        "ServerLimit {}\nThreadLimit {threads}\nStartServers {start_servers}\n\
         ThreadsPerChild {threads}\nMinSpareThreads {min_spare}\nMaxSpareThreads {max_spare}\n\
         MaxRequestWorkers {workers}{factor}{ratio}",
        workers.div_ceil(threads)
    )
}

/// How many requests Evenkeel's `/gate` processes at once.
pub const GATE: usize = 4;

/// `/wait` and `/burn`. Evenkeel implements them itself; Apache forwards them to the application.
fn application(peer: Peer, root: &Path, setup: &Setup) -> String {
    let delay_ms = setup.pool.map_or(0, |pool| pool.start_delay_ms);
    if peer.is_own() {
        if !setup.has_lab() {
            return String::new();
        }
        return format!(
            "LabMaxWait 3600000\nLabMaxBurn 3600000\nLabGatePlaces {GATE}\n\
             LabChildStartDelay {delay_ms}\n\
             <Location /gate>\n    SetHandler lab-gate\n</Location>\n\
             <Location /wait>\n    SetHandler lab-wait\n</Location>\n\
             <Location /burn>\n    SetHandler lab-burn\n</Location>\n"
        );
    }
    match (setup.backend, setup.php) {
        (_, Some(address)) => format!(
            "ProxyTimeout 600\nProxyPassMatch ^/(wait|burn)$ fcgi://{address}{}/htdocs/$1.php\n",
            root.display()
        ),
        (Some(address), None) => format!(
            "ProxyTimeout 600\nProxyPass /wait http://{address}/wait\n\
             ProxyPass /burn http://{address}/burn\n"
        ),
        (None, None) => String::new(),
    }
}

/// Name-based virtual hosts with as few directives as possible.
fn hosts(root: &Path, port: u16, count: usize) -> String {
    let host = |number: usize| {
        let (name, folder) = (host_name(number), host_folder(root, number));
        format!(
            "<VirtualHost *:{port}>\n    ServerName {name}\n    DocumentRoot {}\n</VirtualHost>\n",
            folder.display()
        )
    };
    (0..count).map(host).collect()
}

/// The configuration that Evenkeel and Apache share.
fn httpd(peer: Peer, root: &Path, port: u16, setup: &Setup) -> String {
    let model = peer.model().unwrap_or(Model::Event);
    let numbers = numbers(model, setup);
    let backlog = setup.backlog.unwrap_or(4096);
    let application = application(peer, root, setup);
    let user = as_user("User @\nGroup @\n");
    let line = |it: &str| format!("LoadModule {it}_module /usr/lib/apache2/modules/mod_{it}.so\n");
    let mpm = line(&format!("mpm_{}", model.name()));
    if setup.stock {
        let lab = if peer.is_own() && setup.has_lab() { line("lab") } else { String::new() };
        let own = stock::Own {
            load: &(mpm + &lab),
            user: &user,
            numbers: &numbers,
            application: &application,
            backlog,
            http2: setup.http2,
        };
        return stock::text(peer, root, port, &own) + &setup.more + &hosts(root, port, setup.hosts);
    }
    let hosts = setup.more.clone() + &hosts(root, port, setup.hosts);
    let root = root.display();
    let name = peer.name();
    let mut modules =
        vec!["authz_core", "authz_host", "dir", "mime", "headers", "setenvif", "reqtimeout"];
    modules.push("status");
    match setup.backend {
        _ if peer.is_own() => modules.extend(setup.has_lab().then_some("lab")),
        Some(_) => modules.extend(["proxy", "proxy_http", "proxy_fcgi"]),
        None => {}
    }
    let mut http2 = String::new();
    if let Some(how) = setup.http2 {
        modules.push("http2");
        http2.push_str("Protocols h2 h2c http/1.1\n");
        if how == Http2::Tls {
            modules.push("ssl");
            http2.push_str(&stock::secured(&root.to_string()));
        }
    }
    let load: String = std::iter::once(mpm).chain(modules.into_iter().map(line)).collect();
    format!(
        "\
{load}ServerName localhost
ServerRoot {root}
DefaultRuntimeDir {root}/logs
PidFile {root}/logs/{name}.pid
Listen 127.0.0.1:{port}
{user}{numbers}
ListenBacklog {backlog}
Timeout 300
KeepAlive On
KeepAliveTimeout 300
MaxKeepAliveRequests 0
<IfModule reqtimeout_module>
    RequestReadTimeout header=20-40,minrate=500 body=20,minrate=500
</IfModule>
ExtendedStatus On
TypesConfig /etc/mime.types
DocumentRoot {root}/htdocs
<IfModule dir_module>
    DirectoryIndex index.html
</IfModule>
ErrorLog {root}/logs/{name}-error.log
LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" combined
CustomLog {root}/logs/{name}-access.log combined
<Directory />
    Options FollowSymLinks
    AllowOverride None
    Require all denied
</Directory>
<Directory {root}/htdocs>
    Options Indexes FollowSymLinks
    AllowOverride None
    Require all granted
</Directory>
<FilesMatch \"^\\.ht\">
    Require all denied
</FilesMatch>
<Location /server-status>
    SetHandler server-status
    Require local
</Location>
{application}{http2}{hosts}"
    )
}

fn nginx(peer: Peer, root: &Path, port: u16, setup: &Setup) -> String {
    let workers = setup.workers();
    let hosts = nginx_hosts(root, port, setup.hosts);
    let root = root.display();
    let php = setup.php.map(|address| {
        format!(
            "location ~ ^/(wait|burn)$ {{
            fastcgi_pass {address};
            fastcgi_read_timeout 600s;
            fastcgi_param SCRIPT_FILENAME {root}/htdocs$uri.php;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
        }}"
        )
    });
    let (upstream, application) = setup.backend.map_or(<_>::default(), |address| {
        (
            format!("upstream application {{ server {address}; keepalive 1024; }}"),
            "location ~ ^/(wait|burn)$ {
            proxy_pass http://application;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_read_timeout 600s;
        }"
            .to_owned(),
        )
    });
    let name = peer.name();
    let user = as_user("user @;\n");
    let tuned = peer == Peer::NginxTuned;
    let cache = if tuned {
        "open_file_cache max=10000 inactive=60s;\n    open_file_cache_valid 1s;\n    \
         open_file_cache_errors on;"
    } else {
        ""
    };
    let application = php.unwrap_or(application);
    // If queues are configured, each worker has one.
    let queues = setup.pool.and_then(|pool| pool.buckets_ratio);
    let workers = queues.unwrap_or(workers);
    let split = if queues.is_some() { " reuseport" } else { "" };
    // As Debian's nginx.conf; gzip_static sends the file that lies beside the page.
    let gzip = if tuned { "gzip_static on;" } else { "gzip on;" };
    let http2 = match setup.http2 {
        None => "",
        Some(Http2::ClearText) => " http2",
        Some(Http2::Tls) => " ssl http2",
    };
    let certificate = match setup.http2 {
        Some(Http2::Tls) => {
            format!("ssl_certificate {root}/site.pem; ssl_certificate_key {root}/site.key;")
        }
        _ => String::new(),
    };
    let (deferred, buffer) = if tuned { (" deferred", " buffer=64k flush=1s") } else { ("", "") };
    format!(
        "\
daemon off;
{user}worker_processes {workers};
worker_rlimit_nofile 40000;
pid {root}/logs/{name}.pid;
error_log {root}/logs/{name}-error.log;
events {{ worker_connections 20000; }}
http {{
    include /etc/nginx/mime.types;
    sendfile on;
    tcp_nopush on;
    types_hash_max_size 2048;
    server_names_hash_max_size 32768;
    keepalive_timeout 300s;
    keepalive_requests 1000000000;
    access_log {root}/logs/{name}-access.log combined{buffer};
    {gzip}
    {cache}
    {upstream}
    server {{
        listen 127.0.0.1:{port} backlog=4096{deferred}{split}{http2};
        {certificate}
        server_name localhost;
        root {root}/htdocs;
        index index.html;
        location / {{ try_files $uri $uri/ =404; }}
        location ~ /\\.ht {{ deny all; }}
        {application}
        location = /server-status {{ stub_status; allow 127.0.0.1; deny all; }}
    }}
    {hosts}
}}
"
    )
}

fn nginx_hosts(root: &Path, port: u16, count: usize) -> String {
    let host = |number: usize| {
        let (name, folder) = (host_name(number), host_folder(root, number));
        format!(
            "server {{
        listen 127.0.0.1:{port};
        server_name {name};
        root {};
        location / {{ try_files $uri $uri/ =404; }}
        location ~ /\\.ht {{ deny all; }}
    }}
    ",
            folder.display()
        )
    };
    (0..count).map(host).collect()
}

fn h2o(root: &Path, port: u16, workers: usize, setup: &Setup) -> String {
    let user = as_user("user: @\n");
    let root = root.display();
    let application = setup.backend.map_or_else(String::new, |address| {
        let path =
            |path| format!("      {path}:\n        proxy.reverse.url: http://{address}{path}\n");
        ["/wait", "/burn"].map(path).concat()
    });
    let certificate = match setup.http2 {
        Some(Http2::Tls) => {
            format!(
                "  ssl:\n    certificate-file: {root}/site.pem\n    key-file: {root}/site.key\n"
            )
        }
        _ => String::new(),
    };
    format!(
        "\
{user}num-threads: {workers}
max-connections: 20000
http1-request-timeout: 300
pid-file: {root}/logs/h2o.pid
error-log: {root}/logs/h2o-error.log
access-log: {root}/logs/h2o-access.log
listen:
  host: 127.0.0.1
  port: {port}
{certificate}hosts:
  default:
    paths:
{application}      /:
        file.dir: {root}/htdocs
        file.send-compressed: ON
"
    )
}

fn lighttpd(root: &Path, port: u16, workers: usize) -> String {
    let root = root.display();
    let user = as_user("server.username = \"@\"\nserver.groupname = \"@\"\n");
    // One of the workers is the parent itself.
    let workers =
        if workers > 1 { format!("server.max-worker = {workers}\n") } else { String::new() };
    format!(
        "\
server.modules = (\"mod_access\", \"mod_accesslog\", \"mod_status\")
server.bind = \"127.0.0.1\"
server.port = {port}
server.listen-backlog = 4096
server.document-root = \"{root}/htdocs\"
server.pid-file = \"{root}/logs/lighttpd.pid\"
server.errorlog = \"{root}/logs/lighttpd-error.log\"
{user}{workers}server.max-fds = 40000
server.max-connections = 20000
server.max-keep-alive-idle = 300
server.max-keep-alive-requests = 65535
accesslog.filename = \"{root}/logs/lighttpd-access.log\"
index-file.names = (\"index.html\")
url.access-deny = (\"~\", \".inc\")
mimetype.assign = (\".html\" => \"text/html\", \"\" => \"application/octet-stream\")
$HTTP[\"url\"] =~ \"/\\.ht\" {{ url.access-deny = (\"\") }}
$HTTP[\"remoteip\"] == \"127.0.0.1\" {{ status.status-url = \"/server-status\" }}
"
    )
}

/// HAProxy serves no files from disk: it answers those that fit into a buffer from memory. It also
/// keeps no log on disk.
fn haproxy(root: &Path, port: u16, workers: usize) -> String {
    let mut answers = String::new();
    for (name, size) in FILES {
        if Peer::Haproxy.serves(size, false) {
            let file = root.join("htdocs").join(name);
            let _ = writeln!(
                answers,
                "    http-request return status 200 content-type text/html file {} if {{ path /{name} }}",
                file.display()
            );
        }
    }
    let user = as_user("    user @\n    group @\n");
    format!(
        "\
global
    maxconn 8000
    nbthread {workers}
{user}defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 300s
    timeout http-keep-alive 300s
frontend site
    bind 127.0.0.1:{port} backlog 4096
{answers}    http-request return status 404
"
    )
}

fn caddy(root: &Path, port: u16) -> String {
    let root = root.display();
    format!(
        "\
{{
    admin off
    auto_https off
}}
http://:{port} {{
    bind 127.0.0.1
    root * {root}/htdocs
    log {{
        output file {root}/logs/caddy-access.log
    }}
    file_server {{
        hide .ht*
    }}
}}
"
    )
}
