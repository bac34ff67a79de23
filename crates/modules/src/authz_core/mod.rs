//! mod_authz_core: authorization by Require. The Require lines of a request's sections form one
//! tree of rules. The tree is evaluated before the login and, if a rule needs the user, again after
//! the login. An evaluation does not wait: a rule that lacks a fact leaves a look-up open, and the
//! pipeline evaluates the tree again when it is done.

mod directives;
mod provider;
mod rule;

pub use crate::NoSettings as Server;
pub use directives::MODULE;
pub use provider::Provider;
pub use rule::{Logic, Rule, Verdict};

use crate::core::{denied_by, is_logged, merge_vary, refused_target};
use crate::settings::merged;
use crate::{CoreSettings, Merge, RequestContext, Sections};
use evenkeel_message::{Fields, Level, Notice, Request, Status, quoted};
use std::collections::HashMap;
use std::sync::Arc;

/// The deepest nesting of rules that AuthMerging has joined. Their evaluation is recursive, and
/// .htaccess files add levels to it.
const DEPTH: u16 = 256;

/// How the rules of a section are combined with the rules of the outer sections (AuthMerging).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merging {
    /// The rules of the section replace the outer rules.
    Off,
    /// Both must grant access.
    And,
    /// At least one of them must grant access.
    Or,
}

/// The settings of one section. A field is `None` if the section does not set it.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// The Require lines and their containers, as one group.
    pub rules: Option<Rule>,
    /// AuthMerging. A section with rules does not inherit it.
    pub merging: Option<Merging>,
    /// AuthzSendForbiddenOnFailure.
    pub forbid_on_failure: Option<bool>,
    /// The nesting depth of the groups that AuthMerging has made.
    depth: u16,
}

impl Merge for Directory {
    /// Source: mod_authz_core.c, merge_authz_core_dir_config.
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        let Self { rules, merging, forbid_on_failure, depth } = over;
        self.forbid_on_failure.add(forbid_on_failure);
        if rules.is_none() && merging.is_none() {
            // A section without a directive of this module leaves AuthMerging unchanged. As in
            // Apache, AuthzSendForbiddenOnFailure alone resets it if there are no outer rules.
            if forbid_on_failure.is_some() {
                self.merging = self.merging.filter(|_| self.rules.is_some());
            }
            return;
        }
        let logic = match merging {
            None | Some(Merging::Off) => None,
            Some(Merging::And) => Some(Logic::All),
            Some(Merging::Or) => Some(Logic::Any),
        };
        self.merging = *merging;
        let (Some(logic), Some(outer)) = (logic, &self.rules) else {
            (self.rules, self.depth) = (rules.clone(), *depth);
            return;
        };
        let Some(inner) = rules else { return };
        self.depth = self.depth.max(*depth).saturating_add(1);
        let both = || Rule::both(logic, outer, inner);
        self.rules = Some(if self.depth > DEPTH { Rule::TooDeep } else { both() });
    }
}

/// Whether the rules of a section may refuse a request.
#[must_use]
pub fn is_guarded(settings: &Directory) -> bool {
    settings.rules.as_ref().is_some_and(|rules| !rules.grants_all())
}

/// The settings of the process: the aliases of authorization providers.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// The providers of AuthzProviderAlias, by alias.
    pub aliases: Arc<HashMap<Box<str>, Provider>>,
}

/// The inputs of an authorization besides the request.
#[derive(Clone, Copy)]
pub struct Inquest<'a> {
    /// The settings of the request.
    pub sections: &'a Sections,
    /// The settings of the core.
    pub core: CoreSettings<'a>,
    /// Whether the request has an AuthType.
    pub has_auth_type: bool,
    /// Whether the user is authenticated already.
    pub is_after_login: bool,
}

/// The result of a failed authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is denied with this status.
    Status(Status),
    /// The client must log in, as a different user if it is already logged in (status 401).
    Login,
    /// A rule needs the user. The client must log in, and the rules are evaluated again.
    NeedsUser,
}

/// Authorizes a request (mod_authz_core.c: authorize_user_core).
///
/// # Errors
/// The request is denied, or the client must log in first.
pub fn authorize(request: &mut Request, inquest: Inquest<'_>) -> Result<(), Refusal> {
    let Inquest { sections, core, has_auth_type, is_after_login } = inquest;
    let settings = &sections.authz_core;
    let verbose = is_logged(core, "authz_core", Level::Debug);
    let Some(rules) = &settings.rules else {
        if has_auth_type {
            let text = "AuthType configured with no corresponding authorization directives";
            request.notify(Notice::new("authz_core", Level::Error, 1627, text));
            return Err(Refusal::Status(Status::INTERNAL_SERVER_ERROR));
        }
        if verbose {
            let text = "authorization result: granted (no directives)";
            request.notify(Notice::new("authz_core", Level::Debug, 1628, text));
        }
        return Ok(());
    };
    if !verbose && rules.grants_all() {
        return Ok(());
    }
    let mut inquiry = Inquiry::new(RequestContext::new(request, core), sections, verbose);
    inquiry.is_after_login = is_after_login;
    let verdict = inquiry.ask(rules, Logic::All);
    let is_refusal = match verdict {
        Verdict::Denied | Verdict::Neutral => true,
        Verdict::DeniedWithoutUser => is_after_login,
        Verdict::Granted | Verdict::Failed => false,
    };
    let is_told = is_refusal && is_logged(core, "authz_core", Level::Error);
    let why = if is_told { inquiry.why(rules) } else { String::new() };
    let Inquiry { notices, vary, .. } = inquiry;
    request.notices.extend(notices);
    merge_vary(&mut request.resource.fields, &vary);
    match verdict {
        Verdict::Granted => Ok(()),
        Verdict::Denied | Verdict::Neutral => {
            let is_user_refused = is_after_login && has_auth_type;
            tell_refusal(request, is_user_refused, &why);
            match is_user_refused && settings.forbid_on_failure != Some(true) {
                true => Err(Refusal::Login),
                false => Err(Refusal::Status(Status::FORBIDDEN)),
            }
        }
        Verdict::DeniedWithoutUser if is_after_login => {
            let path = quoted(&request.resource.path);
            let text = format!("authorization failure (no authenticated user): {path}; {why}");
            request.notify(Notice::new("authz_core", Level::Error, 1629, text));
            Err(Refusal::Login)
        }
        Verdict::DeniedWithoutUser => Err(Refusal::NeedsUser),
        Verdict::Failed if request.lookups.has_failed() => {
            Err(Refusal::Status(Status::SERVICE_UNAVAILABLE))
        }
        Verdict::Failed => Err(Refusal::Status(Status::INTERNAL_SERVER_ERROR)),
    }
}

/// Logs that a request is denied, and the lines that deny it.
fn tell_refusal(request: &mut Request, is_user_refused: bool, why: &str) {
    let notice = match is_user_refused {
        true => {
            let user = quoted(request.resource.user.as_deref().unwrap_or_default());
            let path = quoted(&request.resource.path);
            let text = format!("user {user}: authorization failure for \"{path}\": {why}");
            Notice::new("authz_core", Level::Error, 1631, text)
        }
        false => {
            let target = refused_target(request);
            let text = format!("client denied by server configuration: {target}; {why}");
            Notice::new("authz_core", Level::Error, 1630, text)
        }
    };
    request.notify(notice);
}

/// The Require lines that have the client log in, for the message about a login that has failed.
#[must_use]
pub fn lines_that_need_user(settings: &Directory) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |rule: &Rule| {
        if let Rule::Ask { provider, .. } = rule
            && provider.needs_user()
        {
            lines.extend(rule.cited());
        }
    };
    if let Some(rules) = &settings.rules {
        rules.lines(&mut add);
    }
    lines
}

/// The evaluation of the rules for one request.
pub struct Inquiry<'a> {
    /// The request.
    pub context: RequestContext<'a>,
    /// The notices for the error log.
    pub notices: Vec<Notice>,
    /// The Vary fields: the request fields that the verdict depends on.
    pub vary: Fields,
    sections: &'a Sections,
    verbose: bool,
    /// The Require lines that the verdict rests on, as far as they may deny the request: those that
    /// deny it, and within a negated group those that grant.
    grounds: Vec<&'a Rule>,
    /// The number of negated groups around the rule at hand.
    negations: usize,
    /// Whether the client has been asked to log in. Before that, a line that lacks a user denies
    /// nothing.
    is_after_login: bool,
}

impl<'a> Inquiry<'a> {
    /// Starts an evaluation. If `verbose`, the result of each rule becomes a notice.
    #[must_use]
    pub fn new(context: RequestContext<'a>, sections: &'a Sections, verbose: bool) -> Self {
        Self {
            context,
            sections,
            notices: Vec::new(),
            vary: Fields::new(),
            verbose,
            grounds: Vec::new(),
            negations: 0,
            is_after_login: false,
        }
    }

    /// Evaluates with other settings than those of the request.
    fn within(
        &mut self,
        sections: &Sections,
        ask: impl FnOnce(&mut Inquiry<'_>) -> Verdict,
    ) -> Verdict {
        let mut inner = Inquiry::new(self.context, sections, self.verbose);
        let verdict = ask(&mut inner);
        let Inquiry { notices, vary, .. } = inner;
        self.notices.extend(notices);
        merge_vary(&mut self.vary, &vary);
        verdict
    }

    /// Evaluates a rule, whose parent group has the logic `parent` (mod_authz_core.c:
    /// apply_authz_sections).
    pub fn ask(&mut self, rule: &'a Rule, parent: Logic) -> Verdict {
        if !rule.covers(self.context.request) {
            let verdict = if parent == Logic::All { Verdict::Granted } else { Verdict::Neutral };
            self.remark(1625, rule, verdict, " (directive limited to other methods)");
            return verdict;
        }
        let before = self.grounds.len();
        let verdict = match rule {
            Rule::Ask { provider, .. } => provider.check(self),
            Rule::Group { negate, logic, rules, .. } => {
                self.negations += usize::from(*negate);
                let verdict = self.ask_group(*logic, rules);
                self.negations -= usize::from(*negate);
                verdict
            }
            Rule::TooDeep => {
                let text = format!("AuthMerging joins the rules of more than {DEPTH} sections");
                self.notices.push(Notice::own("authz_core", Level::Error, text));
                Verdict::Failed
            }
        };
        // A negated rule that does not match grants nothing.
        let verdict = match (rule.is_negated(), verdict) {
            (true, Verdict::Granted) => Verdict::Denied,
            (true, Verdict::Denied | Verdict::DeniedWithoutUser) => Verdict::Neutral,
            (_, verdict) => verdict,
        };
        self.remark(1626, rule, verdict, "");
        match verdict {
            Verdict::Neutral => self.grounds.truncate(before),
            Verdict::Granted if self.negations == 0 => {}
            Verdict::DeniedWithoutUser if !self.is_after_login => {}
            _ if matches!(rule, Rule::Ask { .. }) => self.grounds.push(rule),
            _ => {}
        }
        verdict
    }

    fn ask_group(&mut self, logic: Logic, rules: &'a [Arc<Rule>]) -> Verdict {
        use Verdict::{Denied, DeniedWithoutUser, Failed, Granted, Neutral};
        let start = self.grounds.len();
        let mut result = Neutral;
        for rule in rules {
            let before = self.grounds.len();
            let verdict = self.ask(rule, logic);
            if verdict == Neutral {
                continue;
            }
            let is_last = matches!(
                (logic, verdict),
                (_, Failed) | (Logic::All, Denied) | (Logic::Any, Granted)
            );
            let prevails = is_last
                || match (logic, verdict) {
                    (Logic::All, DeniedWithoutUser) => true,
                    (Logic::Any, DeniedWithoutUser) => result != DeniedWithoutUser,
                    _ => result == Neutral,
                };
            if verdict != result {
                match prevails {
                    true => drop(self.grounds.drain(start..before)),
                    false => self.grounds.truncate(before),
                }
            }
            if prevails {
                result = verdict;
            }
            if is_last {
                break;
            }
        }
        result
    }

    /// The lines that deny the request. If all rules are neutral, no line grants it: then these are
    /// all lines.
    fn why(&self, rules: &'a Rule) -> String {
        let mut grounds = self.grounds.clone();
        if grounds.is_empty() {
            rules.lines(&mut |rule| grounds.push(rule));
        }
        let explained = |rule: &&Rule| {
            let Rule::Ask { provider, .. } = rule else { return None };
            let cited = rule.cited()?;
            Some(match provider.explain(self) {
                Some(reason) => format!("{cited}: {reason}"),
                None => cited,
            })
        };
        denied_by(&grounds.iter().filter_map(explained).collect::<Vec<_>>())
    }

    fn remark(&mut self, number: u16, rule: &Rule, verdict: Verdict, why: &str) {
        if self.verbose {
            let text = format!("authorization result of {rule}: {}{why}", verdict.text());
            self.notices.push(Notice::new("authz_core", Level::Debug, number, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scope;
    use crate::core;
    use crate::testing::core_settings;
    use evenkeel_config::{Node, Position};
    use evenkeel_message::{
        FileName, HostNames, Lookup, Method, Peer, RequestHead, UriOptions, UrlPath, WantedNames,
    };

    /// Applies lines to an empty scope. Lines between `<Name>` and `</Name>` form a section.
    fn apply(text: &str) -> Result<Scope, String> {
        let position = || Position { file: "test.conf".into(), line: 1 };
        let mut open: Vec<Node> = vec![];
        let mut nodes: Vec<Vec<Node>> = vec![vec![]];
        for line in text.lines() {
            if line.starts_with("</") {
                let section = nodes.pop();
                let node = Node { section, ..open.pop().unwrap() };
                nodes.last_mut().unwrap().push(node);
                continue;
            }
            let end = line.find([' ', '>']).unwrap_or(line.len());
            let (name, arguments) = line.split_at(end);
            let (name, arguments) = (name.into(), arguments.trim_start().into());
            let node = Node { name, arguments, position: position(), section: None };
            if line.starts_with('<') {
                open.push(node);
                nodes.push(vec![]);
            } else {
                nodes.last_mut().unwrap().push(node);
            }
        }
        let tables = crate::testing::tables(&[core::MODULE, MODULE]);
        let section = nodes.pop();
        let location = Node {
            name: "<Location".into(),
            arguments: "/>".into(),
            position: position(),
            section,
        };
        let mut scope = Scope::default();
        evenkeel_config::apply(&tables, &[location], &mut scope, &mut vec![])
            .map_err(|faults| faults.kept()[0].text.clone())?;
        *scope.directory = scope.server.core.sections.locations[0].settings.clone();
        Ok(scope)
    }

    fn request() -> Request {
        let peer = Peer {
            client: "10.1.2.3:4000".parse().unwrap(),
            local: "10.1.2.9:80".parse().unwrap(),
        };
        let line = b"GET /x HTTP/1.1".to_vec();
        let head = RequestHead { line, method_end: 3, ..RequestHead::default() };
        let mut request = Request::new(head, peer, 0);
        request.resource.path = UrlPath::parse(b"/x", UriOptions::default()).unwrap();
        request.resource.env.set("known", "1");
        request
    }

    /// Authorizes a request before the login.
    fn authorize(
        request: &mut Request,
        settings: &Directory,
        core: CoreSettings<'_>,
    ) -> Result<(), Status> {
        let sections = Sections { authz_core: settings.clone(), ..Sections::default() };
        let (has_auth_type, is_after_login) = (false, false);
        let inquest = Inquest { sections: &sections, core, has_auth_type, is_after_login };
        super::authorize(request, inquest).map_err(|refusal| match refusal {
            Refusal::Status(status) => status,
            Refusal::Login | Refusal::NeedsUser => Status::UNAUTHORIZED,
        })
    }

    fn decide(text: &str, request: &mut Request) -> Result<(), Status> {
        let scope = apply(text).unwrap();
        let core = CoreSettings { server: &scope.server.core, directory: &scope.directory.core };
        authorize(request, &scope.directory.authz_core, core)
    }

    #[test]
    fn nothing_is_asked_where_a_line_grants_all_alone() {
        for (text, all) in [
            ("Require all granted", true),
            ("<RequireAll>\nRequire all granted\n</RequireAll>", true),
            ("Require all denied", false),
            ("Require all granted\nRequire ip 10.1", false),
            ("<RequireAll>\nRequire all granted\nRequire not ip 10.1\n</RequireAll>", false),
            ("<RequireAll>\nRequire all granted\nRequire all denied\n</RequireAll>", false),
            ("<RequireAll>\nRequire all granted\nRequire not all denied\n</RequireAll>", false),
            (
                "<RequireAll>\nRequire all granted\n<RequireNone>\nRequire all denied\n\
                 </RequireNone>\n</RequireAll>",
                false,
            ),
            ("<RequireAll>\n<RequireAny>\nRequire all granted\n</RequireAny>\n</RequireAll>", true),
            ("<Limit GET>\nRequire all granted\n</Limit>", false),
        ] {
            let scope = apply(text).unwrap();
            let rules = scope.directory.authz_core.rules.as_ref().unwrap();
            assert_eq!(rules.grants_all(), all, "{text}");
        }
    }

    #[test]
    fn equal_lines_of_one_place_are_one_rule() {
        // The lines of `apply` have no position of their own, as those of one file that several
        // hosts include.
        let first = |text: &str| match &apply(text).unwrap().directory.authz_core.rules {
            Some(Rule::Group { rules, .. }) => Arc::clone(&rules[0]),
            other => panic!("{other:?}"),
        };
        let one = first("Require all denied");
        assert!(Arc::ptr_eq(&one, &first("Require all denied")));
        assert!(!Arc::ptr_eq(&one, &first("Require all granted")));
        // A line in <Limit> and an expression depend on more than their text.
        let limited = "<Limit GET>\nRequire all denied\n</Limit>";
        for text in [limited, "Require expr true"] {
            assert!(!Arc::ptr_eq(&first(text), &first(text)), "{text}");
        }
    }

    #[test]
    fn rules_that_were_merged_are_asked_both() {
        for (merging, all) in [("Off", true), ("And", false), ("Or", false)] {
            let outer = apply("Require all denied").unwrap();
            let inner = format!("AuthMerging {merging}\nRequire all granted");
            let mut rules = outer.directory.authz_core.clone();
            rules.add(&apply(&inner).unwrap().directory.authz_core);
            assert_eq!(rules.rules.as_ref().unwrap().grants_all(), all, "{merging}");
        }
    }

    #[test]
    fn rules_grant_and_refuse() {
        let table = [
            ("", true),
            ("Require all granted", true),
            ("Require all DENIED", false),
            ("Require all denied\nRequire ip 10.1", true),
            ("Require ip 192.0.2.0/24 10.1.2.3", true),
            ("Require ip 10.0.0.0/255.255.255.0", false),
            ("Require env unknown known", true),
            ("Require env", false),
            ("Require method POST GET", true),
            ("Require method POST", false),
            ("Require expr %{REQUEST_URI} == '/x'", true),
            ("Require expr \"%{REQUEST_URI} == '/y'\"", false),
            ("Require local", false),
            ("<RequireAll>\nRequire all granted\nRequire not ip 10.1\n</RequireAll>", false),
            ("<RequireAll>\nRequire all granted\nRequire not ip 10.2\n</RequireAll>", true),
            (
                "<RequireAll>\nRequire all granted\n<RequireNone>\nRequire ip 10.1\n\
                 Require env unknown\n</RequireNone>\n</RequireAll>",
                false,
            ),
            ("<RequireAny>\nRequire env unknown\nRequire ip 10\n</RequireAny>", true),
            ("<RequireAll>\nRequire env known\nRequire ip 11\n</RequireAll>", false),
        ];
        for (text, passes) in table {
            let expected = if passes { Ok(()) } else { Err(Status::FORBIDDEN) };
            assert_eq!(decide(text, &mut request()), expected, "{text}");
        }
    }

    #[test]
    fn a_refusal_is_told_once_and_names_the_file() {
        let mut refused = request();
        refused.resource.file = FileName::new("/srv/x");
        assert_eq!(decide("Require all denied", &mut refused), Err(Status::FORBIDDEN));
        let text = "client denied by server configuration: /srv/x; denied by Require all denied \
                    (test.conf:1)";
        assert_eq!(refused.notices, [Notice::new("authz_core", Level::Error, 1630, text)]);
        refused.resource.file.clear();
        assert_eq!(refused_target(&refused), "uri /x");
    }

    #[test]
    fn a_refusal_names_the_lines_that_deny() {
        for (text, lines) in [
            ("Require all denied", &["Require all denied"][..]),
            ("Require ip 11\nRequire ip 12", &["Require ip 11", "Require ip 12"]),
            // A line beside one that grants is no reason.
            (
                "<RequireAll>\n<RequireAny>\nRequire ip 11\nRequire ip 10\n</RequireAny>\n\
                 Require all denied\n</RequireAll>",
                &["Require all denied"],
            ),
            (
                "<RequireAll>\nRequire all granted\n<RequireNone>\nRequire ip 11\n\
                 Require ip 10\n</RequireNone>\n</RequireAll>",
                &["Require ip 10"],
            ),
            (
                "<RequireAll>\nRequire all granted\nRequire not ip 10\n</RequireAll>",
                &["Require not ip 10"],
            ),
            (
                "<RequireAll>\nRequire all granted\n<RequireNone>\n<RequireAll>\n\
                 Require env known\nRequire ip 10\n</RequireAll>\n</RequireNone>\n\
                 </RequireAll>",
                &["Require env known", "Require ip 10"],
            ),
            (
                "<RequireAll>\nRequire env known\nRequire ip 11\n</RequireAll>\nRequire ip 12",
                &["Require ip 11", "Require ip 12"],
            ),
        ] {
            let mut refused = request();
            assert_eq!(decide(text, &mut refused), Err(Status::FORBIDDEN), "{text}");
            let lines: Vec<String> =
                lines.iter().map(|line| format!("{line} (test.conf:1)")).collect();
            let told = &refused.notices.last().unwrap().text;
            let end = format!("uri /x; denied by {}", lines.join(", "));
            assert!(told.ends_with(&end), "{text}: {told}");
        }
    }

    #[test]
    fn limit_leaves_other_methods_alone() {
        let text = "<Limit POST>\nRequire all denied\n</Limit>";
        assert_eq!(decide(text, &mut request()), Ok(()));
        let mut post = request();
        post.resource.method = Method::Post;
        assert_eq!(decide(text, &mut post), Err(Status::FORBIDDEN));
    }

    #[test]
    fn names_count_only_when_they_lead_back() {
        let named = |verified| {
            let mut request = request();
            let client = Some("www.example.org".into());
            let here = vec![request.peer.client_ip()];
            let addresses = vec![("a.test".into(), Vec::new()), ("here.test".into(), here)];
            let (has_asked_client, has_verified) = (true, true);
            let names = HostNames { client, verified, has_asked_client, has_verified, addresses };
            request.names = Some(Box::new(names));
            request
        };
        let text = "Require host example.com example.org";
        assert_eq!(decide(text, &mut named(true)), Ok(()));
        assert_eq!(decide(text, &mut named(false)), Err(Status::FORBIDDEN));
        assert_eq!(decide("Require forward-dns a.test here.test", &mut named(false)), Ok(()));
        assert_eq!(decide("Require forward-dns a.test", &mut named(true)), Err(Status::FORBIDDEN));
    }

    /// What waits for a look-up is neither granted nor denied, whatever stands around it.
    #[test]
    fn names_that_are_not_known_yet_are_looked_up() {
        let verify = || WantedNames { verify: true, ..WantedNames::default() };
        let forward = |names: &[&str]| WantedNames {
            names: names.iter().map(|name| (*name).into()).collect(),
            ..WantedNames::default()
        };
        for (text, wanted) in [
            ("Require host x", Some(verify())),
            ("Require all denied\nRequire host x", Some(verify())),
            (
                "<RequireAll>\nRequire all granted\nRequire not host x\n</RequireAll>",
                Some(verify()),
            ),
            (
                "<RequireAll>\nRequire all granted\n<RequireNone>\nRequire host x\n\
                 </RequireNone>\n</RequireAll>",
                Some(verify()),
            ),
            ("Require forward-dns a.test b.test", Some(forward(&["a.test", "b.test"]))),
            ("Require ip 1.1.1.1", None),
            ("Require ip 10.1\nRequire host x", None),
        ] {
            let mut unnamed = request();
            let decided = decide(text, &mut unnamed);
            let open = match unnamed.lookups.take_open() {
                Some(Lookup::Names(wanted)) => Some(wanted),
                _ => None,
            };
            assert_eq!(open, wanted, "{text}");
            let expected = wanted.is_some().then_some(Status::INTERNAL_SERVER_ERROR);
            assert_eq!(decided.err().filter(|it| *it != Status::FORBIDDEN), expected, "{text}");
        }
    }

    #[test]
    fn a_look_up_without_a_result_is_the_servers_fault() {
        let mut asked = request();
        asked.lookups.note(b"x"[..].into(), None);
        let text = "Require ip 1.1.1.1\nRequire host x";
        assert_eq!(decide(text, &mut asked), Err(Status::SERVICE_UNAVAILABLE));
    }

    #[test]
    fn a_rule_that_needs_the_user_has_the_client_log_in() {
        let text = "Require expr %{REMOTE_USER} == 'me'";
        assert_eq!(decide(text, &mut request()), Err(Status::UNAUTHORIZED));
        let scope = apply(text).unwrap();
        let asked = |user: &str, has_auth_type, is_after_login| {
            let mut request = request();
            request.resource.user = Some(user.as_bytes().into());
            let core = core_settings();
            let sections = &*scope.directory;
            let inquest = Inquest { sections, core, has_auth_type, is_after_login };
            (super::authorize(&mut request, inquest), request)
        };
        assert_eq!(asked("me", true, true).0, Ok(()));
        let (refused, request) = asked("you", true, true);
        assert_eq!(refused, Err(Refusal::Login));
        let told = &request.notices[0].text;
        assert!(told.starts_with("authorization failure (no authenticated user): /x; "), "{told}");
        assert!(told.ends_with("denied by Require expr %{REMOTE_USER} == 'me' (test.conf:1)"));
        assert_eq!(lines_that_need_user(&scope.directory.authz_core).len(), 1);
        assert_eq!(asked("you", true, false).0, Err(Refusal::NeedsUser));
    }

    #[test]
    fn debug_tells_the_result_of_each_rule() {
        let mut asked = request();
        let text = "LogLevel debug\n<RequireAll>\nRequire not ip 11\nRequire ip 10\n</RequireAll>";
        assert_eq!(decide(text, &mut asked), Ok(()));
        let texts: Vec<&str> = asked.notices.iter().map(|notice| &*notice.text).collect();
        let expected = [
            "authorization result of Require not ip 11: neutral",
            "authorization result of Require ip 10: granted",
            "authorization result of <RequireAll>: granted",
            "authorization result of <RequireAny>: granted",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn sections_replace_or_join() {
        let merged = |inner: &str| {
            let outer = apply("Require ip 10").unwrap().directory;
            let inner = apply(inner).unwrap().directory;
            let merged = Directory::merge(&outer.authz_core, &inner.authz_core);
            authorize(&mut request(), &merged, core_settings()).is_ok()
        };
        assert!(merged("") && merged("AuthzSendForbiddenOnFailure On"));
        assert!(!merged("Require all denied"));
        assert!(merged("AuthMerging Or\nRequire all denied"));
        assert!(!merged("AuthMerging And\nRequire all denied"));
        assert!(merged("AuthMerging And"));
        assert!(
            !merged("AuthMerging And\nRequire ip 11") && merged("AuthMerging Off\nRequire ip 10")
        );
    }

    /// Each merge nests the groups one level deeper.
    #[test]
    fn merged_rules_have_a_depth() {
        let joined =
            apply("AuthMerging And\nRequire ip 10").unwrap().directory.into_settings().authz_core;
        let mut plan = apply("Require ip 10").unwrap().directory.into_settings().authz_core;
        for _ in 0..DEPTH {
            plan.add(&joined);
        }
        assert_eq!(authorize(&mut request(), &plan, core_settings()), Ok(()));
        plan.add(&joined);
        let mut asked = request();
        let refused = authorize(&mut asked, &plan, core_settings());
        assert_eq!(refused, Err(Status::INTERNAL_SERVER_ERROR));
        let text = "AuthMerging joins the rules of more than 256 sections";
        assert_eq!(asked.notices, [Notice::own("authz_core", Level::Error, text)]);
        plan.add(&apply("Require ip 10").unwrap().directory.authz_core);
        assert_eq!(authorize(&mut request(), &plan, core_settings()), Ok(()));
    }

    #[test]
    fn faults_are_apaches() {
        let table = [
            ("Require foo bar", "Unknown Authz provider: foo"),
            ("Require", "Unknown Authz provider: "),
            (
                "Require not all granted",
                "negative Require directive has no effect in <RequireAny> directive",
            ),
            ("Require all maybe", "Argument for 'Require all' must be 'granted' or 'denied'"),
            ("Require method GETT", "Invalid Method 'GETT'"),
            ("Require ip", "'require ip' requires an argument"),
            ("Require ip foo", "ip address 'foo' appears to be invalid"),
            (
                "Require ip 10.0.0.0/99",
                "ip address '10.0.0.0/99' appears to be invalid: The specified network mask is \
                 invalid.",
            ),
            (
                "<RequireAll>\n</RequireAll>",
                "<RequireAll> directive contains no authorization directives",
            ),
            (
                "<RequireAll>\nRequire not ip 1.2.3.4\n</RequireAll>",
                "<RequireAll> directive contains only negative authorization directives",
            ),
            (
                "<RequireNone>\nRequire all granted\n</RequireNone>",
                "<RequireNone> directive has no effect in <RequireAny> directive",
            ),
            (
                "<RequireAll x>\n</RequireAll>",
                "<RequireAll> directive doesn't take additional arguments",
            ),
            ("AuthMerging x", "AuthMerging must be one of: Off | And | Or"),
            (
                "<RequireAll>\nOptions None\n</RequireAll>",
                "Options not allowed in <RequireAll> context",
            ),
        ];
        for (text, fault) in table {
            assert_eq!(apply(text).err().as_deref(), Some(fault), "{text}");
        }
    }
}
