//! The system's resolver: the name of an address, and the addresses of a name. These calls block
//! for as long as resolv.conf(5) allows, and never cache.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// The longest name with its terminator (NI_MAXHOST).
const NAME_MOST: usize = 1025;

/// The name of an address; `None` if it has none. Errors are getnameinfo(3)'s.
pub fn name_of(address: IpAddr) -> io::Result<Option<String>> {
    let mut name = [0_u8; NAME_MOST];
    let code = match address {
        IpAddr::V4(address) => {
            let socket = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: 0,
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
                sin_zero: [0; 8],
            };
            ask(&socket, &mut name)
        }
        IpAddr::V6(address) => {
            let socket = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.octets() },
                sin6_scope_id: 0,
            };
            ask(&socket, &mut name)
        }
    };
    match code {
        0 => {
            let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
            Ok(Some(name.to_string_lossy().into_owned()))
        }
        libc::EAI_NONAME => Ok(None),
        libc::EAI_SYSTEM => Err(io::Error::last_os_error()),
        code => Err(io::Error::other(format!("getnameinfo gave {code}"))),
    }
}

/// Calls getnameinfo(3) with one of the two types of socket address.
fn ask<S>(socket: &S, name: &mut [u8; NAME_MOST]) -> libc::c_int {
    // SAFETY: `socket` is a complete sockaddr_in or sockaddr_in6 of the given length, `name` may be
    // written for its length, and no service is requested.
    unsafe {
        libc::getnameinfo(
            std::ptr::from_ref(socket).cast(),
            size_of::<S>() as libc::socklen_t,
            name.as_mut_ptr().cast(),
            NAME_MOST as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    }
}

/// The addresses of a name, without duplicates. Errors are getaddrinfo(3)'s, including that of an
/// unknown name.
pub fn addresses_of(name: &str) -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for address in (name, 0).to_socket_addrs()?.map(|found: SocketAddr| found.ip().to_canonical()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_has_a_name_that_leads_back() {
        let loopback: IpAddr = [127, 0, 0, 1].into();
        let name = name_of(loopback).unwrap().unwrap();
        assert!(addresses_of(&name).unwrap().contains(&loopback), "{name}");
    }

    #[test]
    fn an_address_is_its_own_name() {
        let address: IpAddr = [192, 0, 2, 7].into();
        assert_eq!(addresses_of("192.0.2.7").unwrap(), [address]);
    }
}
