//! The run of a list of rules (mod_rewrite.c: apply_rewrite_list, apply_rewrite_rule). It changes
//! the file name, the query and the environment of a request step by step; `server` and `folder`
//! make an outcome of what is left in the end.

use super::expand::QuestionMark;
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

/// What comes when it is there.
pub(super) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What the rules of a request need of the server around them.
pub trait Surroundings {
    /// Runs the phases before the handler for another path or file, and has `read` read a value
    /// there (Apache: ap_sub_req_lookup_uri, ap_sub_req_lookup_file).
    fn look<'a>(
        &'a self,
        request: &'a mut Box<Request>,
        ahead: Ahead,
        read: &'a dyn Fn(&RequestContext<'_>, &[u8]) -> Vec<u8>,
    ) -> Later<'a, Look>;

    /// Evaluates the expression of a condition, for which the file has this name.
    fn decide<'a>(
        &'a self,
        request: &'a mut Box<Request>,
        filename: &'a [u8],
        condition: &'a Condition,
    ) -> Later<'a, Verdict>;

    /// Makes the file of a request the one that a path names below DocumentRoot (core.c:
    /// ap_core_translate).
    ///
    /// # Errors
    /// The status where the path names none.
    fn map_below_root(&self, request: &mut Request, path: &[u8]) -> Result<(), Status>;
}

/// What a look ahead is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// A URL, which may be relative to that of the request.
    Url(Vec<u8>),
    /// A file, which may be relative to that of the request.
    File(Vec<u8>),
}

/// What a look ahead came upon.
#[derive(Debug)]
pub struct Look {
    /// The status of the subrequest.
    pub status: Status,
    /// The name of its file.
    pub file: Vec<u8>,
    /// The value that was read.
    pub value: Vec<u8>,
    /// Whether it cannot be told what a request there would be answered: something that decides
    /// this is missing.
    pub is_undecided: bool,
}

/// The result of an expression.
#[derive(Debug)]
pub struct Verdict {
    /// Whether it holds.
    pub answer: Result<bool, EvaluationError>,
    /// The groups of its last match.
    pub captures: Captures,
    /// The fields of the request that it depends on, as a Vary field.
    pub vary: Fields,
}

/// The folder or path that the rules of a section begin from.
#[derive(Clone, Copy)]
pub(super) struct Base<'a> {
    /// Its name with a slash at its end.
    pub folder: &'a [u8],
    /// RewriteBase.
    pub url: Option<&'a [u8]>,
}

/// What a list of rules has made of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No rule has substituted anything.
    Nothing,
    /// One has; a redirect is escaped, unless the rule had the flag NE.
    Substituted { is_raw: bool },
    /// A rule has set the status that is the answer.
    Answered,
    /// A rule could not be carried out.
    Refused(Status),
}

/// What a rule has done.
enum Applied {
    NoMatch,
    Matched,
    /// It matched and has no substitution.
    NoSubstitution,
    Refused(Status),
}

/// A rule or condition that cannot be evaluated ends the run with a status.
pub(super) type Step<T> = Result<T, Status>;

/// A run of rules.
pub(super) struct Run<'a> {
    pub request: &'a mut Box<Request>,
    pub around: &'a dyn Surroundings,
    pub core: CoreSettings<'a>,
    pub server: &'a Server,
    /// None for the rules of a server.
    pub base: Option<Base<'a>>,
    /// What stands at the file of the request, where that is known.
    pub found: Option<&'a Looked>,
    pub trace: Trace,
    /// The file name, or the path that becomes one (Apache: r->filename).
    pub filename: Vec<u8>,
    /// The status of a redirect or of an answer (Apache: r->status).
    pub status: u16,
    /// Whether a rule had the flag PT.
    pub is_passed: bool,
    /// Whether a rule had the flag P, and was the last one.
    pub is_proxied: bool,
    /// The beginning of the URI of a proxy up to its path, where the rule itself names it.
    pub proxy_origin: Vec<u8>,
    /// Whether `http://` with a name of this host was cut off.
    pub is_reduced: bool,
    /// What the patterns of rules are matched with.
    pub uri: Vec<u8>,
    /// Whether `uri` is that of the file name.
    is_uri_known: bool,
    pub rule_groups: Captures,
    pub condition_groups: Captures,
    /// The fields that the condition at hand depends on, and those of the rule so far.
    pub varies_by: Vec<Vec<u8>>,
    vary: Vec<Vec<u8>>,
}

impl<'a> Run<'a> {
    /// A run that begins with the file name of the request.
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

    /// The request as expressions see it.
    pub(super) fn context(&self) -> RequestContext<'_> {
        RequestContext::new(self.request, self.core).with_filename(&self.filename)
    }

    /// Whether the request may look ahead: a subrequest for the path of its own request asks no
    /// more (mod_rewrite.c: subreq_ok).
    pub(super) fn may_look(&self) -> bool {
        let resource = &self.request.resource;
        resource.main_path.as_deref() != Some(&resource.path[..])
    }

    /// The status of a redirect stays where a later rule has put a path in the place of its target
    /// (flag R without L).
    pub(super) fn keep_status(&mut self) {
        let status = Status::new(self.status).filter(|status| *status != Status::OK);
        if let Some(status) = status {
            self.request.resource.status = status;
        }
    }

    /// Tells why a rule cannot be carried out.
    pub(super) fn give_up(&mut self, rule: &Rule, why: &dyn Display) -> Status {
        let text = format!("{why}, in the RewriteRule of {} or its conditions", rule.position);
        self.request.notify(Notice::own("rewrite", Level::Error, text));
        Status::INTERNAL_SERVER_ERROR
    }

    /// Applies rules in their order. Returns the last one that substituted anything, too.
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

    /// What comes after a rule that has matched.
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

    /// A loop of rules that add to the path must end.
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

    /// Makes `uri` what the patterns of rules are matched with: the path behind the folder that the
    /// rules begin from.
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

    /// Whether the pattern of a rule matches, or fails to where it must.
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
                // The other conditions of the alternative are skipped.
                (true, true) => while conditions.next().is_some_and(|it| it.flags.or_next) {},
                (true, false) => {}
            }
            self.vary.append(&mut self.varies_by);
        }
        Ok(true)
    }

    /// The substitution with all that it names; none where a group or variable has put a question
    /// mark into it.
    async fn expand_output(&mut self, rule: &Rule) -> Step<Option<Vec<u8>>> {
        let mut mark = QuestionMark::new(rule.query.is_after_last);
        let watched = (!rule.flags.allow_3f).then_some(&mut mark);
        let escaping = rule.flags.escaping.as_ref();
        let output = self.expand(rule, &rule.output, escaping, watched).await?;
        trace!(self, 2, "rewrite '{}' -> '{}'", quoted(&self.uri), quoted(&output));
        Ok((!mark.is_unsafe()).then_some(output))
    }

    /// Puts the substitution in the place of the path.
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
        // Slashes at the beginning are merged, unless the substitution itself has two.
        if !flags.unc && !is_prefixed && !rule.written.starts_with(b"//") {
            let slashes = self.filename.iter().take_while(|byte| **byte == b'/').count();
            self.filename.drain(..slashes.saturating_sub(1));
        }
        self.force_content(rule).await?;
        Ok(Applied::Matched)
    }
}

/// How a run goes on.
enum Next {
    Rule,
    Round,
    Nothing,
    Refuse(Status),
}

/// The beginning of a substitution up to the path of its URI: `fcgi://host:port` or
/// `unix:/socket|fcgi://host`. Empty where a reference stands in it.
fn origin(written: &[u8]) -> &[u8] {
    let is_reference = |byte: &u8| matches!(byte, b'$' | b'%' | b'\\');
    let literal = written.split(is_reference).next().unwrap_or_default();
    let host = literal.windows(3).position(|window| window == b"://").map(|at| at + 3);
    let end = host.and_then(|host| {
        let slash = literal.get(host..)?.iter().position(|byte| *byte == b'/')?;
        Some(host + slash)
    });
    // A substitution without a path and without references names nothing but an origin.
    let whole = (literal.len() == written.len() && host.is_some()).then_some(written.len());
    end.or(whole).and_then(|end| literal.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_of_a_target_is_the_rules_own() {
        assert_eq!(origin(b"fcgi://127.0.0.1:9000/a/$1"), b"fcgi://127.0.0.1:9000");
        assert_eq!(origin(b"unix:/run/a.sock|fcgi://x/$1"), b"unix:/run/a.sock|fcgi://x");
        assert_eq!(origin(b"fcgi://host"), b"fcgi://host");
        for chosen in [&b"fcgi://$1/x"[..], b"fcgi://a.%1:9/x", b"$0", b"unix:/$1|fcgi://x/", b"/x"]
        {
            assert_eq!(origin(chosen), b"", "{}", chosen.escape_ascii());
        }
    }
}
