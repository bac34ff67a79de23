//! Sends lines to the system's log as datagrams to /dev/log (RFC 3164, in the form of the C
//! library's syslog). If nothing listens there, the line is lost, as with the C library.

use evenkeel_message::Level;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

/// The facilities that ErrorLog accepts (server/log.c), with their codes of RFC 3164.
const FACILITIES: [(&str, u8); 19] = [
    ("auth", 4),
    ("authpriv", 10),
    ("cron", 9),
    ("daemon", 3),
    ("ftp", 11),
    ("kern", 0),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
    ("lpr", 6),
    ("mail", 2),
    ("news", 7),
    ("syslog", 5),
    ("user", 1),
];

/// A connection to the system's log.
pub(crate) struct Syslog {
    facility: u8,
    tag: String,
    socket: Option<UnixDatagram>,
}

impl Syslog {
    /// Opens it; `None` if the facility does not exist.
    pub(crate) fn open(facility: Option<&str>, tag: &str) -> Option<Syslog> {
        let wanted = facility.unwrap_or("local7");
        let (_, facility) =
            FACILITIES.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
        let socket = UnixDatagram::unbound().ok().filter(|socket| {
            socket.set_nonblocking(true).is_ok() && socket.connect("/dev/log").is_ok()
        });
        Some(Syslog { facility: *facility, tag: tag.to_owned(), socket })
    }

    /// The descriptor of the connection; none without one.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Sends one line without its end.
    pub(crate) fn send(&self, level: Level, now_us: u64, line: &[u8]) {
        if let Some(socket) = &self.socket {
            // If the system's log is absent or overrun the line is lost, and it can be reported
            // nowhere.
            let _sent = socket.send(&self.datagram(level, now_us, line));
        }
    }

    fn datagram(&self, level: Level, now_us: u64, line: &[u8]) -> Vec<u8> {
        let severity = (level as u8).min(7);
        let mut out = Vec::with_capacity(line.len() + 64);
        // Writing to memory cannot fail.
        let _written = write!(out, "<{}>", self.facility * 8 + severity);
        crate::clock::write_syslog_time(now_us, &mut out);
        let _written = write!(out, " {}[{}]: ", self.tag, std::process::id());
        out.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_carry_facility_severity_and_tag() {
        let syslog = Syslog::open(Some("LOCAL1"), "web").unwrap();
        let text =
            |level| String::from_utf8(syslog.datagram(level, 971_211_336_000_000, b"x\n")).unwrap();
        let error = text(Level::Error);
        assert!(error.starts_with("<139>Oct 1"), "{error}");
        assert!(error.ends_with(&format!(" web[{}]: x", std::process::id())), "{error}");
        assert!(text(Level::Trace8).starts_with("<143>"));
        assert!(Syslog::open(Some("nofac"), "web").is_none());
        assert!(Syslog::open(None, "web").is_some());
    }
}
