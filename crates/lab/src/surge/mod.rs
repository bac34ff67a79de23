//! The SURGE workload: users who ask for a page and all that it embeds, then think. A profile and a
//! seed come in; files on disk and a load come out.

mod command;
mod profile;
mod user;
mod work;

pub use command::{command, run};
pub use profile::{Embedded, Profile, Sizes};
pub use work::{FileSet, Order, Page};
