//! The server under test: an echo service whose configuration is a file of words. A line that a
//! client sends is answered with the child's pid and the number of its configuration.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use evenkeel_message::Notice;
use evenkeel_mpm::{
    Child, Command, Configured, Listen, Loaded, Mode, Model, Server, Settings, Start,
};
use evenkeel_sys::channel::wait_readable;
use evenkeel_sys::identity;
use evenkeel_sys::process::{End, Pid};
use std::os::fd::{AsFd, OwnedFd};

struct Echo {
    configuration: PathBuf,
}

/// What the file says about the children.
struct Site {
    words: Vec<String>,
}

pub fn main(configuration: &str, mode: &str) -> i32 {
    let mut echo = Echo { configuration: configuration.into() };
    let mode = match mode {
        "detached" => Mode::Detached,
        "alone" => Mode::OneProcess,
        _ => Mode::Foreground,
    };
    let again = std::env::args().skip(1).collect();
    let start = Start { mode, command_line: "echo -x".into(), program: "echo".into(), again };
    match evenkeel_mpm::run(&mut echo, &start) {
        Ok(status) => status,
        Err(text) => {
            eprintln!("{text}");
            1
        }
    }
}

impl Site {
    fn says(&self, word: &str) -> bool {
        self.words.iter().any(|own| own == word)
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }
}

impl Server for Echo {
    type Site = Site;

    fn load(&mut self) -> Result<Loaded<Site>, String> {
        let text = fs::read_to_string(&self.configuration).map_err(|error| error.to_string())?;
        let site = Site { words: text.split_whitespace().map(str::to_owned).collect() };
        if site.says("broken") {
            return Err("AH00526: Syntax error on line 1 of echo.conf:\nbroken".into());
        }
        assert!(!site.says("panic"), "a panic while reading");
        if site.says("abort") {
            std::process::abort();
        }
        let number = |key: &str| site.value(key).map(|value| value.parse::<u16>().unwrap());
        let listen = Listen {
            address: Some(IpAddr::from([127, 0, 0, 1])),
            port: number("port").unwrap_or(0),
            protocol: "echo".into(),
            defer: None,
        };
        let children = i64::from(number("children").unwrap_or(2));
        let user = site.value("user").map(|name| identity::user_named(name).unwrap().unwrap());
        let settings = Settings {
            listen: vec![listen],
            pid_file: Some(self.configuration.with_extension("pid")),
            configured: Configured {
                model: if site.says("worker") { Model::Worker } else { Model::Event },
                start_servers: Some(children),
                // No more than that, however many the law of the pool would like.
                max_request_workers: Some(children * 25),
                server_limit: number("servers").map(i64::from),
                listen_buckets: number("buckets").map(i64::from),
                ..Configured::default()
            },
            identity: user.map(|user| identity::Identity {
                uid: user.uid,
                gid: user.gid,
                groups: identity::groups_of(&user.name, user.gid).unwrap(),
            }),
            graceful_shutdown_timeout: number("bound").map(u64::from).map(Duration::from_secs),
            log_buffers: usize::from(number("logs").unwrap_or(1)),
            server_text: "Echo/1.0".into(),
            ..Settings::default()
        };
        Ok(Loaded { site, settings })
    }

    fn activate(&mut self, site: &Rc<Site>) -> Result<(), String> {
        if let Some(pipe) = site.value("unopenable-after") {
            // Until whoever writes to that pipe closes it.
            let _ = fs::read(pipe);
        }
        if site.says("unopenable") {
            Err("AH00091: could not open error log".into())
        } else {
            Ok(())
        }
    }

    fn serve(&self, site: &Site, child: Child) -> i32 {
        let passed = ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET"];
        assert!(passed.iter().all(|name| std::env::var_os(name).is_none()), "the parent's alone");
        if site.says("fatal") {
            return 15;
        }
        if site.says("dies") {
            return 3;
        }
        // One child serves; the others die as soon as somebody writes to that pipe.
        if let Some(pipe) = site.value("one-serves-until")
            && fs::File::create_new(format!("{pipe}.taken")).is_err()
        {
            let _ = fs::File::open(pipe);
            return 3;
        }
        // Slow to start: until somebody writes to that pipe.
        if let Some(pipe) = site.value("starts-after") {
            say(&format!("starting {}", child.generation));
            let _ = fs::File::open(pipe);
        }
        serve(child, site)
    }

    fn log(&self, notice: &Notice) {
        let number = notice.number.map_or(String::new(), |number| format!("AH{number:05}: "));
        say(&format!("[{}] {number}{}", notice.level.word(), notice.text));
    }

    fn salvage(&self, site: &Site, buffer: usize, lines: &[u8]) -> usize {
        if site.says("full-disk") {
            return lines.len();
        }
        say(&format!("salvaged {buffer}: {}", String::from_utf8_lossy(lines).trim_end()));
        0
    }

    fn reaped(&mut self, _pid: Pid, _end: End) {}
}

/// One line on standard error, in one write.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

struct Shared {
    answer: String,
    connections: AtomicUsize,
    working: AtomicUsize,
    last_answer: AtomicBool,
    changed: OwnedFd,
}

/// A hasty child accepts nothing more once it is told to drain, a lazy one nothing until it is told
/// to hurry.
fn serve(child: Child, site: &Site) -> i32 {
    let (hasty, lazy) = (site.says("hasty"), site.says("lazy"));
    let Child { mut listeners, control, buffers, generation, .. } = child;
    let pid = std::process::id();
    let address = listeners[0].address;
    let mut logs: Vec<_> = (0..buffers.count()).filter_map(|at| buffers.writer(at)).collect();
    logs.iter_mut().for_each(|log| _ = log.append(format!("a line of {pid}\n").as_bytes()));
    // A byte from each connection that ends wakes the loop.
    let (wakes, changed) = std::io::pipe().unwrap();
    let shared = Arc::new(Shared {
        answer: format!("{pid} {generation}\n"),
        connections: AtomicUsize::new(0),
        working: AtomicUsize::new(0),
        last_answer: AtomicBool::new(false),
        changed: changed.into(),
    });
    say(&format!("serving {pid} {generation} {address}"));
    control.ready();
    let mut exiting = false;
    let mut orphaned = false;
    loop {
        let idle = if exiting { &shared.working } else { &shared.connections };
        if listeners.is_empty() && idle.load(Ordering::SeqCst) == 0 {
            logs.iter_mut().for_each(|log| log.clear());
            return 0;
        }
        let mut descriptors = vec![wakes.as_fd()];
        descriptors.extend((!orphaned).then(|| control.as_fd()));
        let watched = listeners.iter().filter(|_| !lazy);
        descriptors.extend(watched.map(|listener| listener.socket.as_fd()));
        wait_readable(&descriptors, None).unwrap();
        drop(descriptors);
        let mut readable = wait_readable(&[wakes.as_fd()], Some(Duration::ZERO)).unwrap();
        if readable.remove(0) {
            let _ = std::io::Read::read(&mut &wakes, &mut [0; 64]);
        }
        let mut accepts = !lazy;
        while let Some(command) = control.next() {
            accepts |= command == Command::MakeRoom;
            exiting |= matches!(command, Command::Exit | Command::ExitLast);
            orphaned |= command == Command::Orphaned;
            if matches!(
                command,
                Command::Drain
                    | Command::Exit
                    | Command::DrainLast
                    | Command::ExitLast
                    | Command::Orphaned
            ) {
                if !hasty {
                    accept_all(&listeners, &shared);
                }
                listeners.clear();
                shared.last_answer.store(true, Ordering::SeqCst);
            }
        }
        if accepts {
            accept_all(&listeners, &shared);
        }
    }
}

fn accept_all(listeners: &[evenkeel_mpm::Listener], shared: &Arc<Shared>) {
    for listener in listeners {
        let socket = TcpListener::from(listener.socket.try_clone().unwrap());
        while let Ok((connection, _)) = socket.accept() {
            connection.set_nonblocking(false).unwrap();
            shared.connections.fetch_add(1, Ordering::SeqCst);
            let shared = Arc::clone(shared);
            std::thread::spawn(move || {
                let _ = converse(connection, &shared);
                shared.connections.fetch_sub(1, Ordering::SeqCst);
                wake(&shared);
            });
        }
    }
}

fn wake(shared: &Shared) {
    let pipe = fs::File::from(shared.changed.try_clone().unwrap());
    let _ = (&pipe).write_all(b"x");
}

fn converse(connection: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut lines = BufReader::new(connection.try_clone()?);
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        shared.working.fetch_add(1, Ordering::SeqCst);
        match line.trim_end() {
            "abort" => std::process::abort(),
            // A request in progress: it ends when its client says so with one more line.
            "wait" => {
                (&connection).write_all(b"waiting\n")?;
                lines.read_line(&mut line)?;
            }
            _ => {}
        }
        // Decided before the answer, as `Connection: close` would have to be.
        let is_last = shared.last_answer.load(Ordering::SeqCst);
        let answered = (&connection).write_all(shared.answer.as_bytes());
        shared.working.fetch_sub(1, Ordering::SeqCst);
        wake(shared);
        answered?;
        if is_last {
            break;
        }
        line.clear();
    }
    Ok(())
}
