//! A running server for tests of faults, with a scratch folder and additional lines of
//! configuration. Its processes can be inspected and disturbed. All waits are bounded.

use crate::server::{Kind, Server, children, free_port};
use crate::tls::make_certificates;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashSet;
use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// How long anything that must happen may take. On a machine whose cores are all busy everything
/// takes correspondingly longer. The kernel ends a process that watches files only after every
/// process that was reporting a change has continued, whatever its priority.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A scratch folder, and the server that serves it.
pub struct House {
    /// The server; none while it is stopped.
    pub server: Option<Server>,
    /// The address where it listens.
    pub address: SocketAddr,
    root: TempDir,
    configuration: String,
}

/// The process model, if the test names none.
const MODEL: &str = "LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n";

/// The modules that apache2 needs are loaded too, so that EVENKEEL=/usr/sbin/apache2 can show that
/// the tests can fail.
const BASE: &str = "\
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
ServerRoot \"@ROOT@\"
PidFile \"@ROOT@/logs/httpd.pid\"
DefaultRuntimeDir \"@ROOT@/run\"
Listen 127.0.0.1:@PORT@
ServerName localhost
ErrorLog \"@ROOT@/logs/error.log\"
DocumentRoot \"@ROOT@/htdocs\"
Timeout 600
KeepAliveTimeout 600
MaxKeepAliveRequests 0
<Directory \"@ROOT@/htdocs\">
Require all granted
</Directory>
";

/// Serves every address over TLS.
const TLS: &str = "\
LoadModule socache_shmcb_module /usr/lib/apache2/modules/mod_socache_shmcb.so
LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so
SSLSessionCache shmcb:@ROOT@/logs/sessions(512000)
SSLEngine on
SSLCertificateFile @ROOT@/tls/localhost.pem
SSLCertificateKeyFile @ROOT@/tls/localhost.key
";

impl House {
    /// Creates the files `small.txt` (1 KiB) and `large.bin` (8 MiB) and starts the server, under a
    /// command such as `prlimit` if one is given.
    pub fn open(more: &str, over: &[&str]) -> Result<House, String> {
        let mut house = House::lay_out(more)?;
        house.start(over)?;
        Ok(house)
    }

    /// The same over TLS, with the certificate of `localhost` below `tls/` and the other files that
    /// [`make_certificates`] writes there.
    pub fn open_tls(more: &str) -> Result<House, String> {
        let mut house = House::lay_out_tls(more)?;
        house.start(&[])?;
        Ok(house)
    }

    /// The same without starting the server.
    pub fn lay_out_tls(more: &str) -> Result<House, String> {
        let house = House::lay_out(&format!("{TLS}{more}"))?;
        make_certificates(&house.path("tls"))?;
        Ok(house)
    }

    /// The same without starting the server.
    pub fn lay_out(more: &str) -> Result<House, String> {
        let told = |error: std::io::Error| format!("the scratch folder: {error}");
        let root = tempfile::Builder::new().prefix("faults-").tempdir().map_err(told)?;
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        open(root.path(), 0o755).map_err(told)?;
        fs::create_dir(root.path().join("htdocs")).map_err(told)?;
        fs::create_dir(root.path().join("logs")).map_err(told)?;
        fs::create_dir(root.path().join("run")).map_err(told)?;
        let old = SystemTime::now() - Duration::from_secs(3_600);
        for (name, text) in [("small.txt", vec![b's'; 1 << 10]), ("large.bin", vec![b'l'; 8 << 20])]
        {
            // The entity tag of a file that was changed in this second is weak, and longer.
            let path = root.path().join("htdocs").join(name);
            fs::write(&path, text).map_err(told)?;
            let file = fs::File::options().write(true).open(&path).map_err(told)?;
            file.set_modified(old).map_err(told)?;
        }
        let port = free_port()?;
        let model = if more.contains("LoadModule mpm_") { "" } else { MODEL };
        let configuration = [model, BASE, children(), more].concat();
        let configuration = configuration.replace("@PORT@", &port.to_string());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let house = House { server: None, address, root, configuration };
        house.configure("")?;
        Ok(house)
    }

    /// Writes the configuration of `lay_out`, followed by `more`. A directive of `lay_out` cannot
    /// be removed, only overridden. The server is not notified.
    pub fn configure(&self, more: &str) -> Result<(), String> {
        let text = format!("{}{more}", self.configuration);
        let text = text.replace("@ROOT@", &self.root.path().to_string_lossy());
        fs::write(self.path("httpd.conf"), text).map_err(|error| error.to_string())
    }

    /// Starts the server. The previous one must have ended.
    pub fn start(&mut self, over: &[&str]) -> Result<(), String> {
        self.start_as(over, "-DFOREGROUND")
    }

    /// Starts the server, or apache2 with the same configuration. The previous one must have ended.
    pub fn start_kind(&mut self, kind: Kind) -> Result<(), String> {
        self.server = Some(Server::start(kind, self.root.path(), self.address.port())?);
        Ok(())
    }

    /// The same with another word of httpd's command line.
    pub fn start_as(&mut self, over: &[&str], how: &str) -> Result<(), String> {
        let (root, port) = (self.root.path(), self.address.port());
        self.server = Some(Server::start_as(Kind::Evenkeel, root, port, over, how)?);
        Ok(())
    }

    /// Stops the server and waits for its end.
    pub fn stop(&mut self) -> Result<(), String> {
        self.server.take().map_or(Ok(()), Server::stop)
    }

    /// A path in the scratch folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The process id of the parent; 0 if there is none.
    pub fn parent(&self) -> u32 {
        self.server.as_ref().map_or(0, Server::pid)
    }

    /// The process id in the pid file; 0 if there is none.
    pub fn named_parent(&self) -> u32 {
        let text = fs::read_to_string(self.path("logs/httpd.pid")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// The children.
    pub fn children(&self) -> Vec<u32> {
        children_of(self.parent())
    }

    /// The contents of the error log.
    pub fn error_log(&self) -> String {
        let bytes = fs::read(self.path("logs/error.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends a signal to the parent.
    pub fn signal(&self, signal: Signal) {
        send(self.parent(), signal);
    }

    /// Has the program started anew (USR2), and waits until the new one serves. The new parent is
    /// [`House::named_parent`]; a [`Successor`] ends it.
    pub fn change_program(&self) -> Result<(), String> {
        let old = self.named_parent();
        send(old, Signal::USR2);
        self.await_successor_of(old)
    }

    /// Waits until a new program serves in place of the one with this process id.
    pub fn await_successor_of(&self, old: u32) -> Result<(), String> {
        wait_for("the new program", || ![0, old].contains(&self.named_parent()))?;
        let serves = format!("process {} serves now", self.named_parent());
        wait_for("the old one's end", || self.error_log().contains(&serves))
    }

    /// Makes the server begin a new generation, and waits until it reports that it has.
    pub fn reload(&self) -> Result<(), String> {
        let resumed = || self.error_log().matches("resuming normal operations").count();
        // A server accepts connections before it has written its pid file.
        wait_for("the end of the start", || resumed() > 0)?;
        let before = resumed();
        send(self.named_parent(), Signal::USR1);
        wait_for("the new generation", || resumed() > before)
    }
}

/// Ends the server that the pid file names, which is not a child of this process.
pub struct Successor<'a>(pub &'a House);

impl Drop for Successor<'_> {
    fn drop(&mut self) {
        let pid = self.0.named_parent();
        if pid != 0 && pid != self.0.parent() {
            send(pid, Signal::TERM);
            let _late = wait_for("its end", || self.0.named_parent() == 0);
        }
    }
}

/// The children of a process.
pub fn children_of(parent: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Sends a signal to a process, if it still exists.
pub fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Stops processes (SIGSTOP) and waits until they have stopped. Threads act on the signal one by
/// one, as each gets a core, and may continue to serve until then.
pub fn halt(processes: &[u32]) -> Result<(), String> {
    processes.iter().for_each(|process| send(*process, Signal::STOP));
    wait_for("a standstill", || processes.iter().all(|process| is_halted(*process)))
}

fn is_halted(process: u32) -> bool {
    is_every_thread(process, ") T ")
}

/// Waits until every thread of a process is waiting, so that it has completed its work.
pub fn await_rest(process: u32) -> Result<(), String> {
    wait_for("a rest", || is_every_thread(process, ") S "))
}

fn is_every_thread(process: u32, state: &str) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    let stat = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat"));
    threads.flatten().all(|thread| stat(thread).is_ok_and(|text| text.contains(state)))
}

/// Reads a response to its end: the status and the body.
#[must_use]
pub fn read(mut stream: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let _reset = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// Waits until `is_so` returns true. It is an error if that does not happen in time.
pub fn wait_for(what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{what} did not come"));
        }
        std::thread::sleep(Duration::from_millis(4));
    }
    Ok(())
}

/// The client ports of the connections that a process has open to a server on `port`. The process
/// should be stopped, because otherwise the result is outdated at once.
pub fn client_ports(pid: u32, port: u16) -> HashSet<u16> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let sockets: HashSet<String> = links
        .filter_map(|link| {
            let name = link.to_string_lossy().into_owned();
            Some(name.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port_of = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    let row = |line: &str| {
        // sl, local address, remote address, state, ..., and the inode as the tenth field
        // (proc_net_tcp).
        let words: Vec<&str> = line.split_whitespace().collect();
        let (local, remote) = (port_of(words.get(1)?)?, port_of(words.get(2)?)?);
        (local == port && sockets.contains(*words.get(9)?)).then_some(remote)
    };
    table.lines().filter_map(row).filter(|remote| *remote != 0).collect()
}

/// The user and system time of a process, in clock ticks.
pub fn cpu_ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    // utime and stime are fields 14 and 15, and `rest` begins with the third.
    rest.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}
