//! Runs a list of rules (mod_rewrite.c: apply_rewrite_list, apply_rewrite_rule). A run changes the
//! file name, the query and the environment of a request; `server` and `folder` turn its result
//! into an `Outcome`.

use super::expand::QuestionMark;
use super::map::ProgramMap;
use super::rule::Rule;
use super::trace::Trace;
use super::uri::scheme;
use super::{Server, cookie};
use crate::{CoreSettings, RequestContext};
use evenkeel_expr::{Captures, Condition, EvaluationError};
use evenkeel_files::Looked;
use evenkeel_message::{Fields, Level, Notice, Request, Status, quoted};
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A boxed future on the same thread.
pub(super) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The services of the server that rules need. `pipeline` implements them.
pub trait Surroundings {
    /// Runs the phases before the handler for another URL or file, and calls `read` to read a value
    /// from that subrequest (Apache: ap_sub_req_lookup_uri, ap_sub_req_lookup_file).
    fn look<'a>(
        &'a self,
        request: &'a mut Box<Request>,
        ahead: Ahead,
        read: &'a dyn Fn(&RequestContext<'_>, &[u8]) -> Vec<u8>,
    ) -> Later<'a, Look>;

    /// Evaluates the expression of a condition, with `filename` as the file name of the request.
    fn decide<'a>(
        &'a self,
        request: &'a mut Box<Request>,
        filename: &'a [u8],
        condition: &'a Condition,
    ) -> Later<'a, Verdict>;

    /// Asks a program for the value of a key (RewriteMap prg). Returns `None` if it has not
    /// answered; the error log says why.
    fn ask_program<'a>(
        &'a self,
        request: &'a mut Box<Request>,
        program: &'a ProgramMap,
        key: &'a [u8],
    ) -> Later<'a, Option<Vec<u8>>>;

    /// Maps a path to a file below DocumentRoot and sets the file of the request (core.c:
    /// ap_core_translate).
    ///
    /// # Errors
    /// The status of the response if the path does not map to a file.
    fn map_below_root(&self, request: &mut Request, path: &[u8]) -> Result<(), Status>;
}

/// The target of a look-ahead subrequest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// A URL, absolute or relative to that of the request.
    Url(Vec<u8>),
    /// A file name, absolute or relative to that of the request.
    File(Vec<u8>),
}

/// The result of a look-ahead subrequest.
#[derive(Debug)]
pub struct Look {
    /// The status of the subrequest.
    pub status: Status,
    /// The file name of the subrequest.
    pub file: Vec<u8>,
    /// The value that was read from the subrequest.
    pub value: Vec<u8>,
    /// Whether the result is unknown, because the subrequest lacks data that decides it.
    pub is_undecided: bool,
}

/// The result of an expression.
#[derive(Debug)]
pub struct Verdict {
    /// Whether the expression is true.
    pub answer: Result<bool, EvaluationError>,
    /// The groups of the last match.
    pub captures: Captures,
    /// The request fields that the result depends on, as a Vary field.
    pub vary: Fields,
}

/// The directory or path of a section with rules.
#[derive(Clone, Copy)]
pub(super) struct Base<'a> {
    /// The name of the directory, with a slash at the end.
    pub folder: &'a [u8],
    /// RewriteBase.
    pub url: Option<&'a [u8]>,
}

/// The result of a list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No rule has substituted the path.
    Nothing,
    /// A rule has substituted the path. The target of a redirect is escaped unless `is_raw` is set
    /// (flag NE).
    Substituted { is_raw: bool },
    /// A rule has set the status of the response (flags F, G and R).
    Answered,
    /// A rule failed, and the request is answered with this status.
    Refused(Status),
}

/// The result of one rule.
enum Applied {
    NoMatch,
    Matched,
    /// The rule matched and has no substitution.
    NoSubstitution,
    Refused(Status),
}

/// The result of a part of a rule. An error ends the run with a status.
pub(super) type Step<T> = Result<T, Status>;

/// The state of a run.
pub(super) struct Run<'a> {
    pub request: &'a mut Box<Request>,
    pub around: &'a dyn Surroundings,
    pub core: CoreSettings<'a>,
    pub server: &'a Server,
    /// The base of the rules of a section; `None` for the rules of a server.
    pub base: Option<Base<'a>>,
    /// The result of the lookup of the request's file; `None` if the file was not looked up.
    pub found: Option<&'a Looked>,
    pub trace: Trace,
    /// The file name, or the path that is mapped to a file name later (Apache: r->filename).
    pub filename: Vec<u8>,
    /// The status of a redirect or of a response (Apache: r->status).
    pub status: u16,
    /// Whether a rule with the flag PT was applied.
    pub is_passed: bool,
    /// Whether a rule with the flag P ended the run.
    pub is_proxied: bool,
    /// The part of a proxy URI before its path. Empty if the rule's text does not contain all of
    /// it.
    pub proxy_origin: Vec<u8>,
    /// Whether the scheme and the name of this host were removed from a substitution, so that the
    /// path is mapped below DocumentRoot (not with LegacyPrefixDocRoot).
    pub is_reduced: bool,
    /// The path that the patterns of rules are matched against.
    pub uri: Vec<u8>,
    /// Whether `uri` is up to date with `filename`.
    is_uri_known: bool,
    pub rule_groups: Captures,
    pub condition_groups: Captures,
    /// The fields that the current condition depends on. `vary` holds those of the rule's
    /// conditions so far.
    pub varies_by: Vec<Vec<u8>>,
    vary: Vec<Vec<u8>>,
}

impl<'a> Run<'a> {
    /// Creates the state of a run, with the file name of the request.
    pub(super) fn new(
        request: &'a mut Box<Request>,
        around: &'a dyn Surroundings,
        core: CoreSettings<'a>,
        server: &'a Server,
    ) -> Self {
        let trace = Trace::of(request, core);
        Self {
            filename: request.resource.file.as_bytes().to_vec(),
            request,
            around,
            core,
            server,
            base: None,
            found: None,
            trace,
            status: Status::OK.code(),
            is_passed: false,
            is_proxied: false,
            proxy_origin: Vec::new(),
            is_reduced: false,
            uri: Vec::new(),
            is_uri_known: false,
            rule_groups: Captures::default(),
            condition_groups: Captures::default(),
            varies_by: Vec::new(),
            vary: Vec::new(),
        }
    }

    /// The request as the source of variables, with the file name of the run.
    pub(super) fn context(&self) -> RequestContext<'_> {
        RequestContext::new(self.request, self.core).with_filename(&self.filename)
    }

    /// Whether the rules may start subrequests. A subrequest for the path of its main request may
    /// not, which prevents endless recursion (mod_rewrite.c: subreq_ok).
    pub(super) fn may_look(&self) -> bool {
        let resource = &self.request.resource;
        resource.main_path.as_deref() != Some(&resource.path[..])
    }

    /// Copies the status of an earlier redirect rule to the request, although a later rule has
    /// replaced the target of the redirect with a path (flag R without L).
    pub(super) fn keep_status(&mut self) {
        let status = Status::new(self.status).filter(|status| *status != Status::OK);
        if let Some(status) = status {
            self.request.resource.status = status;
        }
    }

    /// Logs why a rule cannot be applied. Returns status 500.
    pub(super) fn give_up(&mut self, rule: &Rule, why: &dyn Display) -> Status {
        let text = format!("{why}, in the RewriteRule of {} or its conditions", rule.position);
        self.request.notify(Notice::own("rewrite", Level::Error, text));
        Status::INTERNAL_SERVER_ERROR
    }

    /// Applies rules in order. Also returns the last matching rule that has a substitution.
    pub(super) async fn apply_all<'r>(
        &mut self,
        rules: &'r [Arc<Rule>],
    ) -> (Change, Option<&'r Rule>) {
        let (mut change, mut last) = (Change::Nothing, None);
        let (mut round, mut at) = (1_u32, 0);
        while let Some(rule) = rules.get(at).map(|rule| &**rule) {
            at += 1;
            let is_left_out = rule.flags.no_subrequest || rule.flags.redirect;
            if is_left_out && self.request.resource.depth > 0 {
                continue;
            }
            self.vary.clear();
            let applied = match self.apply(rule).await {
                Ok(applied) => applied,
                Err(status) => Applied::Refused(status),
            };
            if let Applied::NoMatch = applied {
                let is_chained = |rule: &Arc<Rule>| rule.flags.chain;
                if rule.flags.chain {
                    at += rules.iter().skip(at).take_while(|rule| is_chained(rule)).count() + 1;
                }
                continue;
            }
            if !rule.no_substitution {
                let written = &rule.written;
                trace!(self, 2, "setting lastsub to rule with output {}", quoted(written));
                last = Some(rule);
            }
            if let Some(status) = self.too_long(rule) {
                return (Change::Refused(status), last);
            }
            if !self.vary.is_empty() {
                let vary = self.vary.join(&b", "[..]);
                self.request.resource.fields.merge("Vary", vary);
            }
            match applied {
                Applied::Refused(status) => return (Change::Refused(status), last),
                _ if rule.flags.answers => return (Change::Answered, last),
                Applied::Matched => {
                    change = Change::Substituted { is_raw: rule.flags.no_escape };
                }
                Applied::NoSubstitution | Applied::NoMatch => {}
            }
            match self.go_on(rule, &mut round) {
                Next::Rule => at = at.saturating_add(rule.flags.skip),
                Next::Round => at = 0,
                Next::Nothing if rule.flags.pass_through => {
                    return (Change::Substituted { is_raw: false }, last);
                }
                Next::Nothing => break,
                Next::Refuse(status) => return (Change::Refused(status), last),
            }
        }
        (change, last)
    }

    /// Returns the next step after a rule that has matched.
    fn go_on(&mut self, rule: &Rule, round: &mut u32) -> Next {
        let flags = &rule.flags;
        if flags.pass_through {
            trace!(
                self,
                2,
                "forcing '{}' to get passed through to next API URI-to-filename handler",
                quoted(&self.filename)
            );
            self.is_passed = true;
            return Next::Nothing;
        }
        if flags.end {
            trace!(self, 8, "Rule has END flag, no further rewriting for this request");
            self.request.resource.is_rewriting_over = true;
            return Next::Nothing;
        }
        if flags.proxy || flags.last {
            return Next::Nothing;
        }
        let Some(bound) = flags.next_round else { return Next::Rule };
        *round = round.saturating_add(1);
        if *round < bound {
            return Next::Round;
        }
        let text = format!(
            "RewriteRule '{}' and URI '{}' exceeded maximum number of rounds ({bound}) via the \
             [N] flag",
            rule.pattern.text(),
            quoted(&self.request.resource.path)
        );
        self.request.notify(Notice::new("rewrite", Level::Error, 2596, text));
        Next::Refuse(Status::INTERNAL_SERVER_ERROR)
    }

    /// Returns status 500 if the file name has become too long, which ends a loop of rules that
    /// extend the path.
    fn too_long(&mut self, rule: &Rule) -> Option<Status> {
        let longest = self.core.server.conduct.limit_request_line.unwrap_or(8190) * 2;
        if self.filename.len() <= longest {
            return None;
        }
        let text = format!(
            "RewriteRule '{}' and URI '{}' exceeded maximum length ({longest})",
            rule.pattern.text(),
            quoted(&self.request.resource.path)
        );
        self.request.notify(Notice::own("rewrite", Level::Error, text));
        Some(Status::INTERNAL_SERVER_ERROR)
    }

    /// Sets `uri` to the path that patterns are matched against: for rules of a section, the part
    /// after the section's directory.
    fn find_uri(&mut self) {
        if self.is_uri_known && self.trace.level < 3 {
            return;
        }
        self.is_uri_known = true;
        self.uri.clone_from(&self.filename);
        let Some(base) = self.base else { return };
        let path_info = &self.request.resource.path_info;
        if !path_info.is_empty() {
            self.uri.extend_from_slice(path_info);
            let (before, after) = (&self.filename, &self.uri);
            trace!(self, 3, "add path info postfix: {} -> {}", quoted(before), quoted(after));
        }
        if self.uri.starts_with(base.folder) {
            let whole = &self.uri;
            let rest = whole.get(base.folder.len()..).unwrap_or_default().to_vec();
            trace!(self, 3, "strip per-dir prefix: {} -> {}", quoted(whole), quoted(&rest));
            self.uri = rest;
        }
    }

    /// Applies one rule.
    async fn apply(&mut self, rule: &Rule) -> Step<Applied> {
        self.find_uri();
        let pattern = rule.pattern.text();
        trace!(self, 3, "applying pattern '{pattern}' to uri '{}'", quoted(&self.uri));
        if !self.matches(rule)? {
            return Ok(Applied::NoMatch);
        }
        self.varies_by.clear();
        self.condition_groups.clear();
        match self.holds(rule).await {
            Ok(true) => {}
            Ok(false) => return Ok(Applied::NoMatch),
            Err(status) => return Ok(Applied::Refused(status)),
        }
        let output = match rule.no_substitution {
            true => None,
            false => Some(self.expand_output(rule).await?),
        };
        if let Some(None) = output {
            let text = "Unsafe URL with %3f URL rewritten without UnsafeAllow3F";
            self.request.notify(Notice::new("rewrite", Level::Error, 10508, text));
            return Ok(Applied::Refused(Status::FORBIDDEN));
        }
        self.set_variables(rule).await?;
        for text in &rule.flags.cookies {
            let text = self.expand(rule, text, None, None).await?;
            cookie::add(self, &text);
        }
        match output.flatten() {
            Some(output) => self.substitute(rule, output).await,
            None => {
                self.force_content(rule).await?;
                if rule.flags.answers {
                    self.status = rule.flags.redirect_status();
                    let (status, filename) = (self.status, &self.filename);
                    trace!(self, 2, "forcing responsecode {status} for {}", quoted(filename));
                }
                Ok(Applied::NoSubstitution)
            }
        }
    }

    /// Whether the pattern of a rule matches, or does not match if it is negated.
    fn matches(&mut self, rule: &Rule) -> Step<bool> {
        let allowance = &self.request.allowance;
        let matched = match rule.is_negated {
            false => rule.pattern.capture_within(allowance, &self.uri, &mut self.rule_groups),
            true => rule.pattern.matches_within(allowance, &self.uri).map(|matched| !matched),
        };
        if rule.is_negated && matches!(matched, Ok(true)) {
            self.rule_groups.clear();
        }
        matched.map_err(|error| self.give_up(rule, &error))
    }

    /// Whether the conditions of a rule hold.
    async fn holds(&mut self, rule: &Rule) -> Step<bool> {
        let mut conditions = rule.conditions.iter();
        while let Some(condition) = conditions.next() {
            let holds = self.test(rule, condition).await?;
            if condition.flags.no_vary {
                self.varies_by.clear();
            }
            match (holds, condition.flags.or_next) {
                (false, true) => {
                    self.varies_by.clear();
                    continue;
                }
                (false, false) => return Ok(false),
                // One alternative holds; the others are skipped.
                (true, true) => while conditions.next().is_some_and(|it| it.flags.or_next) {},
                (true, false) => {}
            }
            self.vary.append(&mut self.varies_by);
        }
        Ok(true)
    }

    /// Expands the substitution. Returns `None` if a group or variable contributes the question
    /// mark that begins the query (CVE-2024-38474).
    async fn expand_output(&mut self, rule: &Rule) -> Step<Option<Vec<u8>>> {
        let mut mark = QuestionMark::new(rule.query.is_after_last);
        let watched = (!rule.flags.allow_3f).then_some(&mut mark);
        let escaping = rule.flags.escaping.as_ref();
        let output = self.expand(rule, &rule.output, escaping, watched).await?;
        trace!(self, 2, "rewrite '{}' -> '{}'", quoted(&self.uri), quoted(&output));
        Ok((!mark.is_unsafe()).then_some(output))
    }

    /// Replaces the path with the expanded substitution.
    async fn substitute(&mut self, rule: &Rule, mut output: Vec<u8>) -> Step<Applied> {
        let flags = &rule.flags;
        let mut is_prefixed = false;
        if !output.starts_with(b"/") && scheme(&output).is_none() {
            if let Some(base) = self.base {
                let whole = [base.folder, &output].concat();
                let (before, after) = (&output, &whole);
                trace!(self, 3, "add per-dir prefix: {} -> {}", quoted(before), quoted(after));
                (output, is_prefixed) = (whole, true);
            } else if !(flags.proxy || flags.redirect) {
                trace!(self, 3, "add root prefix: {0} -> /{0}", quoted(&output));
                output.insert(0, b'/');
                is_prefixed = true;
            }
        }
        self.filename = output;
        self.is_uri_known = false;
        if self.base.is_some() && flags.discard_path_info {
            self.request.resource.path_info.clear();
        }
        self.split_query(rule);
        if flags.proxy {
            self.qualify();
            trace!(self, 2, "forcing proxy-throughput with {}", quoted(&self.filename));
            self.is_proxied = true;
            self.proxy_origin = origin(&rule.written).to_vec();
            return Ok(Applied::Matched);
        }
        if flags.redirect {
            self.qualify();
            trace!(self, 2, "explicitly forcing redirect with {}", quoted(&self.filename));
            self.status = flags.redirect_status();
            return Ok(Applied::Matched);
        }
        self.reduce();
        if scheme(&self.filename).is_some() {
            self.status = flags.redirect_status();
            let (status, filename) = (self.status, &self.filename);
            trace!(self, 2, "implicitly forcing redirect (rc={status} with {}", quoted(filename));
            return Ok(Applied::Matched);
        }
        // Slashes at the beginning are merged, unless the substitution itself begins with two.
        if !flags.unc && !is_prefixed && !rule.written.starts_with(b"//") {
            let slashes = self.filename.iter().take_while(|byte| **byte == b'/').count();
            self.filename.drain(..slashes.saturating_sub(1));
        }
        self.force_content(rule).await?;
        Ok(Applied::Matched)
    }
}

/// The next step of a run.
enum Next {
    Rule,
    Round,
    Nothing,
    Refuse(Status),
}

/// The part of a substitution before the path of its URI, such as `fcgi://host:port` or
/// `unix:/socket|fcgi://host`. Empty if that part contains a reference. References may follow it at
/// once if they are all of the path: `http://host:8080$1` and `http://host%{REQUEST_URI}`.
fn origin(written: &[u8]) -> &[u8] {
    let is_reference = |byte: &u8| matches!(byte, b'$' | b'%' | b'\\');
    let literal = written.split(is_reference).next().unwrap_or_default();
    let host = literal.windows(3).position(|window| window == b"://").map(|at| at + 3);
    let end = host.and_then(|host| {
        let slash = literal.get(host..)?.iter().position(|byte| *byte == b'/')?;
        Some(host + slash)
    });
    // A substitution without a path and without references consists of the origin alone.
    let rest = written.get(literal.len()..).unwrap_or_default();
    // Behind a colon, a reference would be the port.
    let is_whole = |host| host < literal.len() && !literal.ends_with(b":");
    let is_origin = host.is_some_and(is_whole) && is_path(rest);
    let whole = is_origin.then_some(literal.len());
    end.or(whole).and_then(|end| literal.get(..end)).unwrap_or_default()
}

/// Whether a text behind an origin consists of references, up to its end or to a query. Anything
/// else could be a part of the host or of the port.
fn is_path(mut rest: &[u8]) -> bool {
    loop {
        rest = match rest {
            [] | [b'?', ..] => return true,
            [b'$' | b'%', b'0'..=b'9', rest @ ..] => rest,
            [b'%', b'{', rest @ ..] => match rest.iter().position(|byte| *byte == b'}') {
                Some(end) => rest.get(end + 1..).unwrap_or_default(),
                None => return false,
            },
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_of_a_target_is_the_rules_own() {
        assert_eq!(origin(b"fcgi://127.0.0.1:9000/a/$1"), b"fcgi://127.0.0.1:9000");
        assert_eq!(origin(b"unix:/run/a.sock|fcgi://x/$1"), b"unix:/run/a.sock|fcgi://x");
        assert_eq!(origin(b"fcgi://host"), b"fcgi://host");
        assert_eq!(origin(b"http://host:80$1"), b"http://host:80");
        assert_eq!(origin(b"http://host%{REQUEST_URI}?a=%1"), b"http://host");
        for chosen in [
            &b"fcgi://$1/x"[..],
            b"fcgi://a.%1:9/x",
            b"$0",
            b"unix:/$1|fcgi://x/",
            b"/x",
            b"http://$1",
            b"http://%{HTTP_HOST}",
            b"http://a$1.example/",
            b"http://a:80$1/",
            b"http://a%{X",
            b"http://a:$1",
            b"http://a%{HTTP_HOST}:80/",
        ] {
            assert_eq!(origin(chosen), b"", "{}", chosen.escape_ascii());
        }
    }
}
