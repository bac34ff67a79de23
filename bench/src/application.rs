//! A FastCGI application that answers every request at once with a short page, as php-fpm would do
//! for a script that only prints. It serves one connection at a time and closes it after the
//! response, unless the request asks to keep it. It counts nothing: it exists so that the
//! instructions of the server for such a request can be counted.

use evenkeel_lab::peers::Site;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

/// The path of the page that the application answers.
pub const PAGE: &str = "/application/page.php";

/// The types of records (FastCGI specification, section 8).
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
/// The flag of a BEGIN_REQUEST that keeps the connection.
const KEEP_CONN: u8 = 1;
const HEADER_LENGTH: usize = 8;

/// A running application. It ends when it is dropped.
#[derive(Debug)]
pub struct Application {
    socket: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Application {
    /// Starts the application on a socket in the folder of `site`, and writes the script that the
    /// page stands for.
    ///
    /// # Errors
    ///
    /// Those of the script, of the socket and of the thread.
    pub fn start(site: &Site) -> io::Result<Self> {
        let script = site.path().join("htdocs").join(PAGE.trim_start_matches('/'));
        script.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(script, "<?php echo 1;\n")?;
        let socket = site.path().join("application.sock");
        let listener = UnixListener::bind(&socket)?;
        // The server connects as the user that it has become.
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let serve = move || {
            for client in listener.incoming() {
                if ends.load(Relaxed) {
                    return;
                }
                // A server that goes away in the middle of a request is the end of that request.
                let _ended = client.and_then(answer_all);
            }
        };
        let thread = thread::Builder::new().name("application".to_owned()).spawn(serve)?;
        Ok(Self { socket, is_over, thread: Some(thread) })
    }

    /// The lines of configuration that send [`PAGE`] to the application.
    pub fn configuration(&self) -> String {
        format!(
            "LoadModule proxy_module modules/mod_proxy.so\n\
             LoadModule proxy_fcgi_module modules/mod_proxy_fcgi.so\n\
             <Location /application>\nSetHandler \"proxy:unix:{}|fcgi://localhost\"\n</Location>\n",
            self.socket.display()
        )
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // Wakes the thread.
        let _woken = UnixStream::connect(&self.socket);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Answers the requests of a connection.
fn answer_all(mut server: UnixStream) -> io::Result<()> {
    let page = [&b"Content-type: application/octet-stream\r\n\r\n"[..], &[b'x'; 1024]].concat();
    loop {
        let mut keeps = false;
        loop {
            let mut header = [0; HEADER_LENGTH];
            server.read_exact(&mut header)?;
            let [_, kind, _, _, high, low, padding, _] = header;
            let length = usize::from(u16::from_be_bytes([high, low]));
            let mut content = vec![0; length + usize::from(padding)];
            server.read_exact(&mut content)?;
            match kind {
                BEGIN_REQUEST => keeps = content.get(2).is_some_and(|flags| flags & KEEP_CONN != 0),
                STDIN if length == 0 => break,
                _ => {}
            }
        }
        let mut answer = record(STDOUT, &page);
        answer.extend(record(STDOUT, b""));
        answer.extend(record(END_REQUEST, &[0; 8]));
        server.write_all(&answer)?;
        if !keeps {
            return Ok(());
        }
    }
}

/// A record of the first request of a connection.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}
