//! mod_unique_id: an id for each request in the variable UNIQUE_ID. It differs from those of all
//! other requests of all servers.

pub use crate::{NoSettings as Directory, NoSettings as Global, NoSettings as Server};

use crate::{Active, Module};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use evenkeel_message::Request;
use evenkeel_sys::random;
use std::cell::RefCell;

/// mod_unique_id.
pub const MODULE: Module = Module {
    file: "mod_unique_id.c",
    identifier: "unique_id_module",
    active: Active::WhenNamed,
    page: "mod_unique_id",
    subject: "An id for each request, in the variable UNIQUE_ID.",
    remarks: &["The id has the form of Apache's: 27 characters of base64url."],
    directives: &[],
    provides: &[],
};

/// What the ids of a thread have in common, and how many it has made.
struct Series {
    root: [u8; 10],
    count: u64,
}

thread_local! {
    static SERIES: RefCell<Option<Series>> = const { RefCell::new(None) };
}

/// Gives a request its id (mod_unique_id.c: set_unique_id). After an internal redirect it keeps the
/// one that it had.
pub fn identify(request: &mut Request) {
    let env = &request.resource.env;
    let id = match env.value("REDIRECT_UNIQUE_ID").map(<[u8]>::to_vec) {
        Some(id) => id,
        None => new(request.time_us).into_bytes(),
    };
    request.resource.env.set("UNIQUE_ID", id);
}

/// The time in seconds, the random root of the thread, and a count.
fn new(time_us: u64) -> String {
    SERIES.with_borrow_mut(|series| {
        let series = series.get_or_insert_with(begin);
        series.count = series.count.wrapping_add(1);
        let seconds = u32::try_from(time_us / 1_000_000).unwrap_or(u32::MAX);
        let mut record = [0; 20];
        let count = series.count.to_be_bytes();
        let parts = seconds.to_be_bytes().into_iter().chain(series.root);
        let parts = parts.chain(count.into_iter().skip(2));
        record.iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
        URL_SAFE_NO_PAD.encode(record)
    })
}

fn begin() -> Series {
    let bytes = random::bytes::<12>().unwrap_or_else(|_| {
        // Without random bytes, the time and the process tell the series from others.
        let now = evenkeel_sys::clock::monotonic_us().to_ne_bytes();
        let parts = now.into_iter().chain(std::process::id().to_ne_bytes());
        let mut bytes = [0; 12];
        bytes.iter_mut().zip(parts).for_each(|(to, byte)| *to = byte);
        bytes
    });
    let [root @ .., high, low] = bytes;
    // A random beginning protects ids against a clock that goes back.
    Series { root, count: u64::from(u16::from_be_bytes([high, low])) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{Peer, RequestHead};
    use std::collections::HashSet;

    #[test]
    fn ids_differ_within_a_thread_and_between_threads() {
        let make = || (0..1000).map(|_| new(1_700_000_000_000_000)).collect::<Vec<_>>();
        let other = std::thread::spawn(make).join().unwrap();
        let all: HashSet<String> = make().into_iter().chain(other).collect();
        assert_eq!(all.len(), 2000);
        let is_url = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        assert!(all.iter().all(|id| id.len() == 27 && id.bytes().all(is_url)));
    }

    #[test]
    fn a_redirected_request_keeps_its_id() {
        let address = "192.0.2.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 1);
        request.resource.env.set("REDIRECT_UNIQUE_ID", "before");
        identify(&mut request);
        assert_eq!(request.resource.env.value("UNIQUE_ID"), Some(&b"before"[..]));
    }
}
