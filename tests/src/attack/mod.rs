//! The differential attack: random sites and random requests on them are asked of Debian's apache2
//! and of Evenkeel at once, and every difference is classed, shrunk and reported. `grammar` says
//! what a configuration and a request are made of; a module that comes adds its lines there.
//! `cargo xtask attack --help` tells how it is used.

pub mod accepted;
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
