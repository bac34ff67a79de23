//! Expands templates: replaces variables, map lookups and groups with their values (mod_rewrite.c:
//! do_expand). Values are not expanded again.

use super::condition::Condition;
use super::engine::{Ahead, Later, Run, Step};
use super::map::{Function, Map, ProgramMap, TableFault, choose};
use super::rule::Rule;
use super::template::{Lookup, Piece, Template};
use super::trace::{HANDLER_NOTE, TYPE_NOTE};
use super::uri::Escaping;
use super::variable::Variable;
use crate::RequestContext;
use evenkeel_expr::Variable as Known;
use evenkeel_message::{Level, Notice, quoted, quoted_path};
use std::io;

/// The maximum length of an expanded text in bytes. Without it, a rule could double a variable that
/// the previous rule has set, in each round.
const LONGEST: usize = 1 << 20;

/// The cost of a byte of an expanded text, in steps of the request's allowance.
const STEPS_A_BYTE: u64 = 4;

/// Finds the question mark that begins the query of a substitution, and whether a group or variable
/// contributes it. A client could otherwise choose the query of a script.
#[derive(Debug)]
pub(super) struct QuestionMark {
    is_unsafe: bool,
    /// Whether the next question mark begins the query.
    is_open: bool,
    is_last: bool,
}

impl QuestionMark {
    /// Watches for the first question mark, or for the last one.
    pub(super) fn new(is_last: bool) -> Self {
        Self { is_unsafe: false, is_open: true, is_last }
    }

    /// Whether a group or variable contributes the question mark.
    pub(super) fn is_unsafe(&self) -> bool {
        self.is_unsafe
    }

    fn see(&mut self, text: &[u8], is_inserted: bool) {
        if self.is_open && text.contains(&b'?') {
            self.is_unsafe = is_inserted;
            self.is_open = self.is_last;
        }
    }
}

impl Run<'_> {
    /// Expands a template. Groups are escaped with `escaping`; `mark` records the question marks.
    pub(super) async fn expand(
        &mut self,
        rule: &Rule,
        template: &Template,
        escaping: Option<&Escaping>,
        mut mark: Option<&mut QuestionMark>,
    ) -> Step<Vec<u8>> {
        let mut text = Vec::new();
        for piece in &template.pieces {
            let begin = text.len();
            let mut is_inserted = true;
            match piece {
                Piece::Literal(literal) => {
                    text.extend_from_slice(literal);
                    is_inserted = false;
                }
                Piece::EscapedQuestionMark => {
                    text.push(b'?');
                    continue;
                }
                Piece::Variable(variable) if variable.is_ahead() => {
                    let value = self.look_ahead(rule, variable).await?;
                    text.extend_from_slice(&value);
                }
                Piece::Variable(variable) => self.put_variable(variable, &mut text),
                Piece::Map(lookup) => {
                    let found: Later<'_, _> = Box::pin(self.ask_map(rule, lookup, escaping));
                    text.extend_from_slice(&found.await?);
                }
                Piece::RuleGroup(number) => {
                    put_group(self.rule_groups.group(*number), escaping, &mut text);
                    self.trace_escape(self.rule_groups.group(*number).to_vec(), escaping);
                }
                Piece::ConditionGroup(number) => {
                    put_group(self.condition_groups.group(*number), escaping, &mut text);
                    self.trace_escape(self.condition_groups.group(*number).to_vec(), escaping);
                }
            }
            if let Some(mark) = mark.as_deref_mut() {
                mark.see(text.get(begin..).unwrap_or_default(), is_inserted);
            }
            if text.len() > LONGEST {
                let why = format!("a text is longer than {LONGEST} bytes");
                return Err(self.give_up(rule, &why));
            }
        }
        let steps = STEPS_A_BYTE.saturating_mul(text.len() as u64);
        match self.request.allowance.spend(steps) && !self.request.allowance.is_spent() {
            true => Ok(text),
            false => Err(self.give_up(rule, &"the request takes too many steps in all")),
        }
    }

    fn trace_escape(&mut self, group: Vec<u8>, escaping: Option<&Escaping>) {
        if let Some(escaping) = escaping.filter(|_| !group.is_empty() && self.trace.level >= 5) {
            let escaped = escaping.escape(&group);
            let (before, after) = (quoted(&group), quoted(&escaped));
            trace!(self, 5, "escaping backreference '{before}' to '{after}'");
        }
    }

    fn put_variable(&mut self, variable: &Variable, text: &mut Vec<u8>) {
        let begin = text.len();
        text.extend_from_slice(&variable.value(&self.context(), &self.filename));
        if let Some(name) = variable.varies_by(self.request) {
            self.varies_by.push(name.to_vec());
        }
        let value = text.get(begin..).unwrap_or_default();
        match variable {
            Variable::Known(Known::Time) => trace!(self, 1, "RESULT='{}'", quoted(value)),
            Variable::Known(Known::Ipv6) => trace!(self, 1, "IPV6='{}'", quoted(value)),
            _ => {}
        }
    }

    /// Reads the value of a look-ahead variable in a subrequest for the path that the rule is
    /// matched against.
    async fn look_ahead(&mut self, rule: &Rule, variable: &Variable) -> Step<Vec<u8>> {
        let Variable::LookAhead { is_file, name, variable } = variable else {
            return Ok(Vec::new());
        };
        if !self.may_look() {
            return Ok(Vec::new());
        }
        let ahead = match (is_file, self.base) {
            // An absolute path is a URL.
            (true, Some(_)) if self.uri.starts_with(b"/") => Ahead::Url(self.uri.clone()),
            (true, Some(base)) => Ahead::File([base.folder, &self.uri].concat()),
            (true, None) => Ahead::File(self.uri.clone()),
            (false, Some(base)) if !self.uri.starts_with(b"/") => {
                Ahead::Url([base.url.unwrap_or(base.folder), &self.uri].concat())
            }
            (false, _) => Ahead::Url(self.uri.clone()),
        };
        let (Ahead::Url(path) | Ahead::File(path)) = ahead.clone();
        let read =
            |context: &RequestContext<'_>, file: &[u8]| variable.value(context, file).into_owned();
        let look = self.look(rule, ahead, &read).await?;
        if let Some(name) = variable.varies_by(self.request) {
            self.varies_by.push(name.to_vec());
        }
        trace!(
            self,
            5,
            "lookahead: path={} var={} -> val={}",
            quoted(&path),
            quoted(name),
            quoted(&look.value)
        );
        Ok(look.value)
    }

    /// Looks a key up in a map. Expands the default if the map has no value for it.
    async fn ask_map(
        &mut self,
        rule: &Rule,
        lookup: &Lookup,
        escaping: Option<&Escaping>,
    ) -> Step<Vec<u8>> {
        let key = self.expand(rule, &lookup.key, escaping, None).await?;
        let server = self.server;
        let value = match server.map(&lookup.map).map(|map| &**map) {
            Some(Map::Program(program)) => self.ask_program(&lookup.map, program, &key).await,
            _ => self.look_up(&lookup.map, &key),
        };
        match value {
            Some(value) => Ok(value),
            None => self.expand(rule, &lookup.default, escaping, None).await,
        }
    }

    /// Asks a program for the value of a key (mod_rewrite.c: lookup_map_program). A key with a line
    /// end would be two questions.
    async fn ask_program(
        &mut self,
        name: &str,
        program: &ProgramMap,
        key: &[u8],
    ) -> Option<Vec<u8>> {
        let shown = quoted(key).into_owned();
        let value = match key.contains(&b'\n') || !self.server.runs_programs() {
            true => None,
            false => self.around.ask_program(self.request, program, key).await,
        };
        let value = value.filter(|value| !value.eq_ignore_ascii_case(b"NULL"));
        match &value {
            Some(value) => {
                let value = quoted(value);
                trace_plain!(self, 5, "map lookup OK: map={name} key={shown} -> val={value}");
            }
            None => trace_plain!(self, 5, "map lookup FAILED: map={name} key={shown}"),
        }
        value
    }

    /// Looks a key up in a map. Returns `None` if the map has no value for it, or if there is no
    /// such map (mod_rewrite.c: lookup_map).
    fn look_up(&mut self, name: &str, key: &[u8]) -> Option<Vec<u8>> {
        let server = self.server;
        let map = server.map(name)?;
        let (table, is_choice) = match &**map {
            Map::Function(function) => {
                let value = function.of(key);
                // Apache logs the converted key, because all functions but `escape` convert it in
                // place.
                let key = if *function == Function::Escape { key } else { &value };
                trace_plain!(
                    self,
                    5,
                    "map lookup OK: map={name} key={} -> val={}",
                    quoted(key),
                    quoted(&value)
                );
                return Some(value);
            }
            Map::File { table, is_choice } => (table, *is_choice),
            Map::Program(_) => return None,
        };
        let found = match table.look_up(key) {
            Ok(found) => found,
            Err(fault) => {
                self.tell_fault(table.path(), &fault);
                return None;
            }
        };
        if !found.is_known {
            trace_plain!(self, 6, "cache lookup FAILED, forcing new map lookup");
        }
        let Some(value) = found.value else {
            if found.is_known {
                let key = quoted(key);
                trace_plain!(self, 5, "cache lookup OK: map={name}[txt] key={key} -> val=");
                return None;
            }
            trace_plain!(self, 5, "map lookup FAILED: map={name}[txt] key={}", quoted(key));
            return None;
        };
        let what = if found.is_known { "cache" } else { "map" };
        trace_plain!(
            self,
            5,
            "{what} lookup OK: map={name}[txt] key={} -> val={}",
            quoted(key),
            quoted(&value)
        );
        if !is_choice {
            return Some(value);
        }
        let chosen = choose(&value).to_vec();
        trace_plain!(self, 5, "randomly chosen the subvalue `{}'", quoted(&chosen));
        (!chosen.is_empty()).then_some(chosen)
    }

    fn tell_fault(&mut self, path: &std::path::Path, fault: &TableFault) {
        let path = quoted_path(path);
        let (number, what, error): (_, _, &io::Error) = match fault {
            TableFault::Access(error) => (661, "access", error),
            TableFault::Open(error) => (655, "open", error),
        };
        let text = format!("mod_rewrite: can't {what} text RewriteMap file {path}");
        let notice = Notice::new("rewrite", Level::Error, number, text);
        self.request.notify(notice.because(error));
    }

    /// Sets and removes the environment variables of the flag E (mod_rewrite.c: do_expand_env).
    pub(super) async fn set_variables(&mut self, rule: &Rule) -> Step<()> {
        for text in &rule.flags.env {
            let text = self.expand(rule, text, None, None).await?;
            let env = &mut self.request.resource.env;
            if let Some(name) = text.strip_prefix(b"!") {
                env.unset(name);
                trace_plain!(self, 5, "unsetting env variable '{}'", quoted(name));
                continue;
            }
            let mut parts = text.splitn(2, |byte| *byte == b':');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next());
            let value = value.unwrap_or_default();
            env.set(name, value);
            trace_plain!(self, 5, "setting env variable '{}' to '{}'", quoted(name), quoted(value));
        }
        Ok(())
    }

    /// Stores the media type and the handler of the flags T and H in the notes of the request
    /// (mod_rewrite.c: force_type_handler).
    pub(super) async fn force_content(&mut self, rule: &Rule) -> Step<()> {
        let escaping = rule.flags.escaping.as_ref();
        let forced = [
            (&rule.flags.media_type, TYPE_NOTE, "MIME-type"),
            (&rule.flags.handler, HANDLER_NOTE, "Content-handler"),
        ];
        for (template, note, what) in forced {
            let Some(template) = template else { continue };
            let mut value = self.expand(rule, template, escaping, None).await?;
            if value.is_empty() {
                continue;
            }
            value.make_ascii_lowercase();
            // The request must not choose the target of a proxy (CVE-2021-40438).
            if value.starts_with(b"proxy:") && !template.is_constant() {
                let text = format!(
                    "the handler {} is not set: a rule with references names no target of a proxy",
                    quoted(&value)
                );
                self.request.notify(Notice::own("rewrite", Level::Error, text));
                value = b"proxy:".to_vec();
            }
            let (filename, value) = (&self.filename, value);
            trace!(self, 2, "remember {} to have {what} '{}'", quoted(filename), quoted(&value));
            self.request.resource.notes.set(note, &value);
        }
        Ok(())
    }

    /// Expands the test string of a condition.
    pub(super) async fn input(&mut self, rule: &Rule, condition: &Condition) -> Step<Vec<u8>> {
        self.expand(rule, &condition.input, None, None).await
    }
}

/// Appends a group, escaped if the rule has the flag B.
fn put_group(group: &[u8], escaping: Option<&Escaping>, text: &mut Vec<u8>) {
    match escaping {
        Some(escaping) => text.extend_from_slice(&escaping.escape(group)),
        None => text.extend_from_slice(group),
    }
}
