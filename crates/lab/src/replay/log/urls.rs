//! Plain lists of URLs: each line is a path or a URL, with or without a method before it. Empty
//! lines and lines that begin with # are skipped.

use super::record::{Misfit, Record};

/// Parses a line.
///
/// # Errors
///
/// It is neither a path nor a URL.
pub(super) fn parse(line: &[u8]) -> Result<Option<Record>, Misfit> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let (method, url) = match memchr::memchr(b' ', line) {
        Some(at) if line.get(..at).is_some_and(is_method) => {
            let (method, url) = line.split_at(at);
            (Some(method.to_vec()), url.trim_ascii())
        }
        _ => (None, line),
    };
    let (host, target) = split(url).ok_or_else(|| Misfit {
        column: line.len() - url.len() + 1,
        wanted: "a path (/index.html) or a URL (http://host/index.html)".to_owned(),
    })?;
    Ok(Some(Record { method, host, target: Some(target), ..Record::default() }))
}

fn is_method(word: &[u8]) -> bool {
    word.iter().all(u8::is_ascii_uppercase)
}

/// The host and target of a URL; a path has no host.
fn split(url: &[u8]) -> Option<(Option<Vec<u8>>, Vec<u8>)> {
    if memchr::memchr(b' ', url).is_some() {
        return None;
    }
    if url.starts_with(b"/") {
        return Some((None, url.to_vec()));
    }
    let is = |scheme: &&[u8]| {
        url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let scheme = [&b"http://"[..], b"https://"].into_iter().find(is)?;
    let rest = url.get(scheme.len()..)?;
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    let (host, target) = rest.split_at(end);
    let end = memchr::memchr(b'#', target).unwrap_or(target.len());
    let target = target.get(..end).unwrap_or_default();
    let slash: &[u8] = if target.starts_with(b"/") { b"" } else { b"/" };
    let host = host.rsplit(|byte| *byte == b'@').next().unwrap_or_default();
    (!host.is_empty()).then(|| (Some(host.to_vec()), [slash, target].concat()))
}
