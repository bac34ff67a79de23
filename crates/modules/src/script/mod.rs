//! Functions that all handlers of programs share: [`variables`] sets the variables of a program,
//! and [`respond`] makes a response from its output.

mod answer;
mod environment;
mod variables;

pub use answer::{Output, respond};
pub(crate) use environment::before_nul;
pub use environment::environment;
pub use variables::{Program, variables};
