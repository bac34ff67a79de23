//! Writes the log lines of `LogLevel rewrite:trace1` to `trace8`, in Apache's wording
//! (mod_rewrite.c: do_rewritelog). Lines are formatted only if their level is on.

use crate::CoreSettings;
use crate::core::{is_logged, public_name};
use evenkeel_message::{Level, Notice, Request, quoted};

/// The notes that hold the media type of the flag T and the handler of the flag H.
pub(super) const TYPE_NOTE: &str = "rewrite-forced-mimetype";
pub(super) const HANDLER_NOTE: &str = "rewrite-forced-handler";

/// The log levels that are on for a request, and the prefix of its lines.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// The highest trace level that is logged; 0 if none is.
    pub level: u8,
    head: Box<str>,
}

/// `trace1` to `trace8`.
const LEVELS: &[Level] = Level::ALL.split_at(8).1;

impl Trace {
    /// Returns the trace settings of a request.
    pub(super) fn of(request: &Request, core: CoreSettings<'_>) -> Self {
        let is_on = |level: &&Level| is_logged(core, "rewrite", **level);
        let level = LEVELS.iter().take_while(is_on).count();
        let level = u8::try_from(level).unwrap_or_default();
        let head = if level > 0 { head(request, core).into() } else { Box::default() };
        Self { level, head }
    }

    /// Logs a line with the request's prefix, and with the section's directory if `folder` is
    /// given.
    pub(super) fn write(
        &self,
        request: &mut Request,
        level: u8,
        folder: Option<&[u8]>,
        text: &str,
    ) {
        let folder = folder.map(|folder| format!("[perdir {}] ", quoted(folder)));
        let text = format!("{}{}{text}", self.head, folder.unwrap_or_default());
        self.write_alone(request, level, text);
    }

    /// Logs a line without the prefix.
    pub(super) fn write_alone(&self, request: &mut Request, level: u8, text: String) {
        let level = LEVELS.get(usize::from(level) - 1).copied().unwrap_or(Level::Trace8);
        let mut notice = Notice::own("rewrite", level, text);
        notice.passed = true;
        request.notify(notice);
    }
}

/// Formats the prefix of the lines: client, ident, user, server and request. The sid and rid
/// numbers identify the server and the request.
fn head(request: &Request, core: CoreSettings<'_>) -> String {
    let client = request.names.as_deref().and_then(|names| names.client.as_deref());
    let client = client.map_or_else(|| request.peer.client_ip().to_string(), str::to_owned);
    let user = match request.resource.user.as_deref() {
        None => "-".into(),
        Some(b"") => "\"\"".into(),
        Some(user) => quoted(user),
    };
    let name = public_name(request, core);
    let kind = if request.resource.depth > 0 { "subreq" } else { "initial" };
    let redirects = match request.redirects() {
        // A subrequest is never redirected itself, even if its main request was.
        0 => String::new(),
        _ if request.resource.depth > 0 => String::new(),
        number => format!("/redir#{number}"),
    };
    format!(
        "{client} - {user} [{}/sid#{:x}][rid#{:x}/{kind}{redirects}] ",
        quoted(&name),
        request.server,
        request.time_us
    )
}

/// Logs a line of a run, with the directory of its section. The text is formatted only if the level
/// is on.
macro_rules! trace {
    ($run:expr, $level:literal, $($text:tt)*) => {
        if $run.trace.level >= $level {
            let text = format!($($text)*);
            let folder = $run.base.map(|base| base.folder);
            $run.trace.write($run.request, $level, folder, &text);
        }
    };
}

/// Logs a line of a run without the directory.
macro_rules! trace_plain {
    ($run:expr, $level:literal, $($text:tt)*) => {
        if $run.trace.level >= $level {
            let text = format!($($text)*);
            $run.trace.write($run.request, $level, None, &text);
        }
    };
}

/// Sets the media type and the handler of the flags T and H, which override all other settings
/// (mod_rewrite.c: hook_mimetype).
pub fn force_content(request: &mut Request, core: CoreSettings<'_>) {
    if request.resource.notes.is_empty() {
        return;
    }
    let note = |request: &Request, name| {
        request.resource.notes.value(name).filter(|it| !it.is_empty()).map(Box::<[u8]>::from)
    };
    let (media_type, handler) = (note(request, TYPE_NOTE), note(request, HANDLER_NOTE));
    if media_type.is_none() && handler.is_none() {
        return;
    }
    let trace = Trace::of(request, core);
    let file = match &request.resource.content.redirect {
        Some(path) => format!("redirect:{}", quoted(path)),
        None => quoted(request.resource.file.as_bytes()).into_owned(),
    };
    if let Some(media_type) = media_type {
        if trace.level > 0 {
            let shown = quoted(&media_type);
            let text = format!("force filename {file} to have MIME-type '{shown}'");
            trace.write(request, 1, None, &text);
        }
        request.resource.content.media_type = Some(media_type);
    }
    if let Some(handler) = handler {
        if trace.level > 0 {
            let shown = quoted(&handler);
            let text = format!("force filename {file} to have the Content-handler '{shown}'");
            trace.write(request, 1, None, &text);
        }
        request.resource.content.handler = Some(handler);
    }
}
