//! Prefixes of URL paths, for Alias, Redirect and ProxyPass.

/// Returns the length of the part of `path` that matches `prefix`, or `None` if `path` does not
/// begin with the segments of `prefix`. Several slashes match one (mod_alias.c: `alias_matches`).
#[must_use]
pub(crate) fn match_prefix(path: &[u8], prefix: &[u8]) -> Option<usize> {
    let slashes = |text: &[u8], at: usize| {
        text.get(at..).unwrap_or_default().iter().take_while(|byte| **byte == b'/').count()
    };
    let (mut at, mut taken) = (0, 0);
    while let Some(byte) = prefix.get(at) {
        if path.get(taken) != Some(byte) {
            return None;
        }
        let is_slash = *byte == b'/';
        at += if is_slash { slashes(prefix, at) } else { 1 };
        taken += if is_slash { slashes(path, taken) } else { 1 };
    }
    let is_whole = prefix.ends_with(b"/") || matches!(path.get(taken), None | Some(b'/'));
    (is_whole && taken > 0).then_some(taken)
}
