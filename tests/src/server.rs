//! Starts a server of either kind with a configuration in a scratch folder, and stops it when it is
//! dropped. Servers run in the foreground, without the environment of the caller.

use crate::house::PATIENCE;
use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interval between two checks of a server that is starting or ending.
const GLANCE: Duration = Duration::from_millis(4);

/// The program of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Debian's apache2, the oracle.
    Apache,
    /// The binary of this workspace, under the oracle's name.
    Evenkeel,
}

/// A server in the foreground.
#[derive(Debug)]
pub struct Server {
    child: Child,
}

/// The program for this kind, as a path that exists.
pub fn program(kind: Kind, root: &Path) -> Result<PathBuf, String> {
    let found = match kind {
        Kind::Apache => PathBuf::from("/usr/sbin/apache2"),
        Kind::Evenkeel => {
            let named = root.join("apache2");
            if !named.exists() {
                let binary = evenkeel();
                std::os::unix::fs::symlink(&binary, &named)
                    .map_err(|error| format!("{}: {error}", named.display()))?;
            }
            named
        }
    };
    match found.exists() {
        true => Ok(found),
        false => Err(format!("{}: there is no such program; build or install it", found.display())),
    }
}

/// The built binary: the one that the variable EVENKEEL names, or the one beside the tests.
pub fn evenkeel() -> PathBuf {
    if let Some(named) = std::env::var_os("EVENKEEL") {
        return PathBuf::from(named);
    }
    let test = std::env::current_exe().unwrap_or_default();
    let folder = test.parent().unwrap_or(Path::new("target/debug"));
    // Tests are in a folder of their own, programs beside the binary.
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    folder.join("evenkeel")
}

/// The built load lab, `evenkeel-lab`, which the server finds beside itself.
pub fn lab() -> PathBuf {
    evenkeel().with_file_name("evenkeel-lab")
}

/// The lines of configuration for the server's user, if root starts it.
pub fn children() -> &'static str {
    if geteuid().is_root() { "User www-data\nGroup www-data\n" } else { "" }
}

/// The command for `program` as both kinds of servers are run, with a minimal environment.
pub fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LANG", "C")
        .env("TZ", "UTC")
        .stdin(Stdio::null());
    command
}

impl Server {
    /// Starts a server and waits until it accepts connections on `port`.
    pub fn start(kind: Kind, root: &Path, port: u16) -> Result<Server, String> {
        Self::start_as(kind, root, port, &[], "-DFOREGROUND")
    }

    /// The same with another word than `-DFOREGROUND`, under a command that runs the words after
    /// it, such as `prlimit`.
    pub fn start_as(
        kind: Kind,
        root: &Path,
        port: u16,
        over: &[&str],
        how: &str,
    ) -> Result<Server, String> {
        Self::start_at(kind, root, (Ipv4Addr::LOCALHOST, port).into(), over, how)
    }

    /// The same for a server that listens at this address.
    pub fn start_at(
        kind: Kind,
        root: &Path,
        address: SocketAddr,
        over: &[&str],
        how: &str,
    ) -> Result<Server, String> {
        let named = program(kind, root)?;
        let name = named.to_string_lossy();
        let configuration = root.join("httpd.conf");
        let configuration = configuration.to_string_lossy();
        let said = root.join("logs/said.txt");
        let out = File::create(&said).map_err(|error| format!("{}: {error}", said.display()))?;
        let err = out.try_clone().map_err(|error| error.to_string())?;
        let mut words = over.to_vec();
        words.extend([&*name, "-f", &configuration, how]);
        let (first, rest) = words.split_first().ok_or("no program")?;
        // apache2's prefork ends its whole process group, which must not be that of the tests.
        let child = command(Path::new(first), rest)
            .process_group(0)
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|error| format!("{first}: {error}"))?;
        let mut server = Server { child };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{kind:?} did not start: {status}\n{}", said_in(root)));
            }
            if started.elapsed() > PATIENCE {
                return Err(format!("{kind:?} takes no connections\n{}", said_in(root)));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(server)
    }

    /// The process that was started, which is the parent of the children that serve.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process that was started has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Stops the server and waits for its end. It is an error if it had to be killed or ended
    /// badly.
    pub fn stop(mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the server ended by itself: {status}"));
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the server ended with {status}")),
                _ => std::thread::sleep(GLANCE),
            }
        }
        Err("the server did not end when it was told to".to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The children of an apache2 that is killed would keep running.
            let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The end of the server's standard output, and of its error log.
pub fn said_in(root: &Path) -> String {
    let read = |path: &str| std::fs::read(root.join(path)).unwrap_or_default();
    let bytes = [read("logs/said.txt"), read("logs/error.log")].concat();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(12)..).unwrap_or_default().join("\n")
}

/// A port of the loopback address on which nothing listens, outside the range that the kernel
/// assigns, so that it stays free between two servers. It is reserved for this process, because of
/// two tests that found the same free port, one would talk to the other's server.
pub fn free_port() -> Result<u16, String> {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Two runners at the same time begin at different numbers.
    let own = u16::try_from(u64::from(std::process::id()) * 131 % u64::from(COUNT)).unwrap_or(0);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (own + step) % COUNT;
        if reserve(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err("no port is free".to_owned())
}

/// Reserves a port for this process: a name that the kernel gives to one process at a time.
fn reserve(port: u16) -> bool {
    static TAKEN: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());
    let name = format!("evenkeel-tests-port-{port}");
    let Ok(address) = std::os::unix::net::SocketAddr::from_abstract_name(name) else {
        return false;
    };
    let Ok(mark) = UnixDatagram::bind_addr(&address) else { return false };
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_to_one_test_alone() {
        let port = free_port().unwrap();
        assert!(!reserve(port), "{port} was given twice");
        assert_ne!(free_port().unwrap(), port);
    }
}
