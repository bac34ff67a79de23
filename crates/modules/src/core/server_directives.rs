//! The core's directives of servers: identity, connection, limits. A line goes in, a field of
//! [`Server`](super::Server) or [`Global`](super::Global) comes out (core.c, http_core.c).

use super::server::{ServerTokens, TraceEnable};
use crate::{Directive, DirectiveResult, Scope, Where, argument, directive, global_directive};
use evenkeel_config::{Call, GlobalCall, Shape};
use evenkeel_message::quoted_path;
use std::sync::Arc;

const SERVER: Where = Where::SERVER;

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    directive("ServerName", SERVER, Shape::One, "", "The hostname and port of the server", server_name),
    directive("ServerAlias", SERVER, Shape::Iterate, "", "A name or names alternately used to access the server", server_alias),
    directive("ServerPath", SERVER, Shape::One, "", "The pathname the server can be reached at", server_path),
    directive("ServerAdmin", SERVER, Shape::One, "", "The email address of the server administrator", server_admin),
    directive("DocumentRoot", SERVER, Shape::One, "", "Root directory of the document tree", document_root).of_bytes(),
    directive("ErrorLog", SERVER, Shape::One, "logs/error_log", "The filename of the error log", error_log),
    directive("ErrorLogFormat", SERVER, Shape::OneOrTwo, "", "Format string for the ErrorLog", error_log_format),
    directive("Timeout", SERVER, Shape::One, "60", "Timeout duration (sec)", timeout),
    directive("KeepAlive", SERVER, Shape::Flag, "On", "Whether persistent connections should be On or Off", keep_alive),
    directive("KeepAliveTimeout", SERVER, Shape::One, "5", "Keep-Alive timeout duration (sec)", keep_alive_timeout),
    directive("MaxKeepAliveRequests", SERVER, Shape::One, "100", "Maximum number of Keep-Alive requests per connection, or 0 for infinite", max_keep_alive_requests),
    directive("LimitRequestLine", SERVER, Shape::One, "8190", "Limit on maximum size of an HTTP request line", limit_request_line),
    directive("LimitRequestFieldsize", SERVER, Shape::One, "8190", "Limit on maximum size of an HTTP request header field", limit_request_field_size),
    directive("LimitRequestFields", SERVER, Shape::One, "100", "Limit (0 = unlimited) on max number of header fields in a request message", limit_request_fields),
    directive("LimitInternalRecursion", SERVER, Shape::OneOrTwo, "10", "maximum recursion depth of internal redirects and subrequests", limit_internal_recursion),
    directive("AccessFileName", SERVER, Shape::Raw, ".htaccess", "Name(s) of per-directory config files (default: .htaccess)", access_file_name),
    directive("TraceEnable", SERVER, Shape::One, "on", "'on' (default), 'off' or 'extended' to trace request body content", trace_enable),
    directive("HttpProtocolOptions", SERVER, Shape::Iterate, "Strict LenientMethods Allow0.9", "'Allow0.9' or 'Require1.0' (default); 'RegisteredMethods' or 'LenientMethods' (default); 'Unsafe' or 'Strict' (default). Sets HTTP acceptance rules", http_protocol_options),
    directive("MergeTrailers", SERVER, Shape::Flag, "Off", "merge request trailers into request headers or not", merge_trailers),
    directive("MergeSlashes", SERVER, Shape::Flag, "On", "Controls whether consecutive slashes in the URI path are merged", merge_slashes),
    directive("StrictHostCheck", SERVER, Shape::Flag, "Off", "Controls whether a hostname match is required", strict_host_check),
    directive("Protocols", SERVER, Shape::Iterate, "http/1.1", "Controls which protocols are allowed", protocols),
    directive("ProtocolsHonorOrder", SERVER, Shape::One, "On", "'off' (default) or 'on' to respect given order of protocols, by default the client specified order determines selection", protocols_honor_order),
    global_directive("ServerTokens", Shape::One, "Full", "Determine tokens displayed in the Server: header - Min(imal), Major, Minor, Prod(uctOnly), OS, or Full", server_tokens),
    global_directive("ExtendedStatus", Shape::Flag, "Off", "\"On\" to track extended status information, \"Off\" to disable", extended_status),
    global_directive("SeeRequestTail", Shape::Flag, "Off", "For extended status, On to see the last 63 chars of the request line, Off (default) to see the first 63", see_request_tail),
    global_directive("AcceptFilter", Shape::Two, "http data", "Optimizes listening sockets for a protocol", accept_filter),
    global_directive("SymLinksWithin", Shape::One, "", "A folder out of which no symbolic link leads, whatever Options says; not in Apache", links_within),
    global_directive("RegisterHttpMethod", Shape::Iterate, "", "Registers non-standard HTTP methods", register_method),
    global_directive("Mutex", Shape::Argv, "", "mutex (or \"default\") and mechanism", mutex),
    directive("FlushMaxThreshold", SERVER, Shape::One, "65535", "Maximum threshold above which pending data are flushed to the network", flush_max_threshold),
    directive("FlushMaxPipelined", SERVER, Shape::One, "4", "Maximum number of pending responses above which they are flushed to the network", flush_max_pipelined),
    directive("NameVirtualHost", SERVER, Shape::One, "", "A numeric IP address:port, or the name of a host", name_virtual_host),
    directive("GprofDir", SERVER, Shape::One, "", "Directory to plop gmon.out files", accept),
    directive("Protocol", SERVER, Shape::One, "", "Set the Protocol for httpd to use.", accept),
    directive("Port", SERVER, Shape::One, "", PORT, port),
];

/// What is said of Port.
const PORT: &str = "Port was replaced with Listen in Apache 2.0";

fn port(_: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    Err(PORT.into())
}

/// Accepted for the sake of configurations that have it; it has no meaning here.
fn accept(_: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    Ok(())
}

fn server_name(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = argument(call, 0);
    if is_pattern(text) {
        return Err(format!(
            "Invalid ServerName \"{text}\" use ServerAlias to set multiple server names."
        ));
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, text),
    };
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, port)) if !rest.ends_with(']') && !name.is_empty() => (name, Some(port)),
        _ => (rest, None),
    };
    let port = match port.map(str::parse::<u16>) {
        None => Some(0),
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => {
            return Err(format!(
                "The port number \"{text}\" is outside the appropriate range (i.e., 1..65535)."
            ));
        }
    };
    let core = &mut scope.server.core;
    (core.name, core.scheme, core.port) = (Some(name.into()), scheme.map(Into::into), port);
    Ok(())
}

/// Whether a text has something in it that stands for other texts (APR: `apr_fnmatch_test`).
fn is_pattern(text: &str) -> bool {
    let (mut escaped, mut bracketed) = (false, false);
    text.bytes().any(|byte| {
        if std::mem::take(&mut escaped) {
            return false;
        }
        escaped = byte == b'\\';
        bracketed |= byte == b'[';
        matches!(byte, b'*' | b'?') || bracketed && byte == b']'
    })
}

fn server_alias(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    if !scope.in_virtual_host {
        return Err("ServerAlias only used in <VirtualHost>".into());
    }
    let name: Arc<str> = argument(call, 0).to_ascii_lowercase().into();
    let aliases = Arc::make_mut(scope.server.core.aliases.get_or_insert_default());
    let list = if name.contains(['*', '?']) { &mut aliases.wild } else { &mut aliases.exact };
    list.push(name);
    Ok(())
}

fn server_path(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    if !scope.in_virtual_host {
        // Apache accepts it, and only virtual hosts have such a path.
        return Ok(());
    }
    let aliases = Arc::make_mut(scope.server.core.aliases.get_or_insert_default());
    aliases.path = Some(argument(call, 0).into());
    Ok(())
}

fn server_admin(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.core.admin = Some(argument(call, 0).into());
    Ok(())
}

fn document_root(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    // A slash at its end stays, as conditions see it.
    let path = scope.server_path(argument(call, 0));
    if !path.is_dir() && !scope.roots_unchecked {
        if !scope.in_virtual_host {
            let path = quoted_path(&path);
            return Err(format!("DocumentRoot '{path}' is not a directory, or is not readable"));
        }
        let text = format!("Warning: DocumentRoot [{}] does not exist", quoted_path(&path));
        call.warn("core", 112, text);
    }
    scope.server.core.document_root = Some(path.into());
    Ok(())
}

fn error_log(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let log = (argument(call, 0).into(), call.position.clone());
    scope.server.core.error_log = Some(Arc::new(log));
    Ok(())
}

fn error_log_format(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (kind, format) = match (argument(call, 0), argument(call, 1)) {
        (format, "") => (None, format),
        (kind, format) => match kind.to_ascii_lowercase().as_str() {
            "connection" | "request" => (Some(kind.to_ascii_lowercase().into()), format),
            _ => return Err("ErrorLogFormat type must be request or connection".into()),
        },
    };
    let line = (kind, format.into(), call.position.clone());
    scope.server.core.conduct.error_log_formats.push(line);
    Ok(())
}

fn timeout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let seconds: u64 = argument(call, 0)
        .parse()
        .map_err(|_| format!("Timeout: \"{}\" is no whole number of seconds", argument(call, 0)))?;
    scope.server.core.conduct.timeout_us = Some(seconds.saturating_mul(1_000_000));
    Ok(())
}

fn keep_alive(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.core.conduct.keep_alive = Some(call.flag);
    Ok(())
}

fn keep_alive_timeout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let time =
        parse_interval(argument(call, 0), 1_000_000).ok_or("KeepAliveTimeout has wrong format")?;
    scope.server.core.conduct.keep_alive_timeout_us = Some(time);
    Ok(())
}

/// A span of time with Apache's units (`ms`, `s`, `mi`, `h`; ap_timeout_parameter_parse), in
/// microseconds; without unit it counts `unit_us` each.
#[must_use]
pub fn parse_interval(text: &str, unit_us: u64) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let factor = match unit.as_bytes() {
        b"" => unit_us,
        [b's' | b'S', ..] => 1_000_000,
        [b'h' | b'H', ..] => 3_600_000_000,
        [b'm' | b'M', b's' | b'S', ..] => 1000,
        [b'm' | b'M', b'i' | b'I', ..] => 60_000_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

fn max_keep_alive_requests(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.core.conduct.max_keep_alive_requests = Some(whole(call)?);
    Ok(())
}

/// The first argument as a number from 0.
fn whole<T: std::str::FromStr>(call: &Call<'_>) -> Result<T, String> {
    let text = argument(call, 0);
    text.parse().map_err(|_| format!("{} \"{text}\" must be a non-negative integer", call.name))
}

fn limit_request_line(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.core.conduct.limit_request_line = Some(whole(call)?);
    Ok(())
}

fn limit_request_field_size(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.core.conduct.limit_request_field_size = Some(whole(call)?);
    Ok(())
}

fn limit_request_fields(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.core.conduct.limit_request_fields = Some(whole(call)?);
    Ok(())
}

fn limit_internal_recursion(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    for text in call.words {
        let limit: usize = text
            .parse()
            .map_err(|_| "The recursion limit must be greater than zero.".to_owned())?;
        if limit == 0 {
            return Err("The recursion limit must be greater than zero.".into());
        }
    }
    let redirects = argument(call, 0);
    let looks = call.words.get(1).map_or(redirects, |text| text.as_ref());
    scope.server.core.conduct.limit_redirects = redirects.parse().ok();
    scope.server.core.conduct.limit_looks = looks.parse().ok();
    Ok(())
}

fn access_file_name(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let names = evenkeel_config::words(call.raw);
    scope.server.core.conduct.access_file_names =
        Some(names.into_iter().map(String::into_boxed_str).collect());
    Ok(())
}

fn trace_enable(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let trace = match argument(call, 0).to_ascii_lowercase().as_str() {
        "on" => TraceEnable::On,
        "off" => TraceEnable::Off,
        "extended" => TraceEnable::Extended,
        _ => return Err("TraceEnable must be one of 'on', 'off', or 'extended'".into()),
    };
    scope.server.core.conduct.trace_enable = Some(trace);
    Ok(())
}

fn http_protocol_options(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let options = &mut scope.server.core.conduct.protocol;
    let (field, value, pair) = match argument(call, 0).to_ascii_lowercase().as_str() {
        "allow0.9" => (&mut options.require_10, false, ("Allow0.9", "Require1.0")),
        "require1.0" => (&mut options.require_10, true, ("Allow0.9", "Require1.0")),
        "strict" => (&mut options.lenient, false, ("Strict", "Unsafe")),
        "unsafe" => (&mut options.lenient, true, ("Strict", "Unsafe")),
        "registeredmethods" => {
            (&mut options.registered_methods, true, ("RegisteredMethods", "LenientMethods"))
        }
        "lenientmethods" => {
            (&mut options.registered_methods, false, ("RegisteredMethods", "LenientMethods"))
        }
        _ => {
            return Err("HttpProtocolOptions accepts 'Unsafe' or 'Strict' (default), \
                        'RegisteredMethods' or 'LenientMethods' (default), and 'Require1.0' or \
                        'Allow0.9' (default)"
                .into());
        }
    };
    if field.is_some_and(|old| old != value) {
        let (one, other) = pair;
        let text = format!("HttpProtocolOptions '{one}' and '{other}' are mutually exclusive");
        return Err(text);
    }
    *field = Some(value);
    Ok(())
}

fn merge_trailers(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.core.conduct.merge_trailers = Some(call.flag);
    Ok(())
}

fn merge_slashes(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.core.conduct.merge_slashes = Some(call.flag);
    Ok(())
}

fn strict_host_check(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.core.conduct.strict_host_check = Some(call.flag);
    Ok(())
}

fn protocols(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let mut list: Vec<Box<str>> =
        scope.server.core.conduct.protocols.as_deref().unwrap_or_default().to_vec();
    list.push(argument(call, 0).into());
    scope.server.core.conduct.protocols = Some(list.into());
    Ok(())
}

fn protocols_honor_order(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let honors = match argument(call, 0).to_ascii_lowercase().as_str() {
        "on" => true,
        "off" => false,
        _ => return Err("ProtocolsHonorOrder must be 'on' or 'off'".into()),
    };
    scope.server.core.conduct.protocols_honor_order = Some(honors);
    Ok(())
}

fn server_tokens(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let tokens = match argument(call, 0).to_ascii_lowercase().as_str() {
        "os" => ServerTokens::Os,
        "min" | "minimal" => ServerTokens::Minimal,
        "major" => ServerTokens::Major,
        "minor" => ServerTokens::Minor,
        "prod" | "productonly" => ServerTokens::ProductOnly,
        "full" => ServerTokens::Full,
        _ => {
            return Err("ServerTokens takes 1 argument: 'Prod(uctOnly)', 'Major', 'Minor', \
                        'Min(imal)', 'OS', or 'Full'"
                .into());
        }
    };
    scope.global_mut(call).core.tokens = Some(tokens);
    Ok(())
}

fn extended_status(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).core.extended_status = Some(call.flag);
    Ok(())
}

fn see_request_tail(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).core.see_request_tail = call.flag;
    Ok(())
}

fn accept_filter(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let (protocol, filter) = (argument(call, 0), argument(call, 1));
    let deferred = !filter.eq_ignore_ascii_case("none");
    scope.global_mut(call).core.accept_filters.retain(|(known, _)| **known != *protocol);
    scope.global_mut(call).core.accept_filters.push((protocol.into(), deferred));
    Ok(())
}

fn links_within(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let folder = scope.server_path(argument(call, 0));
    let real = std::fs::canonicalize(&folder)
        .map_err(|error| format!("SymLinksWithin {}: {error}", folder.display()))?;
    scope.global_mut(call).core.links_within = Some(real);
    Ok(())
}

fn register_method(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).core.methods.push(argument(call, 0).into());
    Ok(())
}

fn mutex(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    check_mutex(scope, call)?;
    scope.global_mut(call).core.mutexes.push(call.raw.into());
    Ok(())
}

/// What a Mutex line may say (util_mutex.c: ap_set_mutex). Threads here share no lock that it
/// could mean, so that it is only looked at.
fn check_mutex(scope: &Scope, call: &Call<'_>) -> DirectiveResult {
    const MECHANISMS: &str = "Mutex mechanisms are: 'none', 'default', 'flock:/path/to/file', \
         'fcntl:/path/to/file', 'file:/path/to/file', 'pthread', 'sysvsem', 'posixsem', 'sem'";
    const TYPES: [&str; 16] = [
        "default",
        "mpm-accept",
        "authdigest-client",
        "authdigest-opaque",
        "ldap-cache",
        "rewrite-map",
        "ssl-cache",
        "ssl-stapling",
        "ssl-stapling-refresh",
        "watchdog-callback",
        "cache-socache",
        "authn-socache",
        "proxy",
        "proxy-balancer-shm",
        "socache-shmcb",
        "heartmonitor",
    ];
    let mechanism = argument(call, 0);
    if mechanism.is_empty() {
        return Err(format!("Mutex requires at least a mechanism argument ({MECHANISMS})"));
    }
    let (kind, path) = mechanism.split_once(':').unwrap_or((mechanism, ""));
    let known = [
        "none", "no", "default", "flock", "fcntl", "file", "pthread", "sysvsem", "posixsem", "sem",
    ];
    if !known.iter().any(|known| kind.eq_ignore_ascii_case(known)) {
        return Err(format!("Invalid Mutex argument {mechanism} ({MECHANISMS})"));
    }
    if !path.is_empty() && !scope.server_path(path).is_dir() {
        return Err(format!("Invalid Mutex directory in argument {mechanism}"));
    }
    let unknown = |word: &&String| {
        !word.eq_ignore_ascii_case("OmitPID")
            && !TYPES.iter().any(|known| known.eq_ignore_ascii_case(word))
    };
    match call.words.iter().skip(1).find(unknown) {
        Some(word) => Err(format!("Mutex type {word} is not valid")),
        None => Ok(()),
    }
}

/// A number within Apache's bounds, which its complaint shows as the source spells them.
fn bounded(call: &Call<'_>, least: i64, most: i64, bounds: &str) -> Result<i64, String> {
    let text = argument(call, 0);
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("parameter must be a number between {bounds}: {text}"))
}

fn flush_max_threshold(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let size = bounded(call, 0, i64::from(u32::MAX), "0 and (4294967295U))")?;
    scope.server.core.conduct.flush_max_threshold = usize::try_from(size).ok();
    Ok(())
}

fn flush_max_pipelined(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let number = bounded(call, -1, i64::from(i32::MAX), "-1 and (2147483647)")?;
    scope.server.core.conduct.flush_max_pipelined = Some(number);
    Ok(())
}

fn name_virtual_host(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = "NameVirtualHost has no effect and will be removed in the next release";
    call.warn("core", 548, format!("{text} {}", call.position));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::parse_interval;

    #[test]
    fn intervals_have_apaches_units() {
        for (text, expected) in [
            ("5", Some(5_000_000)),
            ("200ms", Some(200_000)),
            ("2s", Some(2_000_000)),
            ("1min", Some(60_000_000)),
            ("1h", Some(3_600_000_000)),
            ("5x", None),
            ("", None),
            ("-1", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_interval(text, 1_000_000), expected, "{text}");
        }
    }
}
