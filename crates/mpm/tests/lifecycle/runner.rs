//! Starts the echo server as a process of its own and waits for what it says. Every wait ends
//! with the event or, as a failure, after two minutes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use evenkeel_sys::process::{Pid, kill};
use evenkeel_sys::signal::Signal;

pub const PATIENCE: Duration = Duration::from_secs(120);

/// A folder of its own for one server, removed at the end.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("evenkeel-lifecycle-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub fn configuration(&self) -> PathBuf {
        self.path.join("echo.conf")
    }

    pub fn pid_file(&self) -> PathBuf {
        self.path.join("echo.pid")
    }

    /// A named pipe, whose readers wait until somebody opens it to write.
    pub fn pipe(&self) -> PathBuf {
        let pipe = self.path.join("echo.pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        pipe
    }

    /// Writes the configuration as a whole.
    pub fn configure(&self, words: &str) {
        let fresh = self.path.join("fresh");
        fs::write(&fresh, words).unwrap();
        fs::rename(fresh, self.configuration()).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A server that runs.
pub struct Running {
    process: Child,
    lines: Receiver<String>,
    pub seen: Vec<String>,
}

/// One child, as its own line tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serving {
    pub pid: i32,
    pub generation: u32,
    pub address: SocketAddr,
}

impl Running {
    pub fn start(folder: &Folder, mode: &str) -> Self {
        Self::run(Command::new(std::env::current_exe().unwrap()), folder, mode)
    }

    /// As `start`, as an ordinary user, who need not be able to reach where the tests were built.
    pub fn start_as(folder: &Folder, uid: u32, mode: &str) -> Self {
        let program = folder.path.join("program");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        std::os::unix::fs::chown(&folder.path, Some(uid), Some(uid)).unwrap();
        let mut command = Command::new(program);
        command.uid(uid).gid(uid);
        Self::run(command, folder, mode)
    }

    fn run(mut command: Command, folder: &Folder, mode: &str) -> Self {
        command.stdin(Stdio::null());
        Self::start_as_is(command, folder, mode)
    }

    /// As `start`, by a command of the caller's.
    pub fn start_as_is(mut command: Command, folder: &Folder, mode: &str) -> Self {
        let mut process = command
            .args(["--echo", folder.configuration().to_str().unwrap(), mode])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let text = BufReader::new(process.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in text.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, lines, seen: Vec::new() }
    }

    /// A server in the foreground whose children all serve.
    pub fn serving(folder: &Folder, words: &str) -> (Self, Serving) {
        folder.configure(words);
        let mut server = Self::start(folder, "foreground");
        let serving = server.await_serving();
        server.await_line("AH00094: Command line: 'echo -x'");
        (server, serving)
    }

    pub fn await_serving(&mut self) -> Serving {
        let line = self.await_line("serving ");
        let mut words = line.split(' ').skip(1);
        let mut next = || words.next().unwrap();
        Serving {
            pid: next().parse().unwrap(),
            generation: next().parse().unwrap(),
            address: next().parse().unwrap(),
        }
    }

    /// The next line that contains the text.
    pub fn await_line(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(_) => panic!("no line with {text:?} after {:#?}", self.seen),
            }
        }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for the end; the lines that are left go to `seen`.
    pub fn await_end(&mut self) -> ExitStatus {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return self.process.wait().unwrap(),
                Err(RecvTimeoutError::Timeout) => panic!("no end after {:#?}", self.seen),
            }
        }
    }

    pub fn stop(mut self) {
        self.signal(Signal::Terminate);
        let status = self.await_end();
        assert!(status.success(), "{status} after {:#?}", self.seen);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind; orphans end by themselves.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A client's connection.
pub struct Client {
    connection: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let connection = TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { connection: BufReader::new(connection) }
    }

    pub fn say(&mut self, line: &str) {
        self.connection.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next line; empty where the server has closed.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        // A reset reads as the end: it is what a killed child's clients see.
        let _ = self.connection.read_line(&mut line);
        line.trim_end().to_owned()
    }

    /// Asks until the server closes. At least one answer must come, and each from `pid`: a
    /// command and a request may reach a child in either order.
    pub fn ask_until_closed(&mut self, pid: i32) {
        let mut answers = 0;
        loop {
            // The connection may be closed by now.
            let _ = self.connection.get_mut().write_all(b"hello\n");
            let answer = self.hear();
            if answer.is_empty() {
                assert!(answers > 0, "an open connection gets one more answer");
                return;
            }
            assert!(answer.starts_with(&format!("{pid} ")), "{answer}");
            answers += 1;
        }
    }

    /// The pid and generation that answer.
    pub fn ask(&mut self) -> (i32, u32) {
        self.say("hello");
        let answer = self.hear();
        let (pid, generation) = answer.split_once(' ').expect("an answer");
        (pid.parse().unwrap(), generation.parse().unwrap())
    }
}
