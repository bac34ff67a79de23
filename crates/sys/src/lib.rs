//! Safe functions over the Linux kernel: processes, signals, shared memory, identities, sockets,
//! files. They take plain values and return owned descriptors and `io::Result`. This is the only
//! crate with `unsafe`, and it has no policy.
#![allow(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("Evenkeel runs on Linux only");

pub mod activation;
pub mod application;
pub mod blocking_pool;
pub mod bulkhead;
pub mod channel;
pub mod claims;
pub mod clock;
pub mod connect;
pub mod crypt;
pub mod dispatch;
pub mod epoll;
pub mod host;
pub mod identity;
pub mod idle_table;
pub mod inotify;
pub mod listen;
pub mod memory;
pub mod open;
pub mod peers;
pub mod pipe;
pub mod process;
pub mod procfs;
pub mod random;
pub mod resolve;
pub mod resources;
pub mod secret;
pub mod service;
pub mod signal;
pub mod socket;
pub mod spawn;
pub mod waker;
pub mod watch;
