//! The lines of `LogLevel rewrite:trace1` to `trace8`, in Apache's words (mod_rewrite.c:
//! do_rewritelog). Where they are off, nothing of a line is put together.

use crate::CoreSettings;
use crate::core::{is_logged, public_name};
use evenkeel_message::{Level, Notice, Request, quoted};

/// The note that holds the type of the flag T, and that of the handler of the flag H.
pub(super) const TYPE_NOTE: &str = "rewrite-forced-mimetype";
pub(super) const HANDLER_NOTE: &str = "rewrite-forced-handler";

/// Which lines are written of a request, and what they begin with.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// The highest level; 0 where no line is written.
    pub level: u8,
    head: Box<str>,
}

const LEVELS: [Level; 8] = [
    Level::Trace1,
    Level::Trace2,
    Level::Trace3,
    Level::Trace4,
    Level::Trace5,
    Level::Trace6,
    Level::Trace7,
    Level::Trace8,
];

impl Trace {
    /// What is written of a request under these settings.
    pub(super) fn of(request: &Request, core: CoreSettings<'_>) -> Self {
        let is_on = |level: &&Level| is_logged(core, "rewrite", **level);
        let level = LEVELS.iter().take_while(is_on).count();
        let level = u8::try_from(level).unwrap_or_default();
        let head = if level > 0 { head(request, core).into() } else { Box::default() };
        Self { level, head }
    }

    /// Writes a line.
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

    /// Writes a line that does not begin with client, server and request.
    pub(super) fn write_alone(&self, request: &mut Request, level: u8, text: String) {
        let level = LEVELS.get(usize::from(level) - 1).copied().unwrap_or(Level::Trace8);
        let mut notice = Notice::own("rewrite", level, text);
        notice.passed = true;
        request.notify(notice);
    }
}

/// What a line begins with: client, ident, user, server and request. The numbers tell servers and
/// requests apart.
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
        // A subrequest has not been redirected, whatever its request was.
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

/// Writes a line of a run, whose text is put together only then, with the folder that its rules
/// begin from.
macro_rules! trace {
    ($run:expr, $level:literal, $($text:tt)*) => {
        if $run.trace.level >= $level {
            let text = format!($($text)*);
            let folder = $run.base.map(|base| base.folder);
            $run.trace.write($run.request, $level, folder, &text);
        }
    };
}

/// Writes a line of a run without the folder.
macro_rules! trace_plain {
    ($run:expr, $level:literal, $($text:tt)*) => {
        if $run.trace.level >= $level {
            let text = format!($($text)*);
            $run.trace.write($run.request, $level, None, &text);
        }
    };
}

/// The media type and the handler that the flags T and H have given the content, which have the
/// last word (mod_rewrite.c: hook_mimetype).
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
