//! mod_substitute: the output filter `SUBSTITUTE`, which replaces texts and patterns in the lines
//! of a body. The rules of a section and the body of a response come in, the changed body goes out.

mod directives;
mod line;

pub use crate::{NoSettings as Global, NoSettings as Server};
pub use directives::MODULE;

use crate::compression::at_once;
use crate::{Effect, Means, Merge, OutputFilter, RequestBody};
use bytes::Bytes;
use evenkeel_message::{
    Answer, Body, Chunk, FilterPosition, Late, Level, Notice, Request, Response, Source, Status,
    quoted,
};
use line::{Rule, TooLong, substitute};
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The bytes of a line, unless SubstituteMaxLineLength says otherwise.
const MAX_LINE: usize = 1 << 20;

/// The filter.
const SUBSTITUTE: OutputFilter = OutputFilter {
    name: "SUBSTITUTE",
    position: FilterPosition::RESOURCE,
    begin: None,
    act,
    external: None,
};

/// The settings of one section.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    rules: Arc<Vec<Rule>>,
    /// SubstituteMaxLineLength, in bytes.
    max_line: Option<usize>,
    /// SubstituteInheritBefore.
    inherit_before: Option<bool>,
}

impl Merge for Directory {
    /// The rules of the inner section come first, unless SubstituteInheritBefore says otherwise
    /// (mod_substitute.c: merge_substitute_dcfg).
    fn merge(base: &Self, over: &Self) -> Self {
        let inherit_before = over.inherit_before.or(base.inherit_before);
        let rules = match (base.rules.is_empty(), over.rules.is_empty()) {
            (_, true) => Arc::clone(&base.rules),
            (true, false) => Arc::clone(&over.rules),
            (false, false) => {
                let (first, last) = match inherit_before {
                    Some(true) => (&base.rules, &over.rules),
                    _ => (&over.rules, &base.rules),
                };
                Arc::new(first.iter().chain(last.iter()).cloned().collect())
            }
        };
        Self { rules, max_line: over.max_line.or(base.max_line), inherit_before }
    }
}

/// Replaces what the rules say in the body of a response (mod_substitute.c: substitute_filter).
///
/// # Errors
/// 500 if a line is too long, and this is found before any of the body is sent.
fn act(
    request: &mut Request,
    means: &Means<'_>,
    response: &mut Response,
) -> Result<Effect, Answer> {
    let settings = &means.sections.substitute;
    if response.status.is_bodiless() || response.body.length() == Some(0) {
        return Ok(Effect::Nothing);
    }
    response.is_whole = true;
    let max_line = settings.max_line.unwrap_or(MAX_LINE);
    let lines = Lines { rules: Arc::clone(&settings.rules), max_line, begun: Vec::new() };
    if let Some(bytes) = at_once(&response.body) {
        return match lines.whole(&bytes) {
            Ok(changed) => {
                response.body = Body::Bytes(changed.into());
                Ok(Effect::Changed)
            }
            Err(TooLong) => {
                request.notify(too_long(request));
                Err(Status::INTERNAL_SERVER_ERROR.into())
            }
        };
    }
    let content = means.subrequests.source_of(std::mem::take(&mut response.body));
    let notice = Some(too_long(request));
    let late = Rc::clone(request.late.get_or_insert_default());
    let body = Substituted { content, lines: Some(lines), late, notice };
    response.body = Body::Stream(Box::pin(body), None);
    Ok(Effect::Changed)
}

fn too_long(request: &Request) -> Notice {
    let text = format!("Line too long, URI {}", quoted(&request.resource.path));
    Notice::new("substitute", Level::Error, 1328, text)
}

/// Splits what comes into lines, and changes them.
struct Lines {
    rules: Arc<Vec<Rule>>,
    max_line: usize,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
}

impl Lines {
    /// Appends the lines that end in `bytes` to `out`.
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, behind) = rest.split_at(end + 1);
            rest = behind;
            match self.begun.is_empty() {
                true => substitute(&self.rules, self.max_line, line, out)?,
                false => {
                    self.begun.extend_from_slice(line);
                    self.end(out)?;
                }
            }
        }
        self.begun.extend_from_slice(rest);
        if self.begun.len() > self.max_line { Err(TooLong) } else { Ok(()) }
    }

    /// Appends the line that has begun.
    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let line = std::mem::take(&mut self.begun);
        if line.len() > self.max_line {
            return Err(TooLong);
        }
        if line.is_empty() {
            return Ok(());
        }
        substitute(&self.rules, self.max_line, &line, out)
    }

    fn whole(mut self, bytes: &[u8]) -> Result<Vec<u8>, TooLong> {
        let mut out = Vec::with_capacity(bytes.len());
        self.take(bytes, &mut out)?;
        self.end(&mut out)?;
        Ok(out)
    }
}

/// A body whose lines are changed as it is sent.
struct Substituted {
    content: RequestBody,
    /// None once the body has ended.
    lines: Option<Lines>,
    late: Rc<RefCell<Late>>,
    /// What is logged if a line is too long.
    notice: Option<Notice>,
}

impl Source for Substituted {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        let this = self.get_mut();
        loop {
            let Some(lines) = &mut this.lines else { return Poll::Ready(None) };
            let mut out = Vec::new();
            let (changed, is_end) = match ready!(this.content.as_mut().poll_chunk(context)) {
                Some(Ok(bytes)) => (lines.take(&bytes, &mut out), false),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => (lines.end(&mut out), true),
            };
            if is_end || changed.is_err() {
                this.lines = None;
            }
            if changed.is_err() {
                this.late.borrow_mut().notices.extend(this.notice.take());
                return Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into())));
            }
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Bytes::from(out))));
            }
        }
    }

    fn held(&self) -> u64 {
        let begun = self.lines.as_ref().map_or(0, |lines| lines.begun.len() as u64);
        begun + self.content.held()
    }

    fn ends_with_client(&self) -> bool {
        self.content.ends_with_client()
    }

    fn is_expensive(&self) -> bool {
        self.content.is_expensive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    fn changed(directives: &str, pieces: &[&str]) -> Result<String, TooLong> {
        let settings = apply(MODULE, directives).unwrap().directory.substitute.clone();
        let max_line = settings.max_line.unwrap_or(MAX_LINE);
        let mut lines = Lines { rules: settings.rules, max_line, begun: Vec::new() };
        let mut out = Vec::new();
        pieces.iter().try_for_each(|piece| lines.take(piece.as_bytes(), &mut out))?;
        lines.end(&mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn lines_are_whole_wherever_the_body_is_cut() {
        let text = "one foo\ntwo\n\nfoo";
        for cut in 0..=text.len() {
            let (first, last) = text.split_at(cut);
            let got = changed("Substitute s/foo$/bar/", &[first, last]).unwrap();
            // Without a flag, a dollar does not match before a line feed.
            assert_eq!(got, "one foo\ntwo\n\nbar", "{cut}");
            let got = changed("Substitute s/foo/bar/n", &[first, last]).unwrap();
            assert_eq!(got, "one bar\ntwo\n\nbar", "{cut}");
        }
    }

    #[test]
    fn a_line_is_bounded() {
        let directives = "Substitute s/a/bb/n\nSubstituteMaxLineLength 4b";
        assert_eq!(changed(directives, &["xxx\nab"]).unwrap(), "xxx\nbbb");
        assert_eq!(changed(directives, &["xxxxxx\n"]).unwrap(), "xxxxxx\n");
        assert!(changed(directives, &["xxxxxa\n"]).is_err());
        assert!(changed(directives, &["xxxxx"]).is_err());
        assert!(changed(directives, &["xx", "xx", "x\n"]).is_err());
        assert!(changed(directives, &["aaa"]).is_err(), "what it becomes");
    }

    #[test]
    fn rules_of_inner_sections_come_first_unless_told() {
        let of = |text: &str| apply(MODULE, text).unwrap().directory.substitute.clone();
        let line = |settings: &Directory| {
            let mut out = Vec::new();
            substitute(&settings.rules, MAX_LINE, b"a", &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let (outer, inner) = (of("Substitute s/a/b/"), of("Substitute s/b/c/"));
        assert_eq!(line(&Directory::merge(&outer, &inner)), "b");
        let before = of("SubstituteInheritBefore on\nSubstitute s/b/c/");
        assert_eq!(line(&Directory::merge(&outer, &before)), "c");
        assert_eq!(line(&Directory::merge(&outer, &of(""))), "b");
    }
}
