//! The directives of mod_include.

use super::{INCLUDES, XBitHack};
use crate::{
    Active, Directive, DirectiveResult, Module, Provided, Scope, Where, argument, directive,
};
use evenkeel_config::{Call, Shape};
use evenkeel_message::unquoted;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("XBitHack", Where::OPTIONS, Shape::One, "Off", "Off, On, or Full", x_bit_hack),
    directive("SSIErrorMsg", Where::ANYWHERE, Shape::One, "[an error occurred while processing this directive]", "a string", error_message).of_bytes(),
    directive("SSITimeFormat", Where::ANYWHERE, Shape::One, "%A, %d-%b-%Y %H:%M:%S %Z", "a strftime(3) formatted string", time_format).of_bytes(),
    directive("SSIStartTag", Where::SERVER, Shape::One, "<!--#", "SSI Start String Tag", start_tag).of_bytes(),
    directive("SSIEndTag", Where::SERVER, Shape::One, "-->", "SSI End String Tag", end_tag).of_bytes(),
    directive("SSIUndefinedEcho", Where::ANYWHERE, Shape::One, "(none)", "String to be displayed if an echoed variable is undefined", undefined).of_bytes(),
    directive("SSILegacyExprParser", Where::LIMIT, Shape::Flag, "Off", "Whether to use the legacy expression parser compatible with <= 2.2.x. Limited to 'on' or 'off'", legacy),
    directive("SSILastModified", Where::LIMIT, Shape::Flag, "Off", "Whether to set the last modified header or respect an existing header. Limited to 'on' or 'off'", last_modified),
    directive("SSIEtag", Where::LIMIT, Shape::Flag, "Off", "Whether to allow the generation of ETags within the server. Existing ETags will be preserved. Limited to 'on' or 'off'", etag),
];

/// mod_include.
pub const MODULE: Module = Module {
    file: "mod_include.c",
    identifier: "include_module",
    active: Active::WhenNamed,
    page: "mod_include",
    subject: "Server-side includes: the output filter `INCLUDES` replaces the elements of a page, \
              where `Options Includes` or `IncludesNOEXEC` lets it. A page is sent while it is \
              parsed. What it includes is asked for as a client would ask: with the access rules, \
              the handlers and the filters of its own place.",
    remarks: &[
        "A client's request makes at most 5,000 subrequests for its pages, nested ones included, \
         and LimitInternalRecursion bounds how deep they are nested. An element is at most 1 MiB \
         long.",
        "The command of `exec cmd` is run by `/bin/sh -c` as User, started by the launcher of CGI \
         programs. Its standard error is in the error log.",
        "A page that is parsed before its client takes it has a Content-Length. Apache sends it in \
         chunks.",
    ],
    directives: &[DIRECTIVES],
    provides: &[Provided::OutputFilter(INCLUDES)],
};

fn bytes(call: &Call<'_>) -> Arc<[u8]> {
    unquoted(argument(call, 0)).into_owned().into()
}

fn x_bit_hack(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let said = match argument(call, 0).to_ascii_lowercase().as_str() {
        "off" => XBitHack::Off,
        "on" => XBitHack::On,
        "full" => XBitHack::Full,
        _ => return Err("XBitHack must be set to Off, On, or Full".into()),
    };
    scope.directory.include.change().x_bit_hack = Some(said);
    Ok(())
}

fn error_message(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.include.change().error_message = Some(bytes(call));
    Ok(())
}

fn time_format(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.include.change().time_format = Some(bytes(call));
    Ok(())
}

fn undefined(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.include.change().undefined = Some(bytes(call));
    Ok(())
}

fn legacy(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.include.change().legacy = Some(call.flag);
    Ok(())
}

fn last_modified(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.include.change().last_modified = Some(call.flag);
    Ok(())
}

fn etag(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.include.change().etag = Some(call.flag);
    Ok(())
}

/// A tag has no space in it. An empty one would stand everywhere.
fn tag(call: &Call<'_>) -> Result<Arc<[u8]>, String> {
    let tag = bytes(call);
    if tag.iter().any(|byte| super::parser::is_space(*byte)) {
        return Err(format!("{} may not contain any whitespaces", call.name));
    }
    if tag.is_empty() {
        return Err(format!("{} may not be empty", call.name));
    }
    Ok(tag)
}

fn start_tag(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.include.start = Some(tag(call)?);
    Ok(())
}

fn end_tag(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.include.end = Some(tag(call)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Options;
    use crate::testing::apply;

    #[test]
    fn what_is_said_of_pages_is_kept() {
        let text = "XBitHack full\nSSIErrorMsg !\nSSITimeFormat %Y\nSSIUndefinedEcho ?";
        let said = apply(MODULE, text).unwrap().directory.into_settings().include;
        let page = said.page(b"/x", Options::INCLUDES, true);
        assert_eq!((page.error_message, page.time_format), (b"!".to_vec(), b"%Y".to_vec()));
        assert!(!page.is_legacy && !page.may_exec && said.looks_at_permissions());
        let refused = |text: &str| apply(MODULE, text).map(|_| ()).unwrap_err();
        assert_eq!(refused("XBitHack x"), "XBitHack must be set to Off, On, or Full");
        assert_eq!(refused("SSIStartTag \"a b\""), "SSIStartTag may not contain any whitespaces");
    }
}
