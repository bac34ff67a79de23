//! The site: what the configuration means, compiled once. A tree of directives goes in; servers,
//! the table of their hosts and sections in the order of their merge come out. Shared by all
//! threads, changed by none.

use crate::caching;
use crate::hosts::{Address, Host, Hosts, parse_address};
use evenkeel_config::{Fault, Faults, Node, Notice, Stage, Tables, Variables, Vocabulary};
use evenkeel_message::{Request, UriOptions, UrlPath, without_doubled_slash};
use evenkeel_modules::core::{
    Match, Section, Tristate, VirtualHost, public_name, public_port, server_name, software,
};
use evenkeel_modules::external::DefinedNames;
use evenkeel_modules::mime::Types;
use evenkeel_modules::proxy::Balancer;
use evenkeel_modules::remoteip::protocol::ProxyProtocol;
use evenkeel_modules::{
    ActiveModules, CoreSettings, DirectorySettings, GlobalSettings, Merge, Scope, ServerSettings,
    auth_digest, mime_magic,
};
use evenkeel_proto::{HttpProtocolOptions, Limits, Refusal, bad_path};
use evenkeel_upstream::Members;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

/// The merged settings of all the sections that hold for a request.
pub type Plan = DirectorySettings;

/// DocumentRoot where the configuration names none, as Debian's apache2 has it. Without one, paths
/// of requests would be paths of the file system.
const DOCUMENT_ROOT: &str = "/var/www/html";

/// AccessFileName where none is said.
static DEFAULT_ACCESS_NAMES: LazyLock<[Box<str>; 1]> = LazyLock::new(|| [".htaccess".into()]);

/// A whole configuration, ready to serve.
pub struct Site {
    /// What holds for the process.
    pub global: Arc<GlobalSettings>,
    /// The main server, then the virtual hosts in the order of the configuration.
    pub servers: Vec<Server>,
    /// Which of them an address and a host name mean.
    pub hosts: Hosts,
    /// The connections that begin with a PROXY header.
    pub proxy_protocol: ProxyProtocol,
    /// What reading .htaccess files takes.
    pub language: Language,
    /// Media types by extension (TypesConfig).
    pub types: Arc<Types>,
    /// What Server fields and signatures say.
    pub identity: Identity,
    /// Where paths that are not absolute begin.
    pub server_root: PathBuf,
    /// The first number that a section of an .htaccess file may get.
    pub section_base: u64,
    /// Whether mod_dir is active: a folder has an index and a slash even where nothing is said.
    pub folders_have_indexes: bool,
    /// Whether mod_autoindex is active.
    pub folders_are_listed: bool,
    /// Whether mod_negotiation is active.
    pub negotiates: bool,
    /// Whether mod_proxy and a module for a scheme are active, so that requests can be passed on.
    pub passes_on: bool,
    /// Whether mod_proxy_fcgi is active.
    pub speaks_fcgi: bool,
    /// Whether mod_proxy_scgi is active.
    pub speaks_scgi: bool,
    /// Whether mod_proxy_uwsgi is active.
    pub speaks_uwsgi: bool,
    /// Whether mod_proxy_http is active.
    pub speaks_http: bool,
    /// Whether mod_proxy_balancer is active.
    pub balances: bool,
    /// The balancers of all servers.
    pub balancers: Vec<Arc<Balancer>>,
    /// The state of the balancers, which all children share; none before
    /// [`Site::share_balancers`].
    members: OnceLock<Arc<Members>>,
    /// Whether mod_proxy_hcheck is active.
    pub checks: bool,
    /// Whether mod_ssl is active.
    pub speaks_tls: bool,
    /// Whether mod_proxy_wstunnel is active.
    pub speaks_websocket: bool,
    /// The name of the module that runs programs, for the error log; none if neither mod_cgid nor
    /// mod_cgi is active.
    pub runs_programs: Option<&'static str>,
    /// Whether programs run as other users where the configuration says so (suexec).
    pub runs_suexec: bool,
    /// Whether a launcher of programs is needed: for CGI, or for the program of a RewriteMap.
    pub needs_launcher: bool,
    /// Whether mod_include is active.
    pub parses_pages: bool,
    /// Whether mod_auth_basic is active.
    pub has_basic: bool,
    /// Whether mod_auth_digest is active.
    pub has_digest: bool,
    /// Whether mod_auth_form is active.
    pub has_forms: bool,
    /// Whether mod_session is active.
    pub has_sessions: bool,
    /// Whether mod_ssl is active.
    pub has_tls: bool,
    /// Whether mod_fcgid is active.
    pub keeps_programs: bool,
    /// Whether php_module is active.
    pub runs_php: bool,
    /// The folder that relative paths of sockets refer to (DefaultRuntimeDir).
    pub runtime_dir: PathBuf,
    /// Whether mod_rewrite is active.
    pub rewrites: bool,
    /// Whether mod_asis is active.
    pub sends_as_is: bool,
    /// The tree of directives, if mod_info is active and shows it.
    pub directives: Option<Arc<[Node]>>,
    /// Whether mod_unique_id is active.
    pub identifies: bool,
    /// Whether mod_cache and mod_cache_disk are active.
    pub caches: bool,
    /// Whether a subrequest or redirect that comes to the sections of the request before is in its
    /// settings (`known`).
    pub compares_sections: bool,
    /// The names of the external filters of all virtual hosts.
    pub external_filters: DefinedNames,
}

/// Modules that Apache asks about each subrequest and redirect, whatever sections it is in: their
/// access hooks are not registered as AP_AUTH_INTERNAL_PER_CONF. Where one is loaded, no two
/// requests are in the same settings for having come to the same sections.
const DECIDING_EACH: [&str; 3] = ["mod_allowmethods.c", "mod_log_debug.c", "mod_lua.c"];

/// What the words of a configuration mean: kept for .htaccess files, which are read while the
/// server runs.
pub struct Language {
    /// The directives of the active modules.
    pub tables: Tables<Scope>,
    /// What Define and the environment hold.
    pub variables: Variables,
    /// DefaultRuntimeDir, if it is set.
    pub runtime_dir: Option<Box<str>>,
    /// Whether a DocumentRoot need not be there (`-T`).
    pub roots_unchecked: bool,
    /// Which modules and directives there are.
    pub vocabulary: Box<dyn Vocabulary + Send + Sync>,
}

/// How the server presents itself under ServerTokens.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The Server field and the name in signatures: `Apache/2.4.71 (Evenkeel)`.
    pub banner: Box<str>,
}

/// One server: the main one or a virtual host, merged with the main one. What every request reads
/// stands first, here and in its settings: a site of many hosts waits for each cache line.
#[repr(C)]
pub struct Server {
    /// What holds outside of every section.
    pub defaults: Arc<Plan>,
    /// `<Location>` and `<LocationMatch>` sections, in order.
    pub locations: Arc<[Arc<Section>]>,
    /// Its settings.
    pub settings: ServerSettings,
    /// `<Directory>` sections, those with fewer slashes first.
    pub directories: Arc<[Arc<Section>]>,
    /// `<DirectoryMatch>` sections, those with fewer slashes first.
    pub directory_patterns: Arc<[Arc<Section>]>,
    /// Where it was configured; none for the main server.
    pub position: Option<evenkeel_config::Position>,
    /// Its name and addresses, which tell its cached responses from those of other servers; empty
    /// if nothing is cached.
    pub cache_place: Box<str>,
}

impl Server {
    /// A server with merged settings. What it has in common with the main server it shares.
    fn new(settings: ServerSettings, defaults: Arc<Plan>, main: Option<&Server>) -> Self {
        let sections = &settings.core.sections;
        let same = main.filter(|main| main.settings.core.sections.is_same(sections));
        let (directories, directory_patterns, locations) = match same {
            Some(main) => (
                Arc::clone(&main.directories),
                Arc::clone(&main.directory_patterns),
                Arc::clone(&main.locations),
            ),
            None => {
                let mut all = sections.directories.clone();
                all.sort_by_key(|section| section.matches.depth());
                let is_pattern =
                    |section: &Arc<Section>| matches!(section.matches, Match::Pattern(_));
                let (patterns, plain): (Vec<_>, Vec<_>) = all.into_iter().partition(is_pattern);
                (plain.into(), patterns.into(), sections.locations.as_slice().into())
            }
        };
        Self {
            settings,
            defaults,
            directories,
            directory_patterns,
            locations,
            position: None,
            cache_place: "".into(),
        }
    }

    /// The settings of the core where these are the settings of the sections.
    #[must_use]
    pub fn core<'a>(&'a self, plan: &'a Plan) -> CoreSettings<'a> {
        CoreSettings { server: &self.settings.core, directory: &plan.core }
    }

    /// ServerAdmin, or Apache's stand-in.
    #[must_use]
    pub fn admin(&self) -> &str {
        self.settings.core.admin.as_deref().unwrap_or("[no address given]")
    }

    /// How many internal redirects a request may take (LimitInternalRecursion).
    #[must_use]
    pub fn redirect_limit(&self) -> usize {
        self.settings.core.conduct.limit_redirects.unwrap_or(10)
    }

    /// How many looks at other paths a request may take within one another
    /// (LimitInternalRecursion; Apache: AP_DEFAULT_MAX_SUBREQ_DEPTH).
    #[must_use]
    pub fn look_limit(&self) -> usize {
        self.settings.core.conduct.limit_looks.unwrap_or(10)
    }

    /// Timeout.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_micros(self.settings.core.conduct.timeout_us.unwrap_or(60_000_000))
    }

    /// KeepAliveTimeout.
    #[must_use]
    pub fn keep_alive_timeout(&self) -> Duration {
        Duration::from_micros(self.settings.core.conduct.keep_alive_timeout_us.unwrap_or(5_000_000))
    }

    /// MaxKeepAliveRequests; none where KeepAlive is off, `u32::MAX` where there is no limit.
    #[must_use]
    pub fn keep_alive_requests(&self) -> Option<u32> {
        if self.settings.core.conduct.keep_alive == Some(false) {
            return None;
        }
        match self.settings.core.conduct.max_keep_alive_requests.unwrap_or(100) {
            0 => Some(u32::MAX),
            limit => Some(limit),
        }
    }

    /// The name of the server, or the machine's where none was configured.
    #[must_use]
    pub fn name(&self) -> &str {
        server_name(&self.settings.core)
    }

    /// How paths of requests are decoded (AllowEncodedSlashes, MergeSlashes).
    #[must_use]
    pub fn uri_options(&self) -> UriOptions {
        UriOptions {
            encoded_slashes: self.defaults.core.encoded_slashes.unwrap_or_default(),
            merge_slashes: self.settings.core.conduct.merge_slashes.unwrap_or(true),
        }
    }

    /// How strictly requests are read (HttpProtocolOptions).
    #[must_use]
    pub fn protocol_options(&self) -> HttpProtocolOptions {
        let said = self.settings.core.conduct.protocol;
        HttpProtocolOptions {
            strict: said.lenient != Some(true),
            registered_methods: said.registered_methods == Some(true),
            allow_http09: said.require_10 != Some(true),
        }
    }

    /// The bounds of a request's head (LimitRequestLine, -FieldSize, -Fields).
    #[must_use]
    pub fn limits(&self) -> Limits {
        let conduct = &self.settings.core.conduct;
        Limits {
            line: conduct.limit_request_line.unwrap_or(8190),
            field_size: conduct.limit_request_field_size.unwrap_or(8190),
            fields: conduct.limit_request_fields.unwrap_or(100),
        }
    }

    /// The names of per-directory configuration files (AccessFileName).
    #[must_use]
    pub fn access_file_names(&self) -> &[Box<str>] {
        match &self.settings.core.conduct.access_file_names {
            Some(names) => names,
            None => &*DEFAULT_ACCESS_NAMES,
        }
    }
}

impl Site {
    /// Applies a tree of directives and compiles what it says; remarks are added to `notices`.
    /// `own_name` is asked for the machine's name where no ServerName stands outside of virtual
    /// hosts.
    ///
    /// # Errors
    /// The faults of the directives, each with its file and line.
    pub fn compile(
        nodes: &[Node],
        language: Language,
        server_root: &Path,
        own_name: &dyn Fn() -> String,
        notices: &mut Vec<Notice>,
    ) -> Result<Site, Faults> {
        let active = ActiveModules::new(|it| language.vocabulary.module_loaded(it.file));
        let mut global = GlobalSettings { active, ..GlobalSettings::default() };
        global.core.runtime_dir = language.runtime_dir.clone();
        let mut scope = Scope::new(server_root, Arc::new(global));
        scope.roots_unchecked = language.roots_unchecked;
        evenkeel_config::apply(&language.tables, nodes, &mut scope, notices)?;
        let mut global = scope.take_global();
        let Scope { mut server, directory, sections, .. } = scope;
        let mut directory = directory.into_settings();
        directory.autoindex.begin();
        if !server.setenvif.is_prepared() {
            server.setenvif.prepare();
        }
        server.core.name.get_or_insert_with(|| own_name().into());
        server.core.document_root.get_or_insert_with(|| Path::new(DOCUMENT_ROOT).into());
        let caches = ["mod_cache.c", "mod_cache_disk.c"]
            .into_iter()
            .all(|file| language.vocabulary.module_loaded(file));
        let virtual_hosts = std::mem::take(&mut global.core.virtual_hosts);
        let mut servers = Vec::with_capacity(virtual_hosts.len() + 1);
        servers.push(Server::new(server.clone(), Arc::new(directory.clone()), None));
        // Hosts that say nothing outside of sections share what holds there.
        let unsaid = Arc::new(DirectorySettings::merge(&directory, &DirectorySettings::default()));
        let mut hosts = Hosts::default();
        let mut proxy_protocol = ProxyProtocol::default();
        proxy_protocol.add(&server.remoteip, &[(None, None)]);
        for virtual_host in &virtual_hosts {
            let mut settings = ServerSettings::merge(&server, &virtual_host.server);
            // What stays is made here, and not in between of what was read and goes with it:
            // memory is given back by the page.
            settings.core.name = settings.core.name.as_deref().map(Arc::from);
            let defaults = match &virtual_host.directory {
                Some(own) => Arc::new(DirectorySettings::merge(&directory, own)),
                None => Arc::clone(&unsaid),
            };
            let addresses = addresses_of(virtual_host, notices)?;
            let host = Host {
                server: servers.len(),
                name: lower(settings.core.name.as_ref()),
                aliases: settings.core.aliases.clone(),
                position: virtual_host.position.clone(),
            };
            hosts.add(&addresses, &host);
            let places: Vec<_> = addresses.iter().map(|it| (it.ip, it.port)).collect();
            proxy_protocol.add(&virtual_host.server.remoteip, &places);
            let mut merged = Server::new(settings, defaults, servers.first());
            merged.position = Some(virtual_host.position.clone());
            if caches {
                let name = merged.name().to_ascii_lowercase();
                merged.cache_place = format!("{name} {}", virtual_host.addresses.join(" ")).into();
            }
            servers.push(merged);
        }
        // A host that shares the rules of the main server would get a copy of its own.
        let own_rules = servers.iter_mut().map(|server| &mut server.settings.setenvif);
        own_rules.filter(|rules| !rules.is_prepared()).for_each(|rules| rules.prepare());
        if caches && let Some(rootless) = servers.iter().find(|server| has_no_root(server)) {
            let name = rootless.name();
            let text = format!("CacheEnable disk of {name} has no effect without a CacheRoot");
            notices.push(Notice { number: None, ..Notice::warn("cache", 0, text) });
        }
        if global.active.has("mod_auth_digest.c") {
            prepare_digest(&global)?;
        }
        read_magic_files(&mut servers, notices);
        let identity = Identity { banner: software(global.core.tokens.unwrap_or_default()) };
        let types = media_types(&global, &language, server_root)?;
        let folders_have_indexes = language.vocabulary.module_loaded("mod_dir.c");
        let folders_are_listed = language.vocabulary.module_loaded("mod_autoindex.c");
        let negotiates = language.vocabulary.module_loaded("mod_negotiation.c");
        let rewrites = language.vocabulary.module_loaded("mod_rewrite.c");
        let sends_as_is = language.vocabulary.module_loaded("mod_asis.c");
        let identifies = language.vocabulary.module_loaded("mod_unique_id.c");
        let speaks_fcgi = language.vocabulary.module_loaded("mod_proxy_fcgi.c");
        let speaks_scgi = language.vocabulary.module_loaded("mod_proxy_scgi.c");
        let speaks_uwsgi = language.vocabulary.module_loaded("mod_proxy_uwsgi.c");
        let speaks_http = language.vocabulary.module_loaded("mod_proxy_http.c");
        let balances = language.vocabulary.module_loaded("mod_proxy_balancer.c");
        let speaks_tls = language.vocabulary.module_loaded("mod_ssl.c");
        let speaks_websocket = language.vocabulary.module_loaded("mod_proxy_wstunnel.c");
        let passes_on = language.vocabulary.module_loaded("mod_proxy.c")
            && (speaks_fcgi || speaks_scgi || speaks_uwsgi || speaks_http || speaks_websocket);
        let runs_programs = [("mod_cgid.c", "cgid"), ("mod_cgi.c", "cgi")]
            .into_iter()
            .find(|(file, _)| language.vocabulary.module_loaded(file))
            .map(|(_, name)| name);
        let runs_some = |server: &Server| {
            server.settings.rewrite.has_programs() || !server.settings.ext_filter.is_empty()
        };
        let keeps_programs = language.vocabulary.module_loaded("mod_fcgid.c");
        let needs_launcher =
            keeps_programs || runs_programs.is_some() || servers.iter().any(runs_some);
        let external_filters =
            DefinedNames::of(servers.iter().map(|server| &*server.settings.ext_filter));
        let has = |file| language.vocabulary.module_loaded(file);
        let parses_pages = has("mod_include.c");
        let has_basic = has("mod_auth_basic.c");
        let has_digest = has("mod_auth_digest.c");
        let has_forms = has("mod_auth_form.c");
        let has_sessions = has("mod_session.c");
        if has_forms {
            check_forms(has_sessions, has("mod_request.c"))?;
        }
        let has_tls = has("mod_ssl.c");
        let is_loaded = |name: &&str| {
            let vocabulary = &language.vocabulary;
            vocabulary.module_loaded(name) || vocabulary.missing().is_loaded(name)
        };
        let compares_sections = !DECIDING_EACH.iter().any(is_loaded);
        let runtime_dir = global.core.runtime_dir.as_deref().unwrap_or("/var/run/apache2");
        let runtime_dir = server_root.join(runtime_dir);
        Ok(Site {
            passes_on,
            speaks_fcgi,
            speaks_scgi,
            speaks_uwsgi,
            speaks_http,
            balancers: if balances { balancers_of(&servers) } else { Vec::new() },
            balances,
            members: OnceLock::new(),
            checks: has("mod_proxy_hcheck.c"),
            speaks_tls,
            speaks_websocket,
            runs_programs,
            runs_suexec: global.unixd.runs_suexec(),
            needs_launcher,
            parses_pages,
            has_basic,
            has_digest,
            has_forms,
            has_sessions,
            has_tls,
            keeps_programs,
            runs_php: language.vocabulary.module_loaded("mod_php.c"),
            runtime_dir,
            negotiates,
            rewrites,
            sends_as_is,
            directives: has("mod_info.c").then(|| nodes.into()),
            identifies,
            caches,
            compares_sections,
            external_filters,
            folders_have_indexes,
            folders_are_listed,
            types,
            global: Arc::new(global),
            servers,
            hosts,
            proxy_protocol,
            language,
            identity,
            server_root: server_root.to_owned(),
            section_base: sections,
        })
    }

    /// Puts the state of the balancers into memory that the children will share. Called in the
    /// parent, once.
    ///
    /// # Errors
    /// mmap(2) fails.
    pub fn share_balancers(&self) -> io::Result<()> {
        if self.balancers.is_empty() {
            return Ok(());
        }
        let lines = self.balancers.iter().map(|balancer| balancer.members.len() + 1).sum();
        let members = Members::new(lines)?;
        let mut next = 0;
        for balancer in &self.balancers {
            let is_its = |server: &&Server| {
                server.settings.proxy.balancers.iter().any(|one| Arc::ptr_eq(one, balancer))
            };
            let home = self.servers.iter().find(is_its).map_or("", Server::name);
            next = balancer.share(&members, next, home);
        }
        let _empty_before = self.members.set(members);
        Ok(())
    }

    /// Whether there are members of balancers that may be checked. The balancer-manager can begin
    /// with that for any member.
    #[must_use]
    pub fn checks_members(&self) -> bool {
        self.checks && !self.balancers.is_empty()
    }

    /// Says that this process is the child with this index.
    pub fn begin_child(&self, index: usize) {
        self.members.get().iter().for_each(|members| members.enter(index));
    }

    /// Takes the requests off the members of balancers that a child had in progress at its end.
    pub fn end_child(&self, index: usize) {
        self.members.get().iter().for_each(|members| members.release(index));
    }

    /// Takes over what has changed of balancers while the site before this one was served.
    pub fn take_over_balancers(&self, before: &Site) {
        self.balancers.iter().for_each(|balancer| balancer.take_over(&before.balancers));
    }

    /// A server by its index; the main server for one that does not exist.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "a site always has its main server")]
    pub fn server(&self, index: usize) -> &Server {
        self.servers.get(index).unwrap_or(&self.servers[0])
    }

    /// The server of a connection, before any request names a host.
    #[must_use]
    pub fn server_of(&self, local: SocketAddr) -> &Server {
        self.server(self.hosts.server(local, b"", b""))
    }

    /// The line that ends an error page under ServerSignature; empty where it is off.
    #[must_use]
    pub fn signature(&self, request: &Request, plan: &Plan) -> String {
        let server = self.server(request.server);
        if plan.core.signature.unwrap_or_default() == Tristate::Off {
            return String::new();
        }
        let port = public_port(request, server.core(plan));
        let public = public_name(request, server.core(plan));
        let escaped = evenkeel_proto::escaped_html(&public);
        let name = String::from_utf8_lossy(&escaped);
        let banner = &self.identity.banner;
        match plan.core.signature.unwrap_or_default() {
            Tristate::Off => String::new(),
            // Each request of an application has it, so that it is written without `core::fmt`.
            Tristate::On => {
                let mut number = itoa::Buffer::new();
                let port = number.format(port);
                let end = "</address>\n";
                ["<hr>\n<address>", banner, " Server at ", &name, " Port ", port, end].concat()
            }
            Tristate::Third => format!(
                "<hr>\n<address>{banner} Server at <a href=\"mailto:{}\">{name}</a> Port \
                 {port}</address>\n",
                server.admin()
            ),
        }
    }

    /// The path of an internal redirect or of a look, parsed, decoded and normalised as the target
    /// of a request is (server/util.c: ap_parse_uri).
    ///
    /// # Errors
    /// The path is invalid.
    pub fn path(&self, request: &Request, text: &[u8]) -> Result<UrlPath, Refusal> {
        let options = self.server(request.server).uri_options();
        UrlPath::parse(without_doubled_slash(text), options)
            .map_err(|reason| bad_path(reason, text))
    }
}

/// The balancers of all servers, each once: virtual hosts have those of the main server too.
fn balancers_of(servers: &[Server]) -> Vec<Arc<Balancer>> {
    let mut found: Vec<Arc<Balancer>> = Vec::new();
    let mut seen = HashSet::new();
    for balancer in servers.iter().flat_map(|server| &server.settings.proxy.balancers) {
        if seen.insert(Arc::as_ptr(balancer)) {
            found.push(Arc::clone(balancer));
        }
    }
    found
}

/// Whether a server caches on disk and does not say where.
fn has_no_root(server: &Server) -> bool {
    server.settings.cache.uses(caching::DISK) && server.settings.cache_disk.place().is_none()
}

/// The addresses of a virtual host; those that cannot be resolved are remarked on.
///
/// # Errors
/// A word that is no address.
fn addresses_of(host: &VirtualHost, notices: &mut Vec<Notice>) -> Result<Vec<Address>, Fault> {
    let mut addresses = Vec::new();
    for word in &host.addresses {
        match parse_address(word) {
            Ok(found) => addresses.extend(found),
            Err(text) if text.starts_with("Could not resolve") => {
                notices.push(Notice::warn("core", 547, text).at(host.position.clone()));
            }
            Err(text) => return Err(Fault::new(host.position.clone(), text)),
        }
    }
    Ok(addresses)
}

/// Makes the secret of the nonces of mod_auth_digest, if no configuration before this one has made
/// it.
fn prepare_digest(global: &GlobalSettings) -> Result<(), Fault> {
    auth_digest::prepare(&global.auth_digest).map_err(|error| Fault {
        position: None,
        text: format!("AH01758: error generating secret: {error}"),
        trail: Vec::new(),
        stage: Stage::Apply,
    })
}

/// Whether the modules are active that mod_auth_form needs (mod_auth_form.c:
/// authenticate_form_post_config).
fn check_forms(has_sessions: bool, has_requests: bool) -> Result<(), Fault> {
    let (number, module) = match (has_sessions, has_requests) {
        (false, _) => (2617, "mod_session"),
        (true, false) => (2618, "mod_request"),
        (true, true) => return Ok(()),
    };
    Err(Fault {
        position: None,
        text: format!("AH0{number}: You must load {module} to enable the mod_auth_form functions"),
        trail: Vec::new(),
        stage: Stage::Apply,
    })
}

/// Reads the file of media types where mod_mime is active; without one, nothing can be typed and
/// Apache does not start either (mod_mime.c: mime_post_config).
fn media_types(
    global: &GlobalSettings,
    language: &Language,
    server_root: &Path,
) -> Result<Arc<Types>, Fault> {
    if !language.vocabulary.module_loaded("mod_mime.c") {
        return Ok(Arc::default());
    }
    let own = global.mime.types_config.clone();
    let path = own.unwrap_or_else(|| server_root.join("conf/mime.types"));
    match Types::read(&path) {
        Ok(types) => Ok(Arc::new(types)),
        Err(_) if global.mime.types_config.is_none() => Ok(Arc::new(Types::usual())),
        Err(error) => Err(Fault {
            position: None,
            text: format!(
                "({}){}: AH01597: could not open mime types config file {}.",
                error.raw_os_error().unwrap_or_default(),
                error.to_string().split(" (os error").next().unwrap_or_default(),
                path.display()
            ),
            trail: Vec::new(),
            stage: Stage::Apply,
        }),
    }
}

/// Reads the magic files of the servers (mod_mime_magic.c: magic_init). What is wrong with them is
/// noted, and the server starts all the same.
fn read_magic_files(servers: &mut [Server], notices: &mut Vec<Notice>) {
    let mut known = HashMap::new();
    for server in servers {
        let settings = &mut server.settings.mime_magic;
        let Some((path, position)) = settings.file() else { continue };
        let (path, position) = (path.to_owned(), position.clone());
        let read = known.entry(path).or_insert_with_key(|path| {
            let (rules, complaints) = match mime_magic::read(path) {
                Ok(read) => read,
                Err(error) => {
                    let reason = error.to_string();
                    let reason = reason.split(" (os error").next().unwrap_or_default();
                    let path = path.display();
                    let text = format!("can't read magic file {path}: {reason} ({position})");
                    notices.push(Notice::warn("mime_magic", 1515, text).at(position));
                    return None;
                }
            };
            for complaint in complaints {
                let place = evenkeel_config::Position {
                    file: path.to_string_lossy().into_owned().into(),
                    line: complaint.line,
                };
                let number = u32::from(complaint.number);
                let text = format!("{} ({place})", complaint.text);
                notices.push(Notice::warn("mime_magic", number, text).at(place));
            }
            Some(Arc::new(rules))
        });
        read.iter().for_each(|rules| settings.act_by(Arc::clone(rules)));
    }
}

/// A name in lower case: the same one where it is that already.
fn lower(name: Option<&Arc<str>>) -> Arc<str> {
    match name {
        Some(name) if !name.bytes().any(|byte| byte.is_ascii_uppercase()) => Arc::clone(name),
        Some(name) => name.to_ascii_lowercase().into(),
        None => Arc::default(),
    }
}
