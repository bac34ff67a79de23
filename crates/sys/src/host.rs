//! The name and the address of this machine.

use std::ffi::{CStr, CString};
use std::net::{IpAddr, ToSocketAddrs};
use std::ptr;

/// The name of this machine with its domain; `None` if neither the kernel nor the resolver knows a
/// domain (Apache: ap_get_local_host).
#[must_use]
pub fn full_host_name() -> Option<String> {
    let name = host_name();
    if name.contains('.') {
        return Some(name);
    }
    canonical_name(&name).filter(|name| name.contains('.'))
}

/// The first address to which this machine's own name resolves.
#[must_use]
pub fn host_address() -> Option<IpAddr> {
    (host_name().as_str(), 0).to_socket_addrs().ok()?.next().map(|address| address.ip())
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn canonical_name(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: an all-zero addrinfo is valid as hints for getaddrinfo(3).
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_flags = libc::AI_CANONNAME;
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list = ptr::null_mut();
    // SAFETY: the name is a C string; hints and list are valid for the call.
    let error =
        unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &raw const hints, &raw mut list) };
    if error != 0 || list.is_null() {
        return None;
    }
    // SAFETY: the call succeeded, so the first entry is valid until freeaddrinfo.
    let canonical = unsafe { (*list).ai_canonname };
    let found = (!canonical.is_null()).then(|| {
        // SAFETY: the canonical name is a C string until the list is freed.
        unsafe { CStr::from_ptr(canonical) }.to_string_lossy().into_owned()
    });
    // SAFETY: the list came from getaddrinfo and is freed once.
    unsafe { libc::freeaddrinfo(list) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_name_has_a_domain() {
        assert!(!host_name().is_empty());
        assert!(full_host_name().is_none_or(|name| name.contains('.')));
    }
}
