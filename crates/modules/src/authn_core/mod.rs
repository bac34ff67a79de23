//! mod_authn_core: the authentication scheme (AuthType), the realm (AuthName), and aliases of
//! authentication providers with settings of their own (AuthnProviderAlias).

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::{
    Active, AuthnSource, Directive, DirectiveResult, Merge, Module, RequestContext, Scope, Where,
    argument, directive, global_section,
};
use evenkeel_config::{Block, Call, Contexts, Fault, GlobalCall, Shape, next_word};
use evenkeel_expr::Text;
use evenkeel_message::{Level, Notice};
use evenkeel_proto::escape_quotes;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("AuthType", Where::AUTH_CONFIG, Shape::One, "", "an HTTP authorization type (e.g., \"Basic\")", auth_type_line),
    directive("AuthName", Where::AUTH_CONFIG, Shape::One, "", "the authentication realm (e.g. \"Members Only\")", auth_name_line),
    global_section("<AuthnProviderAlias", "container for grouping an authentication provider's directives under a provider alias", provider_alias),
];

/// mod_authn_core.
pub const MODULE: Module = Module {
    file: "mod_authn_core.c",
    identifier: "authn_core_module",
    active: Active::Usually,
    page: "mod_authn_core",
    subject: "How a client logs in, and to what.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The settings of one section. A field is `None` if the section does not set it.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    auth_type: Option<Arc<Word>>,
    auth_name: Option<Arc<Word>>,
}

/// The argument of AuthType or AuthName.
#[derive(Debug)]
struct Word {
    text: Text,
    /// The value, if it is the same for every request.
    constant: Option<Arc<[u8]>>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; auth_type, auth_name)
    }
}

impl Directory {
    /// Whether AuthType is set.
    #[must_use]
    pub fn has_type(&self) -> bool {
        self.auth_type.is_some()
    }
}

/// The AuthType of a request. Returns `None` if AuthType is not set, if its value is `None`, or if
/// its expression cannot be evaluated (mod_authn_core.c: authn_ap_auth_type).
#[must_use]
pub fn auth_type(
    context: &RequestContext<'_>,
    settings: &Directory,
    notices: &mut Vec<Notice>,
) -> Option<Arc<[u8]>> {
    let word = settings.auth_type.as_deref()?;
    let value = match &word.constant {
        Some(value) => Arc::clone(value),
        None => value(&word.text, context, (2834, "AuthType"), notices)?.into(),
    };
    (!value.eq_ignore_ascii_case(b"None")).then_some(value)
}

/// The AuthName of a request, with its quotation marks escaped. Returns `None` if AuthName is not
/// set or its expression cannot be evaluated.
#[must_use]
pub fn auth_name(
    context: &RequestContext<'_>,
    settings: &Directory,
    notices: &mut Vec<Notice>,
) -> Option<Arc<[u8]>> {
    let word = settings.auth_name.as_deref()?;
    if let Some(value) = &word.constant {
        return Some(Arc::clone(value));
    }
    let name = value(&word.text, context, (2835, "AuthName"), notices)?;
    Some(escape_quotes(&name).into())
}

fn value(
    text: &Text,
    context: &RequestContext<'_>,
    (number, name): (u16, &str),
    notices: &mut Vec<Notice>,
) -> Option<Vec<u8>> {
    match text.value(context) {
        Ok(value) => Some(value.to_vec()),
        Err(error) => {
            let text = format!("{name} expression could not be evaluated: {error}");
            notices.push(Notice::new("authn_core", Level::Error, number, text));
            None
        }
    }
}

fn auth_type_line(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = compiled(scope, call, "AuthType")?;
    let constant = text.constant().map(Arc::from);
    scope.directory.authn_core.auth_type = Some(Arc::new(Word { text, constant }));
    Ok(())
}

fn auth_name_line(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = compiled(scope, call, "AuthName")?;
    let constant = text.constant().map(|name| escape_quotes(name).into());
    scope.directory.authn_core.auth_name = Some(Arc::new(Word { text, constant }));
    Ok(())
}

fn compiled(scope: &Scope, call: &Call<'_>, name: &str) -> Result<Text, String> {
    let word = argument(call, 0);
    scope
        .compile_text(word)
        .map_err(|error| format!("Cannot parse expression '{word}' in {name}: {error}"))
}

fn provider_alias(
    scope: &mut Scope,
    block: &Block<'_, Scope>,
    call: &GlobalCall<'_>,
) -> Result<(), Fault> {
    let text = block.argument()?;
    let (name, rest) = next_word(text);
    let (alias, _) = next_word(rest);
    if name.is_empty() || alias.is_empty() {
        let text = "<AuthnProviderAlias> directive requires additional arguments";
        return Err(block.fault(text));
    }
    if name.eq_ignore_ascii_case(&alias) {
        let text = "The alias provider name must be different from the base provider name.";
        return Err(block.fault(text));
    }
    if scope.global().active.authn_source(&alias).is_some() {
        let text = format!(
            "The alias provider {alias} has already be registered previously as either a base \
             provider or an alias provider."
        );
        return Err(block.fault(text));
    }
    let outer = std::mem::take(&mut scope.directory);
    let walked = block.walk(scope, Contexts::DIRECTORY);
    let said = std::mem::replace(&mut scope.directory, outer);
    walked?;
    let base = scope.global().active.named_authn_source(&name).map_err(|it| block.fault(it))?;
    let settings = match (base.settings, said.is_said()) {
        (outer, false) => outer,
        (None, true) => Some(Arc::new(said.into_settings())),
        (Some(outer), true) => {
            let mut merged = (*outer).clone();
            merged.add(&said);
            Some(Arc::new(merged))
        }
    };
    let source = AuthnSource { name: alias.to_owned().into(), provider: base.provider, settings };
    scope.global_mut(call).active.add_authn_source(source);
    Ok(())
}
