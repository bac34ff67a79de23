//! Checks whether a load can and may be sent to its target. Each address is tried with one
//! connection, without a request; the first one that accepts a connection is put in front.

use super::fetch::begin;
use super::tls::Trust;
use evenkeel_sys::connect::Remote;
use evenkeel_sys::{clock, process};
use std::io;
use std::time::Duration;

/// A server that does not accept a connection within this time cannot take a load.
const MOST_TRY: Duration = Duration::from_secs(10);
/// The descriptors that a process needs in addition to its clients' sockets.
const OTHER_DESCRIPTORS: u64 = 64;

/// Checks that the target is on this machine or that the user says that the server is theirs.
///
/// # Errors
///
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

/// Raises the limit of open files as far as possible. `beside` is the number of descriptors needed
/// in addition to the clients' sockets and the usual ones.
///
/// # Errors
///
/// The limit is too low for that many clients.
pub fn check_descriptors(clients: u32, beside: u64) -> Result<(), String> {
    let allowed = process::raise_descriptor_limit();
    if u64::from(clients) + beside + OTHER_DESCRIPTORS <= allowed {
        return Ok(());
    }
    Err(format!(
        "{clients} clients need as many open files, and the system allows {allowed} (ulimit -n)"
    ))
}

/// Tries the addresses in turn, each for `most` and at most ten seconds. Puts the first one in
/// front that accepts a connection, and a handshake if TLS is used.
///
/// # Errors
///
/// The error of each address.
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
