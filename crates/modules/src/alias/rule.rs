//! One rule of mod_alias: a prefix or a pattern of paths, and what takes its place. A path goes
//! in, a file name or the target of a redirect comes out.

use crate::prefix::match_prefix;
use evenkeel_expr::{Captures, MatchError, Pattern};
use evenkeel_message::Allowance;

/// Alias, AliasMatch, Redirect or RedirectMatch with its arguments.
#[derive(Debug)]
pub struct Rule {
    /// What it is for.
    pub(super) from: From,
    /// What takes the place; none where the status is no redirect.
    pub(super) real: Option<Box<[u8]>>,
    /// The status of a redirect, which may be any number; 0 for an alias.
    pub(super) status: u16,
    /// Whether the file is a program (ScriptAlias).
    pub(super) is_script: bool,
}

/// The paths that a rule is for.
#[derive(Debug)]
pub(super) enum From {
    /// Those that begin with this, whole names only.
    Prefix(Box<[u8]>),
    /// Those that match.
    Pattern(Pattern),
}

impl Rule {
    /// The prefix, where the rule has one.
    pub(super) fn prefix(&self) -> Option<&[u8]> {
        match &self.from {
            From::Prefix(prefix) => Some(prefix),
            From::Pattern(_) => None,
        }
    }

    /// The file name that an alias gives to the path.
    ///
    /// # Errors
    /// Pattern and path together pass the bounds of a match.
    pub fn file(&self, allowance: &Allowance, path: &[u8]) -> Result<Option<Vec<u8>>, MatchError> {
        let real = self.real.as_deref().unwrap_or_default();
        match &self.from {
            From::Prefix(prefix) => Ok(match_prefix(path, prefix)
                .map(|length| [real, path.get(length..).unwrap_or_default()].concat())),
            From::Pattern(pattern) => substituted(allowance, pattern, path, real),
        }
    }

    /// The target of a redirect for the path; empty where the rule has none.
    ///
    /// # Errors
    /// Pattern and path together pass the bounds of a match.
    pub fn redirect(
        &self,
        allowance: &Allowance,
        path: &[u8],
    ) -> Result<Option<Vec<u8>>, MatchError> {
        let real = self.real.as_deref().unwrap_or_default();
        match &self.from {
            From::Prefix(prefix) => {
                let Some(length) = match_prefix(path, prefix) else { return Ok(None) };
                let mut target = real.to_vec();
                if self.real.is_some() {
                    let rest = path.get(length..).unwrap_or_default();
                    evenkeel_proto::escape_uri(&mut target, rest);
                }
                Ok(Some(target))
            }
            From::Pattern(pattern) => {
                Ok(substituted(allowance, pattern, path, real)?
                    .map(|target| escape_target(&target)))
            }
        }
    }

    /// Whether the rule would take a path that a later rule is for.
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        match &self.from {
            From::Prefix(prefix) => match_prefix(path, prefix).is_some(),
            From::Pattern(pattern) => pattern.matches(path).unwrap_or_default(),
        }
    }
}

fn substituted(
    allowance: &Allowance,
    pattern: &Pattern,
    path: &[u8],
    template: &[u8],
) -> Result<Option<Vec<u8>>, MatchError> {
    let mut captures = Captures::default();
    if !pattern.capture_within(allowance, path, &mut captures)? {
        return Ok(None);
    }
    let mut target = Vec::new();
    captures.substitute(template, &mut target);
    Ok(Some(target))
}

/// Escapes the path of a target and leaves its query and fragment as they are.
#[must_use]
pub(super) fn escape_target(target: &[u8]) -> Vec<u8> {
    let end = target.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(target.len());
    let (path, rest) = target.split_at(end);
    let mut escaped = Vec::with_capacity(target.len());
    evenkeel_proto::escape_uri(&mut escaped, path);
    escaped.extend_from_slice(rest);
    escaped
}

/// Whether a text begins with a scheme (util.c: ap_is_url).
#[must_use]
pub(super) fn is_url(text: &[u8]) -> bool {
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let length = text.iter().take_while(|byte| is_scheme(byte)).count();
    length > 0 && text.get(length) == Some(&b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_whole_names_and_slashes_are_as_good_as_one() {
        for (path, prefix, taken) in [
            ("/a/b", "/a", Some(2)),
            ("/a/b", "/a/", Some(3)),
            ("/ab", "/a", None),
            ("/a", "/a/", None),
            ("//a///b", "/a/", Some(6)),
            ("/m/x/y", "/m//x", Some(4)),
            ("/x", "/", Some(1)),
            ("/x", "x", None),
        ] {
            assert_eq!(match_prefix(path.as_bytes(), prefix.as_bytes()), taken, "{path} {prefix}");
        }
    }

    #[test]
    fn schemes_make_a_url() {
        for (text, expected) in
            [("http://x", true), ("a:b", true), (":b", false), ("/a:b", false), ("http", false)]
        {
            assert_eq!(is_url(text.as_bytes()), expected, "{text}");
        }
    }
}
