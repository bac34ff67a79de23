//! mod_autoindex's directives: lines go in, rules, names and switches of listings come out.

use super::options;
use super::rule::{By, Description, Item};
use super::settings::{Key, Order, Said};
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_message::unquoted;

const DEPRECATED: &str =
    "The FancyIndexing directive is no longer supported. Use IndexOptions FancyIndexing.";

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("AddAlt", Where::INDEXES, Shape::IterateTwo, "", "alternate descriptive text followed by one or more filenames", add_text).of_bytes(),
    directive("AddAltByEncoding", Where::INDEXES, Shape::IterateTwo, "", "alternate descriptive text followed by one or more content encodings", add_text).of_bytes(),
    directive("AddAltByType", Where::INDEXES, Shape::IterateTwo, "", "alternate descriptive text followed by one or more MIME types", add_text).of_bytes(),
    directive("AddDescription", Where::INDEXES, Shape::IterateTwo, "", "Descriptive text followed by one or more filenames", add_description).of_bytes(),
    directive("AddIcon", Where::INDEXES, Shape::IterateTwo, "", "an icon URL followed by one or more filenames", add_icon).of_bytes(),
    directive("AddIconByEncoding", Where::INDEXES, Shape::IterateTwo, "", "an icon URL followed by one or more content encodings", add_icon).of_bytes(),
    directive("AddIconByType", Where::INDEXES, Shape::IterateTwo, "", "an icon URL followed by one or more MIME types", add_icon).of_bytes(),
    directive("DefaultIcon", Where::INDEXES, Shape::One, "", "an icon URL", default_icon).of_bytes(),
    directive("FancyIndexing", Where::ANYWHERE, Shape::Raw, "", DEPRECATED, fancy_indexing),
    directive("HeaderName", Where::INDEXES, Shape::One, "", "a filename", header_name).of_bytes(),
    directive("IndexHeadInsert", Where::INDEXES, Shape::One, "", "String to insert in HTML HEAD section", head_insert).of_bytes(),
    directive("IndexIgnore", Where::INDEXES, Shape::Iterate, "", "one or more file extensions", index_ignore).of_bytes(),
    directive("IndexIgnoreReset", Where::INDEXES, Shape::Flag, "Off", "Reset the inherited list of IndexIgnore filenames", index_ignore_reset),
    directive("IndexOptions", Where::INDEXES, Shape::Argv, "", "one or more index options [+|-][]", index_options),
    directive("IndexOrderDefault", Where::INDEXES, Shape::Two, "Ascending Name", "{Ascending,Descending} {Name,Size,Description,Date}", index_order),
    directive("IndexStyleSheet", Where::INDEXES, Shape::One, "", "URL to style sheet", style_sheet).of_bytes(),
    directive("ReadmeName", Where::INDEXES, Shape::One, "", "a filename", readme_name).of_bytes(),
];

/// mod_autoindex.
pub const MODULE: Module = Module {
    file: "mod_autoindex.c",
    identifier: "autoindex_module",
    active: Active::Usually,
    page: "mod_autoindex",
    subject: "The listing of a folder that has no index.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn said(scope: &mut Scope) -> &mut Said {
    scope.directory.autoindex.change()
}

/// What of a file the directive looks at, by its name.
fn by(call: &Call<'_>) -> By {
    match call.name {
        "AddIconByType" | "AddAltByType" => By::Type,
        "AddIconByEncoding" | "AddAltByEncoding" => By::Encoding,
        _ => By::Path,
    }
}

fn add_text(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let item = Item::new(by(call), &scope.place, argument(call, 1), argument(call, 0));
    said(scope).texts.push(item);
    Ok(())
}

/// `(TEXT,URL)` says the text that stands for the icon too.
fn add_icon(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (by, to) = (by(call), argument(call, 1));
    let mut url = argument(call, 0);
    if let Some(inside) = url.strip_prefix('(') {
        let Some(close) = inside.find(')') else {
            return Err("missing closing paren".into());
        };
        let (text, rest) = inside.split_once(',').unwrap_or((inside, ""));
        // Several commas are one.
        let skipped = rest.trim_start_matches(',');
        let begin = inside.len() - skipped.len();
        url = match close.checked_sub(begin) {
            Some(length) => skipped.get(..length).unwrap_or_default(),
            None => skipped,
        };
        let item = Item::new(by, &scope.place, to, text);
        said(scope).texts.push(item);
    }
    let item = Item::new(by, &scope.place, to, url);
    said(scope).icons.push(item);
    Ok(())
}

fn add_description(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let description = Description::new(argument(call, 1), argument(call, 0));
    said(scope).descriptions.push(description);
    Ok(())
}

fn index_ignore(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let item = Item::ignoring(&scope.place, argument(call, 0));
    said(scope).ignored.push(item);
    Ok(())
}

fn index_ignore_reset(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).ignore_reset = call.flag;
    Ok(())
}

fn index_options(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    options::apply(said(scope), call.words)
}

fn index_order(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let descending = match argument(call, 0).to_ascii_lowercase().as_str() {
        "ascending" => false,
        "descending" => true,
        _ => return Err("First keyword must be 'Ascending' or 'Descending'".into()),
    };
    let key = match argument(call, 1).to_ascii_lowercase().as_str() {
        "name" => Key::Name,
        "date" => Key::Modified,
        "size" => Key::Size,
        "description" => Key::Description,
        _ => {
            return Err("Second keyword must be 'Name', 'Date', 'Size', or 'Description'".into());
        }
    };
    said(scope).order = Some(Order { key, descending });
    Ok(())
}

fn fancy_indexing(_: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    Err(DEPRECATED.into())
}

/// Declares directives that keep their one word.
macro_rules! words {
    ($($name:ident),+ $(,)?) => {
        $(
            fn $name(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
                said(scope).$name = Some(unquoted(argument(call, 0)).into());
                Ok(())
            }
        )+
    };
}

words!(default_icon, header_name, head_insert, readme_name, style_sheet);

#[cfg(test)]
mod tests {
    use super::super::rule::{Subject, describe, find, is_ignored};
    use super::*;
    use crate::testing::{apply, apply_in};
    use crate::{Merge, Place};
    use std::sync::Arc;

    fn said(text: &str) -> Arc<Said> {
        apply(MODULE, text).unwrap().directory.autoindex.said()
    }

    #[test]
    fn icons_carry_texts() {
        let got = said("AddIcon (TXT,/i/t.gif) .txt\nAddIcon /i/b.gif .bin .exe");
        let of = |path: &str| {
            let subject = Subject::path(path.as_bytes());
            (find(&got.icons, &subject), find(&got.texts, &subject))
        };
        assert_eq!(of("/a.txt"), (Some(&b"/i/t.gif"[..]), Some(&b"TXT"[..])));
        assert_eq!(of("/a.exe"), (Some(&b"/i/b.gif"[..]), None));
        let odd = |text: &str| {
            let got = said(&format!("AddIcon {text} x"));
            let subject = Subject::path(b"x");
            let found = [find(&got.icons, &subject), find(&got.texts, &subject)];
            found.map(|found| found.unwrap_or(b"-").to_owned())
        };
        assert_eq!(odd("(A,,,/b)c"), [&b"/b"[..], b"A"]);
        assert_eq!(odd("(A)"), [&b""[..], b"A)"]);
        assert_eq!(odd("(A)b,/c"), [&b"/c"[..], b"A)b"]);
        let missing = apply(MODULE, "AddIcon (TXT,/i/t.gif .txt").err();
        assert_eq!(missing.as_deref(), Some("missing closing paren"));
    }

    #[test]
    fn texts_and_descriptions_are_added() {
        let got = said("AddAltByType \"A b\" text/*\nAddDescription \"The <b>x</b>\" x\n");
        let subject = Subject {
            path: b"/q",
            media_type: Some(b"text/plain"),
            encoding: None,
            path_only: false,
        };
        assert_eq!(find(&got.texts, &subject), Some(&b"A b"[..]));
        assert_eq!(describe(&got.descriptions, b"/x"), Some(&b"The <b>x</b>"[..]));
    }

    #[test]
    fn inner_names_are_added_to_outer_ones_unless_they_are_reset() {
        let outer = apply(MODULE, "IndexIgnore a b").unwrap().directory.into_settings().autoindex;
        let inner = |text: &str| {
            let place = Place::Directory("/s/".into());
            let inner = apply_in(MODULE, place, text).unwrap().directory.into_settings().autoindex;
            let merged = super::super::Directory::merge(&outer, &inner).said();
            ["/s/a", "/s/c", "/t/c"].map(|path| is_ignored(&merged.ignored, path.as_bytes()))
        };
        assert_eq!(inner("IndexIgnore c"), [true, true, false]);
        assert_eq!(inner("IndexIgnore c\nIndexIgnoreReset On"), [false, true, false]);
    }

    #[test]
    fn orders_names_and_the_directive_that_is_gone() {
        let got = said("IndexOrderDefault descending DATE\nHeaderName h\nReadmeName r");
        assert_eq!(got.order, Some(Order { key: Key::Modified, descending: true }));
        assert_eq!(
            (got.header_name.as_deref(), got.readme_name.as_deref()),
            (Some(&b"h"[..]), Some(&b"r"[..]))
        );
        let got = said("DefaultIcon /d\nIndexStyleSheet /s.css\nIndexHeadInsert \"<x>\"");
        let texts = [&got.default_icon, &got.style_sheet, &got.head_insert];
        assert_eq!(
            texts.map(|text| text.as_deref()),
            [Some(&b"/d"[..]), Some(b"/s.css"), Some(b"<x>")]
        );
        let refused = |text: &str| apply(MODULE, text).err().unwrap_or_default();
        assert!(refused("IndexOrderDefault Up Name").starts_with("First keyword"));
        assert!(refused("IndexOrderDefault Ascending Icon").starts_with("Second keyword"));
        assert_eq!(refused("FancyIndexing on"), DEPRECATED);
    }

    #[test]
    fn index_options_are_applied() {
        assert!(said("IndexOptions UseOldDateFormat").old_dates);
        assert_eq!(apply(MODULE, "IndexOptions Nothing").err().as_deref(), {
            Some("Invalid directory indexing option")
        });
    }
}
