//! The second pass: calls each directive's function on the target, in the order of the tree. It
//! checks contexts, override classes and counts of arguments; what a directive means is up to its
//! function.
//!
//! Source: server/config.c, ap_walk_config, ap_walk_config_sub and invoke_cmd.

use std::cell::RefCell;
use std::ops::Deref;

use crate::directive::{Act, Contexts, Directive, Overrides, Tables};
use crate::fault::{Fault, Faults, Notice};
use crate::keyword::{self, Keyword};
use crate::missing::{Finding, is_condition};
use crate::node::{Node, Position};
use crate::place::{Parent, Permit, Scope};
use crate::read::NOTICES_LIMIT;
use crate::shape;
use evenkeel_message::has_quoted;

/// Applies a server's configuration to `target`. Notices are added to `notices`, also before a
/// fault. The directives after a fault are applied too, so that all faults are reported at once.
/// A section that contains a fault has no effect.
///
/// # Errors
///
/// The faults of directives that are unknown, out of place, or refused by their function.
pub fn apply<T: 'static>(
    tables: &Tables<T>,
    nodes: &[Node],
    target: &mut T,
    notices: &mut Vec<Notice>,
) -> Result<(), Faults> {
    let (remarks, faults) = (RefCell::new(Vec::new()), RefCell::new(Faults::default()));
    let walker = Walker { tables, remarks: &remarks, faults: &faults, grant: None };
    let result = walker.walk(nodes, target, &Scope::server());
    notices.append(&mut remarks.take());
    result.map_err(|_| faults.take())
}

/// Applies an .htaccess file to `target`, as far as `grant` allows.
///
/// # Errors
///
/// As for [`apply`]. The server answers 500 and logs `FILE: TEXT`.
pub fn apply_htaccess<T: 'static>(
    tables: &Tables<T>,
    nodes: &[Node],
    target: &mut T,
    grant: &Grant,
    notices: &mut Vec<Notice>,
) -> Result<(), Fault> {
    let (remarks, faults) = (RefCell::new(Vec::new()), RefCell::new(Faults::default()));
    let walker = Walker { tables, remarks: &remarks, faults: &faults, grant: Some(grant) };
    let result = walker.walk(nodes, target, &Scope::htaccess(grant.overrides));
    let room = NOTICES_LIMIT.saturating_sub(notices.len());
    notices.extend(remarks.take().into_iter().take(room));
    result
}

/// Every directive in the tree that the tables do not know, with the text of its refusal: what a
/// migration must deal with.
#[must_use]
pub fn unknown_directives<T: 'static>(tables: &Tables<T>, nodes: &[Node]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for node in nodes {
        if !tables.has(&node.name) {
            faults.push(Fault::new(node.position.clone(), tables.refusal(&node.name)));
        }
        faults.extend(unknown_directives(tables, node.section.as_deref().unwrap_or_default()));
    }
    faults
}

/// What AllowOverride and AllowOverrideList allow in the .htaccess files of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// The allowed classes.
    pub overrides: Overrides,
    /// The directives in AllowOverrideList, compared without case.
    pub directives: Vec<String>,
    /// Whether a directive that is not allowed is skipped with a notice (`Nonfatal=Override`).
    pub nonfatal_override: bool,
    /// Whether a directive that does not exist is skipped with a notice (`Nonfatal=Unknown`).
    pub nonfatal_unknown: bool,
    /// The options that Options may set, in the bits of the module core.
    pub options: u32,
}

impl Grant {
    /// Whether the directive `name` is allowed.
    #[must_use]
    pub fn allows(&self, name: &str, contexts: Contexts, overrides: Overrides) -> bool {
        Permit::classes(self.overrides).allows(contexts, overrides) || self.lists(name)
    }

    fn lists(&self, name: &str) -> bool {
        self.directives.iter().any(|listed| listed.eq_ignore_ascii_case(name))
    }

    pub(crate) fn forbidden(&self, name: &str) -> Notice {
        Notice::warn("core", 2295, format!("{name} in .htaccess forbidden by AllowOverride"))
    }
}

/// One call of a directive's function: the arguments and the place of the directive.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The directive's name as it is declared.
    pub name: &'static str,
    /// The arguments in the declared shape; none for [`crate::Shape::Raw`].
    pub words: &'a [String],
    /// Everything after the name.
    pub raw: &'a str,
    /// The value of a flag; false for other shapes.
    pub flag: bool,
    /// Where the directive stands.
    pub position: &'a Position,
    scope: &'a Scope<'a>,
    grant: Option<&'a Grant>,
    remarks: &'a RefCell<Vec<Notice>>,
}

impl<'a> Call<'a> {
    /// The first argument, or an empty text.
    #[must_use]
    pub fn first(&self) -> &'a str {
        self.words.first().map_or("", String::as_str)
    }

    /// The second argument.
    #[must_use]
    pub fn second(&self) -> Option<&'a str> {
        self.words.get(1).map(String::as_str)
    }

    /// The third argument.
    #[must_use]
    pub fn third(&self) -> Option<&'a str> {
        self.words.get(2).map(String::as_str)
    }

    /// What .htaccess may contain, if the directive is in an .htaccess file.
    #[must_use]
    pub fn grant(&self) -> Option<&'a Grant> {
        self.grant
    }

    /// Whether the directive is in an .htaccess file.
    #[must_use]
    pub fn in_htaccess(&self) -> bool {
        self.scope.htaccess
    }

    /// Whether the directive is in a virtual host.
    #[must_use]
    pub fn in_virtual_host(&self) -> bool {
        self.scope.virtual_host
    }

    /// Whether the directive is in a section that requests are matched with, or in .htaccess.
    #[must_use]
    pub fn in_directory_context(&self) -> bool {
        self.scope.matched
    }

    /// Whether the directive is in Limit or LimitExcept.
    #[must_use]
    pub fn in_limit(&self) -> bool {
        self.scope.limited
    }

    /// The enclosing sections, innermost first, in the spelling of the file: `<Directory`.
    pub fn parents(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.scope.parents()
    }

    /// Whether one of the enclosing sections is `name` (`<Location`), compared without case.
    #[must_use]
    pub fn is_within(&self, name: &str) -> bool {
        self.parents().any(|parent| parent.eq_ignore_ascii_case(name))
    }

    /// The same call if the directive stands in the main server, for a directive that has no effect
    /// in other places.
    #[must_use]
    pub fn as_global(&self) -> Option<GlobalCall<'a>> {
        self.check_place(Contexts::GLOBAL_ONLY).ok().map(|()| GlobalCall(*self))
    }

    /// Checks rules about the place that hold only for some arguments of the directive.
    ///
    /// # Errors
    ///
    /// Apache's message, `X cannot occur within <Location> section`.
    pub fn check_place(&self, rules: Contexts) -> Result<(), String> {
        self.scope.check_rules(self.name, rules)
    }

    /// Adds a warning of `module` about the directive, with Apache's `number`.
    pub fn warn(&self, module: &'static str, number: u32, text: impl Into<String>) {
        self.notice(Notice::warn(module, number, text));
    }

    /// Adds a notice about the directive.
    pub fn notice(&self, notice: Notice) {
        self.remarks.borrow_mut().push(notice.at(self.position.clone()));
    }
}

/// The call of a directive that stands in the main server, outside of all virtual hosts, sections
/// and .htaccess files. Only this file constructs one: a target that asks for it before it changes
/// a setting of the whole server cannot be changed from any other place.
pub struct GlobalCall<'a>(Call<'a>);

impl<'a> Deref for GlobalCall<'a> {
    type Target = Call<'a>;

    fn deref(&self) -> &Call<'a> {
        &self.0
    }
}

/// A section: its opening line and its children. The children can only be walked through
/// [`Block::walk`].
pub struct Block<'a, T: 'static> {
    /// The opening line. [`Call::raw`] ends with the closing bracket.
    pub call: Call<'a>,
    node: &'a Node,
    walker: &'a Walker<'a, T>,
}

impl<T: 'static> Block<'_, T> {
    /// The text between the name and the closing bracket.
    ///
    /// # Errors
    ///
    /// Apache's message if the bracket or the text is missing.
    ///
    /// Source: server/core.c, unclosed_directive and missing_container_arg.
    pub fn argument(&self) -> Result<&str, Fault> {
        let name = self.call.name;
        let Some((text, _)) = self.call.raw.rsplit_once('>') else {
            return Err(self.fault(format!("{name}> directive missing closing '>'")));
        };
        if text.is_empty() {
            return Err(self.fault(format!("{name}> directive requires additional arguments")));
        }
        Ok(text)
    }

    /// The directives in the section, as they were read.
    #[must_use]
    pub fn children(&self) -> &[Node] {
        self.node.section.as_deref().unwrap_or_default()
    }

    /// A fault at the position of the opening line.
    #[must_use]
    pub fn fault(&self, text: impl Into<String>) -> Fault {
        Fault::new(self.node.position.clone(), text)
    }

    /// Applies the contents of the section to `target`. `inside` is the kind of section:
    /// [`Contexts::VHOST`], [`Contexts::DIRECTORY`], [`Contexts::LIMIT`],
    /// [`Contexts::AUTHORIZATION`] or [`Contexts::SAME`].
    ///
    /// # Errors
    ///
    /// As for [`apply`].
    pub fn walk(&self, target: &mut T, inside: Contexts) -> Result<(), Fault> {
        let parent = Parent { name: self.call.name, outer: self.call.scope.parent };
        let scope = self.call.scope.within(inside, &parent);
        self.walker.walk(self.children(), target, &scope)
    }
}

/// What stays the same during a walk.
struct Walker<'a, T: 'static> {
    tables: &'a Tables<T>,
    remarks: &'a RefCell<Vec<Notice>>,
    faults: &'a RefCell<Faults>,
    grant: Option<&'a Grant>,
}

impl<T: 'static> Walker<'_, T> {
    /// Visits the nodes of a server's configuration and collects all faults. In an .htaccess file
    /// the first fault ends the walk.
    fn walk(&self, nodes: &[Node], target: &mut T, scope: &Scope<'_>) -> Result<(), Fault> {
        if self.grant.is_some() {
            return nodes.iter().try_for_each(|node| self.visit(node, target, scope));
        }
        let mut result = Ok(());
        for node in nodes {
            let known = self.faults.borrow().count();
            if let Err(fault) = self.visit(node, target, scope) {
                // The walk through a section has collected the faults in it.
                if self.faults.borrow().count() == known {
                    self.faults.borrow_mut().add(fault.clone());
                }
                result = result.and(Err(fault));
            }
        }
        result
    }

    fn visit(&self, node: &Node, target: &mut T, scope: &Scope<'_>) -> Result<(), Fault> {
        let found = self.tables.find(&node.name);
        match self.tables.missing().examine(node, !found.is_empty()) {
            Some(Finding::Use(text)) => return self.refuse_use(node, text, target, scope),
            Some(Finding::Harmless(text)) => {
                let notice = Notice { number: None, ..Notice::warn("so", 0, self.at(node, text)) };
                self.remarks.borrow_mut().push(notice.at(node.position.clone()));
                return Ok(());
            }
            None => {}
        }
        if found.is_empty() {
            return self.visit_other(node, scope);
        }
        for (_, directive) in found {
            let Directive { name, contexts, overrides, .. } = directive;
            if self.is_permitted(node, name, *contexts, *overrides, scope)? {
                self.invoke(node, directive, target, scope)?;
            } else if let Some(act) = directive.left_out {
                act(target);
            }
        }
        Ok(())
    }

    /// Returns the fault of a node that needs a missing module. The contents of a condition are
    /// visited first, so that their faults are reported too.
    fn refuse_use(
        &self,
        node: &Node,
        text: String,
        target: &mut T,
        scope: &Scope<'_>,
    ) -> Result<(), Fault> {
        if self.grant.is_some() {
            return Err(Fault::new(node.position.clone(), self.at(node, text)));
        }
        let fault = Fault::new(node.position.clone(), text);
        if is_condition(&node.name) {
            self.faults.borrow_mut().add(fault.clone());
            let _collected = self.walk(node.section.as_deref().unwrap_or(&[]), target, scope);
        }
        Err(fault)
    }

    /// Adds the number of the line to a text about an .htaccess file, whose messages lack it.
    fn at(&self, node: &Node, text: String) -> String {
        match self.grant {
            Some(_) => format!("{text} (line {})", node.position.line),
            None => format!("{text} ({})", node.position),
        }
    }

    /// Handles a name that is in no table: the directive Error of the language, or a fault.
    fn visit_other(&self, node: &Node, scope: &Scope<'_>) -> Result<(), Fault> {
        let at = node.position.clone();
        if let Some(error) = keyword::find(&node.name).filter(|it| it.keyword == Keyword::Error) {
            let (contexts, overrides) = (error.contexts, error.overrides);
            if !self.is_permitted(node, error.name, contexts, overrides, scope)? {
                return Ok(());
            }
            return Err(Fault::new(at, error_text(&node.arguments)));
        }
        if self.grant.is_some_and(|grant| grant.nonfatal_unknown) {
            let text = format!(
                "Unknown directive {} perhaps misspelled or defined by a module not included in \
                 the server configuration",
                node.name.to_ascii_lowercase()
            );
            self.remarks.borrow_mut().push(Notice::warn("core", 2296, text).at(at));
            return Ok(());
        }
        Err(Fault::new(at, self.tables.refusal(&node.name)))
    }

    /// Whether a directive may stand here. Returns false if it may not but the grant skips it;
    /// otherwise it is a fault.
    fn is_permitted(
        &self,
        node: &Node,
        name: &str,
        contexts: Contexts,
        overrides: Overrides,
        scope: &Scope<'_>,
    ) -> Result<bool, Fault> {
        let listed = self.grant.is_some_and(|grant| grant.lists(name));
        if listed || scope.permit.allows(contexts, overrides) {
            return Ok(true);
        }
        if let Some(grant) = self.grant.filter(|grant| grant.nonfatal_override) {
            let notice = grant.forbidden(name).at(node.position.clone());
            self.remarks.borrow_mut().push(notice);
            return Ok(false);
        }
        Err(Fault::new(node.position.clone(), scope.refusal(name)))
    }

    fn invoke(
        &self,
        node: &Node,
        directive: &Directive<T>,
        target: &mut T,
        scope: &Scope<'_>,
    ) -> Result<(), Fault> {
        let fault = |text| Fault::new(node.position.clone(), text);
        if !directive.takes_bytes && has_quoted(&node.arguments) {
            return Err(fault(format!("the arguments of {} must be UTF-8", directive.name)));
        }
        let call = Call {
            name: directive.name,
            words: &[],
            raw: &node.arguments,
            flag: false,
            position: &node.position,
            scope,
            grant: self.grant,
            remarks: self.remarks,
        };
        let check_rules = || scope.check_rules(directive.name, directive.rules()).map_err(fault);
        let set_each = |set: &mut dyn FnMut(Call<'_>) -> Result<(), String>| {
            let Directive { name, doc, shape, .. } = *directive;
            let calls = shape::split(shape, name, doc, &node.arguments).map_err(fault)?;
            check_rules()?;
            calls.iter().try_for_each(|words| {
                let is_on = words.first().is_some_and(|word| word.eq_ignore_ascii_case("on"));
                let flag = shape == crate::Shape::Flag && is_on;
                set(Call { words, flag, ..call }).map_err(fault)
            })
        };
        match directive.act {
            Act::Set(set) => set_each(&mut |call| set(target, &call)),
            Act::SetGlobal(set) => set_each(&mut |call| set(target, &GlobalCall(call))),
            Act::Section(enter) => {
                check_rules()?;
                enter(target, &Block { call, node, walker: self })
            }
            Act::GlobalSection(enter) => {
                check_rules()?;
                enter(target, &Block { call, node, walker: self }, &GlobalCall(call))
            }
        }
    }
}

/// The message of Error: its text, without the quotes if one pair encloses all of it.
///
/// Source: server/core.c, generate_error.
fn error_text(text: &str) -> String {
    if text.is_empty() {
        return "The Error directive was used with no message.".into();
    }
    let inner = |quote| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directive::{Shape, Table};

    type Log = Vec<String>;

    fn log(target: &mut Log, call: &Call<'_>) -> Result<(), String> {
        if call.first() == "bad" {
            return Err(format!("{} is bad", call.name));
        }
        call.warn("test", 7, "seen");
        target.push(format!("{}={}/{}", call.name, call.words.join(","), call.flag));
        Ok(())
    }

    fn log_global(target: &mut Log, call: &GlobalCall<'_>) -> Result<(), String> {
        log(target, call)
    }

    fn enter(target: &mut Log, block: &Block<'_, Log>) -> Result<(), Fault> {
        target.push(format!("{} {}", block.call.name, block.argument()?));
        block.walk(target, Contexts::DIRECTORY)
    }

    const fn plain(
        name: &'static str,
        contexts: Contexts,
        overrides: Overrides,
        shape: Shape,
    ) -> Directive<Log> {
        let (default, doc, act) = ("", "doc", Act::Set(log));
        Directive {
            name,
            contexts,
            overrides,
            shape,
            default,
            doc,
            takes_bytes: false,
            left_out: None,
            act,
        }
    }

    const SECTION: Directive<Log> = Directive {
        act: Act::Section(enter),
        ..plain("<Area", Contexts::SERVER, Overrides::INDEXES, Shape::Raw)
    };

    static DIRECTIVES: &[Directive<Log>] = &[
        plain("Global", Contexts::SERVER.with(Contexts::GLOBAL_ONLY), Overrides::NONE, Shape::Flag),
        Directive {
            act: Act::SetGlobal(log_global),
            ..plain("Whole", Contexts::SERVER, Overrides::INDEXES, Shape::None)
        },
        plain("Local", Contexts::DIRECTORY, Overrides::AUTH_CONFIG, Shape::Iterate),
        plain("Both", Contexts::NONE, Overrides::INDEXES, Shape::OneOrTwo),
        plain("Loose", Contexts::NONE.with(Contexts::NOT_IN_HTACCESS), Overrides::ALL, Shape::None),
        SECTION,
    ];

    fn tables() -> Tables<Log> {
        let module = "mod_test.c";
        Tables::new(
            &[Table { module, identifier: "test_module", directives: DIRECTIVES }],
            &[],
            crate::Missing::default(),
        )
    }

    fn node(name: &str, arguments: &str, section: Option<Vec<Node>>) -> Node {
        let position = Position { file: "t".into(), line: 1 };
        Node { name: name.into(), arguments: arguments.into(), position, section }
    }

    fn run(nodes: &[Node]) -> Result<Log, String> {
        let (mut target, mut notices) = (Log::new(), Vec::new());
        apply(&tables(), nodes, &mut target, &mut notices)
            .map_err(|faults| faults.kept()[0].text.clone())?;
        Ok(target)
    }

    fn htaccess(nodes: &[Node], grant: &Grant) -> (Result<(), String>, Log, Vec<Notice>) {
        let (mut target, mut notices) = (Log::new(), Vec::new());
        let result = apply_htaccess(&tables(), nodes, &mut target, grant, &mut notices);
        (result.map_err(|fault| fault.text), target, notices)
    }

    #[test]
    fn directives_act_in_order() {
        let inner = vec![node("local", "a b", None)];
        let nodes = [node("GLOBAL", "on", None), node("<area", "/x>", Some(inner))];
        let want = ["Global=on/true", "<Area /x", "Local=a/false", "Local=b/false"];
        assert_eq!(run(&nodes).unwrap(), want);
    }

    #[test]
    fn what_is_out_of_place_is_refused() {
        assert_eq!(run(&[node("Local", "a", None)]).unwrap_err(), "Local not allowed here");
        let nodes = [node("<Area", "/>", Some(vec![node("Global", "on", None)]))];
        assert_eq!(run(&nodes).unwrap_err(), "Global not allowed in <Area> context");
        let nodes = [node("<Area", "/", Some(Vec::new()))];
        assert_eq!(run(&nodes).unwrap_err(), "<Area> directive missing closing '>'");
        let nodes = [node("<Area", ">", Some(Vec::new()))];
        assert_eq!(run(&nodes).unwrap_err(), "<Area> directive requires additional arguments");
    }

    /// Whatever the declaration, and AllowOverrideList, permit.
    #[test]
    fn what_is_set_for_the_whole_server_stands_outside_of_sections() {
        assert_eq!(run(&[node("Whole", "", None)]).unwrap(), ["Whole=/false"]);
        let nodes = [node("<Area", "/x>", Some(vec![node("Whole", "", None)]))];
        assert_eq!(run(&nodes).unwrap_err(), "Whole cannot occur within directory context");
        let grant = Grant {
            overrides: Overrides::ALL,
            directives: vec!["whole".into()],
            ..Grant::default()
        };
        let text = htaccess(&[node("Whole", "", None)], &grant).0.unwrap_err();
        assert_eq!(text, "Whole cannot occur within directory context");
    }

    #[test]
    fn faults_and_remarks_have_their_position() {
        let (mut target, mut notices) = (Log::new(), Vec::new());
        let nodes = [node("Both", "x", None), node("Both", "bad", None)];
        let faults = apply(&tables(), &nodes, &mut target, &mut notices).unwrap_err();
        let want = "AH00526: Syntax error on line 1 of t:\nBoth is bad";
        assert_eq!(faults.report("t", &crate::Missing::default()), want);
        assert_eq!(notices, [Notice::warn("test", 7, "seen").at(nodes[0].position.clone())]);
    }

    #[test]
    fn all_faults_are_collected_and_fifty_are_shown() {
        let bad = || node("Both", "bad", None);
        let nodes: Vec<Node> = (0..60).map(|_| bad()).chain([node("Foo", "", None)]).collect();
        let faults = apply(&tables(), &nodes, &mut Log::new(), &mut Vec::new()).unwrap_err();
        assert_eq!((faults.count(), faults.kept().len()), (61, Faults::SHOWN));
        let report = faults.report("t", &crate::Missing::default());
        assert!(report.ends_with("\nt: 11 more refusals are not shown"), "{report}");
    }

    #[test]
    fn htaccess_gets_what_is_granted() {
        let nodes = [node("Both", "a", None), node("Local", "b", None)];
        let mut grant = Grant { overrides: Overrides::INDEXES, ..Grant::default() };
        assert_eq!(htaccess(&nodes, &grant).0.unwrap_err(), "Local not allowed here");
        grant.nonfatal_override = true;
        let (result, target, notices) = htaccess(&nodes, &grant);
        assert_eq!((result, target.len(), notices.len()), (Ok(()), 1, 2));
        let want = "AH02295: Local in .htaccess forbidden by AllowOverride";
        assert_eq!(notices[1].to_string(), want);
        grant.directives = vec!["LOCAL".into()];
        assert_eq!(htaccess(&nodes, &grant).1.len(), 2);
        let text = htaccess(&[node("Loose", "", None)], &grant).0.unwrap_err();
        assert_eq!(text, "Loose cannot occur within htaccess files");
    }

    #[test]
    fn unknown_names_are_refused_or_remarked_on() {
        let nodes = [node("Foo", "", None), node("<Bar", ">", Some(vec![node("Baz", "", None)]))];
        assert!(run(&nodes).unwrap_err().starts_with("Invalid command 'Foo', perhaps"));
        assert_eq!(unknown_directives(&tables(), &nodes).len(), 3);
        let grant = Grant { nonfatal_unknown: true, ..Grant::default() };
        let (result, _, notices) = htaccess(&nodes, &grant);
        assert_eq!((result, notices.len()), (Ok(()), 2));
        assert!(notices[0].to_string().starts_with("AH02296: Unknown directive foo perhaps"));
    }

    #[test]
    fn error_says_what_it_is_told() {
        assert_eq!(run(&[node("error", "\"a b\"", None)]).unwrap_err(), "a b");
        assert_eq!(error_text("'a' \"b\""), "'a' \"b\"");
        assert_eq!(error_text("\""), "\"");
        assert!(error_text("").contains("no message"));
    }
}
