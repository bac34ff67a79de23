//! `evenkeel sim`: the simulator of the load lab, with the process model and its directives from an
//! Apache configuration where the command line names one.

use crate::command_line::CommandLine;
use crate::httpd::choice;
use crate::server::refusal;
use crate::settings;
use evenkeel_lab::sim::{self, Directives, Model};
use evenkeel_mpm::{Model as Named, Moment, check_limits};
use evenkeel_pipeline::Server;
use evenkeel_pool::Limits;
use evenkeel_sys::listen::somaxconn;
use evenkeel_sys::process::usable_cores;
use std::path::Path;
use std::time::Duration;

const PROGRAM: &str = "evenkeel";

/// Runs the subcommand and gives its exit status.
pub fn run(words: &[String]) -> i32 {
    sim::run(words, &directives)
}

/// The directives of a configuration file, with what Apache makes of values that cannot be.
fn directives(file: &Path) -> Result<Directives, String> {
    let file = std::path::absolute(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let file = Some(file.to_string_lossy().into_owned());
    let read = choice(PROGRAM, &CommandLine { file, ..CommandLine::default() });
    let configuration = read.read().map_err(|refused| refusal(&refused, PROGRAM))?;
    let runtime_dir = configuration.tree.runtime_dir.as_deref();
    let parent = settings::of_parent(&configuration.site, &configuration.modules, runtime_dir)?;
    let most = somaxconn();
    let (held, _) = check_limits(&parent.configured, Moment::Start, usable_cores(), most);
    let main = configuration.site.servers.first();
    let keep_alive = main.map_or(Duration::from_secs(5), Server::keep_alive_timeout);
    Ok(Directives {
        model: match held.model {
            Named::Prefork => Model::Prefork,
            Named::Worker => Model::Worker,
            Named::Event => Model::Event,
        },
        start_servers: held.start_servers,
        limits: Limits {
            threads: held.threads_per_child,
            min_spare: held.min_spare,
            max_spare: held.max_spare,
            children: held.max_request_workers / held.threads_per_child.max(1),
            slots: held.server_limit,
        },
        most_connections: held.max_connections_per_child,
        backlog: parent.backlog.unwrap_or(most) as usize,
        keep_alive_timeout_s: keep_alive.as_secs_f64(),
    })
}
