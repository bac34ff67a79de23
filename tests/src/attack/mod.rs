//! The differential attack: sends random requests to random sites, served by Debian's apache2 and
//! by Evenkeel at the same time, and classifies, shrinks and reports every difference. `grammar`
//! has the elements of configurations and requests; a new module adds its lines there. `cargo xtask
//! attack --help` describes its use.

pub mod accepted;
mod application;
pub mod client;
pub mod compose;
pub mod dice;
pub mod grammar;
pub mod guard;
pub mod judge;
pub mod pair;
pub mod run;
pub mod shrink;
pub mod site;
pub mod state;
