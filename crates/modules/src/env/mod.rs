//! mod_env: variables that every request of a section has. Lines of the configuration go in, the
//! environment of requests comes out. What SetEnvIf has set is left as it is, as in Apache.

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::settings::merged;
use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{Request, Variables, unquoted};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("PassEnv", Where::FILE_INFO, Shape::Iterate, "", "a list of environment variables to pass to CGI.", pass_env).of_bytes(),
    directive("SetEnv", Where::FILE_INFO, Shape::OneOrTwo, "", "an environment variable name and optional value to pass to CGI.", set_env).of_bytes(),
    directive("UnsetEnv", Where::FILE_INFO, Shape::Iterate, "", "a list of variables to remove from the CGI environment.", unset_env).of_bytes(),
];

/// mod_env.
pub const MODULE: Module = Module {
    file: "mod_env.c",
    identifier: "env_module",
    active: Active::Usually,
    page: "mod_env",
    subject: "Variables of the environment for what answers a request.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// What a section says of variables.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Those that it sets (SetEnv, PassEnv).
    pub variables: Arc<Variables>,
    /// Those of outer sections that it takes back (UnsetEnv).
    pub unset: Arc<Vec<Box<[u8]>>>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        let Self { variables, unset } = over;
        if !unset.is_empty() {
            let own = Arc::make_mut(&mut self.variables);
            for name in unset.iter() {
                own.unset(name);
            }
            Arc::make_mut(&mut self.unset).extend_from_slice(unset);
        }
        if !variables.is_empty() {
            let own = Arc::make_mut(&mut self.variables);
            for (name, value) in variables.iter() {
                own.set(name, value);
            }
        }
    }
}

/// What a variable costs a request, in steps of its allowance.
const STEPS_A_VARIABLE: u64 = 64;

/// Gives a request the variables of its sections (mod_env.c: fixup_env_module). Those that it
/// has already stay: apr_table_overlay lets them win.
pub fn set_variables(request: &mut Request, settings: &Directory) {
    // A request may come here for each of hundreds of looks. One that has spent what it may is
    // answered with 500, whatever its variables are.
    let steps = settings.variables.iter().count() as u64 * STEPS_A_VARIABLE;
    if settings.variables.is_empty() || !request.allowance.spend(steps) {
        return;
    }
    for (name, value) in settings.variables.iter() {
        if !request.resource.env.contains(name) {
            request.resource.env.set(name, value);
        }
    }
}

fn set_env(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (name, value) = (call.first(), call.second().unwrap_or_default());
    if let Some((before, behind)) = name.split_once('=') {
        let text = format!(
            "Spurious usage of '=' in an environment variable name. '{} {before} {behind}' \
             expected instead?",
            call.name
        );
        call.warn("env", 10032, text);
    }
    set(scope, &unquoted(name), &unquoted(value));
    Ok(())
}

fn pass_env(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = argument(call, 0);
    let bytes = unquoted(name);
    match std::env::var_os(OsStr::from_bytes(&bytes)) {
        Some(value) => set(scope, &bytes, value.as_bytes()),
        None => call.warn("env", 1506, format!("PassEnv variable {name} was undefined")),
    }
    Ok(())
}

fn set(scope: &mut Scope, name: &[u8], value: &[u8]) {
    Arc::make_mut(&mut scope.directory.env.variables).set(name, value);
}

fn unset_env(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = unquoted(argument(call, 0));
    let env = &mut scope.directory.env;
    Arc::make_mut(&mut env.variables).unset(&*name);
    Arc::make_mut(&mut env.unset).push((*name).into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;
    use evenkeel_message::{Peer, RequestHead};

    fn environment(settings: &Directory, before: &[(&str, &str)]) -> Vec<(String, String)> {
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        for (name, value) in before {
            request.resource.env.set(name, value);
        }
        set_variables(&mut request, settings);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        request.resource.env.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    fn said(text: &str) -> Directory {
        apply(MODULE, text).unwrap().directory.into_settings().env
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn set_env_sets_and_what_is_set_stays() {
        let settings = said("SetEnv A one\nSetEnv B \"two words\"\nSetEnv E\nSetEnv x=y z");
        let expected = [("A", "if"), ("B", "two words"), ("E", ""), ("x=y", "z")];
        assert_eq!(environment(&settings, &[("A", "if")]), pairs(&expected));
    }

    #[test]
    fn unset_env_takes_back_what_outer_sections_set() {
        let outer = said("SetEnv A 1\nSetEnv B 2");
        let merged = Directory::merge(&outer, &said("UnsetEnv A\nSetEnv C 3"));
        assert_eq!(environment(&merged, &[]), pairs(&[("B", "2"), ("C", "3")]));
        assert_eq!(environment(&said("SetEnv A 1\nUnsetEnv A"), &[]), []);
        assert_eq!(environment(&Directory::merge(&outer, &said("")), &[]).len(), 2);
    }

    #[test]
    fn pass_env_takes_what_the_process_has() {
        let path = std::env::var("PATH").unwrap();
        assert_eq!(environment(&said("PassEnv PATH"), &[]), pairs(&[("PATH", &path)]));
        assert_eq!(environment(&said("PassEnv EVENKEEL_HAS_NO_SUCH a=b"), &[]), []);
    }
}
