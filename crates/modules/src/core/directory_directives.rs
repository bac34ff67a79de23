//! The core's directives of sections. A line goes in, a field of
//! [`Directory`](super::Directory) comes out (core.c).

use super::directory::{AcceptPathInfo, EtagParts, Tristate};
use super::error_document::ErrorDocument;
use super::options::{AllowOverride, Options};
use crate::{
    Directive, DirectiveResult, MODULES, Module, Scope, Where, argument, directive,
    global_directive,
};
use evenkeel_config::{
    Call, Contexts, GlobalCall, Notice, Overrides, Position, Shape, module_of, reserved,
    standard_module,
};
use evenkeel_expr::{PatternOptions, Text};
use evenkeel_message::{AllowEncodedSlashes, Level, Status, unquoted};
use std::num::{IntErrorKind, ParseIntError};
use std::sync::Arc;

const SECTION: Where = Where::SECTION;
const CONFIG: Where = Where::CONFIG;
const FILE_INFO: Where = Where::FILE_INFO;
const ANYWHERE: Where = Where::ANYWHERE;

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    directive("Options", Where::OPTIONS, Shape::Raw, "FollowSymlinks", "Set a number of attributes for a given directory", options),
    directive("AllowOverride", SECTION, Shape::Raw, "None", "Controls what groups of directives can be configured by per-directory config files", allow_override),
    directive("AllowOverrideList", SECTION, Shape::Raw, "None", "Controls what individual directives can be configured by per-directory config files", allow_override_list),
    directive("SetHandler", FILE_INFO, Shape::One, "", "a handler name that overrides any other configured handler", set_handler),
    directive("ForceType", FILE_INFO, Shape::One, "", "a mime type that overrides other configured type", force_type),
    directive("AddDefaultCharset", FILE_INFO, Shape::One, "Off", "The name of the default charset to add to any Content-Type without one or 'Off' to disable", add_default_charset),
    directive("DefaultType", FILE_INFO, Shape::One, "none", "the default media type for otherwise untyped files (DEPRECATED)", default_type),
    directive("ErrorDocument", FILE_INFO, Shape::Raw, "", "Change responses for HTTP errors", error_document).of_bytes(),
    directive("AcceptPathInfo", FILE_INFO, Shape::One, "Default", "Set to on or off for PATH_INFO to be accepted by handlers, or default for the per-handler preference", accept_path_info),
    directive("AllowEncodedSlashes", Where::SERVER, Shape::One, "Off", "Allow URLs containing '/' encoded as '%2F'", allow_encoded_slashes),
    directive("UseCanonicalName", CONFIG, Shape::One, "Off", "How to work out the ServerName : Port when constructing URLs", use_canonical_name),
    directive("UseCanonicalPhysicalPort", CONFIG, Shape::Flag, "Off", "Whether to use the physical Port when constructing URLs", use_canonical_port),
    directive("HostnameLookups", CONFIG, Shape::One, "Off", "\"on\" to enable, \"off\" to disable reverse DNS lookups, or \"double\" to enable double-reverse DNS lookups", hostname_lookups),
    directive("ServerSignature", ANYWHERE, Shape::One, "Off", "En-/disable server signature (on|off|email)", server_signature),
    directive("ContentDigest", Where::OPTIONS, Shape::Flag, "Off", "whether or not to send a Content-MD5 header with each request", content_digest),
    directive("EnableMMAP", FILE_INFO, Shape::One, "On", "Controls whether memory-mapping may be used to read files", enable_mmap),
    directive("EnableSendfile", FILE_INFO, Shape::One, "Off", "Controls whether sendfile may be used to transmit files", enable_sendfile),
    directive("FileETag", FILE_INFO, Shape::Raw, "MTime Size", "Specify components used to construct a file's ETag", file_etag),
    directive("LimitRequestBody", ANYWHERE, Shape::One, "1073741824", "Limit (in bytes) on maximum size of request message body", limit_request_body),
    directive("LimitXMLRequestBody", ANYWHERE, Shape::One, "1000000", "Limit (in bytes) on maximum size of an XML-based request body", limit_xml_body),
    directive("MaxRanges", CONFIG, Shape::One, "200", "Maximum number of Ranges in a request before returning the entire resource, or 0 for unlimited", max_ranges),
    directive("MaxRangeOverlaps", CONFIG, Shape::One, "20", "Maximum number of overlaps in Ranges in a request before returning the entire resource, or 0 for unlimited", max_range_overlaps),
    directive("MaxRangeReversals", CONFIG, Shape::One, "20", "Maximum number of reversals in Ranges in a request before returning the entire resource, or 0 for unlimited", max_range_reversals),
    directive("QualifyRedirectURL", FILE_INFO, Shape::Flag, "Off", "Controls whether the REDIRECT_URL environment variable is fully qualified", qualify_redirects),
    directive("ReadBufferSize", CONFIG, Shape::One, "8192", "Size (in bytes) of the memory buffers used to read data", read_buffer_size),
    directive("SetOutputFilter", FILE_INFO, Shape::One, "", "filter (or ; delimited list of filters) to be run on the request content", set_output_filter),
    directive("SetInputFilter", FILE_INFO, Shape::One, "", "filter (or ; delimited list of filters) to be run on the request body", set_input_filter),
    directive("CGIPassAuth", Where::AUTH_CONFIG, Shape::Flag, "Off", "Controls whether HTTP authorization headers, normally hidden, will be passed to scripts", cgi_pass_auth),
    directive("CGIVar", FILE_INFO, Shape::Two, "", "Controls how some CGI variables are set", cgi_var),
    directive("RLimitCPU", Where::ANYWHERE, Shape::OneOrTwo, "", "Soft/hard limits for max CPU usage in seconds", limit_cpu),
    directive("RLimitMEM", Where::ANYWHERE, Shape::OneOrTwo, "", "Soft/hard limits for max memory usage per process", limit_memory),
    directive("RLimitNPROC", Where::ANYWHERE, Shape::OneOrTwo, "", "soft/hard limits for max number of processes per uid", limit_processes),
    directive("LogLevel", CONFIG, Shape::Iterate, "warn", "Level of verbosity in error logging", log_level),
    global_directive("RegexDefaultOptions", Shape::Argv, "DOTALL DOLLAR_ENDONLY", "default options for regexes (prefixed by '+' to add, '-' to del)", regex_default_options),
];

fn options(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let words = evenkeel_config::words(call.raw);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let allowed = call.grant().map_or(Options::EVERY, |grant| Options::from_bits(grant.options));
    scope.directory.core.options.apply(&words, allowed)
}

fn allow_override(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    call.check_place(Contexts::NOT_IN_HTACCESS)?;
    if call.check_place(Contexts::NOT_IN_LOCATION.with(Contexts::NOT_IN_FILES)).is_err() {
        let Position { file, line } = call.position;
        let text = format!("Useless use of AllowOverride in line {line} of {file}.");
        call.warn("core", 114, text);
    }
    let core = &mut scope.directory.core;
    // A line takes back the classes of an earlier one of its section, but not its options.
    let mut allow = core.allow_override.unwrap_or(AllowOverride::NONE).only(Overrides::NONE);
    for word in evenkeel_config::words(call.raw) {
        // What stands behind `=` is looked at only where it means something.
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (&*word, None),
        };
        match (name.to_ascii_lowercase().as_str(), Overrides::named(name)) {
            ("options", _) => {
                allow.overrides = allow.overrides.with(Overrides::OPTIONS);
                allow.options = value.map_or(Ok(Options::ALL), override_options)?;
            }
            ("nonfatal", _) => {
                let Some(value) = value else {
                    return Err("=Override, =Unknown or =All expected after Nonfatal".into());
                };
                let (forbidden, unknown) = nonfatal(value).ok_or_else(|| {
                    format!(
                        "AllowOverride parameter \"Nonfatal\" must be one of \"Override\", \
                         \"Unknown\" or \"All\", not {word}"
                    )
                })?;
                allow.nonfatal_override |= forbidden;
                allow.nonfatal_unknown |= unknown;
            }
            ("all", _) => allow = allow.only(Overrides::ALL),
            ("none", _) => allow = allow.only(Overrides::NONE),
            (_, Some(class)) => allow.overrides = allow.overrides.with(class),
            (_, None) => return Err(format!("Illegal override option {name}")),
        }
    }
    core.allow_override = Some(allow);
    Ok(())
}

/// Whether `AllowOverride Nonfatal=WORD` means directives that are forbidden, and unknown ones.
fn nonfatal(word: &str) -> Option<(bool, bool)> {
    match word.to_ascii_lowercase().as_str() {
        "override" => Some((true, false)),
        "unknown" => Some((false, true)),
        "all" => Some((true, true)),
        _ => None,
    }
}

/// The options that `AllowOverride Options=A,B` lets `.htaccess` files set.
fn override_options(list: &str) -> Result<Options, String> {
    let mut allowed = Options::NONE;
    for word in list.split(',').filter(|word| !word.is_empty()) {
        allowed = allowed | Options::parse(word).ok_or_else(|| format!("Illegal option {word}"))?;
    }
    Ok(allowed)
}

fn allow_override_list(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    call.check_place(Contexts::NOT_IN_HTACCESS)?;
    let words = evenkeel_config::words(call.raw);
    let none = matches!(words.as_slice(), [word] if word.eq_ignore_ascii_case("none"));
    let listed = |name: &&String| match standing(name) {
        Some(false) => {
            let text = format!("Discarding directive `{name}' not allowed in AllowOverrideList at");
            call.warn("core", 2304, format!("{text} {}", call.position));
            false
        }
        Some(true) => true,
        None => {
            let text =
                format!("Discarding unrecognized directive `{name}' in AllowOverrideList at");
            call.warn("core", 116, format!("{text} {}", call.position));
            false
        }
    };
    let names = words.iter().filter(|_| !none).filter(listed);
    let names = names.map(|name| name.to_ascii_lowercase().into());
    scope.directory.core.allow_override_list = Some(Arc::new(names.collect()));
    Ok(())
}

/// Whether AllowOverrideList may name a directive, as it may those of sections; none for a name
/// that is no directive's. Those of modules that are not here count as allowed.
fn standing(name: &str) -> Option<bool> {
    let may = |contexts: Contexts, overrides: Overrides| {
        contexts.contains(Contexts::DIRECTORY) || !overrides.is_none()
    };
    let own = MODULES
        .iter()
        .flat_map(|module| module.directives)
        .flat_map(|directives| directives.iter())
        .find(|directive| directive.name.eq_ignore_ascii_case(name));
    let language = reserved().iter().find(|reserved| reserved.name.eq_ignore_ascii_case(name));
    own.map(|directive| may(directive.contexts, directive.overrides))
        .or_else(|| language.map(|reserved| may(reserved.contexts, reserved.overrides)))
        .or_else(|| module_of(name).map(|_| true))
}

fn set_handler(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = argument(call, 0);
    let handler = if name.eq_ignore_ascii_case("none") {
        None
    } else {
        let compile = |text: &str| {
            scope.compile_text(text).map_err(|error| format!("Can't parse expression : {error}"))
        };
        let compiled = compile(name)?;
        // SetHandler converts a constant name to lower case, except for the path of a Unix
        // socket. AddHandler keeps the name.
        let is_plain = compiled.constant().is_some_and(|name| !name.starts_with(b"proxy:unix"));
        Some(Arc::new(if is_plain { compile(&name.to_ascii_lowercase())? } else { compiled }))
    };
    scope.directory.core.handler = Some(handler);
    Ok(())
}

fn force_type(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = argument(call, 0).to_ascii_lowercase();
    scope.directory.core.force_type = Some((name != "none").then(|| name.into()));
    Ok(())
}

fn add_default_charset(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let charset = match argument(call, 0) {
        word if word.eq_ignore_ascii_case("off") => None,
        word if word.eq_ignore_ascii_case("on") => Some("iso-8859-1".into()),
        word => Some(word.into()),
    };
    scope.directory.core.default_charset = Some(charset);
    Ok(())
}

fn default_type(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = argument(call, 0);
    if !name.eq_ignore_ascii_case("none") && !name.eq_ignore_ascii_case("off") {
        let Position { file, line } = call.position;
        let text = format!("Ignoring deprecated use of DefaultType in line {line} of {file}.");
        call.warn("core", 117, text);
    }
    Ok(())
}

fn error_document(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (code, rest) = evenkeel_config::next_word(call.raw);
    let rest = rest.trim_start();
    let is_one = matches!(&*evenkeel_config::words(rest), [word] if !word.is_empty());
    if code.is_empty() || !is_one {
        return Err("ErrorDocument takes two arguments, Change responses for HTTP errors".into());
    }
    let status = code.parse().ok().and_then(Status::new).filter(|s| s.reason().is_some());
    let Some(status) = status else {
        return Err(format!("Unsupported HTTP response code {code}"));
    };
    let quoted = rest.starts_with(['"', '\'']);
    let (word, after) = evenkeel_config::next_word(rest);
    let is_text = quoted && !is_url(&word) && !word.starts_with('/');
    let document = if word.eq_ignore_ascii_case("default") {
        ErrorDocument::Standard
    } else if is_url(&word) {
        if status == Status::UNAUTHORIZED {
            let text = "cannot use a full URL in a 401 ErrorDocument directive --- ignoring!";
            let notice = Notice::warn("core", 113, format!("{} {text}", call.position));
            call.notice(Notice { level: evenkeel_config::Level::Notice, ..notice });
            return Ok(());
        }
        ErrorDocument::Remote(unquoted(&word).into())
    } else if word.starts_with('/') {
        ErrorDocument::Local(text_expression(scope, &word)?)
    } else if is_text || after.trim().is_empty() {
        ErrorDocument::Text(text_expression(scope, &word)?)
    } else {
        ErrorDocument::Text(text_expression(scope, rest)?)
    };
    scope.directory.core.error_documents.set(status, document);
    Ok(())
}

fn text_expression(scope: &mut Scope, text: &str) -> Result<Arc<Text>, String> {
    let compiled = scope
        .compile_text(text)
        .map_err(|error| format!("Cannot parse expression in ErrorDocument: {error}"))?;
    Ok(Arc::new(compiled))
}

/// Whether a text begins as an absolute URL does (Apache: ap_is_url).
#[must_use]
pub fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    })
}

fn accept_path_info(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let accept = match argument(call, 0).to_ascii_lowercase().as_str() {
        "on" => AcceptPathInfo::On,
        "off" => AcceptPathInfo::Off,
        "default" => AcceptPathInfo::Default,
        _ => return Err("AcceptPathInfo must be set to on, off or default".into()),
    };
    scope.directory.core.accept_path_info = Some(accept);
    Ok(())
}

fn allow_encoded_slashes(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let policy = match argument(call, 0).to_ascii_lowercase().as_str() {
        "on" => AllowEncodedSlashes::On,
        "off" => AllowEncodedSlashes::Off,
        "nodecode" => AllowEncodedSlashes::NoDecode,
        _ => return Err("AllowEncodedSlashes must be On, Off, or NoDecode".into()),
    };
    scope.directory.core.encoded_slashes = Some(policy);
    Ok(())
}

/// `on`, `off` or a third word.
fn three_way(call: &Call<'_>, third: &str, complaint: &str) -> Result<Option<Tristate>, String> {
    match argument(call, 0) {
        word if word.eq_ignore_ascii_case("on") => Ok(Some(Tristate::On)),
        word if word.eq_ignore_ascii_case("off") => Ok(Some(Tristate::Off)),
        word if word.eq_ignore_ascii_case(third) => Ok(Some(Tristate::Third)),
        _ => Err(complaint.to_owned()),
    }
}

fn use_canonical_name(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let complaint = "parameter must be 'on', 'off', or 'dns'";
    scope.directory.core.canonical_name = three_way(call, "dns", complaint)?;
    Ok(())
}

fn use_canonical_port(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.core.canonical_port = Some(call.flag);
    Ok(())
}

fn hostname_lookups(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let complaint = "parameter must be 'on', 'off', or 'double'";
    scope.directory.core.hostname_lookups = three_way(call, "double", complaint)?;
    Ok(())
}

fn server_signature(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let complaint = "ServerSignature: use one of: off | on | email";
    scope.directory.core.signature = three_way(call, "email", complaint)?;
    Ok(())
}

fn content_digest(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.core.content_digest = Some(call.flag);
    Ok(())
}

/// `on` or `off`, with this directive's own complaint.
fn switch(call: &Call<'_>) -> Result<Option<bool>, String> {
    match argument(call, 0) {
        word if word.eq_ignore_ascii_case("on") => Ok(Some(true)),
        word if word.eq_ignore_ascii_case("off") => Ok(Some(false)),
        _ => Err("parameter must be 'on' or 'off'".into()),
    }
}

fn enable_mmap(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.core.mmap = switch(call)?;
    Ok(())
}

fn enable_sendfile(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.core.sendfile = switch(call)?;
    Ok(())
}

fn file_etag(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let mut etag = scope.directory.core.etag;
    let mut begun = false;
    for word in evenkeel_config::words(call.raw) {
        let (sign, name) = match word.as_bytes().first() {
            Some(b'+') => (Some(true), word.get(1..).unwrap_or_default()),
            Some(b'-') => (Some(false), word.get(1..).unwrap_or_default()),
            _ => (None, word.as_str()),
        };
        let bits = match name.to_ascii_lowercase().as_str() {
            "none" | "all" if sign.is_some() => {
                return Err("No prefix allowed for FileETag keywords None and All".into());
            }
            "none" => {
                etag = EtagParts { set: Some(0), ..EtagParts::default() };
                continue;
            }
            "all" => EtagParts::INODE | EtagParts::MTIME | EtagParts::SIZE,
            "mtime" => EtagParts::MTIME,
            "size" => EtagParts::SIZE,
            "inode" => EtagParts::INODE,
            "digest" => EtagParts::DIGEST,
            _ => return Err(format!("Unknown keyword '{name}' for FileETag directive")),
        };
        match sign {
            Some(add) if etag.set.is_some_and(|set| set != 0) => etag.change(add, bits),
            Some(true) => (etag.add, etag.remove) = (etag.add | bits, etag.remove & !bits),
            Some(false) => (etag.remove, etag.add) = (etag.remove | bits, etag.add & !bits),
            // The first word without a sign takes the place of what other lines of the section say
            // (core.c: set_etag_bits).
            None if !begun => {
                begun = true;
                etag = EtagParts { set: Some(bits), ..EtagParts::default() };
            }
            None => etag.set = Some(etag.set.unwrap_or(0) | bits),
        }
    }
    scope.directory.core.etag = etag;
    Ok(())
}

fn limit_request_body(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = argument(call, 0);
    let refused = |error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => "LimitRequestBody argument is not parsable.",
        _ => "LimitRequestBody requires a non-negative integer.",
    };
    let limit = text.parse::<i64>().map_err(refused)?;
    let limit =
        u64::try_from(limit).map_err(|_| "LimitRequestBody requires a non-negative integer.")?;
    scope.directory.core.limit_request_body = Some(limit);
    Ok(())
}

/// The most that LimitXMLRequestBody may say (core.c: set_limit_xml_req_body).
const MOST_XML_BYTES: i64 = 3_074_457_345_618_258_601;

fn limit_xml_body(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    // A word that is no number is none at all (core.c: set_limit_xml_req_body).
    let text = argument(call, 0);
    let end = text.find(|char: char| !char.is_ascii_digit() && !"+-".contains(char));
    let number = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
    let limit = match number.parse::<i64>() {
        Ok(limit) => limit,
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => i64::MAX,
        Err(_) => 0,
    };
    if limit > MOST_XML_BYTES {
        return Err(format!("LimitXMLRequestBody must not exceed {MOST_XML_BYTES}"));
    }
    let limit = u64::try_from(limit)
        .map_err(|_| "LimitXMLRequestBody requires a non-negative integer.".to_owned())?;
    scope.directory.core.limit_xml_body = Some(limit);
    Ok(())
}

/// A number of ranges: `none` is 0, `unlimited` no limit, `default` what Apache has.
fn range_limit(call: &Call<'_>, default: u32) -> Result<Option<Option<u32>>, String> {
    match argument(call, 0) {
        word if word.eq_ignore_ascii_case("none") => Ok(Some(Some(0))),
        word if word.eq_ignore_ascii_case("default") => Ok(Some(Some(default))),
        word if word.eq_ignore_ascii_case("unlimited") => Ok(Some(None)),
        word => match word.parse::<u32>() {
            Ok(number) if number > 0 => Ok(Some(Some(number))),
            _ => Err(format!(
                "{} requires 'none', 'default', 'unlimited' or a positive integer",
                call.name
            )),
        },
    }
}

fn max_ranges(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.core.max_ranges = range_limit(call, 200)?;
    Ok(())
}

fn max_range_overlaps(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.core.max_range_overlaps = range_limit(call, 20)?;
    Ok(())
}

fn max_range_reversals(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.core.max_range_reversals = range_limit(call, 20)?;
    Ok(())
}

fn qualify_redirects(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.core.qualify_redirects = Some(call.flag);
    Ok(())
}

fn read_buffer_size(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = argument(call, 0);
    let size: u32 = text
        .parse()
        .map_err(|_| format!("parameter must be a number between 0 and (4294967295U)): {text}"))?;
    scope.directory.core.read_buffer = usize::try_from(size).ok();
    Ok(())
}

/// The names of a list of filters, `;` between them.
fn filter_names(call: &Call<'_>) -> Option<Arc<[Box<str>]>> {
    Some(argument(call, 0).split(';').filter(|name| !name.is_empty()).map(Into::into).collect())
}

fn set_output_filter(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.core.output_filters = filter_names(call);
    Ok(())
}

fn set_input_filter(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.core.input_filters = filter_names(call);
    Ok(())
}

fn cgi_pass_auth(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.core.cgi_pass_auth = Some(call.flag);
    Ok(())
}

fn cgi_var(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (variable, rule) = (argument(call, 0), argument(call, 1));
    if !variable.eq_ignore_ascii_case("REQUEST_URI") {
        return Err(format!("Unrecognized CGI variable: \"{variable}\""));
    }
    let rule = rule.to_ascii_lowercase();
    if !["original-uri", "current-uri"].contains(&&*rule) {
        return Err("Valid rules for REQUEST_URI are 'current-uri' and 'original-uri'".into());
    }
    scope.directory.core.cgi_variables.push((variable.into(), rule.into()));
    Ok(())
}

fn process_limit(scope: &mut Scope, call: &Call<'_>, resource: usize) -> DirectiveResult {
    let value = |text: &str| -> Result<Option<u64>, String> {
        if text.eq_ignore_ascii_case("max") {
            return Ok(None);
        }
        let number = text.parse().map_err(|_| format!("Invalid parameters for {}", call.name))?;
        Ok(Some(number))
    };
    let soft = value(argument(call, 0))?;
    // Without a second number, the hard limit remains that of the process.
    let hard = match argument(call, 1) {
        "" => None,
        text => value(text)?,
    };
    if let Some(limit) = scope.directory.core.process_limits.get_mut(resource) {
        *limit = Some((soft, hard));
    }
    Ok(())
}

fn limit_cpu(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    process_limit(scope, call, 0)
}

fn limit_memory(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    process_limit(scope, call, 1)
}

fn limit_processes(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    process_limit(scope, call, 2)
}

fn log_level(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    let (module, level) = match word.rsplit_once(':') {
        Some((module, level)) => (Some(module), level),
        None => (None, word),
    };
    let Some(parsed) = Level::parse(level) else {
        return Err("Log level keyword must be one of emerg/alert/crit/error/warn/notice/info/\
                    debug/trace1/.../trace8"
            .into());
    };
    // In a section the level is the section's, else the server's.
    let levels = if call.in_directory_context() {
        &mut scope.directory.core.log_level
    } else {
        &mut scope.server.core.conduct.log_level
    };
    match module {
        None => {
            levels.all = Some(parsed);
            levels.modules.clear();
        }
        Some(module) => {
            let name = module.strip_suffix("_module").unwrap_or(module);
            let name = name.strip_prefix("mod_").unwrap_or(name);
            let name = name.strip_suffix(".c").unwrap_or(name);
            if !is_module(name) {
                return Err(format!("Cannot find module {module}"));
            }
            levels.modules.push((name.into(), parsed));
        }
    }
    Ok(())
}

/// Whether there is a module of this short name, here or in Apache: what a configuration says of
/// a module that this server lacks does no harm.
fn is_module(name: &str) -> bool {
    let file = format!("mod_{name}.c");
    let identifier = format!("{name}_module");
    let own = |module: &Module| {
        module.file == file
            || module.identifier == identifier
            || module.file.strip_suffix(".c") == Some(name)
    };
    MODULES.iter().any(own) || standard_module(&identifier).is_some()
}

fn regex_default_options(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let mut options = scope.global_mut(call).core.pattern_options;
    for word in call.words {
        let (on, name) = match word.as_bytes().first() {
            Some(b'-') => (false, word.get(1..).unwrap_or_default()),
            Some(b'+') => (true, word.get(1..).unwrap_or_default()),
            _ => (true, word.as_str()),
        };
        let none = PatternOptions {
            ignore_case: false,
            extended: false,
            dot_all: false,
            dollar_end_only: false,
        };
        match name.to_ascii_uppercase().as_str() {
            "NONE" => options = none,
            "ICASE" => options.ignore_case = on,
            "EXTENDED" => options.extended = on,
            "DOTALL" => options.dot_all = on,
            "DOLLAR_ENDONLY" => options.dollar_end_only = on,
            _ => return Err(format!("RegexDefaultOptions: option '{name}' unknown")),
        }
    }
    scope.global_mut(call).core.pattern_options = options;
    Ok(())
}
