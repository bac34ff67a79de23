//! A server that runs. A command comes in; a server that takes connections on a free loopback port
//! goes out, and is stopped by its process id when it is let go, whichever way that happens.

use super::Site;
use crate::family::Family;
use evenkeel_sys::process::{self, Pid};
use evenkeel_sys::signal::Signal;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a server may take to begin and to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// What all servers say of a port that somebody else has, and how many ports are tried.
const TAKEN: &str = "ddress already in use";
const MOST_PORTS: u32 = 4;
/// How long to wait between two looks at it.
const GLANCE: Duration = Duration::from_millis(10);

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// What it is called.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its processes.
    pub family: Family,
    child: Child,
}

impl Server {
    /// Starts what `command` gives for a port, on these cores or, where there are none, on all, and
    /// waits until it takes connections. A free port is chosen, and another one where somebody else
    /// was sooner: a second lab that runs beside, or one of its clients.
    ///
    /// # Errors
    /// What it said where it does not serve.
    pub fn start(
        name: &str,
        site: &Site,
        cores: &[usize],
        mut command: impl FnMut(u16) -> Result<Command, String>,
    ) -> Result<Self, String> {
        let mut ports = 0;
        loop {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
            let address = listener.and_then(|listener| listener.local_addr());
            let address = address.map_err(|error| format!("{name}: {error}"))?;
            let begun = Self::start_at(name, site, cores, address, command(address.port())?);
            ports += 1;
            match begun {
                Err(text) if text.contains(TAKEN) && ports < MOST_PORTS => {}
                other => return other,
            }
        }
    }

    fn start_at(
        name: &str,
        site: &Site,
        cores: &[usize],
        address: SocketAddr,
        mut command: Command,
    ) -> Result<Self, String> {
        let told = |error: io::Error| format!("{name}: {error}");
        let said = site.path().join(format!("logs/{name}.said"));
        let output = File::create(&said).map_err(told)?;
        command.stdin(Stdio::null()).stdout(output.try_clone().map_err(told)?).stderr(output);
        // ^C at the terminal is for us, who then stop it in good order.
        process::begin_unblocked(&mut command).process_group(0);
        let child = spawn_on(cores, &mut command).map_err(told)?;
        let family = Family::new(child.id());
        let mut server = Self { name: name.to_owned(), address, family, child };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = server.child.try_wait().map_err(told)?.is_some();
            if ended || begun.elapsed() > PATIENCE {
                let text = fs::read_to_string(&said).unwrap_or_default();
                return Err(format!("{name} does not serve: {}", text.trim()));
            }
            sleep(GLANCE);
        }
        Ok(server)
    }
}

impl Server {
    /// Its first process.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Sends a signal to its first process.
    ///
    /// # Errors
    /// The system's: it has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = self.pid().ok_or_else(|| format!("{}: has no process", self.name))?;
        process::kill(pid, signal).map_err(|error| format!("{}: {error}", self.name))
    }
}

/// A process keeps to the cores of the thread that made it, so that one is made for it.
fn spawn_on(cores: &[usize], command: &mut Command) -> io::Result<Child> {
    if cores.is_empty() {
        return command.spawn();
    }
    std::thread::scope(|scope| {
        let spawn = || {
            process::run_on(cores)?;
            command.spawn()
        };
        let ended = scope.spawn(spawn).join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the thread that starts it panicked")))
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(pid) = self.pid() else { return };
        // One that has ended already is waited for below.
        let _ended = process::kill(pid, Signal::Terminate);
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                let _ended = self.child.kill();
            }
            sleep(GLANCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_when_it_does_not_serve_is_told() {
        let site = Site::new().unwrap();
        let command = |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo no such thing; exit 1"]);
            Ok(command)
        };
        let told = Server::start("it", &site, &[], command).unwrap_err();
        assert_eq!(told, "it does not serve: no such thing");
    }

    #[test]
    fn a_child_keeps_to_its_cores() {
        let core = process::allowed_cores()[0];
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]).stdout(Stdio::piped());
        let child = spawn_on(&[core], &mut command).unwrap();
        let said = child.wait_with_output().unwrap().stdout;
        assert_eq!(
            String::from_utf8_lossy(&said).split_whitespace().last(),
            Some(core.to_string()).as_deref()
        );
        assert!(process::allowed_cores().len() >= process::usable_cores());
    }
}
