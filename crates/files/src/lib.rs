//! Finds what a path stands for: a cache of metadata, contents, absent files and folders that is
//! never older than the request. It also finds the links on the way and the .htaccess files above.
//! It does not decide what a client may see.
//!
//! Each serving thread has one [`Files`], so that nothing is locked. A change of a file reaches the
//! thread as a signal that sets a flag (see `watches`). Where the kernel cannot report changes, and
//! for file systems that other machines change, every request calls lstat.

mod contents;
mod files;
mod folder;
mod found;
mod listed;
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
pub use listed::ListedFile;
