//! The server that the parent runs: reads the configuration, opens the logs, serves in the children
//! and writes what a dead child left. All of its state belongs to the parent.

use crate::applications::{self, Applications, Planned};
use crate::checker::Checker;
use crate::configuration::{Choice, Configuration, Refused};
use crate::launcher::Launcher;
use crate::logs::{self, LogPlan};
use crate::tls::{Hosts, Kept};
use crate::{serving, settings};
use evenkeel_config::Main;
use evenkeel_logging::{AccessLogs, ErrorLogs, Programs, startup_text, terminal_text};
use evenkeel_message::{Level, Notice};
use evenkeel_mpm::apps::Pool;
use evenkeel_mpm::{Child, Loaded, Mode, Server, Settings};
use evenkeel_pipeline::Site;
use evenkeel_sys::identity;
use evenkeel_sys::memory;
use evenkeel_sys::peers;
use evenkeel_sys::process::{self, End, Pid, Side};
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::sync::{self, Arc};

/// A site with its logs, which one generation of children serves.
pub struct Running {
    /// The site.
    pub site: Arc<Site>,
    /// Its TLS hosts.
    pub tls: Arc<Hosts>,
    /// The logs to open; empty once they are open.
    plan: Cell<LogPlan>,
    open: OnceCell<(Arc<AccessLogs>, Arc<ErrorLogs>)>,
    /// The settings of the launcher, if the site runs programs.
    launches: Option<Settings>,
    /// The settings of the checker, if members of balancers may be checked.
    checks: Option<Settings>,
    launcher: OnceCell<Rc<Launcher>>,
    /// What its pools run, if it runs PHP.
    planned: Planned,
    pools: OnceCell<Vec<Rc<Pool>>>,
    /// The notices of the reader of the configuration.
    remarks: Vec<evenkeel_config::Notice>,
    /// What there is to say about certificates and keys.
    warnings: Vec<Notice>,
    /// Must be dropped last.
    _rest: Freed,
}

/// Returns the memory of what was dropped before it to the system, because a parent reads many
/// configurations.
struct Freed;

impl Drop for Freed {
    fn drop(&mut self) {
        memory::give_back_freed();
    }
}

impl Running {
    /// The launcher of programs; none if the site runs none.
    pub fn launcher(&self) -> Option<&Launcher> {
        self.launcher.get().map(|launcher| &**launcher)
    }

    /// The pools that run PHP; none if the site runs none.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.get().into_iter().flatten().map(|pool| &**pool)
    }

    /// The index of the pool of each virtual host.
    pub fn pools_of_servers(&self) -> &[u32] {
        &self.planned.of_servers
    }

    /// The open logs; none before [`Server::activate`].
    pub fn logs(&self) -> Option<(Arc<AccessLogs>, Arc<ErrorLogs>)> {
        self.open.get().cloned()
    }
}

/// The server of a command line.
pub struct Evenkeel {
    choice: Choice,
    program: String,
    mode: Mode,
    programs: Programs,
    /// What TLS keeps over reloads.
    tls: Kept,
    active: Option<Rc<Running>>,
    /// The launchers of all sites that are served.
    launchers: Vec<Weak<Launcher>>,
    applications: Applications,
    /// All sites that are served and have balancers.
    balancing: Vec<sync::Weak<Site>>,
    /// What checks the members of the balancers of the active site.
    checker: Option<Checker>,
    /// What ends the process that looks after the pools, when it is closed (`-X`).
    keeper: Option<io::PipeWriter>,
    greeting: Option<String>,
    /// Notices of the start that await the opening of the error log. The terminal has them already.
    early: RefCell<Vec<Notice>>,
}

/// The message when a server cannot start because its logs cannot be opened.
const UNABLE: &str = "AH00015: Unable to open logs\n";

impl Evenkeel {
    /// A server that has not read its configuration. `greeting` is printed when it listens.
    pub fn new(choice: Choice, program: &str, mode: Mode, greeting: Option<String>) -> Self {
        let (program, programs) = (program.to_owned(), Programs::new(mode == Mode::Detached));
        let early = RefCell::default();
        Self {
            choice,
            program,
            mode,
            programs,
            tls: Kept::default(),
            active: None,
            launchers: Vec::new(),
            applications: Applications::default(),
            balancing: Vec::new(),
            checker: None,
            keeper: None,
            greeting,
            early,
        }
    }

    /// Checks that nothing is served as root, which the children of a parent of root would do
    /// without a User. Apache's children then end at once, because its `#-1` is the number of no
    /// user (os/unix/unixd.c).
    fn keep_from_root(
        &self,
        site: &Site,
        settings: &mut Settings,
    ) -> Result<Option<evenkeel_config::Notice>, String> {
        if settings.identity.is_some() || !identity::is_root() {
            return Ok(None);
        }
        let cause = "started by root, and no User says who is to serve instead";
        if self.mode != Mode::OneProcess {
            return Err(format!(
                "AH02155: {}: {cause}: set User and Group, as in `User www-data`",
                self.program
            ));
        }
        let (stand_in, name) = settings::stand_in(&site.global)?;
        settings.identity = Some(stand_in);
        let text = format!("{cause}: {name} does");
        Ok(Some(evenkeel_config::Notice {
            module: "unixd",
            level: evenkeel_config::Level::Warn,
            number: None,
            text,
            position: None,
        }))
    }

    /// Starts the launcher of a site that runs programs, unless it has one.
    fn start_launcher(&mut self, running: &Running) -> Result<(), String> {
        let Some(settings) = &running.launches else { return Ok(()) };
        if running.launcher.get().is_some() {
            return Ok(());
        }
        let launcher = Launcher::start(settings.clone())
            .map_err(|error| format!("the launcher of CGI programs cannot be started: {error}"))?;
        let launcher = Rc::new(launcher);
        self.launchers.push(Rc::downgrade(&launcher));
        let _empty_before = running.launcher.set(launcher);
        Ok(())
    }

    /// Starts what checks the members of the balancers of a site, and ends that of the site before.
    fn start_checker(&mut self, running: &Running) -> Result<(), String> {
        self.checker = None;
        let Some(settings) = &running.checks else { return Ok(()) };
        let failed = |error| format!("no process can check the members of balancers: {error}");
        self.checker = Checker::start(running, settings).map_err(failed)?;
        Ok(())
    }

    /// Opens the pools of a site that runs PHP, or renews those that there are.
    fn open_pools(&mut self, running: &Running) -> Result<(), String> {
        let planned = running.planned.applications.iter().cloned();
        if let Some(pools) = running.pools.get() {
            // The return to an earlier configuration.
            pools.iter().zip(planned).for_each(|(pool, application)| pool.renew(application));
            return Ok(());
        }
        let folder = &running.site.runtime_dir;
        let opened: Result<Vec<_>, _> =
            planned.map(|application| self.applications.open(application, folder)).collect();
        let opened = opened?;
        let has_some = !opened.is_empty();
        let _empty_before = running.pools.set(opened);
        match has_some && self.mode == Mode::OneProcess {
            true => self.start_keeper(),
            false => Ok(()),
        }
    }

    /// Starts a process that looks after the pools, where one process serves and has no parent.
    /// It ends when this process does.
    fn start_keeper(&mut self) -> Result<(), String> {
        let failed = |error: io::Error| format!("no process can look after the pools: {error}");
        let (reader, writer) = io::pipe().map_err(failed)?;
        match process::fork().map_err(failed)? {
            Side::Parent(_) => {
                self.keeper = Some(writer);
                Ok(())
            }
            Side::Child => {
                drop(writer);
                let reader = OwnedFd::from(reader);
                // Signals of the terminal are for the process that serves.
                let _no_terminal = process::leave_terminal();
                process::name_thread("pools");
                let mut applications = std::mem::take(&mut self.applications);
                applications.keep(&reader, |notice| self.say(notice));
                process::exit_now(0)
            }
        }
    }

    fn say(&self, notice: &Notice) {
        match self.active.as_ref().and_then(|running| running.open.get()) {
            Some((_, errors)) => {
                let is_logged = self.active.as_ref().is_some_and(|running| {
                    let core = &running.site.server(0).settings.core;
                    core.is_logged(None, notice.module, notice.level)
                });
                if is_logged {
                    errors.write_plain(notice);
                }
            }
            None if notice.level <= self.choice.start_level => {
                crate::terminal::complain(&startup_text(notice));
                self.early.borrow_mut().push(notice.clone());
            }
            None => {}
        }
    }
}

impl Server for Evenkeel {
    type Site = Running;

    fn bequest(&self) -> Vec<(BorrowedFd<'_>, &'static str)> {
        self.tls.bequest()
    }

    fn inherit(&mut self, bequest: Vec<(OwnedFd, String)>) {
        self.tls.inherit(bequest);
    }

    fn load(&mut self) -> Result<Loaded<Running>, String> {
        let Configuration { site, tree, modules, mut notices, .. } =
            self.choice.read().map_err(|refused| refusal(&refused, &self.program))?;
        let plan = logs::plan(&site).map_err(|fault| fault.report(&self.program))?;
        let mut settings = settings::of_parent(&site, &modules, tree.runtime_dir.as_deref())?;
        if matches!(self.choice.main, Main::Text { .. }) {
            // No command line can name the text, so that nothing would read its pid file.
            settings.pid_file = None;
        }
        notices.extend(self.keep_from_root(&site, &mut settings)?);
        let mut warnings = Vec::new();
        let tls = Hosts::make(&site, &mut self.tls, &mut warnings).map(Arc::new)?;
        warnings.extend(settings::note_without_http2(&site));
        let (plan, open) = (Cell::new(plan), OnceCell::new());
        let launches = site.needs_launcher.then(|| settings.clone());
        let checks = site.checks_members().then(|| settings.clone());
        let launcher = OnceCell::new();
        let mut planned = applications::of_site(&site, &modules, &settings)?;
        notices.append(&mut planned.remarks);
        if site.passes_on {
            peers::open();
        }
        site.share_balancers()
            .map_err(|error| format!("the state of balancers cannot be shared: {error}"))?;
        let running = Running {
            site,
            tls,
            plan,
            open,
            launches,
            checks,
            launcher,
            planned,
            pools: OnceCell::new(),
            remarks: notices,
            warnings,
            _rest: Freed,
        };
        Ok(Loaded { site: running, settings })
    }

    fn activate(&mut self, running: &Rc<Running>) -> Result<(), String> {
        if running.open.get().is_none() {
            for remark in &running.remarks {
                self.say(&remark.to_message());
            }
            running.warnings.iter().for_each(|warning| self.say(warning));
            let plan = running.plan.take();
            let failed = |notice: Notice| startup_text(&notice) + UNABLE;
            let errors =
                ErrorLogs::open(plan.errors, plan.errors_of, &self.program, &mut self.programs)
                    .map_err(failed)?;
            let access = AccessLogs::open(
                plan.access,
                plan.access_of,
                plan.buffered,
                &mut self.programs,
                Some(&errors),
            )
            .map_err(|notice| {
                errors.write_plain(&notice);
                failed(notice)
            })?;
            if !running.site.balancers.is_empty() {
                if let Some(before) = &self.active {
                    running.site.take_over_balancers(&before.site);
                }
                self.balancing.push(Arc::downgrade(&running.site));
            }
            let logs = (Arc::new(access), Arc::new(errors));
            let _already_open = running.open.set(logs);
            // The text that the site was made from takes more memory than the site.
            memory::give_back_freed();
        }
        self.active = Some(Rc::clone(running));
        self.early.take().iter().for_each(|notice| self.say(notice));
        if let Some((_, errors)) = running.open.get() {
            // If this fails, what is printed goes to the terminal as before, which does not prevent
            // serving.
            let _printed_elsewhere = errors.take_standard_error();
        }
        self.start_launcher(running)?;
        self.start_checker(running)?;
        self.open_pools(running)?;
        // The parent opens the logs after it listens.
        if let Some(greeting) = self.greeting.take() {
            crate::terminal::say(&greeting);
        }
        Ok(())
    }

    fn serve(&self, running: &Running, child: Child) -> i32 {
        serving::serve(running, child)
    }

    fn disown(&self, site: &Running) {
        std::mem::forget(Arc::clone(&site.site));
    }

    fn log(&self, notice: &Notice) {
        self.say(notice);
    }

    fn salvage(&self, running: &Running, _buffer: usize, lines: &[u8]) -> usize {
        running.open.get().map_or(0, |(access, _)| access.salvage(lines))
    }

    fn reaped(&mut self, pid: Pid, end: End) {
        let mut launchers = self.launchers.iter().filter_map(Weak::upgrade);
        if let Some(notice) = launchers.find_map(|it| it.ended(pid, end)) {
            self.say(&notice);
            return;
        }
        if let Some(notice) = self.checker.as_mut().and_then(|it| it.ended(pid, end)) {
            self.say(&notice);
            return;
        }
        if let Some(notices) = self.applications.ended(pid, end) {
            notices.iter().for_each(|notice| self.say(notice));
            return;
        }
        let number = u32::try_from(pid.as_raw_nonzero().get()).unwrap_or(0);
        if let Some(notice) = self.programs.ended(number) {
            self.say(&notice);
        }
    }

    fn turn(&mut self) {
        if let Err(text) = self.tls.roll() {
            self.say(&Notice::own("ssl", Level::Error, text));
        }
        for notice in self.programs.turn() {
            self.say(&notice);
        }
        self.launchers.retain(|launcher| launcher.strong_count() > 0);
        let launchers: Vec<_> = self.launchers.iter().filter_map(Weak::upgrade).collect();
        launchers.iter().filter_map(|it| it.turn()).for_each(|notice| self.say(&notice));
        if let Some(notice) = self.checker.as_mut().and_then(Checker::turn) {
            self.say(&notice);
        }
        self.applications.turn().iter().for_each(|notice| self.say(notice));
        if let Some((access, errors)) = self.active.as_ref().and_then(|r| r.open.get()) {
            access.retry();
            errors.retry();
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.applications.descriptor()
    }

    fn next_us(&self) -> Option<u64> {
        self.applications.next_us()
    }

    fn child_ended(&mut self, index: usize) {
        self.applications.child_ended(index);
        self.balancing.retain(|site| site.strong_count() > 0);
        let sites = self.balancing.iter().filter_map(sync::Weak::upgrade);
        sites.for_each(|site| site.end_child(index));
    }
}

/// The text on the terminal about a configuration that cannot be used.
pub fn refusal(refused: &Refused, program: &str) -> String {
    let mut text = String::new();
    for notice in &refused.notices {
        text.push_str(&remark_text(notice));
    }
    text.push_str(&refused.faults.report(program, &refused.missing));
    text
}

/// The text of a notice on the terminal. Apache prints some notices there with their text only
/// (APLOG_STARTUP); the others have the form of the error log.
pub fn remark_text(remark: &evenkeel_config::Notice) -> String {
    const TEXT_ALONE: [u32; 3] = [112, 548, 558];
    let notice = remark.to_message();
    match remark.number {
        Some(number) if !TEXT_ALONE.contains(&number) => terminal_text(&notice),
        _ => startup_text(&notice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::OfServers;

    /// Names the process that measures itself, because other tests allocate in the main one.
    const MEASURE: &str = "EVENKEEL_TEST_MEASURE";

    /// The most bytes that a host with a name and a folder may take, in the parent and in one
    /// child.
    const MOST_BYTES: usize = 704;

    fn of_hosts(count: usize) -> Evenkeel {
        let host = |number: usize| {
            format!(
                "<VirtualHost *:80>\nServerName h{number:05}.test\n\
                 DocumentRoot /srv/www/hosts/h{number:05}.test\n</VirtualHost>\n"
            )
        };
        let hosts: String = (0..count).map(host).collect();
        let text = format!(
            "Listen 127.0.0.1:8099\nServerName main.test\nServerAdmin a@main.test\n\
             ErrorLog /dev/null\nLogFormat %h short\nCustomLog /dev/null short\nTimeout 100\n\
             LimitRequestFields 50\nBrowserMatch a b\nBrowserMatch c d\nAlias /icons/ /srv/i/\n\
             RequestReadTimeout header=10\nDeflateCompressionLevel 5\n\
             <Directory /srv>\nRequire all granted\n</Directory>\n\
             <Location /status>\nSetHandler server-status\n</Location>\n{hosts}"
        );
        Evenkeel::new(Choice::of_text(text.into_bytes()), "t", Mode::OneProcess, None)
    }

    /// What a configuration takes while it is in use, and what remains of it afterwards.
    fn bytes_of(hosts: usize) -> (usize, usize) {
        let mut server = of_hosts(hosts);
        let before = memory::allocated_bytes().unwrap();
        let loaded = server.load().unwrap();
        let settings = OfServers::new(&loaded.site.site);
        let taken = memory::allocated_bytes().unwrap() - before;
        drop((loaded, settings));
        (taken, memory::allocated_bytes().unwrap().saturating_sub(before))
    }

    #[test]
    fn a_plain_host_takes_little_and_leaves_nothing() {
        if memory::allocated_bytes().is_none() {
            return;
        }
        if std::env::var_os(MEASURE).is_some() {
            // What is made once for the process exists from here on.
            let _first = bytes_of(1000);
            let (few, _) = bytes_of(1000);
            let (many, _) = bytes_of(3000);
            let (_, left) = bytes_of(3000);
            let each = (many - few) / 2000;
            assert!(each <= MOST_BYTES, "a host takes {each} bytes");
            // The allocator itself keeps some small pieces.
            assert!(left < 3000 * 8, "{left} bytes are left of 3,000 hosts");
            return;
        }
        let name = "server::tests::a_plain_host_takes_little_and_leaves_nothing";
        let own = std::env::current_exe().unwrap();
        let told = std::process::Command::new(own)
            .args(["--exact", name, "--test-threads=1"])
            .env(MEASURE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&told.stdout);
        assert!(told.status.success() && text.contains("1 passed"), "{text}");
    }
}
