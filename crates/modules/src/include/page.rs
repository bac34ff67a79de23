//! The state of a page while it is parsed, and its elements (mod_include.c: the functions that
//! begin with `handle_`). What has to wait is returned to the pipeline as a [`Wait`].

use super::parser::{Argument, Element};
use super::text::{self, decode_entities};
use super::variables::PageVariables;
use evenkeel_expr::{Captures, Pattern, PatternOptions};
use evenkeel_message::{Level, Notice, quoted};
use evenkeel_proto::escape_html;

/// The most bytes of a command of `exec cmd`, and the end of its text (util: MAX_STRING_LEN).
pub const MOST_COMMAND: usize = 8191;

/// The most bytes of a text with its variables.
const MOST_TEXT: usize = 1 << 20;

/// The groups that are kept of a match (AP_MAX_REG_MATCH).
const MOST_GROUPS: usize = 10;

/// What an element waits for.
#[derive(Debug, PartialEq, Eq)]
pub enum Wait {
    /// `if` and `elif`: the value of an expression.
    Condition(Vec<u8>),
    /// `include`: what it includes.
    Include(Vec<Argument>),
    /// `exec`: the output of programs.
    Exec(Vec<Argument>),
    /// `fsize`: sizes of files.
    Size(Vec<Argument>),
    /// `flastmod`: times of files.
    Modified(Vec<Argument>),
}

/// The match of the last regular expression.
#[derive(Clone, Debug, Default)]
pub struct Matched {
    /// Its groups.
    pub captures: Captures,
    /// The number of groups of the pattern.
    pub groups: usize,
    /// The pattern.
    pub pattern: Vec<u8>,
    /// Whether it has matched.
    pub is_match: bool,
}

/// What a section configures for its pages.
#[derive(Clone, Debug)]
pub struct PageSettings {
    /// SSIErrorMsg.
    pub error_message: Vec<u8>,
    /// SSITimeFormat.
    pub time_format: Vec<u8>,
    /// SSIUndefinedEcho.
    pub undefined: Vec<u8>,
    /// SSILegacyExprParser.
    pub is_legacy: bool,
    /// Whether `Options Includes` lets programs run, and not only `IncludesNOEXEC`.
    pub may_exec: bool,
    /// Whether a module runs programs, so that there is an element `exec`.
    pub knows_exec: bool,
    /// The file, for the error log.
    pub file: Vec<u8>,
}

/// A page.
pub struct Page {
    /// Its settings, as `config` has changed them.
    pub settings: PageSettings,
    /// Whether text is sent and elements act.
    pub is_printing: bool,
    /// Whether a branch of the current `if` was taken.
    has_held: bool,
    /// Whether the condition of the current `if` was invalid.
    has_failed: bool,
    /// The depth of `if` elements in text that is not sent.
    nesting: u64,
    /// Whether sizes are written in bytes.
    in_bytes: bool,
    /// Whether a malformed element is still to be shown.
    has_fault: bool,
    /// The last match, if there was a regular expression.
    pub matched: Option<Matched>,
}

impl Page {
    /// A page at its beginning.
    #[must_use]
    pub fn new(settings: PageSettings) -> Self {
        Self {
            settings,
            is_printing: true,
            has_held: true,
            has_failed: false,
            nesting: 0,
            in_bytes: false,
            has_fault: false,
            matched: None,
        }
    }

    /// Acts on an element: writes to `out`, or returns what it waits for.
    pub fn act(
        &mut self,
        element: Element,
        variables: &mut PageVariables,
        out: &mut Vec<u8>,
        notices: &mut Vec<Notice>,
    ) -> Option<Wait> {
        self.note_faults(&element, notices);
        if self.has_fault {
            if self.is_printing {
                self.fail(out);
                self.has_fault = false;
            }
            return None;
        }
        let Element { name, arguments, nameless: _ } = element;
        let count = arguments.len();
        match &*name {
            b"comment" => {}
            b"if" => return self.begin_if(arguments, out, notices),
            b"elif" => return self.elif(arguments, out, notices),
            b"else" => self.otherwise(count, out, notices),
            b"endif" => self.end_if(count, out, notices),
            b"printenv" => self.print_variables(count, variables, out, notices),
            b"set" => {
                if self.has_arguments(count, 2, 1362, "set", out, notices) {
                    self.set(arguments, variables, out, notices);
                }
            }
            b"echo" => {
                if self.has_arguments(count, 1, 1343, "echo", out, notices) {
                    self.echo(arguments, variables, out, notices);
                }
            }
            b"config" => {
                if self.has_arguments(count, 1, 1347, "config", out, notices) {
                    self.configure(arguments, variables, out, notices);
                }
            }
            b"include" => {
                let acts = self.has_arguments(count, 1, 1341, "include", out, notices);
                return acts.then_some(Wait::Include(arguments));
            }
            b"fsize" => {
                let acts = self.has_arguments(count, 1, 1350, "fsize", out, notices);
                return acts.then_some(Wait::Size(arguments));
            }
            b"flastmod" => {
                let acts = self.has_arguments(count, 1, 1351, "flastmod", out, notices);
                return acts.then_some(Wait::Modified(arguments));
            }
            b"exec" if self.settings.knows_exec => {
                if !self.has_arguments(count, 1, 3195, "exec", out, notices) {
                    return None;
                }
                if self.settings.may_exec {
                    return Some(Wait::Exec(arguments));
                }
                notices.push(self.notice(1228, "exec used but not allowed in"));
                self.fail(out);
            }
            name => {
                let text = format!("unknown directive \"{}\" in parsed doc", quoted(name));
                notices.push(self.notice(1371, &text));
                if self.is_printing {
                    self.fail(out);
                }
            }
        }
        None
    }

    /// Writes the message of an error.
    pub fn fail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.settings.error_message);
    }

    /// An error about the page: its file follows the text.
    #[must_use]
    pub fn notice(&self, number: u16, text: &str) -> Notice {
        self.told(Level::Error, number, text)
    }

    fn told(&self, level: Level, number: u16, text: &str) -> Notice {
        let text = format!("{text} {}", quoted(&self.settings.file));
        Notice::new("include", level, number, text)
    }

    fn note_faults(&mut self, element: &Element, notices: &mut Vec<Notice>) {
        if element.name.is_empty() {
            self.has_fault = true;
            notices.push(self.notice(1368, "missing directive name in parsed document"));
        }
        if element.nameless > 0 {
            self.has_fault = true;
            let name = quoted(&element.name);
            let text = format!("missing argument name for value to tag {name} in");
            notices.push(self.notice(1369, &text));
        }
    }

    /// The level of a complaint about an element, which is an error only where the element acts.
    fn level(acts: bool) -> Level {
        if acts { Level::Error } else { Level::Warn }
    }

    /// Whether an element acts that has at least `least` arguments.
    fn has_arguments(
        &self,
        count: usize,
        least: usize,
        number: u16,
        name: &str,
        out: &mut Vec<u8>,
        notices: &mut Vec<Notice>,
    ) -> bool {
        let has_enough = count >= least;
        if !has_enough {
            let text = format!("missing argument for {name} element in");
            notices.push(self.told(Self::level(self.is_printing), number, &text));
            if self.is_printing {
                self.fail(out);
            }
        }
        has_enough && self.is_printing
    }

    /// A text with its variables replaced.
    pub fn expanded(
        &self,
        text: &[u8],
        variables: &mut PageVariables,
        notices: &mut Vec<Notice>,
    ) -> Vec<u8> {
        self.expanded_to(text, false, MOST_TEXT, variables, notices)
    }

    /// The same, for a text of at most `most` bytes, in which unknown names may stay.
    pub fn expanded_to(
        &self,
        text: &[u8],
        leaves_name: bool,
        most: usize,
        variables: &mut PageVariables,
        notices: &mut Vec<Notice>,
    ) -> Vec<u8> {
        let value = |name: &[u8]| self.value(name, variables, notices);
        let expanded = text::expand(text, leaves_name, most, value);
        if let Some(rest) = expanded.unclosed {
            let text = format!("Missing '}}' on variable \"{}\" in", quoted(&rest));
            notices.push(self.notice(1331, &text));
        }
        expanded.text
    }

    /// A text with its variables replaced, where digits name groups of this match.
    pub fn expanded_within(
        &self,
        matched: Option<&Matched>,
        text: &[u8],
        variables: &mut PageVariables,
        notices: &mut Vec<Notice>,
    ) -> Vec<u8> {
        let value = |name: &[u8]| self.value_within(matched, name, variables, notices);
        text::expand(text, false, MOST_TEXT, value).text
    }

    /// The value of a variable. A digit names a group of the last match.
    pub fn value(
        &self,
        name: &[u8],
        variables: &mut PageVariables,
        notices: &mut Vec<Notice>,
    ) -> Option<Vec<u8>> {
        self.value_within(self.matched.as_ref(), name, variables, notices)
    }

    fn value_within(
        &self,
        matched: Option<&Matched>,
        name: &[u8],
        variables: &mut PageVariables,
        notices: &mut Vec<Notice>,
    ) -> Option<Vec<u8>> {
        let [digit @ b'0'..=b'9'] = name else {
            return variables.value(name, &self.settings.time_format);
        };
        let number = usize::from(digit - b'0');
        let Some(matched) = matched.filter(|matched| matched.is_match) else {
            let text = format!("regex capture ${number} refers to no regex in");
            notices.push(self.told(Level::Warn, 1329, &text));
            return None;
        };
        if matched.groups < number || number >= MOST_GROUPS {
            let text = format!(
                "regex capture ${number} is out of range (last regex was: '{}') in",
                quoted(&matched.pattern)
            );
            notices.push(self.told(Level::Warn, 1330, &text));
            return None;
        }
        matched.captures.span(number)?;
        Some(matched.captures.group(number).to_vec())
    }

    /// Tries a regular expression of SSILegacyExprParser and keeps its match. One that cannot be
    /// compiled counts as a match.
    pub fn try_pattern(
        matched: &mut Option<Matched>,
        text: &[u8],
        pattern: &[u8],
        notices: &mut Vec<Notice>,
    ) -> bool {
        let Ok(compiled) = Pattern::compile(&quoted(pattern), PatternOptions::default()) else {
            let text = format!("unable to compile pattern \"{}\"", quoted(pattern));
            notices.push(Notice::new("include", Level::Error, 2667, text));
            return true;
        };
        let mut captures = Captures::default();
        let is_match = compiled.capture(text, &mut captures).unwrap_or(false);
        let groups = compiled.groups();
        *matched = Some(Matched { captures, groups, pattern: pattern.to_vec(), is_match });
        is_match
    }

    /// Notes the value of a condition; none if it was invalid.
    pub fn decide(&mut self, holds: Option<bool>, out: &mut Vec<u8>) {
        match holds {
            Some(true) => (self.is_printing, self.has_held) = (true, true),
            Some(false) => (self.is_printing, self.has_held) = (false, false),
            None => self.fail_condition(out),
        }
    }

    fn fail_condition(&mut self, out: &mut Vec<u8>) {
        (self.is_printing, self.has_held, self.has_failed) = (false, false, true);
        self.fail(out);
    }

    fn begin_if(
        &mut self,
        arguments: Vec<Argument>,
        out: &mut Vec<u8>,
        notices: &mut Vec<Notice>,
    ) -> Option<Wait> {
        let acts = self.is_printing;
        if arguments.len() != 1 {
            let numbers = (1352, 1353);
            notices.push(self.wrong_count(arguments.len(), numbers, Self::level(acts)));
        }
        if !acts {
            self.nesting = self.nesting.saturating_add(1);
            return None;
        }
        let condition = self.condition(arguments, (1354, 1355), "if", out, notices)?;
        self.nesting = 0;
        Some(Wait::Condition(condition))
    }

    fn elif(
        &mut self,
        arguments: Vec<Argument>,
        out: &mut Vec<u8>,
        notices: &mut Vec<Notice>,
    ) -> Option<Wait> {
        let acts = self.nesting == 0;
        if arguments.len() != 1 {
            let numbers = (1356, 1357);
            notices.push(self.wrong_count(arguments.len(), numbers, Self::level(acts)));
        }
        if !acts {
            return None;
        }
        let condition = self.condition(arguments, (1358, 1359), "elif", out, notices)?;
        if self.has_held {
            self.is_printing = false;
            return None;
        }
        Some(Wait::Condition(condition))
    }

    fn wrong_count(&self, count: usize, numbers: (u16, u16), level: Level) -> Notice {
        match count {
            0 => self.told(level, numbers.1, "missing expr argument for if element in"),
            _ => self.told(level, numbers.0, "too many arguments for if element in"),
        }
    }

    /// The expression of an element that acts.
    fn condition(
        &mut self,
        arguments: Vec<Argument>,
        (unknown, missing): (u16, u16),
        name: &str,
        out: &mut Vec<u8>,
        notices: &mut Vec<Notice>,
    ) -> Option<Vec<u8>> {
        let mut arguments = arguments.into_iter();
        let (Some(argument), None) = (arguments.next(), arguments.next()) else {
            self.fail_condition(out);
            return None;
        };
        if argument.name != b"expr" {
            let text = format!("unknown parameter \"{}\" to tag if in", quoted(&argument.name));
            notices.push(self.notice(unknown, &text));
        } else if argument.value.is_none() {
            let text = match name {
                "if" => "missing expr value for if element in",
                _ => "missing expr in elif statement:",
            };
            notices.push(self.notice(missing, text));
        } else {
            return argument.value;
        }
        self.fail_condition(out);
        None
    }

    fn otherwise(&mut self, count: usize, out: &mut Vec<u8>, notices: &mut Vec<Notice>) {
        let acts = self.nesting == 0;
        if count > 0 {
            let text = "else directive does not take tags in";
            notices.push(self.told(Self::level(acts), 1360, text));
        }
        if !acts {
            return;
        }
        if count > 0 {
            if self.is_printing {
                self.fail(out);
            }
            return;
        }
        if self.has_failed {
            return;
        }
        match self.has_held {
            true => self.is_printing = false,
            false => (self.is_printing, self.has_held) = (true, true),
        }
    }

    fn end_if(&mut self, count: usize, out: &mut Vec<u8>, notices: &mut Vec<Notice>) {
        let acts = self.nesting == 0;
        if count > 0 {
            let text = "endif directive does not take tags in";
            notices.push(self.told(Self::level(acts), 1361, text));
        }
        if !acts {
            self.nesting -= 1;
            return;
        }
        if count > 0 {
            self.fail(out);
            return;
        }
        (self.is_printing, self.has_held, self.has_failed) = (true, true, false);
    }

    fn print_variables(
        &self,
        count: usize,
        variables: &mut PageVariables,
        out: &mut Vec<u8>,
        notices: &mut Vec<Notice>,
    ) {
        if count > 0 {
            let text = "printenv directive does not take tags in";
            notices.push(self.told(Self::level(self.is_printing), 1367, text));
        }
        if !self.is_printing {
            return;
        }
        if count > 0 {
            self.fail(out);
            return;
        }
        for name in variables.names() {
            let value = variables.value(&name, &self.settings.time_format).unwrap_or_default();
            escape_html(out, &name);
            out.push(b'=');
            escape_html(out, &value);
            out.push(b'\n');
        }
    }

    /// Decodes and encodes a text.
    fn recoded(
        &self,
        text: Vec<u8>,
        (decoding, encoding): (&[u8], &[u8]),
        (numbers, name): ((u16, u16), &str),
        notices: &mut Vec<Notice>,
    ) -> Option<Vec<u8>> {
        let (decoded, unknown) = match text::decode(text, decoding) {
            Ok(text) => (Some(text), None),
            Err(unknown) => (None, Some((numbers.0, "decoding", unknown))),
        };
        // The encoding is looked at as well.
        let (encoded, also) = match text::encode(decoded.clone().unwrap_or_default(), encoding) {
            Ok(text) => (Some(text), None),
            Err(unknown) => (None, Some((numbers.1, "encoding", unknown))),
        };
        for (number, what, unknown) in unknown.into_iter().chain(also) {
            let text = format!(
                "unknown value \"{}\" to parameter \"{what}\" of tag {name} in",
                quoted(&unknown)
            );
            notices.push(self.notice(number, &text));
        }
        decoded.and(encoded)
    }

    fn echo(
        &self,
        arguments: Vec<Argument>,
        variables: &mut PageVariables,
        out: &mut Vec<u8>,
        notices: &mut Vec<Notice>,
    ) {
        let (mut encoding, mut decoding) = (b"entity".to_vec(), b"none".to_vec());
        for (name, value) in valued(arguments) {
            let value = decode_entities(&value);
            match &*name {
                b"var" => {
                    let variable = self.expanded(&value, variables, notices);
                    let Some(value) = self.value(&variable, variables, notices) else {
                        out.extend_from_slice(&self.settings.undefined);
                        continue;
                    };
                    let ways = (&*decoding, &*encoding);
                    match self.recoded(value, ways, ((1344, 1345), "echo"), notices) {
                        Some(text) => out.extend_from_slice(&text),
                        None => return self.fail(out),
                    }
                }
                b"decoding" => decoding = value,
                b"encoding" => encoding = value,
                name => {
                    let text = format!("unknown parameter \"{}\" in tag echo of", quoted(name));
                    notices.push(self.notice(1346, &text));
                    return self.fail(out);
                }
            }
        }
    }

    fn set(
        &self,
        arguments: Vec<Argument>,
        variables: &mut PageVariables,
        out: &mut Vec<u8>,
        notices: &mut Vec<Notice>,
    ) {
        let (mut encoding, mut decoding) = (b"none".to_vec(), b"none".to_vec());
        let mut variable = None;
        for (name, value) in valued(arguments) {
            match &*name {
                b"var" => {
                    let name = decode_entities(&value);
                    variable = Some(self.expanded(&name, variables, notices));
                }
                b"decoding" => decoding = value,
                b"encoding" => encoding = value,
                b"value" => {
                    let Some(variable) = &variable else {
                        let text = "variable must precede value in set directive in";
                        notices.push(self.notice(1363, text));
                        return self.fail(out);
                    };
                    let value = self.expanded(&value, variables, notices);
                    let ways = (&*decoding, &*encoding);
                    match self.recoded(value, ways, ((1364, 1365), "set"), notices) {
                        Some(value) => variables.set(variable, &value),
                        None => return self.fail(out),
                    }
                }
                _ => {
                    notices.push(self.notice(1366, "Invalid tag for set directive in"));
                    return self.fail(out);
                }
            }
        }
    }

    fn configure(
        &mut self,
        arguments: Vec<Argument>,
        variables: &mut PageVariables,
        out: &mut Vec<u8>,
        notices: &mut Vec<Notice>,
    ) {
        for (name, value) in valued(arguments) {
            let is_known = matches!(&*name, b"errmsg" | b"echomsg" | b"timefmt" | b"sizefmt");
            if !is_known {
                let text = format!("unknown parameter \"{}\" to tag config in", quoted(&name));
                notices.push(self.notice(1349, &text));
                return self.fail(out);
            }
            let value = self.expanded(&value, variables, notices);
            match &*name {
                b"errmsg" => self.settings.error_message = value,
                b"echomsg" => self.settings.undefined = value,
                b"timefmt" => {
                    variables.set_dates(&value);
                    self.settings.time_format = value;
                }
                _ if value == b"bytes" => self.in_bytes = true,
                _ if value == b"abbrev" => self.in_bytes = false,
                _ => {
                    let text = format!(
                        "unknown value \"{}\" to parameter \"sizefmt\" of tag config in",
                        quoted(&value)
                    );
                    notices.push(self.notice(1348, &text));
                    return self.fail(out);
                }
            }
        }
    }

    /// A size as `config sizefmt` wants it.
    #[must_use]
    pub fn size(&self, bytes: u64) -> String {
        match self.in_bytes {
            true => text::grouped(bytes),
            false => {
                let text = crate::size::abbreviated(i64::try_from(bytes).unwrap_or(i64::MAX));
                text.map(char::from).iter().collect()
            }
        }
    }

    /// A time of a file, in microseconds since 1970, as `config timefmt` wants it.
    #[must_use]
    pub fn time(&self, time_us: i64) -> Vec<u8> {
        text::time(time_us, &self.settings.time_format, false)
    }

    /// Notes the end of the page. `is_inside` says whether it is inside an element.
    pub fn end(&mut self, is_inside: bool, out: &mut Vec<u8>, notices: &mut Vec<Notice>) {
        if is_inside {
            let text = "SSI directive was not properly finished at the end of parsed document";
            notices.push(self.notice(1372, text));
            if self.is_printing {
                self.fail(out);
            }
        }
        if !self.is_printing {
            let text = "missing closing endif directive in parsed document";
            notices.push(self.told(Level::Warn, 1373, text));
        }
    }
}

/// The arguments up to the first that has no value.
pub fn valued(arguments: Vec<Argument>) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    arguments.into_iter().map_while(|Argument { name, value }| Some((name, value?)))
}

#[cfg(test)]
mod tests {
    use super::super::parser::Tags;
    use super::super::variables::{Document, Facts};
    use super::*;
    use evenkeel_message::Variables;

    /// What a page sends whose conditions hold if they say `yes`, and the numbers of its notices.
    fn shown(text: &str) -> (String, Vec<u16>) {
        let tags = Tags::new(b"<!--#", b"-->");
        let document = Document { path: b"/p", query: None, path_info: b"", file: b"/srv/p" };
        let mut cgi = Variables::new();
        cgi.set("A", "<a>");
        let mut variables = PageVariables::new(cgi, &document, Facts::default());
        let mut page = Page::new(PageSettings {
            error_message: b"[error]".to_vec(),
            time_format: b"%Y".to_vec(),
            undefined: b"(none)".to_vec(),
            is_legacy: false,
            may_exec: false,
            knows_exec: true,
            file: b"/srv/p".to_vec(),
        });
        let (mut out, mut notices, mut rest) = (Vec::new(), Vec::new(), text.as_bytes());
        let mut is_inside = false;
        while let Some(at) = tags.find(rest) {
            if page.is_printing {
                out.extend_from_slice(&rest[..at]);
            }
            rest = &rest[at + 5..];
            let Some((length, element)) = tags.element(rest) else {
                is_inside = true;
                break;
            };
            rest = &rest[length..];
            match page.act(element, &mut variables, &mut out, &mut notices) {
                Some(Wait::Condition(text)) if text == b"bad" => page.decide(None, &mut out),
                Some(Wait::Condition(text)) => page.decide(Some(text == b"yes"), &mut out),
                Some(wait) => out.extend_from_slice(format!("{wait:?}").as_bytes()),
                None => {}
            }
        }
        if page.is_printing && !is_inside {
            out.extend_from_slice(rest);
        }
        page.end(is_inside, &mut out, &mut notices);
        let numbers = notices.iter().map(|notice| notice.number.unwrap()).collect();
        (String::from_utf8(out).unwrap(), numbers)
    }

    #[test]
    fn branches_are_chosen() {
        let page = |condition: &str, second: &str| {
            let text = format!(
                "a<!--#if expr=\"{condition}\" -->b<!--#if expr=\"yes\" -->c<!--#endif -->\
                 <!--#elif expr=\"{second}\" -->d<!--#else -->e<!--#endif -->f"
            );
            shown(&text).0
        };
        assert_eq!(page("yes", "yes"), "abcf");
        assert_eq!(page("no", "yes"), "adf");
        assert_eq!(page("no", "no"), "aef");
        assert_eq!(page("bad", "no"), "a[error]f");
        assert_eq!(page("yes", "bad"), "abcf");
        assert_eq!(shown("a<!--#if expr=\"no\" -->b").1, [1373]);
        assert_eq!(shown("<!--#if -->b<!--#endif -->c"), ("[error]c".into(), vec![1353]));
    }

    #[test]
    fn variables_are_set_and_shown() {
        let page = |text: &str| shown(text).0;
        assert_eq!(page("<!--#echo var=\"A\" -->"), "&lt;a&gt;");
        assert_eq!(page("<!--#echo encoding=none var=A var='B' -->"), "<a>(none)");
        assert_eq!(
            page("<!--#set var='B' value='$A${A}' --><!--#echo encoding=url var=B -->"),
            "%3ca%3e%3ca%3e"
        );
        assert_eq!(
            page("<!--#config echomsg='?' errmsg='!' --><!--#echo var=B --><!--#nosuch -->"),
            "?!"
        );
        assert_eq!(shown("<!--#echo x=y -->").1, [1346]);
        assert_eq!(shown("<!--#set value=y var=x -->").1, [1363]);
        assert_eq!(shown("<!--#echo encoding=rot13 var=A -->"), ("[error]".into(), vec![1345]));
        assert_eq!(shown("<!--#echo var='1' -->"), ("(none)".into(), vec![1329]));
        assert_eq!(shown("<!--#echo var=\"A").1, [1372]);
    }

    #[test]
    fn programs_need_the_permission() {
        assert_eq!(shown("<!--#exec cmd='ls' -->"), ("[error]".into(), vec![1228]));
        assert!(shown("<!--#include virtual='/x' -->").0.starts_with("Include"));
        assert_eq!(shown("<!--#include -->"), ("[error]".into(), vec![1341]));
        assert_eq!(shown("<!--# \"x\" -->"), ("[error]".into(), vec![1368, 1369]));
    }
}
