//! Processes an expanded substitution: splits off its query, adds or removes the scheme and name of
//! this host, and builds the target of a redirect.

use super::Options;
use super::engine::Run;
use super::flags::number;
use super::rule::Rule;
use super::uri::{escape_absolute, scheme};
use crate::core::{Aliases, public_url, server_name, wildcard_match};
use evenkeel_message::{Method, eq_ignore_case, quoted};

impl Run<'_> {
    /// Splits the query off the substitution (mod_rewrite.c: splitout_queryargs).
    pub(super) fn split_query(&mut self, rule: &Rule) {
        let query = &mut self.request.resource.query;
        if rule.query.is_none {
            *query = None;
            trace_plain!(self, 2, "discarding query string, no parse from substitution");
            return;
        }
        let scheme = scheme(&self.filename);
        if scheme.is_some_and(|scheme| !scheme.takes_query) {
            *query = None;
            return;
        }
        if rule.flags.discard_query {
            *query = None;
            trace_plain!(self, 2, "discarding query string");
        }
        let skip = scheme.map_or(0, |scheme| scheme.length);
        let searched = self.filename.get(skip..).unwrap_or_default();
        let is_mark = |byte: &u8| *byte == b'?';
        let mark = match rule.query.is_after_last {
            true => searched.iter().rposition(is_mark),
            false => searched.iter().position(is_mark),
        };
        let Some(mark) = mark.map(|at| at + skip) else { return };
        let whole = self.filename.clone();
        let own = self.filename.split_off(mark).split_off(1);
        let query = &mut self.request.resource.query;
        match rule.flags.append_query {
            true if own.is_empty() => {}
            true => {
                let asked = query.take().unwrap_or_default();
                *query = Some([&own[..], b"&", &asked].concat());
            }
            false => *query = Some(own),
        }
        if let Some(text) = query
            && text.ends_with(b"&")
        {
            text.pop();
        } else if query.as_ref().is_some_and(Vec::is_empty) {
            *query = None;
        }
        trace_plain!(
            self,
            3,
            "split uri={} -> uri={}, args={}",
            quoted(&whole),
            quoted(&self.filename),
            quoted(self.request.resource.query.as_deref().unwrap_or(b"<none>"))
        );
    }

    /// Prepends the scheme and the name of this server to a path (mod_rewrite.c:
    /// fully_qualify_uri).
    pub(super) fn qualify(&mut self) {
        if self.request.resource.method == Method::Connect || scheme(&self.filename).is_some() {
            return;
        }
        if !self.filename.starts_with(b"/") {
            self.filename.insert(0, b'/');
        }
        self.filename = public_url(self.request, self.core, &self.filename);
    }

    /// Removes the scheme and a name of this host, so that the substitution does not redirect to
    /// the host itself (mod_rewrite.c: reduce_uri).
    pub(super) fn reduce(&mut self) {
        let scheme = [self.request.scheme().as_bytes(), b"://"].concat();
        let Some((start, rest)) = self.filename.split_at_checked(scheme.len()) else { return };
        if !eq_ignore_case(start, &scheme) || rest.is_empty() {
            return;
        }
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, b""));
        let mut parts = authority.splitn(2, |byte| *byte == b':');
        let (host, port) = (parts.next().unwrap_or_default(), parts.next());
        let port = port.map_or(self.request.default_port().into(), number);
        if !self.is_own_name(host, port) {
            return;
        }
        let path = if path.is_empty() { b"/" } else { path }.to_vec();
        trace_plain!(self, 3, "reduce {} -> {}", quoted(&self.filename), quoted(&path));
        self.filename = path;
        self.is_reduced |= !self.server.options().has(Options::LEGACY_PREFIX_DOC_ROOT);
    }

    /// Whether this host has that name and port (vhost.c: ap_matches_request_vhost).
    fn is_own_name(&self, host: &[u8], port: i32) -> bool {
        let server = self.core.server;
        if port != i32::from(server.port.unwrap_or_default()) {
            return false;
        }
        let is = |name: &str| eq_ignore_case(name.as_bytes(), host);
        let lower = host.to_ascii_lowercase();
        let has = |aliases: &Aliases| {
            aliases.exact.iter().any(|name| is(name))
                || aliases.wild.iter().any(|wild| wildcard_match(wild.as_bytes(), &lower))
        };
        is(server_name(server)) || server.aliases.as_deref().is_some_and(has)
    }

    /// Returns the target of a redirect with its query, escaped unless `is_raw` is set. `asked` is
    /// the query of the request; if the rules did not change it, it is not escaped again.
    pub(super) fn redirect_target(&mut self, is_raw: bool, asked: Option<&[u8]>) -> Vec<u8> {
        let mut target = std::mem::take(&mut self.filename);
        if let Some(scheme) = scheme(&target).filter(|_| !is_raw) {
            trace!(self, 1, "escaping {} for redirect", quoted(&target));
            target = escape_absolute(&target, scheme);
        }
        let Some(query) = self.request.resource.query.clone() else { return target };
        target.push(b'?');
        let before = target.len();
        if is_raw || asked == Some(&query[..]) {
            target.extend_from_slice(&query);
            trace!(self, 1, "copying {} to query string for redirect ", quoted(&query));
        } else {
            evenkeel_proto::escape_uri(&mut target, &query);
            trace!(
                self,
                1,
                "escaping {} to query string for redirect {}",
                quoted(&query),
                quoted(target.get(before..).unwrap_or_default())
            );
        }
        target
    }
}
