//! The program in which PHP runs, `evenkeel-php8.2`: builds it beside the tested binary, starts it
//! as the server does, and speaks FastCGI to its workers.

use crate::server::evenkeel;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, send, sendmsg, socketpair, sockopt,
};
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// The secret of the pools that tests start.
pub const SECRET: &[u8; 16] = b"0123456789abcdef";

/// The types of FastCGI records (FastCGI specification, section 8), and the one of reports.
pub const END_REQUEST: u8 = 3;
/// Standard output.
pub const STDOUT: u8 = 6;
/// Standard error.
pub const STDERR: u8 = 7;
/// The report of a worker.
pub const REPORT: u8 = 100;

/// Builds the program beside the tested binary (`make php`) and returns its path.
///
/// # Errors
/// What the build says, such as which package is missing.
pub fn build() -> Result<PathBuf, String> {
    let folder = evenkeel().parent().unwrap_or(Path::new(".")).to_owned();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/php");
    let run = Command::new(&script).arg(&folder).output();
    let run = run.map_err(|error| format!("{}: {error}", script.display()))?;
    match run.status.success() {
        true => Ok(folder.join("evenkeel-php8.2")),
        false => Err(String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned()),
    }
}

/// A pool's zygote, with the ends of the server.
#[derive(Debug)]
pub struct Zygote {
    child: Child,
    channel: OwnedFd,
    /// The address of the pool.
    pub socket: PathBuf,
}

/// A worker that was forked.
#[derive(Debug)]
pub struct Worker {
    /// Its process.
    pub pid: u32,
    page: OwnedFd,
}

impl Zygote {
    /// Starts the program with a listening socket in `folder`. Its error log is `folder/log`.
    ///
    /// # Errors
    /// What failed.
    pub fn start(program: &Path, folder: &Path, arguments: &[&str]) -> Result<Self, String> {
        let told = |error: std::io::Error| error.to_string();
        let socket = folder.join("pool.sock");
        let listener = UnixListener::bind(&socket).map_err(told)?;
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (channel, other) = pair.map_err(|error| error.to_string())?;
        sockopt::set_socket_timeout(&channel, sockopt::Timeout::Recv, Some(PATIENCE))
            .map_err(|error| error.to_string())?;
        let log = std::fs::File::create(folder.join("log")).map_err(told)?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::from(other))
            .stderr(Stdio::from(log))
            .spawn()
            .map_err(told)?;
        let zygote = Self { child, channel, socket };
        zygote.send(SECRET);
        Ok(zygote)
    }

    fn send(&self, message: &[u8]) {
        let _dead = send(&self.channel, message, SendFlags::NOSIGNAL);
    }

    /// The next message of the zygote: its kind, the seat, and its numbers. `None` after its end.
    #[must_use]
    pub fn hear(&self) -> Option<(char, u32, Vec<u64>)> {
        let mut bytes = [0; 256];
        let (count, _) = recv(&self.channel, &mut bytes, RecvFlags::empty()).ok()?;
        let bytes = bytes.get(..count)?;
        let seat = bytes.get(4..8)?.try_into().ok().map(u32::from_le_bytes)?;
        let numbers = bytes.get(8..)?.chunks_exact(8);
        let numbers = numbers.filter_map(|it| it.try_into().ok().map(u64::from_le_bytes));
        Some((char::from(*bytes.first()?), seat, numbers.collect()))
    }

    /// Sends a message with a descriptor.
    fn pass(&self, message: &[u8], descriptor: &OwnedFd) -> Result<(), String> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        rights.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&self.channel, &[IoSlice::new(message)], &mut rights, SendFlags::NOSIGNAL)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Gives the zygote the shared memory with a claim word for each worker that it forks from now
    /// on. The index of a worker's word is the number of its seat.
    ///
    /// # Errors
    /// What failed.
    pub fn share_claims(&self) -> Result<Claims, String> {
        let told = |error: rustix::io::Errno| error.to_string();
        let words = memfd_create("claims", MemfdFlags::CLOEXEC).map_err(told)?;
        ftruncate(&words, 64 * (1 + 4096)).map_err(told)?;
        self.pass(b"C\0\0\0\0\0\0\0", &words)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        self.pass(b"W\0\0\0\0\0\0\0", &eventfd(0, flags).map_err(told)?)?;
        Ok(Claims(words))
    }

    /// The process of the zygote.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has a worker forked.
    ///
    /// # Errors
    /// What the zygote says instead.
    pub fn fork(&self, seat: u32) -> Result<Worker, String> {
        let told = |error: rustix::io::Errno| error.to_string();
        let page = memfd_create("page", MemfdFlags::CLOEXEC).map_err(told)?;
        ftruncate(&page, 4096).map_err(told)?;
        let message = [b"F\0\0\0".as_slice(), &seat.to_le_bytes(), &seat.to_le_bytes()].concat();
        self.pass(&message, &page)?;
        match self.hear() {
            Some(('B', born, numbers)) if born == seat => {
                let pid = numbers.first().and_then(|pid| u32::try_from(*pid).ok());
                Ok(Worker { pid: pid.ok_or("no pid")?, page })
            }
            other => Err(format!("{other:?}")),
        }
    }

    /// Lets a worker end after its request.
    pub fn drain(&self, seat: u32) {
        self.send(&[b"D\0\0\0".as_slice(), &seat.to_le_bytes()].concat());
    }

    /// Sends a signal to the process group of a worker.
    pub fn kill(&self, seat: u32, signal: u32) {
        self.send(&[b"K\0\0\0".as_slice(), &seat.to_le_bytes(), &signal.to_le_bytes()].concat());
    }

    /// Closes the channel, as the end of the server does, and waits for the zygote.
    ///
    /// # Errors
    /// The zygote's status is not zero.
    pub fn end(self) -> Result<(), String> {
        let Self { mut child, channel, .. } = self;
        drop(channel);
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(status.to_string()) }
    }
}

/// The words by which workers are claimed (`crates/sys/src/claims.rs`). Nobody but the test claims,
/// and only workers that wait, so that it need not compare and swap.
#[derive(Debug)]
pub struct Claims(OwnedFd);

/// The states of a worker's word.
pub const FREE: u64 = 1;
/// A thread has claimed the worker.
pub const CLAIMED: u64 = 2;

impl Claims {
    /// The word of a place: process, number of the connection, state.
    #[must_use]
    pub fn word(&self, place: u32) -> [u64; 3] {
        let mut bytes = [0; 8];
        let _zero = pread(&self.0, &mut bytes, 64 * u64::from(1 + place));
        let word = u64::from_le_bytes(bytes);
        [word >> 32, word >> 2 & 0x3fff_ffff, word & 3]
    }

    /// Claims the worker that a link names, for the connection of that link.
    ///
    /// # Errors
    /// The worker of the link is not free.
    pub fn claim(&self, link: [u32; 3]) -> Result<(), String> {
        let [place, process, number] = link;
        match self.word(place) {
            [found, 0, FREE] if found == u64::from(process) => {}
            word => return Err(format!("{word:?}")),
        }
        let word = u64::from(process) << 32 | u64::from(number) << 2 | CLAIMED;
        let written = pwrite(&self.0, &word.to_le_bytes(), 64 * u64::from(1 + place));
        written.map(drop).map_err(|error| error.to_string())
    }
}

impl Worker {
    /// A number of the worker's page, at a byte.
    #[must_use]
    pub fn number(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        let _zero = pread(&self.page, &mut bytes, at);
        u64::from_le_bytes(bytes)
    }

    /// The script of the request in progress, or of the last one.
    #[must_use]
    pub fn script(&self) -> String {
        let mut bytes = [0; 448];
        let _zero = pread(&self.page, &mut bytes, 64);
        let length = usize::try_from(self.number(56) & 0xffff).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned()
    }
}

/// A record.
#[must_use]
pub fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

/// A request for a script.
#[derive(Clone, Debug)]
pub struct Ask {
    params: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
    keeps: bool,
}

impl Ask {
    /// A GET of this script with the right secret.
    #[must_use]
    pub fn of(script: &Path) -> Self {
        let ask = Self { params: Vec::new(), body: Vec::new(), keeps: false };
        ask.with("SCRIPT_FILENAME", script.as_os_str().as_encoded_bytes())
            .with("REQUEST_METHOD", b"GET")
            .with("EVENKEEL_SECRET", SECRET)
            .with("EVENKEEL_SELF", b"/script.php")
    }

    /// Sets a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: &[u8]) -> Self {
        self.params.retain(|(known, _)| known != name.as_bytes());
        self.params.push((name.into(), value.to_vec()));
        self
    }

    /// Lets the worker keep the connection, and asks for the report that says so.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.keeps = true;
        self.with("EVENKEEL_REPORT", b"1")
    }

    /// Sends a body.
    #[must_use]
    pub fn post(self, media_type: &str, body: &[u8]) -> Self {
        let length = body.len().to_string();
        let mut ask = self
            .with("REQUEST_METHOD", b"POST")
            .with("CONTENT_TYPE", media_type.as_bytes())
            .with("CONTENT_LENGTH", length.as_bytes());
        ask.body = body.to_vec();
        ask
    }

    /// The bytes of the request.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut params = Vec::new();
        for (name, value) in &self.params {
            for length in [name.len(), value.len()] {
                let long = u32::try_from(length).unwrap_or(u32::MAX) | 0x8000_0000;
                params.extend(long.to_be_bytes());
            }
            params.extend_from_slice(name);
            params.extend_from_slice(value);
        }
        let mut all = record(1, &[0, 1, u8::from(self.keeps), 0, 0, 0, 0, 0]);
        for (kind, content) in [(4, &params), (5, &self.body)] {
            content.chunks(60_000).for_each(|piece| all.extend(record(kind, piece)));
            all.extend(record(kind, b""));
        }
        all
    }

    /// Sends the request on a new connection.
    ///
    /// # Errors
    /// The system's.
    pub fn send(&self, socket: &Path) -> std::io::Result<UnixStream> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&self.encode())?;
        Ok(stream)
    }

    /// Sends the request and receives the whole response.
    ///
    /// # Errors
    /// The system's.
    pub fn exchange(&self, socket: &Path) -> std::io::Result<Reply> {
        Reply::read(&mut self.send(socket)?)
    }
}

/// The records of a response.
#[derive(Debug, Default)]
pub struct Reply {
    /// Standard output: the head and the body.
    pub output: Vec<u8>,
    /// The messages to standard error.
    pub messages: Vec<String>,
    /// The report.
    pub report: Vec<u8>,
    /// Whether the end of the request came.
    pub ended: bool,
}

impl Reply {
    /// Reads until the connection ends.
    ///
    /// # Errors
    /// The system's.
    pub fn read(stream: &mut UnixStream) -> std::io::Result<Self> {
        Self::read_while(stream, |_| true)
    }

    /// Reads until the request ends, or the connection.
    ///
    /// # Errors
    /// The system's.
    pub fn read_kept(stream: &mut UnixStream) -> std::io::Result<Self> {
        Self::read_while(stream, |reply| !reply.ended)
    }

    /// How the worker calls the connection that it has kept: its place, its process, and a number.
    #[must_use]
    pub fn link(&self) -> Option<[u32; 3]> {
        let (head, numbers) = self.report.get(32..)?.split_at_checked(5)?;
        let (numbers, _) = numbers.get(..12)?.as_chunks::<4>();
        let &[place, process, number] = numbers else { return None };
        let all = [place, process, number].map(u32::from_le_bytes);
        (head == b"k\0\0\0\x0c").then_some(all)
    }

    fn read_while(
        stream: &mut UnixStream,
        goes_on: impl Fn(&Self) -> bool,
    ) -> std::io::Result<Self> {
        let (mut reply, mut header) = (Self::default(), [0; 8]);
        while goes_on(&reply) && stream.read_exact(&mut header).is_ok() {
            let [_, kind, _, _, high, low, padding, _] = header;
            let mut content = vec![0; usize::from(u16::from_be_bytes([high, low]))];
            stream.read_exact(&mut content)?;
            std::io::copy(&mut stream.take(padding.into()), &mut std::io::sink())?;
            match kind {
                STDOUT => reply.output.extend(content),
                STDERR => reply.messages.push(String::from_utf8_lossy(&content).into_owned()),
                REPORT => reply.report = content,
                END_REQUEST => reply.ended = true,
                _ => {}
            }
        }
        Ok(reply)
    }

    /// The output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// The body as text.
    #[must_use]
    pub fn body(&self) -> String {
        self.text().split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }
}

/// Unpacks apache2's mod_php, without installing it, and returns the path of its module.
///
/// # Errors
/// The package cannot be downloaded.
pub fn oracle() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/oracle-php");
    let folder = evenkeel().with_file_name("oracle-php");
    let run = Command::new(&script).arg(&folder).output();
    let run = run.map_err(|error| format!("{}: {error}", script.display()))?;
    match run.status.success() {
        true => Ok(folder.join("usr/lib/apache2/modules/libphp8.2.so")),
        false => Err(String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned()),
    }
}
