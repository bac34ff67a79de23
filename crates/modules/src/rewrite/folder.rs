//! Applies the rules of sections and .htaccess files after the request is mapped to a file
//! (mod_rewrite.c: hook_fixup). Patterns are matched against the path relative to the section's
//! directory, and a substitution leads to an internal redirect.

use super::engine::{Base, Change, Run, Surroundings};
use super::server::{answer, answered, is_query_sound, proxied, redirect};
use super::uri::{scheme, substitute_prefix};
use super::{Directory, Options, Outcome, Section, Server};
use crate::core::Options as CoreOptions;
use crate::{CoreSettings, RequestContext};
use evenkeel_expr::{Context as _, Variable as Known};
use evenkeel_files::Looked;
use evenkeel_message::{Level, Notice, Request, Status, quoted};

/// The note that makes an internal redirect keep the Vary field of the response.
pub const KEEPS_VARY: &str = "redirect-keeps-vary";

/// Applies the rules of the sections of a request if RewriteEngine is on. The file of the request
/// must be known.
pub async fn fix_up(
    request: &mut Box<Request>,
    server: &Server,
    section: &Directory,
    core: CoreSettings<'_>,
    found: Option<&Looked>,
    around: &dyn Surroundings,
) -> Outcome {
    let Some(said) = section.0.as_ref().filter(|said| said.switches.is_on()) else {
        return Outcome::Declined;
    };
    let Some(folder) = said.folder.as_deref() else { return Outcome::Declined };
    let options = said.switches.options();
    // A request that is passed on has no file, which is no folder either.
    let is_without_slash = request.resource.proxied.is_none()
        && folder.strip_suffix(b"/") == Some(request.resource.file.as_bytes());
    if is_without_slash && !options.has(Options::NO_SLASH) {
        return Outcome::Declined;
    }
    let is_over = request.resource.is_rewriting_over;
    let asked = request.resource.query.clone();
    let mut run = Run::new(request, around, core, server);
    run.base = Some(Base { folder, url: said.base.as_deref() });
    run.found = found;
    if is_over {
        trace!(run, 8, "Declining, no further rewriting due to END flag");
        return Outcome::Declined;
    }
    if !may_rewrite(core) {
        let text = format!(
            "Options FollowSymLinks and SymLinksIfOwnerMatch are both off, so the RewriteRule \
             directive is also forbidden due to its similar ability to circumvent directory \
             restrictions : {}",
            quoted(&run.filename)
        );
        run.request.notify(Notice::new("rewrite", Level::Error, 670, text));
        return answered(Status::FORBIDDEN);
    }
    if run.filename.is_empty() {
        run.filename = run.request.resource.path.to_vec();
        trace!(run, 2, "init rewrite engine with requested uri {}", quoted(&run.filename));
    }
    let (change, _) = run.apply_all(&said.rules).await;
    match change {
        Change::Nothing => {
            trace!(run, 1, "pass through {}", quoted(&run.filename));
            Outcome::Declined
        }
        _ if !is_query_sound(&mut run, change, 10411) => answered(Status::FORBIDDEN),
        Change::Answered => answer(run.status, core),
        Change::Refused(status) => answered(status),
        Change::Substituted { is_raw } if run.is_proxied => proxied(&mut run, is_raw),
        Change::Substituted { is_raw } if scheme(&run.filename).is_some() && !run.is_passed => {
            base_redirect(&mut run);
            redirect(&mut run, is_raw, asked.as_deref())
        }
        Change::Substituted { .. } => local(&mut run, said),
    }
}

/// Whether Options allow rules. Rules can circumvent directory restrictions as symbolic links can,
/// so Apache requires FollowSymLinks or SymLinksIfOwnerMatch.
fn may_rewrite(core: CoreSettings<'_>) -> bool {
    let options = core.directory.options.effective();
    options.has(CoreOptions::FOLLOW_SYM_LINKS) || options.has(CoreOptions::SYM_LINKS_IF_OWNER_MATCH)
}

/// Replaces the section's directory in the target of a redirect with RewriteBase.
fn base_redirect(run: &mut Run<'_>) {
    let Some(Base { folder, url: Some(url) }) = run.base else { return };
    let Some(scheme) = scheme(&run.filename) else { return };
    let behind = run.filename.get(scheme.length..).unwrap_or_default();
    let Some(slash) = behind.iter().position(|byte| *byte == b'/') else { return };
    let start = scheme.length + slash + 1;
    let path = run.filename.get(start..).unwrap_or_default().to_vec();
    if path.is_empty() {
        return;
    }
    let (shown, base) = (quoted(folder), quoted(url));
    trace!(run, 2, "trying to replace prefix {shown} with {base}");
    let folder = folder.strip_prefix(b"/").unwrap_or(folder);
    let url = url.get(1..).unwrap_or_default();
    if let Some(replaced) = replace_prefix(run, &path, folder, url) {
        run.filename.truncate(start);
        run.filename.extend_from_slice(&replaced);
    }
}

/// Replaces the prefix `folder` of a path with `subst` and logs it. Returns `None` if the path does
/// not begin with `folder`.
fn replace_prefix(run: &mut Run<'_>, path: &[u8], folder: &[u8], subst: &[u8]) -> Option<Vec<u8>> {
    let (rest, replaced) = substitute_prefix(path, folder, subst)?;
    trace_plain!(run, 5, "strip matching prefix: {} -> {}", quoted(path), quoted(rest));
    trace_plain!(run, 4, "add subst prefix: {} -> {}", quoted(rest), quoted(&replaced));
    Some(replaced)
}

/// Turns a local result into an internal redirect: replaces the section's directory with
/// RewriteBase, or strips DocumentRoot. If neither applies, replaces the directory of an alias with
/// the alias's path.
fn local(run: &mut Run<'_>, said: &Section) -> Outcome {
    if !run.filename.starts_with(b"/") {
        return answered(Status::BAD_REQUEST);
    }
    if run.filename == run.request.resource.file.as_bytes() {
        trace!(
            run,
            1,
            "initial URL equal rewritten URL: {} [IGNORING REWRITE]",
            quoted(&run.filename)
        );
        return Outcome::Declined;
    }
    run.keep_status();
    let path = std::mem::take(&mut run.filename);
    let replaced = match run.base {
        Some(Base { folder, url: Some(url) }) => {
            let (shown, base) = (quoted(folder), quoted(url));
            trace!(run, 2, "trying to replace prefix {shown} with {base}");
            replace_prefix(run, &path, folder, url)
        }
        _ => without_root(run, &path),
    };
    let replaced = match replaced {
        None if !said.switches.options().has(Options::IGNORE_CONTEXT_INFO) => {
            in_context(run, &path)
        }
        replaced => replaced,
    };
    let target = replaced.unwrap_or(path);
    run.request.resource.notes.set(KEEPS_VARY, "");
    trace!(run, 1, "internal redirect with {} [INTERNAL REDIRECT]", quoted(&target));
    Outcome::Redirected(target)
}

fn without_root(run: &mut Run<'_>, path: &[u8]) -> Option<Vec<u8>> {
    let root = variable(run, Known::DocumentRoot);
    let root = root.strip_suffix(b"/").unwrap_or(&root);
    let rest = path.strip_prefix(root).filter(|rest| rest.starts_with(b"/"))?;
    trace!(run, 2, "strip document_root prefix: {} -> {}", quoted(path), quoted(rest));
    Some(rest.to_vec())
}

fn in_context(run: &mut Run<'_>, path: &[u8]) -> Option<Vec<u8>> {
    let prefix = run.request.resource.notes.value("context-prefix").map(<[u8]>::to_vec);
    let (root, prefix) = (variable(run, Known::ContextDocumentRoot), prefix.unwrap_or_default());
    trace!(
        run,
        2,
        "trying to replace context docroot {} with context prefix {}",
        quoted(&root),
        quoted(&prefix)
    );
    replace_prefix(run, path, &root, &prefix)
}

fn variable(run: &Run<'_>, variable: Known) -> Vec<u8> {
    RequestContext::new(run.request, run.core).variable(variable).into_owned()
}
