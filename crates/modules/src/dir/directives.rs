//! mod_dir's directives: lines go in, names, switches and statuses come out.

use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_message::Status;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("DirectoryCheckHandler", Where::INDEXES, Shape::Flag, "Off", "On or Off", check_handler),
    directive("DirectoryIndex", Where::INDEXES, Shape::Raw, "index.html", "a list of file names", index),
    directive("DirectoryIndexRedirect", Where::INDEXES, Shape::One, "Off", "On, Off, or a 3xx status code.", index_redirect),
    directive("DirectorySlash", Where::INDEXES, Shape::Flag, "On", "On or Off", slash),
    directive("FallbackResource", Where::INDEXES, Shape::One, "disabled", "Set a default handler", fallback),
];

/// mod_dir.
pub const MODULE: Module = Module {
    file: "mod_dir.c",
    identifier: "dir_module",
    active: Active::Usually,
    page: "mod_dir",
    subject: "The page of a folder, and the slash behind its name.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// Names add up within a section; `disabled` alone on a line forgets those before it.
fn index(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let words = evenkeel_config::words(call.raw);
    let names = scope.directory.dir.index_names.get_or_insert_default();
    if words.len() == 1 && argument_is(&words, "disabled") {
        *names = Arc::default();
    } else {
        Arc::make_mut(names).extend(words.into_iter().map(Into::into));
    }
    Ok(())
}

fn argument_is(words: &[String], wanted: &str) -> bool {
    words.first().is_some_and(|word| word.eq_ignore_ascii_case(wanted))
}

fn slash(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.dir.slash = Some(call.flag);
    Ok(())
}

fn check_handler(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.dir.check_handler = Some(call.flag);
    Ok(())
}

fn fallback(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let path = argument(call, 0);
    let said = (!path.eq_ignore_ascii_case("disabled")).then(|| path.into());
    scope.directory.dir.fallback = Some(said);
    Ok(())
}

fn index_redirect(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    let said = match word.to_ascii_lowercase().as_str() {
        "on" | "temp" => Some(Status::FOUND),
        "off" => None,
        "permanent" => Some(Status::MOVED_PERMANENTLY),
        "seeother" => Some(Status::SEE_OTHER),
        number if number.starts_with(|first: char| first.is_ascii_digit()) => {
            let code = number.parse().ok().and_then(Status::new);
            let redirect = code.filter(|status| (300..400).contains(&status.code()));
            let refused = "DirectoryIndexRedirect only accepts values between 300 and 399";
            Some(redirect.ok_or(refused)?)
        }
        _ => return Err("DirectoryIndexRedirect ON|OFF|permanent|temp|seeother|3xx".into()),
    };
    scope.directory.dir.index_redirect = Some(said);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn directory_index_adds_up_and_is_disabled() {
        let names = |text: &str| -> Vec<Box<str>> {
            apply(MODULE, text).unwrap().directory.into_settings().dir.index_names.unwrap().to_vec()
        };
        assert_eq!(
            names("DirectoryIndex a \"b c\"\nDirectoryIndex d"),
            ["a", "b c", "d"].map(Box::from)
        );
        assert!(names("DirectoryIndex a\nDirectoryIndex DISABLED").is_empty());
        assert_eq!(names("DirectoryIndex disabled x"), ["disabled", "x"].map(Box::from));
        assert!(names("DirectoryIndex").is_empty());
    }

    #[test]
    fn directory_index_redirect_takes_words_and_numbers() {
        for (text, code) in
            [("on", Some(302)), ("off", None), ("Permanent", Some(301)), ("308", Some(308))]
        {
            let scope = apply(MODULE, &format!("DirectoryIndexRedirect {text}")).unwrap();
            assert_eq!(scope.directory.dir.index_redirect.unwrap().map(Status::code), code);
        }
        let refused = |word: &str| apply(MODULE, &format!("DirectoryIndexRedirect {word}")).err();
        let range = "DirectoryIndexRedirect only accepts values between 300 and 399";
        assert_eq!(refused("200").as_deref(), Some(range));
        let words = "DirectoryIndexRedirect ON|OFF|permanent|temp|seeother|3xx";
        assert_eq!(refused("maybe").as_deref(), Some(words));
    }

    #[test]
    fn directory_slash_check_handler_and_fallback_resource() {
        let text = "DirectorySlash Off\nDirectoryCheckHandler On\nFallbackResource /front.php";
        let said = apply(MODULE, text).unwrap().directory.into_settings().dir;
        assert_eq!((said.slash, said.check_handler), (Some(false), Some(true)));
        assert_eq!(said.fallback, Some(Some("/front.php".into())));
        let off = apply(MODULE, "FallbackResource Disabled").unwrap().directory.into_settings().dir;
        assert_eq!(off.fallback, Some(None));
    }
}
