//! `evenkeel explain`: prints what limits a server now. The argument is the URL of its status page,
//! a process id or a configuration; for the latter two, the page is found from the configuration's
//! addresses and its `SetHandler server-status`. The load lab, which has an HTTP client, then
//! requests the page (`evenkeel-lab explain URL`). Nothing is changed. A server without the page
//! cannot be explained, and the command says so.

use crate::command_line::CommandLine;
use crate::configuration::Configuration;
use crate::httpd::choice;
use crate::lab;
use crate::server::refusal;
use crate::settings;
use crate::terminal::complain;
use evenkeel::{Explain, Own, Serve, Whom};
use evenkeel_config::Node;
use evenkeel_mpm::{Listen, Running, running};
use std::ffi::OsString;
use std::net::IpAddr;

const PROGRAM: &str = "evenkeel";

/// Runs the subcommand and returns its exit status.
pub fn run(asked: Explain) -> i32 {
    let url = match asked.whom {
        Some(Whom::Page(url)) => Ok(url),
        Some(Whom::Process(pid)) => of_process(pid),
        None => of_file(CommandLine { file: asked.file, ..CommandLine::default() }),
    };
    match url {
        Ok(url) => {
            let insecure = asked.insecure.then_some("--insecure");
            let words = ["explain", &url].into_iter().chain(insecure);
            lab::run(&words.map(OsString::from).collect::<Vec<_>>())
        }
        Err(text) => {
            complain(&format!("evenkeel explain: {text}"));
            1
        }
    }
}

/// The page of a process on this machine, from the words that it was started with.
fn of_process(pid: i32) -> Result<String, String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline"))
        .map_err(|error| format!("process {pid}: {error}"))?;
    let words: Vec<String> = words
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .filter(|word| !word.is_empty())
        .collect();
    let rest = words.get(1..).unwrap_or_default();
    if let Ok(Own::Serve(serve)) = evenkeel::parse(rest) {
        return Ok(of_serve(&serve));
    }
    let line = CommandLine::parse(rest).map_err(|text| {
        format!("process {pid} was not started as a server of Evenkeel's: {text}")
    })?;
    page_of(&read(&line)?).map_err(|text| format!("process {pid}: {text}"))
}

/// The page of an `evenkeel serve`, whose place its greeting states.
fn of_serve(serve: &Serve) -> String {
    let listen = &*serve.listen;
    let (host, port) = listen.rsplit_once(':').unwrap_or((listen, "8080"));
    let host = if matches!(host, "*" | "0.0.0.0" | "[::]") { "localhost" } else { host };
    format!("http://{host}:{port}/server-status")
}

/// The page of the server whose pid file a configuration names.
fn of_file(line: CommandLine) -> Result<String, String> {
    let configuration = read(&line)?;
    let runtime_dir = configuration.tree.runtime_dir.as_deref();
    let parent = settings::of_parent(&configuration.site, &configuration.modules, runtime_dir)?;
    let path = parent.pid_file.unwrap_or_default();
    let file = path.display();
    match running(&path) {
        Ok(Running::Yes(_)) => page_of(&configuration),
        Ok(Running::No) => Err(format!("no server runs: there is no pid file {file}")),
        Ok(Running::Stale(pid)) => {
            Err(format!("no server runs: the process {} of {file} is gone", pid.as_raw_nonzero()))
        }
        Err(error) => Err(format!("{file}: {error}")),
    }
}

fn read(line: &CommandLine) -> Result<Configuration, String> {
    choice(PROGRAM, line).read().map_err(|refused| refusal(&refused, PROGRAM))
}

/// The address of the status page in a configuration.
fn page_of(configuration: &Configuration) -> Result<String, String> {
    let path = location(&configuration.tree.nodes).ok_or(
        "its configuration has no status page, and nothing else tells what limits it: add\n\
         <Location \"/server-status\">\n    SetHandler server-status\n    Require local\n\
         </Location>",
    )?;
    let runtime_dir = configuration.tree.runtime_dir.as_deref();
    let parent = settings::of_parent(&configuration.site, &configuration.modules, runtime_dir)?;
    let listen = parent.listen.first().ok_or("its configuration listens nowhere")?;
    Ok(url(listen, path))
}

/// The path of the first `Location` with the handler, inside or outside virtual hosts.
fn location(nodes: &[Node]) -> Option<&str> {
    nodes.iter().find_map(|node| {
        let inside = node.section.as_deref()?;
        let is_place = node.name.eq_ignore_ascii_case("<Location");
        let shows = inside.iter().any(|inner| {
            inner.name.eq_ignore_ascii_case("SetHandler")
                && inner.arguments.trim().trim_matches('"') == "server-status"
        });
        if is_place && shows {
            let path = node.arguments.trim().trim_end_matches('>').trim().trim_matches('"');
            return path.starts_with('/').then_some(path);
        }
        location(inside)
    })
}

fn url(listen: &Listen, path: &str) -> String {
    let host = match listen.address {
        None => "localhost".to_owned(),
        Some(address) if address.is_unspecified() => "localhost".to_owned(),
        Some(IpAddr::V6(address)) => format!("[{address}]"),
        Some(IpAddr::V4(address)) => address.to_string(),
    };
    format!("http://{host}:{}{path}", listen.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_has_its_page_where_it_listens() {
        let at = |text: &str| {
            let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            match evenkeel::parse(&words) {
                Ok(Own::Serve(serve)) => of_serve(&serve),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(at("serve x"), "http://127.0.0.1:8080/server-status");
        assert_eq!(at("serve --listen *:81 x"), "http://localhost:81/server-status");
        assert_eq!(at("serve --listen=[::1]:82"), "http://[::1]:82/server-status");
    }

    #[test]
    fn the_page_is_found_in_the_configuration() {
        let folder = std::env::temp_dir().join(format!("evenkeel-explain-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a.conf");
        let found = |text: &str| {
            let text = format!("ServerName a\nPidFile {}/pid\n{text}", folder.display());
            std::fs::write(&file, text).unwrap();
            let file = Some(file.to_string_lossy().into_owned());
            page_of(&read(&CommandLine { file, ..CommandLine::default() }).unwrap())
        };
        let page = "<Location \"/st\">\nSetHandler server-status\n</Location>\n";
        assert_eq!(found(&format!("Listen 8081\n{page}")), Ok("http://localhost:8081/st".into()));
        let inside =
            format!("Listen [::1]:82\n<VirtualHost *:82>\nServerName b\n{page}</VirtualHost>");
        assert_eq!(found(&inside), Ok("http://[::1]:82/st".into()));
        assert!(found("Listen 80\n").unwrap_err().contains("no status page"));
        let file = Some(file.to_string_lossy().into_owned());
        let told = of_file(CommandLine { file, ..CommandLine::default() }).unwrap_err();
        assert!(told.starts_with("no server runs: there is no pid file"), "{told}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
