//! The wire tests: plays short texts, each with a configuration and exchanges, to Debian's apache2
//! (the oracle) and to Evenkeel, and reports the differences. Nothing here depends on a room of the
//! server: the programs are run as an administrator runs them.

pub mod answer;
pub mod application;
pub mod attack;
pub mod broken;
pub mod compare;
pub mod digest;
pub mod frames;
pub mod gateway;
pub mod house;
pub mod load;
pub mod odd_log;
pub mod origin;
pub mod php;
pub mod php_house;
pub mod php_site;
pub mod play;
pub mod script;
pub mod server;
pub mod talk;
pub mod tls;
pub mod visitor;
