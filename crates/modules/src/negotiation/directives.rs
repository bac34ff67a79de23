//! mod_negotiation's directives: lines go in, a list of languages and switches come out.

use super::Force;
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("CacheNegotiatedDocs", Where::SERVER, Shape::Flag, "Off", "Either 'on' or 'off' (default)", cache_negotiated_docs),
    directive("LanguagePriority", Where::FILE_INFO, Shape::Iterate, "", "space-delimited list of MIME language abbreviations", language_priority),
    directive("ForceLanguagePriority", Where::FILE_INFO, Shape::Iterate, "Prefer", "Force LanguagePriority elections, either None, or Fallback and/or Prefer", force_language_priority),
];

/// mod_negotiation.
pub const MODULE: Module = Module {
    file: "mod_negotiation.c",
    identifier: "negotiation_module",
    active: Active::Usually,
    page: "mod_negotiation",
    subject: "Which of several files is sent: by media type, language, charset and encoding, \
              among those of a folder (MultiViews) or of a type map.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// `Off` says nothing: a virtual host cannot take back what the main server says, as in Apache.
fn cache_negotiated_docs(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.negotiation.cache_documents = call.flag.then_some(());
    Ok(())
}

fn language_priority(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let list = scope.directory.negotiation.priority.get_or_insert_default();
    Arc::make_mut(list).push(argument(call, 0).into());
    Ok(())
}

fn force_language_priority(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    let said = &mut scope.directory.negotiation.force;
    let refused =
        |other: &str| format!("Cannot combine ForceLanguagePriority options None and {other}");
    match (word.to_ascii_lowercase().as_str(), *said) {
        ("none", Some(Force { prefer, fallback })) if prefer || fallback => {
            Err("Cannot combine ForceLanguagePriority options with None".into())
        }
        ("none", _) => {
            *said = Some(Force::NONE);
            Ok(())
        }
        ("prefer", Some(Force::NONE)) => Err(refused("Prefer")),
        ("fallback", Some(Force::NONE)) => Err(refused("Fallback")),
        ("prefer", before) => {
            *said = Some(Force { prefer: true, ..before.unwrap_or(Force::NONE) });
            Ok(())
        }
        ("fallback", before) => {
            *said = Some(Force { fallback: true, ..before.unwrap_or(Force::NONE) });
            Ok(())
        }
        _ => Err(format!("Invalid ForceLanguagePriority option {word}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn language_priority_adds_up() {
        let said = apply(MODULE, "LanguagePriority en de\nLanguagePriority pt-BR").unwrap();
        let list = said.directory.into_settings().negotiation.priority.unwrap();
        assert_eq!(list.iter().map(|word| &**word).collect::<Vec<_>>(), ["en", "de", "pt-BR"]);
    }

    #[test]
    fn force_language_priority_is_none_or_others() {
        let force = |text: &str| {
            apply(MODULE, &format!("ForceLanguagePriority {text}"))
                .map(|scope| scope.directory.negotiation.force.unwrap())
        };
        assert_eq!(force("prefer Fallback"), Ok(Force { prefer: true, fallback: true }));
        assert_eq!(force("Fallback"), Ok(Force { prefer: false, fallback: true }));
        assert_eq!(force("None"), Ok(Force::NONE));
        assert!(force("None Prefer").unwrap_err().ends_with("None and Prefer"));
        assert!(force("None Fallback").unwrap_err().ends_with("None and Fallback"));
        assert!(force("Prefer None").unwrap_err().ends_with("options with None"));
        assert_eq!(force("x").unwrap_err(), "Invalid ForceLanguagePriority option x");
    }

    #[test]
    fn cache_negotiated_docs_off_says_nothing() {
        let said = |word: &str| {
            apply(MODULE, &format!("CacheNegotiatedDocs {word}")).unwrap().server.negotiation
        };
        assert_eq!(said("On").cache_documents, Some(()));
        assert_eq!(said("Off").cache_documents, None);
    }
}
