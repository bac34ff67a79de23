//! The page of mod_info (mod_info.c: display_info).

use super::{Server, configuration};
use crate::{Module, Provided};
use bytes::Bytes;
use evenkeel_config::Node;
use evenkeel_message::{Body, Request, Response};
use std::collections::BTreeSet;

/// What the page shows.
pub struct Facts<'a> {
    /// The active modules.
    pub modules: Vec<&'static Module>,
    /// The tree of directives.
    pub nodes: &'a [Node],
    /// What Server fields say.
    pub banner: &'a str,
    /// The name and port that the server answers to.
    pub name: (&'a str, u16),
    /// Timeout and KeepAliveTimeout, in seconds.
    pub timeouts_s: (u64, u64),
    /// The name of the process model.
    pub model: &'a str,
    /// ServerRoot.
    pub server_root: String,
    /// The settings of the virtual host.
    pub settings: &'a Server,
    /// The last line of the page, as HTML.
    pub signature: &'a str,
}

/// The phases of a request, with the hooks of Apache that each stands for (ARCHITECTURE.md).
const PHASES: &[(&str, &str)] = &[
    ("receive", "Post-Read Request"),
    ("translate", "Pre-Translate Name, Translate Name"),
    ("map", "Map to Storage, Header Parse"),
    ("admit", "Check Access, Verify User ID, Verify User Access"),
    ("prepare", "Check Type, Fixups"),
    ("generate", "Content Handlers"),
    ("filter", "Insert Filters, Insert Errors"),
    ("record", "Transaction Logging"),
];

const HEAD: &str = "<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Transitional//EN\"\n\
    \"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd\">\n\
    <html xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n  \
    <title>Server Information</title>\n</head>\n\
    <body><h1 style=\"text-align: center\">Apache Server Information</h1>\n";

const CONTENTS: &str = "<dl><dt><tt>Subpages:<br />\
    <a href=\"?config\">Configuration Files</a>, <a href=\"?server\">Server Settings</a>, \
    <a href=\"?list\">Module List</a>, <a href=\"?hooks\">Phases of a Request</a>, \
    <a href=\"?providers\">Available Providers</a></tt></dt></dl><hr />\
    <dl><dt><tt>Sections:<br /><a href=\"#modules\">Loaded Modules</a>, \
    <a href=\"#server\">Server Settings</a>, <a href=\"#request_hooks\">Phases of a Request</a>, \
    <a href=\"#providers\">Providers</a></tt></dt></dl><hr />\
    <h2><a name=\"modules\">Loaded Modules</a></h2><dl><dt><tt>";

/// Makes the page that the query asks for.
#[must_use]
pub fn page(request: &Request, facts: &Facts<'_>) -> Response {
    let mut response = Response::new(request.resource.status);
    response.fields.set("Content-Type", "text/html; charset=ISO-8859-1");
    let query = request.resource.query.as_deref();
    let query = query.map(|query| String::from_utf8_lossy(query).to_ascii_lowercase());
    response.body = Body::Bytes(Bytes::from(text(query.as_deref(), facts)));
    response
}

fn text(query: Option<&str>, facts: &Facts<'_>) -> String {
    let mut out = HEAD.to_owned();
    let mut modules = facts.modules.clone();
    modules.sort_by_key(|module| module.file);
    match query {
        Some("list") => {
            out.push_str("<dl><dt>Server Module List</dt>");
            modules.iter().for_each(|it| out.push_str(&format!("<dd>{}</dd>", it.file)));
            out.push_str("</dl><hr />");
        }
        Some("config") => {
            out.push_str("<dl><dt><strong>Configuration:</strong>\n");
            configuration::write(&mut out, facts.nodes, &|_| true);
            out.push_str("</dl><hr />");
        }
        Some("server") => show_server(&mut out, facts),
        Some("hooks") => show_phases(&mut out),
        Some("providers") => show_providers(&mut out, &modules),
        Some(name) => match modules.iter().find(|it| it.file.eq_ignore_ascii_case(name)) {
            Some(module) => show_module(&mut out, module, facts),
            None => out.push_str("<p><b>No such module</b></p>\n"),
        },
        None => {
            out.push_str(CONTENTS);
            for module in &modules {
                out.push_str(&format!("<a href=\"#{0}\">{0}</a>, ", module.file));
            }
            out.push_str("</tt></dt></dl><hr />");
            show_server(&mut out, facts);
            show_phases(&mut out);
            show_providers(&mut out, &modules);
            modules.iter().for_each(|module| show_module(&mut out, module, facts));
        }
    }
    out.push_str(facts.signature);
    out.push_str("</body></html>\n");
    out
}

fn show_server(out: &mut String, facts: &Facts<'_>) {
    let (name, port) = facts.name;
    let (timeout, keep_alive) = facts.timeouts_s;
    let (threaded, main_file) = (
        if facts.model == "prefork" { "no" } else { "yes" },
        facts.nodes.first().map_or("", |node| &*node.position.file),
    );
    out.push_str("<h2><a name=\"server\">Server Settings</a></h2><dl>");
    let bits = usize::BITS;
    let lines = [
        ("Server Version", escaped(facts.banner)),
        ("Program", escaped(&format!("evenkeel {}", env!("CARGO_PKG_VERSION")))),
        ("Hostname/port", format!("{}:{port}", escaped(name))),
        ("Timeouts", format!("connection: {timeout} &nbsp;&nbsp; keep-alive: {keep_alive}")),
        ("MPM Name", escaped(facts.model)),
        ("MPM Information", format!("Threaded: {threaded} Forked: yes")),
        ("Server Architecture", format!("{bits}-bit")),
        ("Server Root", escaped(&facts.server_root)),
        ("Config File", escaped(main_file)),
    ];
    for (name, value) in lines {
        out.push_str(&format!("<dt><strong>{name}:</strong> <tt>{value}</tt></dt>\n"));
    }
    out.push_str("</dl><hr />");
}

fn show_phases(out: &mut String) {
    out.push_str(
        "<h2><a name=\"request_hooks\">Phases of a Request</a></h2>\n<p>Modules register for no \
         hooks. Each phase calls its modules in a fixed order, which is that of Apache's \
         hooks.</p>\n<dl>",
    );
    for (phase, hooks) in PHASES {
        out.push_str(&format!(
            "<dt><strong>{phase}:</strong>\n <br /><tt>&nbsp;&nbsp; {hooks}</tt>\n</dt>\n"
        ));
    }
    out.push_str("</dl>\n<hr />\n");
}

/// The kind and the name of something that a module provides. Those of access control have the
/// names and versions of Apache's groups.
fn kind(provided: &Provided) -> (&'static str, &'static str) {
    match provided {
        Provided::Authn(provider) => ("authn", provider.name),
        Provided::Require(provider) => ("authz", provider.name),
        Provided::InputFilter(filter) => ("input_filter", filter.name),
        Provided::OutputFilter(filter) => ("output_filter", filter.name),
    }
}

fn show_providers(out: &mut String, modules: &[&Module]) {
    let all: BTreeSet<_> = modules.iter().flat_map(|module| module.provides).map(kind).collect();
    out.push_str("<h2><a name=\"providers\">Providers</a></h2>\n<dl>");
    let mut current = None;
    for (group, name) in all {
        if current != Some(group) {
            if current.is_some() {
                out.push_str("\n</dt>\n");
            }
            current = Some(group);
            out.push_str(&format!("<dt><strong>{group}</strong> (version <tt>0</tt>):\n <br />\n"));
        }
        out.push_str(&format!("<tt>&nbsp;&nbsp;{name}</tt><br/>"));
    }
    if current.is_some() {
        out.push_str("\n</dt>\n");
    }
    out.push_str("</dl>\n<hr />\n");
}

fn show_module(out: &mut String, module: &Module, facts: &Facts<'_>) {
    out.push_str(&format!(
        "<dl><dt><a name=\"{0}\"><strong>Module Name:</strong></a> <font size=\"+1\"><tt>\
         <a href=\"?{0}\">{0}</a></tt></font></dt>\n",
        module.file
    ));
    let provided: Vec<String> =
        module.provides.iter().map(kind).map(|(kind, name)| format!("{kind} {name}")).collect();
    let provided = if provided.is_empty() { "<em>none</em>".into() } else { provided.join(", ") };
    out.push_str(&format!("<dt><strong>Provides:</strong> <tt>{provided}</tt></dt>"));
    let directives = || module.directives.iter().copied().flatten();
    if directives().next().is_none() {
        out.push_str("<dt><strong>Module Directives:</strong> <tt>none</tt></dt>");
    } else {
        out.push_str("<dt><strong>Module Directives:</strong></dt>");
        for directive in directives() {
            let end = if directive.name.starts_with('<') { "&gt;" } else { "" };
            out.push_str(&format!(
                "<dd><tt>{}{end} - <i>{}</i></tt></dd>\n",
                escaped(directive.name),
                escaped(directive.doc)
            ));
        }
        out.push_str("<dt><strong>Current Configuration:</strong></dt>\n");
        let is_its = |node: &Node| directives().any(|it| it.name.eq_ignore_ascii_case(&node.name));
        configuration::write(out, facts.nodes, &is_its);
    }
    if let Some(more) = facts.settings.about(module.file) {
        out.push_str("<dt><strong>Additional Information:</strong>\n</dt><dd>");
        out.push_str(more);
        out.push_str("</dd>");
    }
    out.push_str("</dl><hr />\n");
}

/// A text with what HTML would act on replaced.
pub(super) fn escaped(text: &str) -> String {
    String::from_utf8_lossy(&evenkeel_proto::escaped_html(text.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MODULES;
    use crate::testing::apply;
    use evenkeel_config::Position;

    fn shown(query: Option<&str>) -> String {
        let position = Position { file: "/etc/x.conf".into(), line: 7 };
        let node =
            Node { name: "SetEnv".into(), arguments: "A \"<b>\"".into(), position, section: None };
        let scope = apply(super::super::MODULE, "AddModuleInfo mod_env.c \"<b>more</b>\"").unwrap();
        let facts = Facts {
            modules: MODULES.iter().collect(),
            nodes: &[node],
            banner: "Apache/2.4",
            name: ("a<b", 80),
            timeouts_s: (60, 5),
            model: "event",
            server_root: "/etc".into(),
            settings: &scope.server.info,
            signature: "<address>S</address>",
        };
        text(query, &facts)
    }

    #[test]
    fn the_query_chooses_what_is_shown() {
        let whole = shown(None);
        for part in ["?config", "mod_alias.c", "Module Name", "Server Root", "translate", "authn"] {
            assert!(whole.contains(part), "{part}");
        }
        assert!(whole.contains("<tt>a&lt;b:80</tt>") && whole.contains("<address>S</address>"));
        let list = shown(Some("list"));
        assert!(list.contains("<dd>mod_env.c</dd>") && !list.contains("Module Name"));
        assert!(shown(Some("hooks")).contains("Check Type, Fixups"));
        assert!(shown(Some("providers")).contains("<tt>&nbsp;&nbsp;valid-user</tt>"));
        assert!(shown(Some("server")).contains("connection: 60"));
    }

    #[test]
    fn a_module_has_its_directives_and_the_lines_that_use_them() {
        let env = shown(Some("mod_env.c"));
        assert!(env.contains("<dd><tt>UnsetEnv - <i>"), "{env}");
        assert!(env.contains("SetEnv <i>A &quot;&lt;b&gt;&quot;</i>"), "{env}");
        assert!(env.contains("<dd><b>more</b></dd>"), "{env}");
        assert!(!shown(Some("mod_alias.c")).contains("&lt;b&gt;"));
        assert!(shown(Some("<script>")).contains("No such module"));
        assert!(!shown(Some("<script>")).contains("script"));
    }

    #[test]
    fn the_configuration_is_escaped() {
        let text = shown(Some("config"));
        assert!(text.contains("/etc/x.conf") && text.contains("7:&nbsp;SetEnv"), "{text}");
        assert!(!text.contains("<b>"), "{text}");
    }
}
