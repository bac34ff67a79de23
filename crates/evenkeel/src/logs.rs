//! Compiles the logs of a configuration for the room `logging` to open. A format that does not
//! compile is a fault of the configuration.

use evenkeel_config::Fault;
use evenkeel_logging::{
    AccessLog, Condition, ErrorFormat, ErrorFormatKind, ErrorLog, LineFormat, LoggedExchange,
    Target,
};
use evenkeel_message::Notice;
use evenkeel_modules::log_config::{Log, Server as LogSettings, When};
use evenkeel_modules::{RequestContext, ServerSettings};
use evenkeel_pipeline::{Server, Site};
use std::sync::{Arc, Weak};

/// The logs to open.
#[derive(Default)]
pub struct LogPlan {
    /// Every access log.
    pub access: Vec<AccessLog>,
    /// The access logs of each server, as indices.
    pub access_of: Vec<Arc<[usize]>>,
    /// BufferedLogs.
    pub buffered: bool,
    /// Every error log. The first one is the main server's.
    pub errors: Vec<ErrorLog>,
    /// The error log of each server.
    pub errors_of: Vec<usize>,
}

/// Compiles the logs of a site.
///
/// # Errors
///
/// The format that does not compile, with its file and line.
pub fn plan(site: &Arc<Site>) -> Result<LogPlan, Fault> {
    let mut plan =
        LogPlan { buffered: site.global.log_config.buffered.unwrap_or(true), ..LogPlan::default() };
    for server in &site.servers {
        access_logs(site, server, &mut plan)?;
        error_log(site, server, &mut plan)?;
    }
    Ok(plan)
}

/// Checks whether the folders of all logs exist, as `-t` does.
///
/// # Errors
///
/// A notice for each folder that does not exist.
pub fn check(site: &Site) -> Result<(), Vec<Notice>> {
    let mut missing = Vec::new();
    for (index, server) in site.servers.iter().enumerate() {
        let own = index == 0 || server.settings.core.error_log != main_error_log(site);
        if let (true, Some(log)) = (own, &server.settings.core.error_log) {
            let place = server.position.as_ref().map(ToString::to_string);
            let target = Target::of_error_log(&log.0, &site.server_root);
            missing.extend(target.check_error_log(place.as_deref()).err());
        }
        let settings = &server.settings.log_config;
        let main = site.servers.first().map(|main| &main.settings.log_config.logs);
        let inherits = index > 0 && main.is_some_and(|main| Arc::ptr_eq(main, &settings.logs));
        // Virtual hosts inherit the logs of GlobalLog too.
        let global = settings.global_logs.iter().filter(|_| index == 0);
        let own = settings.logs.iter().filter(|_| !inherits);
        for log in own.chain(global) {
            let target = Target::of_access_log(&log.target, &site.server_root);
            missing.extend(target.check_access_log(&log.position.to_string()).err());
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(missing) }
}

fn main_error_log(site: &Site) -> Option<Arc<(Box<str>, evenkeel_config::Position)>> {
    site.server(0).settings.core.error_log.clone()
}

fn access_logs(site: &Arc<Site>, server: &Server, plan: &mut LogPlan) -> Result<(), Fault> {
    let settings = &server.settings.log_config;
    let main = plan.access_of.first().map(Arc::clone);
    let main = main.map(|logs| (logs, &site.server(0).settings.log_config));
    // A host without log directives writes to the main server's logs, which are already checked.
    if let Some((logs, _)) = main.as_ref().filter(|(_, main)| settings.is_same(main)) {
        plan.access_of.push(Arc::clone(logs));
        return Ok(());
    }
    for (format, position) in &settings.written {
        LineFormat::compile(format).map_err(|text| Fault::new(position.clone(), text))?;
    }
    if let Some((logs, _)) = main.filter(|(_, main)| settings.has_same_logs(main)) {
        plan.access_of.push(logs);
        return Ok(());
    }
    let mut own = Vec::new();
    for log in settings.logs.iter().chain(settings.global_logs.iter()) {
        let compiled = access_log(site, settings, log)
            .map_err(|text| Fault::new(log.position.clone(), text))?;
        own.push(plan.access.len());
        plan.access.push(compiled);
    }
    plan.access_of.push(own.into());
    Ok(())
}

fn access_log(site: &Arc<Site>, settings: &LogSettings, log: &Log) -> Result<AccessLog, String> {
    let named = |name: &str| {
        settings.formats.iter().find(|(known, _)| **known == *name).map(|(_, format)| &**format)
    };
    let format = match log.format.as_deref() {
        Some(text) => named(text).unwrap_or(text),
        None => {
            settings.default_format.as_deref().map_or(LineFormat::COMMON, |f| named(f).unwrap_or(f))
        }
    };
    Ok(AccessLog {
        target: Target::of_access_log(&log.target, &site.server_root),
        format: LineFormat::compile(format)?,
        condition: match &log.condition {
            None => Condition::Always,
            Some(When::Environment(name)) => Condition::of_variable(name),
            Some(When::Expression(expression)) => {
                let (site, expression) = (Arc::downgrade(site), Arc::clone(expression));
                Condition::Holds(Arc::new(move |exchange: &LoggedExchange<'_>| {
                    holds(&site, &expression, exchange)
                }))
            }
        },
    })
}

/// If the condition cannot be evaluated, the request is logged: an extra line is better than a
/// missing one.
fn holds(
    site: &Weak<Site>,
    expression: &evenkeel_expr::Condition,
    exchange: &LoggedExchange<'_>,
) -> bool {
    let Some(site) = site.upgrade() else { return true };
    let server = site.server(exchange.request.server);
    let context = RequestContext::new(exchange.request, server.core(&server.defaults))
        .with_response(exchange.response);
    expression.holds(&context).unwrap_or(true)
}

fn error_log(site: &Site, server: &Server, plan: &mut LogPlan) -> Result<(), Fault> {
    let compiled = compile_error_log(site, &server.settings)?;
    let same = |log: &ErrorLog| {
        log.target == compiled.target
            && log.format == compiled.format
            && log.connection == compiled.connection
            && log.request == compiled.request
    };
    let index = plan.errors.iter().position(same).unwrap_or(plan.errors.len());
    if index == plan.errors.len() {
        plan.errors.push(compiled);
    }
    plan.errors_of.push(index);
    Ok(())
}

fn compile_error_log(site: &Site, settings: &ServerSettings) -> Result<ErrorLog, Fault> {
    let text = settings.core.error_log.as_ref().map_or("logs/error_log", |log| &log.0);
    let mut log = ErrorLog {
        target: Target::of_error_log(text, &site.server_root),
        format: None,
        connection: Vec::new(),
        request: Vec::new(),
    };
    for (kind, format, position) in &settings.core.conduct.error_log_formats {
        let fault = |text: String| Fault::new(position.clone(), text);
        match kind.as_deref() {
            Some("connection") => log
                .connection
                .push(ErrorFormat::compile(ErrorFormatKind::Connection, format).map_err(fault)?),
            Some(_) => log
                .request
                .push(ErrorFormat::compile(ErrorFormatKind::Request, format).map_err(fault)?),
            None => {
                let compiled = ErrorFormat::compile(ErrorFormatKind::Main, format);
                log.format = Some(compiled.map_err(fault)?);
            }
        }
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Choice;

    #[test]
    fn the_folder_of_each_log_is_checked_once() {
        let missing = |line: &str| {
            let text = format!("ServerName a\n{line}\n<VirtualHost *:80>\n</VirtualHost>\n");
            let site = Choice::of_text(text.into()).read().ok().unwrap().site;
            check(&site).err().map_or(0, |notices| notices.len())
        };
        for line in ["GlobalLog /none/x common", "CustomLog /none/x common", "ErrorLog /none/x"] {
            assert_eq!(missing(line), 1, "{line}");
        }
        assert_eq!(missing("GlobalLog x common"), 0);
    }

    #[test]
    fn hosts_share_what_they_say_nothing_of() {
        let hosts = ["", "ServerAdmin a@b", "Options None", "CustomLog b %h", "LogFormat %u c"];
        let hosts = hosts.map(|line| format!("<VirtualHost *:80>\n{line}\n</VirtualHost>\n"));
        let text = format!(
            "ServerName a\nLogFormat %h c\nCustomLog a c\nOptions Indexes\n{}",
            hosts.concat()
        );
        let choice = Choice::of_text(text.into());
        let site = choice.read().ok().unwrap().site;
        let defaults = |server: usize| Arc::as_ptr(&site.servers[server].defaults);
        assert!([2, 4, 5].iter().all(|server| defaults(*server) == defaults(1)));
        assert_ne!(defaults(3), defaults(1));
        let options = |server: usize| site.servers[server].defaults.core.options.effective();
        assert_eq!((options(1), options(0) == options(3)), (options(0), false));
        assert!(site.global.core.virtual_hosts.is_empty());
        let plan = plan(&site).unwrap();
        let access_of: Vec<&[usize]> = plan.access_of.iter().map(|logs| &**logs).collect();
        assert_eq!(access_of, [[0], [0], [0], [0], [1], [2]]);
        assert_eq!(plan.access.len(), 3);
        let format = |text| LineFormat::compile(text).unwrap();
        let formats: Vec<_> = plan.access.iter().map(|log| log.format.clone()).collect();
        assert_eq!(formats, [format("%h"), format("%h"), format("%u")]);
    }
}
