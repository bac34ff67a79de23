//! Checks whether a directive may stand at its place, from the place and the contexts of its
//! declaration. The message is Apache's.

use crate::directive::{Contexts, Overrides};

/// What a place permits, like cmd_parms.override in Apache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permit {
    server: bool,
    access: bool,
    overrides: Overrides,
}

impl Permit {
    /// Outside all sections and in virtual hosts: (RSRC_CONF|OR_ALL) & ~(OR_AUTHCFG|OR_LIMIT).
    pub(crate) const SERVER: Self = Self {
        server: true,
        access: false,
        overrides: Overrides::OPTIONS.with(Overrides::FILE_INFO).with(Overrides::INDEXES),
    };

    /// In Directory, Location, Files, If: OR_ALL|ACCESS_CONF.
    pub(crate) const SECTION: Self =
        Self { server: false, access: true, overrides: Overrides::ALL };

    /// Where only these override classes count: .htaccess, or RequireAll and similar sections.
    pub(crate) const fn classes(overrides: Overrides) -> Self {
        Self { server: false, access: false, overrides }
    }

    pub(crate) fn allows(self, contexts: Contexts, overrides: Overrides) -> bool {
        (self.server && contexts.contains(Contexts::SERVER))
            || (self.access && contexts.contains(Contexts::DIRECTORY))
            || self.overrides.meets(overrides)
    }
}

/// A place in the tree during a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) permit: Permit,
    /// Whether it is in a virtual host.
    pub(crate) virtual_host: bool,
    /// Whether it is in Limit or LimitExcept.
    pub(crate) limited: bool,
    /// Whether it is in a section that requests are matched with, or in .htaccess.
    pub(crate) matched: bool,
    pub(crate) htaccess: bool,
    pub(crate) parent: Option<&'a Parent<'a>>,
}

/// The sections around a place, innermost first.
#[derive(Debug)]
pub(crate) struct Parent<'a> {
    pub(crate) name: &'a str,
    pub(crate) outer: Option<&'a Parent<'a>>,
}

impl<'a> Scope<'a> {
    pub(crate) const fn server() -> Self {
        Self {
            permit: Permit::SERVER,
            virtual_host: false,
            limited: false,
            matched: false,
            htaccess: false,
            parent: None,
        }
    }

    pub(crate) const fn htaccess(classes: Overrides) -> Self {
        Self { permit: Permit::classes(classes), matched: true, htaccess: true, ..Self::server() }
    }

    /// The place of the children of a section of the kind `inside`. A section within a section that
    /// requests are matched with permits no more than that: in .htaccess, what AllowOverride
    /// permits still applies (server/core.c, filesection and ifsection).
    pub(crate) fn within(&self, inside: Contexts, parent: &'a Parent<'a>) -> Scope<'a> {
        let mut scope = Scope { parent: Some(parent), ..*self };
        if inside.contains(Contexts::DIRECTORY) {
            if !self.matched {
                scope.permit = Permit::SECTION;
            }
            scope.matched = true;
        }
        if inside.contains(Contexts::AUTHORIZATION) {
            scope.permit = Permit::classes(Overrides::AUTH_CONFIG);
            // Its list of rules is separate from the enclosing sections, as for Limit.
            scope.limited = true;
        }
        scope.virtual_host |= inside.contains(Contexts::VHOST);
        scope.limited |= inside.contains(Contexts::LIMIT);
        scope
    }

    /// The sections around this place, innermost first, such as `<Directory`.
    pub(crate) fn parents(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        std::iter::successors(self.parent, |parent| parent.outer).map(|parent| parent.name)
    }

    /// The message that the place does not permit the directive `name`.
    ///
    /// Source: server/config.c, invoke_cmd.
    pub(crate) fn refusal(&self, name: &str) -> String {
        match self.parent {
            Some(parent) => format!("{name} not allowed in {}> context", parent.name),
            None => format!("{name} not allowed here"),
        }
    }

    /// Checks the `NOT_IN` rules among `rules`.
    ///
    /// # Errors
    ///
    /// The message about the directive `name`.
    ///
    /// Source: server/core.c, ap_check_cmd_context.
    pub(crate) fn check_rules(&self, name: &str, rules: Contexts) -> Result<(), String> {
        let gt = if name.starts_with('<') && !name.ends_with('>') { ">" } else { "" };
        let refuse = |place: &str| Err(format!("{name}{gt} cannot occur within {place}"));
        let everywhere = rules.contains(Contexts::NOT_IN_DIR_CONTEXT);
        if rules.contains(Contexts::NOT_IN_VIRTUALHOST) && self.virtual_host {
            return refuse("<VirtualHost> section");
        }
        if rules.contains(Contexts::NOT_IN_LIMIT) && self.limited {
            return refuse("<Limit> or <LimitExcept> section");
        }
        if rules.contains(Contexts::NOT_IN_HTACCESS) && self.htaccess {
            return refuse("htaccess files");
        }
        if everywhere && self.matched {
            return refuse("directory context");
        }
        for (rule, names) in SECTIONS {
            let barred = |parent: &&str| names.iter().any(|name| name.eq_ignore_ascii_case(parent));
            if !rules.contains(*rule) {
                continue;
            }
            if let Some(parent) = self.parents().find(barred) {
                return refuse(&format!("{parent}> section"));
            }
        }
        Ok(())
    }
}

/// The sections that each rule excludes.
const SECTIONS: &[(Contexts, &[&str])] = &[
    (Contexts::NOT_IN_DIRECTORY, &["<Directory", "<DirectoryMatch"]),
    (Contexts::NOT_IN_LOCATION, &["<Location", "<LocationMatch"]),
    (Contexts::NOT_IN_FILES, &["<Files", "<FilesMatch"]),
    (Contexts::NOT_IN_IF, &["<If", "<ElseIf", "<Else"]),
    (Contexts::NOT_IN_PROXY, &["<Proxy", "<ProxyMatch"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_changes_what_is_permitted() {
        let server = Scope::server();
        assert!(server.permit.allows(Contexts::SERVER, Overrides::NONE));
        assert!(server.permit.allows(Contexts::NONE, Overrides::FILE_INFO));
        assert!(!server.permit.allows(Contexts::DIRECTORY, Overrides::LIMIT));
        let parent = Parent { name: "<Directory", outer: None };
        let inside = server.within(Contexts::DIRECTORY, &parent);
        assert!(inside.permit.allows(Contexts::DIRECTORY, Overrides::NONE));
        assert!(!inside.permit.allows(Contexts::SERVER, Overrides::NONE));
        assert_eq!(inside.refusal("Listen"), "Listen not allowed in <Directory> context");
        assert_eq!(server.refusal("Require"), "Require not allowed here");
    }

    #[test]
    fn htaccess_keeps_its_grant_in_sections() {
        let htaccess = Scope::htaccess(Overrides::INDEXES);
        let parent = Parent { name: "<Files", outer: None };
        let inside = htaccess.within(Contexts::DIRECTORY, &parent);
        assert!(inside.permit.allows(Contexts::NONE, Overrides::INDEXES));
        assert!(!inside.permit.allows(Contexts::DIRECTORY, Overrides::FILE_INFO));
    }

    #[test]
    fn rules_complain_as_apache_does() {
        let vhost = Parent { name: "<VirtualHost", outer: None };
        let in_vhost = Scope::server().within(Contexts::VHOST, &vhost);
        let text = in_vhost.check_rules("PidFile", Contexts::GLOBAL_ONLY).unwrap_err();
        assert_eq!(text, "PidFile cannot occur within <VirtualHost> section");
        let files = Parent { name: "<filesmatch", outer: Some(&vhost) };
        let in_files = in_vhost.within(Contexts::DIRECTORY, &files);
        let text = in_files.check_rules("<X", Contexts::NOT_IN_FILES).unwrap_err();
        assert_eq!(text, "<X> cannot occur within <filesmatch> section");
        let text = in_files.check_rules("X", Contexts::NOT_IN_DIR_CONTEXT).unwrap_err();
        assert_eq!(text, "X cannot occur within directory context");
        assert_eq!(in_files.check_rules("X", Contexts::NOT_IN_LOCATION), Ok(()));
        let limit = in_files.within(Contexts::LIMIT, &files);
        let text = limit.check_rules("X", Contexts::NOT_IN_LIMIT).unwrap_err();
        assert_eq!(text, "X cannot occur within <Limit> or <LimitExcept> section");
        let htaccess = Scope::htaccess(Overrides::ALL);
        assert!(htaccess.check_rules("X", Contexts::NOT_IN_HTACCESS).is_err());
    }
}
