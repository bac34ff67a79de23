//! mod_mime's directives: lines go in, entries by extension come out.

use super::{Extension, MultiviewsMatch};
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Contexts, Shape};
use std::sync::Arc;

const FILE_INFO: Where = Where::FILE_INFO;
/// Where files have names to negotiate (mod_mime.c: multiviews_match).
const NAMES: Where = Where::FILE_INFO.with(Contexts::NOT_IN_LOCATION).with(Contexts::NOT_IN_LIMIT);

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("AddCharset", FILE_INFO, Shape::IterateTwo, "", "a charset (e.g., iso-2022-jp), followed by one or more file extensions", add_charset),
    directive("AddEncoding", FILE_INFO, Shape::IterateTwo, "", "an encoding (e.g., gzip), followed by one or more file extensions", add_encoding),
    directive("AddHandler", FILE_INFO, Shape::IterateTwo, "", "a handler name followed by one or more file extensions", add_handler),
    directive("AddInputFilter", FILE_INFO, Shape::IterateTwo, "", "input filter name (or ; delimited names) followed by one or more file extensions", add_input_filter),
    directive("AddLanguage", FILE_INFO, Shape::IterateTwo, "", "a language (e.g., fr), followed by one or more file extensions", add_language),
    directive("AddOutputFilter", FILE_INFO, Shape::IterateTwo, "", "output filter name (or ; delimited names) followed by one or more file extensions", add_output_filter),
    directive("AddType", FILE_INFO, Shape::IterateTwo, "", "a mime type followed by one or more file extensions", add_type),
    directive("DefaultLanguage", FILE_INFO, Shape::One, "", "language to use for documents with no other language file extension", default_language),
    directive("MultiviewsMatch", NAMES, Shape::Iterate, "NegotiatedOnly", "NegotiatedOnly (default), Handlers and/or Filters, or Any", multiviews_match),
    directive("RemoveCharset", FILE_INFO, Shape::Iterate, "", "one or more file extensions", remove_charset),
    directive("RemoveEncoding", FILE_INFO, Shape::Iterate, "", "one or more file extensions", remove_encoding),
    directive("RemoveHandler", FILE_INFO, Shape::Iterate, "", "one or more file extensions", remove_handler),
    directive("RemoveInputFilter", FILE_INFO, Shape::Iterate, "", "one or more file extensions", remove_input_filter),
    directive("RemoveLanguage", FILE_INFO, Shape::Iterate, "", "one or more file extensions", remove_language),
    directive("RemoveOutputFilter", FILE_INFO, Shape::Iterate, "", "one or more file extensions", remove_output_filter),
    directive("RemoveType", FILE_INFO, Shape::Iterate, "", "one or more file extensions", remove_type),
    directive("TypesConfig", Where::SERVER, Shape::One, "conf/mime.types", "the MIME types config file", types_config),
    directive("ModMimeUsePathInfo", Where::SECTION, Shape::Flag, "Off", "Set to 'yes' to allow mod_mime to use path info for type checking", use_path_info),
];

/// mod_mime.
pub const MODULE: Module = Module {
    file: "mod_mime.c",
    identifier: "mime_module",
    active: Active::Usually,
    page: "mod_mime",
    subject: "What a file's extensions say of its content.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The entry of an extension, which may be written with its dot and in any case.
fn entry<'a>(scope: &'a mut Scope, extension: &str) -> &'a mut Extension {
    let name = extension.strip_prefix('.').unwrap_or(extension).to_ascii_lowercase();
    let all = Arc::make_mut(&mut scope.directory.mime.extensions);
    all.entry(name.into()).or_default()
}

/// Declares `AddX value extension...` and `RemoveX extension...` for a field. What a section
/// removes it does not add, whatever comes first (mod_mime.c: merge_mime_dir_configs).
macro_rules! extension_fields {
    ($($add:ident, $remove:ident => $field:ident),+ $(,)?) => {
        $(
            fn $add(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
                let field = &mut entry(scope, argument(call, 1)).$field;
                if field.as_deref() != Some("") {
                    *field = Some(value(call));
                }
                Ok(())
            }

            fn $remove(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
                entry(scope, argument(call, 0)).$field = Some("".into());
                Ok(())
            }
        )+
    };
}

/// The value that is added: in lower case, as in Apache; the names of filters have no case.
fn value(call: &Call<'_>) -> Box<str> {
    argument(call, 0).to_ascii_lowercase().into()
}

extension_fields! {
    add_charset, remove_charset => charset,
    add_encoding, remove_encoding => encoding,
    add_handler, remove_handler => handler,
    add_input_filter, remove_input_filter => input_filters,
    add_language, remove_language => language,
    add_output_filter, remove_output_filter => output_filters,
}

/// Of AddType and RemoveType the later one counts.
fn add_type(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    entry(scope, argument(call, 1)).media_type = Some(value(call));
    Ok(())
}

fn remove_type(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    entry(scope, argument(call, 0)).media_type = Some("".into());
    Ok(())
}

fn default_language(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.mime.default_language = Some(argument(call, 0).into());
    Ok(())
}

fn multiviews_match(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    use MultiviewsMatch::{Also, Any, NegotiatedOnly};
    let word = argument(call, 0);
    let said = &mut scope.directory.mime.multiviews_match;
    let also = |word: &str, before: Option<MultiviewsMatch>| match before {
        None => Ok((false, false)),
        Some(Also { handlers, filters }) => Ok((handlers, filters)),
        Some(Any | NegotiatedOnly) => {
            Err(format!("{word} is incompatible with Any and NegotiatedOnly"))
        }
    };
    let now = match (word.to_ascii_lowercase().as_str(), *said) {
        ("any", None | Some(Any)) => Any,
        ("any", _) => {
            return Err("Any is incompatible with NegotiatedOnly, Filters and Handlers".into());
        }
        ("negotiatedonly", None | Some(NegotiatedOnly)) => NegotiatedOnly,
        ("negotiatedonly", _) => {
            return Err("NegotiatedOnly is incompatible with Any, Filters and Handlers".into());
        }
        ("filters", before) => Also { handlers: also("Filters", before)?.0, filters: true },
        ("handlers", before) => Also { handlers: true, filters: also("Handlers", before)?.1 },
        _ => return Err(format!("Unrecognized option '{word}'")),
    };
    *said = Some(now);
    Ok(())
}

fn types_config(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let path = scope.server_path(argument(call, 0));
    // A virtual host may say it to no effect (mod_mime.c: mime_post_config).
    if let Some(call) = call.as_global() {
        scope.global_mut(&call).mime.types_config = Some(path);
    }
    Ok(())
}

fn use_path_info(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.mime.use_path_info = Some(call.flag);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn multiviews_match_adds_filters_to_handlers() {
        let said = |text: &str| {
            apply(MODULE, &format!("MultiviewsMatch {text}"))
                .map(|scope| scope.directory.mime.multiviews_match.unwrap())
        };
        let both = MultiviewsMatch::Also { handlers: true, filters: true };
        assert_eq!(said("Handlers filters"), Ok(both));
        assert_eq!(said("any Any"), Ok(MultiviewsMatch::Any));
        assert_eq!(said("NegotiatedOnly"), Ok(MultiviewsMatch::NegotiatedOnly));
        for clash in ["Any Filters", "Handlers Any", "NegotiatedOnly Any", "Filters NegotiatedOnly"]
        {
            assert!(said(clash).unwrap_err().contains(" is incompatible with "), "{clash}");
        }
        assert_eq!(said("Some").unwrap_err(), "Unrecognized option 'Some'");
    }
}
