//! Missing modules: the modules of Apache that a configuration loads and this server lacks. A
//! directive or condition that uses a missing module is refused, because resources that the module
//! protects would be open. A missing module that nothing uses is harmless: stock configurations
//! load dozens of those.

use crate::known::{self, Standard, standard_module};
use crate::node::Node;
use crate::words::next_word;

/// The missing modules of a configuration.
#[derive(Debug, Clone, Default)]
pub struct Missing {
    /// The modules that LoadModule lines name.
    loaded: Vec<Standard>,
    /// The source files of the modules that the server has, if the configuration has no LoadModule
    /// line. All other modules of Apache then count as loaded.
    presumed_but: Option<Vec<&'static str>>,
}

/// No missing module.
pub(crate) static NONE: Missing = Missing { loaded: Vec::new(), presumed_but: None };

/// The result of examining a directive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The directive uses a missing module; the text of the refusal.
    Use(String),
    /// The directive belongs to a missing module and loses nothing without it; the text of a
    /// warning.
    Harmless(String),
}

/// Modules of Apache that no server on Linux has.
const OF_OTHER_SYSTEMS: [&str; 3] = ["mod_isapi.c", "mod_nw_ssl.c", "mod_privileges.c"];

impl Missing {
    /// All modules of Apache but those with the source files `present`.
    pub(crate) fn all_but(present: Vec<&'static str>) -> Self {
        Self { loaded: Vec::new(), presumed_but: Some(present) }
    }

    /// Adds a module that a LoadModule line names.
    pub(crate) fn add(&mut self, module: Standard) {
        if !self.loaded.contains(&module) {
            self.loaded.push(module);
        }
    }

    /// The missing modules that LoadModule lines name.
    #[must_use]
    pub fn loaded(&self) -> &[Standard] {
        &self.loaded
    }

    /// Whether a LoadModule line names the module with the source file `file`.
    #[must_use]
    pub fn is_loaded(&self, file: &str) -> bool {
        self.loaded.iter().any(|module| module.file == file)
    }

    /// The missing module with the name `name`, which may be its source file or its identifier.
    #[must_use]
    pub fn module(&self, name: &str) -> Option<Standard> {
        let is_it = |module: &&Standard| module.file == name || module.identifier == name;
        if let Some(module) = self.loaded.iter().find(is_it) {
            return Some(module.clone());
        }
        let present = self.presumed_but.as_ref()?;
        let is_lacking = |module: &Standard| {
            let file = module.file.as_str();
            !present.contains(&file) && !OF_OTHER_SYSTEMS.contains(&file)
        };
        standard_module(name).filter(is_lacking)
    }

    /// The missing module that declares the directive `name`.
    #[must_use]
    pub fn of_directive(&self, name: &str) -> Option<Standard> {
        if self.loaded.is_empty() && self.presumed_but.is_none() {
            return None;
        }
        known::modules_of(name).find_map(|stem| match stem {
            "mod_ldap" => self.module("ldap_module"),
            _ => self.module(&format!("{stem}.c")),
        })
    }

    /// Whether a directive in an `<IfModule>` of a missing module acts without that module.
    pub(crate) fn is_act(&self, name: &str) -> bool {
        let is = |listed: &str| name.eq_ignore_ascii_case(listed);
        !is("Protocols") && self.of_directive(name).is_none()
    }

    /// Whether a node uses a missing module; `is_known` says whether an active module declares its
    /// directive.
    pub(crate) fn examine(&self, node: &Node, is_known: bool) -> Option<Finding> {
        if self.loaded.is_empty() && self.presumed_but.is_none() {
            return None;
        }
        if is_known {
            return self.named_by(node).map(Finding::Use);
        }
        if is_condition(&node.name) {
            let (name, argument) = (&node.name, node.arguments.trim_end_matches('>'));
            let module = self.module(argument).or_else(|| {
                let opening = if name.eq_ignore_ascii_case("<IfSection") { "<" } else { "" };
                self.of_directive(&format!("{opening}{argument}"))
            })?;
            let lacking = lacking(&module);
            return Some(Finding::Use(format!(
                "{name} {argument}> contains directives that depend on {lacking}"
            )));
        }
        let module = self.of_directive(&node.name)?;
        let name = &node.name;
        Some(match is_harmless(node) {
            true => Finding::Harmless(format!(
                "{name} has no effect: it is defined by {}",
                lacking(&module)
            )),
            false => {
                Finding::Use(format!("Invalid command '{name}', defined by {}", lacking(&module)))
            }
        })
    }

    /// The refusal of a directive that names a handler, a filter, a protocol or a kind of
    /// authentication of a missing module.
    fn named_by(&self, node: &Node) -> Option<String> {
        let names =
            NAMES.iter().find(|(directive, _)| node.name.eq_ignore_ascii_case(directive))?.1;
        let (first, rest) = next_word(&node.arguments);
        match names {
            Names::Handler => self.refuse("handler", &first, handler_modules(&first)),
            Names::Cgi => self.refuse("handler", "cgi-script", handler_modules("cgi-script")),
            Names::Filters => {
                first.split(';').find_map(|name| self.refuse("filter", name, filter_modules(name)))
            }
            Names::SecondFilter => {
                let (provider, _) = next_word(rest);
                self.refuse("filter", &provider, filter_modules(&provider))
            }
            Names::AuthType => {
                self.refuse("kind of authentication", &first, auth_type_modules(&first))
            }
            Names::Protocol if next_word(rest).0.eq_ignore_ascii_case("https") => {
                self.refuse("protocol", "https", &["mod_ssl"])
            }
            Names::Protocol => None,
        }
    }

    /// The refusal of a `name` that these modules implement, if one of them is missing.
    fn refuse(&self, kind: &str, name: &str, stems: &[&str]) -> Option<String> {
        let of = |stem: &&str| self.loaded.iter().find(|it| it.file == format!("{stem}.c"));
        let module = stems.iter().find_map(of)?;
        Some(format!("The {kind} {name} belongs to {}", lacking(module)))
    }
}

/// The end of a refusal, which names the missing module.
fn lacking(module: &Standard) -> String {
    let stem = module.file.strip_suffix(".c").unwrap_or(&module.file);
    format!("{stem}, a module that this server does not have")
}

/// Whether the text of a fault refuses a use of `module`.
#[must_use]
pub(crate) fn refuses_use_of(text: &str, module: &Standard) -> bool {
    text.contains(&lacking(module))
}

/// Whether a node of the tree is a condition about a missing module.
pub(crate) fn is_condition(name: &str) -> bool {
    ["<IfModule", "<IfDirective", "<IfSection"].iter().any(|it| it.eq_ignore_ascii_case(name))
}

/// Whether a directive of a missing module loses nothing if it is left out: it switches something
/// off that is not there, or affects only speed, caches or the content of a page.
fn is_harmless(node: &Node) -> bool {
    let name = node.name.to_ascii_lowercase();
    let says = |word: &str| next_word(&node.arguments).0.eq_ignore_ascii_case(word);
    match name.as_str() {
        "dav" | "rewriteengine" | "sslengine" | "proxyrequests" => says("off"),
        "userdir" => node.arguments.trim().eq_ignore_ascii_case("disabled"),
        "sslrandomseed" | "proxystatus" => true,
        _ => name.starts_with("expires") || name.starts_with("h2"),
    }
}

/// What the arguments of a directive name.
#[derive(Clone, Copy)]
enum Names {
    /// The first argument is a handler.
    Handler,
    /// The directive sets the handler cgi-script.
    Cgi,
    /// The first argument is a list of filters.
    Filters,
    /// The second argument is a filter.
    SecondFilter,
    /// The first argument is an AuthType.
    AuthType,
    /// The second argument is a protocol.
    Protocol,
}

/// The directives whose arguments can name something of another module.
const NAMES: [(&str, Names); 12] = [
    ("SetHandler", Names::Handler),
    ("AddHandler", Names::Handler),
    ("ScriptAlias", Names::Cgi),
    ("ScriptAliasMatch", Names::Cgi),
    ("SetOutputFilter", Names::Filters),
    ("AddOutputFilter", Names::Filters),
    ("AddOutputFilterByType", Names::Filters),
    ("SetInputFilter", Names::Filters),
    ("AddInputFilter", Names::Filters),
    ("FilterProvider", Names::SecondFilter),
    ("AuthType", Names::AuthType),
    ("Listen", Names::Protocol),
];

/// The modules that implement an AuthType (their hook check_user_id).
fn auth_type_modules(name: &str) -> &'static [&'static str] {
    match name.to_ascii_lowercase().as_str() {
        "digest" => &["mod_auth_digest"],
        "form" => &["mod_auth_form"],
        _ => &[],
    }
}

/// The modules that implement a handler (Apache's hook handler).
fn handler_modules(name: &str) -> &'static [&'static str] {
    match name.to_ascii_lowercase().as_str() {
        "cgi-script" => &["mod_cgid", "mod_cgi"],
        "server-info" => &["mod_info"],
        "server-status" => &["mod_status"],
        "send-as-is" => &["mod_asis"],
        "imap-file" => &["mod_imagemap"],
        "server-parsed" => &["mod_include"],
        "dav-handler" => &["mod_dav"],
        "lua-script" => &["mod_lua"],
        "ldap-status" => &["util_ldap"],
        "balancer-manager" => &["mod_proxy_balancer"],
        "http2-status" => &["mod_http2"],
        "heartbeat" => &["mod_heartmonitor"],
        "reflector" => &["mod_reflector"],
        "form-login-handler" | "form-logout-handler" | "form-redirect-handler" => {
            &["mod_auth_form"]
        }
        name => match name.strip_prefix("proxy:") {
            Some(target) if target.contains("fcgi://") => &["mod_proxy_fcgi", "mod_proxy"],
            Some(target) if target.contains("scgi://") => &["mod_proxy_scgi", "mod_proxy"],
            Some(target) if target.contains("uwsgi://") => &["mod_proxy_uwsgi", "mod_proxy"],
            Some(target) if target.contains("ajp://") => &["mod_proxy_ajp", "mod_proxy"],
            Some(target) if target.contains("http://") => &["mod_proxy_http", "mod_proxy"],
            Some(_) => &["mod_proxy"],
            None => &[],
        },
    }
}

/// The modules that register a filter (ap_register_output_filter, ap_register_input_filter).
fn filter_modules(name: &str) -> &'static [&'static str] {
    match name.to_ascii_uppercase().as_str() {
        "INCLUDES" => &["mod_include"],
        "SUBSTITUTE" => &["mod_substitute"],
        "RATE_LIMIT" => &["mod_ratelimit"],
        "PROXY-HTML" => &["mod_proxy_html"],
        "XML2ENC" => &["mod_xml2enc"],
        "XLATEOUT" | "XLATEIN" => &["mod_charset_lite"],
        "SED" => &["mod_sed"],
        "BUFFER" => &["mod_buffer"],
        "DATA" => &["mod_data"],
        "CACHE" | "CACHE_OUT" | "CACHE_SAVE" => &["mod_cache"],
        "KEPT_BODY" | "KEEP_BODY" => &["mod_request"],
        "MOD_SESSION_OUT" => &["mod_session"],
        "LUA" => &["mod_lua"],
        "DEFLATE" | "INFLATE" => &["mod_deflate"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Position;

    fn missing() -> Missing {
        let mut missing = Missing::default();
        for name in ["lua_module", "include_module", "ssl_module", "dav_module", "cgi_module"] {
            missing.add(standard_module(name).unwrap());
        }
        missing
    }

    fn examine(name: &str, arguments: &str, is_known: bool) -> Option<Finding> {
        let position = Position { file: "t".into(), line: 1 };
        let node = Node { name: name.into(), arguments: arguments.into(), position, section: None };
        missing().examine(&node, is_known)
    }

    fn is_use(name: &str, arguments: &str, is_known: bool) -> bool {
        matches!(examine(name, arguments, is_known), Some(Finding::Use(_)))
    }

    #[test]
    fn directives_handlers_and_filters_of_a_missing_module_are_uses() {
        assert!(is_use("LuaRoot", "/x", false) && is_use("<LuaQuickHandler", "x>", false));
        assert!(is_use("SSLEngine", "on", false) && is_use("SSLCertificateFile", "x", false));
        assert!(is_use("AddOutputFilter", "DEFLATE;INCLUDES .shtml", true));
        assert!(is_use("AddHandler", "lua-script .lua", true));
        assert!(is_use("SetHandler", "\"Cgi-Script\"", true));
        assert!(is_use("ScriptAlias", "/cgi-bin/ /usr/lib/cgi-bin/", true));
        assert!(
            is_use("SetHandler", "server-parsed", true)
                && is_use("SetHandler", "dav-handler", true)
        );
        assert!(is_use("Listen", "443 https", true) && !is_use("Listen", "443", true));
        assert!(is_use("FilterProvider", "x INCLUDES true", true));
        assert!(is_use("<IfModule", "mod_lua.c>", false));
        assert!(is_use("<IfDirective", "LuaRoot>", false));
    }

    #[test]
    fn what_is_not_of_a_missing_module_is_no_use() {
        assert_eq!(examine("AddHandler", "server-info .x", true), None);
        assert_eq!(examine("AddOutputFilter", "DEFLATE .x", true), None);
        assert_eq!(examine("RewriteEngine", "on", false), None);
        assert_eq!(examine("NoSuchDirective", "", false), None);
        assert!(missing().is_act("Require"));
        assert!(!missing().is_act("LuaRoot"));
        assert!(!missing().is_act("Protocols"));
    }

    #[test]
    fn what_switches_off_is_harmless() {
        let is_harmless =
            |name, arguments| matches!(examine(name, arguments, false), Some(Finding::Harmless(_)));
        assert!(is_harmless("Dav", "Off") && !is_harmless("Dav", "On"));
        assert!(is_harmless("SSLEngine", "off") && is_harmless("SSLRandomSeed", "startup builtin"));
        assert!(!is_harmless("SSLEngine", "optional"));
    }

    #[test]
    fn without_loadmodule_lines_every_module_that_is_lacking_is_missing() {
        let missing = Missing::all_but(vec!["mod_alias.c"]);
        assert!(missing.module("mod_lua.c").is_some() && missing.module("lua_module").is_some());
        assert!(missing.module("mod_alias.c").is_none() && missing.module("mod_php.c").is_none());
        assert!(missing.module("mod_isapi.c").is_none());
        assert!(missing.of_directive("LuaRoot").is_some() && !missing.is_loaded("mod_lua.c"));
    }
}
