//! The wire tests: short texts come in, each a configuration and exchanges over it; what two
//! servers answer differently comes out. The oracle is Debian's apache2; the other is Evenkeel.
//! Nothing here knows a room of the house: the programs are run as an administrator runs them.

pub mod answer;
pub mod attack;
pub mod broken;
pub mod compare;
pub mod house;
pub mod load;
pub mod odd_log;
pub mod play;
pub mod script;
pub mod server;
pub mod talk;
