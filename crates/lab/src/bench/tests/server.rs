//! Small servers for the tests of bench: over TCP, Unix sockets and TLS, with a thread for each
//! connection. They record what they receive and answer every request in the same way.

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A server, and each request that it has received, head and body.
pub(super) struct Server {
    scheme: &'static str,
    address: Option<SocketAddr>,
    heard: Heard,
}

type Heard = Arc<Mutex<Vec<String>>>;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const LAST_ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";

impl Server {
    /// Starts on a free port of 127.0.0.1.
    pub(super) fn start() -> Self {
        Self::start_at("127.0.0.1:0")
    }

    /// Starts on another address.
    pub(super) fn start_at(address: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let (address, heard) = (listener.local_addr().ok(), Heard::default());
        let kept = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let heard = Arc::clone(&kept);
                std::thread::spawn(move || talk(stream, &heard));
            }
        });
        Self { scheme: "http", address, heard }
    }

    /// Starts with TLS and a self-signed certificate.
    pub(super) fn start_tls() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let (address, heard) = (listener.local_addr().ok(), Heard::default());
        let (kept, config) = (Arc::clone(&heard), Arc::new(config));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (heard, config) = (Arc::clone(&kept), Arc::clone(&config));
                let session = ServerConnection::new(config).unwrap();
                std::thread::spawn(move || talk(StreamOwned::new(session, stream), &heard));
            }
        });
        Self { scheme: "https", address, heard }
    }

    /// Starts on a Unix socket.
    pub(super) fn start_unix(path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let heard = Heard::default();
        let kept = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let heard = Arc::clone(&kept);
                std::thread::spawn(move || talk(stream, &heard));
            }
        });
        Self { scheme: "http", address: None, heard }
    }

    /// An address where nothing listens.
    pub(super) fn refused() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().ok();
        Self { scheme: "http", address, heard: Heard::default() }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address.unwrap()
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address())
    }

    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

fn talk(stream: impl Read + Write, heard: &Mutex<Vec<String>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            // The end of the connection, for whatever reason.
            if !matches!(stream.read_line(&mut text), Ok(1..)) {
                return;
            }
        }
        let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let last = text.contains("Connection: close");
        heard.lock().unwrap().push(text + std::str::from_utf8(&body).unwrap());
        let sent = stream.get_mut().write_all(if last { LAST_ANSWER } else { ANSWER });
        if sent.and_then(|()| stream.get_mut().flush()).is_err() || last {
            return;
        }
    }
}
