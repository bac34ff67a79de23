//! Plays a script: creates its files, starts each server on the same configuration and port, one
//! after the other, plays every exchange to it, and judges the answers.

use crate::answer::Answer;
use crate::compare::{compare, depart, shown};
use crate::house::wait_for;
use crate::script::{Exchange, File, Kind as Entry, Script, Step};
use crate::server::{Kind, Server, children, free_port, said_in};
use crate::talk::{fill, talk};
use crate::tls::make_certificates;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// The servers that a script is played to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cast {
    /// Only the oracle, so that the script itself is judged.
    Oracle,
    /// The oracle first and then the other server, with this text after its configuration.
    Both(Kind, &'static str),
}

/// The result for one exchange or another thing that was judged.
#[derive(Debug)]
pub struct Verdict {
    /// Where it is, and what it shows.
    pub title: String,
    /// The oracle's answer.
    pub oracle: Answer,
    /// The differences; empty if there are none.
    pub differences: Vec<String>,
    /// Whether the servers differ in the way that the script says.
    pub differs: bool,
}

/// The differences between the oracle and Evenkeel in several scripts.
#[derive(Debug, Default)]
pub struct Differences {
    played: usize,
    found: Vec<String>,
}

impl Differences {
    /// Plays a script to both.
    ///
    /// # Errors
    /// A server does not start.
    pub fn play(&mut self, script: &Script) -> Result<(), String> {
        for verdict in play(script, Cast::Both(Kind::Evenkeel, ""))? {
            self.played += 1;
            if !verdict.differences.is_empty() {
                let body = verdict.oracle.responses.last().map(|last| shown(&last.body));
                let differences = verdict.differences.join("\n  ");
                self.found.push(format!("{}\n  {differences}\n  oracle: {body:?}", verdict.title));
            }
        }
        Ok(())
    }

    /// The differences, or that fewer than `least` exchanges were played. Empty if all is well.
    #[must_use]
    pub fn report(self, least: usize) -> String {
        let Self { played, found } = self;
        match found.len() {
            0 if played < least => format!("{played} exchanges alone were played"),
            0 => String::new(),
            count => format!("{count} of {played}:\n{}", found.join("\n")),
        }
    }
}

/// The names and texts of the scripts in a folder of `tests`, in the order of their names.
///
/// # Errors
/// The folder or a script cannot be read.
pub fn scripts_in(folder: &str) -> std::io::Result<Vec<(String, String)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut scripts = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        scripts.push((name, fs::read_to_string(&path)?));
    }
    scripts.sort();
    Ok(scripts)
}

/// Everything that one server did with a script.
struct Run {
    answers: Vec<Result<Answer, String>>,
    compared: Vec<Vec<u8>>,
    /// The last lines of the error log, if the server ended by itself.
    ended: Option<String>,
    ending: Result<(), String>,
}

/// The modules of every script, as their identifiers without `_module`.
const MODULES: [&str; 11] = [
    "authz_core",
    "authz_host",
    "access_compat",
    "alias",
    "dir",
    "env",
    "mime",
    "headers",
    "setenvif",
    "reqtimeout",
    "status",
];

/// The configuration before each script's own. In prefork, a child waits beside the one that
/// serves: a connection that waits for a child has others answered with `Connection: close`.
const BASE: &str = "\
ServerRoot \"@ROOT@\"
PidFile \"@ROOT@/logs/httpd.pid\"
DefaultRuntimeDir \"@ROOT@/run\"
Listen 127.0.0.1:@PORT@
ServerName localhost
StartServers 1
MaxRequestWorkers 16
<IfModule mpm_prefork_module>
StartServers 3
MinSpareServers 2
MaxSpareServers 4
</IfModule>
<IfModule !mpm_prefork_module>
ThreadsPerChild 8
MinSpareThreads 4
MaxSpareThreads 16
</IfModule>
ErrorLog \"@ROOT@/logs/error.log\"
DocumentRoot \"@ROOT@/htdocs\"
TypesConfig \"@ROOT@/mime.types\"
Timeout 10
KeepAliveTimeout 4
<Directory />
AllowOverride None
</Directory>
<Directory \"@ROOT@/htdocs\">
Require all granted
</Directory>
";

/// The media types of every script's files.
const TYPES: &str = "text/html html htm\ntext/plain txt\ntext/css css\nimage/png png\n\
    image/svg+xml svg\napplication/json json\napplication/octet-stream bin\n";

/// Plays the script, and judges each exchange and each file that is compared.
pub fn play(script: &Script, cast: Cast) -> Result<Vec<Verdict>, String> {
    let root = tempfile::Builder::new().prefix("wire-").tempdir().map_err(|it| it.to_string())?;
    let place = root.path();
    // The servers' children run as another user.
    permit(place, 0o755)?;
    let port = free_port()?;
    lay_out(script, place, port)?;
    let oracle = run_oracle(script, place, port)?;
    let other = match cast {
        Cast::Oracle => None,
        Cast::Both(kind, more) => {
            restore(script, place, port)?;
            Some(run(script, kind, more, place, port)?)
        }
    };
    let mut verdicts = Vec::new();
    for (index, exchange) in script.exchanges.iter().enumerate() {
        let title = format!("{}:{} {}", script.name, exchange.line, exchange.title);
        let answer =
            |run: &Run| run.answers.get(index).cloned().unwrap_or(Err("not played".into()));
        verdicts.push(judge(
            title,
            exchange,
            &script.ignored,
            answer(&oracle),
            other.as_ref().map(answer),
        ));
    }
    verdicts.extend(judge_ends(script, &oracle, other.as_ref()));
    Ok(verdicts)
}

fn judge(
    title: String,
    exchange: &Exchange,
    ignored: &[String],
    oracle: Result<Answer, String>,
    other: Option<Result<Answer, String>>,
) -> Verdict {
    let oracle = match oracle {
        Ok(oracle) => oracle,
        Err(reason) => {
            let differences = vec![format!("oracle: {reason}")];
            return Verdict { title, oracle: Answer::default(), differences, differs: false };
        }
    };
    let mut differences = doubts(exchange, &oracle);
    let differs = exchange.differs.is_some();
    match other {
        Some(Ok(other)) => {
            let expected = depart(&oracle, &exchange.ours);
            differences.extend(compare(&expected, &other, ignored));
            if differs && compare(&oracle, &other, ignored).is_empty() {
                differences.push("the servers do not differ, but the script says so".to_owned());
            }
        }
        Some(Err(reason)) => differences.push(reason),
        None => {}
    }
    Verdict { title, oracle, differences, differs }
}

/// Why the oracle's answer is not the one that the script was written for.
fn doubts(exchange: &Exchange, oracle: &Answer) -> Vec<String> {
    let mut doubts = Vec::new();
    let mut statuses: Vec<u16> =
        oracle.responses.iter().map(|response| response.status()).collect();
    if statuses.is_empty() {
        statuses.push(0);
    }
    if statuses != exchange.statuses {
        let expected = &exchange.statuses;
        doubts.push(format!("oracle: the script expects {expected:?}, apache2 says {statuses:?}"));
    }
    let text = whole(oracle);
    for wanted in exchange.contains.iter().filter(|wanted| !text.contains(wanted.as_str())) {
        doubts.push(format!(
            "oracle: {wanted:?} is not in apache2's answer: {}",
            shown(text.as_bytes())
        ));
    }
    if let Some(fault) = &oracle.fault {
        doubts.push(format!("oracle: {fault}"));
    }
    doubts
}

/// An answer as text, with unframed bodies.
pub fn whole(answer: &Answer) -> String {
    let mut text = String::new();
    for response in &answer.responses {
        text.push_str(&format!("{}\n", response.status_line));
        for (name, value) in &response.headers {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text.push_str(&format!("\n{}\n", String::from_utf8_lossy(&response.body)));
    }
    text + &String::from_utf8_lossy(&answer.rest)
}

fn judge_ends(script: &Script, oracle: &Run, other: Option<&Run>) -> Vec<Verdict> {
    let verdict = |title: String, differences: Vec<String>| Verdict {
        title,
        oracle: Answer::default(),
        differences,
        differs: false,
    };
    let mut verdicts = Vec::new();
    for (index, path) in script.compared.iter().enumerate() {
        let (a, b) = (oracle.compared.get(index), other.and_then(|run| run.compared.get(index)));
        let mut differences = Vec::new();
        if a.is_none_or(Vec::is_empty) {
            differences.push("oracle: the file is empty".to_owned());
        }
        if let (Some(a), Some(b)) = (a, b) {
            differences.extend(compare_lines(a, b, script.model == "event"));
        }
        verdicts.push(verdict(format!("{} {path}", script.name), differences));
    }
    for run in std::iter::once(oracle).chain(other) {
        if let Err(reason) = &run.ending {
            verdicts.push(verdict(format!("{} ending", script.name), vec![reason.clone()]));
        }
    }
    verdicts
}

/// Compares two logs. If several workers write them, the lines of different connections may come in
/// any order.
fn compare_lines(oracle: &[u8], other: &[u8], in_order: bool) -> Vec<String> {
    let (a, b) = (without_ids(oracle), without_denials(&without_ids(other)));
    let (mut a, mut b): (Vec<&str>, Vec<&str>) = (a.lines().collect(), b.lines().collect());
    if !in_order {
        a.sort_unstable();
        b.sort_unstable();
    }
    let mut differences = Vec::new();
    for (a, b) in a.iter().zip(&b).filter(|(a, b)| a != b) {
        differences.push(format!("a line differs:\n  expected {a}\n  came     {b}"));
    }
    if a.len() != b.len() {
        differences.push(format!("{} lines expected, {} came", a.len(), b.len()));
    }
    differences
}

/// The text without what Evenkeel adds to the messages of refusals: the lines that deny a request,
/// up to the end of the line or the Referer. Apache's text has no such end.
pub fn without_denials(text: &str) -> String {
    let mut shortened = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let marks = [("; denied by ", 0), ("\": denied by ", "\": ".len())];
        let starts = marks.iter().filter_map(|(mark, kept)| Some(line.find(mark)? + kept));
        let Some(start) = starts.min() else {
            shortened.push_str(line);
            continue;
        };
        let (before, denial) = line.split_at(start);
        let behind = denial.find(", referer: ").and_then(|end| denial.get(end..)).unwrap_or("\n");
        shortened.push_str(before);
        shortened.push_str(behind);
    }
    shortened
}

/// The text with each log id after `id=`, and each number of a server or request in mod_rewrite's
/// lines (`sid#`, `rid#`), replaced, because all of them differ.
fn without_ids(text: &[u8]) -> String {
    const BYTES: usize = 11;
    let text = String::from_utf8_lossy(text);
    let is_of_id = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/');
    let mask = |(number, part): (usize, &str)| {
        let rest = part.get(BYTES..).unwrap_or_default();
        let is_id = number > 0 && part.chars().take_while(is_of_id).count() == BYTES;
        if is_id { format!("ID{rest}") } else { part.to_owned() }
    };
    let text = text.split("id=").enumerate().map(mask).collect::<Vec<_>>().join("id=");
    let without = |text: &str, mark: &str| {
        let unnumbered =
            |part: &str| part.trim_start_matches(|c: char| c.is_ascii_hexdigit()).to_owned();
        let mask = |(number, part): (usize, &str)| {
            if number > 0 { unnumbered(part) } else { part.to_owned() }
        };
        text.split(mark).enumerate().map(mask).collect::<Vec<_>>().join(mark)
    };
    without(&without(&text, "/sid#"), "[rid#")
}

/// Runs a script with apache2 as the server. If apache2 ends by itself, the function prints its log
/// and runs the script once more, because a crash of apache2 says nothing about this server.
#[expect(clippy::print_stderr, reason = "what the oracle does is no result of the script")]
fn run_oracle(script: &Script, root: &Path, port: u16) -> Result<Run, String> {
    let run = || run(script, Kind::Apache, "", root, port);
    let first = run()?;
    match &first.ended {
        None => Ok(first),
        Some(log) => {
            eprintln!("{}: apache2 ended by itself, another is started:\n{log}", root.display());
            run()
        }
    }
}

fn run(script: &Script, kind: Kind, more: &str, root: &Path, port: u16) -> Result<Run, String> {
    write(&root.join("httpd.conf"), &script.encode(&configuration(script, more, root, port)))?;
    for log in read_folder(&root.join("logs"))? {
        let _ = fs::remove_file(log);
    }
    let core = first_core()?;
    let over = ["taskset", "-c", &core];
    let mut server = Server::start_as(kind, root, port, &over, "-DFOREGROUND")?;
    if kind == Kind::Apache && script.config.contains("ScriptSock") {
        // Its children answer with 503 as long as the daemon of CGI programs has no socket.
        let is_there = || has_file(root, "cgisock");
        wait_for("the socket of apache2's CGI daemon", is_there)?;
    }
    let answers = script.exchanges.iter().map(|exchange| talk(exchange, port, root)).collect();
    let ended = server.has_ended().then(|| said_in(root));
    let ending = server.stop();
    let read = |path: &String| fs::read(root.join(path)).unwrap_or_default();
    let compared = script.compared.iter().map(read).collect();
    Ok(Run { answers, compared, ended, ending })
}

/// Whether a folder has a file whose name begins with this text.
fn has_file(folder: &Path, beginning: &str) -> bool {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name()).any(|it| it.to_string_lossy().starts_with(beginning))
}

/// The first core that this process may use. A server with only one core serves with one thread,
/// whose log lines are in the order of the exchanges.
fn first_core() -> Result<String, String> {
    let status = fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = list.and_then(|list| list.trim().split([',', '-']).next());
    first.map(str::to_owned).ok_or_else(|| "no core in /proc/self/status".to_owned())
}

fn read_folder(path: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let entries = fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

/// The whole configuration: modules, base, the script's own part, and additions.
fn configuration(script: &Script, more: &str, root: &Path, port: u16) -> String {
    let mut text = String::new();
    let own = script.modules.iter().map(String::as_str);
    let model = format!("mpm_{}", script.model);
    for name in std::iter::once(&*model).chain(MODULES).chain(own) {
        text.push_str(&format!(
            "LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"
        ));
    }
    fill(&(text + children() + BASE + &script.config + more + "\n"), port, root)
}

fn lay_out(script: &Script, root: &Path, port: u16) -> Result<(), String> {
    make_folder(&root.join("htdocs"))?;
    make_folder(&root.join("logs"))?;
    make_folder(&root.join("run"))?;
    write(&root.join("mime.types"), TYPES.as_bytes())?;
    if script.tls {
        make_certificates(&root.join("tls"))?;
    }
    for file in &script.files {
        put(script, file, root, port)?;
    }
    Ok(())
}

/// Restores the files that a step has changed. The others stay, because a new file would have
/// another inode, which a validator may show.
fn restore(script: &Script, root: &Path, port: u16) -> Result<(), String> {
    for step in script.exchanges.iter().flat_map(|exchange| &exchange.steps) {
        if let Step::Filled(path, _) = step {
            empty(&root.join(path))?;
        }
        let (Step::Write(path, _) | Step::Remove(path)) = step else { continue };
        let _ = fs::remove_file(root.join(path));
        if let Some(file) = script.files.iter().find(|file| file.path == *path) {
            put(script, file, root, port)?;
        }
    }
    Ok(())
}

/// Removes what is in a folder.
fn empty(folder: &Path) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(told)? {
        let path = entry.map_err(told)?.path();
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.map_err(told)?;
    }
    Ok(())
}

fn put(script: &Script, file: &File, root: &Path, port: u16) -> Result<(), String> {
    let path = root.join(OsStr::from_bytes(&script.encode(&file.path)));
    make_folder(path.parent().unwrap_or(root))?;
    match &file.kind {
        Entry::Folder => make_folder(&path)?,
        Entry::Link(target) => {
            let target = fill(target, port, root);
            symlink(target, &path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Entry::Contents(text) => {
            write(&path, &script.encode(&fill(text, port, root)))?;
            let time = UNIX_EPOCH + Duration::from_secs(file.mtime_seconds);
            let opened = fs::File::options().write(true).open(&path);
            opened
                .and_then(|opened| opened.set_modified(time))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    match file.mode {
        Some(mode) => permit(&path, mode),
        None => Ok(()),
    }
}

fn make_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

fn permit(path: &Path, mode: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|error| format!("{}: {error}", path.display()))
}
