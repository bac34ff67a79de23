//! `evenkeel limits`: prints the directives of the pool of workers as a server with this
//! configuration obeys them, one in each line, with defaults and with impossible values corrected.
//! `evenkeel sim --config FILE` reads this output.

use crate::command_line::CommandLine;
use crate::httpd::choice;
use crate::server::refusal;
use crate::settings;
use crate::terminal::{complain, say};
use evenkeel_mpm::{Model, Moment, check_limits};
use evenkeel_pipeline::Server;
use evenkeel_sys::listen::somaxconn;
use evenkeel_sys::process::usable_cores;
use std::time::Duration;

const PROGRAM: &str = "evenkeel";

/// Runs the subcommand and returns its exit status.
pub fn run(file: Option<String>) -> i32 {
    match lines(file) {
        Ok(lines) => {
            say(&lines.join("\n"));
            0
        }
        Err(text) => {
            complain(&text);
            1
        }
    }
}

/// The resulting directives of a configuration file.
fn lines(file: Option<String>) -> Result<Vec<String>, String> {
    let read = choice(PROGRAM, &CommandLine { file, ..CommandLine::default() });
    let configuration = read.read().map_err(|refused| refusal(&refused, PROGRAM))?;
    let runtime_dir = configuration.tree.runtime_dir.as_deref();
    let parent = settings::of_parent(&configuration.site, &configuration.modules, runtime_dir)?;
    let most = somaxconn();
    let (held, _) = check_limits(&parent.configured, Moment::Start, usable_cores(), most);
    let main = configuration.site.servers.first();
    let keep_alive = main.map_or(Duration::from_secs(5), Server::keep_alive_timeout);
    let unit = if held.model == Model::Prefork { "Servers" } else { "Threads" };
    Ok(vec![
        format!("MPM {}", held.model.name()),
        format!("StartServers {}", held.start_servers),
        format!("ThreadsPerChild {}", held.threads_per_child),
        format!("MinSpare{unit} {}", held.min_spare),
        format!("MaxSpare{unit} {}", held.max_spare),
        format!("MaxRequestWorkers {}", held.max_request_workers),
        format!("ServerLimit {}", held.server_limit),
        format!("MaxConnectionsPerChild {}", held.max_connections_per_child.unwrap_or(0)),
        format!("ListenBacklog {}", parent.backlog.unwrap_or(most)),
        format!("KeepAliveTimeout {}ms", keep_alive.as_millis()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directives_are_those_that_the_server_obeys() {
        let folder = std::env::temp_dir().join(format!("evenkeel-limits-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a.conf");
        let told = |text: &str| {
            std::fs::write(&file, format!("ServerName a\nListen 80\n{text}")).unwrap();
            lines(Some(file.to_string_lossy().into_owned())).map(|lines| lines.join(", "))
        };
        let worker = "LoadModule mpm_worker_module modules/mod_mpm_worker.so\nStartServers 3\n\
                      ThreadsPerChild 25\nMaxRequestWorkers 160\nServerLimit 20\nListenBacklog 77\n\
                      KeepAliveTimeout 1500ms\nMaxConnectionsPerChild 9\n";
        assert_eq!(
            told(worker).unwrap(),
            "MPM worker, StartServers 3, ThreadsPerChild 25, MinSpareThreads 75, MaxSpareThreads \
             250, MaxRequestWorkers 150, ServerLimit 20, MaxConnectionsPerChild 9, ListenBacklog \
             77, KeepAliveTimeout 1500ms"
        );
        let prefork = "LoadModule mpm_prefork_module modules/mod_mpm_prefork.so\n";
        let prefork = told(prefork).unwrap();
        assert!(prefork.starts_with("MPM prefork, StartServers 5, ThreadsPerChild 1, MinSpareSer"));
        let refused = told("Listen 80\nLimitless On\n").unwrap_err();
        assert!(refused.contains("Invalid command 'Limitless'"), "{refused}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
