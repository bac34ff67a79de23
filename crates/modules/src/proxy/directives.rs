//! The directives of mod_proxy. Their functions add rules, applications with parameters and
//! settings of sections to a scope. A feature that this server does not support is a fault.

use super::health::{self, Check};
use super::pass::From;
use super::worker::{UNKNOWN_PARAMETER, Worker};
use super::{Balancer, ErrorOverride, Mapping, Member, Pass, Via};
use crate::core::Kind;
use crate::core::sections::{compile_pattern, inner_settings, numbered, plain};
use crate::{
    Active, Directive, DirectiveResult, Module, Place, Scope, Where, argument, directive, section,
};
use evenkeel_config::{Block, Call, Contexts, Fault, Shape, next_word, words};
use evenkeel_message::{BadTarget, Scheme, Target, unquoted};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    section("<Proxy", PROXY, "Container for directives affecting resources located in the proxied location", proxy_section),
    section("<ProxyMatch", PROXY, "Container for directives affecting resources located in the proxied location, in regular expression syntax", proxy_section),
    directive("ProxyRequests", Where::SERVER, Shape::Flag, "Off", "on if the true proxy requests should be accepted", requests),
    directive("ProxyPassInterpolateEnv", Where::CONFIG, Shape::Flag, "Off", "Interpolate Env Vars in reverse Proxy", interpolate),
    directive("ProxyPass", Where::CONFIG, Shape::Raw, "", "a virtual path and a URL", pass),
    directive("ProxyPassMatch", Where::CONFIG, Shape::Raw, "", "a virtual path and a URL", pass),
    directive("ProxyPassReverse", Where::CONFIG, Shape::OneTwoOrThree, "", "a virtual path and a URL for reverse proxy behaviour", pass_reverse),
    directive("ProxyPassReverseCookiePath", Where::CONFIG, Shape::TwoOrThree, "", "Path rewrite rule for proxying cookies", pass_reverse_cookie),
    directive("ProxyPassReverseCookieDomain", Where::CONFIG, Shape::TwoOrThree, "", "Domain rewrite rule for proxying cookies", pass_reverse_cookie),
    directive("ProxyVia", Where::SERVER, Shape::One, "Off", "Configure Via: proxy header header to one of: on | off | block | full", via),
    directive("ProxyErrorOverride", Where::CONFIG, Shape::Iterate, "Off", "use our error handling pages instead of the servers' we are proxying", error_override),
    directive("ProxyPreserveHost", Where::CONFIG, Shape::Flag, "Off", "on if we should preserve host header while proxying", switch),
    directive("ProxyTimeout", Where::SERVER, Shape::One, "", "Set the timeout (in seconds) for a proxied connection. This overrides the server timeout", timeout),
    directive("ProxyPassInherit", Where::SERVER, Shape::Flag, "On", "on if this server should inherit all ProxyPass directives defined in the main server (Setting to off recommended if using the Balancer Manager)", accepted),
    directive("ProxyStatus", Where::SERVER, Shape::One, "Off", "Configure Status: proxy status to one of: on | off | full", status),
    directive("ProxySet", Where::CONFIG, Shape::Raw, "", "A balancer or worker name with list of params", set),
    directive("ProxyAddHeaders", Where::CONFIG, Shape::Flag, "On", "on if X-Forwarded-* headers should be added or completed", switch),
    directive("Proxy100Continue", Where::CONFIG, Shape::Flag, "On", "on if 100-Continue should be forwarded to the origin server, off if the proxy should handle it by itself", switch),
    directive("ProxyIOBufferSize", Where::SERVER, Shape::One, "", "IO buffer size for outgoing HTTP and FTP connections in bytes", accepted),
    directive("ProxyReceiveBufferSize", Where::SERVER, Shape::One, "", "Receive buffer size for outgoing HTTP and FTP connections in bytes", accepted),
    directive("ProxyBadHeader", Where::SERVER, Shape::One, "", "How to handle bad header line in response: IsError | Ignore | StartBody", bad_header),
    directive("ProxyMaxForwards", Where::SERVER, Shape::One, "-1", "The maximum number of proxies a request may be forwarded through.", most_forwards),
    directive("BalancerMember", Where::CONFIG, Shape::Raw, "", "A balancer name and scheme with list of params", balancer_member),
    directive("BalancerGrowth", Where::SERVER, Shape::One, "", "Number of additional Balancers that can be added post-config", refused),
    directive("BalancerPersist", Where::SERVER, Shape::Flag, "Off", "on if the balancer should persist changes on reboot/restart made via the Balancer Manager", refused),
    directive("BalancerInherit", Where::SERVER, Shape::Flag, "On", "on if this server should inherit Balancers and Workers defined in the main server (Setting to off recommended if using the Balancer Manager)", balancer_inherit),
    directive("ProxySourceAddress", Where::SERVER, Shape::One, "", "Configure local source IP used for request forward", refused),
    directive("ProxyRemote", Where::SERVER, Shape::TwoOrThree, "", "a scheme, partial URL or '*' and a proxy server", refused),
    directive("ProxyRemoteMatch", Where::SERVER, Shape::TwoOrThree, "", "a regex pattern and a proxy server", refused),
    directive("ProxyBlock", Where::SERVER, Shape::Iterate, "", "A list of names, hosts or domains to which the proxy will not connect", refused),
    directive("NoProxy", Where::SERVER, Shape::Iterate, "", "A list of domains, hosts, or subnets to which the proxy will connect directly", refused),
    directive("ProxyDomain", Where::SERVER, Shape::One, "", "The default intranet domain name (in absence of a domain in the URL)", refused),
];

const PROXY: Where = Where::SERVER.with(Contexts::NOT_IN_DIR_CONTEXT);

/// mod_proxy.
pub const MODULE: Module = Module {
    file: "mod_proxy.c",
    identifier: "proxy_module",
    active: Active::WhenNamed,
    page: "mod_proxy",
    subject: "Requests that are passed on to HTTP servers and FastCGI applications.",
    remarks: &[
        "Requests are passed on to `http:`, `https:`, `ws:`, `wss:`, `balancer:` and `fcgi:`. A \
         target with another scheme and a forward proxy (ProxyRequests On) are refused when the \
         configuration is read.",
        "Scheme, host and socket of a target are the configuration's: a reference to a group of \
         ProxyPassMatch stands in the path only.",
        "The parameter `mapping` of ProxyPass is refused.",
        "As in Apache, ProxyPass in `<Location>` or `<LocationMatch>` reads a path with `*`, `?` or \
         `[...]` as a regular expression, and any other one as the beginning of paths.",
        "As in Apache, a virtual host tries the rules of the main server before its own, whatever \
         ProxyPassInherit says.",
        "ProxyPassReverse and its kin, ProxyAddHeaders, ProxyPreserveHost and ProxyVia have no \
         effect on FastCGI. ProxyStatus has no effect.",
        "Of the parameters of a target, `timeout` and `connectiontimeout` act, and on an HTTP \
         server also `disablereuse`, `enablereuse`, `ttl`, `responsefieldsize` and `upgrade`. The \
         others are checked alone. A request to a FastCGI application has a connection of its \
         own, as without enablereuse in Apache.",
        "`retry` has no effect, as in Apache for a target that is in no balancer: each request \
         tries to connect.",
        "ProxyBadHeader StartBody is IsError: a line of a head is never sent as the beginning of a \
         body.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn accepted(_: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    Ok(())
}

fn refused(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    Err(format!(
        "{} is not there yet: this server passes requests on to single servers and applications",
        call.name
    ))
}

fn balancer_inherit(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match call.flag {
        true => Ok(()),
        false => Err("BalancerInherit Off is not there yet".into()),
    }
}

fn requests(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match call.flag {
        true => Err("ProxyRequests On is not there yet: this server is no forward proxy".into()),
        false => Ok(()),
    }
}

fn interpolate(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match call.flag {
        true => Err("ProxyPassInterpolateEnv On is not there yet".into()),
        false => Ok(()),
    }
}

fn via(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.proxy.via = Some(match call.first().to_ascii_lowercase().as_str() {
        "on" => Via::On,
        "off" => Via::Off,
        "block" => Via::Block,
        "full" => Via::Full,
        _ => return Err("ProxyVia must be one of: off | on | full | block".into()),
    });
    Ok(())
}

fn bad_header(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let skips = match call.first().to_ascii_lowercase().as_str() {
        "iserror" | "startbody" => false,
        "ignore" => true,
        _ => return Err("ProxyBadHeader must be one of: IsError | Ignore | StartBody".into()),
    };
    scope.server.proxy.skips_bad_fields = Some(skips);
    Ok(())
}

/// ProxyPreserveHost, ProxyAddHeaders and Proxy100Continue.
fn switch(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let settings = &mut scope.directory.proxy;
    let switch = match call.name {
        "ProxyPreserveHost" => &mut settings.preserve_host,
        "ProxyAddHeaders" => &mut settings.add_headers,
        _ => &mut settings.forward_continue,
    };
    *switch = Some(call.flag);
    Ok(())
}

/// ProxyPassReverse. In a section, the path is that of the section (mod_proxy.c: add_pass_reverse).
fn pass_reverse(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    call.check_place(Contexts::NOT_IN_DIRECTORY.with(Contexts::NOT_IN_FILES))?;
    let (first, second) = (call.first(), call.words.get(1));
    // The word has no effect without ProxyPassInterpolateEnv.
    let is_option = |word: &str| word.eq_ignore_ascii_case("interpolate");
    let path = match &scope.place {
        Place::Server => None,
        Place::Location(path) | Place::LocationMatch(path) | Place::Proxy(path) => {
            Some(path.to_string())
        }
        _ => return Err(format!("{} in this section is not there yet", call.name)),
    };
    let (fake, real) = match (path, second) {
        (None, None) => {
            return Err("ProxyPassReverse needs a path when not defined in a location".into());
        }
        (None, Some(second)) => (first.to_owned(), second.as_str()),
        (Some(_), Some(second)) if !is_option(second) => {
            return Err("ProxyPassReverse can not have a path when defined in a location".into());
        }
        (Some(path), _) => (path, first),
    };
    let mapping = Mapping { real: unquoted(real).into(), public: unquoted(&fake).into() };
    scope.directory.proxy.reverses.push(Arc::new(mapping));
    Ok(())
}

/// ProxyPassReverseCookiePath and ProxyPassReverseCookieDomain.
fn pass_reverse_cookie(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (real, public) = (argument(call, 0), argument(call, 1));
    let mapping =
        Arc::new(Mapping { real: unquoted(real).into(), public: unquoted(public).into() });
    match call.name {
        "ProxyPassReverseCookiePath" => scope.directory.proxy.cookie_paths.push(mapping),
        _ => scope.directory.proxy.cookie_domains.push(mapping),
    }
    Ok(())
}

fn status(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match call.first().to_ascii_lowercase().as_str() {
        "on" | "off" | "full" => Ok(()),
        _ => Err("ProxyStatus must be one of: off | on | full".into()),
    }
}

fn timeout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let seconds = call.first().parse().ok().filter(|seconds| *seconds >= 1);
    let seconds = seconds.ok_or("Proxy Timeout must be at least 1 second.")?;
    scope.server.proxy.timeout = Some(Duration::from_secs(seconds));
    Ok(())
}

/// As Apache's atol(3), which reads the digits at the front.
fn most_forwards(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = call.first();
    let end = text.char_indices().find(|(at, it)| !it.is_ascii_digit() && (*at > 0 || *it != '-'));
    let number = text.get(..end.map_or(text.len(), |(at, _)| at)).unwrap_or_default();
    scope.server.proxy.most_forwards = Some(number.parse().unwrap_or(0));
    Ok(())
}

fn error_override(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    let before = scope.directory.proxy.errors.take();
    let said = match (word.to_ascii_lowercase().as_str(), before) {
        ("on", Some(ErrorOverride::Statuses(statuses))) => ErrorOverride::Statuses(statuses),
        ("on", _) => ErrorOverride::On,
        ("off", _) => ErrorOverride::Off,
        (_, None) => {
            return Err("ProxyErrorOverride first parameter must be one of: off | on".into());
        }
        (_, Some(_)) if !word.starts_with(|first: char| first.is_ascii_digit()) => {
            return Err("ProxyErrorOverride: status codes to intercept must be numeric".into());
        }
        (_, Some(ErrorOverride::Off)) => {
            let text = "ProxyErrorOverride: status codes must follow a value of 'on'";
            return Err(text.into());
        }
        (_, Some(before)) => {
            let status = word.parse().ok().filter(|status| (400..600).contains(status));
            let status = status.ok_or(
                "ProxyErrorOverride: status codes to intercept must be valid HTTP Status Codes \
                 >=400 && <600",
            )?;
            let before = match before {
                ErrorOverride::Statuses(statuses) => statuses.to_vec(),
                ErrorOverride::On | ErrorOverride::Off => Vec::new(),
            };
            ErrorOverride::Statuses([before, vec![status]].concat().into())
        }
    };
    scope.directory.proxy.errors = Some(said);
    Ok(())
}

/// The folder that relative paths of sockets refer to (DefaultRuntimeDir).
fn runtime_dir(scope: &Scope) -> PathBuf {
    scope.server_path(scope.global().core.runtime_dir.as_deref().unwrap_or("/var/run/apache2"))
}

fn target(scope: &Scope, what: &str, text: &str) -> Result<Target, String> {
    let target = Target::parse(text, &runtime_dir(scope)).map_err(|bad| match bad {
        BadTarget::Malformed if text.starts_with("unix:") => {
            format!("{what} uses an invalid \"unix:\" URL")
        }
        BadTarget::Malformed => format!("{what} Unable to parse URL: {text}"),
        BadTarget::Scheme(scheme) => {
            format!(
                "{what} {text}: {scheme}: is not there yet, this server passes requests on \
                 to http:, https:, ws:, wss:, balancer: and fcgi: alone"
            )
        }
    })?;
    match target.host.contains('$') || format!("{:?}", target.address).contains('$') {
        true => Err(format!("{what} {text}: a reference may stand in the path only")),
        false => Ok(target),
    }
}

fn pass(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    call.check_place(Contexts::NOT_IN_DIRECTORY.with(Contexts::NOT_IN_FILES))?;
    let what = "ProxyPass";
    let mut is_pattern = call.name == "ProxyPassMatch";
    let of_section = match &scope.place {
        Place::Server => None,
        Place::Location(path) | Place::LocationMatch(path) => Some(path.to_string()),
        _ => return Err(format!("{} in this section is not there yet", call.name)),
    };
    let in_section = of_section.is_some();
    // mod_proxy.c: add_pass. A section does not say whether its text is a pattern.
    if let Some(path) = &of_section {
        is_pattern |= evenkeel_expr::is_glob(path.as_bytes());
    }
    let (mut from, mut to, mut rest) = (of_section, None, Vec::new());
    for word in words(call.raw) {
        match (&from, &to) {
            (None, _) if word == "~" && is_pattern => {
                return Err("ProxyPassMatch invalid syntax ('~' usage).".into());
            }
            (None, _) if word == "~" => is_pattern = true,
            (None, _) => from = Some(word),
            (_, None) => to = Some(word),
            _ => rest.push(word),
        }
    }
    let (Some(from), Some(to)) = (from, to) else {
        return Err("ProxyPass|ProxyPassMatch needs a path when not defined in a location".into());
    };
    if in_section && to.starts_with('/') {
        let text = "ProxyPass|ProxyPassMatch can not have a path when defined in a location.";
        return Err(text.into());
    }
    let (mut is_raw, mut without_query, mut parameters) = (false, false, Vec::new());
    for word in rest {
        match word.to_ascii_lowercase().as_str() {
            "nocanon" => is_raw = true,
            "noquery" => without_query = true,
            // The parameter has no effect without ProxyPassInterpolateEnv.
            "interpolate" => {}
            _ => match word.split_once('=') {
                None => {
                    return Err("Invalid ProxyPass|ProxyPassMatch parameter. Parameter must be \
                                in the form 'key=value'."
                        .into());
                }
                Some((key, _)) if key.eq_ignore_ascii_case("mapping") => {
                    return Err("ProxyPass mapping= is not there yet".into());
                }
                Some((key, value)) => parameters.push((key.to_owned(), value.to_owned())),
            },
        }
    }
    let from = match is_pattern {
        true => From::Pattern(
            scope
                .compile_pattern(&from)
                .map_err(|_| "Regular expression could not be compiled.")?,
        ),
        false => From::Prefix(unquoted(&from).into()),
    };
    let target = match &*to {
        "!" => None,
        to => Some(target(scope, what, to)?),
    };
    match &target {
        Some(target) if target.scheme == Scheme::Balancer => {
            set_balancer(scope, what, &target.host, &parameters)?;
        }
        Some(target) => add_worker(scope, call, target, &parameters)?,
        None => {}
    }
    let url = to.split_once('|').map_or(&*to, |(_, url)| url).into();
    let pass = Pass { from, url, target: target.map(Arc::new), is_raw, without_query };
    match in_section {
        true => scope.directory.proxy.pass = Some(Arc::new(pass)),
        false => scope.server.proxy.passes.push(Arc::new(pass)),
    }
    Ok(())
}

/// Adds the target of ProxyPass with its parameters. A target whose URL begins with that of an
/// earlier one shares the parameters of that one, and its own are ignored (mod_proxy.c: add_pass).
fn add_worker(
    scope: &mut Scope,
    call: &Call<'_>,
    target: &Target,
    parameters: &[(String, String)],
) -> Result<(), String> {
    let workers = &scope.server.proxy.workers;
    let sharing = workers.iter().filter(|worker| worker.is_prefix_of(target));
    let sharing = sharing.max_by_key(|worker| worker.target.path.len()).cloned();
    let Some(shared) = sharing else {
        return set_parameters(scope, "ProxyPass", target, parameters);
    };
    let mut checked = Worker::new(target.clone());
    for (key, value) in parameters {
        set_worker(scope, &mut checked, key, value)
            .map_err(|error| format!("ProxyPass {error}"))?;
        let text = format!(
            "Ignoring parameter '{key}={value}' for worker '{}' because of worker sharing",
            shared.target
        );
        call.warn("proxy", 1146, text);
    }
    Ok(())
}

/// Adds parameters to a target. ProxySet replaces parameters that are set already; ProxyPass and
/// `<Proxy>` keep them.
fn set_parameters(
    scope: &mut Scope,
    what: &str,
    target: &Target,
    parameters: &[(String, String)],
) -> Result<(), String> {
    let mut worker = Worker::new(target.clone());
    for (key, value) in parameters {
        set_worker(scope, &mut worker, key, value).map_err(|error| format!("{what} {error}"))?;
    }
    let workers = &mut scope.server.proxy.workers;
    let known = workers.iter().position(|worker| worker.target == *target);
    if let Some(known) = known.map(|place| workers.remove(place)) {
        worker = match what {
            "ProxySet" => worker.or(&known),
            _ => known.or(&worker),
        };
    }
    workers.push(Arc::new(worker));
    Ok(())
}

/// Sets a parameter of a target that is in no balancer. Its health is not checked, but the
/// parameters of a check are.
fn set_worker(scope: &Scope, worker: &mut Worker, key: &str, value: &str) -> Result<(), String> {
    if !health::is_active(scope) {
        return worker.set(key, value);
    }
    let set = Check::default().set(key, value, &scope.server.proxy.health);
    set.unwrap_or_else(|| named_by_checks(worker.set(key, value)))
}

/// Sets a parameter of a member.
fn set_member(scope: &Scope, member: &mut Member, key: &str, value: &str) -> Result<(), String> {
    if !health::is_active(scope) {
        return member.set(key, value);
    }
    let set = member.set_check(key, value, &scope.server.proxy.health);
    set.unwrap_or_else(|| named_by_checks(member.set(key, value)))
}

/// With mod_proxy_hcheck, it is that module which does not know a parameter.
fn named_by_checks(set: Result<(), String>) -> Result<(), String> {
    set.map_err(|error| match error == UNKNOWN_PARAMETER {
        true => health::UNKNOWN.to_owned(),
        false => error,
    })
}

fn key_values(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |word: String| {
        let (key, value) = word.split_once('=')?;
        Some((key.to_owned(), value.to_owned()))
    };
    let pairs: Option<Vec<_>> = words(text).into_iter().map(pair).collect();
    pairs.ok_or_else(|| "Invalid Proxy parameter. Parameter must be in the form 'key=value'".into())
}

/// ProxySet. In a `<Proxy>` section, the application is that of the section.
fn set(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (url, parameters) = match &scope.place {
        Place::Proxy(url) => (url.to_string(), call.raw),
        _ => next_word(call.raw),
    };
    let pairs = key_values(parameters)
        .map_err(|_| "Invalid ProxySet parameter. Parameter must be in the form 'key=value'")?;
    let target = target(scope, "ProxySet", &url)?;
    if target.scheme != Scheme::Balancer {
        return set_parameters(scope, "ProxySet", &target, &pairs);
    }
    let is_section = matches!(scope.place, Place::Proxy(_));
    if !is_section && scope.server.proxy.balancer(&target.host).is_none() {
        return Err(format!("ProxySet can not find '{url}' Balancer."));
    }
    set_balancer(scope, "ProxySet", &target.host, &pairs)
}

/// Changes the balancer with this name, which is made if there is none.
fn change_balancer<R>(scope: &mut Scope, name: &str, change: impl FnOnce(&mut Balancer) -> R) -> R {
    let balancers = &mut scope.server.proxy.balancers;
    let at = balancers.iter().position(|balancer| balancer.name.eq_ignore_ascii_case(name));
    let mut balancer = match at {
        Some(at) => balancers.remove(at),
        None => Arc::new(Balancer::new(name)),
    };
    let result = change(Arc::make_mut(&mut balancer));
    balancers.push(balancer);
    result
}

/// Sets parameters of a balancer.
fn set_balancer(
    scope: &mut Scope,
    what: &str,
    name: &str,
    parameters: &[(String, String)],
) -> Result<(), String> {
    change_balancer(scope, name, |balancer| {
        parameters.iter().try_for_each(|(key, value)| balancer.set(key, value))
    })
    .map_err(|error| format!("{what} {error}"))
}

/// BalancerMember. In a `<Proxy>` section, the balancer is that of the section (mod_proxy.c:
/// add_member).
fn balancer_member(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let words = words(call.raw);
    let (balancer, words) = match (&scope.place, words.split_first()) {
        (Place::Proxy(url), _) => (url.to_string(), &*words),
        (_, Some((url, words))) => (url.clone(), words),
        (_, None) => (String::new(), &*words),
    };
    let Some((url, parameters)) = words.split_first() else {
        return Err("BalancerMember must define remote proxy server".into());
    };
    let what = "BalancerMember";
    let name = target(scope, what, &balancer)?;
    if name.scheme != Scheme::Balancer {
        return Err(format!("{what} {balancer}: members are of a balancer: alone"));
    }
    let member_target = target(scope, what, url)?;
    if member_target.scheme == Scheme::Balancer || !member_target.scheme.is_http() {
        let scheme = member_target.scheme.name();
        return Err(format!("{what} {url}: a member with {scheme}: is not there yet"));
    }
    let mut member = Member::new(Worker::new(member_target));
    for parameter in parameters {
        let (key, value) = parameter
            .split_once('=')
            .ok_or("Invalid BalancerMember parameter. Parameter must be in the form 'key=value'")?;
        set_member(scope, &mut member, key, value).map_err(|error| format!("{what} {error}"))?;
    }
    change_balancer(scope, &name.host, |balancer| balancer.members.push(Arc::new(member)));
    Ok(())
}

/// Reads a `<Proxy>` or `<ProxyMatch>` section. Its settings apply to requests that ProxyPass or
/// mod_rewrite passes on to its URL. Words behind the URL are parameters of the application.
fn proxy_section(scope: &mut Scope, block: &Block<'_, Scope>) -> Result<(), Fault> {
    let name = block.call.name;
    let (url, rest) = next_word(block.argument()?);
    let url = strip_scheme(&url).to_owned();
    let matches = match name {
        "<ProxyMatch" => compile_pattern(scope, block, &url)?,
        _ => plain(&url),
    };
    let place = Place::Proxy(url.as_str().into());
    let settings = inner_settings(scope, block, place, &url)?;
    let section = numbered(scope, block, Kind::Proxy, matches, settings);
    scope.server.proxy.sections.push(section);
    if !rest.is_empty() {
        if name == "<ProxyMatch" {
            let text = "Multiple <ProxyMatch> arguments not (yet) supported.";
            return Err(block.fault(text));
        }
        if evenkeel_expr::is_glob(url.as_bytes()) {
            let text = format!("{name}> arguments are not supported for wildchar url.");
            return Err(block.fault(text));
        }
        if !url.contains(':') {
            return Err(block.fault(format!("{name}> arguments are not supported for non url.")));
        }
        let target = target(scope, name, &url).map_err(|text| block.fault(text))?;
        let pairs = key_values(rest).map_err(|text| block.fault(text))?;
        if target.scheme == Scheme::Balancer {
            return set_balancer(scope, name, &target.host, &pairs)
                .map_err(|text| block.fault(text));
        }
        set_parameters(scope, name, &target, &pairs).map_err(|text| block.fault(text))?;
    }
    Ok(())
}

/// The URL of a section without `proxy:` before it.
fn strip_scheme(url: &str) -> &str {
    const SCHEME: &str = "proxy:";
    match url.split_at_checked(SCHEME.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => rest,
        _ => url,
    }
}
