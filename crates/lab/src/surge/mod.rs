//! The SURGE workload: users who request a page and all the files that it embeds, and then think. A
//! profile and a seed determine the files on disk and the load.

mod command;
mod profile;
mod user;
mod work;

pub use command::{command, run};
pub use profile::{Embedded, Profile, Sizes};
pub use work::{FileSet, Order, Page};
