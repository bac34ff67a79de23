//! What Apache httpd 2.4 knows: which module defines which directive, and which modules exist.
//! Error messages use it to name the module that a directive needs. [`FOREIGN`] has modules of
//! others, which are refused, and what replaces them. This file is data.

/// The module of Apache httpd that defines `directive`, such as `mod_alias` or `core`. A section is
/// spelled with its opening angle bracket, `<Proxy`. Case does not matter.
///
/// Source: the quick reference of Apache's manual, and `apache2 -L` for what it leaves out.
#[must_use]
pub fn module_of(directive: &str) -> Option<&'static str> {
    modules_of(directive).next()
}

/// All modules that define `directive`.
pub(crate) fn modules_of(directive: &str) -> impl Iterator<Item = &'static str> {
    let holds = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(directive));
    DIRECTIVES.iter().filter(move |(_, names)| holds(names)).map(|(module, _)| *module)
}

/// Returns advice for an administrator who loads a module that is not part of Apache's
/// distribution, such as mod_php. Returns `None` for an unknown module.
///
/// Source: the modules that distributions package beside Apache httpd.
#[must_use]
pub fn replacement_of(identifier: &str) -> Option<&'static str> {
    let is = |names: &[&str]| names.contains(&identifier);
    FOREIGN.iter().find(|(names, _)| is(names)).map(|(_, text)| *text)
}

/// Modules that are not part of Apache's distribution, with the advice about them.
#[rustfmt::skip]
const FOREIGN: &[(&[&str], &str)] = &[
    (&["php5_module", "php7_module"],
     "PHP runs in php-fpm instead: `apt-get install php-fpm`, `a2dismod php8.2 mpm_prefork`, \
      `a2enmod proxy_fcgi setenvif mpm_event`, `a2enconf php8.2-fpm` (with the version of your PHP)"),
    (&["security2_module", "security3_module"],
     "nothing replaces the rules of ModSecurity: put a proxy with them in front of the server"),
    (&["evasive20_module", "evasive_module"],
     "fail2ban on the access log replaces it, and the server sheds load by itself"),
    (&["auth_gssapi_module", "auth_kerb_module", "authnz_pam_module"],
     "nothing replaces it: let a proxy that authenticates stand in front of the server"),
    (&["auth_openidc_module", "auth_mellon_module"],
     "oauth2-proxy in front of the server replaces it"),
    (&["mod_shib", "shib_module"],
     "nothing replaces it: let a proxy that authenticates stand in front of the server"),
    (&["wsgi_module"],
     "gunicorn or uwsgi replaces it, behind a proxy"),
    (&["passenger_module"],
     "puma or Passenger Standalone replaces it, behind a proxy"),
    (&["perl_module", "apreq_module"],
     "a FastCGI program replaces it (FCGI.pm), by mod_fcgid"),
    (&["jk_module"],
     "mod_proxy_http replaces it where the application speaks HTTP; mod_proxy_ajp is not there yet"),
    (&["dav_svn_module", "authz_svn_module"],
     "svnserve replaces it"),
    (&["fastcgi_module"],
     "mod_fcgid replaces it, with FcgidWrapper and the handler fcgid-script"),
    (&["mpm_itk_module", "ruid2_module"],
     "AppUser of php_module replaces it: scripts of a host run as a user of their own"),
    (&["xsendfile_module"],
     "nothing replaces it"),
    (&["pagespeed_module"],
     "nothing replaces it as a whole; mod_deflate, mod_brotli and mod_expires cover parts of it"),
    (&["cloudflare_module", "qos_module", "geoip_module", "maxminddb_module"],
     "nothing replaces it"),
];

/// A module of Apache's distribution with its two names: the source file (`mod_alias.c`) that
/// `<IfModule>` and `apache2 -l` use, and the identifier (`alias_module`) that LoadModule uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standard {
    /// The source file, such as `mod_alias.c`. The process models are `event.c`, `worker.c` and
    /// `prefork.c`.
    pub file: String,
    /// The identifier, such as `alias_module`. The process models are `mpm_event_module` and so on.
    pub identifier: String,
}

/// The standard module with the name `name`, which may be either of its two names. Case matters, as
/// in `<IfModule>`.
#[must_use]
pub fn standard_module(name: &str) -> Option<Standard> {
    if let Some((file, identifier)) =
        SPECIAL.iter().find(|(file, identifier)| *file == name || *identifier == name)
    {
        return Some(Standard { file: (*file).into(), identifier: (*identifier).into() });
    }
    let stem = name
        .strip_prefix("mod_")
        .and_then(|rest| rest.strip_suffix(".c"))
        .or_else(|| name.strip_suffix("_module"))?;
    MODULES.iter().find(|known| **known == stem).map(|known| Standard {
        file: format!("mod_{known}.c"),
        identifier: format!("{known}_module"),
    })
}

/// Modules whose source file is not named after their identifier.
const SPECIAL: &[(&str, &str)] = &[
    ("core.c", "core_module"),
    ("http_core.c", "http_module"),
    ("event.c", "mpm_event_module"),
    ("worker.c", "mpm_worker_module"),
    ("prefork.c", "mpm_prefork_module"),
    ("util_ldap.c", "ldap_module"),
];

/// Modules whose names are `mod_NAME.c` and `NAME_module`.
#[rustfmt::skip]
const MODULES: &[&str] = &[
    "access_compat", "actions", "alias", "allowmethods", "asis", "auth_basic", "auth_digest",
    "auth_form", "authn_anon", "authn_core", "authn_dbd", "authn_dbm", "authn_file",
    "authn_socache", "authnz_fcgi", "authnz_ldap", "authz_core", "authz_dbd", "authz_dbm",
    "authz_groupfile", "authz_host", "authz_owner", "authz_user", "autoindex", "brotli",
    "bucketeer", "buffer", "cache", "cache_disk", "cache_socache", "case_filter",
    "case_filter_in", "cern_meta", "cgi", "cgid", "charset_lite", "data", "dav", "dav_fs",
    "dav_lock", "dbd", "deflate", "dialup", "dir", "dumpio", "echo", "env", "example_hooks",
    "expires", "ext_filter", "file_cache", "filter", "headers", "heartbeat", "heartmonitor",
    "http2", "ident", "imagemap", "include", "info", "isapi", "lbmethod_bybusyness",
    "lbmethod_byrequests", "lbmethod_bytraffic", "lbmethod_heartbeat", "log_config",
    "log_debug", "log_forensic", "logio", "lua", "macro", "md", "mime", "mime_magic",
    "negotiation", "nw_ssl", "privileges", "proxy", "proxy_ajp", "proxy_balancer",
    "proxy_connect", "proxy_express", "proxy_fcgi", "proxy_fdpass", "proxy_ftp", "proxy_hcheck",
    "proxy_html", "proxy_http", "proxy_http2", "proxy_scgi", "proxy_uwsgi", "proxy_wstunnel",
    "ratelimit", "reflector", "remoteip", "reqtimeout", "request", "rewrite", "sed", "session",
    "session_cookie", "session_crypto", "session_dbd", "setenvif", "slotmem_plain", "slotmem_shm",
    "so", "socache_dbm", "socache_dc", "socache_memcache", "socache_redis", "socache_shmcb",
    "speling", "ssl", "status", "substitute", "suexec", "systemd", "tls", "unique_id", "unixd",
    "userdir", "usertrack", "version", "vhost_alias", "watchdog", "xml2enc",
];

/// Directives by the module that defines them, sorted by module.
#[rustfmt::skip]
const DIRECTIVES: &[(&str, &[&str])] = &[
    ("core", &[
        "<Directory", "<DirectoryMatch", "<Else", "<ElseIf", "<Files", "<FilesMatch", "<If",
        "<IfDefine", "<IfDirective", "<IfFile", "<IfModule", "<IfSection", "<Limit",
        "<LimitExcept", "<Location", "<LocationMatch", "<VirtualHost", "AcceptFilter",
        "AcceptPathInfo", "AccessFileName", "AddDefaultCharset", "AllowEncodedSlashes",
        "AllowOverride", "AllowOverrideList", "CGIMapExtension", "CGIPassAuth", "CGIVar",
        "ContentDigest", "DefaultRuntimeDir", "DefaultType", "Define", "DocumentRoot",
        "EnableMMAP", "EnableSendfile", "Error", "ErrorDocument", "ErrorLog", "ErrorLogFormat",
        "ExtendedStatus", "FileETag", "FlushMaxPipelined", "FlushMaxThreshold", "ForceType",
        "GprofDir", "HostnameLookups", "HttpProtocolOptions", "Include", "IncludeOptional",
        "KeepAlive", "KeepAliveTimeout", "LimitInternalRecursion", "LimitRequestBody",
        "LimitRequestFields", "LimitRequestFieldSize", "LimitRequestLine", "LimitXMLRequestBody",
        "LogLevel", "MaxKeepAliveRequests", "MaxRangeOverlaps", "MaxRangeReversals", "MaxRanges",
        "MergeSlashes", "MergeTrailers", "Mutex", "NameVirtualHost", "Options", "Port",
        "Protocol", "Protocols", "ProtocolsHonorOrder", "QualifyRedirectURL", "ReadBufferSize",
        "RegexDefaultOptions", "RegisterHttpMethod", "RLimitCPU", "RLimitMEM", "RLimitNPROC",
        "ScriptInterpreterSource", "SeeRequestTail", "ServerAdmin", "ServerAlias", "ServerName",
        "ServerPath", "ServerRoot", "ServerSignature", "ServerTokens", "SetHandler",
        "SetInputFilter", "SetOutputFilter", "StrictHostCheck", "TimeOut", "TraceEnable",
        "UNCList", "UnDefine", "UseCanonicalName", "UseCanonicalPhysicalPort",
    ]),
    ("event", &[
        "AsyncRequestWorkerFactor",
    ]),
    ("mod_access_compat", &[
        "Allow", "Deny", "Order", "Satisfy",
    ]),
    ("mod_actions", &[
        "Action", "Script",
    ]),
    ("mod_alias", &[
        "Alias", "AliasMatch", "AliasPreservePath", "Redirect", "RedirectMatch",
        "RedirectPermanent", "RedirectRelative", "RedirectTemp", "ScriptAlias",
        "ScriptAliasMatch",
    ]),
    ("mod_allowmethods", &[
        "AllowMethods",
    ]),
    ("mod_auth_basic", &[
        "AuthBasicAuthoritative", "AuthBasicFake", "AuthBasicProvider",
        "AuthBasicUseDigestAlgorithm",
    ]),
    ("mod_auth_digest", &[
        "AuthDigestAlgorithm", "AuthDigestDomain", "AuthDigestNcCheck", "AuthDigestNonceLifetime",
        "AuthDigestProvider", "AuthDigestQop", "AuthDigestShmemSize",
    ]),
    ("mod_auth_form", &[
        "AuthFormAuthoritative", "AuthFormBody", "AuthFormDisableNoStore",
        "AuthFormFakeBasicAuth", "AuthFormLocation", "AuthFormLoginRequiredLocation",
        "AuthFormLoginSuccessLocation", "AuthFormLogoutLocation", "AuthFormMethod",
        "AuthFormMimetype", "AuthFormPassword", "AuthFormProvider", "AuthFormSitePassphrase",
        "AuthFormSize", "AuthFormUsername",
    ]),
    ("mod_authn_anon", &[
        "Anonymous", "Anonymous_LogEmail", "Anonymous_MustGiveEmail", "Anonymous_NoUserID",
        "Anonymous_VerifyEmail",
    ]),
    ("mod_authn_core", &[
        "<AuthnProviderAlias", "AuthName", "AuthType",
    ]),
    ("mod_authn_dbd", &[
        "AuthDBDUserPWQuery", "AuthDBDUserRealmQuery",
    ]),
    ("mod_authn_dbm", &[
        "AuthDBMType", "AuthDBMUserFile",
    ]),
    ("mod_authn_file", &[
        "AuthUserFile",
    ]),
    ("mod_authn_socache", &[
        "AuthnCacheContext", "AuthnCacheEnable", "AuthnCacheProvideFor", "AuthnCacheSOCache",
        "AuthnCacheTimeout",
    ]),
    ("mod_authnz_fcgi", &[
        "AuthnzFcgiCheckAuthnProvider", "AuthnzFcgiDefineProvider",
    ]),
    ("mod_authnz_ldap", &[
        "AuthLDAPAuthorizePrefix", "AuthLDAPBindAuthoritative", "AuthLDAPBindDN",
        "AuthLDAPBindPassword", "AuthLDAPCharsetConfig", "AuthLDAPCompareAsUser",
        "AuthLDAPCompareDNOnServer", "AuthLDAPDereferenceAliases", "AuthLDAPGroupAttribute",
        "AuthLDAPGroupAttributeIsDN", "AuthLDAPInitialBindAsUser", "AuthLDAPInitialBindPattern",
        "AuthLDAPMaxSubGroupDepth", "AuthLDAPRemoteUserAttribute", "AuthLDAPRemoteUserIsDN",
        "AuthLDAPSearchAsUser", "AuthLDAPSubGroupAttribute", "AuthLDAPSubGroupClass",
        "AuthLDAPURL",
    ]),
    ("mod_authz_core", &[
        "<AuthzProviderAlias", "<RequireAll", "<RequireAny", "<RequireNone", "AuthMerging",
        "AuthzSendForbiddenOnFailure", "Require",
    ]),
    ("mod_authz_dbd", &[
        "AuthzDBDLoginToReferer", "AuthzDBDQuery", "AuthzDBDRedirectQuery",
    ]),
    ("mod_authz_dbm", &[
        "AuthDBMGroupFile", "AuthzDBMType",
    ]),
    ("mod_authz_groupfile", &[
        "AuthGroupFile",
    ]),
    ("mod_autoindex", &[
        "AddAlt", "AddAltByEncoding", "AddAltByType", "AddDescription", "AddIcon",
        "AddIconByEncoding", "AddIconByType", "DefaultIcon", "FancyIndexing", "HeaderName",
        "IndexHeadInsert", "IndexIgnore", "IndexIgnoreReset", "IndexOptions", "IndexOrderDefault",
        "IndexStyleSheet", "ReadmeName",
    ]),
    ("mod_brotli", &[
        "BrotliAlterETag", "BrotliCompressionMaxInputBlock", "BrotliCompressionQuality",
        "BrotliCompressionWindow", "BrotliFilterNote",
    ]),
    ("mod_buffer", &[
        "BufferSize",
    ]),
    ("mod_cache", &[
        "CacheDefaultExpire", "CacheDetailHeader", "CacheDisable", "CacheEnable", "CacheHeader",
        "CacheIgnoreCacheControl", "CacheIgnoreHeaders", "CacheIgnoreNoLastMod",
        "CacheIgnoreQueryString", "CacheIgnoreURLSessionIdentifiers", "CacheKeyBaseURL",
        "CacheLastModifiedFactor", "CacheLock", "CacheLockMaxAge", "CacheLockPath",
        "CacheMaxExpire", "CacheMinExpire", "CacheQuickHandler", "CacheStaleOnError",
        "CacheStoreExpired", "CacheStoreNoStore", "CacheStorePrivate",
    ]),
    ("mod_cache_disk", &[
        "CacheDirLength", "CacheDirLevels", "CacheMaxFileSize", "CacheMinFileSize",
        "CacheReadSize", "CacheReadTime", "CacheRoot",
    ]),
    ("mod_cache_socache", &[
        "CacheSocache", "CacheSocacheMaxSize", "CacheSocacheMaxTime", "CacheSocacheMinTime",
        "CacheSocacheReadSize", "CacheSocacheReadTime",
    ]),
    ("mod_cern_meta", &[
        "MetaDir", "MetaFiles", "MetaSuffix",
    ]),
    ("mod_cgi", &[
        "CGIScriptTimeout", "ScriptLog", "ScriptLogBuffer", "ScriptLogLength",
    ]),
    ("mod_cgid", &[
        "CGIDScriptTimeout", "ScriptSock",
    ]),
    ("mod_charset_lite", &[
        "CharsetDefault", "CharsetOptions", "CharsetSourceEnc",
    ]),
    ("mod_dav", &[
        "Dav", "DavBasePath", "DavDepthInfinity", "DavMinTimeout",
    ]),
    ("mod_dav_fs", &[
        "DavLockDB", "DavLockDiscovery",
    ]),
    ("mod_dav_lock", &[
        "DavGenericLockDB",
    ]),
    ("mod_dbd", &[
        "DBDExptime", "DBDInitSQL", "DBDKeep", "DBDMax", "DBDMin", "DBDParams", "DBDPersist",
        "DBDPrepareSQL", "DBDriver",
    ]),
    ("mod_deflate", &[
        "DeflateAlterETag", "DeflateBufferSize", "DeflateCompressionLevel", "DeflateFilterNote",
        "DeflateInflateLimitRequestBody", "DeflateInflateRatioBurst", "DeflateInflateRatioLimit",
        "DeflateMemLevel", "DeflateWindowSize",
    ]),
    ("mod_dialup", &[
        "ModemStandard",
    ]),
    ("mod_dir", &[
        "DirectoryCheckHandler", "DirectoryIndex", "DirectoryIndexRedirect", "DirectorySlash",
        "FallbackResource",
    ]),
    ("mod_dumpio", &[
        "DumpIOInput", "DumpIOOutput",
    ]),
    ("mod_echo", &[
        "ProtocolEcho",
    ]),
    ("mod_env", &[
        "PassEnv", "SetEnv", "UnsetEnv",
    ]),
    ("mod_example_hooks", &[
        "Example",
    ]),
    ("mod_expires", &[
        "ExpiresActive", "ExpiresByType", "ExpiresDefault",
    ]),
    ("mod_ext_filter", &[
        "ExtFilterDefine", "ExtFilterOptions",
    ]),
    ("mod_file_cache", &[
        "CacheFile", "MMapFile",
    ]),
    ("mod_filter", &[
        "AddOutputFilterByType", "FilterChain", "FilterDeclare", "FilterProtocol",
        "FilterProvider", "FilterTrace",
    ]),
    ("mod_headers", &[
        "Header", "RequestHeader",
    ]),
    ("mod_heartbeat", &[
        "HeartbeatAddress",
    ]),
    ("mod_heartmonitor", &[
        "HeartbeatListen", "HeartbeatMaxServers", "HeartbeatStorage",
    ]),
    ("mod_http2", &[
        "H2CopyFiles", "H2Direct", "H2EarlyHint", "H2EarlyHints", "H2MaxDataFrameLen",
        "H2MaxHeaderBlockLen", "H2MaxSessionStreams", "H2MaxStreamErrors",
        "H2MaxWorkerIdleSeconds", "H2MaxWorkers", "H2MinWorkers", "H2ModernTLSOnly",
        "H2OutputBuffering", "H2Padding", "H2ProxyRequests", "H2Push", "H2PushDiarySize",
        "H2PushPriority", "H2PushResource", "H2SerializeHeaders", "H2SessionExtraFiles",
        "H2StreamMaxMemSize", "H2StreamTimeout", "H2TLSCoolDownSecs", "H2TLSWarmUpSize",
        "H2Upgrade", "H2WebSockets", "H2WindowSize",
    ]),
    ("mod_ident", &[
        "IdentityCheck", "IdentityCheckTimeout",
    ]),
    ("mod_imagemap", &[
        "ImapBase", "ImapDefault", "ImapMenu",
    ]),
    ("mod_include", &[
        "SSIEndTag", "SSIErrorMsg", "SSIETag", "SSILastModified", "SSILegacyExprParser",
        "SSIStartTag", "SSITimeFormat", "SSIUndefinedEcho", "XBitHack",
    ]),
    ("mod_info", &[
        "AddModuleInfo",
    ]),
    ("mod_isapi", &[
        "ISAPIAppendLogToErrors", "ISAPIAppendLogToQuery", "ISAPICacheFile", "ISAPIFakeAsync",
        "ISAPILogNotSupported", "ISAPIReadAheadBuffer",
    ]),
    ("mod_lbmethod_heartbeat", &[
        "HeartbeatStorage",
    ]),
    ("mod_ldap", &[
        "LDAPCacheEntries", "LDAPCacheTTL", "LDAPConnectionPoolTTL", "LDAPConnectionTimeout",
        "LDAPLibraryDebug", "LDAPOpCacheEntries", "LDAPOpCacheTTL", "LDAPReferralHopLimit",
        "LDAPReferrals", "LDAPRetries", "LDAPRetryDelay", "LDAPSharedCacheFile",
        "LDAPSharedCacheSize", "LDAPTimeout", "LDAPTrustedClientCert", "LDAPTrustedGlobalCert",
        "LDAPTrustedMode", "LDAPVerifyServerCert",
    ]),
    ("mod_log_config", &[
        "BufferedLogs", "CustomLog", "GlobalLog", "LogFormat", "TransferLog",
    ]),
    ("mod_log_debug", &[
        "LogMessage",
    ]),
    ("mod_log_forensic", &[
        "ForensicLog",
    ]),
    ("mod_logio", &[
        "LogIOTrackTTFB",
    ]),
    ("mod_lua", &[
        "<LuaHookAccessChecker", "<LuaHookAuthChecker", "<LuaHookCheckUserID", "<LuaHookFixups",
        "<LuaHookMapToStorage", "<LuaHookPreTranslateName", "<LuaHookTranslateName",
        "<LuaHookTypeChecker", "<LuaQuickHandler", "LuaAuthzProvider", "LuaCodeCache",
        "LuaHookAccessChecker", "LuaHookAuthChecker", "LuaHookCheckUserID", "LuaHookFixups",
        "LuaHookInsertFilter", "LuaHookLog", "LuaHookMapToStorage", "LuaHookPreTranslate",
        "LuaHookPreTranslateName", "LuaHookTranslateName", "LuaHookTypeChecker", "LuaInherit",
        "LuaInputFilter", "LuaMapHandler", "LuaOutputFilter", "LuaPackageCPath", "LuaPackagePath",
        "LuaQuickHandler", "LuaRoot", "LuaScope",
    ]),
    ("mod_macro", &[
        "<Macro", "MacroIgnoreBadNesting", "MacroIgnoreEmptyArgs", "UndefMacro", "Use",
    ]),
    ("mod_md", &[
        "<MDomain", "<MDomainSet", "MDActivationDelay", "MDBaseServer", "MDCACertificateFile",
        "MDCAChallenges", "MDCertificateAgreement", "MDCertificateAuthority",
        "MDCertificateCheck", "MDCertificateFile", "MDCertificateKeyFile", "MDCertificateMonitor",
        "MDCertificateProtocol", "MDCertificateStatus", "MDChallengeDns01",
        "MDChallengeDns01Version", "MDCheckInterval", "MDContactEmail", "MDDriveMode",
        "MDExternalAccountBinding", "MDHttpProxy", "MDHttpProxyCACertificateFile",
        "MDInitialDelay", "MDMatchNames", "MDMember", "MDMembers", "MDMessageCmd", "MDMustStaple",
        "MDNotifyCmd", "MDomain", "MDPortMap", "MDPrivateKeys", "MDProfile", "MDProfileMandatory",
        "MDRenewMode", "MDRenewViaARI", "MDRenewWindow", "MDRequireHttps", "MDRetryDelay",
        "MDRetryFailover", "MDServerStatus", "MDStapleOthers", "MDStapling",
        "MDStaplingKeepResponse", "MDStaplingRenewWindow", "MDStoreDir", "MDStoreLocks",
        "MDWarnWindow",
    ]),
    ("mod_mime", &[
        "AddCharset", "AddEncoding", "AddHandler", "AddInputFilter", "AddLanguage",
        "AddOutputFilter", "AddType", "DefaultLanguage", "ModMimeUsePathInfo", "MultiviewsMatch",
        "RemoveCharset", "RemoveEncoding", "RemoveHandler", "RemoveInputFilter", "RemoveLanguage",
        "RemoveOutputFilter", "RemoveType", "TypesConfig",
    ]),
    ("mod_mime_magic", &[
        "MimeMagicFile",
    ]),
    ("mod_negotiation", &[
        "CacheNegotiatedDocs", "ForceLanguagePriority", "LanguagePriority",
    ]),
    ("mod_nw_ssl", &[
        "NWSSLTrustedCerts", "NWSSLUpgradeable", "SecureListen",
    ]),
    ("mod_php", &[
        "php_admin_flag", "php_admin_value", "php_flag", "php_value", "PHPINIDir",
    ]),
    ("mod_privileges", &[
        "DTracePrivileges", "PrivilegesMode", "VHostCGIMode", "VHostCGIPrivs", "VHostGroup",
        "VHostPrivs", "VHostSecure", "VHostUser",
    ]),
    ("mod_proxy", &[
        "<Proxy", "<ProxyMatch", "BalancerGrowth", "BalancerInherit", "BalancerMember",
        "BalancerPersist", "NoProxy", "Proxy100Continue", "ProxyAddHeaders", "ProxyBadHeader",
        "ProxyBlock", "ProxyDomain", "ProxyErrorOverride", "ProxyIOBufferSize",
        "ProxyMaxForwards", "ProxyPass", "ProxyPassInherit", "ProxyPassInterpolateEnv",
        "ProxyPassMatch", "ProxyPassReverse", "ProxyPassReverseCookieDomain",
        "ProxyPassReverseCookiePath", "ProxyPreserveHost", "ProxyReceiveBufferSize",
        "ProxyRemote", "ProxyRemoteMatch", "ProxyRequests", "ProxySet", "ProxySourceAddress",
        "ProxyStatus", "ProxyTimeout", "ProxyVia",
    ]),
    ("mod_proxy_connect", &[
        "AllowCONNECT",
    ]),
    ("mod_proxy_express", &[
        "ProxyExpressDBMFile", "ProxyExpressDBMType", "ProxyExpressEnable",
    ]),
    ("mod_proxy_fcgi", &[
        "ProxyFCGIBackendType", "ProxyFCGISetEnvIf",
    ]),
    ("mod_proxy_ftp", &[
        "ProxyFtpDirCharset", "ProxyFtpEscapeWildcards", "ProxyFtpListOnWildcard",
    ]),
    ("mod_proxy_hcheck", &[
        "ProxyHCExpr", "ProxyHCTemplate", "ProxyHCTPsize",
    ]),
    ("mod_proxy_html", &[
        "ProxyHTMLBufSize", "ProxyHTMLCharsetOut", "ProxyHTMLDocType", "ProxyHTMLEnable",
        "ProxyHTMLEvents", "ProxyHTMLExtended", "ProxyHTMLFixups", "ProxyHTMLInterp",
        "ProxyHTMLLinks", "ProxyHTMLMeta", "ProxyHTMLStripComments", "ProxyHTMLURLMap",
    ]),
    ("mod_proxy_scgi", &[
        "ProxySCGIInternalRedirect", "ProxySCGISendfile",
    ]),
    ("mod_reflector", &[
        "ReflectorHeader",
    ]),
    ("mod_remoteip", &[
        "RemoteIPHeader", "RemoteIPInternalProxy", "RemoteIPInternalProxyList",
        "RemoteIPProxiesHeader", "RemoteIPProxyProtocol", "RemoteIPProxyProtocolExceptions",
        "RemoteIPTrustedProxy", "RemoteIPTrustedProxyList",
    ]),
    ("mod_reqtimeout", &[
        "RequestReadTimeout",
    ]),
    ("mod_request", &[
        "KeptBodySize",
    ]),
    ("mod_rewrite", &[
        "RewriteBase", "RewriteCond", "RewriteEngine", "RewriteMap", "RewriteOptions",
        "RewriteRule",
    ]),
    ("mod_sed", &[
        "InputSed", "OutputSed",
    ]),
    ("mod_session", &[
        "Session", "SessionEnv", "SessionExclude", "SessionExpiryUpdateInterval", "SessionHeader",
        "SessionInclude", "SessionMaxAge",
    ]),
    ("mod_session_cookie", &[
        "SessionCookieName", "SessionCookieName2", "SessionCookieRemove",
    ]),
    ("mod_session_crypto", &[
        "SessionCryptoCipher", "SessionCryptoDriver", "SessionCryptoPassphrase",
        "SessionCryptoPassphraseFile",
    ]),
    ("mod_session_dbd", &[
        "SessionDBDCookieName", "SessionDBDCookieName2", "SessionDBDCookieRemove",
        "SessionDBDDeleteLabel", "SessionDBDInsertLabel", "SessionDBDPerUser",
        "SessionDBDSelectLabel", "SessionDBDUpdateLabel",
    ]),
    ("mod_setenvif", &[
        "BrowserMatch", "BrowserMatchNoCase", "SetEnvIf", "SetEnvIfExpr", "SetEnvIfNoCase",
    ]),
    ("mod_so", &[
        "LoadFile", "LoadModule",
    ]),
    ("mod_socache_memcache", &[
        "MemcacheConnTTL",
    ]),
    ("mod_socache_redis", &[
        "RedisConnPoolTTL", "RedisTimeout",
    ]),
    ("mod_speling", &[
        "CheckBasenameMatch", "CheckCaseOnly", "CheckSpelling",
    ]),
    ("mod_ssl", &[
        "SSLCACertificateFile", "SSLCACertificatePath", "SSLCADNRequestFile",
        "SSLCADNRequestPath", "SSLCARevocationCheck", "SSLCARevocationFile",
        "SSLCARevocationPath", "SSLCertificateChainFile", "SSLCertificateFile",
        "SSLCertificateKeyFile", "SSLCipherSuite", "SSLCompression", "SSLCryptoDevice",
        "SSLEngine", "SSLFIPS", "SSLHonorCipherOrder", "SSLInsecureRenegotiation", "SSLLog",
        "SSLLogLevel", "SSLOCSPDefaultResponder", "SSLOCSPEnable", "SSLOCSPNoverify",
        "SSLOCSPOverrideResponder", "SSLOCSPProxyURL", "SSLOCSPResponderCertificateFile",
        "SSLOCSPResponderTimeout", "SSLOCSPResponseMaxAge", "SSLOCSPResponseTimeSkew",
        "SSLOCSPUseRequestNonce", "SSLOpenSSLConfCmd", "SSLOptions", "SSLPassPhraseDialog",
        "SSLProtocol", "SSLProxyCACertificateFile", "SSLProxyCACertificatePath",
        "SSLProxyCARevocationCheck", "SSLProxyCARevocationFile", "SSLProxyCARevocationPath",
        "SSLProxyCheckPeerCN", "SSLProxyCheckPeerExpire", "SSLProxyCheckPeerName",
        "SSLProxyCipherSuite", "SSLProxyEngine", "SSLProxyMachineCertificateChainFile",
        "SSLProxyMachineCertificateFile", "SSLProxyMachineCertificatePath", "SSLProxyProtocol",
        "SSLProxyVerify", "SSLProxyVerifyDepth", "SSLRandomSeed", "SSLRenegBufferSize",
        "SSLRequire", "SSLRequireSSL", "SSLSessionCache", "SSLSessionCacheTimeout",
        "SSLSessionTicketKeyFile", "SSLSessionTickets", "SSLSRPUnknownUserSeed",
        "SSLSRPVerifierFile", "SSLStaplingCache", "SSLStaplingErrorCacheTimeout",
        "SSLStaplingFakeTryLater", "SSLStaplingForceURL", "SSLStaplingResponderTimeout",
        "SSLStaplingResponseMaxAge", "SSLStaplingResponseTimeSkew",
        "SSLStaplingReturnResponderErrors", "SSLStaplingStandardCacheTimeout",
        "SSLStrictSNIVHostCheck", "SSLUserName", "SSLUseStapling", "SSLVerifyClient",
        "SSLVerifyDepth", "SSLVHostSNIPolicy",
    ]),
    ("mod_substitute", &[
        "Substitute", "SubstituteInheritBefore", "SubstituteMaxLineLength",
    ]),
    ("mod_suexec", &[
        "SuexecUserGroup",
    ]),
    ("mod_unixd", &[
        "ChrootDir", "Group", "Suexec", "User",
    ]),
    ("mod_userdir", &[
        "UserDir",
    ]),
    ("mod_usertrack", &[
        "CookieDomain", "CookieExpires", "CookieHTTPOnly", "CookieName", "CookieSameSite",
        "CookieSecure", "CookieStyle", "CookieTracking",
    ]),
    ("mod_version", &[
        "<IfVersion",
    ]),
    ("mod_vhost_alias", &[
        "VirtualDocumentRoot", "VirtualDocumentRootIP", "VirtualScriptAlias",
        "VirtualScriptAliasIP",
    ]),
    ("mod_watchdog", &[
        "WatchdogInterval",
    ]),
    ("mod_xml2enc", &[
        "xml2EncAlias", "xml2EncDefault", "xml2StartParse",
    ]),
    ("mpm_common", &[
        "CoreDumpDirectory", "EnableExceptionHook", "GracefulShutdownTimeout", "Listen",
        "ListenBackLog", "ListenCoresBucketsRatio", "ListenTCPDeferAccept", "MaxClients",
        "MaxConnectionsPerChild", "MaxMemFree", "MaxRequestsPerChild", "MaxRequestWorkers",
        "MaxSpareThreads", "MinSpareThreads", "PidFile", "ReceiveBufferSize", "ScoreBoardFile",
        "SendBufferSize", "ServerLimit", "StartServers", "StartThreads", "ThreadLimit",
        "ThreadsPerChild", "ThreadStackSize",
    ]),
    ("mpm_netware", &[
        "MaxThreads",
    ]),
    ("prefork", &[
        "MaxSpareServers", "MinSpareServers",
    ]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_name_their_module() {
        assert_eq!(module_of("redirectmatch"), Some("mod_alias"));
        assert_eq!(module_of("<Proxy"), Some("mod_proxy"));
        assert_eq!(module_of("DocumentRoot"), Some("core"));
        assert_eq!(module_of("php_value"), Some("mod_php"));
        assert_eq!(module_of("NoSuchDirective"), None);
    }

    #[test]
    fn both_names_of_a_module_are_known() {
        let alias = standard_module("alias_module").unwrap();
        assert_eq!(alias.file, "mod_alias.c");
        assert_eq!(standard_module("mod_alias.c"), Some(alias));
        assert_eq!(standard_module("worker.c").unwrap().identifier, "mpm_worker_module");
        assert_eq!(standard_module("foo_module"), None);
        assert_eq!(standard_module("Mod_alias.c"), None);
    }
}
