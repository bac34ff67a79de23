//! Faults and notices about a configuration. A fault ends the reading, a notice does not. Both have
//! a position and print the text that `apache2 -t` prints; the caller writes them somewhere.

use std::fmt;

use evenkeel_message::unquoted;

use crate::known::Standard;
use crate::missing::{Missing, refuses_use_of};
use crate::node::Position;

/// The pass that found a fault. It determines the form of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the text: `apache2: Syntax error on line ...`, all on one line.
    Read,
    /// Reading a `-C` or `-c` directive: `apache2: Syntax error in -C/-c directive: ...`.
    CommandLine,
    /// Applying the tree: the line AH00526, then the text on a line of its own.
    Apply,
}

/// Why a configuration cannot be used. Its Display is what `apache2 -t` prints, with `apache2` as
/// the name of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The directive that is at fault. None if no directive is (the main file cannot be opened).
    pub position: Option<Position>,
    /// What is wrong, in the words of the directive.
    pub text: String,
    /// The Include directives that led to the file, outermost first.
    pub trail: Vec<Position>,
    /// The pass that found it.
    pub stage: Stage,
}

impl Fault {
    /// A fault found while the tree was applied.
    #[must_use]
    pub fn new(position: Position, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { position: Some(position), text, trail: Vec::new(), stage: Stage::Apply }
    }

    /// The message as `apache2 -t` prints it, where `program` is the name under which the program
    /// was started. Characters that cannot be printed are escaped as in Apache's error log.
    ///
    /// Source: server/config.c, ap_process_config_tree and ap_read_config.
    #[must_use]
    pub fn report(&self, program: &str) -> String {
        if self.stage == Stage::Apply {
            // A message with a number of its own is not about the syntax. Where Apache has such a
            // message, it ends the program at that point (ap_uname2id).
            if self.position.is_some()
                && let Some((number, text)) = numbered(&self.text)
            {
                return escape(&format!("{number}: {program}: {text}"));
            }
            let heading = match &self.position {
                Some(Position { file, line }) => {
                    format!("AH00526: Syntax error on line {line} of {}:\n", escape(file))
                }
                None => String::new(),
            };
            return format!("{heading}{}", escape(&self.text));
        }
        let mut message = format!("{program}: ");
        if self.stage == Stage::CommandLine {
            message.push_str("Syntax error in -C/-c directive: ");
        }
        let own = self.position.iter().filter(|_| self.stage == Stage::Read);
        for Position { file, line } in self.trail.iter().chain(own) {
            message.push_str(&format!("Syntax error on line {line} of {file}: "));
        }
        message.push_str(&self.text);
        escape(&message)
    }

    /// The message about a fault in an .htaccess file, in the form that Apache logs, followed by
    /// the number of the line, which Apache omits.
    #[must_use]
    pub fn report_in_htaccess(&self, path: &str) -> String {
        let text = &self.text;
        match &self.position {
            Some(at) if !text.contains("(line ") => format!("{path}: {text} (line {})", at.line),
            _ => format!("{path}: {text}"),
        }
    }
}

/// The number at the beginning of a text, and the rest.
fn numbered(text: &str) -> Option<(&str, &str)> {
    let (number, rest) = text.split_once(": ")?;
    let digits = number.strip_prefix("AH")?;
    (digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some((number, rest))
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.report("apache2"))
    }
}

impl std::error::Error for Fault {}

/// The faults of a configuration in the order of its text. Only the first [`Faults::SHOWN`] are
/// kept, and the others are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    kept: Vec<Fault>,
    more: usize,
}

impl Faults {
    /// The number of faults that are kept and shown.
    pub const SHOWN: usize = 50;

    /// Adds a fault.
    pub fn add(&mut self, fault: Fault) {
        if self.kept.len() < Self::SHOWN {
            self.kept.push(fault);
        } else {
            self.more += 1;
        }
    }

    /// Adds other faults.
    pub fn extend(&mut self, other: Faults) {
        other.kept.into_iter().for_each(|fault| self.add(fault));
        self.more += other.more;
    }

    /// The faults that are kept.
    #[must_use]
    pub fn kept(&self) -> &[Fault] {
        &self.kept
    }

    /// The number of all faults.
    #[must_use]
    pub fn count(&self) -> usize {
        self.kept.len() + self.more
    }

    /// Whether there are no faults.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The message about all faults, each in the form of `apache2 -t`, and advice about the
    /// missing modules that they name. `program` is the name of the program (`argv[0]`).
    #[must_use]
    pub fn report(&self, program: &str, missing: &Missing) -> String {
        let mut lines: Vec<String> = self.kept.iter().map(|fault| fault.report(program)).collect();
        if self.more > 0 {
            lines.push(format!("{program}: {} more refusals are not shown", self.more));
        }
        for module in missing.loaded() {
            if self.kept.iter().any(|fault| refuses_use_of(&fault.text, module)) {
                let Standard { file, identifier } = module;
                lines.push(format!(
                    "{program}: this server does not have {file}, which the configuration uses. \
                     Remove the LoadModule line of {identifier} to go on without it; what \
                     .htaccess files protect inside its <IfModule> then stands open, as in Apache."
                ));
            }
        }
        lines.join("\n")
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self { kept: vec![fault], more: 0 }
    }
}

/// The severity of a notice, with the names of LogLevel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work, but the server continues.
    Error,
    /// Probably not what the administrator intended.
    Warn,
    /// Normal, but worth knowing.
    Notice,
    /// Information.
    Info,
    /// For debugging.
    Debug,
}

/// A notice about the configuration, to be logged as `[module:level] AHnnnnn: text`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The module that raises it: `core`, `macro`.
    pub module: &'static str,
    /// The severity.
    pub level: Level,
    /// Apache's number of the message; None for messages that Apache does not have.
    pub number: Option<u32>,
    /// The message without its number.
    pub text: String,
    /// The directive that it is about, if there is one.
    pub position: Option<Position>,
}

impl Notice {
    /// A warning of `module` with Apache's `number`.
    #[must_use]
    pub fn warn(module: &'static str, number: u32, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { module, level: Level::Warn, number: Some(number), text, position: None }
    }

    /// The same notice, with the position of a directive.
    #[must_use]
    pub fn at(mut self, position: Position) -> Self {
        self.position = Some(position);
        self
    }

    /// Converts the notice to a notice of the error log.
    #[must_use]
    pub fn to_message(&self) -> evenkeel_message::Notice {
        let level = match self.level {
            Level::Error => evenkeel_message::Level::Error,
            Level::Warn => evenkeel_message::Level::Warn,
            Level::Notice => evenkeel_message::Level::Notice,
            Level::Info => evenkeel_message::Level::Info,
            Level::Debug => evenkeel_message::Level::Debug,
        };
        let number = self.number.and_then(|number| u16::try_from(number).ok());
        let own = evenkeel_message::Notice::own(self.module, level, self.text.clone());
        evenkeel_message::Notice { number, ..own }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(out, "AH{number:05}: {}", escape(&self.text)),
            None => out.write_str(&escape(&self.text)),
        }
    }
}

/// Escapes like ap_escape_errorlog_item in server/util.c: a backslash before the letters of C's
/// escapes, `\xhh` for every other byte that is not printable ASCII. Double quotes stay.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in &*unquoted(text) {
        match byte {
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x0b => out.push_str("\\v"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32) -> Position {
        Position { file: "/a.conf".into(), line }
    }

    #[test]
    fn an_applied_fault_has_two_lines() {
        let fault = Fault::new(at(3), "Timeout must be \"x\"\n");
        let want = "AH00526: Syntax error on line 3 of /a.conf:\nTimeout must be \"x\"\\n";
        assert_eq!(fault.to_string(), want);
    }

    #[test]
    fn a_read_fault_names_the_way_to_it() {
        let fault = Fault { trail: vec![at(1)], stage: Stage::Read, ..Fault::new(at(2), "é") };
        let want = "httpd: Syntax error on line 1 of /a.conf: Syntax error on line 2 of /a.conf: ";
        assert_eq!(fault.report("httpd"), format!("{want}\\xc3\\xa9"));
    }

    #[test]
    fn a_command_line_fault_has_no_line() {
        let fault = Fault { stage: Stage::CommandLine, ..Fault::new(at(2), "bad") };
        assert_eq!(fault.to_string(), "apache2: Syntax error in -C/-c directive: bad");
    }

    #[test]
    fn a_notice_shows_its_number() {
        assert_eq!(Notice::warn("core", 111, "a\tb").to_string(), "AH00111: a\\tb");
    }
}
