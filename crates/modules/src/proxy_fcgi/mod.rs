//! mod_proxy_fcgi: the variables that are sent to a FastCGI application. [`script`] names the
//! script, and [`fix_variables`] applies ProxyFCGISetEnvIf after all other variables are set.

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::gateway::{Script, url_as_file};
use crate::settings::merged;
use crate::{
    Active, Directive, DirectiveResult, Merge, Module, RequestContext, Scope, Where, argument,
    directive,
};
use evenkeel_config::{Call, Shape};
use evenkeel_expr::{Condition, Evaluation, Text};
use evenkeel_message::{Answer, Level, Notice, Proxied, Request, Status, Variables, quoted};
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("ProxyFCGIBackendType", Where::FILE_INFO, Shape::One, "FPM", "Specify the type of FastCGI server: 'Generic', 'FPM'", backend_type),
    directive("ProxyFCGISetEnvIf", Where::FILE_INFO, Shape::TwoOrThree, "", "expr-condition env-name expr-value", set_env_if).of_bytes(),
];

/// mod_proxy_fcgi.
pub const MODULE: Module = Module {
    file: "mod_proxy_fcgi.c",
    identifier: "proxy_fcgi_module",
    active: Active::WhenNamed,
    page: "mod_proxy_fcgi",
    subject: "PHP by php-fpm, and other FastCGI applications.",
    remarks: &[
        "The body of a request is read whole before the application is asked, up to 64 KiB in \
         memory and more in /var/tmp. A slow client holds no worker of the application, and a \
         chunked body has a CONTENT_LENGTH. Apache streams it.",
        "A response whose end is there together with its head has a Content-Length.",
        "A response that the application ends within its head is answered with 500. Apache sends \
         200 with an empty page or with the part of the head that has come as its text.",
        "A script whose head is malformed is answered with the page of 500. Apache sends 500 \
         without a page.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The values of ProxyFCGIBackendType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendType {
    /// php-fpm, which strips `proxy:fcgi://host` from SCRIPT_FILENAME.
    Fpm,
    /// Any other application.
    Generic,
}

/// The variable that says how PATH_INFO is made of the path of the target.
const PATH_INFO_RULE: &str = "proxy-fcgi-pathinfo";

/// One ProxyFCGISetEnvIf.
#[derive(Debug)]
pub struct Fixup {
    condition: Condition,
    name: Box<[u8]>,
    /// The value. `None` removes the variable.
    value: Option<Text>,
}

/// The settings of one section.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// ProxyFCGIBackendType.
    pub backend_type: Option<BackendType>,
    /// ProxyFCGISetEnvIf, in order.
    pub fixups: Vec<Arc<Fixup>>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        let Self { backend_type, fixups } = over;
        self.backend_type.add(backend_type);
        self.fixups.extend_from_slice(fixups);
    }
}

fn backend_type(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let said = match call.first().to_ascii_lowercase().as_str() {
        "fpm" => BackendType::Fpm,
        "generic" => BackendType::Generic,
        _ => {
            return Err("ProxyFCGIBackendType requires one of the following arguments: \
                        'GENERIC', 'FPM'"
                .into());
        }
    };
    scope.directory.proxy_fcgi.backend_type = Some(said);
    Ok(())
}

fn set_env_if(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (condition, name, value) = (argument(call, 0), argument(call, 1), call.words.get(2));
    let unparsed = |text: &str, error| format!("Could not parse expression \"{text}\": {error}");
    let compiled =
        scope.compile_condition(condition).map_err(|error| unparsed(condition, error))?;
    let (name, value) = match (name.strip_prefix('!'), value) {
        (Some(_), Some(value)) => {
            return Err(format!(
                "Third argument (\"{value}\") is not allowed when using ProxyFCGISetEnvIf's unset \
                 mode ({name})"
            ));
        }
        (Some(""), None) => {
            return Err("ProxyFCGISetEnvIf: \"!\" is not a valid variable name".into());
        }
        (Some(name), None) => (name, None),
        (None, value) => {
            let text = value.map_or("", String::as_str);
            let compiled = scope.compile_text(text).map_err(|error| unparsed(text, error))?;
            (name, Some(compiled))
        }
    };
    let name = evenkeel_message::unquoted(name).into();
    let fixup = Fixup { condition: compiled, name, value };
    scope.directory.proxy_fcgi.fixups.push(Arc::new(fixup));
    Ok(())
}

/// Names the script of a target (mod_proxy_fcgi.c: `proxy_fcgi_canon`, `send_environment`).
///
/// # Errors
/// 403 if a path without percent-encoding contains a control character, or a `?` for php-fpm.
pub fn script(
    request: &mut Request,
    proxied: &Proxied,
    settings: &Directory,
) -> Result<Script, Answer> {
    let may_be_fpm = settings.backend_type != Some(BackendType::Generic);
    let is_odd = |byte: &u8| byte.is_ascii_control() || (may_be_fpm && *byte == b'?');
    if proxied.is_raw && proxied.path.iter().any(is_odd) {
        let what = if may_be_fpm { " or '?'" } else { "" };
        let text = format!(
            "To be forwarded path contains control characters{what} ({})",
            quoted(&proxied.path)
        );
        request.notify(Notice::new("proxy_fcgi", Level::Error, 10414, text));
        return Err(Status::FORBIDDEN.into());
    }
    let (path, mut path_info) = (&*proxied.path, request.resource.path_info.clone());
    if let Some(rule) = request.resource.env.value(PATH_INFO_RULE) {
        split_path(path, &mut path_info, rule);
    }
    let file = match may_be_fpm {
        true => url_as_file(&proxied.target, path),
        false => path.to_vec(),
    };
    Ok(Script { file, path_info })
}

/// Returns the path that has to be looked up in the file system to name the script: that of the
/// target, without percent-encoding. Returns `None` unless the variable proxy-fcgi-pathinfo asks
/// for it with the value `full`.
#[must_use]
pub fn path_of_file(request: &Request, proxied: &Proxied) -> Option<Vec<u8>> {
    let rule = request.resource.env.value(PATH_INFO_RULE)?;
    rule.eq_ignore_ascii_case(b"full").then(|| match proxied.is_raw {
        true => proxied.path.clone(),
        false => decoded(&proxied.path, |_| true),
    })
}

/// Sets PATH_INFO by the rule in the variable proxy-fcgi-pathinfo.
fn split_path(path: &[u8], path_info: &mut Vec<u8>, rule: &[u8]) {
    let is = |name: &str| rule.eq_ignore_ascii_case(name.as_bytes());
    let dot = match () {
        () if is("full") => return,
        () if is("first-dot") => path.iter().position(|byte| *byte == b'.'),
        () if is("last-dot") => path.iter().rposition(|byte| *byte == b'.'),
        () => {
            *path_info = match is("unescape") {
                true => unescaped(path),
                false => path.to_vec(),
            };
            return;
        }
    };
    let slash = dot.and_then(|dot| {
        let behind = path.get(dot..)?.iter().position(|byte| *byte == b'/')?;
        Some(dot + behind)
    });
    if let Some(slash) = slash {
        *path_info = unescaped(path.get(slash..).unwrap_or_default());
    }
}

/// Decodes the percent-encoding of a path, but not `%2F` and `%00` (util.c:
/// `ap_unescape_url_keep2f`).
fn unescaped(path: &[u8]) -> Vec<u8> {
    decoded(path, |byte| !matches!(byte, b'/' | 0))
}

/// Decodes the percent-encoding of the bytes that `takes` accepts.
fn decoded(path: &[u8], takes: impl Fn(u8) -> bool) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(path.len()), path);
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    while let [first, behind @ ..] = rest {
        rest = behind;
        if let (b'%', [high, low, after @ ..]) = (first, behind)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
            && takes((high << 4) | low)
        {
            out.push((high << 4) | low);
            rest = after;
            continue;
        }
        out.push(*first);
    }
    out
}

/// Applies ProxyFCGISetEnvIf to the variables (mod_proxy_fcgi.c: `fix_cgivars`).
///
/// # Errors
/// 503 if a condition cannot be evaluated.
pub fn fix_variables(
    request: &mut Request,
    variables: Variables,
    settings: &Directory,
    core: crate::CoreSettings<'_>,
) -> Result<Variables, Answer> {
    if settings.fixups.is_empty() {
        return Ok(variables);
    }
    // Expressions look variables up in the environment of the request.
    let outer = std::mem::replace(&mut request.resource.env, variables);
    let mut fixed = Ok(());
    for fixup in &settings.fixups {
        fixed = fix(request, fixup, core);
        if fixed.is_err() {
            break;
        }
    }
    let variables = std::mem::replace(&mut request.resource.env, outer);
    fixed.map(|()| variables)
}

fn fix(request: &mut Request, fixup: &Fixup, core: crate::CoreSettings<'_>) -> Result<(), Answer> {
    let context = RequestContext::new(request, core);
    let mut evaluation = Evaluation::new(&context);
    let holds = match evaluation.holds(&fixup.condition) {
        Ok(holds) => holds,
        Err(error) => {
            let text = format!("fix_cgivars: Condition eval returned -1: {error}");
            request.notify(Notice::new("proxy_fcgi", Level::Error, 10241, text));
            return Err(Status::SERVICE_UNAVAILABLE.into());
        }
    };
    if !holds {
        return Ok(());
    }
    let Some(value) = &fixup.value else {
        request.resource.env.unset(&fixup.name);
        return Ok(());
    };
    match evaluation.text(value) {
        Ok(value) => request.resource.env.set(&fixup.name, value),
        Err(error) => {
            let text = format!(
                "Error evaluating expression for replacement of {}: '{error}'",
                quoted(&fixup.name)
            );
            request.notify(Notice::new("proxy_fcgi", Level::Info, 3514, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_but_those_of_slashes_go() {
        assert_eq!(unescaped(b"/a%20b%2Fc%2fd%zz%4"), b"/a b%2Fc%2fd%zz%4");
    }
}
