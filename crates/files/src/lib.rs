//! From a path to what is served: a cache of metadata, contents, absent files and folders that is
//! never older than the request. A path comes in; what stands there, the links on the way to it,
//! its bytes and the .htaccess files above it go out. It never decides what a client may see.
//!
//! Each serving thread has one [`Files`], so that nothing is locked. A change of a file reaches
//! the thread as a signal that sets a flag (see `watches`); where the kernel cannot tell of
//! changes, and for file systems that others change behind its back, every request asks lstat.

mod contents;
mod files;
mod folder;
mod found;
mod resolve;
mod ring;
mod state;
#[cfg(test)]
mod tests;
mod walk;
mod watches;

pub use files::{Files, Limits, Policy};
pub use folder::{AccessFile, Folder};
pub use found::{Contents, Found, Kind, Link, Looked, SymlinkRule};
