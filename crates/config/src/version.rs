//! `<IfVersion>`: compares the server's version with the words of the condition. The caller
//! supplies the matching of regular expressions.
//!
//! Source: modules/metadata/mod_version.c, start_ifversion.

type Numbers = (u32, u32, u32);

/// Whether the condition holds. `matches` compares the text of the version with a pattern.
///
/// # Errors
///
/// The message about the operator, the version or the closing bracket.
pub(crate) fn holds(
    words: &[&str],
    server: Numbers,
    matches: &dyn Fn(&str) -> Option<bool>,
) -> Result<bool, String> {
    let (operator, operand) = split(words)?;
    let (negated, plain) = match operator.strip_prefix('!') {
        Some("") => (true, operator),
        Some(rest) => (true, rest),
        None => (false, operator),
    };
    let order = || numbers(operand).map(|wanted| server.cmp(&wanted));
    let found = match plain {
        "=" | "==" => match operand.strip_prefix('/') {
            Some(pattern) => match pattern.strip_suffix('/') {
                Some(pattern) => matched(pattern, matches)?,
                None => return Err("Missing delimiting / of regular expression.".into()),
            },
            None => order()?.is_eq(),
        },
        "~" => matched(operand, matches)?,
        "<" => order()?.is_lt(),
        "<=" => order()?.is_le(),
        ">" => order()?.is_gt(),
        ">=" => order()?.is_ge(),
        _ => return Err(format!("unrecognized operator '{operator}'")),
    };
    Ok(found != negated)
}

/// The operator (`=` if there is none) and the operand without the closing bracket, which may be a
/// word of its own after a quoted operand.
fn split<'a>(words: &[&'a str]) -> Result<(&'a str, &'a str), String> {
    let (operator, operand, closed) = match words {
        [operator, operand, ">"] => (*operator, *operand, true),
        [operand, ">"] => ("=", *operand, true),
        [operator, operand, ..] => (*operator, *operand, false),
        [operand] => ("=", *operand, false),
        [] => ("=", "", false),
    };
    let unclosed = || "<IfVersion> directive missing closing '>'".to_owned();
    let operand = match operand.strip_suffix('>') {
        _ if operand.is_empty() => return Err(unclosed()),
        _ if closed => operand,
        Some(rest) => rest,
        None => return Err(unclosed()),
    };
    Ok((operator, operand))
}

fn matched(pattern: &str, matches: &dyn Fn(&str) -> Option<bool>) -> Result<bool, String> {
    matches(pattern).ok_or_else(|| "Unable to compile regular expression".into())
}

/// Parses `major[.minor[.patch]]`. Missing parts are 0.
fn numbers(text: &str) -> Result<Numbers, String> {
    let parts: Vec<Option<u32>> = text
        .split('.')
        .map(|part| if part.bytes().all(|byte| byte.is_ascii_digit()) { Some(part) } else { None })
        .map(|part| part.map(|digits| digits.parse().unwrap_or(0)))
        .collect();
    let valid = text.starts_with(|first: char| first.is_ascii_digit()) && parts.len() <= 3;
    let part = |at: usize| parts.get(at).copied().unwrap_or(Some(0));
    match (valid, part(0), part(1), part(2)) {
        (true, Some(major), Some(minor), Some(patch)) => Ok((major, minor, patch)),
        _ => Err("Version appears to be invalid. It must have the format major[.minor[.patch]] \
                  where major, minor and patch are numbers."
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str]) -> Result<bool, String> {
        let matches = |pattern: &str| (pattern != "(").then(|| pattern == "^2.4");
        holds(words, (2, 4, 71), &matches)
    }

    #[test]
    fn versions_compare() {
        for words in [
            &["2.4.71>"] as &[&str],
            &[">=", "2.4>"],
            &["!<", "2.4>"],
            &["=", "/^2.4/>"],
            &["~", "^2.4>"],
            &["!=", "/2.3/", ">"],
            &[">", "2.4.6", ">"],
            &["==", "2.4.71>"],
            &["<=", "2.5>"],
            &["2.4.71", ">"],
        ] {
            assert_eq!(check(words), Ok(true), "{words:?}");
        }
        assert_eq!(check(&["<", "2.4>"]), Ok(false));
        assert_eq!(check(&["=", "2.4>"]), Ok(false));
    }

    #[test]
    fn complaints_are_apaches() {
        assert_eq!(check(&["~!", "2.4>"]).unwrap_err(), "unrecognized operator '~!'");
        assert_eq!(check(&["=~", "2.4>"]).unwrap_err(), "unrecognized operator '=~'");
        assert!(check(&[">=", "2.4"]).unwrap_err().contains("missing closing '>'"));
        assert!(check(&["x2.4>"]).unwrap_err().starts_with("Version appears to be invalid."));
        assert!(check(&["2.4.71.1>"]).is_err() && check(&[">"]).is_err());
        assert!(check(&["=", "/2>"]).unwrap_err().starts_with("Missing delimiting /"));
        assert_eq!(check(&["~", "(>"]).unwrap_err(), "Unable to compile regular expression");
    }
}
