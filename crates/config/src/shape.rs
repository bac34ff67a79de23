//! Splits the text of a directive's arguments into the words of each call, or returns Apache's
//! message about their number. The words are not interpreted, except On and Off.

use crate::directive::Shape;
use crate::words::{next_word, words};

/// The words of the calls for `arguments`: one call, or one for each word with [`Shape::Iterate`]
/// and [`Shape::IterateTwo`].
///
/// # Errors
///
/// The message, which ends with `doc` where Apache's does.
///
/// Source: server/config.c, invoke_cmd.
pub(crate) fn split(
    shape: Shape,
    name: &str,
    doc: &str,
    arguments: &str,
) -> Result<Vec<Vec<String>>, String> {
    let complaint = |what: &str| {
        let comma = if doc.is_empty() { "" } else { ", " };
        format!("{name} {what}{comma}{doc}")
    };
    match shape {
        Shape::Raw => Ok(vec![Vec::new()]),
        Shape::None if arguments.is_empty() => Ok(vec![Vec::new()]),
        Shape::None => Err(format!("{name} takes no arguments")),
        Shape::Argv => Ok(vec![words(arguments)]),
        Shape::Flag => flag(name, arguments),
        Shape::Iterate => {
            let calls: Vec<_> = until_empty(arguments).map(|word| vec![word]).collect();
            if calls.is_empty() {
                Err(complaint("requires at least one argument"))
            } else {
                Ok(calls)
            }
        }
        Shape::IterateTwo => {
            let (first, rest) = next_word(arguments);
            if first.is_empty() || rest.is_empty() {
                return Err(complaint("requires at least two arguments"));
            }
            Ok(until_empty(rest).map(|word| vec![first.clone(), word]).collect())
        }
        _ => counted(shape, arguments).map_err(complaint),
    }
}

/// The words up to the first empty one, where Apache's loops over a list end.
fn until_empty(text: &str) -> impl Iterator<Item = String> {
    words(text).into_iter().take_while(|word| !word.is_empty())
}

/// On or Off. Apache does not look at what follows the word.
fn flag(name: &str, arguments: &str) -> Result<Vec<Vec<String>>, String> {
    let (word, _) = next_word(arguments);
    if word.eq_ignore_ascii_case("on") || word.eq_ignore_ascii_case("off") {
        return Ok(vec![vec![word]]);
    }
    Err(format!("{name} must be On or Off"))
}

/// The shapes with a fixed number of arguments. A required word must not be empty, not even in
/// quotes.
fn counted(shape: Shape, arguments: &str) -> Result<Vec<Vec<String>>, &'static str> {
    let (needed, most, what) = match shape {
        Shape::One => (1, 1, "takes one argument"),
        Shape::Two => (2, 2, "takes two arguments"),
        Shape::Three => (3, 3, "takes three arguments"),
        Shape::OneOrTwo => (1, 2, "takes 1-2 arguments"),
        Shape::TwoOrThree => (2, 3, "takes two or three arguments"),
        Shape::OneOrThree => (1, 3, "takes one or three arguments"),
        _ => (1, 3, "takes one, two or three arguments"),
    };
    let mut list = words(arguments);
    let filled = list.iter().take(needed).filter(|word| !word.is_empty()).count();
    let between = shape == Shape::OneOrThree && list.len() == 2;
    if filled < needed || list.len() > most || between {
        return Err(what);
    }
    // An empty second word counts as missing (AP_TAKE2 gets NULL for it).
    if shape == Shape::OneOrTwo && list.last().is_some_and(String::is_empty) {
        list.pop();
    }
    Ok(vec![list])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shape: Shape, text: &str) -> Result<Vec<Vec<String>>, String> {
        split(shape, "X", "doc", text)
    }

    #[test]
    fn counts_are_checked() {
        assert_eq!(check(Shape::One, "a").unwrap(), [["a"]]);
        assert_eq!(check(Shape::One, "").unwrap_err(), "X takes one argument, doc");
        assert_eq!(check(Shape::One, "\"\"").unwrap_err(), "X takes one argument, doc");
        assert_eq!(check(Shape::Two, "a").unwrap_err(), "X takes two arguments, doc");
        assert_eq!(check(Shape::Three, "a b").unwrap_err(), "X takes three arguments, doc");
        assert_eq!(check(Shape::OneOrTwo, "a b c").unwrap_err(), "X takes 1-2 arguments, doc");
        assert_eq!(check(Shape::OneOrTwo, "a \"\"").unwrap(), [["a"]]);
        assert_eq!(
            check(Shape::TwoOrThree, "a").unwrap_err(),
            "X takes two or three arguments, doc"
        );
        assert_eq!(
            check(Shape::OneOrThree, "a b").unwrap_err(),
            "X takes one or three arguments, doc"
        );
        assert_eq!(check(Shape::OneOrThree, "a b c").unwrap()[0].len(), 3);
        let text = check(Shape::OneTwoOrThree, "a b c d").unwrap_err();
        assert_eq!(text, "X takes one, two or three arguments, doc");
        assert_eq!(check(Shape::None, "a").unwrap_err(), "X takes no arguments");
        assert_eq!(split(Shape::One, "X", "", "").unwrap_err(), "X takes one argument");
    }

    #[test]
    fn lists_call_once_a_word() {
        assert_eq!(check(Shape::Iterate, "a b").unwrap(), [["a"], ["b"]]);
        assert_eq!(check(Shape::Iterate, "").unwrap_err(), "X requires at least one argument, doc");
        assert_eq!(check(Shape::IterateTwo, "t a b").unwrap(), [["t", "a"], ["t", "b"]]);
        let text = check(Shape::IterateTwo, "t").unwrap_err();
        assert_eq!(text, "X requires at least two arguments, doc");
        assert_eq!(check(Shape::Argv, "").unwrap(), [[""; 0]]);
    }

    #[test]
    fn flags_are_on_or_off() {
        assert_eq!(check(Shape::Flag, "oN").unwrap(), [["oN"]]);
        assert_eq!(check(Shape::Flag, "yes").unwrap_err(), "X must be On or Off");
        assert!(check(Shape::Flag, "off").is_ok() && check(Shape::Flag, "").is_err());
    }
}
