//! Whether a load can go, and may go, where it is to go. Addresses come in, with what the one who
//! typed them says; they go out with one in front that takes connections, or it is told why there
//! will be no load. Each is tried with one connection, on which nothing is asked.

use super::fetch::begin;
use super::tls::Trust;
use evenkeel_sys::connect::Remote;
use evenkeel_sys::{clock, process};
use std::io;
use std::time::Duration;

/// A server that does not take a connection within this time will not take a load.
const MOST_TRY: Duration = Duration::from_secs(10);
/// Descriptors that a process needs beside its clients' sockets.
const OTHER_DESCRIPTORS: u64 = 64;

/// A load is put on this machine, or on a server that the one who typed says is theirs.
///
/// # Errors
/// How to say so.
pub fn check_owner(host: &str, is_here: bool, is_my_server: bool) -> Result<(), String> {
    if is_here || is_my_server {
        return Ok(());
    }
    Err(format!(
        "{host}: not on this machine; where the server is yours, or its owner agrees, say so with \
         --yes-this-is-my-server"
    ))
}

/// Raises the limit of open files as far as it goes; `beside` are those that are needed beside the
/// clients' sockets and the usual ones.
///
/// # Errors
/// That it is too low for so many clients.
pub fn check_descriptors(clients: u32, beside: u64) -> Result<(), String> {
    let allowed = process::raise_descriptor_limit();
    if u64::from(clients) + beside + OTHER_DESCRIPTORS <= allowed {
        return Ok(());
    }
    Err(format!(
        "{clients} clients need as many open files, and the system allows {allowed} (ulimit -n)"
    ))
}

/// Tries the addresses in turn, for `most` each and no longer than ten seconds, and puts the first
/// that takes a connection, and a handshake where TLS is spoken, in front.
///
/// # Errors
/// What each of them said.
pub fn put_reachable_first(
    remotes: &mut [Remote],
    trust: Option<&Trust>,
    most: Duration,
) -> Result<(), String> {
    let most = most.min(MOST_TRY);
    let mut told = Vec::new();
    for (index, remote) in remotes.iter().enumerate() {
        let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        match begin(remote, trust, clock::monotonic_ns().saturating_add(most_ns)) {
            Ok(_) => {
                remotes.swap(0, index);
                return Ok(());
            }
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::TimedOut => {
                        format!("no connection within {} s", most.as_secs_f64())
                    }
                    _ => error.to_string(),
                };
                let hint = if why.contains("certificate") { "; --insecure takes any" } else { "" };
                told.push(format!("{}: {why}{hint}", shown(remote)));
            }
        }
    }
    Err(told.join("; "))
}

fn shown(remote: &Remote) -> String {
    match remote {
        Remote::Internet(address) => address.to_string(),
        Remote::Unix(path) => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_first_address_that_takes_connections_comes_first() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = Remote::Internet(listener.local_addr().unwrap());
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let nowhere = Remote::Unix("/nowhere/socket".into());
        let second = Duration::from_secs(1);
        let mut remotes = vec![nowhere.clone(), Remote::Internet(gone), here.clone()];
        put_reachable_first(&mut remotes, None, second).unwrap();
        assert_eq!(remotes, [here, Remote::Internet(gone), nowhere.clone()]);
        let told = put_reachable_first(&mut [nowhere, Remote::Internet(gone)], None, second);
        let wanted = format!(
            "/nowhere/socket: No such file or directory (os error 2); {gone}: Connection refused \
             (os error 111)"
        );
        assert_eq!(told, Err(wanted));
    }

    #[test]
    fn a_load_on_another_machine_must_be_meant() {
        let told = check_owner("example.org", false, false).unwrap_err();
        assert!(told.starts_with("example.org: ") && told.ends_with("--yes-this-is-my-server"));
        assert_eq!(check_owner("example.org", false, true), Ok(()));
        assert_eq!(check_owner("localhost", true, false), Ok(()));
        assert!(check_descriptors(u32::MAX, u64::from(u32::MAX)).unwrap_err().contains("ulimit"));
    }
}
