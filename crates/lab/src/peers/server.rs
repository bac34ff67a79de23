//! A running server: starts a command, waits until the server accepts connections on a free
//! loopback port, and stops it by its process id when it is dropped.

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

/// How long a server may take to start and to stop.
const PATIENCE: Duration = Duration::from_secs(20);
/// The message of all servers about a port that is in use, and the number of ports to try.
const TAKEN: &str = "ddress already in use";
const MOST_PORTS: u32 = 4;
/// The interval between two checks of a server.
const GLANCE: Duration = Duration::from_millis(10);

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// The name.
    pub name: String,
    /// The address where it listens.
    pub address: SocketAddr,
    /// Its processes.
    pub family: Family,
    child: Child,
}

impl Server {
    /// Starts the command that `command` returns for a port, on these cores (or on all if the list
    /// is empty), and waits until it accepts connections. The port is a free one; another is tried
    /// if someone else took it first, such as a second lab or one of its clients.
    ///
    /// # Errors
    ///
    /// What it printed if it does not serve.
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
        // ^C at the terminal must only reach this program, which then stops the server in an
        // orderly way.
        process::unblock_signals(&mut command).process_group(0);
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
    ///
    /// Those of the system: it has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = self.pid().ok_or_else(|| format!("{}: has no process", self.name))?;
        process::kill(pid, signal).map_err(|error| format!("{}: {error}", self.name))
    }
}

/// Starts the command on these cores. A process inherits the cores of the thread that starts it, so
/// a thread is made for that.
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
        // If it has already ended, the wait below returns at once.
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
