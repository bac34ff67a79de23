//! Decides conditions (mod_rewrite.c: apply_rewrite_cond): tests of files, subrequests, patterns
//! with groups, and expressions.

use super::condition::{Condition, FileTest, Test, counts, relates};
use super::engine::{Ahead, Look, Run, Step};
use super::rule::Rule;
use crate::RequestContext;
use crate::core::merge_vary;
use evenkeel_expr::Condition as Expression;
use evenkeel_files::Kind;
use evenkeel_message::{Level, Notice, quoted};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

impl Run<'_> {
    /// Whether a condition holds.
    pub(super) async fn test(&mut self, rule: &Rule, condition: &Condition) -> Step<bool> {
        let is_negated = condition.is_negated;
        if let Test::Expression(expression) = &condition.test {
            let holds = self.decide(rule, condition, expression).await? != is_negated;
            self.trace_result(condition, None, holds);
            return Ok(holds);
        }
        let input = self.input(rule, condition).await?;
        let holds = match &condition.test {
            Test::Pattern(pattern) => {
                let allowance = &self.request.allowance;
                let groups = &mut self.condition_groups;
                let matched = match is_negated {
                    false => pattern.capture_within(allowance, &input, groups),
                    true => pattern.matches_within(allowance, &input),
                };
                matched.map_err(|error| self.give_up(rule, &error))?
            }
            Test::Expression(_) => false,
            Test::File(test) => self.has(&input, *test),
            Test::Url => self.may_have_url(rule, &input).await?,
            Test::AllowedFile => self.may_have_file(rule, &input).await?,
            Test::Text(relation, wanted) => {
                relates(*relation, &input, wanted, condition.flags.no_case)
            }
            Test::Number(relation, wanted) => counts(*relation, &input, *wanted),
        };
        let holds = holds != is_negated;
        self.trace_result(condition, Some(&input), holds);
        Ok(holds)
    }

    fn trace_result(&mut self, condition: &Condition, input: Option<&[u8]>, holds: bool) {
        let shown = &condition.shown;
        trace!(
            self,
            4,
            "RewriteCond: input='{}' pattern='{shown}'{} => {}",
            // Apache logs a null pointer, since an expression has no test string.
            quoted(input.unwrap_or(b"(null)")),
            if condition.flags.no_case { " [NC]" } else { "" },
            if holds { "matched" } else { "not-matched" }
        );
    }

    /// Whether an expression is true. As in Apache, it is false if a file that it tests cannot be
    /// read. Any other evaluation error ends the run.
    async fn decide(
        &mut self,
        rule: &Rule,
        condition: &Condition,
        expression: &Expression,
    ) -> Step<bool> {
        let verdict = self.around.decide(self.request, &self.filename, expression).await;
        if !condition.flags.no_vary {
            merge_vary(&mut self.request.resource.fields, &verdict.vary);
        }
        let position = &condition.position;
        match verdict.answer {
            Ok(holds) => {
                if self.trace.level >= 4 {
                    let gave = u8::from(holds);
                    let text = format!("Evaluation of expression from {position} gave: {gave}");
                    self.trace.write_alone(self.request, 4, text);
                }
                if holds && !condition.is_negated {
                    self.condition_groups = verdict.captures;
                }
                Ok(holds)
            }
            Err(error) if error.is_of_file() => {
                let text = format!("Evaluation of expression from {position} failed: {error}");
                self.request.notify(Notice::own("rewrite", Level::Error, text));
                let shown = &condition.shown;
                trace!(self, 1, "RewriteCond: expr='{shown}' evaluation failed: {error}");
                Ok(false)
            }
            Err(error) => Err(self.give_up(rule, &error)),
        }
    }

    /// Whether a file has the property.
    fn has(&self, path: &[u8], test: FileTest) -> bool {
        // Most conditions test the file of the request, whose kind is already known.
        if let Some(kind) = self.known_kind(path) {
            match (test, kind) {
                (FileTest::Regular, kind) => return kind == Kind::File,
                (FileTest::Folder, kind) => return kind == Kind::Directory,
                (FileTest::NotEmpty | FileTest::Executable, Kind::Absent) => return false,
                _ => {}
            }
        }
        let path = Path::new(OsStr::from_bytes(path));
        let facts = || std::fs::metadata(path).ok();
        let is = |kind: fn(&Metadata) -> bool| facts().is_some_and(|facts| kind(&facts));
        match test {
            FileTest::Regular => is(Metadata::is_file),
            FileTest::NotEmpty => is(|facts| facts.is_file() && facts.len() > 0),
            FileTest::Folder => is(Metadata::is_dir),
            FileTest::Executable => is(|facts| facts.permissions().mode() & 0o111 != 0),
            FileTest::Link => std::fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink()),
        }
    }

    /// Returns the kind of the file at `path` if it is the request's file and its lookup was
    /// conclusive.
    fn known_kind(&self, path: &[u8]) -> Option<Kind> {
        let found = self.found.filter(|_| path == self.request.resource.file.as_bytes())?;
        let kind = found.found.kind();
        matches!(kind, Kind::File | Kind::Directory | Kind::Absent).then_some(kind)
    }

    /// Whether a subrequest for the URL has a status below 400.
    async fn may_have_url(&mut self, rule: &Rule, url: &[u8]) -> Step<bool> {
        if url.is_empty() || !self.may_look() {
            return Ok(false);
        }
        let look = self.look(rule, Ahead::Url(url.to_vec()), &nothing).await?;
        let status = look.status.code();
        trace_plain!(self, 5, "RewriteCond URI (-U check: path={} -> status={status}", quoted(url));
        Ok(look.status.code() < 400)
    }

    /// Whether a subrequest for the file has a status below 300 and its file exists.
    async fn may_have_file(&mut self, rule: &Rule, path: &[u8]) -> Step<bool> {
        if path.is_empty() || !self.may_look() {
            return Ok(false);
        }
        let look = self.look(rule, Ahead::File(path.to_vec()), &nothing).await?;
        let file = Path::new(OsStr::from_bytes(&look.file));
        let is_there = look.status.code() < 300 && std::fs::metadata(file).is_ok();
        let status = look.status.code();
        trace_plain!(
            self,
            5,
            "RewriteCond file (-F check: path={} -> file={} status={status}",
            quoted(path),
            quoted(&look.file)
        );
        Ok(is_there)
    }

    /// Runs a look-ahead subrequest. An undecided result ends the run.
    pub(super) async fn look(
        &mut self,
        rule: &Rule,
        ahead: Ahead,
        read: &dyn Fn(&RequestContext<'_>, &[u8]) -> Vec<u8>,
    ) -> Step<Look> {
        let look = self.around.look(self.request, ahead, read).await;
        match look.is_undecided {
            false => Ok(look),
            true => Err(self.give_up(rule, &"what another path is answered cannot be told")),
        }
    }
}

fn nothing(_: &RequestContext<'_>, _: &[u8]) -> Vec<u8> {
    Vec::new()
}
