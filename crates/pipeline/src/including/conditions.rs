//! The expressions of `if` and `elif`: those of ap_expr, and those of SSILegacyExprParser
//! (mod_include.c: parse_ap_expr, parse_expr).

use super::Run;
use crate::question::evaluate;
use evenkeel_expr::{Author, Captures, Condition, Context, Evaluation, Variable};
use evenkeel_message::{Allowance, Level, Notice, Request, quoted};
use evenkeel_modules::RequestContext;
use evenkeel_modules::include::{Answers, Expression, Matched, Page, PageVariables};
use std::borrow::Cow;
use std::cell::RefCell;
use std::net::IpAddr;

/// What a condition has come to.
struct Evaluated {
    /// None if the condition is invalid.
    holds: Option<bool>,
    matched: Option<Matched>,
    notices: Vec<Notice>,
}

impl Run {
    /// Evaluates the expression of an element, and lets the page go on accordingly.
    pub(super) async fn decide(&mut self, text: &[u8]) {
        let evaluated = match self.page.settings.is_legacy {
            true => self.evaluate_legacy(text).await,
            false => self.evaluate(text).await,
        };
        self.page.matched = evaluated.matched;
        let mut out = Vec::new();
        self.page.decide(evaluated.holds, &mut out);
        self.outbox.send(out.into()).await;
        self.tell(evaluated.notices);
    }

    async fn evaluate(&mut self, text: &[u8]) -> Evaluated {
        let file = self.page.settings.file.clone();
        let invalid = |number, what: &str, error: &dyn std::fmt::Display| {
            let text =
                format!("Could not {what} expr \"{}\" in {}: {error}", quoted(text), quoted(&file));
            Notice::new("include", Level::Error, number, text)
        };
        let matched = self.page.matched.clone();
        let condition = match Condition::compile(&quoted(text), Author::Page) {
            Ok(condition) => condition,
            Err(error) => {
                let notices = vec![invalid(1337, "parse", &error)];
                return Evaluated { holds: None, matched, notices };
            }
        };
        let Self { pipeline, plan, page, shared, request, .. } = self;
        let core = pipeline.site.server(request.server).core(plan);
        let evaluation = |request: &mut Request| {
            let notices = RefCell::new(Vec::new());
            let known = matched.as_ref().filter(|matched| matched.is_match);
            let captures = known.map_or_else(Captures::default, |it| it.captures.clone());
            let (result, captures) = {
                let context = PageContext {
                    request: RequestContext::new(request, core),
                    page,
                    variables: &shared.variables,
                    notices: &notices,
                };
                let mut evaluation = Evaluation::with_captures(&context, captures);
                let result = evaluation.holds(&condition);
                (result, evaluation.captures().clone())
            };
            (result, captures, notices.into_inner())
        };
        let (result, captures, mut notices) = evaluate(pipeline, request, plan, evaluation).await;
        let holds = match result {
            Ok(holds) => Some(holds),
            Err(error) => {
                notices.push(invalid(1338, "evaluate", &error));
                None
            }
        };
        let is_match = captures.span(0).is_some();
        let matched = match self.page.matched.take() {
            Some(before) => Matched { captures, is_match, ..before },
            None => Matched { captures, is_match, ..Matched::default() },
        };
        Evaluated { holds, matched: Some(matched), notices }
    }

    async fn evaluate_legacy(&mut self, text: &[u8]) -> Evaluated {
        let Self { pipeline, plan, page, shared, request, .. } = self;
        let invalid = |invalid: evenkeel_modules::include::Invalid| {
            let file = quoted(&page.settings.file);
            let text = format!("{} \"{}\" in file {file}", invalid.1, quoted(text));
            Notice::new("include", Level::Error, invalid.0, text)
        };
        let expression = match Expression::parse(text) {
            Ok(expression) => expression,
            Err(error) => {
                let (matched, notices) = (page.matched.clone(), vec![invalid(error)]);
                return Evaluated { holds: None, matched, notices };
            }
        };
        let evaluation = |request: &mut Request| {
            let mut answers = PageAnswers {
                request,
                page,
                matched: page.matched.clone(),
                variables: &shared.variables,
                notices: Vec::new(),
            };
            let result = expression.evaluate(&mut answers);
            (result, answers.matched, answers.notices)
        };
        let (result, matched, mut notices) = evaluate(pipeline, request, plan, evaluation).await;
        let holds = match result {
            Ok(holds) => Some(holds),
            Err(error) => {
                notices.push(invalid(error));
                None
            }
        };
        Evaluated { holds, matched, notices }
    }
}

/// A request as an expression of a page sees it: its environment is that of the page.
struct PageContext<'a> {
    request: RequestContext<'a>,
    page: &'a Page,
    variables: &'a RefCell<PageVariables>,
    notices: &'a RefCell<Vec<Notice>>,
}

impl Context for PageContext<'_> {
    fn variable(&self, variable: Variable) -> Cow<'_, [u8]> {
        self.request.variable(variable)
    }

    fn request_header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.request.request_header(name)
    }

    fn response_header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.request.response_header(name)
    }

    fn request_environment(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let variables = &mut self.variables.borrow_mut();
        let notices = &mut self.notices.borrow_mut();
        self.page.value(name, variables, notices).map(Cow::Owned)
    }

    fn note(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.request.note(name)
    }

    fn client_address(&self) -> Option<IpAddr> {
        self.request.client_address()
    }

    fn file_allowed(&self, path: &[u8]) -> Option<bool> {
        self.request.file_allowed(path)
    }

    fn url_allowed(&self, url: &[u8]) -> Option<bool> {
        self.request.url_allowed(url)
    }

    fn allowance(&self) -> Option<&Allowance> {
        self.request.allowance()
    }
}

/// What an expression of Apache 2.2 asks of a page.
struct PageAnswers<'a> {
    request: &'a mut Request,
    page: &'a Page,
    matched: Option<Matched>,
    variables: &'a RefCell<PageVariables>,
    notices: Vec<Notice>,
}

impl Answers for PageAnswers<'_> {
    fn expanded(&mut self, text: &[u8]) -> Vec<u8> {
        let variables = &mut self.variables.borrow_mut();
        self.page.expanded_within(self.matched.as_ref(), text, variables, &mut self.notices)
    }

    fn matches(&mut self, text: &[u8], pattern: &[u8]) -> bool {
        Page::try_pattern(&mut self.matched, text, pattern, &mut self.notices)
    }

    fn allows(&mut self, url: &[u8]) -> bool {
        let Some(probe) = self.request.probe.clone() else { return false };
        let allows = probe.allows_url(self.request, url).unwrap_or(false);
        if !allows {
            let text = format!(
                "mod_include: The tested subrequest -A \"{}\" returned an error code.",
                quoted(url)
            );
            self.notices.push(Notice::new("include", Level::Debug, 1336, text));
        }
        allows
    }
}
