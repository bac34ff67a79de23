//! The first of the two passes: parses the text of a configuration into the tree of its directives.
//! Directives that change the text act here, line by line; all others are only added to the tree,
//! known or not. This pass reads files and has no other effect.
//!
//! Source: server/config.c, ap_read_config, ap_build_config and ap_build_config_sub.

use std::borrow::Cow;
use std::sync::Arc;

use crate::apply::Grant;
use crate::directive::Overrides;
use crate::fault::{Fault, Faults, Level, Notice, Stage};
use crate::include::Included;
use crate::keyword::{self, Keyword, Reserved};
use crate::lines::{HTACCESS_LINE_LIMIT, LINE_LIMIT, Lines};
use crate::macros::Macros;
use crate::node::{Node, Position};
use crate::path::absolute;
use crate::place::Scope;
use crate::shape;
use crate::variables::Variables;
use crate::vocabulary::Vocabulary;
use crate::words::next_word;
use evenkeel_message::{has_quoted, unquoted};

/// Sections may be nested to this depth, and so may conditions and files that include each other.
/// Apache has no such bound; without one, a text could exhaust the stack.
const DEPTH_LIMIT: usize = 256;

/// Notices beyond this many are dropped, because the text determines how many there are.
pub(crate) const NOTICES_LIMIT: usize = 1000;

/// Bounds on a text. Beyond them it is refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// The bytes of one line as written.
    pub(crate) line: usize,
    /// The bytes of one line after `${}` is replaced.
    resolved: usize,
    /// The number of lines, including those of macros.
    lines: u32,
    /// The bytes that macros and `${}` add.
    pub(crate) growth: usize,
}

/// The bounds of a server's configuration. The bound of a line is Apache's.
const SERVER_BUDGET: Budget =
    Budget { line: LINE_LIMIT, resolved: LINE_LIMIT, lines: 4_000_000, growth: 1 << 30 };

/// The bounds of an .htaccess file, whose author need not be trusted.
const HTACCESS_BUDGET: Budget =
    Budget { line: HTACCESS_LINE_LIMIT, resolved: 1 << 20, lines: 100_000, growth: 16 << 20 };

/// What to read, and what is known before that.
#[derive(Debug, Clone)]
pub struct Start {
    /// ServerRoot, until a directive sets it (`-d`).
    pub server_root: String,
    /// The main file.
    pub main: Main,
    /// Directives to read before it (`-C`).
    pub before: Vec<String>,
    /// Directives to read after it (`-c`).
    pub after: Vec<String>,
    /// The names that `-D` defines, and the environment.
    pub variables: Variables,
}

/// The main text.
#[derive(Debug, Clone)]
pub enum Main {
    /// A file, or a folder or pattern of them, relative to ServerRoot.
    File {
        /// Its path (`-f`).
        path: String,
        /// Whether it is the built-in default, which may be absent if there are `-C` or `-c`
        /// directives.
        default: bool,
    },
    /// A text that is not in a file.
    Text {
        /// Its name in messages.
        name: String,
        /// The text.
        text: Vec<u8>,
    },
}

/// The result of reading.
#[derive(Debug, Clone)]
pub struct Tree {
    /// The directives in order.
    pub nodes: Vec<Node>,
    /// What is defined at the end. .htaccess files are read with these.
    pub variables: Variables,
    /// ServerRoot.
    pub server_root: String,
    /// DefaultRuntimeDir, absolute; None if it is not set.
    pub runtime_dir: Option<String>,
    /// The faults of LoadModule lines. Reading continues after them, so that an administrator sees
    /// all of them at once.
    pub refused: Faults,
}

/// Reads a server's configuration. Notices are added to `notices`, and the names of the files to
/// `includes` (`-D DUMP_INCLUDES`), also before a fault.
///
/// # Errors
///
/// The first fault in the structure of the text: a file that cannot be read, a section that is not
/// closed, a directive of the language with wrong arguments.
pub fn read(
    start: Start,
    vocabulary: &mut dyn Vocabulary,
    notices: &mut Vec<Notice>,
    includes: &mut Vec<Included>,
) -> Result<Tree, Fault> {
    let variables = Cow::Owned(start.variables);
    let mut reader = Reader::new(Terms::Loading(vocabulary), variables, notices);
    reader.server_root = start.server_root;
    let nodes = reader.all(&start.before, start.main, &start.after);
    includes.append(&mut reader.includes);
    Ok(Tree {
        nodes: nodes?,
        variables: reader.variables.into_owned(),
        server_root: reader.server_root,
        runtime_dir: reader.runtime_dir,
        refused: reader.refused,
    })
}

/// Reads the `text` of an .htaccess file. `grant` says which directives of the language may act,
/// `file` is its path, and IfFile is relative to `server_root`.
///
/// # Errors
///
/// As for [`read`]. The server answers 500 and logs `FILE: TEXT`.
pub fn read_htaccess(
    text: &[u8],
    file: &str,
    server_root: &str,
    grant: &Grant,
    variables: &Variables,
    vocabulary: &dyn Vocabulary,
    notices: &mut Vec<Notice>,
) -> Result<Vec<Node>, Fault> {
    let variables = Cow::Borrowed(variables);
    let mut reader = Reader::new(Terms::Fixed(vocabulary), variables, notices);
    reader.server_root = server_root.to_owned();
    reader.grant = Some(grant);
    reader.budget = HTACCESS_BUDGET;
    let mut source = Source::new(file.into(), text.to_vec());
    match reader.build(&mut source) {
        Ok(nodes) => Ok(nodes),
        Err(halt) => Err(reader.fault(halt, Stage::Read)),
    }
}

/// Why reading stops: the text, and the Include directives that led there.
#[derive(Debug)]
pub(crate) struct Halt {
    pub(crate) text: String,
    pub(crate) trail: Vec<Position>,
}

impl From<String> for Halt {
    fn from(text: String) -> Self {
        Self { text, trail: Vec::new() }
    }
}

/// The vocabulary. LoadModule changes it while a server's configuration is read; requests share it.
pub(crate) enum Terms<'a> {
    Loading(&'a mut dyn Vocabulary),
    Fixed(&'a dyn Vocabulary),
}

impl Terms<'_> {
    pub(crate) fn known(&self) -> &dyn Vocabulary {
        match self {
            Self::Loading(vocabulary) => &**vocabulary,
            Self::Fixed(vocabulary) => *vocabulary,
        }
    }
}

/// A text that is being read. The use of a macro puts the macro's lines in front of it, so that a
/// section may begin in the macro and end after its use.
pub(crate) struct Source {
    pub(crate) name: Arc<str>,
    lines: Lines,
    under: Option<Box<Source>>,
}

impl Source {
    pub(crate) fn new(name: Arc<str>, text: Vec<u8>) -> Self {
        Self { name, lines: Lines::new(text), under: None }
    }

    /// The position of the line that was taken last.
    pub(crate) fn position(&self) -> Position {
        Position { file: self.name.clone(), line: self.lines.line }
    }

    /// Reads `text` first, and then continues here.
    pub(crate) fn put_in_front(&mut self, name: Arc<str>, text: Vec<u8>) {
        let under = std::mem::replace(self, Self::new(name, text));
        self.under = Some(Box::new(under));
    }

    /// The next line of at most `limit` bytes; None at the end of all texts.
    fn take(&mut self, limit: usize) -> Option<Result<String, crate::lines::TooLong>> {
        loop {
            if let Some(line) = self.lines.take(limit) {
                return Some(line);
            }
            let under = self.under.take()?;
            *self = *under;
        }
    }
}

/// The open sections, and the nodes before and in them.
#[derive(Default)]
struct Frame {
    done: Vec<Node>,
    open: Vec<Node>,
}

impl Frame {
    fn push(&mut self, node: Node) {
        match self.open.last_mut() {
            Some(parent) => parent.section.get_or_insert_default().push(node),
            None => self.done.push(node),
        }
    }

    fn close(&mut self) {
        if let Some(node) = self.open.pop() {
            self.push(node);
        }
    }
}

/// The state of the reader.
pub(crate) struct Reader<'a> {
    pub(crate) terms: Terms<'a>,
    pub(crate) variables: Cow<'a, Variables>,
    pub(crate) notices: &'a mut Vec<Notice>,
    pub(crate) server_root: String,
    pub(crate) includes: Vec<Included>,
    pub(crate) include_depth: u32,
    pub(crate) macros: Macros,
    /// The directive that a fault would be reported with (Apache's err_directive).
    pub(crate) blame: Option<Position>,
    /// The Include directives that led to the current file, outermost first.
    pub(crate) trail: Vec<Position>,
    /// The number of open conditions about missing modules ([`crate::Missing`]).
    pub(crate) missing_depth: usize,
    /// The number of lines in such conditions that act without the missing module.
    pub(crate) acts: u64,
    runtime_dir: Option<String>,
    refused: Faults,
    stage: Stage,
    grant: Option<&'a Grant>,
    depth: usize,
    pub(crate) budget: Budget,
}

impl<'a> Reader<'a> {
    fn new(terms: Terms<'a>, variables: Cow<'a, Variables>, notices: &'a mut Vec<Notice>) -> Self {
        Self {
            terms,
            variables,
            notices,
            server_root: "/".into(),
            includes: Vec::new(),
            include_depth: 0,
            macros: Macros::default(),
            blame: None,
            trail: Vec::new(),
            missing_depth: 0,
            acts: 0,
            runtime_dir: None,
            refused: Faults::default(),
            stage: Stage::Read,
            grant: None,
            depth: 0,
            budget: SERVER_BUDGET,
        }
    }

    fn fault(&mut self, halt: Halt, stage: Stage) -> Fault {
        Fault { position: self.blame.take(), text: halt.text, trail: halt.trail, stage }
    }

    /// Reads the main text and the directives of the command line before and after it.
    fn all(&mut self, before: &[String], main: Main, after: &[String]) -> Result<Vec<Node>, Fault> {
        let mut nodes = self.commands(before)?;
        nodes.extend(self.main(main, !before.is_empty() || !after.is_empty())?);
        nodes.extend(self.commands(after)?);
        Ok(nodes)
    }

    /// Reads `-C` or `-c` directives, one in each line.
    fn commands(&mut self, lines: &[String]) -> Result<Vec<Node>, Fault> {
        let text = unquoted(&lines.join("\n")).into_owned();
        let mut source = Source::new("-c/-C directives".into(), text);
        self.stage = Stage::CommandLine;
        let built = self.build(&mut source);
        self.stage = Stage::Read;
        built.map_err(|halt| self.fault(halt, Stage::CommandLine))
    }

    fn main(&mut self, main: Main, optional: bool) -> Result<Vec<Node>, Fault> {
        self.blame = None;
        let read = match main {
            Main::Text { name, text } => {
                let mut source = Source::new(name.into(), text);
                return self.build(&mut source).map_err(|halt| self.fault(halt, Stage::Read));
            }
            Main::File { path, default } => {
                let path = absolute(&self.server_root, &path);
                if default && optional && std::fs::metadata(&path).is_err() {
                    return Ok(Vec::new());
                }
                self.include_files(&path, false, None)
            }
        };
        read.map_err(|mut halt| {
            let position = halt.trail.pop();
            Fault { position, text: halt.text, trail: halt.trail, stage: Stage::Read }
        })
    }

    /// Reads `source` to its end, where all its sections must be closed.
    pub(crate) fn build(&mut self, source: &mut Source) -> Result<Vec<Node>, Halt> {
        let mut frame = Frame::default();
        while let Some(line) = self.line(source, self.budget.line)? {
            self.statement(&line, source, &mut frame)?;
        }
        let Some(outermost) = frame.open.first() else {
            return Ok(frame.done);
        };
        self.blame = Some(outermost.position.clone());
        let complaints: Vec<String> = (frame.open.iter().rev())
            .map(|node| format!("{}: {}> was not closed.", node.position, node.name))
            .collect();
        Err(complaints.join("\n").into())
    }

    /// The next logical line of `source`; None at its end.
    pub(crate) fn line(
        &mut self,
        source: &mut Source,
        limit: usize,
    ) -> Result<Option<String>, Halt> {
        let Some(line) = source.take(limit) else { return Ok(None) };
        let Position { file, line: number } = source.position();
        self.budget.lines = match self.budget.lines.checked_sub(1) {
            Some(left) => left,
            None => return Err("The configuration has too many lines".to_owned().into()),
        };
        match line {
            Ok(line) => Ok(Some(line)),
            Err(_) => Err(format!("Error reading {file} at line {number}: Line too long").into()),
        }
    }

    /// The `line` with `${}` replaced. An undefined name stays and causes a notice.
    pub(crate) fn resolve(&mut self, line: &str, at: &Position) -> Result<String, Halt> {
        if !line.contains("${") {
            return Ok(line.to_owned());
        }
        let mut undefined: Vec<String> = Vec::new();
        let resolved = self.variables.resolve(line, self.budget.resolved, |name| {
            // A name with a colon belongs to the directive that reads the argument, such as
            // %{NAME:...} in a pattern.
            if !name.contains(':') && undefined.len() < NOTICES_LIMIT {
                undefined.push(name.to_owned());
            }
        });
        for name in undefined {
            let text = format!("Config variable ${{{name}}} is not defined");
            self.remark(Notice::warn("core", 111, text).at(at.clone()));
        }
        let Some(resolved) = resolved else {
            let Position { file, line } = at;
            return Err(format!("Error reading {file} at line {line}: Line too long").into());
        };
        self.grow(resolved.len().saturating_sub(line.len()))?;
        Ok(resolved)
    }

    /// Counts `bytes` that were not in the text.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Halt> {
        self.budget.growth = match self.budget.growth.checked_sub(bytes) {
            Some(left) => left,
            None => return Err("The configuration expands to too much text".to_owned().into()),
        };
        Ok(())
    }

    /// Stores a notice.
    pub(crate) fn remark(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_LIMIT {
            self.notices.push(notice);
        }
    }

    /// Stores a notice about the current directive.
    pub(crate) fn remark_here(&mut self, notice: Notice) {
        let notice = match &self.blame {
            Some(position) => notice.at(position.clone()),
            None => notice,
        };
        self.remark(notice);
    }

    /// Handles one line: acts on it, opens or closes a section, or adds a directive.
    fn statement(
        &mut self,
        line: &str,
        source: &mut Source,
        frame: &mut Frame,
    ) -> Result<(), Halt> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let position = source.position();
        let resolved = self.resolve(line, &position)?;
        let (mut name, mut arguments) = next_word(&resolved);
        if name.is_empty() {
            return Ok(());
        }
        let closing = name.chars().nth(1) == Some('/');
        if !closing {
            if name.ends_with('>') {
                name.pop();
            }
            if name.starts_with('<') && arguments.is_empty() {
                arguments = ">";
            }
        }
        if let Some(reserved) = self.reserved(&name) {
            self.blame = Some(position);
            self.acts += u64::from(self.missing_depth > 0 && !reserved.keyword.only_selects());
            for node in self.execute(reserved, arguments, source)? {
                frame.push(node);
            }
        } else if closing && name.starts_with('<') {
            self.close(&name, position, frame)?;
        } else {
            if self.missing_depth > 0 {
                let is_act = self.terms.known().missing().is_act(&name);
                self.acts += u64::from(is_act);
            }
            let section = name.starts_with('<').then(Vec::new);
            let (name, arguments) = (name.into_boxed_str(), arguments.into());
            let node = Node { name, arguments, position, section };
            if node.section.is_none() {
                frame.push(node);
            } else if frame.open.len() < DEPTH_LIMIT {
                frame.open.push(node);
            } else {
                self.blame = Some(node.position);
                return Err(format!("Sections are nested deeper than {DEPTH_LIMIT}").into());
            }
        }
        Ok(())
    }

    /// Closes the innermost section. `name` is the first word of the closing line.
    fn close(&mut self, name: &str, position: Position, frame: &mut Frame) -> Result<(), Halt> {
        let tail = name.get(2..).unwrap_or_default();
        let Some(open) = frame.open.last() else {
            self.blame = Some(position);
            return Err(format!("{name} without matching <{tail} section").into());
        };
        let expected = open.name.get(1..).unwrap_or_default();
        let complaint = match tail.strip_suffix('>') {
            None => format!("{name}> directive missing closing '>'"),
            Some(tail) if !tail.eq_ignore_ascii_case(expected) => {
                format!("Expected </{expected}> but saw {name}")
            }
            Some(_) => {
                frame.close();
                return Ok(());
            }
        };
        self.blame = Some(position);
        Err(complaint.into())
    }

    /// The directive of the language with the name `name` that acts while the text is read, if its
    /// module is loaded.
    pub(crate) fn reserved(&self, name: &str) -> Option<&'static Reserved> {
        let reserved = keyword::find(name).filter(|found| found.keyword != Keyword::Error)?;
        let loaded =
            reserved.module == "core.c" || self.terms.known().module_loaded(reserved.module);
        loaded.then_some(reserved)
    }

    /// Executes a directive of the language, and returns the nodes that it adds to the tree.
    fn execute(
        &mut self,
        reserved: &'static Reserved,
        arguments: &str,
        source: &mut Source,
    ) -> Result<Vec<Node>, Halt> {
        if let Some(grant) = self.grant
            && !grant.allows(reserved.name, reserved.contexts, reserved.overrides)
        {
            if grant.nonfatal_override {
                self.remark(grant.forbidden(reserved.name).at(source.position()));
                return Ok(Vec::new());
            }
            return Err(Scope::htaccess(Overrides::NONE).refusal(reserved.name).into());
        }
        if reserved.keyword.names_file() && has_quoted(arguments) {
            return Err(format!("the arguments of {} must be UTF-8", reserved.name).into());
        }
        let mut nodes = Vec::new();
        let calls = shape::split(reserved.shape, reserved.name, reserved.doc, arguments)?;
        if self.grant.is_some() {
            // A directive that has rules against .htaccess gets here only by AllowOverrideList.
            Scope::htaccess(Overrides::NONE).check_rules(reserved.name, reserved.contexts)?;
        }
        for words in calls {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            nodes.extend(self.execute_words(reserved, &words, arguments, source)?);
        }
        Ok(nodes)
    }

    fn execute_words(
        &mut self,
        reserved: &'static Reserved,
        words: &[&str],
        raw: &str,
        source: &mut Source,
    ) -> Result<Vec<Node>, Halt> {
        match (reserved.keyword, words) {
            (Keyword::Include, [path]) => return self.include(path, false, source),
            (Keyword::IncludeOptional, [path]) => return self.include(path, true, source),
            (Keyword::IfVersion, _) => return self.if_version(words, source),
            (
                Keyword::IfModule
                | Keyword::IfDefine
                | Keyword::IfFile
                | Keyword::IfDirective
                | Keyword::IfSection,
                _,
            ) => return self.condition(reserved, raw, source),
            (Keyword::Define, [name, rest @ ..]) => {
                check_variable(name)?;
                self.variables.to_mut().define(name, rest.first().copied());
            }
            (Keyword::UnDefine, [name]) => {
                check_variable(name)?;
                self.variables.to_mut().undefine(name);
            }
            (Keyword::ServerRoot, [path]) => {
                self.server_root = self.folder(path, "ServerRoot must be a valid directory")?;
            }
            (Keyword::DefaultRuntimeDir, [path]) => {
                let complaint = "DefaultRuntimeDir must be a valid directory, absolute or \
                                 relative to ServerRoot";
                self.runtime_dir = Some(self.folder(path, complaint)?);
            }
            (Keyword::LoadModule, [identifier, path]) => self.load_module(identifier, path),
            (Keyword::LoadFile, [path]) => self.load_file(path, source.position())?,
            (Keyword::Macro, _) => self.define_macro(raw, source)?,
            (Keyword::Use, _) => self.use_macro(raw, source)?,
            (Keyword::UndefMacro, [name]) => self.macros.undefine(name)?,
            (Keyword::MacroIgnoreEmptyArgs, _) => self.macros.ignore_empty = true,
            (Keyword::MacroIgnoreBadNesting, _) => self.macros.ignore_bad_nesting = true,
            _ => {}
        }
        Ok(Vec::new())
    }

    /// The absolute form of `path` relative to ServerRoot, if it is a folder.
    fn folder(&self, path: &str, complaint: &str) -> Result<String, Halt> {
        let path = absolute(&self.server_root, path);
        if !std::fs::metadata(&path).is_ok_and(|found| found.is_dir()) {
            return Err(complaint.to_owned().into());
        }
        Ok(path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(&path).to_owned())
    }

    fn load_module(&mut self, identifier: &str, written: &str) {
        let path = absolute(&self.server_root, written);
        if let Terms::Loading(vocabulary) = &mut self.terms {
            match vocabulary.load_module(identifier, written, &path) {
                Ok(Some(notice)) => self.remark_here(notice),
                Ok(None) => {}
                Err(text) => {
                    let (position, trail) = (self.blame.clone(), self.trail.clone());
                    self.refused.add(Fault { position, text, trail, stage: self.stage });
                }
            }
        }
    }

    /// LoadFile loads libraries that Apache's modules are linked against. No module here needs any.
    fn load_file(&mut self, written: &str, at: Position) -> Result<(), Halt> {
        let path = absolute(&self.server_root, written);
        if written.contains('/') && !std::path::Path::new(&path).exists() {
            return Err(format!(
                "Cannot load {written} into server: {path}: cannot open shared object file: No \
                 such file or directory"
            )
            .into());
        }
        let text = format!("LoadFile {path}: object files are not loaded, this one is ignored");
        let notice =
            Notice { module: "so", level: Level::Info, number: None, text, position: Some(at) };
        self.remark(notice);
        Ok(())
    }

    /// Reads up to the line that closes `name`, a condition that holds. Sections within must be
    /// closed before that line. At the end of the text the condition ends too, as in Apache.
    ///
    /// Source: server/config.c, ap_build_cont_config.
    pub(crate) fn contents(&mut self, name: &str, source: &mut Source) -> Result<Vec<Node>, Halt> {
        self.enter()?;
        let closing = format!("</{}>", name.get(1..).unwrap_or_default());
        let opened = source.position();
        let mut frame = Frame::default();
        loop {
            let Some(line) = self.line(source, self.budget.line)? else {
                let text = format!("{name}> at {opened} is not closed: it ends with the file");
                let notice = Notice {
                    module: "core",
                    level: Level::Warn,
                    number: None,
                    text,
                    position: Some(opened),
                };
                self.remark(notice);
                break;
            };
            if frame.open.is_empty() && line.eq_ignore_ascii_case(&closing) {
                break;
            }
            self.statement(&line, source, &mut frame)?;
        }
        while !frame.open.is_empty() {
            frame.close();
        }
        self.leave();
        Ok(frame.done)
    }

    /// Enters another level of conditions or included files.
    pub(crate) fn enter(&mut self) -> Result<(), Halt> {
        self.depth += 1;
        if self.depth > DEPTH_LIMIT {
            return Err(format!("Sections are nested deeper than {DEPTH_LIMIT}").into());
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

/// Define and UnDefine reserve the colon for future meanings of `${}`.
fn check_variable(name: &str) -> Result<(), Halt> {
    if name.contains(':') {
        return Err("Variable name must not contain ':'".to_owned().into());
    }
    Ok(())
}
