//! Requests for many things in turn: creates the files or hosts, and a script for wrk that requests
//! them in an order without a pattern, which is the same in each run.

use crate::Result;
use evenkeel_lab::peers::{Site, host_name};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use tempfile::NamedTempFile;

/// The number of files in each folder.
const FOLDER: usize = 100;

/// The things that are requested in turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// This many files of 1 KiB, a hundred in each folder.
    Files(usize),
    /// The file of 1 KiB on this many name-based hosts, each with a folder of its own.
    Hosts(usize),
}

impl Spread {
    /// The number of things.
    pub fn count(self) -> usize {
        match self {
            Self::Files(count) | Self::Hosts(count) => count,
        }
    }

    /// The number of hosts of the server.
    pub fn hosts(self) -> usize {
        match self {
            Self::Files(_) => 0,
            Self::Hosts(count) => count,
        }
    }

    /// The name of a server with these requests.
    pub fn label(self, server: &str) -> String {
        match self {
            Self::Files(count) => format!("{server}, files {count}"),
            Self::Hosts(count) => format!("{server}, hosts {count}"),
        }
    }

    /// Creates the files.
    pub fn lay_out(self, site: &Site) -> Result<()> {
        let Self::Files(count) = self else { return site.add_hosts(self.count()) };
        let told = |error: std::io::Error| format!("the files: {error}");
        let root = site.path().join("htdocs");
        for number in 0..count {
            let file = root.join(file(number).trim_start_matches('/'));
            if let (true, Some(folder)) = (number % FOLDER == 0, file.parent()) {
                fs::create_dir_all(folder).map_err(told)?;
            }
            fs::copy(root.join("1k.png"), file).map_err(told)?;
        }
        Ok(())
    }

    /// A script for wrk that requests all of them, over and over, with these fields. It is deleted
    /// with its handle.
    pub fn script(self, address: SocketAddr, fields: &[String]) -> Result<NamedTempFile> {
        let told = |error: std::io::Error| format!("the script of wrk: {error}");
        let script = tempfile::Builder::new().suffix(".lua").tempfile().map_err(told)?;
        fs::write(script.path(), self.script_text(address, fields)).map_err(told)?;
        Ok(script)
    }

    fn script_text(self, address: SocketAddr, fields: &[String]) -> String {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let (before, names, after): (_, Vec<_>, _) = match self {
            Self::Files(count) => (
                "GET ",
                (0..count).map(file).collect(),
                format!(" HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n"),
            ),
            Self::Hosts(count) => (
                "GET /1k.png HTTP/1.1\r\nHost: ",
                (0..count).map(host_name).collect(),
                format!("\r\n{fields}\r\n"),
            ),
        };
        // A Lua function cannot have that many constants.
        let mut text = "local names, at = {}, 0\nlocal all = [[\n".to_owned();
        for name in shuffled(names) {
            let _ = writeln!(text, "{name}");
        }
        let _ = write!(
            text,
            "]]\nfor name in all:gmatch('%S+') do names[#names + 1] = name end\n\
             function request()\n    at = at % #names + 1\n    \
             return {before:?} .. names[at] .. {after:?}\nend\n"
        );
        text
    }
}

/// The path of a file.
fn file(number: usize) -> String {
    format!("/many/{:04}/{number:06}.png", number / FOLDER)
}

/// The same things in another, fixed order.
fn shuffled(mut names: Vec<String>) -> Vec<String> {
    let mut state = 15_u64;
    for last in (1..names.len()).rev() {
        // Knuth's MMIX generator, whose upper bits are the better ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = (state >> 33) as usize % (last + 1);
        names.swap(last, other);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_thing_is_asked_for_once_in_a_round() {
        let text = |spread: Spread| {
            let fields = ["Accept: \"*/*\"".to_owned()];
            spread.script_text(SocketAddr::from(([127, 0, 0, 1], 80)), &fields)
        };
        let files = text(Spread::Files(1000));
        let names: Vec<_> = files.lines().filter(|line| line.starts_with("/many/")).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 1000);
        assert!(!names.is_sorted() && files == text(Spread::Files(1000)));
        assert!(files.contains("\\r\\nHost: 127.0.0.1:80\\r\\nAccept: \\\"*/*\\\"\\r\\n\\r\\n\""));
        let hosts = text(Spread::Hosts(2));
        assert!(hosts.contains("\nh00001.test\n") && hosts.contains("Host: \" .. names[at]"));
    }
}
