//! mod_access_compat: the access rules of Apache 2.2. Order, Allow and Deny of a request's
//! sections come in, whether they let it pass goes out; Satisfy says how that goes with Require.
//! Nothing here is merged: what an inner section says stands for all that the outer one said.

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::core::{
    AddressFault, cited, denied_by, in_domain, is_logged, parse_network, refused_target,
    verified_name,
};
use crate::{
    Access, Active, CoreSettings, Directive, DirectiveResult, Merge, Module, Scope, Where,
    argument, directive,
};
use evenkeel_config::{Call, Position, Shape};
use evenkeel_expr::Subnet;
use evenkeel_message::{Level, Notice, Request, Undecided};
use std::sync::Arc;

/// Which of Allow and Deny has the last word (Order).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Allow; what neither names passes.
    #[default]
    DenyAllow,
    /// Deny; what neither names does not pass.
    AllowDeny,
}

/// How Allow and Deny go with Require (Satisfy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Satisfy {
    /// Both must let a request pass.
    #[default]
    All,
    /// Either must.
    Any,
}

/// Whom an Allow or Deny line means.
#[derive(Clone, Debug)]
pub enum Whom {
    /// `all`.
    All,
    /// `env=name`, `env=!name`.
    Env {
        /// The variable.
        name: Box<str>,
        /// Whether it must be set.
        set: bool,
    },
    /// Clients of a network.
    Network(Subnet),
    /// Clients of a domain.
    Domain(Box<str>),
}

/// A line of a section.
#[derive(Clone, Debug)]
struct Line<T> {
    /// The enclosing `<Limit>` or `<LimitExcept>`.
    limit: Option<Access>,
    value: T,
    /// The directive as in the configuration.
    text: Box<str>,
    position: Position,
}

impl<T> Line<T> {
    fn new(scope: &Scope, call: &Call<'_>, value: T) -> Self {
        let text = format!("{} {}", call.name, call.raw).into();
        Self { limit: scope.limit.clone(), value, text, position: call.position.clone() }
    }

    /// Whether the line applies to the request's method.
    fn covers(&self, request: &Request) -> bool {
        self.limit.as_ref().is_none_or(|limit| limit.covers(request))
    }

    fn cited(&self) -> String {
        cited(&self.text, &self.position)
    }
}

/// The lines of one directive, in order.
type Lines<T> = Vec<Line<T>>;

/// What one section says.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    order: Lines<Order>,
    satisfy: Lines<Satisfy>,
    allow: Lines<Whom>,
    deny: Lines<Whom>,
}

/// What holds for a request: the innermost section's rules; none where nothing was said.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    rules: Option<Arc<Rules>>,
    /// Whether Satisfy of the outer sections is forgotten.
    forgets_satisfy: bool,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        let forgets_satisfy = base.forgets_satisfy || over.forgets_satisfy;
        let rules = match (&base.rules, &over.rules) {
            (_, Some(over)) => Some(Arc::clone(over)),
            (Some(base), None) if over.forgets_satisfy => {
                let Rules { order, satisfy: _, allow, deny } = Rules::clone(base);
                Some(Arc::new(Rules { order, satisfy: Vec::new(), allow, deny }))
            }
            (base, None) => base.clone(),
        };
        Self { rules, forgets_satisfy }
    }
}

impl Directory {
    /// How the rules go with Require for this request.
    #[must_use]
    pub fn satisfy(&self, request: &Request) -> Satisfy {
        let line = self.rules.as_ref().and_then(|rules| last(&rules.satisfy, request));
        line.map(|line| line.value).unwrap_or_default()
    }

    /// Whether a section has Order, Allow or Deny lines for the request to be compared with.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// Whether the rules may refuse a request, or let one pass that Require refuses.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        let Some(Rules { order, satisfy, allow, deny }) = self.rules.as_deref() else {
            return false;
        };
        let is_plain = order.iter().all(|line| line.limit.is_none());
        let allows_all =
            |line: &Line<Whom>| line.limit.is_none() && matches!(line.value, Whom::All);
        let admits_all = match order.last().map(|line| line.value).unwrap_or_default() {
            Order::AllowDeny => allow.iter().any(allows_all),
            Order::DenyAllow => true,
        };
        !(is_plain && satisfy.is_empty() && deny.is_empty() && admits_all)
    }

    /// Whether the rules let the request pass (mod_access_compat.c: check_dir_access).
    /// A refusal is told even where Satisfy Any leaves the decision to Require.
    ///
    /// # Errors
    /// The client's name is to be looked up.
    pub fn admits(&self, request: &mut Request, core: CoreSettings<'_>) -> Result<bool, Undecided> {
        let Some(rules) = self.rules.clone() else { return Ok(true) };
        let Err(line) = rules.check(request)? else { return Ok(true) };
        if is_logged(core, "access_compat", Level::Error) {
            let why = denied_by(line.as_slice());
            let target = refused_target(request);
            let text = format!("client denied by server configuration: {target}; {why}");
            request.notify(Notice::new("access_compat", Level::Error, 1797, text));
        }
        Ok(false)
    }
}

impl Rules {
    /// Checks a request. The inner error is the line that denies it: a Deny line, or the Order line
    /// that denies every client without an Allow line.
    fn check(&self, request: &Request) -> Result<Result<(), Option<String>>, Undecided> {
        let order = last(&self.order, request);
        let is_allowed = || Ok::<bool, Undecided>(line_for(&self.allow, request)?.is_some());
        let denied = |line: &Line<Whom>| Ok(Err(Some(line.cited())));
        match order.map(|line| line.value).unwrap_or_default() {
            Order::AllowDeny if !is_allowed()? => Ok(Err(order.map(Line::cited))),
            Order::AllowDeny => line_for(&self.deny, request)?.map_or(Ok(Ok(())), denied),
            Order::DenyAllow => match line_for(&self.deny, request)? {
                Some(line) if !is_allowed()? => denied(line),
                _ => Ok(Ok(())),
            },
        }
    }
}

/// The last line for the request's method.
fn last<'a, T>(lines: &'a Lines<T>, request: &Request) -> Option<&'a Line<T>> {
    lines.iter().rev().find(|line| line.covers(request))
}

/// The first line that means the request's client.
fn line_for<'a>(
    lines: &'a Lines<Whom>,
    request: &Request,
) -> Result<Option<&'a Line<Whom>>, Undecided> {
    for line in lines.iter().filter(|line| line.covers(request)) {
        let is_meant = match &line.value {
            Whom::All => true,
            Whom::Env { name, set } => request.resource.env.contains(name.as_bytes()) == *set,
            Whom::Network(network) => network.contains(request.peer.client_ip()),
            Whom::Domain(domain) => {
                verified_name(request)?.is_some_and(|client| in_domain(domain, client))
            }
        };
        if is_meant {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("order", Where::LIMIT, Shape::One, "deny,allow", "'allow,deny', 'deny,allow', or 'mutual-failure'", order).or_left_out(forget_satisfy),
    directive("allow", Where::LIMIT, Shape::IterateTwo, "", "'from' followed by hostnames or IP-address wildcards", allow).or_left_out(forget_satisfy),
    directive("deny", Where::LIMIT, Shape::IterateTwo, "", "'from' followed by hostnames or IP-address wildcards", deny).or_left_out(forget_satisfy),
    directive("Satisfy", Where::AUTH_CONFIG, Shape::One, "all", "access policy if both allow and require used ('all' or 'any')", satisfy).or_left_out(forget_satisfy),
];

/// mod_access_compat.
pub const MODULE: Module = Module {
    file: "mod_access_compat.c",
    identifier: "access_compat_module",
    active: Active::Usually,
    page: "mod_access_compat",
    subject: "Access by host and address in the manner of Apache 2.2.",
    remarks: &[
        "A line of this module that an .htaccess file may not say, and that `AllowOverride \
         Nonfatal=Override` leaves out, undoes Satisfy of the sections outside and not their \
         Order, Allow and Deny. Apache forgets all of these, so that such a line lifts a denial.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The rules of the section at hand.
fn rules(scope: &mut Scope) -> &mut Rules {
    Arc::make_mut(scope.directory.access_compat.rules.get_or_insert_default())
}

/// What an .htaccess file may not say, and says under `Nonfatal=Override`, undoes what was said
/// outside, since Apache merges nothing here. The rules stay all the same, so that nobody lifts a
/// denial with a line that is not his to write; Satisfy Any, which opens, goes.
fn forget_satisfy(scope: &mut Scope) {
    scope.directory.access_compat.forgets_satisfy = true;
}

fn order(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let order = match argument(call, 0).to_ascii_lowercase().as_str() {
        // Mutual-failure passes what is allowed and not denied: that is allow,deny.
        "allow,deny" | "mutual-failure" => Order::AllowDeny,
        "deny,allow" => Order::DenyAllow,
        _ => return Err("unknown order".into()),
    };
    let line = Line::new(scope, call, order);
    rules(scope).order.push(line);
    Ok(())
}

fn satisfy(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let satisfy = match argument(call, 0).to_ascii_lowercase().as_str() {
        "all" => Satisfy::All,
        "any" => Satisfy::Any,
        _ => return Err("Satisfy either 'any' or 'all'.".into()),
    };
    let line = Line::new(scope, call, satisfy);
    rules(scope).satisfy.push(line);
    Ok(())
}

fn allow(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let line = Line::new(scope, call, whom(call)?);
    rules(scope).allow.push(line);
    Ok(())
}

fn deny(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let line = Line::new(scope, call, whom(call)?);
    rules(scope).deny.push(line);
    Ok(())
}

/// Whom a line means (mod_access_compat.c: allow_cmd).
fn whom(call: &Call<'_>) -> Result<Whom, String> {
    if !argument(call, 0).eq_ignore_ascii_case("from") {
        return Err("allow and deny must be followed by 'from'".into());
    }
    let text = argument(call, 1);
    if text.contains('#') {
        return Err("No comments are allowed here".into());
    }
    if let (Some(start), Some(name)) = (text.get(..4), text.get(4..))
        && start.eq_ignore_ascii_case("env=")
    {
        let unset = name.strip_prefix('!');
        return Ok(Whom::Env { name: unset.unwrap_or(name).into(), set: unset.is_none() });
    }
    if text.eq_ignore_ascii_case("all") {
        return Ok(Whom::All);
    }
    match parse_network(text) {
        Ok(network) => Ok(Whom::Network(network)),
        Err(AddressFault::NoAddress) if text.contains('/') => {
            Err("An IP address was expected".into())
        }
        Err(AddressFault::NoAddress) => Ok(Whom::Domain(text.into())),
        Err(fault) => Err(fault.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::core_settings;
    use evenkeel_message::{HostNames, Method, Peer, RequestHead};

    fn admits(said: &Directory, request: &mut Request) -> Result<bool, Undecided> {
        said.admits(request, core_settings())
    }

    /// Applies lines to an empty scope, in an .htaccess file that may say anything.
    fn apply(text: &str) -> Result<Directory, String> {
        let mut scope = Scope::default();
        let tables = crate::testing::tables(&[MODULE]);
        let position = evenkeel_config::Position { file: "test".into(), line: 1 };
        let overrides = evenkeel_config::Overrides::ALL;
        let grant = evenkeel_config::Grant { overrides, ..Default::default() };
        for line in text.lines() {
            let mut methods = evenkeel_message::MethodSet::default();
            methods.add(b"POST");
            let limited = line.strip_prefix("POST: ");
            scope.limit = limited.map(|_| Access::Only(Arc::new(methods)));
            let (name, arguments) = limited.unwrap_or(line).split_once(' ').unwrap();
            let (name, arguments) = (name.into(), arguments.into());
            let position = position.clone();
            let node = evenkeel_config::Node { name, arguments, position, section: None };
            let nodes = [node];
            evenkeel_config::apply_htaccess(&tables, &nodes, &mut scope, &grant, &mut vec![])
                .map_err(|fault| fault.text)?;
        }
        Ok(scope.directory.into_settings().access_compat)
    }

    fn request() -> Request {
        let client = "10.1.2.3:4000".parse().unwrap();
        let local = "10.1.2.9:80".parse().unwrap();
        let mut request = Request::new(RequestHead::default(), Peer { client, local }, 0);
        request.resource.env.set("known", "");
        let client = Some("a.example.org".into());
        request.names = Some(Box::new(HostNames {
            client,
            verified: true,
            has_verified: true,
            ..HostNames::default()
        }));
        request
    }

    #[test]
    fn the_last_word_is_order_s() {
        let table = [
            ("Order allow,deny", false),
            ("Order deny,allow", true),
            ("Deny from all", false),
            ("Order allow,deny\nAllow from all", true),
            ("Order Allow,Deny\nAllow from all\nDeny from 10.1.2", false),
            ("Order deny,allow\nDeny from all\nAllow from 10.1.2", true),
            ("Order mutual-failure\nAllow from all\nDeny from 10.1.2", false),
            ("Order mutual-failure\nAllow from 10.0.0.0/8", true),
            ("Deny from env=known", false),
            ("Deny from env=!known", true),
            ("Deny from ENV=!unknown", false),
            ("Deny from 11 .example.org", false),
            ("Deny from ample.org", true),
            ("POST: Deny from all", true),
            ("Order allow,deny\nPOST: Order deny,allow", false),
        ];
        for (text, passes) in table {
            assert_eq!(admits(&apply(text).unwrap(), &mut request()), Ok(passes), "{text}");
        }
    }

    #[test]
    fn limit_counts_for_its_methods() {
        let mut post = request();
        post.resource.method = Method::Post;
        assert_eq!(admits(&apply("POST: Deny from all").unwrap(), &mut post), Ok(false));
        let said = apply("Satisfy all\nPOST: Satisfy any").unwrap();
        assert_eq!(said.satisfy(&post), Satisfy::Any);
        assert_eq!(said.satisfy(&request()), Satisfy::All);
    }

    #[test]
    fn a_refusal_is_told() {
        let mut refused = request();
        let text = "Order allow,deny\nAllow from 10.1 10.2\nDeny from 11 10.1.2";
        for (text, line) in [
            ("Deny from all", "deny from all"),
            ("Order allow,deny", "order allow,deny"),
            ("Order allow,deny\nAllow from 11", "order allow,deny"),
            (text, "deny from 11 10.1.2"),
        ] {
            refused.notices.clear();
            assert_eq!(admits(&apply(text).unwrap(), &mut refused), Ok(false));
            assert_eq!(refused.notices[0].number, Some(1797));
            let told =
                format!("client denied by server configuration: uri ; denied by {line} (test:1)");
            assert_eq!(refused.notices[0].text, told);
        }
    }

    #[test]
    fn an_inner_section_stands_for_all() {
        let outer = apply("Deny from all").unwrap();
        let inner = apply("Satisfy any").unwrap();
        let admits = |inner: &Directory| admits(&Directory::merge(&outer, inner), &mut request());
        assert_eq!((admits(&inner), admits(&Directory::default())), (Ok(true), Ok(false)));
    }

    #[test]
    fn the_name_of_a_client_is_looked_up_where_a_line_needs_it() {
        let mut unnamed = request();
        unnamed.names = None;
        for (text, admitted) in [
            ("Deny from x.org", Err(Undecided)),
            ("Deny from x.org 10.1", Err(Undecided)),
            ("Deny from 10.1 x.org", Ok(false)),
            ("Deny from 10.1", Ok(false)),
        ] {
            assert_eq!(admits(&apply(text).unwrap(), &mut unnamed), admitted, "{text}");
            assert_eq!(unnamed.lookups.take_open().is_some(), admitted.is_err(), "{text}");
        }
    }

    #[test]
    fn faults_are_apaches() {
        let table = [
            ("Order x", "unknown order"),
            (
                "Order allow, deny",
                "order takes one argument, 'allow,deny', 'deny,allow', or 'mutual-failure'",
            ),
            ("Allow all x", "allow and deny must be followed by 'from'"),
            (
                "Deny from",
                "deny requires at least two arguments, 'from' followed by hostnames or \
                 IP-address wildcards",
            ),
            ("Allow from a#b", "No comments are allowed here"),
            ("Deny from 10.0.0.0/99", "The specified network mask is invalid."),
            ("Deny from foo/8", "An IP address was expected"),
            ("Deny from 300.1", "The specified IP address is invalid."),
            ("Satisfy x", "Satisfy either 'any' or 'all'."),
        ];
        for (text, fault) in table {
            assert_eq!(apply(text).err().as_deref(), Some(fault), "{text}");
        }
    }
}
