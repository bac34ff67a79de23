//! The names that `-D`, Define and the environment define, for `<IfDefine>` and `${}`. The caller
//! passes in the environment of the process.

use std::collections::BTreeMap;

/// The defined names with their values, and the environment as the fallback.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    names: Vec<(String, Option<String>)>,
    environment: BTreeMap<String, String>,
}

impl Variables {
    /// The names of `-D`, and the environment that `${}` falls back on.
    pub fn new<N, E>(names: N, environment: E) -> Self
    where
        N: IntoIterator<Item = String>,
        E: IntoIterator<Item = (String, String)>,
    {
        let mut variables =
            Self { names: Vec::new(), environment: environment.into_iter().collect() };
        for name in names {
            variables.define(&name, None);
        }
        variables
    }

    /// Whether `-D` or Define defines `name`. Case matters, as in `<IfDefine>`.
    #[must_use]
    pub fn is_defined(&self, name: &str) -> bool {
        self.names.iter().any(|(known, _)| known == name)
    }

    /// The value of `${name}`: that of Define, or else that of the environment. Names of Define
    /// ignore case here, because they are an apr_table_t in Apache.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        let own = self.names.iter().find_map(|(known, value)| {
            value.as_deref().filter(|_| known.eq_ignore_ascii_case(name))
        });
        own.or_else(|| self.environment.get(name).map(String::as_str))
    }

    /// Defines `name`. A value replaces the previous one.
    pub fn define(&mut self, name: &str, value: Option<&str>) {
        if value.is_some() {
            self.forget_value(name);
        }
        match self.names.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => {
                if let Some(value) = value {
                    *old = Some(value.to_owned());
                }
            }
            None => self.names.push((name.to_owned(), value.map(str::to_owned))),
        }
    }

    /// Removes `name`, whether Define or `-D` defined it.
    pub fn undefine(&mut self, name: &str) {
        self.names.retain(|(known, _)| known != name);
        self.forget_value(name);
    }

    /// The names in the order of definition, as `-D DUMP_RUN_CFG` lists them.
    pub fn defines(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.names.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
    }

    fn forget_value(&mut self, name: &str) {
        for (known, value) in &mut self.names {
            if known.eq_ignore_ascii_case(name) {
                *value = None;
            }
        }
    }

    /// The `line` with each `${NAME}` replaced by its value. A name without a value stays as it is
    /// and is passed to `undefined`. Values are not expanded further. None if the result would be
    /// longer than `limit` bytes: values that double each other must not fill the memory.
    ///
    /// Source: server/util.c, ap_resolve_env.
    pub(crate) fn resolve(
        &self,
        line: &str,
        limit: usize,
        mut undefined: impl FnMut(&str),
    ) -> Option<String> {
        let mut out = String::with_capacity(line.len());
        let mut rest = line;
        while let Some((before, behind)) = rest.split_once("${") {
            let Some((name, after)) = behind.split_once('}') else { break };
            out.push_str(before);
            match self.value(name) {
                Some(value) => out.push_str(value),
                None => {
                    undefined(name);
                    out.extend(["${", name, "}"]);
                }
            }
            rest = after;
            if out.len() > limit {
                return None;
            }
        }
        out.push_str(rest);
        (out.len() <= limit).then_some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(variables: &Variables, line: &str) -> (String, Vec<String>) {
        let mut missing = Vec::new();
        let text = variables.resolve(line, 100, |name| missing.push(name.to_owned())).unwrap();
        (text, missing)
    }

    #[test]
    fn values_come_from_define_then_the_environment() {
        let mut variables = Variables::new(
            ["bare".to_owned()],
            [("HOME".to_owned(), "/root".to_owned()), ("a".to_owned(), "env".to_owned())],
        );
        variables.define("a", Some("1"));
        assert_eq!(resolve(&variables, "x${A}${HOME}$y").0, "x1/root$y");
        variables.undefine("a");
        assert_eq!(resolve(&variables, "${a}").0, "env");
        assert_eq!(resolve(&variables, "${bare}"), ("${bare}".into(), vec!["bare".into()]));
    }

    #[test]
    fn unknown_and_unclosed_names_stay() {
        let variables = Variables::default();
        let (text, missing) = resolve(&variables, "a${x${b}}${}${c");
        assert_eq!(text, "a${x${b}}${}${c");
        assert_eq!(missing, ["x${b", ""]);
    }

    #[test]
    fn values_are_not_resolved_again_and_are_bounded() {
        let mut variables = Variables::default();
        variables.define("a", Some("${a}"));
        assert_eq!(resolve(&variables, "${a}").0, "${a}");
        variables.define("a", Some(&"x".repeat(60)));
        assert_eq!(variables.resolve("${a}${a}", 100, |_| ()), None);
    }

    #[test]
    fn a_name_keeps_its_place_when_defined_again() {
        let mut variables = Variables::new(["a".to_owned(), "b".to_owned()], []);
        variables.define("a", Some("2"));
        let all: Vec<_> = variables.defines().collect();
        assert_eq!(all, [("a", Some("2")), ("b", None)]);
        assert!(variables.is_defined("a") && !variables.is_defined("A"));
    }
}
