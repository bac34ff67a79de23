//! The elements of random sites. `ROWS` has a line for each directive and section, by module: how
//! often it occurs, where it may stand, and its text, in which `$noun` stands for one of the noun's
//! texts in `NOUNS` or for a name of the site (`compose::Names`). A new module adds its rows and
//! nouns here and its name to `MODULES`. A text that is listed twice occurs twice as often.

/// Places for rows, as bits.
pub mod place {
    /// The main server.
    pub const MAIN: u16 = 1;
    /// A virtual host.
    pub const HOST: u16 = 1 << 1;
    /// `<Directory>` and its patterns.
    pub const FOLDER: u16 = 1 << 2;
    /// `<Location>` and its patterns.
    pub const LOCATION: u16 = 1 << 3;
    /// `<Files>` and its patterns.
    pub const FILES: u16 = 1 << 4;
    /// `<If>`, `<ElseIf>` and `<Else>`.
    pub const IF: u16 = 1 << 5;
    /// `<Limit>` and `<LimitExcept>`.
    pub const LIMIT: u16 = 1 << 6;
    /// The top of an .htaccess file. Within its sections, their bits apply as well.
    pub const HTACCESS: u16 = 1 << 7;
    /// `<RequireAny>` and `<RequireNone>`.
    pub const ANY: u16 = 1 << 8;
    /// `<RequireAll>`, where a Require may be negative.
    pub const ALL: u16 = 1 << 9;
    /// The main server and virtual hosts.
    pub const SERVER: u16 = MAIN | HOST;
    /// All sections that Apache merges.
    pub const SECTION: u16 = FOLDER | LOCATION | FILES | IF;
    /// Sections and .htaccess files.
    pub const INNER: u16 = SECTION | HTACCESS;
    /// Everywhere except within Limit and the Require sections.
    pub const OPEN: u16 = SERVER | INNER;
}

use place::{
    ALL, ANY, FILES, FOLDER, HOST, HTACCESS, IF, INNER, LIMIT, LOCATION, OPEN, SECTION, SERVER,
};

/// A directive or a section.
#[derive(Debug)]
pub struct Row {
    /// The module, without `mod_`.
    pub module: &'static str,
    /// Its relative frequency.
    pub weight: usize,
    /// Where it may stand.
    pub places: u16,
    /// Its text; for a section, the opening line.
    pub text: &'static str,
}

const fn row(module: &'static str, weight: usize, places: u16, text: &'static str) -> Row {
    Row { module, weight, places, text }
}

/// The modules that both servers load, without `mod_`, in addition to version and the process
/// models.
pub const MODULES: [&str; 40] = [
    "authz_core",
    "authz_host",
    "access_compat",
    "alias",
    "dir",
    "env",
    "mime",
    "headers",
    "setenvif",
    "negotiation",
    "autoindex",
    "filter",
    "deflate",
    "expires",
    "allowmethods",
    "rewrite",
    "userdir",
    "vhost_alias",
    "remoteip",
    "authn_core",
    "authn_file",
    "auth_basic",
    "auth_digest",
    "authn_socache",
    "socache_shmcb",
    "authz_user",
    "authz_groupfile",
    "authz_owner",
    "cgi",
    "actions",
    "include",
    "ssl",
    "proxy",
    "proxy_fcgi",
    "proxy_http",
    "unique_id",
    "usertrack",
    "speling",
    "substitute",
    "ratelimit",
];

/// The line that loads a module of Debian's apache2, by its name without `mod_`.
pub fn load_line(name: &str) -> String {
    format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so")
}

/// Modules of Debian's apache2 that Evenkeel does not have. Some sites load them and protect files
/// with their conditions. None of them decides about access, so that they change no other
/// answer of apache2.
pub const MISSING: [&str; 2] = ["dbd", "dialup"];

/// Directives and sections.
#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    // core: sections
    row("core", 14, SERVER, "<Directory \"$folder\">"),
    row("core", 8, SERVER, "<DirectoryMatch \"$folder_pattern\">"),
    row("core", 4, SERVER, "<Directory ~ \"$folder_pattern\">"),
    row("core", 12, SERVER, "<Location \"$location\">"),
    row("core", 7, SERVER, "<LocationMatch \"$uri_pattern\">"),
    row("core", 3, SERVER, "<Location ~ \"$uri_pattern\">"),
    row("core", 8, SERVER | FOLDER | IF | HTACCESS, "<Files \"$file\">"),
    row("core", 5, SERVER | FOLDER | IF | HTACCESS, "<FilesMatch \"$file_pattern\">"),
    row("core", 2, SERVER | FOLDER | HTACCESS, "<Files ~ \"$file_pattern\">"),
    row("core", 8, OPEN, "<If \"$condition\">"),
    row("core", 5, INNER, "<Limit $limited>"),
    row("core", 1, ANY | ALL, "<Limit $limited>"),
    row("core", 4, INNER, "<LimitExcept $limited>"),
    row("core", 1, OPEN, "<IfModule $module>"),
    row("core", 1, OPEN, "<IfModule $missing>"),
    row("core", 1, OPEN, "<IfDirective $missing_directive>"),
    // core: directives
    row("core", 12, OPEN, "Options $options"),
    row("core", 5, FOLDER, "AllowOverride $overrides"),
    row("core", 2, FOLDER, "AllowOverrideList $override_list"),
    row("core", 4, SERVER, "MergeSlashes $switch"),
    row("core", 4, SERVER, "AllowEncodedSlashes $encoded_slashes"),
    row("core", 5, OPEN, "ErrorDocument $error $document"),
    row("core", 4, INNER, "SetHandler $handler"),
    row("core", 4, INNER, "ForceType $type"),
    row("core", 3, INNER, "AcceptPathInfo $path_info"),
    row("core", 2, SERVER, "AccessFileName $access_files"),
    row("core", 2, SERVER, "TraceEnable $trace"),
    row("core", 2, SERVER, "UseCanonicalName $switch"),
    row("core", 2, OPEN, "ServerSignature $signature"),
    row("core", 1, SERVER, "ServerAdmin $admin"),
    row("core", 2, OPEN, "AddDefaultCharset $charset_switch"),
    row("core", 3, OPEN, "FileETag $entity_tag"),
    row("core", 2, OPEN, "LimitRequestBody $bytes"),
    row("core", 2, SERVER | FOLDER, "LimitInternalRecursion $recursion"),
    row("core", 2, OPEN, "QualifyRedirectURL $switch"),
    row("core", 1, SERVER, "HttpProtocolOptions $protocol_options"),
    row("core", 1, OPEN, "MaxRanges $ranges"),
    row("core", 1, OPEN, "EnableSendfile $switch"),
    row("core", 1, OPEN, "ContentDigest $switch"),
    row("core", 1, HOST, "KeepAlive $switch"),
    // authz_core, authz_host
    row("authz_core", 20, SECTION | LIMIT | HTACCESS, "Require $require"),
    row("authz_core", 16, ANY, "Require $require"),
    row("authz_core", 14, ALL, "Require $require"),
    row("authz_core", 6, ALL, "Require not $require_not"),
    row("authz_core", 4, SECTION | LIMIT | HTACCESS | ANY | ALL, "<RequireAny>"),
    row("authz_core", 5, SECTION | LIMIT | HTACCESS | ANY | ALL, "<RequireAll>"),
    row("authz_core", 2, ALL, "<RequireNone>"),
    row("authz_core", 4, INNER, "AuthMerging $merging"),
    row("authz_core", 1, INNER, "AuthzSendForbiddenOnFailure $switch"),
    // access_compat
    // logins
    row("auth_basic", 8, SECTION | LIMIT | HTACCESS, "$login"),
    row("authn_core", 2, SECTION | LIMIT | HTACCESS, "AuthType $auth_type"),
    row("authn_file", 2, SECTION | LIMIT | HTACCESS, "AuthUserFile \"@SITE@/$user_file\""),
    row("auth_basic", 1, SECTION | LIMIT | HTACCESS, "AuthBasicAuthoritative $switch"),
    row("auth_basic", 1, SECTION | LIMIT | HTACCESS, "AuthBasicProvider file"),
    row("auth_basic", 1, SECTION | LIMIT | HTACCESS, "AuthBasicFake $fake"),
    row("auth_basic", 1, SECTION | LIMIT | HTACCESS, "AuthBasicUseDigestAlgorithm $digest_algorithm"),
    row("auth_digest", 6, SECTION | LIMIT | HTACCESS, "$digest_login"),
    row("auth_digest", 1, SECTION | LIMIT | HTACCESS, "AuthDigestNcCheck $switch"),
    row("auth_digest", 1, SECTION | LIMIT | HTACCESS, "AuthDigestNonceLifetime $nonce_lifetime"),
    row("auth_digest", 1, SECTION | LIMIT | HTACCESS, "AuthDigestProvider file"),
    row("auth_digest", 1, SECTION | LIMIT | HTACCESS, "AuthDigestQop auth"),
    row("auth_digest", 1, SECTION | LIMIT | HTACCESS, "AuthDigestDomain $uri"),
    row("authn_socache", 1, SECTION | LIMIT | HTACCESS, "AuthnCacheProvideFor file"),
    row("authn_socache", 1, SECTION | LIMIT | HTACCESS, "AuthnCacheTimeout 60"),
    row("authz_user", 8, SECTION | LIMIT | HTACCESS | ANY | ALL, "Require $require_user"),
    row("authz_user", 3, ALL, "Require not user $users"),
    row("authz_groupfile", 3, SECTION | LIMIT | HTACCESS | ANY | ALL, "Require $require_group"),
    row("authz_owner", 1, SECTION | LIMIT | HTACCESS | ANY | ALL, "Require file-owner"),
    // access_compat
    row("access_compat", 4, SECTION | LIMIT | HTACCESS, "Order $order"),
    row("access_compat", 4, SECTION | LIMIT | HTACCESS, "Allow from $clients"),
    row("access_compat", 4, SECTION | LIMIT | HTACCESS, "Deny from $clients"),
    row("access_compat", 2, SECTION | LIMIT | HTACCESS, "Satisfy $satisfy"),
    // ssl: requests come in clear text, so that whatever asks for TLS must refuse
    row("ssl", 3, INNER, "SSLRequireSSL"),
    row("ssl", 1, INNER, "SSLRequire $ssl_requirement"),
    row("ssl", 1, INNER, "SSLVerifyClient $ssl_verify"),
    row("ssl", 1, INNER, "SSLVerifyDepth 2"),
    row("ssl", 2, INNER, "SSLOptions $ssl_options"),
    row("ssl", 1, INNER, "SSLUserName $ssl_variable"),
    row("ssl", 2, SECTION | LIMIT | HTACCESS | ANY | ALL, "Require $require_ssl"),
    row("ssl", 1, ALL, "Require not ssl"),
    // alias
    row("alias", 9, SERVER, "Alias \"$prefix\" \"$target\""),
    row("alias", 5, SERVER, "AliasMatch \"$alias_pattern\" \"$match_target\""),
    row("alias", 1, LOCATION, "Alias \"$target\""),
    row("alias", 2, SERVER, "ScriptAlias \"$prefix\" \"$target\""),
    row("alias", 1, SERVER, "ScriptAliasMatch \"$alias_pattern\" \"$match_target\""),
    row("alias", 1, LOCATION, "ScriptAlias \"$target\""),
    row("alias", 3, SERVER | FOLDER | FILES | HTACCESS, "Redirect $redirect \"$prefix\" \"$redirect_target\""),
    row("alias", 1, SERVER | FOLDER | HTACCESS, "Redirect $gone \"$uri\""),
    row("alias", 3, SERVER | FOLDER | FILES | HTACCESS, "RedirectMatch $redirect \"$alias_pattern\" \"$redirect_target\""),
    row("alias", 1, LOCATION | IF, "Redirect $redirect \"$redirect_target\""),
    row("alias", 1, OPEN, "RedirectRelative $switch"),
    row("alias", 1, SERVER | LOCATION | FOLDER, "AliasPreservePath $switch"),
    // cgi, actions
    row("cgi", 1, SERVER | SECTION, "CGIScriptTimeout 20"),
    row("core", 1, INNER, "CGIVar REQUEST_URI $request_uri"),
    row("actions", 2, OPEN, "Action $action \"$uri\" $action_option"),
    row("actions", 1, SERVER | SECTION, "Script $script_method \"$uri\""),
    // dir
    row("dir", 6, OPEN, "DirectoryIndex $indexes"),
    row("dir", 2, OPEN, "DirectorySlash $switch"),
    row("dir", 4, OPEN, "FallbackResource $fallback"),
    row("dir", 2, OPEN, "DirectoryCheckHandler $switch"),
    row("dir", 1, OPEN, "DirectoryIndexRedirect $index_redirect"),
    // env, setenvif
    row("env", 4, OPEN, "SetEnv $env $word"),
    row("env", 1, OPEN, "UnsetEnv $env"),
    row("setenvif", 6, OPEN, "SetEnvIf $attribute \"$value_pattern\" $env_set"),
    row("setenvif", 2, OPEN, "SetEnvIfNoCase $attribute \"$value_pattern\" $env_set"),
    row("setenvif", 3, OPEN, "BrowserMatch \"$agent_pattern\" $env_set"),
    row("setenvif", 1, OPEN, "BrowserMatchNoCase \"$agent_pattern\" $env_set"),
    // No group in the value of a condition whose pattern has none: Apache would read what no match
    // filled.
    row("setenvif", 2, OPEN, "SetEnvIfExpr \"$condition\" $env_expr"),
    // headers: show which sections apply, and in what order
    row("headers", 10, OPEN, "Header append X-Sections \"$letter\""),
    row("headers", 3, OPEN, "Header always append X-Always \"$letter\""),
    row("headers", 3, OPEN, "Header $condition_table set X-Value \"$format\""),
    row("headers", 2, OPEN, "Header set X-If \"$letter\" $header_condition"),
    row("headers", 1, OPEN, "Header unset $field"),
    row("headers", 1, OPEN, "Header merge Vary $field"),
    row("headers", 2, OPEN, "RequestHeader set X-Flag \"$letter\""),
    row("headers", 1, OPEN, "RequestHeader unset $field"),
    // mime
    row("mime", 3, OPEN, "AddType $type $extension"),
    row("mime", 3, OPEN, "AddHandler $handler $extension"),
    row("mime", 2, OPEN, "AddLanguage $language $extension"),
    row("mime", 1, OPEN, "AddCharset $charset $extension"),
    row("mime", 2, OPEN, "AddEncoding $encoding $extension"),
    row("mime", 1, OPEN, "DefaultLanguage $language"),
    row("mime", 1, INNER, "RemoveType $extension"),
    row("mime", 1, INNER, "RemoveHandler $extension"),
    row("mime", 1, INNER, "RemoveLanguage $extension"),
    row("mime", 1, INNER, "RemoveEncoding $extension"),
    row("mime", 3, OPEN, "MultiviewsMatch $variants"),
    row("mime", 1, FOLDER, "ModMimeUsePathInfo $switch"),
    // negotiation
    row("negotiation", 2, OPEN, "LanguagePriority $language $language"),
    row("negotiation", 2, OPEN, "ForceLanguagePriority $force"),
    row("negotiation", 1, SERVER, "CacheNegotiatedDocs $switch"),
    // autoindex
    row("autoindex", 4, OPEN, "IndexOptions $index_options"),
    row("autoindex", 3, OPEN, "IndexIgnore $file"),
    row("autoindex", 1, OPEN, "IndexIgnoreReset On"),
    row("autoindex", 1, OPEN, "IndexOrderDefault Descending $order_key"),
    row("autoindex", 2, OPEN, "HeaderName $document_name"),
    row("autoindex", 2, OPEN, "ReadmeName $document_name"),
    row("autoindex", 1, OPEN, "AddDescription \"$word\" $file"),
    // deflate, filter
    row("filter", 2, OPEN, "AddOutputFilterByType DEFLATE $type"),
    row("core", 1, INNER, "SetOutputFilter $filter"),
    // include
    row("include", 6, OPEN, "AddOutputFilter INCLUDES .shtml"),
    row("include", 1, OPEN, "AddOutputFilterByType INCLUDES text/html"),
    row("include", 5, OPEN, "Options +Includes"),
    row("include", 1, OPEN, "Options $includes"),
    row("include", 1, OPEN, "XBitHack $x_bit"),
    row("include", 1, INNER, "SSILegacyExprParser $switch"),
    // rewrite: `-U` may end a child of apache2 where it leads to itself
    row("rewrite", 8, OPEN, "RewriteEngine On"),
    row("rewrite", 1, OPEN, "RewriteEngine Off"),
    row("rewrite", 2, OPEN, "RewriteOptions $rewrite_option"),
    row("rewrite", 3, INNER, "RewriteBase \"$rewrite_base\""),
    row("rewrite", 5, OPEN, "RewriteCond $rewrite_input $rewrite_test $rewrite_condition_flags"),
    row("rewrite", 9, SERVER, "RewriteRule \"$rewrite_path\" \"$rewrite_target\" $rewrite_flags"),
    row("rewrite", 9, INNER, "RewriteRule \"$rewrite_rest\" \"$rewrite_place\" $rewrite_flags"),
    row("rewrite", 3, OPEN, "RewriteRule \"$rewrite_any\" - $rewrite_refusal"),
    row("rewrite", 1, SERVER, "RewriteMap lower int:tolower"),
    // proxy, proxy_fcgi
    row("proxy", 3, SERVER, "ProxyPass \"$prefix\" \"$application\""),
    row("proxy", 1, SERVER, "ProxyPass \"$prefix\" !"),
    row("proxy", 3, SERVER, "ProxyPassMatch \"$alias_pattern\" \"$application_match\""),
    row("proxy", 1, SERVER, "ProxyPassMatch \"$uri_pattern\" !"),
    row("proxy", 2, LOCATION, "ProxyPass \"$application\""),
    row("proxy", 2, OPEN, "SetHandler \"proxy:$application_root\""),
    row("proxy", 1, OPEN, "ProxyErrorOverride $switch"),
    row("proxy_fcgi", 1, OPEN, "ProxyFCGIBackendType $application_kind"),
    row("rewrite", 2, SERVER, "RewriteRule \"$rewrite_path\" \"$application$1\" [P]"),
    row("rewrite", 2, INNER, "RewriteRule \"$rewrite_rest\" \"$application$1\" [P]"),
    // expires, allowmethods
    row("expires", 1, OPEN, "ExpiresActive $switch"),
    row("expires", 2, OPEN, "ExpiresDefault $expiry"),
    row("expires", 2, OPEN, "ExpiresByType $expiring $expiry"),
    row("allowmethods", 2, SECTION, "AllowMethods $allowed_methods"),
    // speling, substitute, usertrack
    row("speling", 1, OPEN, "CheckSpelling $switch"),
    row("speling", 1, OPEN, "CheckCaseOnly $switch"),
    row("speling", 1, OPEN, "CheckBasenameMatch $switch"),
    row("substitute", 1, OPEN, "Substitute $substitution"),
    row("substitute", 1, OPEN, "SubstituteInheritBefore $switch"),
    row("substitute", 1, OPEN, "AddOutputFilter SUBSTITUTE .html"),
    row("usertrack", 1, OPEN, "CookieName $cookie_name"),
    // remoteip
    row("remoteip", 2, SERVER, "RemoteIPHeader X-Forwarded-For"),
    row("remoteip", 1, SERVER, "RemoteIPInternalProxy 127.0.0.0/8 10.0.0.0/8"),
    row("remoteip", 1, SERVER, "RemoteIPTrustedProxy $proxies"),
    row("remoteip", 1, SERVER, "RemoteIPProxiesHeader X-Flag"),
    // userdir, vhost_alias
    row("userdir", 2, SERVER, "UserDir $user_dir"),
    row("vhost_alias", 1, HOST, "VirtualDocumentRoot $host_root"),
    row("vhost_alias", 1, HOST, "VirtualDocumentRootIP $host_root"),
];

/// The texts for each noun.
#[rustfmt::skip]
pub const NOUNS: &[(&str, &[&str])] = &[
    ("switch", &["On", "Off"]),
    ("letter", &["a", "b", "c", "d", "e", "f", "g", "h"]),
    ("word", &["1", "0", "one", "''", "a.txt", "two words"]),
    // names
    ("name", &["dir", "docs", "secret", "sub", "open", "a", "x", "index", "page", "Dir"]),
    ("ending", &["txt", "html", "html.en", "en.html", "var", "fr.html", "gz", "TXT", "bak"]),
    ("extension", &[".txt", ".html", ".bak", ".en", ".fr", ".gz", ".var", ".x", "txt"]),
    // sections
    ("folder", &["@SITE@/htdocs", "@SITE@/htdocs/", "@SITE@/htdocs$in_folder", "@SITE@/htdocs$in_folder", "@SITE@/htdocs$in_folder/", "@SITE@/htdocs$in_file", "@SITE@/htdocs/$wild", "@SITE@/htdocs/$wild/$wild", "@SITE@/htdocs$in_folder/$wild", "@SITE@/*", "@SITE@", "@SITE@/out", "@SITE@/out/$wild", "/", "@SITE@//htdocs$in_folder", "@SITE@/htdocs/./$name", "@SITE@/htdocs/../out", "@SITES@/*/htdocs$in_folder", "@SITES@/*"]),
    ("wild", &["*", "*", "?*", "d*", "[ds]*", "*.txt", "*.html", "se?ret*", "*t", "[!d]*", "mixed[", "\\*", "{dir,docs}", "$name"]),
    ("folder_pattern", &["^@SITE@/htdocs$in_folder", "^@SITE@/htdocs$in_folder/", "^@SITE@/htdocs$in_folder$", "/$name", "/$name/", "/$name/$", "$name", "$name/$name", "^@SITE@/htdocs/[^/]+$", "^@SITE@/htdocs/[^/]+/$name", "^@SITE@/out", "\\.txt$", "^@SITE@/htdocs/(?<SITENAME>[^/]+)", "//", "/\\.", "(?i)/SECRET"]),
    ("location", &["/", "$uri", "$uri", "$uri", "$hub", "$uri/", "/$name", "/$wild", "/$wild/$wild", "/$wild/*", "//$name", "/$name//$name", "$uri*", "$prefix", "$prefix/$name", "/dir/../secret", "/./dir", "$folder_uri", "$folder_uri/*"]),
    ("uri_pattern", &["^/$name", "^/$name/", "^$uri$", "/$name/", "$name", "^/+$name", "//", "\\.txt$", "^/(?<WHERE>[^/]+)/", "^/$", "^/$name(/|$)", "/\\.", "^/[^/]*$", "%2[fF]", "(?i)/SECRET", "^$prefix"]),
    ("file", &["*.txt", "*.html", "a.txt", "secret*", "index.html", "index.*", "?.txt", "*", ".*", "[a-m]*", "*.en", "x.*", "é*", "$name", "$name.$ending", "$some_file", "$some_file", "*.var", "dir", "sub"]),
    ("file_pattern", &["\\.txt$", "^index", "^$name", "secret", "^[a-m]", "\\.(html|var)$", "^\\.", "^$", "(?<EXT>[a-z]+)$", "^é", "^..\\.txt$", "(?i)\\.TXT$", "$name$"]),
    ("methods", &["GET", "POST", "GET POST", "OPTIONS", "TRACE", "PUT DELETE", "HEAD", "PATCH GET"]),
    ("limited", &["GET", "POST", "GET POST", "OPTIONS", "PUT DELETE", "HEAD", "PATCH GET"]),
    ("module", &["mod_alias.c", "!mod_alias.c", "alias_module", "mod_nothing.c", "!mod_nothing.c"]),
    ("missing", &["mod_dbd.c", "dbd_module", "!mod_dbd.c", "mod_dialup.c", "dialup_module", "!dialup_module"]),
    ("missing_directive", &["DBDriver", "ModemStandard", "!DBDriver", "Redirect"]),
    // conditions; `-F` would end a child of apache2, because it recurses without end
    ("condition", &["$test", "$test", "$test", "! ($test)", "$test && $test", "$test || $test", "true", "false"]),
    ("test", &["%{REQUEST_URI} =~ m#$uri_pattern#", "%{REQUEST_URI} =~ m#^/$name#", "%{REQUEST_URI} == '$uri'", "%{REQUEST_URI} -strmatch '/$wild'", "%{REQUEST_FILENAME} =~ m#$folder_pattern#", "%{REQUEST_FILENAME} == '@SITE@/htdocs$in_file'", "-f %{REQUEST_FILENAME}", "-d %{REQUEST_FILENAME}", "-e %{REQUEST_FILENAME}", "-L %{REQUEST_FILENAME}", "%{REQUEST_METHOD} == 'GET'", "%{REQUEST_METHOD} in { 'POST', 'OPTIONS', 'TRACE' }", "%{HTTP_USER_AGENT} =~ /Moz/", "%{HTTP:X-Flag} == '1'", "%{QUERY_STRING} =~ /q=/", "-n %{QUERY_STRING}", "-n env('$env')", "-n reqenv('$env')", "%{PATH_INFO} =~ m#^/#", "-n %{PATH_INFO}", "%{HTTP_HOST} =~ /test/", "%{SERVER_NAME} == '@HOST@'", "%{REMOTE_ADDR} -ipmatch '127.0.0.0/8'", "%{THE_REQUEST} =~ m#//#", "%{HANDLER} == ''", "%{HANDLER} == 'type-map'", "%{CONTENT_TYPE} == 'text/html'", "-U '$uri'", "-U '$hub'", "%{DOCUMENT_ROOT} == '@SITE@/htdocs'", "%{CONTEXT_PREFIX} == ''", "%{CONTEXT_DOCUMENT_ROOT} =~ /out/", "%{SERVER_PROTOCOL} == 'HTTP/1.1'", "tolower(%{REQUEST_URI}) == '/dir/x.txt'", "unescape('%%2fdir') == '/dir'", "%{REQUEST_STATUS} == '404'", "%{SCRIPT_FILENAME} =~ /secret/", "%{IS_SUBREQ} == 'true'", "%{LAST_MODIFIED} -gt 0", "%{REQUEST_URI} -ge '/m'", "%{ENV:$env} == '1'", "%{HTTP_ACCEPT} =~ /html/", "osenv('PATH') =~ /bin/", "req('X-Flag') -eq 1", "%{QUERY_STRING} -in { 'q=1' }"]),
    // core
    ("options", &["None", "All", "$option", "$option $option", "+$option", "-$option", "+$option -$option", "+$option +$option", "FollowSymLinks", "SymLinksIfOwnerMatch", "Indexes", "MultiViews FollowSymLinks", "Indexes MultiViews", "-FollowSymLinks"]),
    ("option", &["Indexes", "FollowSymLinks", "SymLinksIfOwnerMatch", "MultiViews", "ExecCGI", "Includes", "All", "IncludesNOEXEC"]),
    ("overrides", &["All", "All", "All", "None", "$override", "$override $override", "Options=$override_option", "Nonfatal=All $override", "Nonfatal=Unknown $override"]),
    ("override", &["AuthConfig", "FileInfo", "Indexes", "Limit", "Options"]),
    ("override_option", &["Indexes", "MultiViews", "FollowSymLinks", "SymLinksIfOwnerMatch", "Indexes,MultiViews", "All"]),
    ("override_list", &["None", "Require", "Options", "Redirect RedirectMatch", "Header SetEnv", "Order Allow Deny"]),
    ("encoded_slashes", &["On", "Off", "NoDecode"]),
    ("error", &["403", "403", "404", "404", "500", "400", "405", "401", "405", "406", "413"]),
    ("document", &["$hub", "$hub", "$hub", "$hub", "$hub", "$uri", "/$name.txt", "\"denied\"", "http://other.test/x", "$folder_uri/", "default", "/none", "/map.var"]),
    ("handler", &["default-handler", "type-map", "none", "nothing-such", "send-as-is", "foo", "cgi-script", "server-parsed"]),
    ("require_ssl", &["ssl", "ssl", "ssl-verify-client", "expr \"%{HTTPS} == 'on'\"", "expr \"%{HTTPS} != 'on'\"", "expr \"%{HTTPS} == 'off'\"", "expr \"%{SSL_PROTOCOL} == ''\"", "expr \"-n %{SSL_CLIENT_VERIFY}\"", "expr \"%{REQUEST_SCHEME} == 'https'\""]),
    ("ssl_requirement", &["true", "false", "%{HTTPS} eq \"on\"", "%{SSL_CIPHER_USEKEYSIZE} >= 128", "%{REMOTE_ADDR} eq \"127.0.0.1\"", "%{SSL_CLIENT_S_DN_CN} in {\"ann\", \"bob\"}"]),
    ("ssl_verify", &["none", "optional", "require", "optional_no_ca"]),
    ("ssl_options", &["+StrictRequire", "+StrictRequire", "-StrictRequire", "StrictRequire", "+FakeBasicAuth", "+StdEnvVars", "+FakeBasicAuth +StrictRequire"]),
    ("ssl_variable", &["SSL_CLIENT_S_DN_CN", "SSL_PROTOCOL"]),
    ("action", &["$handler", "$type"]),
    ("action_option", &["", "", "virtual"]),
    ("script_method", &["GET", "POST", "PUT", "OPTIONS", "HEAD", "PATCH"]),
    ("request_uri", &["original-uri", "current-uri"]),
    ("path_info", &["On", "Off", "Default"]),
    ("access_files", &[".htaccess", ".other .htaccess", ".other"]),
    ("trace", &["On", "Off", "Extended"]),
    ("signature", &["On", "Off", "EMail"]),
    ("admin", &["a@b.test", "webmaster"]),
    ("charset_switch", &["On", "Off", "utf-8", "latin2"]),
    ("entity_tag", &["None", "All", "MTime", "Size", "+INode", "-MTime", "MTime Size", "INode"]),
    ("bytes", &["0", "5", "100"]),
    ("recursion", &["1", "2", "3", "5 5"]),
    ("protocol_options", &["Strict", "Unsafe", "Strict LenientMethods", "RegisteredMethods", "Allow0.9", "Require1.0"]),
    ("ranges", &["none", "default", "1", "unlimited"]),
    // access
    ("require", &["all granted", "all granted", "all granted", "all denied", "all denied", "all denied", "method $methods", "env $env", "ip 127.0.0.1", "ip 127.0", "ip 10.0.0.0/8", "local", "expr $bare_condition", "forward-dns localhost"]),
    ("require_not", &["method $methods", "env $env", "ip 127.0.0.1", "ip 10.0.0.0/8", "expr $bare_condition"]),
    ("login", &["AuthType Basic\nAuthName here\nAuthUserFile \"@SITE@/users\"\nAuthGroupFile \"@SITE@/groups\""]),
    ("digest_login", &["AuthType Digest\nAuthName here\nAuthUserFile \"@SITE@/digests\"\nAuthGroupFile \"@SITE@/groups\""]),
    ("auth_type", &["Basic", "Digest", "None", "Odd"]),
    ("nonce_lifetime", &["300", "-1", "0"]),
    ("user_file", &["users", "users", "digests", "more", "absent", "htdocs"]),
    ("fake", &["off", "demo", "demo pass", "%{REMOTE_USER}"]),
    ("digest_algorithm", &["MD5", "Off"]),
    ("users", &["ann", "bob", "ann bob", "zoe", "%{req:X-Flag}"]),
    ("require_user", &["valid-user", "valid-user", "user $users", "expr %{REMOTE_USER} == 'ann'", "expr %{remote_user} == 'bob'"]),
    ("require_group", &["group staff", "group other", "group staff other", "group none", "file-group"]),
    ("bare_condition", &["$test", "! ($test)", "true", "false"]),
    ("merging", &["And", "Or", "Off"]),
    ("order", &["Deny,Allow", "Allow,Deny", "Mutual-failure"]),
    ("clients", &["all", "127.0.0.1", "127.0.0.0/8", "10.0.0.0/8", "env=$env", "env=!$env"]),
    ("satisfy", &["Any", "All"]),
    // alias
    ("prefix", &["$hub", "/al", "/al", "/al/", "/x", "/dir", "/dir/", "/al/deep", "/secret"]),
    ("target", &["@SITE@/htdocs$hub", "@SITE@/htdocs$hub", "@SITE@/out", "@SITE@/out/", "@SITE@/htdocs/dir", "@SITE@/htdocs/dir/", "@SITE@/htdocs$in_folder", "@SITE@/htdocs$in_file", "@SITE@//htdocs/dir", "@SITE@/./out", "@SITE@/htdocs/../out", "@SITE@/out/$name"]),
    ("alias_pattern", &["^/am(.*)", "^/am/([a-z]+)", "^/al(/.*)?$", "^/([^/]+)\\.bak$", "^/$name(.*)", "/go/(.*)", "^//+(.*)"]),
    ("match_target", &["@SITE@/out$1", "@SITE@/htdocs/dir/$1", "@SITE@/htdocs$1", "@SITE@/htdocs/$1.txt", "@SITE@/out/$1", "@SITE@/htdocs$in_file"]),
    ("redirect", &["301", "302", "permanent", "temp", "seeother", "307"]),
    ("gone", &["gone", "410", "403", "404"]),
    ("redirect_target", &["$hub", "http://other.test/r", "http://other.test/$1", "/moved", "/dir/$1", "http://other.test", "/a b?c"]),
    // dir
    ("indexes", &["index.html", "index.txt index.html", "index.html index.txt", "disabled", "$some_file", "none.html $uri", "$hub", "$hub", "none.html $hub", "$hub $hub", "index", "sub/x.txt", "map.var", "dir"]),
    ("fallback", &["$hub", "$hub", "$hub", "$uri", "/index.html", "/secret.txt", "disabled", "/none"]),
    ("index_redirect", &["On", "Off", "permanent", "303"]),
    // environment
    ("env", &["FLAG", "FLAG", "OTHER", "nokeepalive", "no-gzip", "force-response-1.0", "prefer-language", "redirect-carefully"]),
    ("env_set", &["FLAG", "FLAG", "FLAG=0", "!FLAG", "OTHER=$letter", "FLAG OTHER", "FLAG=$0"]),
    ("env_expr", &["FLAG", "FLAG", "FLAG=0", "!FLAG", "OTHER=$letter", "FLAG OTHER"]),
    ("attribute", &["Request_URI", "Request_URI", "Request_Method", "Request_Protocol", "Remote_Addr", "User-Agent", "Host", "X-Flag", "FLAG", "^X-F", "Remote_Host"]),
    ("value_pattern", &["$uri_pattern", "^/$name", "\\.txt$", "GET", "127", "^$", "1", ".", "(secret)"]),
    ("agent_pattern", &["Moz", "^curl", "", "(?i)moz", "bot"]),
    // headers
    ("condition_table", &["always", "onsuccess", "always"]),
    ("format", &["%{FLAG}e", "%{OTHER}e$letter", "$letter", "expr=%{REQUEST_URI}", "expr=%{REQUEST_FILENAME}", "expr=%{CONTENT_TYPE}", "%{WHERE}e", "expr=%{HANDLER}", "expr=%{REQUEST_STATUS}", "expr=%{PATH_INFO}", "expr=%{CONTEXT_PREFIX}", "expr=%{DOCUMENT_URI}", "%{MATCH_WHERE}e", "expr=%{SCRIPT_FILENAME}", "expr=%{SERVER_NAME}"]),
    ("header_condition", &["env=FLAG", "env=!FLAG", "expr=%{REQUEST_STATUS}==404", "expr=%{REQUEST_URI}=~m#secret#"]),
    ("field", &["ETag", "Last-Modified", "Content-Type", "Vary", "X-Sections", "Accept", "If-Modified-Since", "Range", "Accept-Language"]),
    // mime and negotiation
    ("type", &["text/html", "text/plain", "application/x-type-map", "image/png", "none", "text/x-made"]),
    ("language", &["en", "fr", "en-GB", "de"]),
    ("charset", &["utf-8", "iso-8859-1"]),
    ("encoding", &["x-gzip", "gzip", "x-made"]),
    ("variants", &["Any", "Handlers", "Filters", "NegotiatedOnly", "Handlers Filters"]),
    ("force", &["None", "Prefer", "Fallback", "Prefer Fallback"]),
    // autoindex
    ("index_options", &["FancyIndexing", "None", "+FancyIndexing +NameWidth=*", "HTMLTable FancyIndexing", "FancyIndexing FoldersFirst IgnoreCase", "+SuppressSize", "ShowForbidden", "FancyIndexing ShowForbidden", "ScanHTMLTitles FancyIndexing", "FancyIndexing VersionSort SuppressLastModified", "+SuppressHTMLPreamble", "IgnoreClient", "XHTML TrackModified"]),
    ("order_key", &["Name", "Date", "Size", "Description"]),
    ("document_name", &["$some_file", "a.txt", "secret.txt", "$uri", "$hub", "$hub", "$hub", "README.html", "index.html"]),
    ("filter", &["DEFLATE", "INFLATE;DEFLATE", "INCLUDES", "INCLUDES"]),
    ("includes", &["IncludesNOEXEC", "-Includes", "+IncludesNOEXEC", "Includes Indexes"]),
    ("x_bit", &["On", "Full", "Off"]),
    // rewrite
    ("rewrite_option", &["Inherit", "InheritBefore", "InheritDown", "InheritDownBefore", "IgnoreInherit", "AllowNoSlash", "AllowAnyURI", "MergeBase", "IgnoreContextInfo", "LegacyPrefixDocRoot", "UnsafePrefixStat"]),
    ("rewrite_base", &["/", "/dir", "/dir/", "/secret", "$folder_uri/", "$prefix"]),
    ("rewrite_input", &["%{REQUEST_FILENAME}", "%{REQUEST_FILENAME}", "%{REQUEST_URI}", "%{REQUEST_URI}", "%{DOCUMENT_ROOT}%{REQUEST_URI}", "%{QUERY_STRING}", "%{HTTP:X-Flag}", "%{ENV:$env}", "%{REQUEST_METHOD}", "%{HTTP_HOST}", "%{THE_REQUEST}", "%{PATH_INFO}", "%{IS_SUBREQ}", "$1", "%1", "%{ENV:REDIRECT_STATUS}", "${lower:%{REQUEST_URI}}"]),
    ("rewrite_test", &["!-f", "!-f", "!-d", "-f", "-d", "-s", "-L", "!-L", "-x", "\"$uri_pattern\"", "\"!$uri_pattern\"", "\"^/?(.*)$\"", "=\"\"", "=GET", ">a", "<=/m", "-gt0", "-eq200", "q=1", "!^$"]),
    ("rewrite_condition_flags", &["", "", "", "[NC]", "[OR]", "[NV]", "[NC,OR]"]),
    ("rewrite_path", &["$uri_pattern", "$uri_pattern", "^/(.*)$", "^/go/(.*)", "^$hub$", "^$hub$", "!^/$name", "^/([^/]+)/(.*)$", "$name", "^"]),
    ("rewrite_rest", &["^(.*)$", "^$name", "^$name$", "(.*)\\.txt$", "^", "!^$name", "^([^/]+)/(.*)$", "secret", "."]),
    ("rewrite_any", &["$name", "secret", "\\.txt$", "^", "!$name", "$uri_pattern"]),
    ("rewrite_target", &["$hub", "$hub", "$uri", "$uri", "/$1", "/dir/$1", "/$name/$1", "%{DOCUMENT_ROOT}$hub", "@SITE@/out/$1", "@SITE@/htdocs$in_file", "$prefix/$1", "/index.html?x=$1", "/$2", "http://other.test/$1", "${lower:/$1}", "$folder_uri/"]),
    ("rewrite_place", &["$hub", "$hub", "$uri", "$1", "$name/$1", "index.html", "/index.html", "/dir/$1", "$1.txt", "$1?x=1", "@SITE@/htdocs$hub", "@SITE@/out/x.txt", "../$1", "$2"]),
    ("rewrite_flags", &["", "", "[L]", "[L]", "[L]", "[PT]", "[PT,L]", "[R]", "[R=301,L]", "[END]", "[QSA,L]", "[NC]", "[C]", "[S=1]", "[NS]", "[NE,R]", "[DPI]", "[QSD]", "[B]", "[UNC]", "[UnsafeAllow3F]", "[E=FLAG:1]", "[E=!FLAG]", "[H=type-map]", "[T=text/x-made]", "[N=5]", "[CO=a:b:.test]"]),
    ("rewrite_refusal", &["[F]", "[F]", "[F,NS]", "[G]", "[R=404]", "[L]", "[END]", "[E=FLAG:1]", "[H=default-handler]", "[C]", "[S=2]", "[T=text/x-made]"]),
    // proxy. The application of the attack listens at an address of its own.
    ("application_root", &["fcgi://127.0.0.3:@PORT@", "fcgi://127.0.0.3:@PORT@/"]),
    ("application", &["fcgi://127.0.0.3:@PORT@/", "fcgi://127.0.0.3:@PORT@@SITE@/htdocs/", "fcgi://127.0.0.3:@PORT@@SITE@/htdocs$hub", "fcgi://127.0.0.3:@PORT@@SITE@/out/"]),
    ("application_match", &["fcgi://127.0.0.3:@PORT@@SITE@/htdocs/$1", "fcgi://127.0.0.3:@PORT@@SITE@/htdocs$1", "fcgi://127.0.0.3:@PORT@/$1", "fcgi://127.0.0.3:@PORT@@SITE@/htdocs$in_file"]),
    ("application_kind", &["FPM", "GENERIC"]),
    // expires, allowmethods. Times that the seconds of the request do not change.
    ("expiry", &["A0", "\"modification plus 1 hour\"", "M5", "A-5"]),
    ("expiring", &["text/html", "text/*", "*/*", "image/png"]),
    ("substitution", &["s/a/b/", "s/E/[$0]/i", "s|</?p>|-|", "s/the/THE/ni", "s/l(.)/$1l/q"]),
    ("cookie_name", &["track", "a.b"]),
    ("allowed_methods", &["GET", "GET POST", "reset", "OPTIONS PUT", "GET HEAD POST OPTIONS"]),
    // remoteip
    ("proxies", &["127.0.0.1", "10.0.0.1", "8.8.8.0/24 127.0.0.1"]),
    // userdir, vhost_alias
    ("user_dir", &["@SITE@/htdocs", "@SITE@/htdocs/*/docs", "@SITE@/out", "disabled", "enabled dir a", "disabled dir", "@SITE@/none $in_folder @SITE@/htdocs/*", "http://other.test/*"]),
    ("host_root", &["@SITE@/htdocs", "@SITE@/htdocs/", "@SITE@/htdocs/%1.1/..", "@SITE@/%%1", "@SITE@/out", "none"]),
    // requests
    ("method", &["GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "HEAD", "POST", "OPTIONS", "TRACE", "PUT", "FOO", "get", "PATCH", "PROPFIND", "CONNECT"]),
    ("version", &["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"]),
    ("host", &["@HOST@", "@HOST@", "@HOST@", "@HOST@", "@HOST@", "@HOST@", "@HOST@", "@HOST@", "@HOST@:@PORT@", "S@N@.TEST", "@HOST@.", "alias.@HOST@", "second.@HOST@", "second.@HOST@", "deep.wild.@HOST@", "unknown.test"]),
    ("query", &["q=1", "", "q=%2fx", "C=N;O=D", "C=S&O=A", "/../x", "F=2", "P=a*"]),
    ("tail", &["/", "//", "/info", "/info/more", "/info//more", "//info/", "%e9", "%c3%a9", "/.", "/..", "/../a.txt", "/../secret", ".", "%20", "%00", ";x=1", ":x", "~", ".txt", ".bak", "/*", "%5c", "%3f", "/%2e", "/index.html", "%2f", "%2Finfo", "%", "%zz", "?", "#x"]),
    ("header", &["Accept: text/html", "Accept: text/plain;q=0.5, */*;q=0.1", "Accept: image/png", "Accept-Language: fr", "Accept-Language: en;q=0.5, fr", "Accept-Language: de", "Accept-Language: en-GB", "Accept-Encoding: gzip", "Accept-Charset: utf-8", "If-Modified-Since: Sat, 29 Oct 2033 19:43:31 GMT", "If-Modified-Since: Thu, 01 Jan 2015 00:00:00 GMT", "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT", "If-Unmodified-Since: Thu, 01 Jan 2015 00:00:00 GMT", "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", "If-None-Match: @TAG@", "If-None-Match: *", "If-None-Match: \"none\"", "If-Match: @TAG@", "If-Match: \"none\"", "If-Match: *", "Range: bytes=0-4", "Range: bytes=-3", "Range: bytes=2-3,8-", "Range: bytes=500-", "Range: bytes=4-2", "Range: lines=1-2", "If-Range: @TAG@", "If-Range: \"none\"", "User-Agent: Mozilla/5.0", "User-Agent: curl/8", "X-Flag: 1", "X-Flag: 0", "X-Flag: (secret)", "Connection: close", "Cookie: a=b", "Expect: 100-continue", "Referer: http://other.test/", "Max-Forwards: 0", "Authorization: Basic YTpi", "Authorization: Basic YW5uOnBhc3N3b3Jk", "Authorization: Basic YW5uOnBhc3N3b3Jk", "Authorization: Basic YW5uOnBhc3N3b3Jk", "Authorization: Basic YW5uOnBhc3N3b3Jk", "Authorization: Basic Ym9iOnBhc3N3b3Jk", "Authorization: Basic Ym9iOnBhc3N3b3Jk", "Authorization: Basic Ym9iOnBhc3N3b3Jk", "Authorization: Basic YW5uOndyb25n", "Authorization: Basic em9lOnBhc3N3b3Jk", "Authorization: Basic !", "Authorization: Digest a", "Authorization: @DIGEST ann password@", "Authorization: @DIGEST ann password@", "Authorization: @DIGEST ann password@", "Authorization: @DIGEST bob password@", "Authorization: @DIGEST bob password@", "Authorization: @DIGEST ann wrong@", "Authorization: @DIGEST zoe password@", "Content-Type: text/plain", "TE: trailers", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-For: 10.0.0.1, 8.8.8.8", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-For: x, "]),
];
