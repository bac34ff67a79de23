//! Safe functions over the Linux kernel: processes, signals, shared memory, identities, sockets.
//! What comes in are plain values, what goes out are owned descriptors and `io::Result`. This is
//! the only room with `unsafe`; it knows no HTTP, no configuration and keeps no policy.
#![allow(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("Evenkeel runs on Linux only");

pub mod activation;
pub mod blocking_pool;
pub mod bounds;
pub mod bulkhead;
pub mod channel;
pub mod clock;
pub mod connect;
pub mod dispatch;
pub mod epoll;
pub mod host;
pub mod identity;
pub mod idle_table;
pub mod inotify;
pub mod kernel_text;
pub mod listen;
pub mod memory;
pub mod open;
pub mod pipe;
pub mod process;
pub mod resolve;
pub mod signal;
pub mod socket;
pub mod waker;
pub mod watch;
